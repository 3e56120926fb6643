from collections.abc import Sequence
from datetime import timedelta

import dagster as dg
import pytest
from dagster._core.storage.tags import ASSET_PARTITION_RANGE_END_TAG, ASSET_PARTITION_RANGE_START_TAG

from kafka_s3_platform.cli.runs import convert_metadata
from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.defs.archive.checks import list_index_checks
from kafka_s3_platform.core.defs.topic import list_topic_assets
from kafka_s3_platform.core.instance.work import FAILURE_TAG, find_failure, read_failed
from kafka_s3_platform.core.store.index import ConnectorIndex
from kafka_s3_platform.core.store.index_commit import Change
from kafka_s3_platform.core.store.row_filter import match_segments
from kafka_s3_platform.core.upkeep.compact.days import find_day
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.defs.running import definitions, events, launch, run, tags_of, tick, topic_of
from kafka_s3_platform_tests.support import (
    HOUR,
    NOON,
    Sent,
    archived,
    offsets_by_kafka_partition,
    produce,
    snapshot,
    stored,
)

DAYS = ["2026-01-01", "2026-01-02"]


@pytest.fixture
def config(lab: Lab) -> ConnectorConfig:
    """Two archived days of three hours with one record in each of two kafka partitions."""
    lab.create_topic(kafka_partitions=2)
    times = [NOON + d * timedelta(days=1) + h * HOUR for d in range(2) for h in range(3)]
    lab.produce([Sent(timestamp=t, kafka_partition=p) for t in times for p in (0, 1)])
    made = lab.connector()
    archived(made)
    return made


def test_picked_days_are_merged_in_one_run_and_each_shows_its_own_numbers(config: ConnectorConfig) -> None:
    key = topic_of(config).key("daily")
    found = run(config, "compact__c", key, DAYS)
    assert found.success
    reported = events(found, key)
    assert sorted(map(str, reported)) == DAYS
    for day in DAYS:
        [metadata] = reported[day]
        assert (metadata["partition_row_count"], metadata["objects"]) == (6, 2)
        assert (metadata["merged_objects"], metadata["hourly_objects_left"]) == (6, 0)
        assert all("hour=" not in uri for uri in metadata["uris"])
    assert offsets_by_kafka_partition(stored(config)) == {0: list(range(6)), 1: list(range(6))}


def test_a_day_that_cannot_be_merged_keeps_no_other_from_being_merged_and_shown(
    config: ConnectorConfig, instance: dg.DagsterInstance, lab: Lab
) -> None:
    key = topic_of(config).key("daily")
    bad = next(s for s in snapshot(config).segments if find_day(s) == NOON.date())
    lab.s3.delete_object(Bucket=config.store.bucket, Key=bad.key)
    [asked] = tick(config, "folders__c").run_requests or ()
    found = launch(config, asked)
    assert not found.success
    assert tags_of(found)[FAILURE_TAG] == "permanent"
    [told] = [e.step_failure_data.user_failure_data for e in found.all_events if e.is_step_failure and e.step_key]
    assert told is not None
    assert bad.key in str(told.description)
    live = {(find_day(s), s.chunk) for s in snapshot(config).segments}
    assert live == {(NOON.date(), "hourly"), (NOON.date() + timedelta(days=1), "daily")}
    assert instance.get_materialized_partitions(key) == {DAYS[1]}
    [metadata] = events(found, key)[DAYS[1]]
    assert (metadata["partition_row_count"], metadata["merged_objects"]) == (6, 6)


def test_the_check_of_a_compaction_counts_its_records_again(config: ConnectorConfig) -> None:
    key = topic_of(config).key("daily")
    [early, found] = [run(config, "compact__c", key, days) for days in (DAYS[:1], DAYS[1:])]
    [before] = early.get_asset_check_evaluations()
    assert (before.check_name, before.passed, before.severity) == ("compacted", False, dg.AssetCheckSeverity.WARN)
    assert before.description == "Hourly segments to merge: of 1 past day."
    assert (before.metadata["due_days"].value, before.metadata["counted_days"].value) == (1, 1)
    [after] = found.get_asset_check_evaluations()
    assert (after.check_name, after.passed, after.description) == ("compacted", True, None)


def test_a_day_that_holds_other_counts_than_its_hours_is_an_error(config: ConnectorConfig) -> None:
    key = topic_of(config).key("daily")
    assert run(config, "compact__c", key, DAYS).success
    now = snapshot(config)
    lost = next(s for s in now.segments if find_day(s) == NOON.date())
    now.commit(Change(added=(), removed=(match_segments([lost.key]),)))
    found = run(config, "compact__c", key, DAYS)
    [check] = found.get_asset_check_evaluations()
    assert (check.passed, check.severity) == (False, dg.AssetCheckSeverity.ERROR)
    assert check.description == "Other counts than their hours: 1 day of the run."
    [row] = convert_metadata(check.metadata)["different_counts"]
    assert row == {"day": DAYS[0], "daily_records": 3, "hourly_records": 6}


def test_a_run_merges_the_months_that_are_due_after_its_days(config: ConnectorConfig) -> None:
    key = topic_of(config).key("daily")
    archive = config.archive.model_copy(update={"monthly_segment_bytes": 2**20})
    monthly = config.model_copy(update={"archive": archive})
    for days, rows in ((DAYS, 6), (DAYS[:1], 0)):
        found = run(monthly, "compact__c", key, days)
        assert found.success
        assert {s.chunk for s in snapshot(config).segments} == {"monthly"}
        [check] = found.get_asset_check_evaluations()
        assert (check.passed, check.metadata["counted_days"].value) == (True, len(days))
        [metadata] = events(found, key)[DAYS[0]]
        assert metadata["partition_row_count"] == rows
        assert ("in_month" in metadata) == (rows == 0), "a page does not say that the day holds no record"


@pytest.fixture
def fleet(config: ConnectorConfig, lab: Lab) -> ConnectorConfig:
    """The connector with two more topics, `<topic>-1` with a record on each day, and `<topic>-2` without any."""
    topics = (*config.topics, *(f"{config.topics[0]}-{n}" for n in (1, 2)))
    for topic in topics[1:]:
        lab.create(topic)
    produce(config.kafka, topics[1], [Sent(timestamp=NOON + d * timedelta(days=1)) for d in range(2)])
    archived(config.model_copy(update={"topics": topics[1:2]}))
    return config.model_copy(update={"topics": topics})


def pick(config: ConnectorConfig, topics: Sequence[str], days: Sequence[str]) -> dg.ExecuteInProcessResult:
    """One run of days of topics."""
    keys = [dg.AssetKey(["c", "daily", topic]) for topic in topics]
    checks = [check for key in keys for check in list_index_checks(key)]
    picked = {ASSET_PARTITION_RANGE_START_TAG: days[0], ASSET_PARTITION_RANGE_END_TAG: days[-1]}
    asked = dg.RunRequest(job_name="compact__c", asset_selection=keys, asset_check_keys=checks, tags=picked)
    return launch(config, asked)


@pytest.mark.parametrize("count", [2, 3])
def test_days_of_picked_topics_are_merged_and_shown_by_one_run(
    fleet: ConnectorConfig, instance: dg.DagsterInstance, count: int
) -> None:
    topics = fleet.topics[1:] if count == 2 else fleet.topics
    first = ConnectorIndex.of(fleet).open().version
    found = pick(fleet, topics, DAYS)
    assert found.success
    assert ConnectorIndex.of(fleet).open().version == first + 2
    assert [e.step_key for e in found.all_events if e.is_step_start] == ["daily__c"]
    for topic in list_topic_assets([fleet]):
        shown = instance.get_materialized_partitions(topic.key("daily"))
        assert shown == (set(DAYS) if topic.topic in topics else set())
    rows = {topic: [events(found, dg.AssetKey(["c", "daily", topic]))[day] for day in DAYS] for topic in topics}
    counts = {topic: [metadata["partition_row_count"] for [metadata] in days] for topic, days in rows.items()}
    assert counts == {topic: [{0: 6, 1: 1, 2: 0}[fleet.topics.index(topic)]] * 2 for topic in topics}
    checks = {e.asset_key.path[2]: e.passed for e in found.get_asset_check_evaluations()}
    assert checks == dict.fromkeys(topics, True)


def test_a_topic_that_fails_leaves_the_others_merged_and_shown_and_is_named(
    fleet: ConnectorConfig, instance: dg.DagsterInstance, lab: Lab
) -> None:
    bad = next(s for s in snapshot(fleet).segments if find_day(s) == NOON.date())
    lab.s3.delete_object(Bucket=fleet.store.bucket, Key=bad.key)
    found = pick(fleet, fleet.topics, DAYS)
    assert not found.success
    [told] = [e.step_failure_data.user_failure_data for e in found.all_events if e.is_step_failure and e.step_key]
    assert told is not None
    assert bad.key in str(told.description)
    shown = [instance.get_materialized_partitions(topic.key("daily")) for topic in list_topic_assets([fleet])]
    assert shown == [{DAYS[1]}, set(DAYS), set(DAYS)]
    checks = {e.asset_key.path[2]: e.passed for e in found.get_asset_check_evaluations()}
    assert checks == {fleet.topics[0]: False, fleet.topics[1]: True, fleet.topics[2]: True}
    run = instance.get_run_by_id(found.run_id)
    assert run is not None
    failed = read_failed(run.tags) or {}
    kinds = [find_failure(failed, topic.key("daily")) for topic in list_topic_assets([fleet])]
    assert kinds == ["permanent", None, None]


def test_checks_of_days_are_evaluated_without_merging(fleet: ConnectorConfig, instance: dg.DagsterInstance) -> None:
    job = definitions(fleet).resolve_job_def("compact__c")
    checks = frozenset(check for topic in list_topic_assets([fleet]) for check in list_index_checks(topic.key("daily")))
    found = job.get_subset(asset_selection=frozenset(), asset_check_selection=checks).execute_in_process(
        instance=instance
    )
    due = {e.asset_key.path[2]: e.metadata["due_days"].value for e in found.get_asset_check_evaluations()}
    assert due == dict(zip(fleet.topics, (2, 2, 0), strict=True))
    assert {s.chunk for s in snapshot(fleet).segments} == {"hourly"}
