"""Scan in a Spark task: read ranges of one kafka partition once, and write them as segments.

A range is read to its proven end. Then its segments are closed, and they are uploaded while later ranges or tasks are
read.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import cache, partial
from itertools import islice
from typing import TypeVar

from kafka_s3_platform.core.archive.failures import BadRecords, list_good_ranges
from kafka_s3_platform.core.archive.pipeline import Counts, Pipeline
from kafka_s3_platform.core.archive.task import FailedScan, ScanResult, ScanTask
from kafka_s3_platform.core.errors import (
    IntegrityError,
    LogTruncatedError,
    MissingBucketError,
    PermanentError,
    StoreUnavailableError,
    TransientError,
)
from kafka_s3_platform.core.kafka.dead_letters import DeadLetterQueue
from kafka_s3_platform.core.kafka.new_reader import new_reader
from kafka_s3_platform.core.kafka.record_reader import ReadEnd, Throttle
from kafka_s3_platform.core.model.gaps import Gap, subtract_offsets
from kafka_s3_platform.core.model.notes import Notes
from kafka_s3_platform.core.model.offsets import OffsetRange, RangeSet
from kafka_s3_platform.core.model.segment import EpochMark, Scan, Segment
from kafka_s3_platform.core.segments.writers import ClosedSegments, SegmentUploads, SegmentWriters
from kafka_s3_platform.core.spark.runner import Attempt
from kafka_s3_platform.core.store.objects import ObjectStore

T = TypeVar("T")

ENDING = (MissingBucketError, StoreUnavailableError)
"""Errors that every other task would get too, so they end the run."""


def try_scans(tasks: Sequence[ScanTask], attempt: Attempt) -> list[ScanResult | FailedScan]:
    """Scan one task after the other. An error of one task becomes its result, and the others go on.

    A task's last objects are uploaded while the next task is read. A transient error is raised if the task is alone in
    its group and Spark will try it again. In a larger group it becomes the task's result, and the run tries the task
    again alone.
    """
    raises_transient = len(tasks) == 1 and not attempt.is_last
    open_store = cache(ObjectStore)
    results: list[ScanResult | FailedScan] = []
    pending: deque[ReadRanges | FailedScan] = deque()

    def finish_next() -> None:
        """Wait for the uploads of the task that was read first, and note its result."""
        item = pending.popleft()
        if isinstance(item, ReadRanges):
            results.append(_try_task(item.task, item.finish, raises_transient=raises_transient))
        else:
            results.append(item)

    with SegmentUploads() as uploads:
        for task in tasks:
            begin = partial(read_ranges, task, attempt, open_store(task.store), uploads)
            pending.append(_try_task(task, begin, raises_transient=raises_transient))
            # An error that ends the run must not wait until all others are read.
            while pending and (isinstance(pending[0], FailedScan) or pending[0].closed.are_uploaded):
                finish_next()
        while pending:
            finish_next()
    return results


def _try_task(task: ScanTask, work: Callable[[], T], *, raises_transient: bool) -> T | FailedScan:
    """Return the result of `work` for a task, or its error.

    Errors in ENDING are raised and, if `raises_transient`, transient ones too.
    """
    try:
        return work()
    except ENDING:
        raise
    except TransientError as err:
        if raises_transient:
            raise
        return FailedScan(task.kafka_partition, task.ranges, err)
    except PermanentError as err:
        return FailedScan(task.kafka_partition, task.ranges, err)


@dataclass(frozen=True)
class _ReadRange:
    """A range read to its end. `segments` is the number of segments written for it."""

    offsets: OffsetRange
    end: ReadEnd
    records: int
    counts: Counts
    segments: int
    notes: Notes


@dataclass(frozen=True)
class ReadRanges:
    """A task's ranges, read to their ends, with failed records (`bad`) and closed segments, maybe still in upload."""

    task: ScanTask
    ranges: Sequence[_ReadRange]
    bad: BadRecords
    closed: ClosedSegments

    def finish(self) -> ScanResult:
        """Wait for the uploads, and return the task's result. Raises the error of the first failed upload."""
        scans: list[Scan] = []
        gaps: list[Gap] = []
        notes = Notes()
        segments = self.closed.collect()
        remaining = iter(segments)
        for part in self.ranges:
            _check_counts(self.task, part, [*islice(remaining, part.segments)])
            gaps += part.end.gaps
            notes.join(part.notes)
            pieces = list_good_ranges(part.offsets, self.bad.select_offsets(part.offsets))
            scans += _build_rows(self.task, pieces, part.end, part.counts)
        unresolved = tuple(subtract_offsets(self.bad.rows, RangeSet(g.offsets for g in gaps)))
        task = self.task
        return ScanResult(
            task.kafka_partition, task.ranges, _join_pieces(scans), tuple(segments), tuple(gaps), unresolved, notes
        )


def read_ranges(task: ScanTask, attempt: Attempt, store: ObjectStore, uploads: SegmentUploads) -> ReadRanges:
    """Read the task's ranges and begin to upload their segments. The vacuum removes the objects of a failed scan."""
    closed = ClosedSegments(uploads)
    try:
        return _read_ranges(task, attempt, store, closed)
    except BaseException:
        closed.give_up()
        raise


def _read_ranges(task: ScanTask, attempt: Attempt, store: ObjectStore, closed: ClosedSegments) -> ReadRanges:
    """Read the ranges one by one. Before each, its mark shows if the log is still the archived one."""
    ranges: list[_ReadRange] = []
    bad = BadRecords(task.kafka_partition, datetime.now(timezone.utc))
    with ExitStack() as open_clients:
        clients = _Clients(task, attempt, store, open_clients)
        for offsets, mark in zip(task.ranges, task.epoch_marks, strict=True):
            if bad.is_full:
                bad.give_up(offsets)
                continue
            closed.raise_failure()
            ranges.append(_read_range(task, offsets, mark, clients, closed, bad))
    return ReadRanges(task, ranges, bad, closed)


class _Clients:
    """The reader, the store and the dead letter queue of a task. `stack` closes the task's own clients."""

    def __init__(self, task: ScanTask, attempt: Attempt, store: ObjectStore, stack: ExitStack) -> None:
        throttle = Throttle(task.records_per_second, task.bytes_per_second)
        reader = new_reader(
            task.kafka, task.writer.topic, throttle, allow_gaps=task.archive.allow_gaps, skip_unreadable=True
        )
        self.reader = stack.enter_context(reader)
        self.store = store
        self.target = task.target(attempt)
        self.watermark_ms = task.watermark_ms
        errors = task.records.errors
        self.dead_letters: DeadLetterQueue | None = None
        if errors.tolerance == "all" and (errors.dead_letter_topic or errors.log_enable):
            queue = DeadLetterQueue(task.kafka, errors, task.writer.connector, task.writer.topic)
            self.dead_letters = stack.enter_context(queue)


def _read_range(
    task: ScanTask,
    offsets: OffsetRange,
    mark: EpochMark | None,
    clients: _Clients,
    closed: ClosedSegments,
    bad: BadRecords,
) -> _ReadRange:
    """Read one range to its end and write its segments. Before that, check by `mark` that this is the archived log."""
    closed_before = len(closed)
    epoch_before = None
    if mark is not None and mark.offset == offsets.start_offset:
        # the first fetch compares the epochs
        epoch_before = mark.leader_epoch
    elif mark is not None:
        end = clients.reader.find_divergence(task.kafka_partition, mark.offset, mark.leader_epoch)
        if end is not None:
            raise LogTruncatedError(
                f"the log was truncated below offset {mark.offset}, up to which it is archived: it holds other records "
                f"from offset {end.end_offset} on at the latest"
            )
    range_reader = clients.reader.read(task.kafka_partition, offsets, epoch_before)
    pipeline = Pipeline(task, clients.dead_letters, clients.watermark_ms, bad)
    reached = offsets.start_offset
    left_out = 0
    with SegmentWriters(clients.target, clients.store, closed, pipeline.refuse) as out:
        for batch in range_reader:
            # Too much has failed. The rest is read only for the gaps and the leader epoch, which are known at its end.
            if bad.is_full:
                left_out += batch.num_rows
                continue
            for part in pipeline.group_by_bucket(batch, range_reader.failures):
                out.write(part)
            reached = int(batch.column("offset")[-1].as_py()) + 1
        out.close()
    bad.insert(u for u in range_reader.end.unreadable if not left_out or u.end_offset <= reached)
    if left_out:
        bad.give_up(OffsetRange(reached, offsets.end_offset))
    clients.watermark_ms = pipeline.watermark_ms
    return _ReadRange(
        offsets,
        range_reader.end,
        range_reader.end.records - left_out,
        pipeline.counts,
        len(closed) - closed_before,
        pipeline.notes,
    )


def _build_rows(task: ScanTask, pieces: Sequence[OffsetRange], end: ReadEnd, counts: Counts) -> Iterator[Scan]:
    """Yield the scans of a range read in one go. The first piece has the counts of all pieces."""
    numbers = (counts.read - counts.unresolved, counts.filtered, counts.dead_letters, counts.output)
    for n, piece in enumerate(pieces):
        records, filtered, dead_letters, output = numbers if n == 0 else (0, 0, 0, 0)
        # every piece gets the epoch of the range's end: the log had it, so if it is gone later, the log was truncated
        epoch = end.leader_epoch
        yield Scan(
            task.kafka_partition,
            piece.start_offset,
            piece.end_offset,
            records,
            epoch,
            task.writer.epoch,
            filtered,
            dead_letters,
            output,
        )


def _check_counts(task: ScanTask, part: _ReadRange, segments: Sequence[Segment]) -> None:
    """Raise IntegrityError unless each record read was counted, and each output was written within the range."""
    offsets = part.offsets
    written_count = sum(s.record_count for s in segments)
    outside = [s.key for s in segments if not (s.start_offset in offsets and s.end_offset <= offsets.end_offset)]
    if (part.counts.read, part.counts.output) != (part.records, written_count) or outside:
        raise IntegrityError(
            f"{task.writer.topic}-{task.kafka_partition} {offsets}: {part.records} records were read, {part.counts} "
            f"came of them, {written_count} were written, objects outside the range: {outside}. This is a defect of "
            f"the platform; nothing was committed"
        )


def _join_pieces(scans: Sequence[Scan]) -> tuple[Scan, ...]:
    """Join adjacent scans of one task into one row, unless one of them left out records.

    Records that were left out are counted in the first hour of their scan, so such a scan must not become longer.
    """
    joined: list[Scan] = []
    for item in scans:
        if joined and _can_join(joined[-1], item):
            joined.append(_merge_pair(joined.pop(), item))
        else:
            joined.append(item)
    return tuple(joined)


def _can_join(first: Scan, second: Scan) -> bool:
    """Return True if the scans are adjacent, and left out no record."""
    left_out = sum(s.filtered_count + s.dead_letter_count for s in (first, second))
    return first.end_offset == second.start_offset and not left_out


def _merge_pair(first: Scan, second: Scan) -> Scan:
    """Return one scan for two adjacent ones, with the sums of their counts."""
    sums = {name: getattr(first, name) + getattr(second, name) for name in ("record_count", "output_count")}
    return replace(second, start_offset=first.start_offset, **sums)
