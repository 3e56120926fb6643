"""Joda-Time's `DateTimeFormat` patterns, the language of Kafka Connect's `path.format`.

`YYYY` is the year of era, never the week year. Names of months, days, halves of the day and eras come from Unicode's
CLDR, as in Java. Names of time zones (`z`) are refused, because they differ between Java versions.
"""

import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

from babel import Locale, UnknownLocaleError

from kafka_s3_platform.core.model.object_key import explain_bad_folders

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
    """Compile a pattern that formats local times as folders. Drop one trailing `directory_delim`, as Connect does.

    The function takes times with a timezone, which has to be a `ZoneInfo` if the pattern contains its id (`ZZZ`).
    Raises ValueError if a letter is unknown or not supported here, if the pattern has names and the locale is unknown,
    or if a folder would be empty, `.` or `..`, or would hold a control character.
    """
    pattern = path_format.removesuffix(directory_delim) if directory_delim else path_format
    parts = [_compile_token(token, locale) for token in _TOKEN.finditer(pattern)]

    def formatted(local: datetime) -> str:
        return "".join(part(local) for part in parts)

    # Bad literal text shows in any sample, so one is enough to refuse it now, and not only at the first record.
    folders = formatted(_SAMPLE)
    if why := explain_bad_folders(folders):
        raise ValueError(f"it gives the folders {folders!r}, which {why}")
    return formatted


def _compile_token(token: re.Match[str], locale: str) -> Formatter:
    """Compile one token of a pattern, a run of one letter or other text, to the function that writes it."""
    text = token[0]
    letter = token[1]
    if letter is None:
        literal = _unquote_text(text)
        return lambda _: literal
    if letter == "S":
        # Joda's times have milliseconds: further digits are zeros.
        return lambda local: f"{local.microsecond // 1000:03d}".ljust(len(text), "0")[: len(text)]
    if letter == "Z":
        return _compile_zone(len(text))
    if letter in "EGa" or (letter == "M" and len(text) > 2):
        return _compile_name(letter, len(text) > 3, locale)
    if letter not in _FIELDS:
        raise ValueError(
            f"'{text}' at position {token.start()} is not honoured; the letters"
            f" {' '.join(sorted([*_FIELDS, *'EGSZa']))} are; put other text between single quotes"
        )
    return _compile_number(_FIELDS[letter], len(text), letter in "yYx")


def _compile_number(field: Callable[[datetime], int], width: int, is_year: bool) -> Formatter:
    """Compile a numeric field of at least `width` digits, with leading zeros."""
    # For two letters, Joda writes only the last two digits of a year.
    if is_year and width == 2:
        return lambda local: f"{field(local) % 100:02d}"
    return lambda local: f"{field(local):0{width}d}"


def _compile_zone(width: int) -> Formatter:
    """Compile the format of a time zone. In Joda `Z` is +0100, `ZZ` is +01:00, `ZZZ` is the zone's id."""
    if width > 2:
        return lambda local: local.tzinfo.key if isinstance(local.tzinfo, ZoneInfo) else str(local.tzinfo)
    delim = ":" if width == 2 else ""
    return lambda local: _format_offset(local.utcoffset() or timedelta(), delim)


def _format_offset(offset: timedelta, delim: str) -> str:
    """Return a UTC offset such as +0100, with `delim` between hours and minutes."""
    hours, minutes = divmod(abs(offset) // timedelta(minutes=1), 60)
    return f"{'-' if offset < timedelta() else '+'}{hours:02d}{delim}{minutes:02d}"


def _compile_name(letter: str, is_wide: bool, locale: str) -> Formatter:
    """Compile the name of a month (M), day (E), era (G) or half of the day (a) in a locale."""
    language = _load_language(locale)
    width = "wide" if is_wide else "abbreviated"
    if letter == "M":
        return _compile_lookup(language.months["format"][width], lambda t: t.month)
    if letter == "E":
        return _compile_lookup(language.days["format"][width], lambda t: t.weekday())
    if letter == "G":
        return _compile_lookup(language.eras["abbreviated"], lambda _: 1)
    return _compile_lookup(language.day_periods["format"]["abbreviated"], lambda t: "am" if t.hour < 12 else "pm")


def _compile_lookup(names: Mapping[Any, str], field: Callable[[datetime], Any]) -> Formatter:
    """Compile a field written as a name."""
    return lambda local: names[field(local)]


def _load_language(locale: str) -> Locale:
    """Return Unicode's names for a locale. Raises ValueError if it is unknown."""
    try:
        return Locale.parse(locale.replace("_", "-"), sep="-")
    except (UnknownLocaleError, ValueError):
        raise ValueError(f"the names of months and days in the locale {locale!r} are not known") from None


def _unquote_text(text: str) -> str:
    """Drop the quotes around text. Two quotes in a row stand for one quote, inside and outside quoted text."""
    return re.sub(r"''|'", lambda quote: quote[0][1:], text)
