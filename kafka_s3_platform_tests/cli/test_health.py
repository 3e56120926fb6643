"""`kafka-s3 health`: one table that tells what is late, what is at risk, and what nobody knows."""

import json
from datetime import timedelta
from typing import Any

import dagster as dg
import pytest

from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform_tests.cli.conftest import (
    KafkaS3,
    connect_late_topic,
    make_environment,
    parsed,
    write_connector,
    write_reachable_connector,
)
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.defs.running import ago, run, topic_of
from kafka_s3_platform_tests.support import Sent, archived, produce


@pytest.fixture
def config(kafka_s3_without_spark: KafkaS3, lab: Lab) -> ConnectorConfig:
    """Connector `c` with a topic that has a record of five hours ago, and one of this hour."""
    return connect_late_topic(kafka_s3_without_spark, lab.kafka, lab.store, lab.create_topic(), 5)


def test_a_late_topic_is_at_risk_until_it_is_archived(kafka_s3_without_spark: KafkaS3, config: ConnectorConfig) -> None:
    late = kafka_s3_without_spark("health", "--json")
    [connector] = json.loads(late.stdout)["connectors"]
    [topic] = connector["topics"]
    assert (late.returncode, connector["is_well"], connector["error"]) == (1, False, None)
    assert (topic["at_risk"], topic["lag"], topic["newest_complete_hour"]) == ("soon", 2, None)
    assert topic["oldest_incomplete_hour"] == ago(config, 5).isoformat()
    assert timedelta(hours=4) < timedelta(seconds=topic["oldest_incomplete_age_seconds"]) < timedelta(hours=5)
    assert "ended 4 h" in topic["at_risk_says"]
    said = kafka_s3_without_spark("health", "c").stdout.splitlines()
    assert (said[0], said[2].split()[:2], said[2].split()[-1]) == (
        "hours of UTC",
        ["soon", "2"],
        f"c/{config.topics[0]}",
    )
    assert [len(line) <= 84 + len(f"c/{config.topics[0]}") for line in said[1:3]] == [True, True]
    assert f"c/{config.topics[0]}: {topic['at_risk_says']}" in said

    archived(config)
    [connector] = parsed(kafka_s3_without_spark("health", "--json"))["connectors"]
    [topic] = connector["topics"]
    assert (topic["at_risk"], topic["lag"], topic["oldest_incomplete_hour"]) == ("no", 0, None)
    assert topic["newest_complete_hour"] == ago(config, 1).isoformat()
    assert topic["last_proven"] is None, "that all is archived is no proof that it comes back"


def test_what_cannot_be_looked_at_stops_no_other_connector(
    kafka_s3_without_spark: KafkaS3, config: ConnectorConfig
) -> None:
    folder = kafka_s3_without_spark.folder / "connectors"
    given = json.loads((folder / "c.json").read_text())
    others: dict[str, dict[str, str]] = {
        "cluster": {"kafka.endpoint": "127.0.0.1:31699"},
        "store": {"store.url": "http://127.0.0.1:31698"},
        "file": {"flush.size": "1k"},
    }
    for name, keys in others.items():
        (folder / f"{name}.json").write_text(json.dumps({**given, "name": name, "topics.dir": name, **keys}))
    found = kafka_s3_without_spark("health", "--json")
    told: dict[str, dict[str, Any]] = {each["connector"]: each for each in json.loads(found.stdout)["connectors"]}
    assert found.returncode == 1
    assert told["c"]["topics"][0]["lag"] == 2
    assert "31698" in told["store"]["topics"][0]["store_error"]
    assert told["store"]["topics"][0]["lag"] is None
    assert "31699" in told["cluster"]["topics"][0]["kafka_error"]
    assert told["cluster"]["topics"][0]["unresolved_offsets"] == 0, "what is archived is known all the same"
    assert "'1k' is no whole number" in told["file"]["error"]
    assert told["file"]["topics"] == []


def test_the_run_that_failed_last_is_told_with_its_error(
    kafka_s3_without_spark: KafkaS3, config: ConnectorConfig
) -> None:
    absent = config.model_copy(update={"topics": (f"{config.topics[0]}-absent",)})
    hour = topic_of(config).hours.key(ago(config, 5))
    with dg.DagsterInstance.from_config(str(kafka_s3_without_spark.folder / "dagster")) as instance:
        failed = run(absent, "archive__c", topic_of(absent).key("hourly"), [hour], instance=instance)
    [connector] = json.loads(kafka_s3_without_spark("health", "--json").stdout)["connectors"]
    [error] = connector["errors"]
    assert (error["run_id"], error["kind"]) == (failed.run_id, "archive")
    assert "MissingTopicError" not in json.dumps(error), "no name of Python's"
    assert absent.topics[0] in error["message"]
    assert (error["code"], error["is_over"], error["topics"]) == ("KS-KAFKA-TOPIC", False, [*absent.topics])


def test_a_restore_by_a_command_fails_or_succeeds_for_its_topic_alone(kafka_s3: KafkaS3, lab: Lab) -> None:
    topics = [lab.create(f"{lab.topic}.{n}") for n in range(2)]
    for topic in topics:
        produce(lab.kafka, topic, [Sent()])
    write_reachable_connector(kafka_s3, lab.kafka, lab.store, ",".join(topics))
    parsed(kafka_s3("archive", "c", "--json"))
    restore = ("restore", "c", "--topic")
    assert [kafka_s3(*restore, each, "--to-topic", f"{each}.1", "--create-topic").returncode for each in topics] == [
        0,
        0,
    ]
    assert kafka_s3(*restore, topics[0], "--to-topic", "not-there").returncode == 1
    assert kafka_s3(*restore, topics[1], "--to-topic", f"{topics[1]}.2", "--create-topic").returncode == 0
    [connector] = json.loads(kafka_s3("health", "--json").stdout)["connectors"]
    [error] = connector["errors"]
    assert (error["kind"], error["topics"], error["is_over"]) == ("restore", topics[:1], False)


def test_without_an_instance_of_dagster_the_last_error_is_not_known(
    kafka_s3_without_spark: KafkaS3, config: ConnectorConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    archived(config)
    environment = {k: v for k, v in make_environment(kafka_s3_without_spark.folder).items() if k != "DAGSTER_HOME"}
    monkeypatch.setattr("kafka_s3_platform_tests.cli.conftest.make_environment", lambda _: environment)
    [connector] = parsed(kafka_s3_without_spark("health", "--json"))["connectors"]
    assert (connector["is_well"], connector["errors"]) == (True, None)
    assert "no instance of Dagster" in connector["errors_unknown"]


def test_a_name_that_no_file_declares_is_told(kafka_s3_without_spark: KafkaS3) -> None:
    write_connector(kafka_s3_without_spark, "t")
    assert "no connector file declares d; there are: c" in kafka_s3_without_spark("health", "d", status=1).stdout
