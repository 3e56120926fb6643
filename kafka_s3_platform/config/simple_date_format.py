"""Java's `SimpleDateFormat` in UTC and English: epoch milliseconds to text and back.

Source of the rules: the Java SE documentation of `java.text.SimpleDateFormat`, and its lenient parsing as observed:
numbers take as many digits as there are unless another number follows at once, values beyond their range carry over,
and text behind the pattern is ignored.
"""

import calendar
import re
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from functools import cached_property

DAY_MS = 86_400_000
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_EPOCH_DAY = _EPOCH.toordinal()
_CYCLE_DAYS = 146_097
"""Days of 400 years."""

_MONTHS, _SHORT_MONTHS = tuple(calendar.month_name), tuple(calendar.month_abbr)
_DAYS, _SHORT_DAYS = tuple(calendar.day_name), tuple(calendar.day_abbr)

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
    "H": 3_600_000,
    "k": 3_600_000,
    "K": 3_600_000,
    "h": 3_600_000,
    "a": 3_600_000,
    "m": 60_000,
    "s": 1000,
    "S": 1,
}
_ZONE = re.compile(r"(?:GMT|UTC|UT|Z)?(?:([+-])(\d{1,2}):?(\d\d)?)?", re.IGNORECASE)


class SimpleDateFormat:
    """One pattern. Picklable, and the same for every locale and time zone of the machine.

    Raises:
        ValueError: a letter is unknown, or is one of the week fields, which are not honoured.
    """

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._tokens = tuple(_tokens(pattern))

    def __reduce__(self) -> tuple[type["SimpleDateFormat"], tuple[str]]:
        return SimpleDateFormat, (self.pattern,)

    @cached_property
    def resolution_ms(self) -> int:
        """Two instants in the same span of this many ms are formatted alike."""
        return min((_UNITS_MS.get(letter, DAY_MS) for letter, _ in self._tokens), default=DAY_MS)

    def format(self, epoch_ms: int) -> str:
        """The text of an instant."""
        time, years = _instant(epoch_ms)
        return "".join(
            text if not letter else _formatted(letter, len(text), time, years) for letter, text in self._tokens
        )

    def parse(self, text: str) -> int:
        """Epoch ms. ValueError: `text` does not match."""
        found: dict[str, int] = {}
        at = 0
        for index, (letter, token) in enumerate(self._tokens):
            at = self._parse_token(text, at, index, letter, token, found)
        return _resolved(found)

    def _parse_token(self, text: str, at: int, index: int, letter: str, token: str, found: dict[str, int]) -> int:
        if not letter:
            if not text.startswith(token, at):
                raise self._mismatch(text)
            return at + len(token)
        read = _parse_zone if letter in "zZX" else _parse_name if _is_text(letter, len(token)) else None
        parsed = read(text, at, letter) if read else self._parse_number(text, at, index, found)
        if parsed is None:
            raise self._mismatch(text)
        found[letter], end = parsed
        return end

    def _parse_number(self, text: str, at: int, index: int, found: dict[str, int]) -> tuple[int, int] | None:
        letter, token = self._tokens[index]
        digits = _number_at(text, at, len(token) if self._abuts(index) else None)
        if digits is None:
            return None
        if letter == "y" and len(token) <= 2 and digits.end() - digits.start("number") == 2 and not digits["sign"]:
            raise ValueError(
                f"'{self.pattern}' reads '{text}' with a two-digit year, whose century Java takes from today's date; "
                "use yyyy"
            )
        found.pop(letter, None)
        return int(digits["sign"] + digits["number"]), digits.end()

    def _abuts(self, index: int) -> bool:
        """Whether another number follows at once, or the number is itself one of such a row."""
        following = self._tokens[index + 1] if index + 1 < len(self._tokens) else ("", "")
        return bool(following[0]) and not _is_text(following[0], len(following[1])) and following[0] not in "zZX"

    def _mismatch(self, text: str) -> ValueError:
        return ValueError(f"Could not parse timestamp: value ({text}) does not match pattern ({self.pattern})")


def _tokens(pattern: str) -> list[tuple[str, str]]:
    """(letter, the run of it), or ("", literal text)."""
    found: list[tuple[str, str]] = []
    for token in _TOKEN.finditer(pattern):
        letter, quoted, lone = token[1], token[2], token[3]
        if lone:
            raise ValueError(f"'{pattern}': a quote at position {token.start()} is not closed")
        if letter and letter not in _NUMBERS and letter not in "yLEaGzZX":
            raise ValueError(
                f"'{letter}' in '{pattern}' is not honoured; letters: {' '.join(sorted([*_NUMBERS, *'yLEaGzZX']))}"
            )
        literal = "'" if token[0] == "''" else token[0] if quoted is None else quoted.replace("''", "'")
        found.append((letter.replace("L", "M"), token[0]) if letter else ("", literal))
    return found


def _instant(epoch_ms: int) -> tuple[datetime, int]:
    """The instant in the years 1970 to 2369, and how many years it lies beyond: the calendar repeats after 400."""
    cycles, within = divmod(epoch_ms, _CYCLE_DAYS * DAY_MS)
    return _EPOCH + timedelta(milliseconds=within), cycles * 400


def _is_text(letter: str, width: int) -> bool:
    return letter in "EaG" or (letter == "M" and width > 2)


def _formatted(letter: str, width: int, time: datetime, years: int) -> str:
    if letter == "y":
        year = time.year + years
        return f"{year % 100:02d}" if width == 2 else f"{year:0{width}d}"
    if letter in _NUMBERS and not _is_text(letter, width):
        return f"{_NUMBERS[letter](time):0{width}d}"
    return _text(letter, width, time)


def _text(letter: str, width: int, time: datetime) -> str:
    if letter == "M":
        return (_MONTHS if width > 3 else _SHORT_MONTHS)[time.month]
    if letter == "E":
        return (_DAYS if width > 3 else _SHORT_DAYS)[time.weekday()]
    if letter == "a":
        return "AM" if time.hour < 12 else "PM"
    zones = {"G": "AD", "Z": "+0000", "X": "Z", "z": "Coordinated Universal Time" if width > 3 else "UTC"}
    return zones[letter]


_ANY_NUMBER = re.compile(r"[ \t]*(?P<sign>-?)(?P<number>\d+)")


def _number_at(text: str, at: int, width: int | None) -> re.Match[str] | None:
    pattern = _ANY_NUMBER if width is None else re.compile(rf"[ \t]*(?P<sign>)(?P<number>\d{{1,{width}}})")
    return pattern.match(text, at)


def _parse_name(text: str, at: int, letter: str) -> tuple[int, int] | None:
    """The longest name that `text` has at `at`, whatever its case."""
    names = {
        "M": [*enumerate(_MONTHS), *enumerate(_SHORT_MONTHS)],
        "E": [*enumerate(_DAYS), *enumerate(_SHORT_DAYS)],
        "a": [(0, "AM"), (1, "PM")],
        "G": [(0, "BC"), (1, "AD")],
    }[letter]
    fits = [(len(name), number) for number, name in names if name and text[at : at + len(name)].lower() == name.lower()]
    return (max(fits)[1], at + max(fits)[0]) if fits else None


def _parse_zone(text: str, at: int, _: str) -> tuple[int, int] | None:
    """Minutes east of UTC."""
    zone = _ZONE.match(text, at)
    if zone is None or not zone[0]:
        return None
    sign = -1 if zone[1] == "-" else 1
    return sign * (int(zone[2] or 0) * 60 + int(zone[3] or 0)), zone.end()


def _resolved(found: dict[str, int]) -> int:
    """Epoch ms of the fields, those beyond their range carried over."""
    if found.get("G") == 0:
        raise ValueError("years before Christ are not honoured")
    zone = sum(found.get(letter, 0) for letter in "zZX")
    time_ms = (_hour(found) * 60 + found.get("m", 0) - zone) * 60_000 + found.get("s", 0) * 1000 + found.get("S", 0)
    return _day(found) * DAY_MS + time_ms


def _hour(found: dict[str, int]) -> int:
    if "H" in found:
        return found["H"]
    if "k" in found:
        return found["k"] % 24
    half = found.get("K", found.get("h", 0) % 12)
    return half + 12 * found.get("a", 0)


def _day(found: dict[str, int]) -> int:
    """Days since 1970-01-01."""
    if "D" in found and "d" not in found:
        months, days = 0, found["D"]
    else:
        months, days = found.get("M", 1) - 1, found.get("d", 1)
    cycles, year = divmod(found.get("y", 1970) + months // 12 - 1970, 400)
    first = datetime(1970 + year, months % 12 + 1, 1, tzinfo=timezone.utc).toordinal() - _EPOCH_DAY
    return cycles * _CYCLE_DAYS + first + days - 1
