"""The numeric part of Joda-Time's `DateTimeFormat` patterns, which Kafka Connect's `path.format` is written in.

`YYYY` is the year of era, never the week year. Names of months, days, eras and zones depend on a locale's text tables
and are refused.
"""

import re
from collections.abc import Callable
from datetime import datetime

_TOKEN = re.compile(r"([A-Za-z])\1*|('(?:[^']|'')*(?:'|$)|[^A-Za-z'])+")
_MAX_TEXT_FREE_MONTH = 2

_FIELDS: dict[str, Callable[[datetime], int]] = {
    "y": lambda t: t.year,
    "Y": lambda t: t.year,
    "x": lambda t: t.isocalendar().year,
    "w": lambda t: t.isocalendar().week,
    "e": lambda t: t.isoweekday(),
    "D": lambda t: t.timetuple().tm_yday,
    "M": lambda t: t.month,
    "d": lambda t: t.day,
    "H": lambda t: t.hour,
    "k": lambda t: t.hour or 24,
    "K": lambda t: t.hour % 12,
    "h": lambda t: t.hour % 12 or 12,
    "m": lambda t: t.minute,
    "s": lambda t: t.second,
}

Formatter = Callable[[datetime], str]


def compile_path_format(path_format: str) -> Formatter:
    """A function from local time to encoded partition. One trailing `/` is dropped, as Connect does.

    ValueError: a letter is not known or not honoured here.
    """
    parts = [_part(token) for token in _TOKEN.finditer(path_format.removesuffix("/"))]
    return lambda local: "".join(part(local) for part in parts)


def _part(token: re.Match[str]) -> Formatter:
    text, letter = token[0], token[1]
    if letter is None:
        literal = _unquoted(text)
        return lambda _: literal
    if letter == "S":
        return lambda local: f"{local.microsecond // 1000:03d}".ljust(len(text), "0")[: len(text)]
    if letter not in _FIELDS or (letter == "M" and len(text) > _MAX_TEXT_FREE_MONTH):
        raise ValueError(
            f"'{text}' at position {token.start()} is not honoured; use the numeric fields "
            f"{' '.join(sorted([*_FIELDS, 'S']))} (months as M or MM) and put other text between single quotes"
        )
    return _number(_FIELDS[letter], len(text), letter in "yYx")


def _number(field: Callable[[datetime], int], width: int, is_year: bool) -> Formatter:
    # Joda: two letters are the two-digit year.
    if is_year and width == 2:
        return lambda local: f"{field(local) % 100:02d}"
    return lambda local: f"{field(local):0{width}d}"


def _unquoted(text: str) -> str:
    """Drop the quotes that delimit text; two of them in a row are one quote, inside and outside."""
    return re.sub(r"''|'", lambda quote: quote[0][1:], text)
