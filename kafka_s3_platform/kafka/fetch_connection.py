"""A blocking connection to one broker, for FETCH requests and for what librdkafka has no call for.

It speaks to clusters without security, over TLS, and with SASL PLAIN. What it does not know it refuses
(`UnsupportedError`), so that confluent-kafka reads instead.
"""

import socket
import ssl
from collections.abc import Mapping
from types import TracebackType
from typing import final

from kafka_s3_platform.kafka import wire
from kafka_s3_platform.kafka.wire import FetchAnswer, LogDir
from kafka_s3_platform.model.offsets import TopicPartition

_FRAME = 4
_UNDERSTOOD = frozenset(
    {
        "security.protocol",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.username",
        "sasl.password",
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.key.location",
        "ssl.key.password",
    }
)
_DECIDING = ("ssl.", "sasl.", "security.", "enable.ssl", "enable.sasl", "socket.", "broker.address", "client.dns")


class UnsupportedError(Exception):
    """The cluster, or its answer, is left to confluent-kafka."""


def is_supported(properties: Mapping[str, str]) -> bool:
    """Whether all of librdkafka's properties that decide how to connect are followed here."""
    deciding = {name for name in properties if name.startswith(_DECIDING)}
    mechanism = properties.get("sasl.mechanism") or properties.get("sasl.mechanisms")
    return deciding <= _UNDERSTOOD and (not _protocol(properties).startswith("sasl") or mechanism == "PLAIN")


@final
class BrokerConnection:
    """One connection. Every method raises OSError when it breaks, ValueError for answers that make no sense."""

    def __init__(self, host: str, port: int, properties: Mapping[str, str], timeout: float) -> None:
        self._correlation_id = 0
        self.unanswered = 0
        self._socket = socket.create_connection((host, port), timeout)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            if _protocol(properties).endswith("ssl"):
                self._socket = _tls(properties).wrap_socket(self._socket, server_hostname=host)
            if _protocol(properties).startswith("sasl"):
                self._authenticate(properties)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "BrokerConnection":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def leader(self, tp: TopicPartition) -> tuple[str, int]:
        """Host and port of the kafka partition's leader."""
        self._send(wire.METADATA, wire.metadata_request(tp.topic))
        found = wire.leader(self._receive(), tp)
        if found is None:
            raise UnsupportedError(f"{tp} has no leader that the broker names")
        return found

    def ask(self, tp: TopicPartition, offset: int, leader_epoch: int, max_bytes: int, wait_ms: int) -> None:
        """Ask for committed records from `offset` on, as `wire.fetch_request` does."""
        self._send(wire.FETCH, wire.fetch_request(tp, offset, leader_epoch, max_bytes, wait_ms))
        self.unanswered += 1

    def answer(self) -> FetchAnswer:
        """The answer to the oldest `ask` that has none yet."""
        found = wire.fetch_answer(self._receive())
        self.unanswered -= 1
        return found

    def log_dirs(self) -> tuple[int, list[LogDir]]:
        """Kafka's error code, and the broker's log directories. UnsupportedError if the broker tells no sizes."""
        self._send(wire.API_VERSIONS, b"")
        if not wire.supports(self._receive(), wire.DESCRIBE_LOG_DIRS):
            raise UnsupportedError("it tells no sizes of its volumes, as brokers before Kafka 3.3 do not")
        self._send(wire.DESCRIBE_LOG_DIRS, wire.log_dirs_request())
        return wire.log_dirs(self._receive())

    def _authenticate(self, properties: Mapping[str, str]) -> None:
        self._send(wire.SASL_HANDSHAKE, wire.handshake_request("PLAIN"))
        refused = wire.handshake_error(self._receive())
        if not refused:
            token = f"\0{properties.get('sasl.username', '')}\0{properties.get('sasl.password', '')}".encode()
            self._send(wire.SASL_AUTHENTICATE, wire.authenticate_request(token))
            refused = wire.authenticate_error(self._receive())
        if refused:
            raise UnsupportedError(f"the broker refuses to authenticate (Kafka's error {refused})")

    def _send(self, api: tuple[int, int], body: bytes) -> None:
        self._correlation_id += 1
        self._socket.sendall(wire.request(api, self._correlation_id, body))

    def _receive(self) -> memoryview:
        return self._read(int.from_bytes(self._read(_FRAME), "big"))

    def _read(self, size: int) -> memoryview:
        view = memoryview(bytearray(size))
        at = 0
        while at < size:
            read = self._socket.recv_into(view[at:])
            if not read:
                raise ConnectionResetError("the broker closed the connection")
            at += read
        return view


def _protocol(properties: Mapping[str, str]) -> str:
    return properties.get("security.protocol", "plaintext").lower()


def _tls(properties: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=properties.get("ssl.ca.location"))
    if "ssl.certificate.location" in properties:
        key, password = properties.get("ssl.key.location"), properties.get("ssl.key.password")
        context.load_cert_chain(properties["ssl.certificate.location"], key, password)
    return context
