"""Verifies that the targets hold what was sent: each record once, in order, in the topics that the restore began with.

docs/restore.md, "Verification", says what is compared with what, and what is not.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kafka_s3_platform.errors import IntegrityError
from kafka_s3_platform.kafka.admin import ClusterAdmin
from kafka_s3_platform.model.frontier import Frontier
from kafka_s3_platform.restore.preflight.goal import Goal, find_new_refusals, look_at_goals
from kafka_s3_platform.restore.replay.spec import ReplayResult, ReplayTask
from kafka_s3_platform.restore.replay.target_log import await_settled_logs
from kafka_s3_platform.restore.request import KafkaPartitionReport, RestoreRequest, TargetReport
from kafka_s3_platform.restore.verify.read_back import Reached, VerifiedStream, verify_stream
from kafka_s3_platform.restore.verify.target_count import count_target, group_by_target
from kafka_s3_platform.spark.progress import Progress
from kafka_s3_platform.spark.runner import TaskRunner

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Verified:
    """What was found. `notes` are sentences about parts of the targets that were not read."""

    kafka_partitions: tuple[KafkaPartitionReport, ...]
    targets: tuple[TargetReport, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Look:
    """The targets at one moment. `refusals` are sentences about configs that the preflight would refuse, by topic."""

    logs: Mapping[str, Mapping[int, Frontier]]
    refusals: Mapping[str, Sequence[str]]

    def find_unchanged(self, read: Sequence[VerifiedStream]) -> list[VerifiedStream]:
        """Return the streams whose kafka partition of the target is as it was when they were read back.

        Where configs have changed, nobody knows: compaction moves neither start nor end of a log.
        """
        targets = [(stream, stream.reached[0]) for stream in read]
        return [
            stream
            for stream, reached in targets
            if not self.refusals[reached.target.to_topic]
            and is_as_it_was(reached, self.logs[reached.target.to_topic][reached.target.kafka_partition])
        ]

    @property
    def notes(self) -> list[str]:
        """Tell what others changed."""
        return [
            f"the configs of {topic} were changed after the first record was sent, so all of it was read back at the "
            f"end. Before a restore they are refused: {refusal}"
            for topic, refusals in self.refusals.items()
            for refusal in refusals
        ]


@dataclass(frozen=True)
class Verification:
    """All streams that were sent, and the targets as they were before this run sent its first record."""

    request: RestoreRequest
    streams: Sequence[ReplayTask]
    goals: Sequence[Goal]
    runner: TaskRunner

    def run(self, sent: Sequence[ReplayResult], early: Sequence[VerifiedStream]) -> Verified:
        """Read every target back. Of the streams that were read back `early`, only those whose targets have changed.

        Raises:
            IntegrityError: a record that was sent is not there, or not in order.
            TopicRecreatedError, MissingTopicError: a target is not the topic that the restore began with.
            PreflightError: keys choose the kafka partition, and a target has another number of them now.
            OpenTransactionError: an open transaction hides whether all records are there.
        """
        # Look before reading too: another topic of that name would only show that records are missing.
        look = self._look(awaits_transactions=True)
        taken = look.find_unchanged(early)
        read: list[VerifiedStream] = []
        while True:
            try:
                read += self._match({stream.place for stream in (*taken, *read)})
                streams = [*taken, *read]
                targets = self._count(streams)
                self._check_all_found(sent, streams)
            except IntegrityError as err:
                raise err.retell("\n".join((str(err), *look.notes))) from err
            # Look again, after everything else. A target may have been deleted, or changed, while others were read; and
            # a single answer may be a stale one, of a broker that is behind.
            look = self._look()
            unchanged = look.find_unchanged(taken)
            if len(unchanged) == len(taken):
                break
            taken = unchanged
        reports = [_add_extra(s, targets) for s in streams]
        in_order = sorted(reports, key=lambda r: (r.topic, r.kafka_partition))
        hidden = [_describe_hidden(t) for t in targets.values() if t.open_offset is not None]
        notes = (*hidden, *self._describe_unread(look), *look.notes)
        return Verified(tuple(in_order), tuple(targets.values()), notes)

    def _look(self, *, awaits_transactions: bool = False) -> _Look:
        """Look at the targets, and check that they are those of the plan."""
        with ClusterAdmin(self.request.target_kafka) as admin:
            now = look_at_goals(self.request, [goal.plan for goal in self.goals], admin)
            logs = {goal.plan.to_topic: goal.target.frontiers for goal in now}
            if awaits_transactions:
                # Once for all tasks. The cluster may still be writing the ends of our own.
                logs = {name: await_settled_logs(admin, name, self._list_reached(name)) for name in logs}
        pairs = zip(self.goals, now, strict=True)
        return _Look(logs, {goal.plan.to_topic: find_new_refusals(goal, found) for goal, found in pairs})

    def _list_reached(self, to_topic: str) -> list[int]:
        return sorted({number for task in self.streams if task.to_topic == to_topic for number, _ in task.reached})

    def _describe_unread(self, look: _Look) -> Iterator[str]:
        """Tell where the targets grew that was not read."""
        for goal in sorted(self.goals, key=lambda g: g.plan.to_topic):
            name = goal.plan.to_topic
            unread = look.logs[name].keys() - set(self._list_reached(name))
            before = dict(goal.plan.start.offsets) if goal.plan.start else {}
            grown = [p for p in sorted(unread) if look.logs[name][p].high_watermark > before.get(p, 0)]
            if grown:
                yield (
                    f"{name}: kafka partitions {', '.join(map(str, grown))} grew since the restore began. None of its "
                    f"records go there, so they were not read back"
                )

    def _match(self, done: set[tuple[str, int]]) -> list[VerifiedStream]:
        tasks = {(t.named_topic, t.kafka_partition): t for t in self.streams}
        left = [task for place, task in tasks.items() if place not in done]
        what = f"verify {self.request.restore_id}"
        progress = Progress(logger, what, len(left), sum(t.stream.size for t in left))
        streams: list[VerifiedStream] = []
        for stream in self.runner.run_grouped(
            verify_stream, left, self.request.config.tasks_max, lambda t: t.stream.size
        ):
            report = stream.report
            progress.advance(tasks[stream.place].stream.size, report.record_count, report.record_bytes)
            streams.append(stream)
        return streams

    def _count(self, streams: Sequence[VerifiedStream]) -> dict[tuple[str, int], TargetReport]:
        """Report what was read at each place. Count its records where some may be there twice, or belong to others."""
        reached: dict[tuple[str, int], Reached] = {}
        for stream in streams:
            reached.update((found.target.place, found) for found in stream.reached)
        # A single stream that was matched without extra records needs no counting.
        tasks = [t for t in group_by_target(self.streams) if len(t.replays) > 1 or reached[t.place].extra_count]
        reports = {place: found.target for place, found in reached.items()}
        for report in self.runner.run_grouped(count_target, tasks, self.request.config.tasks_max, lambda t: t.size):
            reports[report.place] = report
        return dict(sorted(reports.items()))

    def _check_all_found(self, sent: Sequence[ReplayResult], streams: Sequence[VerifiedStream]) -> None:
        """Check that as many records were found as all runs of the restore together have sent."""
        # Not the count of the position: it lacks records whose target offset the broker did not report.
        counts = {(r.topic, r.kafka_partition): r.found_count + r.sent_count for r in sent}
        wrong: list[str] = []
        for stream in streams:
            found = stream.report
            count = counts[found.topic, found.kafka_partition]
            if count != found.record_count:
                wrong.append(
                    f"of {found.topic or self.request.topic}-{found.kafka_partition} {count:,} were sent, and "
                    f"{found.record_count:,} of those that would be sent now are there"
                )
        if wrong:
            raise IntegrityError(
                f"restore {self.request.restore_id} is not verified: {'; '.join(wrong)}. What decides about records "
                f"(an object, a condition, a class of your own) has given another answer since they were sent. Restore "
                f"to another topic, under another restore id"
            )


def is_as_it_was(reached: Reached, log: Frontier) -> bool:
    """Whether a kafka partition of a target is as it was when it was read back. What is not known may be otherwise.

    It has the same end, in the same leader epoch: so its end was not lost and written again. It still has its start.
    Nothing in it was hidden, or is.
    """
    target = reached.target
    is_whole = target.open_offset is None and log.last_stable_offset == log.high_watermark == target.end_offset
    is_held = log.log_start_offset <= target.start_offset
    return is_whole and is_held and reached.leader_epoch is not None and log.leader_epoch == reached.leader_epoch


def _add_extra(stream: VerifiedStream, targets: Mapping[tuple[str, int], TargetReport]) -> KafkaPartitionReport:
    """Add what else the kafka partition of the target holds, if no other stream goes there."""
    if len(stream.reached) > 1:
        return stream.report
    [reached] = stream.reached
    target = targets[reached.target.place]
    if target.stream_count > 1:
        return stream.report
    return replace(stream.report, foreign_count=target.foreign_count, doubled_count=target.doubled_count)


def _describe_hidden(target: TargetReport) -> str:
    return (
        f"{target.to_topic}-{target.kafka_partition}: a transaction of another writer is open at offset "
        f"{target.open_offset}. All records of the restore were found before it; what follows was not read"
    )
