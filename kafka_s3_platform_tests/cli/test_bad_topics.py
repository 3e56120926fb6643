"""Commands over several topics of which one cannot be done: the others are, and it is told."""

import json
import subprocess

import pytest

from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform_tests.cli.conftest import KafkaS3, write_reachable_connector
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.support import NOON, Sent, archived, damage_topic, produce


@pytest.fixture
def config(kafka_s3: KafkaS3, lab: Lab) -> ConnectorConfig:
    """A connector of three topics."""
    topics = [lab.create(f"{lab.topic}-{n}") for n in range(3)]
    return write_reachable_connector(kafka_s3, lab.kafka, lab.store, ",".join(topics))


def topics_of(found: "subprocess.CompletedProcess[str]") -> list[str]:
    """The topics that a command's JSON tells of, whatever else became of it; where none is done there is no JSON."""
    if not found.stdout:
        return []
    [rows] = [value for value in json.loads(found.stdout).values() if isinstance(value, list)]
    return [row["topic"] for row in rows]


def test_one_topic_that_cannot_be_done_stops_no_other_and_fails_the_command(
    kafka_s3: KafkaS3, config: ConnectorConfig
) -> None:
    for topic in config.topics:
        produce(config.kafka, topic, [Sent(timestamp=NOON)])
        archived(config.model_copy(update={"topics": (topic,)}))
    first, *others = config.topics
    damage_topic(config, first)
    for command in (
        ["show", "c"],
        ["files", "c"],
        ["resolve", "c"],
        ["vacuum", "c", "--dry-run"],
        ["verify", "c"],
        ["archive", "c"],
        ["compact", "c", "--day", "2026-01-01"],
        ["take-over", "c"],
    ):
        found = kafka_s3(*command, "--json", status=1)
        assert "Traceback" not in found.stderr, command
        assert first in found.stderr, command
        assert topics_of(found) == ([] if command[0] == "take-over" else others), command


def test_a_store_that_does_not_answer_is_not_asked_for_every_topic(kafka_s3: KafkaS3, config: ConnectorConfig) -> None:
    connector = kafka_s3.folder / "connectors" / "c.json"
    keys = json.loads(connector.read_text())
    connector.write_text(json.dumps({**keys, "store.url": "http://127.0.0.1:31698"}))
    # a run of all topics asks once, and each gets its answer
    for command, said in (("show", "[KS-STORE-DOWN] not tried"), ("archive", "run ")):
        found = kafka_s3(command, "c", status=75)
        assert found.stdout == ""
        assert f"{config.topics[2]}: {said}" in found.stderr
