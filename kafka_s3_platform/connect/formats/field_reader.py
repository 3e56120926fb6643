"""Reads offsets and timestamps from fields of the values, if the connector file names these fields."""

from collections.abc import Callable, Iterator, Sequence
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


def compile_time_reader(schema: Schema, path: Sequence[str], timezone: str) -> ReadTime:
    """Return a function like `convert_to_ms` for the values of an Avro field, whose logical type says what they are.

    Dates and local timestamps are in `timezone`. Raises ConfigError if the field's values are no times.
    """
    logical = find_logical_type(schema, path)
    if logical in TIMELESS:
        raise ConfigError(f"the field {'.'.join(path)} holds {logical}: name a field of times")
    zone = ZoneInfo(timezone)

    def read_time(value: Any) -> int | None:
        times = convert_logical_times(np.array([value], np.int64), logical, zone) if type(value) is int else None
        return convert_to_ms(value, zone) if times is None else int(times[0])

    return read_time


_MOST = 2**63 - 1


def read_offset_fields(batches: Iterator[ReadBatch], settings: SourceSettings, timezone: str) -> Iterator[ReadBatch]:
    """Add to records the offsets and timestamps that fields of their values hold, as the settings name them.

    Records without such a field become `bad`. Times without a timezone are in `timezone`.
    """
    offset = settings.offset_field
    timestamp = settings.timestamp_field
    for batch in batches:
        bad = dict(batch.bad)
        offsets = batch.offsets if offset is None else _read_numbers(batch, "offset", offset, int, bad)
        times = batch.timestamps
        if timestamp is not None:
            read_time: ReadTime = partial(convert_to_ms, zone=ZoneInfo(timezone))
            if batch.value.schemas:
                read_time = compile_time_reader(batch.value.schemas[0], timestamp.split("."), timezone)
            times = _read_numbers(batch, "timestamp", timestamp, partial(_read_time, read_time), bad)
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


def _read_time(read_time: ReadTime, value: Any) -> int:
    """Return a time in epoch ms, or NO_TIMESTAMP for a null."""
    time = read_time(value)
    return NO_TIMESTAMP if time is None else time
