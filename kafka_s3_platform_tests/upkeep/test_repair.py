"""Indexes with rows of earlier versions that say what cannot be: read without them, and repaired when somebody asks."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from kafka_s3_platform.config.settings import ConnectorConfig, KafkaSettings, StoreSettings
from kafka_s3_platform.store.index import TopicIndex
from kafka_s3_platform.store.index_rows import TABLE_SCHEMA
from kafka_s3_platform.store.sound import BROKEN, DOUBTFUL, FUTURE
from kafka_s3_platform.upkeep.repair import remove_bad_rows
from kafka_s3_platform_tests.cli.conftest import (
    KafkaS3,
    kafka_s3,  # noqa: F401 - a fixture
    parsed,
    write_reachable_connector,
)
from kafka_s3_platform_tests.conftest import CreateTopic
from kafka_s3_platform_tests.support import HOUR, NOON, Sent, archived, connector, produce, snapshot, stored

pytestmark = pytest.mark.integration

NONE = timedelta()
INVALID = {"log_start_offset": -1001, "last_stable_offset": -1001, "high_watermark": -1001}
TEN = {"log_start_offset": 0, "last_stable_offset": 10, "high_watermark": 10}

Given = Mapping[str, Any]


@pytest.fixture
def config(
    kafka_settings: KafkaSettings, store_settings: StoreSettings, topic_name: str, create_topic: CreateTopic
) -> ConnectorConfig:
    """A connector whose topic has ten records of noon and ten of the hour after it; its index is empty."""
    create_topic(topic_name)
    produce(kafka_settings, topic_name, [Sent(timestamp=NOON + n * HOUR) for n in range(2) for _ in range(10)])
    found = connector(kafka_settings, store_settings, topic_name)
    snapshot(found)
    return found


def append(config: ConnectorConfig, rows: Iterable[Given]) -> int:
    """What an earlier version wrote into one commit; its version."""
    index = TopicIndex.of(config, config.topics[0])
    table = DeltaTable(index.uri, storage_options=index.options)
    version = table.version() + 1
    common = {"version": version, "commit_id": f"bad-{version}", "committed_at": NOON, "kafka_partition": 0}
    common |= {"topic": config.topics[0], "period": "state"}
    found = pa.Table.from_pylist([{**common, **row} for row in rows], schema=TABLE_SCHEMA)
    write_deltalake(table, found, mode="append")
    return version


def frontier(at: datetime, offsets: Mapping[str, int]) -> Given:
    return {"kind": "frontier", "observed_at": at, **offsets}


def hour(start: datetime, first: int, end: int) -> Given:
    return {"kind": "hour", "hour": start, "start_offset": first, "end_offset": end}


def bad_look(config: ConnectorConfig) -> int:
    """A broker answered -1001 when the hour after noon was archived: it was complete, and held nothing.

    Then noon was, up to the first record after it.

    The version of the bad rows.
    """
    seen = frontier(datetime.now(timezone.utc) - timedelta(seconds=9), INVALID)
    gap = {"kind": "gap", "start_offset": -9, "end_offset": 0, "reason": "retention"}
    version = append(config, [seen, hour(NOON + HOUR, -1001, -1001), gap])
    assert archived(config, [NOON]).record_count == 10
    return version


def now() -> datetime:
    return datetime.now(timezone.utc).replace(minute=0, second=0, microsecond=0)


def test_bad_rows_are_ignored_told_once_and_their_hour_is_archived_again(
    config: ConnectorConfig, caplog: pytest.LogCaptureFixture
) -> None:
    bad_look(config)
    state = snapshot(config).state
    assert not state.is_scanned(NOON + HOUR)
    assert not state.is_complete(NOON + HOUR, NONE)
    assert snapshot(config).gaps_by_hour() == []
    assert archived(config, [NOON + HOUR]).record_count == 10
    archived(config)
    assert snapshot(config).state.is_complete(NOON + HOUR, NONE)
    assert stored(config).num_rows == 20
    told = [r.getMessage() for r in caplog.records if "rows say what cannot be" in r.getMessage()]
    assert len(told) == 1
    assert "3 rows say what cannot be and are ignored; hours that were complete by them are open again" in told[0]
    assert f"kafka-s3 repair-index c --topic {config.topics[0]}" in told[0]


def test_a_dry_run_says_what_is_bad_and_which_hours_are_open_again_and_writes_nothing(config: ConnectorConfig) -> None:
    version = bad_look(config)
    before = snapshot(config).version
    report = remove_bad_rows(config, config.topics[0], "run", apply=False)
    assert sorted((r.kind, r.version, r.why) for r in report.rows) == [
        ("frontier", version, BROKEN),
        ("gap", version, BROKEN),
        ("hour", version, BROKEN),
    ]
    assert report.reopened == (NOON, NOON + HOUR)
    assert not report.applied
    assert snapshot(config).version == before


def test_applied_exactly_the_bad_rows_go_and_nothing_is_read_otherwise(config: ConnectorConfig) -> None:
    bad_look(config)
    before = snapshot(config)
    assert remove_bad_rows(config, config.topics[0], "run", apply=True).applied
    after = snapshot(config)
    assert after.version == before.version + 1
    assert (after.state.scans, after.state.hours, after.state.frontiers) == (
        before.state.scans,
        before.state.hours,
        before.state.frontiers,
    )
    assert after.segments == before.segments
    assert after.judged().bad.num_rows == 0
    assert remove_bad_rows(config, config.topics[0], "run", apply=True).rows == ()
    assert snapshot(config).version == after.version


def test_an_index_without_bad_rows_and_none_at_all_are_left_alone(config: ConnectorConfig) -> None:
    archived(config)
    version = snapshot(config).version
    report = remove_bad_rows(config, config.topics[0], "run", apply=True)
    assert (report.rows, report.reopened, report.applied) == ((), (), False)
    assert snapshot(config).version == version
    nobody = config.model_copy(update={"name": "nobody"})
    assert remove_bad_rows(nobody, config.topics[0], "run", apply=True).rows == ()
    assert not TopicIndex(config.store, config.archive.index_dir, "nobody", config.topics[0]).exists()


def test_a_run_that_is_at_work_meanwhile_keeps_its_reservation(config: ConnectorConfig) -> None:
    bad_look(config)
    append(
        config,
        [{"kind": "reservation", "start_offset": 10, "end_offset": 20, "run_id": "r", "epoch": 9, "reserved_at": NOON}],
    )
    remove_bad_rows(config, config.topics[0], "run", apply=True)
    assert [r.run_id for r in snapshot(config).state.reservations] == ["r"]


def test_hours_to_come_that_a_clock_a_day_ahead_completed_are_open_again(config: ConnectorConfig) -> None:
    archived(config, [NOON])
    ahead = now() + timedelta(days=1)
    append(config, [frontier(ahead, TEN), hour(now() + 3 * HOUR, 10, 10)])
    state = snapshot(config).state
    assert not state.is_complete(now() + 3 * HOUR, NONE)
    assert not state.is_scanned(now() + 3 * HOUR)
    report = remove_bad_rows(config, config.topics[0], "run", apply=True)
    assert [r.why for r in report.rows] == [FUTURE, DOUBTFUL]
    assert report.reopened == (now() + 3 * HOUR,)
    after = snapshot(config)
    assert after.judged().bad.num_rows == 0
    assert not after.state.is_scanned(now() + 3 * HOUR)
    assert after.state.hour_start(0, now() + 3 * HOUR) == 10


def test_a_look_whose_time_has_come_since_is_found_by_when_the_store_wrote_it(config: ConnectorConfig) -> None:
    seen = frontier(datetime.now(timezone.utc) - HOUR, {**TEN, "log_start_offset": 4})
    append(config, [seen, {"kind": "scan", "start_offset": 4, "end_offset": 10, "record_count": 6, "epoch": 1}])
    index = snapshot(config)
    written = index.judged({1: datetime.now(timezone.utc) - 3 * HOUR})
    assert [r["why"] for r in written.bad.to_pylist()] == [FUTURE]
    assert remove_bad_rows(config, config.topics[0], "run", apply=False).rows == ()


def test_where_the_log_first_began_stays_known_when_its_look_is_removed(config: ConnectorConfig) -> None:
    ahead = datetime.now(timezone.utc) + timedelta(days=1)
    append(config, [frontier(ahead, {**TEN, "log_start_offset": 4})])
    append(config, [frontier(ahead, {**TEN, "log_start_offset": 6})])
    before = snapshot(config).state
    assert len(remove_bad_rows(config, config.topics[0], "run", apply=True).rows) == 2
    after = snapshot(config)
    assert before.promised_start(0, None) == after.state.promised_start(0, None) == 4
    assert len(after.state.frontiers) == 1
    assert after.judged().bad.num_rows == 0


def test_the_command_line_lists_rows_and_hours_and_removes_them_when_asked_to(
    config: ConnectorConfig,
    kafka_s3: KafkaS3,  # noqa: F811 - the fixture
    kafka_settings: KafkaSettings,
    store_settings: StoreSettings,
) -> None:
    write_reachable_connector(kafka_s3, kafka_settings, store_settings, config.topics[0])
    version = bad_look(config)
    said = kafka_s3("repair-index", "c").stdout
    assert f"{config.topics[0]}: 3 bad row(s) ignored; --apply removes them" in said
    assert f"version {version}: gap, kafka partition 0, start_offset -9, end_offset 0: {BROKEN}" in said
    assert "hour 2026-01-01T13:00+0000 was complete by them, and is open again" in said
    [report] = parsed(kafka_s3("repair-index", "c", "--apply", "--json"))["topics"]
    assert report["applied"]
    assert report["reopened"] == ["2026-01-01T12:00:00+00:00", "2026-01-01T13:00:00+00:00"]
    assert {row["kind"] for row in report["rows"]} == {"frontier", "hour", "gap"}
    assert "0 bad row(s)" in kafka_s3("repair-index", "c").stdout
