import dataclasses
import http.client
import socket
import stat
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import boto3
import grpc
import psutil
import pytest
from botocore import UNSIGNED
from botocore.client import Config
from botocore.exceptions import ClientError
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_s3_platform.core.errors import AuthorizationError, ConfigError, PermanentError
from kafka_s3_platform.operate.local.broker import Broker
from kafka_s3_platform.operate.local.seaweedfs import PORTS, SeaweedFS
from kafka_s3_platform.operate.local.settings import StackSettings
from kafka_s3_platform.operate.local.stack import StackStatus, read_stack_status, start_stack, stop_stack
from kafka_s3_platform_tests.conftest import Lab, free_ports, present

REFUSED = "AccessDenied|SignatureDoesNotMatch"


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
    again = start_stack(stack_settings)
    assert again.healthy
    assert [(s.name, s.pid) for s in again.servers][:2] == [(s.name, s.pid) for s in stack.servers]


def test_kafka_is_started_with_class_data_which_its_format_has_written(
    stack: StackStatus, stack_settings: StackSettings
) -> None:
    """Java says nothing where it starts without."""
    process = present(Broker(stack_settings).daemon.process())
    [data] = [Path(m.path) for m in process.memory_maps() if m.path.endswith(".jsa") and "/kafka_" in m.path]
    assert data.parent.samefile(stack_settings.cache)


def test_no_repr_shows_the_secret(stack: StackStatus) -> None:
    assert stack.aws_secret_access_key not in repr(stack)


def test_the_bucket_exists(stack: StackStatus, s3_client: Any) -> None:
    s3_client.head_bucket(Bucket=stack.bucket)


@pytest.mark.parametrize(
    ("config", "secret"),
    [(Config(signature_version=UNSIGNED), "any"), (Config(), "wrong"), (Config(), "kafka-s3-secret")],
    ids=["anonymous", "wrong secret", "a secret that was printed once"],
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


def listening(settings: StackSettings) -> set[int]:
    process = present(SeaweedFS(settings).daemon.process())
    found = [c.laddr for c in process.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
    assert {address.ip for address in found} == {"127.0.0.1"}
    return {address.port for address in found}


def test_the_store_listens_where_it_is_told_to_and_nowhere_else(
    stack: StackStatus, stack_settings: StackSettings
) -> None:
    assert listening(stack_settings) == {getattr(stack_settings, name) for name in PORTS.values()}


HTTP_WRITES = [
    ("POST", "/dir/assign"),
    ("GET", "/dir/assign"),
    ("POST", "/submit"),
    ("GET", "/vol/grow?count=1"),
    ("GET", "/vol/vacuum"),
    ("GET", "/col/delete?collection=kafka-archive"),
    ("POST", "/1,01637037d6"),
    ("PUT", "/1,01637037d6"),
    ("DELETE", "/1,01637037d6"),
    ("POST", "/buckets/kafka-archive/theirs"),
    ("PUT", "/buckets/kafka-archive/theirs"),
    ("DELETE", "/buckets/kafka-archive?recursive=true"),
    ("PUT", "/kafka-archive/theirs"),
    ("PUT", "/theirs-bucket"),
]


@pytest.mark.parametrize("port", PORTS.values())
def test_no_port_of_the_store_takes_a_write_without_credentials(
    stack: StackStatus, stack_settings: StackSettings, s3_client: Any, port: str
) -> None:
    s3_client.put_object(Bucket=stack.bucket, Key="mine", Body=b"mine")
    for method, path in HTTP_WRITES:
        assert answered(getattr(stack_settings, port), method, path) in {None, 400, 401, 403, 404, 405}, (method, path)
    assert s3_client.get_object(Bucket=stack.bucket, Key="mine")["Body"].read() == b"mine"
    assert [b["Name"] for b in s3_client.list_buckets()["Buckets"] if b["Name"].startswith("theirs")] == []


def answered(port: int, method: str, path: str) -> int | None:
    """The status, None where it speaks no HTTP."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as asked:
        try:
            asked.request(method, path, body=b"theirs")
            return asked.getresponse().status
        except (OSError, http.client.HTTPException):
            return None


GRPC = [name for name in PORTS.values() if name.endswith("grpc_port")]
METHODS = (
    "/filer_pb.SeaweedFiler/CreateEntry",
    "/filer_pb.SeaweedFiler/ListEntries",
    "/master_pb.Seaweed/Assign",
    "/volume_server_pb.VolumeServer/AllocateVolume",
    "/s3_pb.SeaweedS3Cache/PutIdentity",
)


@pytest.mark.parametrize("port", GRPC)
def test_no_process_without_our_certificate_is_heard_by_grpc(
    stack_settings: StackSettings, stack: StackStatus, port: str
) -> None:
    address = f"127.0.0.1:{getattr(stack_settings, port)}"
    certificate = (stack_settings.data_dir / "s3" / "certificate.pem").read_bytes()
    anyone = grpc.ssl_channel_credentials(certificate)
    for channel in (grpc.insecure_channel(address), grpc.secure_channel(address, anyone)):
        with channel:
            for method in METHODS:
                with pytest.raises(grpc.RpcError) as raised:
                    channel.unary_unary(method)(b"", timeout=5)
                assert raised.value.code() in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}


def test_only_we_may_read_what_the_stack_writes(stack: StackStatus, stack_settings: StackSettings) -> None:
    for folder in ("kafka", "s3"):
        assert mode(stack_settings.data_dir / folder) == 0o700
    private = ["s3/identities.json", "s3/key.pem", "kafka/server.properties", "s3/output.log", "s3/process.json"]
    assert {mode(stack_settings.data_dir / name) for name in private} == {0o600}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_missing_bucket_is_missing_also_for_an_upload(stack: StackStatus, s3_client: Any) -> None:
    with pytest.raises(ClientError, match="NoSuchBucket"):
        s3_client.put_object(Bucket="not-there", Key="k", Body=b"")


def test_an_object_is_created_once(bucket: str, s3_client: Any) -> None:
    s3_client.put_object(Bucket=bucket, Key="k", Body=b"first", IfNoneMatch="*")
    with pytest.raises(ClientError, match="PreconditionFailed"):
        s3_client.put_object(Bucket=bucket, Key="k", Body=b"second", IfNoneMatch="*")


def test_a_missing_topic_is_not_created_by_asking_for_it(lab: Lab) -> None:
    admin = AdminClient({**lab.kafka.properties("admin")})
    assert admin.list_topics(lab.topic, timeout=10).topics[lab.topic].error is not None
    assert lab.topic not in admin.list_topics(timeout=10).topics


def test_records_of_more_than_a_mebibyte_are_accepted(lab: Lab) -> None:
    producer = Producer(lab.kafka.properties("producer") | {"message.max.bytes": "8000000"})
    producer.produce(lab.create_topic(), b"x" * 4_000_000, on_delivery=refuse_failed_delivery)
    assert producer.flush(20) == 0


def test_retention_takes_records_within_seconds(lab: Lab) -> None:
    lab.create_topic(retention_ms=1, segment_ms=1)
    produce(lab.kafka.bootstrap_servers, lab.topic, 3, timestamp=1_000_000_000_000)
    deadline = time.monotonic() + 60
    while watermarks(lab.kafka.bootstrap_servers, lab.topic) != (3, 3):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_each_test_has_a_bucket_of_its_own(lab: Lab) -> None:
    assert "Contents" not in lab.s3.list_objects_v2(Bucket=lab.store.bucket)


def test_a_killed_server_is_told_from_a_running_one_and_data_is_kept_also_on_other_ports(
    own_settings: StackSettings,
) -> None:
    start_stack(own_settings)
    admin = AdminClient({"bootstrap.servers": own_settings.bootstrap_servers})
    admin.create_topics([NewTopic("kept", 1, 1)])["kept"].result(30)
    produce(own_settings.bootstrap_servers, "kept", 100)
    kept = {f"key-{i}": bytes(i) for i in range(20)}
    put(own_settings, kept)

    for server in (Broker(own_settings), SeaweedFS(own_settings)):
        present(server.daemon.process()).kill()
        server.daemon.await_end()
    assert not read_stack_status(own_settings).healthy
    assert start_stack(own_settings).healthy
    assert watermarks(own_settings.bootstrap_servers, "kept") == (0, 100)
    assert objects(own_settings) == kept

    assert stop_stack(own_settings) == ("kafka", "s3")
    assert [server.detail for server in read_stack_status(own_settings).servers] == ["not running", "not running"]
    assert stop_stack(own_settings) == ()
    kafka_port, s3_port, master_port = free_ports(3)
    moved = dataclasses.replace(own_settings, kafka_port=kafka_port, s3_port=s3_port, seaweedfs_master_port=master_port)
    start_stack(moved)
    assert watermarks(moved.bootstrap_servers, "kept") == (0, 100)
    put(moved, {"later": b"later"})
    assert objects(moved) == {**kept, "later": b"later"}


def test_taken_ports_are_all_named_before_anything_starts(own_settings: StackSettings) -> None:
    kafka_port, s3_port = own_settings.kafka_port, own_settings.s3_port
    both = rf"port {kafka_port} \(KAFKA_S3_LOCAL_KAFKA_PORT\), .* port {s3_port} \(KAFKA_S3_LOCAL_S3_PORT\)"
    with (
        socket.create_server(("127.0.0.1", kafka_port)),
        socket.create_server(("127.0.0.1", s3_port)),
        pytest.raises(ConfigError, match=both),
    ):
        start_stack(own_settings)
    assert not any(server.running for server in read_stack_status(own_settings).servers)


def test_a_broker_that_cannot_start_says_why(own_settings: StackSettings) -> None:
    broken = dataclasses.replace(own_settings, kafka_properties={"log.segment.bytes": "many"})
    with pytest.raises(PermanentError, match=r"many for configuration log\.segment\.bytes"):
        start_stack(broken)


def test_other_credentials_than_it_was_started_with_are_refused(
    stack: StackStatus, stack_settings: StackSettings
) -> None:
    with pytest.raises(AuthorizationError, match=r"refuses the access key id kafka-s3: .* `kafka-s3 down`"):
        start_stack(dataclasses.replace(stack_settings, aws_secret_access_key="other"))


def test_other_ports_than_it_runs_with_are_refused(stack: StackStatus, stack_settings: StackSettings) -> None:
    moved = dataclasses.replace(stack_settings, kafka_port=free_ports(1)[0])
    with pytest.raises(ConfigError, match="run `kafka-s3 down` first"):
        start_stack(moved)
    assert not read_stack_status(moved).healthy


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
