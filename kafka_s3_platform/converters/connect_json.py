"""Reads values of Connect's JSON as plain objects in Avro's physical form. Refuses values that misfit their type."""

import base64
import threading
from collections.abc import Callable, Mapping
from decimal import Context, Decimal, DecimalException
from typing import Any

import msgspec

from kafka_s3_platform.avro.connect_schema import DECIMAL, OTHER_PROPERTIES, ConnectType, Slot, has_text_keys
from kafka_s3_platform.avro.values import encode_unscaled, shorten_float
from kafka_s3_platform.converters.base import BadRecordError
from kafka_s3_platform.java.numbers import round_to_float32
from kafka_s3_platform.model.connect import MISSING
from kafka_s3_platform.model.limits import MAX_DECIMAL_DIGITS, MAX_RECORD_VALUES, NAME_BYTES

ReadConnectJson = Callable[[Any], Any]
INT_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_json = msgspec.json.Encoder(decimal_format="number")
_MISFIT = 4
"""The cost of trying a type of a union that does not fit, counted as this number of values."""

_EXACT_INTS = 1 << 53
"""Each whole number below it is a double, and written as one."""

_EXACT = Context(prec=MAX_DECIMAL_DIGITS)

ADDED = "it is written as its default, or as null"
"""What is told of a field that a schema lists and a record lacks."""


class _SpentError(Exception):
    """A record has too many values. Unlike after a misfit, no other type of a union is tried."""


class Readers(threading.local):
    """Makes a reader for the values of each Connect type.

    Readers count the values of each record. A schema may add a thousand absent fields to an object of two bytes, and
    with nested unions every combination of types may be tried.

    An absent field becomes the default of its slot, or null. A null stays null, and is refused if its slot is not
    optional. With `replaces_nulls` it becomes the default too.

    `left_out` names the first property of the last record that its schema does not list, so its value lacks it.
    `added` names the first field that its schema lists and the record does not have, so its value has more. None if
    there is none. What is counted and told is that of the thread: a restore reads back in another one.
    """

    def __init__(self, *, replaces_nulls: bool = False) -> None:
        self._replaces_nulls = replaces_nulls
        self._structs: dict[ConnectType, ReadConnectJson] = {}
        self._left = MAX_RECORD_VALUES
        self.left_out: str | None = None
        self.added: str | None = None

    def record(self, slot: Slot) -> Callable[[Any, int], Any]:
        """Return a function that reads the whole value of a record, given the value and its number of bytes."""
        read = self.slot(slot, "")

        def value(given: Any, size: int) -> Any:
            # A large record may have two values for each of its bytes.
            most = self._left = max(MAX_RECORD_VALUES, 2 * size)
            self.left_out = self.added = None
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

    def slot(self, slot: Slot, where: str) -> ReadConnectJson:
        """Return a function that reads values of a slot, MISSING for an absent one. `where` names it in errors."""
        read = self._type(slot.type, where)
        null = None if slot.optional else MISSING
        absent = null if slot.default is MISSING else slot.default
        if self._replaces_nulls:
            null = absent
        # A long default counts as several values.
        size = len(str(absent)) // NAME_BYTES

        def value(given: Any) -> Any:
            if given is not None and given is not MISSING:
                return read(given)
            instead = null if given is None else absent
            if instead is MISSING:
                raise BadRecordError(
                    f"{'has null for' if given is None else 'lacks'} {where or 'it'}, which is required"
                )
            if given is MISSING and slot.default is not None:
                self.added = self.added or where
            if size and instead is not None:
                self._spend(size)
            return instead

        return value

    def _type(self, kind: ConnectType, where: str) -> ReadConnectJson:
        if kind.kind == "struct":
            return self._struct(kind, where)
        if kind.kind == "array" and kind.values:
            return _compile_array(self.slot(kind.values, f"an item of {where}"), where)
        if kind.kind == "map" and kind.key and kind.values:
            return self._map(kind, self.slot(kind.key, f"a key of {where}"), where)
        if kind.kind == "union":
            return self._union(kind, where)
        return compile_scalar(kind, where)

    def _struct(self, kind: ConnectType, where: str) -> ReadConnectJson:
        if kind in self._structs:
            return self._structs[kind]
        fields: list[tuple[str, ReadConnectJson]] = []
        # A long name counts as several values: it is written with each record.
        values = sum(1 + len(slot.name) // NAME_BYTES for slot in kind.fields)
        listed = {slot.name for slot in kind.fields}
        keeps_others = OTHER_PROPERTIES in listed

        def read(given: Any) -> Any:
            if not isinstance(given, Mapping):
                raise _make_misfit_error(where, given, "an object")
            self._spend(values)
            if keeps_others and OTHER_PROPERTIES in given:
                raise BadRecordError(f"has a property {OTHER_PROPERTIES}, whose name is that of the field for others")
            if not given.keys() <= listed:
                others = [name for name in given if name not in listed]
                if kind.is_closed:
                    raise _make_unlisted_error(where, others[0])
                if keeps_others:
                    given = {**given, OTHER_PROPERTIES: {name: given[name] for name in others}}
                else:
                    self.left_out = self.left_out or f"{others[0][:100]!r}{where and f' of {where}'}"
            return {name: value(given.get(name, MISSING)) for name, value in fields}

        # Known before its fields are compiled: a struct may contain itself.
        self._structs[kind] = read
        fields += [(slot.name, self.slot(slot, f"{where}.{slot.name}" if where else slot.name)) for slot in kind.fields]
        return read

    def _map(self, kind: ConnectType, key: ReadConnectJson, where: str) -> ReadConnectJson:
        assert kind.values is not None  # noqa: S101 - a map has values
        value = self.slot(kind.values, f"a value of {where}")

        def read(given: Any) -> Any:
            if kind.is_closed and isinstance(given, Mapping) and given:
                raise _make_unlisted_error(where, next(iter(given)))
            if has_text_keys(kind) and isinstance(given, Mapping):
                return {name: value(each) for name, each in given.items()}
            if has_text_keys(kind) or not isinstance(given, list):
                raise _make_misfit_error(where, given, "an object" if has_text_keys(kind) else "an array of pairs")
            pairs = [_read_pair(each, where) for each in given]
            return [{"key": key(k), "value": value(v)} for k, v in pairs]

        return read

    def _union(self, kind: ConnectType, where: str) -> ReadConnectJson:
        """Return a function that reads the first type that fits.

        As in Confluent's JsonSchemaData, structs come last, and first among them the one with most fields present.
        """
        simple: list[tuple[ConnectType, ReadConnectJson]] = []
        structs: list[tuple[ConnectType, ReadConnectJson]] = []
        for branch in kind.branches:
            (structs if branch.type.kind == "struct" else simple).append((branch.type, self.slot(branch, where)))
        # A text is a text first: of bytes and decimals it might be the base64.
        simple.sort(key=lambda each: each[0].kind != "string")

        def read(given: Any) -> Any:
            ranked = structs if isinstance(given, Mapping) else []
            if len(ranked) > 1:
                ranked = sorted(ranked, key=lambda s: -sum(field.name in given for field in s[0].fields))
            before = self.left_out, self.added
            for branch, each in [*simple, *ranked]:
                try:
                    value = each(given)
                except BadRecordError:
                    self.left_out, self.added = before
                    self._spend(_MISFIT)
                    continue
                if branch.branch_name is None:
                    raise BadRecordError(f"has as {where} an object of one of several types, which is not supported")
                return branch.branch_name, value
            raise _make_misfit_error(where, given, "of any of its types")

        return read


def compile_scalar(kind: ConnectType, where: str) -> ReadConnectJson:
    """Return a function that reads numbers, strings or bytes."""
    if kind.name == DECIMAL:
        return lambda given: _read_decimal(given, kind.scale, where)
    if kind.kind in INT_BITS:
        return _compile_integer(INT_BITS[kind.kind], where)
    others: dict[str, ReadConnectJson] = {
        "float": _compile_float(where, 32),
        "double": _compile_float(where, 64),
        "boolean": lambda given: _check_type(given, bool, where, "true or false"),
        "string": lambda given: _check_type(given, str, where, "a string"),
        "bytes": lambda given: _decode_base64(given, where),
        "json": lambda given: _json.encode(given).decode(),
    }
    return others[kind.kind]


def encode_exact_decimal(number: Decimal, scale: int, where: str) -> bytes:
    """Encode a decimal as Avro does: the unscaled number in two's complement, big-endian, as short as possible."""
    try:
        exact = number.scaleb(scale, _EXACT)
        if exact.adjusted() >= MAX_DECIMAL_DIGITS:
            raise BadRecordError(f"has in {where} a decimal of more than {MAX_DECIMAL_DIGITS:,} digits")
        whole = int(exact)
    except (DecimalException, ValueError, OverflowError) as err:
        raise BadRecordError(f"has in {where} {number}, which is no decimal of scale {scale}") from err
    if whole != exact:
        raise BadRecordError(f"has in {where} {number}, which has more than {scale} digits after the point")
    return encode_unscaled(whole)


def _compile_array(item: ReadConnectJson, where: str) -> ReadConnectJson:
    def read(given: Any) -> Any:
        if not isinstance(given, list):
            raise _make_misfit_error(where, given, "an array")
        return [item(each) for each in given]

    return read


def _read_pair(given: Any, where: str) -> tuple[Any, Any]:
    """Read an entry of a map whose keys are not strings: [key, value], or {"key": ..., "value": ...}."""
    if isinstance(given, Mapping) and given.keys() == {"key", "value"}:
        return given["key"], given["value"]
    if isinstance(given, list) and len(given) == 2:
        return given[0], given[1]
    raise _make_misfit_error(where, given, "a pair of key and value")


def _compile_integer(bits: int, where: str) -> ReadConnectJson:
    least = -(1 << bits - 1)
    most = (1 << bits - 1) - 1

    def read(given: Any) -> Any:
        # 1.0 is an integer too, as in JSON Schema. The range comes first: some decimals have a million digits.
        if isinstance(given, float | Decimal) and least <= given <= most and given == int(given):
            given = int(given)
        if type(given) is not int or not least <= given <= most:
            raise _make_misfit_error(where, given, f"an integer of {bits} bits")
        return given

    return read


def _compile_float(where: str, bits: int) -> ReadConnectJson:
    """Return a function that reads a number as the float that is written as this number. It refuses any other.

    Writers write the shortest number, or one with more digits, up to those that tell the float from all others.
    A float is given where it is written so (`decode_json`).
    """
    most, fit, shorten = (17, float, float) if bits == 64 else (9, round_to_float32, shorten_float)

    def read(given: Any) -> float:
        if bits == 64 and (type(given) is float or (type(given) is int and -_EXACT_INTS < given < _EXACT_INTS)):
            return float(given)
        if type(given) not in (int, float, Decimal):
            raise _make_misfit_error(where, given, "a number")
        exact = _read_exactly(given)
        number = fit(float(exact))
        digits = min(len(exact.as_tuple().digits), most)
        if exact not in map(Decimal, (repr(shorten(number)), f"{number:.{digits - 1}e}")):
            raise _make_misfit_error(where, given, f"a number that a float of {bits} bits is written as")
        return number

    return read


def _check_type(given: Any, kind: type, where: str, what: str) -> Any:
    if type(given) is not kind:
        raise _make_misfit_error(where, given, what)
    return given


def _decode_base64(given: Any, where: str) -> bytes:
    try:
        decoded = base64.b64decode(_check_type(given, str, where, "bytes in base64"), validate=True)
    except ValueError as err:
        raise _make_misfit_error(where, given, "bytes in base64") from err
    # Not all texts that can be decoded are what bytes are written as.
    if base64.b64encode(decoded) != given.encode():
        raise _make_misfit_error(where, given, "bytes in base64")
    return decoded


def _read_decimal(given: Any, scale: int, where: str) -> bytes:
    """Read a decimal from a number, or from its bytes in base64 (`decimal.format`)."""
    if isinstance(given, str):
        return _decode_base64(given, where)
    if type(given) not in (int, float, Decimal):
        raise _make_misfit_error(where, given, "a decimal")
    return encode_exact_decimal(_read_exactly(given), scale, where)


def _read_exactly(number: Any) -> Decimal:
    return Decimal(repr(number) if type(number) is float else number)


def _make_unlisted_error(where: str, name: str) -> BadRecordError:
    what = f"{where or 'it'} has {name[:100]!r}, and may have no property that the schema does not list"
    return BadRecordError(f"does not fit its schema: {what}")


def _make_misfit_error(where: str, given: Any, what: str) -> BadRecordError:
    return BadRecordError(f"does not fit its schema: {where or 'it'} is not {what} but {str(given)[:100]!r}")
