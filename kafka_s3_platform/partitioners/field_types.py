"""Finds the Avro logical type of a field: a decoded number alone may be a date or a timestamp."""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from kafka_s3_platform.avro.schema import is_record
from kafka_s3_platform.avro.values import AvroSchema
from kafka_s3_platform.model.connect import Schema

MIXED_TYPES = "a number of one of several logical types"
"""The logical type of a field of several: the meaning of a number there depends on the record."""


def find_logical_type(schema: Schema, path: Sequence[str]) -> str | None:
    """Return the logical type of the field at `path` (outermost name first), None if it has none, or MIXED_TYPES."""
    return _look_up_logical_type(schema.text, tuple(path))


@lru_cache(maxsize=1_000)
def _look_up_logical_type(text: str, path: tuple[str, ...]) -> str | None:
    avro = AvroSchema(json.loads(text))
    types = _list_branches(avro, avro.root)
    for name in path:
        members = [member for node in types for member in _list_members(node, name)]
        types = [branch for member in members for branch in _list_branches(avro, member)]
    numbers = {node.get("logicalType") for node in types if node["type"] in {"int", "long"}}
    if len(numbers) > 1:
        return MIXED_TYPES
    return next((node["logicalType"] for node in types if "logicalType" in node), None)


def _list_branches(avro: AvroSchema, node: Any) -> list[Mapping[str, Any]]:
    """List the types of a value: the branches of a union, or the one type."""
    definition = avro.resolved(node)
    if isinstance(definition, list):
        return [branch for member in definition for branch in _list_branches(avro, member)]
    return [definition]


def _list_members(node: Mapping[str, Any], name: str) -> Iterator[Any]:
    if node["type"] == "map":
        yield node["values"]
    if is_record(node):
        for member in node["fields"]:
            if member["name"] == name:
                yield member["type"]
