"""A cluster's topics, their configs and ACLs, and the cluster itself."""

import logging
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from kafka_s3_platform.core.errors import (
    BrokerUnavailableError,
    ConfigError,
    MissingTopicError,
    PermanentError,
    PlatformError,
)
from kafka_s3_platform.core.kafka.answers import Answers, ask_in_parts
from kafka_s3_platform.core.kafka.offset_admin import TOPICS_AT_ONCE, FoundTopic, OffsetAdmin, read_operations
from kafka_s3_platform.core.model.segment import TopicAcl, TopicGeneration

# How long to wait before asking again whether a new topic can be used.
POLL_SECONDS = 0.05

logger = logging.getLogger(__name__)

_ANY = {"UNKNOWN", "ANY"}
ACL_OPERATIONS = frozenset(AclOperation.__members__) - _ANY
ACL_PERMISSIONS = frozenset(AclPermissionType.__members__) - _ANY
"""The operations and permissions that an ACL may have, as Kafka names them."""


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic: its id, its kafka partitions in ascending order, and the configs set on the topic itself.

    `operations` holds Kafka's names for the admin client's rights on it. It is None if they are unknown, and so is
    `acls`. `replication_factor` is the lowest of its kafka partitions.
    """

    topic: str
    topic_id: str
    kafka_partitions: tuple[int, ...]
    configs: Mapping[str, str]
    acls: tuple[TopicAcl, ...] | None = None
    operations: frozenset[str] | None = None
    replication_factor: int | None = None
    configs_in_force: Mapping[str, str] = field(default_factory=dict)
    """The configs set on the topic, and the broker's defaults for all others."""

    @property
    def generation(self) -> TopicGeneration:
        """The topic as the index stores it, to notice later if it was changed or created again."""
        configs = tuple(sorted(self.configs.items()))
        return TopicGeneration(self.topic, self.topic_id, self.kafka_partitions, configs, self.acls)


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """A cluster: its id, its number of brokers, and the admin client's rights on it (None if unknown).

    `broker_id` is the id of any one broker, and -1 if there is none. `addresses` maps a broker's id to its host and
    port.
    """

    cluster_id: str
    broker_count: int
    operations: frozenset[str] | None
    broker_id: int = -1
    addresses: Mapping[int, tuple[str, int]] = field(default_factory=dict)


@final
class ClusterAdmin(OffsetAdmin):
    """One cluster's admin client.

    Every call raises BrokerUnavailableError when no broker answers within `timeout_seconds`, AuthorizationError when
    credentials or rights are refused, and MissingTopicError when the topic or one of its kafka partitions does not
    exist.
    """

    def __enter__(self) -> "ClusterAdmin":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def describe_topic(self, topic: str) -> TopicDescription:
        """Return the topic's id, kafka partitions, configs and ACLs."""
        return self.describe_topics([topic]).all_or_raise()[topic]

    def describe_topics(self, topics: Iterable[str]) -> Answers[str, TopicDescription]:
        """Return id, kafka partitions, configs and ACLs of each topic, or its failure."""
        described = self.find_topics(topics)
        entries = self._ask_config_entries(described.results)
        try:
            acls = self.read_topic_acls(entries.results) if entries.results else {}
        except PlatformError as err:
            return Answers({}, {**dict.fromkeys(entries.results, err), **entries.failures, **described.failures})
        return described.zip(entries).convert(lambda topic, pair: _build_description(*pair, acls.get(topic)))

    def describe_cluster(self) -> ClusterDescription:
        """Return the cluster's id, its brokers and the principal's rights on it."""
        future = self._client.describe_cluster(include_authorized_operations=True, request_timeout=self._timeout)
        cluster = self._await_answer(future, "describing the cluster")
        addresses = {int(node.id): (str(node.host), int(node.port)) for node in cluster.nodes}
        broker_id = min(addresses, default=-1)
        operations = read_operations(cluster)
        return ClusterDescription(str(cluster.cluster_id), len(addresses), operations, broker_id, addresses)

    def read_topic_acls(self, topics: Collection[str]) -> dict[str, tuple[TopicAcl, ...] | None]:
        """Return the sorted ACLs of each topic's literal name, or None if the cluster keeps or shows none.

        For several topics, one request fetches the ACLs of all literal names.
        """
        only = next(iter(topics)) if len(topics) == 1 else None
        anything: Any = None
        acl_filter = AclBindingFilter(
            ResourceType.TOPIC,
            only if only is not None else anything,
            ResourcePatternType.LITERAL,
            anything,
            anything,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        whose = f"topic {only}" if only is not None else f"{len(topics)} topics"
        try:
            future = self._client.describe_acls(acl_filter, request_timeout=self._timeout)
            bindings = self._await_answer(future, f"reading the ACLs of {whose}")
            # The client also returns an empty list if the cluster refuses to answer, or keeps no ACLs at all.
            if not bindings and not self._shows_acls():
                return dict.fromkeys(topics)
        except PermanentError as err:
            logger.debug("the ACLs of %s are unknown: %s", whose, err)
            return dict.fromkeys(topics)
        acls: dict[str, list[TopicAcl]] = {topic: [] for topic in topics}
        for acl in bindings:
            if acl.name in acls:
                acls[acl.name].append(TopicAcl(acl.principal, acl.host, acl.operation.name, acl.permission_type.name))
        return {topic: tuple(sorted(of_topic)) for topic, of_topic in acls.items()}

    def _shows_acls(self) -> bool:
        """Return True if an empty list of ACLs can be believed: the cluster keeps ACLs, and we may read them."""
        cluster = self.describe_cluster()
        if cluster.operations is None or cluster.operations.isdisjoint({"DESCRIBE", "ALL"}):
            return False
        return bool(self.read_broker_config(cluster.broker_id, "authorizer.class.name"))

    def read_broker_config(self, broker_id: int, name: str) -> str | None:
        """Return a config of a broker, or None if it has none or does not show it (DESCRIBE_CONFIGS on the cluster)."""
        resource = ConfigResource(ConfigResource.Type.BROKER, str(broker_id))
        futures = self._client.describe_configs([resource], request_timeout=self._timeout)
        try:
            entry = self._await_answer(futures[resource], f"reading {name} of broker {broker_id}").get(name)
        except PermanentError as err:
            logger.debug("%s", err)
            return None
        return None if entry is None else entry.value

    def create_topic_acls(self, topic: str, acls: Iterable[TopicAcl]) -> None:
        """Add the ACLs to the topic's literal name; existing ones stay."""
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
        for binding, future in self._client.create_acls(bindings, request_timeout=self._timeout).items():
            self._await_answer(future, f"giving topic {topic} an ACL for {binding.principal}")

    def topic_exists(self, topic: str) -> bool:
        """Return True if the topic exists."""
        try:
            self.find_topics([topic]).all_or_raise()
        except MissingTopicError:
            return False
        return True

    def read_topic_configs(self, topic: str) -> dict[str, str]:
        """Return every config in force on the topic, the broker's defaults included."""
        return self.read_topic_configs_of([topic]).all_or_raise()[topic]

    def read_topic_configs_of(self, topics: Iterable[str]) -> Answers[str, dict[str, str]]:
        """Return every config in force on each topic, the broker's defaults included."""
        return self._ask_config_entries(topics).convert(lambda _, entries: _read_values(entries))

    def create_topic(
        self,
        topic: str,
        kafka_partitions: int,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create the topic, and wait until it can be used. -1 is the brokers' default.

        Raises PermanentError if the topic exists.
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

    def delete_topic(self, topic: str, topic_id: str, *, only_unused: bool = False) -> bool:
        """Delete the topic if it has this id, but not another topic of its name. Return True if it was deleted.

        With `only_unused` it stays if anything was written to it. If it cannot be deleted, a warning is logged.
        """
        try:
            description = self.describe_topic(topic)
            logs = self.frontiers(topic, description.kafka_partitions).values() if only_unused else ()
            if description.topic_id != topic_id or any(log.high_watermark for log in logs):
                return False
            futures = self._client.delete_topics([topic], request_timeout=self._timeout)
            self._await_answer(futures[topic], f"deleting topic {topic}")
        except PlatformError as err:
            logger.warning("topic %s, which was created for this, stays: %s", topic, err)
            return False
        return True

    def check_new_topic(
        self, topic: str, kafka_partitions: int, replication_factor: int, configs: Mapping[str, str]
    ) -> None:
        """Raise the error that creating this topic would raise (ConfigError if a config is refused). Create nothing."""
        new = NewTopic(topic, kafka_partitions, replication_factor, config=dict(configs))
        self._create(new, f"asking whether creating topic {topic} is possible", validate_only=True)

    def _create(self, new: NewTopic, what: str, **how: Any) -> None:
        """Send a request to create a topic, with the options `how` of the client library, and await its answer."""
        try:
            futures = self._client.create_topics([new], request_timeout=self._timeout, **how)
        except ValueError as err:
            # librdkafka takes no more than 100,000 kafka partitions
            raise ConfigError(f"{what}: {err}") from err
        self._await_answer(futures[new.topic], what)

    def _is_usable(self, topic: str, kafka_partitions: int) -> bool:
        """Return True if the leaders themselves answer, since metadata names them before they know they lead."""
        try:
            return bool(self.frontiers(topic, range(kafka_partitions)))
        except (BrokerUnavailableError, MissingTopicError):
            return False

    def _ask_config_entries(self, topics: Iterable[str]) -> Answers[str, Sequence[ConfigEntry]]:
        """Ask for all configs of the topics, the brokers' defaults included."""

        def ask(names: Sequence[str]) -> Answers[str, Sequence[ConfigEntry]]:
            resources = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in names]
            by_resource = self._client.describe_configs(resources, request_timeout=self._timeout)
            futures = {resource.name: future for resource, future in by_resource.items()}
            answers = self._await_answers(
                futures, lambda topic: f"reading the configs of topic {topic} (DESCRIBE_CONFIGS)"
            )
            return answers.convert(lambda _, entries: [*entries.values()])

        return ask_in_parts(tuple(dict.fromkeys(topics)), TOPICS_AT_ONCE, ask)


def _build_description(
    topic: FoundTopic, entries: Sequence[ConfigEntry], acls: tuple[TopicAcl, ...] | None
) -> TopicDescription:
    """Build the description of a topic from its metadata, configs (with defaults) and ACLs (None if unknown)."""
    return TopicDescription(
        topic=topic.topic,
        topic_id=topic.topic_id,
        kafka_partitions=topic.kafka_partitions,
        configs=_read_values(e for e in entries if ConfigSource(e.source) is ConfigSource.DYNAMIC_TOPIC_CONFIG),
        acls=acls,
        operations=topic.operations,
        replication_factor=min(map(len, topic.replicas.values()), default=None),
        configs_in_force=_read_values(entries),
    )


def _read_values(entries: Iterable[ConfigEntry]) -> dict[str, str]:
    return {entry.name: str(entry.value) for entry in entries if entry.value is not None}
