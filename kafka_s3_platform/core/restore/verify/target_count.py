"""Counts the records of one kafka partition of a target: each sent record, and all others.

`verify_stream` matches each stream by itself with the target, in order. Two questions remain that only counting can
answer. Equal records of two streams match the same record there: is there one for each? And are the unmatched records
repeated ones of the restore, or records of other writers?
"""

import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.core.errors import IntegrityError
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.model.batches import RECORD_SCHEMA
from kafka_s3_platform.core.restore.replay.spec import ReplayTask
from kafka_s3_platform.core.restore.replay.target_log import TargetLog, explain_open_transaction, find_target_log
from kafka_s3_platform.core.restore.request import TargetReport
from kafka_s3_platform.core.restore.spill import open_spilling_database, read_by_duckdb
from kafka_s3_platform.core.spark.runner import Attempt

_CONTENT = 'hash("key", value, headers) AS content, moment, stream, "offset"'
_COUNTED = (
    "content, moment, count(stream) AS wanted, count(*) - count(stream) AS found, min(stream) AS stream,"
    ' arg_min("offset", stream) AS "offset"'
)
# A record whose timestamp the client replaced matches any record of its content. Others match their own time only.
_LOST = """
    SELECT sum(wanted) - sum(found) AS lost, min(stream), arg_min("offset", stream) FROM counted
    GROUP BY content HAVING lost > 0
    UNION ALL
    SELECT wanted - found AS lost, stream, "offset" FROM counted WHERE moment IS NOT NULL AND lost > 0
    ORDER BY ALL LIMIT 1
"""
# For each content: `again` counts records at an expected moment beyond the expected number, `other` those at moments
# that nobody expected, `free` those expected at any moment. If nothing is lost, `again` + `other` is at least `free`.
_EXTRA = """
    WITH of_content AS (
        SELECT coalesce(sum(found - wanted) FILTER (moment IS NOT NULL AND wanted > 0), 0) AS again,
            coalesce(sum(found) FILTER (moment IS NOT NULL AND wanted = 0), 0) AS other,
            coalesce(sum(wanted) FILTER (moment IS NULL), 0) AS free
        FROM counted GROUP BY content
    )
    SELECT coalesce(sum(CASE WHEN free > 0 THEN again + other - free ELSE again END), 0)::BIGINT,
        coalesce(sum(CASE WHEN free > 0 THEN 0 ELSE other END), 0)::BIGINT
    FROM of_content
"""


@dataclass(frozen=True, slots=True)
class ExpectedRecords:
    """The records expected in the target. Any timestamp there matches one in `any_timestamp` (epoch ms)."""

    batches: Iterable[pa.RecordBatch]
    any_timestamp: frozenset[int]


@dataclass(frozen=True, slots=True)
class Lost:
    """A content found `count` times less often than expected. `stream` is the index of its stream."""

    count: int
    stream: int
    source_offset: int


@dataclass(frozen=True, slots=True)
class TargetCount:
    """The other records: `doubled_count` equal an expected one beyond the expected number, `foreign_count` equal none.

    Equal means the same key, value, headers and timestamp. Both counts are 0 if something is lost.
    """

    doubled_count: int = 0
    foreign_count: int = 0
    lost: Lost | None = None


def count_records(expected: Sequence[ExpectedRecords], target: Iterable[pa.RecordBatch], what: str) -> TargetCount:
    """Compare how often each record is expected and how often the target has it. `what` names the work, for messages.

    Equal keys, values and headers are one content. DuckDB counts 64-bit hashes of contents, by their timestamps, and
    spills to temporary files.

    Raises:
        PermanentError: there is not enough memory, or no room for temporary files.
    """
    with (
        tempfile.TemporaryDirectory(prefix="kafka-s3-counting-") as folder,
        closing(open_spilling_database(folder)) as connection,
        read_by_duckdb(_SCHEMA, _number_rows(expected, target), what) as reader,
    ):
        content = connection.from_arrow(reader).project(_CONTENT)
        content.aggregate(_COUNTED, "content, moment").create("counted")
        lost = connection.execute(_LOST).fetchone()
        extra = connection.execute(_EXTRA).fetchone()
    if lost is not None:
        return TargetCount(lost=Lost(*lost))
    return TargetCount(*(extra or ()))


@dataclass(frozen=True)
class TargetCountTask:
    """One kafka partition of a target, its end before the restore, and all streams sent to it."""

    kafka_partition: int
    start_offset: int
    replays: tuple[ReplayTask, ...]

    @property
    def place(self) -> tuple[str, int]:
        """The topic and the kafka partition."""
        return self.replays[0].to_topic, self.kafka_partition

    @property
    def size(self) -> int:
        """The size of all its streams together."""
        return sum(replay.stream.facts.size for replay in self.replays)


def group_by_target(replays: Sequence[ReplayTask]) -> list[TargetCountTask]:
    """Group the streams by the kafka partitions of targets they may have reached."""
    by_place: dict[tuple[str, int, int], list[ReplayTask]] = defaultdict(list)
    for task in replays:
        for number, start in task.own_target_starts:
            by_place[task.to_topic, number, start].append(task)
    return [TargetCountTask(number, start, tuple(tasks)) for (_, number, start), tasks in by_place.items()]


def count_target(task: TargetCountTask, _: Attempt) -> TargetReport:
    """Check that a kafka partition holds each record as often as all streams together. Count its other records.

    Raises:
        IntegrityError: the kafka partition holds a record less often, so one was lost.
        OpenTransactionError: the kafka partition holds a record less often, and an open transaction may hide one.
    """
    first = task.replays[0]
    streams = [
        ExpectedRecords(replay.read_stream().select(task.kafka_partition), replay.stream.facts.any_timestamp)
        for replay in task.replays
    ]
    what = f"restore {first.restore_id}, {first.to_topic}-{task.kafka_partition}: counting equal records"
    with ClusterAdmin(first.kafka) as admin:
        log = find_target_log(admin, first.to_topic, task.kafka_partition, task.start_offset)
    count = count_records(streams, log.read(), what)
    if count.lost is not None:
        raise _explain_lost(task, count.lost, log)
    return TargetReport(
        to_topic=first.to_topic,
        kafka_partition=task.kafka_partition,
        start_offset=task.start_offset,
        end_offset=log.end_offset,
        doubled_count=count.doubled_count,
        foreign_count=count.foreign_count,
        open_offset=log.open_offset,
        stream_count=len(task.replays),
    )


def _explain_lost(task: TargetCountTask, lost: Lost, log: TargetLog) -> Exception:
    """Build the error for a record that the target holds less often than it was sent."""
    if log.open_offset is not None:
        return explain_open_transaction(log)
    first = task.replays[0]
    of = task.replays[lost.stream].stream.facts
    topics = ", ".join(sorted({t.stream.facts.topic for t in task.replays}))
    return IntegrityError(
        f"restore {first.restore_id} does not match the archive: {first.to_topic}-{task.kafka_partition} holds a "
        f"record of source offset {lost.source_offset} of {of.topic}-{of.kafka_partition} {lost.count} times less "
        f"often than {topics} together, from target offset {task.start_offset} on. Somebody deleted or changed "
        "records of the target, its retention or compaction removed them, or the cluster lost them. Or a function "
        "of your own (predicate, mapper, partitioner) returns other results each time. Restore to another topic "
        "under another restore id"
    )


_SCHEMA = pa.schema(
    [
        *(RECORD_SCHEMA.field(name) for name in ("key", "value", "headers", "offset")),
        ("moment", pa.int64()),
        ("stream", pa.int32()),
    ]
)


def _number_rows(expected: Sequence[ExpectedRecords], target: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield all records. A stream's records have its number, and a null timestamp if any timestamp matches."""
    for number, stream in enumerate(expected):
        free = pa.array(sorted(stream.any_timestamp), pa.int64())
        for batch in stream.batches:
            times = batch.column("timestamp").cast(pa.int64())
            yield _make_rows(batch, pc.if_else(pc.is_in(times, free), None, times), number)
    for batch in target:
        yield _make_rows(batch, batch.column("timestamp").cast(pa.int64()), None)


def _make_rows(batch: pa.RecordBatch, moments: pa.Int64Array, number: int | None) -> pa.RecordBatch:
    """Return records as rows to count, with these timestamps and the number of their stream (None for the target)."""
    stream = pa.array([number] * batch.num_rows, pa.int32())
    columns = [*(batch.column(name) for name in ("key", "value", "headers", "offset")), moments, stream]
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)
