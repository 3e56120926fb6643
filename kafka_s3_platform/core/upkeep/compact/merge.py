"""Merge segments of one kafka partition in a Spark task: read them in offset order, and write them as merged ones."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

import pyarrow as pa

from kafka_s3_platform.core.config.settings import LayoutSettings, StoreSettings
from kafka_s3_platform.core.errors import IntegrityError, PermanentError, PlatformError, TransientError
from kafka_s3_platform.core.formats.merge import MergeSource, merge_by_offset
from kafka_s3_platform.core.model.connect import ConnectBatch
from kafka_s3_platform.core.model.segment import Segment
from kafka_s3_platform.core.segments.target import Bucket, BucketPart, SegmentTarget
from kafka_s3_platform.core.segments.writers import ClosedSegments, SegmentUploads, SegmentWriters
from kafka_s3_platform.core.spark.runner import Attempt
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform.core.store.upload import Provenance
from kafka_s3_platform.core.upkeep.compact.days import Month, Span
from kafka_s3_platform.core.upkeep.compact.plan import Merge
from kafka_s3_platform.core.upkeep.verify import read_checked


@dataclass(frozen=True)
class MergeTask:
    """One merge with everything an executor needs for it.

    `layout` is the layout of the merged segments. `writer` is the merging run; each attempt adds its own id.
    """

    store: StoreSettings = field(repr=False)
    layout: LayoutSettings
    writer: Provenance
    bucket: Bucket
    merge: Merge
    topic_day: tuple[str, Span]
    """The topic and the day or month to compact. In `merge.zone`, this day may be another span of time."""

    def target(self, attempt: Attempt) -> SegmentTarget:
        """Return the target of the merged segments, which this attempt writes, with the inputs' schema ids."""
        writer = replace(self.writer, attempt=attempt.attempt_id)
        return SegmentTarget(
            self.layout,
            writer.topic,
            self.merge.kafka_partition,
            writer,
            chunk="monthly" if isinstance(self.topic_day[1], Month) else "daily",
            rewrite=True,
            schema_ids=frozenset(i for s in self.merge.inputs for i in s.schema_ids),
        )


Outcome: TypeAlias = tuple[Segment, ...] | PlatformError
"""The segments that a merge has written, which count once their rows are committed, or the error of the merge."""


@dataclass(frozen=True)
class MergeGroup:
    """Merges for one Spark task to do, one after the other."""

    number: int
    tasks: tuple[MergeTask, ...]


def try_merges(group: MergeGroup, attempt: Attempt) -> tuple[int, list[Outcome]]:
    """Do the merges of one Spark task, one after the other. The error of one becomes its result, and the others go on.

    A transient error is raised if the merge is alone in its group and Spark will try it again. In a larger group it
    becomes the merge's result, and the run tries the merge again alone.
    """
    return group.number, [_try_merge(task, attempt, is_alone=len(group.tasks) == 1) for task in group.tasks]


def _try_merge(task: MergeTask, attempt: Attempt, *, is_alone: bool) -> Outcome:
    """Merge some segments into larger ones. Return these, or the error, so the task's other merges are still done.

    A transient error is raised if the merge `is_alone` in its task and Spark has attempts left. If the task had other
    merges, Spark would repeat them too.
    """
    try:
        return merge_segments(task, attempt)
    except TransientError as err:
        if is_alone and not attempt.is_last:
            raise
        return err
    except PermanentError as err:
        return err


def merge_segments(task: MergeTask, attempt: Attempt) -> tuple[Segment, ...]:
    """Merge segments record by record, by offset, into new ones. Objects of a failed merge are left for the vacuum.

    Raises:
        IntegrityError: an input is missing, or differs from its row.
    """
    store = ObjectStore(task.store)
    inputs = task.merge.inputs
    sources = [MergeSource(s.key, s.start_offset, s.end_offset, partial(read_checked, store, s)) for s in inputs]
    late_counts = _LateCounts(inputs)
    batches = ((records, late_counts.up_to(records)) for records in merge_by_offset(sources))
    segments = write_segments(task.target(attempt), store, task.bucket, batches)
    _check_output(task, segments)
    return tuple(segments)


def write_segments(
    target: SegmentTarget, store: ObjectStore, bucket: Bucket, batches: Iterable[tuple[pa.RecordBatch, int]]
) -> list[Segment]:
    """Write whole records of one bucket, each batch with its number of late records. Return the uploaded segments."""
    with SegmentUploads() as uploads:
        closed = ClosedSegments(uploads)
        with SegmentWriters(target, store, closed) as out:
            for records, late_count in batches:
                batch = ConnectBatch.of(records)
                out.write(BucketPart(bucket, batch, batch.timestamps, late_count))
            out.close()
        return closed.collect()


class _LateCounts:
    """Assigns each input segment's count of late records to the batch that holds the segment's first record."""

    def __init__(self, inputs: Sequence[Segment]) -> None:
        self._waiting = sorted(((s.start_offset, s.late_count) for s in inputs), reverse=True)

    def up_to(self, batch: pa.RecordBatch) -> int:
        """Return the number of late records of the inputs that start in `batch` or before it, if not yet counted."""
        return sum(self._pop_counts(batch.column("offset")[-1].as_py()))

    def _pop_counts(self, last_offset: int) -> Iterator[int]:
        while self._waiting and self._waiting[-1][0] <= last_offset:
            yield self._waiting.pop()[1]


def _check_output(task: MergeTask, segments: Sequence[Segment]) -> None:
    """Raise IntegrityError if the merged segments have other sums of records, bytes or late records than the inputs."""
    inputs = task.merge.inputs
    for name in ("record_count", "record_bytes", "late_count"):
        input_sum = sum(getattr(s, name) for s in inputs)
        output_sum = sum(getattr(s, name) for s in segments)
        if input_sum != output_sum:
            raise IntegrityError(
                f"{task.writer.topic}-{task.merge.kafka_partition}, day {task.bucket.encoded_partition}: {name} of the "
                f"{len(inputs)} inputs is {input_sum}, of the {len(segments)} merged segments {output_sum}. This is a "
                f"defect of the "
                f"platform; nothing was committed"
            )
