"""Plans that earlier versions stored: they are read, and written again they are the same bytes with the same digest."""

from pathlib import Path

import pytest

from kafka_s3_platform.restore.source.archive_plan import ArchivePlan
from kafka_s3_platform.restore.source.foreign_plan import ForeignPlan, make_foreign_targets
from kafka_s3_platform_tests.restore.source.test_selection import CONFIG

STORED = Path(__file__).parent / "stored"


@pytest.mark.parametrize("name", ["archive_plan", "early_archive_plan", "foreign_plan", "early_foreign_plan"])
def test_a_stored_plan_is_written_again_as_it_was(name: str) -> None:
    """The digest is in the progress markers of restores under way."""
    content = (STORED / f"{name}.json").read_bytes().rstrip()
    kind = ForeignPlan if name.endswith("foreign_plan") else ArchivePlan
    assert kind.from_json(content, "k").to_json() == content


def test_what_a_stored_plan_was_asked_for_is_told_by_its_terms() -> None:
    early = ArchivePlan.from_json((STORED / "early_archive_plan.json").read_bytes(), "k").asked
    assert (early.chooses, early.keeps_numbers, early.is_snapshot, early.windows_named) == (False, True, False, ())
    for kind, name, after in ((ArchivePlan, "archive_plan", None), (ForeignPlan, "foreign_plan", "r0")):
        asked = kind.from_json((STORED / f"{name}.json").read_bytes(), "k").asked
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
