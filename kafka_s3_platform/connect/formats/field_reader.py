"""Reads offsets and timestamps from fields of the values, if the connector file names these fields."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import numpy as np

from kafka_s3_platform.connect.avro.times import TIMELESS, convert_logical_times, find_logical_type
from kafka_s3_platform.core.config.settings import SourceSettings
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.formats.reading import ReadBatch
from kafka_s3_platform.core.model.batches import NO_TIMESTAMP
from kafka_s3_platform.core.model.connect import MISSING, VALUE_ERRORS, Int64s, Schema
from kafka_s3_platform.core.model.times import EPOCH, ONE_MS

ReadTime = Callable[[Any], int | None]


def convert_to_ms(value: Any, zone: ZoneInfo | None = None) -> int | None:
    """Return the epoch milliseconds of an ISO 8601 text, or of a number of them. A text without an offset is in `zone`.

    Raises ValueError for other values, and for a text without an offset if there is no zone.
    """
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, str) and value.lstrip("-").isdecimal():
        return int(value)
    moment = msgspec.convert(value, datetime)
    if moment.tzinfo is None:
        if zone is None:
            raise ValueError(f"has the time {value!s:.40} without an offset from UTC")
        moment = moment.replace(tzinfo=zone)
    return (moment - EPOCH) // ONE_MS


def compile_time_reader(schema: Schema, path: Sequence[str], timezone: str, values: Iterable[Any]) -> ReadTime:
    """Return a function like `convert_to_ms` for the values of an Avro field, whose logical type says what they are.

    The numbers among `values` are converted at once: conversions of single local times take a hundred times longer.
    Dates and local timestamps are in `timezone`. Raises ConfigError if the field's values are no times.
    """
    logical = find_logical_type(schema, path)
    if logical in TIMELESS:
        raise ConfigError(f"the field {'.'.join(path)} holds {logical}: name a field of times")
    zone = ZoneInfo(timezone)
    read_other = partial(convert_to_ms, zone=zone)
    numbers = np.array([*{value for value in values if type(value) is int}], np.int64)
    times = convert_logical_times(numbers, logical, zone)
    if times is None:
        return read_other
    time_of: Mapping[int, int] = dict(zip(numbers.tolist(), times.tolist(), strict=True))
    return lambda value: time_of[value] if type(value) is int else read_other(value)


_MOST = 2**63 - 1


def read_offset_fields(batches: Iterator[ReadBatch], settings: SourceSettings, timezone: str) -> Iterator[ReadBatch]:
    """Add to records the offsets and timestamps that fields of their values hold, as the settings name them.

    Records without such a field become `bad`. Times without a timezone are in `timezone`.
    """
    offset = settings.offset_field
    timestamp = settings.timestamp_field
    for batch in batches:
        bad = dict(batch.bad)
        offsets = batch.offsets
        if offset is not None:
            offsets = _read_numbers(batch.value.field(offset.split(".")), "offset", offset, int, bad)
        times = batch.timestamps
        if timestamp is not None:
            path = timestamp.split(".")
            values = batch.value.field(path)
            read_time: ReadTime = partial(convert_to_ms, zone=ZoneInfo(timezone))
            if batch.value.schemas:
                read_time = compile_time_reader(batch.value.schemas[0], path, timezone, values)
            times = _read_numbers(values, "timestamp", timestamp, partial(_read_time, read_time), bad)
        yield replace(batch, bad=bad, offsets=offsets, timestamps=times)


def _read_numbers(
    values: Sequence[Any], name: str, path: str, read: Callable[[Any], int], bad: dict[int, str]
) -> Int64s:
    """Read the numbers among a field's values. A record without one is added to `bad`, and gets the number -1."""
    numbers = np.full(len(values), -1, np.int64)
    for row, value in enumerate(values):
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


def _read_time(read_time: ReadTime, value: Any) -> int:
    """Return a time in epoch ms, or NO_TIMESTAMP for a null."""
    time = read_time(value)
    return NO_TIMESTAMP if time is None else time
