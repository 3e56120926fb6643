"""Batches as the pipeline hands them to extractors and partitioners."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa

from kafka_s3_platform.core.model.batches import RECORD_SCHEMA
from kafka_s3_platform.core.model.connect import NO_SCHEMA, ConnectBatch, Int64s, Payload, Schema


def batch_of(
    values: Sequence[Any],
    schemas: Sequence[dict[str, Any]] = (),
    codes: Sequence[int] | None = None,
    timestamps: Sequence[int] | None = None,
    kafka_partition: int = 0,
) -> ConnectBatch:
    """Records with decoded values, ascending by offset from 100; all of the first schema, or of none."""
    times = timestamps or range(len(values))
    rest = {"topic": "t", "partition": kafka_partition, "timestampType": 0, "headers": None}
    rows = [{**rest, "offset": 100 + i, "timestamp": time} for i, time in enumerate(times)]
    records = pa.RecordBatch.from_pylist(rows, schema=RECORD_SCHEMA)
    first = 0 if schemas else NO_SCHEMA
    found = codes or [NO_SCHEMA if value is None else first for value in values]
    payload = Payload(None, np.array(found, np.int32), [Schema(json.dumps(s)) for s in schemas], list(values))
    return ConnectBatch(records, ConnectBatch.of(records).key, payload)


def schema_of(**fields: Any) -> dict[str, Any]:
    """A record's Avro schema by its fields' types."""
    return {"type": "record", "name": "r", "fields": [{"name": n, "type": t} for n, t in fields.items()]}


def ms(text: str) -> int:
    """Epoch ms of an ISO 8601 text with an offset."""
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def times_of(*texts: str) -> Int64s:
    return np.array([ms(text) for text in texts], np.int64)
