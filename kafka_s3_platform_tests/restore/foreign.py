"""What tests of restores from source connectors share: files, requests, and what came of them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from kafka_s3_platform.connect.config.files import load_connector
from kafka_s3_platform.connect.restore.foreign_source import ForeignSource
from kafka_s3_platform.core.config.settings import ConnectorConfig, KafkaSettings
from kafka_s3_platform.core.restore.request import RestoreReport, RestoreRequest
from kafka_s3_platform.core.restore.run import restore
from kafka_s3_platform.core.restore.target_topic import Template, TopicMap
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.kafka.topics import values
from kafka_s3_platform_tests.support import InProcessRunner

BUCKET = "confluent-kafka-connect-s3-testing"
JSON = """\
value.converter=org.apache.kafka.connect.json.JsonConverter
value.converter.schemas.enable=false
"""
LINES = """\
name=lines
connector.class=io.confluent.connect.s3.source.S3SourceConnector
s3.bucket.name=confluent-kafka-connect-s3-testing
format.class=io.confluent.connect.s3.format.json.JsonFormat
"""

SOURCE_CLASS = "io.confluent.connect.s3.source.S3SourceConnector"

DEVIANT_CLASS = "com.deviantart.kafka_connect_s3.S3SinkConnector"
BLOCK_GZIP = f"""\
name=connect-system-test
connector.class={DEVIANT_CLASS}
topics=system-test
s3.bucket=confluent-kafka-connect-s3-testing
local.buffer.dir=/tmp/connect-system-test
s3.prefix=systest
compressed_block_size=67108864
"""


@dataclass(frozen=True)
class SourceLab(Lab):
    """A lab with files of source connectors, which are kept in `folder`, and with objects of sinks."""

    folder: Path

    def load(self, text: str, more: str = "") -> ConnectorConfig:
        """A connector file as it stands, with the bucket, the store and the cluster of the test."""
        worker, path = self.folder / "worker.properties", self.folder / "source.properties"
        worker.write_text(f"bootstrap.servers={self.kafka.bootstrap_servers}\n")
        assert self.store.access_key_id is not None
        assert self.store.secret_access_key is not None
        own = (
            f"store.url={self.store.endpoint_url}\ns3.region={self.store.region}\n"
            f"aws.access.key.id={self.store.access_key_id.get_secret_value()}\n"
            f"aws.secret.access.key={self.store.secret_access_key.get_secret_value()}\n"
        )
        path.write_text(text.replace(BUCKET, self.store.bucket) + own + more)
        return load_connector(path, worker, {})

    def put(self, topic: str, first: int, values: Sequence[Any], kafka_partition: int = 0) -> str:
        """Store lines of JSON as Connect's sink names them. Returns the key."""
        body = b"".join(json.dumps(v, separators=(",", ":")).encode() + b"\n" for v in values)
        return self.put_body(topic, first, "json", body, kafka_partition)

    def put_body(self, topic: str, first: int, extension: str, body: bytes, kafka_partition: int = 0) -> str:
        """Store any bytes as Connect's sink names objects. Returns the key."""
        folder = f"topics/{topic}/partition={kafka_partition}"
        key = f"{folder}/{topic}+{kafka_partition}+{first:010d}.{extension}"
        self.put_object(key, body)
        return key


def asked(config: ConnectorConfig, topics: tuple[str, ...] = (), rename: Any = None, **terms: Any) -> ForeignSource:
    given: dict[str, Any] = {"restore_id": f"r-{uuid4().hex[:8]}", "run_id": "run", "create_topic": True} | terms
    after = given.pop("after", None)
    rule = Template(rename) if isinstance(rename, str) else TopicMap(rename) if isinstance(rename, dict) else rename
    return ForeignSource(RestoreRequest(config=config, topic="", to_topic="", **given), topics, rule, after=after)


def restored(config: ConnectorConfig, *given: Any, **terms: Any) -> RestoreReport:
    return restore(asked(config, *given, **terms), InProcessRunner())


def numbers(kafka: KafkaSettings, topic: str, kafka_partition: int = 0) -> list[int]:
    return [json.loads(v)["n"] for v in values(kafka, topic, kafka_partition)]


def numbered(start: int, count: int) -> list[dict[str, int]]:
    return [{"n": n} for n in range(start, start + count)]
