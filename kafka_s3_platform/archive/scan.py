"""The scan: one Spark task reads ranges of one kafka partition once, and writes them as segments."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from kafka_s3_platform.archive.writers import Bucket, SegmentTarget, SegmentWriters
from kafka_s3_platform.config.settings import KafkaSettings, LayoutSettings, StoreSettings
from kafka_s3_platform.errors import IntegrityError
from kafka_s3_platform.kafka.reader import ConfluentReader
from kafka_s3_platform.kafka.throttle import Throttle
from kafka_s3_platform.model.gap import Gap
from kafka_s3_platform.model.offsets import OffsetRange
from kafka_s3_platform.model.segment import OUT_OF_RANGE, Scan, Segment
from kafka_s3_platform.partitioners.time_based import TimeBasedPartitioner
from kafka_s3_platform.spark.runner import Attempt
from kafka_s3_platform.store.objects import ObjectStore
from kafka_s3_platform.store.upload import Provenance

logger = logging.getLogger(__name__)

HOUR_MS = 3_600_000


@dataclass(frozen=True)
class ScanTask:
    """Ranges of one kafka partition, ascending, and all that an executor needs to archive them.

    `writer` is who archives; each attempt puts its own id in.
    Timestamps outside [`earliest_ms`, `latest_ms`) go to the out-of-range folder. `marks` as in `ReadPlan`; with the
    Wallclock extractor `hour_offsets` are (first offset, hour start ms), ascending, the first at or below the ranges.
    """

    kafka: KafkaSettings = field(repr=False)
    store: StoreSettings = field(repr=False)
    layout: LayoutSettings
    writer: Provenance
    kafka_partition: int
    ranges: tuple[OffsetRange, ...]
    leader_epoch: int | None
    earliest_ms: int
    latest_ms: int
    lateness_ms: int
    watermark_ms: int
    hour_offsets: tuple[tuple[int, int], ...] = ()
    allow_gaps: bool = False
    records_per_second: float | None = None
    bytes_per_second: float | None = None

    @property
    def size(self) -> int:
        return sum(len(r) for r in self.ranges)

    def target(self, attempt: Attempt) -> SegmentTarget:
        writer = replace(self.writer, attempt=attempt.attempt_id)
        return SegmentTarget(self.layout, writer.topic, self.kafka_partition, writer)


@dataclass(frozen=True)
class ScanResult:
    """What a task read and wrote; it starts to exist when its rows are committed."""

    kafka_partition: int
    size: int
    scans: tuple[Scan, ...]
    segments: tuple[Segment, ...]
    gaps: tuple[Gap, ...]

    @property
    def record_count(self) -> int:
        return sum(s.record_count for s in self.scans)

    @property
    def record_bytes(self) -> int:
        return sum(s.record_bytes for s in self.segments)


def scan(task: ScanTask, attempt: Attempt) -> ScanResult:
    """Read the task's ranges and upload their segments. Objects of a failed scan are left for the vacuum."""
    store = ObjectStore(task.store)
    throttle = Throttle(task.records_per_second, task.bytes_per_second)
    scans: list[Scan] = []
    segments: list[Segment] = []
    gaps: list[Gap] = []
    splitter = Splitter(task)
    with ConfluentReader(task.kafka, task.writer.topic, throttle, allow_gaps=task.allow_gaps) as reader:
        for wanted in task.ranges:
            leader_epoch = task.leader_epoch if wanted is task.ranges[0] else None
            read = reader.read(task.kafka_partition, wanted, leader_epoch)
            with SegmentWriters(task.target(attempt), store) as out:
                for batch in read:
                    for bucket, part, late in splitter.split(batch):
                        out.write(bucket, part, late)
                written = out.close()
            _check(task, wanted, read.end.records, written)
            segments += written
            gaps += read.end.gaps
            scans.append(
                Scan(
                    task.kafka_partition,
                    wanted.start_offset,
                    wanted.end_offset,
                    read.end.records,
                    read.end.leader_epoch,
                    task.writer.epoch,
                )
            )
    return ScanResult(task.kafka_partition, task.size, _joined(scans), tuple(segments), tuple(gaps))


class Splitter:
    """Sends each record to its hour and encoded partition; remembers how far time has come, to count late ones."""

    def __init__(self, task: ScanTask) -> None:
        self._task = task
        self._partitioner = TimeBasedPartitioner(task.layout)
        self._watermark = task.watermark_ms

    def split(self, batch: pa.RecordBatch) -> Iterator[tuple[Bucket, pa.RecordBatch, int]]:
        """(bucket, its records in offset order, how many of them are late) for each bucket of the batch."""
        times, valid = self._times(batch)
        names, codes = self._partitioner.encode(np.where(valid, times, self._task.earliest_ms))
        buckets = [Bucket(hour, encoded) for hour, encoded in names] + [Bucket(None, OUT_OF_RANGE)]
        codes = np.where(valid, codes, len(names))
        late = self._late(times, valid, np.array([b.hour_ms or 0 for b in buckets], np.int64)[codes])
        for code, part, picked in _groups(batch, codes):
            yield buckets[code], part, int(late[picked].sum())

    def _times(self, batch: pa.RecordBatch) -> tuple[np.ndarray, np.ndarray]:
        """Per record: the time that decides its hour, and whether that lies in the archive's span."""
        task = self._task
        if task.layout.timestamp_extractor == "Wallclock":
            offsets = batch.column("offset").to_numpy()
            starts = np.array([o for o, _ in task.hour_offsets], np.int64)
            hours = np.array([h for _, h in task.hour_offsets], np.int64)
            return hours[np.searchsorted(starts, offsets, side="right") - 1], np.ones(len(offsets), bool)
        times = batch.column("timestamp").cast(pa.int64()).to_numpy()
        return times, (times >= task.earliest_ms) & (times < task.latest_ms)

    def _late(self, times: np.ndarray, valid: np.ndarray, hours: np.ndarray) -> np.ndarray:
        """Which records came after one that was past their hour's end and the allowed lateness."""
        seen = np.maximum.accumulate(np.append(self._watermark, np.where(valid, times, self._watermark)))
        self._watermark = int(seen[-1])
        return valid & (hours + HOUR_MS + self._task.lateness_ms <= seen[:-1])


def _groups(batch: pa.RecordBatch, codes: np.ndarray) -> Iterator[tuple[int, pa.RecordBatch, np.ndarray]]:
    """(code, its rows, their positions) for each code, rows in their order."""
    if (codes == codes[0]).all():
        yield int(codes[0]), batch, np.arange(len(codes))
        return
    order = np.argsort(codes, kind="stable")
    bounds = np.flatnonzero(np.diff(codes[order])) + 1
    for picked in np.split(order, bounds):
        first, last = int(picked[0]), int(picked[-1])
        whole = last - first + 1 == len(picked)
        yield int(codes[first]), batch.slice(first, len(picked)) if whole else batch.take(pa.array(picked)), picked


def _check(task: ScanTask, wanted: OffsetRange, records: int, written: Sequence[Segment]) -> None:
    counted = sum(s.record_count for s in written)
    outside = [s.key for s in written if not (s.start_offset in wanted and s.end_offset <= wanted.end_offset)]
    if counted != records or outside:
        raise IntegrityError(
            f"{task.writer.topic}-{task.kafka_partition} {wanted}: {records} records were read, {counted} were "
            f"written, objects outside the range: {outside}. This is a defect of the platform; nothing was committed"
        )


def _joined(scans: Sequence[Scan]) -> tuple[Scan, ...]:
    """Adjacent scans of one task as one row."""
    joined: list[Scan] = []
    for item in scans:
        if joined and joined[-1].end_offset == item.start_offset:
            joined.append(_merged(joined.pop(), item))
        else:
            joined.append(item)
    return tuple(joined)


def _merged(first: Scan, second: Scan) -> Scan:
    count = first.record_count + second.record_count
    return replace(second, start_offset=first.start_offset, record_count=count)
