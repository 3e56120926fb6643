"""`kafka-s3 check --connect`: a file is tried against its real broker and bucket."""

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest

from kafka_s3_platform.cli.connector_files import connect
from kafka_s3_platform_tests.cli.conftest import KafkaS3, write_connector, write_reachable_connector
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.faults.proxy import FaultyProxy
from kafka_s3_platform_tests.support import Sent

FORBIDDEN = 403

Tried = dict[str, tuple[str, str]]
"""What was looked at -> how it is, and what was found."""


def connect_file(kafka_s3: KafkaS3, *, status: int) -> Tried:
    found = kafka_s3("check", "connectors/c.json", "--connect", "--json", status=status)
    tried: list[dict[str, Any]] = json.loads(found.stdout)["tried"]
    return {each["what"]: (each["judgement"], each["found"]) for each in tried}


def judgements(tried: Tried) -> dict[str, str]:
    return {what: judgement for what, (judgement, _) in tried.items()}


@pytest.mark.usefixtures("untried_bucket")
def test_everything_that_a_sink_needs_is_tried(kafka_s3_without_spark: KafkaS3, lab: Lab) -> None:
    lab.create_topic(2)
    lab.produce([Sent(), Sent(kafka_partition=1)])
    write_reachable_connector(kafka_s3_without_spark, lab.kafka, lab.store, lab.topic)
    tried = connect_file(kafka_s3_without_spark, status=0)
    assert judgements(tried) == {
        "broker": "ok",
        "topics": "ok",
        "bucket": "ok",
        "index": "ok",
        "writes to the index": "ok",
        "right to delete": "ok",
        "writes to topics": "ok",
        "writes to topics_daily": "ok",
        "writes of restores": "ok",
        "rules of the bucket": "ok",
        "clock": "ok",
        "the rest": "not tried",
    }
    assert "2 offsets in 2 kafka partitions" in tried["topics"][1]
    left = lab.s3.list_objects_v2(Bucket=lab.store.bucket)["Contents"]
    assert [each["Key"] for each in left] == ["_index/.write-check"], "as after a run"
    assert "Uploads" not in lab.s3.list_multipart_uploads(Bucket=lab.store.bucket)


@pytest.mark.usefixtures("untried_bucket")
def test_each_thing_that_is_wrong_is_told_and_hides_no_other(
    kafka_s3_without_spark: KafkaS3, lab: Lab, proxy: FaultyProxy
) -> None:
    lab.create_topic()
    through = lab.store.model_copy(update={"endpoint_url": proxy.endpoint})
    topics = f"{lab.topic},{lab.topic}-missing"
    write_reachable_connector(kafka_s3_without_spark, lab.kafka, through, topics)
    proxy.refuse("PUT", "/topics/", FORBIDDEN, "AccessDenied")
    proxy.refuse("PUT", "_restore/", FORBIDDEN, "AccessDenied")
    proxy.refuse("DELETE", r"_index/\.write-check-", FORBIDDEN, "AccessDenied")
    proxy.date_shift = timedelta(hours=-1)
    tried = connect_file(kafka_s3_without_spark, status=1)
    found = judgements(tried)
    assert {what for what, judgement in found.items() if judgement == "wrong"} == {
        f"topic {lab.topic}-missing",
        "writes to topics",
        "clock",
    }
    assert "1 of 2" in tried["topics"][1]
    assert "topics/.write-check" in tried["writes to topics"][1]
    assert found["writes of restores"] == "warning"
    assert "none, and runs need none" in tried["right to delete"][1]
    assert "archive.clock.tolerance.ms" in tried["clock"][1]


def test_rules_of_the_bucket_that_work_against_the_archive_are_told(kafka_s3_without_spark: KafkaS3, lab: Lab) -> None:
    lab.create_topic()
    expiry = {"ID": "old", "Status": "Enabled", "Filter": {"Prefix": "topics/"}, "Expiration": {"Days": 30}}
    other = {**expiry, "ID": "other", "Filter": {"Prefix": "elsewhere/"}}
    rules = {"Rules": [expiry, other, {**expiry, "ID": "off", "Status": "Disabled"}]}
    lab.s3.put_bucket_lifecycle_configuration(Bucket=lab.store.bucket, LifecycleConfiguration=rules)
    lab.s3.put_bucket_versioning(Bucket=lab.store.bucket, VersioningConfiguration={"Status": "Enabled"})
    retention = {"archive.retention.ms": "86400000"}
    write_reachable_connector(kafka_s3_without_spark, lab.kafka, lab.store, lab.topic, **retention)
    judgement, text = connect_file(kafka_s3_without_spark, status=0)["rules of the bucket"]
    assert judgement == "warning"
    assert "the lifecycle rule old of topics/ removes objects that the index names" in text
    assert "versions of what retention removes stay" in text
    assert "other" not in text
    assert "off" not in text


def test_what_is_not_there_is_told_with_what_was_not_tried(kafka_s3_without_spark: KafkaS3) -> None:
    write_connector(kafka_s3_without_spark, "t")
    tried = connect_file(kafka_s3_without_spark, status=1)
    assert judgements(tried) == {
        "broker": "wrong",
        "topics": "not tried",
        "bucket": "wrong",
        "rights on the bucket, index, clock": "not tried",
        "the rest": "not tried",
    }


@pytest.fixture
def silent_port() -> Iterator[int]:
    """The port of a server that takes connections and says nothing."""
    with ExitStack() as opened:
        server = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
        yield server.getsockname()[1]


def test_servers_that_say_nothing_are_waited_for_together_and_not_for_long(
    kafka_s3_without_spark: KafkaS3, silent_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "SECONDS", 1.0)
    registry = {
        "format.class": "AvroFormat",
        "value.converter": "AvroConverter",
        "value.converter.schema.registry.url": f"http://127.0.0.1:{silent_port}",
    }
    write_connector(kafka_s3_without_spark, "t", **{"store.url": f"http://127.0.0.1:{silent_port}"}, **registry)
    tried = connect_file(kafka_s3_without_spark, status=1)
    assert {what for what, (_, said) in tried.items() if "no answer in 1 s" in said} == {
        "Kafka",
        "bucket",
        "Schema Registry of values",
    }
