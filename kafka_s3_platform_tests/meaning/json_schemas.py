"""Draws JSON Schemas of the drafts that exist, and values that an independent validator finds valid.

What an archive holds of such a value is compared with the value's own text.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jsonschema  # type: ignore[import-untyped] # it ships no types
from hypothesis import assume
from hypothesis import strategies as st

from kafka_s3_platform_tests.meaning.avro_reference import Branch

DRAFTS = {
    "http://json-schema.org/draft-04/schema#": "definitions",
    "http://json-schema.org/draft-06/schema#": "definitions",
    "http://json-schema.org/draft-07/schema#": "definitions",
    "https://json-schema.org/draft/2019-09/schema": "$defs",
    "https://json-schema.org/draft/2020-12/schema": "$defs",
}
FIELDS = ("id", "name", "value", "at", "tags")
TITLES = ("Order", "Line", "Paid")
_SIMPLE: dict[str, Any] = {
    "string": st.sampled_from(["", "1", "null", "é\u2028", "A"]),
    "integer": st.sampled_from([0, -1, 5, 2**53 + 1, 2**63 - 1]),
    "number": st.sampled_from([0, 0.5, -0.25, 1e22, 3, 2**53 + 1]),
    "boolean": st.booleans(),
    "null": st.none(),
}


_SIZED: Sequence[dict[str, Any]] = (
    {"type": "integer", "connect.type": "int8", "maximum": 9},
    {"type": "integer", "connect.type": "int64"},
    {"type": "number", "connect.type": "float32"},
    {"type": "integer", "title": "org.apache.kafka.connect.data.Date", "connect.type": "int32", "maximum": 9},
)
_ANY = st.sampled_from([0, "x", None, True, [1, "a"], {"k": 1.5}])


class SchemaDrawing:
    """A schema that is being drawn, for one draft."""

    def __init__(self, draw: Any, draft: str) -> None:
        self._draw = draw
        self._draft = draft
        self.definitions: dict[str, Any] = {}

    def object(self, depth: int) -> dict[str, Any]:
        names = self._draw(st.lists(st.sampled_from(FIELDS), unique=True, min_size=1, max_size=3))
        made: dict[str, Any] = {"type": "object", "properties": {name: self.place(depth - 1) for name in names}}
        if self._draw(st.booleans()):
            made["title"] = self._draw(st.sampled_from(TITLES))
        if self._draw(st.booleans()):
            made["required"] = names[:1]
        if self._draw(st.booleans()):
            made["additionalProperties"] = self._draw(st.booleans())
        return made

    def place(self, depth: int) -> dict[str, Any]:
        """Draw the schema of a property or an item."""
        kinds = {**_LEAVES, **(_PARTS if depth > 0 else {})}
        kind = self._draw(st.sampled_from([*_SIMPLE, *kinds]))
        return {"type": kind} if kind in _SIMPLE else kinds[kind](self, depth)

    def _simple(self) -> str:
        """The name of a type that has values."""
        return str(self._draw(st.sampled_from([*_SIMPLE][:4])))

    def _default(self, _: int) -> dict[str, Any]:
        kind = self._simple()
        return {"type": kind, "default": self._draw(_SIMPLE[kind])}

    def _sized(self, _: int) -> dict[str, Any]:
        return dict(self._draw(st.sampled_from(_SIZED)))

    def _tuple(self, depth: int) -> dict[str, Any]:
        both = [self.place(depth - 1), self.place(depth - 1)]
        first, rest = ("prefixItems", "items") if "2020" in self._draft else ("items", "additionalItems")
        return {"type": "array", first: both, **({rest: {"type": "integer"}} if self._draw(st.booleans()) else {})}

    def _choice(self, word: str, depth: int) -> dict[str, Any]:
        return {word: [self.place(depth - 1) for _ in range(self._draw(st.integers(2, 3)))]}

    def _reference(self, depth: int) -> dict[str, Any]:
        self.definitions["part"] = self.definitions.get("part") or self.object(depth - 1)
        return {"$ref": f"#/{DRAFTS[self._draft]}/part"}


_Make = Callable[[SchemaDrawing, int], dict[str, Any]]
_LEAVES: Mapping[str, _Make] = {
    "nullable": lambda d, _: {"type": [d._simple(), "null"]},  # noqa: SLF001
    "enum": lambda _d, _: {"enum": ["A", "B"]},
    "mixed": lambda _d, _: {"enum": ["A", 1, None]},
    "any": lambda _d, _: {},
    "default": SchemaDrawing._default,  # noqa: SLF001
    "sized": SchemaDrawing._sized,  # noqa: SLF001
}
_PARTS: Mapping[str, _Make] = {
    "object": SchemaDrawing.object,
    "array": lambda d, depth: {"type": "array", "items": d.place(depth - 1)},
    "map": lambda d, depth: {"type": "object", "additionalProperties": d.place(depth - 1)},
    "tuple": SchemaDrawing._tuple,  # noqa: SLF001
    "oneOf": lambda d, depth: d._choice("oneOf", depth),  # noqa: SLF001
    "anyOf": lambda d, depth: d._choice("anyOf", depth),  # noqa: SLF001
    "allOf": lambda d, depth: {"allOf": [d.object(depth), d.object(depth)]},
    "ref": SchemaDrawing._reference,  # noqa: SLF001
}


def draw_instance(draw: Any, schema: Mapping[str, Any], root: Mapping[str, Any], depth: int = 5) -> Any:
    """Draw a value that may be valid."""
    if "$ref" in schema:
        _, where, name = schema["$ref"].split("/")
        return draw_instance(draw, root[where][name], root, depth - 1)
    if several := schema.get("oneOf") or schema.get("anyOf"):
        return draw_instance(draw, draw(st.sampled_from(several)), root, depth - 1)
    if "allOf" in schema:
        first, second = (draw_instance(draw, each, root, depth - 1) for each in schema["allOf"])
        return first | second
    if "type" not in schema:
        return draw(st.sampled_from(schema["enum"]) if schema else _ANY)
    return _draw_typed(draw, schema, root, depth)


def _draw_typed(draw: Any, schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Any:
    kinds = schema["type"]
    kind = draw(st.sampled_from(kinds)) if isinstance(kinds, list) else kinds
    if kind == "object":
        return _draw_object(draw, schema, root, depth)
    if kind == "array":
        items = schema.get("prefixItems", schema.get("items"))
        first = items if isinstance(items, list) else [items] * draw(st.integers(0, 2))
        more = draw(st.sampled_from([[], [7]])) if isinstance(items, list) else []
        return [*(draw_instance(draw, each, root, depth - 1) for each in first), *more]
    return draw(st.sampled_from([0, 0.5, 3]) if schema.get("connect.type") == "float32" else _SIMPLE[kind])


def _draw_object(draw: Any, schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Any:
    others = schema.get("additionalProperties", True)
    if isinstance(others, dict):
        return {key: draw_instance(draw, others, root, depth - 1) for key in draw(st.sets(st.sampled_from("xy")))}
    required = schema.get("required", ())
    drawn = {
        name: draw_instance(draw, each, root, depth - 1)
        for name, each in schema["properties"].items()
        if name in required or (depth > 0 and draw(st.booleans()))
    }
    if others is True and draw(st.integers(0, 4)) == 0:
        drawn["unlisted"] = 7
    return drawn


@st.composite
def schemas_and_instances(draw: Any) -> tuple[dict[str, Any], list[Any]]:
    """A schema and values that are valid by it."""
    draft = draw(st.sampled_from([*DRAFTS]))
    drawing = SchemaDrawing(draw, draft)
    schema = {"$schema": draft, **drawing.object(3)}
    schema |= {DRAFTS[draft]: drawing.definitions} if drawing.definitions else {}
    validator = jsonschema.validators.validator_for(schema)(schema)
    drawn = [draw_instance(draw, schema, schema) for _ in range(draw(st.integers(1, 3)))]
    valid = [each for each in drawn if validator.is_valid(each)]
    assume(valid)
    return schema, valid


def find_lost(value: Any, found: Any, where: str = "") -> Iterator[str]:
    """Yield the properties of a value that an archive lacks. Raise AssertionError where it has another value."""
    found = found.value if isinstance(found, Branch) else found
    if isinstance(value, dict) and isinstance(found, dict):
        for name, each in value.items():
            if name not in found:
                yield f"{where}.{name}"
            else:
                yield from find_lost(each, found[name], f"{where}.{name}")
    elif isinstance(value, list) and isinstance(found, list):
        assert len(value) == len(found), f"{where}: {value!r} became {found!r}"
        for each, one in zip(value, found, strict=True):
            yield from find_lost(each, one, f"{where}[]")
    elif isinstance(found, str) and not isinstance(value, str):
        # Values of no certain type are kept as their JSON.
        assert json.loads(found) == value, f"{where}: {value!r} became {found!r}"
    elif isinstance(found, str) and found != value:
        assert json.loads(found) == value, f"{where}: {value!r} became {found!r}"
    else:
        assert (isinstance(value, bool), value) == (isinstance(found, bool), found), (
            f"{where}: {value!r} became {found!r}"
        )
