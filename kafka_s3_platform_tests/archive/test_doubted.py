"""Hours whose start a broker tells wrong: because retention went on meanwhile, or because a writer made up offsets."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta

import pytest

from kafka_s3_platform.archive import observation
from kafka_s3_platform.archive.request import ArchiveReport, HourReport
from kafka_s3_platform.config.settings import ConnectorConfig, KafkaSettings
from kafka_s3_platform.errors import OffsetGapError
from kafka_s3_platform.kafka.admin import ClusterAdmin
from kafka_s3_platform.kafka.answers import Answers, OffsetAtTime
from kafka_s3_platform.kafka.known_offsets import Wanted
from kafka_s3_platform.model.frontier import Frontier
from kafka_s3_platform.model.gaps import Gap
from kafka_s3_platform.model.offsets import OffsetRange
from kafka_s3_platform.model.times import to_epoch_ms
from kafka_s3_platform.store.index import TopicIndex
from kafka_s3_platform.store.index_commit import Change
from kafka_s3_platform.upkeep.resolve import Skip, resolve_offsets
from kafka_s3_platform_tests.chaos.kafka_liar import KafkaLies, lying_broker
from kafka_s3_platform_tests.chaos.kafka_lies import KAFKA_LIES
from kafka_s3_platform_tests.chaos.lies import FOREVER, Lie
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.kafka import wire
from kafka_s3_platform_tests.kafka.topics import delete_records
from kafka_s3_platform_tests.kafka.wire import WireRecord
from kafka_s3_platform_tests.support import HOUR, NOON, Sent, archived, produce, scanned, tried

pytestmark = pytest.mark.integration

MINUTE = timedelta(minutes=1)


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

        def delete(admin: ClusterAdmin, wanted: Wanted) -> Answers[str, Answers[int, Mapping[int, OffsetAtTime]]]:
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
