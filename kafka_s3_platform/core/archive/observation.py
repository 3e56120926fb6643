"""Observe the logs of topics, and check that they are still the archived ones.

An *observation* is consistent: the kafka partitions, the ends of their logs (*frontiers*) and the time of both belong
together. A broker's look-up by time is checked against the log.

An offset holds another record than before if the topic was created again, or if the log has lost its end (was
*truncated*) and has grown again. Topic ids show the first case, leader epochs the second. A *mark* is an archived
offset with its leader epoch. Asked about this epoch, the leader gives the end of its log of the epoch (a *divergence*,
if it is below the mark). A leader loses nothing as long as it leads. So only a later leader than the mark's is asked,
and its answer holds as long as it leads.
"""

import dataclasses
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import TypeAlias, TypeVar

from kafka_s3_platform.core.archive.failures import format_resolve_command
from kafka_s3_platform.core.archive.plan import find_hour_start, find_read_start
from kafka_s3_platform.core.config.settings import ConnectorConfig, KafkaSettings
from kafka_s3_platform.core.errors import (
    BrokerUnavailableError,
    IntegrityError,
    LogTruncatedError,
    PlatformError,
    TopicRecreatedError,
)
from kafka_s3_platform.core.kafka.admin import ClusterAdmin, TopicDescription
from kafka_s3_platform.core.kafka.answers import Answers, OffsetAtTime, RecordOffset
from kafka_s3_platform.core.kafka.new_reader import new_reader
from kafka_s3_platform.core.kafka.offset_admin import FoundTopic
from kafka_s3_platform.core.kafka.record_reader import EpochEnd
from kafka_s3_platform.core.model.frontier import Frontier
from kafka_s3_platform.core.model.gaps import Gap
from kafka_s3_platform.core.model.offsets import OffsetRange, RangeSet, make_span
from kafka_s3_platform.core.model.segment import EpochMark
from kafka_s3_platform.core.model.state import IndexState
from kafka_s3_platform.core.model.times import HOUR, to_epoch_ms

MAX_OBSERVATIONS = 5

T = TypeVar("T")

FindDivergence: TypeAlias = Callable[[Frontier, EpochMark], EpochEnd | None]
"""Asks the leader if its log has all offsets below the mark. Returns the answer of `RecordReader`."""


def observe_until_unchanged(
    admin: ClusterAdmin,
    descriptions: Mapping[str, TopicDescription],
    observe: Callable[[Mapping[str, TopicDescription]], Answers[str, T]],
) -> Answers[str, tuple[TopicDescription, T]]:
    """Return the answers of `observe` by topic, with the topic's description. Observe a topic again if it changes.

    Otherwise a kafka partition that is added, or a topic that is created again, between the description and the
    frontiers would appear in only one of them. Fewer kafka partitions afterwards do not count as a change: a topic
    never loses one, so the broker is behind. A topic that changes during every observation fails with
    BrokerUnavailableError.
    """
    observed: dict[str, tuple[TopicDescription, T]] = {}
    failures: dict[str, PlatformError] = {}
    pending = descriptions
    for _ in range(MAX_OBSERVATIONS):
        answers = observe(pending)
        current = admin.find_topics(answers.results)
        failures |= {**answers.failures, **current.failures}
        changed = [topic for topic, topic_now in current.results.items() if _has_changed(pending[topic], topic_now)]
        observed |= {
            topic: (pending[topic], answers.results[topic]) for topic in current.results if topic not in changed
        }
        if not changed:
            return Answers(observed, failures)
        described = admin.describe_topics(changed)
        failures |= described.failures
        pending = described.results
    failures |= {topic: _build_change_error(topic) for topic in pending}
    return Answers(observed, failures)


def _has_changed(description: TopicDescription, current: FoundTopic) -> bool:
    """Return True if the topic was created again, or has got new kafka partitions, since it was described."""
    is_same = current.topic_id == description.topic_id
    return not is_same or not {*current.kafka_partitions} <= {*description.kafka_partitions}


def _build_change_error(topic: str) -> BrokerUnavailableError:
    return BrokerUnavailableError(
        f"topic {topic}: its id or its kafka partitions changed during each of {MAX_OBSERVATIONS} observations; "
        f"nothing was committed. Run again when nobody changes it"
    )


def complete_frontiers(
    description: TopicDescription, observed_at: datetime, frontiers: Mapping[int, Frontier]
) -> dict[int, Frontier]:
    """Add the number of kafka partitions and the time of the observation to the frontiers, for the index.

    `observed_at` is `StoreClock.earlier_now()` from before the broker was asked, so no machine alone decides that an
    hour is over.
    """
    count = len(description.kafka_partitions)
    return {
        p: dataclasses.replace(f, kafka_partition_count=count, observed_at=observed_at) for p, f in frontiers.items()
    }


def compare_starts(
    config: ConnectorConfig,
    topic: str,
    state: IndexState,
    frontiers: Iterable[Frontier],
    hour: datetime,
    starts: Mapping[int, OffsetAtTime],
) -> Answers[int, bool]:
    """Check the reported start of `hour` against the log, by the timestamps of the records there.

    `starts` are the answers of ListOffsets for the hour. For each kafka partition that needs this check, return True if
    its start is confirmed. A broker does not check the offsets of a batch, so a record may claim an offset far beyond
    its place. The start is not confirmed if the reader sees no record there, or one with a timestamp other than the
    reported one, if the record before it is not earlier than the hour, or if either cannot be read. An honest broker
    may report an aborted record or a marker, and librdkafka shows neither (see `RecordReader.find_timestamp`).

    No check is needed if the archive reaches up to the start, or if reading begins before it. So a run of the hour
    after an archived one asks nothing.
    """
    offsets = {
        f.kafka_partition: o for f in frontiers if (o := _find_unchecked_start(state, f, hour, starts)) is not None
    }
    if not offsets:
        return Answers({}, {})
    confirmed: dict[int, bool] = {}
    failures: dict[int, PlatformError] = {}
    with new_reader(config.kafka, topic, allow_gaps=True, skip_unreadable=True) as reader:
        for kafka_partition, offset in offsets.items():
            try:
                previous_timestamp = reader.find_timestamp(kafka_partition, offset - 1)
                confirmed[kafka_partition] = (
                    previous_timestamp is None or previous_timestamp < to_epoch_ms(hour)
                ) and (reader.find_timestamp(kafka_partition, offset) == offset.timestamp_ms)
            except IntegrityError:
                confirmed[kafka_partition] = False
            except PlatformError as err:
                failures[kafka_partition] = err
    return Answers(confirmed, failures)


def _find_unchecked_start(
    state: IndexState, frontier: Frontier, hour: datetime, starts: Mapping[int, OffsetAtTime]
) -> RecordOffset | None:
    """Return the hour's start as ListOffsets gives it. Return None if there is none, or if it needs no check."""
    kafka_partition = frontier.kafka_partition
    offset = starts.get(kafka_partition)
    if not isinstance(offset, RecordOffset):
        return None
    start = find_hour_start(state, frontier, offset)
    # when the hour before was planned, all records of this hour were found to lie above the start of that one
    previous = state.hour_start(kafka_partition, hour - HOUR)
    floor = frontier.log_start_offset if previous is None else previous
    is_archived = state.coverage(kafka_partition).covers(floor, start)
    return None if is_archived or find_read_start(state, kafka_partition, hour, start) < start else offset


@contextmanager
def open_divergence_finder(kafka: KafkaSettings, topic: str) -> Iterator[FindDivergence]:
    """Yield a function that asks the topic's leaders for a divergence. It connects at the first call."""
    with ExitStack() as stack:
        open_reader = cache(
            lambda: stack.enter_context(new_reader(kafka, topic, allow_gaps=True, skip_unreadable=True))
        )
        yield cache(
            lambda frontier, mark: open_reader().find_divergence(
                frontier.kafka_partition, mark.offset, mark.leader_epoch
            )
        )


def refuse_another_topic(description: TopicDescription | FoundTopic, state: IndexState) -> None:
    """Refuse a topic other than the archived one, and an answer that lacks any of its kafka partitions."""
    topic = description.topic
    archived = state.topic
    if archived and archived.topic_id != description.topic_id:
        raise TopicRecreatedError(
            f"topic {topic} has id {description.topic_id}, the archive holds {archived.topic_id}: it was deleted "
            f"and created again. Archive it under another connector name and another topics.dir, lest its offsets and "
            f"objects mix with the old ones"
        )
    if missing := sorted({*(archived.kafka_partitions if archived else ())} - {*description.kafka_partitions}):
        raise BrokerUnavailableError(
            f"topic {topic}: the broker knows nothing of kafka partitions {', '.join(map(str, missing))}, which the "
            f"archive holds of it, and a topic never loses one: the broker's metadata is behind. Run again"
        )


@dataclass(frozen=True)
class Truncation:
    """Archived offsets the log has lost. `is_start_exact` is False if their start is unknown, and may be later.

    `leader_epoch` is the log's epoch before them, or None if it is unknown.
    """

    offsets: OffsetRange
    is_start_exact: bool
    leader_epoch: int | None


@dataclass(frozen=True)
class ArchivedLogs:
    """One topic's logs according to the index, to be compared with the current logs of the same topic.

    Every plan makes this comparison before anything is read, because the offsets of a changed log mean other records.
    """

    config: ConnectorConfig
    topic: str
    state: IndexState
    find_divergence: FindDivergence

    def find_changed(self, frontiers: Mapping[int, Frontier]) -> dict[int, PlatformError]:
        """Return an error for each kafka partition whose log is not, or may not be, the archived one.

        A LogTruncatedError is returned each time until somebody accepts the truncation (`kafka-s3 resolve`).
        """
        return dict(self._ask_each(frontiers, self._refuse_truncated).failures)

    def refuse_changed(self, frontiers: Mapping[int, Frontier]) -> None:
        """Raise the errors of `find_changed`."""
        Answers({}, self.find_changed(frontiers)).all_or_raise()

    def find_cut_off(self, frontiers: Mapping[int, Frontier]) -> Answers[int, tuple[Gap, ...]]:
        """Find unarchived offsets lost by truncated logs. Other records may have these offsets by now.

        Only kafka partitions with such losses are in the answer. The last recorded frontier shows how far the log
        reached.
        """
        losses = self._ask_each(frontiers, self._find_unarchived_truncation)
        gaps = {
            p: tuple(
                Gap(p, r.start_offset, r.end_offset, "cut off", observed_at=frontiers[p].observed_at) for r in offsets
            )
            for p, offsets in losses.results.items()
            if offsets
        }
        return Answers(gaps, losses.failures)

    def find_truncation(self, frontier: Frontier) -> Truncation | None:
        """Find the archived offsets the log has lost. Return None if it has all, or if the loss was accepted.

        Scans and gaps record the log's leader epoch at their end. The leader is asked for the lowest of these ends its
        log has lost. If the epochs show nothing, the start is the lowest offset at which the log may differ.
        """
        marks = self._list_marks(frontier)
        if self._find_loss(frontier, marks) is None:
            return None
        covered = self.state.coverage(frontier.kafka_partition)
        end = covered.end_offset or 0
        at = bisect_left(marks, x=True, key=lambda mark: self.find_divergence(frontier, mark) is not None)
        divergence = self.find_divergence(frontier, marks[at]) if at < len(marks) else None
        # The log itself has records of that epoch, so it is the archived log up to their end.
        if divergence is not None and divergence.leader_epoch == marks[at].leader_epoch:
            offsets = OffsetRange(divergence.end_offset, end)
            return Truncation(offsets, is_start_exact=True, leader_epoch=divergence.leader_epoch)
        shared = marks[at - 1] if at else None
        lowest = covered.ranges[0].start_offset if shared is None else shared.offset
        start = min(lowest, frontier.last_stable_offset, end - 1)
        epoch = None if shared is None or start < shared.offset else shared.leader_epoch
        return Truncation(OffsetRange(start, end), is_start_exact=False, leader_epoch=epoch)

    def _list_marks(self, frontier: Frontier) -> list[EpochMark]:
        """Return archived offsets with their leader epochs, in order, for the leader to say if its log has them."""
        kafka_partition = frontier.kafka_partition
        leader_epoch = frontier.leader_epoch
        expected_end = self._find_expected_end(kafka_partition)
        lowest = max(1, frontier.log_start_offset)
        # a leader knows nothing of a later epoch than its own
        marks = [
            mark
            for mark in self.state.list_epoch_marks(kafka_partition)
            if leader_epoch is not None and mark.leader_epoch <= leader_epoch and lowest <= mark.offset <= expected_end
        ]
        last_frontier = self._find_last_frontier(kafka_partition)
        last_mark = None if last_frontier is None else self._make_mark(frontier, last_frontier)
        if last_mark is not None:
            # nobody may know the epoch of the archive's end itself
            mark_end = min(last_mark.offset, expected_end)
            if mark_end >= lowest and mark_end > (marks[-1].offset if marks else 0):
                marks.append(EpochMark(mark_end, last_mark.leader_epoch))
        return marks

    def _find_loss(self, frontier: Frontier, marks: Sequence[EpochMark]) -> str | None:
        """Describe how the log shows that it has lost archived records. Return None if nothing shows it."""
        expected_end = self._find_expected_end(frontier.kafka_partition)
        if expected_end > frontier.last_stable_offset:
            return f"the log is readable up to {frontier.last_stable_offset}"
        divergence = self.find_divergence(frontier, marks[-1]) if marks else None
        if divergence is None:
            return None
        return f"the log holds other records from offset {divergence.end_offset} on at the latest"

    def _ask_each(self, frontiers: Mapping[int, Frontier], ask: Callable[[Frontier], T]) -> Answers[int, T]:
        """Call `ask` with each frontier. The error of one kafka partition becomes its failure."""
        answers: dict[int, T] = {}
        failures: dict[int, PlatformError] = {}
        for kafka_partition, frontier in frontiers.items():
            try:
                answers[kafka_partition] = ask(frontier)
            except PlatformError as err:
                failures[kafka_partition] = err
        return Answers(answers, failures)

    def _refuse_truncated(self, frontier: Frontier) -> None:
        """Raise LogTruncatedError if the log has lost archived records. Its leader is asked only if it is a new one."""
        marks = self._list_marks(frontier)
        if loss := self._find_loss(frontier, [] if self._has_same_leader(frontier, marks) else marks):
            raise self._build_truncation_error(frontier, loss)

    def _has_same_leader(self, frontier: Frontier, marks: Sequence[EpochMark]) -> bool:
        """Return True if the current leader already led at the expected end, because a leader loses nothing."""
        if marks and marks[-1].leader_epoch == frontier.leader_epoch:
            return True
        expected_end = self._find_expected_end(frontier.kafka_partition)
        frontiers = self.state.observations.of(frontier.kafka_partition)
        same_leader = (
            earlier_frontier for earlier_frontier in frontiers if earlier_frontier.leader_epoch == frontier.leader_epoch
        )
        return any(earlier_frontier.last_stable_offset >= expected_end for earlier_frontier in same_leader)

    def _build_truncation_error(self, frontier: Frontier, loss: str) -> LogTruncatedError:
        """Build the error of a truncated log. `loss` describes how the log shows the truncation."""
        kafka_partition = frontier.kafka_partition
        end = self.state.coverage(kafka_partition).end_offset
        accept = format_resolve_command(self.config.name, self.topic, kafka_partition, "--accept-truncation")
        return LogTruncatedError(
            f"{self.topic}-{kafka_partition}: the archive reaches offset {end}, {loss}: it was truncated (unclean "
            f"leader election?). Nothing of this kafka partition is read until somebody decides. To keep what is "
            f"archived and go on at offset {end}: {accept}"
        )

    def _find_expected_end(self, kafka_partition: int) -> int:
        """Return the end of the archived offsets the log is expected to have."""
        expected = self.state.coverage(kafka_partition) - self.state.gap_offsets(kafka_partition, "truncated")
        return expected.end_offset or 0

    def _find_last_frontier(self, kafka_partition: int) -> Frontier | None:
        """Return the last frontier, or an earlier one of the same leader that ends later: a leader loses nothing."""
        frontiers = self.state.observations.of(kafka_partition)
        same_leader = (frontier for frontier in frontiers if frontier.leader_epoch == frontiers[-1].leader_epoch)
        return max(same_leader, key=lambda frontier: frontier.high_watermark, default=None)

    def _make_mark(self, frontier: Frontier, last: Frontier) -> EpochMark | None:
        """Return the end and the epoch of an earlier leader's log. Return None if the leader is the same or unknown."""
        earlier_epoch, leader_epoch = last.leader_epoch, frontier.leader_epoch
        return (
            None
            if earlier_epoch is None or leader_epoch is None or leader_epoch <= earlier_epoch
            else EpochMark(last.high_watermark, earlier_epoch)
        )

    def _find_unarchived_truncation(self, frontier: Frontier) -> RangeSet:
        """Return the offsets, never archived, that the log has lost from its end since it was last observed.

        Offsets that retention deleted from the log's start do not count. If it deleted all of the observed log, there
        are none.
        """
        last_frontier = self._find_last_frontier(frontier.kafka_partition)
        if last_frontier is None or last_frontier.high_watermark <= frontier.log_start_offset:
            return RangeSet()
        lost = make_span(self._find_shared_end(frontier, last_frontier), last_frontier.high_watermark)
        return lost - self._find_archived_by(last_frontier) if lost else lost

    def _find_archived_by(self, last_frontier: Frontier) -> RangeSet:
        """Return the part of the last observed log that is archived, or was given up since then."""
        kafka_partition = last_frontier.kafka_partition
        read_later = RangeSet(
            scan.offsets
            for scan in self.state.scans
            if scan.kafka_partition == kafka_partition
            and _may_be_later_epoch(scan.leader_epoch, last_frontier.leader_epoch)
        )
        given_up_before = RangeSet(
            gap.offsets
            for gap in self.state.gaps_of(kafka_partition)
            if gap.reason == "truncated"
            and gap.observed_at is not None
            and gap.observed_at <= last_frontier.observed_at
        )
        archived = self.state.coverage(kafka_partition) - self.state.deleted(kafka_partition)
        return archived - read_later - given_up_before

    def _find_shared_end(self, frontier: Frontier, last_frontier: Frontier) -> int:
        """Return the end of the offsets this log shares with the last observed one, as far as it is known."""
        earlier_epoch, leader_epoch = last_frontier.leader_epoch, frontier.leader_epoch
        if earlier_epoch is None or leader_epoch is None or leader_epoch < earlier_epoch:
            return frontier.high_watermark
        if leader_epoch == earlier_epoch and last_frontier.high_watermark <= frontier.high_watermark:
            return last_frontier.high_watermark
        divergence = self.find_divergence(frontier, EpochMark(last_frontier.high_watermark, earlier_epoch))
        shared_end = last_frontier.high_watermark if divergence is None else divergence.end_offset
        # under the current leader, the end may have moved on since
        is_known = divergence is None or (leader_epoch != earlier_epoch and divergence.leader_epoch is not None)
        if is_known and frontier.high_watermark < shared_end:
            raise BrokerUnavailableError(
                f"{self.topic}-{frontier.kafka_partition}: the broker says that the log ends at offset "
                f"{frontier.high_watermark}, and that it still has what was seen there up to {shared_end}: its answers "
                f"are behind. Run again"
            )
        if divergence is None or leader_epoch == earlier_epoch:
            # a leader loses nothing: if the log is shorter now, its end was reported too high before
            return last_frontier.high_watermark
        if divergence.leader_epoch == earlier_epoch:
            return divergence.end_offset
        # The earlier leader may have followed another log before that end. Archived records are known to be shared.
        archived = self.state.coverage(frontier.kafka_partition).end_offset or frontier.log_start_offset
        return min(divergence.end_offset, archived)


def _may_be_later_epoch(epoch: int | None, reference: int | None) -> bool:
    """Return True if a leader epoch is, or may be, later than another one. An unknown one (None) may be."""
    return epoch is None or reference is None or epoch > reference


def read_epoch_of_gap(kafka: KafkaSettings, topic: str, frontier: Frontier, offsets: OffsetRange) -> int | None:
    """Read the leader epoch of the last record before the end of a new gap. Return None if it is unknown.

    The log has to be compared with the archived one before, because the epoch of another log would hide a truncation.
    Raises the errors of reading a range.
    """
    if not frontier.log_start_offset < offsets.end_offset <= frontier.last_stable_offset:
        return None
    with new_reader(kafka, topic, allow_gaps=True, skip_unreadable=True) as reader:
        read = reader.read(frontier.kafka_partition, OffsetRange(offsets.end_offset - 1, offsets.end_offset))
        deque(read, maxlen=0)
        return read.end.leader_epoch
