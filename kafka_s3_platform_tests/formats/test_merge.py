"""Objects of a kafka partition merge into one stream in offset order, with little in memory."""

from collections.abc import Generator, Iterator, Sequence
from functools import partial
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_s3_platform.connect.sources.order import CONNECT_STEPS
from kafka_s3_platform.core.errors import IntegrityError
from kafka_s3_platform.core.formats.merge import MergeSource, OffsetMerge, merge_by_offset
from kafka_s3_platform.core.model.batches import BATCH_OFFSETS, RECORD_SCHEMA, cut_batches
from kafka_s3_platform.core.model.connect import ConnectBatch


def records(offsets: Sequence[int], value_bytes: int = 4) -> pa.RecordBatch:
    """Records of `orders-3` whose every column is told by their offset, nulls and empty values among them."""
    rows = [
        {
            "key": None if o % 5 == 0 else b"" if o % 5 == 1 else b"key-%d" % o,
            "value": None if o % 7 == 0 else b"%d" % o * (value_bytes // max(1, len(b"%d" % o))),
            "headers": None if o % 3 == 0 else [{"key": "h", "value": b"%d" % o}, {"key": "h", "value": None}],
            "topic": "orders",
            "partition": 3,
            "offset": o,
            "timestamp": 1_767_225_600_000 + o,
            "timestampType": 0,
        }
        for o in offsets
    ]
    return pa.RecordBatch.from_pylist(rows, schema=RECORD_SCHEMA)


def source(*batches: pa.RecordBatch, start: int | None = None, end: int | None = None) -> MergeSource:
    offsets = [o for batch in batches for o in batch.column("offset").to_pylist()]
    first = offsets[0] if start is None else start
    last = offsets[-1] + 1 if end is None else end
    return MergeSource("k", first, last, lambda: (batch for batch in batches))


def table(batches: Iterator[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(list(batches), RECORD_SCHEMA)


@st.composite
def _sources(draw: st.DrawFn) -> tuple[list[int], list[MergeSource]]:
    """Offsets with holes, dealt to sources, each cut into batches anywhere, empty ones among them."""
    start = draw(st.integers(0, 3 * BATCH_OFFSETS))
    steps = draw(st.lists(st.sampled_from([1, 1, 1, 2, 7, BATCH_OFFSETS]), max_size=60))
    offsets = [start + sum(steps[:n]) for n in range(len(steps))]
    dealt: dict[int, list[int]] = {}
    for offset in offsets:
        dealt.setdefault(draw(st.integers(0, 4)), []).append(offset)
    sources = []
    for held in dealt.values():
        cuts = sorted(draw(st.lists(st.integers(0, len(held)), max_size=4)))
        bounds = [0, *cuts, len(held)]
        batches = [records(held[a:b]) for a, b in pairwise(bounds)]
        sources.append(source(*batches, start=max(0, held[0] - draw(st.integers(0, 3))), end=held[-1] + 1))
    return offsets, draw(st.permutations(sources))


@given(_sources())
def test_every_record_comes_out_once_in_offset_order_with_all_its_columns(
    case: tuple[list[int], list[MergeSource]],
) -> None:
    offsets, sources = case
    assert table(merge_by_offset(sources)).equals(pa.Table.from_batches([records(offsets)], RECORD_SCHEMA))


@given(_sources())
def test_the_bounds_of_batches_depend_on_the_records_alone(case: tuple[list[int], list[MergeSource]]) -> None:
    offsets, sources = case
    merged = [batch.column("offset").to_pylist() for batch in merge_by_offset(sources)]
    assert merged == [batch.column("offset").to_pylist() for batch in cut_batches([records(offsets)])]


def test_a_source_that_overlaps_no_other_is_passed_through_without_copying() -> None:
    alone = records(range(BATCH_OFFSETS))
    (out,) = merge_by_offset([source(alone)])
    assert out.column("value").buffers()[2].address == alone.column("value").buffers()[2].address


def test_a_source_is_opened_when_its_first_offset_is_reached() -> None:
    opened = []

    def later() -> Generator[pa.RecordBatch, None, None]:
        opened.append(True)
        yield records([BATCH_OFFSETS * 2])

    merged = merge_by_offset(
        [
            source(records([0]), records([BATCH_OFFSETS])),
            MergeSource("k", BATCH_OFFSETS * 2, BATCH_OFFSETS * 2 + 1, later),
        ]
    )
    next(merged)
    assert not opened
    assert len(list(merged)) == 2
    assert opened


def test_open_sources_are_closed_when_the_merge_ends_early() -> None:
    closed = []

    def endless() -> Generator[pa.RecordBatch, None, None]:
        try:
            for at in range(1000):
                yield records([at * BATCH_OFFSETS])
        finally:
            closed.append(True)

    merged = merge_by_offset([MergeSource("k", 0, 1000 * BATCH_OFFSETS, endless)])
    next(merged)
    merged.close()  # type: ignore[attr-defined]
    assert closed


def test_memory_is_that_of_the_batches_at_hand() -> None:
    """256 MB from two overlapping sources."""
    batch, count = 1_000_000, 256

    def read(first: int) -> Generator[pa.RecordBatch, None, None]:
        for at in range(first, count, 2):
            yield records([at * 8_192 + 1], value_bytes=batch)

    end = count * 8_192
    before, most = pa.total_allocated_bytes(), 0
    for _ in merge_by_offset([MergeSource("k", n, end, partial(read, n)) for n in (0, 1)]):
        most = max(most, pa.total_allocated_bytes() - before)
    assert most < 20 * batch


def test_an_empty_source_and_no_source_give_nothing() -> None:
    assert list(merge_by_offset([])) == []
    assert list(merge_by_offset([source(start=0, end=5)])) == []


def test_an_offset_held_twice_is_refused_and_named() -> None:
    with pytest.raises(IntegrityError, match="object k: offset 7 is held by another object too"):
        list(merge_by_offset([source(records([1, 7])), source(records([3, 7, 9]))]))


@pytest.mark.parametrize(
    ("objects", "repeated"),
    [
        ([], []),
        ([[[]]], []),
        ([[[1, 2], [3]]], []),
        ([[[1, 2]], [[3]]], []),
        ([[[1, 3], [5]], [[2, 4, 9]]], []),
        ([[[1, 9]], [[2], [3], [], [4, 10]]], []),
        ([[[1, 2, 3]], [[1, 4]]], [(1, [1])]),
        ([[[1, 2]], [[2, 3]], [[2, 3]]], [(1, [2]), (2, [2]), (2, [3])]),
    ],
)
def test_objects_of_the_archive_and_of_others_are_merged_alike(
    objects: list[list[list[int]]], repeated: list[tuple[int, list[int]]]
) -> None:
    again: list[tuple[int, list[int]]] = []
    merge = OffsetMerge(CONNECT_STEPS, lambda key, offsets: again.append((int(key), offsets.tolist())))
    for number, batches in enumerate(objects):
        merge.add(str(number), (ConnectBatch.of(records(batch)) for batch in batches))
    merged = [offset for batch in merge.take_before(None) for offset in batch.offsets.tolist()]
    assert merged == sorted({offset for batches in objects for batch in batches for offset in batch})
    assert again == repeated

    sources = [source(*map(records, batches), start=0, end=20) for batches in objects]
    if repeated:
        with pytest.raises(IntegrityError, match=f"offset {repeated[0][1][0]} is held by another object too"):
            list(merge_by_offset(sources))
    else:
        assert [o for batch in merge_by_offset(sources) for o in batch.column("offset").to_pylist()] == merged


@pytest.mark.parametrize(
    "wrong",
    [
        source(records([1, 3, 2])),
        source(records([1, 1])),
        source(records([4]), records([4])),
        source(records([1, 9]), end=9),
        source(records([1]), start=2, end=9),
    ],
    ids=["descending", "repeated", "repeated across batches", "past the end", "before the start"],
)
def test_a_source_that_breaks_its_promise_is_refused(wrong: MergeSource) -> None:
    with pytest.raises(IntegrityError, match="ascending in"):
        list(merge_by_offset([wrong]))
