"""A sink's file names converters that its envelope does without: restores that change records decode with them.

Restores that change one field leave nulls of the others null, and absent ones absent or told.

A restore that changes one field writes the others as their texts say, or refuses the record.

Values that are written anew and lack something of what was archived: counted, for the verdict.
"""

import json
import pickle
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from kafka_s3_platform.connect.config.files import load_connector
from kafka_s3_platform.connect.converters.connect_json import ADDED
from kafka_s3_platform.connect.restore.outgoing.keys import parse_outgoing
from kafka_s3_platform.connect.restore.outgoing.stream import OutgoingStream
from kafka_s3_platform.connect.restore.outgoing.values import Values
from kafka_s3_platform.core.config.settings import (
    ConnectorConfig,
    ConverterSettings,
    RecordSettings,
    RegistrySettings,
    TransformSettings,
)
from kafka_s3_platform.core.errors import ConfigError, RecordError
from kafka_s3_platform.core.model.notes import DoubtNote
from kafka_s3_platform.core.model.schema import ArchivedSchema, SubjectVersion
from kafka_s3_platform.core.restore.archive_source import ArchiveSource
from kafka_s3_platform.core.restore.outgoing.sent import SchemaMapping, SentSettings, ValueSettings
from kafka_s3_platform.core.restore.request import Outgoing, RestoreRequest
from kafka_s3_platform_tests.converters.protobuf.archived import archived, framed, settings
from kafka_s3_platform_tests.restore.records import applied, records

GONE = RegistrySettings(url="http://registry.gone:8081")


AVRO_SETTINGS = ConverterSettings(format="AVRO", registry=GONE)


LONG = ArchivedSchema("http://registry.gone:8081", 7, "AVRO", '"long"', (SubjectVersion("t-value", 1, None),))
NINE, FIVE = b"\0\0\0\0\7\x12", b"\0\0\0\0\7\x0a"
"""9 and 5 by schema 7."""

SINK = {"name": "events", "topics": "t", "s3.bucket.name": "bucket"}
SOURCE = SINK | {
    "connector.class": "io.confluent.connect.s3.source.S3SourceConnector",
    "format.class": "kafka_s3_platform.formats.EnvelopeJsonFormat",
}
JSON = {"value.converter": "org.apache.kafka.connect.json.JsonConverter", "value.converter.schemas.enable": "false"}
STRING = {"value.converter": "org.apache.kafka.connect.storage.StringConverter"}
AVRO = {"value.converter": "AvroConverter", "value.converter.schema.registry.url": LONG.registry_url}
SHARED = {"value.converter": "AvroConverter", "schema.registry.url": LONG.registry_url}
MASK = {"transforms": "m", "transforms.m.type": "MaskField$Value", "transforms.m.fields": "n"}
HOIST = {"transforms": "h", "transforms.h.type": "HoistField$Value", "transforms.h.field": "line"} | JSON

ENVELOPE = {"value.converter": JSON["value.converter"]}
FIELDS = [
    {"field": "n", "type": "int64"},
    {"field": "city", "type": "string", "optional": True, "default": "Bern"},
    {"field": "rate", "type": "double", "optional": True, "default": 2.5},
]
NULLS = {"n": 7, "city": None, "rate": None}
STEPS: dict[str, dict[str, str]] = {
    "MaskField": {"fields": "n"},
    "ReplaceField": {"exclude": "n"},
    "Cast": {"spec": "n:string"},
    "InsertField": {"static.field": "s", "static.value": "v"},
    "TimestampConverter": {"field": "n", "target.type": "unix"},
    "SetSchemaMetadata": {"schema.name": "x.Y"},
}

NUMBERS = st.from_regex(r"-?(0|[1-9][0-9]{0,24})(\.[0-9]{1,24})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)
DOUBLES = st.floats(allow_nan=False, allow_infinity=False).map(repr)
TEXTS = st.sampled_from(['"a"', '"\\u0061"', '"e4"', '":"', '"\\":"', '"\\"\\u003a"', '"\\u0022:"'])
SCALARS = NUMBERS | DOUBLES | TEXTS | st.sampled_from(["null", "true", "-0", "-0.0", "[]", "{}"])

SEAL = archived('syntax = "proto3"; message Seal { string name = 1; int32 age = 2; }')
PROTOBUF = settings(SEAL)

JSON_SETTINGS = ConverterSettings(format="JSON")

KNOWN, MORE, LESS = (framed(b"\0" + body) for body in (b"\x0a\x01a\x10\x04", b"\x10\x05\x18\x01", b"\x20\x07"))
SAID = "lack in their value what schema 1 does not list (the first one: field 3 of Seal)"


def mapping(value_ids: Mapping[int, int] | None, key_ids: Mapping[int, int] | None = None) -> SchemaMapping:
    return SchemaMapping(key_ids, value_ids)


def value_settings(outgoing: Outgoing | None = None, **given: Any) -> ValueSettings:
    return ValueSettings(outgoing or Outgoing(), RecordSettings(value=AVRO_SETTINGS), "t", "copy", **given)


def test_without_a_wish_records_are_the_same_objects() -> None:
    values = Values(value_settings())
    batch = records([NINE])
    assert values.changes_nothing
    assert applied(values, batch).batch is batch


def test_ids_are_mapped_and_everything_else_stays() -> None:
    values = Values(value_settings(mapping=mapping({7: 300})))
    batch = records([NINE, None, b"plain", b""])
    done = applied(values, batch)
    assert done.failures == ()
    assert done.batch.column("value").to_pylist() == [b"\0\0\0\1\x2c\x12", None, b"plain", b""]
    assert done.batch.schema == batch.schema
    for name in set(batch.schema.names) - {"value"}:
        assert done.batch.column(name).equals(batch.column(name))


def test_keys_have_ids_of_their_own() -> None:
    both = RecordSettings(key=AVRO_SETTINGS, value=AVRO_SETTINGS)
    given = ValueSettings(Outgoing(), both, "t", "copy", mapping=mapping({7: 1}, {7: 2}))
    done = applied(Values(given), records([NINE], [NINE])).batch
    assert done.column("value").to_pylist() == [b"\0\0\0\0\1\x12"]
    assert done.column("key").to_pylist() == [b"\0\0\0\0\2\x12"]


def test_bytes_of_a_side_without_a_registry_are_never_taken_for_ids() -> None:
    values = Values(value_settings(mapping=mapping({7: 8}, key_ids=None)))
    assert applied(values, records([None], [NINE])).batch.column("key").to_pylist() == [NINE]


def test_a_record_whose_id_is_not_mapped_fails_alone() -> None:
    done = applied(Values(value_settings(mapping=mapping({7: 8}))), records([NINE, b"\0\0\0\0\5x", NINE]))
    assert done.batch.column("offset").to_pylist() == [10, 12]
    [failure] = done.failures
    assert (failure.offset, failure.stage) == (11, "VALUE_CONVERTER")
    assert "the value of the record at offset 11 of topic t names schema 5, which was not archived" in failure.message


def test_an_empty_mapping_passes_no_id_on() -> None:
    assert len(applied(Values(value_settings(mapping=mapping({}))), records([NINE, b"plain"])).failures) == 1


def test_values_are_decoded_with_archived_schemas_where_their_registry_is_gone() -> None:
    outgoing = Outgoing(value=ConverterSettings(format="JSON"))
    values = Values(value_settings(outgoing, schemas=(LONG,)))
    done = applied(values, records([NINE, None, FIVE]))
    assert done.failures == ()
    assert done.batch.column("value").to_pylist() == [b"9", None, b"5"]


def test_a_value_that_cannot_be_decoded_fails_alone() -> None:
    outgoing = Outgoing(value=ConverterSettings(format="JSON"))
    done = applied(Values(value_settings(outgoing, schemas=(LONG,))), records([NINE, b"?", FIVE + b"!"]))
    assert done.batch.column("value").to_pylist() == [b"9"]
    assert [f.offset for f in done.failures] == [11, 12]


def test_what_a_transform_did_not_change_keeps_its_bytes() -> None:
    values = Values(value_settings(schemas=(LONG,)))
    decoded = values.decode(records([NINE, None]), everything=True)
    assert decoded.batch.value.objects == [9, None]
    assert values.encode(decoded.batch).batch.column("value").to_pylist() == [NINE, None]


def test_settings_travel_to_executors() -> None:
    given = value_settings(schemas=(LONG,), mapping=mapping({7: 300}))
    sent = pickle.loads(pickle.dumps(given))  # noqa: S301 - its own
    assert sent == given
    assert applied(Values(sent), records([NINE])).batch.column("value").to_pylist() == [b"\0\0\0\1\x2c\x12"]


def config_of(folder: Path, keys: dict[str, str], worker: Mapping[str, str] = {}) -> ConnectorConfig:
    lines = [f"{name}={text}\n" for name, text in {"bootstrap.servers": "broker:9092", **worker}.items()]
    (folder / "worker.properties").write_text("".join(lines))
    (folder / "events.json").write_text(json.dumps(keys))
    return load_connector(folder / "events.json", folder / "worker.properties", {})


def stream_of(config: ConnectorConfig, outgoing: dict[str, str]) -> OutgoingStream:
    asked = RestoreRequest(config, "t", "copy", "r", "run", outgoing=parse_outgoing(outgoing))
    if config.source is None:
        ArchiveSource(asked).complete()
    values = ValueSettings(asked.outgoing, config.records, "t", "copy", schemas=(LONG,))
    return OutgoingStream("t", 3, SentSettings("copy", 4, outgoing=asked.outgoing, values=values))


def sent(config: ConnectorConfig, value: bytes, outgoing: dict[str, str]) -> list[bytes]:
    stream = stream_of(config, outgoing)
    return [v for _, batch in stream.apply(records([value])) for v in batch.column("value").to_pylist()]


@pytest.mark.parametrize("keys", [SINK, SOURCE], ids=["sink", "source"])
@pytest.mark.parametrize("is_the_workers", [False, True], ids=["file", "worker.properties"])
@pytest.mark.parametrize(
    ("converter", "value", "outgoing", "expected"),
    [
        (JSON, b'{"n":0}', JSON, b'{"n":0}'),
        (JSON, b'{"n":7}', MASK, b'{"n":0}'),
        (STRING, b"a line", HOIST, b'{"line":"a line"}'),
        (AVRO, NINE, JSON, b"9"),
    ],
    ids=["JSON", "JSON, a transform", "text, a transform", "Avro"],
)
def test_values_are_decoded_by_the_converter_that_file_or_worker_name(
    tmp_path: Path,
    keys: dict[str, str],
    is_the_workers: bool,
    converter: dict[str, str],
    value: bytes,
    outgoing: dict[str, str],
    expected: bytes,
) -> None:
    config = config_of(tmp_path, keys, converter) if is_the_workers else config_of(tmp_path, keys | converter)
    assert sent(config, value, outgoing) == [expected]


@pytest.mark.parametrize("converter", [AVRO, SHARED], ids=["its own key", "the shared key"])
def test_a_registry_is_that_of_the_schemas_to_archive_wherever_it_is_named(
    tmp_path: Path, converter: dict[str, str]
) -> None:
    config = config_of(tmp_path, SINK | converter)
    assert config.records.value.registry is not None
    assert sent(config, NINE, JSON) == [b"9"]


@pytest.mark.parametrize("name", ["com.example.OwnConverter", "AvroConverter"], ids=["unknown", "without a registry"])
def test_what_cannot_be_decoded_is_restored_as_it_is_and_never_changed(tmp_path: Path, name: str) -> None:
    converter = {"value.converter": name}
    for config in (config_of(tmp_path, SINK | converter), config_of(tmp_path, SINK, converter)):
        assert sent(config, NINE, {}) == [NINE]
        for outgoing in (JSON, MASK):
            with pytest.raises(
                ConfigError, match=r"a restore cannot decode its values.*cannot be used: value\.converter"
            ):
                sent(config, NINE, outgoing)


@pytest.mark.parametrize("outgoing", [JSON, AVRO])
@pytest.mark.parametrize(
    ("keys", "value", "is_doubted"),
    [
        (SINK, b"\0\0\0\1\7abc", True),
        (SOURCE, b"\0\0\0\0\x2a", True),
        (SINK, b"\0\0\0\0\0abc", False),
        (SINK, b"\1\0\0\0\2abc", False),
        (SINK, b"\0\0\0\2", False),
    ],
)
def test_what_a_registrys_serializer_wrote_leaves_a_doubt_where_it_is_wrapped(
    tmp_path: Path, keys: dict[str, str], value: bytes, outgoing: dict[str, str], is_doubted: bool
) -> None:
    config = config_of(tmp_path, keys)
    asked = RestoreRequest(config, "t", "copy", "r", "run", outgoing=parse_outgoing(outgoing))
    settings = ValueSettings(asked.outgoing, config.records, "t", "copy", registers=False)
    stream = OutgoingStream("t", 3, SentSettings("copy", 4, outgoing=asked.outgoing, values=settings))
    assert len(list(stream.apply(records([value, b"x", value])))) == 1
    doubts = [note for note in stream.notes if isinstance(note, DoubtNote)]
    assert [note.startswith("2 values begin with a 0 and a schema's id") for note in doubts] == [True] * is_doubted


def restored(folder: Path, text: bytes, converter: dict[str, str], step: str, **options: str) -> Any:
    keys = {"type": f"{step}$Value", **STEPS[step], **options}
    transforms = {"transforms": "m"} | {f"transforms.m.{name}": text for name, text in keys.items()}
    [value] = sent(config_of(folder, SINK | converter), text, converter | transforms)
    return json.loads(value)


@pytest.mark.parametrize("step", STEPS)
def test_a_null_stays_null_whatever_transform_changes_another_field(tmp_path: Path, step: str) -> None:
    text = json.dumps({"schema": {"type": "struct", "fields": FIELDS}, "payload": NULLS}).encode()
    found = restored(tmp_path, text, ENVELOPE, step)["payload"]
    assert (found["city"], found["rate"]) == (None, None)


@pytest.mark.parametrize("step", STEPS)
def test_a_null_becomes_the_default_if_the_transform_says_so(tmp_path: Path, step: str) -> None:
    text = json.dumps({"schema": {"type": "struct", "fields": FIELDS}, "payload": NULLS}).encode()
    found = restored(tmp_path, text, ENVELOPE, step, **{"replace.null.with.default": "true"})["payload"]
    assert (found["city"], found["rate"]) == ("Bern", 2.5)


@pytest.mark.parametrize("step", ["MaskField", "Cast", "TimestampConverter"])
@pytest.mark.parametrize("text", [b'{"a":null}', b"{}"], ids=["null", "absent"])
def test_without_a_schema_an_absent_field_stays_absent(tmp_path: Path, step: str, text: bytes) -> None:
    assert restored(tmp_path, text, JSON, step) == json.loads(text)


def test_absent_fields_and_unlisted_ones_are_told_in_the_report(tmp_path: Path) -> None:
    text = json.dumps({"schema": {"type": "struct", "fields": FIELDS}, "payload": {"n": 7, "rate": 1, "x": 2}}).encode()
    stream = stream_of(config_of(tmp_path, SINK | ENVELOPE), ENVELOPE | MASK)
    stream.apply(records([text]))
    assert stream.notes == (
        "1 records lack fields that the schema beside their value does not list (the first one: 'x')",
        f"1 records lack a field that the schema beside their value lists: {ADDED} (the first one: city)",
    )


def join_members(pairs: list[tuple[str, str]]) -> str:
    return "{" + ", ".join(f"{key} :{value}" for key, value in pairs) + "}"


VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4).map(lambda items: f"[{','.join(items)}]")
        | st.lists(st.tuples(TEXTS, inner), max_size=4).map(join_members)
    ),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> OutgoingStream:
    return stream_of(config_of(tmp_path_factory.mktemp("connectors"), SINK | JSON), JSON | MASK)


def sent_number(stream: OutgoingStream, value: str) -> bytes:
    [(_, batch)] = stream.apply(records([f'{{"n":7,"v":{value}}}'.encode()]))
    text: bytes = batch.column("value")[0].as_py()
    assert text.startswith(b'{"n":0,"v":')
    return text[len(b'{"n":0,"v":') : -1]


def parse_exactly(text: str | bytes) -> Any:
    """Parse to pairs in place of objects, so that a key twice is seen, and numbers to Decimals."""
    return json.loads(text, parse_float=Decimal, parse_int=Decimal, object_pairs_hook=lambda pairs: ("object", pairs))


def has_key_twice(parsed: Any) -> bool:
    if isinstance(parsed, tuple):
        names = [name for name, _ in parsed[1]]
        return len(set(names)) < len(names) or any(has_key_twice(value) for _, value in parsed[1])
    return isinstance(parsed, list) and any(map(has_key_twice, parsed))


@given(value=VALUES)
def test_a_value_is_the_same_to_each_digit_or_is_refused_for_a_key(stream: OutgoingStream, value: str) -> None:
    expected = parse_exactly(value)
    if has_key_twice(expected):
        with pytest.raises(RecordError, match=r"an object has the key .* more than once"):
            sent_number(stream, value)
    else:
        assert parse_exactly(sent_number(stream, value)) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("-2.5e999", b"-2.5E+999"),
        ("7e-777", b"7E-777"),
        ("0.2000000000000000111022302462515654", b"0.2000000000000000111022302462515654"),
        ("-98765432109876543210.25", b"-98765432109876543210.25"),
        ("-0", b"-0"),
        ("1" * 5000, b"1" * 5000),
        ("0.1", b"0.1"),
        ("2.5e20", b"2.5e20"),
    ],
)
def test_numbers_beyond_doubles_keep_their_digits(stream: OutgoingStream, value: str, expected: bytes) -> None:
    assert sent_number(stream, value) == expected


def test_an_exponent_that_nothing_holds_is_refused(stream: OutgoingStream) -> None:
    with pytest.raises(RecordError, match="cannot be decoded without a change of its value"):
        sent_number(stream, "1e9999999999999999999")


def test_one_more_key_than_is_compared_quickly_is_seen_too(stream: OutgoingStream) -> None:
    members = [(f'"k{at}"', "1") for at in range(300)]
    assert json.loads(sent_number(stream, join_members(members))) == {f"k{at}": 1 for at in range(300)}
    with pytest.raises(RecordError, match="the key 'k299' more than once"):
        sent_number(stream, join_members([*members, members[-1]]))


def step(kind: str, **options: str) -> TransformSettings:
    given = {name.replace("_", "."): SecretStr(value) for name, value in options.items()}
    return TransformSettings(alias=kind, type=kind, options=given)


def streamed(values: list[bytes], *, source: ConverterSettings = PROTOBUF, **outgoing: Any) -> OutgoingStream:
    how = Outgoing(**outgoing)
    values_ = ValueSettings(how, RecordSettings(value=source), "t", "copy", schemas=(SEAL,), registers=False)
    stream = OutgoingStream("t", 3, SentSettings("copy", 4, outgoing=how, values=values_))
    stream.apply(records(values))
    return stream


def test_values_that_lose_what_their_schema_does_not_list_are_counted() -> None:
    stream = streamed([KNOWN, MORE, LESS], transforms=(step("MaskField$Value", fields="name"),))
    assert (stream.incomplete_count, stream.notes) == (2, (f"2 records {SAID}",))


def test_values_whose_bytes_are_sent_as_they_are_lose_nothing() -> None:
    header = step("InsertHeader", header="a", value_literal="b")
    assert streamed([MORE], transforms=(header,)).notes == ()
    named = framed(b"\0\x0a\x04copy\x18\x01")
    assert streamed([named], transforms=(step("ExtractTopic$Value", field="name"),)).incomplete_count == 0


def test_another_converter_loses_them_too_but_not_that_of_bytes() -> None:
    assert streamed([MORE, KNOWN], value=JSON_SETTINGS).incomplete_count == 1
    assert streamed([MORE, KNOWN], value=ConverterSettings(format="BYTES")).incomplete_count == 0


def test_records_that_a_transform_drops_are_not_counted() -> None:
    drops = TransformSettings(alias="f", type="Filter")
    assert streamed([MORE, LESS], transforms=(drops,), value=JSON_SETTINGS).incomplete_count == 0


def test_json_that_carries_its_schema_is_counted_as_well() -> None:
    fields = '[{"type":"int32","field":"age"},{"type":"string","field":"name"}]'
    row = f'{{"schema":{{"type":"struct","fields":{fields}}},"payload":{{"age":3,"name":"x","fur":"grey"}}}}'
    source = ConverterSettings(format="JSON", schemas_enable=True)
    stream = streamed([row.encode()], source=source, transforms=(step("MaskField$Value", fields="age"),))
    assert stream.incomplete_count == 1
    assert "'fur'" in stream.notes[0]


def test_keys_are_told_of_as_well_as_values() -> None:
    how = Outgoing(key=JSON_SETTINGS, value=JSON_SETTINGS)
    source = RecordSettings(key=PROTOBUF, value=PROTOBUF)
    made = Values(ValueSettings(how, source, "t", "copy", schemas=(SEAL,)))
    batch = records([MORE, KNOWN, KNOWN], [MORE, LESS, KNOWN])
    done = made.encode(made.decode(batch).batch)
    assert [(offset, *notes.kinds) for offset, notes in done.losses] == [
        (10, "lack in their key what schema 1 does not list"),
        (11, "lack in their key what schema 1 does not list"),
        (10, "lack in their value what schema 1 does not list"),
    ]


def test_null_lists_that_protobuf_makes_empty_are_counted() -> None:
    lists = {"type": "array", "optional": True, "field": "a", "items": {"type": "string"}}
    maps = lists | {"type": "map", "field": "m", "keys": {"type": "string"}, "values": {"type": "int32"}}
    schema = {"type": "struct", "name": "Bag", "fields": [lists, maps]}
    rows = [{"a": ["x"], "m": {}}, {"a": None, "m": {}}, {"a": [], "m": None}, {"a": None, "m": None}]
    values = [json.dumps({"schema": schema, "payload": row}).encode() for row in rows]
    stream = streamed(values, source=ConverterSettings(format="JSON", schemas_enable=True), value=PROTOBUF)
    assert (stream.incomplete_count, stream.notes) == (
        3,
        ("3 records have empty lists or maps where they had a null, which Protobuf has not (the first one: a)",),
    )
