"""Plans as they are stored: each says its format, and is written again as the same bytes with the same digest."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from kafka_s3_platform.errors import IntegrityError
from kafka_s3_platform.restore.source.archive_plan import ArchivePlan
from kafka_s3_platform.restore.source.base import TargetStart
from kafka_s3_platform.restore.source.foreign_plan import ForeignPlan, make_foreign_targets
from kafka_s3_platform_tests.restore.source.test_selection import CONFIG

STORED = Path(__file__).parent / "stored"
KINDS: Mapping[str, type[ArchivePlan] | type[ForeignPlan]] = {"archive_plan": ArchivePlan, "foreign_plan": ForeignPlan}


@pytest.mark.parametrize("name", KINDS)
def test_a_stored_plan_is_written_again_as_it_was(name: str) -> None:
    """The digest is in the progress markers of restores under way."""
    content = (STORED / f"{name}.json").read_bytes().rstrip()
    assert KINDS[name].from_json(content, "k").to_json() == content


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(("said", "found"), [(2, "format 2"), (0, "format 0"), (None, "no format")])
def test_a_plan_of_another_format_is_refused_and_says_what_to_do(name: str, said: int | None, found: str) -> None:
    document = json.loads((STORED / f"{name}.json").read_bytes())
    assert document.pop("format") == 1
    content = json.dumps(document if said is None else {**document, "format": said}).encode()
    advice = f"restore plan k has {found}, and this version reads format 1: use the version that wrote it, or restore"
    with pytest.raises(IntegrityError, match=rf"\] {advice} under another restore id$"):
        KINDS[name].from_json(content, "k")


def test_a_plan_whose_target_ended_nowhere_is_refused() -> None:
    start = {"topic_id": "id", "offsets": [[0, -1001]]}
    document = json.loads((STORED / "archive_plan.json").read_bytes()) | {"target": start}
    with pytest.raises(IntegrityError, match=r"no log ends at one of the offsets \(\(0, -1001\),\)"):
        ArchivePlan.from_json(json.dumps(document).encode(), "k")
    with pytest.raises(ValueError, match="no log ends"):
        TargetStart("id", ((0, -1),))


def test_what_a_stored_plan_was_asked_for_is_told_by_its_terms() -> None:
    for kind, name, after in ((ArchivePlan, "archive_plan", None), (ForeignPlan, "foreign_plan", "r0")):
        asked = kind.from_json((STORED / f"{name}.json").read_bytes(), "k").facts
        assert (asked.connector, asked.after) == ("c", after)
        assert (asked.chooses, asked.partitioning, asked.is_snapshot) == (True, "murmur2", True)
        assert asked.windows_named == ("windows",)
        assert [step.type for step in asked.transforms][1:] == ["InsertHeader", "InsertField$Value"]


def test_what_a_listing_does_not_tell_is_not_known() -> None:
    plan = ForeignPlan.from_json((STORED / "foreign_plan.json").read_bytes(), "k")
    for name, is_told, oldest in (("envelope.json", True, 0), ("json", False, 5)):
        layout = CONFIG.layout.model_copy(update={"format": name})
        [target] = make_foreign_targets(CONFIG.model_copy(update={"layout": layout}), plan)
        assert (target.topics, target.to_topic, target.kafka_partitions) == (("t",), "u", (0, 1))
        assert (target.record_count, target.record_bytes, target.object_bytes) == (None, None, 21)
        assert (target.has_timestamps, target.oldest(now_ms=5), target.is_exact) == (is_told, oldest, False)
