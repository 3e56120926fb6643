"""Where a group goes on at a restored topic; an approximate place is never called exact."""

from dataclasses import replace
from datetime import datetime, timezone
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_s3_platform.errors import PermanentError
from kafka_s3_platform.kafka.groups import Committed
from kafka_s3_platform.model.frontier import Frontier
from kafka_s3_platform.model.segment import CommittedOffset
from kafka_s3_platform.restore.group_commit import GroupBefore, Rollback
from kafka_s3_platform.restore.group_offsets import (
    NO_DOUBT,
    NO_RUNS,
    Doubt,
    Precision,
    Restored,
    TranslatedOffset,
    count_restored,
    drop_repeats,
    find_absent,
    find_doubled,
    translate_offsets,
)
from kafka_s3_platform.restore.verify.read_back import MappingWriter
from kafka_s3_platform_tests.store.rows import segment

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)


def row(offset: int, kafka_partition: int = 0) -> CommittedOffset:
    return CommittedOffset("g", kafka_partition, offset, "note", 3, "EMPTY", NOW)


def log(start: int = 0, end: int = 1000) -> Frontier:
    return Frontier(0, start, end, end, None, NOW)


def restored(
    *runs: tuple[int, int, int], missing: Doubt = NO_DOUBT, mixed: Doubt = NO_DOUBT, end: int = 100
) -> Restored:
    found = np.array(runs, np.int64).T if runs else NO_RUNS
    return Restored(found, end, missing, mixed)


def place(offset: int, what: Restored, target: Frontier | None = None, moved: str = "") -> TranslatedOffset:
    [found] = translate_offsets([row(offset)], {0: what}, {0: target or log()}, moved)
    return found


def outcome(found: TranslatedOffset) -> tuple[int | None, Precision]:
    return found.target_offset, found.precision


def test_a_record_that_was_restored_is_where_the_group_goes_on() -> None:
    found = place(57, restored((50, 7, 50)))

    assert outcome(found) == (14, Precision.EXACT)
    assert (found.source_offset, found.metadata) == (57, "note")


def test_offsets_that_hold_no_record_are_passed_over_exactly() -> None:
    assert outcome(place(60, restored((50, 7, 10), (62, 18, 38)))) == (18, Precision.EXACT)


def test_what_is_missing_after_the_committed_offset_makes_it_approximate() -> None:
    what = restored((50, 7, 10), (62, 18, 38), missing=(62, "some are missing"))

    assert outcome(place(55, what)) == (12, Precision.APPROXIMATE)
    assert place(61, what).reason == "some are missing"
    assert outcome(place(62, what)) == (18, Precision.EXACT)


def test_what_lies_between_restored_records_makes_all_before_it_approximate() -> None:
    what = restored((50, 7, 10), (60, 18, 40), mixed=(18, "others"))

    assert outcome(place(59, what)) == (16, Precision.APPROXIMATE)
    assert place(59, what).reason == "others"
    assert outcome(place(60, what)) == (18, Precision.EXACT)


def test_a_group_that_had_read_everything_goes_on_at_the_end() -> None:
    assert outcome(place(100, restored((50, 7, 50)))) == (57, Precision.EXACT)


def test_a_transactions_end_after_the_last_record_changes_nothing() -> None:
    assert outcome(place(100, restored((50, 7, 49)))) == (56, Precision.EXACT)
    assert outcome(place(99, restored((50, 7, 49)))) == (56, Precision.EXACT)


def test_an_offset_after_what_is_archived_is_approximate() -> None:
    found = place(101, restored((50, 7, 50)))

    assert outcome(found) == (57, Precision.APPROXIMATE)
    assert "after what is archived, which ends at offset 100" in found.reason


def test_an_idle_kafka_partition_is_exact_only_in_an_empty_target() -> None:
    assert outcome(place(100, restored(), log(0, 0))) == (0, Precision.EXACT)
    assert outcome(place(0, restored(end=0), log(4, 4))) == (4, Precision.EXACT)
    assert outcome(place(100, restored(), log(0, 5))) == (None, Precision.NONE)
    assert outcome(place(50, restored(missing=(60, "m")), log(0, 0))) == (None, Precision.NONE)


def test_what_the_target_no_longer_holds_is_no_place() -> None:
    found = place(57, restored((50, 7, 50)), log(15, 57))

    assert outcome(found) == (None, Precision.NONE)
    assert "would be target offset 14, and the target holds [15, 57) only" in found.reason


def test_other_kafka_partition_numbers_have_no_translation() -> None:
    found = place(57, restored((50, 7, 50)), moved="records went to other kafka partitions, by murmur2")

    assert outcome(found) == (None, Precision.NONE)
    assert "murmur2" in found.reason


def test_a_kafka_partition_that_the_target_lacks_has_no_translation() -> None:
    [found] = translate_offsets([row(5, kafka_partition=7)], {7: restored((0, 0, 9))}, {})

    assert outcome(found) == (None, Precision.NONE)


@given(st.data())
def test_exact_is_only_what_leaves_out_and_doubles_no_unread_record(data: st.DataObject) -> None:
    archived = sorted(data.draw(st.sets(st.integers(0, 30), max_size=20)))
    # as a mapper does it: none of a record, one, or several
    sent = [(o, n) for o in archived for n in range(data.draw(st.sampled_from([0, 1, 1, 1, 2])))]
    cuts = sorted({0, 31, *data.draw(st.sets(st.integers(1, 30), max_size=3))})
    counts = {(a, b): sum(a <= o < b for o in archived) for a, b in pairwise(cuts)}
    objects = [replace(segment("k", a, b), record_count=count) for (a, b), count in counts.items() if count]
    committed = data.draw(st.integers(0, 35))
    writer = MappingWriter()
    for n, (o, _) in enumerate(sent):
        writer.add(*(pa.record_batch({"offset": pa.array([at], pa.int64())}) for at in (o, 100 + n)))
    found = pq.read_table(writer.close()) if sent else None
    runs = np.stack([c.to_numpy() for c in found.columns]) if found else NO_RUNS
    what = Restored(runs, 31, max(find_doubled(runs), find_absent(drop_repeats(runs), objects)))

    target, precision = outcome(place(committed, what, log(0, 200) if sent else log(100, 100)))

    unread = [100 + n for n, (o, _) in enumerate(sent) if o >= committed]
    if precision is not Precision.NONE:
        assert target == (unread[0] if unread else 100 + len(sent))
    if precision is Precision.EXACT:
        assert committed <= 31
        assert [o for o, _ in sent if o >= committed] == [o for o in archived if o >= committed]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), max_size=8), st.integers(0, 70), st.integers(0, 70))
def test_restored_records_are_counted_from_the_runs(steps: list[tuple[int, int]], one: int, other: int) -> None:
    runs, at = [], 0
    for gap, count in steps:
        runs.append((at + gap, 0, count))
        at += gap + count
    offsets = [s + n for s, _, count in runs for n in range(count)]
    start, end = sorted((one, other))

    found = count_restored(restored(*runs).runs, start, end)

    assert found == sum(start <= o < end for o in offsets)


def test_the_rollback_file_comes_back() -> None:
    before = {"g": GroupBefore(existed=True, offsets={0: Committed(5, "note"), 1: None})}
    rollback = Rollback("r1", "t", "id", NOW.isoformat(), before)

    assert Rollback.from_json(rollback.to_json()) == rollback


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"groups": {"g": 1}}', b"\xff"])
def test_another_file_is_no_rollback_file(content: bytes) -> None:
    with pytest.raises(PermanentError, match="no rollback file"):
        Rollback.from_json(content)
