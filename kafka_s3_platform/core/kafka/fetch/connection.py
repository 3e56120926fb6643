"""A blocking connection to one broker, for FETCH requests and for requests librdkafka lacks.

It connects without security, over TLS, and with SASL PLAIN (RFC 4616), SCRAM (RFC 5802) or MSK's tokens (RFC 7628).
For anything else it raises UnsupportedError, and confluent-kafka reads instead.

Of Kafka's protocol it knows Metadata 9, Fetch 12, SaslHandshake 1, SaslAuthenticate 2 and OffsetDelete 0. Source:
Apache Kafka documentation, "Kafka Protocol Guide". All numbers are big endian; compact strings, bytes and arrays begin
with their length plus one as an unsigned varint, and structures end with tagged fields.
"""

import socket
import ssl
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from struct import Struct
from typing import TypeVar, final

from scramp import ScramClient, ScramException

from kafka_s3_platform.core.aws_login import MSK_PROPERTIES, is_msk_login, sign_msk_token
from kafka_s3_platform.core.kafka.record_reader import EpochEnd
from kafka_s3_platform.core.keystores import PEM_PROPERTIES, load_pem
from kafka_s3_platform.core.model.offsets import TopicPartition

SCRAM = frozenset({"SCRAM-SHA-256", "SCRAM-SHA-512"})
MECHANISMS = SCRAM | {"PLAIN"}


def authenticate(mechanism: str, user: str, password: str, ask: Callable[[bytes], bytes]) -> None:
    """Exchange the mechanism's messages. `ask` sends one to the broker and returns its answer.

    Raises ValueError if the broker does not prove it knows the password, as SCRAM demands.
    """
    if mechanism not in SCRAM:
        ask(f"\0{user}\0{password}".encode())
        return
    try:
        client = ScramClient([mechanism], user, password)
        client.set_server_first(ask(client.get_client_first().encode()).decode())
        client.set_server_final(ask(client.get_client_final().encode()).decode())
    except ScramException as err:
        raise ValueError(f"{mechanism}: {err}") from err


# The key and the version of each request.
METADATA = (3, 9)
FETCH = (1, 12)
SASL_HANDSHAKE = (17, 1)
SASL_AUTHENTICATE = (36, 2)
OFFSET_DELETE = (47, 0)
CLIENT_ID = "kafka-s3-platform"
# The isolation level: no records past the last stable offset, and a list of aborted transactions.
READ_COMMITTED = 1

_HEADER = Struct(">hhih")
_FETCH_HEAD = Struct(">iiiibii")
_FETCH_PLACE = Struct(">iiqiqi")
_EPOCH_END = Struct(">iq")
_NO_TAGS = b"\0"
# Versions without the compact strings and tagged fields of KIP-482.
_WITHOUT_TAGS = frozenset({SASL_HANDSHAKE, OFFSET_DELETE})
# No answer has more items in one array. A broker has 4,000 kafka partitions; 8 MiB of batches are at most 60,000
# aborted transactions.
_MOST_ITEMS = 200_000
# No version of an answer has more tagged fields, or numbers of more than 32 bits, in seven bits a byte.
_MOST_TAGS = 100
_MOST_SHIFT = 28
# The tagged field by which a broker reports that its log differs below the offset (KIP-595).
_DIVERGING_EPOCH = 0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FetchAnswer:
    """A broker's answer about one kafka partition. `aborted` has (producer id, first offset) of aborted transactions.

    `divergence` is set if the broker's log lacks the requested leader epoch, or if the epoch ends before the requested
    offset.
    """

    error_code: int
    log_start_offset: int
    last_stable_offset: int
    aborted: tuple[tuple[int, int], ...]
    divergence: EpochEnd | None
    records: memoryview


def frame_request(api: tuple[int, int], correlation_id: int, body: bytes) -> bytes:
    """Put a request into its frame. Requests of the old kind have a header without tagged fields."""
    key, version = api
    client = CLIENT_ID.encode()
    tags = b"" if api in _WITHOUT_TAGS else _NO_TAGS
    framed = _HEADER.pack(key, version, correlation_id, len(client)) + client + tags + body
    return len(framed).to_bytes(4, "big") + framed


def write_metadata_request(topic: str) -> bytes:
    """Write a request for one topic. It never creates the topic."""
    return b"\2" + _write_string(topic) + _NO_TAGS + b"\0\0\0" + _NO_TAGS


def write_fetch_request(tp: TopicPartition, offset: int, leader_epoch: int, max_bytes: int, wait_ms: int) -> bytes:
    """Write a request for committed records of one kafka partition from `offset` on.

    `leader_epoch` is the epoch of the record before it, or -1 if unknown. It lets the broker detect a truncated log.
    """
    # A consumer has no replica id (-1), wants one byte at least, and opens no fetch session (0, epoch -1).
    head = _FETCH_HEAD.pack(-1, wait_ms, 1, max_bytes, READ_COMMITTED, 0, -1)
    # The first -1: the leader's own epoch is not checked. The second: only followers have a log start.
    place = _FETCH_PLACE.pack(tp.kafka_partition, -1, offset, leader_epoch, -1, max_bytes) + _NO_TAGS
    topics = b"\2" + _write_string(tp.topic) + b"\2" + place + _NO_TAGS
    return head + topics + b"\1" + b"\1" + _NO_TAGS


def write_authenticate_request(token: bytes) -> bytes:
    """Write a request with the token of the SASL mechanism."""
    return _write_unsigned(len(token) + 1) + token + _NO_TAGS


def write_offset_delete_request(group: str, topic: str, kafka_partitions: Collection[int]) -> bytes:
    """Write a request to remove a group's committed offsets of some kafka partitions."""
    numbers = b"".join(_write_number(p) for p in (len(kafka_partitions), *kafka_partitions))
    return _write_short_string(group) + _write_number(1) + _write_short_string(topic) + numbers


def read_leader(frame: memoryview, tp: TopicPartition) -> tuple[str, int] | None:
    """Read the host and port of the kafka partition's leader from a Metadata answer, or None if it names none."""
    answer = _Answer(frame)
    answer.read_number(4)
    brokers = dict(answer.read_array(_read_broker))
    answer.read_text()
    answer.read_number(4)
    leaders = dict(chain.from_iterable(answer.read_array(_read_topic_leaders)))
    return brokers.get(leaders.get(tp.kafka_partition, -1))


def read_fetch_answer(frame: memoryview) -> FetchAnswer:
    """Read the only kafka partition of a Fetch answer. It gets the answer's own error if there is one."""
    answer = _Answer(frame)
    answer.read_number(4)
    error = answer.read_number(2)
    answer.read_number(4)
    places = list(chain.from_iterable(answer.read_array(_read_fetched_topic)))
    if error or not places:
        return FetchAnswer(error or -1, -1, -1, (), None, memoryview(b""))
    return places[0]


def read_authenticate_answer(frame: memoryview) -> tuple[int, bytes]:
    """Read the error code of a SaslAuthenticate answer, and the mechanism's token."""
    answer = _Answer(frame)
    error = answer.read_number(2)
    answer.read_bytes()
    return error, bytes(answer.read_bytes())


def read_offset_delete_errors(frame: memoryview) -> dict[int | None, int]:
    """Read the error codes of an OffsetDelete answer by kafka partition, and its own under None. 0 is no error."""
    answer = _Answer(frame, flexible=False)
    errors: dict[int | None, int] = {None: answer.read_number(2)}
    answer.read_number(4)
    for _ in range(answer.read_number(4)):
        answer.take(answer.read_number(2))
        places = ((answer.read_number(4), answer.read_number(2)) for _ in range(answer.read_number(4)))
        errors |= dict(places)
    return errors


class _Answer:
    """A cursor over an answer, with tagged fields if `flexible`. Past its end it raises ValueError or IndexError."""

    def __init__(self, frame: memoryview, flexible: bool = True) -> None:
        self._frame = frame
        self._at = 4
        if flexible:
            self.read_tags()

    def read_number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big", signed=True)

    def read_unsigned(self) -> int:
        """Read an unsigned varint."""
        value = 0
        for shift in range(0, _MOST_SHIFT + 7, 7):
            byte = self._frame[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 128:
                return value
        raise ValueError("the broker's answer has a number of more than five bytes")

    def take(self, size: int) -> memoryview:
        """Return the next `size` bytes. Raise ValueError if there are fewer."""
        part = self._frame[self._at : self._at + size]
        if len(part) != size:
            raise ValueError("the broker's answer ends too early")
        self._at += size
        return part

    def read_bytes(self) -> memoryview:
        """Read compact bytes; none if they are null."""
        return self.take(max(self.read_unsigned() - 1, 0))

    def read_text(self) -> str:
        return bytes(self.read_bytes()).decode()

    def read_array(self, item: "Callable[[_Answer], T]") -> Iterator[T]:
        """Yield the items of a compact array, each read by `item`."""
        for _ in range(self._count(_MOST_ITEMS) - 1):
            yield item(self)

    def read_tags(self) -> dict[int, memoryview]:
        """Read tagged fields by their number."""
        return {self.read_unsigned(): self.take(self.read_unsigned()) for _ in range(self._count(_MOST_TAGS))}

    def _count(self, most: int) -> int:
        """Read a count of items (in compact arrays, plus one). Raise ValueError above `most`, to protect the memory."""
        count = self.read_unsigned()
        if count > most:
            raise ValueError(f"the broker's answer has {count:,} items, where {most:,} are the most")
        return count


def _read_broker(answer: _Answer) -> tuple[int, tuple[str, int]]:
    """Read a broker of a Metadata answer: its id, and its host and port. The rack is skipped."""
    node_id = answer.read_number(4)
    host = answer.read_text()
    port = answer.read_number(4)
    answer.read_bytes()
    answer.read_tags()
    return node_id, (host, port)


def _read_topic_leaders(answer: _Answer) -> list[tuple[int, int]]:
    """Read a topic of a Metadata answer: the number and leader id of each kafka partition."""
    answer.read_number(2)
    answer.read_bytes()
    answer.read_number(1)
    leaders = list(answer.read_array(_read_place_leader))
    answer.read_number(4)
    answer.read_tags()
    return leaders


def _read_place_leader(answer: _Answer) -> tuple[int, int]:
    """Read a kafka partition of a Metadata answer, and its leader's id. The replicas are skipped."""
    answer.read_number(2)
    kafka_partition, leader_id, _ = (answer.read_number(4) for _ in range(3))
    for _ in range(3):
        list(answer.read_array(lambda a: a.read_number(4)))
    answer.read_tags()
    return kafka_partition, leader_id


def _read_fetched_topic(answer: _Answer) -> list[FetchAnswer]:
    """Read a topic of a Fetch answer: the answers about its kafka partitions."""
    answer.read_bytes()
    places = list(answer.read_array(_read_fetched_place))
    answer.read_tags()
    return places


def _read_fetched_place(answer: _Answer) -> FetchAnswer:
    """Read a kafka partition of a Fetch answer."""
    answer.read_number(4)
    error = answer.read_number(2)
    _, stable, log_start = (answer.read_number(8) for _ in range(3))
    aborted = tuple(answer.read_array(_read_aborted))
    answer.read_number(4)
    records = answer.read_bytes()
    differing = answer.read_tags().get(_DIVERGING_EPOCH)
    divergence = None if differing is None else _read_epoch_end(differing)
    return FetchAnswer(error, log_start, stable, aborted, divergence, records)


def _read_epoch_end(field: memoryview) -> EpochEnd:
    """Read the field of a diverging epoch, from whose end on the log differs from the requested epoch."""
    if len(field) < _EPOCH_END.size or min(epoch_end := _EPOCH_END.unpack_from(field)) < 0:
        raise ValueError(f"the broker's answer has a diverging epoch that makes no sense: {field.hex()}")
    return EpochEnd(*epoch_end)


def _read_aborted(answer: _Answer) -> tuple[int, int]:
    """Read an aborted transaction of a Fetch answer: producer id and first offset."""
    producer_id = answer.read_number(8)
    first_offset = answer.read_number(8)
    answer.read_tags()
    return producer_id, first_offset


def _write_short_string(text: str) -> bytes:
    return len(text.encode()).to_bytes(2, "big") + text.encode()


def _write_number(value: int) -> bytes:
    return value.to_bytes(4, "big")


def _write_string(text: str) -> bytes:
    return _write_unsigned(len(text.encode()) + 1) + text.encode()


def _write_unsigned(value: int) -> bytes:
    """Write an unsigned varint, seven bits a byte, the low ones first."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


# Every answer begins with its length, in four bytes.
_FRAME = 4
# What answers may take. Nobody is trusted before authentication, and it needs little. No answer without records needs
# more than 8 MiB, which name the leaders of 200,000 kafka partitions.
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
        "ssl.certificate.location",
        "ssl.key.location",
        "ssl.key.password",
        *PEM_PROPERTIES,
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
    """Return True if we obey all connection settings among these librdkafka properties."""
    is_msk = is_msk_login(properties)
    deciding = {name for name in properties if name.startswith(_DECIDING)} - (MSK_PROPERTIES if is_msk else set())
    return (
        deciding <= _UNDERSTOOD
        and properties.get("client.dns.lookup", _EVERY_ADDRESS) == _EVERY_ADDRESS
        and (not _read_protocol(properties).startswith("sasl") or is_msk or _read_mechanism(properties) in MECHANISMS)
    )


@final
class BrokerConnection:
    """One connection. Methods raise OSError if it breaks, and ValueError or IndexError if an answer makes no sense.

    `timeout` is for each answer as a whole, but an answer with records has a minute.
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
        self._send(METADATA, write_metadata_request(tp.topic))
        leader = read_leader(self._receive(), tp)
        if leader is None:
            raise UnsupportedError(f"{tp} has no leader that the broker names")
        return leader

    def ask(self, tp: TopicPartition, offset: int, leader_epoch: int, max_bytes: int, wait_ms: int) -> None:
        """Send a Fetch request for committed records. `offset` and `leader_epoch` are as in `write_fetch_request`."""
        self._send(FETCH, write_fetch_request(tp, offset, leader_epoch, max_bytes, wait_ms))
        self.unanswered += 1

    def answer(self) -> FetchAnswer:
        """Read the answer to the oldest unanswered `ask`."""
        answer = read_fetch_answer(self._receive(self._record_bytes, _RECORD_SECONDS))
        self.unanswered -= 1
        return answer

    def delete_offsets(self, group: str, topic: str, kafka_partitions: Collection[int]) -> dict[int | None, int]:
        """Delete offsets of a group, whose coordinator this broker is. Return the error codes by kafka partition."""
        self._send(OFFSET_DELETE, write_offset_delete_request(group, topic, kafka_partitions))
        return read_offset_delete_errors(self._receive())

    def _authenticate(self, properties: Mapping[str, str]) -> None:
        """Log in by the mechanism named in the properties. Raise UnsupportedError if the broker refuses."""
        is_msk = is_msk_login(properties)
        mechanism = "OAUTHBEARER" if is_msk else _read_mechanism(properties)
        self._send(SASL_HANDSHAKE, _write_short_string(mechanism))
        _check_authenticated(_Answer(self._receive(_UNTRUSTED_BYTES), flexible=False).read_number(2))
        if is_msk:
            token, _ = sign_msk_token(properties)
            # RFC 7628; an answer says why it is refused
            if self._exchange_token(f"n,,\1auth=Bearer {token}\1\1".encode()):
                raise UnsupportedError("the broker refuses the token")
            return
        user = properties.get("sasl.username", "")
        password = properties.get("sasl.password", "")
        authenticate(mechanism, user, password, self._exchange_token)

    def _exchange_token(self, token: bytes) -> bytes:
        """Send a token of the SASL mechanism, and return the broker's token."""
        self._send(SASL_AUTHENTICATE, write_authenticate_request(token))
        error, answered = read_authenticate_answer(self._receive(_UNTRUSTED_BYTES))
        _check_authenticated(error)
        return answered

    def _send(self, api: tuple[int, int], body: bytes) -> None:
        self._correlation_id += 1
        self._socket.sendall(frame_request(api, self._correlation_id, body))

    def _receive(self, most: int = _ANSWER_BYTES, seconds: float | None = None) -> memoryview:
        """Read one answer, of at most `most` bytes, within `seconds` or the connection's timeout."""
        deadline = time.monotonic() + (seconds or self._timeout)
        size = int.from_bytes(self._read(_FRAME, deadline), "big")
        if size > most:
            raise ValueError(f"an answer of {size:,} bytes, where {most:,} are the most: this may be no broker")
        return self._read(size, deadline)

    def _read(self, size: int, deadline: float) -> memoryview:
        """Read exactly `size` bytes before `deadline`, a time of the monotonic clock."""
        view = memoryview(bytearray(size))
        at = 0
        while at < size:
            # A server that sends a byte now and then is not waited for any longer than a silent one.
            self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                count = self._socket.recv_into(view[at:])
            except TimeoutError as err:
                raise TimeoutError(f"the broker took too long: it has sent {at:,} of {size:,} bytes") from err
            if not count:
                raise ConnectionResetError("the broker closed the connection")
            at += count
        return view


def _read_protocol(properties: Mapping[str, str]) -> str:
    return properties.get("security.protocol", "plaintext").lower()


def _read_mechanism(properties: Mapping[str, str]) -> str:
    return properties.get("sasl.mechanism") or properties.get("sasl.mechanisms") or ""


def _check_authenticated(error: int) -> None:
    if error:
        raise UnsupportedError(f"the broker refuses to authenticate (Kafka's error {error})")


def _new_tls_context(properties: Mapping[str, str]) -> ssl.SSLContext:
    """Build the TLS settings of Python's sockets from librdkafka's `ssl.` properties."""
    context = ssl.create_default_context(cafile=properties.get("ssl.ca.location"), cadata=properties.get("ssl.ca.pem"))
    load_pem(context, properties)
    context.check_hostname = properties.get("ssl.endpoint.identification.algorithm") != "none"
    if "ssl.certificate.location" in properties:
        key = properties.get("ssl.key.location")
        password = properties.get("ssl.key.password")
        context.load_cert_chain(properties["ssl.certificate.location"], key, password)
    return context
