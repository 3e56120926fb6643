"""Values of one schema become columns of another, by Avro's resolution, and none becomes null that was not.

`kafka_s3_platform.read(..., decode=True)` by the schemas that the archive keeps: no registry is asked.
"""

import io
import json
from collections.abc import Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from fastavro import parse_schema, schemaless_writer

from kafka_s3_platform import read
from kafka_s3_platform.connect.formats.avro_records import DatumPayload
from kafka_s3_platform.core.config.settings import ConverterSettings, KafkaSettings, RegistrySettings
from kafka_s3_platform.core.errors import ConfigError, RecordError
from kafka_s3_platform.core.model.connect import NO_SCHEMA, Schema
from kafka_s3_platform.operate.reading.values import ValueDecoder
from kafka_s3_platform_tests.archive.values import framed
from kafka_s3_platform_tests.reading.conftest import JSON, Declared, query
from kafka_s3_platform_tests.support import HOUR, NOON, Sent, archived, produce

PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
LATER: list[dict[str, Any]] = [
    {"name": "tag", "type": "string", "default": "none"},
    {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
    {"name": "line", "type": ["null", {"type": "record", "name": "Line", "fields": [{"name": "x", "type": "int"}]}]},
]

ORDER: dict[str, Any] = {"type": "record", "name": "Order", "fields": [{"name": "n", "type": "long"}]}

TAGGED_ORDER = {**ORDER, "fields": [*ORDER["fields"], {"name": "tag", "type": "string", "default": "none"}]}

OTHER = {**ORDER, "name": "Other"}


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


def sent_at(hour: int, values: list[bytes]) -> list[Sent]:
    return [Sent(value, b"k", NOON + hour * HOUR) for value in values]


def test_values_come_to_the_newest_archived_schema_or_to_the_one_asked_for(
    declared: Declared,
    kafka_settings: KafkaSettings,
    registry: RegistrySettings,
) -> None:
    topic = declared.topic
    avro = {"value.converter": "io.confluent.connect.avro.AvroConverter"}
    here = {**avro, "value.converter.schema.registry.url": registry.url}
    old = framed(registry, topic, ORDER, [{"n": 1}, {"n": 2}])
    produce(kafka_settings, topic, sent_at(0, old))
    archived(declared(here))
    parquet_only = read("c", decode=True)
    new = framed(registry, topic, TAGGED_ORDER, [{"n": 3, "tag": "x"}])
    produce(kafka_settings, topic, [*sent_at(1, [*new, old[0]]), Sent(None, b"k", NOON + HOUR)])
    archived(declared({**here, "format.class": "kafka_s3_platform.formats.EnvelopeJsonFormat"}))
    declared({**here, "value.converter.schema.registry.url": "http://127.0.0.1:1"})

    archive = read("c", decode=True)
    assert [(each.name, each.type) for each in archive.schema.field("value").type] == [
        ("n", pa.int64()),
        ("tag", pa.string()),
    ]
    found = archive.to_table(columns=["offset", "value"]).sort_by("offset").column("value").to_pylist()
    assert found == [*({"n": n, "tag": "none"} for n in (1, 2)), {"n": 3, "tag": "x"}, {"n": 1, "tag": "none"}, None]
    assert query(archive, "SELECT sum(value.n), count(*) FROM archive WHERE value.tag = 'none'") == [(4, 3)]
    assert archive.to_table(filter=ds.field("value", "n") > 1, columns=["offset"]).num_rows == 2
    assert parquet_only.to_table().column("value").to_pylist() == [{"n": 1}, {"n": 2}]
    assert read("c", end=NOON + HOUR, decode=True).schema.equals(parquet_only.schema)
    assert read("c", start=NOON + 99 * HOUR, decode=True).to_table().equals(archive.schema.empty_table())
    first_id = int.from_bytes(old[0][1:5], "big")
    assert [v and v["n"] for v in read("c", schema_id=first_id).to_table().column("value").to_pylist()].count(1) == 2

    declared(here)
    with pytest.raises(ConfigError, match=r"schema 987654321 cannot be read"):
        read("c", schema_id=987654321)
    declared({})
    with pytest.raises(ConfigError, match=r"its file does not say how values are decoded: it has no value.converter"):
        read("c", decode=True)
    declared({key: value for key, value in JSON.items() if key.startswith("value.")})
    with pytest.raises(RecordError, match=rf"{topic}-0: the value of the record at offset 2 of topic {topic} "):
        read("c", decode=True)

    produce(kafka_settings, topic, sent_at(2, framed(registry, f"{topic}-of-others", OTHER, [{"n": 1}])))
    archived(declared(here))
    with pytest.raises(RecordError, match=rf"{topic}-0, offset 5: the value does not fit: .*Other"):
        read("c", decode=True).to_table()
    produce(kafka_settings, topic, sent_at(3, [b"plain"]))
    archived(declared(here))
    with pytest.raises(RecordError, match=r"offset 6 .*begins with the byte 0x70"):
        read("c", start=NOON + 3 * HOUR, schema_id=first_id).to_table()
