"""Taking over from a running sink, and telling the tools that watch its consumer group how far this one is.

Kafka Connect's S3 sinks commit an offset only once all files below it are uploaded (Confluent's documentation of the
S3 sink, "Exactly-once delivery"): where the group stands is where their files end.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kafka_s3_platform.archive.clock import refuse_wrong_clocks
from kafka_s3_platform.archive.look import observation, unchanged
from kafka_s3_platform.archive.plan import check_end, check_topic
from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.errors import (
    BusyError,
    LogTruncatedError,
    OffsetGapError,
    OpenTransactionError,
    PermanentError,
    PlatformError,
)
from kafka_s3_platform.kafka.admin import ClusterAdmin, TopicDescription
from kafka_s3_platform.kafka.groups import committed_offsets, publish_offsets, refuse_active
from kafka_s3_platform.model.frontier import Frontier
from kafka_s3_platform.model.gap import Gap
from kafka_s3_platform.model.offsets import RangeSet, span
from kafka_s3_platform.model.state import IndexState
from kafka_s3_platform.store.clock import StoreClock
from kafka_s3_platform.store.index import Change, IndexSnapshot, TopicIndex, committed
from kafka_s3_platform.store.objects import ObjectStore

logger = logging.getLogger(__name__)


def group_of(connector: str) -> str:
    """The consumer group of a sink connector of that name, as Kafka Connect calls it."""
    return f"connect-{connector}"


@dataclass(frozen=True)
class TakeOverReport:
    """Where archiving of a topic goes on: `offsets` by kafka partition, those of the group.

    `log_starts` are of kafka partitions without a committed offset: archiving begins there. `gaps` were recorded by
    this call; none where all was taken over before.
    """

    topic: str
    group: str
    offsets: Mapping[int, int]
    log_starts: Mapping[int, int]
    gaps: tuple[Gap, ...]


def take_over(config: ConnectorConfig, topic: str, group: str, run_id: str) -> TakeOverReport:
    """Record in one commit that everything below the group's committed offsets was archived by another sink.

    Done again while the group stands where it stood, it changes nothing. Raises BusyError while the group has members
    or a run is archiving these offsets, PermanentError when the index has archived some of them by itself, and
    OffsetGapError, LogTruncatedError and OpenTransactionError where the group does not stand within the log.
    """
    index = TopicIndex(config.store, config.archive.index_dir, config.name, topic)
    with ClusterAdmin(config.kafka) as admin:
        description = admin.describe_topic(topic)
        refuse_active(admin, group, f"topic {topic}: taking over")
        offsets = committed_offsets(admin, group, topic, description.kafka_partitions)
        if not offsets:
            raise PermanentError(
                f"topic {topic}: consumer group {group} has no committed offset of it: there is nothing to take over. "
                f"Name the old sink's group with --group, or leave this topic out: take the others over, each with "
                f"--topic"
            )
        store = ObjectStore(config.store)
        refuse_wrong_clocks(config, store, admin, description)
        step = _Step(config, description, group, offsets, store.clock)
        return committed(index, lambda snapshot: step.run(snapshot, admin, run_id))


def publish_coverage(admin: ClusterAdmin, connector: str, topic: str, state: IndexState) -> None:
    """Publish how far each kafka partition is archived without a hole, as the offsets of the connector's group.

    For tools that show the lag of groups. Nothing depends on it: what fails is logged, a group with members included.
    """
    try:
        publish_offsets(admin, group_of(connector), topic, state.contiguous_ends)
    except PlatformError as err:
        logger.warning("topic %s: how far it is archived was not published: %s", topic, err)


@dataclass(frozen=True)
class _Step:
    config: ConnectorConfig
    description: TopicDescription
    group: str
    offsets: Mapping[int, int]
    clock: StoreClock

    def run(self, snapshot: IndexSnapshot, admin: ClusterAdmin, run_id: str) -> TakeOverReport:
        """Commit on the snapshot what is not recorded yet."""
        state, topic = snapshot.state, self.description.topic
        description, frontiers = unchanged(
            admin,
            self.description,
            lambda seen: observation(seen, self.clock.earlier_now(), admin.frontiers(topic, seen.kafka_partitions)),
        )
        check_topic(description, state)
        for frontier in frontiers.values():
            check_end(self.config.name, topic, state, frontier)
        gaps = tuple(g for p in sorted(self.offsets) for g in self._gaps(p, frontiers, state))
        if gaps:
            generation = () if state.topic == description.generation else (description.generation,)
            snapshot.commit(Change(added=(*gaps, *frontiers.values(), *generation), run_id=run_id))
        log_starts = {p: f.log_start_offset for p, f in frontiers.items() if p not in self.offsets}
        return TakeOverReport(topic, self.group, self.offsets, log_starts, gaps)

    def _gaps(self, kafka_partition: int, frontiers: Mapping[int, Frontier], state: IndexState) -> Iterator[Gap]:
        below = span(0, self.offsets[kafka_partition])
        if below == state.taken_over(kafka_partition):
            return
        self._refuse_outside(kafka_partition, frontiers.get(kafka_partition))
        self._refuse_archived(kafka_partition, below, state)
        yield from (
            Gap(kafka_partition, r.start_offset, r.end_offset, "taken over")
            for r in below - state.coverage(kafka_partition)
        )
        yield from self._lost(frontiers[kafka_partition])

    def _refuse_outside(self, kafka_partition: int, frontier: Frontier | None) -> None:
        where = self._where(kafka_partition)
        new = "do not take over, and archive it as a new topic under a topics.dir of its own"
        if frontier is None:
            raise LogTruncatedError(
                f"{where}, and the topic has no such kafka partition: it was deleted and created again since the sink "
                f"read it. Then {new}"
            )
        if self.offsets[kafka_partition] > frontier.high_watermark:
            raise LogTruncatedError(
                f"{where}, and it ends at {frontier.high_watermark}: the log was truncated, or the topic deleted and "
                f"created again, since the sink read it. Where it was truncated, set the group's offset to one up to "
                f"which the sink's files and the log hold the same, {frontier.high_watermark} at most: from there on "
                f"the log is archived. Where the topic was created again, {new}"
            )
        if self.offsets[kafka_partition] > frontier.last_stable_offset:
            raise OpenTransactionError(
                f"{where}, beyond the transaction that is open at {frontier.last_stable_offset}; again when it ended"
            )

    def _refuse_archived(self, kafka_partition: int, below: RangeSet, state: IndexState) -> None:
        taken, covered = state.taken_over(kafka_partition), state.coverage(kafka_partition)
        if covered != taken or taken - below:
            raise PermanentError(
                f"{self._where(kafka_partition)}, but connector {self.config.name} has archived "
                f"{', '.join(map(str, covered))} of it: taking over now would leave out records, or have them twice. "
                f"Take over before anything is archived, or under another connector name and topics.dir"
            )
        if state.conflicting({kafka_partition: below}):
            raise BusyError(
                f"{self._where(kafka_partition)}, and a run has reserved offsets below it, to archive them. End it; "
                f"then what it has reserved is ended by kafka-s3 vacuum {self.config.name} --topic "
                f"{self.description.topic} --older-than 0m"
            )

    def _lost(self, frontier: Frontier) -> Iterator[Gap]:
        kafka_partition, offset = frontier.kafka_partition, self.offsets[frontier.kafka_partition]
        for r in span(offset, frontier.log_start_offset):
            if not self.config.archive.allow_gaps:
                raise OffsetGapError(
                    f"{self._where(kafka_partition)}: offsets {r} were deleted before the sink read them. To record "
                    f"the gap and archive the rest, set archive.allow.gaps=true"
                )
            yield Gap(kafka_partition, r.start_offset, r.end_offset, "retention")

    def _where(self, kafka_partition: int) -> str:
        place = f"{self.description.topic}-{kafka_partition}"
        return f"{place}: consumer group {self.group} stands at offset {self.offsets[kafka_partition]}"
