"""Converts values of an Avro schema so that msgspec writes them like Connect's JsonConverter without schemas.

Bytes and fixed stay bytes. Decimals stay bytes or become numbers (`json.decimal.format`). Dates and times stay numbers.
NaN and infinities become the strings "NaN", "Infinity" and "-Infinity". A map without string keys becomes an array of
pairs. A union of several types becomes an object with a member for each type, all null except one. A member has the
short name of its type, or the full one if two types have the same short name.
Sources: Kafka Connect, JsonConverter; Confluent AvroData.
"""

from collections.abc import Callable, Mapping, Sequence
from math import isfinite, isinf
from typing import Any, Literal

from kafka_s3_platform.connect.avro.connect_schema import ENTRY_NAME, NAMESPACE
from kafka_s3_platform.connect.avro.json_values import build_object, require_exact
from kafka_s3_platform.connect.avro.schema import get_branch_name
from kafka_s3_platform.connect.avro.values import AvroSchema, decode_decimal, shorten_float
from kafka_s3_platform.core.model.connect import Schema

DecimalFormat = Literal["BASE64", "NUMERIC"]
Plain = Callable[[Any], Any]
"""Converts a decoded value so that msgspec encodes it as Connect does."""


def compile_plain_json(schema: Schema | None, decimal_format: DecimalFormat) -> Plain | None:
    """Compile a converter from values of a schema to objects that msgspec writes as Connect's JsonConverter does.

    Returns None if the values need no conversion. Without a schema, values of all types are converted.
    """
    if schema is None:
        return _convert_schemaless
    avro = AvroSchema(schema.avro)
    return PlainJson(avro, decimal_format).compile(avro.root)


_KEPT = frozenset({str, int, bool, bytes, type(None)})


def _convert_schemaless(value: Any) -> Any:
    """Convert a value without a schema for JSON. Raise DataError for an InexactJson."""
    if isinstance(value, float):
        return _convert_double(value)
    if isinstance(value, Mapping):
        if {str}.issuperset(map(type, value)):
            return {key: v if type(v) in _KEPT else _convert_schemaless(v) for key, v in value.items()}
        return [[_convert_schemaless(key), _convert_schemaless(v)] for key, v in value.items()]
    if isinstance(value, list | tuple):
        return [v if type(v) in _KEPT else _convert_schemaless(v) for v in value]
    require_exact(value)
    return value


def _convert_double(value: float) -> float | str:
    """Return the number, or the text JsonConverter writes for NaN or an infinity."""
    if isfinite(value):
        return value
    if isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return "NaN"


def _convert_float(value: float) -> float | str:
    """Return the shortest number for a float of 32 bits, or the text for NaN or an infinity."""
    if isfinite(value):
        return shorten_float(value)
    return _convert_double(value)


_PLAIN: Mapping[str, Plain] = {"float": _convert_float, "double": _convert_double}


class PlainJson:
    """Compiles a schema to functions that convert its values, or to None for types without a conversion."""

    def __init__(self, avro: AvroSchema, decimal_format: DecimalFormat) -> None:
        self._avro = avro
        self._is_numeric = decimal_format == "NUMERIC"
        self._records: dict[str, Plain | None] = {}
        self._open: set[str] = set()

    def compile(self, node: Any) -> Plain | None:
        """Compile a converter of a type's values to objects msgspec writes as Connect does, or None if needless."""
        resolved = self._avro.resolve(node)
        if isinstance(resolved, list):
            return self._compile_union(resolved)
        if resolved.get("logicalType") == "decimal" and resolved["type"] in ("bytes", "fixed"):
            scale = resolved.get("scale", 0)
            return (lambda value: decode_decimal(value, scale)) if self._is_numeric else None
        match resolved["type"]:
            case "array":
                return self._compile_array(resolved["items"])
            case "map":
                plain = self.compile(resolved["values"])
                return plain and (lambda entries: {key: plain(value) for key, value in entries.items()})
            case "record":
                return self._compile_record(resolved)
        return _PLAIN.get(resolved["type"])

    def _compile_array(self, items: Any) -> Plain | None:
        """Compile a converter of an array, or of a map held as an array of entries."""
        item = self._avro.resolve(items)
        if is_map_entry(item):
            return self._compile_pairs(*(field["type"] for field in item["fields"]))
        plain = self.compile(items)
        return plain and (lambda values: [plain(value) for value in values])

    def _compile_pairs(self, key_type: Any, value_type: Any) -> Plain:
        """Compile a converter of a map held as entries, to an object if keys are optional strings, else to pairs."""
        key = self.compile(key_type) or _keep_value
        value = self.compile(value_type) or _keep_value
        if self._is_string(key_type):
            return lambda entries: build_object(
                [("null" if e["key"] is None else e["key"], value(e["value"])) for e in entries]
            )
        return lambda entries: [[key(e["key"]), value(e["value"])] for e in entries]

    def _is_string(self, node: Any) -> bool:
        """Return True if all values of a node are strings or null."""
        resolved = self._avro.resolve(node)
        members = self._avro.members(resolved)[0] if isinstance(resolved, list) else [resolved]
        return [self._avro.kind(member) for member in members] == ["string"]

    def _compile_record(self, node: Mapping[str, Any]) -> Plain | None:
        """Compile a converter of a record if a field needs one. Inside the record itself, it is looked up later."""
        name = node["name"]
        if name in self._open:

            def convert_later(value: Any) -> Any:
                return (self._records[name] or _keep_value)(value)

            return convert_later
        if name not in self._records:
            self._open.add(name)
            compiled = {field["name"]: self.compile(field["type"]) for field in node["fields"]}
            self._open.remove(name)
            changes = {key: plain for key, plain in compiled.items() if plain is not None}

            def convert_fields(record: Mapping[str, Any]) -> dict[str, Any]:
                return {**record, **{key: plain(record[key]) for key, plain in changes.items()}}

            self._records[name] = convert_fields if changes else None
        return self._records[name]

    def _compile_union(self, union: Sequence[Any]) -> Plain | None:
        """Compile a converter of a union, either of one type and null, or of several types, which become an object."""
        members, _ = self._avro.members(union)
        plains = [self.compile(member) for member in members]
        if len(members) <= 1:
            plain = plains[0] if members else None
            return plain and (lambda value: None if value is None else plain(value))
        names = self.list_member_names(members)
        choose = self._avro.compile_choice(members)
        nulls = dict.fromkeys(names)

        def one_of(value: Any) -> Any:
            if value is None:
                return None
            at, value = choose(value)
            return {**nulls, names[at]: (plains[at] or _keep_value)(value)}

        return one_of

    def list_member_names(self, members: Sequence[Any]) -> list[str]:
        """Return, for each type of a union, the key that wraps a value in JSON, as in `{"string": "a"}`.

        The key is the type's name without its namespace, or its full name if two types share the short one.
        """
        full = [get_branch_name(self._avro.resolve(member)) for member in members]
        short = [name.rpartition(".")[2] for name in full]
        return [name if short.count(name) == 1 else full_name for name, full_name in zip(short, full, strict=True)]


def is_map_entry(node: Any) -> bool:
    """Return True if a node is AvroData's record for an entry of a Connect map whose keys are not strings."""
    return isinstance(node, Mapping) and (
        node.get("name") == f"{NAMESPACE}.{ENTRY_NAME}" or node.get("connect.internal.type") == "MapEntry"
    )


def _keep_value(value: Any) -> Any:
    return value
