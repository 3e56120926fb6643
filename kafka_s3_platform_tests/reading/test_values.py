"""Values of one schema become columns of another, by Avro's resolution, and none becomes null that was not."""

import io
import json
from collections.abc import Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fastavro import parse_schema, schemaless_writer

from kafka_s3_platform.config.settings import ConverterSettings
from kafka_s3_platform.errors import RecordError
from kafka_s3_platform.formats.reading import DatumPayload
from kafka_s3_platform.model.connect import NO_SCHEMA, Schema
from kafka_s3_platform.reading.values import ValueDecoder

PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
LATER: list[dict[str, Any]] = [
    {"name": "tag", "type": "string", "default": "none"},
    {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
    {"name": "line", "type": ["null", {"type": "record", "name": "Line", "fields": [{"name": "x", "type": "int"}]}]},
]


def record(*fields: dict[str, Any], name: str = "Order") -> Schema:
    return Schema(json.dumps({"type": "record", "name": name, "namespace": "shop", "fields": fields}))


FIRST = record({"name": "n", "type": "long"})
NEWEST = record({"name": "n", "type": "long"}, *LATER[:2], {**LATER[2], "default": None})
WIDER = record({"name": "n", "type": "double"}, LATER[0])


def decoded(target: Schema, *given: tuple[Schema, Sequence[Any]]) -> pa.Array:
    """The column of these values, in turn, each run of them with a null behind it."""
    rows: list[bytes | None] = []
    codes: list[int] = []
    for code, (schema, values) in enumerate(given):
        for value in values:
            body = io.BytesIO()
            schemaless_writer(body, parse_schema(schema.avro), value)
            rows.append(body.getvalue())
            codes.append(code)
        rows.append(None)
        codes.append(NO_SCHEMA)
    payload = DatumPayload(pa.array(rows, pa.binary()), np.array(codes, np.int32), [schema for schema, _ in given])
    places = pa.record_batch({"partition": [0] * len(rows), "offset": range(100, 100 + len(rows))})
    return ValueDecoder("t", target, ConverterSettings()).decode(payload, places)


def test_values_of_several_versions_come_to_the_newest_one() -> None:
    new = {"n": 3, "tag": "x", "tags": ["a"], "line": {"x": 1}}
    found = decoded(NEWEST, (FIRST, [{"n": 1}, {"n": 2}]), (NEWEST, [new]))
    old: dict[str, Any] = {"tag": "none", "tags": [], "line": None}
    assert found.to_pylist() == [{"n": 1, **old}, {"n": 2, **old}, None, new, None]
    assert found.type.field("n").type == pa.int64()
    back = decoded(FIRST, (NEWEST, [new]), (FIRST, [{"n": 1}]))
    assert back.to_pylist() == [{"n": 3}, None, {"n": 1}, None], "what the older schema does not have is left out"
    small = record({"name": "n", "type": "int"}, {"name": "tag", "type": "string"})
    large = record({"name": "n", "type": ["null", "long"]}, {"name": "tag", "type": ["string", "null"]})
    grown = decoded(large, (small, [{"n": 1, "tag": ""}]), (large, [{"n": None, "tag": None}]))
    assert grown.to_pylist() == [{"n": 1, "tag": ""}, None, {"n": None, "tag": None}, None]
    assert decoded(WIDER, (FIRST, [{"n": 1}])).to_pylist() == [{"n": 1.0, "tag": "none"}, None]


def test_columns_have_the_types_that_the_schema_means() -> None:
    schema = record(
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": ["null", PRICE]},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
    )
    more = record({"name": "by", "type": {"type": "map", "values": "int"}}, {"name": "of", "type": ["int", "string"]})
    row = {
        "day": date(2026, 1, 2),
        "at": datetime(2026, 1, 2, tzinfo=timezone.utc),
        "price": Decimal("1.50"),
        "kind": "B",
    }
    found = decoded(schema, (schema, [row]))
    assert found.to_pylist() == [row, None]
    assert found.type.field("price").type == pa.decimal128(9, 2)
    assert decoded(more, (more, [{"by": {"a": 1}, "of": "x"}])).to_pylist() == [
        {"by": [("a", 1)], "of": {"member0": None, "member1": "x"}},
        None,
    ]
    assert decoded(Schema('"string"'), (Schema('"string"'), ["a", ""])).to_pylist() == ["a", "", None]


@pytest.mark.parametrize(
    ("target", "source", "value", "why"),
    [
        (
            record({"name": "n", "type": "long"}, {"name": "m", "type": "long"}),
            FIRST,
            {"n": 1},
            "field m is in the target",
        ),
        (record({"name": "n", "type": "int"}), FIRST, {"n": 1}, "n is a?.*long"),
        (FIRST, record({"name": "n", "type": "long"}, name="Other"), {"n": 1}, "Other"),
        (FIRST, record({"name": "n", "type": ["null", "long"]}), {"n": None}, "field n is null"),
    ],
    ids=["no default", "narrower", "another record", "null"],
)
def test_a_value_that_does_not_fit_is_an_error_that_names_it(
    target: Schema, source: Schema, value: Any, why: str
) -> None:
    with pytest.raises(RecordError, match=rf"t-0, offset 101: the value does not fit: .*{why}.* by schema_id"):
        decoded(target, (target, []), (source, [value]))
