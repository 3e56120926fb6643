"""Reads encoded partitions back, for the times and the kafka partition in their names.

A user's partitioner may do the same with a method `folder(encoded_partition)`, which returns a `Folder`, or None for a
folder of another partitioner. This example extends `TimeBasedPartitioner` and puts a folder around the time folders::

    class RegionPartitioner(TimeBasedPartitioner):
        def folder(self, encoded_partition: str) -> Folder | None:
            region, _, rest = encoded_partition.partition("/")
            return TimeFolders(self.layout).folder(rest) if region.startswith("region=") else None
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from functools import lru_cache
from typing import Protocol
from zoneinfo import ZoneInfo

from babel import Locale

from kafka_s3_platform.core.config.plugins import FOLDERS, load_class
from kafka_s3_platform.core.config.settings import LayoutSettings
from kafka_s3_platform.core.java.joda_format import compile_path_format
from kafka_s3_platform.core.model.times import EPOCH, ONE_MS, TIME_BASED

Window = tuple[int, int]
"""A half-open span of time, in epoch ms."""

_TOKEN = re.compile(r"([A-Za-z])\1*|('(?:[^']|'')*(?:'|$)|[^A-Za-z'])+")
_LOCAL_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - of a clock's face
_DAY = timedelta(days=1)

_OF_DAY = "GCyYxwMdDeE"
_OF_HOUR = f"{_OF_DAY}aHkKh"
_SHARED = (
    (timedelta(seconds=1), f"{_OF_HOUR}ms"),
    (timedelta(minutes=1), f"{_OF_HOUR}m"),
    (timedelta(hours=1), _OF_HOUR),
    (_DAY, _OF_DAY),
    (7 * _DAY, "xw"),
    (31 * _DAY, "GCyYM"),
    (366 * _DAY, "GCyY"),
)
"""The longest span of each unit, and the letters whose text all times of such a span share."""

_MOST_DIGITS = dict.fromkeys("wMdHkKhmsC", 2) | dict.fromkeys("yYx", 4) | {"D": 3, "e": 1}


@dataclass(frozen=True)
class Folder:
    """The span of the times in an encoded partition, and its kafka partition. Each is None if unknown."""

    window: Window | None = None
    kafka_partition: int | None = None


class Folders(Protocol):
    """Reads encoded partitions."""

    def folder(self, encoded_partition: str) -> Folder | None:
        """Read the folder, or return None if the partitioner makes no such folder."""
        ...


def new_folders(layout: LayoutSettings) -> Folders:
    """Make the reader of the layout's folders. It accepts every folder if a user's partitioner cannot read them.

    Raises ConfigError if the class cannot be loaded.
    """
    own_classes: Mapping[str, Callable[[LayoutSettings], Folders]] = {
        "Default": DefaultFolders,
        "Field": FieldFolders,
        **dict.fromkeys(TIME_BASED, TimeFolders),
    }
    if layout.partitioner in own_classes:
        return own_classes[layout.partitioner](layout)
    partitioner = load_class(layout.partitioner, FOLDERS)(layout)
    return partitioner if hasattr(partitioner, "folder") else _AnyFolders()


class _AnyFolders:
    def folder(self, _: str) -> Folder | None:
        return Folder()


class DefaultFolders:
    """Reads `partition=<kafka partition>`."""

    def __init__(self, layout: LayoutSettings) -> None:
        del layout

    def folder(self, encoded_partition: str) -> Folder | None:
        match = re.fullmatch(r"partition=(\d+)", encoded_partition, re.ASCII)
        return match and Folder(kafka_partition=int(match[1]))


class FieldFolders:
    """Reads `<field>=<value>` for each field, in their order."""

    def __init__(self, layout: LayoutSettings) -> None:
        self._beginnings = [f"{layout.directory_delim}{name}=" for name in layout.partition_fields]
        self._delim = layout.directory_delim

    def folder(self, encoded_partition: str) -> Folder | None:
        """Accept a folder that names the fields in their order. It says nothing about times."""
        # A value is any text, and may hold the delimiter: it ends at the first place where the next field may begin.
        remaining = self._delim + encoded_partition
        for number, beginning in enumerate(self._beginnings):
            skipped, separator, remaining = remaining.partition(beginning)
            if not separator or (skipped and not number):
                return None
        return Folder()


class TimeFolders:
    """Reads time folders by `path.format`, for the span of the times in them. Without a year, the span is unknown."""

    def __init__(self, layout: LayoutSettings) -> None:
        self._format = compile_path_format(layout.path_format, layout.locale, layout.directory_delim)
        self._zone = ZoneInfo(layout.timezone)
        self._out_of_range = layout.out_of_range_folders
        self._duration = timedelta(milliseconds=layout.partition_duration_ms)
        self._pattern, self._fields = _compile_pattern(
            layout.path_format.removesuffix(layout.directory_delim), layout.locale
        )

    def folder(self, encoded_partition: str) -> Folder | None:
        """Read the fields of the pattern from the folder's name, or return None if the pattern makes no such name."""
        if encoded_partition in self._out_of_range:
            return Folder()
        match = self._pattern.fullmatch(encoded_partition)
        if match is None:
            return None
        texts = match.groupdict()
        values = {name[0]: convert(texts[name]) for name, convert in reversed(self._fields.items())}
        try:
            span = _find_span(values)
        except (ValueError, OverflowError):
            return None
        if span is None:
            return Folder()
        return self._make_folder(*span, texts)

    def _make_folder(self, start: datetime, end: datetime, texts: Mapping[str, str]) -> Folder | None:
        """Return the folder of the periods (`partition.duration.ms`) that begin in `[start, end)`, in local time.

        Returns None if no period begins there, or if one of the `texts` that all times of the span share does not
        match.
        """
        first_start = _LOCAL_EPOCH - (_LOCAL_EPOCH - start) // self._duration * self._duration
        last_end = _LOCAL_EPOCH + ((end - _LOCAL_EPOCH - ONE_MS) // self._duration + 1) * self._duration
        if first_start >= end or not self._is_written(start, end, texts):
            return None
        if first_start <= _LOCAL_EPOCH:
            first_start -= self._duration  # before 1970 Connect rounds up
        # When clocks change, a local hour occurs twice or never: the window spans all its possible instants.
        return Folder(window=(min(self._list_instants(first_start)), max(self._list_instants(last_end))))

    def _is_written(self, start: datetime, end: datetime, texts: Mapping[str, str]) -> bool:
        """Return True if the partitioner writes these texts for times of the span. Texts varying in it are ignored."""
        match = self._pattern.fullmatch(self._format(start.replace(tzinfo=self._zone)))
        letters = next(letters for size, letters in _SHARED if end - start <= size)
        expected = match.groupdict() if match else {}
        return all(expected.get(name) == text for name, text in texts.items() if name[0] in letters)

    def _list_instants(self, local: datetime) -> tuple[int, int]:
        earlier, later = ((local.replace(tzinfo=self._zone, fold=fold) - EPOCH) // ONE_MS for fold in (0, 1))
        return earlier, later


class TimeSpans:
    """Finds the time spans of folders, including the folders around time folders: `year=2026/month=01` is a month.

    By these spans, an inventory lists only folders that may hold new objects. For a user's partitioner it finds the
    spans of complete encoded partitions only.
    """

    def __init__(self, layout: LayoutSettings) -> None:
        delim = layout.directory_delim
        parts = layout.path_format.removesuffix(delim).split(delim)
        self._delim = delim
        self._levels: list[Folders | None] = []
        if layout.partitioner in TIME_BASED:
            self._levels = [_new_level(layout, delim.join(parts[: n + 1])) for n in range(len(parts))]
        self._user_folders = None if self._levels else new_folders(layout)

    def find_span(self, folder: str) -> Window | None:
        """Return the span of all times below a folder, or None if its name does not tell it."""
        level = self._user_folders
        if self._levels:
            depth = folder.count(self._delim)
            level = self._levels[depth] if depth < len(self._levels) else None
        read_folder = None if level is None else level.folder(folder)
        return None if read_folder is None else read_folder.window


def _new_level(layout: LayoutSettings, path_format: str) -> Folders | None:
    """Return the reader of the folders down to one level of `path.format`, or None if that ends inside quotes."""
    try:
        return TimeFolders(layout.model_copy(update={"path_format": path_format}))
    except ValueError:
        return None  # the delimiter stands between quotes


def find_window(fields: Mapping[str, int], timezone: str) -> Window | None:
    """Return the time span of `yyyy`, `MM`, `dd` and `HH`, or None without a year or if the day does not exist.

    Args:
        fields: the fields of a template's timestamp, or only the first of them.
        timezone: the timezone of their local time.
    """
    letters = {"yyyy": "y", "MM": "M", "dd": "d", "HH": "H"}
    try:
        span = _find_span({letters[name]: value for name, value in fields.items()})
    except (ValueError, OverflowError):
        return None
    if span is None:
        return None
    zone = ZoneInfo(timezone)
    first, end = (moment.replace(tzinfo=zone, fold=fold) for fold, moment in enumerate(span))
    return (first - EPOCH) // ONE_MS, (end - EPOCH) // ONE_MS


def _find_span(values: Mapping[str, int]) -> tuple[datetime, datetime] | None:
    """Return the span of local time of the fields, from the year down to the first missing field."""
    day = _find_day(values)
    if day is None:
        return None
    start, end = day
    if end - start > _DAY:
        return start, end
    hour = _find_hour(values)
    if hour is None:
        return start, end
    start = start + timedelta(hours=hour)
    size = timedelta(hours=1)
    for letter, unit in (("m", timedelta(minutes=1)), ("s", timedelta(seconds=1))):
        if letter not in values:
            break
        start = start + values[letter] * unit
        size = unit
    return start, start + size


def _find_day(values: Mapping[str, int]) -> tuple[datetime, datetime] | None:
    """Return [start, end) of the days named by the calendar letters, local without a zone, or None if none are."""
    year = values.get("y", values.get("Y"))
    if "x" in values and "w" in values:
        first_day = date.fromisocalendar(values["x"], values["w"], values.get("e", 1))
        return _build_days(first_day, first_day + (_DAY if "e" in values else 7 * _DAY))
    if year is None:
        return None
    if "D" in values:
        first_day = date(year, 1, 1) + timedelta(days=values["D"] - 1)
        return _build_days(first_day, first_day + _DAY)
    if "M" not in values:
        return _build_days(date(year, 1, 1), date(year + 1, 1, 1))
    month = values["M"]
    if "d" not in values:
        return _build_days(date(year, month, 1), date(year + month // 12, month % 12 + 1, 1))
    first_day = date(year, month, values["d"])
    return _build_days(first_day, first_day + _DAY)


def _build_days(first: date, end: date) -> tuple[datetime, datetime]:
    start, past = (datetime(d.year, d.month, d.day) for d in (first, end))  # noqa: DTZ001 - of a clock's face
    return start, past


def _find_hour(values: Mapping[str, int]) -> int | None:
    """Return the hour of the day by the letters of a pattern, or None if they leave it open."""
    if "H" in values or "k" in values:
        return values["H"] if "H" in values else values["k"] % 24
    if "a" in values and ("h" in values or "K" in values):
        return values.get("h", values.get("K", 0)) % 12 + 12 * values["a"]
    return None


def _compile_pattern(pattern: str, locale: str) -> tuple[re.Pattern[str], dict[str, Callable[[str], int]]]:
    """Compile a Joda pattern to a regular expression, and to a function for each of its groups to parse a field.

    A group's name begins with its letter. There are no functions if digits follow a number of varying length anywhere,
    because its end is ambiguous.
    """
    counts: dict[str, int] = {}
    fields: dict[str, Callable[[str], int]] = {}
    parts = []
    is_open = is_ambiguous = False
    for token in _TOKEN.finditer(pattern):
        letter = token[1]
        if letter is None:
            literal = re.sub(r"''|'", lambda quote: quote[0][1:], token[0])
            parts.append(re.escape(literal))
            is_ambiguous |= is_open and literal[:1].isdigit()
            is_open = False
            continue
        text, convert = _compile_field(letter, len(token[0]), locale)
        is_ambiguous |= is_open and re.match(r"\\d|\d", text) is not None
        is_open = letter == "Z" or "," in text
        counts[letter] = counts.get(letter, 0) + 1
        name = f"{letter}{counts[letter]}"
        parts.append(f"(?P<{name}>{text})")
        if convert is not None:
            fields[name] = convert
    return re.compile("".join(parts), re.ASCII), {} if is_ambiguous else fields


def _compile_field(letter: str, width: int, locale: str) -> tuple[str, Callable[[str], int] | None]:
    """Return a field's regular expression, and the parser of its text, or None if it names no part of a time."""
    if letter == "M" and width > 2:
        language = Locale.parse(locale.replace("_", "-"), sep="-")
        names = {name: n for n, name in language.months["format"]["wide" if width > 3 else "abbreviated"].items()}
        return "|".join(map(re.escape, names)), lambda text: int(names[text])
    if letter == "a":
        language = Locale.parse(locale.replace("_", "-"), sep="-")
        halves = language.day_periods["format"]["abbreviated"]
        return "|".join(re.escape(halves[name]) for name in ("am", "pm")), lambda text: int(text == halves["pm"])
    if letter in "EGZ":
        return ".+?", None
    # Two digits of a year leave the century open, so these fields name no time.
    if letter == "S" or (letter in "yYx" and width == 2):
        return rf"\d{{{width}}}", None
    most = max(width, _MOST_DIGITS[letter])
    return rf"\d{{{width}}}" if most == width else rf"\d{{{width},{most}}}", None if letter == "C" else int


DAY = timedelta(days=1)
FIRST = datetime(2024, 1, 1, tzinfo=timezone.utc)
DAYS = 9 * 366
"""The days of nine years. In some, the last days of December are in the next year's first week, or vice versa."""

SHORTEST_STEP = timedelta(minutes=1)
_QUOTED = re.compile(r"'[^']*'?")


def explain_shared_folder(layout: LayoutSettings) -> str | None:
    """Name two times of different spans that `path.format` puts into one folder, and advise a better pattern.

    Returns None if there are none, or if something else makes the folders. The hour repeated in autumn is not checked,
    because no pattern without a time zone can distinguish it.
    """
    if layout.partitioner not in TIME_BASED:
        return None
    span = timedelta(milliseconds=layout.partition_duration_ms)
    pair = _find_shared_folder(layout.path_format, layout.locale, layout.directory_delim, span)
    if pair is None:
        return None
    first, second, folder = pair
    return (
        f"path.format={layout.path_format} puts the records of {first:%Y-%m-%d %H:%M} and of {second:%Y-%m-%d %H:%M} "
        f"into one folder, {folder}. None is overwritten, but readers who take a folder for one time are misled: "
        f"{_advise_pattern(layout.path_format, first, second)}"
    )


@lru_cache
def _find_shared_folder(
    path_format: str, locale: str, directory_delim: str, span: timedelta
) -> tuple[datetime, datetime, str] | None:
    """Find two spans of time that a path format puts into the same folder, as far as samples show.

    Returns the starts of both and their common folder, or None if there are none. `span` is the length of each.
    """
    name_folder = compile_path_format(path_format, locale, directory_delim)
    starts: dict[str, datetime] = {}
    for time in _list_samples(span):
        start = EPOCH + (time - EPOCH) // span * span
        folder = name_folder(start.astimezone(ZoneInfo("UTC")))
        first = starts.setdefault(folder, start)
        if first != start:
            return first, start, folder
    return None


def _list_samples(span: timedelta) -> Iterator[datetime]:
    """Yield times to try a pattern with: each day of nine years, and each step of the first day."""
    yield from (FIRST + n * DAY for n in range(DAYS))
    step = max(span, SHORTEST_STEP)
    yield from (FIRST + n * step for n in range(DAY // step))


def _advise_pattern(path_format: str, first: datetime, second: datetime) -> str:
    """Return advice on a pattern that gives two times one folder: the letter that it lacks or confuses."""
    letters = set(_QUOTED.sub("", path_format))
    distance = abs(second - first)
    has_weeks = "w" in letters
    advice = (
        (
            distance < timedelta(hours=1),
            "write mm for the minute (MM is the month), or a longer partition.duration.ms: an hour is 3600000",
        ),
        (distance < DAY and letters & {"h", "K"}, "write HH for the hour of the day: hh and KK count to 12 only"),
        (distance < DAY, "write HH for the hour, or take days (DailyPartitioner, or partition.duration.ms=86400000)"),
        (has_weeks and distance < 7 * DAY, "write e for the day of the week, or dd for the day of the month"),
        (
            has_weeks and "x" not in letters,
            "write xxxx beside ww: YYYY is the year of the day, whose week may be of another year",
        ),
        ("m" in letters and "M" not in letters, "write MM for the month: mm is the minute"),
        ((first.month, first.day) == (second.month, second.day), "write YYYY for the year"),
        (True, "name year, month and day (YYYY, MM, dd), or take a longer partition.duration.ms"),
    )
    return next(text for applies, text in advice if applies)
