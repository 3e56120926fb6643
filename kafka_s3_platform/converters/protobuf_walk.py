"""What a Protobuf message comes to, told before it is parsed.

Each message inside of another takes two bytes, and in memory all fields of its type: half a million messages of a
thousand fields are a megabyte. Only where that may be too much, the bytes are walked through.

Source: Protocol Buffers documentation, "Encoding".
"""

from google.protobuf.descriptor import Descriptor

from kafka_s3_platform.converters.base import BadRecordError
from kafka_s3_platform.model.limits import MAX_RECORD_VALUES, NAME_BYTES

_LEAST_BYTES = 2
_MOST_DEEP = 100
"""What is deeper is not parsed."""

_NUMBER_BYTES = 10
"""A message with a longer number is not parsed either."""


class MessageSizes:
    """Counts the values of messages of one type."""

    def __init__(self, message: Descriptor) -> None:
        self._message = message
        self._values: dict[str, int] = {}
        self._find(message)
        self._widest = max(self._values.values())

    def check(self, body: bytes) -> None:
        """Raises BadRecordError where a message comes to too many values."""
        most = max(MAX_RECORD_VALUES, 2 * len(body))
        if len(body) // _LEAST_BYTES * self._widest > most:
            _Walk(self._values, most).through(memoryview(body), 0, len(body), self._message, 0)

    def _find(self, message: Descriptor) -> None:
        todo = [message]
        while todo:
            found = todo.pop()
            if found.full_name not in self._values:
                self._values[found.full_name] = 1 + sum(1 + len(f.name) // NAME_BYTES for f in found.fields)
                todo += [f.message_type for f in found.fields if f.message_type is not None]


class _Walk:
    def __init__(self, values: dict[str, int], most: int) -> None:
        self._values, self._most, self._count = values, most, 0

    def through(self, data: memoryview, pos: int, end: int, message: Descriptor | None, depth: int) -> int:
        """Count what stands before `end`, as far as it is a message, or before the end of a group; where that is."""
        self._count += self._values[message.full_name] if message is not None else 0
        if self._count > self._most:
            raise BadRecordError(
                f"comes to more than {self._most:,} values by its schema: fields that it does not hold"
            )
        while pos < end and depth < _MOST_DEEP:
            tag, pos = _varint(data, pos)
            field = None if message is None else message.fields_by_number.get(tag >> 3)
            inside = None if field is None else field.message_type
            match tag & 7:
                case 0:
                    _, pos = _varint(data, pos)
                case 2:
                    size, pos = _varint(data, pos)
                    if inside is not None:
                        self.through(data, pos, min(pos + size, end), inside, depth + 1)
                    pos += size
                case 3:
                    pos = self.through(data, pos, end, inside, depth + 1)
                case 1 | 5 as kind:
                    pos += 8 if kind == 1 else 4
                case _:
                    return pos
        return pos


def _varint(data: memoryview, pos: int) -> tuple[int, int]:
    """The number at `pos`, and the position behind it; behind all data where it does not end."""
    number = 0
    for place, byte in enumerate(data[pos : pos + _NUMBER_BYTES]):
        number |= (byte & 127) << 7 * place
        if byte < 128:
            return number, pos + place + 1
    return number, len(data)
