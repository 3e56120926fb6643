"""The examples of the documents of Confluent's and DeviantArt's sinks, as they are printed there."""

from pathlib import Path

import pytest

from kafka_s3_platform.config.check import CheckReport, check_report
from kafka_s3_platform.config.files import load_connector
from kafka_s3_platform.config.sheet import KeyClass
from kafka_s3_platform.errors import ConfigError
from kafka_s3_platform_tests.config.conftest import of_class

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


def keys(report: CheckReport, key_class: KeyClass) -> set[str]:
    return {found.key for found in of_class(report, key_class)}


def test_the_cloud_example_as_printed_is_invalid_json(folder: Path) -> None:
    (problem,) = report(folder, "cloud.json", CLOUD).problems
    assert problem.endswith("cloud.json, line 16, column 4: invalid JSON: Expecting ',' delimiter")


def test_the_corrected_cloud_example_is_refused_for_its_output_and_its_placeholders(folder: Path) -> None:
    cloud = report(folder, "cloud.json", CLOUD_CORRECTED)
    assert cloud.name == "confluent-s3-sink"
    assert keys(cloud, KeyClass.REFUSED) == {
        "output.data.format",
        "compression.codec",
        "s3.compression.level",
        "s3.bucket.name",
        "topics",
    }
    assert keys(cloud, KeyClass.WITHOUT_MEANING) == {"input.data.format"}


def test_the_cloud_example_filled_in_loads_without_its_output_format(folder: Path) -> None:
    text = CLOUD_CORRECTED.replace("<my-bucket-name>", "my-bucket").replace("<topic-1>, <topic-2>", "topic-1, topic-2")
    lines = [line for line in text.splitlines() if not any(key in line for key in ("output.", "codec", "level"))]
    path = folder / "cloud.json"
    path.write_text("\n".join(lines))
    config = load_connector(path, folder / "worker.properties", {}).config
    assert config.topics == ("topic-1", "topic-2")
    assert (config.layout.partitioner, config.layout.flush_size) == ("Hourly", 1000)
    assert config.kafka.properties("admin")["security.protocol"] == "SASL_SSL"
    assert config.kafka.properties("consumer")["sasl.username"] == "<my-kafka-api-key>"


@pytest.mark.parametrize(("name", "text"), [("s3-sink.json", PLATFORM), ("quickstart-s3.properties", QUICKSTART)])
def test_the_platform_example_is_refused_for_its_format_and_partitioner_only(
    folder: Path, name: str, text: str
) -> None:
    sink = report(folder, name, text)
    assert sink.name == "s3-sink"
    assert keys(sink, KeyClass.REFUSED) == {"format.class", "partitioner.class"}
    assert all("known, not honoured by this version yet" in found.effect for found in of_class(sink, KeyClass.REFUSED))
    assert keys(sink, KeyClass.WITHOUT_MEANING) == {"storage.class", "schema.generator.class", "schema.compatibility"}


def test_the_platform_example_loads_without_its_format_and_partitioner(folder: Path) -> None:
    path = folder / "quickstart-s3.properties"
    lines = [line for line in QUICKSTART.splitlines() if not line.startswith(("format.class", "partitioner.class"))]
    path.write_text("\n".join(lines))
    config = load_connector(path, folder / "worker.properties", {}).config
    assert (config.layout.flush_size, config.store.part_size) == (3, 5_242_880)


def test_a_source_connector_is_refused_with_the_command_that_restores(folder: Path) -> None:
    source = report(folder, "quickstart-s3source.properties", SOURCE)
    effects = {found.key: found.effect for found in of_class(source, KeyClass.REFUSED)}
    assert "restore with `kafka-s3 restore`" in effects["connector.class"]
    assert {"transforms", "transforms.AddPrefix.type", "format.class"} <= effects.keys()
    assert "confluent.license" in keys(source, KeyClass.WITHOUT_MEANING)


def test_every_key_of_the_block_gzip_sink_is_known(folder: Path) -> None:
    path = folder / "block-gzip.properties"
    path.write_text(BLOCK_GZIP)
    with pytest.raises(ConfigError) as caught:
        load_connector(path, folder / "worker.properties", {})
    refused = str(caught.value)
    assert "unknown key" not in refused
    assert "s3.bucket: known, not honoured by this version yet" in refused
    assert "Confluent's is `s3.bucket.name`" in refused
