"""Batches as the converters hand them over, and what a chain made of them, as plain Python."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from kafka_s3_platform.connect.config.keys.transforms import parse_transforms
from kafka_s3_platform.connect.transforms import new_chain
from kafka_s3_platform.core.model.batches import RECORD_SCHEMA
from kafka_s3_platform.core.model.connect import NO_SCHEMA, ConnectBatch, Outcome, Payload, Schema

Headers = Sequence[tuple[str, bytes | None]]

NOON = 1_700_049_600_123
"""2023-11-15T12:00:00.123Z."""


def schema(name: str, *fields: Mapping[str, Any] | tuple[str, Any]) -> Schema:
    """A record's schema, as the Registry gave it."""
    declared = [f if isinstance(f, Mapping) else {"name": f[0], "type": f[1]} for f in fields]
    return Schema(json.dumps({"type": "record", "name": name, "fields": declared}), 7, "orders-value", 3)


def optional(name: str, type_: Any, default: Any = None) -> dict[str, Any]:
    return {"name": name, "type": ["null", type_] if default is None else [type_, "null"], "default": default}


def payload(objects: Sequence[Any], *schemas: Schema | None) -> Payload:
    """Objects, each with its schema (one for all where one is given). A null has none."""
    each = [*schemas] * (len(objects) if len(schemas) == 1 else 1) if schemas else [None] * len(objects)
    known = list(dict.fromkeys(s for s in each if s is not None))
    codes = [NO_SCHEMA if s is None or o is None else known.index(s) for o, s in zip(objects, each, strict=True)]
    raw = pa.array([None if o is None else repr(o).encode() for o in objects], pa.binary())
    return Payload(raw, np.array(codes, np.int32), known, list(objects))


def batch(
    value: Payload,
    key: Payload | None = None,
    headers: Sequence[Headers | None] | None = None,
    topics: Sequence[str] | None = None,
    timestamps: Sequence[int] | None = None,
    first_offset: int = 100,
) -> ConnectBatch:
    size = len(value)
    listed = [None if h is None else [{"key": k, "value": v} for k, v in h] for h in headers or [None] * size]
    columns = {
        "key": pa.array([None] * size, pa.binary()),
        "value": pa.array([None] * size, pa.binary()),
        "headers": pa.array(listed, RECORD_SCHEMA.field("headers").type),
        "topic": pa.array(topics or ["orders"] * size, pa.string()),
        "partition": pa.array([4] * size, pa.int32()),
        "offset": pa.array(range(first_offset, first_offset + size), pa.int64()),
        "timestamp": pa.array(timestamps or [NOON] * size, pa.timestamp("ms", tz="UTC")),
        "timestampType": pa.array([0] * size, pa.int32()),
    }
    records = pa.RecordBatch.from_pydict(columns, schema=RECORD_SCHEMA)
    return ConnectBatch(records, key or payload([None] * size), value)


def apply(given: ConnectBatch, **steps: Mapping[str, str]) -> Outcome:
    """The outcome of steps, written as a connector file writes them; `predicates` come as the step of that name."""
    predicates = steps.pop("predicates", {})
    entries = {"transforms": ",".join(steps), **predicates}
    entries |= {
        f"transforms.{alias}.{name}": value for alias, options in steps.items() for name, value in options.items()
    }
    return new_chain(parse_transforms(entries), "orders").apply(given)


def values(outcome: Outcome) -> list[Any]:
    return list(outcome.batch.value.objects)


def schema_of(side: Payload, position: int = 0) -> Any:
    """The Avro schema of one record, None where it has none."""
    code = side.codes[position]
    return None if code == NO_SCHEMA else side.schemas[code].avro


def fields_of(side: Payload, position: int = 0) -> dict[str, Any]:
    """Name to type."""
    return {field["name"]: field["type"] for field in schema_of(side, position)["fields"]}


def headers_of(outcome: Outcome) -> list[list[tuple[str, bytes | None]] | None]:
    listed = outcome.batch.records.column("headers").to_pylist()
    return [None if h is None else [(each["key"], each["value"]) for each in h] for h in listed]


def topics_of(outcome: Outcome) -> list[str]:
    return list(outcome.batch.records.column("topic").to_pylist())


def messages(outcome: Outcome) -> list[str]:
    return [failure.message for failure in outcome.failures]
