"""What is no broker, or a hostile one, on the port of a broker: it costs little memory and no more than its time."""

import socket
import struct
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest
from pydantic import SecretStr

from kafka_s3_platform.config.settings import KafkaSettings
from kafka_s3_platform.errors import BrokerUnavailableError
from kafka_s3_platform.kafka.disk_space import measure_disk_space
from kafka_s3_platform.kafka.fetch import protocol as wire
from kafka_s3_platform.kafka.fetch.fetch_reader import FetchReader
from kafka_s3_platform.model.offsets import OffsetRange

MIB = 1 << 20
HTTP = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"
SASL = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "p"}


@contextmanager
def serving(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server on a free port, which answers each connection in a thread."""

    def serve(peer: socket.socket) -> None:
        with closing(peer):
            try:
                peer.recv(MIB)
                answer(peer)
            except OSError:
                pass

    def accept() -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=[peer], daemon=True).start()

    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]


def sends(data: bytes) -> Callable[[socket.socket], None]:
    def answer(peer: socket.socket) -> None:
        peer.sendall(data)
        peer.recv(1)

    return answer


def drips(peer: socket.socket) -> None:
    peer.sendall(struct.pack(">i", 1000))
    while True:
        peer.sendall(b"\0")
        time.sleep(0.2)


@contextmanager
def costing(mib: int, seconds: float) -> Iterator[None]:
    tracemalloc.start()
    start = time.monotonic()
    try:
        yield
        assert time.monotonic() - start < seconds
        assert tracemalloc.get_traced_memory()[1] < mib * MIB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("security", [{}, SASL], ids=["plain", "before authentication"])
@pytest.mark.parametrize("data", [b"\xff" * 4, HTTP], ids=["the largest length", "HTTP"])
def test_what_is_no_broker_costs_no_memory_and_is_named(security: dict[str, str], data: bytes) -> None:
    with serving(sends(data)) as port, costing(20, 10):
        settings = KafkaSettings(
            bootstrap_servers=f"127.0.0.1:{port}", common={k: SecretStr(v) for k, v in security.items()}
        )
        [space] = measure_disk_space(settings, {1: ("127.0.0.1", port)}).values()
        assert "this may be no broker" in space.reason
        with (
            FetchReader(settings, "t", answer_seconds=2) as reader,
            pytest.raises(BrokerUnavailableError, match=f"127.0.0.1:{port}"),
        ):
            list(reader.read(0, OffsetRange(0, 1)))


def test_an_answer_of_ten_megabytes_is_too_large_before_authentication() -> None:
    settings = KafkaSettings(bootstrap_servers="any", common={k: SecretStr(v) for k, v in SASL.items()})
    with serving(sends(struct.pack(">i", 10 * MIB))) as port, costing(2, 10):
        [space] = measure_disk_space(settings, {1: ("127.0.0.1", port)}).values()
    assert "65,536 are the most" in space.reason


def test_a_broker_that_sends_a_byte_now_and_then_is_given_the_time_of_one_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kafka_s3_platform.kafka.disk_space.ANSWER_SECONDS", 1.0)
    with serving(drips) as port, costing(2, 5):
        [space] = measure_disk_space(KafkaSettings(bootstrap_servers="any"), {1: ("127.0.0.1", port)}).values()
    assert "took too long" in space.reason


@pytest.mark.parametrize(
    "body",
    [b"\xff" * 8_000_000, b"\xff\xff\xff\xff\x0f" + bytes(8_000_000), b"\2\1\xff\xff\xff\x03" + bytes(8_000_000)],
    ids=["a number without an end", "items of no content", "kafka partitions of no content"],
)
def test_an_answer_of_many_small_things_is_refused_at_once(body: bytes) -> None:
    head = bytes(4) + b"\0" + bytes(4 + 2 + 4)
    with costing(100, 5), pytest.raises((ValueError, IndexError)):
        wire.read_fetch_answer(memoryview(head + body))
