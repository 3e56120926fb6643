"""Scan: one Spark task reads ranges of one kafka partition once, and writes them as segments."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime, timezone

from kafka_s3_platform.archive.bad_records import BadRecords, list_good_ranges
from kafka_s3_platform.archive.pipeline import Counts, Pipeline
from kafka_s3_platform.archive.task import FailedScan, ScanResult, ScanTask
from kafka_s3_platform.errors import (
    AuthorizationError,
    ConfigError,
    IntegrityError,
    MissingBucketError,
    PermanentError,
    RegistryUnavailableError,
    StoreUnavailableError,
    SupersededError,
    TransientError,
)
from kafka_s3_platform.kafka.dead_letters import DeadLetterQueue
from kafka_s3_platform.kafka.new_reader import new_reader
from kafka_s3_platform.kafka.record_reader import ReadEnd
from kafka_s3_platform.kafka.throttle import Throttle
from kafka_s3_platform.model.gap import Gap
from kafka_s3_platform.model.offsets import OffsetRange, RangeSet
from kafka_s3_platform.model.segment import Scan, Segment
from kafka_s3_platform.model.unresolved import subtract_offsets
from kafka_s3_platform.segments.writers import SegmentWriters
from kafka_s3_platform.spark.runner import Attempt
from kafka_s3_platform.store.objects import ObjectStore

ENDING = (
    SupersededError,
    AuthorizationError,
    ConfigError,
    MissingBucketError,
    StoreUnavailableError,
    RegistryUnavailableError,
)
"""Errors that every other task would get too: they end the run."""


def try_scan(task: ScanTask, attempt: Attempt) -> ScanResult | FailedScan:
    """Call `scan_ranges`. Return a permanent error of this task alone as a result, so that the other tasks go on."""
    try:
        return scan_ranges(task, attempt)
    except ENDING:
        raise
    except TransientError as err:
        if not attempt.is_last:
            raise
        return FailedScan(task.kafka_partition, task.ranges, err)
    except PermanentError as err:
        return FailedScan(task.kafka_partition, task.ranges, err)


def scan_ranges(task: ScanTask, attempt: Attempt) -> ScanResult:
    """Read the task's ranges and upload their segments. The vacuum removes the objects of a failed scan."""
    scans: list[Scan] = []
    segments: list[Segment] = []
    gaps: list[Gap] = []
    bad = BadRecords(task.kafka_partition, datetime.now(timezone.utc))
    with ExitStack() as open_clients:
        clients = _Clients(task, attempt, open_clients)
        for wanted, epoch_before in zip(task.ranges, task.leader_epochs, strict=True):
            if bad.is_full:
                bad.give_up(wanted)
                continue
            end, counts, written = _scan_range(task, wanted, epoch_before, clients, bad)
            segments += written
            gaps += end.gaps
            scans += _build_rows(task, list_good_ranges(wanted, bad.inside(wanted)), end, counts)
        if clients.dead_letters is not None:
            clients.dead_letters.flush()
    unresolved = tuple(subtract_offsets(bad.rows, RangeSet(g.offsets for g in gaps)))
    return ScanResult(task.kafka_partition, task.ranges, _join_pieces(scans), tuple(segments), tuple(gaps), unresolved)


class _Clients:
    """What a task reads from and writes to. `stack` closes it."""

    def __init__(self, task: ScanTask, attempt: Attempt, stack: ExitStack) -> None:
        throttle = Throttle(task.records_per_second, task.bytes_per_second)
        reader = new_reader(
            task.kafka, task.writer.topic, throttle, allow_gaps=task.archive.allow_gaps, skip_unreadable=True
        )
        self.reader = stack.enter_context(reader)
        self.store = ObjectStore(task.store)
        self.target = task.target(attempt)
        self.watermark_ms = task.watermark_ms
        errors = task.records.errors
        self.dead_letters: DeadLetterQueue | None = None
        if errors.tolerance == "all" and (errors.dead_letter_topic or errors.log_enable):
            queue = DeadLetterQueue(task.kafka, errors, task.writer.connector, task.writer.topic)
            self.dead_letters = stack.enter_context(queue)


def _scan_range(
    task: ScanTask, wanted: OffsetRange, epoch_before: int | None, clients: _Clients, bad: BadRecords
) -> tuple[ReadEnd, Counts, list[Segment]]:
    read = clients.reader.read(task.kafka_partition, wanted, epoch_before)
    pipeline = Pipeline(task, clients.dead_letters, clients.watermark_ms, bad)
    reached = wanted.start_offset
    unused = 0
    with SegmentWriters(clients.target, clients.store, pipeline.refuse) as out:
        for batch in read:
            # Too much has failed. The rest is read only for the gaps and the leader epoch, which are known at its end.
            if bad.is_full:
                unused += batch.num_rows
                continue
            for part in pipeline.parts(batch, read.failures):
                out.write(part)
            reached = int(batch.column("offset")[-1].as_py()) + 1
        written = out.close()
    bad.insert(u for u in read.end.unreadable if not unused or u.end_offset <= reached)
    if unused:
        bad.give_up(OffsetRange(reached, wanted.end_offset))
    clients.watermark_ms = pipeline.watermark_ms
    _check_scanned(task, wanted, read.end.records - unused, pipeline.counts, written)
    return read.end, pipeline.counts, written


def _build_rows(task: ScanTask, pieces: Sequence[OffsetRange], end: ReadEnd, counts: Counts) -> Iterator[Scan]:
    """Return the scans of a range that was read in one go. The first piece has the counts of all."""
    numbers = (counts.read - counts.unresolved, counts.filtered, counts.dead_letters, counts.output)
    for n, piece in enumerate(pieces):
        records, filtered, dead_letters, output = numbers if n == 0 else (0, 0, 0, 0)
        # every piece gets the epoch of the range's end: the log had it, so its loss shows later that it was truncated
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


def _check_scanned(
    task: ScanTask, wanted: OffsetRange, records: int, counts: Counts, written: Sequence[Segment]
) -> None:
    stored = sum(s.record_count for s in written)
    outside = [s.key for s in written if not (s.start_offset in wanted and s.end_offset <= wanted.end_offset)]
    if (counts.read, counts.output) != (records, stored) or outside:
        raise IntegrityError(
            f"{task.writer.topic}-{task.kafka_partition} {wanted}: {records} records were read, {counts} came of them, "
            f"{stored} were written, objects outside the range: {outside}. This is a defect of the platform; nothing "
            f"was committed"
        )


def _join_pieces(scans: Sequence[Scan]) -> tuple[Scan, ...]:
    """Join adjacent scans of one task into one row, unless one of them left out records.

    Records that were left out are counted in the hour in which their scan begins.
    """
    joined: list[Scan] = []
    for item in scans:
        if joined and _can_join(joined[-1], item):
            joined.append(_merge_pair(joined.pop(), item))
        else:
            joined.append(item)
    return tuple(joined)


def _can_join(first: Scan, second: Scan) -> bool:
    lost = sum(s.filtered_count + s.dead_letter_count for s in (first, second))
    return first.end_offset == second.start_offset and not lost


def _merge_pair(first: Scan, second: Scan) -> Scan:
    sums = {name: getattr(first, name) + getattr(second, name) for name in ("record_count", "output_count")}
    return replace(second, start_offset=first.start_offset, **sums)
