"""Java's numbers and their texts, for what Connect does with them.

Source of the rules: the Java Language Specification (narrowing conversions) and the Java SE documentation of
`Integer.parseInt`, `Double.parseDouble`, `Double.toString` (as of JDK 19) and `BigDecimal`.
"""

import base64
import json
import math
import re
from ctypes import c_float
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np

from kafka_s3_platform.config.simple_date_format import DAY_MS, SimpleDateFormat
from kafka_s3_platform.transforms.avro import DataError

INTEGER_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}

_DATE = SimpleDateFormat("yyyy-MM-dd")
_TIME = SimpleDateFormat("HH:mm:ss.SSS'Z'")
_TIMESTAMP = SimpleDateFormat("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'")
_FLOAT = re.compile(r"([+-]?(?:NaN|Infinity|(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?))[fFdD]?", re.ASCII)


def wrapped(value: int, bits: int) -> int:
    """The low bits of a whole number, as Java narrows it."""
    half = 1 << (bits - 1)
    return ((value + half) & ((1 << bits) - 1)) - half


def truncated(value: float, bits: int) -> int:
    """A float as a whole number: towards zero, as far as int32 (int64 for 64 bits) goes, then narrowed."""
    if math.isnan(value):
        return 0
    limit = 1 << (max(bits, 32) - 1)
    whole = (limit if value > 0 else -limit) if math.isinf(value) else int(value)
    return wrapped(min(max(whole, -limit), limit - 1), bits)


def float32(value: float) -> float:
    """The nearest float of 32 bits."""
    return float(c_float(value).value)


def parsed_int(text: str, bits: int) -> int:
    """DataError: no whole number, or out of range."""
    half = 1 << (bits - 1)
    if not re.fullmatch(r"[+-]?\d+", text) or not -half <= int(text) < half:
        raise DataError(f"Value ({text}) was out of range for requested data type")
    return int(text)


def parsed_float(text: str) -> float:
    """DataError: no number."""
    found = _FLOAT.fullmatch(text.strip())
    if found is None:
        raise DataError(f"Value ({text}) was out of range for requested data type")
    return float(found[1])


def parsed_decimal(text: str) -> Decimal:
    """DataError: no number."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite():
        raise DataError(f"Unable to convert {text} (class java.lang.String) to a number")
    return number


def decoded_decimal(unscaled: bytes, scale: int) -> Decimal:
    """Avro's decimal: a whole number of two's complement, and how many of its digits are behind the point."""
    return Decimal(f"{int.from_bytes(unscaled, 'big', signed=True)}E{-scale}")


def encoded_decimal(number: Decimal, scale: int, size: int | None) -> bytes:
    """Avro's decimal. `size`: that of a fixed. DataError: more digits behind the point than `scale`, or too large."""
    sign, digits, exponent = number.as_tuple()
    shift = int(exponent) + scale
    unscaled = int("".join(map(str, digits))) * 10 ** max(shift, 0)
    if shift < 0 and unscaled % 10**-shift:
        raise DataError(f"{number} has more than {scale} digits behind the point")
    whole: int = unscaled // 10 ** max(-shift, 0) * (-1 if sign else 1)
    smallest = (whole + (whole < 0)).bit_length() // 8 + 1
    try:
        return whole.to_bytes(size or smallest, "big", signed=True)
    except OverflowError as error:
        raise DataError(f"{number} is too large for its type") from error


def double_text(value: float, *, single: bool = False) -> str:
    """`Double.toString`, or `Float.toString` of a float of 32 bits."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    number = Decimal(str(np.float32(value)) if single else repr(value))
    sign, digits, _ = number.as_tuple()
    minus = "-" if sign else ""
    if not number or 1e-3 <= abs(value) < 1e7:
        text = f"{abs(number):f}"
        return minus + (text if "." in text else f"{text}.0")
    mantissa = "".join(map(str, digits)).rstrip("0")
    return f"{minus}{mantissa[0]}.{mantissa[1:] or '0'}E{number.adjusted()}"


def date_text(epoch_ms: int) -> str:
    """Connect's text of a `java.util.Date` by its value: a time below one day, a date at midnight, else a timestamp."""
    if epoch_ms < DAY_MS:
        return _TIME.format(epoch_ms)
    return (_TIMESTAMP if epoch_ms % DAY_MS else _DATE).format(epoch_ms)


def text_of(value: Any) -> str:
    """Connect's text of an object without a schema."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return double_text(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value if isinstance(value, str) else str(value)


def json_text(value: Any) -> str:
    """Lists and maps as Connect writes them into a header: JSON on one line."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=text_of)
