"""Files of S3 source connectors, and those of sinks whose class was changed."""

import json
import re
from datetime import datetime, timezone
from pathlib import Path

import pytest

from kafka_s3_platform.connect.config.describe import check_report
from kafka_s3_platform.connect.config.files import find_conflicts
from kafka_s3_platform.connect.config.keys.names import compile_read_template
from kafka_s3_platform.connect.config.keys.table import Support
from kafka_s3_platform.connect.config.zooz import convert_environment
from kafka_s3_platform.connect.layouts.template import complete_template
from kafka_s3_platform.connect.sources.sample import Sample, make_sample_keys
from kafka_s3_platform.core.config.formats import NATIVE_FORMAT
from kafka_s3_platform.core.config.settings import ConnectorConfig, SourceSettings
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.layouts.new_layout import new_key_reader
from kafka_s3_platform.core.layouts.segment_key import ReadKey
from kafka_s3_platform_tests.config.conftest import Check, Load, of_class
from kafka_s3_platform_tests.config.test_dialects import AIVEN
from kafka_s3_platform_tests.config.test_seeds import (
    ASSUMED,
    BLOCK_GZIP,
    CLOUD_FILLED_IN,
    PLATFORM,
    QUICKSTART,
    SOURCE,
    keys,
    loaded,
    report,
    write_worker,
)
from kafka_s3_platform_tests.conftest import present

FULL = "io.confluent.connect.s3.source.S3SourceConnector"
CLASS = {"connector.class": FULL, "format.class": "JsonFormat"}
AIVEN_SOURCE = "io.aiven.kafka.connect.s3.source.S3SourceConnector"

KEYS = {"store.kafka.keys": True, "value.converter": "StringConverter"}
TYPED = {"format.class": "", "format.output.type": "avro", "format.output.fields": "key,value"}
EDIT = {"transforms": "f", "transforms.f.type": "InsertField$Value"}
EDIT |= {"transforms.f.static.field": "a", "transforms.f.static.value": "b"}


def of_source(config: ConnectorConfig) -> SourceSettings:
    assert config.source is not None
    return config.source


def test_the_quickstart_of_the_source_loads_and_reads_every_topic(folder: Path) -> None:
    write_worker(folder)
    config = loaded(folder, "quickstart-s3source.properties", SOURCE)
    assert (config.topics, config.layout.format, config.layout.partitioner) == ((), "avro", "Default")
    assert of_source(config).behavior_on_error == "fail"
    assert [(t.type, t.options["replacement"].get_secret_value()) for t in config.records.transforms] == [
        ("RegexRouter", "copy_of_$0")
    ]
    found = report(folder, "quickstart-s3source.properties", SOURCE)
    assert keys(found, Support.WITHOUT_MEANING) == {
        "confluent.license",
        "confluent.topic.bootstrap.servers",
        "confluent.topic.replication.factor",
    }


@pytest.mark.parametrize("name", [FULL, "S3SourceConnector", "S3Source", "S3_SOURCE"])
def test_its_class_goes_by_full_and_short_names(load: Load, name: str) -> None:
    assert load({**CLASS, "connector.class": name}).config.source is not None


def as_json(**keys: object) -> str:
    return json.dumps({"name": "events", "topics": "events", **keys})


ZOOZ = as_json(
    **convert_environment(
        {"KAFKA_HOST": "b:9", "SOURCE_KAFKA_TOPIC": "t", "S3_BUCKET_NAME": "zooz", "S3_ROOT_PATH": "a"}
    ).keys
)
LINES = "value.converter=org.apache.kafka.connect.storage.StringConverter\n"
AIVEN_TEMPLATE = "{{topic}}/{{partition}}-{{start_offset:padding=true}}"
SINKS = {
    "confluent-platform": PLATFORM,
    "confluent-quickstart": QUICKSTART,
    "confluent-cloud": CLOUD_FILLED_IN,
    "deviantart": f"{BLOCK_GZIP}{LINES}",
    "deviantart-root": BLOCK_GZIP.replace("s3.prefix=systest\n", LINES),
    "zooz": ZOOZ,
    "aiven": as_json(**{**AIVEN, "s3.bucket.name": "", "file.compression.type": "gzip"}),
    "aiven-template": as_json(**{**AIVEN, "file.name.template": AIVEN_TEMPLATE, "aws.s3.prefix": "a/b/"}),
    "ours": as_json(**{"connector.class": "kafka_s3_platform.S3Archive", "s3.bucket.name": "archive"}),
}


@pytest.mark.parametrize("new", ["S3SourceConnector", FULL, ""])
@pytest.mark.parametrize("sink_name", SINKS)
def test_a_sinks_file_with_only_its_class_changed_reads_what_that_sink_wrote(
    folder: Path, sink_name: str, new: str
) -> None:
    """Of every sink; without a `new` class, its own source's where it has one."""
    write_worker(folder)
    text = SINKS[sink_name]
    name = "sink.json" if text.startswith("{") else "sink.properties"
    (old,) = re.findall(r'connector\.class"?\s*[=:]\s*"?([\w.]+)', text)
    own = {"S3_SINK": "S3_SOURCE", AIVEN["connector.class"]: AIVEN_SOURCE}
    sink, source = loaded(folder, name, text), loaded(folder, name, text.replace(old, new or own.get(old, FULL)))
    assert (sink.source, of_source(source).behavior_on_error) == (None, "fail")
    sample = Sample(sink.topics[0], datetime(2020, 3, 1, 12, tzinfo=timezone.utc))
    (key,) = make_sample_keys(sink, sample)
    read = new_key_reader(source).read(key)
    assert isinstance(read, ReadKey)
    found = read.segment
    assert (found.topic, found.kafka_partition, found.first_offset) == (sink.topics[0], 0, 0)
    same = ["topics_dir", "format", "path_format", "key_layout", "bytes_separator", "timezone"]
    same += ["codec"] if sink.layout.format in {"json", "bytes", "block_gzip"} else []  # others' objects tell it
    assert source.layout.model_dump(include=set(same)) == sink.layout.model_dump(include=set(same))
    assert (source.topics, source.records.value, source.store.bucket, source.store.endpoint_url) == (
        *(sink.topics, sink.records.value),
        *(sink.store.bucket, sink.store.endpoint_url),
    )
    assert (sink.reader is None, sink.unreadable) == (sink.layout.format == NATIVE_FORMAT, ())


OTHER_WORDS = {"archive.source.template": "{{topic}}/{{any}}", "input.format": "avro", "topic": "other"}
MIXED: dict[str, dict[str, object]] = {
    "Aiven's class, Connect's format": {**AIVEN, "format.output.type": "", "format.class": "AvroFormat"},
    "Aiven's class, Connect's bucket": {**AIVEN, "s3.bucket.name": "archive", "aws.s3.bucket.name": ""},
    "DeviantArt's class, Connect's format": {
        "connector.class": "com.deviantart.kafka_connect_s3.S3SinkConnector",
        "s3.bucket.name": "",
        "s3.bucket": "archive",
        "s3.prefix": "p",
        "format.class": "JsonFormat",
        "value.converter": "StringConverter",
    },
    "Cloud's class, Connect's format": {
        "connector.class": "S3_SINK",
        "format.class": "JsonFormat",
        "input.data.format": "JSON",
        "timestamp.field": "at",
    },
    "words of sources": {"format.class": "JsonFormat", "value.converter": "StringConverter", **OTHER_WORDS},
}


@pytest.mark.parametrize("mix", MIXED)
def test_a_sinks_restore_reads_where_and_as_what_it_writes_whosever_keys_its_file_has(load: Load, mix: str) -> None:
    """Beside its own objects may be those of another sink, which these keys would describe."""
    avro = {
        "value.converter": "io.confluent.connect.avro.AvroConverter",
        "value.converter.schemas.enable": "",
        "value.converter.schema.registry.url": "http://r",
    }
    sink = load({**MIXED[mix], **(avro if "Aiven" in mix and "format" in mix else {})}).config
    assert sink.reader is not None
    told_by_objects = {"extension", "codec"} if sink.layout.key_layout == "template" else set[str]()
    layout = sink.reader.layout.model_dump(exclude=told_by_objects)
    assert layout == sink.layout.model_dump(exclude=told_by_objects)
    sample = Sample("events", datetime(2020, 3, 1, 12, tzinfo=timezone.utc), '{"at": 1583064000000}')
    (key,) = make_sample_keys(sink, sample)
    read = new_key_reader(sink.reader).read(key)
    assert isinstance(read, ReadKey)
    assert (read.segment.topic, read.segment.kafka_partition, read.segment.first_offset) == ("events", 0, 0)


DROP = {"transforms": "d", "transforms.d.type": "DropHeaders", "transforms.d.headers": "x"}


def test_the_restore_of_a_sink_does_not_do_its_transforms_again(load: Load) -> None:
    found = load({"format.class": "JsonFormat", "value.converter": "StringConverter", **DROP}).config
    assert (len(found.records.transforms), found.reader and found.reader.records.transforms) == (1, ())


def test_a_sink_whose_file_says_too_little_to_read_its_objects_back_loads_and_says_why(load: Load) -> None:
    """Lines of JSON have no schema, of which Avro could be made again."""
    avro = {
        "value.converter": "io.confluent.connect.avro.AvroConverter",
        "value.converter.schema.registry.url": "http://r",
    }
    found = load({"format.class": "JsonFormat", **avro}).config
    assert found.reader is None
    assert any(reason.startswith("value.converter: ") for reason in found.unreadable)
    of_zooz = {**KEYS, "key.converter": "StringConverter", "archive.key.layout": "zooz", "format.class": "JsonFormat"}
    assert load(of_zooz).config.unreadable == (
        "store.kafka.keys: in the layout zooz, names of such objects are not read",
    )


def test_a_source_that_names_its_format_or_layout_is_what_it_says(load: Load) -> None:
    own = {"s3.bucket.name": "", "s3.bucket": "archive", "connector.class": FULL, "value.converter": "StringConverter"}
    layout = load({**own, "format.class": "JsonFormat"}).config.layout
    assert (layout.format, layout.key_layout, layout.topics_dir) == ("json", "connect", "topics")


def test_keys_of_writing_mean_nothing_to_a_source(check: Check) -> None:
    found = check({**CLASS, "flush.size": 3, "schema.compatibility": "FULL", "s3.part.size": 5_242_880})
    without = {f.key for f in of_class(found, Support.WITHOUT_MEANING)}
    assert without == {"flush.size", "schema.compatibility", "s3.part.size"}


def test_an_empty_folder_is_the_buckets_root_as_in_connect(load: Load) -> None:
    keys = {**CLASS, "format.class": "ByteArrayFormat", **ASSUMED}
    assert load({**keys, "topics.dir": ""}).config.layout.topics_dir == ""
    assert load(keys).config.layout.topics_dir == "topics"


def test_its_own_keys_are_honoured(load: Load) -> None:
    own = {
        "topics": "",
        "behavior.on.error": "LOG",
        "s3.poll.interval.ms": 1000,
        "format.bytearray.separator": "\\r\\n",
        "partitioner.class": "FieldPartitioner",
        "partition.field.name": "country",
        "archive.source.thaw.days": 3,
        "archive.source.thaw.tier": "bulk",
        "archive.source.cluster": "SASL_SSL://prod-1:9092, prod-2:9092",
        "store.url": "http://localhost:9000",
        "record.batch.max.size": 200,
        "task.batch.size": 10,
        "mode": "RESTORE_BACKUP",
        "file.discovery.starting.timestamp": 0,
        **ASSUMED,
    }
    config = load({**CLASS, "format.class": "ByteArrayFormat", **own}).config
    assert of_source(config) == SourceSettings(
        behavior_on_error="log",
        poll_interval_ms=1000,
        thaw_days=3,
        thaw_tier="Bulk",
        cluster="prod-1:9092,prod-2:9092",
        separator_is_named=True,
    )
    assert (config.layout.bytes_separator, config.layout.partition_fields) == ("\r\n", ("country",))
    assert config.store.role is not None


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"behavior.on.error": "stop"}, r"behavior\.on\.error: 'stop' is none of fail, ignore, log"),
        ({"mode": "GENERIC"}, r"mode: objects of any name need `archive\.source\.template`"),
        ({"topic.regex.list": "t:.*"}, r"topic\.regex\.list: belongs to `mode=GENERIC`"),
        ({"file.discovery.starting.timestamp": 5}, r"file\.discovery\.starting\.timestamp: known, not honoured"),
        ({"partitioner.class": "FieldPartitioner"}, r"partition\.field\.name: required"),
        ({"format.class": "AvroFormat", "value.converter": "ByteArrayConverter"}, r"value\.converter: avro objects"),
        (
            {"format.class": "AvroFormat"},
            r"value\.converter: required, here or in worker\.properties: avro objects hold",
        ),
        ({"format.class": "ParquetFormat"}, r"value\.converter: required, .*: parquet objects hold fields, not bytes"),
        ({**KEYS, "keys.format.class": "AvroFormat"}, r"key\.converter: required, .*: avro objects hold keys"),
        (
            {**TYPED, "connector.class": AIVEN_SOURCE},
            r"key\.converter: required.*value\.converter: required.*: avro objects hold each value",
        ),
        ({**EDIT, "value.converter": ""}, r"value\.converter: required, .*: transforms\.f makes fields of the values"),
        ({**EDIT, "value.converter": "ByteArrayConverter"}, r"value\.converter: transforms\.f makes fields"),
        ({"archive.source.cluster": "a b"}, r"archive\.source\.cluster: 'a b' is neither a cluster's id"),
        ({"archive.source.cluster": "host:0"}, r"archive\.source\.cluster: 'host:0' is no host:port"),
        ({"archive.source.template": "{{any}}.gz", "topics": ""}, r"topics: no key tells its topic"),
        ({"archive.source.template": "{{ts}}/{{topic}}"}, r"archive\.source\.template: '\{\{ts\}\}' is not known"),
        (
            {"archive.source.template": "{{topic}}/{{any}}.json", "store.kafka.keys": "true"},
            r"store\.kafka\.keys: archive\.source\.template tells no offset",
        ),
        ({"archive.source.template": "{{partition}}.gz", "topics": ""}, r"topics: no key tells its topic"),
        ({"s3.poll.intervall.ms": 5}, r"unknown key; did you mean s3\.poll\.interval\.ms"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(load: Load, keys: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=f"(?s){message}"):
        load({**CLASS, **keys})


def test_keys_of_sources_mean_nothing_to_a_sink(check: Check) -> None:
    found = check({"behavior.on.error": "log", "s3.poll.interval.ms": 1})
    assert {f.key for f in of_class(found, Support.WITHOUT_MEANING)} == {"behavior.on.error", "s3.poll.interval.ms"}
    assert present(found.config).source is None


def test_aivens_sinks_file_is_read_back_with_its_envelope(load: Load) -> None:
    own = {
        "connector.class": AIVEN_SOURCE,
        "format.output.envelope": True,
        "format.output.fields": "key,value,offset,timestamp,headers",
        "file.compression.type": "gzip",
        "file.name.template": "{{topic}}/{{partition}}-{{start_offset}}.gz",
    }
    config = load({**AIVEN, **own}).config
    assert (config.layout.format, config.layout.codec, config.layout.key_layout) == ("aiven.jsonl", "gzip", "template")
    assert of_source(config).fields == ("key", "value", "offset", "timestamp", "headers")
    assert config.layout.file_name_template == own["file.name.template"]


@pytest.mark.parametrize(
    ("keys", "format_name"),
    [
        ({"format.output.type": "csv"}, "aiven.csv"),
        ({"format.output.type": "csv", "format.output.fields.value.encoding": "none"}, "bytes"),
        ({"format.output.type": "jsonl", "format.output.envelope": False}, "json"),
        ({"format.output.type": "jsonl", "format.output.envelope": True}, "aiven.jsonl"),
        ({"format.output.type": "parquet", "format.output.fields": "value,offset"}, "aiven.parquet"),
        ({"format.output.type": "", "input.format": "avro"}, "avro"),
        ({"format.output.type": "", "input.format": "bytes"}, "bytes"),
    ],
)
def test_aivens_words_name_what_objects_hold(load: Load, keys: dict[str, object], format_name: str) -> None:
    own = {"format.output.envelope": "", "value.converter": "StringConverter", "value.converter.schemas.enable": ""}
    assert load({**AIVEN, "connector.class": AIVEN_SOURCE, **own, **keys}).config.layout.format == format_name


def test_aivens_topic_is_that_of_objects_whose_names_tell_none(load: Load) -> None:
    own = {**AIVEN, "connector.class": AIVEN_SOURCE, "topics": "", "topic": "mine"}
    config = load({**own, "file.name.template": "{{partition}}/{{any}}"}).config
    assert config.topics == ("mine",)
    with pytest.raises(ConfigError, match=r"topic: file\.name\.template tells the topic of each object"):
        load({**own, "file.name.template": "{{topic}}-{{partition}}"})


@pytest.mark.parametrize("codec", ["snappy", "gzip", "none", "zstd"])
def test_each_codec_of_aivens_sink_is_read(load: Load, codec: str) -> None:
    own = {"connector.class": AIVEN_SOURCE, "file.compression.type": codec, "format.output.envelope": True}
    assert load({**AIVEN, **own}).config.layout.codec == codec
    avro = {"format.output.type": "avro", "format.avro.codec": "snappy", "key.converter": "StringConverter"}
    assert load({**AIVEN, **own, **avro}).config.layout.format == "aiven.avro"


def test_a_template_of_a_file_of_confluents_class_decides_all_that_names_do(check: Check) -> None:
    own = {
        "archive.source.template": "{{topic}}/{{any}}/{{start_offset}}-{{end_offset}}.json.gz",
        "topics.dir": "/",
        "s3.compression.type": "gzip",
        "partitioner.class": "FieldPartitioner",
        "partition.field.name": "country",
        "file.delim": "-",
    }
    found = check({**CLASS, **own})
    layout = present(found.config).layout
    assert (layout.key_layout, layout.topics_dir, layout.codec) == ("template", "", "gzip")
    assert layout.file_name_template == own["archive.source.template"]
    without = {f.key for f in of_class(found, Support.WITHOUT_MEANING)}
    assert without == {"partitioner.class", "partition.field.name", "file.delim"}


@pytest.mark.parametrize("extension", ["", "gz", "."])
def test_aivens_extension_follows_a_template_that_does_not_end_with_it(load: Load, extension: str) -> None:
    template = "{{topic}}/{{start_offset}}.gz"
    own = {"connector.class": AIVEN_SOURCE, "file.name.template": "", "file.compression.type": "gzip"}
    own |= {"format.output.envelope": "true", "archive.key.extension": extension}
    for written in (template, template.removesuffix("" if extension == "." else ".gz")):
        layout = load({**AIVEN, **own, "archive.source.template": written}).config.layout
        assert complete_template(layout) == template


def test_a_source_may_share_the_folder_of_the_sink_that_wrote_it(folder: Path) -> None:
    found = {}
    for name, kind in (("sink", "S3SinkConnector"), ("source", "S3SourceConnector")):
        path = folder / f"{name}.properties"
        path.write_text(f"name={name}\nconnector.class={kind}\ntopics=t\ns3.bucket.name=archive\n")
        found[path] = present(check_report(path, folder / "worker.properties", {}).config)
    assert find_conflicts(found) == []


@pytest.mark.parametrize(
    ("template", "key", "told"),
    [
        (
            "{{topic}}-{{partition}}-{{start_offset}}",
            "a-b-1-22",
            {"topic": "a-b", "partition": "1", "start_offset": "22"},
        ),
        ("{{topic}}-{{start_offset}}", "a-22@3+7", {"topic": "a", "start_offset": "22", "ordinal": "3", "epoch": "7"}),
        ("{{topic}}/{{any}}/{{topic}}-{{partition}}", "a/x/a-1", {"topic": "a", "partition": "1"}),
        ("{{topic}}/{{any}}/{{topic}}-{{partition}}", "a/x/b-1", None),
        ("{{topic}}/{{any}}/{{partition}}", "a/x/y/1", None),
    ],
)
def test_a_template_reads_what_it_names(template: str, key: str, told: dict[str, str] | None) -> None:
    match = re.fullmatch(compile_read_template(template).pattern(is_exact=False), key)
    assert (match and {k: v for k, v in match.groupdict().items() if v is not None}) == told


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (CLASS, r"value\.converter: objects of json hold no schema, and AVRO .*schemas\.enable=false send the JSON"),
        ({**CLASS, "format.class": "ByteArrayFormat"}, r"objects of bytes hold no schema.*ByteArrayConverter sends"),
        (
            {**CLASS, "value.converter": "StringConverter", "store.kafka.keys": True, "keys.format.class": "JsonFormat"}
            | {"key.converter": "io.confluent.connect.avro.AvroConverter"},
            r"key\.converter: objects of json hold no schema",
        ),
    ],
)
def test_a_converter_that_needs_a_schema_is_refused_where_objects_hold_none(
    load: Load, keys: dict[str, object], said: str
) -> None:
    registry = {"key.converter.schema.registry.url": "http://r:1", "value.converter.schema.registry.url": "http://r:1"}
    avro = {"value.converter": "io.confluent.connect.avro.AvroConverter"}
    with pytest.raises(ConfigError, match=said):
        load({**avro, **registry, **keys})


@pytest.mark.parametrize("key", ["store.kafka.keys", "store.kafka.headers"])
def test_a_template_judges_no_key_that_means_nothing_to_the_format(load: Load, key: str) -> None:
    own = {"connector.class": FULL, "archive.source.template": "{{topic}}/{{any}}.json", key: "no"}
    assert load(own).config.layout.key_layout == "template"


@pytest.mark.parametrize("name", ["lenses.json", "lenses.avro", "lenses.parquet"])
def test_keys_of_lenses_envelopes_are_written_by_the_files_converter(load: Load, name: str) -> None:
    own = {"connector.class": AIVEN_SOURCE, "input.format": name, "format.output.type": ""}
    records = load(
        {**AIVEN, **own, "key.converter": "JsonConverter", "value.converter": "JsonConverter"}
    ).config.records
    assert (records.key.format, records.value.format) == ("JSON", "JSON")


LENSES = {"connector.class": "io.lenses.streamreactor.connect.aws.s3.sink.S3SinkConnector", "s3.bucket.name": ""}
BY_JSON = {"value.converter": "org.apache.kafka.connect.json.JsonConverter", "value.converter.schemas.enable": False}
OF_AIVEN = {**AIVEN, "aws.s3.region": "", "format.output.envelope": ""}
INTO = "INSERT INTO archive:p SELECT * FROM events"


@pytest.mark.parametrize(
    ("sink", "key"),
    [
        ({**OF_AIVEN, "format.output.fields": "key,value,offset,timestamp"}, "events-3-00000000000000000012"),
        ({**OF_AIVEN, "format.output.fields": "key,value", "format.output.type": "csv"}, "events-3-12"),
        ({**OF_AIVEN, "format.output.fields": "value", "format.output.type": "json"}, "events-3-12"),
        ({**LENSES, **BY_JSON, "connect.s3.kcql": f"{INTO} STOREAS `JSON` PROPERTIES('store.envelope'=true)"},
         "p/events/3/000000000012_1_2.json"),
        ({**LENSES, **BY_JSON, "connect.s3.kcql": f"{INTO} PARTITIONBY _key STOREAS `JSON`"},
         "p/k/events(3_12).json"),
        ({**LENSES, "value.converter": "StringConverter", "connect.s3.kcql": f"{INTO} STOREAS `TEXT`"},
         "p/events/3/000000000012_1_2.text"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("transforms", [{}, EDIT], ids=["", "with transforms"])
def test_the_class_that_a_refused_sink_is_told_reads_what_that_sink_wrote(
    load: Load, sink: dict[str, object], key: str, transforms: dict[str, object]
) -> None:
    with pytest.raises(ConfigError, match=r"refused:") as refused:
        load(sink | transforms)
    advice = re.search(
        r"\nTo restore what another tool wrote by this file, change (\S+) to ([\w.]+)(.*)$", str(refused.value)
    )
    assert advice is not None
    assert ("leave its transforms out" in advice[3]) == bool(transforms)
    source = load(sink | {advice[1]: advice[2]}).config
    read = new_key_reader(source).read(key)
    assert isinstance(read, ReadKey)
    assert (read.segment.topic, read.segment.kafka_partition) == ("events", 3)
    assert 12 in {read.segment.first_offset, read.last_offset}


@pytest.mark.parametrize("wrong", [{"format.class": "NoSuchFormat"}, {"flush.size": "many"}, {"no.such.key": "1"}])
def test_a_sink_whose_source_would_be_refused_too_is_not_told_of_it(load: Load, wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="refused:") as refused:
        load({"format.class": "JsonFormat", **BY_JSON, **wrong})
    assert "To restore" not in str(refused.value)
