"""The simulated world where the platform's code asks: the cluster's admin client, the reader, the index and the store.

`simulated` puts them in the place of the real ones in this process. What the platform decides, and in which order it
asks, is its own code.
"""

import re
import sys
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar, final

import pyarrow as pa

import kafka_s3_platform.core.archive.run
import kafka_s3_platform.core.archive.takeover
import kafka_s3_platform.core.upkeep.resolve  # noqa: F401 - all three are patched
from kafka_s3_platform.core.archive.failures import BadRecords
from kafka_s3_platform.core.archive.pipeline import Counts
from kafka_s3_platform.core.archive.scan import ReadRanges, _ReadRange
from kafka_s3_platform.core.archive.task import FailedScan, ScanGroup, ScanResult, ScanTask
from kafka_s3_platform.core.errors import (
    BrokerUnavailableError,
    IndexConflictError,
    IntegrityError,
    LogTruncatedError,
    MissingTopicError,
    OffsetGapError,
    OpenTransactionError,
    PlatformError,
    StoreUnavailableError,
)
from kafka_s3_platform.core.kafka.admin import TopicDescription
from kafka_s3_platform.core.kafka.answers import Answers, LogEnd, LogEnds, OffsetAtTime, RecordOffset, Untold
from kafka_s3_platform.core.kafka.offset_admin import FoundTopic
from kafka_s3_platform.core.kafka.record_reader import EpochEnd, RangeRead, ReadEnd
from kafka_s3_platform.core.model import fold as fold_module
from kafka_s3_platform.core.model.fold import fold_state
from kafka_s3_platform.core.model.frontier import UNTIMED, Frontier
from kafka_s3_platform.core.model.notes import Notes
from kafka_s3_platform.core.model.offsets import OffsetRange
from kafka_s3_platform.core.model.segment import HourRange, Scan, Segment, find_folded_month
from kafka_s3_platform.core.model.state import IndexState
from kafka_s3_platform.core.store.clock import StoreTime
from kafka_s3_platform.core.store.index import ConnectorIndex, ConnectorSnapshot, IndexSnapshot, TopicIndex
from kafka_s3_platform.core.store.index_commit import Change
from kafka_s3_platform.core.store.index_rows import KINDS, IndexRow, make_state
from kafka_s3_platform.core.store.row_filter import SegmentFilter
from kafka_s3_platform_tests.worlds.kafka import Log, Record, to_ms

if TYPE_CHECKING:
    from kafka_s3_platform_tests.worlds.world import World

A = TypeVar("A")

TOPIC = "t"
_KIND_OF = {cls: kind for kind, cls in KINDS.items()}


class Stage:
    """Holds the world that is played in this process."""

    world: "World"


STAGE = Stage()


def _ask(name: str) -> "World":
    """Let happen what happens before this question is answered."""
    STAGE.world.note_question(name)
    return STAGE.world


@final
class SimAdmin:
    """Answers as `ClusterAdmin` does."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.settings = None

    def __enter__(self) -> "SimAdmin":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def describe_topic(self, topic: str) -> TopicDescription:
        return self.describe_topics([topic]).all_or_raise()[topic]

    def describe_topics(self, topics: Iterable[str]) -> Answers[str, TopicDescription]:
        found = _ask("describe").topic
        numbers = tuple(range(len(found.logs)))
        return Answers({t: TopicDescription(t, found.topic_id, numbers, {}) for t in topics}, {})

    def find_topics(self, topics: Iterable[str]) -> Answers[str, FoundTopic]:
        found = _ask("find").topic
        numbers = tuple(range(len(found.logs)))
        leaders = {p: 1 for p in numbers if not found.logs[p].is_silent}
        return Answers({t: FoundTopic(t, found.topic_id, numbers, leaders, {}, None) for t in topics}, {})

    def newest_records(self, wanted: Mapping[str, Iterable[int]]) -> Answers[str, Answers[int, tuple[int, int]]]:
        return Answers({t: Answers({}, {}) for t in wanted}, {})

    def frontiers_of(self, wanted: Mapping[str, Iterable[int]]) -> Answers[str, Answers[int, Frontier]]:
        return self.add_log_starts(self.log_ends_of(wanted))

    def log_ends_of(self, wanted: Mapping[str, Iterable[int]]) -> Answers[str, Answers[int, LogEnds]]:
        world = _ask("ends")

        def answer(log: Log) -> LogEnds:
            lie, log.end_lie = log.end_lie or 0, None
            end = max(log.log_start, log.end - lie)
            world.oracle.note_lie(log, end)
            stable = min(log.stable, end)
            return LogEnds(LogEnd(end), LogEnd(stable), log.leader_epoch, world.machine_time)

        return Answers({t: _of_logs(world, each, answer) for t, each in wanted.items()}, {})

    def add_log_starts(self, looked: Answers[str, Answers[int, LogEnds]]) -> Answers[str, Answers[int, Frontier]]:
        world = _ask("starts")
        found: dict[str, Answers[int, Frontier]] = {}
        for topic, ends in looked.results.items():

            def answer(log: Log, ends: Answers[int, LogEnds] = ends) -> Frontier:
                seen = ends.results[log.kafka_partition]
                bounds = (seen.last_stable_offset, seen.high_watermark)
                if log.log_start > min(bounds):
                    raise BrokerUnavailableError("its log starts behind its end")
                at = seen.observed_at
                return Frontier(log.kafka_partition, log.log_start, *bounds, seen.leader_epoch, at)

            starts = _of_logs(world, ends.results, answer)
            found[topic] = Answers(starts.results, {**ends.failures, **starts.failures})
        return Answers(found, looked.failures)

    def offsets_for_times_of(
        self, wanted: Mapping[str, tuple[Iterable[int], Sequence[int]]]
    ) -> Answers[str, Answers[int, Mapping[int, OffsetAtTime]]]:
        world = _ask("times")

        def look_up(log: Log, ms: int, newest: int | None) -> OffsetAtTime:
            minute = -(-(ms - to_ms(0)) // 60_000)
            found = log.find_time(minute)
            if found is not None:
                return RecordOffset.of(found[0], to_ms(found[1]))
            return None if newest is None or newest < minute else Untold.UNTOLD

        def answer(times: Sequence[int]) -> Callable[[Log], Mapping[int, OffsetAtTime]]:
            def look_up_all(log: Log) -> Mapping[int, OffsetAtTime]:
                newest = log.find_newest()
                return {ms: look_up(log, ms, newest) for ms in times}

            return look_up_all

        return Answers({t: _of_logs(world, each, answer(times)) for t, (each, times) in wanted.items()}, {})


def _of_logs(world: "World", kafka_partitions: Iterable[int], answer: Callable[[Log], A]) -> Answers[int, A]:
    found: dict[int, A] = {}
    failures: dict[int, PlatformError] = {}
    for number in kafka_partitions:
        try:
            found[number] = answer(_find_log(world, number))
        except (BrokerUnavailableError, MissingTopicError) as err:
            failures[number] = err
    return Answers(found, failures)


def _find_log(world: "World", kafka_partition: int) -> Log:
    if kafka_partition >= len(world.topic.logs):
        raise MissingTopicError(f"the topic has no kafka partition {kafka_partition}")
    log = world.topic.logs[kafka_partition]
    if log.is_silent:
        raise BrokerUnavailableError(f"kafka partition {kafka_partition} has no leader")
    return log


@final
class SimReader:
    """Reads as a `RecordReader` does, with `skip_unreadable`."""

    def __init__(self, *_: Any, allow_gaps: bool = False, **__: Any) -> None:
        self.allow_gaps = allow_gaps

    def __enter__(self) -> "SimReader":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def check(self, kafka_partition: int, offset: int, leader_epoch: int) -> None:
        log = _find_log(STAGE.world, kafka_partition)
        if offset < log.log_start:
            self._lose(log, OffsetRange(offset, log.log_start))
        elif self.find_divergence(kafka_partition, offset, leader_epoch) is not None:
            raise LogTruncatedError(f"kafka partition {kafka_partition}: epoch {leader_epoch} is not before {offset}")

    def find_divergence(self, kafka_partition: int, offset: int, leader_epoch: int) -> EpochEnd | None:
        log = _find_log(_ask("epoch"), kafka_partition)
        epoch, end = log.find_epoch_end(leader_epoch)
        return None if offset <= end else EpochEnd(epoch, end)

    def find_timestamp(self, kafka_partition: int, offset: int) -> int | None:
        record = _find_log(_ask("timestamp"), kafka_partition).find_record(offset)
        if record is not None and record.claims is not None:
            raise IntegrityError(f"kafka partition {kafka_partition}, offset {offset}: its offset is another")
        return None if record is None else to_ms(record.minute)

    def read(self, kafka_partition: int, offsets: OffsetRange, leader_epoch: int | None = None) -> RangeRead:
        def batches() -> Generator[pa.RecordBatch, None, ReadEnd]:
            yield from ()
            return self.read_records(kafka_partition, offsets, leader_epoch)[1]

        return RangeRead(batches(), {})

    def read_records(
        self, kafka_partition: int, offsets: OffsetRange, leader_epoch: int | None
    ) -> tuple[list[Record], ReadEnd]:
        """Return the records of the range too."""
        if leader_epoch is not None:
            self.check(kafka_partition, offsets.start_offset, leader_epoch)
        world = _ask("read")
        log = _find_log(world, kafka_partition)
        gaps = log.find_gap(offsets)
        if gaps:
            self._lose(log, gaps[0].offsets)
        if log.end < offsets.end_offset:
            raise LogTruncatedError(f"kafka partition {kafka_partition}: the log ends at {log.end}, before {offsets}")
        if log.stable < offsets.end_offset:
            raise OpenTransactionError(f"kafka partition {kafka_partition}: a transaction is open at {log.stable}")
        epoch = log.epoch_at(offsets.end_offset - 1)
        good = [r for r in log.within(offsets) if r.claims is None]
        unreadable = log.list_unreadable(offsets)
        return good, ReadEnd(offsets.end_offset, epoch, gaps, len(good), 0, unreadable)

    def _lose(self, log: Log, offsets: OffsetRange) -> None:
        if not self.allow_gaps:
            raise OffsetGapError(
                f"kafka partition {log.kafka_partition}: offsets {offsets} were deleted before they were read; to "
                f"record the gap, set archive.allow.gaps=true"
            )


class SimRunner:
    """Runs tasks of Spark at once, one after the other: reads, and writes nothing."""

    def start(self) -> None:
        _ask("start")

    def at_once(self, max_concurrent: int) -> int:
        return max_concurrent

    def run(self, _: object, tasks: Sequence[ScanGroup], _most: int) -> Iterator[tuple[int, list[Any]]]:
        for group in tasks:
            yield group.number, [_try_task(task) for task in group.tasks]

    def run_grouped(self, *_: object) -> Iterator[Any]:
        raise NotImplementedError


def _try_task(task: ScanTask) -> ScanResult | FailedScan:
    try:
        return _scan(task)
    except PlatformError as err:
        return FailedScan(task.kafka_partition, task.ranges, err)


class _Unwritten:
    """Closed segments, of which there are none: that the records were read is noted by the world."""

    def collect(self) -> list[Segment]:
        return []


def _scan(task: ScanTask) -> ScanResult:
    world = STAGE.world
    reader = SimReader(allow_gaps=task.archive.allow_gaps)
    bad = BadRecords(task.kafka_partition, world.machine_time)
    parts: list[_ReadRange] = []
    for wanted, mark in zip(task.ranges, task.epoch_marks, strict=True):
        before = None
        if mark is not None and mark.offset == wanted.start_offset:
            before = mark.leader_epoch
        elif mark is not None:
            reader.check(task.kafka_partition, mark.offset, mark.leader_epoch)
        records, end = reader.read_records(task.kafka_partition, wanted, before)
        bad.insert(end.unreadable)
        poison = [r for r in records if r.is_poison and not world.is_repaired]
        for record in poison:
            bad.add(OffsetRange(record.offset, record.offset + 1), "TASK_PUT", "poison", to_ms(record.minute))
            bad.rows.sort(key=lambda row: row.start_offset)
        world.oracle.note_read(task.writer.epoch, [r for r in records if r not in poison])
        counts = Counts(read=len(records), unresolved=len(poison))
        parts.append(_ReadRange(wanted, end, end.records, counts, 0, Notes()))
    return ReadRanges(task, parts, bad, _Unwritten()).finish()  # type: ignore[arg-type]


@dataclass(frozen=True)
class Stored:
    """A row of the index, with what its commit says."""

    version: int
    commit_id: str
    row: IndexRow
    hour: datetime | None = None


class SimIndex(ConnectorIndex):
    """An index in memory. `answer_lost` decides about the next commit: it is lost, or only its answer."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.connector = "c"
        self.clock_tolerance = timedelta(minutes=world.CLOCK_TOLERANCE)
        self.version = 0
        self.rows: tuple[Stored, ...] = ()
        self.months: dict[str, tuple[Stored, ...]] = {}
        self.next_fault: str | None = None

    @classmethod
    def of(cls, _: object) -> "SimIndex":
        return STAGE.world.index

    @property
    def uri(self) -> str:
        return "s3://index"

    def open(self) -> "SimSnapshot":
        _ask("open the index")
        return SimSnapshot(self)

    def peek(self) -> "SimSnapshot | None":
        return self.open()

    def take(
        self,
        version: int,
        added: Iterable[Stored],
        kept: Iterable[Stored],
        months: "Mapping[str, tuple[Stored, ...]] | None" = None,
    ) -> None:
        """Commit on a version, or not."""
        if version != self.version:
            raise IndexConflictError(f"version {version + 1} was committed by another run")
        fault, self.next_fault = self.next_fault, None
        if fault == "lost":
            raise StoreUnavailableError("no answer")
        self.version += 1
        added = [*added]
        self.rows = (*kept, *added)
        self.months = dict(self.months if months is None else months)
        self.world.oracle.note_commit(stored.row for stored in added)
        if fault == "answer lost":
            raise StoreUnavailableError("no answer")

    def fold(self, before: datetime, lateness: timedelta) -> bool:
        """Fold as `upkeep/index.py` does. Return whether there was something to fold."""
        snapshot = SimSnapshot(self)
        folding = fold_state(snapshot.topic(TOPIC).state, lateness, before)
        if folding is None:
            return False
        state = snapshot.topic(TOPIC).state
        months = dict(self.months)
        kept: list[Stored] = []
        for stored in self.rows:
            row = stored.row
            if type(row) is Scan and folding.holds_scan(row):
                at = state.hour_of(row.kafka_partition, row.start_offset) or self.world.time
            elif type(row) is Frontier and folding.holds_frontier(row):
                at = row.observed_at
            elif type(row) is HourRange and folding.holds_hour(row):
                at = row.hour
            else:
                if not _KIND_OF[type(row)].startswith("folded-"):
                    kept.append(stored)
                continue
            month = find_folded_month(at)
            months[month] = (*months.get(month, ()), stored)
        fold = folding.fold
        rows: tuple[IndexRow, ...] = (*fold.scans, *fold.frontiers, *fold.hours)
        self.take(self.version, (Stored(self.version + 1, "", row) for row in rows), kept, months)
        return True


class SimSnapshot(ConnectorSnapshot):
    """What the index held at one version."""

    def __init__(self, index: SimIndex) -> None:
        self.index: SimIndex = index
        self.version = index.version
        self.rows = index.rows
        self.months = index.months
        self._states: dict[str, IndexSnapshot] = {}

    def topic(self, topic: str) -> "SimTopic":
        found = self._states.setdefault(topic, SimTopic(TopicIndex(self.index, topic), self))
        assert isinstance(found, SimTopic)
        return found

    def has_commit(self, commit_id: str, since: int) -> bool:
        rows = (*self.rows, *(stored for month in self.months.values() for stored in month))
        return any(stored.commit_id == commit_id and stored.version > since for stored in rows)

    def load_states(self, topics: Iterable[str]) -> None:
        pass

    def has_rows(self, _: str) -> bool:
        return bool(self.rows)

    def commit(self, changes: Mapping[str, Change], commit_id: str | None = None) -> int:
        _ask("commit")
        [change] = changes.values()
        assert not change.retired
        version = self.version + 1
        removed = [_parse_predicate(p) for p in change.removed]
        kept = [s for s in self.rows if not any(_matches(s.row, terms) for terms in removed)]
        added = (Stored(version, commit_id or "", row) for row in change.added)
        self.index.take(self.version, added, kept)
        return version


class SimTopic(IndexSnapshot):
    """The topic in such a snapshot."""

    def __init__(self, index: TopicIndex, whole: SimSnapshot) -> None:
        super().__init__(index, whole)
        self._rows = whole.rows
        self._folded = whole.months
        self._latest = whole.index.world.machine_time + whole.index.clock_tolerance

    @property
    def index_id(self) -> str:
        return "index"

    @property
    def state(self) -> IndexState:
        found = self.__dict__.get("_state")
        if found is None:
            found = self.__dict__["_state"] = replace(self._build(self._rows), read_month=self._read_month)
        return found

    @property
    def unfolded_state(self) -> IndexState:
        plain = (s for s in self._rows if not _KIND_OF[type(s.row)].startswith("folded-"))
        return self._build([*(s for month in self._folded.values() for s in month), *plain])

    def _read_month(self, month: str) -> IndexState:
        if month not in self._months:
            self._months[month] = self._build(self._folded.get(month, ()))
        return self._months[month]

    def _build(self, rows: Sequence[Stored]) -> IndexState:
        found: dict[str, list[IndexRow]] = {}
        for stored in sorted(rows, key=lambda s: s.version):
            row = stored.row
            # as `store.index_rows.drop_future_times` does
            if type(row) is Frontier and row.observed_at > self._latest:
                row = replace(row, observed_at=UNTIMED)
            found.setdefault(_KIND_OF[type(row)], []).append(row)
        return make_state(self.version, {kind: tuple(each) for kind, each in found.items()})

    def select_segments(
        self,
        segment_filter: SegmentFilter,  # noqa: ARG002
        kinds: Collection[str] = (),  # noqa: ARG002
    ) -> tuple[Segment, ...]:
        return ()


def _parse_predicate(predicate: str) -> dict[str, str | int]:
    """Return the columns and values of one row of `store.row_filter.match_row`."""
    found = re.findall(r"(\w+) = (?:'((?:[^']|'')*)'|(-?\d+))", predicate)
    return {name: int(number) if number else text.replace("''", "'") for name, text, number in found}


def _matches(row: IndexRow, terms: Mapping[str, str | int]) -> bool:
    if _KIND_OF[type(row)] != terms["kind"]:
        return False
    return all(getattr(row, name) == value for name, value in terms.items() if name not in {"kind", "period"})


class SimClock:
    """The store's clock, as `StoreClock`: it is right."""

    @property
    def latest(self) -> StoreTime:
        here = STAGE.world.machine_time
        return StoreTime(STAGE.world.time, here, here, 0.0)

    def earlier_now(self) -> datetime:
        world = _ask("clock")
        return min(world.machine_time, world.time)


@dataclass
class SimStore:
    """The store, as far as a run asks it without writing objects."""

    settings: object = None
    clock: SimClock = field(default_factory=SimClock)

    def head(self, key: str) -> None:
        pass

    def write_in_vain(self, key: str) -> None:
        pass


def _read_group(*_: object) -> dict[int, int]:
    return STAGE.world.group


_IN_PLACE: Mapping[str, object] = {
    "ClusterAdmin": SimAdmin,
    "new_reader": SimReader,
    "ConnectorIndex": SimIndex,
    "ObjectStore": SimStore,
    "check_promises": lambda *_, **__: None,
    "read_committed_offsets": _read_group,
    "refuse_active_group": lambda *_: None,
}
_WHERE = re.compile(r"kafka_s3_platform\.core\.(archive\..*|upkeep\.resolve|store\.index)")


@contextmanager
def simulated() -> Iterator[None]:
    """Put the simulated seams in the place of the real ones, in every module that a run or a decision uses."""
    before: list[tuple[Any, str, object]] = [(fold_module, "FEWEST_HOURS", fold_module.FEWEST_HOURS)]
    fold_module.FEWEST_HOURS = 2
    for name, module in tuple(sys.modules.items()):
        if _WHERE.fullmatch(name):
            for seam in _IN_PLACE.keys() & vars(module).keys():
                before.append((module, seam, getattr(module, seam)))
                setattr(module, seam, _IN_PLACE[seam])
    try:
        yield
    finally:
        for module, seam, real in before:
            setattr(module, seam, real)


def list_rows(rows: Collection[Stored], kind: type[A]) -> list[A]:
    return [stored.row for stored in rows if isinstance(stored.row, kind)]
