import time
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_s3_platform.core.restore.replay.target_log import SubsequenceMatch
from kafka_s3_platform.core.restore.verify.read_back import MappingWriter
from kafka_s3_platform_tests.restore.records import Headers, batch_of

Row = tuple[bytes | None, bytes | None, Headers | None, int]

ROWS = st.tuples(
    st.sampled_from([None, b"", b"k"]),
    st.sampled_from([None, b"", b"v"]),
    st.sampled_from([None, [("h", None)], [("h", b""), ("h", b"")]]),
    st.sampled_from([-1, 0, 5]),
)
# 7 is no timestamp of ROWS: such a record is never one of the archive's.
FOREIGN: Row = (b"k", b"v", None, 7)


def batches(rows: Sequence[Row], offsets: Sequence[int], size: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(rows), size):
        part = zip(rows[start : start + size], offsets[start : start + size], strict=True)
        names = ("key", "value", "headers", "timestamp")
        yield batch_of(dict(zip(names, row, strict=True)) | {"offset": offset} for row, offset in part)


def pairs(match: SubsequenceMatch) -> list[tuple[int, int]]:
    found = [(a.column("offset").to_pylist(), b.column("offset").to_pylist()) for a, b in match]
    return [pair for sources, targets in found for pair in zip(sources, targets, strict=True)]


@settings(deadline=None)
@given(st.lists(ROWS, max_size=40), st.data())
def test_every_archived_record_is_found_among_foreign_ones(rows: list[Row], data: st.DataObject) -> None:
    archive_size, target_size = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 9))
    before = data.draw(st.lists(st.integers(0, 3), min_size=len(rows) + 1, max_size=len(rows) + 1))
    sources = [3 * n for n in range(len(rows))]
    target: list[Row] = []
    places = []
    for row, foreign in zip(rows, before, strict=False):
        target += [FOREIGN] * foreign
        places.append(len(target))
        target.append(row)
    target += [FOREIGN] * before[-1]

    match = SubsequenceMatch(batches(rows, sources, archive_size), batches(target, range(len(target)), target_size))

    assert pairs(match) == list(zip(sources, places, strict=True))
    assert match.extra_count == sum(before)
    assert match.find_missing() is None


@settings(deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=40), st.data())
def test_a_prefix_in_the_target_ends_where_the_archive_is_missing(rows: list[Row], data: st.DataObject) -> None:
    sent = data.draw(st.integers(0, len(rows) - 1))
    offsets = range(len(rows))

    match = SubsequenceMatch(batches(rows, offsets, 4), batches(rows[:sent], offsets[:sent], 3))

    assert pairs(match) == [(n, n) for n in range(sent)]
    assert match.find_missing() == sent


def test_the_archive_is_not_read_beyond_what_the_target_holds() -> None:
    rows: list[Row] = [(b"k", b"v", None, 1)] * 4

    def archived() -> Iterator[pa.RecordBatch]:
        yield from batches(rows, range(4), 4)
        raise AssertionError("read too far")

    assert len(pairs(SubsequenceMatch(archived(), batches(rows, range(4), 2)))) == 4


def test_a_record_with_any_timestamp_is_found_by_its_content() -> None:
    rows: list[Row] = [(b"a", b"1", None, 5), (b"b", b"2", None, 0), (b"c", b"3", None, 6)]
    target: list[Row] = [(b"a", b"1", None, 5), FOREIGN, (b"b", b"2", None, 99), (b"c", b"3", None, 6)]

    match = SubsequenceMatch(batches(rows, range(3), 9), batches(target, range(4), 9), frozenset({0}))

    assert pairs(match) == [(0, 0), (1, 2), (2, 3)]
    assert match.extra_count == 1


def test_other_content_at_the_same_time_is_foreign() -> None:
    rows: list[Row] = [(b"a", b"1", None, 5)]
    target: list[Row] = [(b"a", None, None, 5), (None, b"1", None, 5), (b"a", b"1", [("h", None)], 5)]

    match = SubsequenceMatch(batches(rows, [8], 1), batches(target, range(3), 3))

    assert pairs(match) == []
    assert (match.extra_count, match.find_missing()) == (3, 8)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), min_size=1, max_size=60), st.integers(1, 7))
def test_the_mapping_gives_back_every_pair_of_offsets_in_the_fewest_runs(
    steps: list[tuple[int, int]], size: int
) -> None:
    sources = [sum(s for s, _ in steps[:n]) for n in range(len(steps))]
    targets = [sum(t for _, t in steps[:n]) for n in range(len(steps))]
    row: Row = (None, None, None, 1)
    writer = MappingWriter()
    rows = [row] * len(steps)
    for source, target in zip(batches(rows, sources, size), batches(rows, targets, size), strict=True):
        writer.add(source, target)

    runs = pq.read_table(pa.BufferReader(writer.close())).to_pylist()

    expanded = [(r["source_offset"] + n, r["target_offset"] + n) for r in runs for n in range(r["count"])]
    assert expanded == list(zip(sources, targets, strict=True))
    assert len(runs) == 1 + sum(step != (1, 1) for step in steps[:-1])


def test_many_foreign_records_of_the_same_time_are_passed_over_quickly() -> None:
    """A dealt or merged target is made of them: at half a millisecond each this took minutes."""
    ours: Row = (b"k", b"v", None, 5)
    others: list[Row] = [(b"k", b"%d" % n, None, 5) for n in range(100_000)]
    target = [*others, ours]
    match = SubsequenceMatch(batches([ours], [0], 1), batches(target, range(len(target)), len(target)))
    begun = time.process_time()
    assert pairs(match) == [(0, 100_000)]
    assert time.process_time() - begun < 10
    assert match.extra_count == 100_000
