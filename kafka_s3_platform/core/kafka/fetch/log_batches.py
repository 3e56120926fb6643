"""Kafka's record batches (message format 2), checked and put into Arrow without a Python object per record.

Source of the format: Apache Kafka documentation, "Message Format". Only a record's end shows the next one's start, so
compiled functions (`kernels`) walk through them. Nothing is believed before it is checked against the batch's own
bounds and its CRC-32C, because writers to a topic can make up batches, and the broker checks little of them.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from struct import Struct
from typing import Any

import google_crc32c
import numpy as np
import pyarrow as pa

from kafka_s3_platform.core.codecs.decompression import TooLargeError, decompress_block
from kafka_s3_platform.core.codecs.table import KAFKA_CODECS
from kafka_s3_platform.core.kafka.fetch.kernels import (
    BAD_OFFSETS,
    NO_RECORDS,
    Bytes,
    fill_rows,
    measure_records,
    read_varint,
)
from kafka_s3_platform.core.model.batches import HEADER, NO_TIMESTAMP, RECORD_SCHEMA
from kafka_s3_platform.core.model.connect import Int64s
from kafka_s3_platform.core.model.offsets import TopicPartition

LARGEST_BATCH = 2**31 - 1
"""The most bytes that Arrow's int32 offsets can count."""

# The most bytes of a decompressed control batch. A transaction's marker has a few dozen.
_LARGEST_CONTROL = 65_536

# The approximate bytes that a record and a header take in Arrow, besides their content. A byte that is no UTF-8 becomes
# four, `\xff`.
_ROW_BYTES = 64
_HEADER_BYTES = 16
_ESCAPED = 4

_HEADER = Struct(">qiibIhiqqqhii")
# Positions in a batch's header: the length counts what follows it, the CRC covers what follows it.
_LENGTH_END = 12
_CRC_END = 21
# Bits of a batch's attributes.
_COMPRESSION = 0x07
_LOG_APPEND_TIME = 0x08
_TRANSACTIONAL = 0x10
_CONTROL = 0x20
# The type of a control record: 0 aborts a transaction, 1 commits it.
_ABORT = 0
_PARTS = 5  # what `measure_records` counts: bytes of keys and values, headers, bytes of their names and values


@dataclass(frozen=True, slots=True)
class LogBatch:
    """A record batch of the log, with records still compressed in `body`. `fault` says why not to believe it, if so."""

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


def parse_batches(view: memoryview) -> Iterator[LogBatch]:
    """Yield the complete batches of a fetched piece of the log. A truncated last one is left out.

    Raises ValueError if a batch has a message format other than 2, or is shorter than its header.
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
    """The batches of one answer are in an impossible order."""


def cut_at_fault(batches: Sequence[LogBatch]) -> list[LogBatch]:
    """Return the batches up to the first one with a `fault`, which is taken to end before the next one.

    The caller asks again for the batches after it, because a damaged batch may have ended a transaction. If the damaged
    batch is the last of several, it is left out, and the next answer brings it together with the next ones.

    Raises:
        OutOfOrderError: the batches are not in order.
        ValueError: the end of the damaged batch is unknown.
    """
    for at, batch in enumerate(batches):
        following = batches[at + 1].base_offset if at + 1 < len(batches) else None
        fault = _find_header_fault(batch, following)
        if fault and following is not None:
            return [*batches[:at], replace(batch, last_offset=following - 1, fault=fault)]
        if fault:
            return list(batches[:at]) or [_mark_last(batch, fault)]
    return list(batches)


def _mark_last(batch: LogBatch, fault: str) -> LogBatch:
    """Mark a damaged last batch. Its end is believed only if two parts of its header agree on it."""
    if batch.count < 1 or batch.last_offset != batch.base_offset + batch.count - 1:
        raise ValueError(f"where the batch at offset {batch.base_offset} ends cannot be told: {fault}")
    return replace(batch, fault=fault)


def _find_header_fault(batch: LogBatch, following: int | None) -> str:
    """Return the reason not to believe the header, or "" if there is none. The next batch begins at `following`."""
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
    """Return True if a batch at or past the log's end skips offsets of `[start, end)`.

    No checksum covers a batch's own offset, so a wrong one looks like a hole left by compaction.
    """
    if batches[-1].base_offset < log_end:
        return False
    next_offset = start
    for batch in batches:
        if batch.base_offset >= log_end and next_offset < min(batch.base_offset, end):
            return True
        next_offset = max(next_offset, batch.last_offset + 1)
    return False


def select_committed(batches: Iterable[LogBatch], aborted: Aborted) -> Iterator[LogBatch]:
    """Yield the batches of records outside aborted transactions. `aborted` is from the same fetch."""
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
    """A batch whose records are as its header announces. `weight` is roughly the bytes they take in Arrow."""

    batch: LogBatch
    body: Bytes
    sizes: Int64s
    weight: int


def open_batch(batch: LogBatch, most: int = LARGEST_BATCH) -> OpenedBatch:
    """Decompress the batch to `most` bytes at most, and check it to its last byte. Raise ValueError if it is wrong."""
    body = _read_body(batch, most)
    sizes = np.zeros(_PARTS, np.int64)
    fault = (
        NO_RECORDS
        if batch.count < 0
        else measure_records(body, batch.count, batch.last_offset - batch.base_offset, sizes)
    )
    if fault == BAD_OFFSETS:
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
        raise _make_size_error(most)
    return OpenedBatch(batch, body, sizes, weight)


def _read_body(batch: LogBatch, most: int) -> Bytes:
    """Return the records' bytes, decompressed to at most `most` bytes."""
    data: bytes | memoryview = batch.body
    if number := batch.attributes & _COMPRESSION:
        try:
            data = decompress_block(KAFKA_CODECS[number], data, most)
        except TooLargeError as err:
            raise _make_size_error(most) from err
        except (KeyError, ValueError) as err:
            raise ValueError(f"it cannot be decompressed: {err}") from err
    body: Bytes = np.frombuffer(data, np.uint8)
    body.flags.writeable = False
    return body


def _make_size_error(most: int) -> ValueError:
    return ValueError(
        f"it is compressed, and takes more than the {most:,} bytes that archive.read.max.batch.bytes allows. If its "
        f"records are what they should be, set that key higher"
    )


def _is_abort(batch: LogBatch) -> bool:
    """Return True if a control batch aborts a transaction, by its type: the second int16 of its record's key."""
    body = _read_body(batch, _LARGEST_CONTROL)
    _, at = read_varint(body, 0, len(body))
    at += 1  # the attributes; lengths and deltas before and after are varints
    for _ in range(3):
        _, at = read_varint(body, max(at, 0), len(body))
    return int.from_bytes(body[at + 2 : at + 4].tobytes(), "big") == _ABORT


_HEADERS = RECORD_SCHEMA.field("headers").type


def build_record_batch(tp: TopicPartition, batches: Sequence[OpenedBatch]) -> tuple[pa.RecordBatch, dict[int, str]]:
    """Return the records of `batches`, in their order, as one batch of RECORD_SCHEMA.

    Also return, by offset, how a record differs from the log: header names that are not UTF-8 have escaped bytes.
    Several batches together must not weigh more than LARGEST_BATCH.
    """
    sizes: Int64s = np.array([b.sizes for b in batches]).sum(axis=0)
    columns = _Columns(sum(b.batch.count for b in batches), sizes)
    for opened in batches:
        columns.fill(opened.batch, opened.body)
    return columns.record_batch(tp)


class _Columns:
    """Arrow buffers of their final size (`sizes`, as counted by `measure_records`), filled batch by batch."""

    def __init__(self, rows: int, sizes: Int64s) -> None:
        key_bytes, value_bytes, headers, name_bytes, header_bytes = sizes.tolist()
        self._offsets = np.empty(rows, np.int64)
        self._times = np.empty(rows, np.int64)
        self._types = np.empty(rows, np.int32)
        self._keys = _Strings(rows, key_bytes)
        self._values = _Strings(rows, value_bytes)
        self._names = _Strings(headers, name_bytes)
        self._header_values = _Strings(headers, header_bytes)
        self._header_ends = np.zeros(rows + 1, np.int32)
        self._at = np.zeros(2, np.int64)

    def fill(self, batch: LogBatch, body: Bytes) -> None:
        """Append the records of a batch; `body` is its decompressed bytes."""
        first = int(self._at[0])
        fill_rows(
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
        """Return the filled buffers as one batch of RECORD_SCHEMA, and by offset how a record differs from the log."""
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
        """Return the column of headers (null for none), and by offset the reason for each escaped name."""
        absent = np.diff(self._header_ends) == 0
        if absent.all():
            return pa.nulls(len(absent), _HEADERS), {}
        names, failures = self._texts()
        flat = pa.StructArray.from_arrays([names, self._header_values.array()], fields=list(HEADER))
        headers = pa.ListArray.from_arrays(pa.array(self._header_ends), flat, type=_HEADERS, mask=pa.array(absent))
        return headers, failures

    def _texts(self) -> tuple[pa.Array, dict[int, str]]:
        """Return the header names, and by offset the reason for each escaped one. Few names are distinct."""
        names = self._names.array()
        try:
            return names.cast(pa.string()), {}
        except pa.ArrowInvalid:
            encoded = names.dictionary_encode()
        distinct = encoded.dictionary.to_pylist()
        texts = [name.decode(errors="backslashreplace") for name in distinct]
        escaped = pa.array([t.encode() != n for t, n in zip(texts, distinct, strict=True)])
        at = np.flatnonzero(escaped.take(encoded.indices))
        rows = np.searchsorted(self._header_ends, at, side="right") - 1
        failures = {
            offset: f"a header name is not UTF-8, its bytes are escaped: {name}"
            for offset, name in zip(self._offsets[rows].tolist(), names.take(pa.array(at)).to_pylist(), strict=True)
        }
        return pa.array(texts, pa.string()).take(encoded.indices), failures


class _Strings:
    """The buffers of a binary array: the ends of the values, their validity (False for null), and their bytes."""

    def __init__(self, rows: int, size: int) -> None:
        self._ends = np.zeros(rows + 1, np.int32)
        self._valid = np.empty(rows, np.bool_)
        self._data = np.empty(size, "u1")

    @property
    def buffers(self) -> tuple[Any, Any, Any]:
        return self._ends, self._valid, self._data

    def array(self) -> pa.BinaryArray:
        """Return the filled buffers as an array of Arrow, without copying."""
        rows = len(self._valid)
        nulls = int((~self._valid).sum())
        bits = pa.py_buffer(np.packbits(self._valid, bitorder="little")) if nulls else None
        return pa.Array.from_buffers(
            pa.binary(), rows, [bits, pa.py_buffer(self._ends), pa.py_buffer(self._data)], nulls
        )
