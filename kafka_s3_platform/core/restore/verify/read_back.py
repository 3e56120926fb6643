"""Reads one stream of a restore back from the target, and finds every archived record there.

The target offset of each source offset is recorded, as runs. Offsets of consumer groups are translated with them.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kafka_s3_platform.core.errors import IntegrityError, OffsetGapError
from kafka_s3_platform.core.formats.columns import RecordDigest
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.restore.outgoing.sent import SentStream
from kafka_s3_platform.core.restore.replay.checkpoint import save_document
from kafka_s3_platform.core.restore.replay.spec import ReplayTask
from kafka_s3_platform.core.restore.replay.target_log import (
    SubsequenceMatch,
    TargetLog,
    explain_open_transaction,
    find_target_log,
)
from kafka_s3_platform.core.restore.request import KafkaPartitionReport, LeftOut, ReadFacts, TargetReport
from kafka_s3_platform.core.restore.source.base import UNSENDABLE_TIMESTAMP
from kafka_s3_platform.core.spark.runner import Attempt

MAPPING_SCHEMA = pa.schema(
    [
        pa.field("source_offset", pa.int64(), nullable=False),
        pa.field("target_offset", pa.int64(), nullable=False),
        pa.field("count", pa.int64(), nullable=False),
    ]
)
"""A row is a run: the record of source offset + i has target offset + i, for each i below count."""

ROW_GROUP_RUNS = 131_072
"""The number of runs that are collected before they are compressed: 3 MiB."""

Runs = npt.NDArray[np.int64]
"""Source offsets, target offsets and counts: three rows of equal length."""


class MappingWriter:
    """Builds the mapping of one kafka partition from pairs of batches, in offset order.

    It keeps the compressed runs in memory. Offsets that alternate regularly take next to nothing.
    """

    def __init__(self) -> None:
        self._sink = pa.BufferOutputStream()
        self._writer = pq.ParquetWriter(
            self._sink,
            MAPPING_SCHEMA,
            compression="zstd",
            use_dictionary=False,
            column_encoding=dict.fromkeys(MAPPING_SCHEMA.names, "DELTA_BINARY_PACKED"),
        )
        self._runs: list[pa.RecordBatch] = []
        self._run_count = 0
        self._open: tuple[int, int, int] | None = None

    def add(self, source: pa.RecordBatch, target: pa.RecordBatch) -> None:
        """Add two batches of the same length, never empty, whose records are equal one by one."""
        sources = source.column("offset").to_numpy()
        targets = target.column("offset").to_numpy()
        starts = np.flatnonzero((np.diff(sources) != 1) | (np.diff(targets) != 1)) + 1
        starts = np.concatenate([[0], starts])
        counts = np.diff(np.append(starts, len(sources)))
        runs = self._join_open_run(np.stack([sources[starts], targets[starts], counts]))
        # The last run stays open: the next batch may continue it.
        self._open = (int(runs[0, -1]), int(runs[1, -1]), int(runs[2, -1]))
        self._buffer(runs[:, :-1])

    def close(self) -> pa.Buffer:
        """Return the mapping as a Parquet file."""
        if self._open is not None:
            self._buffer(np.array(self._open, np.int64).reshape(3, 1))
        self._flush()
        self._writer.close()
        return self._sink.getvalue()

    def _join_open_run(self, runs: Runs) -> Runs:
        """Put the open run before the others. If the first of these continues it, make one run of both."""
        if self._open is None:
            return runs
        source, target, count = self._open
        if (runs[0, 0], runs[1, 0]) == (source + count, target + count):
            runs[:, 0] = source, target, count + runs[2, 0]
            return runs
        return np.concatenate([np.array(self._open, np.int64).reshape(3, 1), runs], axis=1)

    def _buffer(self, runs: Runs) -> None:
        """Keep runs until there are enough to be compressed together."""
        if not runs.shape[1]:
            return
        self._runs.append(pa.RecordBatch.from_arrays([pa.array(row) for row in runs], schema=MAPPING_SCHEMA))
        self._run_count += runs.shape[1]
        if self._run_count >= ROW_GROUP_RUNS:
            self._flush()

    def _flush(self) -> None:
        """Compress the buffered runs."""
        if self._runs:
            self._writer.write_table(pa.Table.from_batches(self._runs).combine_chunks())
        self._runs = []
        self._run_count = 0


@dataclass(frozen=True, slots=True)
class Reached:
    """The records of a stream found in one kafka partition of the target, in order.

    `extra_count` is the number of other records there: repeated ones, and records of other streams and writers.
    `target` does not count them yet. `leader_epoch` is the epoch before reading, or None if it is unknown.
    """

    target: TargetReport
    extra_count: int
    leader_epoch: int | None


@dataclass(frozen=True)
class VerifiedStream:
    """A stream whose records were all found. `report` does not count extra records yet."""

    report: KafkaPartitionReport
    reached: tuple[Reached, ...]

    @property
    def place(self) -> tuple[str, int]:
        """The source's topic, if a restore may have several, and its kafka partition."""
        return self.report.topic, self.report.kafka_partition


def verify_stream(task: ReplayTask, _: Attempt) -> VerifiedStream:
    """Verify one stream as `match_stream` does."""
    with ClusterAdmin(task.kafka) as admin:
        return match_stream(task, admin)


def match_stream(task: ReplayTask, admin: ClusterAdmin, seconds: float = 0.0) -> VerifiedStream:
    """Match the archived stream with the target, from the restore's start offset on, and store the offset mapping.

    `admin` belongs to the target's cluster. Open transactions there are awaited for at most `seconds`.

    Raises:
        IntegrityError: an archived record is missing in the target, or out of order.
        OpenTransactionError: an archived record is missing, and an open transaction may hide it.
    """
    tally = _Tally()
    # If keys choose the kafka partition, a stream goes to several. Records have an order only within each of them.
    logs = (find_target_log(admin, task.to_topic, number, start, seconds) for number, start in task.own_target_starts)
    reached = tuple(_match_place(task, log, tally) for log in logs)
    mapping = tally.mapping.close()
    if tally.count and task.keeps_number:
        save_document(task.documents_store, task.documents.mapping, mapping.to_pybytes())
    return VerifiedStream(tally.report(task), reached)


def _match_place(task: ReplayTask, log: TargetLog, tally: "_Tally") -> Reached:
    """Find the stream's records in one kafka partition of the target, in order, and sum them up in `tally`.

    It raises the errors of `match_stream`.
    """
    stream = task.read_stream()
    match = SubsequenceMatch(stream.select(log.kafka_partition), log.read(), task.stream.facts.any_timestamp)
    before = tally.count
    try:
        for source, target_batch in match:
            tally.add(source, target_batch, mapped=task.keeps_number)
    except OffsetGapError as err:
        raise IntegrityError(
            f"restore {task.where} cannot be verified: the target lost records meanwhile: {err}"
        ) from err
    if (missing := match.find_missing()) is not None:
        if log.open_offset is not None:
            raise explain_open_transaction(log)
        place = f"{task.to_topic}-{log.kafka_partition}"
        raise IntegrityError(
            f"restore {task.where} does not match the archive: the record of source offset {missing} was not found "
            f"in {place} from target offset {log.start_offset} on, after {tally.count - before:,} that were. "
            "Somebody deleted or changed records of the target, its retention or compaction removed them, or the "
            "cluster lost them. Or a function of your own (predicate, mapper, partitioner) returns other results "
            "each time. Or, for objects that hold values alone, the stored offsets (metadata, or an object "
            "`_….offsets` beside them) are not those of an earlier run of this restore. Restore to another topic "
            "under another restore id"
        )
    tally.note(stream)
    target = TargetReport(
        task.to_topic, log.kafka_partition, log.start_offset, log.end_offset, open_offset=log.open_offset
    )
    return Reached(target, match.extra_count, log.leader_epoch)


class _Tally:
    """Sums up the found records of one stream so far."""

    def __init__(self) -> None:
        self.mapping = MappingWriter()
        self.count = self._altered = 0
        self._digest = RecordDigest()
        self._first: tuple[int, int] | None = None
        self._last: tuple[int, int] | None = None
        self._facts = ReadFacts()
        self._left_out = LeftOut()

    def note(self, stream: SentStream) -> None:
        """Keep the stream's own report once it is read to its end. The report is the same after every reading."""
        self._facts = stream.facts
        self._left_out = stream.left_out

    def add(self, source: pa.RecordBatch, target: pa.RecordBatch, *, mapped: bool) -> None:
        """Add two batches of equal records. If they are `mapped`, their offsets go to the offset mapping."""
        if mapped:
            self.mapping.add(source, target)
        self._digest.update(source)
        self.count += source.num_rows
        times = source.column("timestamp").cast(pa.int64())
        self._altered += pc.sum(pc.equal(times, UNSENDABLE_TIMESTAMP)).as_py() or 0
        first = (source.column("offset")[0].as_py(), target.column("offset")[0].as_py())
        last = (source.column("offset")[-1].as_py(), target.column("offset")[-1].as_py())
        # The kafka partitions of the target are compared one after the other, so source offsets may begin again.
        self._first = min(self._first or first, first)
        self._last = max(self._last or last, last)

    def report(self, task: ReplayTask) -> KafkaPartitionReport:
        """Build the report. It has offsets of the target only if the stream goes to one kafka partition there."""
        first = self._first or (None, None)
        last = self._last or (None, None)
        at_target = (first[1], last[1]) if task.keeps_number else (None, None)
        return KafkaPartitionReport(
            kafka_partition=task.kafka_partition,
            record_count=self.count,
            record_bytes=self._digest.record_bytes,
            first_source_offset=first[0],
            last_source_offset=last[0],
            first_target_offset=at_target[0],
            last_target_offset=at_target[1],
            foreign_count=0,
            altered_timestamps=self._altered,
            digest=self._digest.hexdigest(),
            mapping_key=task.documents.mapping if self.count and task.keeps_number else None,
            left_out=self._left_out,
            topic=task.named_topic,
            **vars(self._facts),
        )
