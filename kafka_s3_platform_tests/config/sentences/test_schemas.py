"""What is said of schemas and their names, shown by what objects hold."""

import io
import json
from typing import Any

import fastavro
import pytest

from kafka_s3_platform.connect.converters import ConvertedPayload
from kafka_s3_platform.core.config.settings import LayoutSettings
from kafka_s3_platform.core.formats.parts import UnwritableSchemaError
from kafka_s3_platform.core.model.connect import Schema
from kafka_s3_platform.core.model.schema import SubjectVersion
from kafka_s3_platform_tests.converters.values import ENVELOPE, archived, convert_rows, framed, of_archive
from kafka_s3_platform_tests.formats.connect import decoded, written

AVRO = LayoutSettings(format="avro", codec="null")
PROTOBUF = 'syntax = "proto3"; package post; message Parcel { int32 weight = 1; map<string, int32> stops = 2; }'
STAMP = json.dumps(
    {
        "type": "record",
        "name": "Stamp",
        "namespace": "post",
        "doc": "What is stuck on it.",
        "fields": [
            {"name": "cents", "type": {"type": "int", "connect.name": "my.Cents"}, "default": 70, "doc": "Its price."},
            {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"], "default": "A"}},
        ],
    },
    indent=1,
)


def converted(kind: str, text: str, value: bytes) -> ConvertedPayload:
    """A value of the schema 1 of a registry."""
    schema = archived(kind.removesuffix("_SR"), text, 1, SubjectVersion("t-value", 1, None))
    return convert_rows(of_archive(kind, schema), [framed(1, value)])


def enveloped(schema: Any, payload: Any) -> ConvertedPayload:
    """A value of JsonConverter, with its schema."""
    return convert_rows(ENVELOPE, [json.dumps({"schema": schema, "payload": payload}).encode()])


def avro_of(done: ConvertedPayload) -> tuple[str, list[Any]]:
    """The schema and the values of the Avro object of a payload."""
    (schema,) = done.payload.schemas
    body = written(AVRO, decoded(list(done.payload.objects), schema), schema=schema)
    reader = fastavro.reader(io.BytesIO(body))
    return str(reader.metadata["avro.schema"]), list(reader)


def test_an_avro_schema_is_written_as_registered_docs_defaults_and_blanks_included() -> None:
    assert avro_of(converted("AVRO", STAMP, b"\x08\x02")) == (STAMP, [{"cents": 4, "kind": "B"}])


@pytest.mark.parametrize(
    "done",
    [
        lambda: converted("PROTOBUF", PROTOBUF, b"\0\x08\x03"),
        lambda: converted("JSON_SR", '{"type":"object","title":"post.Parcel","properties":{"id":{}}}', b"{}"),
        lambda: enveloped({"type": "struct", "name": "post.Parcel", "fields": []}, {}),
    ],
    ids=["Protobuf", "JSON Schema", "JsonConverter"],
)
def test_another_schema_becomes_avro_with_its_full_name(done: Any) -> None:
    schema = json.loads(avro_of(done())[0])
    assert (schema["namespace"], schema["name"]) == ("post", "Parcel")


@pytest.mark.parametrize("optional", [True, False])
def test_a_map_with_texts_as_keys_is_a_map(optional: bool) -> None:
    keys = {"type": "string", "optional": optional}
    done = enveloped({"type": "map", "keys": keys, "values": {"type": "int32"}}, {"Berlin": 1})
    assert avro_of(done) == ('{"type":"map","values":"int"}', [{"Berlin": 1}])


def test_a_map_of_protobuf_is_a_map() -> None:
    done = converted("PROTOBUF", PROTOBUF, b"\0\x12\x05\x0a\x01k\x10\x07")
    assert avro_of(done)[1][0]["stops"] == {"k": 7}


def schema_of(name: str, field: str, symbol: str = "A") -> Schema:
    kind = {"type": "enum", "name": "Kind", "symbols": [symbol]}
    fields = [{"name": field, "type": "string"}, {"name": "kind", "type": kind}]
    return Schema(json.dumps({"type": "record", "name": name, "fields": fields}))


@pytest.mark.parametrize(
    ("schema", "name"),
    [
        (schema_of("Parcel", "parcel-id"), "'parcel-id'"),
        (schema_of("Parcel", "2nd"), "'2nd'"),
        (schema_of("Parcel", ""), "''"),
        (schema_of("my-post.Parcel", "id"), "'my-post'"),
        (schema_of("Parcel", "id", "a b"), "'a b'"),
    ],
    ids=["field", "digit", "empty", "namespace", "symbol"],
)
def test_a_name_that_avro_does_not_allow_fails_its_records_in_avro_objects(schema: Schema, name: str) -> None:
    with pytest.raises(UnwritableSchemaError, match=f"{name} is no name that Avro allows: rename it"):
        written(AVRO, decoded([{}], schema), schema=schema)


def test_names_of_all_languages_are_avros() -> None:
    schema = schema_of("Päckchen", "gewicht_größe")
    value = {"gewicht_größe": "1", "kind": "A"}
    assert list(fastavro.reader(io.BytesIO(written(AVRO, decoded([value], schema), schema=schema)))) == [value]


@pytest.mark.parametrize("format_name", ["json", "parquet"])
def test_in_other_objects_any_name_stays_as_it_is(format_name: str) -> None:
    schema = Schema('{"type":"record","name":"P","fields":[{"name":"parcel-id","type":"string"}]}')
    layout = LayoutSettings(format=format_name, codec="none")
    assert b"parcel-id" in written(layout, decoded([{"parcel-id": "x"}], schema), schema=schema)


def branch(name: str) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": "n", "type": "int"}]}


@pytest.mark.parametrize(
    ("first", "second", "names"),
    [("post.Sent", "post.Lost", ("Sent", "Lost")), ("post.Sent", "shop.Sent", ("post.Sent", "shop.Sent"))],
)
def test_json_names_types_of_a_union_without_namespaces_unless_two_would_have_one_name(
    first: str, second: str, names: tuple[str, str]
) -> None:
    schema = Schema(json.dumps([branch(first), branch(second)]))
    line = written(LayoutSettings(format="json", codec="none"), decoded([(second, {"n": 1})], schema), schema=schema)
    assert json.loads(line) == {names[0]: None, names[1]: {"n": 1}}
