"""Kafka Connect's partitioners: which encoded partition, the folders below the topic's, a record goes to."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from kafka_s3_platform.config.folders import refusal
from kafka_s3_platform.config.plugins import PARTITIONER, load_class
from kafka_s3_platform.config.settings import LayoutSettings
from kafka_s3_platform.errors import ConfigError
from kafka_s3_platform.model.connect import MISSING, ConnectBatch, Int32s, Int64s, Positions, RecordFailure
from kafka_s3_platform.partitioners.field_types import logical_type
from kafka_s3_platform.partitioners.keys import MAX_KEY_BYTES
from kafka_s3_platform.partitioners.time_based import TimePaths
from kafka_s3_platform.partitioners.zones import factorize

_LONGEST_TOPIC = 249
_REST_OF_KEY = 80
"""Bytes of delimiters, kafka partition, epoch, ordinal and extension."""
_UNSAFE = r"\x00-\x1f\x7f\ud800-\udfff\ufffe\uffff/\\"
"""Some stores read a backslash as a slash."""

_PRINTED = (str, int, bool)
Folder = tuple[type, Any, str | None]
_EXCEPTION = "io.confluent.connect.storage.errors.PartitionException"
_EPOCH_DAY = date(1970, 1, 1)


@dataclass(frozen=True)
class EncodedPartitions:
    """The encoded partitions that occur, and each record's index among them; that of a failed one means nothing."""

    names: Sequence[str]
    codes: Int32s
    failures: tuple[RecordFailure, ...] = ()


class Partitioner(Protocol):
    """Made with the connector's `LayoutSettings`, once a range of offsets."""

    def encode(self, batch: ConnectBatch, times_ms: Int64s) -> EncodedPartitions:
        """Where each record of a batch goes, given its time (epoch ms). Raises nothing for a single record's fault."""
        ...


def new_partitioner(layout: LayoutSettings) -> Partitioner:
    """The partitioner that `partitioner.class` names: one of Connect's, or a class of the user's.

    Raises:
        ConfigError: the class cannot be loaded, or FieldPartitioner has no field.
    """
    ours: Mapping[str, Callable[[LayoutSettings], Partitioner]] = {
        "Default": DefaultPartitioner,
        "Field": FieldPartitioner,
        "Hourly": TimeBasedPartitioner,
        "Daily": TimeBasedPartitioner,
        "TimeBased": TimeBasedPartitioner,
    }
    if layout.partitioner in ours:
        return ours[layout.partitioner](layout)
    return _Checked(load_class(layout.partitioner, PARTITIONER)(layout), layout)


class DefaultPartitioner:
    """`partition=<kafka partition>`."""

    def __init__(self, layout: LayoutSettings) -> None:
        self.layout = layout

    def encode(self, batch: ConnectBatch, times_ms: Int64s) -> EncodedPartitions:  # noqa: ARG002  the protocol's
        found = batch.records.column("partition").dictionary_encode()
        return EncodedPartitions([f"partition={p}" for p in found.dictionary.to_pylist()], found.indices.to_numpy())


class TimeBasedPartitioner:
    """The times' folders by `path.format`, one each `partition.duration.ms`; Hourly and Daily are this, too."""

    def __init__(self, layout: LayoutSettings) -> None:
        self.layout = layout
        self._paths = TimePaths(layout)

    def encode(self, batch: ConnectBatch, times_ms: Int64s) -> EncodedPartitions:  # noqa: ARG002  the protocol's
        names, codes = self._paths.encode(times_ms)
        return EncodedPartitions(names, codes)


class FieldPartitioner:
    """`<field>=<value>` for each of `partition.field.name`, nested by dots, joined by `directory.delim`.

    Whole numbers, texts and booleans are written as Connect writes them, null as `null`, dates as `2019-03-12` (on
    which Connect fails). What a folder cannot hold is percent-encoded: slashes of both kinds, the delimiter, control
    characters, a percent sign that would look encoded, and the text `null`; so the folder tells the value. A field that
    is missing, or of another type, is the record's failure. Tombstones, which have no fields, go to
    `tombstone.encoded.partition`.
    """

    def __init__(self, layout: LayoutSettings) -> None:
        if not layout.partition_fields:
            raise ConfigError("FieldPartitioner needs partition.field.name: fields of the value, separated by commas")
        self.layout = layout
        self._unsafe = re.compile(f"[{_UNSAFE}{re.escape(layout.directory_delim)}]|%(?=[0-9a-fA-F]{{2}})|^n(?=ull$)")

    def encode(self, batch: ConnectBatch, times_ms: Int64s) -> EncodedPartitions:  # noqa: ARG002  the protocol's
        nulls = batch.value.is_null
        fields = [self._field(batch, name, np.flatnonzero(~nulls)) for name in self.layout.partition_fields]
        found = joined(fields, self.layout.directory_delim)
        names = [*found.names, self.layout.tombstone_partition]
        codes = np.where(nulls, np.int32(len(names) - 1), found.codes)
        return _checked(EncodedPartitions(names, codes, found.failures), batch, self, self.layout)

    def _field(self, batch: ConnectBatch, name: str, rows: Positions) -> EncodedPartitions:
        path = name.split(".")
        values, schema_codes = batch.value.field(path), batch.value.codes
        logical = [*(logical_type(schema, path) for schema in batch.value.schemas), None]  # NO_SCHEMA is the last
        kinds = [logical[code] for code in np.unique(schema_codes).tolist()]
        folders, codes = _texts(values, kinds) or _distinct(values, [logical[c] for c in schema_codes.tolist()])
        names = [self._folder(name, *folder) for folder in folders]
        refused = {i: text for i, text in enumerate(names) if not text.startswith(f"{name}=")}
        bad = [(row, refused[codes[row]]) for row in rows[np.isin(codes[rows], list(refused))].tolist()]
        return EncodedPartitions(names or [name], codes, _failures(batch, bad, self))

    def _folder(self, name: str, kind: type, value: Any, logical: str | None) -> str:
        """The folder, or why there is none."""
        if kind is str:
            return f"{name}={self._unsafe.sub(_percent_encoded, value)}"
        if kind is int and logical == "date":
            return _date_folder(name, value)
        if kind is bool or kind is type(None) or (kind is int and logical is None):
            return f"{name}={'null' if value is None else str(value).lower()}"
        if kind is type(MISSING):
            return f"the field {name} of partition.field.name is missing"
        return f"the field {name} is of a type that names no folder: {logical or kind.__name__}"


def _texts(values: Sequence[Any], kinds: Sequence[str | None]) -> tuple[list[Folder], Int32s] | None:
    """`_distinct` of values that are all text, which is quick; None where they are not."""
    if set(map(type, values)) != {str} or len(set(kinds)) != 1:
        return None
    try:
        encoded = pa.array(values, pa.string()).dictionary_encode()
    except (pa.ArrowInvalid, UnicodeEncodeError):
        return None  # half a surrogate pair
    return [(str, text, kinds[0]) for text in encoded.dictionary.to_pylist()], encoded.indices.to_numpy()


def _distinct(values: Sequence[Any], logical: Sequence[str | None]) -> tuple[list[Folder], Int32s]:
    """What occurs of (type, value where it is printed, logical type), and each value's index among it."""
    folders: dict[Folder, int] = {}
    found = (
        (type(value), value if type(value) in _PRINTED else None, kind)
        for value, kind in zip(values, logical, strict=True)
    )
    codes = np.array([folders.setdefault(folder, len(folders)) for folder in found], np.int32)
    return list(folders), codes


class _Checked:
    """A partitioner of the user's, whose folders stay inside of the topic's."""

    def __init__(self, inner: Any, layout: LayoutSettings) -> None:
        self._inner, self.layout = inner, layout

    def encode(self, batch: ConnectBatch, times_ms: Int64s) -> EncodedPartitions:
        found, name = self._inner.encode(batch, times_ms), type(self._inner).__name__
        if not isinstance(found, EncodedPartitions) or len(found.codes) != batch.num_rows:
            raise ConfigError(
                f"{name}.encode has to return EncodedPartitions with one code for each record of the batch"
            )
        return _checked(found, batch, self._inner, self.layout)


def joined(parts: Sequence[EncodedPartitions], delim: str) -> EncodedPartitions:
    """The encoded partitions of several partitioners one below the other."""
    names, codes = parts[0].names, parts[0].codes
    for part in parts[1:]:
        width = len(part.names)
        pairs, codes = factorize(codes.astype(np.int64) * width + part.codes)
        names = [f"{names[pair // width]}{delim}{part.names[pair % width]}" for pair in pairs]
    return EncodedPartitions(names, codes, _first_of_each(f for part in parts for f in part.failures))


def _checked(
    found: EncodedPartitions, batch: ConnectBatch, partitioner: Partitioner, layout: LayoutSettings
) -> EncodedPartitions:
    """Each name once, and a failure for each record whose folders cannot be in a key."""
    refused = {i: why for i, name in enumerate(found.names) if (why := _refusal(name, layout))}
    index: dict[str, int] = {}
    places = np.array([index.setdefault(name, len(index)) for name in found.names], np.int32)
    bad = [(row, refused[found.codes[row]]) for row in np.flatnonzero(np.isin(found.codes, list(refused))).tolist()]
    failures = _first_of_each([*found.failures, *_failures(batch, bad, partitioner)])
    return EncodedPartitions([*index], places[found.codes], failures)


def _refusal(encoded: str, layout: LayoutSettings) -> str | None:
    """Why an encoded partition cannot be in a key, None where it can."""
    if why := refusal(encoded):
        return f"its encoded partition {why}"
    name = 2 * _LONGEST_TOPIC + max(layout.offset_pad_width, 19) + _REST_OF_KEY
    room = MAX_KEY_BYTES - name - len(layout.topics_dir.encode())
    if len(encoded.encode()) > room:
        return f"its encoded partition has more than the {room} bytes that an object key has room for"
    return None


def _failures(
    batch: ConnectBatch, reasons: Sequence[tuple[int, str]], partitioner: Partitioner
) -> tuple[RecordFailure, ...]:
    offsets, name = batch.offsets, type(partitioner).__name__
    return tuple(RecordFailure(int(offsets[row]), "TASK_PUT", name, _EXCEPTION, reason) for row, reason in reasons)


def _first_of_each(failures: Iterable[RecordFailure]) -> tuple[RecordFailure, ...]:
    by_offset: dict[int, RecordFailure] = {}
    for failure in failures:
        by_offset.setdefault(failure.offset, failure)
    return tuple(by_offset.values())


def _percent_encoded(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match[0].encode(errors="surrogatepass"))


def _date_folder(name: str, days: int) -> str:
    try:
        return f"{name}={_EPOCH_DAY + timedelta(days=days)}"
    except OverflowError:
        return f"the field {name} is a date outside of the years 1 to 9999"
