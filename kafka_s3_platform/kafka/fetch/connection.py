"""A blocking connection to one broker, for FETCH requests and for those missing in librdkafka.

It connects without security, over TLS, and with SASL PLAIN or SCRAM. For anything else it raises UnsupportedError, and
confluent-kafka reads instead.
"""

import socket
import ssl
import time
from collections.abc import Collection, Mapping
from typing import final

from kafka_s3_platform.kafka.fetch import protocol as wire
from kafka_s3_platform.kafka.fetch import sasl
from kafka_s3_platform.kafka.fetch.protocol import FetchAnswer
from kafka_s3_platform.model.offsets import TopicPartition

# Every answer begins with its length, in four bytes.
_FRAME = 4
# What answers may take. Nobody is trusted before authentication, and it needs little. No other answer but records needs
# more than 8 MiB: that tells the leaders of 200,000 kafka partitions.
_UNTRUSTED_BYTES = 64 << 10
_ANSWER_BYTES = 8 << 20
# Answers with records: librdkafka's defaults of `receive.message.max.bytes` and `socket.timeout.ms`.
_RECORD_BYTES = 100_000_000
_RECORD_SECONDS = 60.0
# The properties that we obey. If any other one decides how to connect, librdkafka has to connect.
_UNDERSTOOD = frozenset(
    {
        "client.dns.lookup",
        "security.protocol",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.username",
        "sasl.password",
        "ssl.endpoint.identification.algorithm",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.key.location",
        "ssl.key.password",
    }
)
# How properties begin that decide how to connect. With `client.rack`, librdkafka reads from the nearest replica.
_DECIDING = (
    "client.dns",
    "client.rack",
    "broker.address.family",
    "enable.sasl",
    "enable.ssl",
    "sasl.",
    "security.",
    "ssl.",
)
# librdkafka's default, which is what `socket.create_connection` does.
_EVERY_ADDRESS = "use_all_dns_ips"


class UnsupportedError(Exception):
    """Only confluent-kafka can handle this cluster, or its answer."""


def is_supported(properties: Mapping[str, str]) -> bool:
    """Return True if we obey all of these librdkafka properties that decide how to connect."""
    deciding = {name for name in properties if name.startswith(_DECIDING)}
    return (
        deciding <= _UNDERSTOOD
        and properties.get("client.dns.lookup", _EVERY_ADDRESS) == _EVERY_ADDRESS
        and (not _read_protocol(properties).startswith("sasl") or _read_mechanism(properties) in sasl.MECHANISMS)
    )


@final
class BrokerConnection:
    """One connection. Methods raise OSError if it breaks, and ValueError or IndexError if an answer makes no sense.

    `timeout` is for each answer as a whole; one with records has a minute.
    """

    def __init__(self, host: str, port: int, properties: Mapping[str, str], timeout: float) -> None:
        self._correlation_id = 0
        self.unanswered = 0
        self._timeout = timeout
        self._record_bytes = int(properties.get("receive.message.max.bytes", _RECORD_BYTES))
        self._socket = socket.create_connection((host, port), timeout)
        # A request is a few hundred bytes and would wait for more to send.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            if _read_protocol(properties).endswith("ssl"):
                self._socket = _new_tls_context(properties).wrap_socket(self._socket, server_hostname=host)
            if _read_protocol(properties).startswith("sasl"):
                self._authenticate(properties)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "BrokerConnection":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def leader(self, tp: TopicPartition) -> tuple[str, int]:
        """Return host and port of the kafka partition's leader."""
        self._send(wire.METADATA, wire.write_metadata_request(tp.topic))
        leader = wire.read_leader(self._receive(), tp)
        if leader is None:
            raise UnsupportedError(f"{tp} has no leader that the broker names")
        return leader

    def ask(self, tp: TopicPartition, offset: int, leader_epoch: int, max_bytes: int, wait_ms: int) -> None:
        """Ask for committed records from `offset` on, as `wire.write_fetch_request` does."""
        self._send(wire.FETCH, wire.write_fetch_request(tp, offset, leader_epoch, max_bytes, wait_ms))
        self.unanswered += 1

    def answer(self) -> FetchAnswer:
        """Read the answer to the oldest unanswered `ask`."""
        answer = wire.read_fetch_answer(self._receive(self._record_bytes, _RECORD_SECONDS))
        self.unanswered -= 1
        return answer

    def delete_offsets(self, group: str, topic: str, kafka_partitions: Collection[int]) -> dict[int | None, int]:
        """Delete offsets of a group, at its coordinator. Return the codes of `wire.read_offset_delete_errors`."""
        self._send(wire.OFFSET_DELETE, wire.write_offset_delete_request(group, topic, kafka_partitions))
        return wire.read_offset_delete_errors(self._receive())

    def _authenticate(self, properties: Mapping[str, str]) -> None:
        mechanism = _read_mechanism(properties)
        self._send(wire.SASL_HANDSHAKE, wire.write_handshake_request(mechanism))
        _check_authenticated(wire.read_handshake_error(self._receive(_UNTRUSTED_BYTES)))
        user = properties.get("sasl.username", "")
        password = properties.get("sasl.password", "")
        sasl.authenticate(mechanism, user, password, self._said)

    def _said(self, token: bytes) -> bytes:
        self._send(wire.SASL_AUTHENTICATE, wire.write_authenticate_request(token))
        error, answered = wire.read_authenticate_answer(self._receive(_UNTRUSTED_BYTES))
        _check_authenticated(error)
        return answered

    def _send(self, api: tuple[int, int], body: bytes) -> None:
        self._correlation_id += 1
        self._socket.sendall(wire.frame_request(api, self._correlation_id, body))

    def _receive(self, most: int = _ANSWER_BYTES, seconds: float | None = None) -> memoryview:
        deadline = time.monotonic() + (seconds or self._timeout)
        size = int.from_bytes(self._read(_FRAME, deadline), "big")
        if size > most:
            raise ValueError(f"an answer of {size:,} bytes, where {most:,} are the most: this may be no broker")
        return self._read(size, deadline)

    def _read(self, size: int, deadline: float) -> memoryview:
        view = memoryview(bytearray(size))
        at = 0
        while at < size:
            # A server that sends a byte now and then is not waited for any longer than a silent one.
            self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                read = self._socket.recv_into(view[at:])
            except TimeoutError as err:
                raise TimeoutError(f"the broker took too long: it has sent {at:,} of {size:,} bytes") from err
            if not read:
                raise ConnectionResetError("the broker closed the connection")
            at += read
        return view


def _read_protocol(properties: Mapping[str, str]) -> str:
    return properties.get("security.protocol", "plaintext").lower()


def _read_mechanism(properties: Mapping[str, str]) -> str:
    return properties.get("sasl.mechanism") or properties.get("sasl.mechanisms") or ""


def _check_authenticated(error: int) -> None:
    if error:
        raise UnsupportedError(f"the broker refuses to authenticate (Kafka's error {error})")


def _new_tls_context(properties: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=properties.get("ssl.ca.location"), cadata=properties.get("ssl.ca.pem"))
    context.check_hostname = properties.get("ssl.endpoint.identification.algorithm") != "none"
    if "ssl.certificate.location" in properties:
        key = properties.get("ssl.key.location")
        password = properties.get("ssl.key.password")
        context.load_cert_chain(properties["ssl.certificate.location"], key, password)
    return context
