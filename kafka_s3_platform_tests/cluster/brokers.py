"""Three brokers of one cluster, the first of which is its controller and is never killed."""

import base64
import dataclasses
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient

from kafka_s3_platform.config.settings import KafkaSettings
from kafka_s3_platform.local import stack as embedded
from kafka_s3_platform.local.broker import Broker
from kafka_s3_platform.local.settings import HOST, StackSettings
from kafka_s3_platform_tests.faults.broker import kill_broker

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
        """Start them and wait until they answer."""
        embedded.start_servers(tuple(self.brokers[node_id - 1] for node_id in node_ids))

    def leaders(self, topic: str) -> dict[int, int]:
        """Broker id by kafka partition."""
        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap_servers})
        return {p.id: p.leader for p in admin.list_topics(topic, timeout=10).topics[topic].partitions.values()}
