from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from kafka_s3_platform.model.state import IndexState
from kafka_s3_platform.restore.source.archive_plan import describe_gaps
from kafka_s3_platform.restore.source.selection import select_records
from kafka_s3_platform_tests.model.test_state import scan
from kafka_s3_platform_tests.restore.source.test_selection import request


@pytest.mark.parametrize(
    ("asked", "missing"),
    [
        ({"to_offset": 100}, "[60, 100)"),
        ({"from_offset": 80, "to_offset": 100}, "[80, 100)"),
        ({"to_offset": 60}, None),
        ({}, None),
        ({"from_offset": 30}, None),
    ],
)
def test_offsets_that_were_asked_for_and_lie_behind_the_archives_end_are_missing(
    asked: dict[str, Any], missing: str | None
) -> None:
    state = IndexState(scans=(scan(0, 0, 60),))
    gaps = list(describe_gaps(request(**asked), state, select_records(request(**asked), [0]), ()))
    expected = f"t-0: offsets {missing} are not archived, or were never there: the archive ends at offset 60"
    assert gaps == ([expected] if missing else [])


def test_of_a_window_without_an_end_hours_that_are_not_over_yet_lack_nothing() -> None:
    now = datetime.now(timezone.utc)

    def count(**asked: Any) -> int:
        window = request(from_time=now - timedelta(hours=5), **asked)
        [gap] = describe_gaps(window, IndexState(), select_records(window, [0]), ())
        return int(gap.removeprefix("t: ").split(" ")[0])

    assert 0 < count() < count(to_time=now + timedelta(hours=1))
