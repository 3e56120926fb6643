"""Converts, parses and formats numbers as Java does, for Connect's casts and texts.

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

from kafka_s3_platform.connect.avro.values import encode_unscaled
from kafka_s3_platform.connect.java.simple_date_format import SimpleDateFormat
from kafka_s3_platform.core.model.connect import DataError
from kafka_s3_platform.core.model.times import DAY_MS

INTEGER_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}

_DATE = SimpleDateFormat("yyyy-MM-dd")
_TIME = SimpleDateFormat("HH:mm:ss.SSS'Z'")
_TIMESTAMP = SimpleDateFormat("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'")
# As in `Double.parseDouble`, a type suffix is allowed, but some texts of Python's float() (`1_0`, `inf`) are not.
_FLOAT = re.compile(r"([+-]?(?:NaN|Infinity|(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?))[fFdD]?", re.ASCII)


def wrap_int(value: int, bits: int) -> int:
    """Keep the low bits of a whole number, as Java's narrowing conversion does."""
    half = 1 << (bits - 1)
    return ((value + half) & ((1 << bits) - 1)) - half


def truncate_float(value: float, bits: int) -> int:
    """Convert a float to a whole number: round towards zero, limit to int32 (int64 for 64 bits), then narrow."""
    # In Java, NaN becomes 0, and infinities the largest or smallest number.
    if math.isnan(value):
        return 0
    limit = 1 << (max(bits, 32) - 1)
    truncated = (limit if value > 0 else -limit) if math.isinf(value) else int(value)
    return wrap_int(min(max(truncated, -limit), limit - 1), bits)


def round_to_float32(value: float) -> float:
    """Return the nearest float of 32 bits."""
    return float(c_float(value).value)


def parse_java_int(text: str, bits: int) -> int:
    """Parse a whole number of `bits` bits like `Integer.parseInt`. Raise DataError if it is not one or out of range."""
    half = 1 << (bits - 1)
    if not re.fullmatch(r"[+-]?\d+", text) or not -half <= int(text) < half:
        raise DataError(f"Value ({text}) was out of range for requested data type")
    return int(text)


def parse_java_float(text: str) -> float:
    """Parse a number as `Double.parseDouble` does. Raise DataError if the text is not a number."""
    match = _FLOAT.fullmatch(text.strip())
    if match is None:
        raise DataError(f"Value ({text}) was out of range for requested data type")
    return float(match[1])


def parse_java_decimal(text: str) -> Decimal:
    """Parse a number as `BigDecimal` does. Raise DataError if the text is not a number."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite():
        raise DataError(f"Unable to convert {text} (class java.lang.String) to a number")
    return number


def encode_decimal(number: Decimal, scale: int, size: int | None) -> bytes:
    """Encode a decimal as Avro does, with `scale` decimal places, and in `size` bytes for a fixed type.

    Raises DataError if the number has more decimal places, or is too large.
    """
    sign, digits, exponent = number.as_tuple()
    shift = int(exponent) + scale
    unscaled = int("".join(map(str, digits))) * 10 ** max(shift, 0)
    if shift < 0 and unscaled % 10**-shift:
        raise DataError(f"{number} has more than {scale} digits behind the point")
    scaled: int = unscaled // 10 ** max(-shift, 0) * (-1 if sign else 1)
    try:
        return encode_unscaled(scaled, size)
    except OverflowError as error:
        raise DataError(f"{number} is too large for its type") from error


def format_double(value: float, *, single: bool = False) -> str:
    """Format a number as `Double.toString` does, or as `Float.toString` if `single`."""
    if not math.isfinite(value):
        if math.isnan(value):
            return "NaN"
        return "Infinity" if value > 0 else "-Infinity"
    number = Decimal(str(np.float32(value)) if single else repr(value))
    sign, digits, _ = number.as_tuple()
    minus = "-" if sign else ""
    # Outside these bounds, Java writes an exponent.
    if not number or 1e-3 <= abs(value) < 1e7:
        text = f"{abs(number):f}"
        return minus + (text if "." in text else f"{text}.0")
    mantissa = "".join(map(str, digits)).rstrip("0")
    return f"{minus}{mantissa[0]}.{mantissa[1:] or '0'}E{number.adjusted()}"


def format_date(epoch_ms: int, logical: str) -> str:
    """Format a Time, a Date or a Timestamp (`logical`) as Connect does: a Timestamp at midnight as a date.

    Connect's `java.util.Date` does not know its type. It formats each one before 1970-01-02 as a time, without its day.
    """
    if logical == "Time":
        return _TIME.format(epoch_ms)
    is_date = logical == "Date" or (epoch_ms >= DAY_MS and epoch_ms % DAY_MS == 0)
    return (_DATE if is_date else _TIMESTAMP).format(epoch_ms)


def format_text(value: Any) -> str:
    """Format a value without a schema as Connect does."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return format_double(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value if isinstance(value, str) else str(value)


def format_json(value: Any) -> str:
    """Format lists and maps as Connect writes them into a header, as JSON on one line."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=_format_item)


def _format_item(value: Any) -> str:
    """Format a value Python's JSON lacks. Raise DataError for a number with more digits than a double has."""
    if isinstance(value, Decimal):
        raise DataError(f"holds the number {value!s:.100}, which no double is, among others")
    return format_text(value)
