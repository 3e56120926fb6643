"""The examples of the documents of Confluent's, DeviantArt's and Zooz's sinks, as they are printed there."""

import json
from datetime import datetime, timezone
from pathlib import Path

import pytest

from kafka_s3_platform.connect.config.describe import CheckReport, check_report
from kafka_s3_platform.connect.config.files import load_connector
from kafka_s3_platform.connect.config.keys.table import Support
from kafka_s3_platform.connect.config.zooz import convert_environment
from kafka_s3_platform.connect.sources.sample import Sample, make_sample_keys
from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform_tests.config.conftest import Check, of_class

CLOUD = """\
{
   "name" : "confluent-s3-sink",
   "connector.class": "S3_SINK",
   "kafka.api.key": "<my-kafka-api-key>",
   "kafka.api.secret" : "<my-kafka-api-secret>",
   "aws.access.key.id" : "<my-aws-access-key>",
   "aws.secret.access.key": "<my-aws-access-key-secret>",
   "input.data.format": "JSON",
   "output.data.format": "JSON",
   "compression.codec": "JSON - gzip",
   "s3.compression.level": "6",
   "s3.bucket.name": "<my-bucket-name>",
   "time.interval" : "HOURLY",
   "flush.size": "1000",
   "tasks.max" : "1"
   "topics": "<topic-1>, <topic-2>",
}
"""
CLOUD_CORRECTED = CLOUD.replace('"tasks.max" : "1"', '"tasks.max" : "1",').replace('<topic-2>",', '<topic-2>"')

CLOUD_FILLED_IN = CLOUD_CORRECTED.replace("<my-bucket-name>", "my-bucket").replace(
    "<topic-1>, <topic-2>", "topic-1, topic-2"
)
AVRO_CONVERTER = "value.converter=io.confluent.connect.avro.AvroConverter"

PLATFORM = """\
{
  "name": "s3-sink",
  "config": {
    "connector.class": "io.confluent.connect.s3.S3SinkConnector",
    "tasks.max": "1",
    "topics": "s3_topic",
    "s3.region": "us-west-2",
    "s3.bucket.name": "confluent-kafka-connect-s3-testing",
    "s3.part.size": "5242880",
    "flush.size": "3",
    "storage.class": "io.confluent.connect.s3.storage.S3Storage",
    "format.class": "io.confluent.connect.s3.format.avro.AvroFormat",
    "schema.generator.class": "io.confluent.connect.storage.hive.schema.DefaultSchemaGenerator",
    "partitioner.class": "io.confluent.connect.storage.partitioner.DefaultPartitioner",
    "schema.compatibility": "NONE",
    "name": "s3-sink"
  },
  "tasks": []
}
"""

QUICKSTART = """\
name=s3-sink
connector.class=io.confluent.connect.s3.S3SinkConnector
tasks.max=1
topics=s3_topic
flush.size=3
s3.bucket.name=confluent-kafka-connect-s3-testing
s3.part.size=5242880
storage.class=io.confluent.connect.s3.storage.S3Storage
format.class=io.confluent.connect.s3.format.avro.AvroFormat
schema.generator.class=io.confluent.connect.storage.hive.schema.DefaultSchemaGenerator
partitioner.class=io.confluent.connect.storage.partitioner.DefaultPartitioner
schema.compatibility=NONE
"""

SOURCE = """\
name=s3-source
tasks.max=1
connector.class=io.confluent.connect.s3.source.S3SourceConnector
s3.bucket.name=confluent-kafka-connect-s3-testing
format.class=io.confluent.connect.s3.format.avro.AvroFormat
confluent.license=
confluent.topic.bootstrap.servers=localhost:9092
confluent.topic.replication.factor=1
transforms=AddPrefix
transforms.AddPrefix.type=org.apache.kafka.connect.transforms.RegexRouter
transforms.AddPrefix.regex=.*
transforms.AddPrefix.replacement=copy_of_$0
"""

BLOCK_GZIP = """\
name=connect-system-test
connector.class=com.deviantart.kafka_connect_s3.S3SinkConnector
topics=system-test
s3.bucket=connect-system-test
local.buffer.dir=/tmp/connect-system-test
s3.prefix=systest
s3.endpoint=http://localhost:9090
s3.path_style=true
compressed_block_size=67108864
"""


def report(folder: Path, name: str, text: str) -> CheckReport:
    path = folder / name
    path.write_text(text)
    return check_report(path, folder / "worker.properties", {})


def keys(report: CheckReport, support: Support) -> set[str]:
    return {found.key for found in of_class(report, support)}


def test_the_cloud_example_as_printed_is_invalid_json(folder: Path) -> None:
    (problem,) = report(folder, "cloud.json", CLOUD).problems
    assert problem.endswith("cloud.json, line 16, column 4: invalid JSON: Expecting ',' delimiter")


def test_the_corrected_cloud_example_is_refused_for_its_placeholders_only(folder: Path) -> None:
    cloud = report(folder, "cloud.json", CLOUD_CORRECTED)
    assert cloud.name == "confluent-s3-sink"
    assert keys(cloud, Support.REFUSED) == {"s3.bucket.name", "topics"}
    assert not keys(cloud, Support.WITHOUT_MEANING)


@pytest.mark.parametrize(("codec", "level"), [("JSON - gzip", 6), ("none", None)])
def test_without_a_level_cloud_compresses_by_level_6(folder: Path, codec: str, level: int | None) -> None:
    text = CLOUD_FILLED_IN.replace('"s3.compression.level": "6",', "").replace("JSON - gzip", codec)
    assert loaded(folder, "cloud.json", text).layout.codec_level == level


def test_the_cloud_example_filled_in_archives_json_by_the_hour(folder: Path) -> None:
    config = loaded(folder, "cloud.json", CLOUD_FILLED_IN)
    layout = config.layout
    assert config.topics == ("topic-1", "topic-2")
    assert (layout.format, layout.codec, layout.codec_level) == ("json", "gzip", 6)
    assert (layout.partitioner, layout.flush_size, layout.rotate_interval_ms) == ("Hourly", 1000, 3_600_000)
    assert (config.records.value.format, config.records.value.schemas_enable) == ("JSON", False)
    assert config.kafka.properties("admin")["security.protocol"] == "SASL_SSL"
    assert config.kafka.properties("consumer")["sasl.username"] == "<my-kafka-api-key>"


def test_clouds_path_example_is_hourly_whatever_its_document_prints(folder: Path) -> None:
    """The document sets json_logs/hourly and prints json_logs/daily: what is set is meant."""
    own = '"topics.dir": "json_logs/hourly", "path.format": "\'dt\'=YYYY-MM-dd/\'hr\'=HH",'
    config = loaded(folder, "cloud.json", CLOUD_FILLED_IN.replace("{", "{" + own, 1))
    sample = Sample("topic-1", datetime(2020, 2, 6, 9, tzinfo=timezone.utc))
    assert make_sample_keys(config, sample) == (
        "json_logs/hourly/topic-1/dt=2020-02-06/hr=09/topic-1+0+0000000000.json.gz",
    )


@pytest.mark.parametrize("locale", ["en", "en-US", "en-GB", "en-IN", "fr-FR"])
@pytest.mark.parametrize("zone", ["EST", "PST", "WET", "UTC"])
def test_clouds_timezones_and_locales_load(folder: Path, zone: str, locale: str) -> None:
    own = f'"timezone": "{zone}", "locale": "{locale}",'
    assert loaded(folder, "cloud.json", CLOUD_FILLED_IN.replace("{", "{" + own, 1)).layout.locale == locale


@pytest.mark.parametrize(("name", "text"), [("s3-sink.json", PLATFORM), ("quickstart-s3.properties", QUICKSTART)])
def test_the_platform_example_loads_over_the_workers_converter(folder: Path, name: str, text: str) -> None:
    write_worker(folder)
    config = loaded(folder, name, text)
    layout = config.layout
    assert (layout.format, layout.codec, layout.partitioner, layout.flush_size) == ("avro", "null", "Default", 3)
    assert (config.records.value.format, config.store.part_size) == ("AVRO", 5_242_880)
    sample = Sample("s3_topic", datetime(2020, 1, 1, tzinfo=timezone.utc))
    assert make_sample_keys(config, sample) == ("topics/s3_topic/partition=0/s3_topic+0+0000000000.avro",)
    assert keys(report(folder, name, text), Support.WITHOUT_MEANING) == {"storage.class", "schema.generator.class"}


def test_the_platform_example_without_any_converter_is_told_what_it_lacks(folder: Path) -> None:
    sink = report(folder, "s3-sink.json", PLATFORM)
    (refused,) = of_class(sink, Support.REFUSED)
    assert refused.key == "value.converter"
    assert "required, here or in worker.properties" in refused.effect


def test_the_block_gzip_example_writes_its_own_layout(folder: Path) -> None:
    config = loaded(folder, "block-gzip.properties", BLOCK_GZIP)
    layout = config.layout
    assert (layout.format, layout.key_layout, layout.block_size) == ("block_gzip", "block_gzip", 67_108_864)
    assert (config.store.bucket, config.store.endpoint_url) == ("connect-system-test", "http://localhost:9090")
    assert config.store.path_style
    sample = Sample("system-test", datetime(2016, 2, 24, 5, tzinfo=timezone.utc))
    assert make_sample_keys(config, sample) == ("systest/2016-02-24/system-test-00000-000000000000.gz",)
    found = report(folder, "block-gzip.properties", BLOCK_GZIP)
    assert keys(found, Support.WITHOUT_MEANING) == {"local.buffer.dir"}


ASSUMED = {
    "s3.credentials.provider.class": "AwsAssumeRoleCredentialsProvider",
    "sts.role.arn": "arn:aws:iam::012345678901:role/my-restricted-role",
    "sts.role.session.name": "session-name",
    "sts.role.external.id": "external-id",
}


def test_the_trusted_account_example_loads(check: Check) -> None:
    found = check(ASSUMED)
    assert {f.key for f in of_class(found, Support.HONOURED)} >= ASSUMED.keys()


def test_zoozs_example_writes_its_paths(folder: Path) -> None:
    env = {
        "KAFKA_HOST": "kafka-server1:9092,kafka-server2:9092,kafka-server3:9092",
        "SOURCE_KAFKA_TOPIC": "my-topic",
        "S3_BUCKET_NAME": "my-bucket",
        "S3_ACCESS_KEY": "ABCDEFGHIJKLMNOPQRST",
        "S3_SECRET_KEY": "1234567890123456789/1234/123456789012345",
    }
    path = folder / "zooz.json"
    path.write_text(json.dumps(dict(convert_environment(env).keys)))
    config = load_connector(path, folder / "worker.properties", env)
    assert config.kafka.bootstrap_servers == env["KAFKA_HOST"]
    sample = Sample("my-topic", datetime(2019, 3, 12, 12, 0, 1, tzinfo=timezone.utc))
    assert make_sample_keys(config, sample) == ("date=2019-03-12/hour=12/0_0.json",)


EXAMPLES = [CLOUD_FILLED_IN, PLATFORM, QUICKSTART, SOURCE, BLOCK_GZIP]


@pytest.mark.parametrize("text", EXAMPLES)
def test_every_key_of_the_examples_is_known_and_judged(folder: Path, text: str) -> None:
    name = "example.json" if text.startswith("{") else "example.properties"
    found = report(folder, name, text)
    assert not found.problems
    assert not [f.key for f in found.findings if f.effect.startswith("unknown key")]


def loaded(folder: Path, name: str, text: str) -> ConnectorConfig:
    path = folder / name
    path.write_text(text)
    return load_connector(path, folder / "worker.properties", {})


def write_worker(folder: Path) -> None:
    lines = (
        "bootstrap.servers=broker:9092",
        AVRO_CONVERTER,
        "value.converter.schema.registry.url=http://registry:8081",
    )
    (folder / "worker.properties").write_text("\n".join(lines))
