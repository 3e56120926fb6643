"""Finds the Avro logical type of a field. A decoded number does not show whether it is a date or a timestamp."""

import json
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from kafka_s3_platform.avro.schema import is_record
from kafka_s3_platform.model.connect import Schema


def find_logical_type(schema: Schema, path: Sequence[str]) -> str | None:
    """Return the logical type of the field at `path` (outermost name first), None if it has none."""
    return _look_up_logical_type(schema.text, tuple(path))


@lru_cache(maxsize=1_000)
def _look_up_logical_type(text: str, path: tuple[str, ...]) -> str | None:
    root = json.loads(text)
    named = dict(_list_named_types(root, ""))
    types = _list_branches(root, named)
    for name in path:
        types = [
            branch
            for found in types
            for member in _list_members(found, name)
            for branch in _list_branches(member, named)
        ]
    return next((found["logicalType"] for found in types if "logicalType" in found), None)


def _list_branches(node: Any, named: dict[str, Any]) -> list[dict[str, Any]]:
    """List the types that a value may have: the branches of a union, or the one type. Resolve names of types."""
    if isinstance(node, list):
        return [branch for member in node for branch in _list_branches(member, named)]
    if isinstance(node, str):
        return [named[node]] if node in named else []
    # {"type": {"type": "long", "logicalType": ...}} wraps a type once more.
    if isinstance(node["type"], (dict, list)):
        return _list_branches(node["type"], named)
    return [node]


def _list_members(node: dict[str, Any], name: str) -> Iterator[Any]:
    if node["type"] == "map":
        yield node["values"]
    if is_record(node):
        for member in node["fields"]:
            if member["name"] == name:
                yield member["type"]


def _list_named_types(node: Any, namespace: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """List all named types, each under its short and its full name."""
    if isinstance(node, list):
        for member in node:
            yield from _list_named_types(member, namespace)
    if not isinstance(node, dict):
        return
    if "name" in node:
        own, _, short = node["name"].rpartition(".")
        namespace = own or node.get("namespace", namespace)
        yield short, node
        yield f"{namespace}.{short}", node
    for member in _list_inner_types(node):
        yield from _list_named_types(member, namespace)


def _list_inner_types(node: dict[str, Any]) -> Iterator[Any]:
    """List the types inside a type. Other attributes of these names, which Avro allows, mean nothing."""
    if is_record(node):
        yield from (member["type"] for member in node["fields"])
    elif node["type"] in ("array", "map"):
        yield node["items" if node["type"] == "array" else "values"]
    else:
        yield node["type"]
