"""Hours and days of an index as runs commit them, without Kafka; and everything that an index answers."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.model.frontier import Frontier
from kafka_s3_platform.core.model.segment import HourRange, Reservation, Scan, Segment
from kafka_s3_platform.core.store.index import ConnectorIndex
from kafka_s3_platform.core.store.index_commit import Change
from kafka_s3_platform.core.store.index_reads import forget_rows
from kafka_s3_platform.core.store.lease import Lease, take_leases
from kafka_s3_platform.core.store.row_filter import SegmentFilter
from kafka_s3_platform_tests.support import SETTINGS

RECORDS = 10

HOUR = timedelta(hours=1)


def reserve(config: ConnectorConfig, hour: datetime, number: int, kafka_partitions: int = 1) -> dict[str, Lease]:
    """Commit the plan of an hour of all topics, whose offsets begin at `number` times RECORDS."""
    snapshot = ConnectorIndex.of(config).open()
    snapshot.load_states(config.topics)
    epoch = snapshot.version + 1
    start, end = number * RECORDS, (number + 1) * RECORDS
    rows: list[Reservation | HourRange | Frontier] = []
    for p in range(kafka_partitions):
        rows.append(Reservation(p, start, end, f"run-{number}", epoch, hour))
        rows.append(HourRange(hour, p, start, end))
        rows.append(replace(Frontier(p, 0, end, end, 1, hour + HOUR), kafka_partition_count=kafka_partitions))
    change = Change(tuple(rows), run_id=f"run-{number}")
    return take_leases(snapshot, dict.fromkeys(config.topics, change), {})


def make_result(lease: Lease, hour: datetime, number: int, kafka_partitions: int = 1) -> Change:
    """What the commit of the hour's result changes."""
    start, end = number * RECORDS, (number + 1) * RECORDS
    rows: list[Scan | Segment] = []
    for p in range(kafka_partitions):
        rows.append(Scan(p, start, end, RECORDS, 1, lease.epoch, output_count=RECORDS))
        rows.append(make_segment(lease.topic, "hourly", hour, p, start, end, lease.epoch))
    return Change(tuple(rows), removed=lease.end, run_id=lease.run_id)


def make_segment(
    topic: str, chunk: Any, start: datetime, kafka_partition: int, first: int, end: int, epoch: int
) -> Segment:
    key = (
        f"topics/{topic}/{chunk}/{start:year=%Y/month=%m/day=%d/hour=%H}/{topic}+{kafka_partition}+{first:010d}.parquet"
    )
    at = int(start.timestamp() * 1000)
    sums = (uuid4().hex, uuid4().hex * 2, uuid4().hex * 2)
    times = (at, at + 1)
    return Segment(
        key, chunk, start, "x", kafka_partition, first, end, end - first, 0, 900, 500, *sums, *times, SETTINGS, epoch
    )


def archive_hour(config: ConnectorConfig, hour: datetime, number: int, kafka_partitions: int = 1) -> None:
    """Commit an hour of all topics as one run does: its reservation, then its results."""
    leases = reserve(config, hour, number, kafka_partitions)
    changes = {topic: make_result(lease, hour, number, kafka_partitions) for topic, lease in leases.items()}
    ConnectorIndex.of(config).open().commit(changes)


def merge_day(config: ConnectorConfig, topics: Sequence[str], day: datetime) -> None:
    """Commit that one segment takes the place of the hourly ones of a day, in each kafka partition."""
    snapshot = ConnectorIndex.of(config).open()
    changes: dict[str, Change] = {}
    for topic in topics:
        wanted = SegmentFilter(chunk="hourly", chunk_starts=(day, day + 24 * HOUR))
        hourly = snapshot.topic(topic).select_segments(wanted)
        ends: dict[int, list[int]] = {}
        for segment in hourly:
            ends.setdefault(segment.kafka_partition, []).extend([segment.start_offset, segment.end_offset])
        daily = [
            make_segment(topic, "daily", day, p, min(offsets), max(offsets), snapshot.version + 1)
            for p, offsets in ends.items()
        ]
        changes[topic] = Change(tuple(daily), retired=hourly, run_id="compaction")
    snapshot.commit(changes)


def answer_all(config: ConnectorConfig) -> dict[str, Any]:
    """Everything that the index answers now, as a process does that has read nothing before."""
    forget_rows()
    snapshot = ConnectorIndex.of(config).open()
    found: dict[str, Any] = {}
    for name in snapshot.topics:
        topic = snapshot.topic(name)
        found[name] = (
            replace(topic.state, version=0),
            topic.segments,
            topic.retired,
            topic.created_at,
            topic.index_id,
        )
    return found
