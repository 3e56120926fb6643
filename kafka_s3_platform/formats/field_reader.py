"""Offsets and timestamps that lie in fields of the values themselves, where the connector's file says in which."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from kafka_s3_platform.config.settings import SourceSettings
from kafka_s3_platform.formats.parts import VALUE_ERRORS
from kafka_s3_platform.formats.reading import BatchReader, ReadBatch
from kafka_s3_platform.formats.times import milliseconds, unit_at
from kafka_s3_platform.model.connect import MISSING, Int64s
from kafka_s3_platform.model.record import NO_TIMESTAMP

_MOST = 2**63 - 1


class FieldReader:
    """Reads the values that `reader` gives, with the offsets and timestamps of the fields that `settings` name."""

    def __init__(self, reader: BatchReader, settings: SourceSettings) -> None:
        self._reader, self._settings = reader, settings

    def batches(self) -> Iterator[ReadBatch]:
        """Its records, those without such a field as `bad`. Raises what `reader` raises."""
        offset, timestamp = self._settings.offset_field, self._settings.timestamp_field
        for batch in self._reader.batches():
            bad = dict(batch.bad)
            offsets = batch.offsets if offset is None else _numbers(batch, "offset", offset, int, bad)
            times = batch.timestamps
            if timestamp is not None:
                unit = unit_at(batch.value.schemas[0], timestamp.split(".")) if batch.value.schemas else 1
                times = _numbers(batch, "timestamp", timestamp, partial(_time, unit), bad)
            yield replace(batch, bad=bad, offsets=offsets, timestamps=times)


def _numbers(batch: ReadBatch, name: str, path: str, read: Callable[[Any], int], bad: dict[int, str]) -> Int64s:
    """The numbers of a field; -1, which is none, where a record is bad."""
    found = np.full(len(batch), -1, np.int64)
    for row, value in enumerate(batch.value.field(path.split("."))):
        try:
            if value is MISSING:
                raise ValueError(f"has no {path}")
            number = read(value)
            if isinstance(value, bool | float) or not (0 <= number <= _MOST or number == NO_TIMESTAMP):
                raise ValueError(f"has {value!r:.40} as its {path}")
            found[row] = number
        except VALUE_ERRORS as err:
            bad.setdefault(row, f"record {row + 1} {err}, which archive.source.{name}.field names")
    return found


def _time(unit: int, value: Any) -> int:
    time = milliseconds(value, unit)
    return NO_TIMESTAMP if time is None else time
