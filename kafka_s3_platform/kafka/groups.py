"""Consumer groups: what one has committed, whether it is at work, and offsets published in its name."""

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from kafka_s3_platform.errors import BusyError, PlatformError
from kafka_s3_platform.kafka.admin import ClusterAdmin
from kafka_s3_platform.kafka.failures import kafka_failure

T = TypeVar("T")

COORDINATOR_SECONDS, POLL_SECONDS = 15.0, 0.2
"""How long a group's coordinator is waited for."""

_MOVING = {
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.NOT_COORDINATOR,
}
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
    listed = _ask(
        admin,
        lambda client, timeout: client.list_consumer_groups(request_timeout=timeout),
        f"looking for group {group}",
    )
    return GroupState(group, next((g.state.name for g in listed.valid if g.group_id == group), "DEAD"), ())


def _described(admin: ClusterAdmin, group: str) -> GroupState:
    found = _ask(
        admin,
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
    found = _ask(
        admin,
        lambda client, timeout: client.list_consumer_group_offsets(
            [asked], require_stable=True, request_timeout=timeout
        )[group],
        f"reading the committed offsets of consumer group {group}",
    )
    mine = (tp for tp in found.topic_partitions if tp.topic == topic and tp.offset >= 0)
    return {tp.partition: tp.offset for tp in mine}


@dataclass(frozen=True, slots=True)
class Committed:
    """What a group has committed of one kafka partition: the offset that it consumes next, and what it said of it."""

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None


@dataclass(frozen=True)
class GroupListing:
    """Group -> its state, Kafka's word, of those that the brokers named; `errors` are of brokers that did not."""

    states: Mapping[str, str]
    errors: tuple[str, ...]


def list_groups(admin: ClusterAdmin) -> GroupListing:
    """Every consumer group that the admin client may see."""
    found = _ask(
        admin, lambda client, timeout: client.list_consumer_groups(request_timeout=timeout), "listing consumer groups"
    )
    return GroupListing({g.group_id: g.state.name for g in found.valid}, tuple(map(str, found.errors)))


def committed_in(admin: ClusterAdmin, group: str, topic: str, kafka_partitions: Iterable[int]) -> dict[int, Committed]:
    """What the group has committed of those kafka partitions, where it has; records or none in them do not matter.

    An offset that an open transaction is about to commit does not count yet, and is not waited for.
    """
    asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, p) for p in kafka_partitions])
    found = _ask(
        admin,
        lambda client, timeout: client.list_consumer_group_offsets([asked], request_timeout=timeout)[group],
        f"reading what consumer group {group} has committed of topic {topic}",
    )
    for tp in found.topic_partitions:
        if tp.error is not None:
            raise kafka_failure(tp.error, f"what consumer group {group} has committed of {topic}-{tp.partition}")
    mine = (tp for tp in found.topic_partitions if tp.offset >= 0)
    return {tp.partition: Committed(tp.offset, tp.metadata or "", _epoch(tp)) for tp in mine}


def committed_topics(admin: ClusterAdmin, group: str) -> frozenset[str]:
    """Topics of which the group has committed an offset."""
    asked = ConsumerGroupTopicPartitions(group)
    found = _ask(
        admin,
        lambda client, timeout: client.list_consumer_group_offsets([asked], request_timeout=timeout)[group],
        f"reading what consumer group {group} has committed",
    )
    return frozenset(tp.topic for tp in found.topic_partitions if tp.offset >= 0)


def _epoch(tp: TopicPartition) -> int | None:
    epoch: int | None = tp.leader_epoch
    return epoch if epoch is not None and epoch >= 0 else None


def delete_group(admin: ClusterAdmin, group: str) -> None:
    """Delete the group with all that it has committed. BusyError while it has members."""
    what = f"deleting consumer group {group}"
    refuse_active(admin, group, what)
    _ask(admin, lambda client, timeout: client.delete_consumer_groups([group], request_timeout=timeout)[group], what)


def publish_offsets(
    admin: ClusterAdmin, group: str, topic: str, offsets: Mapping[int, int], metadata: Mapping[int, str] | None = None
) -> None:
    """Set what the group consumes next, by kafka partition; others keep theirs. BusyError while it has members."""
    if not offsets:
        return
    what = f"publishing offsets of topic {topic} as consumer group {group}"
    refuse_active(admin, group, what)
    said = metadata or {}
    wanted = ConsumerGroupTopicPartitions(
        group, [TopicPartition(topic, p, o, said.get(p, "")) for p, o in sorted(offsets.items())]
    )
    answered = _ask(
        admin,
        lambda client, timeout: client.alter_consumer_group_offsets([wanted], request_timeout=timeout)[group],
        what,
    )
    for tp in answered.topic_partitions:
        if tp.error is not None:
            raise kafka_failure(tp.error, f"{what}, kafka partition {tp.partition}")


def _ask(admin: ClusterAdmin, call: "Callable[[AdminClient, float], Future[T]]", what: str) -> T:
    """`admin.ask`, again while the group's coordinator moves, as it does when a cluster gets its first group."""
    deadline = time.monotonic() + COORDINATOR_SECONDS
    while True:
        try:
            return admin.ask(call, what)
        except PlatformError as err:
            if _code(err) not in _MOVING or time.monotonic() > deadline:
                raise
        time.sleep(POLL_SECONDS)


def _code(err: PlatformError) -> int | None:
    cause = err.__cause__
    found = cause.args[0] if isinstance(cause, KafkaException) else None
    return found.code() if isinstance(found, KafkaError) else None
