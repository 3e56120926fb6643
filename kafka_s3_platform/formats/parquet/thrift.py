"""Reads structs of Thrift's compact protocol: Parquet's footers and page headers.

Source: Apache Thrift, "Thrift Compact protocol encoding".
"""

from typing import Any

_TRUE = 1
_FALSE = 2
_DOUBLE = 7
_BINARY = 8
_LISTS = (9, 10)
_STRUCT = 12
_NUMBERS = (3, 4, 5, 6)
# More than Parquet's structs need. Damaged bytes may claim any number.
_MAX_DEPTH = 12
_MAX_ITEMS = 100_000
# Each byte carries 7 of the 64 bits.
_MAX_BYTES = 10


def read_struct(data: memoryview, pos: int, depth: int = 0) -> tuple[dict[int, Any], int]:
    """Return the fields of the struct at `pos` by their ids, and the position after the struct.

    No field may occur twice: some readers take the first, others the last. Maps are not supported, as Parquet has none.

    Raises:
        ValueError: the bytes are no such struct.
        IndexError: it is cut off.
    """
    if depth > _MAX_DEPTH:
        raise ValueError("structs lie too deep inside each other")
    fields: dict[int, Any] = {}
    field = 0
    while head := data[pos]:
        pos += 1
        # The upper half of the byte is the distance to the last id. 0: the id follows as a number of its own.
        if head >> 4:
            field += head >> 4
        else:
            field, pos = _read_zigzag(data, pos)
        if field in fields:
            raise ValueError(f"field {field} comes twice")
        fields[field], pos = _read_value(data, pos, head & 15, depth)
    return fields, pos + 1


def _read_value(data: memoryview, pos: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in (_TRUE, _FALSE):
        return kind == _TRUE, pos
    if kind in _NUMBERS:
        return _read_zigzag(data, pos) if kind > _NUMBERS[0] else (data[pos], pos + 1)
    if kind == _DOUBLE:
        return None, _check_end(data, pos + 8)
    if kind == _BINARY:
        size, pos = _read_varint(data, pos)
        return data[pos : pos + size], _check_end(data, pos + size)
    if kind == _STRUCT:
        return read_struct(data, pos, depth + 1)
    if kind in _LISTS:
        return _read_list(data, pos, depth + 1)
    raise ValueError(f"a field of type {kind}")


def _read_list(data: memoryview, pos: int, depth: int) -> tuple[list[Any], int]:
    head = data[pos]
    pos = pos + 1
    count = head >> 4
    kind = head & 15
    # 15 means that the number of items follows.
    if count == 15:
        count, pos = _read_varint(data, pos)
    if count > min(len(data) - pos, _MAX_ITEMS) or depth > _MAX_DEPTH:
        raise ValueError(f"a list of {count} items")
    items = []
    for _ in range(count):
        # A boolean takes a byte as an item. As a field it takes none: its type is its value.
        value, pos = (data[pos] == _TRUE, pos + 1) if kind in (_TRUE, _FALSE) else _read_value(data, pos, kind, depth)
        items.append(value)
    return items, pos


def _read_zigzag(data: memoryview, pos: int) -> tuple[int, int]:
    value, pos = _read_varint(data, pos)
    return value >> 1 ^ -(value & 1), pos


def _read_varint(data: memoryview, pos: int) -> tuple[int, int]:
    value = 0
    for place in range(_MAX_BYTES):
        byte = data[pos + place]
        value |= (byte & 127) << 7 * place
        if byte < 128:
            return value, pos + place + 1
    raise ValueError("a number has more than 64 bits")


def _check_end(data: memoryview, pos: int) -> int:
    if pos > len(data):
        raise IndexError(pos)
    return pos
