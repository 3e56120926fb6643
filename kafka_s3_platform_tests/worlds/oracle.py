"""Knows every record that ever was, and judges what the platform says about hours."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from kafka_s3_platform.core.model.frontier import Frontier
from kafka_s3_platform.core.model.gaps import Gap, Unresolved
from kafka_s3_platform.core.model.offsets import OffsetRange, RangeSet
from kafka_s3_platform.core.model.segment import Scan, TopicGeneration
from kafka_s3_platform.core.store.index_rows import IndexRow
from kafka_s3_platform_tests.worlds.kafka import Log, Record, to_time

if TYPE_CHECKING:
    from kafka_s3_platform_tests.worlds.seams import SimTopic
    from kafka_s3_platform_tests.worlds.world import World


@dataclass(frozen=True)
class Verdict:
    """What the platform says of an hour. `lacking`: offsets of it that it says it may lack, by kafka partition."""

    is_complete: bool
    lacking: Mapping[int, RangeSet]


def ask_judge(snapshot: "SimTopic", hour: datetime, lateness: timedelta) -> Verdict:
    """Ask the platform about an hour: the one place that knows how."""
    state = snapshot.state
    verdict = state.judge.find_verdict(hour, lateness)
    assert verdict.is_complete == state.judge.is_complete(hour, lateness)
    ranges: dict[int, list[OffsetRange]] = defaultdict(list)
    taken_over = (gap for gap in state.judge.left_out if not gap.is_lost)
    for gap in (*verdict.lacking, *taken_over):
        ranges[gap.kafka_partition].append(gap.offsets)
    return Verdict(verdict.is_complete, lacking={p: RangeSet(each) for p, each in ranges.items()})


def list_fates(snapshot: "SimTopic", kafka_partition: int) -> RangeSet:
    """Return the offsets that the platform says are not archived, and why."""
    rows: tuple[Gap | Unresolved, ...] = (*snapshot.state.judge.left_out, *snapshot.state.unresolved)
    return RangeSet(row.offsets for row in rows if row.kafka_partition == kafka_partition)


@dataclass(frozen=True)
class Violation:
    """Something that must not be. Violations of one `kind` have the same cause, as far as that can be seen."""

    kind: str
    text: str


@dataclass
class Oracle:
    """What was read, archived and seen. It is of one index: another one begins with nothing."""

    world: "World"
    archived: set[Record] = field(default_factory=set)
    violations: list[Violation] = field(default_factory=list)
    generation: str | None = None
    complete_hours: int = 0
    """At the end."""

    _read: dict[tuple[int, int, int], Record] = field(default_factory=dict)
    _seen: dict[int, int] = field(default_factory=dict)
    _present: set[Record] = field(default_factory=set)
    """What the logs held when a look at them was recorded."""

    _starts: dict[int, int] = field(default_factory=dict)
    _unseen: set[Record] = field(default_factory=set)
    _hidden: Counter[Record] = field(default_factory=Counter)

    def begin_anew(self, records: Iterable[Record]) -> "Oracle":
        """Return the oracle of another connector's index. What was truncated so far was never told to it."""
        unseen = {r for r in records if r.gone in {"truncated", "deleted"}}
        return Oracle(self.world, violations=self.violations, _unseen=unseen, _hidden=self._hidden)

    def note_read(self, epoch: int, records: Iterable[Record]) -> None:
        """Note what a run of this epoch has read."""
        self._read |= {(epoch, r.kafka_partition, r.offset): r for r in records}

    def note_commit(self, rows: Iterable[IndexRow]) -> None:
        """Note what is archived and seen by the rows of a commit."""
        for row in rows:
            if type(row) is Scan:
                self._note_scan(row)
            elif type(row) is Frontier:
                number = row.kafka_partition
                self._seen[number] = max(row.high_watermark, self._seen.get(number, 0))
                self._starts.setdefault(number, row.log_start_offset)
                records = self.world.topic.logs[number].records
                self._present.update(r for r in records if r.offset < row.high_watermark)
            elif isinstance(row, TopicGeneration):
                self.generation = self.generation or row.topic_id

    def _note_scan(self, scan: Scan) -> None:
        for offset in range(scan.start_offset, scan.end_offset):
            record = self._read.get((scan.epoch, scan.kafka_partition, offset))
            if record is None:
                continue
            if record in self.archived:
                self.violations.append(Violation("twice", f"{_name(record)} is archived a second time"))
            self.archived.add(record)

    def note_truncation(self, lost: Iterable[Record]) -> None:
        """Note records of which the log shows no trace any more. If no recorded look saw them, nobody knows of them."""
        self._unseen.update(r for r in lost if r.offset >= self._seen.get(r.kafka_partition, 0))

    def note_lie(self, log: Log, end: int) -> None:
        """Note what a broker hid that said that the log ends at `end`."""
        self._hidden.update(r for r in log.records if r.offset >= end)

    def check(self, snapshot: "SimTopic", records: Iterable[Record], lateness: int) -> None:
        """Check that every hour that is called complete holds what Kafka held when it and its lateness were over."""
        hours: dict[int, list[Record]] = defaultdict(list)
        for record in records:
            if self._is_promised(record, record.minute // 60 * 60 + 60 + lateness):
                hours[record.minute // 60].append(record)
        for hour, promised in hours.items():
            missing = [r for r in promised if r not in self.archived]
            missing = [r for r in missing if not self._is_hidden(snapshot, r)]
            if not missing:
                continue
            verdict = ask_judge(snapshot, to_time(hour * 60), timedelta(minutes=lateness))
            if verdict.is_complete:
                silent = (r for r in missing if not _holds(verdict.lacking.get(r.kafka_partition), r.offset))
                self.violations += self._accuse(snapshot, hour, silent)

    def _is_promised(self, record: Record, over: int) -> bool:
        is_there = record.appended_at < over and record.is_data
        is_taken = record.gone_at is not None and (record.gone_at <= over or record.gone == "compacted")
        is_unknown = record in self._unseen or record.hangs
        is_unknown = is_unknown or self._is_replaced(record) or self._is_passed_over(record)
        return is_there and not is_taken and not is_unknown

    def _is_replaced(self, record: Record) -> bool:
        """Whether another record was at its offset, too, and no recorded look came while it was there itself."""
        log = self.world.archived_topic.logs[record.kafka_partition].ever
        return record not in self._present and any(r is not record and r.offset == record.offset for r in log)

    def _is_passed_over(self, record: Record) -> bool:
        """Whether a batch that lies about its offsets makes a broker name a later place for its hour, so that it fits.

        It fits where the record that lies there bears the very time; and nobody looks where the record is dated ahead,
        or lies at an offset that an accepted truncation has given up.
        """
        log = self.world.archived_topic.logs[record.kafka_partition].ever
        liars = [r for r in log if r.claims is not None and r.offset <= record.offset < r.claims]
        is_dated_ahead = record.appended_at < record.minute // 60 * 60
        is_given_up = any(r.gone == "truncated" and r.offset == record.offset for r in log)
        fits = any(r.offset == liar.claims and r.minute == liar.minute for liar in liars for r in log)
        return bool(liars) and (is_dated_ahead or is_given_up or fits)

    def _is_hidden(self, snapshot: "SimTopic", record: Record) -> bool:
        """Whether a broker hid it. If it did so once only, and the index itself knows of the record, that is no use."""
        return self._hidden[record] > (1 if _is_unresolved(snapshot, record) else 0)

    def _accuse(self, snapshot: "SimTopic", hour: int, records: Iterable[Record]) -> Iterator[Violation]:
        for record in records:
            kind = f"false complete: {record.gone or 'there'}"
            if _holds(list_fates(snapshot, record.kafka_partition), record.offset):
                kind += ", told of another hour"
            elif record.offset < self._starts.get(record.kafka_partition, 0):
                kind += ", before archiving began"
            yield Violation(kind, f"hour {hour} is complete without {_name(record)}")

    def check_settled(self, snapshot: "SimTopic", logs: Iterable[Log], hours: Iterable[int], lateness: int) -> None:
        """Check that nothing that the log holds is left out, and that every past hour is complete."""
        for log in logs:
            fates = list_fates(snapshot, log.kafka_partition)
            for record in log.records:
                is_due = record.is_data and record not in self.archived
                if is_due and not _holds(fates, record.offset):
                    self.violations.append(Violation("left out", f"{_name(record)} has no fate"))
        stuck = self.list_stuck(snapshot, hours, lateness)
        self.complete_hours = len([*hours]) - len(stuck)
        for hour in stuck:
            self.violations.append(Violation("stuck", f"hour {hour} never becomes complete"))

    def list_stuck(self, snapshot: "SimTopic", hours: Iterable[int], lateness: int) -> list[int]:
        """Return the hours that are not complete."""
        late = timedelta(minutes=lateness)
        return [hour for hour in hours if not ask_judge(snapshot, to_time(hour * 60), late).is_complete]


def _holds(offsets: RangeSet | None, offset: int) -> bool:
    return offsets is not None and offsets.covers(offset, offset + 1)


def _is_unresolved(snapshot: "SimTopic", record: Record) -> bool:
    """Whether the index itself knows that the record is there: then it is no use that a broker once hid it."""
    rows = (u for u in snapshot.state.unresolved if u.kafka_partition == record.kafka_partition)
    return any(record.offset in row.offsets for row in rows)


def _name(record: Record) -> str:
    gone = f", {record.gone} at {record.gone_at}" if record.gone else ""
    return f"{record.kafka_partition}:{record.offset} (time {record.minute}, written at {record.appended_at}{gone})"
