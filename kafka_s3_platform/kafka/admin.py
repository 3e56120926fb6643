"""A cluster's topics, their configs and ACLs, and the cluster itself."""

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, final

from confluent_kafka import TopicCollection
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

from kafka_s3_platform.errors import BrokerUnavailableError, ConfigError, MissingTopicError, PermanentError
from kafka_s3_platform.kafka.offset_admin import OffsetAdmin
from kafka_s3_platform.model.segment import TopicAcl, TopicGeneration

# How long to wait before asking again whether a new topic can be used.
POLL_SECONDS = 0.05

logger = logging.getLogger(__name__)

_ANY = {"UNKNOWN", "ANY"}
ACL_OPERATIONS = frozenset(AclOperation.__members__) - _ANY
ACL_PERMISSIONS = frozenset(AclPermissionType.__members__) - _ANY
"""What an ACL may say, by Kafka's names."""


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
class ClusterAdmin(OffsetAdmin):
    """One cluster's admin client.

    Every call raises BrokerUnavailableError when no broker answers within `timeout_seconds`, AuthorizationError when
    credentials or rights are refused, and MissingTopicError when the topic or a kafka partition of it is absent.
    """

    def __enter__(self) -> "ClusterAdmin":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def describe_topic(self, topic: str) -> TopicDescription:
        """Return the topic's id, kafka partitions, own configs and ACLs."""
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
            operations=_read_operations(found),
            replication_factor=min((len(p.replicas) for p in found.partitions), default=None),
            replicas={p.id: _list_replicas(p) for p in found.partitions},
        )

    def describe_cluster(self) -> ClusterDescription:
        """Return the cluster's id, its brokers and the principal's rights on it."""
        asked = self._client.describe_cluster(include_authorized_operations=True, request_timeout=self._timeout)
        found = self._answer(asked, "describing the cluster")
        addresses = {int(node.id): (str(node.host), int(node.port)) for node in found.nodes}
        broker_id = min(addresses, default=-1)
        return ClusterDescription(str(found.cluster_id), len(addresses), _read_operations(found), broker_id, addresses)

    def topic_acls(self, topic: str) -> tuple[TopicAcl, ...] | None:
        """Return the ACLs of the topic's literal name, in order; None if the cluster keeps or shows none."""
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
            # The client also returns an empty list if the cluster refuses to answer, or keeps no ACLs at all.
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
        """Return the names of all topics that the admin client may see."""
        return frozenset(self._metadata(None, "listing topics").topics)

    def topic_configs(self, topic: str) -> dict[str, str]:
        """Return every config in force on the topic, the broker's defaults included."""
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
        """Raise what `create_topic` would, but create nothing; ConfigError for a config that the brokers refuse."""
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
        """Whether leaders answer: metadata names them before they know that they lead, so they are asked themselves."""
        try:
            return bool(self.frontiers(topic, range(kafka_partitions)))
        except (BrokerUnavailableError, MissingTopicError):
            return False

    def _config_entries(self, topic: str) -> list[ConfigEntry]:
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        asked = self._client.describe_configs([resource], request_timeout=self._timeout)
        return list(self._answer(asked[resource], f"reading the configs of topic {topic} (DESCRIBE_CONFIGS)").values())


def _list_replicas(described: Any) -> tuple[int, ...]:
    return tuple(sorted(node.id for node in described.replicas))


def _is_set_on_topic(entry: ConfigEntry) -> bool:
    return ConfigSource(entry.source) is ConfigSource.DYNAMIC_TOPIC_CONFIG and entry.value is not None


def _read_operations(described: Any) -> frozenset[str] | None:
    """Return the names of the authorized operations, None if the cluster does not tell them."""
    found = described.authorized_operations
    if found:
        return frozenset(operation.name for operation in found)
    return None
