"""Finds the logical type of a field, and converts its numbers to times."""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from kafka_s3_platform.connect.avro.schema import is_record
from kafka_s3_platform.connect.avro.values import AvroSchema
from kafka_s3_platform.core.java.joda import convert_local_times
from kafka_s3_platform.core.model.connect import Int64s, Schema
from kafka_s3_platform.core.model.times import DAY_MS

MIXED_TYPES = "a number of one of several logical types"
"""Stands for several logical types of a field, in which a number's meaning depends on the record."""


def find_logical_type(schema: Schema, path: Sequence[str]) -> str | None:
    """Return the logical type of the field at `path` (outermost name first), or MIXED_TYPES, or None if it has none."""
    return _look_up_logical_type(schema.text, tuple(path))


@lru_cache(maxsize=1_000)
def _look_up_logical_type(text: str, path: tuple[str, ...]) -> str | None:
    """Find the logical type in a schema's text. Equal texts are parsed once."""
    avro = AvroSchema(json.loads(text))
    types = _list_branches(avro, avro.root)
    for name in path:
        members = [member for node in types for member in _list_members(node, name)]
        types = [branch for member in members for branch in _list_branches(avro, member)]
    numbers = {node.get("logicalType") for node in types if node["type"] in {"int", "long"}}
    if len(numbers) > 1:
        return MIXED_TYPES
    return next((node["logicalType"] for node in types if "logicalType" in node), None)


def _list_branches(avro: AvroSchema, node: Any) -> list[Mapping[str, Any]]:
    """List the types of a value: the branches of a union, or the one type."""
    definition = avro.resolve(node)
    if isinstance(definition, list):
        return [branch for member in definition for branch in _list_branches(avro, member)]
    return [definition]


def _list_members(node: Mapping[str, Any], name: str) -> Iterator[Any]:
    """Yield the types at `name` in a record or a map."""
    if node["type"] == "map":
        yield node["values"]
    if is_record(node):
        for member in node["fields"]:
            if member["name"] == name:
                yield member["type"]


# A number of days outside the calendar, which still fits into 64 bits as milliseconds.
_MANY_DAYS = 10**8

_UNITS_PER_MS = {"millis": 1, "micros": 1_000, "nanos": 1_000_000}

# Times of day are not instants, because they have no date.
TIMELESS = ("time-millis", "time-micros", "time-nanos", MIXED_TYPES)


def convert_logical_times(numbers: Int64s, logical: str | None, zone: ZoneInfo) -> Int64s | None:
    """Return the epoch ms of numbers of a logical type, or None if the type is not one of dates or timestamps.

    Dates and local timestamps are in `zone`.
    """
    if logical == "date":
        return convert_local_times(np.clip(numbers, -_MANY_DAYS, _MANY_DAYS) * DAY_MS, zone)
    name, _, unit = (logical or "").rpartition("-")
    if name not in {"timestamp", "local-timestamp"} or unit not in _UNITS_PER_MS:
        return None
    ms: Int64s = numbers // _UNITS_PER_MS[unit]
    return convert_local_times(ms, zone) if name == "local-timestamp" else ms
