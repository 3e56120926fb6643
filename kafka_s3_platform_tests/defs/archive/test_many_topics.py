"""One run of the archive job for many topics: what each shows, and what a failing one does to the others."""

from collections.abc import Iterable, Sequence
from datetime import timedelta

import dagster as dg
import pytest
from confluent_kafka.admin import AdminClient

from kafka_s3_platform.core.archive.request import ArchiveReport, ArchiveRequest
from kafka_s3_platform.core.archive.run import archive_topics
from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.defs.archive.checks import list_index_checks
from kafka_s3_platform.core.defs.failures import FAILURES, RETRIES_TAG
from kafka_s3_platform.core.defs.topic import TopicAssets, list_topic_assets
from kafka_s3_platform.core.errors import BrokerUnavailableError
from kafka_s3_platform.core.instance.work import FAILURE_TAG
from kafka_s3_platform.core.kafka.admin import ClusterAdmin, TopicDescription
from kafka_s3_platform.core.kafka.answers import Answers
from kafka_s3_platform.core.store.index import ConnectorIndex
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.defs.running import ago, connector_of_this_hour, events, launch, tags_of, tick
from kafka_s3_platform_tests.support import InProcessRunner, Sent, produce

Status = dg.DagsterRunStatus


@pytest.fixture
def config(lab: Lab) -> ConnectorConfig:
    """A connector of three topics without records: their runs need no Spark."""
    names = tuple(lab.create(f"{lab.topic}.{n}", 2) for n in range(3))
    return connector_of_this_hour(lab.kafka, lab.store, names[0]).model_copy(update={"topics": names})


def hours_of(config: ConnectorConfig, first: int, last: int) -> dict[str, str]:
    """The tags of a run of the hours from so many before this one to so many before it."""
    hours = list_topic_assets([config])[0].hours
    return {
        "dagster/asset_partition_range_start": hours.key(ago(config, first)),
        "dagster/asset_partition_range_end": hours.key(ago(config, last)),
    }


def run(config: ConnectorConfig, topics: Sequence[TopicAssets], tags: dict[str, str]) -> dg.ExecuteInProcessResult:
    keys = [topic.key("hourly") for topic in topics]
    checks = [check for key in keys for check in list_index_checks(key)]
    asked = dg.RunRequest(job_name="archive__c", asset_selection=keys, asset_check_keys=checks, tags=tags)
    return launch(config, asked)


def shown(found: dg.ExecuteInProcessResult, topics: Sequence[TopicAssets]) -> dict[str, list[str | None]]:
    """The partition keys of each topic's events, an event each."""
    reported = {topic.topic: events(found, topic.key("hourly")) for topic in topics}
    return {name: [key for key, of_key in keys.items() for _ in of_key] for name, keys in reported.items()}


def test_picked_hours_of_picked_topics_are_one_run_and_each_shows_its_own(
    config: ConnectorConfig, instance: dg.DagsterInstance
) -> None:
    topics = list_topic_assets([config])
    for n, topic in enumerate(topics):
        times = [ago(config, hour) + timedelta(minutes=1) for hour in (3, 2, 1) for _ in range(n + 1)]
        produce(config.kafka, topic.topic, [Sent(timestamp=time) for time in times])
    found = run(config, topics[:2], hours_of(config, 3, 1))
    assert found.success
    keys = [topics[0].hours.key(ago(config, hour)) for hour in (3, 2, 1)]
    assert shown(found, topics) == {topics[0].topic: keys, topics[1].topic: keys, topics[2].topic: []}
    for n, topic in enumerate(topics[:2]):
        counts = [ms[0]["partition_row_count"] for ms in events(found, topic.key("hourly")).values()]
        assert counts == [n + 1] * 3
    checks = {(c.asset_key.path[-1], c.check_name): c.passed for c in found.get_asset_check_evaluations()}
    assert checks == {(topic.topic, "archived"): True for topic in topics[:2]}
    logs = instance.all_logs(found.run_id)
    of_topics = [e for e in logs if e.dagster_event and e.dagster_event.asset_key]
    assert len(of_topics) <= 2 * (3 + 3), "a planned materialization and check, the check, and an event an hour"


def test_one_that_fails_leaves_the_others_and_is_told_of_alone(config: ConnectorConfig) -> None:
    there = list_topic_assets([config])
    missing = config.model_copy(update={"topics": (*config.topics, "not-there")})
    topics = list_topic_assets([missing])
    found = run(missing, topics, hours_of(config, 1, 1))
    assert not found.success
    [key] = [topics[0].hours.key(ago(config, 1))]
    assert shown(found, topics) == {**{topic.topic: [key] for topic in there}, "not-there": []}
    [failed] = found.get_step_failure_events()
    data = failed.step_failure_data.user_failure_data
    assert data is not None
    assert str(data.description).startswith("not-there: ")
    told = data.metadata[FAILURES].value
    assert isinstance(told, dict)
    assert list(told) == ["c/hourly/not-there"]
    assert tags_of(found)[FAILURE_TAG] == "permanent"
    assert {c.asset_key.path[-1] for c in found.get_asset_check_evaluations()} == set(config.topics)


def test_what_fails_for_a_while_is_tried_again_alone_and_nothing_is_told_twice(
    config: ConnectorConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka_s3_platform.core.defs.failures.RETRY_SECONDS", 0.01)
    topics = list_topic_assets([config])
    bad, describe, asked = config.topics[1], ClusterAdmin.describe_topics, list[list[str]]()

    def lying(self: ClusterAdmin, topics: Iterable[str]) -> Answers[str, TopicDescription]:
        asked.append(list(topics))
        found = describe(self, asked[-1])
        if len(asked) > 2:
            return found
        err = BrokerUnavailableError(f"topic {bad}: answered offset -1001")
        return Answers({t: d for t, d in found.results.items() if t != bad}, {**found.failures, bad: err})

    monkeypatch.setattr(ClusterAdmin, "describe_topics", lying)
    found = run(config, topics, {RETRIES_TAG: "2", **hours_of(config, 1, 1)})
    assert found.success
    [key] = [topics[0].hours.key(ago(config, 1))]
    assert shown(found, topics) == {topic: [key] for topic in config.topics}
    assert len(found.get_asset_check_evaluations()) == len(topics)
    assert asked == [list(config.topics), [bad], [bad]]
    asked.clear()
    failed = run(config, topics, {RETRIES_TAG: "1", **hours_of(config, 1, 1)})
    assert not failed.success
    assert shown(failed, topics) == {topic: [key] if topic != bad else [] for topic in config.topics}
    assert tags_of(failed)[FAILURE_TAG] == "transient"


def rows_of(config: ConnectorConfig, topics: Sequence[str]) -> dict[str, int]:
    """How many rows the index holds of each topic."""
    whole = ConnectorIndex.of(config).open()
    return {topic: whole.read_all_rows(topic).num_rows for topic in topics}


def test_one_topic_of_ten_fails_is_mended_and_alone_is_tried_again(config: ConnectorConfig, lab: Lab) -> None:
    names = tuple(lab.create(f"{config.topics[0]}.{n}") for n in range(10))
    # a topic of a pattern may be gone: the sensor goes on
    config = config.model_copy(update={"topics": names, "topics_regex": ".*"})
    bad, sound = names[4], [*names[:4], *names[5:]]
    for name in names:
        produce(config.kafka, name, [Sent(timestamp=ago(config, 1) + timedelta(minutes=1))])
    [asked] = tick(config, "lag__c").run_requests or ()
    assert len(asked.asset_selection or ()) == 10
    admin = AdminClient({"bootstrap.servers": config.kafka.bootstrap_servers})
    admin.delete_topics([bad])[bad].result(30)
    failed = launch(config, asked)
    assert not failed.success
    topics = list_topic_assets([config])
    [key] = [topics[0].hours.key(ago(config, 1))]
    assert shown(failed, topics) == {name: [key] if name != bad else [] for name in names}
    before = rows_of(config, sound)
    version = ConnectorIndex.of(config).open().version
    assert version == 2, "one commit of the plans and one of the results"
    assert not tick(config, "lag__c").run_requests
    lab.create(bad)
    produce(config.kafka, bad, [Sent(timestamp=ago(config, 1) + timedelta(minutes=1))])
    [again] = tick(config, "lag__c").run_requests or ()
    assert again.asset_selection == [TopicAssets(config, bad).key("hourly")]
    assert launch(config, again).success
    assert rows_of(config, sound) == before
    assert ConnectorIndex.of(config).open().version == version + 2
    assert not tick(config, "lag__c").run_requests


def test_hours_of_a_run_killed_before_its_events_are_told_by_one_later_run(
    config: ConnectorConfig,
) -> None:
    topics = list_topic_assets([config])
    hours = tuple(ago(config, hour) for hour in (2, 1))
    found = archive_topics([ArchiveRequest(config, t.topic, "killed", hours) for t in topics], InProcessRunner())
    assert all(isinstance(report, ArchiveReport) for report in found.values())
    [asked] = tick(config, "lag__c").run_requests or ()
    assert asked.asset_selection == [topic.key("hourly") for topic in topics]
    reported = launch(config, asked)
    assert reported.success
    keys = [topics[0].hours.key(hour) for hour in hours]
    assert shown(reported, topics) == dict.fromkeys(config.topics, keys)
    assert not tick(config, "lag__c").run_requests


def test_a_check_alone_archives_nothing(config: ConnectorConfig) -> None:
    topics = list_topic_assets([config])
    assert run(config, topics[:1], hours_of(config, 1, 1)).success
    before = topics[0].index.open().version
    asked = dg.RunRequest(
        job_name="archive__c",
        asset_selection=[],
        asset_check_keys=[check for topic in topics for check in list_index_checks(topic.key("hourly"))],
    )
    found = launch(config, asked)
    assert found.success
    told = {c.asset_key.path[-1]: (c.passed, c.description) for c in found.get_asset_check_evaluations()}
    nothing = (True, "Nothing is archived yet.")
    assert told == {config.topics[0]: (True, None), config.topics[1]: nothing, config.topics[2]: nothing}
    assert topics[0].index.open().version == before
