"""Restores of objects in cold storage, from moto's S3: it refuses to read them until they were asked for and are there.

SeaweedFS, the S3 server of the other tests, has no such classes.
"""

import json
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
import requests
from moto.server import ThreadedMotoServer
from pydantic import SecretStr

from kafka_s3_platform.config.settings import KafkaSettings, StoreSettings
from kafka_s3_platform.errors import BusyError
from kafka_s3_platform.restore.request import RestoreReport
from kafka_s3_platform_tests.restore.foreign import JSON, LINES, Load, numbered, numbers, restored

pytestmark = pytest.mark.integration

LOOKS = 3
"""How often an object that was asked for is looked at before it is there."""

FROM_COLD = "archive.source.thaw.days=3\narchive.source.thaw.tier=Bulk\n"


@pytest.fixture(scope="module")
def cold_server() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    slow = {"model_name": "s3::keyrestore", "transition": {"progression": "manual", "times": LOOKS}}
    requests.post(f"http://{host}:{port}/moto-api/state-manager/set-transition", json=slow, timeout=10)
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def store_settings(cold_server: str, topic_name: str) -> StoreSettings:
    """A bucket of the cold server, instead of the stack's."""
    secret = SecretStr("any")
    return StoreSettings(
        bucket=topic_name, region="us-east-1", endpoint_url=cold_server, access_key_id=secret, secret_access_key=secret
    )


@pytest.fixture
def client(store_settings: StoreSettings, topic_name: str) -> Any:
    """Of the bucket, which holds two objects in cold storage and one that is not."""
    client = boto3.client(
        "s3",
        endpoint_url=store_settings.endpoint_url,
        region_name="us-east-1",
        aws_access_key_id="any",
        aws_secret_access_key="any",
    )
    client.create_bucket(Bucket=topic_name)
    for first, storage_class in ((0, "GLACIER"), (3, "STANDARD"), (6, "DEEP_ARCHIVE")):
        key = f"topics/{topic_name}/partition=0/{topic_name}+0+{first:010d}.json"
        body = "".join(json.dumps(line) + "\n" for line in numbered(first, 3))
        client.put_object(Bucket=topic_name, Key=key, Body=body, StorageClass=storage_class)
    return client


def states(client: Any, bucket: str) -> list[str | None]:
    """What S3 says of the restoring of each object of topics/."""
    listed = client.list_objects_v2(Bucket=bucket, Prefix="topics/")["Contents"]
    return [client.head_object(Bucket=bucket, Key=found["Key"]).get("Restore") for found in listed]


def run_until_it_is_there(load: Load, topic: str, **terms: Any) -> tuple[list[str], RestoreReport]:
    """What the runs said that came too early, and the report of the last."""
    said: list[str] = []
    for _ in range(4 * LOOKS):
        try:
            return said, restored(load(LINES, JSON + FROM_COLD), (), "{topic}-copy", restore_id=topic, **terms)
        except BusyError as err:
            said.append(str(err))
    pytest.fail(f"never there: {said}")


def test_cold_objects_are_asked_for_by_the_first_run_and_restored_by_one_that_finds_them_there(
    load: Load, client: Any, kafka_settings: KafkaSettings, topic_name: str
) -> None:
    said, report = run_until_it_is_there(load, topic_name)
    assert "2 objects lie in cold storage" in said[0]
    assert all("they were asked for; run again when they are there" in line for line in said)
    assert (report.record_count, report.sent_count, report.verified) == (9, 9, True)
    assert numbers(kafka_settings, f"{topic_name}-copy") == list(range(9))


def test_nothing_is_asked_for_and_nothing_sent_unless_the_file_says_so(
    load: Load, client: Any, topic_name: str
) -> None:
    with pytest.raises(BusyError, match=r"2 objects lie in cold storage.*set archive\.source\.thaw\.days"):
        restored(load(LINES, JSON), (), "{topic}-copy", restore_id=topic_name)
    assert states(client, topic_name) == [None, None, None]


def test_where_bad_objects_are_left_out_cold_ones_are_left_out_and_told(
    load: Load, client: Any, kafka_settings: KafkaSettings, topic_name: str
) -> None:
    report = restored(load(LINES, JSON), (), "{topic}-copy", restore_id=topic_name, behavior_on_error="ignore")
    assert report.record_count == 3
    assert sum("and was not thawed" in line for line in report.skipped) == 2
    assert numbers(kafka_settings, f"{topic_name}-copy") == [3, 4, 5]
    assert states(client, topic_name) == [None, None, None]
