"""A connector with `topics.regex` in a deployment and on the command line, and `take-over`."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import dagster as dg
import pytest
from click.testing import CliRunner
from confluent_kafka import TopicPartition
from dagster._core.remote_origin import GrpcServerCodeLocationOrigin

from kafka_s3_platform.cli.take_over import take_over
from kafka_s3_platform.core.config.folder import FOLDER_VARIABLE
from kafka_s3_platform.core.errors import PermanentError
from kafka_s3_platform_tests.cli.conftest import REPOSITORY, KafkaS3, parsed, write_reachable_connector
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.kafka.topics import commit_offsets, until
from kafka_s3_platform_tests.support import Sent, produce


@contextmanager
def code_server(kafka_s3: KafkaS3) -> Iterator[GrpcServerCodeLocationOrigin]:
    """The platform's definitions, served at a socket, as in a deployment."""
    command = [str(Path(sys.executable).with_name("dagster")), "code-server", "start", "-m"]
    given = {k: v for k, v in os.environ.items() if not k.startswith(("KAFKA_S3_", "DAGSTER_"))}
    env = {**given, "DAGSTER_HOME": str(kafka_s3.folder / "dagster"), "PYTHONPATH": str(REPOSITORY)}
    with TemporaryDirectory() as folder:
        socket = f"{folder}/code-location.sock"
        server = subprocess.Popen(
            [*command, "kafka_s3_platform.definitions", "--socket", socket],
            cwd=kafka_s3.folder,
            env=env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield GrpcServerCodeLocationOrigin("localhost", socket=socket)
        finally:
            server.terminate()
            # it lets calls that are under way end, for 60 s
            server.wait(90)


class Served:
    """What a code server serves, as Dagster's daemon sees it."""

    def __init__(self, origin: GrpcServerCodeLocationOrigin, instance: dg.DagsterInstance) -> None:
        self._origin, self._instance = origin, instance

    @property
    def assets(self) -> set[str]:
        """The assets defined now; none while the server starts."""
        try:
            with self._origin.create_location(self._instance) as location:
                nodes = location.get_repository("__repository__").get_asset_node_snaps()
                return {node.asset_key.to_user_string() for node in nodes}
        except dg.DagsterError:
            return set()

    def tick(self, sensor: str = "topics__c") -> str:
        """Evaluate a sensor in the server; why it skipped."""
        with self._origin.create_location(self._instance) as location:
            handle = location.get_repository("__repository__").handle
            found = location.get_sensor_execution_data(self._instance, handle, sensor, None, None, None, None, None)
            return str(found.skip_message)


def test_a_new_topic_and_a_new_file_appear_as_assets_without_anybody_doing_anything(
    kafka_s3: KafkaS3, lab: Lab
) -> None:
    lab.create_topic()
    write_reachable_connector(kafka_s3, lab.kafka, lab.store, "", **{"topics.regex": f"{lab.topic}.*"})
    home = str(kafka_s3.folder / "dagster")
    with dg.DagsterInstance.from_config(home) as instance, code_server(kafka_s3) as origin:
        served = Served(origin, instance)
        until(lambda: f"c/hourly/{lab.topic}" in served.assets)
        assert served.tick() == f"no new topic matches {lab.topic}.*"
        lab.create(f"{lab.topic}.b")
        assert served.tick() == f"new: {lab.topic}.b; this code location is being loaded again"
        until(lambda: f"c/hourly/{lab.topic}.b" in served.assets)
        assert f"c/hourly/{lab.topic}" in served.assets
        assert served.tick() == f"no new topic matches {lab.topic}.*"

        assert served.tick("connector_files") == "1 file loaded"
        keys = {"name": "late", "topics": f"{lab.topic}.late", "s3.bucket.name": "bucket"}
        (kafka_s3.folder / "connectors" / "late.json").write_text(json.dumps(keys))
        assert "this code location is being loaded again" in served.tick("connector_files")
        until(lambda: f"late/hourly/{lab.topic}.late" in served.assets)
        assert served.tick("connector_files") == "2 files loaded"


def test_commands_find_the_topics_that_match_now(kafka_s3: KafkaS3, lab: Lab) -> None:
    write_reachable_connector(kafka_s3, lab.kafka, lab.store, "", **{"topics.regex": f"{lab.topic}.*"})
    for name in (lab.topic, f"{lab.topic}.b"):
        lab.create(name)
        assert len(parsed(kafka_s3("verify", "c", "--topic", name, "--json"))["topics"]) == 1
    produce(lab.kafka, name, [Sent()])
    archived = parsed(kafka_s3("archive", "c", "--topic", name, "--json"))
    assert [(r["topic"], r["totals"]["records"]) for r in archived["runs"]] == [(name, 1)]


def test_archiving_begins_where_a_stopped_sink_ended(kafka_s3: KafkaS3, lab: Lab) -> None:
    lab.create_topic(kafka_partitions=2)
    lab.produce([Sent(kafka_partition=p) for p in (0, 0, 0, 1)])
    write_reachable_connector(kafka_s3, lab.kafka, lab.store, lab.topic)
    assert "connect-c has no committed offset" in kafka_s3("take-over", "c", status=1).stderr
    named = ["--group", f"sink-{lab.topic}"]
    commit_offsets(lab.kafka, named[1], [TopicPartition(lab.topic, 0, 2)])
    told = kafka_s3("take-over", "c", *named, status=0)
    assert "kafka partition 0: archiving goes on at offset 2" in told.stdout
    assert "kafka partition 1: no committed offset; archiving begins with the log, at 0" in told.stdout
    [again] = parsed(kafka_s3("take-over", "c", *named, "--json"))["topics"]
    assert (again["offsets"], again["gaps"]) == ({"0": 2}, [])
    [archived] = parsed(kafka_s3("archive", "c", "--json"))["runs"]
    assert archived["totals"]["records"] == 2
    verified = kafka_s3("verify", "c")
    assert "0 gaps" in verified.stdout
    assert "with the sink before this one: kafka partition 0 [0, 2)" in verified.stdout


def test_a_topic_that_the_sink_has_not_read_is_left_out_by_naming_the_others(
    kafka_s3: KafkaS3, monkeypatch: pytest.MonkeyPatch, lab: Lab
) -> None:
    read, group = f"{lab.topic}.read", f"sink-{lab.topic}"
    for topic in (lab.topic, read):
        lab.create(topic)
        produce(lab.kafka, topic, [Sent()] * 3)
    commit_offsets(lab.kafka, group, [TopicPartition(read, 0, 2)])
    write_reachable_connector(kafka_s3, lab.kafka, lab.store, f"{lab.topic},{read}")
    monkeypatch.setenv(FOLDER_VARIABLE, str(kafka_s3.folder / "connectors"))
    with pytest.raises(PermanentError, match="take the others over, each with --topic"):
        CliRunner().invoke(take_over, ["c", "--group", group], catch_exceptions=False)
    told = CliRunner().invoke(take_over, ["c", "--group", group, "--topic", read])
    assert "kafka partition 0: archiving goes on at offset 2" in told.output
