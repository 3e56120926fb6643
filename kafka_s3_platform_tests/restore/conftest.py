"""Files of connectors as they stand, at the servers of the test."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kafka_s3_platform.config.files import load_connector
from kafka_s3_platform.config.settings import ConnectorConfig, KafkaSettings, StoreSettings
from kafka_s3_platform_tests.restore.foreign import BUCKET, Load, Put


@pytest.fixture
def load(kafka_settings: KafkaSettings, store_settings: StoreSettings, tmp_path: Path) -> Load:
    """A connector file as it stands, with the bucket, the store and the cluster of the test."""

    def loaded(text: str, more: str = "") -> ConnectorConfig:
        worker, path = tmp_path / "worker.properties", tmp_path / "source.properties"
        worker.write_text(f"bootstrap.servers={kafka_settings.bootstrap_servers}\n")
        assert store_settings.access_key_id is not None
        assert store_settings.secret_access_key is not None
        own = (
            f"store.url={store_settings.endpoint_url}\ns3.region={store_settings.region}\n"
            f"aws.access.key.id={store_settings.access_key_id.get_secret_value()}\n"
            f"aws.secret.access.key={store_settings.secret_access_key.get_secret_value()}\n"
        )
        path.write_text(text.replace(BUCKET, store_settings.bucket) + own + more)
        return load_connector(path, worker, {}).config

    return loaded


@pytest.fixture
def put(store_settings: StoreSettings, s3_client: Any) -> Put:
    """Puts lines of JSON as Connect's sink names them, and tells the key."""

    def stored(topic: str, first: int, values: Sequence[Any], kafka_partition: int = 0) -> str:
        folder = f"topics/{topic}/partition={kafka_partition}"
        key = f"{folder}/{topic}+{kafka_partition}+{first:010d}.json"
        body = b"".join(json.dumps(v, separators=(",", ":")).encode() + b"\n" for v in values)
        s3_client.put_object(Bucket=store_settings.bucket, Key=key, Body=body)
        return key

    return stored
