"""The commands that look at connector files, as a script calls them."""

import json

import pytest

from kafka_s3_platform_tests.cli.conftest import KafkaS3, parsed, write_connector

FAILED = 1
FIELD = {
    "format.class": "JsonFormat",
    "input.data.format": "JSON",
    "partitioner.class": "FieldPartitioner",
    "partition.field.name": "country,address.city",
}
ZOOZ = """\
export KAFKA_HOST=kafka-server1:9092,kafka-server2:9092,kafka-server3:9092
export SOURCE_KAFKA_TOPIC=my-topic
export S3_BUCKET_NAME=my-bucket
export S3_ACCESS_KEY=ABCDEFGHIJKLMNOPQRST
export S3_SECRET_KEY=1234567890123456789/1234/123456789012345
export LOADING_MODULE="com.zooz.kafkas3connector.modules.UpperCaseLoader"  # our mapper
"""


def test_check_shows_the_key_of_a_sample_record(kafka_s3: KafkaS3) -> None:
    write_connector(kafka_s3, "t,u", **FIELD)
    value = json.dumps({"country": "FR", "address": {"city": "Paris"}})
    found = parsed(kafka_s3("check", "connectors/c.json", "--topic", "u", "--value", value, "--json"))
    assert found["example_keys"] == ["topics/u/country=FR/address.city=Paris/u+0+0000000000.json"]
    assert "****" in found["credentials"]


def test_check_takes_the_samples_time_in_the_connectors_timezone(kafka_s3: KafkaS3) -> None:
    write_connector(kafka_s3, "t", timezone="Europe/Paris")
    found = parsed(kafka_s3("check", "connectors/c.json", "--timestamp", "2020-02-06T09:30", "--json"))
    assert found["example_keys"] == ["topics/t/year=2020/month=02/day=06/hour=09/t+0+0000000000.parquet"]


def test_check_says_why_it_has_no_key_to_show(kafka_s3: KafkaS3) -> None:
    write_connector(kafka_s3, "t", **FIELD)
    found = kafka_s3("check", "connectors/c.json", status=0)
    assert "no example of a key" in found.stdout
    assert "give its value" in found.stdout


def test_check_shows_the_objects_of_keys_and_headers_too(kafka_s3: KafkaS3) -> None:
    keys = {"format.class": "JsonFormat", "input.data.format": "JSON", "input.key.format": "STRING"}
    write_connector(kafka_s3, "t", **keys, **{"store.kafka.keys": "true", "store.kafka.headers": "true"})
    found = parsed(kafka_s3("check", "connectors/c.json", "--json"))
    assert [key.split("0000000000.")[1] for key in found["example_keys"]] == ["json", "keys.avro", "headers.avro"]


def test_check_says_first_whether_a_file_loads_and_why_not_then_what_it_does(kafka_s3: KafkaS3) -> None:
    router = {"transforms": "r", "transforms.r.type": "RegexRouter"}
    router |= {"transforms.r.regex": "a", "transforms.r.replacement": "b"}
    write_connector(kafka_s3, "t", **router, **{"flush.sise": "3"})
    shown = kafka_s3("check", "connectors/c.json").stdout.splitlines()
    assert shown[0].endswith("c.json: does not load")
    assert (shown[1], shown[2][:15]) == ("c.json, refused:", "  flush.sise = ")
    assert shown[3] == "c.json, honoured:"
    lines = [line for line in shown if line.startswith("  transforms.r.")]
    assert [line.partition(": ")[0] for line in lines] == [
        "  transforms.r.type = RegexRouter",
        "  transforms.r.regex = a",
        "  transforms.r.replacement = b",
    ]
    assert [": " in line for line in lines] == [False, False, True]


JSON_OF_AVRO = {
    "format.class": "JsonFormat",
    "value.converter": "io.confluent.connect.avro.AvroConverter",
    "value.converter.schema.registry.url": "http://registry.invalid",
}


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({}, ["EnvelopeParquetFormat holds whole records", "`kafka-s3 restore c --topic T --to-topic T2`"]),
        (
            {"format.class": "JsonFormat", "value.converter": "org.apache.kafka.connect.storage.StringConverter"},
            ["`kafka-s3 restore c --to-topic T2` reads objects of JsonFormat", "objects hold no keys", "no timestamps"],
        ),
        ({"topics.dir": ".a/_b"}, ["Spark, Hive and pyarrow leave out .a, _b, __out_of_range__ if they read a folder"]),
        ({"format.class": "JsonFormat", "value.converter": "JsonConverter"}, ['sent with "schema": null']),
        (JSON_OF_AVRO, ["does not say how they are read back: value.converter: "]),
    ],
    ids=["envelope", "hidden folders", "lines", "lines of JSON with schemas", "lines of Avro"],
)
def test_check_tells_after_its_verdict_what_one_gets(kafka_s3: KafkaS3, keys: dict[str, str], told: list[str]) -> None:
    write_connector(kafka_s3, "t", **keys)
    verdict, *rest = kafka_s3("check", "connectors/c.json").stdout.splitlines()
    assert verdict.endswith("c.json: loads")
    rest = [line for line in rest if not line.startswith("warning: ")]
    gets = [line for line in rest if line.startswith("what you get: ")]
    assert rest[: len(gets)] == gets
    assert all(any(part in line for line in gets) for part in told)


@pytest.mark.parametrize(("topics", "hidden"), [("t", None), ("_t", "_t, _t+0+0000000000.parquet"), ("t,.u", ".u")])
def test_check_names_what_engines_leave_out_if_there_is_any(kafka_s3: KafkaS3, topics: str, hidden: str | None) -> None:
    write_connector(kafka_s3, topics, **{"archive.out.of.range.folder": "odd"})
    gets = kafka_s3("check", "connectors/c.json").stdout
    assert ("what you get: Spark" in gets) == (hidden is not None)
    assert f"leave out {hidden} if they read a folder" in gets or hidden is None


def test_a_sink_whose_objects_its_file_does_not_read_back_is_refused_with_the_reason(kafka_s3: KafkaS3) -> None:
    write_connector(kafka_s3, "t", **JSON_OF_AVRO)
    found = kafka_s3("restore", "c", "--to-topic", "u", status=1)
    assert "writes objects of format json, and its file does not say how they are read back: value.conv" in found.stderr


def test_list_tells_each_files_class_and_status(kafka_s3: KafkaS3) -> None:
    write_connector(kafka_s3, "t")
    bad = {"name": "bad", "connector.class": "S3_SINK", "topics": "t", "s3.bucket.name": "bucket", "flush.sise": 1}
    (kafka_s3.folder / "connectors" / "bad.json").write_text(json.dumps(bad))
    (kafka_s3.folder / "connectors" / "worse.json").write_text("{")
    found = json.loads(kafka_s3("list", "--json", status=1).stdout)["connectors"]
    assert [(row["name"], row["class"], row["status"], row["refused_keys"]) for row in found] == [
        ("bad", "S3_SINK", "refused", ["flush.sise"]),
        ("c", "S3SinkConnector", "loaded", []),
        (None, "S3SinkConnector", "refused", []),
    ]
    shown = kafka_s3("list").stdout
    assert "refused: 1 key" in shown
    assert "refused: cannot be read" in shown


def test_describe_tells_required_and_optional_keys(kafka_s3: KafkaS3) -> None:
    found = parsed(kafka_s3("describe", "S3_SINK", "--json"))
    assert "compression.codec" in [key["key"] for key in found["required_there"]]
    shown = kafka_s3("describe", "S3_SINK").stdout
    assert shown.startswith("S3_SINK: Confluent Cloud's S3 sink\nrequired:\n")
    assert "  flush.size (default: 1000): " in shown
    assert kafka_s3("describe", "S3_SOURCE").stdout.startswith("S3_SOURCE: Confluent Cloud's S3 source\nrequired:\n")
    classes = [found["class"] for found in parsed(kafka_s3("describe", "--json"))["classes"]]
    assert {"S3_SINK", "com.deviantart.kafka_connect_s3.S3SinkConnector"} <= set(classes)
    assert "  S3_SOURCE: Confluent Cloud's S3 source\n" in kafka_s3("describe").stdout
    foo = kafka_s3("describe", "foo", status=2)
    assert all(name in foo.stderr for name in classes)
    assert "did you mean S3_SINK?" in kafka_s3("describe", "S3_SINKS", status=2).stderr


@pytest.mark.parametrize("name", ["zooz.json", "zooz.properties"])
def test_convert_writes_a_file_that_loads(kafka_s3: KafkaS3, name: str) -> None:
    (kafka_s3.folder / "zooz.env").write_text(ZOOZ)
    found = kafka_s3("convert", "zooz.env", "-o", f"connectors/{name}", status=0)
    assert "LOADING_MODULE has no counterpart" in found.stderr
    text = (kafka_s3.folder / "connectors" / name).read_text()
    assert "1234567890" not in text
    checked = kafka_s3("check", f"connectors/{name}", "--json")
    refused = [key for key in json.loads(checked.stdout)["keys"] if key["class"] == "refused"]
    assert {key["effect"] for key in refused} == {
        "the environment variable 'S3_ACCESS_KEY' is not set",
        "the environment variable 'S3_SECRET_KEY' is not set",
    }
    assert kafka_s3("convert", "zooz.env", "-o", f"connectors/{name}").returncode == FAILED


def test_convert_prints_a_file_and_names_what_is_missing(kafka_s3: KafkaS3) -> None:
    (kafka_s3.folder / "zooz.env").write_text(ZOOZ)
    assert json.loads(kafka_s3("convert", "zooz.env").stdout)["archive.key.layout"] == "zooz"
    (kafka_s3.folder / "zooz.env").write_text("KAFKA_HOST=a:9092\n")
    assert "SOURCE_KAFKA_TOPIC, S3_BUCKET_NAME must be set" in kafka_s3("convert", "zooz.env", status=FAILED).stderr
