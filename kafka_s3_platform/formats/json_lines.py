"""JsonFormat: one line of JSON a record, as Connect's JsonConverter without schemas writes it.

Values that came as JSON are written as they came, without a look at each. Others are encoded by their schema: bytes and
fixed as base64; decimals as the base64 of their bytes or as numbers (`json.decimal.format`); dates and times as the
numbers they are; NaN and infinities as the strings "NaN", "Infinity" and "-Infinity"; a map whose keys are not strings
as an array of pairs; a union of several types as an object with a member for each, null but for one. No line break is
ever written inside a record. Sources: Kafka Connect, JsonConverter; Confluent AvroData; Jackson's defaults.
"""

from collections.abc import Callable, Mapping, Sequence
from math import isfinite, isinf
from typing import Any, Literal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.formats.avro_schema import AvroSchema, decimal_of, is_text
from kafka_s3_platform.formats.lines import ended
from kafka_s3_platform.formats.parts import (
    VALUE_ERRORS,
    ObjectPart,
    as_bytes,
    payload_of,
    unwritable,
    without_null,
)
from kafka_s3_platform.model.connect import ConnectBatch, Schema

DecimalFormat = Literal["BASE64", "NUMERIC"]
Plain = Callable[[Any], Any]
"""Makes of a decoded value what msgspec then encodes as Connect would."""


def framing(
    part: ObjectPart, schema: Schema | None, decimal_format: DecimalFormat
) -> Callable[[ConnectBatch], bytes | memoryview]:
    """What makes one buffer of lines of the values, keys or headers of a batch. Null is the line `null`.

    The headers of a record are the member `headers` of an object, as the sink has it.

    Raises:
        UnwritableRecordsError: (what it makes) some values cannot be JSON; nothing was written.
    """
    if part == "headers":
        return lambda batch: _encode([{"headers": o} for o in payload_of(batch, part).objects])
    plain = plain_json(schema, decimal_format)

    def lines(batch: ConnectBatch) -> bytes | memoryview:
        payload = payload_of(batch, part)
        if payload.raw_is_json and payload.raw is not None:
            return raw_lines(payload.raw)
        return _object_lines(batch, payload.objects, plain)

    return lines


def raw_lines(values: pa.BinaryArray) -> memoryview:
    """Lines of values that came as JSON on one line each."""
    return ended(pc.fill_null(values, b"null") if values.null_count else values)


def texts(schema: Schema | None, decimal_format: DecimalFormat) -> Callable[[ConnectBatch], pa.BinaryArray]:
    """What makes one text each of the values of a batch, none of them null: text and bytes as they are, else JSON.

    Never the frame that a value came in. A null of a schema of text cannot be told from the text `null`: it fails.
    """
    plain = plain_json(schema, decimal_format)
    is_null_text = schema is not None and is_text(schema)

    def text(value: Any) -> bytes:
        if value is None and is_null_text:
            raise TypeError("a null in a schema of text would read back as the text null")
        return as_bytes(value) if isinstance(value, bytes | str) else _ENCODER.encode(plain(value) if plain else value)

    def found(batch: ConnectBatch) -> pa.BinaryArray:
        payload = without_null(batch, batch.value)
        if payload.raw is not None and payload.raw_is_value:
            return payload.raw
        try:
            return pa.array([text(value) for value in payload.objects], pa.binary())
        except VALUE_ERRORS as err:
            raise unwritable(batch, payload.objects, "block_gzip", text) from err

    return found


def plain_json(schema: Schema | None, decimal_format: DecimalFormat) -> Plain | None:
    """What values of a schema need before they are encoded, None when that is nothing."""
    if schema is None:
        return _schemaless
    avro = AvroSchema(schema.avro)
    return PlainJson(avro, decimal_format).plain(avro.root)


_ENCODER = msgspec.json.Encoder(decimal_format="number")
_encode = _ENCODER.encode_lines


def _object_lines(batch: ConnectBatch, objects: Sequence[Any], plain: Plain | None) -> bytes:
    try:
        return _encode(_all_plain(objects, plain))
    except VALUE_ERRORS as err:
        raise unwritable(batch, objects, "json", lambda o: _encode(_all_plain([o], plain))) from err


def _all_plain(objects: Sequence[Any], plain: Plain | None) -> Sequence[Any]:
    if plain is None:
        return objects
    return [None if value is None else plain(value) for value in objects]


def _schemaless(value: Any) -> Any:
    if value is None or isinstance(value, str | int | bytes):
        return value
    if isinstance(value, float):
        return _double(value)
    if isinstance(value, Mapping):
        if all(isinstance(key, str) for key in value):
            return {key: _schemaless(v) for key, v in value.items()}
        return [[_schemaless(key), _schemaless(v)] for key, v in value.items()]
    if isinstance(value, list | tuple):
        return [_schemaless(v) for v in value]
    return value


def _double(value: float) -> float | str:
    if isfinite(value):
        return value
    return ("Infinity" if value > 0 else "-Infinity") if isinf(value) else "NaN"


def _float(value: float) -> float | str:
    # The shortest number that is the same float: 0.1, not 0.10000000149011612.
    return float(str(np.float32(value))) if isfinite(value) else _double(value)


_PLAIN: Mapping[str, Plain] = {"float": _float, "double": _double}


class PlainJson:
    """Compiles a schema to functions. A type that refers to itself is looked up when its values come."""

    def __init__(self, avro: AvroSchema, decimal_format: DecimalFormat) -> None:
        self._avro, self._numeric = avro, decimal_format == "NUMERIC"
        self._records: dict[str, Plain | None] = {}
        self._open: set[str] = set()

    def plain(self, node: Any) -> Plain | None:
        """What values of the node need before they are encoded, None when that is nothing."""
        found = self._avro.resolved(node)
        if isinstance(found, list):
            return self._union(found)
        if found.get("logicalType") == "decimal":
            return self._decimal(found)
        match found["type"]:
            case "array":
                return self._array(found["items"])
            case "map":
                return _each_value(self.plain(found["values"]))
            case "record":
                return self._record(found)
        return _PLAIN.get(found["type"])

    def _decimal(self, node: Mapping[str, Any]) -> Plain | None:
        scale = node.get("scale", 0)
        return (lambda value: decimal_of(value, scale)) if self._numeric else None

    def _array(self, items: Any) -> Plain | None:
        item = self._avro.resolved(items)
        if is_map_entry(item):
            return self._pairs(*(field["type"] for field in item["fields"]))
        return _each(self.plain(items))

    def _pairs(self, key_type: Any, value_type: Any) -> Plain:
        """Connect's maps whose keys Avro cannot have: an object if they are strings that may be null, else pairs."""
        key, value = self.plain(key_type) or _same, self.plain(value_type) or _same
        if self._is_string(key_type):
            return lambda found: {e["key"] if e["key"] is not None else "null": value(e["value"]) for e in found}
        return lambda found: [[key(e["key"]), value(e["value"])] for e in found]

    def _is_string(self, node: Any) -> bool:
        found = self._avro.resolved(node)
        kinds = (
            [self._avro.kind(m) for m in self._avro.members(found)[0]] if isinstance(found, list) else [found["type"]]
        )
        return kinds == ["string"]

    def _record(self, node: Mapping[str, Any]) -> Plain | None:
        name = node["name"]
        if name in self._open:
            return self._later(name)
        if name not in self._records:
            self._open.add(name)
            compiled = {field["name"]: self.plain(field["type"]) for field in node["fields"]}
            self._open.remove(name)
            changed = {key: plain for key, plain in compiled.items() if plain is not None}
            self._records[name] = _fields(changed) if changed else None
        return self._records[name]

    def _later(self, name: str) -> Plain:
        def plain(value: Any) -> Any:
            return (self._records[name] or _same)(value)

        return plain

    def _union(self, union: Sequence[Any]) -> Plain | None:
        members, _ = self._avro.members(union)
        plains = [self.plain(member) for member in members]
        if len(members) <= 1:
            return _unless_null(plains[0]) if members else None
        names = [self.member_name(member) for member in members]

        def one_of(value: Any) -> Any:
            if value is None:
                return None
            at, value = self._avro.member_of(members, value)
            return dict.fromkeys(names) | {names[at]: (plains[at] or _same)(value)}

        return one_of

    def member_name(self, node: Any) -> str:
        """The name of a union's type as the member of an object."""
        found = self._avro.resolved(node)
        return str(found.get("name", found["type"])).rpartition(".")[2]


def is_map_entry(node: Any) -> bool:
    """Connect's stand-in for maps with other keys than strings (Confluent AvroData)."""
    return isinstance(node, Mapping) and (
        node.get("name") == "io.confluent.connect.avro.MapEntry" or node.get("connect.internal.type") == "MapEntry"
    )


def _same(value: Any) -> Any:
    return value


def _unless_null(plain: Plain | None) -> Plain | None:
    return plain and (lambda value: None if value is None else plain(value))


def _each(plain: Plain | None) -> Plain | None:
    return plain and (lambda values: [plain(value) for value in values])


def _each_value(plain: Plain | None) -> Plain | None:
    return plain and (lambda values: {key: plain(value) for key, value in values.items()})


def _fields(changed: Mapping[str, Plain]) -> Plain:
    def plain(record: Mapping[str, Any]) -> dict[str, Any]:
        return {**record, **{name: change(record[name]) for name, change in changed.items()}}

    return plain
