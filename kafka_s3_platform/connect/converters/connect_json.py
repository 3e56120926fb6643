"""Reads values of Connect's JSON as plain objects in Avro's physical form. Refuses those that do not fit their schema.

Each Connect type is compiled to a reader of its values. In errors, `place` names the place of a value. A *slot* is one
use of a type, which may be optional or have a default.
"""

import base64
import threading
from collections.abc import Callable, Mapping
from decimal import Context, Decimal, DecimalException
from typing import Any

import msgspec

from kafka_s3_platform.connect.avro.connect_schema import DECIMAL, OTHER_PROPERTIES, ConnectType, Slot, has_text_keys
from kafka_s3_platform.connect.avro.values import encode_unscaled, shorten_float
from kafka_s3_platform.connect.converters.base import BadRecordError
from kafka_s3_platform.connect.java.numbers import round_to_float32
from kafka_s3_platform.core.model.connect import MISSING
from kafka_s3_platform.core.model.limits import MAX_DECIMAL_DIGITS, MAX_RECORD_VALUES, NAME_BYTES

ReadConnectJson = Callable[[Any], Any]
INT_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_json = msgspec.json.Encoder(decimal_format="number")
_MISFIT = 4
"""The cost of trying a type of a union that does not fit, as a number of values."""

_EXACT_INTS = 1 << 53
"""Each whole number below it is exactly a double, and is written as one."""

_EXACT = Context(prec=MAX_DECIMAL_DIGITS)

ADDED = "it is written as its default, or as null"
"""The end of a note about a field that the schema lists and a record lacks."""


class _SpentError(Exception):
    """A record has too many values. Unlike after a misfit, no other type of a union is tried."""


class Readers(threading.local):
    """Makes a reader for the values of each Connect type.

    Readers count the values of each record, because a schema may add a thousand absent fields to an object of two
    bytes, and with nested unions every combination of types may be tried.

    An absent field becomes the default of its slot, or null. A null stays null, and is refused if its slot is not
    optional. With `replaces_nulls`, a null becomes the default too.

    `left_out` names the first property of the last record that its schema does not list, so its value lacks it. `added`
    names the first field of the schema that the record lacks, so it was added to the value. Each is None if there is no
    such property or field. Each thread has its own counts and names, because a restore reads back in another thread.
    """

    def __init__(self, *, replaces_nulls: bool = False) -> None:
        self._replaces_nulls = replaces_nulls
        self._structs: dict[ConnectType, ReadConnectJson] = {}
        self._left = MAX_RECORD_VALUES
        self.left_out: str | None = None
        self.added: str | None = None

    def compile_record(self, slot: Slot) -> Callable[[Any, int], Any]:
        """Compile a reader of a record's whole value. The reader takes the value and its number of bytes."""
        read = self.compile_slot(slot, "")

        def value(json_value: Any, size: int) -> Any:
            # A large record may have two values for each of its bytes.
            max_values = self._left = max(MAX_RECORD_VALUES, 2 * size)
            self.left_out = self.added = None
            try:
                return read(json_value)
            except _SpentError:
                raise BadRecordError(
                    f"comes to more than {max_values:,} values by its schema: fields and defaults that it does not "
                    "hold, or types that do not fit"
                ) from None

        return value

    def _spend(self, values: int) -> None:
        """Count further values of the record. Raise _SpentError if there are too many."""
        self._left -= values
        if self._left < 0:
            raise _SpentError

    def compile_slot(self, slot: Slot, place: str) -> ReadConnectJson:
        """Compile a reader of the values of a slot. An absent value is given to the reader as MISSING.

        `place` names the slot in errors. It is empty for the whole value.
        """
        read = self._compile_type(slot.type, place)
        null = None if slot.optional else MISSING
        absent = null if slot.default is MISSING else slot.default
        if self._replaces_nulls:
            null = absent
        # A long default counts as several values.
        size = len(str(absent)) // NAME_BYTES

        def value(json_value: Any) -> Any:
            if json_value is not None and json_value is not MISSING:
                return read(json_value)
            replacement = null if json_value is None else absent
            if replacement is MISSING:
                raise BadRecordError(
                    f"{'has null for' if json_value is None else 'lacks'} {place or 'it'}, which is required"
                )
            if json_value is MISSING and slot.default is not None:
                self.added = self.added or place
            if size and replacement is not None:
                self._spend(size)
            return replacement

        return value

    def _compile_type(self, kind: ConnectType, place: str) -> ReadConnectJson:
        """Compile a reader of JSON values of this type. `place` names the field in errors."""
        if kind.kind == "struct":
            return self._compile_struct(kind, place)
        if kind.kind == "array" and kind.values:
            return _compile_array(self.compile_slot(kind.values, f"an item of {place}"), place)
        if kind.kind == "map" and kind.key and kind.values:
            return self._compile_map(kind, self.compile_slot(kind.key, f"a key of {place}"), place)
        if kind.kind == "union":
            return self._compile_union(kind, place)
        return compile_scalar(kind, place)

    def _compile_struct(self, kind: ConnectType, place: str) -> ReadConnectJson:
        """Compile a reader of objects.

        Properties not listed in the schema are left out, kept apart, or refused.
        """
        if kind in self._structs:
            return self._structs[kind]
        fields: list[tuple[str, ReadConnectJson]] = []
        # A long name counts as several values: it is written with each record.
        values = sum(1 + len(slot.name) // NAME_BYTES for slot in kind.fields)
        names = {slot.name for slot in kind.fields}
        keeps_others = OTHER_PROPERTIES in names

        def read(json_value: Any) -> Any:
            if not isinstance(json_value, Mapping):
                raise _make_misfit_error(place, json_value, "an object")
            self._spend(values)
            if keeps_others and OTHER_PROPERTIES in json_value:
                raise BadRecordError(
                    f"has a property {OTHER_PROPERTIES}: that name is taken, by the field for other properties"
                )
            if not json_value.keys() <= names:
                others = [name for name in json_value if name not in names]
                if kind.is_closed:
                    raise _make_unlisted_error(place, others[0])
                if keeps_others:
                    json_value = {**json_value, OTHER_PROPERTIES: {name: json_value[name] for name in others}}
                else:
                    self.left_out = self.left_out or f"{others[0][:100]!r}{place and f' of {place}'}"
            return {name: value(json_value.get(name, MISSING)) for name, value in fields}

        # Stored before its fields are compiled, because a struct may contain itself.
        self._structs[kind] = read
        fields += [
            (slot.name, self.compile_slot(slot, f"{place}.{slot.name}" if place else slot.name)) for slot in kind.fields
        ]
        return read

    def _compile_map(self, kind: ConnectType, key: ReadConnectJson, place: str) -> ReadConnectJson:
        """Compile a reader of an object, or of an array of pairs if the keys are not strings."""
        assert kind.values is not None  # noqa: S101 - a map has values
        value = self.compile_slot(kind.values, f"a value of {place}")

        def read(json_value: Any) -> Any:
            if kind.is_closed and isinstance(json_value, Mapping) and json_value:
                raise _make_unlisted_error(place, next(iter(json_value)))
            if has_text_keys(kind) and isinstance(json_value, Mapping):
                return {name: value(inner) for name, inner in json_value.items()}
            if has_text_keys(kind) or not isinstance(json_value, list):
                raise _make_misfit_error(place, json_value, "an object" if has_text_keys(kind) else "an array of pairs")
            pairs = [_read_pair(pair, place) for pair in json_value]
            return [{"key": key(k), "value": value(v)} for k, v in pairs]

        return read

    def _compile_union(self, kind: ConnectType, place: str) -> ReadConnectJson:
        """Return a reader that tries each type of the union in turn, and returns the branch's name with the value.

        As in Confluent's JsonSchemaData, structs come last, and among them the struct with the most fields present
        comes first. Notes from a type that did not fit are dropped.
        """
        simple_types: list[tuple[ConnectType, ReadConnectJson]] = []
        structs: list[tuple[ConnectType, ReadConnectJson]] = []
        for branch in kind.branches:
            (structs if branch.type.kind == "struct" else simple_types).append(
                (branch.type, self.compile_slot(branch, place))
            )
        # Strings come first, because a text might also be the base64 of bytes or a decimal.
        simple_types.sort(key=lambda pair: pair[0].kind != "string")

        def read(json_value: Any) -> Any:
            ranked = structs if isinstance(json_value, Mapping) else []
            if len(ranked) > 1:
                ranked = sorted(ranked, key=lambda s: -sum(field.name in json_value for field in s[0].fields))
            earlier_notes = self.left_out, self.added
            for branch, read_branch in [*simple_types, *ranked]:
                try:
                    value = read_branch(json_value)
                except BadRecordError:
                    self.left_out, self.added = earlier_notes
                    self._spend(_MISFIT)
                    continue
                if branch.branch_name is None:
                    raise BadRecordError(f"has as {place} an object of one of several types, which is not supported")
                return branch.branch_name, value
            raise _make_misfit_error(place, json_value, "of any of its types")

        return read


def compile_scalar(kind: ConnectType, place: str) -> ReadConnectJson:
    """Compile a reader of numbers, strings or bytes."""
    if kind.name == DECIMAL:
        return lambda json_value: _read_decimal(json_value, kind.scale, place)
    if kind.kind in INT_BITS:
        return _compile_integer(INT_BITS[kind.kind], place)
    compilers: dict[str, ReadConnectJson] = {
        "float": _compile_float(place, 32),
        "double": _compile_float(place, 64),
        "boolean": lambda json_value: _check_type(json_value, bool, place, "true or false"),
        "string": lambda json_value: _check_type(json_value, str, place, "a string"),
        "bytes": lambda json_value: _decode_base64(json_value, place),
        "json": lambda json_value: _json.encode(json_value).decode(),
    }
    return compilers[kind.kind]


def encode_exact_decimal(number: Decimal, scale: int, place: str) -> bytes:
    """Encode a decimal as Avro does: the unscaled number in two's complement, big-endian, as short as possible.

    Raise BadRecordError if it has more digits after the point than `scale`, or too many digits.
    """
    try:
        exact = number.scaleb(scale, _EXACT)
        if exact.adjusted() >= MAX_DECIMAL_DIGITS:
            raise BadRecordError(f"has in {place} a decimal of more than {MAX_DECIMAL_DIGITS:,} digits")
        unscaled = int(exact)
    except (DecimalException, ValueError, OverflowError) as err:
        raise BadRecordError(f"has in {place} {number}, which is no decimal of scale {scale}") from err
    if unscaled != exact:
        raise BadRecordError(f"has in {place} {number}, which has more than {scale} digits after the point")
    return encode_unscaled(unscaled)


def _compile_array(item: ReadConnectJson, place: str) -> ReadConnectJson:
    """Compile a reader of arrays, from the reader of their items."""

    def read(json_value: Any) -> Any:
        if not isinstance(json_value, list):
            raise _make_misfit_error(place, json_value, "an array")
        return [item(element) for element in json_value]

    return read


def _read_pair(json_value: Any, place: str) -> tuple[Any, Any]:
    """Read an entry of a map without string keys: [key, value], or {"key": ..., "value": ...}."""
    if isinstance(json_value, Mapping) and json_value.keys() == {"key", "value"}:
        return json_value["key"], json_value["value"]
    if isinstance(json_value, list) and len(json_value) == 2:
        return json_value[0], json_value[1]
    raise _make_misfit_error(place, json_value, "a pair of key and value")


def _compile_integer(bits: int, place: str) -> ReadConnectJson:
    """Compile a reader of integers with this number of bits."""
    lowest = -(1 << bits - 1)
    highest = (1 << bits - 1) - 1

    def read(json_value: Any) -> Any:
        # 1.0 is an integer too, as in JSON Schema. The range comes first: some decimals have a million digits.
        if (
            isinstance(json_value, float | Decimal)
            and lowest <= json_value <= highest
            and json_value == int(json_value)
        ):
            json_value = int(json_value)
        if type(json_value) is not int or not lowest <= json_value <= highest:
            raise _make_misfit_error(place, json_value, f"an integer of {bits} bits")
        return json_value

    return read


def _compile_float(place: str, bits: int) -> ReadConnectJson:
    """Compile a reader of floats. It refuses a number that no float is written as.

    Writers write the shortest number, or more digits, up to as many as distinguish the float from all others.
    `decode_json` returns a float if its text is the shortest one.
    """
    max_digits, fit, shorten = (17, float, float) if bits == 64 else (9, round_to_float32, shorten_float)

    def read(json_value: Any) -> float:
        kind = type(json_value)
        if bits == 64 and (kind is float or (kind is int and -_EXACT_INTS < json_value < _EXACT_INTS)):
            return float(json_value)
        if kind not in (int, float, Decimal):
            raise _make_misfit_error(place, json_value, "a number")
        exact = _read_exactly(json_value)
        number = fit(float(exact))
        digits = min(len(exact.as_tuple().digits), max_digits)
        if exact not in map(Decimal, (repr(shorten(number)), f"{number:.{digits - 1}e}")):
            raise _make_misfit_error(place, json_value, f"a number that a float of {bits} bits is written as")
        return number

    return read


def _check_type(json_value: Any, kind: type, place: str, expected: str) -> Any:
    """Return the value if it is of this Python type. Raise BadRecordError if not."""
    if type(json_value) is not kind:
        raise _make_misfit_error(place, json_value, expected)
    return json_value


def _decode_base64(json_value: Any, place: str) -> bytes:
    """Decode bytes from base64. Only the one text that encoding them gives is accepted."""
    try:
        decoded = base64.b64decode(_check_type(json_value, str, place, "bytes in base64"), validate=True)
    except ValueError as err:
        raise _make_misfit_error(place, json_value, "bytes in base64") from err
    # Some texts can be decoded although encoding never gives them.
    if base64.b64encode(decoded) != json_value.encode():
        raise _make_misfit_error(place, json_value, "bytes in base64")
    return decoded


def _read_decimal(json_value: Any, scale: int, place: str) -> bytes:
    """Read a decimal from a number, or from its bytes in base64 (`decimal.format`)."""
    if isinstance(json_value, str):
        return _decode_base64(json_value, place)
    if type(json_value) not in (int, float, Decimal):
        raise _make_misfit_error(place, json_value, "a decimal")
    return encode_exact_decimal(_read_exactly(json_value), scale, place)


def _read_exactly(number: Any) -> Decimal:
    """Return a number with exactly the digits it has in its JSON."""
    return Decimal(repr(number) if type(number) is float else number)


def _make_unlisted_error(place: str, name: str) -> BadRecordError:
    """Return the error for the property `name` of an object whose schema allows only the properties it lists."""
    problem = f"{place or 'it'} has {name[:100]!r}, and may have no property that the schema does not list"
    return BadRecordError(f"does not fit its schema: {problem}")


def _make_misfit_error(place: str, json_value: Any, expected: str) -> BadRecordError:
    """Return the error for a value at `place` that is not what the schema expects."""
    return BadRecordError(f"does not fit its schema: {place or 'it'} is not {expected} but {str(json_value)[:100]!r}")
