"""Extracts the times of records for their encoded partitions, as Kafka Connect's timestamp extractors do.

There is no extractor for Wallclock, because the plan gives the hour of each offset.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import index
from typing import Any, Protocol
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

from kafka_s3_platform.core.config.plugins import TIMESTAMP_EXTRACTOR, load_class, name_fault
from kafka_s3_platform.core.config.settings import LayoutSettings
from kafka_s3_platform.core.errors import PermanentError, PlatformError
from kafka_s3_platform.core.extensions import find_addition
from kafka_s3_platform.core.model.connect import ConnectBatch, describe_batch


@dataclass(frozen=True)
class ExtractedTimes:
    """The times of a batch (epoch ms), null for records without one. `reasons` explains the nulls by position."""

    times: pa.Int64Array
    reasons: Mapping[int, str] = field(default_factory=dict)


class TimestampExtractor(Protocol):
    """Finds the times of records. One is made for each offset range, with the connector's `LayoutSettings`."""

    def extract(self, batch: ConnectBatch) -> ExtractedTimes:
        """Return the time of each record of a batch. Raise nothing for the fault of a single record."""
        ...


def new_extractor(layout: LayoutSettings) -> TimestampExtractor:
    """Make the extractor in `timestamp.extractor`: Record, RecordField, or a user's class.

    Raises ConfigError if the class cannot be loaded, or RecordField has no field.
    """
    if layout.timestamp_extractor == "Record":
        return RecordTimestampExtractor(layout)
    known_class = find_addition("timestamp_extractors", layout.timestamp_extractor)
    kind = known_class or load_class(layout.timestamp_extractor, TIMESTAMP_EXTRACTOR)
    with name_fault(kind, "made for timestamp.extractor"):
        extractor: TimestampExtractor = kind(layout)
    return extractor


def extract_times(extractor: TimestampExtractor, batch: ConnectBatch) -> ExtractedTimes:
    """Return the times of the records of a batch.

    Raises PermanentError if a user's class raised for the whole batch, or did not return a time for each record.
    """
    kind = type(extractor)
    where = f"as timestamp.extractor of {describe_batch(batch)}"
    with name_fault(kind, where):
        extracted: Any = extractor.extract(batch)
    if not isinstance(extracted, ExtractedTimes) or len(extracted.times) != batch.num_rows:
        raise PermanentError(f"{kind.__name__}.extract, {where}, has to return ExtractedTimes with a time or null each")
    return extracted


class RecordTimestampExtractor:
    """Takes the timestamp of the Kafka record."""

    def __init__(self, layout: LayoutSettings) -> None:
        self.layout = layout

    def extract(self, batch: ConnectBatch) -> ExtractedTimes:
        return ExtractedTimes(pa.array(batch.timestamps))


@dataclass(frozen=True)
class Record:
    """A record for a user's `RecordExtractor`. Key and value are as their converters decoded them."""

    topic: str
    kafka_partition: int
    offset: int
    timestamp: int
    key: Any
    value: Any
    headers: Sequence[tuple[str, bytes | None]]


class RecordExtractor(ABC):
    """Base class for a user's extractor of single records. An extractor of whole batches is faster."""

    def __init__(self, layout: LayoutSettings) -> None:
        self.layout = layout
        self.zone = ZoneInfo(layout.timezone)

    @abstractmethod
    def timestamp(self, record: Record) -> int | None:
        """Return the record's time in epoch ms.

        If it has none, return None or raise any error, whose text becomes the reason. But an error of
        kafka_s3_platform.core.errors ends the run.
        """

    def extract(self, batch: ConnectBatch) -> ExtractedTimes:
        """Return the time of each record. An error of the user's method is the reason for the record's failure."""
        times: list[int | None] = []
        reasons: dict[int, str] = {}
        for position, record in enumerate(_build_records(batch)):
            time, reason = self._extract_one(record)
            times.append(time)
            if time is None:
                reasons[position] = reason
        return ExtractedTimes(pa.array(times, pa.int64()), reasons)

    def _extract_one(self, record: Record) -> tuple[int | None, str]:
        """Return the time of a record, or None with the reason. Only the platform's own errors are raised."""
        try:
            time = self.timestamp(record)
            if time is None:
                return None, "it has no time"
            return int(np.int64(index(time))), ""
        except PlatformError:
            raise
        except Exception as error:  # noqa: BLE001 - a user's code: whatever it raises is this record's fault
            return None, f"{type(error).__name__}: {error}"


def _build_records(batch: ConnectBatch) -> Iterator[Record]:
    """Yield the records of a batch, with decoded keys and values."""
    names = ("topic", "partition", "offset", "headers")
    columns = [batch.records.column(name).to_pylist() for name in names]
    rows = zip(*columns, batch.timestamps.tolist(), batch.key.objects, batch.value.objects, strict=True)
    for topic, kafka_partition, offset, headers, timestamp, key, value in rows:
        pairs = [(header["key"], header["value"]) for header in headers or ()]
        yield Record(topic, kafka_partition, offset, timestamp, key, value, pairs)
