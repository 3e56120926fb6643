"""Walking through Avro schemas whose named types are referred to by name."""

from collections.abc import Mapping, Sequence
from decimal import Context, Decimal
from typing import Any

from fastavro.schema import parse_schema

from kafka_s3_platform.model.connect import Schema
from kafka_s3_platform.model.limits import MAX_DECIMAL_BYTES, MAX_DECIMAL_DIGITS

_INT = range(-(2**31), 2**31)


class AvroSchema:
    """A schema with its named types at hand."""

    def __init__(self, schema: Any) -> None:
        self._named: dict[str, Any] = {}
        self.root = parse_schema(schema, self._named, _write_hint=False, _ignore_default_error=True)

    def resolved(self, node: Any) -> Any:
        """A list for a union, else a dict with `type` and what belongs to it."""
        while isinstance(node, str) and node in self._named:
            node = self._named[node]
        if isinstance(node, Mapping) and isinstance(node["type"], Mapping | list):
            return self.resolved(node["type"])
        return {"type": node} if isinstance(node, str) else node

    def complete(self, node: Any) -> Any:
        """A part of the schema that defines all the types that it names."""
        return self._complete(node, set())

    def _complete(self, node: Any, defined: set[str]) -> Any:
        if isinstance(node, str):
            is_own = node in self._named and node not in defined
            return self._complete(self._named[node], defined) if is_own else node
        if isinstance(node, list):
            return [self._complete(branch, defined) for branch in node]
        if "name" in node:
            defined.add(node["name"])
        inner = {name: self._complete(node[name], defined) for name in ("type", "items", "values") if name in node}
        if "fields" in node:
            inner["fields"] = [{**f, "type": self._complete(f["type"], defined)} for f in node["fields"]]
        return {**node, **inner}

    def kind(self, node: Any) -> str:
        """The name of the node's type: `union`, `record`, `string` ..."""
        found = self.resolved(node)
        return "union" if isinstance(found, list) else str(found["type"])

    def members(self, union: Sequence[Any]) -> tuple[list[Any], bool]:
        """The union's types other than null, and whether null is one of its types."""
        others = [node for node in union if self.kind(node) != "null"]
        return others, len(others) < len(union)

    def member_of(self, members: Sequence[Any], value: Any) -> tuple[int, Any]:
        """The index of the member that a value belongs to, and the value.

        `(name, value)` says it by itself; otherwise it is the first member whose type fits.

        Raises:
            TypeError: none fits.
        """
        if isinstance(value, tuple):
            names = [self.resolved(m).get("name", self.kind(m)) for m in members]
            return names.index(value[0]), value[1]
        for index, member in enumerate(members):
            if self._fits(self.resolved(member), value):
                return index, value
        raise TypeError(f"a value of type {type(value).__name__} is none of {[self.kind(m) for m in members]}")

    def _fits(self, node: Mapping[str, Any], value: Any) -> bool:
        match node["type"]:
            case "record":
                return isinstance(value, Mapping) and value.keys() == {f["name"] for f in node["fields"]}
            case "enum":
                return value in node["symbols"]
            case "fixed":
                return isinstance(value, bytes) and len(value) == node["size"]
            case "int":
                return type(value) is int and value in _INT
        return isinstance(value, _PYTHON_TYPES[node["type"]]) and not (isinstance(value, bool) and node["type"] in _NUM)

    def physical_default(self, node: Any, default: Any) -> Any:
        """A default, which Avro writes as JSON, as a decoded value."""
        found = self.resolved(node)
        if isinstance(found, list):
            return self.physical_default(found[0], default)
        if found["type"] == "array":
            return [self.physical_default(found["items"], each) for each in default]
        if found["type"] == "map":
            return {key: self.physical_default(found["values"], each) for key, each in default.items()}
        if found["type"] == "record":
            fields = {f["name"]: f for f in found["fields"]}
            return {n: self.physical_default(f["type"], default.get(n, f.get("default"))) for n, f in fields.items()}
        return default.encode("latin-1") if found["type"] in {"bytes", "fixed"} else default


def is_text(schema: Schema) -> bool:
    """Whether values are text or bytes, or null, and nothing else."""
    avro = AvroSchema(schema.avro)
    found = avro.resolved(avro.root)
    kinds = [avro.kind(node) for node in found] if isinstance(found, list) else [avro.kind(avro.root)]
    return {"string", "bytes"}.issuperset(set(kinds) - {"null"}) and kinds != ["null"]


_NUM = ("long", "float", "double")
_PYTHON_TYPES: Mapping[str, Any] = {
    "boolean": bool,
    "long": int,
    "float": float,
    "double": float,
    "string": str,
    "bytes": bytes,
    "array": list,
    "map": Mapping,
}


_EXACT = Context(prec=MAX_DECIMAL_DIGITS)


def decimal_of(unscaled: bytes, scale: int) -> Decimal:
    """The number that Avro's bytes of a decimal stand for. ValueError where they are too many."""
    if len(unscaled) > MAX_DECIMAL_BYTES:
        raise ValueError(f"a decimal of {len(unscaled):,} bytes, read are {MAX_DECIMAL_BYTES:,}")
    return _EXACT.scaleb(Decimal(int.from_bytes(unscaled, "big", signed=True)), -scale)
