"""How often one kafka partition of a target holds each record that was sent to it, and what else it holds.

Each stream by itself is matched with the target in order (`verify`). That leaves two questions, which only counting
answers. Equal records of two streams match the same one there: is there one for each? And of the records beside those
that were matched: are they records of the restore once more, or of other writers?
"""

import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.errors import IntegrityError
from kafka_s3_platform.model.record import RECORD_SCHEMA
from kafka_s3_platform.restore.replay import ReplayTask
from kafka_s3_platform.restore.request import TargetReport
from kafka_s3_platform.restore.spill import read_by_duckdb, spilling
from kafka_s3_platform.restore.target_log import TargetLog, open_transaction, target_log
from kafka_s3_platform.spark.runner import Attempt
from kafka_s3_platform.store.objects import ObjectStore

_CONTENT = 'hash("key", value, headers) AS content, moment, stream, "offset"'
_COUNTED = (
    "content, moment, count(stream) AS wanted, count(*) - count(stream) AS found, min(stream) AS stream,"
    ' arg_min("offset", stream) AS "offset"'
)
# Records whose timestamp the client replaced may be any of their content; the others are of their own timestamp.
_LOST = """
    SELECT sum(wanted) - sum(found) AS lost, min(stream), arg_min("offset", stream) FROM counted
    GROUP BY content HAVING lost > 0
    UNION ALL
    SELECT wanted - found AS lost, stream, "offset" FROM counted WHERE moment IS NOT NULL AND lost > 0
    ORDER BY ALL LIMIT 1
"""
# Of a content: `again` were found at a wanted moment more often than wanted, `other` at moments that nobody wanted,
# `free` are wanted at any moment. Where nothing is lost, `again` and `other` together are no less than `free`.
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
class Wanted:
    """Records that should be there. Those with one of the timestamps `any_timestamp` (epoch ms) may have any."""

    batches: Iterable[pa.RecordBatch]
    any_timestamp: frozenset[int]


@dataclass(frozen=True, slots=True)
class Lost:
    """One content that is there `count` times less often than wanted; `stream` is a place among what was wanted."""

    count: int
    stream: int
    source_offset: int


@dataclass(frozen=True, slots=True)
class Counted:
    """`doubled_count` records equal a wanted one and are more than wanted, `foreign_count` equal none.

    Equal is: in key, value, headers and timestamp. Both are 0 where something is lost.
    """

    doubled_count: int = 0
    foreign_count: int = 0
    lost: Lost | None = None


def count_records(wanted: Sequence[Wanted], target: Iterable[pa.RecordBatch], what: str) -> Counted:
    """Count each content, and each with its timestamp, on both sides. `what` is being done, for messages.

    DuckDB counts hashes with 64 bits, and spills to temporary files.

    Raises:
        PermanentError: there is not enough memory, or room for temporary files.
    """
    with (
        tempfile.TemporaryDirectory(prefix="kafka-s3-counting-") as folder,
        closing(spilling(folder)) as connection,
        read_by_duckdb(_SCHEMA, _rows(wanted, target), what) as reader,
    ):
        content = connection.from_arrow(reader).project(_CONTENT)
        content.aggregate(_COUNTED, "content, moment").create("counted")
        lost = connection.execute(_LOST).fetchone()
        extra = connection.execute(_EXTRA).fetchone()
    if lost is not None:
        return Counted(lost=Lost(*lost))
    return Counted(*(extra or ()))


@dataclass(frozen=True)
class CountTask:
    """One kafka partition of a target, where it stood before, and all that was sent to it."""

    kafka_partition: int
    start_offset: int
    replays: tuple[ReplayTask, ...]

    @property
    def place(self) -> tuple[str, int]:
        """Topic and kafka partition."""
        return self.replays[0].to_topic, self.kafka_partition


def reached_by(replays: Sequence[ReplayTask]) -> list[CountTask]:
    """The kafka partitions of targets that streams may have reached, each with its streams."""
    found: dict[tuple[str, int, int], list[ReplayTask]] = defaultdict(list)
    for task in replays:
        for number, start in task.reached:
            found[task.to_topic, number, start].append(task)
    return [CountTask(number, start, tuple(tasks)) for (_, number, start), tasks in found.items()]


def count_target(task: CountTask, attempt: Attempt) -> TargetReport:  # noqa: ARG001 - reading has no attempts
    """Count what the target's kafka partition holds: each record as often as all streams have it, and what else.

    Raises:
        IntegrityError: it holds one less often: a record was lost.
        OpenTransactionError: it holds one less often, as far as somebody's open transaction lets it be read.
    """
    first = task.replays[0]
    streams = [_wanted(given, task.kafka_partition) for given in task.replays]
    what = f"restore {first.restore_id}, {first.to_topic}-{task.kafka_partition}: counting equal records"
    log = target_log(first.kafka, first.to_topic, task.kafka_partition, task.start_offset)
    counted = count_records(streams, log.read(), what)
    if counted.lost is not None:
        raise _lost(task, counted.lost, log)
    return TargetReport(
        to_topic=first.to_topic,
        kafka_partition=task.kafka_partition,
        start_offset=task.start_offset,
        end_offset=log.end_offset,
        doubled_count=counted.doubled_count,
        foreign_count=counted.foreign_count,
        open_offset=log.open_offset,
        stream_count=len(task.replays),
    )


def _wanted(given: ReplayTask, kafka_partition: int) -> Wanted:
    store = ObjectStore(given.stream.store)
    return Wanted(given.decided(store).sent_stream(store).of(kafka_partition), given.any_timestamp)


def _lost(task: CountTask, lost: Lost, log: TargetLog) -> Exception:
    if log.open_offset is not None:
        return open_transaction(log)
    first, of = task.replays[0], task.replays[lost.stream].stream
    topics = ", ".join(sorted({t.stream.topic for t in task.replays}))
    return IntegrityError(
        f"restore {first.restore_id} is not what was archived: {first.to_topic}-"
        f"{task.kafka_partition} holds a record of source offset {lost.source_offset} of {of.topic}-"
        f"{of.kafka_partition} {lost.count} times less often than {topics} have it together, from target offset "
        f"{task.start_offset} on. Somebody deleted or changed records of the target, its retention or compaction did, "
        f"or the cluster lost them; or a function of your own (predicate, mapper, partitioner) answers otherwise each "
        f"time. Restore to another topic, under another id"
    )


_SCHEMA = pa.schema(
    [
        *(RECORD_SCHEMA.field(name) for name in ("key", "value", "headers", "offset")),
        ("moment", pa.int64()),
        ("stream", pa.int32()),
    ]
)


def _rows(wanted: Sequence[Wanted], target: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """All records: those of the streams with their number, the timestamp null where any will do."""
    for number, stream in enumerate(wanted):
        free = pa.array(sorted(stream.any_timestamp), pa.int64())
        for batch in stream.batches:
            times = batch.column("timestamp").cast(pa.int64())
            yield _row(batch, pc.if_else(pc.is_in(times, free), None, times), number)
    for batch in target:
        yield _row(batch, batch.column("timestamp").cast(pa.int64()), None)


def _row(batch: pa.RecordBatch, moments: pa.Int64Array, number: int | None) -> pa.RecordBatch:
    stream = pa.array([number] * batch.num_rows, pa.int32())
    columns = [*(batch.column(name) for name in ("key", "value", "headers", "offset")), moments, stream]
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)
