"""Encodes values of an Avro schema as Protobuf messages.

Follows Confluent's ProtobufData: a proto3 file has one message, an inner record is declared as a message at its first
use, fields are numbered in their order, enums become strings, and Connect's logical types become Google's and
Confluent's messages. A nullable scalar is `optional` (Confluent's `optional.for.nullables`), so null and 0 differ. In
addition, a union of several types is a message with a oneof. Protobuf has no null arrays or maps, so they become empty.

A schema is compiled once, to the lines of the file and to a *filler*, a function that puts a value into a message.
"""

import base64
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message_factory import GetMessageClass

from kafka_s3_platform.connect.avro.values import AvroSchema, decode_decimal, encode_unscaled
from kafka_s3_platform.connect.converters.base import BadRecordError, Serializer, lost
from kafka_s3_platform.connect.converters.protobuf.decode import EPOCH_DAY, LEAST_SECONDS, MOST_SECONDS
from kafka_s3_platform.connect.converters.protobuf.files import compile_file
from kafka_s3_platform.core.model.times import DAY_MS

EncodeField = Callable[[Any], Any]
Fill = Callable[[Any, Any], None]
"""Puts a value into a message."""

SCALARS = {
    "boolean": ("bool", bool),
    "int": ("int32", int),
    "long": ("int64", int),
    "float": ("float", float),
    "double": ("double", float),
    "bytes": ("bytes", bytes),
    "fixed": ("bytes", bytes),
    "string": ("string", str),
    "enum": ("string", str),
}
EMPTIED = "have empty lists or maps where they had a null, which Protobuf has not"
FIRST_MESSAGE = b"\0"
"""The message indexes that mean the first message of a file in the wire format."""

FILE_NAME = "default"
"""The name that Confluent's Python client gives to a file that no other file imports."""


@dataclass(frozen=True)
class ProtobufSerializer(Serializer):
    """Writes values as the first message of a .proto file.

    `text` is the file as Confluent's Python clients register it: serialized, in base64. These clients read nothing
    else, and some registries, such as Apicurio's, return exactly the registered text. `proto` is the file in readable
    form.
    """

    proto: str


def compile_protobuf(avro: Any) -> ProtobufSerializer:
    """Return the serializer of values of an Avro schema (parsed JSON), with the .proto file made from it.

    Raises ValueError with the reason if Protobuf cannot hold its values.
    """
    compiler = _Compiler(AvroSchema(avro))
    root = compiler.avro.resolve(compiler.avro.root)
    if isinstance(root, list) or root["type"] != "record":
        raise ValueError("a Protobuf value is a message, and so its Avro schema has to be a record")
    package, _, name = root["name"].rpartition(".")
    lines, fill = compiler.message(root, name, f".{root['name']}")
    head = ['syntax = "proto3";', *([f"package {package};"] if package else [])]
    imports = [f'import "{path}";' for path in sorted(compiler.imports)]
    text = "\n".join([*head, "", *imports, *([""] if imports else []), *lines, ""])
    try:
        file = compile_file(text, {})
    except BadRecordError as err:
        raise ValueError(f"no Protobuf schema can be made of it: {err}") from err
    new_message: Any = GetMessageClass(file.message_types_by_name[name])

    def body(value: Any) -> bytes:
        message = new_message()
        fill(message, value)
        return FIRST_MESSAGE + bytes(message.SerializeToString(deterministic=True))

    return ProtobufSerializer("PROTOBUF", _write_descriptor(file), body, text)


def _write_descriptor(file: FileDescriptor) -> str:
    """Write the descriptor without the fields protoc derives, so equal files give equal texts with any protoc."""
    plain = FileDescriptorProto.FromString(file.serialized_pb)
    plain.name = FILE_NAME
    messages = list(plain.message_type)
    while messages:
        message = messages.pop()
        messages += message.nested_type
        for descriptor in message.field:
            descriptor.ClearField("json_name")
    return base64.standard_b64encode(plain.SerializeToString(deterministic=True)).decode()


@dataclass(frozen=True)
class _Kind:
    """A Protobuf type, by its `name` in the file.

    `convert` converts a value of a scalar type. `fill` fills a message.
    """

    name: str
    convert: EncodeField | None = None
    fill: Fill | None = None
    options: str = ""


@dataclass
class _Scope:
    """A message being compiled: its full name, the names used inside, and the lines of its inner messages."""

    path: str
    taken: set[str]
    nested: list[str] = field(default_factory=list)

    def new(self, preferred: str) -> str:
        """Return a new name for an inner message."""
        name = preferred if preferred not in self.taken else f"{preferred}Message"
        number = 1
        while name in self.taken:
            number += 1
            name = f"{preferred}Message{number}"
        self.taken.add(name)
        return name


class _Compiler:
    """Compiles records to the lines of their messages, and to fillers. `imports` are the files the messages need."""

    def __init__(self, avro: AvroSchema) -> None:
        self.avro = avro
        self.imports: set[str] = set()
        self._messages: dict[str, tuple[str, list[Fill]]] = {}

    def message(self, record: Mapping[str, Any], name: str, path: str) -> tuple[list[str], Fill]:
        """Return the lines of a record's message, whose full name is `path`, and its filler."""
        fillers: list[Fill] = []
        # Stored before the fields are compiled, because they may name the record itself.
        self._messages[record["name"]] = path, fillers
        scope = _Scope(path, {f["name"] for f in record["fields"]})
        fields = [self._compile_field(f, tag, scope) for tag, f in enumerate(record["fields"], 1)]
        fills = [(f["name"], fill) for f, (_, fill) in zip(record["fields"], fields, strict=True)]

        def fill(message: Any, value: Any) -> None:
            for field_name, put in fills:
                put(message, value[field_name])

        fillers.append(fill)
        return _write_block("message", name, [*scope.nested, *(line for line, _ in fields)]), fill

    def _compile_field(self, declared: Mapping[str, Any], tag: int, scope: _Scope) -> tuple[str, Fill]:
        """Return the line of a field with the number `tag`, and its filler."""
        name = declared["name"]
        node = self.avro.resolve(declared["type"])
        members, has_null = self.avro.members(node if isinstance(node, list) else [node])
        if not members:
            raise ValueError(f"field {name} is always null, and Protobuf has no such type")
        node = members if len(members) > 1 else self.avro.resolve(members[0])
        kind, label, put = self._compile_labelled(node, name, scope)
        if has_null:
            put = _skip_null(put, name if label or kind.name.startswith("map<") else "")
            label = "optional " if not label and kind.convert else label
        return f"{label}{kind.name} {name} = {tag}{kind.options};", put

    def _compile_labelled(self, node: Any, name: str, scope: _Scope) -> tuple[_Kind, str, Fill]:
        """Return the Protobuf type of a field, its label (`repeated ` for an array), and its filler."""
        if isinstance(node, Mapping) and node["type"] == "array":
            kind = self._compile_single(node["items"], name, scope)
            return kind, "repeated ", _put_repeated(name, kind)
        if isinstance(node, Mapping) and node["type"] == "map":
            kind = self._compile_single(node["values"], name, scope)
            return _Kind(f"map<string, {kind.name}>", fill=kind.fill), "", _put_map(name, kind)
        kind = self._compile_single(node, name, scope)
        return kind, "", _put_single(name, kind)

    def _compile_single(self, node: Any, name: str, scope: _Scope) -> _Kind:
        """Return the Protobuf type of a single value, which is a field's value or an item of a list or map."""
        resolved = self.avro.resolve(node)
        if isinstance(resolved, list):
            members, _ = self.avro.members(resolved)
            if len(members) == 1:
                return self._compile_single(members[0], name, scope)
            return self._compile_union(members, name, scope)
        if resolved["type"] == "record":
            return self._compile_record(resolved, scope)
        if resolved["type"] in {"array", "map", "null"}:
            raise ValueError(f"field {name} holds {resolved['type']}s inside a list or a map, which Protobuf has not")
        return self._compile_logical(resolved) or _compile_scalar(resolved)

    def _compile_record(self, record: Mapping[str, Any], scope: _Scope) -> _Kind:
        """Return the type of an inner record. At its first use, its message is added to the scope."""
        if record["name"] not in self._messages:
            name = scope.new(record["name"].rpartition(".")[2])
            lines, _ = self.message(record, name, f"{scope.path}.{name}")
            scope.nested += lines
        path, fillers = self._messages[record["name"]]

        def fill(message: Any, value: Any) -> None:
            # Looked up at each use, because the message may not be compiled yet.
            fillers[0](message, value)

        return _Kind(path, fill=fill)

    def _compile_union(self, members: Sequence[Any], name: str, scope: _Scope) -> _Kind:
        """Make a message with a oneof. Each alternative has the name of its type."""
        title = scope.new("".join(part.capitalize() for part in re.split("_+", name)) + "Union")
        inner_scope = _Scope(f"{scope.path}.{title}", set())
        names = [str(self.avro.resolve(m).get("name", self.avro.kind(m))).rpartition(".")[2] for m in members]
        names = [f"{n}_{number}" if names.count(n) > 1 else n for number, n in enumerate(names)]
        # `value` is the name of the oneof.
        inner_scope.taken.update((*names, "value"))
        kinds = [
            self._compile_single(member, alternative, inner_scope)
            for member, alternative in zip(members, names, strict=True)
        ]
        lines = [f"{k.name} {n} = {tag}{k.options};" for tag, (n, k) in enumerate(zip(names, kinds, strict=True), 1)]
        scope.nested += _write_block("message", title, [*inner_scope.nested, *_write_block("oneof", "value", lines)])
        puts = [_put_single(alternative, kind) for alternative, kind in zip(names, kinds, strict=True)]

        choose = self.avro.compile_choice(members)

        def fill(message: Any, value: Any) -> None:
            number, value = choose(value)
            puts[number](message, value)

        return _Kind(inner_scope.path, fill=fill)

    def _compile_logical(self, node: Mapping[str, Any]) -> _Kind | None:
        """Return Google's or Confluent's message for a logical type, or None for any other type."""
        kind = node["type"]
        logical = node.get("logicalType")
        if logical == "decimal":
            self.imports |= {"confluent/meta.proto", "confluent/type/decimal.proto"}
            return _compile_decimal(node)
        if (kind, logical) not in _MESSAGES:
            return None
        path, file, fill = _MESSAGES[kind, logical]
        self.imports.add(file)
        return _Kind(path, fill=fill)


def _write_block(word: str, name: str, lines: Sequence[str]) -> list[str]:
    """Return the lines of a message or a oneof in a .proto file."""
    return [f"{word} {name} {{", *(f"  {line}" for line in lines), "}"]


def _put_single(name: str, kind: _Kind) -> Fill:
    """Return a function that puts a single value into the field `name`."""
    convert = kind.convert
    fill = kind.fill
    if convert is not None:
        return lambda message, value: setattr(message, name, convert(value))

    def put(message: Any, value: Any) -> None:
        inner = getattr(message, name)
        # Otherwise an empty message would count as absent.
        inner.SetInParent()
        if fill is not None:
            fill(inner, value)

    return put


def _put_repeated(name: str, kind: _Kind) -> Fill:
    """Return a function that puts a list of values into the repeated field `name`."""
    convert = kind.convert
    fill = kind.fill
    if convert is not None:
        return lambda message, values: getattr(message, name).extend([convert(value) for value in values])

    def put(message: Any, values: Any) -> None:
        items = getattr(message, name)
        for value in values:
            if fill is not None:
                fill(items.add(), _require_value(value, name))

    return put


def _put_map(name: str, kind: _Kind) -> Fill:
    """Return a function that puts entries into the map field `name`."""

    def put(message: Any, values: Mapping[str, Any]) -> None:
        entries = getattr(message, name)
        for key, value in values.items():
            if kind.convert is not None:
                entries[key] = kind.convert(value)
            elif kind.fill is not None:
                kind.fill(entries[key], _require_value(value, name))

    return put


def _require_value(value: Any, name: str) -> Any:
    """Return the item of a list or a map. Raise ValueError for a null, which Protobuf does not have there."""
    if value is None:
        raise ValueError(f"field {name} holds a null in a list or a map, which Protobuf has not")
    return value


def _skip_null(put: Fill, emptied: str) -> Fill:
    """Return a filler that leaves nulls out. It notes a null list or map (named by `emptied`), which becomes empty."""

    def unless(message: Any, value: Any) -> None:
        if value is not None:
            put(message, value)
        elif emptied:
            lost.places.setdefault(EMPTIED, emptied)

    return unless


def _compile_scalar(node: Mapping[str, Any]) -> _Kind:
    """Return the type of a scalar. Its converter refuses values Python's Protobuf would change."""
    name, python = SCALARS[node["type"]]
    packed = struct.Struct("<f" if name == "float" else "<d")

    def convert(value: Any) -> Any:
        number: Any = value
        # Python's Protobuf would also take a bool as a number, and a float without a fraction as an int.
        if type(value) is not python and not (python is float and type(value) is int):
            raise TypeError(f"{value!r:.100} is not of {name}")
        # It would also make infinity of a large number, which `pack` refuses, and round a long one.
        if python is float and packed.unpack(packed.pack(float(number)))[0] != value and type(value) is int:
            raise ValueError(f"{value} has more digits than a {name}")
        return value

    return _Kind(name, convert=convert)


def _compile_decimal(node: Mapping[str, Any]) -> _Kind:
    """Return Confluent's message for a decimal, with the scale and precision in the options of its field."""
    scale = node.get("scale", 0)
    parameters = {"precision": node.get("precision"), "scale": scale}
    params = ", ".join(f'{{key: "{key}", value: "{value}"}}' for key, value in parameters.items() if value is not None)

    def fill(message: Any, value: bytes) -> None:
        unscaled = int.from_bytes(value, "big", signed=True)
        message.value = encode_unscaled(unscaled)
        message.precision = len(decode_decimal(value, 0).as_tuple().digits)
        message.scale = scale

    return _Kind(".confluent.type.Decimal", fill=fill, options=f" [(.confluent.field_meta) = {{params: [{params}]}}]")


def _fill_date(message: Any, value: int) -> None:
    """Put days since 1970-01-01 into a Date message."""
    day = date.fromordinal(value + EPOCH_DAY)
    message.year = day.year
    message.month = day.month
    message.day = day.day


def _fill_time(message: Any, value: int) -> None:
    """Put the ms of a day into a TimeOfDay message. Raise ValueError if they are outside one day."""
    if not 0 <= value < DAY_MS:
        raise ValueError(f"{value} ms are no time of a day")
    seconds, millis = divmod(value, 1000)
    message.hours = seconds // 3600
    message.minutes = seconds // 60 % 60
    message.seconds = seconds % 60
    message.nanos = millis * 1_000_000


def _fill_timestamp(message: Any, value: int) -> None:
    """Put epoch ms into a Timestamp message. Raise ValueError if they are outside the years 1 to 9999."""
    seconds, millis = divmod(value, 1000)
    if not LEAST_SECONDS <= seconds <= MOST_SECONDS:
        raise ValueError(f"{value} ms are outside of the years 1 to 9999")
    message.seconds = seconds
    message.nanos = millis * 1_000_000


_MESSAGES: Mapping[tuple[str, Any], tuple[str, str, Fill]] = {
    ("int", "date"): (".google.type.Date", "google/type/date.proto", _fill_date),
    ("int", "time-millis"): (".google.type.TimeOfDay", "google/type/timeofday.proto", _fill_time),
    ("long", "timestamp-millis"): (".google.protobuf.Timestamp", "google/protobuf/timestamp.proto", _fill_timestamp),
}
