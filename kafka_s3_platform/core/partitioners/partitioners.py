"""Finds a record's encoded partition, as Kafka Connect's partitioners do: its folders below the folder of the topic."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, Protocol
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

from kafka_s3_platform.core.config.plugins import PARTITIONER, load_class, name_fault
from kafka_s3_platform.core.config.settings import LayoutSettings
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.java.joda import MAX_MS, MIN_MS, convert_local_times, factorize_values, find_utc_offsets
from kafka_s3_platform.core.java.joda_format import compile_path_format
from kafka_s3_platform.core.model.connect import (
    MISSING,
    ConnectBatch,
    Int32s,
    Int64s,
    Positions,
    RecordFailure,
    describe_batch,
)
from kafka_s3_platform.core.model.object_key import MAX_KEY_BYTES, explain_bad_folders
from kafka_s3_platform.core.model.times import EPOCH, HOUR_MS, ONE_MS
from kafka_s3_platform.core.partitioners.extractors import find_logical_type

NO_HOUR = -(2**63)
"""The hour of a time outside of the years 1 to 9999, the range of Python's calendar."""


def find_hour_starts(times_ms: Int64s, timezone: str) -> Int64s:
    """Return the start (epoch ms) of each time's local hour, or NO_HOUR. The hour repeated in autumn counts as two."""
    in_calendar, times = _replace_unknown(times_ms)
    starts: Int64s = times - (times + find_utc_offsets(times, ZoneInfo(timezone))) % HOUR_MS
    return starts if in_calendar is None else np.where(in_calendar, starts, NO_HOUR)


class TimePaths:
    """Encodes times as Connect's `TimeBasedPartitioner` does. Its Hourly and Daily forms have a fixed duration."""

    def __init__(self, layout: LayoutSettings) -> None:
        self._format = compile_path_format(layout.path_format, layout.locale, layout.directory_delim)
        self._duration_ms = layout.partition_duration_ms
        self._zone = ZoneInfo(layout.timezone)
        self._out_of_range = layout.out_of_range_folder
        self._names: dict[int, str] = {}

    def encode(self, times_ms: Int64s) -> tuple[list[str], Int32s]:
        """Return the distinct encoded partitions, and for each time (epoch ms, in any order) its index in them.

        Times outside of the years 1 to 9999 get the folder of records out of range.
        """
        in_calendar, times = _replace_unknown(times_ms)
        local = times + find_utc_offsets(times, self._zone)
        # fmod keeps the sign of its dividend, as `%` of Java's longs does: before 1970 Connect rounds up.
        starts, codes = factorize_values(local - np.fmod(local, self._duration_ms))
        names = [self._name_folder(start) for start in starts]
        if in_calendar is None:
            return names, codes
        return [*names, self._out_of_range], np.where(in_calendar, codes, np.int32(len(names)))

    def _name_folder(self, local_ms: int) -> str:
        """Name the encoded partition from a local time on. If clocks skip this time, it begins after it."""
        if local_ms not in self._names:
            # Times of many centuries must not fill the memory.
            if len(self._names) > 100_000:
                self._names.clear()
            start_ms = int(convert_local_times(np.array([local_ms], np.int64), self._zone)[0])
            self._names[local_ms] = self._format((EPOCH + start_ms * ONE_MS).astimezone(self._zone))
        return self._names[local_ms]


def _replace_unknown(times_ms: Int64s) -> tuple[np.ndarray | None, Int64s]:
    """Return a mask of the times in the calendar (None: all are), and the times with 0 in place of the others."""
    in_calendar = (times_ms >= MIN_MS) & (times_ms < MAX_MS)
    if in_calendar.all():
        return (None, times_ms)
    return (in_calendar, np.where(in_calendar, times_ms, 0))


# Kafka's limit of a topic's name.
_LONGEST_TOPIC = 249
_REST_OF_KEY = 80
"""Bytes of a key to reserve for delimiters, kafka partition, epoch, ordinal and extension."""
_UNSAFE = r"\x00-\x1f\x7f\ud800-\udfff\ufffe\uffff/\\"
"""Characters not allowed in folders. Some stores read a backslash as a slash."""

_PRINTED = (str, int, bool)
_FolderValue = tuple[type, Any, str | None]
# The exception of Connect's FieldPartitioner. Headers of dead letters name it.
_EXCEPTION = "io.confluent.connect.storage.errors.PartitionException"
_EPOCH_DAY = date(1970, 1, 1)


@dataclass(frozen=True)
class EncodedPartitions:
    """The distinct encoded partitions, and each record's index in them. A failed record's index means nothing."""

    names: Sequence[str]
    codes: Int32s
    failures: tuple[RecordFailure, ...] = ()


class Partitioner(Protocol):
    """Finds encoded partitions. Made once for each offset range, with the connector's `LayoutSettings`."""

    def encode(self, batch: ConnectBatch, times_ms: Int64s) -> EncodedPartitions:
        """Return the folders of each record by its time (epoch ms). Raise nothing for the fault of a single record."""
        ...


def new_partitioner(layout: LayoutSettings) -> Partitioner:
    """Make the partitioner in `partitioner.class`: one of Connect's, or a user's class.

    Raises:
        ConfigError: the class cannot be loaded, or FieldPartitioner has no field.
    """
    own_classes: Mapping[str, Callable[[LayoutSettings], Partitioner]] = {
        "Default": DefaultPartitioner,
        "Field": FieldPartitioner,
        "Hourly": TimeBasedPartitioner,
        "Daily": TimeBasedPartitioner,
        "TimeBased": TimeBasedPartitioner,
    }
    if layout.partitioner in own_classes:
        return own_classes[layout.partitioner](layout)
    partitioner_class = load_class(layout.partitioner, PARTITIONER)
    with name_fault(partitioner_class, "made for partitioner.class"):
        return _CheckedPartitioner(partitioner_class(layout), layout)


class DefaultPartitioner:
    """Makes `partition=<kafka partition>`."""

    def __init__(self, layout: LayoutSettings) -> None:
        self.layout = layout

    def encode(self, batch: ConnectBatch, _: Int64s) -> EncodedPartitions:
        column = batch.records.column("partition").dictionary_encode()
        return EncodedPartitions([f"partition={p}" for p in column.dictionary.to_pylist()], column.indices.to_numpy())


class TimeBasedPartitioner:
    """Makes time folders by `path.format`, one for each `partition.duration.ms`. Hourly and Daily use this too."""

    def __init__(self, layout: LayoutSettings) -> None:
        self.layout = layout
        self._paths = TimePaths(layout)

    def encode(self, _: ConnectBatch, times_ms: Int64s) -> EncodedPartitions:
        names, codes = self._paths.encode(times_ms)
        return EncodedPartitions(names, codes)


class FieldPartitioner:
    """Makes `<field>=<value>` for each of `partition.field.name`, joined by `directory.delim`. Dots name nested fields.

    Whole numbers, texts and booleans are written as Connect writes them, null as `null`, and dates as `2019-03-12`
    (Connect fails for dates). Characters not allowed in folders are percent-encoded: both slashes, the delimiter,
    control characters, and a percent sign of an encoded look. The text `null` is encoded too, so each folder means
    one value. A record fails if a field is missing or has another type. Tombstones have no fields and go to
    `tombstone.encoded.partition`.
    """

    def __init__(self, layout: LayoutSettings) -> None:
        if not layout.partition_fields:
            raise ConfigError("FieldPartitioner needs partition.field.name: fields of the value, separated by commas")
        self.layout = layout
        self._unsafe = re.compile(f"[{_UNSAFE}{re.escape(layout.directory_delim)}]|%(?=[0-9a-fA-F]{{2}})|^n(?=ull$)")

    def encode(self, batch: ConnectBatch, _: Int64s) -> EncodedPartitions:
        nulls = batch.value.is_null
        fields = [self._encode_field(batch, name, np.flatnonzero(~nulls)) for name in self.layout.partition_fields]
        encoded = joined(fields, self.layout.directory_delim)
        names = [*encoded.names, self.layout.tombstone_partition]
        codes = np.where(nulls, np.int32(len(names) - 1), encoded.codes)
        return _check_partitions(EncodedPartitions(names, codes, encoded.failures), batch, self, self.layout)

    def _encode_field(self, batch: ConnectBatch, name: str, rows: Positions) -> EncodedPartitions:
        path = name.split(".")
        values = batch.value.field(path)
        schema_codes = batch.value.codes
        logical = [*(find_logical_type(schema, path) for schema in batch.value.schemas), None]  # NO_SCHEMA is the last
        kinds = [logical[code] for code in np.unique(schema_codes).tolist()]
        folders, codes = _factorize_texts(values, kinds) or _factorize_folders(
            values, [logical[c] for c in schema_codes.tolist()]
        )
        names = [self._make_folder(name, *folder) for folder in folders]
        # Any other text than a folder is the reason for its lack.
        refusals = {i: text for i, text in enumerate(names) if not text.startswith(f"{name}=")}
        reasons = [(row, refusals[codes[row]]) for row in rows[np.isin(codes[rows], list(refusals))].tolist()]
        return EncodedPartitions(names or [name], codes, _build_failures(batch, reasons, self))

    def _make_folder(self, name: str, kind: type, value: Any, logical: str | None) -> str:
        """Return the folder, or the reason for its lack."""
        if kind is str:
            return f"{name}={self._unsafe.sub(_percent_encode, value)}"
        if kind is int and logical == "date":
            return _name_date_folder(name, value)
        if kind is bool or kind is type(None) or (kind is int and logical is None):
            return f"{name}={'null' if value is None else str(value).lower()}"
        if kind is type(MISSING):
            return f"the field {name} of partition.field.name is missing"
        return f"the field {name} is of a type without folders: {logical or kind.__name__}"


def _factorize_texts(values: Sequence[Any], kinds: Sequence[str | None]) -> tuple[list[_FolderValue], Int32s] | None:
    """Do what `_factorize_folders` does, with Arrow, if all values are texts of one logical type. Else return None."""
    if set(map(type, values)) != {str} or len(set(kinds)) != 1:
        return None
    try:
        encoded = pa.array(values, pa.string()).dictionary_encode()
    except (pa.ArrowInvalid, UnicodeEncodeError):
        return None  # half a surrogate pair
    return [(str, text, kinds[0]) for text in encoded.dictionary.to_pylist()], encoded.indices.to_numpy()


def _factorize_folders(values: Sequence[Any], logical: Sequence[str | None]) -> tuple[list[_FolderValue], Int32s]:
    """Return the distinct triples (type, value if a folder shows it, logical type), and each value's index in them."""
    folders: dict[_FolderValue, int] = {}
    triples = (
        (type(value), value if type(value) in _PRINTED else None, kind)
        for value, kind in zip(values, logical, strict=True)
    )
    codes = np.array([folders.setdefault(folder, len(folders)) for folder in triples], np.int32)
    return list(folders), codes


class _CheckedPartitioner:
    """Wraps a user's partitioner, and refuses folders outside of the topic's folder."""

    def __init__(self, inner: Any, layout: LayoutSettings) -> None:
        self._inner = inner
        self.layout = layout

    def encode(self, batch: ConnectBatch, times_ms: Int64s) -> EncodedPartitions:
        with name_fault(type(self._inner), f"as partitioner.class of {describe_batch(batch)}"):
            encoded = self._inner.encode(batch, times_ms)
        name = type(self._inner).__name__
        if not isinstance(encoded, EncodedPartitions) or len(encoded.codes) != batch.num_rows:
            raise ConfigError(
                f"{name}.encode has to return EncodedPartitions with one code for each record of the batch"
            )
        return _check_partitions(encoded, batch, self._inner, self.layout)


def joined(parts: Sequence[EncodedPartitions], delim: str) -> EncodedPartitions:
    """Join the encoded partitions of several partitioners: the folders of each lie below those of the one before."""
    names = parts[0].names
    codes = parts[0].codes
    for part in parts[1:]:
        # Each pair of folders gets one number.
        width = len(part.names)
        pairs, codes = factorize_values(codes.astype(np.int64) * width + part.codes)
        names = [f"{names[pair // width]}{delim}{part.names[pair % width]}" for pair in pairs]
    return EncodedPartitions(names, codes, _keep_first_of_each(f for part in parts for f in part.failures))


def _check_partitions(
    encoded: EncodedPartitions, batch: ConnectBatch, partitioner: Partitioner, layout: LayoutSettings
) -> EncodedPartitions:
    """List each name once, and add a failure for each record with folders not allowed in a key."""
    refusals = {i: why for i, name in enumerate(encoded.names) if (why := _explain_refusal(name, layout))}
    index: dict[str, int] = {}
    places = np.array([index.setdefault(name, len(index)) for name in encoded.names], np.int32)
    reasons = [
        (row, refusals[encoded.codes[row]]) for row in np.flatnonzero(np.isin(encoded.codes, list(refusals))).tolist()
    ]
    failures = _keep_first_of_each([*encoded.failures, *_build_failures(batch, reasons, partitioner)])
    return EncodedPartitions([*index], places[encoded.codes], failures)


def _explain_refusal(encoded: str, layout: LayoutSettings) -> str | None:
    """Explain why an encoded partition cannot be in a key. None if it can."""
    if why := explain_bad_folders(encoded):
        return f"its encoded partition {why}"
    # The topic is in the folder and in the name. An offset of 64 bits has 19 digits.
    name = 2 * _LONGEST_TOPIC + max(layout.offset_pad_width, 19) + _REST_OF_KEY
    room = MAX_KEY_BYTES - name - len(layout.topics_dir.encode())
    if len(encoded.encode()) > room:
        return f"its encoded partition has more than the {room} bytes of room in an object key"
    return None


def _build_failures(
    batch: ConnectBatch, reasons: Sequence[tuple[int, str]], partitioner: Partitioner
) -> tuple[RecordFailure, ...]:
    offsets = batch.offsets
    name = type(partitioner).__name__
    return tuple(RecordFailure(int(offsets[row]), "TASK_PUT", name, _EXCEPTION, reason) for row, reason in reasons)


def _keep_first_of_each(failures: Iterable[RecordFailure]) -> tuple[RecordFailure, ...]:
    by_offset: dict[int, RecordFailure] = {}
    for failure in failures:
        by_offset.setdefault(failure.offset, failure)
    return tuple(by_offset.values())


def _percent_encode(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match[0].encode(errors="surrogatepass"))


def _name_date_folder(name: str, days: int) -> str:
    try:
        return f"{name}={_EPOCH_DAY + timedelta(days=days)}"
    except OverflowError:
        return f"the field {name} is a date outside of the years 1 to 9999"
