"""What a sink writes of a record's bytes, its restore by its own file sends as the same bytes, without any server."""

from dataclasses import replace
from datetime import datetime, timezone

import pytest

from kafka_s3_platform.connect.converters import new_converter
from kafka_s3_platform.connect.restore.foreign_source import ForeignSource
from kafka_s3_platform.connect.restore.outgoing.stream import OutgoingStream
from kafka_s3_platform.connect.restore.source.foreign_plan import make_foreign_plan
from kafka_s3_platform.connect.restore.source.foreign_stream import ForeignStreamTask, WantedRecords, type_strings
from kafka_s3_platform.connect.sources.sample import Sample, make_sample_keys
from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.errors import ConfigError, IntegrityError
from kafka_s3_platform.core.formats.parts import HEADERS_SCHEMA, ObjectPart
from kafka_s3_platform.core.model.connect import Schema
from kafka_s3_platform.core.restore.outgoing.sent import SentSettings, ValueSettings
from kafka_s3_platform.core.restore.request import RestoreRequest
from kafka_s3_platform_tests.config.conftest import Load, folder, load
from kafka_s3_platform_tests.formats.connect import came, written, written_with_sidecars
from kafka_s3_platform_tests.sources.memory import MemoryStore

__all__ = ("folder", "load")  # fixtures

AIVEN = {"connector.class": "io.aiven.kafka.connect.s3.AivenKafkaConnectS3SinkConnector"}
TEMPLATE = {"file.name.template": "{{topic}}/{{partition}}-{{start_offset}}"}
KEYS = {"store.kafka.keys": "true", "keys.format.class": "JsonFormat", "key.converter": "StringConverter"}
HEADERS = {"format.class": "ByteArrayFormat", "value.converter": "ByteArrayConverter", "store.kafka.headers": "true"}
PARTS: list[ObjectPart] = ["value", "headers"]
LINES = {"format.output.type": "csv", "format.output.fields.value.encoding": "none", "format.class": ""}
OF_JSON = [b'{"n":1}', b'"a"', b"2", b"[null]"]
OF_TEXT = [b"a", b"", b'"q"', b"null", b"1", b"AAE=", b'{"n":1}', "\u00e9".encode()]


def objects_of(config: ConnectorConfig, values: list[bytes]) -> dict[str, bytes]:
    batch = came(values, [b"k"] * len(values))
    value, key = (
        new_converter(getattr(config.records, side), "events", is_key=side == "key")
        .convert(batch.records.column(side), batch.offsets)
        .payload
        for side in ("value", "key")
    )
    names = make_sample_keys(config, Sample("events", datetime(2020, 3, 1, 12, tzinfo=timezone.utc)))
    parts: list[ObjectPart] = ["value", "key"]
    found = {}
    for name, part, payload in zip(names, parts, (value, key), strict=False):
        of_part = replace(batch, value=value, key=key)
        made = written_with_sidecars(config.layout, of_part, part=part, schema=next(iter(payload.schemas), None))
        found[name] = made.pop("")
        found |= {f"{name.removesuffix('.gz')}.{ending}": body for ending, body in made.items()}
    return found


def sent(config: ConnectorConfig, objects: dict[str, bytes], count: int) -> list[tuple[bytes | None, bytes | None]]:
    assert config.reader is not None
    request = ForeignSource(RestoreRequest(config.reader, "", "copy", "r", "x")).complete().request
    store = MemoryStore(objects, {name: {"record-count": str(count)} for name in objects})
    values = ValueSettings(request.outgoing, request.config.records, "events", "copy")
    outgoing = OutgoingStream("events", 0, SentSettings("copy", outgoing=request.outgoing, values=values))
    [group] = make_foreign_plan(request, (), None, store).groups
    batches = WantedRecords(ForeignStreamTask(request.config, group), store)
    made = [outgoing.encode(type_strings(batch, request.config.records)) for batch in batches]
    return [(row["key"], row["value"]) for batch in made for row in batch.to_pylist()]


@pytest.mark.parametrize("names", [{}, TEMPLATE, AIVEN], ids=["Connect's names", "a template", "Aiven's class"])
@pytest.mark.parametrize(
    ("keys", "converter", "values"),
    [
        ({"format.class": "JsonFormat"}, "JsonConverter", OF_JSON),
        ({"format.class": "JsonFormat"}, "StringConverter", OF_TEXT),
        ({"format.class": "JsonFormat", **KEYS}, "ByteArrayConverter", [*OF_TEXT, b"\xff\0"]),
        ({"format.class": "ByteArrayFormat"}, "ByteArrayConverter", OF_TEXT),
        ({"format.class": "AvroFormat", **KEYS}, "StringConverter", OF_TEXT),
        ({"format.class": "BlockGzipFormat"}, "JsonConverter", OF_JSON),
        ({"format.class": "BlockGzipFormat"}, "StringConverter", OF_TEXT),
        (LINES, "ByteArrayConverter", OF_TEXT),
    ],
)
def test_the_bytes_of_keys_and_values_come_back_from_a_sinks_own_file(
    load: Load, names: dict[str, str], keys: dict[str, str], converter: str, values: list[bytes]
) -> None:
    given = {"value.converter": converter, **keys, **names}
    given |= {"value.converter.schemas.enable": "false"} if converter == "JsonConverter" else {}
    config = load(given).config
    found = sent(config, objects_of(config, values), len(values))
    assert found == [(b"k" if KEYS.items() <= keys.items() else None, value) for value in values]


HEADER_VALUES = [
    b"\xc3\x28",
    b"wyg=",
    b"",
    None,
    b"007",
    "\u00e9".encode(),
    b"data:application/x-kafka-header;base64,wyg=",
]


def header_objects(config: ConnectorConfig) -> dict[str, bytes]:
    """Objects of one record, which has these headers."""
    batch = came([b"1"], headers=[[{"key": "h", "value": value} for value in HEADER_VALUES]], schema=Schema('"bytes"'))
    names = make_sample_keys(config, Sample("events", datetime(2020, 3, 1, 12, tzinfo=timezone.utc)))
    return {
        name: written(config.layout, batch, part=part, schema=schema)
        for name, part, schema in zip(names, PARTS, (Schema('"bytes"'), HEADERS_SCHEMA), strict=True)
    }


def read_headers(config: ConnectorConfig, store: MemoryStore) -> list[bytes | None]:
    assert config.reader is not None
    request = ForeignSource(RestoreRequest(config.reader, "", "copy", "r", "x")).complete().request
    [group] = make_foreign_plan(request, (), None, store).groups
    [batch] = WantedRecords(ForeignStreamTask(request.config, group), store)
    return [header["value"] for header in batch.records.column("headers")[0].as_py()]


@pytest.mark.parametrize("converter", ["SimpleHeaderConverter", "ByteArrayConverter"])
@pytest.mark.parametrize("format_class", ["JsonFormat", "AvroFormat", "ParquetFormat"])
def test_any_value_of_a_header_comes_back_with_its_bytes(load: Load, format_class: str, converter: str) -> None:
    config = load(HEADERS | {"headers.format.class": format_class, "header.converter": converter}).config
    objects = header_objects(config)
    store = MemoryStore(objects, {name: {"record-count": "1"} for name in objects})
    assert read_headers(config, store) == HEADER_VALUES


def test_bytes_of_headers_are_not_guessed_where_an_object_lost_its_metadata(load: Load) -> None:
    config = load(HEADERS | {"headers.format.class": "JsonFormat"}).config
    with pytest.raises(IntegrityError, match="lacks the metadata by which its objects are known"):
        read_headers(config, MemoryStore(header_objects(config)))


LINES_OF_JSON = {"format.class": "JsonFormat", "value.converter": "StringConverter", "topics": "a,b"}
ROUTED = {"transforms": "r", "transforms.r.type": "RegexRouter", "transforms.r.regex": "(.*)"}
TO_OLD = ROUTED | {"transforms.r.replacement": "old-$1"}
OF_B = {"transforms.r.predicate": "b", "predicates": "b", "predicates.b.pattern": "b"}
OF_B |= {"predicates.b.type": "org.apache.kafka.connect.transforms.predicates.TopicNameMatches"}
OF_NULLS = {"transforms.r.predicate": "n", "predicates": "n"}
OF_NULLS |= {"predicates.n.type": "org.apache.kafka.connect.transforms.predicates.RecordIsTombstone"}
BY_TIME = {"transforms": "r", "transforms.r.type": "TimestampRouter"}
IN_BUCKET = {f"topics/{topic}/partition=0/{topic}+0+7.json": b"1\n" for topic in ("a", "b", "old-a", "old-b")}


def list_topics(config: ConnectorConfig, topics: tuple[str, ...] = ()) -> list[str]:
    assert config.reader is not None
    request = ForeignSource(RestoreRequest(config.reader, "", "copy", "r", "x")).complete().request
    return [group.topic for group in make_foreign_plan(request, topics, None, MemoryStore(IN_BUCKET)).groups]


@pytest.mark.parametrize(
    ("transforms", "topics"),
    [
        ({}, ["a", "b"]),
        (TO_OLD, ["old-a", "old-b"]),
        (TO_OLD | OF_B, ["a", "old-b"]),
        (TO_OLD | OF_B | {"transforms.r.negate": "true"}, ["b", "old-a"]),
    ],
)
def test_a_sinks_own_file_restores_the_topics_by_which_its_routers_name_objects(
    load: Load, transforms: dict[str, str], topics: list[str]
) -> None:
    assert list_topics(load(LINES_OF_JSON | transforms).config) == topics


@pytest.mark.parametrize(
    "keys",
    [BY_TIME, TO_OLD | OF_NULLS, TO_OLD | {"topics": "", "topics.regex": "[ab]"}],
    ids=["by time", "by record", "a regex of topics"],
)
def test_topics_that_a_sinks_routers_do_not_tell_have_to_be_named(load: Load, keys: dict[str, str]) -> None:
    config = load(LINES_OF_JSON | keys).config
    with pytest.raises(ConfigError, match=r"does not tell by which topics objects are named: name them"):
        list_topics(config)
    assert list_topics(config, ("old-b",)) == ["old-b"]
