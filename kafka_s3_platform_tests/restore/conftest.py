"""Files of connectors as they stand, at the servers of the test, and archives that several tests restore."""

import json
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from kafka_s3_platform.config.files import load_connector
from kafka_s3_platform.config.settings import ConnectorConfig, KafkaSettings, StoreSettings
from kafka_s3_platform.store.objects import ObjectStore
from kafka_s3_platform_tests.conftest import CreateTopic, Lab
from kafka_s3_platform_tests.restore.foreign import BUCKET, Load, Put
from kafka_s3_platform_tests.restore.targets import Archive, once, own_restores
from kafka_s3_platform_tests.support import Sent, archived, connector, produce


@pytest.fixture(scope="module")
def archive_once(kafka_settings: KafkaSettings, module_store: StoreSettings, create_topic: CreateTopic) -> Archive:
    """Archives a topic with these records by a connector with these settings, equal ones once for a whole module."""
    # an index for each: the more a connector has archived, the longer its index takes to open
    numbers = count()

    def archive(sent: list[Sent], kafka_partitions: int = 1, **settings: Any) -> ConnectorConfig:
        topic = create_topic(f"topic-{uuid4().hex[:12]}", kafka_partitions)
        produce(kafka_settings, topic, sent)
        config = connector(kafka_settings, module_store, topic, index_dir=f"_index-{next(numbers)}", **settings)
        archived(config)
        return config

    return once(archive)


@pytest.fixture
def shared_archive(archive_once: Archive) -> Archive:
    """`Lab.archive` for a test that changes neither the topic nor its archive: its restores are its own."""

    def archive(*given: Any, **settings: Any) -> ConnectorConfig:
        return own_restores(archive_once(*given, **settings))

    return archive


@pytest.fixture
def copied_archive(lab: Lab, shared_archive: Archive) -> Archive:
    """`Lab.archive` for a test that does not change the topic: of the archive, made once, it has a copy."""

    def archive(*given: Any, **settings: Any) -> ConnectorConfig:
        shared = shared_archive(*given, **settings)
        copy_objects(lab.s3, shared, lab.store)
        return shared.model_copy(update={"store": lab.store})

    return archive


def copy_objects(client: Any, shared: ConnectorConfig, to: StoreSettings) -> None:
    """Copy the archives of the connector's topics, and the index, to another bucket."""
    of_topics = [f"/{topic}/" for topic in shared.topics]
    for item in ObjectStore(shared.store).list(""):
        if any(part in item.key for part in of_topics) or item.key.startswith(f"{shared.archive.index_dir}/"):
            client.copy_object(
                Bucket=to.bucket, Key=item.key, CopySource={"Bucket": shared.store.bucket, "Key": item.key}
            )


@pytest.fixture
def load(lab: Lab, tmp_path: Path) -> Load:
    """A connector file as it stands, with the bucket, the store and the cluster of the test."""

    def loaded(text: str, more: str = "") -> ConnectorConfig:
        worker, path = tmp_path / "worker.properties", tmp_path / "source.properties"
        worker.write_text(f"bootstrap.servers={lab.kafka.bootstrap_servers}\n")
        assert lab.store.access_key_id is not None
        assert lab.store.secret_access_key is not None
        own = (
            f"store.url={lab.store.endpoint_url}\ns3.region={lab.store.region}\n"
            f"aws.access.key.id={lab.store.access_key_id.get_secret_value()}\n"
            f"aws.secret.access.key={lab.store.secret_access_key.get_secret_value()}\n"
        )
        path.write_text(text.replace(BUCKET, lab.store.bucket) + own + more)
        return load_connector(path, worker, {}).config

    return loaded


@pytest.fixture
def put(lab: Lab) -> Put:
    """Puts lines of JSON as Connect's sink names them, and tells the key."""

    def stored(topic: str, first: int, values: Sequence[Any], kafka_partition: int = 0) -> str:
        folder = f"topics/{topic}/partition={kafka_partition}"
        key = f"{folder}/{topic}+{kafka_partition}+{first:010d}.json"
        body = b"".join(json.dumps(v, separators=(",", ":")).encode() + b"\n" for v in values)
        lab.s3.put_object(Bucket=lab.store.bucket, Key=key, Body=body)
        return key

    return stored
