"""Reads offsets and timestamps from fields of the values, if the connector file names these fields."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

import msgspec
import numpy as np

from kafka_s3_platform.connect.avro.values import AvroSchema
from kafka_s3_platform.core.config.settings import SourceSettings
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.formats.reading import ReadBatch
from kafka_s3_platform.core.model.batches import NO_TIMESTAMP
from kafka_s3_platform.core.model.connect import MISSING, VALUE_ERRORS, Int64s, Schema
from kafka_s3_platform.core.model.times import EPOCH, ONE_MS

# All other logical types, and numbers without one, are milliseconds.
_IN_A_MILLISECOND = {"timestamp-micros": 1_000, "timestamp-nanos": 1_000_000}


def convert_to_ms(value: Any, unit: int = 1) -> int | None:
    """Return the epoch milliseconds of an ISO 8601 text, or of a number since the epoch.

    `unit` is the number of units in a millisecond. Raise ValueError for any other value.
    """
    if value is None or isinstance(value, int):
        return None if value is None else value // unit
    if isinstance(value, str) and value.lstrip("-").isdecimal():
        return int(value)
    moment = msgspec.convert(value, datetime)
    return (moment - EPOCH) // ONE_MS


def find_time_unit(schema: Schema, path: Sequence[str]) -> int:
    """Return how many units of an Avro field make a millisecond, or 1 if it has no smaller logical type.

    Raise ConfigError if the field's values may have different units.
    """
    avro = AvroSchema(schema.avro)
    node: Any = avro.root
    for step in (*path, None):
        definition = avro.resolve(node)
        if isinstance(definition, list):
            members = [avro.resolve(member) for member in avro.members(definition)[0]]
            if len({_IN_A_MILLISECOND.get(member.get("logicalType", "")) for member in members}) > 1:
                raise ConfigError(f"the field {'.'.join(path)} holds times in several units: name another field")
            definition = members[0] if members else {}
        if step is None:
            return _IN_A_MILLISECOND.get(definition.get("logicalType", ""), 1)
        node = next((f["type"] for f in definition.get("fields", ()) if f["name"] == step), "null")
    return 1


_MOST = 2**63 - 1


def read_offset_fields(batches: Iterator[ReadBatch], settings: SourceSettings) -> Iterator[ReadBatch]:
    """Add to records the offsets and timestamps that fields of their values hold, as the settings name them.

    Records without such a field become `bad`.
    """
    offset = settings.offset_field
    timestamp = settings.timestamp_field
    for batch in batches:
        bad = dict(batch.bad)
        offsets = batch.offsets if offset is None else _read_numbers(batch, "offset", offset, int, bad)
        times = batch.timestamps
        if timestamp is not None:
            unit = find_time_unit(batch.value.schemas[0], timestamp.split(".")) if batch.value.schemas else 1
            times = _read_numbers(batch, "timestamp", timestamp, partial(_read_time, unit), bad)
        yield replace(batch, bad=bad, offsets=offsets, timestamps=times)


def _read_numbers(batch: ReadBatch, name: str, path: str, read: Callable[[Any], int], bad: dict[int, str]) -> Int64s:
    """Read the numbers in a field. A record without one is added to `bad`, and gets the number -1."""
    numbers = np.full(len(batch), -1, np.int64)
    for row, value in enumerate(batch.value.field(path.split("."))):
        try:
            if value is MISSING:
                raise ValueError(f"has no {path}")
            number = read(value)
            if isinstance(value, bool | float) or not (0 <= number <= _MOST or number == NO_TIMESTAMP):
                raise ValueError(f"has {value!r:.40} as its {path}")
            numbers[row] = number
        except VALUE_ERRORS as err:
            bad.setdefault(row, f"record {row + 1} {err}, which archive.source.{name}.field names")
    return numbers


def _read_time(unit: int, value: Any) -> int:
    """Return a time in epoch ms, or NO_TIMESTAMP for a null. `unit` is the number of units in a millisecond."""
    time = convert_to_ms(value, unit)
    return NO_TIMESTAMP if time is None else time
