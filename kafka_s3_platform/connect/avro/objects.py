"""Reads Avro data as plain objects in Avro's physical form, and writes them, with fastavro.

A value of a union keeps its branch (see `model.connect`). By itself, fastavro forgets the branch of any type without a
name, and chooses one by the value when it writes. So each branch of a union of several types becomes a record of one
field, which has no bytes of its own. fastavro calls a function for such a record, because it has a logical type.
"""

import io
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from fastavro import schemaless_reader, schemaless_writer
from fastavro.read import LOGICAL_READERS
from fastavro.schema import parse_schema
from fastavro.write import LOGICAL_WRITERS

from kafka_s3_platform.connect.avro.schema import get_branch_name, is_record, replace_parts, strip_logical_types

_MARK = {"logicalType": "kafka-s3-platform-branch"}
_VALUE = "kafka_s3_platform_value"
_RANGE = "kafka-s3-platform-range"


class AvroObjects:
    """Reads and writes data of one schema. `reader_schema` is the same schema with only the fields to read.

    Raises:
        ValueError: a union has two branches of the same name, which Avro forbids.
        Exception: fastavro's own errors for an invalid schema.
    """

    def __init__(self, avro: Any, reader_schema: Any = None) -> None:
        self._avro = avro
        # fastavro parses any schema that is not a record again for each datum.
        self._is_record = is_record(avro)
        self._writer_schema = _parse(strip_logical_types(avro))
        self._reader_schema = None if reader_schema is None else _parse(strip_logical_types(reader_schema))

    @cached_property
    def _checked_schema(self) -> Any:
        """The schema for writing. It has checks, which would make reading slower."""
        return _parse(_check_ranges(strip_logical_types(self._avro)))

    def read(self, data: bytes, start: int = 0) -> Any:
        """Decode the datum at `start`. Damaged data may raise errors of any type."""
        body = io.BytesIO(data)
        if start:
            body.seek(start)
        value: Any = schemaless_reader(body, self._writer_schema, self._reader_schema)
        return value if self._is_record else value[_VALUE]

    def write(self, body: io.BytesIO, value: Any) -> None:
        """Encode a value. Raise one of VALUE_ERRORS if it does not fit the schema exactly, or lacks its branch."""
        schemaless_writer(body, self._checked_schema, value if self._is_record else {_VALUE: value}, strict=True)


def _parse(avro: Any) -> Any:
    """Parse an Avro schema for fastavro, with a record around each union's branch and any other root than a record."""
    parsed = parse_schema(avro if is_record(avro) else _wrap(_VALUE, avro), _ignore_default_error=True)
    _name_branches(parsed, set())
    return parsed


def _check_ranges(avro: Any) -> Any:
    """Return the schema with a check at each int. fastavro would write larger numbers, which other readers refuse."""
    if avro == "int" or (isinstance(avro, Mapping) and avro["type"] == "int"):
        return {"type": "int", "logicalType": _RANGE}
    return replace_parts(avro, _check_ranges)


def _name_branches(node: Any, named_types: set[str]) -> None:
    """Put a record around each branch of a union of several types, so that fastavro keeps the branch of a value.

    The parsed schema is changed in place, so that all uses of its named types change.
    """
    if isinstance(node, list):
        for branch in node:
            _name_branches(branch, named_types)
        names = [get_branch_name(branch) for branch in node]
        if len(set(names)) < len(names):
            raise ValueError(f"a union lists one type twice, of {', '.join(names)}")
        if len(set(names) - {"null"}) > 1:
            node[:] = [b if name == "null" else _wrap(name, b) | _MARK for name, b in zip(names, node, strict=True)]
    elif isinstance(node, dict) and node.get("name") not in named_types:
        named_types.update([node["name"]] if "name" in node else [])
        for inner in (node.get("items"), node.get("values"), *(field["type"] for field in node.get("fields", ()))):
            _name_branches(inner, named_types)


def _wrap(name: str, node: Any) -> dict[str, Any]:
    """Return a record of one field of this type. It has no bytes of its own."""
    # A branch gets its name after the schema is parsed, so the name may be the same as another type's.
    return {"type": "record", "name": name, "fields": [{"name": _VALUE, "type": node}]}


class _Branch(dict[str, Any]):
    """A value wrapped in the record of its branch."""


def _read_branch(data: Any, schema: Any, _: Any) -> tuple[str, Any]:
    """Return the name of a union's branch with the value, from the record that `_name_branches` put around it."""
    return schema["name"], data[_VALUE]


def _write_branch(value: Any, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Wrap a value in the record of its branch. Raises TypeError if the value names no branch."""
    # For a value that names no branch, fastavro tries each branch, and converts the value again when it writes it.
    if isinstance(value, _Branch):
        raise TypeError(f"a value of a union names none of its branches, such as {schema['name']}")
    return _Branch({_VALUE: value})


def _check_range(value: Any, _: Any) -> Any:
    """Return the value. Raise OverflowError if it is an int of more than 32 bits."""
    if isinstance(value, int) and not -(2**31) <= value < 2**31:
        raise OverflowError(f"{value} is no int of 32 bits")
    return value


LOGICAL_READERS[f"record-{_MARK['logicalType']}"] = _read_branch
LOGICAL_WRITERS[f"record-{_MARK['logicalType']}"] = _write_branch
LOGICAL_WRITERS[f"int-{_RANGE}"] = _check_range
