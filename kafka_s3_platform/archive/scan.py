"""The scan: one Spark task reads ranges of one kafka partition once, and writes them as segments."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

from kafka_s3_platform.archive.pipeline import Counts, Pipeline
from kafka_s3_platform.archive.task import ScanResult, ScanTask
from kafka_s3_platform.archive.writers import SegmentWriters
from kafka_s3_platform.errors import IntegrityError
from kafka_s3_platform.kafka.dead_letters import DeadLetterQueue
from kafka_s3_platform.kafka.reader import ReadEnd
from kafka_s3_platform.kafka.readers import new_reader
from kafka_s3_platform.kafka.throttle import Throttle
from kafka_s3_platform.model.gap import Gap
from kafka_s3_platform.model.offsets import OffsetRange
from kafka_s3_platform.model.segment import Scan, Segment
from kafka_s3_platform.spark.runner import Attempt
from kafka_s3_platform.store.objects import ObjectStore


def scan(task: ScanTask, attempt: Attempt) -> ScanResult:
    """Read the task's ranges and upload their segments. Objects of a failed scan are left for the vacuum."""
    scans: list[Scan] = []
    segments: list[Segment] = []
    gaps: list[Gap] = []
    with ExitStack() as open_clients:
        clients = _Clients(task, attempt, open_clients)
        for wanted in task.ranges:
            end, counts, written = _scan_range(task, wanted, clients)
            segments += written
            gaps += end.gaps
            scans.append(_row(task, wanted, end, counts))
        if clients.dead_letters is not None:
            clients.dead_letters.flush()
    return ScanResult(task.kafka_partition, task.size, _joined(scans), tuple(segments), tuple(gaps))


class _Clients:
    """What a task reads from and writes to, closed with `stack`."""

    def __init__(self, task: ScanTask, attempt: Attempt, stack: ExitStack) -> None:
        throttle = Throttle(task.records_per_second, task.bytes_per_second)
        reader = new_reader(task.kafka, task.writer.topic, throttle, allow_gaps=task.allow_gaps)
        self.reader = stack.enter_context(reader)
        self.store = ObjectStore(task.store)
        self.target = task.target(attempt)
        self.watermark_ms = task.watermark_ms
        errors = task.records.errors
        self.dead_letters: DeadLetterQueue | None = None
        if errors.tolerance == "all" and (errors.dead_letter_topic or errors.log_enable):
            queue = DeadLetterQueue(task.kafka, errors, task.writer.connector, task.writer.topic)
            self.dead_letters = stack.enter_context(queue)


def _scan_range(task: ScanTask, wanted: OffsetRange, clients: _Clients) -> tuple[ReadEnd, Counts, list[Segment]]:
    read = clients.reader.read(task.kafka_partition, wanted, task.leader_epoch if wanted is task.ranges[0] else None)
    pipeline = Pipeline(task, clients.dead_letters, clients.watermark_ms)
    with SegmentWriters(clients.target, clients.store, pipeline.refuse) as out:
        for batch in read:
            for part in pipeline.parts(batch):
                out.write(part)
        written = out.close()
    clients.watermark_ms = pipeline.watermark_ms
    _check(task, wanted, read.end.records, pipeline.counts, written)
    return read.end, pipeline.counts, written


def _row(task: ScanTask, wanted: OffsetRange, end: ReadEnd, counts: Counts) -> Scan:
    return Scan(
        task.kafka_partition,
        wanted.start_offset,
        wanted.end_offset,
        end.records,
        end.leader_epoch,
        task.writer.epoch,
        counts.filtered,
        counts.dead_letters,
        counts.output,
    )


def _check(task: ScanTask, wanted: OffsetRange, records: int, counts: Counts, written: Sequence[Segment]) -> None:
    stored = sum(s.record_count for s in written)
    outside = [s.key for s in written if not (s.start_offset in wanted and s.end_offset <= wanted.end_offset)]
    if (counts.read, counts.output) != (records, stored) or outside:
        raise IntegrityError(
            f"{task.writer.topic}-{task.kafka_partition} {wanted}: {records} records were read, {counts} came of them, "
            f"{stored} were written, objects outside the range: {outside}. This is a defect of the platform; nothing "
            f"was committed"
        )


def _joined(scans: Sequence[Scan]) -> tuple[Scan, ...]:
    """Adjacent scans of one task as one row, unless one lost records: those are counted on the hour it begins in."""
    joined: list[Scan] = []
    for item in scans:
        if joined and _belong_together(joined[-1], item):
            joined.append(_merged(joined.pop(), item))
        else:
            joined.append(item)
    return tuple(joined)


def _belong_together(first: Scan, second: Scan) -> bool:
    lost = sum(s.filtered_count + s.dead_letter_count for s in (first, second))
    return first.end_offset == second.start_offset and not lost


def _merged(first: Scan, second: Scan) -> Scan:
    sums = {name: getattr(first, name) + getattr(second, name) for name in ("record_count", "output_count")}
    return replace(second, start_offset=first.start_offset, **sums)
