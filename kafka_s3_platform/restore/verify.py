"""One Spark task reads one kafka partition of a finished restore back and finds every archived record in it."""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.errors import IntegrityError, OffsetGapError
from kafka_s3_platform.formats.digest import RecordDigest
from kafka_s3_platform.restore.checkpoint import save_document
from kafka_s3_platform.restore.mapping import MappingWriter
from kafka_s3_platform.restore.match import SubsequenceMatch
from kafka_s3_platform.restore.replay import UNSENDABLE_TIMESTAMPS, ReplayTask, read_target
from kafka_s3_platform.restore.request import KafkaPartitionReport
from kafka_s3_platform.restore.stream import ArchivedStream
from kafka_s3_platform.spark.runner import Attempt
from kafka_s3_platform.store.objects import ObjectStore


@dataclass(frozen=True)
class VerifyTask:
    """What was replayed, and where its offset mapping goes."""

    replay: ReplayTask
    mapping_key: str


def verify(task: VerifyTask, attempt: Attempt) -> KafkaPartitionReport:  # noqa: ARG001 - reading has no attempts
    """Match the archived stream with the target, from the offset on where the restore began, and store the mapping.

    Raises:
        IntegrityError: an archived record is not in the target, or not in its place.
    """
    given = task.replay
    store = ObjectStore(given.stream.store)
    archived = ArchivedStream(given.stream, store)
    target = read_target(given.kafka, given.to_topic, given.kafka_partition, given.target_start)
    match = SubsequenceMatch(archived, target, given.any_timestamp)
    tally = _Tally()
    try:
        for source, found in match:
            tally.add(source, found)
    except OffsetGapError as err:
        raise IntegrityError(
            f"restore {given.where} cannot be verified: the target lost records meanwhile: {err}"
        ) from err
    _check_found(given, match.missing(), tally)
    mapping = tally.mapping.close()
    if tally.count:
        save_document(store, task.mapping_key, mapping.to_pybytes())
    return tally.report(given, archived.out_of_range_count, match.foreign_count, task.mapping_key)


def _check_found(given: ReplayTask, missing: int | None, tally: "_Tally") -> None:
    if missing is not None:
        raise IntegrityError(
            f"restore {given.where} is not what was archived: the record of source offset {missing} was not found from "
            f"target offset {given.target_start} on, after {tally.count:,} that were. Somebody deleted or changed "
            f"records of the target, or its retention or compaction did; restore to another topic, under another id"
        )


class _Tally:
    """What was found of one kafka partition so far."""

    def __init__(self) -> None:
        self.mapping = MappingWriter()
        self.count = self._bytes = self._altered = 0
        self._digest = RecordDigest()
        self._first: tuple[int, int] | None = None
        self._last: tuple[int, int] | None = None

    def add(self, source: pa.RecordBatch, target: pa.RecordBatch) -> None:
        self.mapping.add(source, target)
        self._digest.update(source)
        self.count += source.num_rows
        self._bytes += sum(pc.sum(pc.binary_length(source.column(name))).as_py() or 0 for name in ("key", "value"))
        times = source.column("timestamp").cast(pa.int64())
        self._altered += pc.sum(pc.is_in(times, pa.array(sorted(UNSENDABLE_TIMESTAMPS), pa.int64()))).as_py() or 0
        offsets = source.column("offset"), target.column("offset")
        self._first = self._first or (offsets[0][0].as_py(), offsets[1][0].as_py())
        self._last = (offsets[0][-1].as_py(), offsets[1][-1].as_py())

    def report(self, given: ReplayTask, out_of_range: int, foreign: int, mapping_key: str) -> KafkaPartitionReport:
        first, last = self._first or (None, None), self._last or (None, None)
        return KafkaPartitionReport(
            kafka_partition=given.kafka_partition,
            record_count=self.count,
            record_bytes=self._bytes,
            out_of_range_count=out_of_range,
            first_source_offset=first[0],
            last_source_offset=last[0],
            first_target_offset=first[1],
            last_target_offset=last[1],
            foreign_count=foreign,
            altered_timestamps=self._altered,
            digest=self._digest.hexdigest(),
            mapping_key=mapping_key if self.count else None,
        )
