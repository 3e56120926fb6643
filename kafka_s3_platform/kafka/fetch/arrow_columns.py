"""Arrow's buffers, filled from record batches."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from kafka_s3_platform.kafka.fetch.kernels import Bytes, fill_rows
from kafka_s3_platform.kafka.fetch.log_batches import _LOG_APPEND_TIME, LogBatch, OpenedBatch
from kafka_s3_platform.model.batches import HEADER, NO_TIMESTAMP, RECORD_SCHEMA
from kafka_s3_platform.model.connect import Int64s
from kafka_s3_platform.model.offsets import TopicPartition

_HEADERS = RECORD_SCHEMA.field("headers").type


def build_record_batch(tp: TopicPartition, batches: Sequence[OpenedBatch]) -> tuple[pa.RecordBatch, dict[int, str]]:
    """Return the records of `batches`, in their order, as one batch of RECORD_SCHEMA.

    Also return, by offset, the difference of a record from the log: header names other than UTF-8 have escaped bytes.
    Several batches together must not weigh more than LARGEST_BATCH.
    """
    sizes: Int64s = np.array([b.sizes for b in batches]).sum(axis=0)
    columns = _Columns(sum(b.batch.count for b in batches), sizes)
    for opened in batches:
        columns.fill(opened.batch, opened.body)
    return columns.record_batch(tp)


class _Columns:
    """Arrow buffers filled batch by batch."""

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
        """Return the header names, and the reason by offset for each escaped one. Few names are distinct."""
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
    """The buffers of a binary array."""

    def __init__(self, rows: int, size: int) -> None:
        self._ends = np.zeros(rows + 1, np.int32)
        self._valid = np.empty(rows, np.bool_)
        self._data = np.empty(size, "u1")

    @property
    def buffers(self) -> tuple[Any, Any, Any]:
        return self._ends, self._valid, self._data

    def array(self) -> pa.BinaryArray:
        rows = len(self._valid)
        nulls = int((~self._valid).sum())
        bits = pa.py_buffer(np.packbits(self._valid, bitorder="little")) if nulls else None
        return pa.Array.from_buffers(
            pa.binary(), rows, [bits, pa.py_buffer(self._ends), pa.py_buffer(self._data)], nulls
        )
