"""Joda-Time's `DateTimeFormat` patterns, which Kafka Connect's `path.format` is written in.

`YYYY` is the year of era, never the week year. Names of months, days, halves of the day and eras are those of a
language, from Unicode's CLDR as in Java. Names of time zones (`z`) are refused: they differ between Java versions.
"""

import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

from babel import Locale, UnknownLocaleError

from kafka_s3_platform.config.folders import refusal

_TOKEN = re.compile(r"([A-Za-z])\1*|('(?:[^']|'')*(?:'|$)|[^A-Za-z'])+")
_SAMPLE = datetime(2001, 2, 3, 4, 5, 6, 7_000, timezone.utc)

_FIELDS: dict[str, Callable[[datetime], int]] = {
    "C": lambda t: t.year // 100,
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


def compile_path_format(path_format: str, locale: str = "en", directory_delim: str = "/") -> Formatter:
    """A function from local time to encoded partition. One trailing `directory_delim` is dropped, as Connect does.

    The times given to it have a timezone: a `ZoneInfo` where the pattern asks for its id (`ZZZ`).

    Raises:
        ValueError: a letter is not known or not honoured here; the pattern has names, and the locale is not known;
            a folder would be empty, `.` or `..`, or hold a control character.
    """
    pattern = path_format.removesuffix(directory_delim) if directory_delim else path_format
    parts = [_part(token, locale) for token in _TOKEN.finditer(pattern)]

    def formatted(local: datetime) -> str:
        return "".join(part(local) for part in parts)

    _check_folders(formatted(_SAMPLE))
    return formatted


def _check_folders(encoded: str) -> None:
    if why := refusal(encoded):
        raise ValueError(f"it gives the folders {encoded!r}, which {why}")


def _part(token: re.Match[str], locale: str) -> Formatter:
    text, letter = token[0], token[1]
    if letter is None:
        literal = _unquoted(text)
        return lambda _: literal
    if letter == "S":
        return lambda local: f"{local.microsecond // 1000:03d}".ljust(len(text), "0")[: len(text)]
    if letter == "Z":
        return _zone(len(text))
    if letter in "EGa" or (letter == "M" and len(text) > 2):
        return _name(letter, len(text) > 3, locale)
    if letter not in _FIELDS:
        raise ValueError(
            f"'{text}' at position {token.start()} is not honoured; the letters"
            f" {' '.join(sorted([*_FIELDS, *'EGSZa']))} are; put other text between single quotes"
        )
    return _number(_FIELDS[letter], len(text), letter in "yYx")


def _number(field: Callable[[datetime], int], width: int, is_year: bool) -> Formatter:
    # Joda: two letters are the two-digit year.
    if is_year and width == 2:
        return lambda local: f"{field(local) % 100:02d}"
    return lambda local: f"{field(local):0{width}d}"


def _zone(width: int) -> Formatter:
    """Joda: `Z` is +0100, `ZZ` is +01:00, `ZZZ` the zone's id."""
    if width > 2:
        return lambda local: local.tzinfo.key if isinstance(local.tzinfo, ZoneInfo) else str(local.tzinfo)
    delim = ":" if width == 2 else ""
    return lambda local: _offset(local.utcoffset() or timedelta(), delim)


def _offset(offset: timedelta, delim: str) -> str:
    hours, minutes = divmod(abs(offset) // timedelta(minutes=1), 60)
    return f"{'-' if offset < timedelta() else '+'}{hours:02d}{delim}{minutes:02d}"


def _name(letter: str, is_wide: bool, locale: str) -> Formatter:
    language = _language(locale)
    width = "wide" if is_wide else "abbreviated"
    if letter == "M":
        return _from(language.months["format"][width], lambda t: t.month)
    if letter == "E":
        return _from(language.days["format"][width], lambda t: t.weekday())
    if letter == "G":
        return _from(language.eras["abbreviated"], lambda _: 1)
    return _from(language.day_periods["format"]["abbreviated"], lambda t: "am" if t.hour < 12 else "pm")


def _from(names: Mapping[Any, str], field: Callable[[datetime], Any]) -> Formatter:
    return lambda local: names[field(local)]


def _language(locale: str) -> Locale:
    try:
        return Locale.parse(locale.replace("_", "-"), sep="-")
    except (UnknownLocaleError, ValueError):
        raise ValueError(f"the names of months and days in the locale {locale!r} are not known") from None


def _unquoted(text: str) -> str:
    """Drop the quotes that delimit text; two of them in a row are one quote, inside and outside."""
    return re.sub(r"''|'", lambda quote: quote[0][1:], text)
