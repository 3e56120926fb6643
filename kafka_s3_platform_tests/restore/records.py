"""Records of one kafka partition as plain tuples, as batches, and back."""

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from kafka_s3_platform.connect.restore.outgoing.values import Rewritten, Values
from kafka_s3_platform.core.model.batches import RECORD_SCHEMA

Headers = Sequence[tuple[str, bytes | None]]

SOME_KEY = st.sampled_from([b"", b"a", b"b", b"ab", b"eu-1", b"eu-22", b"\xff", "é".encode()])
KEYS = st.none() | SOME_KEY
STREAMS = st.lists(st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=2)), max_size=8), max_size=6)
"""Keys and values of consecutive batches, some of them empty."""


def batch_of(rows: Iterable[dict[str, Any]]) -> pa.RecordBatch:
    """Rows of RECORD_SCHEMA's names; what is left out has a default."""
    default = {"key": None, "value": b"v", "headers": None, "topic": "t", "partition": 3, "timestampType": 0}
    filled = [default | {"offset": n, "timestamp": 1_000 + n} | row for n, row in enumerate(rows)]
    return pa.RecordBatch.from_pylist([row | {"headers": _headers(row["headers"])} for row in filled], RECORD_SCHEMA)


def _headers(headers: Headers | None) -> list[dict[str, Any]] | None:
    return None if headers is None else [{"key": k, "value": v} for k, v in headers]


def rows_of(batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


def offsets_of(batches: Iterable[pa.RecordBatch]) -> list[int]:
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def stream_of(batches: Sequence[Sequence[tuple[bytes | None, bytes | None]]]) -> list[pa.RecordBatch]:
    """Batches whose offsets ascend with holes."""
    made, offset = [], 5
    for batch in batches:
        rows = [{"key": k, "value": v, "offset": offset + 2 * n, "timestamp": n} for n, (k, v) in enumerate(batch)]
        offset += 2 * len(rows) + 1
        made.append(batch_of(rows))
    return made


def records(values: Sequence[bytes | None], keys: Sequence[bytes | None] | None = None) -> pa.RecordBatch:
    pairs = zip(keys or [b"k"] * len(values), values, strict=True)
    return batch_of(
        {"key": key, "value": value, "offset": 10 + at, "timestamp": at} for at, (key, value) in enumerate(pairs)
    )


def applied(values: Values, batch: pa.RecordBatch) -> Rewritten:
    """The records as they are sent without a transform."""
    if values.changes_nothing:
        return Rewritten(batch)
    outcome = values.decode(batch)
    done = values.encode(outcome.batch)
    return Rewritten(done.batch, (*outcome.failures, *done.failures))
