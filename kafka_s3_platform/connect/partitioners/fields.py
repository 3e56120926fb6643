"""Finds the folders and times of records in fields of their values, as Connect's FieldPartitioner and RecordField do.

The logical type of its field decides whether a decoded number is a date, a timestamp or a plain number.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import date, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.connect.avro.times import TIMELESS, convert_logical_times, find_logical_type
from kafka_s3_platform.core.config.settings import LayoutSettings
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.java.joda import parse_texts
from kafka_s3_platform.core.model.connect import MISSING, NO_SCHEMA, ConnectBatch, Int32s, Int64s, Positions
from kafka_s3_platform.core.partitioners.extractors import ExtractedTimes
from kafka_s3_platform.core.partitioners.partitioners import (
    EncodedPartitions,
    build_folder_failures,
    check_partitions,
    joined,
)

SECONDS_BELOW = 100_000_000_000
"""Numbers nearer to 0 are seconds, others milliseconds. It means 5138-11-16 in seconds, 1973-03-03 in milliseconds."""

MaskedTimes = tuple[Int64s, npt.NDArray[np.bool_], str]
"""Times (epoch ms), a mask of the known ones, and the reason why the others are unknown."""


class RecordFieldTimestampExtractor:
    """Takes the time from the field `timestamp.field` of the value. Dots separate the names of nested fields.

    The field may hold a number (epoch seconds or milliseconds, see SECONDS_BELOW), the text of such a number, an ISO
    8601 text, or an Avro date or timestamp (logical types). Dates, and texts without an offset, are in the layout's
    timezone. A tombstone has no fields, so its time is the timestamp of its record.
    """

    def __init__(self, layout: LayoutSettings) -> None:
        if not layout.timestamp_field:
            raise ConfigError("timestamp.extractor is RecordField, so timestamp.field has to name a field of the value")
        self._name = layout.timestamp_field
        self._path = layout.timestamp_field.split(".")
        self._zone = ZoneInfo(layout.timezone)

    def extract(self, batch: ConnectBatch) -> ExtractedTimes:
        """Return the time of each record, or the reason why its field gives none."""
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
        # A code below NO_SCHEMA marks the tombstones, which are in no group.
        codes = np.where(batch.value.is_null, NO_SCHEMA - 1, batch.value.codes)
        for code in np.unique(codes[codes >= NO_SCHEMA]).tolist():
            logical = None if code == NO_SCHEMA else find_logical_type(batch.value.schemas[code], self._path)
            yield logical, np.flatnonzero(codes == code)

    def _convert_values(self, kind: type, values: Sequence[Any], logical: str | None) -> MaskedTimes:
        """Convert values of one Python type, and one logical type of Avro, to times."""
        if kind is int and logical not in TIMELESS:
            return self._convert_numbers(values, logical)
        if kind in {float, Decimal}:
            return _convert_floats(np.array(values, np.float64))
        if kind is str:
            return self._convert_texts(_build_text_array(values))
        reason = "is missing" if kind is type(MISSING) else "is null" if kind is type(None) else ""
        return _mark_unknown(len(values), reason or f"is no date or time but {logical or kind.__name__}")

    def _convert_numbers(self, values: Sequence[int], logical: str | None) -> MaskedTimes:
        """Convert whole numbers of a logical type to times. A number of more than 64 bits has no time."""
        try:
            numbers = np.array(values, np.int64)
            has_time = np.ones(len(values), bool)
        except OverflowError:
            # Decoded JSON holds numbers of any size.
            has_time = np.array([abs(i) < 2**63 for i in values])
            numbers = np.array([i if abs(i) < 2**63 else 0 for i in values], np.int64)
        return self._convert_to_ms(numbers, logical), has_time, "is a number of more than 64 bits"

    def _convert_to_ms(self, numbers: Int64s, logical: str | None) -> Int64s:
        """Convert numbers of a logical type to epoch ms. A number without one is in seconds or in ms, by its size."""
        times = convert_logical_times(numbers, logical, self._zone)
        return np.where(_find_seconds(numbers), numbers * 1000, numbers) if times is None else times

    def _convert_texts(self, texts: pa.StringArray) -> MaskedTimes:
        """Convert texts that are ISO 8601 times or numbers to times."""
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
    """Build an array of texts. Half surrogate pairs, which JSON can hold, become question marks."""
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
    """Return the mask of numbers that are seconds, because they are too near to 0 for milliseconds."""
    seconds: npt.NDArray[np.bool_] = (numbers > -SECONDS_BELOW) & (numbers < SECONDS_BELOW)
    return seconds


def _mark_unknown(count: int, reason: str) -> MaskedTimes:
    """Return no times for `count` records, with the reason."""
    return np.zeros(count, np.int64), np.zeros(count, bool), reason


_UNSAFE = r"\x00-\x1f\x7f\ud800-\udfff\ufffe\uffff/\\"
"""Characters not allowed in folders. Some stores read a backslash as a slash."""

_PRINTED = (str, int, bool)

_FolderValue = tuple[type, Any, str | None]

_EPOCH_DAY = date(1970, 1, 1)


class FieldPartitioner:
    """Makes `<field>=<value>` for each of `partition.field.name`, joined by `directory.delim`. Dots name nested fields.

    Whole numbers, texts and booleans are written as Connect writes them, null as `null`, and dates as `2019-03-12`
    (Connect fails for dates). Characters not allowed in folders are percent-encoded: both slashes, the delimiter,
    control characters, and a percent sign that looks like an encoding. The text `null` is encoded too, so that each
    folder means one value. A record fails if a field is missing or has another type. Tombstones have no fields and go
    to `tombstone.encoded.partition`.
    """

    def __init__(self, layout: LayoutSettings) -> None:
        if not layout.partition_fields:
            raise ConfigError("FieldPartitioner needs partition.field.name: fields of the value, separated by commas")
        self.layout = layout
        self._unsafe = re.compile(f"[{_UNSAFE}{re.escape(layout.directory_delim)}]|%(?=[0-9a-fA-F]{{2}})|^n(?=ull$)")

    def encode(self, batch: ConnectBatch, _: Int64s) -> EncodedPartitions:
        """Return the folder of each record, made of all fields. Tombstones have a folder of their own."""
        nulls = batch.value.is_null
        fields = [self._encode_field(batch, name, np.flatnonzero(~nulls)) for name in self.layout.partition_fields]
        encoded = joined(fields, self.layout.directory_delim)
        names = [*encoded.names, self.layout.tombstone_partition]
        codes = np.where(nulls, np.int32(len(names) - 1), encoded.codes)
        return check_partitions(EncodedPartitions(names, codes, encoded.failures), batch, self, self.layout)

    def _encode_field(self, batch: ConnectBatch, name: str, rows: Positions) -> EncodedPartitions:
        """Return each record's folder by one field, and failures of `rows` whose value has no folder."""
        path = name.split(".")
        values = batch.value.field(path)
        schema_codes = batch.value.codes
        logical = [*(find_logical_type(schema, path) for schema in batch.value.schemas), None]  # NO_SCHEMA is the last
        kinds = [logical[code] for code in np.unique(schema_codes).tolist()]
        folders, codes = _factorize_texts(values, kinds) or _factorize_folders(
            values, [logical[c] for c in schema_codes.tolist()]
        )
        names = [self._make_folder(name, *folder) for folder in folders]
        # A text that is not a folder is the reason why there is none.
        refusals = {i: text for i, text in enumerate(names) if not text.startswith(f"{name}=")}
        reasons = [(row, refusals[codes[row]]) for row in rows[np.isin(codes[rows], list(refusals))].tolist()]
        return EncodedPartitions(names or [name], codes, build_folder_failures(batch, reasons, self))

    def _make_folder(self, name: str, kind: type, value: Any, logical: str | None) -> str:
        """Return the folder, or the reason why there is none."""
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
    """Do the same as `_factorize_folders`, but with Arrow. Return None unless all are texts of one logical type."""
    if set(map(type, values)) != {str} or len(set(kinds)) != 1:
        return None
    try:
        encoded = pa.array(values, pa.string()).dictionary_encode()
    except (pa.ArrowInvalid, UnicodeEncodeError):
        return None  # half a surrogate pair
    return [(str, text, kinds[0]) for text in encoded.dictionary.to_pylist()], encoded.indices.to_numpy()


def _factorize_folders(values: Sequence[Any], logical: Sequence[str | None]) -> tuple[list[_FolderValue], Int32s]:
    """Return the distinct triples (type, value if folders show it, logical type), and each value's index in them."""
    folders: dict[_FolderValue, int] = {}
    triples = (
        (type(value), value if type(value) in _PRINTED else None, kind)
        for value, kind in zip(values, logical, strict=True)
    )
    codes = np.array([folders.setdefault(folder, len(folders)) for folder in triples], np.int32)
    return list(folders), codes


def _percent_encode(match: re.Match[str]) -> str:
    """Return the matching text with each byte of its UTF-8 percent-encoded."""
    return "".join(f"%{byte:02X}" for byte in match[0].encode(errors="surrogatepass"))


def _name_date_folder(name: str, days: int) -> str:
    """Return the folder of a date (days since 1970), or the reason why there is none."""
    try:
        return f"{name}={_EPOCH_DAY + timedelta(days=days)}"
    except OverflowError:
        return f"the field {name} is a date outside of the years 1 to 9999"


PARTITIONERS = {"Field": FieldPartitioner}
TIMESTAMP_EXTRACTORS = {"RecordField": RecordFieldTimestampExtractor}
