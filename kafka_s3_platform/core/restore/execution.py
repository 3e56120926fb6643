"""Sends and verifies the stored plan of any source, logs the progress, and stores the report.

A Spark task sends some of the restore's streams, and may read each back. The driver reads the streams' checkpoints in
the bucket, and logs the progress.
"""

import logging
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from itertools import chain
from threading import Event, Thread
from typing import TypeVar

from kafka_s3_platform.core.errors import PlatformError, SupersededError, TransientError
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.model.notes import DoubtNote
from kafka_s3_platform.core.model.silence import try_each
from kafka_s3_platform.core.restore.evidence import EvidenceFolder, make_restore_evidence
from kafka_s3_platform.core.restore.preflight.goal import Goal, map_configs
from kafka_s3_platform.core.restore.replay import target_log
from kafka_s3_platform.core.restore.replay.checkpoint import Position, read_positions, save_document
from kafka_s3_platform.core.restore.replay.spec import ReplayResult, ReplayTask
from kafka_s3_platform.core.restore.replay.task import replay
from kafka_s3_platform.core.restore.report_page import render_page
from kafka_s3_platform.core.restore.request import ReadFacts, RestoreReport, RestoreRequest
from kafka_s3_platform.core.restore.signing import EvidenceKey
from kafka_s3_platform.core.restore.verify.read_back import VerifiedStream, match_stream
from kafka_s3_platform.core.restore.verify.target_count import group_by_target
from kafka_s3_platform.core.restore.verify.verification import Verification, Verified
from kafka_s3_platform.core.spark.progress import Progress, Snapshot, call_watchers, log_progress
from kafka_s3_platform.core.spark.runner import STREAM_COST, Attempt, TaskRunner, deal_out
from kafka_s3_platform.core.store.objects import ObjectStore

logger = logging.getLogger(__name__)

PROGRESS_SECONDS = 10.0

T = TypeVar("T")

STREAMS_AT_ONCE = 8
"""The number of small streams that one Spark task sends and reads back at once, as they mostly wait for brokers."""

LARGE_STREAM_BYTES = 20_000_000
"""The size in bytes from which streams mostly compute. Two at once are enough then: one is sent while the other waits.

More streams would take turns with Python's lock, which costs CPU seconds (`bench/results/speed.md`).
"""

OWN_END_SECONDS = 2.0
"""The longest wait for the ends of our own transactions in the log. Others' transactions are awaited at the end."""


class CheckpointWatch:
    """Logs records, rate and time left every `PROGRESS_SECONDS` while it is entered.

    The streams' checkpoints in the bucket show how far they came. If a stream's number of records is unknown, the time
    left is estimated from the bytes of the objects.
    """

    def __init__(self, store: ObjectStore, what: str, tasks: Sequence[ReplayTask]) -> None:
        self._store = store
        self._what = what
        self._tasks = tasks
        self._expected = sum(task.stream.facts.size for task in tasks)
        self._counts_records = all(task.stream.facts.record_count is not None for task in tasks)
        self._ended = Event()
        self._thread = Thread(target=self._run, name="restore-progress", daemon=True)
        self._started = time.monotonic()
        self._first: tuple[int, int] | None = None

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        """Read the checkpoints and log, until the watch is left."""
        # Read at once: the first reading only finds the start of counting.
        wait = 0.0
        while not self._ended.wait(wait):
            wait = PROGRESS_SECONDS
            try:
                self._log(read_positions(self._store, [task.documents.checkpoint for task in self._tasks]))
            except PlatformError as err:
                logger.debug("%s: no progress to tell: %s", self._what, err)

    def _log(self, positions: Sequence[Position | None]) -> None:
        """Log the records sent up to these positions, and the time left at the rate of this run."""
        pairs = [(task, p) for task, p in zip(self._tasks, positions, strict=True) if p is not None]
        records = sum(position.record_count for _, position in pairs)
        sent_bytes = sum(task.stream.facts.passed_bytes(position.next_source_offset) for task, position in pairs)
        passed = records if self._counts_records else sent_bytes
        # Records of an earlier run do not count for the speed of this one, so the first reading logs nothing.
        if self._first is None:
            self._first = (records, passed)
            self._started = time.monotonic()
            return
        seconds = max(time.monotonic() - self._started, 1e-3)
        rates = [(now - start) / seconds for now, start in zip((records, passed), self._first, strict=True)]
        remaining = f"about {(self._expected - passed) / rates[1]:,.0f} s left" if rates[1] else "time left unknown yet"
        of = f"of at most {self._expected:,} records" if self._counts_records else "records"
        if not self._counts_records and self._expected:
            remaining = f"{passed / self._expected:.0%} of the objects' bytes, {remaining}"
        text = f"{records:,} {of}, {rates[0]:,.0f} records/s, {remaining}"
        call_watchers(Snapshot(self._what, passed, self._expected, text))
        log_progress(logger, f"{self._what}: {text}")


def share_out_limit(limit: float | None, sizes: Sequence[int], at_once: int) -> list[float | None]:
    """Return each task's share of `limit`. The shares of any `at_once` tasks never exceed the limit together.

    If all tasks run at once, the shares are proportional to their sizes, so all tasks end together and the whole limit
    is used to the end. Otherwise the shares are equal: tasks follow each other, and only the last ones leave some of
    the limit unused.
    """
    if limit is None:
        return [None] * len(sizes)
    total = sum(sizes)
    if len(sizes) > at_once or not total:
        return [limit / max(1, min(at_once, len(sizes)))] * len(sizes)
    # A task of size 0 may still have records, since sizes are estimates. At a rate of 0 it would never end.
    weights = [max(size, 1) for size in sizes]
    return [limit * weight / sum(weights) for weight in weights]


@dataclass(frozen=True)
class FailedTarget:
    """One target of several, and the error that ended its restore."""

    to_topic: str
    error: PlatformError


@dataclass(frozen=True)
class ReplayedStream:
    """A stream sent to its end. `verified` is None if the stream is still to be read back."""

    result: ReplayResult
    verified: VerifiedStream | None
    to_topic: str
    seconds: float


def replay_streams(
    tasks: Sequence[ReplayTask], attempt: Attempt, *, isolates: bool = False
) -> list[ReplayedStream | FailedTarget]:
    """Send the streams of one Spark task. Those that may be read back early (`is_read_back_early`) are read back here.

    Several streams are sent at once. They are sent one after the other if the rate of one is limited, or if one is not
    read back early. If it `isolates`, a stream that fails does not stop the streams of other targets: a FailedTarget is
    in its place. Raises the errors of `replay`.
    """
    failures: dict[str, FailedTarget] = {}

    def send(task: ReplayTask) -> ReplayedStream | FailedTarget:
        """Send one stream, unless its target has already failed."""
        if task.to_topic in failures:
            return failures[task.to_topic]
        started = time.monotonic()
        try:
            result = replay(task, attempt)
        except PlatformError as err:
            if not isolates or not _is_final(err, attempt):
                raise
            return failures.setdefault(task.to_topic, FailedTarget(task.to_topic, err))
        seconds = time.monotonic() - started
        return ReplayedStream(result, _try_verify(task, admin), task.to_topic, seconds)

    with ClusterAdmin(tasks[0].kafka) as admin:
        return _map_streams(send, tasks)


def _map_streams(send: Callable[[ReplayTask], T], tasks: Sequence[ReplayTask]) -> list[T]:
    """Send the streams, one after the other or several at once."""
    if len(tasks) == 1 or any(task.is_limited or not task.is_read_back_early for task in tasks):
        return list(map(send, tasks))
    at_once = 2 if any(task.stream.facts.bytes_to_send > LARGE_STREAM_BYTES for task in tasks) else STREAMS_AT_ONCE
    with ThreadPoolExecutor(at_once, thread_name_prefix="restore-stream") as pool:
        try:
            return list(pool.map(send, tasks))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _is_final(err: PlatformError, attempt: Attempt) -> bool:
    """Return True if the error ends the restore of one target only. If another run has taken over, all of them end."""
    if isinstance(err, SupersededError):
        return False
    return attempt.is_last or not isinstance(err, TransientError)


def _try_verify(task: ReplayTask, admin: ClusterAdmin) -> VerifiedStream | None:
    """Read a stream back right after it was sent, if this is allowed. Return None if it is read back at the end.

    A failure now counts for nothing: whatever caused it fails again at the end.
    """
    if not task.is_read_back_early:
        return None
    try:
        return match_stream(task, admin, min(OWN_END_SECONDS, target_log.STABLE_SECONDS))
    except PlatformError as err:
        logger.info("restore %s is read back again at the end: %s", task.where, err)
        return None


@dataclass(frozen=True)
class Execution:
    """The streams of a restore that has begun, and its targets as they were found. `store` holds its documents.

    `evidence_key` signs the evidence of the restore.
    """

    request: RestoreRequest
    streams: Sequence[ReplayTask]
    goals: Sequence[Goal]
    store: ObjectStore
    runner: TaskRunner
    evidence_key: EvidenceKey | None = None

    def run(self, planned: RestoreReport) -> RestoreReport:
        """Send missing records, read everything back, and store the report, which marks the restore as finished.

        If one of several targets fails, the others go on. The restore is then not finished, and its report is not
        stored. The errors are in the parts of the report, even if all targets have failed.

        Raises:
            PlatformError: the only target has failed. If sending failed, the message ends with the progress of each
                stream.
        """
        tasks = _mark_early_tasks(self._order_and_limit())
        started_at = datetime.now(timezone.utc)
        started = time.monotonic()
        replayed, failures = self._replay(tasks)
        failures |= {goal.plan.to_topic: goal.failure for goal in self.goals if goal.failure is not None}
        verified, later_failures = self._verify(tasks, replayed, failures)
        failures |= later_failures
        if failures and len(self.goals) == 1:
            raise next(iter(failures.values()))
        parts = [
            _finish_part(part, goal, replayed, verified, failures.get(goal.plan.to_topic))
            for part, goal in zip(planned.parts, self.goals, strict=bool(planned.parts))
        ]
        report = replace(
            _add_sent(_add_verified(planned, verified), replayed),
            parts=tuple(parts),
            verified=not failures,
            seconds=time.monotonic() - started,
            finished_at="" if failures else datetime.now(timezone.utc).isoformat(),
        )
        # Save the page first: the report marks the restore as finished, and a finished restore writes nothing any more.
        save_document(self.store, self.request.documents.page, render_page(report).encode())
        if not failures:
            self._store_evidence(report, started_at)
            save_document(self.store, self.request.documents.report, report.to_json())
        return report

    def _store_evidence(self, report: RestoreReport, started_at: datetime) -> None:
        """Store evidence about the topics of each connector of the restore."""
        parts = list(zip(report.parts or (report,), self.goals, strict=bool(self.goals)))
        for name, config in map_configs(self.goals).items():
            of_connector = [part for part, goal in parts if goal.plan.request.config.name == name]
            cluster = self.goals[0].target.cluster
            target = f"Kafka cluster {cluster.cluster_id}" if cluster else "a Kafka cluster without an id"
            evidence = make_restore_evidence(config, of_connector, report, started_at, target)
            EvidenceFolder(config).add(evidence, self.evidence_key)

    def _verify(
        self, tasks: Sequence[ReplayTask], replayed: Sequence[ReplayedStream], failures: Collection[str]
    ) -> tuple[Verified, dict[str, PlatformError]]:
        """Verify together all targets that have not failed. If this fails, verify each alone, to find the failures."""

        def verify(*names: str) -> Verified:
            """Verify the targets with these names."""
            streams = [stream for stream in replayed if stream.to_topic in names]
            early = [stream.verified for stream in streams if stream.verified is not None]
            verification = Verification(
                self.request,
                [task for task in tasks if task.to_topic in names],
                [goal for goal in self.goals if goal.plan.to_topic in names],
                self.runner,
            )
            return verification.run([stream.result for stream in streams], early)

        names = [goal.plan.to_topic for goal in self.goals if goal.plan.to_topic not in failures]
        try:
            return verify(*names), {}
        except PlatformError:
            if len(self.goals) <= 1:
                raise
        verified, later_failures = try_each(names, verify)
        return sum(verified.values(), Verified()), later_failures

    def _order_and_limit(self) -> list[ReplayTask]:
        """Return the tasks in the order of sending, each with its share of the rate limits.

        The request's `first_topics` come first, then the largest streams, so no long one is left for the end.
        """
        request = self.request
        tasks = self.streams
        at_once = self.runner.at_once(request.config.tasks_max) if tasks else 1
        records = share_out_limit(request.records_per_second, [t.stream.facts.size for t in tasks], at_once)
        sizes = share_out_limit(request.bytes_per_second, [t.stream.facts.bytes_to_send for t in tasks], at_once)
        limits = zip(tasks, records, sizes, strict=True)
        limited = [replace(t, records_per_second=r, bytes_per_second=b) for t, r, b in limits]
        first = {topic: rank for rank, topic in enumerate(request.first_topics)}
        return sorted(limited, key=lambda t: (first.get(t.stream.facts.topic, len(first)), -t.stream.facts.size))

    def _replay(self, tasks: Sequence[ReplayTask]) -> tuple[list[ReplayedStream], dict[str, PlatformError]]:
        """Send all streams. Return the ones sent to their end, and the error of each target that failed."""
        what = f"restore {self.request.restore_id}"
        progress = Progress(logger, what, len(tasks), sum(t.stream.facts.size for t in tasks))
        results = list[ReplayedStream]()
        failures: dict[str, PlatformError] = {}
        replay_group = replay_streams if len(self.goals) <= 1 else partial(replay_streams, isolates=True)
        tasks_max = self.request.config.tasks_max
        at_once = self.runner.at_once(tasks_max) if tasks else 1
        groups = deal_out(tasks, lambda task: task.stream.facts.size + STREAM_COST, at_once)
        with CheckpointWatch(self.store, what, tasks):
            try:
                for group in self.runner.run(replay_group, groups, tasks_max):
                    for stream in group:
                        if isinstance(stream, FailedTarget):
                            of_target = [task for task in tasks if task.to_topic == stream.to_topic]
                            failures.setdefault(stream.to_topic, self._add_progress(stream.error, of_target))
                            continue
                        progress.advance(stream.result.size, stream.result.sent_count, stream.result.sent_bytes)
                        results.append(stream)
            except PlatformError as err:
                raise self._add_progress(err, tasks) from err
        return results, failures

    def _add_progress(self, err: PlatformError, tasks: Sequence[ReplayTask]) -> PlatformError:
        """Return the error with the streams' progress added. Its type stays and decides if the run is tried again."""
        return err.retell(f"{err}\n{self._describe_progress(tasks)}")

    def _describe_progress(self, tasks: Sequence[ReplayTask]) -> str:
        """Say how far each stream came according to its checkpoint in the bucket."""
        in_order = sorted(tasks, key=lambda t: (t.stream.facts.topic, t.kafka_partition))
        try:
            positions = read_positions(self.store, [t.documents.checkpoint for t in in_order])
        except PlatformError as err:
            return f"Its progress cannot be read from the bucket: {err}"
        places = "; ".join(_describe_position(t, p) for t, p in zip(in_order, positions, strict=True))
        return (
            f"Progress of restore {self.request.restore_id}: {places}. Run it again under the same id to continue, "
            "unless the error says otherwise"
        )


def _finish_part(
    part: RestoreReport,
    goal: Goal,
    replayed: Sequence[ReplayedStream],
    verified: Verified,
    failure: PlatformError | None,
) -> RestoreReport:
    """Return the report of one target of several. Its `seconds` are the sum for its streams."""
    if failure is not None:
        return replace(part, failure=str(failure), is_transient=isinstance(failure, TransientError))
    streams = [stream for stream in replayed if stream.to_topic == goal.plan.to_topic]
    places = {(stream.result.topic, stream.result.kafka_partition) for stream in streams}
    verified_part = Verified(
        tuple(item for item in verified.kafka_partitions if (item.topic, item.kafka_partition) in places),
        tuple(target for target in verified.targets if target.to_topic == goal.plan.to_topic),
        tuple(note for note in verified.notes if note[0] == goal.plan.to_topic),
    )
    return replace(
        _add_sent(_add_verified(part, verified_part), streams), seconds=sum(stream.seconds for stream in streams)
    )


def _add_sent(report: RestoreReport, replayed: Sequence[ReplayedStream]) -> RestoreReport:
    """Return the report with the number of records this run has sent, and the keys of the bad objects left out."""
    left_out = {*chain.from_iterable(stream.result.left_out for stream in replayed)}
    sent_count = sum(stream.result.sent_count for stream in replayed)
    return replace(report, left_out=tuple(sorted(left_out)), sent_count=sent_count)


def _add_verified(report: RestoreReport, verified: Verified) -> RestoreReport:
    """Return the planned report with the numbers read back in place of the expected ones."""
    parts = verified.kafka_partitions
    notes: dict[str, bool] = {}
    for part in parts:
        where = f"{part.topic or report.topic}-{part.kafka_partition}"
        notes |= {f"{where}: {note}": isinstance(note, DoubtNote) for note in part.notes}
    facts = replace(sum(parts, ReadFacts()), notes=(*notes, *(note for _, note in verified.notes)))
    expected = replace(report, out_of_range_count=0)
    return replace(
        report,
        **vars(expected + facts),
        kafka_partitions=parts,
        record_count=sum(p.record_count for p in parts),
        record_bytes=sum(p.record_bytes for p in parts),
        exact=True,
        doubts=(*report.doubts, *(note for note, is_doubt in notes.items() if is_doubt)),
        targets=verified.targets,
        verified=True,
    )


def _mark_early_tasks(tasks: Sequence[ReplayTask]) -> list[ReplayTask]:
    """Return all tasks, with `is_read_back_early` set if a task can be read back while others are still sent.

    For this, the records have to keep the number of their kafka partition, and no other task may send to that kafka
    partition of the target. No user's class may make or choose the records, because such a class need not be
    thread-safe. And no filter may keep records in memory or in a process of its own, as it would then need two at once.
    """
    shared = {t.place for t in group_by_target(tasks) if len(t.replays) > 1}
    return [
        replace(
            t,
            is_read_back_early=t.keeps_number
            and (t.to_topic, t.kafka_partition) not in shared
            and not t.sent.outgoing.has_mapper
            and not (t.sent.records.predicate or t.sent.records.sql or t.sent.records.latest_per_key),
        )
        for t in tasks
    ]


def _describe_position(task: ReplayTask, position: Position | None) -> str:
    """Say how many records of a stream are noted as delivered, for an error."""
    where = f"{task.stream.facts.topic}-{task.kafka_partition}"
    if position is None or not position.record_count:
        # A superseded run may have committed more since its last checkpoint, so this does not claim that none arrived.
        return f"{where}: no record is noted as delivered to {task.to_topic}"
    delivered = (
        f"{where}: {position.record_count:,} records, those below source offset {position.next_source_offset}, were "
        f"delivered to {task.to_topic}"
    )
    if position.next_target_offset is None:
        return delivered
    return f"{delivered} below offset {position.next_target_offset}"
