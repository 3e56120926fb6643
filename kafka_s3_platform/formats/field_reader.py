"""Reads offsets and timestamps from fields of the values, if the connector file names these fields."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from kafka_s3_platform.avro.values import VALUE_ERRORS
from kafka_s3_platform.config.settings import SourceSettings
from kafka_s3_platform.formats.reading import BatchReader, ReadBatch
from kafka_s3_platform.formats.times import convert_to_ms, find_time_unit
from kafka_s3_platform.model.batches import NO_TIMESTAMP
from kafka_s3_platform.model.connect import MISSING, Int64s

_MOST = 2**63 - 1


class FieldReader:
    """Reads the values of `reader`, with offsets and timestamps from the fields in `settings`."""

    def __init__(self, reader: BatchReader, settings: SourceSettings) -> None:
        self._reader = reader
        self._settings = settings

    def batches(self) -> Iterator[ReadBatch]:
        """Return the records in batches. Those without such a field are `bad`. Errors of `reader` pass through."""
        offset = self._settings.offset_field
        timestamp = self._settings.timestamp_field
        for batch in self._reader.batches():
            bad = dict(batch.bad)
            offsets = batch.offsets if offset is None else _read_numbers(batch, "offset", offset, int, bad)
            times = batch.timestamps
            if timestamp is not None:
                unit = find_time_unit(batch.value.schemas[0], timestamp.split(".")) if batch.value.schemas else 1
                times = _read_numbers(batch, "timestamp", timestamp, partial(_read_time, unit), bad)
            yield replace(batch, bad=bad, offsets=offsets, timestamps=times)


def _read_numbers(batch: ReadBatch, name: str, path: str, read: Callable[[Any], int], bad: dict[int, str]) -> Int64s:
    """Read the numbers of a field. A record without one is added to `bad`, and has the number -1."""
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
    time = convert_to_ms(value, unit)
    return NO_TIMESTAMP if time is None else time
