"""What tests of restores from source connectors share: files, requests, and what came of them."""

import json
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from kafka_s3_platform.config.settings import ConnectorConfig, KafkaSettings
from kafka_s3_platform.restore.foreign_source import ForeignSource
from kafka_s3_platform.restore.request import RestoreReport, RestoreRequest
from kafka_s3_platform.restore.run import restore
from kafka_s3_platform.restore.target_topic import Template, TopicMap
from kafka_s3_platform_tests.kafka.topics import records_of
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

Load = Callable[..., ConnectorConfig]
Put = Callable[..., str]

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


def asked(config: ConnectorConfig, topics: tuple[str, ...] = (), rename: Any = None, **terms: Any) -> ForeignSource:
    given: dict[str, Any] = {"restore_id": f"r-{uuid4().hex[:8]}", "run_id": "run", "create_topic": True} | terms
    after = given.pop("after", None)
    rule = Template(rename) if isinstance(rename, str) else TopicMap(rename) if isinstance(rename, dict) else rename
    return ForeignSource(RestoreRequest(config=config, topic="", to_topic="", **given), topics, rule, after=after)


def restored(config: ConnectorConfig, *given: Any, **terms: Any) -> RestoreReport:
    return restore(asked(config, *given, **terms), InProcessRunner())


def values(kafka: KafkaSettings, topic: str, kafka_partition: int = 0) -> list[bytes]:
    found: list[bytes] = records_of(kafka, topic, kafka_partition).column("value").to_pylist()
    return found


def numbers(kafka: KafkaSettings, topic: str, kafka_partition: int = 0) -> list[int]:
    return [json.loads(v)["n"] for v in values(kafka, topic, kafka_partition)]


def numbered(start: int, count: int) -> list[dict[str, int]]:
    return [{"n": n} for n in range(start, start + count)]
