"""Timestamps that objects tell, in epoch milliseconds."""

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import msgspec

from kafka_s3_platform.formats.avro_schema import AvroSchema
from kafka_s3_platform.model.connect import Schema

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_IN_A_MILLISECOND = {"timestamp-micros": 1_000, "timestamp-nanos": 1_000_000}


def milliseconds(value: Any, unit: int = 1) -> int | None:
    """Of ISO 8601, or of a number since the epoch, `unit` of which are a millisecond. Raises ValueError for others."""
    if value is None or isinstance(value, int):
        return None if value is None else value // unit
    if isinstance(value, str) and value.lstrip("-").isdecimal():
        return int(value)
    moment = msgspec.convert(value, datetime)
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def unit_at(schema: Schema, path: Sequence[str]) -> int:
    """How many of the numbers of an Avro field are a millisecond."""
    avro = AvroSchema(schema.avro)
    node: Any = avro.root
    for step in (*path, None):
        found = avro.resolved(node)
        if isinstance(found, list):
            members, _ = avro.members(found)
            found = avro.resolved(members[0]) if len(members) == 1 else {}
        if step is None:
            return _IN_A_MILLISECOND.get(found.get("logicalType", ""), 1)
        node = next((f["type"] for f in found.get("fields", ()) if f["name"] == step), "null")
    return 1
