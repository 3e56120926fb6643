"""Converter of Protobuf. It needs only the descriptors from the Registry, and no generated classes.

Types follow Confluent's ProtobufData. Each field is optional. A oneof becomes a record of its alternatives, named
`<oneof>_<index>`, with one alternative set. An enum value becomes its name. Timestamp, Date, TimeOfDay and Decimal
become logical types. Other well-known types are records like any message. In addition, records have their full names,
and a map whose keys are strings is an Avro map.

If the bytes of a message may hold too many values, the values are counted before the message is parsed. An inner
message may take only two bytes, but in memory it has all fields of its type, so half a million messages of a thousand
fields each fit into a megabyte. Source: Protocol Buffers documentation, "Encoding".
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, time
from decimal import Context, Decimal
from operator import attrgetter
from typing import Any

from confluent_kafka.schema_registry.confluent import meta_pb2
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor, FileDescriptor, OneofDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet

from kafka_s3_platform.connect.avro.connect_schema import (
    DATE,
    DECIMAL,
    PRECISION_PARAMETER,
    TIME,
    TIMESTAMP,
    ConnectType,
    Slot,
    has_text_keys,
    write_avro_schema,
)
from kafka_s3_platform.connect.converters.base import BadRecordError, check_walkable, explain_bad_record, lost
from kafka_s3_platform.connect.converters.connect_json import encode_exact_decimal
from kafka_s3_platform.connect.converters.framed import FramedConverter
from kafka_s3_platform.connect.converters.protobuf.files import compile_file
from kafka_s3_platform.connect.converters.registry import Registry, RegistrySchema
from kafka_s3_platform.core.config.settings import RegistrySettings
from kafka_s3_platform.core.model.connect import Schema
from kafka_s3_platform.core.model.limits import MAX_DECIMAL_BYTES, MAX_DECIMAL_DIGITS, MAX_RECORD_VALUES, NAME_BYTES
from kafka_s3_platform.core.model.notes import Notes
from kafka_s3_platform.core.model.times import HOUR_MS

# The tag and the length of an empty inner message.
_LEAST_BYTES = 2
_MOST_DEEP = 100
"""The deepest nesting that is counted. The parser refuses deeper messages."""

_NUMBER_BYTES = 10
"""The most bytes of a number. The parser refuses messages with longer numbers."""


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
        max_values = max(MAX_RECORD_VALUES, 2 * len(body))
        if len(body) // _LEAST_BYTES * self._widest > max_values:
            _ValueCounter(self._values, max_values).count_values(memoryview(body), 0, len(body), self._message, 0)

    def _find(self, message: Descriptor) -> None:
        """Collect the number of values of each message type a message may contain: one, and one for each field."""
        todo = [message]
        while todo:
            descriptor = todo.pop()
            if descriptor.full_name not in self._values:
                self._values[descriptor.full_name] = 1 + sum(1 + len(f.name) // NAME_BYTES for f in descriptor.fields)
                todo += [f.message_type for f in descriptor.fields if f.message_type is not None]


class _ValueCounter:
    """One pass over a message's bytes, to count its values up to a limit."""

    def __init__(self, values: dict[str, int], max_values: int) -> None:
        self._values = values
        self._most = max_values
        self._count = 0

    def count_values(self, data: memoryview, pos: int, end: int, message: Descriptor | None, depth: int) -> int:
        """Count the values from `pos` to `end`, or to the end of a group. Return the position after them."""
        self._count += self._values[message.full_name] if message is not None else 0
        if self._count > self._most:
            raise BadRecordError(
                f"comes to more than {self._most:,} values by its schema: fields that it does not hold"
            )
        while pos < end and depth < _MOST_DEEP:
            tag, pos = _read_varint(data, pos)
            field = None if message is None else message.fields_by_number.get(tag >> 3)
            inner_message = None if field is None else field.message_type
            # The wire type: 0 number, 2 length and bytes, 3 group, 1 and 5 fixed size, else the end of a group.
            match tag & 7:
                case 0:
                    _, pos = _read_varint(data, pos)
                case 2:
                    size, pos = _read_varint(data, pos)
                    if inner_message is not None:
                        self.count_values(data, pos, min(pos + size, end), inner_message, depth + 1)
                    pos += size
                case 3:
                    pos = self.count_values(data, pos, end, inner_message, depth + 1)
                case 1 | 5 as kind:
                    pos += 8 if kind == 1 else 4
                case _:
                    return pos
        return pos


def _read_varint(data: memoryview, pos: int) -> tuple[int, int]:
    """Return the number at `pos` and the position after it: the end of the data, if the number has no end."""
    number = 0
    for place, byte in enumerate(data[pos : pos + _NUMBER_BYTES]):
        number |= (byte & 127) << 7 * place
        if byte < 128:
            return number, pos + place + 1
    return number, len(data)


ReadField = Callable[[Any], Any]

F = FieldDescriptor
# Unsigned numbers of 32 bits need 64 bits if there is a sign. Unsigned numbers of 64 bits keep their bits: see
# `_to_signed`.
KINDS = {
    **dict.fromkeys((F.TYPE_INT32, F.TYPE_SINT32, F.TYPE_SFIXED32), "int32"),
    **dict.fromkeys((F.TYPE_UINT32, F.TYPE_FIXED32), "int64"),
    **dict.fromkeys((F.TYPE_INT64, F.TYPE_SINT64, F.TYPE_SFIXED64, F.TYPE_UINT64, F.TYPE_FIXED64), "int64"),
    F.TYPE_FLOAT: "float",
    F.TYPE_DOUBLE: "double",
    F.TYPE_BOOL: "boolean",
    F.TYPE_STRING: "string",
    F.TYPE_BYTES: "bytes",
}
UNSIGNED_64 = (F.TYPE_UINT64, F.TYPE_FIXED64)
WRAPPERS = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
EPOCH_DAY = date(1970, 1, 1).toordinal()
LEAST_SECONDS = -62_135_596_800
MOST_SECONDS = 253_402_300_799
"""The bounds of a Timestamp in seconds: the years 1 to 9999."""


_EXACT = Context(prec=MAX_DECIMAL_DIGITS)
UNLISTED = "lack in their {side} what schema {schema_id} does not list"
SIGNED = "have unsigned numbers in their {side} that do not fit 64 bits with a sign, and so became negative"
CUT_TIMES = "have times in their {side} that were cut to milliseconds"


class ProtobufConverter(FramedConverter):
    """Confluent's ProtobufConverter."""

    executing_class = "io.confluent.connect.protobuf.ProtobufConverter"

    def __init__(self, topic: str, is_key: bool, registry: RegistrySettings, options: Mapping[str, str]) -> None:
        super().__init__(topic, is_key, registry)
        self._file = _FileCompiler(
            flatten=_is_enabled(options, "flatten.unions", "false"),
            index=_is_enabled(options, "generate.index.for.unions", "true"),
            unwrap=_is_enabled(options, "wrapper.for.nullables", "false"),
        )

    def read(self, registry: Registry, schema_id: int, body: bytes) -> tuple[Schema, Any, Notes | None]:
        """Decode the message named by the indexes after the id, once its values are counted."""
        file = registry.compile_once(schema_id, self._origin.subject, self._file)
        indexes, at = read_message_indexes(body)
        message = file.message(indexes)
        message.sizes.check(body[at:])
        try:
            parsed = message.new.FromString(body[at:])
        except (DecodeError, RecursionError) as err:
            raise BadRecordError(f"is no Protobuf message of schema {schema_id}: {err}") from err
        lost.places = {}
        value = message.read(parsed)
        if not lost.places:
            return message.schema, value, None
        notes = Notes()
        for sentence, place in lost.places.items():
            notes.note(sentence.format(side="key" if self._origin.is_key else "value", schema_id=schema_id), place)
        return message.schema, value, notes


def _is_enabled(options: Mapping[str, str], name: str, otherwise: str) -> bool:
    """Return the value of a boolean option. Its default is `otherwise`."""
    return options.get(name, otherwise).strip().lower() == "true"


def read_message_indexes(body: bytes) -> tuple[tuple[int, ...], int]:
    """Read the message indexes of a value, the outermost first, and the position of the message (the wire format)."""
    count, position = _read_zigzag(body, 0)
    # The wire format shortens the list [0], the first message of the file, to a single 0.
    if count == 0:
        return (0,), position
    if count < 0 or count > len(body):
        raise BadRecordError(f"has {count} message indexes behind its schema's id")
    indexes = []
    for _ in range(count):
        index, position = _read_zigzag(body, position)
        indexes.append(index)
    return tuple(indexes), position


def _read_zigzag(body: bytes, start: int) -> tuple[int, int]:
    """Read a number of the wire format. Return it and the position after it."""
    number = shift = 0
    # A number of 64 bits has at most 10 bytes.
    for position in range(start, min(len(body), start + 10)):
        number |= (body[position] & 0x7F) << shift
        shift += 7
        if body[position] < 0x80:
            return number >> 1 ^ -(number & 1), position + 1
    raise BadRecordError("ends in the message indexes behind its schema's id")


@dataclass(frozen=True)
class _Message:
    """A message of a schema: its class, its Avro schema, and a converter to plain objects."""

    new: Any
    schema: Schema
    read: ReadField
    sizes: MessageSizes


@dataclass(frozen=True)
class _FileCompiler:
    """Compiles registered schemas to their messages, according to the options of ProtobufConverter.

    If `flatten`, a oneof's alternatives become fields of the message. If `index`, a oneof's name ends with its index.
    If `unwrap`, a wrapper message becomes its content.
    """

    flatten: bool
    index: bool
    unwrap: bool

    def __call__(self, registered: RegistrySchema) -> "_File":
        name = f"has schema {registered.schema_id}"
        if registered.type != "PROTOBUF":
            raise BadRecordError(f"{name}, which is not Protobuf but {registered.type}")
        try:
            return _File(self, registered, compile_file(registered.text, registered.references))
        except BadRecordError as err:
            raise BadRecordError(f"{name}, which cannot be used: {err}") from err


@dataclass(frozen=True)
class _File:
    """The messages of one registered schema.

    Each message is compiled when the first value of its type is read. In `messages`, a str is why it cannot be.
    """

    options: _FileCompiler
    registered: RegistrySchema
    file: FileDescriptor
    messages: dict[tuple[int, ...], "_Message | str"] = field(default_factory=dict)

    def message(self, indexes: tuple[int, ...]) -> _Message:
        """Return the message at these indexes. Raise BadRecordError if there is none, or if it cannot be used."""
        if indexes not in self.messages:
            descriptor = self._find_message(indexes)
            try:
                self.messages[indexes] = self._make_message(descriptor)
            except Exception as err:  # noqa: BLE001 - `explain_bad_record` knows what is the schema's own
                self.messages[indexes] = f"has schema {self.registered.schema_id}, which {explain_bad_record(err)}"
        message = self.messages[indexes]
        if isinstance(message, str):
            raise BadRecordError(message)
        return message

    def _find_message(self, indexes: tuple[int, ...]) -> Descriptor:
        """Return the message type at a record's message indexes. Each index counts within the type before it."""
        descriptor: Any = None
        inner_messages: Sequence[Any] = list(self.file.message_types_by_name.values())
        for index in indexes:
            # If Java's client normalizes schemas, it does not count the entries of maps. All other clients do.
            countings = [
                list(inner_messages),
                [inner_message for inner_message in inner_messages if not inner_message.GetOptions().map_entry],
            ]
            candidates = {
                siblings[index].full_name: siblings[index] for siblings in countings if 0 <= index < len(siblings)
            }
            messages = [candidate for candidate in candidates.values() if not candidate.GetOptions().map_entry]
            if not messages:
                raise BadRecordError(f"names message {list(indexes)}, which schema {self.registered.schema_id} lacks")
            if len(messages) > 1:
                names = " or, without maps, ".join(candidate.full_name for candidate in messages)
                raise BadRecordError(f"names message {list(indexes)}, which clients count differently: {names}")
            [descriptor] = messages
            inner_messages = descriptor.nested_types
        message: Descriptor = descriptor
        return message

    def _make_message(self, descriptor: Descriptor) -> _Message:
        """Compile a message type: its class, its Avro schema, and its reader."""
        kind, read = _Messages(self.options).root(descriptor)
        schema = Schema(
            check_walkable(write_avro_schema(Slot(kind))),
            self.registered.schema_id,
            self.registered.subject,
            self.registered.version,
        )
        return _Message(GetMessageClass(descriptor), schema, read, MessageSizes(descriptor))


class _Messages:
    """Compiles message types to Connect types, and to readers: functions from a parsed message to a plain object.

    A recursive message becomes a single type.
    """

    def __init__(self, options: _FileCompiler) -> None:
        self._options = options
        self._types: dict[str, ConnectType] = {}
        self._reads: dict[str, ReadField] = {}

    def root(self, message: Descriptor) -> tuple[ConnectType, ReadField]:
        """Return the type and the reader of a whole value's message, or of its content if it is a wrapper."""
        if message.full_name in WRAPPERS:
            return self._compile_wrapper(message)
        return self._compile_logical(message, None) or self._compile_struct(message)

    def _compile_struct(self, message: Descriptor) -> tuple[ConnectType, ReadField]:
        """Return the struct for a message, and its reader. A message may contain itself."""
        name = message.full_name
        if name in self._types:
            return self._types[name], self._reads[name]
        kind = self._types[name] = ConnectType("struct", _name_record(message, name))
        reads: list[tuple[str, ReadField]] = []
        read = self._reads[name] = _note_unlisted(
            message, lambda value: {field_name: read_field(value) for field_name, read_field in reads}
        )
        for slot, read_field in self._list_fields(message):
            kind.fields.append(slot)
            reads.append((slot.name, read_field))
        return kind, read

    def _list_fields(self, message: Descriptor) -> Iterator[tuple[Slot, ReadField]]:
        """Yield the slot and the reader of each field. Oneofs come first, each as one field or as its alternatives."""
        oneofs = _find_real_oneofs(message)
        for oneof in oneofs:
            if self._options.flatten:
                yield from map(self._compile_field, oneof.fields)
            else:
                yield self._compile_oneof(oneof)
        oneof_names: set[str] = set()
        for oneof in oneofs:
            oneof_names.update(descriptor.name for descriptor in oneof.fields)
        yield from (
            self._compile_field(descriptor) for descriptor in message.fields if descriptor.name not in oneof_names
        )

    def _compile_oneof(self, oneof: OneofDescriptor) -> tuple[Slot, ReadField]:
        """Make a record with a field for each alternative. All fields are null except the one that is set."""
        index = oneof.containing_type.oneofs.index(oneof)
        name = f"{oneof.name}_{index}" if self._options.index else oneof.name
        alternatives = [self._compile_field(alternative) for alternative in oneof.fields]
        kind = ConnectType("struct", _name_record(oneof.containing_type, oneof.full_name))
        kind.fields.extend(slot for slot, _ in alternatives)
        reads = {slot.name: read_field for slot, read_field in alternatives}
        nulls = dict.fromkeys(reads)

        def read(value: Any) -> Any:
            field_name = value.WhichOneof(oneof.name)
            return None if field_name is None else nulls | {field_name: reads[field_name](value)}

        return Slot(kind, optional=True, name=name), read

    def _compile_field(self, descriptor: FieldDescriptor) -> tuple[Slot, ReadField]:
        """Return the optional slot of a field, and its reader from the message, which returns None if it is absent."""
        kind, read = self._compile_content(descriptor)
        name = descriptor.name
        slot = Slot(kind, optional=True, name=name)
        # A field without presence cannot be absent. Its default counts as its value.
        if descriptor.has_presence:
            return slot, lambda value: read(getattr(value, name)) if value.HasField(name) else None
        if read is _keep_value:
            return slot, attrgetter(name)
        return slot, lambda value: read(getattr(value, name))

    def _compile_content(self, descriptor: FieldDescriptor) -> tuple[ConnectType, ReadField]:
        """Return the type and the reader of a field's value: a map, a list, or a single value."""
        message = descriptor.message_type
        if message is not None and message.GetOptions().map_entry:
            return self._compile_map(message)
        kind, read = self._compile_single(descriptor)
        if descriptor.is_repeated:
            return ConnectType("array", values=Slot(kind)), lambda values: [read(value) for value in values]
        return kind, read

    def _compile_map(self, entry: Descriptor) -> tuple[ConnectType, ReadField]:
        """Compile a map field to its type and a reader, from the message type of its entries."""
        (key, read_key), (values, read) = (
            self._compile_single(entry.fields_by_name[name]) for name in ("key", "value")
        )
        kind = ConnectType("map", _name_record(entry, entry.full_name), key=Slot(key), values=Slot(values))
        # Protobuf's maps have no order. They are sorted, so that equal messages give equal objects.
        if has_text_keys(kind):
            return kind, lambda entries: {read_key(k): read(entries[k]) for k in sorted(entries)}
        return kind, lambda entries: [{"key": read_key(k), "value": read(entries[k])} for k in sorted(entries)]

    def _compile_single(self, descriptor: FieldDescriptor) -> tuple[ConnectType, ReadField]:
        """Return the type and the reader of one value of a field, which may be repeated."""
        message = descriptor.message_type
        enum = descriptor.enum_type
        if enum is not None:
            return ConnectType("string"), _compile_enum(enum)
        if message is None:
            return ConnectType(KINDS[descriptor.type]), _choose_read(descriptor)
        if self._options.unwrap and message.full_name in WRAPPERS:
            return self._compile_wrapper(message)
        return self._compile_logical(message, descriptor) or self._compile_struct(message)

    def _compile_wrapper(self, wrapper: Descriptor) -> tuple[ConnectType, ReadField]:
        """Return the type and the reader of the content of one of Google's wrapper messages, such as StringValue."""
        kind, read = self._compile_single(wrapper.fields_by_name["value"])
        return kind, _note_unlisted(wrapper, lambda value: read(value.value))

    @staticmethod
    def _compile_logical(
        message: Descriptor, descriptor: FieldDescriptor | None
    ) -> tuple[ConnectType, ReadField] | None:
        """Return Connect's logical type for a well-known message, and its reader, or None for any other message."""
        if message.full_name in _LOGICAL:
            kind, name, read = _LOGICAL[message.full_name]
            return ConnectType(kind, name), _note_unlisted(message, read)
        if message.full_name != "confluent.type.Decimal":
            return None
        decimal = ConnectType("bytes", DECIMAL, parameters=_read_decimal_parameters(descriptor))
        return decimal, _note_unlisted(message, lambda value: _read_decimal(value, decimal.scale))


def _name_record(message: Descriptor, full_name: str) -> str:
    """Return the record's name. In Avro, a type without a package cannot be named from inside a nested type."""
    return full_name if message.file.package else full_name.replace(".", "_")


def _find_real_oneofs(message: Descriptor) -> list[OneofDescriptor]:
    """Find the declared oneofs. proto3's `optional` adds a hidden oneof for each such field."""
    plain = DescriptorProto()
    message.CopyToProto(plain)
    synthetic = {descriptor.oneof_index for descriptor in plain.field if descriptor.proto3_optional}
    return [oneof for place, oneof in enumerate(message.oneofs) if place not in synthetic]


def _read_decimal_parameters(descriptor: FieldDescriptor | None) -> dict[str, str]:
    """Read the scale and the precision from Confluent's options of a field."""
    meta: Any = meta_pb2  # its names are made when it is imported
    params = dict(descriptor.GetOptions().Extensions[meta.field_meta].params) if descriptor is not None else {}
    precision = {PRECISION_PARAMETER: params["precision"]} if "precision" in params else {}
    return {"scale": params.get("scale", "0"), **precision}


def _note_unlisted(message: Descriptor, read_value: ReadField) -> ReadField:
    """Return a reader that calls `read_value`, and notes fields of the message its schema does not list.

    Nothing reads such fields. Numbers that a closed enum lacks count too. So do extensions, because Connect's types
    have no place for them.
    """
    name = message.full_name

    def note_fields(value: Any) -> Any:
        if len(UnknownFieldSet(value)):
            unlisted = UnknownFieldSet(value)[0]
            lost.places.setdefault(UNLISTED, f"field {unlisted.field_number} of {name}")
        return read_value(value)

    def note_extensions(value: Any) -> Any:
        for descriptor, _ in value.ListFields():
            if descriptor.is_extension:
                lost.places.setdefault(UNLISTED, f"extension {descriptor.full_name} of {name}")
        return note_fields(value)

    return note_extensions if message.is_extendable else note_fields


def _choose_read(descriptor: FieldDescriptor) -> ReadField:
    """Return the reader of a field's value that is neither a message nor an enum."""
    if descriptor.type in UNSIGNED_64:
        return _to_signed
    file = FileDescriptorProto()
    descriptor.file.CopyToProto(file)
    # In proto3, the parser refuses text that is not UTF-8. In other syntaxes, Python returns such text as bytes.
    return _keep_text if descriptor.type == F.TYPE_STRING and file.syntax != "proto3" else _keep_value


def _keep_value(value: Any) -> Any:
    return value


def _keep_text(value: Any) -> Any:
    """Return a text. Raise BadRecordError for bytes: Protobuf returns bytes if a text is not UTF-8."""
    if type(value) is bytes:
        raise BadRecordError(f"has text that is not UTF-8: {value[:100]!r}")
    return value


def _to_signed(value: int) -> int:
    """Return the same 64 bits as a signed number, as Java and Avro do."""
    if value >> 63:
        lost.places.setdefault(SIGNED, str(value))
        return value - (1 << 64)
    return value


def _compile_enum(enum: EnumDescriptor) -> ReadField:
    """Return a reader of an enum. It returns a number's name, or ProtobufData's name for an unknown number."""
    names = {number: value.name for number, value in enum.values_by_number.items()}
    return lambda number: names.get(number) or f"UNKNOWN_ENUM_VALUE_{enum.name}_{number}"


def _read_timestamp(value: Any) -> int:
    """Return a Timestamp message as epoch ms. Raise BadRecordError if it is outside the years 1 to 9999."""
    seconds: int = value.seconds
    nanos: int = value.nanos
    if not (LEAST_SECONDS <= seconds <= MOST_SECONDS and 0 <= nanos < 1_000_000_000):
        raise BadRecordError(f"has the Timestamp {seconds} s {nanos} ns, outside of the years 1 to 9999")
    return seconds * 1000 + _cut_nanos(nanos)


def _read_date(value: Any) -> int:
    """Return a Date message as days since 1970-01-01. Raise BadRecordError if there is no such day."""
    try:
        return date(value.year, value.month, value.day).toordinal() - EPOCH_DAY
    except ValueError as err:
        raise BadRecordError(f"has the Date {value.year}-{value.month}-{value.day}, which is no day: {err}") from err


def _read_time(value: Any) -> int:
    """Return a TimeOfDay message as ms of the day. Raise BadRecordError if there is no such time."""
    try:
        time(value.hours, value.minutes, value.seconds, value.nanos // 1000)
    except ValueError as err:
        raise BadRecordError(f"has a TimeOfDay that is no time: {err}") from err
    return int(value.hours * HOUR_MS + value.minutes * 60_000 + value.seconds * 1000 + _cut_nanos(value.nanos))


def _cut_nanos(nanos: int) -> int:
    """Return the whole milliseconds in these nanoseconds. If the rest is not zero, note the loss."""
    if nanos % 1_000_000:
        lost.places.setdefault(CUT_TIMES, f"{nanos} nanoseconds")
    return nanos // 1_000_000


def _read_decimal(value: Any, scale: int) -> bytes:
    """Return a Decimal message as Avro's bytes, with the scale its field declares."""
    if len(value.value) > MAX_DECIMAL_BYTES:
        raise BadRecordError(f"has a Decimal of {len(value.value)} bytes, read are {MAX_DECIMAL_BYTES}")
    number = int.from_bytes(value.value, "big", signed=True)
    return encode_exact_decimal(Decimal(number).scaleb(-value.scale, _EXACT), scale, "a Decimal")


_LOGICAL: Mapping[str, tuple[str, str, ReadField]] = {
    "google.protobuf.Timestamp": ("int64", TIMESTAMP, _read_timestamp),
    "google.type.Date": ("int32", DATE, _read_date),
    "google.type.TimeOfDay": ("int32", TIME, _read_time),
}
