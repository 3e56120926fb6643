import pickle
from datetime import datetime, timezone
from zoneinfo import ZoneInfo

import pytest

from kafka_s3_platform.connect.config.keys.table import Support
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform_tests.config.conftest import Check, Load, finding
from kafka_s3_platform_tests.conftest import present

PARTITIONERS = "io.confluent.connect.storage.partitioner."


def test_a_file_of_the_required_keys_has_the_documented_defaults(load: Load) -> None:
    config = load().config
    assert (config.name, config.topics, config.tasks_max) == ("events", ("events",), 1)
    assert config.kafka.properties("consumer") == {"bootstrap.servers": "broker:9092"}
    assert (config.store.bucket, config.store.region, config.store.endpoint_url) == ("archive", "us-west-2", None)
    assert (config.store.access_key_id, config.store.secret_access_key) == (None, None)
    assert (config.store.part_size, config.store.max_retries, config.store.path_style) == (26_214_400, 3, True)
    assert config.layout.topics_dir == "topics"
    assert config.layout.format == "envelope.parquet"
    assert config.layout.partitioner == "Hourly"
    assert config.layout.path_format == "'year'=YYYY/'month'=MM/'day'=dd/'hour'=HH"
    assert (config.layout.timezone, config.layout.locale) == ("UTC", "en")
    assert config.layout.timestamp_extractor == "Record"
    assert (config.layout.flush_size, config.layout.offset_pad_width) == (None, 10)
    assert config.archive.start_hour == datetime(2020, 1, 1, tzinfo=timezone.utc)
    assert config.archive.allowed_lateness_ms == 300_000
    assert (config.archive.index_dir, config.archive.restore_dir) == ("_index", "_restore")


def test_every_key_of_ours_is_honoured(load: Load) -> None:
    own = {
        "archive.start.hour": "2013-01-01T00:00",
        "archive.allowed.lateness.ms": 1000,
        "archive.index.dir": "/x/index/",
        "archive.restore.dir": "x/restore",
        "archive.restore.bucket": "restores",
        "archive.task.size": 10,
        "archive.segment.bytes": 20,
        "archive.daily.segment.bytes": 30,
        "archive.allow.gaps": True,
        "archive.clock.tolerance.ms": 90000,
        "archive.consumer.groups": " app.*, billing,billing ",
        "archive.owners": "team:data, a.b@example.com ",
        "archive.records.per.second": 1.5,
        "archive.bytes.per.second": "1e6",
    }
    loaded = load({**own, "timezone": "Europe/Paris"})
    archive = loaded.config.archive
    assert archive.start_hour == datetime(2013, 1, 1, tzinfo=ZoneInfo("Europe/Paris"))
    assert (archive.allowed_lateness_ms, archive.task_size, archive.daily_segment_bytes) == (1000, 10, 30)
    assert (archive.index_dir, archive.restore_dir) == ("x/index", "x/restore")
    assert archive.restore_bucket == "restores"
    assert (archive.allow_gaps, archive.records_per_second, archive.bytes_per_second) == (True, 1.5, 1_000_000)
    assert (archive.consumer_groups, archive.clock_tolerance_ms) == (("app.*", "billing"), 90_000)
    assert archive.owners == ("team:data", "a.b@example.com")
    assert loaded.config.layout.segment_bytes == 20
    assert all(finding(loaded.findings, key).support is Support.HONOURED for key in own)


def test_the_keys_of_the_s3_sink_are_honoured(load: Load) -> None:
    config = load(
        {
            "connector.class": "io.confluent.connect.s3.S3SinkConnector",
            "topics": " b, a ,b",
            "tasks.max": 8,
            "s3.region": "eu-west-1",
            "store.url": "http://127.0.0.1:8333/",
            "topics.dir": "/json_logs/hourly/",
            "flush.size": 3,
            "s3.part.size": 5_242_880,
            "s3.part.retries": 5,
            "s3.path.style.access.enabled": False,
            "filename.offset.zero.pad.width": 12,
            "aws.access.key.id": "id",
            "aws.secret.access.key": "secret",
            "timestamp.extractor": "Wallclock",
            "locale": "en-GB",
            "timezone": "PST",
        }
    ).config
    assert (config.topics, config.tasks_max) == (("b", "a"), 8)
    assert (config.store.region, config.store.endpoint_url) == ("eu-west-1", "http://127.0.0.1:8333")
    assert (config.store.part_size, config.store.max_retries, config.store.path_style) == (5_242_880, 5, False)
    assert present(config.store.access_key_id).get_secret_value() == "id"
    assert present(config.store.secret_access_key).get_secret_value() == "secret"
    assert (config.layout.topics_dir, config.layout.flush_size) == ("json_logs/hourly", 3)
    assert (config.layout.offset_pad_width, config.layout.timestamp_extractor) == (12, "Wallclock")
    assert (config.layout.timezone, config.layout.locale) == ("America/Los_Angeles", "en-GB")


@pytest.mark.parametrize(
    ("keys", "partitioner", "path", "span"),
    [
        ({}, "Hourly", "'year'=YYYY/'month'=MM/'day'=dd/'hour'=HH", 3_600_000),
        ({"partitioner.class": "DailyPartitioner"}, "Daily", "'year'=YYYY/'month'=MM/'day'=dd", 86_400_000),
        (
            {"partitioner.class": PARTITIONERS + "HourlyPartitioner", "path.format": "YYYY/"},
            "Hourly",
            "YYYY",
            3_600_000,
        ),
        ({"time.interval": "DAILY"}, "Daily", "'year'=YYYY/'month'=MM/'day'=dd", 86_400_000),
        ({"time.interval": "HOURLY", "path.format": "'dt'=YYYY-MM-dd"}, "Hourly", "'dt'=YYYY-MM-dd", 3_600_000),
        (
            {
                "partitioner.class": PARTITIONERS + "TimeBasedPartitioner",
                "path.format": "'m'=mm",
                "partition.duration.ms": 60_000,
            },
            "TimeBased",
            "'m'=mm",
            60_000,
        ),
    ],
)
def test_each_partitioner_has_its_path_and_span(
    load: Load, keys: dict[str, object], partitioner: str, path: str, span: int
) -> None:
    layout = load(keys).config.layout
    assert (layout.partitioner, layout.path_format, layout.partition_duration_ms) == (partitioner, path, span)


def test_the_span_of_an_hourly_partitioner_is_accepted_without_meaning(load: Load) -> None:
    loaded = load({"partitioner.class": "HourlyPartitioner", "partition.duration.ms": 1})
    assert loaded.config.layout.partition_duration_ms == 3_600_000
    assert finding(loaded.findings, "partition.duration.ms").support is Support.WITHOUT_MEANING


@pytest.mark.parametrize("name", ["S3_SINK", "S3SinkConnector", "S3Sink", "io.confluent.connect.s3.S3SinkConnector"])
def test_only_the_cloud_connector_has_a_default_flush_size(load: Load, name: str) -> None:
    assert load({"connector.class": name}).config.layout.flush_size == (1000 if name == "S3_SINK" else None)


@pytest.mark.parametrize("name", ["EnvelopeParquetFormat", "kafka_s3_platform.formats.EnvelopeParquetFormat"])
def test_the_native_envelope_may_be_named(load: Load, name: str) -> None:
    assert load({"format.class": name}).config.layout.format == "envelope.parquet"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"s3.schema.partition.affix.type": "PREFIX"}, r"s3\.schema\.partition\.affix\.type: .*do not name schemas"),
        ({"csfle.enabled": "true"}, r"csfle\.enabled: .*encrypted fields included"),
        ({"storage.class": "io.confluent.connect.hdfs.storage.HdfsStorage"}, r"storage\.class: .*objects go to S3"),
        ({"schema.generator.class": "com.example.Own"}, r"schema\.generator\.class: .*Java classes cannot run here"),
        ({"hive.integration": "true"}, r"hive\.integration: .*no Hive metastore"),
        ({"kafka.auth.mode": "SERVICE_ACCOUNT"}, r"kafka\.auth\.mode: .*kafka\.api\.key"),
        ({"flush.sise": "1"}, r"flush\.sise: unknown key; did you mean flush\.size\?"),
        ({"s3.bucket.nam": "1"}, r"s3\.bucket\.nam: unknown key; did you mean s3\.bucket\.name\?"),
        ({"archive.start.hours": "1"}, r"hours: unknown key; did you mean archive\.start\.hour\?"),
        ({"partitioner.klass": "1"}, r"partitioner\.klass: unknown key; did you mean partitioner\.class\?"),
        ({"Topics.Dir": "1"}, r"Topics\.Dir: unknown key; did you mean topics\.dir\?"),
        ({"zzzz": "1"}, r"zzzz: unknown key$"),
        ({"partitioner.class": "HourlyPartitoner"}, r"'HourlyPartitoner' is unknown here; did you mean Hourly"),
        (
            {"partitioner.class": "TimeBasedPartitioner"},
            r"(?s)path\.format: required.*partition\.duration\.ms: required",
        ),
        ({"topics": "a, b.${env:STAGE}"}, r"  topics: the environment variable 'STAGE' is not set"),
        (
            {"s3.region": "${file:/etc/secrets:region}"},
            r"s3\.region: no config provider 'file' is declared",
        ),
        ({"s3.part.size": 5_242_879}, r"s3\.part\.size: 5242879 is not between 5242880"),
        ({"tasks.max": 0}, r"tasks\.max: 0 is not between 1"),
        ({"filename.offset.zero.pad.width": -1}, "is not between 0"),
        ({"locale": "no locale"}, "is no locale id"),
        ({"archive.start.hour": "2013-01-01T00:15"}, "is not on the hour"),
        ({"archive.index.dir": "topics"}, r"archive\.index\.dir: the folder topics and topics\.dir, topics, must not"),
        ({"archive.restore.dir": "_index/x"}, r"archive\.restore\.dir: the folder _index/x and archive\.index\.dir"),
        ({"topics.dir": "_index"}, r"archive\.index\.dir: the folder _index and topics\.dir, _index"),
        ({"aws.access.key.id": "id"}, r"aws\.secret\.access\.key: required: aws\.access\.key\.id is set"),
        ({"kafka.api.secret": "x"}, r"kafka\.api\.key: required: kafka\.api\.secret is set"),
        (
            {"aws.access.key.id": "a", "aws.secret.access.key": "b", "s3.credentials.provider.access_key_id": "c"},
            r"s3\.credentials\.provider\.access_key_id: aws\.access\.key\.id sets the same",
        ),
        (
            {"time.interval": "HOURLY", "partitioner.class": "DailyPartitioner"},
            r"time\.interval: partitioner\.class says",
        ),
        ({"name": "a/b"}, "name: 'a/b' is no usable name"),
        ({"archive.owners": "team:data, me"}, r"archive\.owners: 'me' is no owner"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_its_key(load: Load, keys: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(keys)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("storage.class", "io.confluent.connect.s3.storage.S3Storage"),
        ("schema.generator.class", "io.confluent.connect.storage.hive.schema.DefaultSchemaGenerator"),
        ("schema.compatibility", "none"),
        ("s3.compression.type", "none"),
        ("store.kafka.headers", False),
        ("schema.compatibility", "FULL"),
        ("tombstone.encoded.partition", "gone"),
        ("format.bytearray.separator", "x"),
        ("s3.compression.level", 6),
        ("keys.format.class", "JsonFormat"),
        ("connect.meta.data", False),
        ("value.converter", "io.confluent.connect.avro.AvroConverter"),
        ("value.converter.schema.registry.url", "http://registry:8081"),
        ("value.converter.basic.auth.user.info", "me:secret"),
        ("input.data.format", "AVRO"),
        ("confluent.license", ""),
        ("confluent.topic.bootstrap.servers", "localhost:9092"),
        ("confluent.topic.replication.factor", 1),
        ("local.buffer.dir", "buffer"),
        ("avro.codec", "snappy"),
        ("kafka.auth.mode", "KAFKA_API_KEY"),
    ],
)
def test_what_asks_for_nothing_more_is_accepted_without_meaning(load: Load, key: str, value: object) -> None:
    assert finding(load({key: value}).findings, key).support is Support.WITHOUT_MEANING


def test_one_error_names_every_refused_key(load: Load) -> None:
    with pytest.raises(ConfigError) as caught:
        load({"topics": "", "flush.size": "many", "s3.bucket.name": "a", "timezone": "Mars", "nonsense": 1})
    lines = str(caught.value).splitlines()
    assert lines[0].endswith("events.json: 5 keys refused:")
    assert [line.split(":")[0].strip() for line in lines[1:]] == [
        "topics",
        "s3.bucket.name",
        "flush.size",
        "timezone",
        "nonsense",
    ]


def test_folders_that_only_begin_alike_are_apart(load: Load) -> None:
    assert load({"topics.dir": "_index2"}).config.archive.index_dir == "_index"


def test_a_field_is_without_meaning_where_the_extractor_reads_none(load: Load) -> None:
    loaded = load({"timestamp.extractor": "Record", "timestamp.field": "ts"})
    assert finding(loaded.findings, "timestamp.field").support is Support.WITHOUT_MEANING


def test_environment_variables_are_replaced_inside_values(load: Load) -> None:
    keys = {"topics": "a.${env:STAGE}, b-${env:STAGE}", "store.url": "http://${env:HOST}:${env:PORT}"}
    config = load(keys, env={"STAGE": "prod", "HOST": "s3", "PORT": "1"}).config
    assert config.topics == ("a.prod", "b-prod")
    assert config.store.endpoint_url == "http://s3:1"


def test_a_variables_value_is_not_replaced_again(load: Load) -> None:
    config = load(
        {"timestamp.extractor": "RecordField", "input.data.format": "JSON", "timestamp.field": "${env:A}"},
        env={"A": "${env:B}", "B": "x"},
    ).config
    assert config.layout.timestamp_field == "${env:B}"


def test_cloud_credentials_replace_how_the_worker_logs_in(load: Load) -> None:
    worker = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\nssl.ca.location=/ca.pem\n"
    worker += "consumer.sasl.username=worker\nconsumer.fetch.min.bytes=7\n"
    kafka = load({"kafka.api.key": "k", "kafka.api.secret": "s", "kafka.endpoint": "SASL_SSL://b:9092"}, worker=worker)
    assert kafka.config.kafka.properties("consumer") == {
        "bootstrap.servers": "b:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "k",
        "sasl.password": "s",
        "ssl.ca.location": "/ca.pem",
        "fetch.min.bytes": "7",
    }


def test_overrides_stand_over_the_workers_prefixes_and_those_over_the_rest(load: Load) -> None:
    worker = "client.id=all\nretry.backoff.ms=1\nconsumer.client.id=worker\nconsumer.fetch.min.bytes=1\n"
    kafka = load({"consumer.override.fetch.min.bytes": 2, "producer.override.linger.ms": 3}, worker=worker).config.kafka
    common = {"bootstrap.servers": "broker:9092", "client.id": "all", "retry.backoff.ms": "1"}
    assert kafka.properties("consumer") == {**common, "client.id": "worker", "fetch.min.bytes": "2"}
    assert kafka.properties("producer") == {**common, "linger.ms": "3"}
    assert kafka.properties("admin") == common


def test_admin_clients_connect_as_consumers_do(load: Load) -> None:
    keys = {
        "consumer.override.security.protocol": "SASL_SSL",
        "consumer.override.sasl.mechanism": "PLAIN",
        "consumer.override.sasl.username": "u",
        "consumer.override.sasl.password": "p",
        "consumer.override.fetch.min.bytes": 1,
        "admin.override.sasl.username": "admin",
    }
    admin = load(keys).config.kafka.properties("admin")
    assert (admin["security.protocol"], admin["sasl.username"], admin["sasl.password"]) == ("SASL_SSL", "admin", "p")
    assert "fetch.min.bytes" not in admin


def test_a_configuration_survives_pickling(load: Load) -> None:
    config = load({"aws.access.key.id": "id", "aws.secret.access.key": "x", "timezone": "Europe/Paris"}).config
    assert pickle.loads(pickle.dumps(config)) == config  # noqa: S301


def test_every_key_of_a_file_is_found_once_in_its_order(check: Check) -> None:
    keys = {"flush.size": 3, "nonsense": 1, "confluent.license": "", "s3.acl.canned": "private"}
    findings = check(keys).findings
    assert [found.key for found in findings] == ["name", "topics", "s3.bucket.name", *keys]


@pytest.mark.parametrize(
    ("zone", "start", "minutes"),
    [("Australia/Lord_Howe", "2024-01-01T00:00", 30), ("America/Caracas", "2015-01-01T00:00", 30)],
)
def test_a_timezone_whose_hours_have_no_names_of_their_own_is_refused(
    check: Check, zone: str, start: str, minutes: int
) -> None:
    refused = finding(check({"timezone": zone, "archive.start.hour": start}).findings, "timezone")
    assert refused.support is Support.REFUSED
    assert f"the clocks of {zone} change by {minutes} minutes" in refused.effect


def test_the_ways_out_of_such_a_timezone_are_open(load: Load) -> None:
    for zone, start in (("UTC", "2015-01-01T00:00"), ("America/Caracas", "2017-01-01T00:00")):
        assert load({"timezone": zone, "archive.start.hour": start}).config.layout.timezone == zone


@pytest.mark.parametrize(("said", "kept"), [("true", {"preserve.additional.properties": "true"}), ("false", {})])
def test_the_converter_of_json_schema_may_keep_what_its_schema_does_not_list(
    load: Load, said: str, kept: dict[str, str]
) -> None:
    """The key was refused as unknown."""
    converter = {
        "format.class": "AvroFormat",
        "value.converter": "io.confluent.connect.json.JsonSchemaConverter",
        "value.converter.schema.registry.url": "http://registry:8081",
        "value.converter.preserve.additional.properties": said,
    }
    assert load(converter).config.records.value.options == kept
    with pytest.raises(ConfigError, match=r"value\.converter\.preserve\.additional\.properties"):
        load({**converter, "value.converter.preserve.additional.properties": "perhaps"})
