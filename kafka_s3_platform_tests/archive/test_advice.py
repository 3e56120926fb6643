"""Every advice in an error of the archive is taken, and works."""

import re
import shlex
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from kafka_s3_platform.cli import main
from kafka_s3_platform.cli import resolve as resolve_command
from kafka_s3_platform.cli import upkeep as upkeep_command
from kafka_s3_platform.core.archive.request import ArchiveRequest
from kafka_s3_platform.core.archive.run import archive_topic
from kafka_s3_platform.core.archive.takeover import record_takeover
from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.defs.topic import TopicAssets
from kafka_s3_platform.core.errors import (
    BusyError,
    ForeignObjectError,
    LogTruncatedError,
    OffsetGapError,
    PermanentError,
    SupersededError,
    TopicRecreatedError,
    UnresolvedOffsetsError,
)
from kafka_s3_platform.core.model.gaps import Gap
from kafka_s3_platform.core.model.offsets import OffsetRange
from kafka_s3_platform.core.model.segment import Scan
from kafka_s3_platform.core.store.index_commit import Change
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform.core.upkeep.resolve import BeginAt, resolve_offsets
from kafka_s3_platform.core.upkeep.vacuum import vacuum_topic
from kafka_s3_platform_tests.archive.bad_values import BY_VALUE, numbered
from kafka_s3_platform_tests.conftest import CreateTopic, Lab, present
from kafka_s3_platform_tests.kafka.topics import consuming, delete_records
from kafka_s3_platform_tests.support import (
    NOON,
    InProcessRunner,
    InterleavedRunner,
    archived,
    produce,
    scanned,
    snapshot,
    stored,
)


@pytest.fixture
def config(lab: Lab) -> ConnectorConfig:
    """Two kafka partitions, in the first of which ten records are archived."""
    return lab.archive(numbered(10), kafka_partitions=2)


def changed(config: ConnectorConfig, name: str, **settings: Any) -> ConnectorConfig:
    """The connector with other settings of one kind."""
    return config.model_copy(update={name: getattr(config, name).model_copy(update=settings)})


def run_the_command_of(message: str, config: ConnectorConfig, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run the command that an error tells, as it stands there; its output."""
    for module in (resolve_command, upkeep_command):
        monkeypatch.setattr(module, "find_archived_topics", lambda _, topic: [TopicAssets(config, topic)])
    found = re.search(r"kafka-s3 ((?:resolve|vacuum) [^\n]*)", message)
    assert found is not None, message
    outcome = CliRunner().invoke(main, shlex.split(found[1]))
    assert outcome.exit_code == 0, outcome.output
    return outcome.output


def test_what_is_unresolved_is_done_without_by_the_command_of_the_error(
    config: ConnectorConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_value = changed(config, "layout", **BY_VALUE["layout"]).model_copy(
        update={"records": config.records.model_validate(BY_VALUE["records"])}
    )
    produce(config.kafka, config.topics[0], numbered(5, [2]))
    with pytest.raises(UnresolvedOffsetsError) as raised:
        archived(by_value)
    output = run_the_command_of(str(raised.value), config, monkeypatch)
    assert "[12, 13): skipped" in output
    archived(by_value)
    assert scanned(config) == (OffsetRange(0, 15),)


@pytest.mark.usefixtures("_led_at_epoch_nine")
@pytest.mark.parametrize(("grown", "first_new"), [(5, 20), (25, 20)], ids=["shorter", "grown past the archive"])
def test_a_truncated_log_is_archived_on_after_the_command_of_the_error(
    config: ConnectorConfig, monkeypatch: pytest.MonkeyPatch, grown: int, first_new: int
) -> None:
    snapshot(config).commit(Change(added=(Scan(0, 10, 20, 0, 9, 1),)))
    produce(config.kafka, config.topics[0], numbered(grown))
    with pytest.raises(LogTruncatedError) as raised:
        archived(config)
    run_the_command_of(str(raised.value), config, monkeypatch)
    produce(config.kafka, config.topics[0], numbered(10))
    archived(config)
    offsets = stored(config).column("offset").to_pylist()
    assert offsets == [*range(10), *range(first_new, 10 + grown + 10)]


def test_what_retention_took_is_a_gap_where_gaps_are_allowed_and_the_rest_is_archived(config: ConnectorConfig) -> None:
    produce(config.kafka, config.topics[0], [*numbered(5), *numbered(5, kafka_partition=1)])
    delete_records(config.kafka, config.topics[0], 12)
    with pytest.raises(OffsetGapError, match=r"archive\.allow\.gaps=true") as raised:
        archived(config)
    assert "[10, 12)" in str(raised.value)
    # the other kafka partition is archived all the same, and no hour is complete by a look that lacks one
    assert scanned(config, 1) == (OffsetRange(0, 5),)
    archived(changed(config, "archive", allow_gaps=True))
    assert scanned(config) == (OffsetRange(0, 15),)


def test_what_was_gone_before_archiving_began_fails_no_run_and_is_told_of_the_hour(lab: Lab) -> None:
    lab.create_topic()
    lab.produce(numbered(10))
    delete_records(lab.kafka, lab.topic, 4)
    config = lab.connector()
    (hour,) = archived(config, [NOON]).hours
    assert (hour.record_count, hour.complete) == (6, True)
    assert hour.verdict.lacking == (Gap(0, 0, 4, "before archiving began"),)


def test_a_topic_created_again_is_archived_under_another_name_and_topics_dir(
    config: ConnectorConfig, create_topic: CreateTopic
) -> None:
    admin = AdminClient({**config.kafka.properties("admin")})
    admin.delete_topics([config.topics[0]])[config.topics[0]].result(30)
    create_topic(config.topics[0])
    produce(config.kafka, config.topics[0], numbered(3))
    said = r"deleted and created again.*another connector name and another topics\.dir"
    with pytest.raises(TopicRecreatedError, match=said):
        archived(config)
    assert scanned(config) == (OffsetRange(0, 10),)
    other = changed(config, "layout", topics_dir="other").model_copy(update={"name": "d"})
    assert archived(other).record_count == 3


def test_anothers_object_in_the_way_is_moved_or_another_topics_dir_is_taken(config: ConnectorConfig) -> None:
    (segment,) = snapshot(config).segments
    store, key = ObjectStore(config.store), segment.key.replace("+0+0000000000", "+0+0000000010")
    foreign = store.put_new(key, b"another's")
    produce(config.kafka, config.topics[0], [*numbered(5), *numbered(5, kafka_partition=1)])
    with pytest.raises(ForeignObjectError, match=r"\[10, 15\) is not archived.*another topics\.dir") as raised:
        archived(config)
    assert key in str(raised.value)
    assert scanned(config, 1) == (OffsetRange(0, 5),)
    assert archived(changed(config, "layout", topics_dir="other")).record_count == 5
    store.delete(key, foreign)
    produce(config.kafka, config.topics[0], numbered(5))
    assert archived(config).record_count == 5
    assert scanned(config) == (OffsetRange(0, 20),)


def test_a_sink_is_taken_over_under_another_name_and_topics_dir(config: ConnectorConfig) -> None:
    group = sink_committed(config, {0: 4})
    with pytest.raises(PermanentError, match=r"under another connector name and topics\.dir"):
        record_takeover(config, config.topics[0], group, "run")
    other = changed(config, "layout", topics_dir="other").model_copy(update={"name": "d"})
    record_takeover(other, config.topics[0], group, "run")
    assert archived(other).record_count == 6


def sink_committed(config: ConnectorConfig, offsets: Mapping[int, int]) -> str:
    """What a sink leaves behind when it is stopped; its group."""
    group = f"sink-{config.topics[0]}"
    consumer = Consumer(config.kafka.properties("consumer") | {"group.id": group})
    consumer.commit(offsets=[TopicPartition(config.topics[0], p, o) for p, o in offsets.items()], asynchronous=False)
    consumer.close()
    return group


@pytest.fixture
def unarchived(config: ConnectorConfig) -> ConnectorConfig:
    """Another connector of the same topic, which has archived nothing."""
    return changed(config, "layout", topics_dir="other").model_copy(update={"name": "d"})


def test_a_sink_ahead_of_a_truncated_log_is_taken_over_where_the_error_says(unarchived: ConnectorConfig) -> None:
    group = sink_committed(unarchived, {0: 11})
    with pytest.raises(LogTruncatedError) as raised:
        record_takeover(unarchived, unarchived.topics[0], group, "run")
    found = present(re.search(r"set the group's offset to one .* (\d+) at most", str(raised.value)))
    for offset in (int(found[1]), int(found[1]) - 3):
        sink_committed(unarchived, {0: offset})
        own = unarchived.model_copy(update={"name": f"d-{offset}"})
        record_takeover(own, own.topics[0], group, "run")
    produce(own.kafka, own.topics[0], numbered(2))
    assert archived(own).record_count == 10 - offset + 2


def test_a_topic_created_again_after_its_sink_is_archived_as_a_new_one(unarchived: ConnectorConfig) -> None:
    group = sink_committed(unarchived, {0: 11})
    with pytest.raises(LogTruncatedError, match=r"do not take over, .* under a topics\.dir of its own"):
        record_takeover(unarchived, unarchived.topics[0], group, "run")
    assert archived(changed(unarchived, "layout", topics_dir="own")).record_count == 10


def test_a_sink_is_taken_over_when_its_consumers_have_stopped(unarchived: ConnectorConfig) -> None:
    group = sink_committed(unarchived, {0: 4})
    with consuming(unarchived.kafka, unarchived.topics[0], group), pytest.raises(BusyError, match="stop its consumers"):
        record_takeover(unarchived, unarchived.topics[0], group, "run")
    assert record_takeover(unarchived, unarchived.topics[0], group, "run").offsets == {0: 4}


def kill_a_run(config: ConnectorConfig) -> None:
    """Leaves what a run has reserved, and an object that nobody committed."""

    def kill() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        archive_topic(ArchiveRequest(config, config.topics[0], "killed", None), InterleavedRunner(kill))
    assert snapshot(config).state.reservations != ()


def test_what_a_killed_run_has_reserved_is_ended_by_the_command_and_a_sink_taken_over(
    unarchived: ConnectorConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = sink_committed(unarchived, {0: 4})
    kill_a_run(unarchived)
    with pytest.raises(BusyError) as raised:
        record_takeover(unarchived, unarchived.topics[0], group, "run")
    output = run_the_command_of(str(raised.value), unarchived, monkeypatch)
    assert "1 orphan object," in output
    record_takeover(unarchived, unarchived.topics[0], group, "run")
    assert archived(unarchived).record_count == 6


@pytest.mark.parametrize("lost", [0, 9], ids=["still there", "taken by retention"])
def test_what_a_killed_run_has_reserved_is_ended_by_the_command_and_then_decided_about(
    unarchived: ConnectorConfig, monkeypatch: pytest.MonkeyPatch, lost: int
) -> None:
    """No other run needs what retention took, so none ends a reservation of it."""
    kill_a_run(unarchived)
    topic = unarchived.topics[0]
    if lost:
        delete_records(unarchived.kafka, topic, lost)
    with pytest.raises(BusyError, match="If it was killed, this ends its reservation") as raised:
        resolve_offsets(unarchived, topic, BeginAt(0, 8), "run", dry_run=False)
    run_the_command_of(str(raised.value), unarchived, monkeypatch)
    assert resolve_offsets(unarchived, topic, BeginAt(0, 8), "run", dry_run=False).gaps == (Gap(0, 0, 8, "skipped"),)


@pytest.mark.parametrize(("by_run", "missing"), [(True, 0), (False, 5)], ids=["by a later run", "by a vacuum"])
def test_a_run_that_was_superseded_is_run_again_for_what_is_still_missing(
    config: ConnectorConfig, by_run: bool, missing: int
) -> None:
    topic = config.topics[0]

    def supersede() -> object:
        return archived(config) if by_run else vacuum_topic(config, topic, "vacuum", timedelta(0), dry_run=False)

    produce(config.kafka, topic, numbered(5))
    with pytest.raises(SupersededError, match="Run it again for what is still missing"):
        archive_topic(ArchiveRequest(config, topic, "superseded", None), InterleavedRunner(supersede))
    assert archived(config).record_count == missing
    assert stored(config).column("offset").to_pylist() == list(range(15))


def test_a_run_whose_object_a_later_one_has_written_is_run_again_for_what_is_still_missing(
    config: ConnectorConfig,
) -> None:
    class LateRunner(InProcessRunner):
        def run(self, function: Any, tasks: Any, max_concurrent: int) -> Any:
            archived(config)
            yield from super().run(function, tasks, max_concurrent)

    produce(config.kafka, config.topics[0], numbered(5))
    with pytest.raises(SupersededError, match="Run again for what is still missing"):
        archive_topic(ArchiveRequest(config, config.topics[0], "late", None), LateRunner())
    produce(config.kafka, config.topics[0], numbered(5))
    assert archived(config).record_count == 5
    assert stored(config).column("offset").to_pylist() == list(range(20))
