"""Consumer groups: what one has committed, whether it is at work, and offsets published in its name."""

from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition

from kafka_s3_platform.errors import BusyError, PlatformError
from kafka_s3_platform.kafka.admin import ClusterAdmin
from kafka_s3_platform.kafka.failures import kafka_failure

_ABSENT = {ConsumerGroupState.DEAD, ConsumerGroupState.EMPTY}


@dataclass(frozen=True, slots=True)
class GroupState:
    """A consumer group as its coordinator sees it. `members` are client ids with their hosts; `state` is Kafka's."""

    group: str
    state: str
    members: tuple[str, ...]

    @property
    def is_active(self) -> bool:
        """Whether somebody consumes: what the group has committed then moves, and may not be set by others."""
        return bool(self.members) or self.state not in {s.name for s in _ABSENT}


def group_state(admin: ClusterAdmin, group: str) -> GroupState:
    """The group's state now; one that does not exist is DEAD and has no members."""
    try:
        return _described(admin, group)
    except PlatformError as err:
        # what brokers since Kafka 4 say of a group that is absent, and of one with the protocol of KIP-848
        if _code(err) != KafkaError.GROUP_ID_NOT_FOUND:
            raise
    listed = admin.ask(
        lambda client, timeout: client.list_consumer_groups(request_timeout=timeout), f"looking for group {group}"
    )
    return GroupState(group, next((g.state.name for g in listed.valid if g.group_id == group), "DEAD"), ())


def _described(admin: ClusterAdmin, group: str) -> GroupState:
    found = admin.ask(
        lambda client, timeout: client.describe_consumer_groups([group], request_timeout=timeout)[group],
        f"describing consumer group {group}",
    )
    return GroupState(group, found.state.name, tuple(sorted(f"{m.client_id} at {m.host}" for m in found.members)))


def refuse_active(admin: ClusterAdmin, group: str, what_for: str) -> None:
    """BusyError while the group has members: `what_for` needs it to be stopped."""
    found = group_state(admin, group)
    if found.is_active:
        who = ", ".join(found.members) or "no member yet"
        raise BusyError(f"{what_for}: consumer group {group} is {found.state} ({who}); stop its consumers first")


def committed_offsets(admin: ClusterAdmin, group: str, topic: str) -> dict[int, int]:
    """Kafka partition -> the offset that the group consumes next, of those kafka partitions that have one.

    Waits for transactions that commit offsets. A group that does not exist has none.
    """
    asked = ConsumerGroupTopicPartitions(group)
    found = admin.ask(
        lambda client, timeout: client.list_consumer_group_offsets(
            [asked], require_stable=True, request_timeout=timeout
        )[group],
        f"reading the committed offsets of consumer group {group}",
    )
    mine = (tp for tp in found.topic_partitions if tp.topic == topic and tp.offset >= 0)
    return {tp.partition: tp.offset for tp in mine}


def publish_offsets(admin: ClusterAdmin, group: str, topic: str, offsets: Mapping[int, int]) -> None:
    """Set what the group consumes next, by kafka partition; others keep theirs. BusyError while it has members."""
    if not offsets:
        return
    what = f"publishing offsets of topic {topic} as consumer group {group}"
    refuse_active(admin, group, what)
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, p, o) for p, o in sorted(offsets.items())])
    answered = admin.ask(
        lambda client, timeout: client.alter_consumer_group_offsets([wanted], request_timeout=timeout)[group], what
    )
    for tp in answered.topic_partitions:
        if tp.error is not None:
            raise kafka_failure(tp.error, f"{what}, kafka partition {tp.partition}")


def _code(err: PlatformError) -> int | None:
    cause = err.__cause__
    found = cause.args[0] if isinstance(cause, KafkaException) else None
    return found.code() if isinstance(found, KafkaError) else None
