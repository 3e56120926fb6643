"""Questions to a cluster about topics and offsets, each with a bound on how long it may take."""

import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import partial
from types import TracebackType
from typing import Any, TypeVar, final

from confluent_kafka import IsolationLevel, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ClusterMetadata,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ListOffsetsResultInfo,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
)

from kafka_s3_platform.config.settings import KafkaSettings
from kafka_s3_platform.errors import (
    BrokerUnavailableError,
    ConfigError,
    MissingTopicError,
    PermanentError,
    PlatformError,
)
from kafka_s3_platform.kafka.answers import (
    Answers,
    OffsetAtTime,
    RecordOffset,
    Untold,
    asked_again,
    frontier,
    offset_for_time,
)
from kafka_s3_platform.kafka.client import Reasons, admin_client, cluster_metadata
from kafka_s3_platform.kafka.failures import NO_LEADER
from kafka_s3_platform.model.frontier import Frontier
from kafka_s3_platform.model.segment import TopicAcl, TopicGeneration

TIMEOUT_SECONDS = 30.0
GRACE_SECONDS = 5.0
"""How much longer a future is awaited than librdkafka itself waits, and how long after a refusal."""

LEADERS_SECONDS = 5.0
"""How long leaders that were seen are believed: planning may ask for each of a thousand kafka partitions alone."""

CALLS_IN_FLIGHT = 64
POLL_SECONDS = 0.05

logger = logging.getLogger(__name__)

A = TypeVar("A")
T = TypeVar("T")

_ANY = {"UNKNOWN", "ANY"}
ACL_OPERATIONS = frozenset(AclOperation.__members__) - _ANY
ACL_PERMISSIONS = frozenset(AclPermissionType.__members__) - _ANY
"""What an ACL may say, by Kafka's names."""

Asked = Mapping[TopicPartition, "Future[ListOffsetsResultInfo]"]


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic: its id, its kafka partitions in ascending order, and the configs set on the topic itself.

    `operations` are Kafka's names of what the admin client's principal may do with it, None where the cluster does not
    say; `acls` None where they are unknown; `replication_factor` is the least of its kafka partitions; `replicas` is
    kafka partition -> ids of the brokers that hold it.
    """

    topic: str
    topic_id: str
    kafka_partitions: tuple[int, ...]
    configs: Mapping[str, str]
    acls: tuple[TopicAcl, ...] | None = None
    operations: frozenset[str] | None = None
    replication_factor: int | None = None
    replicas: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    @property
    def generation(self) -> TopicGeneration:
        """As the index keeps it."""
        configs = tuple(sorted(self.configs.items()))
        return TopicGeneration(self.topic, self.topic_id, self.kafka_partitions, configs, self.acls)


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """A cluster: its id, its number of brokers, and what the admin client's principal may do with it, if it says so.

    `broker_id` is that of any broker; `addresses` is broker id -> host and port.
    """

    cluster_id: str
    broker_count: int
    operations: frozenset[str] | None
    broker_id: int = -1
    addresses: Mapping[int, tuple[str, int]] = field(default_factory=dict)


@final
class ClusterAdmin:
    """One cluster's admin client.

    Every call raises BrokerUnavailableError when no broker answers within `timeout_seconds`, AuthorizationError when
    credentials or rights are refused, and MissingTopicError when the topic or a kafka partition of it is absent.
    """

    def __init__(self, settings: KafkaSettings, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self.settings = settings
        self._bootstrap_servers = settings.bootstrap_servers
        self._timeout = timeout_seconds
        self._reasons = Reasons()
        self._seen_leaders: dict[str, tuple[float, Mapping[int, int]]] = {}
        self._opened = ExitStack()
        self._client: AdminClient = self._opened.enter_context(admin_client(settings, self._reasons))

    def __enter__(self) -> "ClusterAdmin":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Serve what librdkafka still has to say, and end it.

        Left to Python's cycle collector, which may run in a thread of librdkafka's, it would abort the process
        (confluent-kafka-python's pull request 2131).
        """
        self._client.poll(0)
        self._opened.close()

    def describe_topic(self, topic: str) -> TopicDescription:
        """The topic's id, kafka partitions, own configs and ACLs."""
        what = f"describing topic {topic}"
        asked = self._client.describe_topics(
            TopicCollection([topic]), include_authorized_operations=True, request_timeout=self._timeout
        )
        found = self._answer(asked[topic], what)
        return TopicDescription(
            topic=topic,
            topic_id=str(found.topic_id),
            kafka_partitions=tuple(sorted(p.id for p in found.partitions)),
            configs={e.name: str(e.value) for e in self._config_entries(topic) if _is_set_on_topic(e)},
            acls=self.topic_acls(topic),
            operations=_operations(found),
            replication_factor=min((len(p.replicas) for p in found.partitions), default=None),
            replicas={p.id: tuple(sorted(node.id for node in p.replicas)) for p in found.partitions},
        )

    def describe_cluster(self) -> ClusterDescription:
        """The cluster's id, its brokers and the principal's rights on it."""
        asked = self._client.describe_cluster(include_authorized_operations=True, request_timeout=self._timeout)
        found = self._answer(asked, "describing the cluster")
        addresses = {int(node.id): (str(node.host), int(node.port)) for node in found.nodes}
        broker_id = min(addresses, default=-1)
        return ClusterDescription(str(found.cluster_id), len(addresses), _operations(found), broker_id, addresses)

    def topic_acls(self, topic: str) -> tuple[TopicAcl, ...] | None:
        """The ACLs of the topic's literal name, in order. None where the cluster keeps none or does not show them."""
        anything: Any = None
        wanted = AclBindingFilter(
            ResourceType.TOPIC,
            topic,
            ResourcePatternType.LITERAL,
            anything,
            anything,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        asked = self._client.describe_acls(wanted, request_timeout=self._timeout)
        try:
            found = self._answer(asked, f"reading the ACLs of topic {topic}")
            # The client gives an empty list too where the cluster refused to answer, or keeps none at all.
            if not found and not self._shows_acls():
                return None
        except PermanentError as err:
            logger.debug("the ACLs of topic %s are unknown: %s", topic, err)
            return None
        return tuple(sorted(TopicAcl(a.principal, a.host, a.operation.name, a.permission_type.name) for a in found))

    def _shows_acls(self) -> bool:
        """Whether the cluster has an authorizer, and the principal may read what it holds."""
        cluster = self.describe_cluster()
        if cluster.operations is None or cluster.operations.isdisjoint({"DESCRIBE", "ALL"}):
            return False
        resource = ConfigResource(ConfigResource.Type.BROKER, str(cluster.broker_id))
        asked = self._client.describe_configs([resource], request_timeout=self._timeout)
        authorizer = self._answer(asked[resource], "looking for the cluster's authorizer").get("authorizer.class.name")
        return authorizer is not None and bool(authorizer.value)

    def create_topic_acls(self, topic: str, acls: Iterable[TopicAcl]) -> None:
        """Add the ACLs to the topic's literal name; those that are there already stay."""
        bindings = [
            AclBinding(
                ResourceType.TOPIC,
                topic,
                ResourcePatternType.LITERAL,
                acl.principal,
                acl.host,
                AclOperation[acl.operation],
                AclPermissionType[acl.permission],
            )
            for acl in acls
        ]
        if not bindings:
            return
        for binding, asked in self._client.create_acls(bindings, request_timeout=self._timeout).items():
            self._answer(asked, f"giving topic {topic} an ACL for {binding.principal}")

    def topic_exists(self, topic: str) -> bool:
        """Whether the topic is there."""
        try:
            asked = self._client.describe_topics(TopicCollection([topic]), request_timeout=self._timeout)
            self._answer(asked[topic], f"looking for topic {topic}")
        except MissingTopicError:
            return False
        return True

    def topics(self) -> frozenset[str]:
        """The names of all topics that the admin client may see."""
        return frozenset(self._metadata(None, "listing topics").topics)

    def ask(self, call: "Callable[[AdminClient, float], Future[T]]", what: str) -> T:
        """The answer to a call of the admin client, which gets its request timeout; `what` is for errors."""
        answer: T = self._answer(call(self._client, self._timeout), what)
        return answer

    def topic_configs(self, topic: str) -> dict[str, str]:
        """Every config in force on the topic, the broker's defaults included."""
        return {e.name: str(e.value) for e in self._config_entries(topic) if e.value is not None}

    def create_topic(
        self,
        topic: str,
        kafka_partitions: int,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create the topic and wait until it can be used. PermanentError if it exists.

        -1 takes the broker's default replication factor.
        """
        what = f"creating topic {topic} with {kafka_partitions} kafka partitions"
        new = NewTopic(topic, kafka_partitions, replication_factor, config=dict(configs or {}))
        self._create(new, what, operation_timeout=self._timeout)
        deadline = time.monotonic() + self._timeout
        while not self._is_usable(topic, kafka_partitions):
            if time.monotonic() > deadline:
                raise BrokerUnavailableError(
                    f"{what}: not every kafka partition has a leader that answers after {self._timeout:g} s"
                )
            time.sleep(POLL_SECONDS)

    def check_new_topic(
        self, topic: str, kafka_partitions: int, replication_factor: int, configs: Mapping[str, str]
    ) -> None:
        """What `create_topic` raises, without creating it; ConfigError for a config that the brokers do not take."""
        new = NewTopic(topic, kafka_partitions, replication_factor, config=dict(configs))
        self._create(new, f"asking whether creating topic {topic} is possible", validate_only=True)

    def _create(self, new: NewTopic, what: str, **how: Any) -> None:
        try:
            asked = self._client.create_topics([new], request_timeout=self._timeout, **how)
        except ValueError as err:
            # librdkafka takes no more than 100,000 kafka partitions
            raise ConfigError(f"{what}: {err}") from err
        self._answer(asked[new.topic], what)

    def _is_usable(self, topic: str, kafka_partitions: int) -> bool:
        """Metadata names leaders before these know that they lead, so the leaders themselves are asked."""
        try:
            return bool(self.frontiers(topic, range(kafka_partitions)))
        except (BrokerUnavailableError, MissingTopicError):
            return False

    def frontiers(self, topic: str, kafka_partitions: Iterable[int]) -> dict[int, Frontier]:
        """Log start, last stable offset and high watermark of each kafka partition, now.

        Raises the error of the first kafka partition that has no answer; `look` goes on with the others.
        """
        return dict(self.look(topic, kafka_partitions).get())

    def look(self, topic: str, kafka_partitions: Iterable[int]) -> Answers[int, Frontier]:
        """As `frontiers`, with the error of each kafka partition that has no answer.

        Raises what is no matter of a single kafka partition: the topic is absent, or no broker answers.
        """
        what = f"reading the frontiers of topic {topic}"
        observed_at = datetime.now(timezone.utc)

        def ask(wanted: Iterable[int]) -> Answers[int, Frontier]:
            return self._led(topic, wanted, what, lambda led: self._frontiers(topic, led, observed_at, what))

        return asked_again(ask(kafka_partitions), ask)

    def _frontiers(self, topic: str, wanted: Iterable[int], observed_at: datetime, what: str) -> Answers[int, Frontier]:
        """The last stable offset is asked for when the high watermark is known.

        Only then is it below that because of an open transaction, and never because of records that came in between.
        """
        earliest = self._ask(topic, wanted, OffsetSpec.earliest())
        latest = self._ask(topic, wanted, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)
        bounds = self._answers(earliest, what).and_of(self._answers(latest, what))
        stable = self._answers(self._ask(topic, bounds.found, OffsetSpec.latest()), what)

        def checked(
            kafka_partition: int, seen: tuple[tuple[ListOffsetsResultInfo, ...], ListOffsetsResultInfo]
        ) -> Frontier:
            (start, end), held = seen
            where = f"{what}, kafka partition {kafka_partition}"
            offsets = (start.offset, end.offset, held.offset)
            return frontier(kafka_partition, offsets, end.leader_epoch, observed_at, where)

        return bounds.and_of(stable).checked(checked)

    def newest_records(self, topic: str, kafka_partitions: Iterable[int]) -> dict[int, tuple[int, int]]:
        """Offset and epoch milliseconds of the record with the latest timestamp, of kafka partitions that have one.

        Answered since Kafka 3.0.
        """
        told = self._newest(topic, kafka_partitions)
        what = f"looking for the newest record of topic {topic}"
        records = told.checked(lambda p, info: offset_for_time(info.offset, f"{what}, kafka partition {p}"))
        times = {p: info.timestamp for p, info in told.found.items()}
        return {p: (offset, times[p]) for p, offset in records.get().items() if offset is not None and times[p] >= 0}

    def offsets_for_times(
        self, topic: str, kafka_partitions: Iterable[int], timestamps_ms: Sequence[int]
    ) -> Answers[int, Mapping[int, OffsetAtTime]]:
        """o(t) by kafka partition and timestamp: the first committed record with that or a later timestamp.

        o(t) never falls as t grows, so between two timestamps with equal answers nothing is asked: long spans of empty
        hours cost few calls. The answers are of slightly different moments. A kafka partition that does not answer to
        one of the timestamps has no answer at all.
        """
        times = sorted(set(timestamps_ms))
        if times and times[0] < 0:
            raise ValueError(f"a timestamp below 0 has a meaning of its own in ListOffsets: {times[0]}")
        ask = partial(self._leaders, topic, what=f"looking for the leaders of topic {topic}")
        leaders = asked_again(ask(kafka_partitions), ask)
        found = self._told_for_times(topic, tuple(leaders.found), times)
        doubted = self._doubted(topic, found.found)
        # Records may have come since then, so that only the same answer once more is a wrong one.
        again = self._told_for_times(topic, tuple(doubted), sorted({t for each in doubted.values() for t in each}))
        untold = again.checked(lambda p, each: {t: Untold.UNTOLD if each[t] is None else each[t] for t in doubted[p]})
        offsets = {p: {**each, **untold.found.get(p, {})} for p, each in found.found.items() if p not in again.failures}
        return Answers(offsets, {**leaders.failures, **found.failures, **again.failures})

    def _doubted(self, topic: str, found: Mapping[int, Mapping[int, RecordOffset | None]]) -> dict[int, list[int]]:
        """Kafka partition -> timestamps that no record is as late as, though another one is later."""
        silent = {p: [t for t, offset in each.items() if offset is None] for p, each in found.items()}
        silent = {p: times for p, times in silent.items() if times}
        if not silent:
            return {}
        told = self._newest(topic, tuple(silent))
        # where a broker cannot tell the newest record (before Kafka 3.0), nothing confirms what it says
        newest = {p: max(silent[p]) for p in silent}
        newest |= {p: info.timestamp if info.offset >= 0 else -1 for p, info in told.found.items()}
        doubted = {p: [t for t in times if t <= newest[p]] for p, times in silent.items()}
        return {p: times for p, times in doubted.items() if times}

    def _newest(self, topic: str, kafka_partitions: Iterable[int]) -> Answers[int, ListOffsetsResultInfo]:
        what = f"looking for the newest record of topic {topic}"
        spec = OffsetSpec.max_timestamp()
        return self._led(topic, kafka_partitions, what, lambda led: self._answers(self._ask(topic, led, spec), what))

    def _told_for_times(
        self, topic: str, kafka_partitions: tuple[int, ...], times: Sequence[int]
    ) -> Answers[int, Mapping[int, RecordOffset | None]]:
        answers = self._at_times(topic, kafka_partitions, [*times[:1], *times[1:][-1:]])
        spans = [(0, len(times) - 1)] if times else []
        while spans and answers.found:
            answers = _filled(times, spans, answers)
            known = next(iter(answers.found.values()))
            halves = [(lo, (lo + hi) // 2, hi) for lo, hi in spans if any(t not in known for t in times[lo:hi])]
            middles = self._at_times(topic, tuple(answers.found), [times[middle] for _, middle, _ in halves])
            answers = answers.and_of(middles).checked(lambda _, both: {**both[0], **both[1]})
            spans = [span for lo, middle, hi in halves for span in ((lo, middle), (middle, hi))]
        return answers

    def _at_times(
        self, topic: str, kafka_partitions: tuple[int, ...], times: Sequence[int]
    ) -> Answers[int, Mapping[int, RecordOffset | None]]:
        found: dict[int, dict[int, RecordOffset | None]] = {p: {} for p in kafka_partitions}
        failures: dict[int, PlatformError] = {}
        for start in range(0, len(times), CALLS_IN_FLIGHT):
            some = times[start : start + CALLS_IN_FLIGHT]
            asked = [self._ask(topic, tuple(found), OffsetSpec.for_timestamp(t)) for t in some]
            for t, each in zip(some, asked, strict=True):
                answers = self._at_time(topic, t, each)
                failures |= answers.failures
                for kafka_partition, offset in answers.found.items():
                    found[kafka_partition][t] = offset
            found = {p: offsets for p, offsets in found.items() if p not in failures}
        return Answers(found, failures)

    def _at_time(self, topic: str, timestamp_ms: int, asked: Asked) -> Answers[int, RecordOffset | None]:
        what = f"looking for timestamp {timestamp_ms} ms in topic {topic}"

        def answered(asked: Asked) -> Answers[int, RecordOffset | None]:
            return self._answers(asked, what).checked(
                lambda p, info: offset_for_time(info.offset, f"{what}, kafka partition {p}")
            )

        def ask(wanted: Iterable[int]) -> Answers[int, RecordOffset | None]:
            spec = OffsetSpec.for_timestamp(timestamp_ms)
            return self._led(topic, wanted, what, lambda led: answered(self._ask(topic, led, spec)))

        return asked_again(answered(asked), ask)

    def _led(
        self, topic: str, wanted: Iterable[int], what: str, ask: Callable[[Sequence[int]], Answers[int, A]]
    ) -> Answers[int, A]:
        """What `ask` is answered of the kafka partitions that have a leader, and why the others have none."""
        leaders = self._leaders(topic, wanted, what)
        answers = ask(tuple(leaders.found))
        return Answers(answers.found, {**leaders.failures, **answers.failures})

    def _leaders(self, topic: str, wanted: Iterable[int], what: str) -> Answers[int, int]:
        """Kafka partition -> the id of its leader, which librdkafka has in its cache then.

        ListOffsets is asked only of kafka partitions that had one when we looked, which is seconds ago at most. Of
        another one, librdkafka asks for metadata in our thread, and an answer that arrives meanwhile ends that question
        in a thread of its own and frees it under our feet: the process dies
        (`rd_kafka_topic_partition_list_query_leaders_async_worker` of librdkafka 2.16).
        """
        wanted = tuple(wanted)
        seen_at, leaders = self._seen_leaders.get(topic, (-math.inf, {}))
        if time.monotonic() - seen_at < LEADERS_SECONDS and leaders.keys() >= set(wanted):
            return Answers({p: leaders[p] for p in wanted}, {})
        cluster = self._metadata(topic, what)
        there = cluster.topics[topic].partitions
        leaders = {p: told.leader for p, told in there.items() if told.leader in cluster.brokers}
        self._seen_leaders[topic] = time.monotonic(), leaders
        failures: dict[int, PlatformError] = {}
        for kafka_partition in wanted:
            where = f"{what}, kafka partition {kafka_partition}"
            if kafka_partition not in there:
                failures[kafka_partition] = MissingTopicError(f"{where}: the topic has no such kafka partition")
            elif kafka_partition not in leaders:
                failures[kafka_partition] = BrokerUnavailableError(f"{where} has no leader at the moment")
        return Answers({p: leaders[p] for p in wanted if p in leaders}, failures)

    def _metadata(self, topic: str | None, what: str) -> ClusterMetadata:
        """What a broker knows of the topic, or of all topics.

        Asked for the grace first, so that a refusal is told soon, and then for the whole time.
        """
        try:
            return self._listed(topic, min(GRACE_SECONDS, self._timeout), what)
        except BrokerUnavailableError:
            return self._listed(topic, self._timeout, what)

    def _listed(self, topic: str | None, seconds: float, what: str) -> ClusterMetadata:
        where = f"{what} at {self._bootstrap_servers}"
        found = cluster_metadata(self._client, topic, seconds, self._reasons, where)
        self._reasons.forget()
        return found

    def _ask(
        self,
        topic: str,
        kafka_partitions: Iterable[int],
        spec: OffsetSpec,
        isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> Asked:
        asked = {TopicPartition(topic, p): spec for p in kafka_partitions}
        if not asked:
            return {}
        return self._client.list_offsets(asked, isolation_level=isolation_level, request_timeout=self._timeout)

    def _answers(self, asked: Asked, what: str) -> Answers[int, ListOffsetsResultInfo]:
        found: dict[int, ListOffsetsResultInfo] = {}
        failures: dict[int, PlatformError] = {}
        for tp, future in asked.items():
            try:
                found[tp.partition] = self._wait(future, what)
            except KafkaException as err:
                failures[tp.partition] = self._refusal(err, f"{what}, kafka partition {tp.partition}")
        return Answers(found, failures)

    def _refusal(self, err: KafkaException, where: str) -> PlatformError:
        # whatever it is, the leaders may be others now
        self._seen_leaders.clear()
        # librdkafka finds the leaders by itself, and says no more than this where none is left since ours looked
        leaderless = err.args[0].code() == NO_LEADER
        failure = BrokerUnavailableError(f"{where} has no leader any more") if leaderless else self._failure(err, where)
        failure.__cause__ = err
        return failure

    def _config_entries(self, topic: str) -> list[ConfigEntry]:
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        asked = self._client.describe_configs([resource], request_timeout=self._timeout)
        return list(self._answer(asked[resource], f"reading the configs of topic {topic} (DESCRIBE_CONFIGS)").values())

    def _answer(self, future: "Future[Any]", what: str) -> Any:
        try:
            return self._wait(future, what)
        except KafkaException as err:
            raise self._failure(err, what) from err

    def _wait(self, future: "Future[Any]", what: str) -> Any:
        """The answer. librdkafka repeats what was refused until the time is over; we do for the grace only."""
        asked = f"{what} at {self._bootstrap_servers}"
        try:
            answer = future.result(timeout=GRACE_SECONDS)
        except FutureTimeoutError:
            self._client.poll(0)
            if refusal := self._reasons.refusal(asked):
                raise refusal from None
            answer = self._late(future, asked)
        self._reasons.forget()
        return answer

    def _late(self, future: "Future[Any]", asked: str) -> Any:
        try:
            return future.result(timeout=self._timeout)
        except FutureTimeoutError as err:
            raise self._reasons.silence(f"{asked}: no answer in time") from err

    def _failure(self, err: KafkaException, what: str) -> PlatformError:
        self._client.poll(0)
        return self._reasons.failure(err, f"{what} at {self._bootstrap_servers}")


def _is_set_on_topic(entry: ConfigEntry) -> bool:
    return ConfigSource(entry.source) is ConfigSource.DYNAMIC_TOPIC_CONFIG and entry.value is not None


def _operations(described: Any) -> frozenset[str] | None:
    """Names of the operations that the cluster says are authorized, None where it says nothing."""
    found = described.authorized_operations
    return frozenset(operation.name for operation in found) if found else None


def _filled(
    times: Sequence[int], spans: Iterable[tuple[int, int]], answers: Answers[int, Mapping[int, RecordOffset | None]]
) -> Answers[int, Mapping[int, RecordOffset | None]]:
    """With the answers inside those spans whose two ends have the same answer in every kafka partition."""
    known = answers.found.values()
    flat = [(lo, hi) for lo, hi in spans if all(each[times[lo]] == each[times[hi]] for each in known)]
    inside = {t: times[lo] for lo, hi in flat for t in times[lo + 1 : hi]}
    return answers.checked(lambda _, each: {**each, **{t: each[at] for t, at in inside.items()}})
