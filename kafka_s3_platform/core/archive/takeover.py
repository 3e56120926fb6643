"""Take over from a running sink, and publish the progress of this archive to tools that watch its consumer group.

Kafka Connect's S3 sinks commit an offset only after all files with records below it are uploaded (Confluent's
documentation of the S3 sink, "Exactly-once delivery"). So their files end at the group's committed offsets, and
archiving begins there. The offsets below these become gaps with the reason "taken over".
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from kafka_s3_platform.core.archive.clock import find_wrong_clocks
from kafka_s3_platform.core.archive.failures import format_end_command
from kafka_s3_platform.core.archive.observation import (
    ArchivedLogs,
    complete_frontiers,
    observe_until_unchanged,
    open_divergence_finder,
    read_epoch_of_gap,
    refuse_another_topic,
)
from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.errors import (
    BusyError,
    LogTruncatedError,
    OffsetGapError,
    OpenTransactionError,
    PermanentError,
    PlatformError,
)
from kafka_s3_platform.core.kafka.admin import ClusterAdmin, TopicDescription
from kafka_s3_platform.core.kafka.answers import Answers
from kafka_s3_platform.core.kafka.groups import publish_offsets, read_committed_offsets, refuse_active_group
from kafka_s3_platform.core.model.frontier import Frontier
from kafka_s3_platform.core.model.gaps import Gap
from kafka_s3_platform.core.model.offsets import RangeSet, make_span
from kafka_s3_platform.core.model.state import IndexState
from kafka_s3_platform.core.store.clock import StoreClock
from kafka_s3_platform.core.store.index import IndexSnapshot, TopicIndex
from kafka_s3_platform.core.store.index_commit import Change, retry_commit
from kafka_s3_platform.core.store.objects import ObjectStore

logger = logging.getLogger(__name__)


def name_group(connector: str) -> str:
    """Return Kafka Connect's name for the consumer group of a sink connector."""
    return f"connect-{connector}"


@dataclass(frozen=True)
class TakeOverReport:
    """The start of archiving after another sink. `offsets` are the group's committed offsets by kafka partition.

    `log_starts` has the log start of each kafka partition without a committed offset: archiving begins there. `gaps`
    are the gaps this call recorded, none if all was taken over before.
    """

    topic: str
    group: str
    offsets: Mapping[int, int]
    log_starts: Mapping[int, int]
    gaps: tuple[Gap, ...]


def record_takeover(config: ConnectorConfig, topic: str, group: str, run_id: str) -> TakeOverReport:
    """Record in one commit that another sink archived everything below the group's committed offsets.

    A second call changes nothing while the group's offsets are the same.

    Raises:
        BusyError: the group has members, or a run is archiving these offsets.
        PermanentError: the group has no offsets, or some of the offsets were archived by this connector.
        OffsetGapError: records from the group's offset on were deleted.
        LogTruncatedError: the log ends before the group's offset.
        OpenTransactionError: a transaction below the group's offset is still open.
    """
    index = TopicIndex.of(config, topic)
    with ClusterAdmin(config.kafka, begins=True) as admin:
        description = admin.describe_topic(topic)
        refuse_active_group(admin, group, f"topic {topic}: taking over")
        offsets = read_committed_offsets(admin, group, topic, description.kafka_partitions)
        if not offsets:
            raise PermanentError(
                f"topic {topic}: consumer group {group} has no committed offset of it: there is nothing to take over. "
                f"Name the old sink's group with --group, or leave this topic out: take the others over, each with "
                f"--topic"
            )
        store = ObjectStore(config.store)
        Answers({}, find_wrong_clocks(config, store, admin, {topic: description})).all_or_raise()
        step = _TakeOver(config, description, group, offsets, store.clock)
        return retry_commit(index, lambda snapshot: step.run(snapshot, admin, run_id))


def publish_coverage(admin: ClusterAdmin, connector: str, topic: str, state: IndexState) -> None:
    """Publish how far each kafka partition is archived without a hole, as the offsets of the connector's group.

    These offsets are for tools that show the lag of groups. Nothing depends on them, so an error is only logged, even
    if the group has members.
    """
    try:
        publish_offsets(admin, name_group(connector), topic, state.contiguous_ends)
    except PlatformError as err:
        logger.warning("topic %s: how far it is archived was not published: %s", topic, err)


@dataclass(frozen=True)
class _TakeOver:
    """The take-over of one topic. `offsets` are the offsets the other sink has committed, by kafka partition."""

    config: ConnectorConfig
    description: TopicDescription
    group: str
    offsets: Mapping[int, int]
    clock: StoreClock

    def run(self, snapshot: IndexSnapshot, admin: ClusterAdmin, run_id: str) -> TakeOverReport:
        """Commit the gaps the index lacks, with an observation of the logs. If it lacks none, commit nothing."""
        state = snapshot.state
        topic = self.description.topic
        observed = observe_until_unchanged(
            admin, {topic: self.description}, lambda descriptions: self._observe(admin, descriptions)
        )
        description, frontiers = observed.all_or_raise()[topic]
        refuse_another_topic(description, state)
        with open_divergence_finder(self.config.kafka, topic) as find_divergence:
            logs = ArchivedLogs(self.config, topic, state, find_divergence)
            logs.refuse_changed(frontiers)
            cut_off = logs.find_cut_off(frontiers).all_or_raise()
        gaps = tuple(g for p in sorted(self.offsets) for g in self._list_gaps(p, frontiers, state))
        if gaps:
            generation = () if state.topic == description.generation else (description.generation,)
            rows = (*gaps, *chain.from_iterable(cut_off.values()), *frontiers.values(), *generation)
            snapshot.commit(Change(added=rows, run_id=run_id))
        log_starts = {p: f.log_start_offset for p, f in frontiers.items() if p not in self.offsets}
        return TakeOverReport(topic, self.group, self.offsets, log_starts, gaps)

    def _observe(
        self, admin: ClusterAdmin, descriptions: Mapping[str, TopicDescription]
    ) -> Answers[str, Mapping[int, Frontier]]:
        """Return the current frontiers (ends of logs) by topic and kafka partition, with the time of observation."""
        observed_at = self.clock.earlier_now()
        frontiers = admin.frontiers_of({topic: described.kafka_partitions for topic, described in descriptions.items()})
        return frontiers.convert(
            lambda topic, answers: complete_frontiers(descriptions[topic], observed_at, answers.all_or_raise())
        )

    def _list_gaps(self, kafka_partition: int, frontiers: Mapping[int, Frontier], state: IndexState) -> Iterator[Gap]:
        """Yield the gaps to record for a kafka partition: offsets of the other sink, and offsets deleted since."""
        below = make_span(0, self.offsets[kafka_partition])
        if below == state.gap_offsets(kafka_partition, "taken over"):
            return
        self._refuse_outside(kafka_partition, frontiers.get(kafka_partition))
        self._refuse_archived(kafka_partition, below, state)
        frontier = frontiers[kafka_partition]
        for r in below - state.coverage(kafka_partition):
            epoch = read_epoch_of_gap(self.config.kafka, self.description.topic, frontier, r)
            yield Gap(kafka_partition, r.start_offset, r.end_offset, "taken over", epoch)
        yield from self._list_deleted(frontier)

    def _refuse_outside(self, kafka_partition: int, frontier: Frontier | None) -> None:
        """Raise an error if the sink's offset lies beyond the log, or beyond an open transaction."""
        where = self._describe_position(kafka_partition)
        remedy = "do not take over, and archive it as a new topic under a topics.dir of its own"
        if frontier is None:
            raise LogTruncatedError(
                f"{where}, and the topic has no such kafka partition: it was deleted and created again since the sink "
                f"read it. Then {remedy}"
            )
        if self.offsets[kafka_partition] > frontier.high_watermark:
            raise LogTruncatedError(
                f"{where}, and it ends at {frontier.high_watermark}: the log was truncated, or the topic deleted and "
                f"created again, since the sink read it. Where it was truncated, set the group's offset to one up to "
                f"which the sink's files and the log hold the same, {frontier.high_watermark} at most: from there on "
                f"the log is archived. Where the topic was created again, {remedy}"
            )
        if self.offsets[kafka_partition] > frontier.last_stable_offset:
            raise OpenTransactionError(
                f"{where}, beyond the transaction that is open at {frontier.last_stable_offset}: take over when it "
                f"has ended"
            )

    def _refuse_archived(self, kafka_partition: int, below: RangeSet, state: IndexState) -> None:
        """Raise an error if this connector itself has archived or reserved offsets of the kafka partition."""
        taken_over = state.gap_offsets(kafka_partition, "taken over")
        covered = state.coverage(kafka_partition)
        if covered != taken_over or taken_over - below:
            raise PermanentError(
                f"{self._describe_position(kafka_partition)}, but connector {self.config.name} has archived "
                f"{', '.join(map(str, covered))} of it: taking over now would leave out records, or have them twice. "
                f"Take over before anything is archived, or under another connector name and topics.dir"
            )
        if state.conflicting({kafka_partition: below}):
            raise BusyError(
                f"{self._describe_position(kafka_partition)}, and a run has reserved offsets below it, to archive "
                f"them. End it; "
                f"then what it has reserved is ended by "
                f"{format_end_command(self.config.name, self.description.topic)}"
            )

    def _list_deleted(self, frontier: Frontier) -> Iterator[Gap]:
        """Yield the gap between the sink's offset and the log start. Raises OffsetGapError unless gaps are allowed."""
        kafka_partition = frontier.kafka_partition
        offset = self.offsets[frontier.kafka_partition]
        for r in make_span(offset, frontier.log_start_offset):
            if not self.config.archive.allow_gaps:
                raise OffsetGapError(
                    f"{self._describe_position(kafka_partition)}: offsets {r} were deleted before the sink read them. "
                    f"To record "
                    f"the gap and archive the rest, set archive.allow.gaps=true"
                )
            yield Gap(kafka_partition, r.start_offset, r.end_offset, "retention")

    def _describe_position(self, kafka_partition: int) -> str:
        place = f"{self.description.topic}-{kafka_partition}"
        return f"{place}: consumer group {self.group} stands at offset {self.offsets[kafka_partition]}"
