"""Old rows of a real index are folded: every answer stays, and who asks for no old hour reads no old row."""

import signal
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.errors import IndexConflictError, IndexDamagedError
from kafka_s3_platform.core.model.fold import FEWEST_HOURS
from kafka_s3_platform.core.model.frontier import Frontier
from kafka_s3_platform.core.model.segment import HourRange, Scan
from kafka_s3_platform.core.store.index import ConnectorIndex, ConnectorSnapshot
from kafka_s3_platform.core.store.index_commit import Change
from kafka_s3_platform.core.store.index_files import write_index_files
from kafka_s3_platform.core.store.index_reads import forget_rows, list_data_files
from kafka_s3_platform.core.store.index_rows import IndexRow
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform.core.upkeep import index as module
from kafka_s3_platform.core.upkeep.index import FoldReport, fold_index, keep_up_index
from kafka_s3_platform.core.upkeep.index_merge import merge_files
from kafka_s3_platform_tests.forked import end_apart
from kafka_s3_platform_tests.upkeep.index.conftest import NewConfig, kill_after
from kafka_s3_platform_tests.upkeep.index.hours import HOUR, RECORDS, make_result, make_segment, merge_day, reserve

BEGIN = datetime(2026, 1, 31, tzinfo=timezone.utc)
"""The hours after it lie in two months."""

HOURS = FEWEST_HOURS + 6
NOW = BEGIN + timedelta(days=9)
LATE = timedelta()


def fold(config: ConnectorConfig, dry_run: bool = False, now: datetime = NOW) -> FoldReport:
    return fold_index(ConnectorIndex.of(config), LATE, now, dry_run)


def archive_hours(config: ConnectorConfig, numbers: Sequence[int]) -> None:
    """Commit what hourly runs commit, in one commit."""
    snapshot = ConnectorIndex.of(config).open()
    changes: dict[str, Change] = {}
    for topic in config.topics:
        rows: list[IndexRow] = []
        for number in numbers:
            hour = BEGIN + number * HOUR
            start, end = number * RECORDS, (number + 1) * RECORDS
            rows.append(HourRange(hour, 0, start, end))
            rows.append(Frontier(0, 0, end, end, 1, hour + HOUR, 1))
            rows.append(Scan(0, start, end, RECORDS, 1, snapshot.version + 1, output_count=RECORDS))
            rows.append(make_segment(topic, "hourly", hour, 0, start, end, snapshot.version + 1))
        changes[topic] = Change(tuple(rows), run_id="run")
    snapshot.commit(changes)


def answer_all(config: ConnectorConfig, hours: int = HOURS) -> dict[str, Any]:
    """What a process answers that has read nothing before."""
    forget_rows()
    snapshot = ConnectorIndex.of(config).open()
    found: dict[str, Any] = {}
    asked = [BEGIN + n * HOUR for n in range(-1, hours + 1)]
    for name in snapshot.topics:
        topic = snapshot.topic(name)
        state = topic.state
        every = topic.unfolded_state
        found[name] = {
            "coverage": state.coverage(0),
            "scanned": [state.is_scanned(h) for h in asked],
            "complete": [state.judge.is_complete(h, LATE) for h in asked],
            "starts": [state.hour_start(0, h) for h in asked],
            "verdicts": [state.judge.find_verdict(h, LATE) for h in asked],
            "hours": [state.hour_of(0, o) for o in range(0, hours * RECORDS, 5)],
            "epoch": state.list_epoch_marks(0)[-1:],
            "segments": topic.segments,
            "retired": topic.retired,
            "reservations": state.reservations,
            "every scan": set(every.scans),
            "every look": set(every.frontiers),
            "every hour": set(every.hours),
        }
    return found


def count_by_period(config: ConnectorConfig) -> dict[str, int]:
    index = ConnectorIndex.of(config)
    found: dict[str, int] = {}
    for file in list_data_files(index.table, index.table.open()):
        found[file.period] = found.get(file.period, 0) + file.row_count
    return found


@pytest.mark.parametrize("topics", [1, 3])
def test_old_rows_go_to_their_month_and_every_answer_stays(new_config: NewConfig, topics: int) -> None:
    config = new_config(topics)
    archive_hours(config, range(HOURS))
    merge_day(config, config.topics, BEGIN)
    before = answer_all(config)
    rows = count_by_period(config)
    dry = fold(config, dry_run=True)
    assert count_by_period(config) == rows
    assert answer_all(config) == before

    report = fold(config)

    assert report == dry == FoldReport(topics, topics * HOURS, topics * HOURS * 3)
    after = count_by_period(config)
    # the look after the last hour of January is of February
    assert after["folded-2026-01"] == topics * (24 * 3 - 1)
    assert after["folded-2026-02"] == topics * ((HOURS - 24) * 3 + 1)
    assert after["state"] == rows["state"] - report.rows + topics * 6
    assert answer_all(config) == before
    assert fold(config) == FoldReport()
    assert merge_files(ConnectorIndex.of(config), NOW.date(), dry_run=False).overtaken == ()
    assert answer_all(config) == before


def test_nothing_is_folded_where_nothing_was_archived_or_too_little_or_all_is_young(new_config: NewConfig) -> None:
    config = new_config(1)
    ConnectorIndex.of(config).open()
    assert fold(config) == FoldReport()
    archive_hours(config, range(FEWEST_HOURS - 1))
    assert fold(config) == FoldReport()
    archive_hours(config, range(FEWEST_HOURS - 1, HOURS))
    assert fold(config, now=BEGIN + HOURS * HOUR) == FoldReport()
    assert fold(config).hours == HOURS


def test_what_is_archived_later_is_read_beside_the_fold_and_folded_with_it_another_time(new_config: NewConfig) -> None:
    config = new_config(2)
    archive_hours(config, range(HOURS))
    leases = reserve(config, BEGIN + HOURS * HOUR, HOURS)
    assert fold(config).topics == 2
    # a run that had reserved before commits
    snapshot = ConnectorIndex.of(config).open()
    for topic, lease in leases.items():
        lease.refuse_superseded(snapshot.topic(topic).state)
    snapshot.commit({topic: make_result(lease, BEGIN + HOURS * HOUR, HOURS) for topic, lease in leases.items()})
    archive_hours(config, range(HOURS + 1, 2 * HOURS))
    before = answer_all(config, 2 * HOURS)
    assert all(before["t-1"]["complete"][1:-1])
    state = ConnectorIndex.of(config).open().topic("t-0").state
    assert state.asked_hours == {BEGIN + n * HOUR for n in range(2 * HOURS)}
    again = fold(config)
    assert again.topics == 2
    assert again.hours == 2 * HOURS
    assert answer_all(config, 2 * HOURS) == before
    [run] = ConnectorIndex.of(config).open().topic("t-0").state.fold.hours
    assert run.size == 2 * HOURS


def test_topics_of_a_very_old_index_are_folded_in_several_nights(
    new_config: NewConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = new_config(3)
    archive_hours(config, range(HOURS))
    before = answer_all(config)
    monkeypatch.setattr(module, "MOST_ROWS", HOURS * 3)
    monkeypatch.setattr(module, "FOLD_ROWS", HOURS * 3)
    assert [fold(config).topics for _ in range(4)] == [1, 1, 1, 0]
    assert answer_all(config) == before


def test_a_topic_with_rows_that_cannot_be_true_is_left_and_the_others_are_folded(new_config: NewConfig) -> None:
    config = new_config(2)
    archive_hours(config, range(HOURS))
    bad = Frontier(0, 0, 1, 1, 1, BEGIN)
    object.__setattr__(bad, "high_watermark", -1001)
    ConnectorIndex.of(config).open().commit({"t-0": Change((bad,), run_id="r")})
    assert fold(config).topics == 1
    snapshot = ConnectorIndex.of(config).open()
    with pytest.raises(IndexDamagedError, match=r"frontier of version .*high_watermark -1001"):
        _ = snapshot.topic("t-0").state
    assert snapshot.topic("t-1").state.fold.hours


def test_a_run_that_adds_rows_meanwhile_is_no_hindrance_and_one_that_removes_some_is(
    new_config: NewConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = new_config(1)
    archive_hours(config, range(HOURS))
    leases = reserve(config, BEGIN + HOURS * HOUR, HOURS)
    write = write_index_files
    meanwhile: list[Any] = []

    def written(*args: Any) -> Any:
        while meanwhile:
            meanwhile.pop()()
        return write(*args)

    monkeypatch.setattr(module, "write_index_files", written)
    # ends a reservation, whose row lies in a file that is to be replaced
    result = {topic: make_result(lease, BEGIN + HOURS * HOUR, HOURS) for topic, lease in leases.items()}
    meanwhile.append(lambda: ConnectorIndex.of(config).open().commit(result))
    assert fold(config) == FoldReport(is_overtaken=True)
    before = answer_all(config)
    meanwhile.append(lambda: reserve(config, BEGIN + (HOURS + 1) * HOUR, HOURS + 1))
    assert fold(config).hours == HOURS + 1
    after = answer_all(config)
    assert len(after["t-0"].pop("reservations")) == 1
    assert before["t-0"].pop("reservations") == ()
    added = {key for key in before["t-0"] if before["t-0"][key] != after["t-0"][key]}
    assert added == {"every look", "every hour"}


def test_who_holds_an_older_version_reads_its_months_or_is_told_to_open_the_index_again(new_config: NewConfig) -> None:
    config = new_config(1)
    archive_hours(config, range(HOURS))
    fold(config)
    held = ConnectorIndex.of(config).open()
    archive_hours(config, range(HOURS, 2 * HOURS))
    keep_up_index(config, dry_run=False, retention=timedelta())
    forget_rows()
    with pytest.raises(IndexConflictError, match="Read the index again"):
        held.topic("t-0").state.hour_start(0, BEGIN)
    assert ConnectorIndex.of(config).open().topic("t-0").state.hour_start(0, BEGIN) == 0


def test_a_look_from_the_future_stays_in_the_state_and_tells_nothing(new_config: NewConfig) -> None:
    config = new_config(1)
    archive_hours(config, range(HOURS))
    ahead = Frontier(0, 0, 1, 1, 1, datetime(2090, 1, 1, tzinfo=timezone.utc))
    ConnectorIndex.of(config).open().commit({"t-0": Change((ahead,), run_id="r")})
    before = answer_all(config)
    assert fold(config).topics == 1
    assert answer_all(config) == before
    assert ahead.observed_at in ConnectorIndex.of(config).open().read_state_rows("t-0")["observed_at"].to_pylist()


def _fold_until(config: ConnectorConfig, owner: type, method: str, nth: int) -> None:
    """A fold that is killed."""
    kill_after(owner, method, nth)
    fold(config)


@pytest.mark.parametrize(
    ("owner", "method", "nth", "is_folded"),
    [
        (ObjectStore, "put_new", 1, False),
        (ObjectStore, "put_new", 3, False),
        (ConnectorSnapshot, "commit_by", 1, True),
    ],
)
def test_killed_by_a_signal_it_has_folded_all_or_nothing(
    new_config: NewConfig, owner: type, method: str, nth: int, is_folded: bool
) -> None:
    config = new_config(2)
    archive_hours(config, range(HOURS))
    before = answer_all(config)
    assert end_apart(_fold_until, config, owner, method, nth) == -signal.SIGKILL
    assert answer_all(config) == before
    assert bool(ConnectorIndex.of(config).open().topic("t-0").state.fold.hours) == is_folded
    assert fold(config).topics == (0 if is_folded else 2)
    assert answer_all(config) == before
