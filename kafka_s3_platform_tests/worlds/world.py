"""Plays a world: its steps against the platform's real code, and at the end all that errors advise."""

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache

from kafka_s3_platform.core.archive.request import ArchiveReport, ArchiveRequest
from kafka_s3_platform.core.archive.run import archive_topics
from kafka_s3_platform.core.archive.takeover import record_takeover
from kafka_s3_platform.core.config.settings import (
    ArchiveSettings,
    ConnectorConfig,
    KafkaSettings,
    LayoutSettings,
    StoreSettings,
)
from kafka_s3_platform.core.errors import PlatformError
from kafka_s3_platform.core.model.offsets import OffsetRange
from kafka_s3_platform.core.model.segment import Reservation
from kafka_s3_platform.core.store.index_commit import Change
from kafka_s3_platform.core.store.lease import end_runs
from kafka_s3_platform.core.upkeep import resolve
from kafka_s3_platform_tests.worlds import steps as s
from kafka_s3_platform_tests.worlds.kafka import BEGIN, Record, Topic, to_time
from kafka_s3_platform_tests.worlds.oracle import Oracle, Violation
from kafka_s3_platform_tests.worlds.seams import STAGE, TOPIC, SimIndex, SimRunner, SimSnapshot, SimTopic, list_rows

LATENESS = 5
TOLERANCE = 10
SETTLE_ROUNDS = 8
ROUNDS_ALIKE = 3
"""After so many rounds that say the same once more, nothing changes: a decision may have to wait for another one."""


class Killed(BaseException):
    """A run was killed: nothing of its own code sees that."""


@lru_cache
def make_config(allow_gaps: bool) -> ConnectorConfig:
    return ConnectorConfig(
        name="c",
        topics=(TOPIC,),
        kafka=KafkaSettings(bootstrap_servers="127.0.0.1:1"),
        store=StoreSettings(bucket="bucket"),
        layout=LayoutSettings(),
        archive=ArchiveSettings(
            start_hour=BEGIN,
            allow_gaps=allow_gaps,
            allowed_lateness_ms=LATENESS * 60_000,
            clock_tolerance_ms=TOLERANCE * 60_000,
            publish_offsets=False,
        ),
    )


@dataclass
class _Asking:
    """A run, and how many questions it has asked."""

    step: s.Archive
    count: int = 0
    sleeper: "_Sleeper | None" = None


class _Sleeper(threading.Thread):
    """A run in a thread of its own, which sleeps while the world goes on: one of the two is at work at a time."""

    def __init__(self, work: Callable[["_Sleeper"], None]) -> None:
        super().__init__(daemon=True)
        self._work = work
        self._mine = threading.Semaphore(0)
        self._others = threading.Semaphore(0)
        self.is_killed = False
        self.is_over = False

    def run(self) -> None:
        self._mine.acquire()
        try:
            self._work(self)
        finally:
            self.is_over = True
            self._others.release()

    def go_on(self) -> None:
        """Let the run work until it sleeps or ends."""
        self._mine.release()
        self._others.acquire()

    def sleep(self) -> None:
        self._others.release()
        self._mine.acquire()
        if self.is_killed:
            raise Killed


def _find_advice(text: str) -> Iterator[s.Step]:
    """Find what the text of an error advises to do."""
    for place, what in re.findall(r"kafka-s3 resolve c --topic t --kafka-partition (\d+) (--.*)", text):
        if offsets := re.match(r"--offsets (\d+):(\d+) --skip", what):
            start, end = map(int, offsets.groups())
            yield s.Skip(int(place), start, end - start)
        elif what.startswith("--accept-truncation"):
            yield s.Accept(int(place))
        elif begin := re.match(r"--begin-at (\d+)", what):
            yield s.BeginAt(int(place), int(begin[1]))
    if "archive.allow.gaps=true" in text:
        yield s.AllowGaps()
    if "--older-than 0m" in text:
        yield s.EndReservations()
    if "created again" in text and "another connector name" in text:
        yield s.NewConnector()


class World:
    """One simulated world."""

    CLOCK_TOLERANCE = TOLERANCE

    def __init__(self, kafka_partitions: int) -> None:
        self.now = 0
        self.skew = 0
        self._ticks = 0
        self.is_repaired = False
        self.allow_gaps = False
        self.group: dict[int, int] = {}
        self.topic = Topic(0, [])
        self.topic.add_kafka_partitions(kafka_partitions)
        self.ever: list[Topic] = [self.topic]
        self.oracle = Oracle(self)
        self.index = SimIndex(self)
        self.said: list[str] = []
        self.log: list[str] = []
        self.runs = 0
        self._asking: _Asking | None = None
        self._opened: tuple[tuple[int, int, int], SimTopic] | None = None
        self._sleepers: list[_Sleeper] = []

    @property
    def time(self) -> datetime:
        return to_time(self.now) + timedelta(microseconds=self._ticks)

    @property
    def machine_time(self) -> datetime:
        """The time by the clock of the platform's machine."""
        return self.time + timedelta(minutes=self.skew)

    @property
    def violations(self) -> Sequence[Violation]:
        return self.oracle.violations

    def play(self, steps: Sequence[s.Step]) -> None:
        """Play the steps, then settle. Stops at the first violation."""
        STAGE.world = self
        try:
            for step in steps:
                self.do(step)
                self._check()
                if self.violations:
                    return
            self._settle()
        finally:
            for sleeper in self._sleepers:
                sleeper.is_killed = True
                sleeper.go_on()

    def note_question(self, name: str) -> None:
        """Let happen what was to happen before the answer to this question of the run."""
        self._ticks += 1
        run = self._asking
        if run is None:
            return
        run.count += 1
        for at, step in run.step.meanwhile:
            if at == run.count:
                self.log.append(f"    before question {at} ({name}):")
                with self._apart():
                    self.do(step)
        if run.count == run.step.killed_at:
            raise Killed
        if run.count == run.step.asleep_at and run.sleeper is not None:
            with self._apart():
                run.sleeper.sleep()

    @contextmanager
    def _apart(self) -> Iterator[None]:
        """Let happen what is no part of the run that is asking."""
        asking, self._asking = self._asking, None
        try:
            yield
        finally:
            self._asking = asking

    def do(self, step: s.Step) -> None:
        """Let a step happen."""
        if getattr(step, "kafka_partition", 0) >= len(self.topic.logs):
            return
        self.log.append(f"{self.now}: {step}")
        do: Callable[[s.Step], None] = getattr(self, f"_do_{type(step).__name__.lower()}")
        do(step)

    def _check(self) -> None:
        self.oracle.check(self._open(), self.archived_topic.ever, LATENESS)

    def _open(self) -> SimTopic:
        """Return the index as it is read now. It is read once as long as nothing is another."""
        now = (self.index.version, self.now, self.skew)
        if self._opened is None or self._opened[0] != now:
            self._opened = now, SimSnapshot(self.index).topic(TOPIC)
        return self._opened[1]

    @property
    def archived_topic(self) -> Topic:
        """The topic as it was when the index began."""
        return next((t for t in self.ever if t.topic_id == self.oracle.generation), self.topic)

    # Kafka

    def _do_wait(self, step: s.Wait) -> None:
        self.now += step.minutes

    def _do_produce(self, step: s.Produce) -> None:
        log = self.topic.logs[step.kafka_partition]
        claims = None if step.claims is None else log.end + step.claims
        for minute in step.minutes:
            is_committed = None if step.writer is not None else True
            place = (log.kafka_partition, log.end, minute, self.now, step.writer, is_committed)
            log.append(Record(*place, is_poison=step.is_poison, claims=claims))
            claims = None

    def _do_endtransaction(self, step: s.EndTransaction) -> None:
        log = self.topic.logs[step.kafka_partition]
        log.end_transaction(step.writer, self.now, is_committed=step.is_committed)

    def _do_delete(self, step: s.Delete) -> None:
        self.topic.logs[step.kafka_partition].delete(step.count, self.now, rolls=step.rolls)

    def _do_compact(self, step: s.Compact) -> None:
        self.topic.logs[step.kafka_partition].compact(self.now)

    def _do_elect(self, step: s.Elect) -> None:
        log = self.topic.logs[step.kafka_partition]
        lost = log.elect(self.now, step.lost)
        if self.oracle.generation in {None, self.topic.topic_id}:
            self.oracle.note_truncation(lost)

    def _do_silence(self, step: s.Silence) -> None:
        log = self.topic.logs[step.kafka_partition]
        log.is_silent = not log.is_silent

    def _do_addkafkapartition(self, _: s.AddKafkaPartition) -> None:
        if len(self.topic.logs) < 4:
            self.topic.add_kafka_partitions(1)

    def _do_recreate(self, _: s.Recreate) -> None:
        for log in self.topic.logs:
            for record in log.records:
                record.gone_at = self.now
                record.gone = "recreated"
            log.records = []
        count = len(self.topic.logs)
        self.topic = Topic(self.topic.generation + 1, [])
        self.topic.add_kafka_partitions(count)
        self.ever.append(self.topic)

    def _do_lieaboutend(self, step: s.LieAboutEnd) -> None:
        self.topic.logs[step.kafka_partition].end_lie = step.less

    def _do_setclock(self, step: s.SetClock) -> None:
        self.skew = step.minutes

    # The platform and its users

    def _do_failcommit(self, step: s.FailCommit) -> None:
        self.index.next_fault = step.fault

    def _do_repair(self, _: s.Repair) -> None:
        self.is_repaired = True

    def _do_archive(self, step: s.Archive) -> None:
        if step.asleep_at is None:
            self._run(step, None)
            return
        sleeper = _Sleeper(lambda me: self._run(step, me))
        sleeper.start()
        self._let_work(sleeper)

    def _let_work(self, sleeper: _Sleeper) -> None:
        self._sleepers = [other for other in self._sleepers if other is not sleeper]
        with self._apart():
            sleeper.go_on()
        if not sleeper.is_over:
            self._sleepers.append(sleeper)

    def _do_wake(self, _: s.Wake) -> None:
        if self._sleepers:
            self._let_work(self._sleepers[0])

    def _run(self, step: s.Archive, sleeper: _Sleeper | None) -> None:
        self.runs += 1
        hours = None if step.first is None else tuple(to_time((step.first + n) * 60) for n in range(step.count))
        config = make_config(step.allow_gaps or self.allow_gaps)
        request = ArchiveRequest(config, TOPIC, f"run-{self.runs}", hours)
        with self._noting():
            self._asking = _Asking(step, sleeper=sleeper)
            found = archive_topics([request], SimRunner())[TOPIC]  # type: ignore[arg-type]
            failure = found.failure if isinstance(found, ArchiveReport) else found
            if failure is not None:
                raise failure

    @contextmanager
    def _noting(self) -> Iterator[None]:
        """Note what a command says. An error that is none of ours is a violation."""
        try:
            yield
        except PlatformError as err:
            self.said = [*self.said[-2:], str(err)]
            self.log.append(f"    {type(err).__name__}: {err}")
        except Killed:
            self.log.append("    killed")
        except Exception as err:  # noqa: BLE001 - any other error is a defect
            self.oracle.violations.append(Violation(f"defect: {type(err).__name__}", str(err)))
        finally:
            self._asking = None

    def _decide(self, decision: resolve.Decision) -> None:
        self.runs += 1
        with self._noting():
            resolve.resolve_offsets(make_config(self.allow_gaps), TOPIC, decision, f"run-{self.runs}", dry_run=False)

    def _do_skip(self, step: s.Skip) -> None:
        self._decide(resolve.Skip(step.kafka_partition, OffsetRange(step.start, step.start + step.count)))

    def _do_accept(self, step: s.Accept) -> None:
        self._decide(resolve.AcceptTruncation(step.kafka_partition))

    def _do_beginat(self, step: s.BeginAt) -> None:
        self._decide(resolve.BeginAt(step.kafka_partition, step.offset))

    def _do_takeover(self, step: s.TakeOver) -> None:
        self.runs += 1
        self.group = {log.kafka_partition: max(0, log.stable - step.count) for log in self.topic.logs}
        with self._noting():
            record_takeover(make_config(self.allow_gaps), TOPIC, "g", f"run-{self.runs}")

    def _do_fold(self, step: s.Fold) -> None:
        with self._noting():
            self.index.fold(to_time(self.now - step.minutes), timedelta(minutes=LATENESS))

    def _do_endreservations(self, _: s.EndReservations) -> None:
        rows = list_rows(self.index.rows, Reservation)
        if rows:
            with self._noting():
                SimSnapshot(self.index).commit({TOPIC: Change(removed=end_runs(rows))})

    def _do_follow(self, _: s.Follow) -> None:
        said, self.said = self.said, []
        for step in dict.fromkeys(step for text in said for step in _find_advice(text)):
            self.do(step)

    def _do_allowgaps(self, _: s.AllowGaps) -> None:
        self.allow_gaps = True

    def _do_newconnector(self, _: s.NewConnector) -> None:
        while self._sleepers:
            self._let_work(self._sleepers[0])
        self.index = SimIndex(self)
        self._opened = None
        self.oracle = self.oracle.begin_anew(r for topic in self.ever for r in topic.ever)

    def _settle(self) -> None:
        """Let everything answer and every clock be right, archive, and carry out what errors advise."""
        while self._sleepers:
            self._let_work(self._sleepers[0])
        self.skew = 0
        for log in self.topic.logs:
            log.is_silent = False
            log.end_lie = None
            for writer in (1, 2):
                log.end_transaction(writer, self.now, is_committed=True)
        self.now += 130
        before: list[str] = []
        rounds_alike = 0
        for _ in range(SETTLE_ROUNDS):
            last = (self.now - LATENESS) // 60 - 1
            self.said = []
            self.do(s.Archive())
            self.do(s.Archive(0, last + 1))
            self._check()
            if self.violations:
                return
            hours = range(last + 1)
            if not self.said and not self.oracle.list_stuck(self._open(), hours, LATENESS):
                break
            rounds_alike = rounds_alike + 1 if self.said == before else 0
            if rounds_alike == ROUNDS_ALIKE:
                break
            before = self.said
            # what a command refuses may advise another one first
            self.do(s.Follow())
            self.do(s.Follow())
        self.oracle.check_settled(self._open(), self.topic.logs, hours, LATENESS)
