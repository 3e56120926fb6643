"""The logical type of a field, by the Avro schema of its record."""

import json
from typing import Any

import pytest

from kafka_s3_platform.model.connect import Schema
from kafka_s3_platform.partitioners.extractors import MIXED_TYPES, find_logical_type

DATE = {"type": "int", "logicalType": "date"}


def record(name: str, *fields: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields]}


def find(root: dict[str, Any], *path: str) -> str | None:
    return find_logical_type(Schema(json.dumps(root)), path)


def test_it_is_found_in_records_in_unions_in_maps_and_by_the_name_of_a_type() -> None:
    inner = record("Inner", ("day", ["null", DATE]))
    root = record("R", ("one", inner), ("two", "Inner"), ("by_key", {"type": "map", "values": inner["name"]}))

    assert find(root, "one", "day") == find(root, "two", "day") == find(root, "by_key", "any", "day") == "date"
    assert find(root, "one") is find(root, "one", "none") is find(root, "none") is None


def test_a_name_means_the_type_of_its_own_namespace() -> None:
    """The last type of the same short name was taken: a timestamp was a date, and its records lay in other folders."""
    moment = {"type": "long", "logicalType": "timestamp-millis"}
    one, other = record("a.Item", ("at", moment)), record("b.Item", ("at", DATE))
    root = record("a.Order", ("one", one), ("other", other), ("again", "Item"))

    assert find(root, "again", "at") == find(root, "one", "at") == "timestamp-millis"
    assert find(root, "other", "at") == "date"


def test_numbers_of_several_logical_types_have_none_that_could_be_told() -> None:
    moment = {"type": "long", "logicalType": "timestamp-millis"}
    root = record("R", ("mixed", [DATE, moment]), ("text", ["null", "string", DATE]), ("plain", ["int", moment]))

    assert find(root, "mixed") == find(root, "plain") == MIXED_TYPES
    assert find(root, "text") == "date"


@pytest.mark.parametrize("name", ["fields", "items", "values"])
@pytest.mark.parametrize("value", ["a,b", [], {}, 7, None])
def test_attributes_that_mean_nothing_in_a_type_are_not_read(name: str, value: object) -> None:
    root = record("R", ("text", {"type": "string", name: value}), ("day", DATE))

    assert find(root, "day") == "date"
    assert find(root, "text") is find(root, "text", "a") is None
