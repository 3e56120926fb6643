"""Whether a kafka partition of the target holds the records of several streams together, so that none stands for two.

Each stream by itself is matched with the target in order (`verify`). Equal records of two streams match the same one
there; if that is the only one, a record was lost that no matching of single streams finds out.
"""

import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.errors import IntegrityError
from kafka_s3_platform.model.record import RECORD_SCHEMA
from kafka_s3_platform.restore.replay import ReplayTask
from kafka_s3_platform.restore.spill import read_by_duckdb, spilling
from kafka_s3_platform.restore.target_log import read_target
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


@dataclass(frozen=True)
class TogetherTask:
    """One kafka partition of a target, where it stood before, and all that was sent to it."""

    kafka_partition: int
    start_offset: int
    replays: tuple[ReplayTask, ...]


def together_tasks(replays: Sequence[ReplayTask]) -> list[TogetherTask]:
    """The kafka partitions of targets that several streams are sent to."""
    shared: dict[tuple[str, int, int], list[ReplayTask]] = defaultdict(list)
    for task in replays:
        for number, start in task.reached:
            shared[task.to_topic, number, start].append(task)
    return [TogetherTask(n, start, tuple(tasks)) for (_, n, start), tasks in shared.items() if len(tasks) > 1]


def check_together(task: TogetherTask, attempt: Attempt) -> None:  # noqa: ARG001 - reading has no attempts
    """Count each content, and each with its timestamp: the target holds it as often as all streams have it.

    DuckDB counts hashes with 64 bits, and spills to temporary files.

    Raises:
        IntegrityError: it holds one less often: a record was lost.
    """
    first = task.replays[0]
    with tempfile.TemporaryDirectory(prefix="kafka-s3-together-") as folder, closing(spilling(folder)) as connection:
        what = f"restore {first.restore_id}, {first.to_topic}-{task.kafka_partition}: counting equal records"
        with read_by_duckdb(_SCHEMA, _rows(task), what) as reader:
            content = connection.from_arrow(reader).project(_CONTENT)
            content.aggregate(_COUNTED, "content, moment").create("counted")
            lost = connection.execute(_LOST).fetchone()
    if lost is not None:
        of = task.replays[lost[1]].stream
        topics = ", ".join(sorted({t.stream.topic for t in task.replays}))
        raise IntegrityError(
            f"restore {first.restore_id} is not what was archived: {first.to_topic}-"
            f"{task.kafka_partition} holds a record of source offset {lost[2]} of {of.topic}-{of.kafka_partition} "
            f"{lost[0]} times less often than {topics} have it together, from target offset {task.start_offset} on. "
            f"Somebody deleted or changed records of the target, its retention or compaction did, or the cluster "
            f"lost them; or a function of your own (predicate, mapper, partitioner) answers otherwise each time. "
            f"Restore to another topic, under another id"
        )


_SCHEMA = pa.schema(
    [
        *(RECORD_SCHEMA.field(name) for name in ("key", "value", "headers", "offset")),
        ("moment", pa.int64()),
        ("stream", pa.int32()),
    ]
)


def _rows(task: TogetherTask) -> Iterator[pa.RecordBatch]:
    """All records: those of the streams with their number, the timestamp null where the client has replaced it."""
    for number, given in enumerate(task.replays):
        free = pa.array(sorted(given.any_timestamp), pa.int64())
        for batch in given.sent_stream(ObjectStore(given.stream.store)).of(task.kafka_partition):
            times = batch.column("timestamp").cast(pa.int64())
            yield _row(batch, pc.if_else(pc.is_in(times, free), None, times), number)
    first = task.replays[0]
    for batch in read_target(first.kafka, first.to_topic, task.kafka_partition, task.start_offset):
        yield _row(batch, batch.column("timestamp").cast(pa.int64()), None)


def _row(batch: pa.RecordBatch, moments: pa.Int64Array, number: int | None) -> pa.RecordBatch:
    stream = pa.array([number] * batch.num_rows, pa.int32())
    columns = [*(batch.column(name) for name in ("key", "value", "headers", "offset")), moments, stream]
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)
