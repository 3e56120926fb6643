"""Reads one kafka partition of a target back, and finds the archived records among its committed ones, in order.

Restores are verified and resumed with it. A log is read up to the end it has at the first look.
"""

import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.core.config.settings import KafkaSettings
from kafka_s3_platform.core.errors import LogTruncatedError, OpenTransactionError
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.kafka.new_reader import new_reader
from kafka_s3_platform.core.model.frontier import Frontier
from kafka_s3_platform.core.model.offsets import make_span
from kafka_s3_platform.core.restore.replay.checkpoint import Position
from kafka_s3_platform.core.restore.replay.spec import ReplayTask

STABLE_SECONDS = 30.0
"""The longest wait for open transactions. The cluster confirms a transaction's end before it writes that end."""

POLL_SECONDS = 0.1

CONTENT = ("key", "value", "headers")

NARROW = 64
"""The number of records to compare at once after a difference. Every agreement widens it again."""


@dataclass(frozen=True)
class TargetLog:
    """The offsets `[start_offset, end_offset)` of a target whose committed records can be read.

    At `open_offset` an open transaction begins, which hides the rest. It is None if nothing is hidden. `leader_epoch`
    is the epoch at the first look, or None if it is unknown.
    """

    kafka: KafkaSettings = field(repr=False)
    topic: str
    kafka_partition: int
    start_offset: int
    end_offset: int
    open_offset: int | None = None
    leader_epoch: int | None = None

    def read(self) -> Iterator[pa.RecordBatch]:
        """Read the committed records. Their offsets may have holes."""
        for offsets in make_span(self.start_offset, self.end_offset):
            with new_reader(self.kafka, self.topic) as reader:
                yield from reader.read(self.kafka_partition, offsets)


def find_target_log(
    admin: ClusterAdmin, topic: str, kafka_partition: int, start_offset: int, seconds: float = 0.0
) -> TargetLog:
    """Find how far the target can be read now, from `start_offset` on. Wait at most `seconds` for open transactions.

    Raises:
        LogTruncatedError: the target no longer holds `start_offset`.
    """
    logs: Mapping[int, Frontier] = admin.frontiers(topic, [kafka_partition])
    ends = {number: log.high_watermark for number, log in logs.items()}
    if not _are_stable(logs, ends):
        # look again: the end of our own transaction may have been written since
        logs = await_stable_logs(admin, topic, ends, seconds)
    return _make_target_log(admin.settings, topic, logs[kafka_partition], start_offset)


def _make_target_log(kafka: KafkaSettings, topic: str, log: Frontier, start_offset: int) -> TargetLog:
    """Return the readable log from `start_offset` on. Raises LogTruncatedError if the log does not hold this offset."""
    if not log.log_start_offset <= start_offset <= log.high_watermark:
        raise LogTruncatedError(
            f"target {topic}-{log.kafka_partition} holds offsets [{log.log_start_offset}, {log.high_watermark}), but "
            f"records were restored to it from offset {start_offset} on: its retention deleted records, or its log "
            "was truncated. Restore to another topic under another restore id"
        )
    is_open = start_offset < log.high_watermark and log.last_stable_offset < log.high_watermark
    readable = max(start_offset, log.last_stable_offset) if is_open else log.high_watermark
    open_offset = log.last_stable_offset if is_open else None
    return TargetLog(kafka, topic, log.kafka_partition, start_offset, readable, open_offset, log.leader_epoch)


def read_target(
    kafka: KafkaSettings, topic: str, kafka_partition: int, start_offset: int
) -> Generator[pa.RecordBatch, None, None]:
    """Read all current records of the target from `start_offset` on, and no later ones.

    Raises:
        LogTruncatedError: the target no longer holds `start_offset`.
        OpenTransactionError: an open transaction hides some of the records.
    """
    with ClusterAdmin(kafka) as admin:
        logs = admin.frontiers(topic, [kafka_partition])
        frontier = await_settled_logs(admin, topic, logs)[kafka_partition]
    log = _make_target_log(kafka, topic, frontier, start_offset)
    if log.open_offset is not None:
        raise explain_open_transaction(log)
    yield from log.read()


def await_settled_logs(admin: ClusterAdmin, topic: str, logs: Mapping[int, Frontier]) -> Mapping[int, Frontier]:
    """Wait until no transaction hides records below the ends of `logs`, but no longer than `STABLE_SECONDS`.

    Return the logs up to the ends they had then.
    """
    ends = {number: log.high_watermark for number, log in logs.items()}
    if not _are_stable(logs, ends):
        logs = await_stable_logs(admin, topic, ends)
    # Do not wait for later records of others, who may never stop.
    return {p: replace(log, high_watermark=min(ends[p], log.high_watermark)) for p, log in logs.items()}


def await_stable_logs(
    admin: ClusterAdmin, topic: str, ends: Mapping[int, int], seconds: float | None = None
) -> Mapping[int, Frontier]:
    """Wait until no transaction hides anything below `ends`, or for `seconds`, by default `STABLE_SECONDS`.

    Return the logs.
    """
    deadline = time.monotonic() + (STABLE_SECONDS if seconds is None else seconds)
    while True:
        logs = admin.frontiers(topic, sorted(ends))
        if _are_stable(logs, ends) or time.monotonic() > deadline:
            return logs
        time.sleep(POLL_SECONDS)


def _are_stable(logs: Mapping[int, Frontier], ends: Mapping[int, int]) -> bool:
    """Return True if no open transaction hides anything below these ends of the logs."""
    return all(log.last_stable_offset >= min(ends[p], log.high_watermark) for p, log in logs.items())


def explain_open_transaction(log: TargetLog) -> OpenTransactionError:
    """Build the error for a caller that needs the hidden records."""
    return OpenTransactionError(
        f"a transaction is open at offset {log.open_offset} of target {log.topic}-{log.kafka_partition}, so the "
        "records after it cannot be read back. Run again under the same restore id when it has ended. If it does "
        "not end within its producer's transaction.timeout.ms, the cluster has probably lost its end: abort it with "
        f"`kafka-transactions.sh --bootstrap-server ... abort --topic {log.topic} --partition {log.kafka_partition} "
        f"--start-offset {log.open_offset}`, and run again"
    )


class SubsequenceMatch:
    """The archived stream as a subsequence of the target's, with each archived record at its first possible place.

    Iterate it once for pairs of record batches of equal length: archived records, and the target's records that have
    the same key, value, headers and timestamp. Archived records with a timestamp of `any_timestamp` (epoch ms) match
    records of any timestamp. Afterwards `extra_count` is the number of the target's other records, and `find_missing()`
    finds the first unmatched archived record. The archive is read only as far as the target requires.
    """

    def __init__(
        self,
        archived: Iterable[pa.RecordBatch],
        target: Iterable[pa.RecordBatch],
        any_timestamp: frozenset[int] = frozenset(),
    ) -> None:
        self._archived = _Cursor(archived)
        self._target = _Cursor(target)
        self._free = np.array(sorted(any_timestamp), np.int64)
        self._width: int | None = None
        self.extra_count = 0

    def __iter__(self) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
        while (target := self._target.head()) is not None:
            archived = self._archived.head()
            common = 0 if archived is None else self._count_equal(archived, target)
            if archived is not None and common:
                yield archived.slice(0, common), target.slice(0, common)
                self._archived.advance(common)
                self._target.advance(common)
            else:
                # skip the target's first record, and following ones that cannot be the archived one either
                count = target.num_rows if archived is None else self._find_candidate(archived, target)
                self._target.advance(count)
                self.extra_count += count

    def find_missing(self) -> int | None:
        """Return the source offset of the first missing archived record, or None if none is missing."""
        archived = self._archived.head()
        if archived is None:
            return None
        return int(archived.column("offset")[0].as_py())

    def _count_equal(self, archived: pa.RecordBatch, target: pa.RecordBatch) -> int:
        """Count the equal records, from the first on."""
        length = min(archived.num_rows, target.num_rows, self._width or archived.num_rows)
        # Compare times first: that is cheap, and most differences show there.
        times = _read_times(archived, length)
        same = (times == _read_times(target, length)) | np.isin(times, self._free)
        length = length if same.all() else int(same.argmin())
        common = _find_common_prefix(archived.slice(0, length), target.slice(0, length))
        full = common == length and same.all()
        if not full:
            self._width = NARROW
        elif self._width is not None:
            self._width *= 4
        return common

    def _find_candidate(self, archived: pa.RecordBatch, target: pa.RecordBatch) -> int:
        """Find the next target record, after the first, with the time, key and value of the first archived one.

        Return its row, or the number of rows if there is none.
        """
        start = 1
        width = NARROW
        while start < target.num_rows:
            possible = np.flatnonzero(self._mark_candidates(archived, target.slice(start, width)))
            if possible.size:
                return start + int(possible[0])
            start += width
            width *= 4
        return int(target.num_rows)

    def _mark_candidates(self, archived: pa.RecordBatch, target: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Return the mask of target records with the time, key and value of the first archived one."""
        time = _read_times(archived, 1)
        possible: npt.NDArray[np.bool_] = (_read_times(target, target.num_rows) == time) | np.isin(time, self._free)
        for name in ("key", "value") if possible.any() else ():
            column = target.column(name)
            first = archived.column(name)[0]
            same = pc.fill_null(pc.equal(column, first), fill_value=False) if first.is_valid else column.is_null()
            possible &= same.to_numpy(zero_copy_only=False)
        return possible


class _Cursor:
    """The unused part of a stream of record batches."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = iter(batches)
        self._current: pa.RecordBatch | None = None

    def head(self) -> pa.RecordBatch | None:
        """Return the rest of the current batch, or None at the end."""
        while self._current is None or not self._current.num_rows:
            self._current = next(self._batches, None)
            if self._current is None:
                return None
        return self._current

    def advance(self, count: int) -> None:
        """Skip the first `count` records of `head`."""
        self._current = None if self._current is None else self._current.slice(count)


def _read_times(batch: pa.RecordBatch, count: int) -> npt.NDArray[np.int64]:
    """Return the timestamps (epoch ms) of the first `count` records."""
    times: npt.NDArray[np.int64] = batch.column("timestamp").slice(0, count).cast(pa.int64()).to_numpy()
    return times


def _find_common_prefix(first: pa.RecordBatch, second: pa.RecordBatch) -> int:
    """Find the length of the common prefix of two batches of equal length. Compare each record about twice at most."""
    if _are_equal(first, second, 0, first.num_rows):
        return int(first.num_rows)
    same = 0
    different = first.num_rows
    while different - same > 1:
        middle = (same + different) // 2
        if _are_equal(first, second, same, middle):
            same = middle
        else:
            different = middle
    return same


def _are_equal(first: pa.RecordBatch, second: pa.RecordBatch, start: int, end: int) -> bool:
    """Return True if the rows `[start, end)` of two batches have the same keys, values and headers."""
    return all(
        first.column(name).slice(start, end - start).equals(second.column(name).slice(start, end - start))
        for name in CONTENT
    )


def find_position(task: ReplayTask, start_position: Position) -> Position:
    """Find the target's real position: match its records with the archived stream from `start_position` on."""
    last: tuple[int, int] | None = None
    count = 0
    start = task.target_start if start_position.next_target_offset is None else start_position.next_target_offset
    target = read_target(task.kafka, task.to_topic, task.kafka_partition, start)
    stream = task.read_stream(start_position.next_source_offset)
    for source, matched in SubsequenceMatch(stream.all_records(), target, task.stream.facts.any_timestamp):
        last = (source.column("offset")[-1].as_py(), matched.column("offset")[-1].as_py())
        count += source.num_rows
    if last is None:
        return start_position
    source_offset, target_offset = last
    return Position(source_offset + 1, target_offset + 1, start_position.record_count + count)
