"""Reads structs of Thrift's compact protocol, of which Parquet's footers and page headers are.

Source: Apache Thrift, "Thrift Compact protocol encoding".
"""

from typing import Any

_TRUE, _FALSE, _DOUBLE, _BINARY, _LISTS, _STRUCT = 1, 2, 7, 8, (9, 10), 12
_NUMBERS = (3, 4, 5, 6)
_MAX_DEPTH = 12
_MAX_ITEMS = 100_000
_MAX_BYTES = 10


def struct_at(data: memoryview, pos: int, depth: int = 0) -> tuple[dict[int, Any], int]:
    """The fields of the struct at `pos` by their ids, and the position behind it. Maps are not known.

    No field may come twice: readers differ in which one they believe.

    Raises:
        ValueError: there is no such struct.
        IndexError: it is cut off.
    """
    if depth > _MAX_DEPTH:
        raise ValueError("structs lie too deep inside each other")
    found: dict[int, Any] = {}
    field = 0
    while head := data[pos]:
        pos += 1
        if head >> 4:
            field += head >> 4
        else:
            field, pos = _number(data, pos)
        if field in found:
            raise ValueError(f"field {field} comes twice")
        found[field], pos = _value(data, pos, head & 15, depth)
    return found, pos + 1


def _value(data: memoryview, pos: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in (_TRUE, _FALSE):
        return kind == _TRUE, pos
    if kind in _NUMBERS:
        return _number(data, pos) if kind > _NUMBERS[0] else (data[pos], pos + 1)
    if kind == _DOUBLE:
        return None, _behind(data, pos + 8)
    if kind == _BINARY:
        size, pos = _varint(data, pos)
        return data[pos : pos + size], _behind(data, pos + size)
    if kind == _STRUCT:
        return struct_at(data, pos, depth + 1)
    if kind in _LISTS:
        return _list(data, pos, depth + 1)
    raise ValueError(f"a field of type {kind}")


def _list(data: memoryview, pos: int, depth: int) -> tuple[list[Any], int]:
    head, pos = data[pos], pos + 1
    count, kind = head >> 4, head & 15
    if count == 15:
        count, pos = _varint(data, pos)
    if count > min(len(data) - pos, _MAX_ITEMS) or depth > _MAX_DEPTH:
        raise ValueError(f"a list of {count} items")
    found = []
    for _ in range(count):
        # As items, unlike as fields, booleans take a byte.
        value, pos = (data[pos] == _TRUE, pos + 1) if kind in (_TRUE, _FALSE) else _value(data, pos, kind, depth)
        found.append(value)
    return found, pos


def _number(data: memoryview, pos: int) -> tuple[int, int]:
    value, pos = _varint(data, pos)
    return value >> 1 ^ -(value & 1), pos


def _varint(data: memoryview, pos: int) -> tuple[int, int]:
    value = 0
    for place in range(_MAX_BYTES):
        byte = data[pos + place]
        value |= (byte & 127) << 7 * place
        if byte < 128:
            return value, pos + place + 1
    raise ValueError("a number has more than 64 bits")


def _behind(data: memoryview, pos: int) -> int:
    if pos > len(data):
        raise IndexError(pos)
    return pos
