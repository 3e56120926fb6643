"""Extracts the times of records for their encoded partitions, as Kafka Connect's timestamp extractors do.

There is no extractor for Wallclock: the plan gives the hour of each offset. A decoded number alone may be a date or a
timestamp: the logical type of its field decides.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from operator import index
from typing import Any, Protocol
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.connect.avro.schema import is_record
from kafka_s3_platform.connect.avro.values import AvroSchema
from kafka_s3_platform.core.config.plugins import TIMESTAMP_EXTRACTOR, load_class, name_fault
from kafka_s3_platform.core.config.settings import LayoutSettings
from kafka_s3_platform.core.errors import ConfigError, PermanentError, PlatformError
from kafka_s3_platform.core.java.joda import convert_local_times, parse_texts
from kafka_s3_platform.core.model.connect import (
    MISSING,
    NO_SCHEMA,
    ConnectBatch,
    Int64s,
    Positions,
    Schema,
    describe_batch,
)
from kafka_s3_platform.core.model.times import DAY_MS

MIXED_TYPES = "a number of one of several logical types"
"""The logical type of a field of several: the meaning of a number there depends on the record."""


def find_logical_type(schema: Schema, path: Sequence[str]) -> str | None:
    """Return the logical type of the field at `path` (outermost name first), None if it has none, or MIXED_TYPES."""
    return _look_up_logical_type(schema.text, tuple(path))


@lru_cache(maxsize=1_000)
def _look_up_logical_type(text: str, path: tuple[str, ...]) -> str | None:
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
    if node["type"] == "map":
        yield node["values"]
    if is_record(node):
        for member in node["fields"]:
            if member["name"] == name:
                yield member["type"]


SECONDS_BELOW = 100_000_000_000
"""Numbers nearer to 0 are seconds, others milliseconds: this is 5138-11-16 in seconds, 1973-03-03 in milliseconds."""

# Lies outside of the calendar, but still fits into 64 bits as milliseconds.
_MANY_DAYS = 10**8
_UNITS_PER_MS = {"millis": 1, "micros": 1_000, "nanos": 1_000_000}
# Times of day: they have no date, so they are no instant.
_TIMELESS = ("time-millis", "time-micros", MIXED_TYPES)

MaskedTimes = tuple[Int64s, npt.NDArray[np.bool_], str]
"""Times (epoch ms), a mask of the known ones, and the reason for the others."""


@dataclass(frozen=True)
class ExtractedTimes:
    """The times of a batch (epoch ms), null for records without one. `reasons` (position -> text) explain the nulls."""

    times: pa.Int64Array
    reasons: Mapping[int, str] = field(default_factory=dict)


class TimestampExtractor(Protocol):
    """Finds the times of records. Made once for each offset range, with the connector's `LayoutSettings`."""

    def extract(self, batch: ConnectBatch) -> ExtractedTimes:
        """Return the time of each record of a batch. Raise nothing for the fault of a single record."""
        ...


def new_extractor(layout: LayoutSettings) -> TimestampExtractor:
    """Make the extractor in `timestamp.extractor`: Record, RecordField, or a user's class.

    Raises:
        ConfigError: the class cannot be loaded, or RecordField has no field.
    """
    if layout.timestamp_extractor == "Record":
        return RecordTimestampExtractor(layout)
    if layout.timestamp_extractor == "RecordField":
        return RecordFieldTimestampExtractor(layout)
    kind = load_class(layout.timestamp_extractor, TIMESTAMP_EXTRACTOR)
    with name_fault(kind, "made for timestamp.extractor"):
        extractor: TimestampExtractor = kind(layout)
    return extractor


def extract_times(extractor: TimestampExtractor, batch: ConnectBatch) -> ExtractedTimes:
    """Return the times of the records of a batch.

    Raises:
        PermanentError: a user's class raised for the whole batch, or did not return a time for each record.
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


class RecordFieldTimestampExtractor:
    """Takes the time from the field `timestamp.field` of the value. Dots separate the names of nested fields.

    The field may hold a number (epoch seconds or milliseconds, see SECONDS_BELOW), the text of such a number, an ISO
    8601 text, or an Avro date or timestamp (logical types). Dates, and texts without an offset, are in the layout's
    timezone. A tombstone has no fields: its time is the timestamp of its record.
    """

    def __init__(self, layout: LayoutSettings) -> None:
        if not layout.timestamp_field:
            raise ConfigError("timestamp.extractor is RecordField, so timestamp.field has to name a field of the value")
        self._name = layout.timestamp_field
        self._path = layout.timestamp_field.split(".")
        self._zone = ZoneInfo(layout.timezone)

    def extract(self, batch: ConnectBatch) -> ExtractedTimes:
        values = batch.value.field(self._path)
        times = batch.timestamps.copy()
        has_time = np.ones(batch.num_rows, bool)
        reasons: dict[int, str] = {}
        for logical, rows in self._group_by_logical_type(batch):
            for kind, kind_rows in _group_by_type(values, rows):
                kind_values = values if len(kind_rows) == len(values) else [values[i] for i in kind_rows.tolist()]
                times[kind_rows], has_time[kind_rows], reason = self._convert_values(kind, kind_values, logical)
                reasons |= dict.fromkeys(
                    kind_rows[~has_time[kind_rows]].tolist(), f"timestamp.field {self._name} {reason}"
                )
        return ExtractedTimes(pa.array(times, mask=~has_time), reasons)

    def _group_by_logical_type(self, batch: ConnectBatch) -> Iterator[tuple[str | None, Positions]]:
        """Group the positions of records by the logical type of their field. Leave out records without a value."""
        # A code below NO_SCHEMA marks the tombstones: they are no group.
        codes = np.where(batch.value.is_null, NO_SCHEMA - 1, batch.value.codes)
        for code in np.unique(codes[codes >= NO_SCHEMA]).tolist():
            logical = None if code == NO_SCHEMA else find_logical_type(batch.value.schemas[code], self._path)
            yield logical, np.flatnonzero(codes == code)

    def _convert_values(self, kind: type, values: Sequence[Any], logical: str | None) -> MaskedTimes:
        if kind is int and logical not in _TIMELESS:
            return self._convert_numbers(values, logical)
        if kind in {float, Decimal}:
            return _convert_floats(np.array(values, np.float64))
        if kind is str:
            return self._convert_texts(_build_text_array(values))
        reason = "is missing" if kind is type(MISSING) else "is null" if kind is type(None) else ""
        return _mark_unknown(len(values), reason or f"is no date or time but {logical or kind.__name__}")

    def _convert_numbers(self, values: Sequence[int], logical: str | None) -> MaskedTimes:
        try:
            numbers = np.array(values, np.int64)
            has_time = np.ones(len(values), bool)
        except OverflowError:
            # Decoded JSON holds numbers of any size.
            has_time = np.array([abs(i) < 2**63 for i in values])
            numbers = np.array([i if abs(i) < 2**63 else 0 for i in values], np.int64)
        return self._convert_to_ms(numbers, logical), has_time, "is a number of more than 64 bits"

    def _convert_to_ms(self, numbers: Int64s, logical: str | None) -> Int64s:
        """Convert numbers of a logical type to epoch ms. Without one, a number is in seconds or in ms by its size."""
        if logical == "date":
            return convert_local_times(np.clip(numbers, -_MANY_DAYS, _MANY_DAYS) * DAY_MS, self._zone)
        name, _, unit = (logical or "").rpartition("-")
        if name not in {"timestamp", "local-timestamp"} or unit not in _UNITS_PER_MS:
            return np.where(_find_seconds(numbers), numbers * 1000, numbers)
        ms: Int64s = numbers // _UNITS_PER_MS[unit]
        if name == "local-timestamp":
            return convert_local_times(ms, self._zone)
        return ms

    def _convert_texts(self, texts: pa.StringArray) -> MaskedTimes:
        # Up to 18 digits always fit into 64 bits.
        is_number = pc.match_substring_regex(texts, "^-?[0-9]{1,18}$")
        if pc.all(is_number).as_py():
            return self._convert_numbers(texts.cast(pa.int64()).to_pylist(), None)
        times = parse_texts(texts, self._zone)
        if pc.any(is_number).as_py():
            numbers = pc.if_else(is_number, texts, None).cast(pa.int64())
            instants = pa.array(self._convert_to_ms(numbers.fill_null(0).to_numpy(), None))
            times = pc.if_else(is_number, instants, times)
        has_time = times.is_valid().to_numpy(zero_copy_only=False)
        return times.fill_null(0).to_numpy(), has_time, "is neither an ISO 8601 time nor a number"


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

        If it has none, return None or raise any error: its text becomes the reason. An error of
        kafka_s3_platform.core.errors ends the run.
        """

    def extract(self, batch: ConnectBatch) -> ExtractedTimes:
        times: list[int | None] = []
        reasons: dict[int, str] = {}
        for position, record in enumerate(_build_records(batch)):
            time, reason = self._extract_one(record)
            times.append(time)
            if time is None:
                reasons[position] = reason
        return ExtractedTimes(pa.array(times, pa.int64()), reasons)

    def _extract_one(self, record: Record) -> tuple[int | None, str]:
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
    names = ("topic", "partition", "offset", "headers")
    columns = [batch.records.column(name).to_pylist() for name in names]
    rows = zip(*columns, batch.timestamps.tolist(), batch.key.objects, batch.value.objects, strict=True)
    for topic, kafka_partition, offset, headers, timestamp, key, value in rows:
        pairs = [(header["key"], header["value"]) for header in headers or ()]
        yield Record(topic, kafka_partition, offset, timestamp, key, value, pairs)


def _group_by_type(values: Sequence[Any], rows: Positions) -> Iterator[tuple[type, Positions]]:
    """Group `rows` by the Python type of their values."""
    types = [*map(type, values if len(rows) == len(values) else [values[i] for i in rows.tolist()])]
    kinds = list(dict.fromkeys(types))
    if len(kinds) == 1:
        yield kinds[0], rows
        return
    codes = np.array([kinds.index(kind) for kind in types])
    for code, kind in enumerate(kinds):
        yield kind, rows[codes == code]


def _build_text_array(texts: Sequence[str]) -> pa.StringArray:
    try:
        return pa.array(texts, pa.string())
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON can hold and UTF-8 cannot
        return pa.array([text.encode(errors="replace").decode() for text in texts], pa.string())


def _convert_floats(numbers: npt.NDArray[np.float64]) -> MaskedTimes:
    """Convert decimal numbers. Round seconds to milliseconds, and cut off fractions of milliseconds."""
    has_time = np.abs(numbers) < 2.0**63
    numbers = np.where(has_time, numbers, 0)
    times = np.where(_find_seconds(numbers), np.rint(numbers * 1000), np.trunc(numbers))
    return times.astype(np.int64), has_time, "is a number out of range"


def _find_seconds(numbers: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    seconds: npt.NDArray[np.bool_] = (numbers > -SECONDS_BELOW) & (numbers < SECONDS_BELOW)
    return seconds


def _mark_unknown(count: int, reason: str) -> MaskedTimes:
    return np.zeros(count, np.int64), np.zeros(count, bool), reason
