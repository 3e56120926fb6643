"""The index on a real S3: atomic changes, compare-and-swap, errors that say what to do.

What a process keeps of the files of indexes that it has read.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pydantic import SecretStr

from kafka_s3_platform.core.config.settings import StoreSettings
from kafka_s3_platform.core.errors import (
    AuthorizationError,
    IndexConflictError,
    MissingBucketError,
    StoreUnavailableError,
)
from kafka_s3_platform.core.model.frontier import Frontier
from kafka_s3_platform.core.model.gaps import Gap
from kafka_s3_platform.core.model.offsets import RangeSet, make_span
from kafka_s3_platform.core.model.segment import HourRange, Reservation, Scan, TopicAcl, TopicGeneration
from kafka_s3_platform.core.model.times import HOUR, to_epoch_ms
from kafka_s3_platform.core.store import index_reads, index_rows
from kafka_s3_platform.core.store.index import ConnectorIndex, TopicIndex
from kafka_s3_platform.core.store.index_commit import Change, list_topic_rows
from kafka_s3_platform.core.store.index_reads import _RowCache
from kafka_s3_platform.core.store.index_rows import complete_columns, encode_rows
from kafka_s3_platform.core.store.row_filter import EVERY_SEGMENT, RowPredicate, SegmentFilter, match_row, match_run
from kafka_s3_platform_tests.faults.proxy import FaultyProxy
from kafka_s3_platform_tests.store.conftest import flights_of
from kafka_s3_platform_tests.store.rows import segment
from kafka_s3_platform_tests.support import NOON


def scan(start: int, end: int) -> Scan:
    return Scan(0, start, end, end - start, None, 1)


def test_reading_an_index_that_does_not_exist_creates_nothing(index: TopicIndex) -> None:
    assert index.peek() is None
    assert index.peek() is None


def test_of_two_runs_that_create_an_index_one_creates_it_and_both_go_on(
    index: TopicIndex, proxy: FaultyProxy, through: StoreSettings
) -> None:
    with ThreadPoolExecutor() as threads:
        late = proxy.hold_response("GET", r"list-type.*_delta_log/&start-after")
        second = threads.submit(flights_of(through).open)
        assert late.hit.wait(60)
        first = index.open()
        first.commit(Change((scan(0, 10),)))
        late.release()
        assert second.result(60).connector_snapshot.table_id == first.connector_snapshot.table_id
    assert index.open().state.coverage(0) == make_span(0, 10)


def test_an_index_whose_creation_was_not_answered_is_created_once(
    index: TopicIndex, proxy: FaultyProxy, store_settings: StoreSettings
) -> None:
    proxy.lose_response("PUT", r"0{20}\.json")
    assert flights_of(store_settings.model_copy(update={"endpoint_url": proxy.endpoint})).open().version == 0
    assert index.open().version == 0


def test_every_kind_of_row_comes_back_as_it_was_committed(index: TopicIndex) -> None:
    rows = (
        scan(0, 10),
        Gap(0, 10, 12, "retention"),
        Frontier(0, 1, 20, 25, None, NOON),
        HourRange(NOON, 0, 3, 3),
        Reservation(0, 12, 20, "run", 1, NOON),
        TopicGeneration("topic.a", "id", (0, 1), (("retention.ms", "5"),)),
        TopicGeneration("topic.a", "id", (0, 1), (), (TopicAcl("User:a", "*", "READ", "ALLOW"),)),
        TopicGeneration("topic.a", "id", (0, 1), (), ()),
    )
    index.open().commit(Change((*rows, segment("it's/a'key")), run_id="run"))
    state = index.open().state
    assert (*state.scans, *state.gaps, *state.frontiers, *state.hours, *state.reservations, *state.generations) == rows
    assert index.open().segments == (segment("it's/a'key"),)
    assert state.coverage(0) == make_span(0, 12)


def test_a_commit_that_adds_and_removes_is_seen_whole(index: TopicIndex) -> None:
    reserved = Reservation(0, 0, 9, "run", 1, NOON)
    epoch = index.open().commit(Change((reserved,)))
    version = index.open().commit(Change((scan(0, 9),), removed=(match_run(reserved),)))
    state = index.open().state
    assert state.version == version == epoch + 1
    assert state.reservations == ()
    assert state.coverage(0) == make_span(0, 9)


def test_a_commit_changes_twenty_thousand_segments_at_once(index: TopicIndex) -> None:
    """With all their keys in one list, delta-rs ended the process."""
    segments = tuple(replace(segment(f"key-{number}"), start_offset=number) for number in range(21_000))
    index.open().commit(Change(segments))
    index.open().commit(Change(dropped=segments[1:]))
    assert index.open().segments == segments[:1]


@pytest.mark.parametrize("removed", [(), (match_row("reservation", {}),)])
def test_of_two_commits_on_one_version_the_second_is_refused(
    index: TopicIndex, removed: tuple[RowPredicate, ...]
) -> None:
    first, second = index.open(), flights_of(index.within_connector.store).open()
    first.commit(Change((scan(0, 5),)))
    with pytest.raises(IndexConflictError, match="committed by another run"):
        second.commit(Change((scan(0, 5),), removed=removed))
    assert index.open().state.scans == (scan(0, 5),)


def test_a_snapshot_commits_once(index: TopicIndex) -> None:
    snapshot = index.open()
    snapshot.commit(Change((scan(0, 5),)))
    with pytest.raises(IndexConflictError, match="committed on before"):
        snapshot.commit(Change((scan(5, 9),)))


def test_a_commit_is_found_again_by_its_id(index: TopicIndex) -> None:
    index.open().commit(Change((scan(0, 5),)), commit_id="mine")
    whole = index.open().connector_snapshot
    assert whole.has_commit("mine", since=0)
    assert not whole.has_commit("mine", since=1), "it was made before"
    assert not whole.has_commit("another", since=0)


def test_a_segment_is_found_by_the_moment_of_its_commit(index: TopicIndex) -> None:
    """Delta keeps that moment in the bounds of a file by the millisecond only."""
    for name in "abcde":
        index.open().commit(Change((segment(name),)))
    rows = index.open().connector_snapshot.read_segment_rows(index.topic, ["segment"], EVERY_SEGMENT)
    newest = max(rows.column("committed_at").to_pylist())
    [found] = index.open().select_segments(SegmentFilter(committed_since=newest))
    assert found.key == "e"
    assert not index.open().select_segments(SegmentFilter(committed_since=newest + timedelta(microseconds=1)))


def test_schema_ids_are_listed_without_a_segment_in_python(index: TopicIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = {"a": (1, "guid"), "b": (1, "guid"), "c": (2,), "d": ()}
    segments = [replace(segment(key), schema_ids=schema_ids) for key, schema_ids in ids.items()]
    index.open().commit(Change((*segments, replace(segment("e"), schema_ids=(3,)))))
    index.open().commit(Change(retired=(replace(segment("e"), schema_ids=(3,)),)))
    monkeypatch.setattr(index_rows, "_decode_segment", None)
    assert index.open().list_schema_ids() == {1, 2, "guid"}


def test_retired_segments_are_not_live_but_known(index: TopicIndex) -> None:
    index.open().commit(Change((segment("a"), segment("b"))))
    index.open().commit(Change((segment("ab"),), retired=(segment("a"), segment("b"))))
    snapshot = index.open()
    assert [s.key for s in snapshot.segments] == ["ab"]
    assert sorted(s.key for s in snapshot.retired) == ["a", "b"]


def test_many_commits_leave_checkpoints_so_that_an_index_without_upkeep_opens_quickly(index: TopicIndex) -> None:
    for n in range(22):
        index.open().commit(Change((scan(n, n + 1),)))
    table = index.within_connector.table
    keys = [info.key for info in table.objects.list(f"{table.folder}/_delta_log/")]
    assert [key.rpartition("/")[2] for key in keys if key.endswith("checkpoint.parquet")] == [
        f"{version:020d}.checkpoint.parquet" for version in (9, 19)
    ]
    assert index.open().state.coverage(0) == make_span(0, 22)


def test_an_index_that_is_opened_again_reads_only_what_is_new(
    index: TopicIndex, proxy: FaultyProxy, through: StoreSettings
) -> None:
    index.open().commit(Change((scan(0, 5),)))
    kept = flights_of(through)
    first = kept.open()
    assert first.state.coverage(0) == make_span(0, 5)
    index.open().commit(Change((scan(5, 9),)))
    proxy.requests.clear()
    assert kept.open().state.coverage(0) == make_span(0, 9)
    read = {target.rpartition("/")[2] for method, target in proxy.requests if method == "GET"}
    assert {name for name in read if name.endswith(".json")} == {f"{2:020d}.json"}
    assert first.state.coverage(0) == make_span(0, 5)
    with pytest.raises(IndexConflictError):
        first.commit(Change((scan(5, 9),)))


def test_a_snapshot_that_was_not_read_before_its_index_was_opened_again_says_so(index: TopicIndex) -> None:
    first = index.open()
    first.commit(Change((scan(0, 5),)))
    index.open()
    with pytest.raises(IndexConflictError, match="version 0 was opened again before it was read"):
        _ = first.state


def test_the_index_is_readable_by_other_tools(index: TopicIndex) -> None:
    index.open().commit(Change((segment("a"), segment("b", 10, 20))))
    rows: pa.Table = DeltaTable(index.uri, storage_options=index.within_connector.table.options).to_pyarrow_table()
    found = duckdb.execute("select kind, count(*), sum(record_count)::bigint from rows group by kind").fetchall()
    assert rows.num_rows == 2
    assert found == [("segment", 2, 20)]


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"bucket": "no-such-bucket"}, MissingBucketError, "Create bucket no-such-bucket"),
        ({"secret_access_key": SecretStr("not-the-secret")}, AuthorizationError, r"correct aws\.secret\.access\.key"),
        ({"endpoint_url": "http://127.0.0.1:1"}, StoreUnavailableError, "run again when the store answers"),
    ],
)
def test_a_store_that_refuses_is_named_with_what_to_do(
    store_settings: StoreSettings, change: dict[str, Any], error: type[Exception], words: str
) -> None:
    broken = TopicIndex(ConnectorIndex(store_settings.model_copy(update=change), "_index", "c"), "t")
    with pytest.raises(error, match=words) as caught:
        broken.open()
    assert "not-the-secret" not in str(caught.value)
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [(403, "AccessDenied", AuthorizationError), (503, "SlowDown", StoreUnavailableError)],
)
def test_a_store_that_refuses_while_rows_are_read_is_named_too(
    index: TopicIndex, proxy: FaultyProxy, through: StoreSettings, status: int, code: str, kind: type[Exception]
) -> None:
    index.open().commit(Change((scan(0, 10),)))
    proxy.refuse("GET", r"\.parquet", status, code)
    with pytest.raises(kind, match=r"s3://.*/_index/connector=flights"):
        _ = flights_of(through).open().state


def test_a_store_that_does_not_list_a_new_index_is_told_and_a_later_answer_heals(
    index: TopicIndex, proxy: FaultyProxy, through: StoreSettings
) -> None:
    behind = flights_of(through)
    proxy.list_nothing("flights")
    with pytest.raises(StoreUnavailableError, match=r"connector=flights at http.* was created just now, and the store"):
        behind.open()
    proxy.clear()
    assert behind.open().version == 0
    assert index.open().version == 0


def test_an_empty_index_covers_nothing(index: TopicIndex) -> None:
    snapshot = index.open()
    assert snapshot.segments == ()
    assert snapshot.state.coverage(0) == RangeSet()


def test_an_hour_is_not_complete_whose_records_may_lie_out_of_range(index: TopicIndex) -> None:
    """As after `archive.start.hour` was moved back over them."""
    early = NOON - 30 * HOUR
    at = to_epoch_ms(early)
    unplaced = replace(segment("apart", 0, 4), chunk_start=None, start_hour=NOON)
    apart = replace(unplaced, record_count=4, min_timestamp=at, max_timestamp=at + 1)
    looks = (Frontier(0, 0, 10, 10, 0, NOON + HOUR, 1),)
    index.open().commit(Change((scan(0, 10), segment("k", 4), apart, *looks)))
    judge = index.open().state.judge
    hours = [early - HOUR, early, early + HOUR, NOON]
    assert judge.list_complete(hours, timedelta(0)) == {early - HOUR, early + HOUR, NOON}
    assert judge.find_newest_complete(early, early, timedelta(0)) is None
    verdict = judge.find_verdict(early, timedelta(0))
    assert (verdict.is_complete, verdict.out_of_range_count) == (False, 4)
    other = TopicIndex(index.within_connector, "topic.b")
    other.open().commit(Change((scan(0, 10), *looks)))
    assert other.open().state.judge.is_complete(early, timedelta(0))


def test_files_of_few_rows_count_as_what_they_take_and_the_newest_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted were 400 bytes of 59,000: a code server, which reads each commit of each index, grew for ever."""
    monkeypatch.setattr(index_reads, "CACHE_BYTES", 100_000)
    common = {"version": 3, "commit_id": "c", "committed_at": datetime(2026, 1, 1, tzinfo=timezone.utc)}
    rows = complete_columns(encode_rows([list_topic_rows("t", Change((Scan(0, 0, 9, 9, None, 1),)))], common))
    kept = _RowCache()
    for n in range(100):
        kept.put(("index", str(n)), rows)
    found = [n for n in range(100) if kept.find(("index", str(n))) is not None]
    assert 15 < len(found) < 30
    assert found[-1] == 99
    assert kept.find(("index", "99")) == rows
