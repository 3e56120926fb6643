"""The Avro logical type of a field, which numbers do not carry themselves."""

import json
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from kafka_s3_platform.model.connect import Schema


def logical_type(schema: Schema, path: Sequence[str]) -> str | None:
    """The logical type of the field at `path` (names from the outside in), None where there is none."""
    return _logical_type(schema.text, tuple(path))


@lru_cache(maxsize=1_000)
def _logical_type(text: str, path: tuple[str, ...]) -> str | None:
    root = json.loads(text)
    named = dict(_named_types(root, ""))
    types = _branches(root, named)
    for name in path:
        types = [branch for found in types for member in _members(found, name) for branch in _branches(member, named)]
    return next((found["logicalType"] for found in types if "logicalType" in found), None)


def _branches(node: Any, named: dict[str, Any]) -> list[dict[str, Any]]:
    """The types that a value may have: those of a union, or the one; names resolved."""
    if isinstance(node, list):
        return [branch for member in node for branch in _branches(member, named)]
    if isinstance(node, str):
        return [named[node]] if node in named else []
    # {"type": {"type": "long", "logicalType": ...}} wraps a type once more.
    return _branches(node["type"], named) if isinstance(node["type"], (dict, list)) else [node]


def _members(node: dict[str, Any], name: str) -> Iterator[Any]:
    if node["type"] == "map":
        yield node["values"]
    for member in node.get("fields", ()):
        if member["name"] == name:
            yield member["type"]


def _named_types(node: Any, namespace: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Named types under their full and their short names."""
    if isinstance(node, list):
        for member in node:
            yield from _named_types(member, namespace)
    if not isinstance(node, dict):
        return
    if "name" in node:
        own, _, short = node["name"].rpartition(".")
        namespace = own or node.get("namespace", namespace)
        yield short, node
        yield f"{namespace}.{short}", node
    for member in (node.get("items"), node.get("values"), node["type"], *(f["type"] for f in node.get("fields", ()))):
        yield from _named_types(member, namespace)
