"""Looks up types in Avro schemas, and matches values with them."""

from collections.abc import Callable, Mapping, Sequence
from decimal import Context, Decimal
from typing import Any

import numpy as np
from fastavro.schema import parse_schema

from kafka_s3_platform.connect.avro.schema import decode_default, get_branch_name
from kafka_s3_platform.core.model.connect import Schema
from kafka_s3_platform.core.model.limits import MAX_DECIMAL_BYTES, MAX_DECIMAL_DIGITS


class AvroSchema:
    """A schema as fastavro parses it, and its named types by name. A *node* is any type in it."""

    def __init__(self, schema: Any) -> None:
        self._named: dict[str, Any] = {}
        self.root = parse_schema(schema, self._named, _write_hint=False, _ignore_default_error=True)

    def resolve(self, node: Any) -> Any:
        """Return the definition of a node: a list for a union, else a dict with `type` and its attributes."""
        while isinstance(node, str) and node in self._named:
            node = self._named[node]
        if isinstance(node, Mapping) and isinstance(node["type"], Mapping | list):
            return self.resolve(node["type"])
        return {"type": node} if isinstance(node, str) else node

    def complete(self, node: Any, defined: set[str] | None = None) -> Any:
        """Return a part of the schema with the definition of each type it names at the first use of the name.

        The names in `defined` are already defined before this part. The names this part defines are added to them.
        """
        defined = set() if defined is None else defined
        if isinstance(node, str):
            is_undefined = node in self._named and node not in defined
            return self.complete(self._named[node], defined) if is_undefined else node
        if isinstance(node, list):
            return [self.complete(branch, defined) for branch in node]
        if "name" in node:
            defined.add(node["name"])
        inner = {name: self.complete(node[name], defined) for name in ("type", "items", "values") if name in node}
        if "fields" in node:
            inner["fields"] = [{**f, "type": self.complete(f["type"], defined)} for f in node["fields"]]
        return {**node, **inner}

    def kind(self, node: Any) -> str:
        """Return the name of the node's type: `union`, `record`, `string` ..."""
        resolved = self.resolve(node)
        if isinstance(resolved, list):
            return "union"
        return str(resolved["type"])

    def members(self, union: Sequence[Any]) -> tuple[list[Any], bool]:
        """Split a union into its types except null, and True if null is one of them."""
        others = [node for node in union if self.kind(node) != "null"]
        return others, len(others) < len(union)

    def compile_choice(self, members: Sequence[Any]) -> Callable[[Any], tuple[int, Any]]:
        """Compile a function from `(branch, value)` to the member's index and the value.

        The function raises TypeError for a value that names no branch, and LookupError for a branch of another union.
        """
        places = {get_branch_name(self.resolve(member)): at for at, member in enumerate(members)}

        def choose(value: Any) -> tuple[int, Any]:
            if type(value) is not tuple:
                raise TypeError(
                    f"a value of type {type(value).__name__} names none of the branches {', '.join(places)}"
                )
            return places[value[0]], value[1]

        return choose

    def decode_default_of(self, node: Any, default: Any) -> Any:
        """Decode a default from Avro's JSON."""
        return decode_default(default, node, self.resolve)


def is_text(schema: Schema) -> bool:
    """Return True if all values of a schema are text, bytes or null, and not all are null."""
    avro = AvroSchema(schema.avro)
    resolved = avro.resolve(avro.root)
    kinds = [avro.kind(node) for node in resolved] if isinstance(resolved, list) else [avro.kind(avro.root)]
    return {"string", "bytes"}.issuperset(set(kinds) - {"null"}) and kinds != ["null"]


_EXACT = Context(prec=MAX_DECIMAL_DIGITS)


def decode_decimal(unscaled: bytes, scale: int) -> Decimal:
    """Return the decimal number that these bytes hold. Raise ValueError if there are too many bytes."""
    if len(unscaled) > MAX_DECIMAL_BYTES:
        raise ValueError(f"a decimal of {len(unscaled):,} bytes, read are {MAX_DECIMAL_BYTES:,}")
    return _EXACT.scaleb(Decimal(int.from_bytes(unscaled, "big", signed=True)), -scale)


def unscale_decimal(number: Decimal, scale: int) -> int:
    """Return a decimal number of `scale` decimal places as the whole number that Avro stores, with all its digits."""
    return int(_EXACT.scaleb(number, scale))


def encode_unscaled(number: int, size: int | None = None) -> bytes:
    """Return the unscaled number of a decimal as Avro stores it: two's complement, big-endian.

    `size` is the size of a fixed type. Without it, the number takes as few bytes as possible. Raises OverflowError if
    the number does not fit.
    """
    # There is one more negative number than positive ones: -128 fits into a byte, 128 does not.
    bits = (number + (number < 0)).bit_length()
    return number.to_bytes(bits // 8 + 1 if size is None else size, "big", signed=True)


def shorten_float(value: float) -> float:
    """Return the shortest decimal number for the same 32-bit float, such as 0.1 and not 0.10000000149011612."""
    return float(str(np.float32(value)))
