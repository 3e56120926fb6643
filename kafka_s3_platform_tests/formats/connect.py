"""Batches as they reach the writers, and what these make of them."""

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from kafka_s3_platform.core.config.settings import LayoutSettings
from kafka_s3_platform.core.formats.format_io import new_writer
from kafka_s3_platform.core.formats.parts import ObjectPart
from kafka_s3_platform.core.model.connect import NO_SCHEMA, ConnectBatch, Payload, Schema
from kafka_s3_platform_tests.formats.records import batch_of


class JsonPayload(Payload):
    """What the JSON converter gives."""

    raw_is_json = True


def came(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None = None,
    headers: Sequence[Any] | None = None,
    *,
    is_json: bool = False,
    schema: Schema | None = None,
) -> ConnectBatch:
    """Values as they came, with every second offset."""
    size = len(values)
    rows = [
        {"key": k, "value": v, "headers": h, "timestamp": 0}
        for k, v, h in zip(keys or [b"k"] * size, values, headers or [None] * size, strict=True)
    ]
    records = batch_of(rows)
    value = payload(records.column("value"), schema, JsonPayload if is_json else Payload)
    return ConnectBatch(records, payload(records.column("key"), None), value)


def decoded(objects: Sequence[Any], schema: Schema | None, *, keys: bool = False) -> ConnectBatch:
    """Values, or keys, of a schema."""
    batch = came([b"raw"] * len(objects))
    codes = np.array([NO_SCHEMA if o is None or schema is None else 0 for o in objects], np.int32)
    found = Payload(None, codes, [schema] if schema else [], objects)
    return ConnectBatch(batch.records, found if keys else batch.key, batch.value if keys else found)


def payload(raw: pa.BinaryArray, schema: Schema | None, kind: type[Payload] = Payload) -> Payload:
    code = NO_SCHEMA if schema is None else 0
    return kind(raw, np.full(len(raw), code, np.int32), [schema] if schema else [])


def cut(batch: ConnectBatch, bounds: Sequence[int]) -> list[ConnectBatch]:
    """The batch in pieces, empty ones among them."""
    ends = [*sorted(min(b, batch.num_rows) for b in bounds), batch.num_rows]
    return [batch.take(np.arange(a, b)) for a, b in zip([0, *ends], ends, strict=False)]


def written(
    layout: LayoutSettings, *batches: ConnectBatch, part: ObjectPart = "value", schema: Schema | None = None
) -> bytes:
    """The object of the batches."""
    return written_with_sidecars(layout, *batches, part=part, schema=schema)[""]


def written_with_sidecars(
    layout: LayoutSettings, *batches: ConnectBatch, part: ObjectPart = "value", schema: Schema | None = None
) -> dict[str, bytes]:
    """The object of the batches, and what belongs to it by what replaces its extension."""
    sink = io.BytesIO()
    writer = new_writer(sink, layout, part, schema)
    for batch in batches:
        writer.write(batch)
    writer.close({"topic": "t"})
    assert not sink.closed
    return {"": sink.getvalue(), **writer.sidecars}
