"""Files of an index are put together, and it answers as before."""

from datetime import date, datetime, timedelta, timezone
from itertools import pairwise

import pyarrow as pa
import pytest

from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.store.index import ConnectorIndex
from kafka_s3_platform.core.store.index_commit import Change
from kafka_s3_platform.core.store.index_files import write_index_files
from kafka_s3_platform.core.store.index_reads import DataFile, list_data_files
from kafka_s3_platform.core.upkeep import index_merge as module
from kafka_s3_platform.core.upkeep.index_merge import FEWEST, MERGE_ROWS, list_merges, merge_files
from kafka_s3_platform_tests.support import NOON
from kafka_s3_platform_tests.upkeep.index.conftest import NewConfig
from kafka_s3_platform_tests.upkeep.index.hours import HOUR, answer_all, archive_hour, make_result, merge_day, reserve

DAY = datetime(2026, 1, 1, tzinfo=timezone.utc)
SOON = date(2026, 1, 4)
LATER = date(2026, 6, 1)


def files_of(config: ConnectorConfig) -> list[DataFile]:
    index = ConnectorIndex.of(config)
    return list(list_data_files(index.table, index.table.open()))


def count_by_period(config: ConnectorConfig) -> dict[str, int]:
    found: dict[str, int] = {}
    for file in files_of(config):
        found[file.period] = found.get(file.period, 0) + 1
    return found


def some_days(config: ConnectorConfig, days: int, kafka_partitions: int = 2) -> None:
    """Days of six hours; all but the last one are merged."""
    for number in range(6 * days):
        day, hour = divmod(number, 6)
        archive_hour(config, DAY + day * 24 * HOUR + hour * HOUR, number, kafka_partitions)
    for day in range(days - 1):
        merge_day(config, config.topics, DAY + day * 24 * HOUR)


def test_an_index_without_commits_has_nothing_to_merge(new_config: NewConfig) -> None:
    config = new_config(1)
    ConnectorIndex.of(config).open()
    assert merge_files(ConnectorIndex.of(config), LATER, dry_run=False).files == 0


@pytest.mark.parametrize("topics", [1, 3])
def test_small_files_of_a_period_are_put_together_and_every_answer_stays(new_config: NewConfig, topics: int) -> None:
    config = new_config(topics)
    some_days(config, 2)
    before = answer_all(config)
    counts = count_by_period(config)
    assert counts["2026-01-02"] == 6

    dry = merge_files(ConnectorIndex.of(config), SOON, dry_run=True)
    assert count_by_period(config) == counts
    report = merge_files(ConnectorIndex.of(config), SOON, dry_run=False)

    assert (report.periods, report.files) == (dry.periods, dry.files)
    assert set(report.periods) == {"2026-01-02", "state"}
    assert count_by_period(config) == {"2026-01-01": 1, "retired-2026-01-01": 1, "2026-01-02": 1, "state": 1}
    assert answer_all(config) == before
    assert merge_files(ConnectorIndex.of(config), SOON, dry_run=False).files == 0


def test_days_of_an_old_month_become_one_file_in_which_everything_is_still_found_and_changed(
    new_config: NewConfig,
) -> None:
    config = new_config(2)
    some_days(config, 3)
    before = answer_all(config)
    report = merge_files(ConnectorIndex.of(config), LATER, dry_run=False)
    assert set(report.periods) == {"2026-01", "retired-2026-01", "state"}
    assert count_by_period(config) == {"2026-01": 1, "retired-2026-01": 1, "state": 1}
    assert answer_all(config) == before
    # a day whose rows lie in the file of its month is merged, and a late hour comes
    merge_day(config, config.topics, DAY + 2 * 24 * HOUR)
    for topic in config.topics:
        found = ConnectorIndex.of(config).open().topic(topic)
        assert {s.chunk for s in found.segments} == {"daily"}
        assert len(found.retired) == 18 * 2
    archive_hour(config, NOON, 18)
    late = merge_files(ConnectorIndex.of(config), LATER, dry_run=False)
    assert "2026-01" in late.periods
    assert count_by_period(config)["2026-01"] == 1
    assert {len(ConnectorIndex.of(config).open().topic(topic).segments) for topic in config.topics} == {7}


def test_only_periods_with_something_to_merge_are_touched() -> None:
    old = [
        DataFile(f"{year}-{month:02d}", 100, 10, f"{year}-{month:02d}")
        for year in range(2021, 2026)
        for month in range(1, 13)
    ]
    recent = [DataFile(f"r{day}", 100, 10, f"2026-05-{day:02d}") for day in range(1, 30)]
    assert list(list_merges([*old, *recent], LATER)) == []
    many = [DataFile(f"x{n}", 100, 10, "2026-05-30") for n in range(FEWEST)]
    [found] = list_merges([*old, *recent, *many], LATER)
    assert (found.period, sorted(file.path for file in found.files)) == ("2026-05-30", sorted(f.path for f in many))
    assert list(list_merges(many[1:], LATER)) == []


def test_large_files_stay_and_a_merge_holds_no_more_rows_than_it_may() -> None:
    large = DataFile("large", 2**30, 10**6, "state")
    small = [DataFile(f"s{n}", 1000, MERGE_ROWS // 8, "state") for n in range(20)]
    found = list(list_merges([large, *small], LATER))
    assert [len(merge.files) for merge in found] == [8, 8, 4]
    assert all(large not in merge.files for merge in found)


def test_new_files_are_cut_by_size_sorted_by_topic_and_say_what_they_hold(
    new_config: NewConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka_s3_platform.core.store.index_files.ROW_GROUP", 8)
    monkeypatch.setattr(module, "WHOLE_FILE_BYTES", 50_000)
    config = new_config(8)
    some_days(config, 2, kafka_partitions=4)
    before = answer_all(config)
    merge_files(ConnectorIndex.of(config), SOON, dry_run=False)
    index = ConnectorIndex.of(config)
    rows = index.table.open().table.get_add_actions(flatten=True)
    found = [
        (row["min.topic"], row["max.topic"], row["num_records"])
        for row in pa.table(rows).to_pylist()
        if row["partition.period"] == "2026-01-02"
    ]
    assert len(found) > 2
    assert sum(count for *_, count in found) == 8 * 4 * 6
    ordered = sorted(found)
    assert all(one[1] <= other[0] for one, other in pairwise(ordered))
    assert answer_all(config) == before


def test_a_run_that_reserved_before_commits_after_a_merge(new_config: NewConfig) -> None:
    config = new_config(2)
    some_days(config, 2)
    leases = reserve(config, DAY + 48 * HOUR, 12)
    merge_files(ConnectorIndex.of(config), SOON, dry_run=False)
    changes = {topic: make_result(lease, DAY + 48 * HOUR, 12) for topic, lease in leases.items()}
    snapshot = ConnectorIndex.of(config).open()
    for topic, lease in leases.items():
        lease.refuse_superseded(snapshot.topic(topic).state)
    snapshot.commit(changes)
    for topic in config.topics:
        state = ConnectorIndex.of(config).open().topic(topic).state
        assert state.coverage(0).end_offset == 130
        assert state.reservations == ()


@pytest.mark.parametrize("touched", [False, True])
def test_a_run_that_commits_meanwhile_wins(
    new_config: NewConfig, monkeypatch: pytest.MonkeyPatch, touched: bool
) -> None:
    """The same new files are committed on its version, unless it took a row out of the old ones."""
    config = new_config(1)
    some_days(config, 1)
    monkeypatch.setattr(module, "FEWEST", 6)  # the state has more files than that, too
    written: list[str] = []

    def write_and_race(*args: object) -> object:
        files = list(write_index_files(*args))  # type: ignore[arg-type]
        if not written:
            written.append("raced")
            if touched:
                merge_day(config, config.topics, DAY)
            else:
                archive_hour(config, DAY + 6 * HOUR, 6)
        return files

    monkeypatch.setattr(module, "write_index_files", write_and_race)
    report = merge_files(ConnectorIndex.of(config), SOON, dry_run=False)
    assert report.overtaken == (("2026-01-01",) if touched else ())
    found = ConnectorIndex.of(config).open().topic("t-0")
    assert len(found.segments) == (2 if touched else 13)
    assert found.state.coverage(0).end_offset == (60 if touched else 70)


def test_rows_of_an_empty_commit_cost_nothing(new_config: NewConfig) -> None:
    config = new_config(1)
    index = ConnectorIndex.of(config)
    for _ in range(6):
        index.open().commit({"t-0": Change()})
    assert index.open().read_all_rows("t-0").num_rows == 0
    assert merge_files(index, LATER + timedelta(days=400), dry_run=False).files == 0
