"""Where a group goes on at a restored topic; an approximate place is never called exact.

Groups go on at a restored topic: translated, committed when asked, read back, and set back.
"""

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from kafka_s3_platform.core.config.settings import ConnectorConfig, KafkaSettings, StoreSettings, TransformSettings
from kafka_s3_platform.core.errors import BusyError, IntegrityError, PermanentError, PreflightError, TopicRecreatedError
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.kafka.groups import Committed, publish_offsets, publish_offsets_of, read_committed_offsets
from kafka_s3_platform.core.model.frontier import Frontier
from kafka_s3_platform.core.model.segment import CommittedOffset
from kafka_s3_platform.core.restore.archive_source import ArchiveSource
from kafka_s3_platform.core.restore.replay.transactions import Transactions
from kafka_s3_platform.core.restore.request import Outgoing, RecordFilter
from kafka_s3_platform.core.restore.run import restore
from kafka_s3_platform.core.restore.verify.read_back import MappingWriter, verify_stream
from kafka_s3_platform.operate.groups import group_commit
from kafka_s3_platform.operate.groups.group_commit import Rollback, TopicBefore, apply_translations, roll_back_groups
from kafka_s3_platform.operate.groups.group_offsets import (
    NO_DOUBT,
    NO_RUNS,
    Doubt,
    Precision,
    Restored,
    TranslatedOffset,
    Translation,
    count_restored,
    drop_repeats,
    find_absent,
    find_doubled,
    read_finished_restore,
    translate_groups,
    translate_offsets,
)
from kafka_s3_platform_tests.conftest import CreateTopic, Lab
from kafka_s3_platform_tests.kafka.topics import consuming, delete_group, delete_records, open_transaction
from kafka_s3_platform_tests.restore.own import (
    Archive,
    Between,
    StoppingRunner,
    add_kafka_partitions,
    delete_topic,
    numbered,
    once,
    request,
    restored,
    target_of,
)
from kafka_s3_platform_tests.store.rows import segment
from kafka_s3_platform_tests.support import NOON, Sent, archived, connector, produce, tried

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)


def row(offset: int, kafka_partition: int = 0) -> CommittedOffset:
    return CommittedOffset("g", kafka_partition, offset, "note", 3, "EMPTY", NOW)


def log(start: int = 0, end: int = 1000) -> Frontier:
    return Frontier(0, start, end, end, None, NOW)


def with_runs(
    *runs: tuple[int, int, int], missing: Doubt = NO_DOUBT, mixed: Doubt = NO_DOUBT, end: int = 100
) -> Restored:
    found = np.array(runs, np.int64).T if runs else NO_RUNS
    return Restored(found, end, missing, mixed)


def place(offset: int, what: Restored, target: Frontier | None = None, moved: str = "") -> TranslatedOffset:
    [found] = translate_offsets([row(offset)], {0: what}, {0: target or log()}, moved)
    return found


def outcome(found: TranslatedOffset) -> tuple[int | None, Precision]:
    return found.target_offset, found.precision


def test_a_record_that_was_restored_is_where_the_group_goes_on() -> None:
    found = place(57, with_runs((50, 7, 50)))

    assert outcome(found) == (14, Precision.EXACT)
    assert (found.source_offset, found.metadata) == (57, "note")


def test_offsets_that_hold_no_record_are_passed_over_exactly() -> None:
    assert outcome(place(60, with_runs((50, 7, 10), (62, 18, 38)))) == (18, Precision.EXACT)


def test_what_is_missing_after_the_committed_offset_makes_it_approximate() -> None:
    what = with_runs((50, 7, 10), (62, 18, 38), missing=(62, "some are missing"))

    assert outcome(place(55, what)) == (12, Precision.APPROXIMATE)
    assert place(61, what).reason == "some are missing"
    assert outcome(place(62, what)) == (18, Precision.EXACT)


def test_what_lies_between_restored_records_makes_all_before_it_approximate() -> None:
    what = with_runs((50, 7, 10), (60, 18, 40), mixed=(18, "others"))

    assert outcome(place(59, what)) == (16, Precision.APPROXIMATE)
    assert place(59, what).reason == "others"
    assert outcome(place(60, what)) == (18, Precision.EXACT)


def test_a_group_that_had_read_everything_goes_on_at_the_end() -> None:
    assert outcome(place(100, with_runs((50, 7, 50)))) == (57, Precision.EXACT)


def test_a_transactions_end_after_the_last_record_changes_nothing() -> None:
    assert outcome(place(100, with_runs((50, 7, 49)))) == (56, Precision.EXACT)
    assert outcome(place(99, with_runs((50, 7, 49)))) == (56, Precision.EXACT)


def test_an_offset_after_what_is_archived_is_approximate() -> None:
    found = place(101, with_runs((50, 7, 50)))

    assert outcome(found) == (57, Precision.APPROXIMATE)
    assert "after what is archived, which ends at offset 100" in found.reason


def test_an_idle_kafka_partition_is_exact_only_in_an_empty_target() -> None:
    assert outcome(place(100, with_runs(), log(0, 0))) == (0, Precision.EXACT)
    assert outcome(place(0, with_runs(end=0), log(4, 4))) == (4, Precision.EXACT)
    assert outcome(place(100, with_runs(), log(0, 5))) == (None, Precision.NONE)
    assert outcome(place(50, with_runs(missing=(60, "m")), log(0, 0))) == (None, Precision.NONE)


def test_what_the_target_no_longer_holds_is_no_place() -> None:
    found = place(57, with_runs((50, 7, 50)), log(15, 57))

    assert outcome(found) == (None, Precision.NONE)
    assert "would be target offset 14, and the target holds [15, 57) only" in found.reason


def test_other_kafka_partition_numbers_have_no_translation() -> None:
    found = place(57, with_runs((50, 7, 50)), moved="records went to other kafka partitions, by murmur2")

    assert outcome(found) == (None, Precision.NONE)
    assert "murmur2" in found.reason


def test_a_kafka_partition_that_the_target_lacks_has_no_translation() -> None:
    [found] = translate_offsets([row(5, kafka_partition=7)], {7: with_runs((0, 0, 9))}, {})

    assert outcome(found) == (None, Precision.NONE)


@given(st.data())
def test_exact_is_only_what_leaves_out_and_doubles_no_unread_record(data: st.DataObject) -> None:
    archived = sorted(data.draw(st.sets(st.integers(0, 30), max_size=20)))
    # as a mapper does it: none of a record, one, or several
    sent = [(o, n) for o in archived for n in range(data.draw(st.sampled_from([0, 1, 1, 1, 2])))]
    cuts = sorted({0, 31, *data.draw(st.sets(st.integers(1, 30), max_size=3))})
    counts = {(a, b): sum(a <= o < b for o in archived) for a, b in pairwise(cuts)}
    objects = [replace(segment("k", a, b), record_count=count) for (a, b), count in counts.items() if count]
    committed = data.draw(st.integers(0, 35))
    writer = MappingWriter()
    for n, (o, _) in enumerate(sent):
        writer.add(*(pa.record_batch({"offset": pa.array([at], pa.int64())}) for at in (o, 100 + n)))
    found = pq.read_table(writer.close()) if sent else None
    runs = np.stack([c.to_numpy() for c in found.columns]) if found else NO_RUNS
    what = Restored(runs, 31, max(find_doubled(runs), find_absent(drop_repeats(runs), objects)))

    target, precision = outcome(place(committed, what, log(0, 200) if sent else log(100, 100)))

    unread = [100 + n for n, (o, _) in enumerate(sent) if o >= committed]
    if precision is not Precision.NONE:
        assert target == (unread[0] if unread else 100 + len(sent))
    if precision is Precision.EXACT:
        assert committed <= 31
        assert [o for o, _ in sent if o >= committed] == [o for o in archived if o >= committed]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), max_size=8), st.integers(0, 70), st.integers(0, 70))
def test_restored_records_are_counted_from_the_runs(steps: list[tuple[int, int]], one: int, other: int) -> None:
    runs, at = [], 0
    for gap, count in steps:
        runs.append((at + gap, 0, count))
        at += gap + count
    offsets = [s + n for s, _, count in runs for n in range(count)]
    start, end = sorted((one, other))

    found = count_restored(with_runs(*runs).runs, start, end)

    assert found == sum(start <= o < end for o in offsets)


def test_the_rollback_file_comes_back() -> None:
    before = {"g": {0: Committed(5, "note"), 1: None}}
    rollback = Rollback("r1", NOW.isoformat(), {"t": TopicBefore("id", before)})

    assert Rollback.from_json(rollback.to_json()) == rollback


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"topics": {"t": 1}}', b"\xff"])
def test_another_file_is_no_rollback_file(content: bytes) -> None:
    with pytest.raises(PermanentError, match="no rollback file"):
        Rollback.from_json(content)


DROPS_AND_DOUBLES = TransformSettings(
    alias="odd", type="kafka_s3_platform_tests.transforms.example_mappers.DropsAndDoubles"
)
PORTION = 5.0


@pytest.fixture(scope="module")
def archive_once(kafka_settings: KafkaSettings, module_store: StoreSettings, create_topic: CreateTopic) -> Archive:
    """Archives what the group, and a second, committed: for equal offsets, once."""

    def archive(offsets: dict[int, int], of_second: dict[int, int] | None = None) -> ConnectorConfig:
        topic = create_topic(f"topic-{uuid4().hex[:12]}", 3)
        config = connector(kafka_settings, module_store, topic, consumer_groups=(f"{topic}-app.*",))
        keyed = [replace(record, key=b"k%d" % (n % 2)) for n, record in enumerate(numbered(10))]
        produce(kafka_settings, topic, [*keyed, *numbered(5, kafka_partition=1)])
        with ClusterAdmin(kafka_settings) as admin:
            publish_offsets(admin, group_of(config), topic, offsets, dict.fromkeys(offsets, "note"))
            if of_second:
                publish_offsets(admin, f"{group_of(config)}-2", topic, of_second)
        archived(config)
        return config

    return once(archive)


@pytest.fixture
def source(shared_archive: Archive) -> Archive:
    """Ten records in kafka partition 0, five in 1, none in 2, archived with what the group, and a second, committed."""
    return shared_archive


def group_of(config: ConnectorConfig) -> str:
    return f"{config.topics[0]}-app"


def translation(config: ConnectorConfig, groups: tuple[str, ...] = ()) -> Translation:
    documents = read_finished_restore(config, "r1")
    assert documents is not None
    with ClusterAdmin(config.kafka) as admin:
        [found] = translate_groups(config, *documents, admin, groups)
        return found


def places(found: Translation) -> dict[int, tuple[int | None, str]]:
    return {o.kafka_partition: (o.target_offset, o.precision.value) for o in found.offsets}


def test_a_whole_restore_translates_exactly(source: Archive) -> None:
    config = source({0: 4, 1: 5, 2: 0})
    restored(config)

    assert places(translation(config)) == {0: (4, "exact"), 1: (5, "exact"), 2: (0, "exact")}


def test_a_window_gives_approximate_places_outside_of_it(source: Archive) -> None:
    config = source({0: 4, 1: 4}, {1: 5})
    restored(config, from_offset={0: 6}, to_offset={1: 3})

    before, after, had_read_all = translation(config).offsets

    assert (before.target_offset, before.precision) == (0, Precision.APPROXIMATE)
    assert before.reason == "of the 10 records that are archived in offsets [0, 10) 4 are in the target"
    assert (after.target_offset, after.precision) == (3, Precision.APPROXIMATE)
    assert after.reason == "of the 5 records that are archived in offsets [0, 5) 3 are in the target"
    assert (had_read_all.target_offset, had_read_all.precision) == (3, Precision.EXACT)


@pytest.mark.parametrize(
    "left_out",
    [
        {"to_offset": {0: 8}},
        {"from_time": NOON, "to_time": NOON + timedelta(milliseconds=8)},
        {"records": RecordFilter(keys=(b"k0",))},
        {"records": RecordFilter(sql='"offset" = 4')},
        {"outgoing": Outgoing(transforms=(DROPS_AND_DOUBLES,))},
    ],
    ids=["offsets", "time", "keys", "sql", "a mapper that drops one and doubles another"],
)
def test_no_place_is_exact_where_an_unread_record_is_not_in_the_target_once(
    source: Archive, left_out: dict[str, Any]
) -> None:
    config = source({0: 4})
    restored(config, kafka_partitions=(0,), **left_out)

    (place,) = translation(config).offsets
    assert place.precision is Precision.APPROXIMATE


@pytest.mark.parametrize("is_alone", [True, False])
def test_what_lies_between_restored_records_is_looked_at(
    source: Archive, monkeypatch: pytest.MonkeyPatch, is_alone: bool
) -> None:
    """The end of a transaction takes an offset as another writer's record does, and is none."""
    config = source({0: 4}, {0: 8})
    target = target_of(config)
    original = Transactions.make_room

    def make_room(self: Transactions, size: int) -> None:
        self.commit()
        if not is_alone:
            produce(config.kafka, target, [Sent(b"another's")])
        original(self, size)

    monkeypatch.setattr(Transactions, "make_room", make_room)
    # in two portions
    restored(config, kafka_partitions=(0,), records_per_second=PORTION)

    first, second = translation(config).offsets
    assert (first.source_offset, second.source_offset) == (4, 8)
    # between them lie the rest of the first portion and three of the second
    between = 4 + (1 if is_alone else 2)
    assert first.target_offset is not None
    assert second.target_offset == first.target_offset + between
    assert first.precision is (Precision.EXACT if is_alone else Precision.APPROXIMATE)
    assert second.precision is Precision.EXACT
    assert is_alone or "records of others" in first.reason


def test_what_others_write_behind_the_restored_records_changes_no_place(source: Archive) -> None:
    """Neither does a transaction of theirs that is open, nor that the target grew."""
    config = source({0: 4, 1: 5})
    target = restored(config).to_topic
    produce(config.kafka, target, numbered(3))
    add_kafka_partitions(config.kafka, target, 5)
    other = open_transaction(config.kafka, target, [b"open"])
    try:
        assert places(translation(config)) == {0: (4, "exact"), 1: (5, "exact")}
    finally:
        other.abort_transaction(10)


def test_what_was_sent_once_more_behind_the_restored_records_would_be_read_twice(source: Archive) -> None:
    """As an older run does that wakes up late."""
    config = source({0: 4, 1: 5})
    asked = request(config, delivery="at_least_once")
    late = numbered(5, kafka_partition=1)[3:]
    report = restore(ArchiveSource(asked), Between(after_replay=lambda: produce(config.kafka, asked.to_topic, late)))
    assert report.doubled_count == 2
    documents = read_finished_restore(config, "r1")
    assert documents is not None
    with ClusterAdmin(config.kafka) as admin:
        [found] = translate_groups(config, documents[0], report, admin)
    assert places(found) == {0: (4, "exact"), 1: (5, "approximate")}
    assert "some of its own again, lie behind them, the last of them at or after target offset 6" in str(found)


def test_a_committed_offset_among_records_that_the_archive_lost_is_approximate(lab: Lab) -> None:
    config = lab.archive(numbered(4), consumer_groups=(f"{lab.topic}-app.*",))
    topic, group = config.topics[0], group_of(config)
    produce(config.kafka, topic, numbered(6))
    delete_records(config.kafka, topic, 7)
    with ClusterAdmin(config.kafka) as admin:
        publish_offsets(admin, group, topic, {0: 5})
        publish_offsets(admin, f"{group}-2", topic, {0: 7})
    tried(config)
    restored(config)

    first, second = translation(config).offsets

    assert (first.source_offset, first.target_offset, first.precision) == (5, 4, Precision.APPROXIMATE)
    assert "the archive does without records before offset 7" in first.reason
    assert (second.source_offset, second.target_offset, second.precision) == (7, 4, Precision.EXACT)


def test_records_of_others_in_the_target_shift_the_place(source: Archive) -> None:
    config = source({0: 4, 2: 0})
    report = restored(config, restore_id="first")
    produce(config.kafka, report.to_topic, numbered(1, kafka_partition=2))
    before = restored(config, restore_id="r1").kafka_partitions[0].first_target_offset
    assert before is not None

    assert places(translation(config)) == {0: (before + 4, "exact"), 2: (None, "none")}


def test_offsets_are_committed_read_back_and_set_back(source: Archive) -> None:
    config = source({0: 4, 1: 5})
    group = group_of(config)
    target = restored(config).to_topic
    saved: list[bytes] = []
    with ClusterAdmin(config.kafka) as admin:
        publish_offsets(admin, group, target, {0: 1})

        rollback = apply_translations(admin, [translation(config)], saved.append)

        assert read_committed_offsets(admin, group, target) == {0: 4, 1: 5}
        assert Rollback.from_json(saved[0]) == rollback
        lines = roll_back_groups(admin, rollback)
        assert read_committed_offsets(admin, group, target) == {0: 1}
    assert lines[0] == f"{group}, kafka partition 0: back at offset 1"
    assert lines[1] == f"{group}: had committed nothing of kafka partitions 1 before; their offsets are removed"


def test_a_group_that_did_not_exist_has_nothing_committed_after_the_rollback(source: Archive) -> None:
    config = source({0: 4})
    group = group_of(config)
    restored(config)
    found = translation(config)
    with ClusterAdmin(config.kafka) as admin:
        delete_group(admin, group)

        rollback = apply_translations(admin, [found], lambda _: None)
        assert read_committed_offsets(admin, group, found.to_topic) == {0: 4}

        done = f"{group}: had committed nothing of kafka partitions 0 before; their offsets are removed"
        assert roll_back_groups(admin, rollback) == [done]
        assert read_committed_offsets(admin, group, found.to_topic) == {}
        assert roll_back_groups(admin, rollback) == [done]


def test_where_only_librdkafka_connects_the_command_that_removes_offsets_is_told(source: Archive) -> None:
    config = source({0: 4})
    group = group_of(config)
    target = restored(config).to_topic
    found = translation(config)
    settings = config.kafka.model_copy(update={"common": {"client.rack": SecretStr("a")}})
    with ClusterAdmin(settings) as admin:
        [line] = roll_back_groups(admin, apply_translations(admin, [found], lambda _: None))
        assert "their offsets stay (" in line
        assert line.endswith(f"--bootstrap-server HOST:PORT --delete-offsets --group {group} --topic {target}:0")
        assert read_committed_offsets(admin, group, target) == {0: 4}


def test_an_active_group_is_refused_and_nothing_is_written(source: Archive) -> None:
    config = source({0: 4})
    group = group_of(config)
    target = restored(config).to_topic
    found = translation(config)
    saved: list[bytes] = []
    with (
        consuming(config.kafka, target, group),
        ClusterAdmin(config.kafka) as admin,
        pytest.raises(BusyError, match="stop its consumers first"),
    ):
        apply_translations(admin, [found], saved.append)
    assert saved == []
    with ClusterAdmin(config.kafka) as admin:
        apply_translations(admin, [found], saved.append)
        assert read_committed_offsets(admin, group, target) == {0: 4}


def test_an_approximate_place_is_committed_only_when_that_is_allowed(source: Archive) -> None:
    config = source({0: 4, 1: 2})
    group = group_of(config)
    target = restored(config, from_offset={0: 6}, kafka_partitions=(0,)).to_topic
    found = translation(config)
    assert [o.precision for o in found.offsets] == [Precision.APPROXIMATE, Precision.NONE]
    with ClusterAdmin(config.kafka) as admin:
        with pytest.raises(PreflightError, match="2 of 2 offsets of restore r1 are not exact"):
            apply_translations(admin, [found], lambda _: None)
        assert read_committed_offsets(admin, group, target) == {}

        apply_translations(admin, [found], lambda _: None, allow_approximate=True)

        assert read_committed_offsets(admin, group, target) == {0: 0}


def test_nothing_is_committed_when_the_rollback_cannot_be_written(source: Archive) -> None:
    config = source({0: 4})
    group = group_of(config)
    target = restored(config).to_topic

    def full(_: bytes) -> None:
        raise OSError("no space left")

    with ClusterAdmin(config.kafka) as admin:
        with pytest.raises(OSError, match="no space left"):
            apply_translations(admin, [translation(config)], full)
        assert read_committed_offsets(admin, group, target) == {}


def test_a_target_that_was_created_again_is_refused(source: Archive, lab: Lab) -> None:
    config = source({0: 4})
    target = restored(config).to_topic
    found = translation(config)
    delete_topic(config.kafka, target)
    lab.create(target, 3)

    with pytest.raises(TopicRecreatedError, match="deleted and created again"):
        translation(config)
    with ClusterAdmin(config.kafka) as admin, pytest.raises(TopicRecreatedError):
        apply_translations(admin, [found], lambda _: None)


def test_a_group_that_is_not_archived_and_a_restore_that_is_not_finished_are_told(source: Archive) -> None:
    config = source({0: 4})
    group = group_of(config)
    assert read_finished_restore(config, "r1") is None
    restored(config)

    with pytest.raises(PermanentError, match=f"holds no offsets of billing; there are those of {group}"):
        translation(config, ("billing",))
    assert read_finished_restore(config.model_copy(update={"name": "other"}), "r1") is None


def test_groups_without_an_exact_place_are_left_out_by_naming_the_others(source: Archive) -> None:
    config = source({0: 4}, {1: 2})
    group = group_of(config)
    with ClusterAdmin(config.kafka) as admin:
        target = restored(config, kafka_partitions=(0,)).to_topic
        with pytest.raises(PreflightError, match="Leave their groups out with --group"):
            apply_translations(admin, [translation(config)], lambda _: None)
        apply_translations(admin, [translation(config, (group,))], lambda _: None)
        assert read_committed_offsets(admin, group, target) == {0: 4}


def test_a_restore_that_is_not_finished_is_run_again_and_then_translated(source: Archive) -> None:
    config = source({0: 4})
    with pytest.raises(InterruptedError):
        restore(ArchiveSource(request(config)), StoppingRunner(verify_stream))
    with pytest.raises(PermanentError, match="Run it again under the same id"):
        read_finished_restore(config, "r1")
    restored(config)
    assert places(translation(config)) == {0: (4, "exact")}


def test_offsets_that_others_commit_too_are_applied_again_later(
    source: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = source({0: 4})
    group = group_of(config)
    target = restored(config).to_topic

    def published(admin: ClusterAdmin, *given: Any) -> None:
        publish_offsets_of(admin, *given)
        publish_offsets(admin, group, target, {0: 1})

    monkeypatch.setattr(group_commit, "publish_offsets_of", published)
    with ClusterAdmin(config.kafka) as admin:
        with pytest.raises(IntegrityError, match="Stop that, and apply again"):
            apply_translations(admin, [translation(config)], lambda _: None)
        monkeypatch.undo()
        apply_translations(admin, [translation(config)], lambda _: None)
        assert read_committed_offsets(admin, group, target) == {0: 4}
