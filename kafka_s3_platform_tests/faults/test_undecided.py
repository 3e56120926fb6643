"""A log that is not the archived one any more is red at once, everywhere, until somebody decides."""

import json
from typing import Any

import dagster as dg
import pytest

from kafka_s3_platform.core.archive import observation
from kafka_s3_platform.core.config.settings import ConnectorConfig, KafkaSettings
from kafka_s3_platform.core.errors import LogTruncatedError
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.kafka.record_reader import RecordReader
from kafka_s3_platform.core.model.frontier import Frontier
from kafka_s3_platform.core.model.offsets import RangeSet, make_span
from kafka_s3_platform.core.model.state import IndexState
from kafka_s3_platform.operate.local.settings import StackSettings
from kafka_s3_platform_tests.cli.conftest import KafkaS3, parsed, write_reachable_connector
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.defs.running import ago, connector_of_this_hour, evaluated, observed, tick, topic_of
from kafka_s3_platform_tests.faults.broker import cut_log, kill_broker, start_broker
from kafka_s3_platform_tests.faults.test_truncation import KEPT, fill, plain, reports
from kafka_s3_platform_tests.kafka.topics import until
from kafka_s3_platform_tests.support import Sent, produce, snapshot

ARCHIVED = 10
FATES = {"short": 3, "grown-to-its-end": 5, "grown-past-it": 30, "recreated-short": 6, "recreated-past-it": 30}
"""What became of the log, and how many records came then. The archive reaches offset 10; a log that is cut keeps 5."""

KEPT_LOG = "kept"
"""A topic whose leader changed, and nothing else."""


@pytest.fixture
def config(mortal: StackSettings, lab: Lab, kafka_s3_without_spark: KafkaS3) -> ConnectorConfig:
    """Connector `c`, which has archived ten records of each topic before these fates."""
    kafka = KafkaSettings(bootstrap_servers=mortal.bootstrap_servers)
    topics = {fate: f"{lab.topic}-{fate}" for fate in (*FATES, KEPT_LOG)}
    fill(kafka, dict.fromkeys(topics.values(), plain))
    config = connector_of_this_hour(kafka, lab.store, lab.topic)
    config = config.model_copy(update={"topics": tuple(topics.values())})
    start = config.archive.start_hour.strftime("%Y-%m-%dT%H:%M")
    times = {"archive.start.hour": start, "archive.allowed.lateness.ms": "0"}
    write_reachable_connector(kafka_s3_without_spark, kafka, lab.store, ",".join(config.topics), **times)
    assert {report.record_count for report in reports(config).values()} == {ARCHIVED}
    kill_broker(mortal)
    for fate in ("short", "grown-to-its-end", "grown-past-it"):
        cut_log(mortal, topics[fate], KEPT)
    start_broker(mortal)
    with ClusterAdmin(kafka) as admin:
        for fate in ("recreated-short", "recreated-past-it"):
            recreate(admin, topics[fate])
    for fate, count in FATES.items():
        produce(kafka, topics[fate], [Sent(timestamp=ago(config, 0))] * count)
    return config


def refuse(*_: object, **__: object) -> RecordReader:
    raise AssertionError("no log is to be asked")


def recreate(admin: ClusterAdmin, topic: str) -> None:
    admin.ask(lambda client, timeout: client.delete_topics([topic], request_timeout=timeout)[topic], "deleting")
    until(lambda: not admin.topic_exists(topic))
    admin.create_topic(topic, 1)


def fate_of(topic: str) -> str:
    return topic.split("-", 2)[2]


def look(kafka_s3: KafkaS3, status: int) -> dict[str, dict[str, Any]]:
    """What `health` tells of each topic, by its fate."""
    found = kafka_s3("health", "--json")
    assert found.returncode == status, found.stdout
    [connector] = json.loads(found.stdout)["connectors"]
    assert connector["is_well"] == (status == 0)
    return {fate_of(topic["topic"]): topic for topic in connector["topics"]}


def test_lag_risk_and_health_are_red_at_once_and_well_again_after_the_decision(
    config: ConnectorConfig, kafka_s3_without_spark: KafkaS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = look(kafka_s3_without_spark, 1)
    kept = told.pop(KEPT_LOG)
    assert (kept["is_well"], kept["lag"], kept["at_risk"]) == (True, 0, "no")
    for fate, topic in told.items():
        assert (topic["is_well"], topic["at_risk"], topic["lag"]) == (False, "yes", None), fate
        assert topic["retention_left_seconds"] is None
        # what it means and what to do
        assert "Until somebody decides, not archived: 1 kafka partition.\n[KS-KAFKA-" in topic["at_risk_says"]
        if "recreated" in fate:
            assert topic["at_risk_says"].endswith("lest its offsets and objects mix with the old ones")
        else:
            command = f"kafka-s3 resolve c --topic {topic['topic']} --kafka-partition 0 --accept-truncation"
            assert topic["at_risk_says"].endswith(command)
    page = kafka_s3_without_spark("health").stdout
    assert page.count("resolve c --topic") == 3

    # The look of `health` asked the logs in this process. Until their leaders change, no tick asks them again.
    monkeypatch.setattr(observation, "new_reader", refuse)
    first = tick(config, "lag__c")
    monkeypatch.undo()
    checks = {fate_of(check.asset_key.path[2]): check for check in evaluated(first)}
    assert {fate: check.passed for fate, check in checks.items()} == dict.fromkeys(FATES, False) | {KEPT_LOG: True}
    assert {checks[fate].severity for fate in FATES} == {dg.AssetCheckSeverity.ERROR}
    lags = {fate_of(each.asset_key.path[2]): each.metadata for each in observed(first)}
    assert {fate for fate, metadata in lags.items() if "lag" in metadata} == {KEPT_LOG}
    # a run of the others would fail
    asked = {key for request in first.run_requests or () for key in request.asset_selection or ()}
    assert {fate_of(key.path[2]) for key in asked} == {KEPT_LOG}

    short = ["--topic", told["short"]["topic"], "--kafka-partition", "0", "--accept-truncation"]
    said = kafka_s3_without_spark("resolve", "c", *short, "--dry-run").stdout
    assert "3 offsets of the log left out of the archive, and so the next 2 that are written, up to offset 10\n" in said
    unarchived = {"short": (3, 2), "grown-to-its-end": (5, 0), "grown-past-it": (5, 0)}
    for fate, (count, later) in unarchived.items():
        place = ["--topic", told[fate]["topic"], "--kafka-partition", "0"]
        report = parsed(kafka_s3_without_spark("resolve", "c", *place, "--accept-truncation", "--json"))
        [gap] = report["gaps"]
        assert (gap["start_offset"], gap["end_offset"], gap["reason"]) == (KEPT, ARCHIVED, "truncated")
        assert (report["offset_count"], report["later_count"], report["is_start_exact"]) == (count, later, True)
    decided = look(kafka_s3_without_spark, 1)
    assert {fate: topic["lag"] for fate, topic in decided.items()} == {
        "short": 0,
        "grown-to-its-end": 0,
        "grown-past-it": 25,
        "recreated-short": None,
        "recreated-past-it": None,
        KEPT_LOG: 0,
    }
    assert {fate for fate, topic in decided.items() if topic["at_risk"] == "no"} == {*unarchived, KEPT_LOG}


def test_one_that_was_truncated_is_red_while_the_others_are_archived(mortal: StackSettings, lab: Lab) -> None:
    kafka = KafkaSettings(bootstrap_servers=mortal.bootstrap_servers)
    with ClusterAdmin(kafka) as admin:
        admin.create_topic(lab.topic, 2)
    plain(kafka, lab.topic)
    config = connector_of_this_hour(kafka, lab.store, lab.topic)
    reports(config)
    kill_broker(mortal)
    cut_log(mortal, lab.topic, KEPT)
    start_broker(mortal)
    produce(kafka, lab.topic, [Sent(timestamp=ago(config, 2), kafka_partition=1)] * 4)
    first = tick(config, "lag__c")
    [check] = evaluated(first)
    assert (check.passed, check.severity) == (False, dg.AssetCheckSeverity.ERROR)
    assert f"{lab.topic}-0: the archive reaches offset 10, the log is readable up to 5" in str(check.description)
    # the other one is archived, by one run for the hours that were never asked for
    assert first.run_requests
    with pytest.raises(LogTruncatedError):
        reports(config)
    assert snapshot(config).state.coverage(1) == make_span(0, 4)
    later = tick(config, "lag__c", first.cursor)
    assert all(not each.passed for each in evaluated(later))
    assert topic_of(config).topic == lab.topic


def test_what_was_seen_and_lost_before_it_was_archived_is_told_by_the_last_look(
    mortal: StackSettings, lab: Lab
) -> None:
    """Planning saw ten records, the run was killed, and the log lost five: others lie there now."""
    kafka = KafkaSettings(bootstrap_servers=mortal.bootstrap_servers)
    fill(kafka, {lab.topic: plain})
    config = connector_of_this_hour(kafka, lab.store, lab.topic)
    with ClusterAdmin(kafka) as admin:
        [seen] = admin.frontiers(lab.topic, [0]).values()
        kill_broker(mortal)
        cut_log(mortal, lab.topic, KEPT)
        start_broker(mortal)
    for count, end in ((0, KEPT), (3, KEPT + 3), (30, KEPT + 33)):
        produce(kafka, lab.topic, [Sent()] * count)
        with ClusterAdmin(kafka) as admin:
            [frontier] = admin.frontiers(lab.topic, [0]).values()
        assert frontier.high_watermark == end
        assert find_cut_off(config, seen, frontier) == make_span(KEPT, ARCHIVED)
    assert find_cut_off(config, frontier, frontier) == RangeSet()


def find_cut_off(config: ConnectorConfig, seen: Frontier, now: Frontier) -> RangeSet:
    state = IndexState(frontiers=(seen,))
    with observation.open_divergence_finder(config.kafka, config.topics[0]) as find_divergence:
        logs = observation.ArchivedLogs(config, config.topics[0], state, find_divergence)
        return RangeSet(gap.offsets for gap in logs.find_cut_off({0: now}).all_or_raise().get(0, ()))
