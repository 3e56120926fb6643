"""Whatever Avro's schema, each value comes out of every format as the one it was, or its record is refused and told."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_s3_platform.core.errors import RecordError
from kafka_s3_platform.core.formats.parts import UnwritableSchemaError
from kafka_s3_platform.core.formats.reading import build_bytes_payload
from kafka_s3_platform.core.model.schema import ArchivedSchema
from kafka_s3_platform.operate.reading.values import ValueDecoder
from kafka_s3_platform_tests.meaning.agreement import AvroAgreement, check_column, check_json
from kafka_s3_platform_tests.meaning.avro_reference import Branch, Types
from kafka_s3_platform_tests.meaning.avro_schemas import schemas_and_values, versions_and_values
from kafka_s3_platform_tests.meaning.harness import (
    CONVERTERS,
    INSERT,
    INSERTED,
    Archived,
    archive,
    framed,
    parse_archived,
    read_connector,
    records_of,
    registered,
    restore,
    with_schemas,
)
from kafka_s3_platform_tests.meaning.readers import READERS

OUTPUTS = ("avro", "json", "parquet", "block_gzip", "envelope.parquet", "envelope.avro", "envelope.json")

REASONS = (
    "which cannot be used: .*(decimal|scale|precision|Default value)",
    "holds itself.*Parquet has no such columns",
    "Only Struct objects supported for",
    "a recursive schema cannot be changed",
    "a null in a schema of text would read back as the text null",
    "the value holds the separator of records",
    "a decimal of (0|90) digits",
    "(cannot be written as parquet: ArrowInvalid:|the value does not fit:) .*[Dd]ecimal",
)
"""Why a record may be refused: what the record holds cannot be written there, and this says what."""


def check_refusals(refused: dict[int, str], *more: str) -> None:
    for offset, reason in refused.items():
        assert any(re.search(each, reason, re.DOTALL) for each in (*REASONS, *more)), f"{offset}: {reason}"


def archived(output: str, schema: Any, types: Types, values: Sequence[Any], **keys: str) -> Archived:
    bodies = [framed(7, types.encoded(value, is_sized=at % 2 == 1)) for at, value in enumerate(values)]
    config = read_connector(output, "AVRO", tuple(keys.items()))
    return archive(config, [registered(7, schema)], bodies, cut=len(bodies) // 2)


def check_objects(output: str, found: Archived, types: Types, values: Sequence[Any]) -> None:
    """Compare what others read in the objects with what was produced."""
    seen = set(found.refused)
    for offsets, body in found.objects():
        read = READERS[output](body)
        assert len(read) == len(offsets)
        seen |= set(offsets)
        for offset, one in zip(offsets, read, strict=True):
            _CHECKS[output](types, values[offset], one)
    assert seen == set(range(len(values)))


def _check_avro(types: Types, value: Any, found: tuple[Types, Any]) -> None:
    AvroAgreement(types, found[0]).check(value, found[1])


def _check_column(types: Types, value: Any, found: Any) -> None:
    root = types.at(types.root)
    is_record = not isinstance(root, list) and root["type"] == "record"
    check_column(types, root, value, found if is_record else found["value"])


def _check_line(types: Types, value: Any, found: Any) -> None:
    check_json(types, types.root, value, found)


def _check_text(types: Types, value: Any, found: bytes) -> None:
    """Compare a line of Block-GZIP, where text and bytes are as they are, and all else is JSON."""
    plain = value.value if isinstance(value, Branch) else value
    kinds = [types.at(each)["type"] for each in (types.root if isinstance(types.root, list) else [types.root])]
    others = [kind for kind in kinds if kind != "null"]
    is_text = len(others) == 1 or {*others} <= {"string", "bytes"}
    if isinstance(plain, str | bytes) and is_text:
        assert found == (plain.encode() if isinstance(plain, str) else plain)
    else:
        _check_line(types, value, json.loads(found))


_CHECKS = {"avro": _check_avro, "json": _check_line, "block_gzip": _check_text, "parquet": _check_column}


def check_way(output: str, schema: Any, types: Types, values: Sequence[Any]) -> None:
    """Archive values in a format, let others read its objects, and restore them with a field more."""
    found = archived(output, schema, types, values)
    check_refusals(dict(found.refused))
    if output in READERS:
        check_objects(output, found, types, values)
    if output not in ("json", "block_gzip") and len(found.refused) < len(values):
        check_restored(output, found, types, values)


def check_restored(output: str, found: Archived, types: Types, values: Sequence[Any]) -> None:
    """Restore values written anew, and with a field more."""
    batches = found.decoded()
    for keys in ({}, INSERT):
        restored = restore(found.config, found.schemas, batches, CONVERTERS["AVRO"] | keys)
        check_refusals(restored.refused)
        assert restored.values.keys() | restored.refused.keys() | found.refused.keys() == set(range(len(values)))
        for offset, (body, schema) in restored.values.items():
            if body is None:
                # As in Connect, a null that Avro's data hold is written anew as the null of a record.
                assert values[offset] is None or values[offset].value is None
                continue
            assert schema is not None
            read = Types.of(schema.avro)
            check = AvroAgreement(types, read, renews_decimals=output == "parquet", inserted=INSERTED if keys else None)
            check.check(values[offset], read.decoded(body[5:]))


def check_evolution(
    output: str, compatibility: str, schemas: Sequence[ArchivedSchema], values: Sequence[tuple[int, Any]]
) -> None:
    """Archive values of several schemas. Others read what each value is by the schema that it is written with."""
    types = {schema.schema_id: Types.of(json.loads(schema.schema_text)) for schema in schemas}
    bodies = [framed(schema_id, types[schema_id].encoded(value)) for schema_id, value in values]
    projected: dict[int, tuple[Types, Any]] = {}
    for offset, read in _read_evolved("avro", compatibility, schemas, bodies):
        schema_id, value = values[offset]
        _check_avro(types[schema_id], value, read)
        if schemas[0].subjects[0].subject != schemas[1].subjects[0].subject:
            assert read[0] == types[schema_id], "a value has the schema of another subject"
        projected[offset] = read
    for offset, read in _read_evolved(output, compatibility, schemas, bodies) if output != "avro" else ():
        _CHECKS[output](*projected[offset], read)
    newest = schemas[-1]
    moved = [offset for offset, (found, _) in projected.items() if found == types[newest.schema_id]]
    for offset, column in decode_columns(schemas, newest, {offset: bodies[offset] for offset in moved}):
        found, value = projected[offset]
        check_column(found, found.root, value, column)


def _read_evolved(
    output: str, compatibility: str, schemas: Sequence[ArchivedSchema], bodies: Sequence[bytes]
) -> Iterator[tuple[int, Any]]:
    """Archive values, and yield what others read of each."""
    config = read_connector(output, "AVRO", (("schema.compatibility", compatibility),))
    found = archive(config, schemas, bodies, cut=len(bodies) // 2)
    check_refusals(dict(found.refused))
    offsets = set(found.refused)
    for held, body in found.objects():
        offsets |= {*held}
        yield from zip(held, READERS[output](body), strict=True)
    assert offsets == set(range(len(bodies)))


def decode_columns(
    schemas: Sequence[ArchivedSchema], target: ArchivedSchema, bodies: Mapping[int, bytes]
) -> Iterator[tuple[int, Any]]:
    """Decode values to a typed column of one schema, as `kafka_s3_platform.read` and Spark's source do."""
    config = with_schemas(read_connector("envelope.parquet", "AVRO"), tuple(schemas))
    decoder = ValueDecoder("t", parse_archived(target), config.records.value)
    for offset, body in bodies.items():
        record = records_of([body])
        try:
            yield offset, decoder.decode(build_bytes_payload(record.column("value")), record)[0]
        except (RecordError, UnwritableSchemaError) as err:
            check_refusals({offset: str(err)})


def check_columns(schema: ArchivedSchema, types: Types, values: Sequence[Any]) -> None:
    bodies = {at: framed(schema.schema_id, types.encoded(value)) for at, value in enumerate(values)}
    for at, column in decode_columns([schema], schema, bodies):
        if column.is_valid:
            check_column(types, types.root, values[at], column)
        else:
            assert values[at] is None or values[at].value is None


def check_json_sent(schema: Any, types: Types, values: Sequence[Any]) -> None:
    """Restore values as JSON, without their schema and with it."""
    found = archived("envelope.json", schema, types, values)
    for converter in ("PLAIN_JSON", "JSON"):
        restored = restore(found.config, found.schemas, found.decoded(), CONVERTERS[converter])
        check_refusals(restored.refused, "Connect has no schema of null alone", "holds itself, and JsonConverter")
        for offset, (body, _) in restored.values.items():
            read = json.loads(body or b"null")
            if converter == "JSON" and body is not None:
                read = read["payload"]
            check_json(types, types.root, values[offset], read)


KINDS: dict[str, tuple[Any, Any]] = {
    "boolean": ("boolean", True),
    "int": ("int", 5),
    "long": ("long", 5),
    "float": ("float", 5.0),
    "double": ("double", 5.0),
    "bytes": ("bytes", b"aa"),
    "string": ("string", "A"),
    "enum": ({"type": "enum", "name": "a.E", "symbols": ["A", "B"]}, "A"),
    "other enum": ({"type": "enum", "name": "b.E", "symbols": ["A", "C"]}, "A"),
    "fixed": ({"type": "fixed", "name": "a.F", "size": 2}, b"aa"),
    "other fixed": ({"type": "fixed", "name": "b.F", "size": 2}, b"aa"),
    "array": ({"type": "array", "items": "int"}, [1]),
    "map": ({"type": "map", "values": "string"}, {"id": "A"}),
    "record": ({"type": "record", "name": "a.R", "fields": [{"name": "id", "type": "string"}]}, {"id": "A"}),
    "other record": ({"type": "record", "name": "b.R", "fields": [{"name": "id", "type": "string"}]}, {"id": "A"}),
    "third record": (
        {"type": "record", "name": "a.Q", "fields": [{"name": "id", "type": "string"}, {"name": "n", "type": "int"}]},
        {"id": "A", "n": 1},
    ),
    "date": ({"type": "int", "logicalType": "date"}, 5),
    "timestamp": ({"type": "long", "logicalType": "timestamp-millis"}, 5),
    "decimal": ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, b"\x01"),
}


def _kind(name: str) -> str:
    """What a union has once: the name of a named type, else the type whatever it means."""
    schema = Types.of(KINDS[name][0]).root
    return schema if isinstance(schema, str) else str(schema["type"])


def build_pairs(first: str) -> tuple[Any, list[Any]]:
    """A record with a union of the first type, null and another one for each other type; values of each branch."""
    others = {name.replace(" ", "_"): KINDS[name] for name in KINDS if _kind(name) != _kind(first)}
    schema, value = KINDS[first]
    again = Types.of(schema).root
    unions = [
        [again if at and isinstance(again, str) else schema, "null", each]
        for at, (each, _) in enumerate(others.values())
    ]
    fields = [{"name": name, "type": union} for name, union in zip(others, unions, strict=True)]
    values = [
        dict.fromkeys(others, Branch(0, value)),
        dict.fromkeys(others, Branch(1, None)),
        {name: Branch(2, other) for name, (_, other) in others.items()},
    ]
    return {"type": "record", "name": "Event", "fields": fields}, values


@pytest.mark.parametrize("output", OUTPUTS)
def test_each_pair_of_types_in_a_union_is_told_apart(output: str) -> None:
    for first in KINDS:
        schema, values = build_pairs(first)
        check_way(output, schema, Types.of(schema), values)


@pytest.mark.parametrize("output", OUTPUTS)
@given(st.data())
def test_any_value_of_any_schema_comes_through_every_format(output: str, data: st.DataObject) -> None:
    check_way(output, *data.draw(schemas_and_values()))


@given(schemas_and_values(has_bad_types=True))
def test_logical_types_with_bad_parameters_change_no_value(drawn: Any) -> None:
    for output in ("avro", "json", "parquet"):
        check_way(output, *drawn)


@given(schemas_and_values())
def test_any_value_of_any_schema_is_read_as_a_typed_column(drawn: Any) -> None:
    schema, types, values = drawn
    check_columns(registered(7, schema), types, values)


@pytest.mark.parametrize("compatibility", ["NONE", "BACKWARD", "FORWARD", "FULL"])
@given(versions_and_values(), st.sampled_from(["avro", "json", "parquet"]))
def test_any_value_of_any_version_keeps_its_meaning(compatibility: str, drawn: Any, output: str) -> None:
    check_evolution(output, compatibility, *drawn)


@given(schemas_and_values())
def test_any_value_of_any_schema_is_sent_as_json_that_says_the_same(drawn: Any) -> None:
    check_json_sent(*drawn)
