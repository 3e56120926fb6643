"""Where a group goes on at a restored topic; an approximate place is never called exact."""

from datetime import datetime, timezone

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_s3_platform.errors import PermanentError
from kafka_s3_platform.kafka.groups import Committed
from kafka_s3_platform.model.frontier import Frontier
from kafka_s3_platform.model.offsets import RangeSet, span
from kafka_s3_platform.model.segment import CommittedOffset
from kafka_s3_platform.restore.groups import (
    NO_RUNS,
    GroupBefore,
    Precision,
    Restored,
    Rollback,
    TranslatedOffset,
    restored_count,
    translate,
)

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)


def row(offset: int, kafka_partition: int = 0) -> CommittedOffset:
    return CommittedOffset("g", kafka_partition, offset, "note", 3, "EMPTY", NOW)


def log(start: int = 0, end: int = 1000) -> Frontier:
    return Frontier(0, start, end, end, None, NOW)


def restored(*runs: tuple[int, int, int], complete: RangeSet | None = None, end: int = 100) -> Restored:
    found = np.array(runs, np.int64).T if runs else NO_RUNS
    return Restored(found, span(0, end) if complete is None else complete, end)


def place(offset: int, what: Restored, target: Frontier | None = None, moved: str = "") -> TranslatedOffset:
    [found] = translate([row(offset)], {0: what}, {0: target or log()}, moved)
    return found


def outcome(found: TranslatedOffset) -> tuple[int | None, Precision]:
    return found.target_offset, found.precision


def test_a_record_that_was_restored_is_where_the_group_goes_on() -> None:
    found = place(57, restored((50, 7, 50)))

    assert outcome(found) == (14, Precision.EXACT)
    assert (found.source_offset, found.metadata) == (57, "note")


def test_offsets_that_hold_no_record_are_passed_over_exactly() -> None:
    assert outcome(place(60, restored((50, 7, 10), (62, 18, 38)))) == (18, Precision.EXACT)


def test_records_that_were_left_out_make_it_approximate() -> None:
    found = place(60, restored((50, 7, 10), (62, 18, 38), complete=span(0, 50)))

    assert outcome(found) == (18, Precision.APPROXIMATE)
    assert "where not all was restored: of offsets [60, 62)" in found.reason


def test_an_offset_before_what_was_restored_is_approximate() -> None:
    found = place(3, restored((50, 7, 50), complete=span(50, 100)))

    assert outcome(found) == (7, Precision.APPROXIMATE)
    assert "before what was restored" in found.reason


def test_a_group_that_had_read_everything_goes_on_at_the_end() -> None:
    assert outcome(place(100, restored((50, 7, 50)))) == (57, Precision.EXACT)


def test_a_transactions_end_after_the_last_record_changes_nothing() -> None:
    assert outcome(place(100, restored((50, 7, 49)))) == (56, Precision.EXACT)
    assert outcome(place(99, restored((50, 7, 49)))) == (56, Precision.EXACT)


def test_an_offset_after_what_is_archived_is_approximate() -> None:
    found = place(101, restored((50, 7, 50)))

    assert outcome(found) == (57, Precision.APPROXIMATE)
    assert "after what is archived, which ends at offset 100" in found.reason


def test_an_offset_at_the_end_of_a_window_is_approximate_while_the_archive_goes_on() -> None:
    found = place(60, restored((50, 7, 10), complete=span(50, 60)))

    assert outcome(found) == (17, Precision.APPROXIMATE)
    assert "after what was restored, which ends at offset 60" in found.reason


def test_an_idle_kafka_partition_is_exact_only_in_an_empty_target() -> None:
    assert outcome(place(100, restored(), log(0, 0))) == (0, Precision.EXACT)
    assert outcome(place(0, restored(end=0), log(4, 4))) == (4, Precision.EXACT)
    assert outcome(place(100, restored(), log(0, 5))) == (None, Precision.NONE)
    assert outcome(place(50, restored(complete=RangeSet()), log(0, 0))) == (None, Precision.NONE)


def test_what_the_target_no_longer_holds_is_no_place() -> None:
    found = place(57, restored((50, 7, 50)), log(15, 57))

    assert outcome(found) == (None, Precision.NONE)
    assert "would be target offset 14, and the target holds [15, 57) only" in found.reason


def test_other_kafka_partition_numbers_have_no_translation() -> None:
    found = place(57, restored((50, 7, 50)), moved="records went to other kafka partitions, by murmur2")

    assert outcome(found) == (None, Precision.NONE)
    assert "murmur2" in found.reason


def test_a_kafka_partition_that_the_target_lacks_has_no_translation() -> None:
    [found] = translate([row(5, kafka_partition=7)], {7: restored((0, 0, 9))}, {})

    assert outcome(found) == (None, Precision.NONE)


@given(st.data())
def test_exact_is_only_what_leaves_out_no_unread_record(data: st.DataObject) -> None:
    archived = sorted(data.draw(st.sets(st.integers(0, 30), max_size=20)))
    kept = sorted(data.draw(st.sets(st.sampled_from(archived)))) if archived else []
    committed = data.draw(st.integers(0, 35))
    left_out = [span(o, o + 1) for o in set(archived) - set(kept)]
    complete = span(0, 31)
    for hole in left_out:
        complete -= hole
    what = restored(*((o, 100 + n, 1) for n, o in enumerate(kept)), complete=complete, end=31)

    target, precision = outcome(place(committed, what, log(0, 200) if kept else log(100, 100)))

    unread = [100 + n for n, o in enumerate(kept) if o >= committed]
    if precision is not Precision.NONE:
        assert target == (unread[0] if unread else 100 + len(kept))
    if precision is Precision.EXACT:
        first = kept[len(kept) - len(unread)] if unread else 31
        assert committed <= 31
        assert not [o for o in archived if committed <= o < first]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), max_size=8), st.integers(0, 70), st.integers(0, 70))
def test_restored_records_are_counted_from_the_runs(steps: list[tuple[int, int]], one: int, other: int) -> None:
    runs, at = [], 0
    for gap, count in steps:
        runs.append((at + gap, 0, count))
        at += gap + count
    offsets = [s + n for s, _, count in runs for n in range(count)]
    start, end = sorted((one, other))

    found = restored_count(restored(*runs).runs, start, end)

    assert found == sum(start <= o < end for o in offsets)


def test_the_rollback_file_comes_back() -> None:
    before = {"g": GroupBefore(existed=True, offsets={0: Committed(5, "note"), 1: None})}
    rollback = Rollback("r1", "t", "id", NOW.isoformat(), before)

    assert Rollback.from_json(rollback.to_json()) == rollback


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"groups": {"g": 1}}', b"\xff"])
def test_another_file_is_no_rollback_file(content: bytes) -> None:
    with pytest.raises(PermanentError, match="no rollback file"):
        Rollback.from_json(content)
