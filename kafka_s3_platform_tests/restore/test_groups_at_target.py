"""Groups go on at a restored topic: translated, committed when asked, read back, and set back."""

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from pydantic import SecretStr

from kafka_s3_platform.config.settings import ConnectorConfig, KafkaSettings, StoreSettings, TransformSettings
from kafka_s3_platform.errors import BusyError, IntegrityError, PermanentError, PreflightError, TopicRecreatedError
from kafka_s3_platform.kafka.admin import ClusterAdmin
from kafka_s3_platform.kafka.groups import publish_offsets, read_committed_offsets
from kafka_s3_platform.restore import group_commit
from kafka_s3_platform.restore.archive_source import ArchiveSource
from kafka_s3_platform.restore.group_commit import Rollback, apply_translation, roll_back_groups
from kafka_s3_platform.restore.group_offsets import Precision, Translation, read_finished_restore, translate_groups
from kafka_s3_platform.restore.replay.transactions import Transactions
from kafka_s3_platform.restore.request import Outgoing, RecordFilter
from kafka_s3_platform.restore.run import restore
from kafka_s3_platform.restore.verify.read_back import verify_stream
from kafka_s3_platform_tests.conftest import CreateTopic, Lab
from kafka_s3_platform_tests.kafka.topics import consuming, delete_group, delete_records, open_transaction
from kafka_s3_platform_tests.restore.own import add_kafka_partitions, delete_topic, numbered, request, restored
from kafka_s3_platform_tests.restore.runners import Between, StoppingRunner
from kafka_s3_platform_tests.restore.targets import Archive, once, target_of
from kafka_s3_platform_tests.support import NOON, Sent, archived, connector, produce, tried

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
        return translate_groups(config, *documents, admin, groups)


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
        found = translate_groups(config, documents[0], report, admin)
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

        rollback = apply_translation(admin, translation(config), saved.append)

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

        rollback = apply_translation(admin, found, lambda _: None)
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
        [line] = roll_back_groups(admin, apply_translation(admin, found, lambda _: None))
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
        apply_translation(admin, found, saved.append)
    assert saved == []
    with ClusterAdmin(config.kafka) as admin:
        apply_translation(admin, found, saved.append)
        assert read_committed_offsets(admin, group, target) == {0: 4}


def test_an_approximate_place_is_committed_only_when_that_is_allowed(source: Archive) -> None:
    config = source({0: 4, 1: 2})
    group = group_of(config)
    target = restored(config, from_offset={0: 6}, kafka_partitions=(0,)).to_topic
    found = translation(config)
    assert [o.precision for o in found.offsets] == [Precision.APPROXIMATE, Precision.NONE]
    with ClusterAdmin(config.kafka) as admin:
        with pytest.raises(PreflightError, match="2 of 2 offsets of restore r1 are not exact"):
            apply_translation(admin, found, lambda _: None)
        assert read_committed_offsets(admin, group, target) == {}

        apply_translation(admin, found, lambda _: None, allow_approximate=True)

        assert read_committed_offsets(admin, group, target) == {0: 0}


def test_nothing_is_committed_when_the_rollback_cannot_be_written(source: Archive) -> None:
    config = source({0: 4})
    group = group_of(config)
    target = restored(config).to_topic

    def full(_: bytes) -> None:
        raise OSError("no space left")

    with ClusterAdmin(config.kafka) as admin:
        with pytest.raises(OSError, match="no space left"):
            apply_translation(admin, translation(config), full)
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
        apply_translation(admin, found, lambda _: None)


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
            apply_translation(admin, translation(config), lambda _: None)
        apply_translation(admin, translation(config, (group,)), lambda _: None)
        assert read_committed_offsets(admin, group, target) == {0: 4}


def test_a_restore_that_is_not_finished_is_run_again_and_then_translated(source: Archive) -> None:
    config = source({0: 4})
    with pytest.raises(InterruptedError):
        restore(ArchiveSource(request(config)), StoppingRunner(verify_stream))
    with pytest.raises(PermanentError, match="Run it again under the same id"):
        read_finished_restore(config, "r1")
    restored(config)
    assert places(translation(config)) == {0: (4, "exact")}


def test_offsets_that_somebody_else_commits_as_well_are_applied_again_when_that_has_stopped(
    source: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = source({0: 4})
    group = group_of(config)
    target = restored(config).to_topic

    def published(admin: ClusterAdmin, *given: Any) -> None:
        publish_offsets(admin, *given)
        publish_offsets(admin, group, target, {0: 1})

    monkeypatch.setattr(group_commit, "publish_offsets", published)
    with ClusterAdmin(config.kafka) as admin:
        with pytest.raises(IntegrityError, match="Stop that, and apply again"):
            apply_translation(admin, translation(config), lambda _: None)
        monkeypatch.undo()
        apply_translation(admin, translation(config), lambda _: None)
        assert read_committed_offsets(admin, group, target) == {0: 4}
