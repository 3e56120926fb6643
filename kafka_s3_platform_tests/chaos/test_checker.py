"""The checker finds what was planted, and nothing where nothing is wrong."""

import dataclasses
from collections.abc import Callable

import pytest

from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.model.gaps import Gap
from kafka_s3_platform.core.model.segment import HourRange, Segment
from kafka_s3_platform.core.store.index_commit import Change
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform_tests.chaos.checker import Known, Truth, judge, judge_healed
from kafka_s3_platform_tests.chaos.lies import Hidden
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.support import HOUR, NOON, Sent, archived, snapshot

RECORDS = 12
HOURS = [NOON, NOON + HOUR, NOON + 2 * HOUR]


@pytest.fixture
def config(lab: Lab) -> ConnectorConfig:
    """A connector whose topic holds 12 records over 3 hours."""
    records = [Sent(b"%d" % n, b"k", NOON + n * HOUR / 4) for n in range(RECORDS)]
    return lab.fill(records, layout={"flush_size": 3})


@pytest.fixture
def truth(config: ConnectorConfig) -> Truth:
    first = round(NOON.timestamp() * 1000)
    known = Truth()
    known.add(Known(0, n, first + n * 900_000, b"k", b"%d" % n) for n in range(RECORDS))
    known.before_the_first_look(None)
    return known


def kinds(config: ConnectorConfig, truth: Truth, *hidden: Hidden) -> list[str]:
    return [v.kind for v in judge(config, truth, hidden).verdicts]


def rewritten(config: ConnectorConfig, change: Callable[[Segment], Segment]) -> None:
    """Have the index hold another row instead of its first segment's."""
    index = snapshot(config)
    first = index.segments[0]
    index.commit(Change(added=(change(first),), retired=(first,)))


def test_nothing_is_found_of_nothing_archived(config: ConnectorConfig, truth: Truth) -> None:
    assert kinds(config, truth) == []
    assert [v.kind for v in judge_healed(config, truth).verdicts] == ["wedged", "wedged"]


def test_nothing_is_found_of_an_honest_archive(config: ConnectorConfig, truth: Truth) -> None:
    archived(config, HOURS)
    assert judge_healed(config, truth).verdicts == []


def test_an_hour_of_several_archived_is_no_loss_of_the_others(config: ConnectorConfig, truth: Truth) -> None:
    archived(config, HOURS[:1])
    assert kinds(config, truth) == []


def test_a_planted_loss_is_found(config: ConnectorConfig, truth: Truth) -> None:
    archived(config, HOURS)
    index = snapshot(config)
    index.commit(Change(retired=index.segments[:1]))
    assert kinds(config, truth) == ["lost", "lost"]


def test_a_planted_loss_that_a_lie_hid_is_believed_until_it_is_healed(config: ConnectorConfig, truth: Truth) -> None:
    archived(config, HOURS)
    index = snapshot(config)
    lost = index.segments[0]
    index.commit(Change(retired=(lost,)))
    assert kinds(config, truth, Hidden(0, lost.start_offset, lost.end_offset)) == []
    assert kinds(config, truth, Hidden(1, 0)) == ["lost", "lost"]
    assert "lost" in [v.kind for v in judge_healed(config, truth).verdicts]


def test_an_hour_called_complete_without_its_records_is_found(config: ConnectorConfig, truth: Truth) -> None:
    archived(config, HOURS[2:])
    end = RECORDS
    snapshot(config).commit(Change(added=(HourRange(NOON, 0, end, end),)))
    assert snapshot(config).state.judge.is_complete(NOON, HOUR * 0)
    assert kinds(config, truth) == ["lost"]


def test_a_planted_double_is_found(config: ConnectorConfig, truth: Truth) -> None:
    archived(config, HOURS)
    index = snapshot(config)
    first = index.segments[0]
    copy = f"{first.key}.copy"
    ObjectStore(config.store).put_new(copy, ObjectStore(config.store).get(first.key))
    index.commit(Change(added=(dataclasses.replace(first, key=copy),)))
    assert kinds(config, truth) == ["twice"]


def test_a_live_object_that_is_gone_is_found(config: ConnectorConfig, truth: Truth) -> None:
    archived(config, HOURS)
    rewritten(config, lambda s: dataclasses.replace(s, key=f"{s.key}.gone"))
    assert kinds(config, truth) == ["damaged", "lost", "lost"]


def test_a_record_that_was_never_committed_is_found(config: ConnectorConfig, truth: Truth) -> None:
    archived(config, HOURS)
    del truth.records[0, 5]
    truth.promised.remove((0, 5))
    assert kinds(config, truth) == ["never committed"]


@pytest.mark.parametrize("change", [{"value": b"other"}, {"timestamp_ms": 1}, {"headers": (("h", None),)}])
def test_a_record_of_other_content_is_found(config: ConnectorConfig, truth: Truth, change: dict[str, object]) -> None:
    archived(config)
    truth.records[0, 5] = dataclasses.replace(truth.records[0, 5], **change)  # type: ignore[arg-type]
    assert kinds(config, truth) == ["altered"]


def test_a_planted_wedge_is_found(config: ConnectorConfig, truth: Truth) -> None:
    archived(config, HOURS[:1])
    assert kinds(config, truth) == []
    assert [v.kind for v in judge_healed(config, truth).verdicts] == ["wedged", "wedged"]


def test_records_written_after_the_first_look_came_late(config: ConnectorConfig, truth: Truth) -> None:
    archived(config, HOURS)
    late = Known(0, RECORDS, round(NOON.timestamp() * 1000), b"k", b"late")
    truth.before_the_first_look(snapshot(config))
    truth.add([late])
    truth.before_the_first_look(snapshot(config))
    assert kinds(config, truth) == []
    assert [v.kind for v in judge_healed(config, truth).verdicts] == ["wedged"]


def test_a_hostile_record_need_not_be_stored_but_its_hour_is_not_complete(
    config: ConnectorConfig, truth: Truth
) -> None:
    archived(config, HOURS)
    hostile = Known(0, RECORDS, round(NOON.timestamp() * 1000), None, None, is_hostile=True)
    truth.add([hostile])
    truth.promised.add(hostile.place)
    assert kinds(config, truth) == ["lost"]
    decided = Gap(0, RECORDS, RECORDS + 1, "skipped")
    snapshot(config).commit(Change(added=(decided,)))
    assert kinds(config, truth) == []


def test_a_decision_to_skip_what_is_not_hostile_is_a_loss(config: ConnectorConfig, truth: Truth) -> None:
    archived(config, HOURS)
    index = snapshot(config)
    lost = index.segments[0]
    index.commit(Change(added=(Gap(0, lost.start_offset, lost.end_offset, "skipped"),), retired=(lost,)))
    assert kinds(config, truth) == ["lost", "lost"]
