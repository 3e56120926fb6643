"""Java's `SimpleDateFormat` in UTC and English: converts epoch milliseconds to text and back.

Source of the rules: the Java SE documentation of `java.text.SimpleDateFormat`, and observation of its lenient parsing.
A number takes all digits, unless another number follows directly. A value beyond its range carries over to the next
unit. Text after the end of the pattern is ignored. Unlike in Java, milliseconds of more than three digits are refused:
they are a finer fraction of the second.
"""

import calendar
import re
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from functools import cached_property

from kafka_s3_platform.core.model.times import DAY_MS, EPOCH, HOUR_MS

_EPOCH_DAY = EPOCH.toordinal()
_CYCLE_DAYS = 146_097
"""The days of 400 years, after which the calendar repeats. Python's datetime ends in 9999, Java's does not."""

_MONTHS = tuple(calendar.month_name)
_SHORT_MONTHS = tuple(calendar.month_abbr)
_DAYS = tuple(calendar.day_name)
_SHORT_DAYS = tuple(calendar.day_abbr)

_TOKEN = re.compile(r"([A-Za-z])\1*|'((?:[^']|'')*)'|''|(')|[^A-Za-z']+")

_NUMBERS: dict[str, Callable[[datetime], int]] = {
    "M": lambda t: t.month,
    "d": lambda t: t.day,
    "D": lambda t: t.timetuple().tm_yday,
    "u": lambda t: t.isoweekday(),
    "H": lambda t: t.hour,
    "k": lambda t: t.hour or 24,
    "K": lambda t: t.hour % 12,
    "h": lambda t: t.hour % 12 or 12,
    "m": lambda t: t.minute,
    "s": lambda t: t.second,
    "S": lambda t: t.microsecond // 1000,
}
_UNITS_MS = {
    "H": HOUR_MS,
    "k": HOUR_MS,
    "K": HOUR_MS,
    "h": HOUR_MS,
    "a": HOUR_MS,
    "m": 60_000,
    "s": 1000,
    "S": 1,
}
_MS_DIGITS = 3
_ZONE = re.compile(r"(?:GMT|UTC|UT|Z)?(?:([+-])(\d{1,2}):?(\d\d)?)?", re.IGNORECASE)


class SimpleDateFormat:
    """One pattern, which can be pickled. The machine's locale and time zone do not matter.

    Raises:
        ValueError: a letter is unknown, or is one of the week fields, which are not supported.
    """

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._tokens = tuple(_split_pattern(pattern))

    def __reduce__(self) -> tuple[type["SimpleDateFormat"], tuple[str]]:
        return SimpleDateFormat, (self.pattern,)

    @cached_property
    def resolution_ms(self) -> int:
        """The length in ms of a span of time whose instants all have the same text."""
        return min((_UNITS_MS.get(letter, DAY_MS) for letter, _ in self._tokens), default=DAY_MS)

    def format(self, epoch_ms: int) -> str:
        """Format an instant, in epoch ms, by the pattern."""
        # Moved by whole cycles of the calendar into the years 1970 to 2369, which Python's datetime has.
        cycles, within_cycle = divmod(epoch_ms, _CYCLE_DAYS * DAY_MS)
        time = EPOCH + timedelta(milliseconds=within_cycle)
        year_shift = cycles * 400
        return "".join(
            text if not letter else _format_field(letter, len(text), time, year_shift) for letter, text in self._tokens
        )

    def parse(self, text: str) -> int:
        """Parse a text to epoch ms. Raise ValueError if the text does not match the pattern."""
        fields: dict[str, int] = {}
        at = 0
        for index, (letter, token) in enumerate(self._tokens):
            at = self._parse_token(text, at, index, letter, token, fields)
        return _resolve_fields(fields)

    def _parse_token(self, text: str, at: int, index: int, letter: str, token: str, fields: dict[str, int]) -> int:
        """Parse the token `index` of the pattern at the position `at`, note its value in `fields`, and return its end.

        A token is a run of one letter in the pattern or, if `letter` is empty, a literal text.
        """
        if not letter:
            if not text.startswith(token, at):
                raise self._mismatch(text)
            return at + len(token)
        read = _parse_zone if letter in "zZX" else _parse_name if _is_text_field(letter, len(token)) else None
        parsed = read(text, at, letter) if read else self._parse_number(text, at, index, fields)
        if parsed is None:
            raise self._mismatch(text)
        fields[letter], end = parsed
        return end

    def _parse_number(self, text: str, at: int, index: int, fields: dict[str, int]) -> tuple[int, int] | None:
        """Return the number of a numeric field at `at`, and its end, or None if there is no number."""
        letter, token = self._tokens[index]
        bounded = rf"[ \t]*(?P<sign>)(?P<number>\d{{1,{len(token)}}})"
        pattern = re.compile(bounded) if self._abuts(index) else _ANY_NUMBER
        digits = pattern.match(text, at)
        if digits is None:
            return None
        if letter == "y" and len(token) <= 2 and digits.end() - digits.start("number") == 2 and not digits["sign"]:
            raise ValueError(
                f"'{self.pattern}' reads '{text}' with a two-digit year, whose century Java takes from today's date; "
                "use yyyy"
            )
        number = int(digits["sign"] + digits["number"])
        if letter == "S" and number and len(digits["number"]) > _MS_DIGITS:
            raise ValueError(
                f"'{self.pattern}' would read {digits['number']} in '{text}' as a number of milliseconds, which is a "
                "fraction of a second"
            )
        fields.pop(letter, None)
        return number, digits.end()

    def _abuts(self, index: int) -> bool:
        """Return True if another number follows directly, so this one takes only the digits of its width."""
        following = self._tokens[index + 1] if index + 1 < len(self._tokens) else ("", "")
        return bool(following[0]) and not _is_text_field(following[0], len(following[1])) and following[0] not in "zZX"

    def _mismatch(self, text: str) -> ValueError:
        """Return the error for a text that does not match the pattern."""
        return ValueError(f"Could not parse timestamp: value ({text}) does not match pattern ({self.pattern})")


def _split_pattern(pattern: str) -> list[tuple[str, str]]:
    """Split a pattern into tokens: a letter with its run in the pattern, or an empty letter with a literal text."""
    tokens: list[tuple[str, str]] = []
    for token in _TOKEN.finditer(pattern):
        letter = token[1]
        quoted = token[2]
        lone = token[3]
        if lone:
            raise ValueError(f"'{pattern}': a quote at position {token.start()} is not closed")
        if letter and letter not in _NUMBERS and letter not in "yLEaGzZX":
            raise ValueError(
                f"'{letter}' in '{pattern}' is not honoured; letters: {' '.join(sorted([*_NUMBERS, *'yLEaGzZX']))}"
            )
        if letter == "S" and len(token[0]) > _MS_DIGITS:
            raise ValueError(f"'{token[0]}' in '{pattern}' would be a number of milliseconds, no fraction; use SSS")
        literal = "'" if token[0] == "''" else token[0] if quoted is None else quoted.replace("''", "'")
        tokens.append((letter.replace("L", "M"), token[0]) if letter else ("", literal))
    return tokens


def _is_text_field(letter: str, width: int) -> bool:
    """Return True if a field of the pattern is a name, such as a month's, and not a number."""
    return letter in "EaG" or (letter == "M" and width > 2)


def _format_field(letter: str, width: int, time: datetime, year_shift: int) -> str:
    """Format one field of the pattern, of `width` letters. The year is `time`'s year plus `year_shift`."""
    if letter == "y":
        year = time.year + year_shift
        if width == 2:
            return f"{year % 100:02d}"
        return f"{year:0{width}d}"
    if letter in _NUMBERS and not _is_text_field(letter, width):
        return f"{_NUMBERS[letter](time):0{width}d}"
    return _format_name(letter, width, time)


def _format_name(letter: str, width: int, time: datetime) -> str:
    """Format a field as a name: a month, a day of the week, AM or PM, an era or a zone."""
    if letter == "M":
        return (_MONTHS if width > 3 else _SHORT_MONTHS)[time.month]
    if letter == "E":
        return (_DAYS if width > 3 else _SHORT_DAYS)[time.weekday()]
    if letter == "a":
        return "AM" if time.hour < 12 else "PM"
    zones = {"G": "AD", "Z": "+0000", "X": "Z", "z": "Coordinated Universal Time" if width > 3 else "UTC"}
    return zones[letter]


_ANY_NUMBER = re.compile(r"[ \t]*(?P<sign>-?)(?P<number>\d+)")


def _parse_name(text: str, at: int, letter: str) -> tuple[int, int] | None:
    """Return the number of the longest name at `at`, in upper or lower case, and its end, or None if there is none."""
    names = {
        "M": [*enumerate(_MONTHS), *enumerate(_SHORT_MONTHS)],
        "E": [*enumerate(_DAYS), *enumerate(_SHORT_DAYS)],
        "a": [(0, "AM"), (1, "PM")],
        "G": [(0, "BC"), (1, "AD")],
    }[letter]
    fits = [(len(name), number) for number, name in names if name and text[at : at + len(name)].lower() == name.lower()]
    return (max(fits)[1], at + max(fits)[0]) if fits else None


def _parse_zone(text: str, at: int, _: str) -> tuple[int, int] | None:
    """Return a zone as minutes east of UTC, and the end of its text, or None if there is no zone."""
    zone = _ZONE.match(text, at)
    if zone is None or not zone[0]:
        return None
    sign = -1 if zone[1] == "-" else 1
    return sign * (int(zone[2] or 0) * 60 + int(zone[3] or 0)), zone.end()


def _resolve_fields(fields: dict[str, int]) -> int:
    """Return the epoch ms of parsed fields by letter. Values beyond their range carry over to the next unit."""
    if fields.get("G") == 0:
        raise ValueError("years before Christ are not honoured")
    zone = sum(fields.get(letter, 0) for letter in "zZX")
    minutes = _resolve_hour(fields) * 60 + fields.get("m", 0) - zone
    return _resolve_day(fields) * DAY_MS + minutes * 60_000 + fields.get("s", 0) * 1000 + fields.get("S", 0)


def _resolve_hour(fields: dict[str, int]) -> int:
    """Return the hour of the day, from the first of the fields H, k, K and h that is present."""
    if "H" in fields:
        return fields["H"]
    if "k" in fields:
        return fields["k"] % 24
    half = fields.get("K", fields.get("h", 0) % 12)
    return half + 12 * fields.get("a", 0)


def _resolve_day(fields: dict[str, int]) -> int:
    """Return the day that the fields give, in days since 1970-01-01."""
    if "D" in fields and "d" not in fields:
        months = 0
        days = fields["D"]
    else:
        months = fields.get("M", 1) - 1
        days = fields.get("d", 1)
    cycles, year = divmod(fields.get("y", 1970) + months // 12 - 1970, 400)
    first = datetime(1970 + year, months % 12 + 1, 1, tzinfo=timezone.utc).toordinal() - _EPOCH_DAY
    return cycles * _CYCLE_DAYS + first + days - 1
