"""Tasks of a restore: their transactions, reading ahead, checkpoints, and shares of a limit."""

import threading
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_s3_platform.errors import PreflightError, SupersededError
from kafka_s3_platform.kafka.groups import Committed
from kafka_s3_platform.restore.execution import share_out_limit
from kafka_s3_platform.restore.replay.checkpoint import Checkpoint, Position, read_positions
from kafka_s3_platform.restore.replay.task import ReadAhead
from kafka_s3_platform.restore.replay.transactions import METADATA_BYTES, Marker, make_marker_name
from kafka_s3_platform.store.objects import ObjectStore
from kafka_s3_platform_tests.conftest import Lab

OFFSETS = st.integers(0, 2**62)

T = TypeVar("T")

KEY = "_restore/r/0.json"


@given(
    st.text("0123456789abcdef", min_size=64, max_size=64),
    OFFSETS,
    OFFSETS,
    st.dictionaries(st.integers(0, 10_000), OFFSETS, max_size=100),
)
def test_a_marker_comes_back_from_what_the_group_holds(
    digest: str, offset: int, count: int, ends: dict[int, int]
) -> None:
    marker = Marker(digest, offset, count, ends)
    assert marker.committed.offset == offset
    assert Marker.of(marker.committed, digest, "here") == marker


@pytest.mark.parametrize(("kafka_partitions", "fit"), [(200, True), (2000, False)])
def test_ends_are_left_out_where_a_group_s_metadata_cannot_hold_them(kafka_partitions: int, fit: bool) -> None:
    marker = Marker("aa", 5, 3, dict.fromkeys(range(kafka_partitions), 1_000_000))
    assert len(marker.committed.metadata) <= METADATA_BYTES
    assert Marker.of(marker.committed, "aa", "here").target_ends == (marker.target_ends if fit else {})


def test_the_marker_of_another_plan_is_refused() -> None:
    with pytest.raises(PreflightError, match=r"here: the progress marker is that of another plan, aa; .* is bb"):
        Marker.of(Marker("aa", 5, 3).committed, "bb", "here")


@pytest.mark.parametrize(
    "metadata",
    [
        "",
        "[" * 4000,
        '{"plan": "aa", "records": 1e999}',
        '{"plan": "aa", "records": -1}',
        '{"plan": "aa", "records": 3, "ends": {"0": -1}}',
        '{"plan": "aa", "records": 3, "ends": {"-1": 5}}',
        "x" * 4096,
        "{",
        "5",
        "[]",
        '{"plan": "aa"}',
        '{"plan": "aa", "records": "many"}',
        '{"plan": "aa", "records": 3, "ends": 5}',
        '{"plan": "aa", "records": 3, "ends": {"0": null}}',
    ],
)
def test_an_offset_that_something_else_has_committed_is_refused(metadata: str) -> None:
    with pytest.raises(PreflightError, match="is no progress marker"):
        Marker.of(Committed(5, metadata), "aa", "here")


def test_streams_have_names_of_their_own() -> None:
    assert make_marker_name("incident-7", 3, place="0123abcd") == "restore.incident-7@0123abcd.3"
    assert make_marker_name("incident-7", 3, place="0123abcd", topic="a") == "restore.incident-7@0123abcd/a.3"


@contextmanager
def ahead(items: Iterable[T], patience: float | None = None) -> Iterator[Iterator[T | None]]:
    with closing(ReadAhead(items)) as reading:
        yield reading.items(lambda: patience)


def test_items_come_as_they_are_and_none_is_no_end() -> None:
    with ahead(range(5)) as reading:
        assert list(reading) == [0, 1, 2, 3, 4]
    with ahead([], 0.0) as none:
        assert list(none) == []


def test_the_first_item_is_read_before_anybody_asks() -> None:
    first = threading.Event()

    def items() -> Iterator[int]:
        first.set()
        yield 1

    with ahead(items()) as reading:
        assert first.wait(60)
        assert list(reading) == [1]


def test_the_next_item_is_read_while_the_last_is_worked_on() -> None:
    second = threading.Event()

    def items() -> Iterator[int]:
        yield 1
        second.set()
        yield 2

    with ahead(items()) as reading:
        assert next(reading) == 1
        assert second.wait(60)
        assert list(reading) == [2]


def test_a_wait_beyond_patience_is_told_and_the_item_comes_later() -> None:
    arrived = threading.Event()

    def items() -> Iterator[int]:
        yield 1
        assert arrived.wait(60)
        yield 2

    with ahead(items(), 0.01) as reading:
        assert next(reading) == 1
        assert next(reading) is None
        assert next(reading) is None
        arrived.set()
        assert [item for item in reading if item is not None] == [2]


def test_what_reading_raises_is_raised_in_its_place() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise OSError("broken")

    with ahead(items()) as reading:
        assert next(reading) == 1
        with pytest.raises(OSError, match="broken"):
            next(reading)


def test_closed_early_its_thread_ends() -> None:
    before = threading.active_count()
    with ahead(range(1000)) as reading:
        assert next(reading) == 0
    assert threading.active_count() == before


@given(st.floats(0.001, 1e9), st.lists(st.integers(0, 10**12), min_size=1, max_size=20), st.integers(1, 20))
def test_the_tasks_that_run_at_once_never_exceed_the_limit(limit: float, sizes: list[int], at_once: int) -> None:
    found = [s for s in share_out_limit(limit, sizes, at_once) if s is not None]

    assert len(found) == len(sizes)
    assert all(share > 0 for share in found)
    assert sum(sorted(found)[-at_once:]) <= limit * (1 + 1e-9)


def test_tasks_that_run_at_once_end_together_and_use_the_whole_limit() -> None:
    sizes = [900, 90, 10]

    found = share_out_limit(100, sizes, 8)

    assert [size / share for size, share in zip(sizes, found, strict=True) if share] == pytest.approx([10, 10, 10])


def test_tasks_that_follow_each_other_have_equal_shares() -> None:
    assert share_out_limit(100, [900, 90, 10], 2) == [50, 50, 50]


def test_no_limit_is_no_share() -> None:
    assert share_out_limit(None, [1, 2], 2) == [None, None]


def test_a_position_comes_back_and_none_before_the_first(lab: Lab) -> None:
    store = ObjectStore(lab.store)
    checkpoint = Checkpoint(store, KEY, "one")

    assert checkpoint.load() is None
    checkpoint.save(Position(3, 7, 2))
    checkpoint.save(Position(5, 9, 4))

    assert Checkpoint(store, KEY, "two").load() == Position(5, 9, 4)
    assert read_positions(store, [KEY, "_restore/r/1.json"]) == [Position(5, 9, 4), None]


def test_a_run_that_another_one_has_overtaken_is_told_at_its_next_checkpoint(lab: Lab) -> None:
    store = ObjectStore(lab.store)
    older, newer = Checkpoint(store, KEY, "older"), Checkpoint(store, KEY, "newer")
    older.save(Position(0, 0))

    newer.load()
    newer.save(Position(0, 0))

    with pytest.raises(SupersededError, match="another run of this restore id"):
        older.save(Position(5, 5, 5))
    assert newer.load() == Position(0, 0)


def test_two_runs_that_begin_at_once_are_told_apart(lab: Lab) -> None:
    store = ObjectStore(lab.store)
    first, second = Checkpoint(store, KEY, "first"), Checkpoint(store, KEY, "second")
    assert first.load() is second.load() is None
    first.save(Position(0, 0))

    with pytest.raises(SupersededError, match="another run of this restore id"):
        second.save(Position(0, 0))
