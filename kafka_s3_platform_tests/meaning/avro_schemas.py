"""Draws Avro schemas of every kind, and values of them with the branch of each union."""

import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from kafka_s3_platform_tests.meaning.avro_reference import PRIMITIVES, Branch, Types
from kafka_s3_platform_tests.meaning.harness import registered

SHORT_NAMES = ("Created", "Paid", "Line")
NAMESPACES = ("shop", "shop.order", "pay")
FIELDS = ("a", "b", "key", "value", "type", "member0")
SYMBOLS = ("A", "B", "OPEN", "x")
PLAIN_LOGICAL = (
    {"type": "int", "logicalType": "date"},
    {"type": "int", "logicalType": "time-millis"},
    {"type": "long", "logicalType": "time-micros"},
    *({"type": "long", "logicalType": f"{kind}-{unit}"} for kind in ("timestamp", "local-timestamp")
      for unit in ("millis", "micros", "nanos")),
    {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    {"type": "bytes", "logicalType": "decimal", "precision": 50},
    {"type": "string", "logicalType": "uuid"},
    {"type": "string", "logicalType": "shop-number"},
    {"type": "int", "connect.type": "int8"},
    {"type": "long", "connect.name": "shop.Micros", "connect.parameters": {"a": "b"}},
)  # fmt: skip
BAD_LOGICAL = (
    {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 3},
    {"type": "bytes", "logicalType": "decimal", "precision": 0},
    {"type": "bytes", "logicalType": "decimal"},
    {"type": "bytes", "logicalType": "decimal", "precision": 90, "scale": 1},
    {"type": "string", "logicalType": "decimal", "precision": 9},
    {"type": "long", "logicalType": "date"},
    {"type": "int", "logicalType": "timestamp-millis"},
    {"type": "double", "logicalType": "time-micros"},
)
FIXED_LOGICAL: Sequence[dict[str, Any]] = (
    {},
    {"logicalType": "decimal", "precision": 6, "scale": 1},
    {"logicalType": "duration"},
    {"logicalType": "uuid"},
)

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.sampled_from([0, 1, -1, 2**31 - 1, -(2**31)]) | st.integers(-(2**31), 2**31 - 1),
    "long": st.sampled_from([0, 5, 2**53 + 1, 2**63 - 1, -(2**63)]) | st.integers(-(2**63), 2**63 - 1),
    "float": st.sampled_from([0.1, -0.0, 16777216.0]).map(lambda x: struct.unpack("f", struct.pack("f", x))[0])
    | st.floats(width=32),
    "double": st.sampled_from([0.1, -0.0, 1e22, 5e-324]) | st.floats(),
    "bytes": st.sampled_from([b"", b"\0", b"\xff\xfe", b"text"]) | st.binary(max_size=5),
    "string": st.sampled_from(["", "A", "null", "é\0\u2028", "text"]) | _TEXT,
}


_DEFAULTS: Mapping[str, Any] = {
    "null": None,
    "boolean": True,
    "int": 7,
    "long": 2**53 + 1,
    "float": 0.5,
    "double": 1e22,
    "bytes": "\u00ff\u0000",
    "string": "d",
    "array": [],
    "map": {},
    "enum": "A",
}
"""A default of each type, as JSON. Every drawn enum has the symbol."""


def _read_type(schema: Any) -> str:
    return str(schema if isinstance(schema, str) else schema["type"])


class Drawing:
    """One schema that is being drawn. `defined` are the types that later places may name, `open` those around."""

    def __init__(self, draw: Any, *, has_bad_types: bool) -> None:
        self._draw = draw
        self._bad = has_bad_types
        self._names = [f"{space}.{name}" for space in NAMESPACES for name in SHORT_NAMES]
        self.defined: list[str] = []
        self.open: list[str] = []

    def pick(self, options: Sequence[Any]) -> Any:
        return self._draw(st.sampled_from(options))

    def root(self) -> Any:
        kind = self.pick(["record"] * 6 + ["union", "any"])
        if kind == "union":
            return self.union(2)
        return self.record(3) if kind == "record" else self.type(2)

    def type(self, depth: int, *, ends: bool = False) -> Any:
        """Draw a type. `ends`: the value around it may be null or empty, so that it may name a type around."""
        names = [*self.defined, *(self.open if ends else ())]
        kinds = [*PRIMITIVES[1:], "logical", "enum", "fixed"]
        kinds += ["record", "record", "array", "map"] if depth else []
        kinds += ["bad"] if self._bad else []
        kinds += ["name", "name"] if names else []
        kind = self.pick(kinds)
        if kind == "name":
            return self.pick(names)
        return self._made(kind, depth)

    def _made(self, kind: str, depth: int) -> Any:
        match kind:
            case "logical" | "bad":
                return self.pick(PLAIN_LOGICAL if kind == "logical" else BAD_LOGICAL)
            case "enum" | "fixed":
                return self.named(kind)
            case "record":
                return self.record(depth - 1)
            case "array" | "map":
                return {"type": kind, "items" if kind == "array" else "values": self.place(depth - 1, ends=True)}
        return self.pick([kind, {"type": kind}])

    def place(self, depth: int, *, ends: bool = False) -> Any:
        """Draw the type of a field, of items or of values: a union as often as not."""
        return self.union(depth) if self.pick([True, False]) else self.type(depth, ends=ends)

    def union(self, depth: int) -> list[Any]:
        branches: dict[str, Any] = {"null": "null"} if self.pick([True, True, False]) else {}
        for _ in range(self.pick([1, 2, 2, 2, 3, 4])):
            before = [*self.defined]
            branch = self.type(depth, ends="null" in branches)
            if branches.setdefault(_read_key(branch), branch) is not branch:
                self.defined = before
        found = list(branches.values())
        # Only simple types move: the definition of a name has to come before its uses.
        if found[0] == "null" and self.pick([True, False]):
            found = [*found[1:], "null"]
        return found

    def named(self, kind: str) -> Any:
        name = self._new_name()
        if name is None:
            return "string"
        self.defined.append(name)
        if kind == "enum":
            symbols = SYMBOLS[: self.pick([1, 3, 4])]
            return self._spelled(name, {"type": "enum", "symbols": list(symbols)}, symbols[0])
        extra = self.pick(FIXED_LOGICAL)
        size = {"duration": 12, "uuid": 16}.get(extra.get("logicalType", ""), self.pick([1, 4]))
        size = 4 if "precision" in extra else size
        return self._spelled(name, {"type": "fixed", "size": size, **extra})

    def record(self, depth: int) -> Any:
        name = self._new_name()
        if name is None:
            return "string"
        self.open.append(name)
        names = self._draw(st.lists(st.sampled_from(FIELDS), unique=True, min_size=1, max_size=4))
        fields = [self._field(each, depth) for each in names]
        self.open.remove(name)
        self.defined.append(name)
        return self._spelled(name, {"type": "record", "fields": fields})

    def _field(self, name: str, depth: int) -> dict[str, Any]:
        kind = self.place(depth)
        first = kind[0] if isinstance(kind, list) else kind
        about = {"doc": "told", "aliases": [f"{name}_before"]} if self.pick([True, False, False]) else {}
        has_default = _read_type(first) in _DEFAULTS and self.pick([True, False])
        return {
            "name": name,
            "type": kind,
            **about,
            **({"default": _DEFAULTS[_read_type(first)]} if has_default else {}),
        }

    def _new_name(self) -> str | None:
        if not self._names:
            return None
        name: str = self.pick(self._names)
        self._names.remove(name)
        return name

    def _spelled(self, name: str, rest: dict[str, Any], default: str | None = None) -> Any:
        space, _, short = name.rpartition(".")
        spelled = self.pick([{"name": name}, {"name": short, "namespace": space}])
        if default is not None and self.pick([True, False]):
            rest = {**rest, "default": default}
        return {**spelled, **rest}


def draw_value(draw: Any, types: Types, node: Any, depth: int = 4) -> Any:
    """Draw a value of a type. Deep inside, lists are empty and unions null, so that it ends."""
    node = types.at(node)
    if isinstance(node, list):
        nulls = [i for i, branch in enumerate(node) if types.at(branch) == {"type": "null"}]
        index = nulls[0] if nulls and depth <= 0 else draw(st.integers(0, len(node) - 1))
        return Branch(index, draw_value(draw, types, node[index], depth - 1))
    match node["type"]:
        case "array":
            return [draw_value(draw, types, node["items"], depth - 1) for _ in range(_draw_size(draw, depth))]
        case "map":
            keys = [draw(_TEXT) for _ in range(_draw_size(draw, depth))]
            return {key: draw_value(draw, types, node["values"], depth - 1) for key in keys}
        case "record":
            return {f["name"]: draw_value(draw, types, f["type"], depth - 1) for f in node["fields"]}
    if node["type"] == "fixed":
        return draw(st.binary(min_size=node["size"], max_size=node["size"]))
    return draw(_VALUES[node["type"]] if node["type"] in _VALUES else st.sampled_from(node["symbols"]))


def _draw_size(draw: Any, depth: int) -> int:
    size: int = draw(st.integers(0, 2)) if depth > 0 else 0
    return size


def _read_key(branch: Any) -> str:
    """What no two branches of a union share: the full name of a named type, else the type."""
    if isinstance(branch, str):
        return branch
    if "name" not in branch:
        return str(branch["type"])
    name: str = branch["name"]
    return name if "." in name else f"{branch['namespace']}.{name}"


@st.composite
def schemas_and_values(draw: Any, *, count: int = 3, has_bad_types: bool = False) -> tuple[Any, Types, list[Any]]:
    """A schema, its types, and values of it."""
    schema = Drawing(draw, has_bad_types=has_bad_types).root()
    types = Types.of(schema)
    return schema, types, [draw_value(draw, types, types.root) for _ in range(draw(st.integers(1, count)))]


_ADDED: Sequence[tuple[Any, Any]] = (
    ("string", "d"),
    (["null", "string"], None),
    (["string", "null"], "x"),
    (["int", "long", "string"], 7),
    ("double", 1.5),
    ("bytes", "\u00ff"),
    ({"type": "array", "items": ["int", "string"]}, [1]),
    ({"type": "map", "values": "long"}, {"k": 2}),
)
_WIDER = {"int": ("long", "double"), "long": ("double",), "float": ("double",), "string": ("bytes",)}


class Evolution:
    """Changes a schema as its next version might: some of its values then have no place there."""

    def __init__(self, draw: Any) -> None:
        self._draw = draw

    def _chance(self, one_of: int) -> bool:
        return bool(self._draw(st.integers(1, one_of)) == 1)

    def of(self, schema: Any) -> Any:
        if isinstance(schema, list):
            return self._union(schema)
        if isinstance(schema, str):
            wider = _WIDER.get(schema, ())
            return self._draw(st.sampled_from(wider)) if wider and self._chance(6) else schema
        if schema["type"] == "record":
            return self._record(schema)
        if schema["type"] == "enum" and self._chance(3):
            symbols = schema["symbols"]
            return {**schema, "symbols": [*symbols[:-1], "LATER"] if len(symbols) > 1 else [*symbols, "LATER"]}
        inner = {part: self.place(schema[part]) for part in ("items", "values") if part in schema}
        return {**schema, **inner}

    def place(self, schema: Any) -> Any:
        changed = self.of(schema)
        if isinstance(changed, list) or _read_key(changed) in ("null", "string") or not self._chance(6):
            return changed
        return self._draw(st.sampled_from([["null", changed], [changed, "null"], ["string", changed]]))

    def _union(self, union: list[Any]) -> list[Any]:
        keys: dict[str, Any] = {}
        for branch in map(self.of, union):
            keys.setdefault(_read_key(branch), branch)
        if self._chance(4):
            keys.setdefault(more := self._draw(st.sampled_from(["string", "long", "double", "bytes"])), more)
        simple = [key for key in keys if isinstance(keys[key], str)]
        if len(keys) > 2 and simple and self._chance(4):
            del keys[self._draw(st.sampled_from(simple))]
        return [*keys.values()]

    def _record(self, schema: dict[str, Any]) -> Any:
        fields = [{**field, "type": self.place(field["type"])} for field in schema["fields"]]
        if self._chance(4):
            fields[0] = {**fields[0], "name": f"{fields[0]['name']}_new", "aliases": [fields[0]["name"]]}
        if len(fields) > 1 and isinstance(fields[-1]["type"], str) and self._chance(4):
            fields.pop()
        if self._chance(2):
            kind, default = self._draw(st.sampled_from(_ADDED))
            fields.append({"name": "added", "type": kind, "default": default})
        return {**schema, "fields": fields}


@st.composite
def versions_and_values(draw: Any) -> tuple[list[Any], list[tuple[int, Any]]]:
    """Schemas of one subject or of two, and values of them, each with the id of its schema."""
    schema = Drawing(draw, has_bad_types=False).record(2)
    subject, versions = draw(
        st.sampled_from([("t-value", [2, 3]), ("twin", [1, 2]), ("other", [1, 2]), ("another", [1, 2])])
    )
    later = Drawing(draw, has_bad_types=False).record(2) if subject == "another" else Evolution(draw).of(schema)
    if subject == "other":
        # An event of another team, which looks like this one.
        full = Types.of(later).root
        other = f"other.{full.rpartition('.')[2]}"
        later = {**json.loads(json.dumps(later).replace(f'"{full}"', f'"{other}"')), "name": other}
    places = [("t-value", 1), (subject, draw(st.sampled_from(versions)))]
    schemas = [registered(7 + at, each, *places[at]) for at, each in enumerate((schema, later))]
    ids = draw(st.lists(st.integers(0, 1), min_size=2, max_size=5))
    types = [Types.of(schema), Types.of(later)]
    return schemas, [(7 + at, draw_value(draw, types[at], types[at].root)) for at in ids]
