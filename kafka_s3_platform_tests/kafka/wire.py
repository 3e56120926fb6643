"""Produce requests written byte by byte: records that no client library agrees to send.

Formats: Kafka's protocol guide, Produce v7 and record batch v2 (magic 2).
"""

import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import cramjam
import google_crc32c

NO_PRODUCER = (-1, -1, -1)
"""Producer id, producer epoch and base sequence of a batch that is not idempotent."""


@dataclass(frozen=True)
class WireRecord:
    """One record; header names are bytes, so that they need not be UTF-8."""

    timestamp_ms: int
    key: bytes | None = None
    value: bytes | None = b"v"
    headers: Sequence[tuple[bytes, bytes | None]] = ()


def xerial(data: bytes) -> bytes:
    """Snappy as snappy-java frames it, in blocks of 100 bytes."""
    blocks = [bytes(cramjam.snappy.compress_raw(data[at : at + 100])) for at in range(0, len(data), 100)]
    head = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    return head + b"".join(struct.pack(">i", len(block)) + block for block in blocks)


GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4

COMPRESS: Mapping[int, Callable[[bytes], bytes]] = {
    GZIP: lambda data: bytes(cramjam.gzip.compress(data)),
    SNAPPY: xerial,
    LZ4: lambda data: bytes(cramjam.lz4.compress(data)),
    ZSTD: lambda data: bytes(cramjam.zstd.compress(data)),
}
"""How each of Kafka's codecs compresses, by its number in a batch's attributes."""


def produce(bootstrap_servers: str, topic: str, kafka_partition: int, records: Sequence[WireRecord]) -> None:
    """Write `records` as one batch to the broker at `bootstrap_servers`, which must lead the kafka partition."""
    produce_batch(bootstrap_servers, topic, kafka_partition, record_batch(records))


def produce_batch(bootstrap_servers: str, topic: str, kafka_partition: int, batch: bytes) -> int:
    """Write one batch as it is; the offset that the broker gave its first record."""
    host, port = bootstrap_servers.rsplit(":", 1)
    request = _produce_request(topic, kafka_partition, batch)
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        size = struct.unpack(">i", _receive(connection, 4))[0]
        error_code, base_offset = _answer(_receive(connection, size))
    if error_code:
        raise AssertionError(f"the broker refused the batch with error code {error_code}")
    return base_offset


def _produce_request(topic: str, kafka_partition: int, batch: bytes) -> bytes:
    api_key, api_version, correlation_id = 0, 7, 1
    acks, timeout_ms = -1, 10_000
    head = struct.pack(">hhi", api_key, api_version, correlation_id) + _string("wire") + struct.pack(">h", -1)
    body = struct.pack(">hii", acks, timeout_ms, 1) + _string(topic)
    return head + body + struct.pack(">iii", 1, kafka_partition, len(batch)) + batch


def _answer(response: bytes) -> tuple[int, int]:
    topic_length = struct.unpack_from(">h", response, 8)[0]
    code, base_offset = struct.unpack_from(">hq", response, 8 + 2 + topic_length + 4 + 4)
    return int(code), int(base_offset)


def record_batch(
    records: Sequence[WireRecord],
    base_offset: int = 0,
    attributes: int = 0,
    producer: tuple[int, int, int] = NO_PRODUCER,
    offset_deltas: Sequence[int] | None = None,
    last_offset_delta: int | None = None,
) -> bytes:
    """A record batch as it stands in the log, uncompressed; `offset_deltas` may lie."""
    return framed(records_body(records, offset_deltas), records, base_offset, attributes, producer, last_offset_delta)


def records_body(records: Sequence[WireRecord], offset_deltas: Sequence[int] | None = None) -> bytes:
    """What follows a batch's header, before it is compressed."""
    pairs = zip(range(len(records)) if offset_deltas is None else offset_deltas, records, strict=True)
    return b"".join(_record(delta, r, records[0].timestamp_ms) for delta, r in pairs)


def framed(
    body: bytes,
    records: Sequence[WireRecord],
    base_offset: int,
    attributes: int,
    producer: tuple[int, int, int],
    last_offset_delta: int | None = None,
) -> bytes:
    """A batch whose header speaks of `records`, whatever `body` holds; its CRC is right."""
    timestamps = [r.timestamp_ms for r in records] or [-1]
    delta = len(records) - 1 if last_offset_delta is None else last_offset_delta
    checked = struct.pack(">hiqq", attributes, delta, timestamps[0], max(timestamps))
    checked += struct.pack(">qhi", *producer) + struct.pack(">i", len(records)) + body
    leader_epoch, magic = 0, 2
    tail = struct.pack(">ibI", leader_epoch, magic, google_crc32c.value(checked)) + checked
    return struct.pack(">qi", base_offset, len(tail)) + tail


def _record(offset_delta: int, record: WireRecord, base_timestamp: int) -> bytes:
    body = b"\0" + _varint(record.timestamp_ms - base_timestamp) + _varint(offset_delta)
    body += _sized(record.key) + _sized(record.value) + _varint(len(record.headers))
    body += b"".join(_sized(name) + _sized(value) for name, value in record.headers)
    return _varint(len(body)) + body


def _sized(data: bytes | None) -> bytes:
    return _varint(-1) if data is None else _varint(len(data)) + data


def _varint(number: int) -> bytes:
    rest = (number << 1) ^ (number >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*out, rest])


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text.encode())) + text.encode()


def _receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise AssertionError("the broker closed the connection: malformed request?")
        data += part
    return data
