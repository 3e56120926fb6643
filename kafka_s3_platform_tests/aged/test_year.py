"""Two months of an archive with every rule, in simulated time: nothing lacks, is there twice, or gets stuck."""

from typing import Any

import pytest

from kafka_s3_platform.core.config.settings import RetentionSettings
from kafka_s3_platform_tests.aged.year import START, Year
from kafka_s3_platform_tests.conftest import Lab

DAY_MS = 86_400_000


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_the_archive_does_not_grow_after_the_age_of_retention(lab: Lab, seed: int) -> None:
    rules: dict[str, Any] = {"merged_ms": (("", 7 * DAY_MS),), "ms": (("", 7 * DAY_MS),)}
    archive = {"start_hour": START, "monthly_segment_bytes": 2**26, "retention": RetentionSettings(**rules)}
    config = lab.connector(**archive)
    config = config.model_copy(update={"topics": tuple(f"{lab.topic}-{n}" for n in range(3))})
    sizes = [*Year(config, seed).play(60)]
    assert sizes[-1].objects <= 1.2 * max(s.objects for s in sizes[:2])
    assert sizes[-1].object_bytes <= 1.2 * max(s.object_bytes for s in sizes[:2])
