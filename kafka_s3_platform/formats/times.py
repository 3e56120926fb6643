"""Converts timestamps of objects to epoch milliseconds."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from kafka_s3_platform.avro.values import AvroSchema
from kafka_s3_platform.errors import ConfigError
from kafka_s3_platform.model.connect import Schema
from kafka_s3_platform.model.times import EPOCH, ONE_MS

# All other logical types, and numbers without one, are milliseconds.
_IN_A_MILLISECOND = {"timestamp-micros": 1_000, "timestamp-nanos": 1_000_000}


def convert_to_ms(value: Any, unit: int = 1) -> int | None:
    """Return the epoch milliseconds of an ISO 8601 text or of a number since the epoch.

    `unit` is how many units of the number are a millisecond. Raise ValueError for any other value.
    """
    if value is None or isinstance(value, int):
        return None if value is None else value // unit
    if isinstance(value, str) and value.lstrip("-").isdecimal():
        return int(value)
    moment = msgspec.convert(value, datetime)
    return (moment - EPOCH) // ONE_MS


def find_time_unit(schema: Schema, path: Sequence[str]) -> int:
    """Return how many units of an Avro field are a millisecond: 1 if the field has no smaller logical type.

    Raise ConfigError if the field's values may have several units.
    """
    avro = AvroSchema(schema.avro)
    node: Any = avro.root
    for step in (*path, None):
        definition = avro.resolved(node)
        if isinstance(definition, list):
            members = [avro.resolved(member) for member in avro.members(definition)[0]]
            if len({_IN_A_MILLISECOND.get(member.get("logicalType", "")) for member in members}) > 1:
                raise ConfigError(f"the field {'.'.join(path)} holds times in several units: name another field")
            definition = members[0] if members else {}
        if step is None:
            return _IN_A_MILLISECOND.get(definition.get("logicalType", ""), 1)
        node = next((f["type"] for f in definition.get("fields", ()) if f["name"] == step), "null")
    return 1
