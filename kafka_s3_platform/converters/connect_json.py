"""Values as Connect's JSON has them, made into plain objects in Avro's physical form. What does not fit is refused."""

import base64
import binascii
from collections.abc import Callable, Mapping
from decimal import Context, Decimal, DecimalException
from typing import Any

import msgspec

from kafka_s3_platform.converters.base import BadRecordError
from kafka_s3_platform.converters.connect_schema import DECIMAL, ConnectType, Slot, has_text_keys
from kafka_s3_platform.model.connect import MISSING
from kafka_s3_platform.model.limits import MAX_DECIMAL_DIGITS, MAX_RECORD_VALUES, NAME_BYTES

Read = Callable[[Any], Any]
INT_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_json = msgspec.json.Encoder(decimal_format="number")
_MISFIT = 4
"""What a type of a union that does not fit costs, in values."""

_EXACT = Context(prec=MAX_DECIMAL_DIGITS)


class _SpentError(Exception):
    """A record comes to too many values. Unlike what does not fit, no other type of a union changes that."""


class Readers:
    """Makes a reader of the values of each Connect type.

    What a record comes to is counted: a schema may add a thousand absent fields to an object of two bytes, and of types
    inside each other that do not fit, each is tried with each.
    """

    def __init__(self) -> None:
        self._structs: dict[int, Read] = {}
        self._left = MAX_RECORD_VALUES

    def record(self, slot: Slot) -> Callable[[Any, int], Any]:
        """Reads what is a record's whole value, of so many bytes."""
        read = self.slot(slot, "")

        def value(given: Any, size: int) -> Any:
            most = self._left = max(MAX_RECORD_VALUES, 2 * size)
            try:
                return read(given)
            except _SpentError:
                raise BadRecordError(
                    f"comes to more than {most:,} values by its schema: fields and defaults that it does not hold, or "
                    f"types of which none fits"
                ) from None

        return value

    def _spend(self, values: int) -> None:
        self._left -= values
        if self._left < 0:
            raise _SpentError

    def slot(self, slot: Slot, where: str) -> Read:
        """Reads what stands in a slot; `where` names it in errors. A value that is absent is given as None."""
        read, missing = self._type(slot.type, where), _instead(slot)
        added = len(str(missing)) // NAME_BYTES

        def value(given: Any) -> Any:
            if given is not None:
                return read(given)
            if missing is MISSING:
                raise BadRecordError(f"lacks {where}, which is required")
            if added:
                self._spend(added)
            return missing

        return value

    def _type(self, kind: ConnectType, where: str) -> Read:
        if kind.kind == "struct":
            return self._struct(kind, where)
        if kind.kind == "array" and kind.values:
            return _array(self.slot(kind.values, f"an item of {where}"), where)
        if kind.kind == "map" and kind.key and kind.values:
            return self._map(kind, self.slot(kind.key, f"a key of {where}"), where)
        if kind.kind == "union":
            return self._union(kind, where)
        return scalar(kind, where)

    def _struct(self, kind: ConnectType, where: str) -> Read:
        if id(kind) in self._structs:
            return self._structs[id(kind)]
        fields: list[tuple[str, Read]] = []
        values = sum(1 + len(slot.name) // NAME_BYTES for slot in kind.fields)

        def read(given: Any) -> Any:
            if not isinstance(given, Mapping):
                raise _unfit(where, given, "an object")
            self._spend(values)
            return {name: value(given.get(name)) for name, value in fields}

        self._structs[id(kind)] = read
        fields += [(slot.name, self.slot(slot, f"{where}.{slot.name}" if where else slot.name)) for slot in kind.fields]
        return read

    def _map(self, kind: ConnectType, key: Read, where: str) -> Read:
        assert kind.values is not None  # noqa: S101 - a map has values
        value = self.slot(kind.values, f"a value of {where}")

        def read(given: Any) -> Any:
            if has_text_keys(kind) and isinstance(given, Mapping):
                return {name: value(each) for name, each in given.items()}
            if has_text_keys(kind) or not isinstance(given, list):
                raise _unfit(where, given, "an object" if has_text_keys(kind) else "an array of pairs")
            return [{"key": key(k), "value": value(v)} for k, v in (_pair(each, where) for each in given)]

        return read

    def _union(self, kind: ConnectType, where: str) -> Read:
        """The first type that fits; of structs the one with most fields there (Confluent's JsonSchemaData)."""
        simple = [self.slot(b, where) for b in kind.branches if b.type.kind != "struct"]
        structs = [
            (self.slot(b, where), {f.name for f in b.type.fields}) for b in kind.branches if b.type.kind == "struct"
        ]

        def read(given: Any) -> Any:
            ranked = sorted(structs, key=lambda s: -len(s[1] & given.keys())) if isinstance(given, Mapping) else []
            for each in [*simple, *(reader for reader, _ in ranked)]:
                try:
                    return each(given)
                except BadRecordError:
                    self._spend(_MISFIT)
            raise _unfit(where, given, "of any of its types")

        return read


def scalar(kind: ConnectType, where: str) -> Read:
    """Reads numbers, strings and bytes."""
    if kind.name == DECIMAL:
        return lambda given: _decimal(given, kind.scale, where)
    if kind.kind in INT_BITS:
        return _integer(INT_BITS[kind.kind], where)
    others: dict[str, Read] = {
        "float": lambda given: _float(given, where),
        "double": lambda given: _float(given, where),
        "boolean": lambda given: _checked(given, bool, where, "true or false"),
        "string": lambda given: _checked(given, str, where, "a string"),
        "bytes": lambda given: _base64(given, where),
        "json": lambda given: _json.encode(given).decode(),
    }
    return others[kind.kind]


def unscaled(number: Decimal, scale: int, where: str) -> bytes:
    """A decimal as Avro has it: the unscaled number in two's complement, big endian, as short as can be."""
    try:
        exact = number.scaleb(scale, _EXACT)
        if exact.adjusted() >= MAX_DECIMAL_DIGITS:
            raise BadRecordError(f"has in {where} a decimal of more than {MAX_DECIMAL_DIGITS:,} digits")
        whole = int(exact)
    except (DecimalException, ValueError, OverflowError) as err:
        raise BadRecordError(f"has in {where} {number}, which is no decimal of scale {scale}") from err
    if whole != exact:
        raise BadRecordError(f"has in {where} {number}, which has more than {scale} digits after the point")
    return whole.to_bytes(((whole if whole >= 0 else ~whole).bit_length() // 8) + 1, "big", signed=True)


def _instead(slot: Slot) -> Any:
    """What a null is taken for: the default, or null; MISSING if it is refused."""
    if slot.default is not MISSING:
        return slot.default
    return None if slot.optional else MISSING


def _array(item: Read, where: str) -> Read:
    def read(given: Any) -> Any:
        if not isinstance(given, list):
            raise _unfit(where, given, "an array")
        return [item(each) for each in given]

    return read


def _pair(given: Any, where: str) -> tuple[Any, Any]:
    """An entry of a map whose keys are no strings: [key, value], or {"key": ..., "value": ...}."""
    if isinstance(given, Mapping) and given.keys() == {"key", "value"}:
        return given["key"], given["value"]
    if isinstance(given, list) and len(given) == 2:
        return given[0], given[1]
    raise _unfit(where, given, "a pair of key and value")


def _integer(bits: int, where: str) -> Read:
    least, most = -(1 << bits - 1), (1 << bits - 1) - 1

    def read(given: Any) -> Any:
        if isinstance(given, (float, Decimal)) and given == given // 1:
            given = int(given)
        if type(given) is not int or not least <= given <= most:
            raise _unfit(where, given, f"an integer of {bits} bits")
        return given

    return read


def _float(given: Any, where: str) -> float:
    if type(given) not in (int, float, Decimal):
        raise _unfit(where, given, "a number")
    return float(given)


def _checked(given: Any, kind: type, where: str, what: str) -> Any:
    if type(given) is not kind:
        raise _unfit(where, given, what)
    return given


def _base64(given: Any, where: str) -> bytes:
    try:
        return base64.b64decode(_checked(given, str, where, "bytes in base64"), validate=True)
    except binascii.Error as err:
        raise _unfit(where, given, "bytes in base64") from err


def _decimal(given: Any, scale: int, where: str) -> bytes:
    """From a number, or from the base64 of what `unscaled` gives (`decimal.format`)."""
    if isinstance(given, str):
        return _base64(given, where)
    if type(given) not in (int, float, Decimal):
        raise _unfit(where, given, "a decimal")
    return unscaled(Decimal(given), scale, where)


def _unfit(where: str, given: Any, what: str) -> BadRecordError:
    return BadRecordError(f"does not fit its schema: {where or 'it'} is not {what} but {str(given)[:100]!r}")
