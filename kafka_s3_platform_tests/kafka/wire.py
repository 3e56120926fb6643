"""Produce requests written byte by byte: records that no client library agrees to send.

Formats: Kafka's protocol guide, Produce v3 and record batch v2 (magic 2).
"""

import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass

NO_PRODUCER = (-1, -1, -1)
"""Producer id, producer epoch and base sequence of a batch that is not idempotent."""

_POLYNOMIAL = 0x82F63B78


@dataclass(frozen=True)
class WireRecord:
    """One record; header names are bytes, so that they need not be UTF-8."""

    timestamp_ms: int
    key: bytes | None = None
    value: bytes | None = b"v"
    headers: Sequence[tuple[bytes, bytes | None]] = ()


def produce(bootstrap_servers: str, topic: str, kafka_partition: int, records: Sequence[WireRecord]) -> None:
    """Write `records` as one batch to the broker at `bootstrap_servers`, which must lead the kafka partition."""
    host, port = bootstrap_servers.rsplit(":", 1)
    request = _produce_request(topic, kafka_partition, record_batch(records))
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        size = struct.unpack(">i", _receive(connection, 4))[0]
        error_code = _error_code(_receive(connection, size))
    if error_code:
        raise AssertionError(f"the broker refused the batch with error code {error_code}")


def _produce_request(topic: str, kafka_partition: int, batch: bytes) -> bytes:
    api_key, api_version, correlation_id = 0, 3, 1
    acks, timeout_ms = -1, 10_000
    head = struct.pack(">hhi", api_key, api_version, correlation_id) + _string("wire") + struct.pack(">h", -1)
    body = struct.pack(">hii", acks, timeout_ms, 1) + _string(topic)
    return head + body + struct.pack(">iii", 1, kafka_partition, len(batch)) + batch


def _error_code(response: bytes) -> int:
    topic_length = struct.unpack_from(">h", response, 8)[0]
    code: int = struct.unpack_from(">h", response, 8 + 2 + topic_length + 4 + 4)[0]
    return code


def record_batch(
    records: Sequence[WireRecord],
    base_offset: int = 0,
    attributes: int = 0,
    producer: tuple[int, int, int] = NO_PRODUCER,
) -> bytes:
    """A record batch as it stands in the log, uncompressed."""
    timestamps = [r.timestamp_ms for r in records]
    body = b"".join(_record(i, r, timestamps[0]) for i, r in enumerate(records))
    return framed(body, records, base_offset, attributes, producer)


def framed(
    body: bytes, records: Sequence[WireRecord], base_offset: int, attributes: int, producer: tuple[int, int, int]
) -> bytes:
    """A batch whose header speaks of `records`, whatever `body` holds; its CRC is right."""
    timestamps = [r.timestamp_ms for r in records]
    checked = struct.pack(">hiqq", attributes, len(records) - 1, timestamps[0], max(timestamps))
    checked += struct.pack(">qhi", *producer) + struct.pack(">i", len(records)) + body
    leader_epoch, magic = 0, 2
    tail = struct.pack(">ibI", leader_epoch, magic, _crc32c(checked)) + checked
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


def _crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (_POLYNOMIAL if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def _receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise AssertionError("the broker closed the connection: malformed request?")
        data += part
    return data
