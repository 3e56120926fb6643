"""Files of Lenses' S3 sink and source: what their KCQL comes to, and what is told instead."""

from datetime import datetime, timezone

import pytest

from kafka_s3_platform.connect.config.describe import describe_class
from kafka_s3_platform.connect.config.keys.table import Support
from kafka_s3_platform.connect.config.lenses import Statement, parse_statements
from kafka_s3_platform.connect.sources.sample import Sample, make_sample_keys
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.layouts.new_layout import new_key_reader
from kafka_s3_platform.core.layouts.segment_key import ReadKey
from kafka_s3_platform_tests.config.conftest import Check, Load, finding, of_class
from kafka_s3_platform_tests.conftest import present

PACKAGE = "io.lenses.streamreactor.connect.aws.s3."
SINK = {"connector.class": PACKAGE + "sink.S3SinkConnector", "s3.bucket.name": ""}
SOURCE = {"connector.class": PACKAGE + "source.S3SourceConnector", "s3.bucket.name": "", "topics": ""}
KEYS = {
    "connect.s3.aws.region": "eu-west-1",
    "connect.s3.aws.access.key": "access",
    "connect.s3.aws.secret.key": "${env:SECRET}",
    "connect.s3.aws.auth.mode": "Credentials",
    "connect.s3.custom.endpoint": "http://minio:9000",
    "connect.s3.vhost.bucket": "true",
}


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        (
            (
                "INSERT INTO lensesio:demo SELECT * FROM events PARTITIONBY _value.ts, `a.b` STOREAS `JSON`"
                " PROPERTIES ('flush.size'=1000000, 'flush.interval'=30, 'padding.length.partition'='12')"
            ),
            Statement(
                "lensesio:demo",
                "events",
                "JSON",
                ("_value.ts", "a.b"),
                {"flush.size": "1000000", "flush.interval": "30", "padding.length.partition": "12"},
            ),
        ),
        ("insert into `my-bucket`:`a/b` select * from `*`", Statement("my-bucket:a/b", "*")),
        (
            "insert into `my-topic` select * from b:p/q BATCH=5 storeas AVRO LIMIT 7 properties('store.envelope'=true)",
            Statement("my-topic", "b:p/q", "AVRO", None, {"store.envelope": "true"}),
        ),
        ("INSERT INTO b SELECT * FROM t NOPARTITION", Statement("b", "t", "JSON", ())),
        ("INSERT INTO b SELECT * FROM t PROPERTIES()", Statement("b", "t")),
    ],
)
def test_a_statement_of_kcql_is_taken_apart(text: str, statement: Statement) -> None:
    assert parse_statements(text) == [statement]
    assert parse_statements(f"{text};\n{text} ;") == [statement, statement]


@pytest.mark.parametrize(
    "text",
    [
        "",
        ";",
        "SELECT * FROM t",
        "INSERT INTO b SELECT a, b FROM t",
        "INSERT INTO b SELECT *",
        "INSERT INTO SELECT * FROM t",
        "INSERT INTO b SELECT * FROM t WITH_FLUSH_COUNT = 5",
        "INSERT INTO b SELECT * FROM t STOREAS",
        "INSERT INTO b SELECT * FROM t PROPERTIES('a'=1 'b'=2)",
        "INSERT INTO b SELECT * FROM t PROPERTIES('a')",
    ],
)
def test_what_is_no_kcql_is_told(text: str) -> None:
    with pytest.raises(ValueError, match=r"understood|no statement|no name"):
        parse_statements(text)


def test_a_sinks_kcql_comes_to_bucket_folder_format_names_and_ends(load: Load) -> None:
    kcql = "INSERT INTO lake:backups SELECT * FROM events STOREAS PARQUET PROPERTIES('flush.count'=7,'key.suffix'='-a')"
    own = {**KEYS, "value.converter": "JsonConverter", "connect.s3.kcql": kcql}
    config = load({**SINK, **own}, {"SECRET": "s"}).config
    layout, store = config.layout, config.store
    assert (store.bucket, store.region, store.endpoint_url) == ("lake", "eu-west-1", "http://minio:9000")
    assert (store.path_style, store.access_key_id and store.access_key_id.get_secret_value()) == (False, "access")
    assert (layout.topics_dir, layout.format, layout.codec) == ("backups", "parquet", "none")
    assert layout.file_name_template == "{{topic}}/{{partition}}/{{start_offset:padding=true}}-a"
    assert (layout.flush_size, layout.segment_bytes, layout.partitioner) == (7, 500_000_000, "Default")
    assert (config.topics, config.source) == (("events",), None)


@pytest.mark.parametrize(
    "kcql",
    [
        "INSERT INTO lake:a SELECT * FROM events",
        "INSERT INTO lake SELECT * FROM events STOREAS PARQUET PROPERTIES('partition.include.keys'=true)",
    ],
)
def test_what_is_written_by_a_sinks_file_is_read_back_by_the_same_file(load: Load, kcql: str) -> None:
    avro = {
        "value.converter": "io.confluent.connect.avro.AvroConverter",
        "value.converter.schema.registry.url": "http://r",
    }
    converter = avro if "PARQUET" in kcql else {"value.converter": "StringConverter"}
    sink = load({**SINK, "connect.s3.kcql": kcql, **converter}).config
    assert sink.unreadable == ()
    assert sink.reader is not None
    (key,) = make_sample_keys(sink, Sample("events", datetime(2020, 3, 1, 12, tzinfo=timezone.utc)))
    read = new_key_reader(sink.reader).read(key)
    assert isinstance(read, ReadKey)
    assert (read.segment.topic, read.segment.kafka_partition, read.segment.first_offset) == ("events", 0, 0)


def test_a_sources_kcql_comes_to_a_place_a_format_and_a_target(load: Load) -> None:
    kcql = "INSERT INTO copy SELECT * FROM lake:backups STOREAS JSON PROPERTIES('store.envelope'=true)"
    own = {"transforms": "route", "transforms.route.type": "RegexRouter"}
    own |= {"transforms.route.regex": "copy", "transforms.route.replacement": "again"}
    config = load({**SOURCE, **own, "connect.s3.kcql": kcql}).config
    assert (config.store.bucket, config.layout.topics_dir, config.layout.key_layout) == ("lake", "backups", "lenses")
    assert (config.layout.format, config.topics) == ("lenses.json", ())
    assert present(config.source).fields == ("offset", "timestamp")
    assert [t.alias for t in config.records.transforms] == ["kcql", "route"]


@pytest.mark.parametrize(
    ("words", "topics"),
    [
        ("INSERT INTO lake:backups SELECT * FROM events STOREAS JSON", ""),
        ("INSERT INTO lake SELECT * FROM events PROPERTIES('flush.count'=3,'partition.include.keys'=true)", ""),
        ("INSERT INTO lake SELECT * FROM events PARTITIONBY _value.a PROPERTIES('padding.type'='NoOp')", ""),
        ("INSERT INTO lake SELECT * FROM events", "events"),
        ("INSERT INTO lake:backups SELECT * FROM events; INSERT INTO lake:backups SELECT * FROM more", "more,events"),
    ],
)
def test_a_sinks_own_kcql_is_read_back_to_its_topics(load: Load, words: str, topics: str) -> None:
    own = {"connect.s3.compression.codec": "gzip", "connect.s3.disable.flush.count": "true"}
    config = load({**SOURCE, **own, "topics": topics, "connect.s3.kcql": words}).config
    prefix = "backups" if "backups" in words else ""
    assert (config.store.bucket, config.layout.topics_dir, config.layout.key_layout) == ("lake", prefix, "lenses")
    assert set(config.topics) == ({"events", "more"} if "more" in words else {"events"})
    assert (config.layout.format, config.records.transforms) == ("json", ())


def test_a_sinks_own_kcql_of_envelopes_is_read_as_such(load: Load) -> None:
    words = "INSERT INTO lake:b SELECT * FROM `*` PROPERTIES('store.envelope'=true,'flush.size'=5,'key.suffix'='-a')"
    config = load({**SOURCE, "connect.s3.kcql": words}).config
    assert config.source is not None
    assert (config.layout.format, config.topics, config.source.fields) == ("lenses.json", (), ("offset", "timestamp"))


def test_a_source_in_the_buckets_root_that_says_that_values_were_kept(load: Load) -> None:
    kcql = (
        "INSERT INTO copy SELECT * FROM lake STOREAS AVRO"
        " PROPERTIES('store.envelope'=true,'store.envelope.fields.value'=true)"
    )
    converters = {f"{side}.converter": "StringConverter" for side in ("key", "value")}
    config = load({**SOURCE, **converters, "connect.s3.kcql": kcql}).config
    assert (config.layout.topics_dir, present(config.source).fields) == ("", ("value", "offset", "timestamp"))
    with pytest.raises(ConfigError, match=r"key\.converter: required.*avro objects hold each key by its type"):
        load({**SOURCE, "connect.s3.kcql": kcql})


FROM_P = "insert into t select * from b:p"


@pytest.mark.parametrize(
    ("kind", "words", "message"),
    [
        (SINK, "insert into b select * from t", "connect.s3.kcql: is of t, topics are events: name the same"),
        (SINK, "insert into b select * from events storeas csv", "STOREAS CSV: a record of Kafka is not one line"),
        (SINK, "insert into b select * from events storeas bytes", "STOREAS BYTES: an object of BYTES is one record"),
        (SINK, "insert into b select * from events storeas ORC", "STOREAS ORC is none of TEXT, JSON, AVRO, PARQUET"),
        (SINK, "insert into b select * from events partitionby a", "set partitioner.class=FieldPartitioner"),
        (
            SINK,
            "insert into b select * from events properties('store.envelope'=true)",
            "leave the property out, and set format.class=EnvelopeParquetFormat",
        ),
        (SINK, "insert into b select * from events properties('x'=1)", "'x': is no property of the sink"),
        (SINK, "insert into b select * from events; insert into c select * from u", "differ in more than their topic"),
        (SOURCE, "insert into t select * from b:p; insert into u select * from b:q", "write a file for each"),
        (SOURCE, f"{FROM_P} properties('post.process.action'='DELETE')", "never deleted or moved"),
        (SOURCE, f"{FROM_P} storeas text properties('read.text.mode'='regex')", "'read.text.mode'"),
        (SOURCE, "insert into b:p select * from t storeas csv", "STOREAS CSV: a record of Kafka is not one line"),
        (SOURCE, "insert into b:p select * from t properties('x'=1)", "'x': is no property of the source"),
        (SOURCE, "insert into b:p select * from t; insert into c select * from u:v", "write a file for each"),
        ({**SOURCE, "topics.dir": "q"}, FROM_P, "says what topics.dir says as well; keep one"),
        (
            {**SOURCE, "connect.s3.source.partition.extractor.type": "regex"},
            FROM_P,
            "describe others with `archive.source.template`",
        ),
    ],
)
def test_what_kcql_cannot_be_here_says_what_to_write_instead(
    load: Load, kind: dict[str, object], words: str, message: str
) -> None:
    with pytest.raises(ConfigError) as told:
        load({**kind, "connect.s3.kcql": words})
    assert message in str(told.value)


@pytest.mark.parametrize("kind", [SINK, SOURCE])
def test_describe_names_kcql_as_what_lenses_classes_cannot_do_without(kind: dict[str, str]) -> None:
    required = [key.key for key in describe_class(kind["connector.class"]).required]
    assert required == ["name", *(["topics"] if kind is SINK else []), "connect.s3.kcql"]
    assert "connect.s3.kcql" not in {key.key for key in describe_class("S3SinkConnector").required}


def test_check_shows_the_keys_that_kcql_comes_to(check: Check) -> None:
    found = check({**SOURCE, "connect.s3.kcql": "INSERT INTO copy SELECT * FROM lake:backups"})
    shown = {f.key: f.value for f in of_class(found, Support.HONOURED)}
    assert shown.items() >= {"s3.bucket.name": "lake", "topics.dir": "backups", "format.class": "JsonFormat"}.items()
    assert finding(found.findings, "connect.s3.kcql").effect.startswith(
        "Lenses' statement that names source and target"
    )
