"""Reads and sets committed offsets of consumer groups, and reads their states.

A restore commits its progress as the offset of a group of its own, in the same transaction as the records (see
`GroupOffset`).
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar, final

from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka import TopicPartition as Assignment
from confluent_kafka.admin import AdminClient, ConsumerGroupDescription

from kafka_s3_platform.core.config.settings import KafkaSettings
from kafka_s3_platform.core.errors import (
    BrokerUnavailableError,
    BusyError,
    PermanentError,
    PlatformError,
    TransientError,
)
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.kafka.answers import check_leader_epoch, check_next_offset
from kafka_s3_platform.core.kafka.client import Reasons, open_client
from kafka_s3_platform.core.kafka.failures import MOVING, classify_error
from kafka_s3_platform.core.kafka.fetch.connection import BrokerConnection, UnsupportedError, is_supported

T = TypeVar("T")

COORDINATOR_SECONDS = 15.0
"""The time to wait for a group's coordinator. A cluster creates its first one when the first group asks for it."""

POLL_SECONDS = 0.2

STABLE_SECONDS = 20.0
"""The time to wait for a transaction that is about to commit an offset."""

_ABSENT = {ConsumerGroupState.DEAD, ConsumerGroupState.EMPTY}


@dataclass(frozen=True, slots=True)
class GroupState:
    """A consumer group as its coordinator sees it. `members` are client ids and hosts; `state` is as Kafka names it."""

    group: str
    state: str
    members: tuple[str, ...]

    @property
    def is_active(self) -> bool:
        """True if anybody is consuming. In that case the committed offsets move, and nobody else may set them."""
        return bool(self.members) or self.state not in {s.name for s in _ABSENT}


def read_group_state(admin: ClusterAdmin, group: str) -> GroupState:
    """Ask the group's coordinator for its state and members; a missing group is DEAD and has no members."""
    description = _ask_coordinator(admin, _call_describe(group), f"describing consumer group {group}")
    members = sorted(f"{m.client_id} at {m.host}" for m in description.members)
    return GroupState(group, description.state.name, tuple(members))


def _call_describe(group: str) -> "Callable[[AdminClient, float], Future[ConsumerGroupDescription]]":
    return lambda client, timeout: client.describe_consumer_groups([group], request_timeout=timeout)[group]


def refuse_active_group(admin: ClusterAdmin, group: str, what_for: str) -> None:
    """Raise BusyError while the group is active, since `what_for` needs its consumers to be stopped."""
    state = read_group_state(admin, group)
    if state.is_active:
        who = ", ".join(state.members) or "no member yet"
        raise BusyError(f"{what_for}: consumer group {group} is {state.state} ({who}); stop its consumers first")


def read_committed_offsets(
    admin: ClusterAdmin, group: str, topic: str, kafka_partitions: Iterable[int] = ()
) -> dict[int, int]:
    """Read the group's committed offsets by kafka partition.

    Waits for transactions about to commit offsets, and raises TransientError if one stays open. Of the kafka partitions
    that have no committed offset, it waits only for those in `kafka_partitions`. A group that does not exist has no
    offsets.
    """
    what = f"reading the committed offsets of consumer group {group}"
    # If asked for everything, the coordinator returns what is committed, and not what a transaction is about to commit.
    visible = _fetch_places(admin, group, None, what, require_stable=False)
    numbers = {*kafka_partitions, *(tp.partition for tp in visible if tp.topic == topic)}
    places = [TopicPartition(topic, p) for p in sorted(numbers)]
    stable = _fetch_places(admin, group, places, what, require_stable=True) if places else []
    return {tp.partition: tp.offset for tp in stable}


@dataclass(frozen=True, slots=True)
class Committed:
    """A commit of a group for one kafka partition: the offset it consumes next, and the commit's metadata."""

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None


@dataclass(frozen=True)
class GroupListing:
    """`states` maps groups to Kafka's names of their states. `errors` are of brokers that did not list their groups."""

    states: Mapping[str, str]
    errors: tuple[str, ...]


def list_groups(admin: ClusterAdmin) -> GroupListing:
    """List every consumer group visible to the admin client."""
    listing = _ask_coordinator(
        admin, lambda client, timeout: client.list_consumer_groups(request_timeout=timeout), "listing consumer groups"
    )
    return GroupListing({g.group_id: g.state.name for g in listing.valid}, tuple(map(str, listing.errors)))


def read_committed_of(
    admin: ClusterAdmin, group: str, kafka_partitions: Mapping[str, Iterable[int]]
) -> dict[str, dict[int, Committed]]:
    """Read the group's commits by topic and kafka partition, in one request. Raises the first error."""
    committed: dict[str, dict[int, Committed]] = {topic: {} for topic in kafka_partitions}
    places = [TopicPartition(topic, p) for topic, numbers in kafka_partitions.items() for p in numbers]
    of = f"topic {next(iter(committed))}" if len(committed) == 1 else f"{len(committed)} topics"
    what = f"reading what consumer group {group} has committed of {of}"
    for tp in _fetch_places(admin, group, places, what, require_stable=False) if places else []:
        epoch = check_leader_epoch(tp.leader_epoch, what)
        committed[tp.topic][tp.partition] = Committed(tp.offset, tp.metadata or "", epoch)
    return committed


def _fetch_places(
    admin: ClusterAdmin, group: str, requested: list[TopicPartition] | None, what: str, *, require_stable: bool
) -> list[TopicPartition]:
    """Fetch the group's commits for the requested places, or for all visible ones.

    A *place* is a kafka partition of a topic. An error of one place is raised, and never mistaken for "nothing
    committed". After a transient error the coordinator is asked again, for STABLE_SECONDS in all.
    """
    deadline = time.monotonic() + STABLE_SECONDS
    while True:
        places = _list_places(admin, group, requested, what, require_stable=require_stable)
        errors = (
            classify_error(tp.error, f"{what}, {tp.topic}-{tp.partition}") for tp in places if tp.error is not None
        )
        failure = next(errors, None)
        if failure is None:
            return [
                tp for tp in places if check_next_offset(tp.offset, f"{what}, {tp.topic}-{tp.partition}") is not None
            ]
        if not isinstance(failure, TransientError) or time.monotonic() > deadline:
            raise failure
        time.sleep(POLL_SECONDS)


def _list_places(
    admin: ClusterAdmin, group: str, requested: list[TopicPartition] | None, what: str, *, require_stable: bool
) -> list[TopicPartition]:
    """Ask the coordinator once for the commits of `requested`, or of all places. Each may have an error of its own."""
    request = ConsumerGroupTopicPartitions(group, requested)
    places: list[TopicPartition] = _ask_coordinator(
        admin,
        lambda client, timeout: client.list_consumer_group_offsets(
            [request], require_stable=require_stable, request_timeout=timeout
        )[group],
        what,
    ).topic_partitions
    return places


def has_pending_offset(admin: ClusterAdmin, group: str, topic: str, kafka_partition: int) -> bool:
    """Return True if an open transaction is about to commit another offset of the group for the kafka partition."""
    what = f"reading what consumer group {group} has committed of topic {topic}"
    [place] = _list_places(admin, group, [TopicPartition(topic, kafka_partition)], what, require_stable=True)
    return place.error is not None and place.error.code() == KafkaError.UNSTABLE_OFFSET_COMMIT


def delete_offsets(admin: ClusterAdmin, group: str, topic: str, kafka_partitions: Collection[int]) -> None:
    """Delete the group's commits for these kafka partitions, and nothing else.

    Deleting the group would also delete its offsets of other topics, which the client may not be able to see. Raises
    BusyError while the group is active, and PermanentError if only librdkafka can connect, since it has no call for
    this.
    """
    what = f"removing offsets of topic {topic} from consumer group {group}"
    if not read_committed_of(admin, group, {topic: kafka_partitions})[topic]:
        return
    refuse_active_group(admin, group, what)
    coordinator = _ask_coordinator(admin, _call_describe(group), what).coordinator
    where = f"{what} at {coordinator.host}:{coordinator.port}"
    properties = admin.settings.properties("admin")
    if not is_supported(properties):
        raise PermanentError(
            f"{what}: the security settings are such that only librdkafka connects, which cannot do it"
        )
    try:
        # librdkafka has no OffsetDelete
        with BrokerConnection(coordinator.host, coordinator.port, properties, COORDINATOR_SECONDS) as connection:
            codes = connection.delete_offsets(group, topic, kafka_partitions)
    except UnsupportedError as err:
        raise PermanentError(f"{where}: {err}") from err
    except (OSError, ValueError, IndexError) as err:
        raise BrokerUnavailableError(f"{where}: {err}") from err
    for kafka_partition, code in codes.items():
        if code:
            place = "" if kafka_partition is None else f", kafka partition {kafka_partition}"
            raise classify_error(KafkaError(code), f"{what}{place}")


def publish_offsets(
    admin: ClusterAdmin, group: str, topic: str, offsets: Mapping[int, int], metadata: Mapping[int, str] | None = None
) -> None:
    """Set the group's offsets of these kafka partitions only. Raises BusyError while the group has members."""
    texts = metadata or {}
    publish_offsets_of(admin, group, {topic: {p: Committed(o, texts.get(p, "")) for p, o in offsets.items()}})


def publish_offsets_of(admin: ClusterAdmin, group: str, offsets: Mapping[str, Mapping[int, Committed]]) -> None:
    """Set the group's offsets of these topics in one request. Raises BusyError while the group has members."""
    places: list[TopicPartition] = []
    for topic, committed in sorted(offsets.items()):
        places += (TopicPartition(topic, p, c.offset, c.metadata) for p, c in sorted(committed.items()))
    if not places:
        return
    of = f"topic {places[0].topic}" if len(offsets) == 1 else f"{len(offsets)} topics"
    what = f"publishing offsets of {of} as consumer group {group}"
    refuse_active_group(admin, group, what)
    request = ConsumerGroupTopicPartitions(group, places)
    answered = _ask_coordinator(
        admin,
        lambda client, timeout: client.alter_consumer_group_offsets([request], request_timeout=timeout)[group],
        what,
    )
    for tp in answered.topic_partitions:
        if tp.error is not None:
            raise classify_error(tp.error, f"{what}, {tp.topic}, kafka partition {tp.partition}")


def _ask_coordinator(admin: ClusterAdmin, call: "Callable[[AdminClient, float], Future[T]]", what: str) -> T:
    """Ask about a group. Ask again while its coordinator moves, or is created for the cluster's first group."""
    deadline = time.monotonic() + COORDINATOR_SECONDS
    while True:
        try:
            return admin.ask(call, what)
        except PlatformError as err:
            if _find_code(err) not in MOVING or time.monotonic() > deadline:
                raise
        time.sleep(POLL_SECONDS)


def _find_code(err: PlatformError) -> int | None:
    """Return the code of the Kafka error that caused ours, or None if there is none."""
    cause = err.__cause__
    error = cause.args[0] if isinstance(cause, KafkaException) else None
    return error.code() if isinstance(error, KafkaError) else None


# A coordinator may move meanwhile, and a transaction may be about to commit.
ANSWER_SECONDS = 60.0
CALL_SECONDS = 5.0
"""The timeout of one question. A client that may not use the group learns this only after the timeout."""


@final
class GroupOffset:
    """The committed offset of `group` for one kafka partition, read without joining the group.

    A restore commits its progress as this offset, in the same transaction as the records, and reads it when it resumes.
    """

    def __init__(self, settings: KafkaSettings, group: str, topic: str, kafka_partition: int) -> None:
        self.group = group
        self._place = (topic, kafka_partition)
        self._where = f"reading what group {group} has committed of {topic}-{kafka_partition}"
        self._reasons = Reasons()
        # With read_committed the coordinator is asked for stable offsets: a commit under way is waited for.
        fixed = {"group.id": group, "isolation.level": "read_committed", "enable.auto.commit": False}
        self._consumer: Consumer = open_client(Consumer, settings, self._reasons, {}, fixed)

    def __enter__(self) -> "GroupOffset":
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    @property
    def metadata(self) -> object:
        """The group as a transactional producer names it."""
        return self._consumer.consumer_group_metadata()

    def place(self, progress: Committed) -> Assignment:
        """Convert `progress` to the form in which librdkafka commits it in a transaction."""
        topic, kafka_partition = self._place
        return Assignment(topic, kafka_partition, progress.offset, progress.metadata)

    def read(self) -> Committed | None:
        """Read the offset, or return None if the group has none. Wait for any transaction about to commit one."""
        deadline = time.monotonic() + ANSWER_SECONDS
        while True:
            try:
                return self._read()
            except TransientError:
                # The coordinator moves, or is just being made. The client does not ask again by itself.
                if time.monotonic() > deadline:
                    raise
                time.sleep(POLL_SECONDS)

    def _read(self) -> Committed | None:
        """Ask once for the offset. Raises TransientError while the coordinator moves."""
        try:
            [committed] = self._consumer.committed([Assignment(*self._place)], timeout=CALL_SECONDS)
        except KafkaException as err:
            event = self._consumer.poll(0)
            error = event.error() if event is not None else None
            raise self._reasons.explain_failure(error or err, self._where) from err
        if isinstance(committed.error, KafkaError):
            raise self._reasons.explain_failure(committed.error, self._where)
        offset = check_next_offset(committed.offset, self._where)
        if offset is None:
            return None
        return Committed(offset, committed.metadata or "")
