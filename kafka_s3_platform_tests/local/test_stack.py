import dataclasses
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore import UNSIGNED
from botocore.client import Config
from botocore.exceptions import ClientError
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_s3_platform.config.settings import KafkaSettings, StoreSettings
from kafka_s3_platform.errors import AuthorizationError, ConfigError, PermanentError
from kafka_s3_platform.local.broker import Broker
from kafka_s3_platform.local.seaweedfs import SeaweedFS
from kafka_s3_platform.local.settings import StackSettings
from kafka_s3_platform.local.stack import StackStatus, down, status, up
from kafka_s3_platform_tests.conftest import CreateTopic, free_port_settings, free_ports, stopped_at_exit

REFUSED = "AccessDenied|SignatureDoesNotMatch"


@pytest.fixture
def own_settings(stack: StackStatus, stack_settings: StackSettings, tmp_path: Path) -> Iterator[StackSettings]:
    """Settings of a second stack, which may be stopped and broken."""
    settings = dataclasses.replace(stack_settings, data_dir=tmp_path / "own", **free_port_settings())
    with stopped_at_exit(settings):
        yield settings


def test_a_running_stack_is_healthy_and_tells_how_to_reach_it(
    stack: StackStatus, stack_settings: StackSettings
) -> None:
    assert stack.healthy
    assert [(server.name, server.running, server.detail) for server in stack.servers] == [
        ("kafka", True, None),
        ("s3", True, None),
    ]
    assert stack.bootstrap_servers == f"127.0.0.1:{stack_settings.kafka_port}"
    assert stack.s3_endpoint == f"http://127.0.0.1:{stack_settings.s3_port}"


def test_up_leaves_a_running_stack_as_it_is(stack: StackStatus, stack_settings: StackSettings) -> None:
    """A test before this one may have started the registry as well."""
    again = up(stack_settings)
    assert again.healthy
    assert [(s.name, s.pid) for s in again.servers][:2] == [(s.name, s.pid) for s in stack.servers]


def test_no_repr_shows_the_secret(stack: StackStatus) -> None:
    assert stack.aws_secret_access_key not in repr(stack)


def test_the_bucket_exists(stack: StackStatus, s3_client: Any) -> None:
    s3_client.head_bucket(Bucket=stack.bucket)


@pytest.mark.parametrize(
    ("config", "secret"),
    [(Config(signature_version=UNSIGNED), "kafka-s3-secret"), (Config(), "wrong")],
    ids=["anonymous", "wrong secret"],
)
def test_nobody_else_may_read_or_write(stack: StackStatus, s3_client: Any, config: Config, secret: str) -> None:
    s3_client.put_object(Bucket=stack.bucket, Key="mine", Body=b"mine")
    other = boto3.client(
        "s3",
        endpoint_url=stack.s3_endpoint,
        region_name="us-east-1",
        aws_access_key_id=stack.aws_access_key_id,
        aws_secret_access_key=secret,
        config=config,
    )
    with pytest.raises(ClientError, match=REFUSED):
        other.get_object(Bucket=stack.bucket, Key="mine")
    with pytest.raises(ClientError, match=REFUSED):
        other.put_object(Bucket=stack.bucket, Key="theirs", Body=b"")
    with pytest.raises(ClientError, match=REFUSED):
        other.list_objects_v2(Bucket=stack.bucket)
    other.close()


def test_a_missing_bucket_is_missing_also_for_an_upload(stack: StackStatus, s3_client: Any) -> None:
    with pytest.raises(ClientError, match="NoSuchBucket"):
        s3_client.put_object(Bucket="not-there", Key="k", Body=b"")


def test_an_object_is_created_once(bucket: str, s3_client: Any) -> None:
    s3_client.put_object(Bucket=bucket, Key="k", Body=b"first", IfNoneMatch="*")
    with pytest.raises(ClientError, match="PreconditionFailed"):
        s3_client.put_object(Bucket=bucket, Key="k", Body=b"second", IfNoneMatch="*")


def test_a_missing_topic_is_not_created_by_asking_for_it(kafka_settings: KafkaSettings, topic_name: str) -> None:
    admin = AdminClient({**kafka_settings.properties("admin")})
    assert admin.list_topics(topic_name, timeout=10).topics[topic_name].error is not None
    assert topic_name not in admin.list_topics(timeout=10).topics


def test_records_of_more_than_a_mebibyte_are_accepted(
    kafka_settings: KafkaSettings, topic_name: str, create_topic: CreateTopic
) -> None:
    producer = Producer(kafka_settings.properties("producer") | {"message.max.bytes": "8000000"})
    producer.produce(create_topic(topic_name), b"x" * 4_000_000, on_delivery=refuse_failed_delivery)
    assert producer.flush(20) == 0


def test_retention_takes_records_within_seconds(
    kafka_settings: KafkaSettings, topic_name: str, create_topic: CreateTopic
) -> None:
    create_topic(topic_name, retention_ms=1, segment_ms=1)
    produce(kafka_settings.bootstrap_servers, topic_name, 3, timestamp=1_000_000_000_000)
    deadline = time.monotonic() + 30
    while watermarks(kafka_settings.bootstrap_servers, topic_name) != (3, 3):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_each_test_has_a_bucket_of_its_own(store_settings: StoreSettings, s3_client: Any) -> None:
    assert "Contents" not in s3_client.list_objects_v2(Bucket=store_settings.bucket)


def test_data_is_kept_between_runs_also_on_other_ports(own_settings: StackSettings) -> None:
    up(own_settings)
    admin = AdminClient({"bootstrap.servers": own_settings.bootstrap_servers})
    admin.create_topics([NewTopic("kept", 1, 1)])["kept"].result(30)
    produce(own_settings.bootstrap_servers, "kept", 100)
    put(own_settings, {f"key-{i}": bytes(i) for i in range(20)})

    assert down(own_settings) == ("kafka", "s3")
    assert [server.detail for server in status(own_settings).servers] == ["not running", "not running"]
    assert down(own_settings) == ()
    kafka_port, s3_port, master_port = free_ports(3)
    moved = dataclasses.replace(own_settings, kafka_port=kafka_port, s3_port=s3_port, seaweedfs_master_port=master_port)
    up(moved)

    assert watermarks(moved.bootstrap_servers, "kept") == (0, 100)
    put(moved, {"later": b"later"})
    assert objects(moved) == {**{f"key-{i}": bytes(i) for i in range(20)}, "later": b"later"}


def test_a_killed_server_is_told_from_a_running_one_and_started_again(own_settings: StackSettings) -> None:
    up(own_settings)
    put(own_settings, {"kept": b"kept"})
    for server in (Broker(own_settings), SeaweedFS(own_settings)):
        process = server.daemon.process()
        assert process is not None
        process.kill()
        server.daemon.await_end()
    assert not status(own_settings).healthy
    assert up(own_settings).healthy
    assert objects(own_settings) == {"kept": b"kept"}


def test_a_taken_port_is_refused_before_anything_starts(own_settings: StackSettings) -> None:
    with (
        socket.create_server(("127.0.0.1", own_settings.s3_port)),
        pytest.raises(ConfigError, match=rf"port {own_settings.s3_port} .* taken .* KAFKA_S3_LOCAL_S3_PORT"),
    ):
        up(own_settings)
    assert not any(server.running for server in status(own_settings).servers)


def test_a_broker_that_cannot_start_says_why(own_settings: StackSettings) -> None:
    broken = dataclasses.replace(own_settings, kafka_properties={"log.segment.bytes": "many"})
    with pytest.raises(PermanentError, match=r"many for configuration log\.segment\.bytes"):
        up(broken)


def test_other_credentials_than_it_was_started_with_are_refused(
    stack: StackStatus, stack_settings: StackSettings
) -> None:
    with pytest.raises(AuthorizationError, match=r"refuses the access key id kafka-s3: .* `kafka-s3 down`"):
        up(dataclasses.replace(stack_settings, aws_secret_access_key="other"))


def test_other_ports_than_it_runs_with_are_refused(stack: StackStatus, stack_settings: StackSettings) -> None:
    moved = dataclasses.replace(stack_settings, kafka_port=free_ports(1)[0])
    with pytest.raises(ConfigError, match="run `kafka-s3 down` first"):
        up(moved)
    assert not status(moved).healthy


def produce(bootstrap_servers: str, topic: str, count: int, timestamp: int = 0) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for i in range(count):
        producer.produce(topic, str(i).encode(), timestamp=timestamp, on_delivery=refuse_failed_delivery)
    assert producer.flush(20) == 0


def refuse_failed_delivery(err: object, _: object) -> None:
    assert err is None


def watermarks(bootstrap_servers: str, topic: str) -> tuple[int, int]:
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "watermarks"})
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)
    consumer.close()
    return low, high


def put(settings: StackSettings, bodies: dict[str, bytes]) -> None:
    client = SeaweedFS(settings).client()
    for key, body in bodies.items():
        client.put_object(Bucket=settings.bucket, Key=key, Body=body)
    client.close()


def objects(settings: StackSettings) -> dict[str, bytes]:
    client = SeaweedFS(settings).client()
    listed = client.list_objects_v2(Bucket=settings.bucket)["Contents"]
    found = {item["Key"]: client.get_object(Bucket=settings.bucket, Key=item["Key"])["Body"].read() for item in listed}
    client.close()
    return found
