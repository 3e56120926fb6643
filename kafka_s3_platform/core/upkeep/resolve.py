"""Record decisions: skip unarchived offsets, accept a truncated log, or begin at a later offset."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kafka_s3_platform.core.archive.failures import format_end_command
from kafka_s3_platform.core.archive.observation import (
    ArchivedLogs,
    Truncation,
    observe_until_unchanged,
    open_divergence_finder,
    read_epoch_of_gap,
    refuse_another_topic,
)
from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.errors import BusyError, OpenTransactionError, PermanentError
from kafka_s3_platform.core.kafka.admin import ClusterAdmin, TopicDescription
from kafka_s3_platform.core.kafka.answers import Answers
from kafka_s3_platform.core.model.frontier import Frontier
from kafka_s3_platform.core.model.gaps import Gap, Unresolved, subtract_offsets
from kafka_s3_platform.core.model.offsets import OffsetRange, RangeSet, make_span
from kafka_s3_platform.core.model.segment import TopicGeneration
from kafka_s3_platform.core.model.state import IndexState
from kafka_s3_platform.core.store.index import IndexSnapshot, TopicIndex
from kafka_s3_platform.core.store.index_commit import Change
from kafka_s3_platform.core.store.row_filter import match_unresolved


@dataclass(frozen=True)
class Skip:
    """Give up these offsets. None of them is archived."""

    kafka_partition: int
    offsets: OffsetRange


@dataclass(frozen=True)
class AcceptTruncation:
    """Keep the archived part of a truncated log, and go on at the archive's end."""

    kafka_partition: int


@dataclass(frozen=True)
class BeginAt:
    """Give up the unarchived offsets below `offset`."""

    kafka_partition: int
    offset: int


Decision = Skip | AcceptTruncation | BeginAt


@dataclass(frozen=True)
class ResolveReport:
    """The gaps a decision has recorded or, on a dry run, would record.

    The decision gives up `offset_count` offsets of the log, and `later_count` offsets beyond its end: records written
    there later are not archived either. `is_start_exact` is False if nobody can tell the first truncated offset of a
    log. In this case the gap begins at the lowest possible offset.
    """

    topic: str
    gaps: tuple[Gap, ...]
    offset_count: int
    later_count: int
    dry_run: bool
    is_start_exact: bool = True


def list_unresolved(config: ConnectorConfig, topic: str) -> tuple[Unresolved, ...]:
    """List unarchived offsets of the topic. Raises store errors."""
    snapshot = TopicIndex.of(config, topic).peek()
    return snapshot.state.unresolved if snapshot else ()


def resolve_offsets(
    config: ConnectorConfig, topic: str, decision: Decision, run_id: str, dry_run: bool
) -> ResolveReport:
    """Record a decision as gaps, in one commit. If `dry_run`, only report them.

    Raises:
        BusyError: a run is at work on these offsets.
        PermanentError: there is nothing to decide, or the decision includes records already archived or not written
            yet.
    """
    with ClusterAdmin(config.kafka, begins=True) as admin:

        def decide(snapshot: IndexSnapshot | None) -> tuple[Mapping[str, Change], ResolveReport]:
            state = IndexState() if snapshot is None else snapshot.state
            if snapshot is not None and isinstance(decision, AcceptTruncation):
                # needs every scan: a log that has grown again is compared with the epoch at the end of each
                state = snapshot.unfolded_state
            description, frontier = _observe_kafka_partition(admin, topic, decision.kafka_partition)
            refuse_another_topic(description, state)
            report = _DecisionStep(config, topic, state, frontier).build_report(decision, dry_run)
            _refuse_reserved(config.name, topic, state, report.gaps)
            return {topic: _build_change(state, description.generation, report.gaps, run_id)}, report

        index = TopicIndex.of(config, topic)
        if dry_run:
            return decide(index.peek())[1]
        return index.within_connector.commit_planned(lambda snapshot: decide(snapshot.topic(topic)))


def _observe_kafka_partition(
    admin: ClusterAdmin, topic: str, kafka_partition: int
) -> tuple[TopicDescription, Frontier]:
    """Describe the topic and observe one of its kafka partitions. Repeat both if the topic changes meanwhile."""

    def observe(topics: Mapping[str, TopicDescription]) -> Answers[str, Frontier]:
        answers = admin.frontiers_of(dict.fromkeys(topics, (kafka_partition,)))
        return answers.convert(lambda _, frontiers: frontiers.all_or_raise()[kafka_partition])

    return observe_until_unchanged(admin, {topic: admin.describe_topic(topic)}, observe).all_or_raise()[topic]


def _refuse_reserved(connector: str, topic: str, state: IndexState, gaps: Sequence[Gap]) -> None:
    """Raise BusyError if a run has reserved offsets of the gaps, because it may be archiving them now."""
    offsets = RangeSet(g.offsets for g in gaps)
    ranges = dict.fromkeys((g.kafka_partition for g in gaps), offsets)
    for reservation in state.conflicting(ranges):
        raise BusyError(
            f"topic {topic}, kafka partition {reservation.kafka_partition}: run {reservation.run_id} has reserved "
            f"{reservation.offsets} "
            f"since {reservation.reserved_at:%Y-%m-%d %H:%M:%S} UTC. Decide when it has ended. If it was killed, this "
            f"ends "
            f"its reservation: {format_end_command(connector, topic)}"
        )


def _build_change(state: IndexState, topic: TopicGeneration, gaps: Sequence[Gap], run_id: str) -> Change:
    """Add the gaps, and take their offsets out of the unresolved rows.

    The topic's id is added too, because the offsets mean nothing for another topic of the same name.
    """
    kafka_partition = gaps[0].kafka_partition
    failures = [u for u in state.failures if u.kafka_partition == kafka_partition]
    remaining = subtract_offsets(failures, RangeSet(g.offsets for g in gaps))
    removed = (match_unresolved(kafka_partition),) if failures else ()
    generation = () if state.topic == topic else (topic,)
    return Change(added=(*gaps, *remaining, *generation), removed=removed, run_id=run_id)


@dataclass(frozen=True)
class _DecisionStep:
    """Decides on one kafka partition, based on the current index and log."""

    config: ConnectorConfig
    topic: str
    state: IndexState
    frontier: Frontier

    def build_report(self, decision: Decision, dry_run: bool) -> ResolveReport:
        """Return the report with the decision's gaps. Raises PermanentError if there is nothing to decide."""
        is_start_exact = True
        with open_divergence_finder(self.config.kafka, self.topic) as find_divergence:
            logs = ArchivedLogs(self.config, self.topic, self.state, find_divergence)
            if isinstance(decision, AcceptTruncation):
                truncation = self._find_truncation(logs)
                is_start_exact = truncation.is_start_exact
                lost_offsets = truncation.offsets
                place = (self.frontier.kafka_partition, lost_offsets.start_offset, lost_offsets.end_offset)
                gaps = [Gap(*place, "truncated", truncation.leader_epoch, self.frontier.observed_at)]
            else:
                logs.refuse_changed({self.frontier.kafka_partition: self.frontier})
                offsets = (
                    self._check_skip(decision)
                    if isinstance(decision, Skip)
                    else self._find_missing_below(decision.offset)
                )
                gaps = []
                for skipped in offsets:
                    epoch = read_epoch_of_gap(self.config.kafka, self.topic, self.frontier, skipped)
                    place = (self.frontier.kafka_partition, skipped.start_offset, skipped.end_offset)
                    gaps.append(Gap(*place, "skipped", epoch))
        gap_offsets = RangeSet(g.offsets for g in gaps)
        end = self.frontier.high_watermark
        in_log = gap_offsets & make_span(self.frontier.log_start_offset, end)
        not_written = gap_offsets - make_span(0, end)
        return ResolveReport(
            self.topic, tuple(gaps), sum(map(len, in_log)), sum(map(len, not_written)), dry_run, is_start_exact
        )

    @property
    def _place(self) -> str:
        return f"{self.topic}-{self.frontier.kafka_partition}"

    @property
    def _coverage(self) -> RangeSet:
        return self.state.coverage(self.frontier.kafka_partition)

    def _refuse_unreadable_end(self, end_offset: int) -> None:
        """Raise an error if offsets below `end_offset` are not written yet, or lie in an open transaction."""
        if end_offset > self.frontier.high_watermark:
            raise PermanentError(
                f"{self._place}: the log ends at offset {self.frontier.high_watermark}: what is not written yet cannot "
                f"be given up. Name offsets below {self.frontier.high_watermark}"
            )
        stable = self.frontier.last_stable_offset
        if end_offset > stable:
            raise OpenTransactionError(
                f"{self._place}: a transaction is open at offset {stable}, and what follows it cannot be read yet, nor "
                f"be given up. Name offsets below {stable}, or decide again when it has ended"
            )

    def _check_skip(self, decision: Skip) -> RangeSet:
        """Return the offsets to skip. Refuse offsets already archived or not yet readable."""
        requested = RangeSet([decision.offsets])
        self._refuse_unreadable_end(decision.offsets.end_offset)
        if archived := requested & self._coverage:
            missing = requested - self._coverage
            missing_text = f"; not archived of them: {', '.join(map(str, missing))}" if missing else ""
            raise PermanentError(
                f"{self._place}: offsets {', '.join(map(str, archived))} are archived, and only what is not can be "
                f"skipped{missing_text}"
            )
        return requested

    def _find_missing_below(self, offset: int) -> RangeSet:
        """Return the unarchived offsets below `offset`. Raises PermanentError if there are none."""
        self._refuse_unreadable_end(offset)
        missing = make_span(0, offset) - self._coverage
        if not missing:
            raise PermanentError(
                f"{self._place}: everything below offset {offset} is archived: nothing is to be skipped"
            )
        return missing

    def _find_truncation(self, logs: ArchivedLogs) -> Truncation:
        """Find the log's truncation below the end of the archived offsets. Raises PermanentError if there is none."""
        truncation = logs.find_truncation(self.frontier)
        if truncation is None:
            raise PermanentError(
                f"{self._place}: the log is readable up to offset {self.frontier.last_stable_offset} and holds what is "
                f"archived up to {self._coverage.end_offset or 0}: nothing of it is truncated, or that was accepted "
                f"before. Archive as ever"
            )
        return truncation
