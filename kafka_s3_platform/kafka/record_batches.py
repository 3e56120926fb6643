"""Kafka's record batches (message format 2) to Arrow, without a Python object per record.

Source of the format: Apache Kafka documentation, "Message Format". A kernel compiled by numba walks the records, which
only one after the other can tell where the next begins. Everything is checked against the batch's own bounds and its
CRC-32C before it is believed: whoever may write to a topic can write batches of his own making, of which the broker
checks little.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from struct import Struct
from typing import Any

import google_crc32c
import numba
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import types

from kafka_s3_platform.kafka.compression import TooLargeError, decompressed
from kafka_s3_platform.model.offsets import TopicPartition
from kafka_s3_platform.model.record import HEADER, NO_TIMESTAMP, RECORD_SCHEMA

Bytes = npt.NDArray[np.uint8]
Int64s = npt.NDArray[np.int64]

LARGEST_BATCH = 2**31 - 1
"""Bytes that Arrow's int32 offsets reach."""

_LARGEST_CONTROL = 65_536

_ROW_BYTES, _HEADER_BYTES, _ESCAPED = 64, 16, 4

_HEADER = Struct(">qiibIhiqqqhii")
_LENGTH_END = 12
_CRC_END = 21
_COMPRESSION, _LOG_APPEND_TIME, _TRANSACTIONAL, _CONTROL = 0x07, 0x08, 0x10, 0x20
_ABORT = 0
_PARTS = 5  # what `_measure` counts: bytes of keys and values, headers, bytes of their names and values
_NAMES = 3  # the only one that may not be null
_NO_RECORDS, _OFFSETS = 1, 2
_HEADERS = RECORD_SCHEMA.field("headers").type

# Types of the compiled functions: given, they are compiled (or found compiled) at import, once, for read-only bytes.
_I8, _BUF, _INTS = types.int64, types.Array(types.uint8, 1, "C", readonly=True), types.int64[::1]
_STRINGS = (types.int32[::1], types.boolean[::1], types.uint8[::1])
_VARINT = types.UniTuple(_I8, 2)(_BUF, _I8, _I8)  # type: ignore[no-untyped-call, unused-ignore]
_SKIP = _I8(_BUF, _I8, _I8, _INTS, _I8)
_RECORD = _I8(_BUF, _I8, _I8, _INTS)
_MEASURE = _I8(_BUF, _I8, _I8, _INTS)
_COPY = _I8(_BUF, _I8, _I8, *_STRINGS)
_FILL = types.void(
    _BUF, _I8, _I8, _I8, _INTS, _INTS, *_STRINGS, *_STRINGS, types.int32[::1], *_STRINGS, *_STRINGS, _INTS
)


@dataclass(frozen=True, slots=True)
class LogBatch:
    """One record batch of the log. `body` are its records, compressed as `attributes` say.

    `fault` is why its header cannot be believed, empty where nothing speaks against it.
    """

    base_offset: int
    last_offset: int
    leader_epoch: int
    attributes: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    count: int
    body: memoryview
    fault: str = ""

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & _CONTROL)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & _TRANSACTIONAL)


def log_batches(view: memoryview) -> Iterator[LogBatch]:
    """The whole batches of a fetched piece of the log; one cut off at its end is left out.

    Raises:
        ValueError: a batch is of a format before 2, or shorter than its header.
    """
    at = 0
    while at + _HEADER.size <= len(view):
        base, length, epoch, magic, crc, attributes, delta, first, last, producer, _, _, count = _HEADER.unpack_from(
            view, at
        )
        end = at + _LENGTH_END + length
        if end < at + _HEADER.size:
            raise ValueError(f"the batch at offset {base} has a length of {length} bytes")
        if end > len(view):
            return
        if magic != 2:
            raise ValueError(f"the batch at offset {base} has message format {magic}")
        fault = "" if google_crc32c.value(bytes(view[at + _CRC_END : end])) == crc else "its CRC is wrong"
        body = view[at + _HEADER.size : end]
        yield LogBatch(base, base + delta, epoch, attributes, first, last, producer, count, body, fault)
        at = end


class OutOfOrderError(ValueError):
    """Batches of one answer that no log holds so."""


def believable(batches: Sequence[LogBatch]) -> list[LogBatch]:
    """The batches up to the first whose header has a `fault`; that one ends where the next begins, if there is one.

    What follows is asked for again: of a damaged batch nobody knows whether it ended a transaction. If it is the last
    of several, it is left out, so that asking for it brings those behind it.

    Raises:
        OutOfOrderError: they are not in order.
        ValueError: where one ends can be told by nobody.
    """
    for at, batch in enumerate(batches):
        following = batches[at + 1].base_offset if at + 1 < len(batches) else None
        fault = _header_fault(batch, following)
        if fault and following is not None:
            return [*batches[:at], replace(batch, last_offset=following - 1, fault=fault)]
        if fault:
            return list(batches[:at]) or [_alone(batch, fault)]
    return list(batches)


def _alone(batch: LogBatch, fault: str) -> LogBatch:
    """A batch that nothing follows: only two parts of its header that say the same are believed of its end."""
    if batch.count < 1 or batch.last_offset != batch.base_offset + batch.count - 1:
        raise ValueError(f"where the batch at offset {batch.base_offset} ends cannot be told: {fault}")
    return replace(batch, fault=fault)


def _header_fault(batch: LogBatch, following: int | None) -> str:
    if batch.base_offset < 0 or (following is not None and following <= batch.base_offset):
        raise OutOfOrderError(f"the batch at offset {batch.base_offset} is out of order")
    if batch.fault:
        return batch.fault
    if batch.last_offset < batch.base_offset or (following is not None and batch.last_offset >= following):
        return f"its header says that it ends at offset {batch.last_offset}"
    return ""


Aborted = Iterable[tuple[int, int]]
"""Aborted transactions: producer id and first offset."""


def leaps_beyond(batches: Sequence[LogBatch], start: int, end: int, log_end: int) -> bool:
    """Whether offsets of `[start, end)` are passed over by a batch that begins at or past the log's end.

    No checksum covers a batch's own offset, so a wrong one looks like a hole that compaction has left.
    """
    if batches[-1].base_offset < log_end:
        return False
    reached = start
    for batch in batches:
        if batch.base_offset >= log_end and reached < min(batch.base_offset, end):
            return True
        reached = max(reached, batch.last_offset + 1)
    return False


def committed(batches: Iterable[LogBatch], aborted: Aborted) -> Iterator[LogBatch]:
    """Batches of records that no transaction aborted; `aborted` are (producer id, first offset) of the same fetch."""
    waiting = sorted(aborted, key=lambda a: a[1], reverse=True)
    open_producers: set[int] = set()
    for batch in batches:
        while waiting and waiting[-1][1] <= batch.last_offset:
            open_producers.add(waiting.pop()[0])
        if batch.is_control:
            if _is_abort(batch):
                open_producers.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in open_producers):
            yield batch


@dataclass(frozen=True, slots=True)
class OpenedBatch:
    """A batch whose records were found to be what its header says. `weight` is about what they take in Arrow, bytes."""

    batch: LogBatch
    body: Bytes
    sizes: Int64s
    weight: int


def opened(batch: LogBatch, most: int = LARGEST_BATCH) -> OpenedBatch:
    """The batch decompressed, and checked to its last byte. What is compressed may come to `most` bytes.

    Raises:
        ValueError: its records are not what its header says, or nobody could hold them.
    """
    body = _body(batch, most)
    sizes = np.zeros(_PARTS, np.int64)
    fault = (
        _NO_RECORDS if batch.count < 0 else _measure(body, batch.count, batch.last_offset - batch.base_offset, sizes)
    )
    if fault == _OFFSETS:
        raise ValueError(
            f"the offsets of its records do not ascend within those of the batch, {batch.base_offset} to "
            f"{batch.last_offset}"
        )
    if fault:
        raise ValueError("its bytes are not the records that its header says")
    keys, values, headers, names, header_values = sizes.tolist()
    texts = keys + values + _ESCAPED * names + header_values
    weight = texts + _ROW_BYTES * batch.count + _HEADER_BYTES * headers
    if weight > LARGEST_BATCH:
        raise ValueError(f"its records take {weight} bytes, of which {LARGEST_BATCH} can be held")
    if batch.attributes & _COMPRESSION and weight > most:
        raise _too_large(most)
    return OpenedBatch(batch, body, sizes, weight)


def record_batch(tp: TopicPartition, batches: Sequence[OpenedBatch]) -> tuple[pa.RecordBatch, dict[int, str]]:
    """The records of `batches`, in their order, as one batch of RECORD_SCHEMA.

    With it come the offsets of records with header names that are not UTF-8, and the reasons: their bytes are escaped.
    Several batches may weigh no more than LARGEST_BATCH together.
    """
    sizes: Int64s = np.array([b.sizes for b in batches]).sum(axis=0)
    columns = _Columns(sum(b.batch.count for b in batches), sizes)
    for each in batches:
        columns.fill(each.batch, each.body)
    return columns.record_batch(tp)


class _Columns:
    """Arrow buffers that are filled batch by batch."""

    def __init__(self, rows: int, sizes: Int64s) -> None:
        key_bytes, value_bytes, headers, name_bytes, header_bytes = sizes.tolist()
        self._offsets, self._times = np.empty(rows, np.int64), np.empty(rows, np.int64)
        self._types = np.empty(rows, np.int32)
        self._keys, self._values = _Strings(rows, key_bytes), _Strings(rows, value_bytes)
        self._names, self._header_values = _Strings(headers, name_bytes), _Strings(headers, header_bytes)
        self._header_ends = np.zeros(rows + 1, np.int32)
        self._at = np.zeros(6, np.int64)

    def fill(self, batch: LogBatch, body: Bytes) -> None:
        first = int(self._at[0])
        _fill(
            body,
            batch.count,
            batch.base_offset,
            batch.base_timestamp,
            self._offsets,
            self._times,
            *self._keys.buffers,
            *self._values.buffers,
            self._header_ends,
            *self._names.buffers,
            *self._header_values.buffers,
            self._at,
        )
        rows = slice(first, int(self._at[0]))
        appended = bool(batch.attributes & _LOG_APPEND_TIME)
        if appended:
            self._times[rows] = batch.max_timestamp
        self._types[rows] = np.where(self._times[rows] == NO_TIMESTAMP, -1, int(appended))

    def record_batch(self, tp: TopicPartition) -> tuple[pa.RecordBatch, dict[int, str]]:
        rows = len(self._offsets)
        headers, failures = self._headers()
        columns = [
            self._keys.array(),
            self._values.array(),
            headers,
            pa.repeat(pa.scalar(tp.topic, pa.string()), rows),
            pa.repeat(pa.scalar(tp.kafka_partition, pa.int32()), rows),
            pa.array(self._offsets),
            pa.array(self._times).view(RECORD_SCHEMA.field("timestamp").type),
            pa.array(self._types),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA), failures

    def _headers(self) -> tuple[pa.Array, dict[int, str]]:
        absent = np.diff(self._header_ends) == 0
        if absent.all():
            return pa.nulls(len(absent), _HEADERS), {}
        names, failures = self._texts()
        flat = pa.StructArray.from_arrays([names, self._header_values.array()], fields=list(HEADER))
        headers = pa.ListArray.from_arrays(pa.array(self._header_ends), flat, type=_HEADERS, mask=pa.array(absent))
        return headers, failures

    def _texts(self) -> tuple[pa.Array, dict[int, str]]:
        """The header names, and where one had to be escaped: distinct names are few."""
        names = self._names.array()
        try:
            return names.cast(pa.string()), {}
        except pa.ArrowInvalid:
            found = names.dictionary_encode()
        distinct = found.dictionary.to_pylist()
        texts = [name.decode(errors="backslashreplace") for name in distinct]
        escaped = pa.array([t.encode() != n for t, n in zip(texts, distinct, strict=True)])
        at = np.flatnonzero(escaped.take(found.indices))
        rows = np.searchsorted(self._header_ends, at, side="right") - 1
        failures = {
            offset: f"a header name is not UTF-8, its bytes are escaped: {name}"
            for offset, name in zip(self._offsets[rows].tolist(), names.take(pa.array(at)).to_pylist(), strict=True)
        }
        return pa.array(texts, pa.string()).take(found.indices), failures


class _Strings:
    """The buffers of a binary array."""

    def __init__(self, rows: int, size: int) -> None:
        self._ends, self._valid, self._data = (
            np.zeros(rows + 1, np.int32),
            np.empty(rows, np.bool_),
            np.empty(size, "u1"),
        )

    @property
    def buffers(self) -> tuple[Any, Any, Any]:
        return self._ends, self._valid, self._data

    def array(self) -> pa.BinaryArray:
        rows, nulls = len(self._valid), int((~self._valid).sum())
        bits = pa.py_buffer(np.packbits(self._valid, bitorder="little")) if nulls else None
        return pa.Array.from_buffers(
            pa.binary(), rows, [bits, pa.py_buffer(self._ends), pa.py_buffer(self._data)], nulls
        )


def _body(batch: LogBatch, most: int) -> Bytes:
    body: Bytes = np.frombuffer(_decompressed(batch, most), np.uint8)
    body.flags.writeable = False
    return body


def _decompressed(batch: LogBatch, most: int) -> Any:
    codec = batch.attributes & _COMPRESSION
    try:
        return decompressed(codec, batch.body, most) if codec else batch.body
    except TooLargeError as err:
        raise _too_large(most) from err
    except (KeyError, ValueError) as err:
        raise ValueError(f"it cannot be decompressed: {err}") from err


def _too_large(most: int) -> ValueError:
    return ValueError(
        f"it is compressed, and takes more than the {most:,} bytes that archive.read.max.batch.bytes allows. If its "
        f"records are what they should be, set that key higher"
    )


def _is_abort(batch: LogBatch) -> bool:
    """Whether a control batch ends a transaction that was aborted: the type is the second int16 of its record's key."""
    body = _body(batch, _LARGEST_CONTROL)
    _, at = _varint(body, 0, len(body))
    at += 1  # the attributes; lengths and deltas before and after are varints
    for _ in range(3):
        _, at = _varint(body, max(at, 0), len(body))
    return int.from_bytes(body[at + 2 : at + 4].tobytes(), "big") == _ABORT


@numba.njit(_VARINT, cache=True, nogil=True)  # type: ignore[untyped-decorator, unused-ignore]
def _varint(buf: Bytes, pos: int, end: int) -> tuple[int, int]:  # pragma: no cover - compiled
    """A zigzag varint of at most 64 bits, and where it ends; -1 where it does not end before `end`."""
    value, shift = np.uint64(0), np.uint64(0)
    while pos < end and shift < 70:
        byte = buf[pos]
        pos += 1
        value |= np.uint64(byte & 0x7F) << shift
        if byte < 128:
            return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), pos
        shift += np.uint64(7)
    return 0, -1


@numba.njit(_SKIP, cache=True, nogil=True)  # type: ignore[untyped-decorator, unused-ignore]
def _skip(buf: Bytes, pos: int, end: int, sizes: Int64s, part: int) -> int:  # pragma: no cover - compiled
    """Where a length-prefixed value ends, its bytes added to `sizes[part]`; -1 where it does not fit."""
    if pos < 0:
        return -1
    length, pos = _varint(buf, pos, end)
    if pos < 0 or length > end - pos or (length < 0 and part == _NAMES):
        return -1
    if length > 0:
        sizes[part] += length
        pos += length
    return pos


@numba.njit(_RECORD, cache=True, nogil=True)  # type: ignore[untyped-decorator, unused-ignore]
def _measured_record(buf: Bytes, pos: int, end: int, sizes: Int64s) -> int:  # pragma: no cover - compiled
    """Where a record's headers end, from its key on; -1 where its fields do not fit before `end`."""
    pos = _skip(buf, pos, end, sizes, 0)
    pos = _skip(buf, pos, end, sizes, 1)
    headers = -1
    if pos >= 0:
        headers, pos = _varint(buf, pos, end)
    if pos < 0 or headers < 0 or headers > end - pos:
        return -1
    sizes[2] += headers
    for _ in range(headers):
        pos = _skip(buf, pos, end, sizes, _NAMES)
        pos = _skip(buf, pos, end, sizes, 4)
    return pos


@numba.njit(_MEASURE, cache=True, nogil=True)  # type: ignore[untyped-decorator, unused-ignore]
def _measure(buf: Bytes, count: int, last_delta: int, sizes: Int64s) -> int:  # pragma: no cover - compiled
    """Adds up the parts of all records. 0, or what is wrong: they do not fit, or their offsets do not ascend within."""
    pos, size, reached = 0, len(buf), -1
    for _ in range(count):
        length, pos = _varint(buf, pos, size)
        if pos < 0 or length < 1 or length > size - pos:
            return _NO_RECORDS
        end = pos + length
        _, pos = _varint(buf, pos + 1, end)
        if pos < 0:
            return _NO_RECORDS
        delta, pos = _varint(buf, pos, end)
        if _measured_record(buf, pos, end, sizes) != end:
            return _NO_RECORDS
        if delta <= reached or delta > last_delta:
            return _OFFSETS
        reached, pos = delta, end
    return 0 if pos == size else _NO_RECORDS


@numba.njit(_COPY, cache=True, nogil=True)  # type: ignore[untyped-decorator, unused-ignore]
def _copy(buf: Bytes, pos: int, row: int, ends: Any, valid: Any, data: Any) -> int:  # pragma: no cover - compiled
    """One length-prefixed value into row `row` of a column; where it ends in `buf`."""
    length, pos = _varint(buf, pos, len(buf))
    start = ends[row]
    valid[row] = length >= 0
    if length > 0:
        data[start : start + length] = buf[pos : pos + length]
        pos += length
        start += length
    ends[row + 1] = start
    return pos


@numba.njit(_FILL, cache=True, nogil=True)  # type: ignore[untyped-decorator, unused-ignore]
def _fill(
    buf: Bytes,
    count: int,
    base_offset: int,
    base_timestamp: int,
    offsets: Int64s,
    times: Int64s,
    key_ends: Any,
    key_valid: Any,
    keys: Any,
    value_ends: Any,
    value_valid: Any,
    values: Any,
    header_ends: Any,
    name_ends: Any,
    name_valid: Any,
    names: Any,
    header_value_ends: Any,
    header_value_valid: Any,
    header_values: Any,
    at: Int64s,
) -> None:  # pragma: no cover - compiled
    """Appends the records of a batch that `_measure` has checked; `at` are the row and the header reached."""
    pos, row, header = 0, at[0], at[1]
    for _ in range(count):
        _, pos = _varint(buf, pos, len(buf))
        pos += 1
        delta, pos = _varint(buf, pos, len(buf))
        times[row] = base_timestamp + delta
        delta, pos = _varint(buf, pos, len(buf))
        offsets[row] = base_offset + delta
        pos = _copy(buf, pos, row, key_ends, key_valid, keys)
        pos = _copy(buf, pos, row, value_ends, value_valid, values)
        headers, pos = _varint(buf, pos, len(buf))
        for _ in range(headers):
            pos = _copy(buf, pos, header, name_ends, name_valid, names)
            pos = _copy(buf, pos, header, header_value_ends, header_value_valid, header_values)
            header += 1
        row += 1
        header_ends[row] = header
    at[0], at[1] = row, header
