"""Protobuf files and messages, drawn by hypothesis, and what must come of a message: by Google's reflection alone."""

import base64
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timezone
from decimal import Decimal
from typing import Any

from google.protobuf import any_pb2, descriptor_pool, duration_pb2, struct_pb2, timestamp_pb2, wrappers_pb2  # noqa: F401
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    Edition,
    EnumDescriptorProto,
    FeatureSet,
    FileDescriptorProto,
)
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st

Draw = Callable[..., Any]
NAMES = ("id", "value", "key", "type", "fields", "string", "null", "pick_0", "A", "UPPER", "a_b", "x1", "next", "items")
IMPORTS = {
    "google.protobuf.Timestamp": "google/protobuf/timestamp.proto",
    "google.protobuf.Duration": "google/protobuf/duration.proto",
    "google.protobuf.Any": "google/protobuf/any.proto",
    "google.protobuf.Value": "google/protobuf/struct.proto",
    "google.protobuf.UInt64Value": "google/protobuf/wrappers.proto",
    "google.protobuf.StringValue": "google/protobuf/wrappers.proto",
    "google.type.Date": "google/type/date.proto",
    "google.type.TimeOfDay": "google/type/timeofday.proto",
    "confluent.type.Decimal": "confluent/type/decimal.proto",
}
SCALARS = [t for t in Field.Type.values() if t not in {Field.TYPE_GROUP, Field.TYPE_MESSAGE, Field.TYPE_ENUM}]
KEYS = [t for t in SCALARS if t not in {Field.TYPE_DOUBLE, Field.TYPE_FLOAT, Field.TYPE_BYTES}]
SELDOM = st.integers(0, 4).map(lambda number: number == 4)
UNLISTED = {
    "varint": b"\xc8\x3e\x05",
    "bytes": b"\xca\x3e\x02hi",
    "fixed": b"\xcd\x3eabcd",
    "group": b"\xcb\x3e\xcc\x3e",
}
"""Fields of number 1001, which no drawn message lists."""


class DrawnFile:
    """A file in proto2, proto3 or edition 2023: messages that contain each other, enums, maps, oneofs, extensions."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw
        self.kind = draw(st.sampled_from(["proto2", "proto3", "editions"]))
        self.file = FileDescriptorProto(name="drawn.proto", package=draw(st.sampled_from(["", "p.q"])))
        if self.kind == "editions":
            self.file.edition = Edition.EDITION_2023
        if self.kind != "proto2":
            self.file.syntax = self.kind
        self._prefix = f".{self.file.package}." if self.file.package else "."
        self._enum(self.file.enum_type.add(name="E"))
        messages = [self.file.message_type.add(name=name) for name in "MN"[: draw(st.integers(1, 2))]]
        inner = messages[0].nested_type.add(name="Inner")
        self._types = [*(self._prefix + m.name for m in messages), f"{self._prefix}M.Inner"]
        for message in (*messages, inner):
            self._fill(message)

    def _enum(self, enum: EnumDescriptorProto) -> None:
        for name, number in (("ZERO", 0), ("ONE", 1), ("UNO", 1), ("LEAST", -(2**31)), ("MOST", 2**31 - 1)):
            enum.value.add(name=name, number=number)
        enum.options.allow_alias = True
        self._is_closed = self.kind == "proto2"
        if self.kind == "editions" and self._draw(st.booleans()):
            enum.options.features.enum_type = FeatureSet.CLOSED
            self._is_closed = True

    def _fill(self, message: DescriptorProto) -> None:
        names = self._draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=5, unique=True))
        has_oneof = len(names) > 1 and self._draw(st.booleans())
        if has_oneof:
            message.oneof_decl.add(name="pick")
        if self.kind != "proto3":
            message.extension_range.add(start=500, end=600)
            self.file.extension.add(
                name=f"of_{message.name}",
                number=555,
                type=Field.TYPE_INT32,
                label=Field.LABEL_OPTIONAL,
                extendee=next(t for t in self._types if t.endswith(f".{message.name}")),
            )
        for place, name in enumerate(names):
            field = message.field.add(name=name, label=Field.LABEL_OPTIONAL)
            field.number = self._draw(st.sampled_from([place + 1, 400 + place, 2**29 - 1 - place]))
            if has_oneof and place < 2:
                self._type(field)
                field.oneof_index = 0
            else:
                self._place(message, field)
        for field in message.field:
            if field.proto3_optional:
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field.name}")

    def _place(self, message: DescriptorProto, field: Field) -> None:
        match self._draw(st.sampled_from(["plain", "present", "repeated", "map"])):
            case "map":
                self._map(message, field)
            case "repeated":
                self._type(field)
                field.label = Field.LABEL_REPEATED
                packs = field.type not in {Field.TYPE_STRING, Field.TYPE_BYTES, Field.TYPE_MESSAGE}
                if packs and self._draw(st.booleans()):
                    self._repeat_otherwise(field)
            case "present":
                self._type(field)
                field.proto3_optional = self.kind == "proto3"
                if self.kind != "proto3" and field.type in {Field.TYPE_INT32, Field.TYPE_SINT64}:
                    field.default_value = "5"
            case "plain":
                self._type(field)
                self._set_plain(field)

    def _map(self, message: DescriptorProto, field: Field) -> None:
        entry = message.nested_type.add(name="".join(p.capitalize() for p in field.name.split("_")) + "Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, type=self._draw(st.sampled_from(KEYS)), label=Field.LABEL_OPTIONAL)
        self._type(entry.field.add(name="value", number=2, label=Field.LABEL_OPTIONAL))
        path = next(t for t in self._types if t.endswith(f".{message.name}"))
        field.type, field.label, field.type_name = Field.TYPE_MESSAGE, Field.LABEL_REPEATED, f"{path}.{entry.name}"

    def _set_plain(self, field: Field) -> None:
        """Require it in proto2. In an edition give it no presence, or the form of a group."""
        if self.kind == "proto2":
            field.label = Field.LABEL_REQUIRED
        if self.kind != "editions":
            return
        if field.type == Field.TYPE_MESSAGE:
            if field.type_name in self._types:
                field.options.features.message_encoding = FeatureSet.DELIMITED
        elif not (self._is_closed and field.type == Field.TYPE_ENUM):
            field.options.features.field_presence = FeatureSet.IMPLICIT

    def _repeat_otherwise(self, field: Field) -> None:
        if self.kind == "editions":
            field.options.features.repeated_field_encoding = FeatureSet.EXPANDED
        else:
            field.options.packed = self.kind == "proto2"

    def _type(self, field: Field) -> None:
        kind = self._draw(st.sampled_from(["scalar", "scalar", "enum", "message", "known"]))
        if kind == "scalar":
            field.type = self._draw(st.sampled_from(SCALARS))
        elif kind == "enum":
            field.type, field.type_name = Field.TYPE_ENUM, f"{self._prefix}E"
        else:
            field.type = Field.TYPE_MESSAGE
            field.type_name = self._draw(
                st.sampled_from(self._types if kind == "message" else [f".{n}" for n in IMPORTS])
            )
            path = IMPORTS.get(field.type_name[1:])
            if path and path not in self.file.dependency:
                self.file.dependency.append(path)


def compiled(file: FileDescriptorProto) -> Descriptor:
    """The first message of the file, by Google's own pool."""
    pool = descriptor_pool.DescriptorPool()
    added: set[str] = set()

    def add(each: FileDescriptorProto) -> None:
        for name in each.dependency:
            if name not in added:
                add(FileDescriptorProto.FromString(descriptor_pool.Default().FindFileByName(name).serialized_pb))
        added.add(each.name)
        pool.Add(each)

    add(file)
    return pool.FindFileByName(file.name).message_types_by_name["M"]


NUMBERS = {
    FieldDescriptor.CPPTYPE_BOOL: st.booleans(),
    # One NaN: JSON has no others.
    FieldDescriptor.CPPTYPE_DOUBLE: st.floats(allow_nan=False) | st.just(math.nan),
    FieldDescriptor.CPPTYPE_FLOAT: st.floats(width=32, allow_nan=False) | st.just(math.nan),
    FieldDescriptor.CPPTYPE_INT32: st.integers(-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_UINT32: st.integers(0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_INT64: st.integers(-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT64: st.sampled_from([1, 2**63 - 1, 2**63, 2**64 - 1]),
}


def draw_value(draw: Draw, field: FieldDescriptor) -> Any:
    if field.enum_type is not None:
        known = [v.number for v in field.enum_type.values]
        return draw(st.sampled_from(known if field.enum_type.is_closed else [*known, 7, -1]))
    if field.type == FieldDescriptor.TYPE_BYTES:
        return draw(st.binary(max_size=3))
    if field.type == FieldDescriptor.TYPE_STRING:
        return draw(st.text(st.characters(codec="utf-8"), max_size=3))
    return draw(NUMBERS[field.cpp_type])


def draw_known(draw: Draw, message: Any) -> bool:
    """Fill a message of Google's or Confluent's. False: it is another one, or to be filled as any other."""
    match message.DESCRIPTOR.full_name:
        case "google.protobuf.Timestamp":
            message.seconds = draw(st.sampled_from([0, -1, 253_402_300_799, -62_135_596_800, 253_402_300_800]))
            message.nanos = draw(st.sampled_from([0, 1_000_000, 999_999_999, 1, -1]))
        case "google.type.Date":
            message.year, message.month, message.day = draw(st.sampled_from([(1, 1, 1), (9999, 12, 31), (2024, 2, 0)]))
        case "google.type.TimeOfDay":
            message.hours, message.nanos = draw(st.sampled_from([(23, 999_999_999), (0, 5_000_000), (24, 0)]))
        case "confluent.type.Decimal":
            number = draw(st.integers(-300, 300))
            message.value = number.to_bytes(draw(st.integers(2, 4)), "big", signed=True)
            message.precision, message.scale = 3, draw(st.sampled_from([0, 0, -2, 1]))
        case _:
            return False
    return True


def fill(draw: Draw, message: Any, depth: int = 0) -> None:
    """Set some of the fields, and at times what the message's type does not list."""
    if not draw_known(draw, message):
        for field in message.DESCRIPTOR.fields:
            if not draw(SELDOM):
                fill_field(draw, message, field, depth)
    add_unlisted(draw, message)


def add_unlisted(draw: Draw, message: Any) -> None:
    if draw(SELDOM):
        message.MergeFromString(draw(st.sampled_from(sorted(UNLISTED.values()))))
    for extension in message.DESCRIPTOR.file.extensions_by_name.values():
        if extension.containing_type == message.DESCRIPTOR and draw(SELDOM):
            message.Extensions[extension] = 3
    for field in message.DESCRIPTOR.fields:
        if field.enum_type is not None and field.enum_type.is_closed and draw(SELDOM):
            message.MergeFromString(tag(field.number, 0) + b"\x07")


def tag(number: int, wire_type: int) -> bytes:
    rest = number << 3 | wire_type
    out = bytearray()
    while rest >> 7:
        out.append(rest & 127 | 128)
        rest >>= 7
    return bytes([*out, rest])


def fill_field(draw: Draw, message: Any, field: FieldDescriptor, depth: int) -> None:
    inner = field.message_type
    held = getattr(message, field.name)
    if inner is not None and depth > 2:
        return
    if inner is not None and inner.GetOptions().map_entry:
        fill_map(draw, held, inner, depth)
    elif field.is_repeated:
        for _ in range(draw(st.integers(0, 2))):
            held.append(draw_value(draw, field)) if inner is None else fill(draw, held.add(), depth + 1)
    elif inner is None:
        setattr(message, field.name, draw_value(draw, field))
    else:
        held.SetInParent()
        fill(draw, held, depth + 1)


def fill_map(draw: Draw, held: Any, entry: Descriptor, depth: int) -> None:
    for _ in range(draw(st.integers(0, 3))):
        key = draw_value(draw, entry.fields_by_name["key"])
        value = entry.fields_by_name["value"]
        if value.message_type is None:
            held[key] = draw_value(draw, value)
        else:
            fill(draw, held[key], depth + 1)


OPTIONS: Sequence[dict[str, str]] = (
    {},
    {"generate_index_for_unions": "false"},
    {"flatten_unions": "true"},
    {"wrapper_for_nullables": "true"},
)


@st.composite
def drawn_messages(draw: Draw) -> tuple[str, list[Any], dict[str, Any]]:
    """The text of a schema, as Python's clients register it, messages of its first type, and converter's options."""
    file = DrawnFile(draw).file
    new = GetMessageClass(compiled(file))
    messages = [new() for _ in range(draw(st.integers(2, 5)))]
    for message in messages:
        fill(draw, message)
    return base64.b64encode(file.SerializeToString()).decode(), messages, draw(st.sampled_from(OPTIONS))


# What must come of a message


def keep_listed(message: Any) -> tuple[Any, set[str]]:
    """The message without what no value holds, and what that is: `unlisted`, `cut` or `negative`."""
    kept = type(message)()
    kept.CopyFrom(message)
    lost = set(find_negative(message))
    for extension in kept.DESCRIPTOR.file.extensions_by_name.values():
        for each in list(walk(kept)):
            if extension.containing_type == each.DESCRIPTOR and each.HasExtension(extension):
                each.ClearExtension(extension)
                lost.add("unlisted")
    before = kept.SerializePartialToString(deterministic=True)
    kept.DiscardUnknownFields()
    if kept.SerializePartialToString(deterministic=True) != before:
        lost.add("unlisted")
    for each in walk(kept):
        if each.DESCRIPTOR.full_name in {"google.protobuf.Timestamp", "google.type.TimeOfDay"} and each.nanos % 10**6:
            each.nanos -= each.nanos % 10**6
            lost.add("cut")
        if each.DESCRIPTOR.full_name == "confluent.type.Decimal":
            set_decimal(each, Decimal(int.from_bytes(each.value, "big", signed=True)).scaleb(-each.scale))
    return kept, lost


def walk(message: Any) -> Iterator[Any]:
    """The message and all messages in it."""
    yield message
    for field, held in message.ListFields():
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            if field.message_type.fields_by_name["value"].message_type is not None:
                for each in held.values():
                    yield from walk(each)
        elif field.is_repeated:
            for each in held:
                yield from walk(each)
        else:
            yield from walk(held)


def find_negative(message: Any) -> Iterator[str]:
    unsigned = {FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64}
    for each in walk(message):
        for field, held in each.ListFields():
            numbers: list[int] = []
            if field.message_type is not None and field.message_type.GetOptions().map_entry:
                key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
                numbers += list(held) if key.type in unsigned else []
                numbers += held.values() if value.type in unsigned else []
            elif field.type in unsigned:
                numbers += held if field.is_repeated else [held]
            if any(number >= 2**63 for number in numbers):
                yield "negative"


def set_decimal(message: Any, number: Decimal) -> None:
    """Only the number counts: fields of this kind here have the scale 0."""
    message.Clear()
    message.value = int(number).to_bytes(9, "big", signed=True)


def build(new: Any, value: Any) -> Any:
    """The message of a value as one of the formats has it: the inverse of what docs/formats.md promises."""
    message = new()
    put_fields(message, value)
    return message


def put_fields(message: Any, value: Mapping[str, Any]) -> None:
    listed = dict(message.DESCRIPTOR.fields_by_name)
    for place, oneof in enumerate(message.DESCRIPTOR.oneofs):
        names = [field.name for field in oneof.fields]
        # One that is flattened has its fields among the others.
        if oneof.name.startswith("_") or value.keys() >= set(names):
            continue
        chosen = value[oneof.name if oneof.name in value else f"{oneof.name}_{place}"]
        for name in names:
            field = listed.pop(name)
            if chosen is not None and chosen[name] is not None:
                put(message, field, chosen[name])
    for name, field in listed.items():
        if value[name] is not None:
            put(message, field, value[name])


def put(message: Any, field: FieldDescriptor, value: Any) -> None:
    held = getattr(message, field.name)
    inner = field.message_type
    if inner is not None and inner.GetOptions().map_entry:
        key, content = inner.fields_by_name["key"], inner.fields_by_name["value"]
        for k, each in value.items() if isinstance(value, Mapping) else map(read_pair, value):
            if content.message_type is None:
                held[to_scalar(key, k)] = to_scalar(content, each)
            else:
                put_message(held[to_scalar(key, k)], each)
    elif field.is_repeated:
        for each in value:
            held.append(to_scalar(field, each)) if inner is None else put_message(held.add(), each)
    elif inner is None:
        setattr(message, field.name, to_scalar(field, value))
    else:
        held.SetInParent()
        put_message(held, value)


def read_pair(entry: Any) -> Any:
    return (entry["key"], entry["value"]) if isinstance(entry, Mapping) else entry


def to_scalar(field: FieldDescriptor, value: Any) -> Any:
    if field.enum_type is not None:
        unnamed = re.fullmatch(r"UNKNOWN_ENUM_VALUE_E_(-?\d+)", value)
        return int(unnamed[1]) if unnamed else field.enum_type.values_by_name[value].number
    if field.type == FieldDescriptor.TYPE_BYTES and isinstance(value, str):
        return base64.b64decode(value, validate=True)
    if field.type in {FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64}:
        return value % 2**64
    return float(value) if field.cpp_type in {field.CPPTYPE_DOUBLE, field.CPPTYPE_FLOAT} else value


def put_message(message: Any, value: Any) -> None:
    match message.DESCRIPTOR.full_name:
        case "google.protobuf.Timestamp":
            since = value - datetime(1970, 1, 1, tzinfo=timezone.utc) if isinstance(value, datetime) else None
            millis = (
                value if since is None else (since.days * 86400 + since.seconds) * 1000 + since.microseconds // 1000
            )
            message.seconds, message.nanos = millis // 1000, millis % 1000 * 10**6
        case "google.type.Date":
            day = value if isinstance(value, date) else date.fromordinal(value + 719_163)
            message.year, message.month, message.day = day.year, day.month, day.day
        case "google.type.TimeOfDay":
            if isinstance(value, time):
                value = ((value.hour * 60 + value.minute) * 60 + value.second) * 1000 + value.microsecond // 1000
            message.hours, rest = divmod(value, 3_600_000)
            message.minutes, rest = divmod(rest, 60_000)
            message.seconds, message.nanos = rest // 1000, rest % 1000 * 10**6
        case "confluent.type.Decimal":
            raw = base64.b64decode(value) if isinstance(value, str) else value
            set_decimal(message, raw if isinstance(raw, Decimal) else Decimal(int.from_bytes(raw, "big", signed=True)))
        case "google.protobuf.UInt64Value" | "google.protobuf.StringValue" if not isinstance(value, Mapping):
            put(message, message.DESCRIPTOR.fields_by_name["value"], value)
        case _:
            put_fields(message, value)
