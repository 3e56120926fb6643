"""Avro by the letter of its specification: data with the branch of each union, whatever its types are.

No reader of Python keeps the branch of a union of scalars. Source: Apache Avro specification, "Binary encoding".
"""

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_LAYOUTS = {"boolean": "?", "float": "<f", "double": "<d"}
PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")


@dataclass(frozen=True)
class Branch:
    """A value of a union: the index of its type there, and the value itself."""

    index: int
    value: Any


@dataclass
class Types:
    """The types of a schema. `named` holds the definitions by full name; `aliases` are full names."""

    root: Any = None
    named: dict[str, dict[str, Any]] = field(default_factory=dict)

    @staticmethod
    def of(schema: Any) -> "Types":
        found = Types()
        found.root = found.node(schema, "")
        return found

    def node(self, schema: Any, around: str) -> Any:
        """A list for a union, the full name of a named type, or an object with its `type`."""
        if isinstance(schema, list):
            return [self.node(branch, around) for branch in schema]
        if isinstance(schema, str):
            return {"type": schema} if schema in PRIMITIVES else _qualified(schema, around)
        kind = schema["type"]
        if kind in ("array", "map"):
            inner = "items" if kind == "array" else "values"
            return {"type": kind, inner: self.node(schema[inner], around)}
        if kind in ("record", "error", "enum", "fixed"):
            return self._definition(schema, kind, _qualified(schema["name"], schema.get("namespace", around)))
        return schema if kind in PRIMITIVES else self.node(kind, around)

    def _definition(self, schema: Mapping[str, Any], kind: str, name: str) -> str:
        space = name.rpartition(".")[0]
        found = self.named[name] = {**schema, "type": kind, "name": name}
        found["aliases"] = [_qualified(alias, space) for alias in schema.get("aliases", ())]
        if "fields" in schema:
            found["fields"] = [{**f, "type": self.node(f["type"], space)} for f in schema["fields"]]
        return name

    def at(self, node: Any) -> Any:
        """The definition that a node stands for: a list for a union."""
        return self.named[node] if isinstance(node, str) else node

    def encoded(self, value: Any, node: Any = None, *, is_sized: bool = False) -> bytes:
        """The data of a value; with `is_sized`, blocks of arrays and maps say how many bytes they have."""
        node = self.at(self.root if node is None else node)
        if isinstance(node, list):
            return long(value.index) + self.encoded(value.value, node[value.index], is_sized=is_sized)
        match node["type"]:
            case "array":
                return _block([self.encoded(v, node["items"], is_sized=is_sized) for v in value], is_sized)
            case "map":
                pairs = ((_framed(k.encode()), v) for k, v in value.items())
                return _block([k + self.encoded(v, node["values"], is_sized=is_sized) for k, v in pairs], is_sized)
            case "record" | "error":
                return b"".join(self.encoded(value[f["name"]], f["type"], is_sized=is_sized) for f in node["fields"])
        return _encode_scalar(value, node)

    def decoded(self, data: bytes) -> Any:
        """The value of one datum, which ends where the bytes do."""
        reader = Reader(data)
        value = self.read(reader, self.root)
        assert reader.at == len(data), f"{len(data) - reader.at} bytes behind a datum"
        return value

    def read(self, reader: "Reader", node: Any) -> Any:
        """The value that begins where the reader is."""
        node = self.at(node)
        if isinstance(node, list):
            index = reader.long()
            return Branch(index, self.read(reader, node[index]))
        match node["type"]:
            case "array":
                return [self.read(reader, node["items"]) for _ in reader.blocks()]
            case "map":
                return {reader.text(): self.read(reader, node["values"]) for _ in reader.blocks()}
            case "record" | "error":
                return {f["name"]: self.read(reader, f["type"]) for f in node["fields"]}
        return reader.scalar(node)


class Reader:
    """Reads Avro's bytes from `at` on."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, size: int) -> bytes:
        self.at += size
        assert size >= 0, "a length is negative"
        assert self.at <= len(self.data), "a datum ends early"
        return self.data[self.at - size : self.at]

    def long(self) -> int:
        shift = number = 0
        while True:
            byte = self.take(1)[0]
            number |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return number >> 1 ^ -(number & 1)

    def text(self) -> str:
        return self.take(self.long()).decode()

    def blocks(self) -> Any:
        while count := self.long():
            if count < 0:
                self.long()
            yield from range(abs(count))

    def scalar(self, node: Mapping[str, Any]) -> Any:
        match node["type"]:
            case "null":
                return None
            case "int" | "long":
                return self.long()
            case "enum":
                return node["symbols"][self.long()]
            case "fixed":
                return self.take(node["size"])
            case "string":
                return self.text()
        layout = _LAYOUTS.get(node["type"])
        return struct.unpack(layout, self.take(struct.calcsize(layout)))[0] if layout else self.take(self.long())


def read_container(data: bytes) -> tuple[str, list[Any], list[bytes]]:
    """The schema of an uncompressed object container file, its values, and the bytes of each."""
    reader = Reader(data)
    assert reader.take(4) == b"Obj\x01"
    facts = Types.of({"type": "map", "values": "bytes"})
    header = facts.read(reader, facts.root)
    assert header.get("avro.codec", b"null") == b"null"
    sync, text = reader.take(16), header["avro.schema"].decode()
    types = Types.of(json.loads(text))
    values, bodies = [], []
    while reader.at < len(data):
        count, size = reader.long(), reader.long()
        end = reader.at + size
        for _ in range(count):
            start = reader.at
            values.append(types.read(reader, types.root))
            bodies.append(data[start : reader.at])
        assert (reader.at, reader.take(16)) == (end, sync)
    return text, values, bodies


def long(number: int) -> bytes:
    """A zigzag number of variable length."""
    left, out = (number << 1) ^ (number >> 63), bytearray()
    while left > 127:
        out.append(left & 127 | 128)
        left >>= 7
    return bytes([*out, left])


def _qualified(name: str, around: str | None) -> str:
    return name if "." in name or not around else f"{around}.{name}"


def _framed(data: bytes) -> bytes:
    return long(len(data)) + data


def _block(items: list[bytes], is_sized: bool) -> bytes:
    if not items:
        return b"\0"
    body = b"".join(items)
    return (long(-len(items)) + long(len(body)) if is_sized else long(len(items))) + body + b"\0"


def _encode_scalar(value: Any, node: Mapping[str, Any]) -> bytes:
    match node["type"]:
        case "null":
            return b""
        case "int" | "long":
            return long(value)
        case "enum":
            return long(node["symbols"].index(value))
        case "fixed":
            return bytes(value)
    layout = _LAYOUTS.get(node["type"])
    if layout:
        return struct.pack(layout, value)
    return _framed(value.encode() if node["type"] == "string" else value)
