"""A log that loses what is archived already and grows past it again: found out, and never where nothing was lost."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime

import pytest
from confluent_kafka import Producer, TopicPartition

from kafka_s3_platform.core.archive import observation, scan
from kafka_s3_platform.core.archive.request import ArchiveReport, ArchiveRequest
from kafka_s3_platform.core.archive.run import archive_topics
from kafka_s3_platform.core.archive.takeover import record_takeover
from kafka_s3_platform.core.config.settings import ConnectorConfig, KafkaSettings
from kafka_s3_platform.core.errors import LogTruncatedError, PlatformError
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.kafka.confluent_reader import ConfluentReader
from kafka_s3_platform.core.kafka.new_reader import new_reader
from kafka_s3_platform.core.model.offsets import OffsetRange
from kafka_s3_platform.core.upkeep.resolve import AcceptTruncation, BeginAt, Skip, resolve_offsets
from kafka_s3_platform.operate.local.settings import StackSettings
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.faults.broker import cut_log, kill_broker, start_broker
from kafka_s3_platform_tests.kafka.topics import commit_offsets, open_transaction, produce, wait_until_stable
from kafka_s3_platform_tests.support import (
    NOON,
    InProcessRunner,
    archived,
    connector,
    offsets_by_kafka_partition,
    snapshot,
    stored,
)

Fill = Callable[[KafkaSettings, str], None]
Hours = tuple[datetime, ...] | None


def plain(kafka: KafkaSettings, topic: str) -> None:
    """Ten batches of one record."""
    client = Producer(kafka.properties("producer") | {"linger.ms": 0})
    for n in range(10):
        client.produce(topic, b"%d" % n, partition=0)
        assert client.flush(30) == 0


def committed(kafka: KafkaSettings, topic: str) -> None:
    plain(kafka, topic)
    open_transaction(kafka, topic, [b"x"] * 5).commit_transaction(30)


def aborted(kafka: KafkaSettings, topic: str) -> None:
    plain(kafka, topic)
    open_transaction(kafka, topic, [b"x"] * 5).abort_transaction(30)


ENDS: Mapping[str, Fill] = {"a-record": plain, "a-marker": committed, "an-aborted-one": aborted}
"""What the last offset is that is archived."""

FATES = {"cut": 30, "refilled": None, "kept": 30, "idle": 0}
"""What becomes of the log, and how many records come then: None, as many as it takes to its end of before."""

KEPT = 5
"""Where a log ends that is cut."""


def restart(settings: StackSettings, *cut: str) -> None:
    """As after a crash; the logs of the topics in `cut` end at KEPT then."""
    kill_broker(settings)
    for topic in cut:
        cut_log(settings, topic, KEPT)
    start_broker(settings)


READERS = {"fetch": new_reader, "confluent": ConfluentReader}
"""What scans read with."""


@contextmanager
def reading_with(reader: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan, "new_reader", READERS[reader])
        patch.setattr(observation, "new_reader", READERS[reader])
        yield


def test_a_log_that_was_cut_and_grew_to_its_end_or_past_it_is_found_out(mortal: StackSettings, lab: Lab) -> None:
    """Of one that ends where the archive does nothing is left to read, so that no scan finds out.

    Each reader has an archive of its own: a broker that is started anew costs more than all else.
    """
    kafka = KafkaSettings(bootstrap_servers=mortal.bootstrap_servers)
    fates = {f"{lab.topic}-{end}-{fate}": (end, fate) for end in ENDS for fate in FATES}
    configs = {
        reader: connector(
            kafka, lab.store, lab.topic, layout={"topics_dir": reader}, index_dir=f"_index-{reader}"
        ).model_copy(update={"topics": tuple(fates)})
        for reader in READERS
    }
    ends = fill(kafka, {topic: ENDS[end] for topic, (end, _) in fates.items()})
    # first archived in an epoch of which the log will hold nothing
    restart(mortal)
    before: dict[str, dict[str, int]] = {}
    for reader, config in configs.items():
        with reading_with(reader):
            before[reader] = {topic: report.record_count for topic, report in reports(config).items()}
    restart(mortal, *(topic for topic, (_, fate) in fates.items() if fate in {"cut", "refilled"}))
    for topic, (_, fate) in fates.items():
        new = FATES[fate]
        produce(kafka, topic, [b"new"] * (ends[topic] - KEPT if new is None else new))

    lost = {
        topic: f"{topic}-0: the archive reaches offset {ends[topic]}, the log holds other records from offset"
        for topic, (_, fate) in fates.items()
        if fate in {"cut", "refilled"}
    }
    for reader, config in configs.items():
        with reading_with(reader):
            # a run of an hour that has no records reads nothing, and finds out only what needs no reading
            for hours in (None, (NOON,)):
                found = archive_all(
                    config, {t: hours if fate == "refilled" else None for t, (_, fate) in fates.items()}
                )
                check_reports(found, lost)
        for topic, (_, fate) in fates.items():
            held = offsets_by_kafka_partition(stored(config.model_copy(update={"topics": (topic,)})))[0]
            if topic in lost:
                assert held == list(range(before[reader][topic]))
            else:
                assert len(held) == before[reader][topic] + (FATES[fate] or 0)


def skip(config: ConnectorConfig, topic: str) -> None:
    """All is archived, and what was written since is to be left out."""
    reports(config.model_copy(update={"topics": (topic,)}))
    produce(config.kafka, topic, [b"skipped"] * 4)
    resolve_offsets(config, topic, Skip(0, OffsetRange(10, 14)), "decision", dry_run=False)


def take_over(config: ConnectorConfig, topic: str) -> None:
    """Another sink has archived all."""
    commit_offsets(config.kafka, f"sink-{topic}", [TopicPartition(topic, 0, 10)])
    record_takeover(config, topic, f"sink-{topic}", "run")


def begin(config: ConnectorConfig, topic: str) -> None:
    """All that is there is to be left out."""
    resolve_offsets(config, topic, BeginAt(0, 10), "decision", dry_run=False)


GAPS: Mapping[str, Callable[[ConnectorConfig, str], None]] = {"skipped": skip, "taken-over": take_over, "begun": begin}
"""What the archive ends with: offsets of which it holds nothing."""


def test_a_log_that_was_cut_is_found_out_also_where_the_archive_ends_with_a_gap(
    mortal: StackSettings, lab: Lab
) -> None:
    kafka = KafkaSettings(bootstrap_servers=mortal.bootstrap_servers)
    fates = {f"{lab.topic}-{gap}-{fate}": (gap, fate) for gap in GAPS for fate in FATES}
    config = connector(kafka, lab.store, lab.topic).model_copy(update={"topics": tuple(fates)})
    fill(kafka, dict.fromkeys(fates, plain))
    for topic, (gap, _) in fates.items():
        GAPS[gap](config, topic)
    ends = {
        topic: snapshot(config.model_copy(update={"topics": (topic,)})).state.coverage(0).end_offset or 0
        for topic in fates
    }
    lost = {topic for topic, (_, fate) in fates.items() if fate in {"cut", "refilled"}}
    restart(mortal, *lost)
    for topic, (_, fate) in fates.items():
        new = FATES[fate]
        produce(kafka, topic, [b"new"] * (ends[topic] - KEPT if new is None else new))
    for hours in (None, (NOON,)):
        found = archive_all(config, {t: hours if fate == "refilled" else None for t, (_, fate) in fates.items()})
        check_reports(found, dict.fromkeys(lost, r"the log holds other records from offset"))
    # nothing else is decided before that, and it can be: archiving then goes on
    for topic in sorted(lost):
        resolve_offsets(config, topic, AcceptTruncation(0), "decision", dry_run=False)
        archived(config.model_copy(update={"topics": (topic,)}))


def check_reports(found: Mapping[str, ArchiveReport | PlatformError], lost: Mapping[str, str]) -> None:
    """What was lost is told so, of each topic in `lost`; of the others nothing failed."""
    for topic, report in found.items():
        if topic in lost:
            with pytest.raises(LogTruncatedError, match=lost[topic]):
                raise_failure(report)
        else:
            raise_failure(report)


def fill(kafka: KafkaSettings, fills: Mapping[str, Fill]) -> dict[str, int]:
    """Create the topics with their records; where their logs end."""
    with ClusterAdmin(kafka) as admin:
        for topic, fill_one in fills.items():
            admin.create_topic(topic, 1)
            fill_one(kafka, topic)
        for topic in fills:
            wait_until_stable(kafka, topic)
        return {topic: admin.frontiers(topic, [0])[0].high_watermark for topic in fills}


def archive_all(config: ConnectorConfig, hours: Mapping[str, Hours]) -> Mapping[str, ArchiveReport | PlatformError]:
    """Archive each of the connector's topics, in one run."""
    return archive_topics([ArchiveRequest(config, t, "run", hours[t]) for t in config.topics], InProcessRunner())


def reports(config: ConnectorConfig) -> Mapping[str, ArchiveReport]:
    """Archive everything, of which nothing fails."""
    found = archive_all(config, dict.fromkeys(config.topics))
    return {topic: raise_failure(report) for topic, report in found.items()}


def raise_failure(found: ArchiveReport | PlatformError) -> ArchiveReport:
    if isinstance(found, PlatformError):
        raise found
    found.raise_failure()
    return found
