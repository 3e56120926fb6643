"""The check `at_risk`: what is late or about to be lost is red, and so is what nobody knows."""

import json
import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import dagster as dg
import pytest

from kafka_s3_platform.core.config.settings import ConnectorConfig, KafkaSettings
from kafka_s3_platform.core.defs.archive.checks import RISK_CHECK, SILENT_METADATA
from kafka_s3_platform.core.defs.topic import TopicAssets
from kafka_s3_platform.core.errors import (
    AuthorizationError,
    BrokerUnavailableError,
    IndexDamagedError,
    PlatformError,
    StoreUnavailableError,
)
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.kafka.answers import Answers
from kafka_s3_platform.core.model.health import Level
from kafka_s3_platform.core.status.backlog import Archived
from kafka_s3_platform.core.status.backlogs import Backlogs
from kafka_s3_platform.core.status.deadline import Deadline
from kafka_s3_platform.core.status.risk import find_risk
from kafka_s3_platform.core.status.topic import ArchivedTopic
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.defs.running import (
    ago,
    connector_of_this_hour,
    definitions,
    evaluated,
    observed,
    pass_minutes,
    tick,
    topic_of,
)
from kafka_s3_platform_tests.faults.proxy import FaultyProxy
from kafka_s3_platform_tests.kafka.answering import NOTHING, answering
from kafka_s3_platform_tests.support import Sent, archived, produce, snapshot

DAY_MS = 86_400_000
WARN, ERROR = dg.AssetCheckSeverity.WARN, dg.AssetCheckSeverity.ERROR


@pytest.fixture
def config(lab: Lab) -> ConnectorConfig:
    """A topic that Kafka keeps for ten days."""
    lab.create_topic(retention_ms=10 * DAY_MS)
    return connector_of_this_hour(lab.kafka, lab.store, lab.topic)


def send_hour(config: ConnectorConfig, hours: int) -> None:
    produce(config.kafka, config.topics[0], [Sent(timestamp=ago(config, hours) + timedelta(minutes=1))])


def changed(config: ConnectorConfig, **archive: Any) -> ConnectorConfig:
    return config.model_copy(update={"archive": config.archive.model_copy(update=archive)})


@pytest.mark.parametrize(
    ("hours", "archive", "severity", "said"),
    [
        (3, {}, None, ""),
        (5, {}, WARN, "ended 4 h"),
        (14, {}, WARN, "ended 13 h"),
        (24 * 4, {"risk_age_warn_ms": 30 * DAY_MS, "risk_age_fail_ms": 30 * DAY_MS}, None, ""),
        (
            24 * 6,
            {"risk_age_warn_ms": 30 * DAY_MS, "risk_age_fail_ms": 30 * DAY_MS},
            WARN,
            "Kafka keeps the oldest for 3 days 23 h more at least: retention.ms is 10 days 0 h.",
        ),
        (
            24 * 8,
            {"risk_age_warn_ms": 30 * DAY_MS, "risk_age_fail_ms": 30 * DAY_MS},
            ERROR,
            "Kafka keeps the oldest for 1 day 23 h more at least: retention.ms is 10 days 0 h.",
        ),
    ],
    ids=["young", "late", "very late, and new here", "kept for long", "half is over", "three quarters are over"],
)
def test_what_is_not_archived_warns_and_fails_by_age_and_time_left(
    config: ConnectorConfig, hours: int, archive: dict[str, int], severity: dg.AssetCheckSeverity | None, said: str
) -> None:
    send_hour(config, hours)
    [found] = evaluated(tick(changed(config, **archive), "lag__c"))
    assert (found.passed, found.severity if severity else None) == (severity is None, severity), found.description
    assert said in (found.description or "")


def test_the_late_hours_of_a_topic_are_no_alarm_in_its_first_half_hour(config: ConnectorConfig) -> None:
    send_hour(config, 20)
    first = tick(config, "lag__c")
    [found] = evaluated(first)
    alarm = r"The topic is new here: it is an alarm if this is still so at \d\d:\d\d UTC\.$"
    assert re.search(alarm, found.description or "")
    soon = tick(config, "lag__c", pass_minutes(first.cursor, 28))
    assert [found.severity for found in evaluated(soon)] == [WARN], "it is told again, and is no alarm yet"
    later = tick(config, "lag__c", pass_minutes(first.cursor, 30))
    assert [found.severity for found in evaluated(later)] == [ERROR]


def test_a_topic_whose_index_is_older_is_not_new_to_a_sensor_without_a_cursor(
    config: ConnectorConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    send_hour(config, 20)
    archived(config, [ago(config, 1)])
    [found] = evaluated(tick(config, "lag__c"))
    assert found.severity == WARN, "its index began a moment ago"
    monkeypatch.setattr("kafka_s3_platform.core.status.risk.FIRST_MINUTES", timedelta())
    [found] = evaluated(tick(config, "lag__c"))
    assert found.severity == ERROR


def test_records_before_the_first_hour_are_at_risk_at_any_moment(config: ConnectorConfig) -> None:
    # Kafka keeps a segment until its newest record is too old. With the old one alone, it would delete it meanwhile.
    old, young = ago(config, 24 * 31), ago(config, 3)
    produce(config.kafka, config.topics[0], [Sent(timestamp=old), Sent(timestamp=young)])
    [found] = evaluated(tick(config, "lag__c"))
    assert (found.passed, found.severity) == (False, ERROR)
    assert found.description == (
        "Records before the first hour are not archived. Kafka may delete the oldest at any moment."
    )


def test_it_is_told_when_it_changes_and_again_while_something_is_at_risk(config: ConnectorConfig) -> None:
    send_hour(config, 5)
    first = tick(config, "lag__c")
    assert [found.passed for found in evaluated(first)] == [False]
    assert [asked.tags.get("dagster/priority") for asked in first.run_requests or ()] == ["1"]
    assert not evaluated(tick(config, "lag__c", first.cursor))
    later = tick(config, "lag__c", pass_minutes(first.cursor, 10))
    assert [found.passed for found in evaluated(later)] == [False]
    archived(config, [ago(config, hour) for hour in range(5, 0, -1)])
    over = tick(config, "lag__c", later.cursor)
    assert [found.passed for found in evaluated(over)] == [True]
    assert not evaluated(tick(config, "lag__c", pass_minutes(over.cursor, 10)))


def test_it_can_be_run_by_hand(config: ConnectorConfig, instance: dg.DagsterInstance) -> None:
    send_hour(config, 5)
    key = dg.AssetCheckKey(topic_of(config).key("kafka"), RISK_CHECK)
    job = definitions(config).resolve_implicit_global_asset_job_def()
    run = job.get_subset(asset_check_selection={key}).execute_in_process(instance=instance)
    [found] = run.get_asset_check_evaluations()
    assert (found.asset_check_key, found.passed, found.severity) == (key, False, WARN)


def test_an_outage_of_kafka_is_red_after_three_ticks_until_it_is_over(
    config: ConnectorConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    cursor = tick(config, "lag__c").cursor
    down = config.model_copy(update={"kafka": KafkaSettings(bootstrap_servers="127.0.0.1:31699")})
    with monkeypatch.context() as patched:
        patched.setattr("kafka_s3_platform.core.defs.archive.lag_sensor.BROKER_SECONDS", 0.5)
        for _ in range(2):
            silent = tick(down, "lag__c", cursor)
            assert not evaluated(silent)
            cursor = silent.cursor
        third = tick(down, "lag__c", cursor)
        [red] = evaluated(third)
        assert (red.passed, red.severity) == (False, ERROR)
        assert "no tick of the last 3 had an answer" in str(red.description)
        with pytest.raises(Exception, match=r"127\.0\.0\.1:31699") as raised:
            tick(down, "lag__c", third.cursor)
        assert isinstance(raised.value, BrokerUnavailableError)
    [over] = evaluated(tick(config, "lag__c", third.cursor))
    assert over.passed


@pytest.mark.parametrize("is_found", [True, False], ids=["of a pattern", "named"])
def test_an_outage_is_over_for_a_topic_that_is_gone(
    config: ConnectorConfig, monkeypatch: pytest.MonkeyPatch, is_found: bool
) -> None:
    """Otherwise the incident of a server that answers again would never end, and would hide what fails later."""
    monkeypatch.setattr("kafka_s3_platform.core.defs.archive.lag_sensor.BROKER_SECONDS", 0.5)
    there, gone = config.topics[0], f"{config.topics[0]}-gone"
    pattern = f"{there}.*" if is_found else None
    config = config.model_copy(update={"topics": (there, gone), "topics_regex": pattern})
    cursor = tick(config, "lag__c").cursor
    down = config.model_copy(update={"kafka": KafkaSettings(bootstrap_servers="127.0.0.1:31699")})
    for _ in range(3):
        silent = tick(down, "lag__c", cursor)
        cursor = silent.cursor
    assert [red.metadata.keys() for red in evaluated(silent)] == [{SILENT_METADATA}] * 2
    up = tick(config, "lag__c", cursor)
    over = {found.asset_key.path[-1]: found for found in evaluated(up)}
    assert over.keys() == {there, gone}
    assert over[there].passed
    assert over[gone].passed == is_found, "a topic of a pattern may be meant to go, and a named one may not"
    assert not over[gone].metadata


def test_a_right_that_is_missing_to_tell_the_risk_is_red(
    config: ConnectorConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    send_hour(config, 2)
    refusal = AuthorizationError("DESCRIBE_CONFIGS is missing")

    def refuse(*_: object) -> None:
        raise refusal

    monkeypatch.setattr(ClusterAdmin, "read_topic_configs", refuse)
    monkeypatch.setattr(ClusterAdmin, "read_topic_configs_of", lambda *_: Answers({}, {}))
    first = tick(config, "lag__c")
    [red] = evaluated(first)
    assert (red.passed, red.severity) == (False, ERROR)
    assert str(refusal) in str(red.description)
    assert tick(config, "lag__c", first.cursor).run_requests, "it is archived all the same"


def test_a_topic_that_alone_gets_no_answer_is_not_green(config: ConnectorConfig, lab: Lab) -> None:
    there, silent = config.topics[0], lab.create(f"{config.topics[0]}-silent")
    config = config.model_copy(update={"topics": (there, silent)})
    cursor = tick(config, "lag__c").cursor
    told: list[list[tuple[str, bool, str]]] = []

    def tick_and_note() -> None:
        nonlocal cursor
        found = tick(config, "lag__c", cursor)
        cursor = found.cursor
        told.append([(e.asset_key.path[-1], bool(e.passed), e.severity.value) for e in evaluated(found)])

    with answering(lambda topic, _, __, true: NOTHING if topic == silent else true):
        for _ in range(5):
            tick_and_note()
    tick_and_note()
    assert told == [[], [], [(silent, False, "WARN")], [], [], [(silent, True, "WARN")]]


def test_the_lag_is_still_told_while_the_store_does_not_answer(
    config: ConnectorConfig, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka_s3_platform.core.defs.tick.TICK_SECONDS", 8.0)
    store = config.store.model_copy(update={"endpoint_url": proxy.endpoint})
    config = config.model_copy(update={"store": store})
    cursor = tick(config, "lag__c").cursor
    for method in ("GET", "HEAD", "PUT"):
        proxy.refuse(method, "", 503, "SlowDown")
    send_hour(config, 0)
    silent = tick(config, "lag__c", cursor)
    [lag] = observed(silent)
    assert (lag.asset_key, lag.metadata["lag"].value) == (topic_of(config).key("kafka"), 1)
    assert not silent.run_requests
    assert json.loads(silent.cursor or "{}")["/silent"] == 1
    proxy.clear()
    assert "/silent" not in json.loads(tick(config, "lag__c", silent.cursor).cursor or "{}")


@pytest.mark.parametrize("days", [3, -3], ids=["ahead", "behind"])
def test_a_clock_that_is_wrong_is_red(config: ConnectorConfig, proxy: FaultyProxy, days: int) -> None:
    """This machine would take what is days late for young."""
    config = config.model_copy(
        update={"store": config.store.model_copy(update={"endpoint_url": proxy.endpoint})},
    )
    proxy.date_shift = timedelta(days=-days)
    [red] = evaluated(tick(config, "lag__c"))
    assert (red.passed, red.severity) == (False, ERROR)
    assert re.search(
        r"How late the archive is, is not known: \[KS-CLOCK\] this machine's clock says", str(red.description)
    )
    proxy.date_shift = timedelta()
    [well] = evaluated(tick(config, "lag__c"))
    assert well.passed


def test_a_record_of_a_far_future_time_hides_no_hour_that_is_late(lab: Lab) -> None:
    """It is archived. What came after the last look, 15 hours ago, is 14 hours old."""
    lab.create_topic(**{"message.timestamp.after.max.ms": 2**60})
    config = connector_of_this_hour(lab.kafka, lab.store, lab.topic)
    produce(config.kafka, config.topics[0], [Sent(timestamp=ago(config, -40 * 24))])
    archived(config)
    send_hour(config, 14)
    state = snapshot(config).state
    [look] = state.frontiers
    stuck = replace(state, frontiers=(replace(look, observed_at=ago(config, 15)),))
    topic = topic_of(config)
    with ClusterAdmin(config.kafka) as admin:
        for _ in range(2):
            found = Backlogs([topic], admin, lambda _: Archived(stuck), Deadline(40.0)).read(topic)
            assert found.oldest_uncovered == ago(config, 14)
            assert find_risk(found).level is Level.FAIL


def test_a_damaged_index_is_not_taken_for_a_silent_store(config: ConnectorConfig, lab: Lab) -> None:
    both = [topic_of(config), TopicAssets(config, lab.create(f"{config.topics[0]}-other"))]
    failures: dict[str, PlatformError] = {}

    def read(topic: ArchivedTopic) -> Archived:
        if topic.topic in failures:
            raise failures[topic.topic]
        return Archived()

    with ClusterAdmin(config.kafka) as admin:
        assert Backlogs(both, admin, read, Deadline(40.0)).read(both[0]).silent_store is None
        failures |= {both[0].topic: IndexDamagedError("no such row"), both[1].topic: StoreUnavailableError("late")}
        found = Backlogs(both, admin, read, Deadline(40.0))
        with pytest.raises(IndexDamagedError):
            found.read(both[0])
        assert found.read(both[1]).silent_store is not None
