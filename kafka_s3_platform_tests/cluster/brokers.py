"""Three brokers of one cluster, the first of which is its controller and is never killed."""

import base64
import dataclasses
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, PartitionMetadata

from kafka_s3_platform.core.config.settings import KafkaSettings
from kafka_s3_platform.operate.local import stack as embedded
from kafka_s3_platform.operate.local.broker import Broker
from kafka_s3_platform.operate.local.settings import HOST, StackSettings
from kafka_s3_platform_tests.conftest import free_port_settings, stopped_at_exit
from kafka_s3_platform_tests.faults.broker import kill_broker
from kafka_s3_platform_tests.kafka.topics import until

NO_LEADER = -1

REPLICATED = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "auto.create.topics.enable": "true",
    # A dead broker's kafka partitions get their new leaders soon.
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
    "replica.lag.time.max.ms": "3000",
}


def first_broker(settings: StackSettings) -> Broker:
    return _broker(settings, {})


def further_broker(first: Broker, settings: StackSettings, node_id: int) -> Broker:
    """A broker that is no controller, in the first one's cluster."""
    listener = f"PLAINTEXT://{settings.bootstrap_servers}"
    own = {
        "process.roles": "broker",
        "node.id": str(node_id),
        "controller.quorum.bootstrap.servers": f"{HOST}:{first.settings.kafka_controller_port}",
        "listeners": listener,
        "advertised.listeners": listener,
    }
    found = _broker(settings, own)
    _format(found.daemon.folder / "data", first.cluster_id() or "", node_id)
    return found


def _broker(settings: StackSettings, own: Mapping[str, str]) -> Broker:
    given = {**settings.kafka_properties, **REPLICATED, **own}
    return Broker(dataclasses.replace(settings, kafka_properties=given))


def _format(folder: Path, cluster_id: str, node_id: int) -> None:
    """What Kafka's own tool writes for a node that has no metadata of its own."""
    directory_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    folder.mkdir(parents=True)
    lines = ("version=1", f"cluster.id={cluster_id}", f"node.id={node_id}", f"directory.id={directory_id}")
    (folder / "meta.properties").write_text("\n".join(lines) + "\n")


@dataclass(frozen=True)
class Cluster:
    """Its brokers by their ids, from 1 on."""

    brokers: Sequence[Broker]

    @property
    def kafka(self) -> KafkaSettings:
        return KafkaSettings(bootstrap_servers=",".join(b.settings.bootstrap_servers for b in self.brokers))

    def kill(self, node_id: int) -> None:
        kill_broker(self.brokers[node_id - 1].settings)

    def start(self, *node_ids: int) -> None:
        """Start them, and wait until they answer and know what the cluster decided meanwhile."""
        embedded.start_servers(tuple(self.brokers[node_id - 1] for node_id in node_ids))
        until(lambda: set(node_ids) <= self._admin.list_topics(timeout=10).brokers.keys())

    def leaders(self, topic: str) -> dict[int, int]:
        """Broker id by kafka partition."""
        return {place.id: place.leader for place in self._describe(topic)}

    def create_topic(self, topic: str, kafka_partitions: int, leader: int, follower: int) -> None:
        """Create one that these brokers hold. The first one leads it while it may, also if it is alone."""
        new = NewTopic(
            topic,
            kafka_partitions,
            replica_assignment=[[leader, follower]] * kafka_partitions,
            config={"min.insync.replicas": "1"},
        )
        self._admin.create_topics([new])[topic].result(30)
        self.await_leader(topic, leader, follower)
        # A broker may hear of it later than the one that was asked.
        for broker in self.brokers:
            asking = AdminClient({"bootstrap.servers": broker.settings.bootstrap_servers})
            until(lambda a=asking: topic in a.list_topics(timeout=10).topics)  # type: ignore[misc]

    def await_leader(self, topic: str, leader: int, *others: int) -> None:
        """Wait until this broker leads all kafka partitions, and the others are in sync with it."""
        self._await(topic, lambda place: place.leader == leader and {leader, *others} <= set(place.isrs))

    def lose(self, topic: str, follower: int) -> None:
        """Kill a follower, and wait until nobody waits for it any more: its leader is in sync alone."""
        self.kill(follower)
        self._await(topic, lambda place: place.isrs == [place.leader])

    def elect(self, topic: str, leader: int, *others: int, is_unclean: bool = False) -> None:
        """Have this broker lead all kafka partitions: it is the preferred one, or lacks some of what the topic held."""
        kind = ElectionType.UNCLEAN if is_unclean else ElectionType.PREFERRED
        if is_unclean:
            # As long as the cluster believes in the old leader, it elects none.
            self._await(topic, lambda place: place.leader == NO_LEADER)
        places = [TopicPartition(topic, place.id) for place in self._describe(topic) if place.leader != leader]
        self._admin.elect_leaders(kind, places).result(30)
        self.await_leader(topic, leader, *others)

    @cached_property
    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.kafka.bootstrap_servers})

    def _await(self, topic: str, holds: Callable[[PartitionMetadata], bool]) -> None:
        # A broker that has not heard of the topic yet names no kafka partition.
        until(lambda: {holds(place) for place in self._describe(topic)} == {True})

    def _describe(self, topic: str) -> Sequence[PartitionMetadata]:
        return list(self._admin.list_topics(topic, timeout=10).topics[topic].partitions.values())


@contextmanager
def started_cluster(settings: StackSettings, folder: Path) -> Iterator[Cluster]:
    """Three brokers, each with a folder and ports of its own."""
    with ExitStack() as stopped:
        own = []
        for node_id in (1, 2, 3):
            own.append(dataclasses.replace(settings, data_dir=folder / str(node_id), **free_port_settings()))
            stopped.enter_context(stopped_at_exit(own[-1]))
        first = first_broker(own[0])
        Cluster([first]).start(1)
        found = Cluster([first, *(further_broker(first, own[n - 1], n) for n in (2, 3))])
        found.start(2, 3)
        yield found
