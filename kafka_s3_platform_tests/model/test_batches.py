from collections.abc import Sequence
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_s3_platform.core.model import batches
from kafka_s3_platform.core.model.batches import cut_batches
from kafka_s3_platform_tests.kafka.topics import record_batch

SMALL_OFFSETS = 16
SMALL_BYTES = 10

Record = tuple[int, int]
"""An offset and the size of the value there."""


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "BATCH_OFFSETS", SMALL_OFFSETS)
    monkeypatch.setattr(batches, "BATCH_BYTES", SMALL_BYTES)


@st.composite
def fetched(draw: st.DrawFn) -> tuple[list[Record], list[int]]:
    """Records with increasing offsets, and where the fetches happened to end."""
    steps = draw(st.lists(st.integers(1, 20), min_size=1, max_size=60))
    first = draw(st.integers(0, 40))
    found = [first + sum(steps[:i]) for i in range(len(steps))]
    records = [(offset, draw(st.integers(0, 14))) for offset in found]
    return records, sorted(draw(st.sets(st.integers(1, len(records)))))


def chunks(records: Sequence[Record], ends: Sequence[int]) -> list[pa.RecordBatch]:
    batch = record_batch([{"offset": offset, "value": b"x" * size} for offset, size in records])
    bounds = [0, *ends, len(records)]
    return [batch.slice(a, b - a) for a, b in pairwise(bounds) if a < b]


def cut_offsets(records: Sequence[Record], ends: Sequence[int]) -> list[list[int]]:
    return [part.column("offset").to_pylist() for part in cut_batches(chunks(records, ends))]


def by_the_rule(records: Sequence[Record]) -> list[list[int]]:
    """The rule, one record after the other."""
    out: list[list[int]] = []
    used = 0
    for offset, size in records:
        same_cell = bool(out) and out[-1][-1] // SMALL_OFFSETS == offset // SMALL_OFFSETS
        if same_cell and used + size <= SMALL_BYTES:
            out[-1].append(offset)
            used += size
        else:
            out.append([offset])
            used = size
    return out


@settings(deadline=None)
@given(fetched())
def test_batch_bounds_depend_on_offsets_and_content_never_on_fetches(case: tuple[list[Record], list[int]]) -> None:
    records, ends = case
    assert cut_offsets(records, ends) == by_the_rule(records)


@settings(deadline=None)
@given(fetched())
def test_cutting_loses_nothing_and_keeps_the_order(case: tuple[list[Record], list[int]]) -> None:
    records, ends = case
    assert pa.Table.from_batches(cut_batches(chunks(records, ends))).equals(pa.Table.from_batches(chunks(records, [])))


def test_a_record_larger_than_a_batch_is_a_batch_by_itself() -> None:
    assert cut_offsets([(0, 1), (1, 11), (2, 0), (3, 1)], []) == [[0], [1], [2, 3]]


def test_nothing_is_cut_from_nothing() -> None:
    assert list(cut_batches([])) == []
