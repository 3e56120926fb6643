"""One Spark task reads one kafka partition of a finished restore back and finds every archived record in it."""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.errors import IntegrityError, OffsetGapError
from kafka_s3_platform.formats.columns import record_sizes
from kafka_s3_platform.formats.digest import RecordDigest
from kafka_s3_platform.restore.checkpoint import save_document
from kafka_s3_platform.restore.mapping import MappingWriter
from kafka_s3_platform.restore.match import SubsequenceMatch
from kafka_s3_platform.restore.replay import UNSENDABLE_TIMESTAMPS, ReplayTask
from kafka_s3_platform.restore.request import KafkaPartitionReport, LeftOut, TargetReport
from kafka_s3_platform.restore.sent import SentStream
from kafka_s3_platform.restore.target_log import open_transaction, target_log
from kafka_s3_platform.spark.runner import Attempt
from kafka_s3_platform.store.objects import ObjectStore


@dataclass(frozen=True, slots=True)
class Reached:
    """What of a stream was found in one kafka partition of the target, in order.

    `extra_count` is how many other records it holds, doubled ones and those of other streams and writers; `target` has
    no counts of them yet.
    """

    target: TargetReport
    found_count: int
    extra_count: int


@dataclass(frozen=True)
class VerifiedStream:
    """A stream whose every record was found. `report` says nothing of extra records yet."""

    report: KafkaPartitionReport
    reached: tuple[Reached, ...]


def verify(task: ReplayTask, attempt: Attempt) -> VerifiedStream:  # noqa: ARG001 - reading has no attempts
    """Match the archived stream with the target, from the offset on where the restore began, and store the mapping.

    Raises:
        IntegrityError: an archived record is not in the target, or not in its place.
        OpenTransactionError: one was not found, and may be where somebody's open transaction lets nobody read.
    """
    store = ObjectStore(task.stream.store)
    tally = _Tally()
    # Where keys decide, each kafka partition is compared by itself.
    decided = task.decided(store)
    reached = tuple(_match(decided, number, start, store, tally) for number, start in task.reached)
    mapping = tally.mapping.close()
    if tally.count and task.keeps_number:
        save_document(task.beside(store), task.mapping_key, mapping.to_pybytes())
    return VerifiedStream(tally.report(task), reached)


def _match(given: ReplayTask, kafka_partition: int, start: int, store: ObjectStore, tally: "_Tally") -> Reached:
    stream = given.sent_stream(store)
    log = target_log(given.kafka, given.to_topic, kafka_partition, start)
    match = SubsequenceMatch(stream.of(kafka_partition), log.read(), given.any_timestamp)
    before = tally.count
    try:
        for source, found in match:
            tally.add(source, found, mapped=given.keeps_number)
    except OffsetGapError as err:
        raise IntegrityError(
            f"restore {given.where} cannot be verified: the target lost records meanwhile: {err}"
        ) from err
    found = tally.count - before
    if (missing := match.missing()) is not None:
        if log.open_offset is not None:
            raise open_transaction(log)
        raise IntegrityError(
            f"restore {given.where} is not what was archived: the record of source offset {missing} was not found in "
            f"{given.to_topic}-{kafka_partition} from target offset {start} on, after {found:,} that "
            f"were. Somebody deleted or changed records of the target, its retention or compaction did, or the cluster "
            f"lost them; or a function of your own (predicate, mapper, partitioner) answers otherwise each time. "
            f"Restore to another topic, under another id"
        )
    tally.note(stream)
    target = TargetReport(given.to_topic, kafka_partition, start, log.end_offset, open_offset=log.open_offset)
    return Reached(target, found, match.extra_count)


class _Tally:
    """What was found of one kafka partition so far."""

    def __init__(self) -> None:
        self.mapping = MappingWriter()
        self.count = self._bytes = self._altered = 0
        self._digest = RecordDigest()
        self._first: tuple[int, int] | None = None
        self._last: tuple[int, int] | None = None
        self._out_of_range = 0
        self._left_out = LeftOut()
        self._skipped: tuple[str, ...] = ()
        self._notes: tuple[str, ...] = ()
        self._gaps: tuple[str, ...] = ()

    def note(self, stream: SentStream) -> None:
        """What the stream, read to its end, says of itself: each time the same."""
        self._out_of_range, self._left_out = stream.out_of_range_count, stream.left_out
        self._skipped, self._notes, self._gaps = stream.skipped, stream.notes, stream.gaps

    def add(self, source: pa.RecordBatch, target: pa.RecordBatch, *, mapped: bool) -> None:
        if mapped:
            self.mapping.add(source, target)
        self._digest.update(source)
        self.count += source.num_rows
        self._bytes += int(record_sizes(source).sum())
        times = source.column("timestamp").cast(pa.int64())
        self._altered += pc.sum(pc.is_in(times, pa.array(sorted(UNSENDABLE_TIMESTAMPS), pa.int64()))).as_py() or 0
        offsets = source.column("offset"), target.column("offset")
        first, last = ((offsets[0][n].as_py(), offsets[1][n].as_py()) for n in (0, -1))
        # Where keys choose, each kafka partition of the target is compared by itself.
        self._first, self._last = min(self._first or first, first), max(self._last or last, last)

    def report(self, given: ReplayTask) -> KafkaPartitionReport:
        """Offsets at the target are told only where there is one kafka partition of it."""
        first, last = self._first or (None, None), self._last or (None, None)
        at_target = (first[1], last[1]) if given.keeps_number else (None, None)
        return KafkaPartitionReport(
            kafka_partition=given.kafka_partition,
            record_count=self.count,
            record_bytes=self._bytes,
            out_of_range_count=self._out_of_range,
            first_source_offset=first[0],
            last_source_offset=last[0],
            first_target_offset=at_target[0],
            last_target_offset=at_target[1],
            foreign_count=0,
            altered_timestamps=self._altered,
            digest=self._digest.hexdigest(),
            mapping_key=given.mapping_key if self.count and given.keeps_number else None,
            left_out=self._left_out,
            topic=given.named_topic,
            skipped=self._skipped,
            notes=self._notes,
            gaps=self._gaps,
        )
