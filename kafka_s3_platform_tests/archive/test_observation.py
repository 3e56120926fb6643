"""A run looks at its topic once: what changes while it looks, it looks at again.

Whose log it is, for made-up logs: the leader epoch of each offset, and what the index knows of it.

Hours whose start a broker tells wrong: because retention went on meanwhile, or because a writer made up offsets.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from itertools import groupby
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from kafka_s3_platform.core.archive import observation
from kafka_s3_platform.core.archive.observation import (
    MAX_OBSERVATIONS,
    ArchivedLogs,
    Truncation,
    complete_frontiers,
    observe_until_unchanged,
    refuse_another_topic,
)
from kafka_s3_platform.core.archive.request import ArchiveReport, HourReport
from kafka_s3_platform.core.archive.takeover import record_takeover
from kafka_s3_platform.core.config.settings import ConnectorConfig, KafkaSettings, StoreSettings
from kafka_s3_platform.core.errors import BrokerUnavailableError, LogTruncatedError, OffsetGapError, TopicRecreatedError
from kafka_s3_platform.core.kafka.admin import ClusterAdmin, TopicDescription
from kafka_s3_platform.core.kafka.answers import Answers, LogEnds, OffsetAtTime
from kafka_s3_platform.core.kafka.groups import publish_offsets
from kafka_s3_platform.core.kafka.known_offsets import TimeQuestions
from kafka_s3_platform.core.kafka.record_reader import EpochEnd
from kafka_s3_platform.core.model.frontier import Frontier
from kafka_s3_platform.core.model.gaps import Gap
from kafka_s3_platform.core.model.offsets import OffsetRange, RangeSet, make_span
from kafka_s3_platform.core.model.segment import EpochMark, Scan, TopicGeneration
from kafka_s3_platform.core.model.state import IndexState
from kafka_s3_platform.core.model.times import to_epoch_ms
from kafka_s3_platform.core.store.index import TopicIndex
from kafka_s3_platform.core.store.index_commit import Change
from kafka_s3_platform.core.upkeep.resolve import Skip, resolve_offsets
from kafka_s3_platform_tests.chaos.kafka_liar import KafkaLies, lying_broker
from kafka_s3_platform_tests.chaos.kafka_lies import KAFKA_LIES
from kafka_s3_platform_tests.chaos.lies import FOREVER, Lie
from kafka_s3_platform_tests.conftest import Lab, present
from kafka_s3_platform_tests.kafka import wire
from kafka_s3_platform_tests.kafka.topics import delete_records
from kafka_s3_platform_tests.kafka.wire import WireRecord
from kafka_s3_platform_tests.support import (
    HOUR,
    NOON,
    Sent,
    archived,
    connector,
    produce,
    scanned,
    snapshot,
    stored,
    tried,
)

NOW = datetime(2026, 1, 2, tzinfo=timezone.utc)


CONFIG: ConnectorConfig = connector(KafkaSettings(bootstrap_servers="b:1"), StoreSettings(bucket="bucket"), "t")

MINUTE = timedelta(minutes=1)


def topic(count: int, topic_id: str = "a") -> TopicDescription:
    return TopicDescription("t", topic_id, tuple(range(count)), {})


@dataclass
class Changing:
    """A cluster whose topic looks otherwise each time it is described; the last answer stays."""

    answers: list[TopicDescription]
    looks: list[TopicDescription] = field(default_factory=list)

    def find_topics(self, topics: Iterable[str]) -> Answers[str, TopicDescription]:
        return Answers(dict.fromkeys(topics, self.answers[0]), {})

    def describe_topics(self, topics: Iterable[str]) -> Answers[str, TopicDescription]:
        found = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return Answers(dict.fromkeys(topics, found), {})

    def settled(self, first: TopicDescription) -> TopicDescription:
        def look(seen: Mapping[str, TopicDescription]) -> Answers[str, str]:
            self.looks.append(seen["t"])
            return Answers({"t": "found"}, {})

        found, _ = observe_until_unchanged(self, {"t": first}, look).all_or_raise()["t"]  # type: ignore[arg-type]
        return found


def test_a_topic_that_stays_as_it_is_is_looked_at_once() -> None:
    cluster = Changing([topic(2)])
    assert cluster.settled(topic(2)) == topic(2)
    assert len(cluster.looks) == 1


@pytest.mark.parametrize("after", [topic(3), topic(2, "created again")])
def test_a_topic_that_changed_meanwhile_is_looked_at_again_as_it_is_now(after: TopicDescription) -> None:
    cluster = Changing([after])
    assert cluster.settled(topic(2)) == after
    assert cluster.looks == [topic(2), after]


def test_a_broker_that_is_behind_does_not_take_kafka_partitions_away() -> None:
    cluster = Changing([topic(1)])
    assert cluster.settled(topic(2)) == topic(2)


def test_a_topic_that_never_keeps_still_is_given_up() -> None:
    cluster = Changing([topic(n) for n in range(2, 99)])
    with pytest.raises(BrokerUnavailableError, match=r"topic t: .* nothing was committed. Run again"):
        cluster.settled(topic(1))
    assert len(cluster.looks) == MAX_OBSERVATIONS


def test_each_frontier_says_how_many_there_must_be() -> None:
    seen = complete_frontiers(topic(3), NOW, {0: Frontier(0, 0, 5, 5, 0, NOW)})
    assert [f.kafka_partition_count for f in seen.values()] == [3]


@pytest.fixture
def added_while_looking(kafka_settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Before the topic's frontiers are read the first time, it gets another kafka partition with 20 records."""
    real = ClusterAdmin.log_ends_of

    def arrange(name: str) -> None:
        pending = [name]

        def look(
            self: ClusterAdmin, kafka_partitions: Mapping[str, Iterable[int]]
        ) -> Answers[str, Answers[int, LogEnds]]:
            if pending and pending[0] in kafka_partitions:
                pending.clear()
                admin = AdminClient({"bootstrap.servers": kafka_settings.bootstrap_servers})
                admin.create_partitions([NewPartitions(name, 2)])[name].result(10)
                while 1 not in admin.list_topics(name, 10).topics[name].partitions:
                    time.sleep(0.05)
                produce(kafka_settings, name, [Sent(b"new", None, NOON, (), 1) for _ in range(20)])
            return real(self, kafka_partitions)

        monkeypatch.setattr(ClusterAdmin, "log_ends_of", look)

    return arrange


def test_a_kafka_partition_added_while_a_run_plans_belongs_to_the_hour(
    lab: Lab, added_while_looking: Callable[[str], None]
) -> None:
    config = lab.fill([Sent() for _ in range(5)])
    added_while_looking(lab.topic)
    assert archived(config, [NOON]).hours[0].complete
    assert stored(config).num_rows == 25
    state = snapshot(config).state
    assert present(state.topic).kafka_partitions == (0, 1)
    assert {(f.kafka_partition, f.kafka_partition_count) for f in state.frontiers} == {(0, 2), (1, 2)}


def test_a_kafka_partition_added_while_a_sink_is_taken_over_belongs_to_the_look(
    lab: Lab, added_while_looking: Callable[[str], None]
) -> None:
    config = lab.fill([Sent() for _ in range(5)])
    with ClusterAdmin(lab.kafka) as admin:
        publish_offsets(admin, f"connect-{lab.topic}", lab.topic, {0: 5})
    added_while_looking(lab.topic)
    report = record_takeover(config, lab.topic, f"connect-{lab.topic}", "run")
    assert report.log_starts == {1: 0}
    state = snapshot(config).state
    assert present(state.topic).kafka_partitions == (0, 1)
    assert not state.judge.is_complete(NOON, timedelta(0))
    assert archived(config, [NOON, NOON + HOUR]).hours[0].complete
    assert stored(config).num_rows == 20


class Log:
    """A log, from the leader epoch of each of its offsets; its leader has the last one, or `now`."""

    def __init__(self, epochs: Sequence[int], now: int | None = None, log_start: int = 0) -> None:
        self.epochs = epochs
        self.frontier = seen(len(epochs), max(epochs, default=0) if now is None else now, log_start=log_start)
        self.questions: list[EpochMark] = []

    def find_divergence(self, _: Frontier, mark: EpochMark) -> EpochEnd | None:
        """As Kafka's leaders answer OffsetsForLeaderEpoch."""
        self.questions.append(mark)
        ends = [(epoch, len([*each])) for epoch, each in groupby(self.epochs)]
        up_to = [(epoch, count) for epoch, count in ends if epoch <= mark.leader_epoch]
        end = sum(count for _, count in up_to)
        return EpochEnd(up_to[-1][0], end) if end < mark.offset else None

    def logs(self, state: IndexState) -> ArchivedLogs:
        return ArchivedLogs(CONFIG, "t", state, self.find_divergence)

    def cut_off(self, state: IndexState) -> RangeSet:
        gaps = self.logs(state).find_cut_off({0: self.frontier}).all_or_raise().get(0, ())
        return RangeSet(gap.offsets for gap in gaps)


def seen(end: int, epoch: int | None, hours: int = 0, log_start: int = 0) -> Frontier:
    return Frontier(0, log_start, end, end, epoch, NOON + timedelta(hours=hours), 1)


def archive(*scans: tuple[int, int, int | None], looks: Sequence[Frontier] = (), **more: Any) -> IndexState:
    """Scans are start, end and the leader epoch at the end."""
    return IndexState(scans=tuple(Scan(0, a, b, b - a, epoch, 1) for a, b, epoch in scans), frontiers=(*looks,), **more)


def test_a_topic_that_was_created_again_is_refused() -> None:
    state = IndexState(generations=(TopicGeneration("t", "other", (0,), ()),))
    with pytest.raises(TopicRecreatedError, match="deleted and created again"):
        refuse_another_topic(TopicDescription("t", "id", (0,), {}), state)


def test_a_broker_that_knows_fewer_kafka_partitions_than_the_archive_is_asked_again_later() -> None:
    state = IndexState(generations=(TopicGeneration("t", "id", (0, 1), ()),))
    with pytest.raises(BrokerUnavailableError, match="nothing of kafka partitions 1, which"):
        refuse_another_topic(TopicDescription("t", "id", (0,), {}), state)


@pytest.mark.parametrize(
    ("log", "how"),
    [
        (Log([0] * 17), "the log is readable up to 17"),
        (Log([0] * 17 + [1] * 20), "the log is readable up to 37"),
        (Log([0] * 17 + [1] * 23), "the log holds other records from offset 17 on"),
        (Log([0] * 17 + [1] * 60), "the log holds other records from offset 17 on"),
    ],
    ids=["cut", "short", "grown to the archive's end", "grown past it"],
)
def test_a_log_that_lost_some_of_what_is_archived_is_refused_however_far_it_grew(log: Log, how: str) -> None:
    found = log.logs(archive((0, 40, 0), looks=[seen(40, 0)])).find_changed({0: log.frontier})
    assert isinstance(found[0], LogTruncatedError)
    assert f"t-0: the archive reaches offset 40, {how}" in str(found[0])
    assert str(found[0]).endswith("kafka-s3 resolve c --topic t --kafka-partition 0 --accept-truncation")


@pytest.mark.parametrize(
    ("log", "state", "questions"),
    [
        (Log([0] * 60), archive((0, 40, 0)), 0),
        (Log([0] * 40, now=1), archive((0, 40, 0)), 1),
        (Log([0] * 40 + [1] * 20), archive((0, 40, 0)), 1),
        (Log([0] * 40 + [1] * 20), archive((0, 40, 0), looks=[seen(40, 1)]), 0),
        (Log([0] * 40 + [1] * 20), archive((0, 60, 1)), 0),
        (Log([0] * 40 + [1] * 20), archive((0, 40, None)), 0),
        (Log([0] * 17 + [1] * 60), archive((0, 40, 0), gaps=(Gap(0, 17, 40, "truncated"),)), 0),
        (Log([0] * 17 + [1] * 10), archive((0, 40, 0), gaps=(Gap(0, 17, 40, "truncated"),)), 0),
    ],
    ids=[
        "same leader",
        "another leader",
        "and more records",
        "asked when it was looked at",
        "its own records",
        "no epoch",
        "accepted",
        "accepted, and short",
    ],
)
def test_a_log_that_has_what_is_archived_is_asked_when_its_leader_changed(
    log: Log, state: IndexState, questions: int
) -> None:
    assert log.logs(state).find_changed({0: log.frontier}) == {}
    assert len(log.questions) == questions


@pytest.mark.parametrize(
    ("log", "last", "cut"),
    [
        (Log([0] * 60), seen(40, 0), RangeSet()),
        (Log([0] * 40, now=1), seen(40, 0), RangeSet()),
        (Log([0] * 17 + [1] * 3), seen(40, 0), make_span(17, 40)),
        (Log([0] * 17 + [1] * 60), seen(40, 0), make_span(17, 40)),
        (Log([0] * 8 + [1] * 20), seen(40, 0), make_span(10, 40)),
        (Log([0] * 17 + [2] * 60), seen(40, 1), make_span(10, 40)),
        (Log([0] * 17, now=1), seen(40, None), make_span(17, 40)),
        (Log([0] * 60, now=1), seen(40, None), RangeSet()),
        (Log([0] * 17, now=1), seen(40, 5), make_span(17, 40)),
        (Log([0] * 50, now=1, log_start=45), seen(40, 0), RangeSet()),
    ],
    ids=[
        "same leader",
        "nothing lost",
        "cut",
        "grown past it",
        "archived ones are no part of it",
        "its leader may have followed another log before that",
        "no epoch: short",
        "no epoch: grown past it",
        "an epoch that never was",
        "retention took all",
    ],
)
def test_what_was_seen_and_lost_before_it_was_archived_is_found_by_the_epoch_of_the_last_look(
    log: Log, last: Frontier, cut: RangeSet
) -> None:
    """Archived are [0, 10)."""
    looks = [seen(10, 0, hours=-1), last]
    assert log.cut_off(archive((0, 10, 0), looks=looks)) == cut


def test_nothing_is_asked_of_a_log_whose_leader_is_that_of_the_last_look() -> None:
    log = Log([0] * 17 + [1] * 60)
    assert log.cut_off(archive((0, 10, 0), looks=[seen(40, 0, hours=-1), seen(50, 1)])) == RangeSet()
    assert log.questions == []


@pytest.mark.parametrize(
    ("log", "scans", "start", "is_exact"),
    [
        (Log([0] * 17), [(0, 40, 0)], 17, True),
        (Log([0] * 17 + [1] * 16), [(0, 40, 0)], 17, True),
        (Log([0] * 17 + [1] * 23), [(0, 40, 0)], 17, True),
        (Log([0] * 17 + [1] * 60), [(0, 10, 0), (10, 20, 0), (20, 40, 0)], 17, True),
        (Log([0] * 17 + [2] * 60), [(0, 10, 0), (10, 20, 1), (20, 40, 1)], 10, False),
        (Log([0] * 17 + [2] * 16), [(0, 40, 1)], 0, False),
        (Log([0] * 17 + [1] * 16), [(0, 40, None)], 0, False),
        (Log([0] * 17 + [1] * 16), [(0, 10, 0), (10, 40, None)], 10, False),
        (Log([0] * 17 + [1] * 16), [(0, 10, 0), (10, 40, 7)], 10, False),
    ],
    ids=[
        "cut",
        "grown in part",
        "grown to the end",
        "grown past the end",
        "it has nothing of the lost epoch",
        "nor of any that is known",
        "no epoch",
        "no epoch at the end",
        "an epoch that never was",
    ],
)
def test_a_truncation_begins_where_log_and_archive_differ_or_at_the_lowest_offset_where_they_may(
    log: Log, scans: Sequence[tuple[int, int, int | None]], start: int, is_exact: bool
) -> None:
    truncation = present(log.logs(archive(*scans)).find_truncation(log.frontier))
    assert (truncation.offsets, truncation.is_start_exact) == (OffsetRange(start, 40), is_exact)


def test_a_log_that_was_truncated_twice_differs_from_the_lower_place_on() -> None:
    state = archive((0, 10, 0), (10, 40, 0), (40, 60, 1), gaps=(Gap(0, 30, 40, "truncated"),))
    log = Log([0] * 30 + [1] * 20 + [2] * 30)
    assert log.logs(state).find_truncation(log.frontier) == Truncation(OffsetRange(50, 60), True, 1)
    log = Log([0] * 17 + [2] * 30)
    assert log.logs(state).find_truncation(log.frontier) == Truncation(OffsetRange(10, 60), False, 0)


def test_a_log_that_has_what_is_archived_has_no_truncation() -> None:
    log = Log([0] * 40 + [1] * 20)
    assert log.logs(archive((0, 40, 0))).find_truncation(log.frontier) is None


@pytest.fixture
def config(lab: Lab) -> ConnectorConfig:
    """Thirty records of the hour before noon, of which no run has asked."""
    return lab.fill([Sent(timestamp=NOON - HOUR)] * 30)


def write_noon(config: ConnectorConfig) -> None:
    """Two hundred records of the hour from noon on."""
    produce(config.kafka, config.topics[0], [Sent(timestamp=NOON + n * MINUTE / 4) for n in range(1, 201)])


@pytest.fixture
def deleting(monkeypatch: pytest.MonkeyPatch) -> Callable[[ConnectorConfig, int], None]:
    """Has records deleted just before a run asks for the offsets of its hours."""

    def arrange(config: ConnectorConfig, before_offset: int) -> None:
        pending = [before_offset]
        ask = ClusterAdmin.offsets_for_times_of

        def delete(
            admin: ClusterAdmin, wanted: TimeQuestions
        ) -> Answers[str, Answers[int, Mapping[int, OffsetAtTime]]]:
            if pending:
                delete_records(config.kafka, config.topics[0], pending.pop())
            return ask(admin, wanted)

        monkeypatch.setattr(ClusterAdmin, "offsets_for_times_of", delete)

    return arrange


def test_what_retention_deletes_while_the_first_run_looks_is_told_of_the_hour(
    config: ConnectorConfig, deleting: Callable[[ConnectorConfig, int], None]
) -> None:
    write_noon(config)
    deleting(config, 130)
    (hour,) = archived(config, [NOON]).hours
    assert (hour.record_count, hour.verdict.lacking) == (100, (Gap(0, 0, 130, "before archiving began"),))


@pytest.mark.parametrize("is_allowed", [False, True])
def test_what_retention_deletes_while_a_later_run_looks_is_a_gap_where_gaps_are_allowed(
    config: ConnectorConfig, deleting: Callable[[ConnectorConfig, int], None], is_allowed: bool
) -> None:
    archive = config.archive.model_copy(update={"allow_gaps": is_allowed})
    config = config.model_copy(update={"archive": archive})
    write_noon(config)
    # archiving began while the hour was open
    TopicIndex.of(config, config.topics[0]).open().commit(Change((Frontier(0, 0, 0, 0, None, NOON, 1),)))
    deleting(config, 130)
    report = tried(config, [NOON])
    assert isinstance(report.failure, OffsetGapError) is not is_allowed
    (hour,) = report.hours
    assert (hour.record_count, hour.complete) == (100, is_allowed)
    assert hour.verdict.lacking == ((Gap(0, 0, 130),) if is_allowed else ())


@pytest.fixture
def lying(config: ConnectorConfig) -> Iterator[ConnectorConfig]:
    """The connector, with a broker of which the log is deleted in part between two looks."""
    kind = "ListOffsets: deleted between two looks"
    with lying_broker(config.kafka.bootstrap_servers, KafkaLies(3)) as broker:
        broker.liar.lie(Lie(kind, KAFKA_LIES[kind], times=FOREVER))
        yield config.model_copy(update={"kafka": KafkaSettings(bootstrap_servers=broker.bootstrap_servers)})
        assert broker.liar.told[kind]


def test_a_log_start_that_a_later_answer_tells_is_believed(config: ConnectorConfig, lying: ConnectorConfig) -> None:
    write_noon(config)
    (hour,) = archived(lying, [NOON]).hours
    assert hour.verdict.lacking
    assert archived(config, [NOON]).hours[0].record_count == 200


def write_batch(config: ConnectorConfig, deltas: Sequence[int]) -> None:
    """A batch of one record that claims another offset than its place in the log, and noon as its time."""
    batch = wire.record_batch([WireRecord(to_epoch_ms(NOON))], offset_deltas=deltas)
    wire.produce_batch(config.kafka.bootstrap_servers, config.topics[0], 0, batch)


def of_noon(report: ArchiveReport) -> HourReport:
    """Earlier hours are covered in passing."""
    [hour] = [hour for hour in report.hours if hour.hour == NOON]
    return hour


@pytest.mark.parametrize("delta", [191, 1_000_000], ids=["among-the-good", "beyond-the-log"])
def test_a_record_that_claims_a_later_offset_takes_none_of_its_hour_with_it(
    config: ConnectorConfig, delta: int
) -> None:
    write_batch(config, [delta])
    write_noon(config)
    hour = of_noon(tried(config, [NOON]))
    assert (hour.record_count, hour.complete) == (200, False)
    resolve_offsets(config, config.topics[0], Skip(0, OffsetRange(30, 31)), "decision", dry_run=False)
    hour = of_noon(archived(config, [NOON]))
    assert (hour.record_count, hour.complete) == (200, True)


def test_an_hour_alone_is_read_from_its_first_record_on(config: ConnectorConfig) -> None:
    write_noon(config)
    assert archived(config, [NOON]).hours[0].complete
    assert scanned(config) == (OffsetRange(30, 230),)


def test_nothing_more_is_asked_about_an_hour_that_follows_an_archived_one(
    config: ConnectorConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    archived(config, [NOON - HOUR])
    write_noon(config)
    monkeypatch.delattr(observation, "new_reader")
    assert archived(config, [NOON]).hours[0].complete
