"""Our own part of Kafka's protocol: fetching, and the requests missing in librdkafka.

Metadata 9, Fetch 12, SaslHandshake 1, SaslAuthenticate 2, OffsetDelete 0. Source: Apache Kafka
documentation, "Kafka Protocol Guide". All numbers are big endian; compact strings, bytes and arrays begin with their
length plus one as an unsigned varint, and structures end with tagged fields.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from itertools import chain
from struct import Struct
from typing import TypeVar

from kafka_s3_platform.kafka.record_reader import EpochEnd
from kafka_s3_platform.model.offsets import TopicPartition

# The key and the version of each request.
METADATA = (3, 9)
FETCH = (1, 12)
SASL_HANDSHAKE = (17, 1)
SASL_AUTHENTICATE = (36, 2)
OFFSET_DELETE = (47, 0)
CLIENT_ID = "kafka-s3-platform"
# The isolation level: no records behind the last stable offset, and a list of aborted transactions.
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
    """A broker's answer about one kafka partition. `aborted` are (producer id, first offset) of aborted transactions.

    `divergence` is set if its log lacks the requested leader epoch, or ends it before the offset.
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

    `leader_epoch` is the epoch of the record before it, -1 if unknown: with it the broker detects a truncated log.
    """
    # A consumer has no replica id (-1), wants one byte at least, and opens no fetch session (0, epoch -1).
    head = _FETCH_HEAD.pack(-1, wait_ms, 1, max_bytes, READ_COMMITTED, 0, -1)
    # The first -1: the leader's own epoch is not checked. The second: only followers have a log start.
    place = _FETCH_PLACE.pack(tp.kafka_partition, -1, offset, leader_epoch, -1, max_bytes) + _NO_TAGS
    topics = b"\2" + _write_string(tp.topic) + b"\2" + place + _NO_TAGS
    return head + topics + b"\1" + b"\1" + _NO_TAGS


def write_handshake_request(mechanism: str) -> bytes:
    """Write a request that names the SASL mechanism."""
    return _write_short_string(mechanism)


def write_authenticate_request(token: bytes) -> bytes:
    """Write a request with the token of the SASL mechanism."""
    return _write_unsigned(len(token) + 1) + token + _NO_TAGS


def write_offset_delete_request(group: str, topic: str, kafka_partitions: Collection[int]) -> bytes:
    """Write a request to remove a group's committed offsets of some kafka partitions."""
    numbers = b"".join(_write_number(p) for p in (len(kafka_partitions), *kafka_partitions))
    return _write_short_string(group) + _write_number(1) + _write_short_string(topic) + numbers


def read_leader(frame: memoryview, tp: TopicPartition) -> tuple[str, int] | None:
    """Read host and port of the kafka partition's leader from a Metadata answer, None if it names none."""
    answer = _Answer(frame)
    answer.number(4)
    brokers = dict(answer.array(_read_broker))
    answer.text()
    answer.number(4)
    leaders = dict(chain.from_iterable(answer.array(_read_topic_leaders)))
    return brokers.get(leaders.get(tp.kafka_partition, -1))


def read_fetch_answer(frame: memoryview) -> FetchAnswer:
    """Read the only kafka partition of a Fetch answer; with the answer's own error if it has one."""
    answer = _Answer(frame)
    answer.number(4)
    error = answer.number(2)
    answer.number(4)
    places = list(chain.from_iterable(answer.array(_read_fetched_topic)))
    if error or not places:
        return FetchAnswer(error or -1, -1, -1, (), None, memoryview(b""))
    return places[0]


def read_handshake_error(frame: memoryview) -> int:
    """Read the error code of a SaslHandshake answer."""
    return _Answer(frame, flexible=False).number(2)


def read_authenticate_answer(frame: memoryview) -> tuple[int, bytes]:
    """Read the error code of a SaslAuthenticate answer, and the mechanism's token."""
    answer = _Answer(frame)
    error = answer.number(2)
    answer.data()
    return error, bytes(answer.data())


def read_offset_delete_errors(frame: memoryview) -> dict[int | None, int]:
    """Read the error codes of an OffsetDelete answer by kafka partition; None has the answer's own. 0 is no error."""
    answer = _Answer(frame, flexible=False)
    errors: dict[int | None, int] = {None: answer.number(2)}
    answer.number(4)
    for _ in range(answer.number(4)):
        answer.take(answer.number(2))
        places = ((answer.number(4), answer.number(2)) for _ in range(answer.number(4)))
        errors |= dict(places)
    return errors


class _Answer:
    """Reads an answer from its start. ValueError or IndexError if it ends too early."""

    def __init__(self, frame: memoryview, flexible: bool = True) -> None:
        self._frame = frame
        self._at = 4
        if flexible:
            self.tags()

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big", signed=True)

    def unsigned(self) -> int:
        value = 0
        for shift in range(0, _MOST_SHIFT + 7, 7):
            byte = self._frame[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 128:
                return value
        raise ValueError("the broker's answer has a number of more than five bytes")

    def take(self, size: int) -> memoryview:
        taken = self._frame[self._at : self._at + size]
        if len(taken) != size:
            raise ValueError("the broker's answer ends too early")
        self._at += size
        return taken

    def data(self) -> memoryview:
        """Read compact bytes; none if they are null."""
        return self.take(max(self.unsigned() - 1, 0))

    def text(self) -> str:
        return bytes(self.data()).decode()

    def array(self, item: "Callable[[_Answer], T]") -> Iterator[T]:
        for _ in range(self._count(_MOST_ITEMS) - 1):
            yield item(self)

    def tags(self) -> dict[int, memoryview]:
        """Read tagged fields by their number."""
        return {self.unsigned(): self.take(self.unsigned()) for _ in range(self._count(_MOST_TAGS))}

    def _count(self, most: int) -> int:
        count = self.unsigned()
        if count > most:
            raise ValueError(f"the broker's answer has {count:,} items, where {most:,} are the most")
        return count


def _read_broker(answer: _Answer) -> tuple[int, tuple[str, int]]:
    node_id = answer.number(4)
    host = answer.text()
    port = answer.number(4)
    answer.data()
    answer.tags()
    return node_id, (host, port)


def _read_topic_leaders(answer: _Answer) -> list[tuple[int, int]]:
    answer.number(2)
    answer.data()
    answer.number(1)
    leaders = list(answer.array(_read_place_leader))
    answer.number(4)
    answer.tags()
    return leaders


def _read_place_leader(answer: _Answer) -> tuple[int, int]:
    answer.number(2)
    kafka_partition, leader_id, _ = (answer.number(4) for _ in range(3))
    for _ in range(3):
        list(answer.array(lambda a: a.number(4)))
    answer.tags()
    return kafka_partition, leader_id


def _read_fetched_topic(answer: _Answer) -> list[FetchAnswer]:
    answer.data()
    places = list(answer.array(_read_fetched_place))
    answer.tags()
    return places


def _read_fetched_place(answer: _Answer) -> FetchAnswer:
    answer.number(4)
    error = answer.number(2)
    _, stable, log_start = (answer.number(8) for _ in range(3))
    aborted = tuple(answer.array(_read_aborted))
    answer.number(4)
    records = answer.data()
    differing = answer.tags().get(_DIVERGING_EPOCH)
    divergence = None if differing is None else _read_epoch_end(differing)
    return FetchAnswer(error, log_start, stable, aborted, divergence, records)


def _read_epoch_end(field: memoryview) -> EpochEnd:
    if len(field) < _EPOCH_END.size or min(epoch_end := _EPOCH_END.unpack_from(field)) < 0:
        raise ValueError(f"the broker's answer has a diverging epoch that makes no sense: {field.hex()}")
    return EpochEnd(*epoch_end)


def _read_aborted(answer: _Answer) -> tuple[int, int]:
    producer_id = answer.number(8)
    first_offset = answer.number(8)
    answer.tags()
    return producer_id, first_offset


def _write_short_string(text: str) -> bytes:
    return len(text.encode()).to_bytes(2, "big") + text.encode()


def _write_number(value: int) -> bytes:
    return value.to_bytes(4, "big")


def _write_string(text: str) -> bytes:
    return _write_unsigned(len(text.encode()) + 1) + text.encode()


def _write_unsigned(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
