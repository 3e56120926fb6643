"""Verifies that the targets hold what was sent: each record once, in order, in the topics that the restore began with.

docs/restore.md, "Verification", says what is compared with what, and what is not.
"""

import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kafka_s3_platform.errors import IntegrityError
from kafka_s3_platform.kafka.admin import ClusterAdmin
from kafka_s3_platform.model.frontier import Frontier
from kafka_s3_platform.restore.preflight.begin import check_target
from kafka_s3_platform.restore.preflight.checks import describe_if_there
from kafka_s3_platform.restore.replay.spec import ReplayResult, ReplayTask
from kafka_s3_platform.restore.replay.target_log import await_settled_logs
from kafka_s3_platform.restore.request import KafkaPartitionReport, RestoreRequest, TargetReport
from kafka_s3_platform.restore.source.base import TargetStart
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
class Verification:
    """All streams that were sent, and the ends of each target topic, by its name, before the restore."""

    request: RestoreRequest
    streams: Sequence[ReplayTask]
    targets: Mapping[str, TargetStart]
    runner: TaskRunner

    def run(self, sent: Sequence[ReplayResult], early: Sequence[VerifiedStream]) -> Verified:
        """Read every target back. Of the streams that were read back `early`, only those whose targets have changed.

        Raises:
            IntegrityError: a record that was sent is not there, or not in order.
            TopicRecreatedError, MissingTopicError: a target is not the topic that the restore began with.
            PreflightError: keys choose the kafka partition, and a target has another number of them now.
            OpenTransactionError: an open transaction hides whether all records are there.
        """
        with ClusterAdmin(self.request.target_kafka) as admin:
            # Check before reading too: another topic of that name would only show that records are missing.
            self._check_targets(admin)
            self._await_transactions(admin)
            unchanged = self._find_unchanged(admin, early)
        streams = [*unchanged, *self._match({stream.place for stream in unchanged})]
        targets = self._count(streams)
        self._check_all_found(sent, streams)
        with ClusterAdmin(self.request.target_kafka) as admin:
            # Check again: a target may have been deleted or created again while it was read.
            unread = self._check_targets(admin)
        reports = [_add_extra(s, targets) for s in streams]
        in_order = sorted(reports, key=lambda r: (r.topic, r.kafka_partition))
        hidden = [_describe_hidden(t) for t in targets.values() if t.open_offset is not None]
        return Verified(tuple(in_order), tuple(targets.values()), (*hidden, *unread))

    def _check_targets(self, admin: ClusterAdmin) -> list[str]:
        """Check that the targets are those of the plan. Return sentences about what is not read of them."""
        unread: list[str] = []
        for name, start in sorted(self.targets.items()):
            unread += self._check_target(admin, name, start)
        return unread

    def _check_target(self, admin: ClusterAdmin, to_topic: str, start: TargetStart) -> Iterator[str]:
        request = replace(self.request, to_topic=to_topic)
        topic = check_target(request, start, describe_if_there(admin, to_topic))
        read: set[int] = set()
        for task in self.streams:
            if task.to_topic == to_topic:
                read.update(number for number, _ in task.reached)
        unread = sorted(set(topic.kafka_partitions) - read)
        before = dict(start.offsets)
        logs = admin.frontiers(to_topic, unread) if unread else {}
        grown = [number for number in unread if logs[number].high_watermark > before.get(number, 0)]
        if grown:
            yield (
                f"{to_topic}: kafka partitions {', '.join(map(str, grown))} grew since the restore began. None of its "
                f"records go there, so they were not read back"
            )

    def _await_transactions(self, admin: ClusterAdmin) -> None:
        """Wait for open transactions here, once for all tasks. The cluster may still be writing the ends of our own."""
        numbers: dict[str, set[int]] = defaultdict(set)
        for task in self.streams:
            numbers[task.to_topic].update(number for number, _ in task.reached)
        for name, found in numbers.items():
            await_settled_logs(admin, name, sorted(found))

    def _find_unchanged(self, admin: ClusterAdmin, early: Sequence[VerifiedStream]) -> list[VerifiedStream]:
        """Return the streams whose kafka partition of the target is as it was when they were read back."""
        wanted: dict[str, list[VerifiedStream]] = defaultdict(list)
        for stream in early:
            wanted[stream.reached[0].target.to_topic].append(stream)
        found: list[VerifiedStream] = []
        for topic, streams in wanted.items():
            logs = admin.frontiers(topic, [stream.reached[0].target.kafka_partition for stream in streams])
            found += (s for s in streams if is_as_it_was(s.reached[0], logs[s.reached[0].target.kafka_partition]))
        return found

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
