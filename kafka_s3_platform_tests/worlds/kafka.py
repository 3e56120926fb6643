"""A topic of a simulated Kafka: its logs, what becomes of their records, and what a broker answers about them.

Times are whole minutes after `BEGIN`. Every record that ever was stays known, with the minute and the reason it went.
"""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Literal

from kafka_s3_platform.core.model.gaps import Gap, Unreadable
from kafka_s3_platform.core.model.offsets import OffsetRange
from kafka_s3_platform.core.model.times import to_epoch_ms

BEGIN = datetime(2026, 2, 28, 20, tzinfo=timezone.utc)
"""Worlds live over the end of a month: folded rows lie by month."""

ROLL = 5
"""A log segment has so many offsets. A broker looks into one of them for a record of a time."""

KEYS = 3
"""Different keys of records. Compaction keeps the last record of each."""


def to_time(minute: int) -> datetime:
    return BEGIN + timedelta(minutes=minute)


def to_ms(minute: int) -> int:
    return to_epoch_ms(BEGIN) + minute * 60_000


@dataclass(eq=False)
class Record:
    """One record, or a marker that ended a transaction. `minute` is its timestamp, which may be any.

    `is_committed` is None in an open transaction. A `claims` record stands in its batch at another offset than its own:
    brokers believe that in look-ups by time, and no reader can read it. A `is_poison` one can be read, and not be
    written. `gone_at` is when Kafka lost it.
    """

    kafka_partition: int
    offset: int
    minute: int
    appended_at: int
    writer: int | None = None
    is_committed: bool | None = True
    is_marker: bool = False
    is_poison: bool = False
    claims: int | None = None
    hangs: bool = False
    """Whether its transaction had ended, and an unclean election lost the marker: then it can only be aborted."""

    gone_at: int | None = None
    gone: Literal["deleted", "truncated", "compacted", "recreated"] | None = None

    @property
    def key(self) -> int:
        return self.minute % KEYS

    @property
    def is_data(self) -> bool:
        return not self.is_marker and self.is_committed is not False


@dataclass
class Log:
    """One kafka partition. `epochs` are (leader epoch, its first offset). `ever` holds all records there ever were."""

    kafka_partition: int
    log_start: int = 0
    end: int = 0
    epochs: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    records: list[Record] = field(default_factory=list)
    ever: list[Record] = field(default_factory=list)
    latest: dict[int, int] = field(default_factory=dict)
    """Log segment -> the latest time that it ever had. Deleting records does not change it."""

    is_silent: bool = False
    end_lie: int | None = None
    """The next answer about its ends says so much less, once."""

    @property
    def leader_epoch(self) -> int:
        return self.epochs[-1][0]

    @property
    def stable(self) -> int:
        return next((r.offset for r in self.records if r.is_committed is None), self.end)

    def append(self, record: Record) -> None:
        self.records.append(record)
        self.ever.append(record)
        self.end = record.offset + 1
        at = record.offset // ROLL
        self.latest[at] = max(record.minute, self.latest.get(at, record.minute))

    def end_transaction(self, writer: int, now: int, *, is_committed: bool) -> None:
        """End the writer's open transaction: a marker with the time of the broker's clock."""
        mine = [r for r in self.records if r.writer == writer and r.is_committed is None]
        if not mine:
            return
        is_committed = is_committed and not any(r.hangs for r in mine)
        for record in mine:
            record.is_committed = is_committed
        self.append(Record(self.kafka_partition, self.end, now, now, writer, is_committed, is_marker=True))

    def delete(self, count: int, now: int, *, rolls: bool) -> None:
        """Delete the first `count` offsets. `rolls`: log segments that lie below go too, as retention lets them."""
        self.log_start = min(self.log_start + count, self.stable)
        self._lose(now, "deleted", [r for r in self.records if r.offset < self.log_start])
        nexts = [*(start for _, start in self.epochs[1:]), self.end + 1]
        spans = zip(self.epochs, nexts, strict=True)
        self.epochs = [(e, max(start, self.log_start)) for (e, start), end in spans if end > self.log_start]
        if rolls:
            self.latest = {at: t for at, t in self.latest.items() if (at + 1) * ROLL > self.log_start}

    def compact(self, now: int) -> None:
        """Keep the last record of each key, but for the last log segment, which is not compacted."""
        clean = min(self.stable, self.end // ROLL * ROLL)
        newest = {r.key: r.offset for r in self.records if r.is_data and r.is_committed and r.offset < clean}
        old = [r for r in self.records if r.offset < clean and not r.is_marker]
        self._lose(now, "compacted", [r for r in old if not r.is_committed or r.offset < newest[r.key]])

    def elect(self, now: int, lost: int) -> list[Record]:
        """Let another replica lead, of whose log the last `lost` offsets are missing (an unclean election).

        Return the records of which the log shows no trace any more.
        """
        self.end -= min(lost, self.end)
        self.log_start = min(self.log_start, self.end)
        cut = [r for r in self.records if r.offset >= self.end]
        ended = {r.writer for r in cut if r.is_marker}
        self._lose(now, "truncated", cut)
        marked = {r.writer: r.offset for r in self.records if r.is_marker}
        for record in self.records:
            if record.writer in ended and record.offset > marked.get(record.writer, -1):
                record.is_committed = None
                record.hangs = True
        self.latest = {at: t for at, t in self.latest.items() if at * ROLL < self.end}
        self.epochs = [(e, s) for e, s in self.epochs if s < self.end] + [(self.leader_epoch + 1, self.end)]
        return [r for r in self.ever if r.gone and r.offset >= self.end]

    def _lose(self, now: int, why: Literal["deleted", "truncated", "compacted"], lost: list[Record]) -> None:
        for record in lost:
            record.gone_at = now
            record.gone = why
        self.records = [r for r in self.records if r.gone is None]

    def find_time(self, minute: int) -> tuple[int, int] | None:
        """Return offset and minute that a broker answers for the first record at or after a time. None: it has none.

        It looks into the first log segment that ever had such a record, and into no later one.
        """
        rolls = sorted(at for at, latest in self.latest.items() if latest >= minute)
        at = next((at for at in rolls if (at + 1) * ROLL > self.log_start), None)
        if at is None:
            return None
        inside = (r for r in self.records if r.offset // ROLL == at and r.minute >= minute and r.offset < self.stable)
        record = next(inside, None)
        if record is None:
            return None
        return record.offset if record.claims is None else record.claims, record.minute

    def find_newest(self) -> int | None:
        """Return the latest time that a broker names, of a record that it may have deleted, or that is not stable."""
        stored = (r.minute for r in self.ever if r.gone in {None, "deleted"} and r.offset // ROLL in self.latest)
        return max(stored, default=None)

    def find_record(self, offset: int) -> Record | None:
        at = bisect_left(self.records, offset, key=lambda r: r.offset)
        return self.records[at] if at < len(self.records) and self.records[at].offset == offset else None

    def find_epoch_end(self, epoch: int) -> tuple[int, int]:
        """Return the latest epoch up to `epoch` that the log has, and its end (Kafka's `LeaderEpochFileCache`)."""
        floor = max((e for e, _ in self.epochs if e <= epoch), default=epoch)
        return floor, next((start for e, start in self.epochs if e > epoch), self.end)

    def epoch_at(self, offset: int) -> int | None:
        """Return the leader epoch of the batch that holds the offset, or of the next one. None if there is none."""
        at = bisect_left(self.records, offset, key=lambda r: r.offset)
        if at == len(self.records) or self.records[at].claims is not None:
            return None
        return max((e for e, start in self.epochs if start <= self.records[at].offset), default=None)

    def within(self, offsets: OffsetRange) -> Iterator[Record]:
        return (r for r in self.records if r.offset in offsets and r.is_committed and not r.is_marker)

    def list_unreadable(self, offsets: OffsetRange) -> tuple[Unreadable, ...]:
        bad = (r.offset for r in self.records if r.offset in offsets and r.claims is not None)
        return tuple(Unreadable(o, o + 1, "batch", "its offset is another") for o in bad)

    def find_gap(self, offsets: OffsetRange) -> tuple[Gap, ...]:
        """Return the offsets of the range that are deleted."""
        end = min(self.log_start, offsets.end_offset)
        if offsets.start_offset >= end:
            return ()
        return (Gap(self.kafka_partition, offsets.start_offset, end, "retention"),)


@dataclass
class Topic:
    """A topic as it was created. A topic that is created again is another one."""

    generation: int
    logs: list[Log]

    @property
    def topic_id(self) -> str:
        return f"id-{self.generation}"

    @property
    def ever(self) -> list[Record]:
        return [record for log in self.logs for record in log.ever]

    def add_kafka_partitions(self, count: int) -> None:
        self.logs += [Log(len(self.logs) + n) for n in range(count)]
