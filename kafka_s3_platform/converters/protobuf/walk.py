"""Counts the values of a Protobuf message before it is parsed.

An inner message takes only two bytes, but all fields of its type in memory: half a million messages of a thousand
fields each fit into a megabyte. The values are counted only if the bytes may hold too many.

Source: Protocol Buffers documentation, "Encoding".
"""

from google.protobuf.descriptor import Descriptor

from kafka_s3_platform.converters.base import BadRecordError
from kafka_s3_platform.model.limits import MAX_RECORD_VALUES, NAME_BYTES

# Tag and length of an empty inner message.
_LEAST_BYTES = 2
_MOST_DEEP = 100
"""The deepest nesting that is counted. The parser refuses deeper messages."""

_NUMBER_BYTES = 10
"""The most bytes of a number. The parser refuses messages with longer ones."""


class MessageSizes:
    """Counts the values of messages of one type."""

    def __init__(self, message: Descriptor) -> None:
        self._message = message
        self._values: dict[str, int] = {}
        self._find(message)
        self._widest = max(self._values.values())

    def check(self, body: bytes) -> None:
        """Count the values of a message. Raise BadRecordError if there are too many."""
        # A large message may have two values for each of its bytes.
        most = max(MAX_RECORD_VALUES, 2 * len(body))
        if len(body) // _LEAST_BYTES * self._widest > most:
            _Walk(self._values, most).through(memoryview(body), 0, len(body), self._message, 0)

    def _find(self, message: Descriptor) -> None:
        todo = [message]
        while todo:
            descriptor = todo.pop()
            if descriptor.full_name not in self._values:
                self._values[descriptor.full_name] = 1 + sum(1 + len(f.name) // NAME_BYTES for f in descriptor.fields)
                todo += [f.message_type for f in descriptor.fields if f.message_type is not None]


class _Walk:
    def __init__(self, values: dict[str, int], most: int) -> None:
        self._values = values
        self._most = most
        self._count = 0

    def through(self, data: memoryview, pos: int, end: int, message: Descriptor | None, depth: int) -> int:
        """Count the values from `pos` to `end`, or to the end of a group. Return the position behind them."""
        self._count += self._values[message.full_name] if message is not None else 0
        if self._count > self._most:
            raise BadRecordError(
                f"comes to more than {self._most:,} values by its schema: fields that it does not hold"
            )
        while pos < end and depth < _MOST_DEEP:
            tag, pos = _read_varint(data, pos)
            field = None if message is None else message.fields_by_number.get(tag >> 3)
            inside = None if field is None else field.message_type
            # The wire type: 0 number, 2 length and bytes, 3 group, 1 and 5 fixed size, else the end of a group.
            match tag & 7:
                case 0:
                    _, pos = _read_varint(data, pos)
                case 2:
                    size, pos = _read_varint(data, pos)
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


def _read_varint(data: memoryview, pos: int) -> tuple[int, int]:
    """Return the number at `pos` and the position behind it. A number without end ends behind all data."""
    number = 0
    for place, byte in enumerate(data[pos : pos + _NUMBER_BYTES]):
        number |= (byte & 127) << 7 * place
        if byte < 128:
            return number, pos + place + 1
    return number, len(data)
