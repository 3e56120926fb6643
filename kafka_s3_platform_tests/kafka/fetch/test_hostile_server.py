"""What is no broker, or a hostile one, on the port of a broker: it costs little memory and no more than its time."""

import struct
from collections.abc import Mapping

import pytest
from pydantic import SecretStr

from kafka_s3_platform.core.config.settings import KafkaSettings
from kafka_s3_platform.core.errors import BrokerUnavailableError
from kafka_s3_platform.core.kafka.fetch import connection as wire
from kafka_s3_platform.core.kafka.fetch.connection import BrokerConnection
from kafka_s3_platform.core.kafka.fetch.fetch_reader import FetchReader
from kafka_s3_platform.core.model.offsets import OffsetRange, TopicPartition
from kafka_s3_platform_tests.hostile.servers import MIB, costing, drips, sends, serving

HTTP = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"
SASL = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "p"}


@pytest.mark.parametrize("security", [{}, SASL], ids=["plain", "before authentication"])
@pytest.mark.parametrize("data", [b"\xff" * 4, HTTP], ids=["the largest length", "HTTP"])
def test_what_is_no_broker_costs_no_memory_and_is_named(security: dict[str, str], data: bytes) -> None:
    with serving(sends(data)) as port, costing(20, 10):
        settings = KafkaSettings(
            bootstrap_servers=f"127.0.0.1:{port}", common={k: SecretStr(v) for k, v in security.items()}
        )
        with pytest.raises(ValueError, match="this may be no broker"):
            find_leader(port, settings.properties("consumer"))
        with (
            FetchReader(settings, "t", answer_seconds=2) as reader,
            pytest.raises(BrokerUnavailableError, match=f"127.0.0.1:{port}"),
        ):
            list(reader.read(0, OffsetRange(0, 1)))


def test_an_answer_of_ten_megabytes_is_too_large_before_authentication() -> None:
    with (
        serving(sends(struct.pack(">i", 10 * MIB))) as port,
        costing(2, 10),
        pytest.raises(ValueError, match="65,536 are the most"),
    ):
        find_leader(port, SASL)


def test_a_broker_that_sends_a_byte_now_and_then_is_given_the_time_of_one_answer() -> None:
    with (
        serving(drips(struct.pack(">i", 1000))) as port,
        costing(2, 5),
        pytest.raises(OSError, match="took too long"),
    ):
        find_leader(port, {}, seconds=1)


def find_leader(port: int, properties: Mapping[str, str], seconds: float = 5) -> None:
    with BrokerConnection("127.0.0.1", port, properties, seconds) as connection:
        connection.leader(TopicPartition("t", 0))


@pytest.mark.parametrize(
    "body",
    [b"\xff" * 8_000_000, b"\xff\xff\xff\xff\x0f" + bytes(8_000_000), b"\2\1\xff\xff\xff\x03" + bytes(8_000_000)],
    ids=["a number without an end", "items of no content", "kafka partitions of no content"],
)
def test_an_answer_of_many_small_things_is_refused_at_once(body: bytes) -> None:
    head = bytes(4) + b"\0" + bytes(4 + 2 + 4)
    with costing(100, 5), pytest.raises((ValueError, IndexError)):
        wire.read_fetch_answer(memoryview(head + body))
