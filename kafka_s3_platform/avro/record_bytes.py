"""Reads numbers and checks bounds in the bytes of a single record."""

from kafka_s3_platform.avro.cursor import INT_BYTES


class InvalidDatumError(Exception):
    """The bytes are not a datum."""


def read_branch_index(data: memoryview, pos: int, count: int) -> tuple[int, int]:
    """Read the index at `pos`, below `count`. Return it and the position behind it.

    Raises InvalidDatumError.
    """
    index, pos = read_long(data, pos, INT_BYTES)
    if not 0 <= index < count:
        raise InvalidDatumError
    return index, pos


def read_long(data: memoryview, pos: int, max_bytes: int) -> tuple[int, int]:
    """Read the zigzag number at `pos`. Return it and the position behind it. Raises InvalidDatumError."""
    value = 0
    for place, byte in enumerate(data[pos : pos + max_bytes]):
        value |= (byte & 127) << 7 * place
        if byte < 128:
            if max_bytes == INT_BYTES and value >> 32:
                break
            value &= 0xFFFFFFFFFFFFFFFF
            return value >> 1 ^ -(value & 1), pos + place + 1
    raise InvalidDatumError


def check_end(data: memoryview, pos: int) -> int:
    """Return `pos`. Raise InvalidDatumError if it lies behind the end of the record."""
    if pos > len(data):
        raise InvalidDatumError
    return pos
