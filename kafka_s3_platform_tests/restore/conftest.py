"""Files of connectors as they stand, at the servers of the test, and archives that several tests restore."""

from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from kafka_s3_platform.core.config.settings import ConnectorConfig, KafkaSettings, StoreSettings
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform_tests.conftest import CreateTopic, Lab
from kafka_s3_platform_tests.restore.foreign import SourceLab
from kafka_s3_platform_tests.restore.own import Archive, once, own_restores
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
def lab(lab: Lab, tmp_path: Path) -> SourceLab:
    """`lab`, with files of source connectors and objects of sinks."""
    return SourceLab(lab.kafka, lab.topic, lab.create, lab.fixture, tmp_path)
