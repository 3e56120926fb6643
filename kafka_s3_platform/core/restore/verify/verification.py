"""Verifies that the targets hold the sent records: each once, in order, in the topics the restore began with.

docs/restore-proof.md, "Verification", describes the comparisons and their limits.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kafka_s3_platform.core.errors import IntegrityError
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.model.frontier import Frontier
from kafka_s3_platform.core.restore.preflight.goal import Goal, find_new_refusals, observe_goals
from kafka_s3_platform.core.restore.replay.spec import ReplayResult, ReplayTask
from kafka_s3_platform.core.restore.replay.target_log import await_settled_logs
from kafka_s3_platform.core.restore.request import KafkaPartitionReport, RestoreRequest, TargetReport
from kafka_s3_platform.core.restore.verify.read_back import Reached, VerifiedStream, verify_stream
from kafka_s3_platform.core.restore.verify.target_count import count_target, group_by_target
from kafka_s3_platform.core.spark.progress import Progress
from kafka_s3_platform.core.spark.runner import TaskRunner

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Verified:
    """The result of a verification. `notes` are pairs of a target topic and a sentence on unread or changed parts."""

    kafka_partitions: tuple[KafkaPartitionReport, ...] = ()
    targets: tuple[TargetReport, ...] = ()
    notes: tuple[tuple[str, str], ...] = ()

    def __add__(self, other: "Verified") -> "Verified":
        """Return both, in the order of a single verification."""
        parts = sorted((*self.kafka_partitions, *other.kafka_partitions), key=lambda p: (p.topic, p.kafka_partition))
        targets = sorted((*self.targets, *other.targets), key=lambda t: t.place)
        return Verified(tuple(parts), tuple(targets), (*self.notes, *other.notes))


@dataclass(frozen=True)
class _TargetStates:
    """The targets at one moment. `refusals` are, by topic, sentences on configs that preflight would refuse."""

    logs: Mapping[str, Mapping[int, Frontier]]
    refusals: Mapping[str, Sequence[str]]

    def find_unchanged(self, read: Sequence[VerifiedStream]) -> list[VerifiedStream]:
        """Return the streams whose kafka partition of the target has not changed since they were read back.

        If there are refusals, this is unknown: compaction, for example, moves neither the start nor the end of a log.
        """
        targets = [(stream, stream.reached[0]) for stream in read]
        return [
            stream
            for stream, reached in targets
            if not self.refusals[reached.target.to_topic]
            and is_as_it_was(reached, self.logs[reached.target.to_topic][reached.target.kafka_partition])
        ]

    @property
    def notes(self) -> list[tuple[str, str]]:
        """The changes by others: pairs of a target topic and a sentence."""
        when = "after the first record was sent, so all of it was read back at the end"
        return [
            (topic, f"the configs of {topic} were changed {when}. Before a restore they are refused: {refusal}")
            for topic, refusals in self.refusals.items()
            for refusal in refusals
        ]


@dataclass(frozen=True)
class Verification:
    """All sent streams, and the targets as they were before this run sent its first record."""

    request: RestoreRequest
    streams: Sequence[ReplayTask]
    goals: Sequence[Goal]
    runner: TaskRunner

    def run(self, sent: Sequence[ReplayResult], early: Sequence[VerifiedStream]) -> Verified:
        """Read every target back, and compare it with what was `sent`.

        Streams read back `early`, while others were sent, are read again only if their targets have changed.

        Raises:
            IntegrityError: a sent record is missing, or out of order.
            TopicRecreatedError, MissingTopicError: a target is no longer the topic the restore began with.
            PreflightError: keys choose the kafka partition, and a target now has another number of kafka partitions.
            OpenTransactionError: an open transaction may hide records.
        """
        # Observe before reading too: another topic of that name would only show missing records.
        states = self._observe(awaits_transactions=True)
        unchanged = states.find_unchanged(early)
        read_back: list[VerifiedStream] = []
        while True:
            try:
                read_back += self._match({stream.place for stream in (*unchanged, *read_back)})
                streams = [*unchanged, *read_back]
                targets = self._count(streams)
                self._check_all_found(sent, streams)
            except IntegrityError as err:
                raise err.retell("\n".join((str(err), *(note for _, note in states.notes)))) from err
            # Observe again, after everything else. A target may have been deleted, or changed, while others were read;
            # and a single answer may be a stale one, of a broker that is behind.
            states = self._observe()
            still_unchanged = states.find_unchanged(unchanged)
            if still_unchanged == unchanged:
                break
            unchanged = still_unchanged
        reports = [_add_extra(s, targets) for s in streams]
        in_order = sorted(reports, key=lambda r: (r.topic, r.kafka_partition))
        hidden = [(t.to_topic, _describe_hidden(t)) for t in targets.values() if t.open_offset is not None]
        notes = (*hidden, *self._describe_unread(states), *states.notes)
        return Verified(tuple(in_order), tuple(targets.values()), notes)

    def _observe(self, *, awaits_transactions: bool = False) -> _TargetStates:
        """Return the targets as they are now: their logs, and the reasons why preflight would now refuse them.

        It raises the errors of `observe_goals`.
        """
        with ClusterAdmin(self.request.target_kafka) as admin:
            now = observe_goals([goal.plan for goal in self.goals], admin)
            logs = {goal.plan.to_topic: goal.target.frontiers for goal in now}
            if awaits_transactions:
                # This is done once for all tasks. The cluster may still be writing the ends of our own transactions.
                for name in logs:
                    reached = {p: logs[name][p] for p in self._list_reached(name)}
                    logs[name] = await_settled_logs(admin, name, reached)
        pairs = zip(self.goals, now, strict=True)
        return _TargetStates(logs, {goal.plan.to_topic: find_new_refusals(goal, goal_now) for goal, goal_now in pairs})

    def _list_reached(self, to_topic: str) -> list[int]:
        """List the kafka partitions of the target topic that may have got records."""
        return sorted(
            {number for task in self.streams if task.to_topic == to_topic for number, _ in task.own_target_starts}
        )

    def _describe_unread(self, states: _TargetStates) -> Iterator[tuple[str, str]]:
        """Describe the kafka partitions of the targets that grew but were not read, by target topic."""
        for goal in sorted(self.goals, key=lambda g: g.plan.to_topic):
            name = goal.plan.to_topic
            others = states.logs[name].keys() - set(self._list_reached(name))
            starts = dict(goal.plan.start.offsets) if goal.plan.start else {}
            grown = [p for p in sorted(others) if states.logs[name][p].high_watermark > starts.get(p, 0)]
            if grown:
                numbers = ", ".join(map(str, grown))
                what = f"{name}: kafka partitions {numbers} grew since the restore began. None of its records go there"
                yield name, f"{what}, so they were not read back"

    def _match(self, verified: set[tuple[str, int]]) -> list[VerifiedStream]:
        """Read back all streams except the `verified` ones, and find each of their records in its target."""
        tasks = {(t.named_topic, t.kafka_partition): t for t in self.streams}
        pending = [task for place, task in tasks.items() if place not in verified]
        what = f"verify {self.request.restore_id}"
        progress = Progress(logger, what, len(pending), sum(t.stream.facts.size for t in pending))
        streams: list[VerifiedStream] = []
        for stream in self.runner.run_grouped(
            verify_stream, pending, self.request.config.tasks_max, lambda t: t.stream.facts.size
        ):
            report = stream.report
            progress.advance(tasks[stream.place].stream.facts.size, report.record_count, report.record_bytes)
            streams.append(stream)
        return streams

    def _count(self, streams: Sequence[VerifiedStream]) -> dict[tuple[str, int], TargetReport]:
        """Report the records read at each place. Count them if some may be repeated, or belong to others."""
        reached: dict[tuple[str, int], Reached] = {}
        for stream in streams:
            reached.update((reached_place.target.place, reached_place) for reached_place in stream.reached)
        # A single stream that was matched without extra records needs no counting.
        tasks = [t for t in group_by_target(self.streams) if len(t.replays) > 1 or reached[t.place].extra_count]
        reports = {place: reached_place.target for place, reached_place in reached.items()}
        for report in self.runner.run_grouped(count_target, tasks, self.request.config.tasks_max, lambda t: t.size):
            reports[report.place] = report
        return dict(sorted(reports.items()))

    def _check_all_found(self, sent: Sequence[ReplayResult], streams: Sequence[VerifiedStream]) -> None:
        """Check that as many records were found as all runs of the restore together have sent."""
        # The position's count is not used: it lacks records whose target offset the broker did not report.
        counts = {(r.topic, r.kafka_partition): r.found_count + r.sent_count for r in sent}
        mismatches: list[str] = []
        for stream in streams:
            report = stream.report
            count = counts[report.topic, report.kafka_partition]
            if count != report.record_count:
                mismatches.append(
                    f"{count:,} records of {report.topic or self.request.topic}-{report.kafka_partition} were sent, "
                    f"but {report.record_count:,} of those that would be sent now are there"
                )
        if mismatches:
            raise IntegrityError(
                f"restore {self.request.restore_id} is not verified: {'; '.join(mismatches)}. Something that decides "
                "about records (an object, a condition, a class of your own) has given other results since they "
                "were sent. Restore to another topic under another restore id"
            )


def is_as_it_was(reached: Reached, log: Frontier) -> bool:
    """Return True if a kafka partition of a target has not changed since it was read back. Unknown counts as changed.

    It must have the same end in the same leader epoch, because otherwise its end may have been lost and written again.
    It must still have its start, and nothing in it may have been hidden, or be hidden now.
    """
    target = reached.target
    is_whole = target.open_offset is None and log.last_stable_offset == log.high_watermark == target.end_offset
    is_held = log.log_start_offset <= target.start_offset
    return is_whole and is_held and reached.leader_epoch is not None and log.leader_epoch == reached.leader_epoch


def _add_extra(stream: VerifiedStream, targets: Mapping[tuple[str, int], TargetReport]) -> KafkaPartitionReport:
    """Add the numbers of other records in the target's kafka partition, if no other stream goes there."""
    if len(stream.reached) > 1:
        return stream.report
    [reached] = stream.reached
    target = targets[reached.target.place]
    if target.stream_count > 1:
        return stream.report
    return replace(stream.report, foreign_count=target.foreign_count, doubled_count=target.doubled_count)


def _describe_hidden(target: TargetReport) -> str:
    """Say that an open transaction hides the end of a target, but no record of the restore."""
    return (
        f"{target.to_topic}-{target.kafka_partition}: a transaction of another writer is open at offset "
        f"{target.open_offset}. All records of the restore were found before it; what follows was not read"
    )
