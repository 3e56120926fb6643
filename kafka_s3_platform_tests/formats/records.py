"""Records of every kind that Kafka can hold, as batches cut in every way."""

import base64
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from kafka_s3_platform.core.model.batches import RECORD_SCHEMA

Record = dict[str, Any]

GOLDEN_RECORDS: list[Record] = [
    {"key": None, "value": None, "headers": None, "timestamp": -1},
    {"key": b"", "value": b"", "headers": [], "timestamp": 0},
    {"key": b"k", "value": b"\x00\xff", "headers": [{"key": "", "value": b""}], "timestamp": 1_356_998_400_123},
    {
        "key": "ü".encode(),
        "value": b"tombstone follows",
        "headers": [{"key": "a-b", "value": None}, {"key": "a-b", "value": b"2"}, {"key": "ключ", "value": b"1"}],
        "timestamp": 1_356_998_400_000_000,
    },
    {"key": "ü".encode(), "value": None, "headers": None, "timestamp": 1_356_998_400_124},
]

blobs = st.none() | st.binary(max_size=6)
header_lists = st.none() | st.lists(st.fixed_dictionaries({"key": st.text(max_size=3), "value": blobs}), max_size=3)
timestamps = st.sampled_from([-1, 0, 1, 1_356_998_400_000, 1_356_998_400_000_000]) | st.integers(0, 2**45)

records = st.lists(
    st.fixed_dictionaries({"key": blobs, "value": blobs, "headers": header_lists, "timestamp": timestamps}), max_size=30
)


def batch_of(found: Sequence[Record], first_offset: int = 0) -> pa.RecordBatch:
    """Records of the strategy as one batch, with every second offset."""
    rest = {"topic": "t", "partition": 3, "timestampType": 0}
    rows = [{**rest, "offset": first_offset + 2 * i, **record} for i, record in enumerate(found)]
    return pa.RecordBatch.from_pylist(rows, schema=RECORD_SCHEMA)


def rows_of(found: pa.RecordBatch | pa.Table | Iterable[pa.RecordBatch]) -> list[Record]:
    """Every column of every record. Timestamps as epoch ms: Python has no dates after the year 9999."""
    if not isinstance(found, pa.RecordBatch | pa.Table):
        found = pa.Table.from_batches(found, RECORD_SCHEMA)
    at = found.schema.get_field_index("timestamp")
    rows: list[Record] = found.set_column(at, "timestamp", found.column(at).cast(pa.int64())).to_pylist()
    return rows


def cut(batch: pa.RecordBatch, bounds: Sequence[int]) -> list[pa.RecordBatch]:
    """The batch as slices, empty ones among them."""
    ends = [*sorted(min(b, batch.num_rows) for b in bounds), batch.num_rows]
    return [batch.slice(a, b - a) for a, b in zip([0, *ends], ends, strict=False)]


def with_bytes_under_nulls(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same records. Bytes lie in the buffers where key, value or headers are null, which Arrow allows."""
    arrays = [_masked(column) if i < 3 else column for i, column in enumerate(batch.columns)]
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def _masked(column: pa.Array) -> pa.Array:
    filler: Any = [{"key": "under", "value": b"null"}] if pa.types.is_list(column.type) else b"under null"
    full = pa.array([filler if v is None else v for v in column.to_pylist()], column.type)
    validity = column.is_valid().to_pylist()
    bits = bytes(sum(v << i for i, v in enumerate(validity[at : at + 8])) for at in range(0, len(validity), 8))
    buffers = [pa.py_buffer(bits), *full.buffers()[1:]]
    if pa.types.is_list(column.type):
        return pa.Array.from_buffers(column.type, len(full), buffers[:2], children=[full.values])
    return pa.Array.from_buffers(column.type, len(full), buffers)


def describe_as_json(row: Record) -> Record:
    """A record as JSON has it."""

    def text(value: bytes | None) -> str | None:
        return None if value is None else base64.b64encode(value).decode()

    headers = row["headers"] and [{"key": h["key"], "value": text(h["value"])} for h in row["headers"]]
    return {**row, "key": text(row["key"]), "value": text(row["value"]), "headers": headers}
