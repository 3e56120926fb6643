from datetime import datetime, timezone
from pathlib import Path

import pytest

from kafka_s3_platform.connect.config.describe import check_report
from kafka_s3_platform.connect.config.files import find_conflicts
from kafka_s3_platform.connect.sources.sample import Sample, make_sample_keys
from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform_tests.config.conftest import Load

NOON = datetime(2020, 3, 1, 12, tzinfo=timezone.utc)
AIVEN = {
    "connector.class": "io.aiven.kafka.connect.s3.AivenKafkaConnectS3SinkConnector",
    "s3.bucket.name": "",
    "aws.s3.bucket.name": "archive",
    "aws.s3.region": "eu-west-1",
    "format.output.type": "jsonl",
    "format.output.envelope": False,
    "file.compression.type": "none",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": False,
}
TEMPLATE = "{{topic}}/{{timestamp:unit=yyyy}}/{{topic}}-{{partition:padding=true}}-{{start_offset:padding=true}}.jsonl"


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        ({}, "events-0-0"),
        ({"file.compression.type": "gzip"}, "events-0-0.gz"),
        ({"aws.s3.prefix": "a/b/"}, "a/b/events-0-0"),
        ({"aws.s3.prefix": "a/pre-"}, "a/pre-events-0-0"),
        ({"file.name.template": TEMPLATE}, "events/2020/events-0000000000-00000000000000000000.jsonl"),
    ],
)
def test_aivens_file_writes_its_names(load: Load, keys: dict[str, object], key: str) -> None:
    assert make_sample_keys(load({**AIVEN, **keys}).config, Sample("events", NOON)) == (key,)


def test_aivens_keys_are_honoured(load: Load) -> None:
    own = {"file.max.records": 7, "file.name.timestamp.source": "EVENT", "file.name.timestamp.timezone": "Europe/Paris"}
    config = load({**AIVEN, **own}).config
    layout = config.layout
    assert (config.store.bucket, config.store.region) == ("archive", "eu-west-1")
    assert (layout.format, layout.codec, layout.flush_size) == ("json", "none", 7)
    assert (layout.timestamp_extractor, layout.timezone) == ("Record", "Europe/Paris")
    assert load(AIVEN).config.layout.timestamp_extractor == "Wallclock"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"format.output.type": "json"}, r"format\.output\.type: 'json' is none of csv, jsonl"),
        ({"format.output.fields": "key,value,offset"}, r"format\.output\.fields: only `value` is written"),
        ({"format.output.envelope": True}, r"format\.output\.envelope: values are written without"),
        ({"format.output.type": "csv"}, r"format\.output\.fields\.value\.encoding: lines of base64"),
        ({"file.compression.type": "snappy"}, r"file\.compression\.type: the format json has no codec 'snappy'"),
        ({"file.name.template": "{{key}}"}, r"file\.name\.template: \{\{key\}\} keeps the newest"),
        ({"aws.s3.prefix": "a/", "topics.dir": "b"}, r"aws\.s3\.prefix: topics\.dir sets the same"),
        ({"aws.s3.prefix": "{{topic}}/"}, r"aws\.s3\.prefix: holds a placeholder"),
        ({"s3.bucket.name": "other"}, r"aws\.s3\.bucket\.name: s3\.bucket\.name sets the same; keep one"),
        (
            {"file.name.timestamp.source": "EVENT", "timestamp.extractor": "Record"},
            r"timestamp\.source: timestamp\.ext",
        ),
    ],
)
def test_what_aivens_sink_does_and_this_does_not_is_refused_by_name(
    load: Load, keys: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        load({**AIVEN, **keys})


def test_aivens_files_of_any_number_of_records_have_no_flush_size(load: Load) -> None:
    assert load({**AIVEN, "file.max.records": 0}).config.layout.flush_size is None
    with pytest.raises(ConfigError, match=r"flush\.size: 0 is not between 1 and"):
        load({"flush.size": 0})


def test_aivens_csv_of_values_alone_is_lines_of_bytes(load: Load) -> None:
    keys = {**AIVEN, "format.output.type": "csv", "format.output.fields.value.encoding": "none"}
    layout = load({**keys, "value.converter": "ByteArrayConverter", "value.converter.schemas.enable": ""}).config.layout
    assert (layout.format, layout.bytes_separator) == ("bytes", "\n")


def test_deviantarts_file_without_a_prefix_writes_to_the_buckets_root(load: Load) -> None:
    keys = {"connector.class": "com.deviantart.kafka_connect_s3.S3SinkConnector", "local.buffer.dir": "/tmp/x"}
    config = load({**keys, "s3.bucket.name": "", "s3.bucket": "archive"}).config
    assert make_sample_keys(config, Sample("events", NOON)) == ("2020-03-01/events-00000-000000000000.gz",)


def test_the_name_of_a_key_in_an_error_is_the_one_that_is_written(load: Load) -> None:
    with pytest.raises(ConfigError, match=r"  s3\.bucket: 'a' is no bucket name"):
        load({"s3.bucket.name": "", "s3.bucket": "a"})
    with pytest.raises(ConfigError, match=r"  s3\.bucket: the environment variable 'B' is not set\Z"):
        load({"s3.bucket.name": "", "s3.bucket": "${env:B}"})


def test_two_files_share_no_folder_that_their_keys_leave_open(folder: Path) -> None:
    def config(name: str, **keys: str) -> ConnectorConfig:
        lines = {"name": name, "s3.bucket.name": "archive", **{k.replace("_", "."): v for k, v in keys.items()}}
        path = folder / f"{name}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        found = check_report(path, folder / "worker.properties", {})
        assert found.config, found.findings
        return found.config

    zooz = {"archive_key_layout": "zooz", "format_class": "ByteArrayFormat"}
    a, b = Path("a"), Path("b")
    root = {"topics": "x", "topics_dir": "/", **zooz}
    assert find_conflicts({a: config("a", **root), b: config("b", topics="y")})[0].message.endswith(
        "change topics.dir or topics of one"
    )
    assert find_conflicts({a: config("a", **{**root, "topics_dir": "p"}), b: config("b", topics="y")}) == []
    regex = {"topics_regex": "y.*"}
    assert find_conflicts({a: config("a", topics="x"), b: config("b", **regex)})
    assert find_conflicts({a: config("a", topics="x"), b: config("b", topics="y")}) == []
