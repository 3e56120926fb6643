"""Send and verify a stored plan of any source, log the progress, and store the report.

One Spark task sends streams of a restore one after the other, and meanwhile reads back earlier ones. The driver reads
their checkpoints in the bucket for the progress that it logs.
"""

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from itertools import chain
from threading import Event, Thread

from kafka_s3_platform.core.errors import PlatformError
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.model.notes import DoubtNote
from kafka_s3_platform.core.restore.preflight.goal import Goal
from kafka_s3_platform.core.restore.replay import target_log
from kafka_s3_platform.core.restore.replay.checkpoint import Position, read_positions, save_document
from kafka_s3_platform.core.restore.replay.spec import ReplayResult, ReplayTask
from kafka_s3_platform.core.restore.replay.task import replay
from kafka_s3_platform.core.restore.report_page import render_page
from kafka_s3_platform.core.restore.request import ReadFacts, RestoreReport, RestoreRequest
from kafka_s3_platform.core.restore.verify.read_back import VerifiedStream, verify_stream
from kafka_s3_platform.core.restore.verify.target_count import group_by_target
from kafka_s3_platform.core.restore.verify.verification import Verification, Verified
from kafka_s3_platform.core.spark.progress import Progress, Snapshot, call_watchers, log_progress
from kafka_s3_platform.core.spark.runner import STREAM_COST, Attempt, TaskRunner, deal_out
from kafka_s3_platform.core.store.objects import ObjectStore

logger = logging.getLogger(__name__)

PROGRESS_SECONDS = 10.0


Measure = Callable[[Sequence[Position | None]], int]
"""Measures progress from the positions in the checkpoints."""

OWN_END_SECONDS = 2.0
"""Longest wait for the ends of our own transactions in the log. Transactions of others are awaited at the end."""


class CheckpointWatch:
    """Logs records, rate and time left every `PROGRESS_SECONDS` while it is entered.

    `expected` is a number of records, or an upper bound. If the number is unknown, `expected` is whatever `passed`
    measures, such as bytes of objects.
    """

    def __init__(
        self, store: ObjectStore, what: str, keys: Sequence[str], expected: int, passed: Measure | None = None
    ) -> None:
        self._store = store
        self._what = what
        self._keys = keys
        self._expected = expected
        self._passed = passed
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
        # Read at once: the first reading only finds the start of counting.
        wait = 0.0
        while not self._ended.wait(wait):
            wait = PROGRESS_SECONDS
            try:
                self._log(read_positions(self._store, self._keys))
            except PlatformError as err:
                logger.debug("%s: no progress to tell: %s", self._what, err)

    def _log(self, reached: Sequence[Position | None]) -> None:
        records = sum(p.record_count for p in reached if p is not None)
        done = records if self._passed is None else self._passed(reached)
        # Records of an earlier run do not count for the speed of this one, so the first reading logs nothing.
        if self._first is None:
            self._first = (records, done)
            self._started = time.monotonic()
            return
        seconds = max(time.monotonic() - self._started, 1e-3)
        rates = [(now - before) / seconds for now, before in zip((records, done), self._first, strict=True)]
        remaining = f"about {(self._expected - done) / rates[1]:,.0f} s left" if rates[1] else "time left unknown yet"
        of = f"of at most {self._expected:,} records" if self._passed is None else "records"
        if self._passed is not None and self._expected:
            remaining = f"{done / self._expected:.0%} of the objects' bytes, {remaining}"
        text = f"{records:,} {of}, {rates[0]:,.0f} records/s, {remaining}"
        call_watchers(Snapshot(self._what, done, self._expected, text))
        log_progress(logger, f"{self._what}: {text}")


def share_out_limit(limit: float | None, sizes: Sequence[int], at_once: int) -> list[float | None]:
    """Return each task's share of `limit`. The shares of any `at_once` tasks never exceed the limit together.

    If all tasks run at once, the shares are proportional to their sizes: all tasks end together, and the whole limit is
    used to the end. Otherwise the shares are equal: tasks follow each other, and only the last ones leave some unused.
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
class ReplayedStream:
    """A stream sent to its end. `verified` is None if it is still to be read back."""

    result: ReplayResult
    verified: VerifiedStream | None


def replay_streams(tasks: Sequence[ReplayTask], attempt: Attempt) -> list[ReplayedStream]:
    """Send the streams, and read each back while the next one is sent. Raises the errors of `replay`."""
    with ThreadPoolExecutor(1, thread_name_prefix="restore-verify") as pool:
        try:
            sent = [(replay(task, attempt), pool.submit(_try_verify, task, attempt)) for task in tasks]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        return [ReplayedStream(result, verifying.result()) for result, verifying in sent]


def _try_verify(task: ReplayTask, attempt: Attempt) -> VerifiedStream | None:
    """Read the stream back. A failure is repeated at the end, and counts there."""
    if not task.is_read_back_early:
        return None
    try:
        with ClusterAdmin(task.kafka) as admin:
            seconds = min(OWN_END_SECONDS, target_log.STABLE_SECONDS)
            target_log.await_settled_logs(admin, task.to_topic, [task.kafka_partition], seconds)
        return verify_stream(task, attempt)
    except PlatformError as err:
        logger.info("restore %s is read back again at the end: %s", task.where, err)
        return None


@dataclass(frozen=True)
class Execution:
    """The streams of a begun restore, and its targets as they were found. `store` holds its documents."""

    request: RestoreRequest
    streams: Sequence[ReplayTask]
    goals: Sequence[Goal]
    store: ObjectStore
    runner: TaskRunner

    def run(self, planned: RestoreReport) -> RestoreReport:
        """Send missing records, read everything back, and store the report. It marks the restore as finished.

        Raises:
            PlatformError: any failure. If sending failed, the message ends with the progress of each stream.
        """
        tasks = _mark_early_tasks(self._limited())
        started = time.monotonic()
        replayed = self._replay(tasks)
        sent = [stream.result for stream in replayed]
        early = [stream.verified for stream in replayed if stream.verified is not None]
        verified = Verification(self.request, tasks, self.goals, self.runner).run(sent, early)
        report = replace(
            _add_verified(planned, verified),
            left_out=tuple(sorted(chain.from_iterable(r.left_out for r in sent))),
            sent_count=sum(r.sent_count for r in sent),
            seconds=time.monotonic() - started,
            finished_at=datetime.now(timezone.utc).isoformat(),
        )
        # The page first: the report marks the restore as finished, and a finished restore writes nothing any more.
        save_document(self.store, self.request.documents.page, render_page(report).encode())
        save_document(self.store, self.request.documents.report, report.to_json())
        return report

    def _limited(self) -> list[ReplayTask]:
        """Return the tasks with their shares of the limits. The largest come first: no long one is left for the end."""
        request = self.request
        tasks = self.streams
        at_once = self.runner.at_once(request.config.tasks_max) if tasks else 1
        records = share_out_limit(request.records_per_second, [t.stream.facts.size for t in tasks], at_once)
        sizes = share_out_limit(request.bytes_per_second, [t.stream.facts.bytes_to_send for t in tasks], at_once)
        limits = zip(tasks, records, sizes, strict=True)
        limited = [replace(t, records_per_second=r, bytes_per_second=b) for t, r, b in limits]
        return sorted(limited, key=lambda t: -t.stream.facts.size)

    def _replay(self, tasks: Sequence[ReplayTask]) -> list[ReplayedStream]:
        what = f"restore {self.request.restore_id}"
        expected = sum(t.stream.facts.size for t in tasks)
        progress = Progress(logger, what, len(tasks), expected)
        results = list[ReplayedStream]()
        tasks_max = self.request.config.tasks_max
        at_once = self.runner.at_once(tasks_max) if tasks else 1
        groups = deal_out(tasks, lambda task: task.stream.facts.size + STREAM_COST, at_once)
        counts_records = all(t.stream.facts.record_count is not None for t in tasks)
        passed = None if counts_records else partial(_sum_passed_bytes, tasks)
        with CheckpointWatch(self.store, what, [t.documents.checkpoint for t in tasks], expected, passed):
            try:
                for group in self.runner.run(replay_streams, groups, tasks_max):
                    for stream in group:
                        progress.advance(stream.result.size, stream.result.sent_count, stream.result.sent_bytes)
                    results += group
            except PlatformError as err:
                # The same type: it decides whether the run is tried again.
                raise err.retell(f"{err}\n{self._how_far(tasks)}") from err
        return results

    def _how_far(self, tasks: Sequence[ReplayTask]) -> str:
        in_order = sorted(tasks, key=lambda t: (t.stream.facts.topic, t.kafka_partition))
        try:
            reached = read_positions(self.store, [t.documents.checkpoint for t in in_order])
        except PlatformError as err:
            return f"How far it came cannot be read from the bucket: {err}"
        places = "; ".join(_describe_position(t, p) for t, p in zip(in_order, reached, strict=True))
        return (
            f"How far restore {self.request.restore_id} came: {places}. Run it again under the same id to go on, "
            f"unless the error says otherwise"
        )


def _add_verified(planned: RestoreReport, verified: Verified) -> RestoreReport:
    parts = verified.kafka_partitions
    notes: dict[str, bool] = {}
    for part in parts:
        where = f"{part.topic or planned.topic}-{part.kafka_partition}"
        notes |= {f"{where}: {note}": isinstance(note, DoubtNote) for note in part.notes}
    read = replace(sum(parts, ReadFacts()), notes=(*notes, *verified.notes))
    before = replace(planned, out_of_range_count=0)
    return replace(
        planned,
        **vars(before + read),
        kafka_partitions=parts,
        record_count=sum(p.record_count for p in parts),
        record_bytes=sum(p.record_bytes for p in parts),
        exact=True,
        doubts=(*planned.doubts, *(note for note, is_doubt in notes.items() if is_doubt)),
        targets=verified.targets,
        verified=True,
    )


def _mark_early_tasks(tasks: Sequence[ReplayTask]) -> list[ReplayTask]:
    """Return all tasks, with `is_read_back_early` set where a task can be read back while others are still sent.

    Then its records keep their kafka partition's number, and no other task sends to that kafka partition of the target.
    No class of a user makes or chooses its records, because such a class need not be thread-safe. And no filter of it
    keeps records in memory or in a process of its own, because both would be needed twice at the same time.
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


def _sum_passed_bytes(tasks: Sequence[ReplayTask], reached: Sequence[Position | None]) -> int:
    """Return about how many bytes of the streams' objects were sent."""
    pairs = ((t.stream.facts, p) for t, p in zip(tasks, reached, strict=True) if p is not None)
    return sum(facts.passed_bytes(position.next_source_offset) for facts, position in pairs)


def _describe_position(task: ReplayTask, position: Position | None) -> str:
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
