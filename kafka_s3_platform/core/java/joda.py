"""Times as in Joda-Time, the library that Kafka Connect's partitioners use: local times of zones, and ISO 8601 texts.

Texts in record fields are read as by `ISODateTimeFormat.dateTimeParser`. Conversions between local time and UTC are
vectorised and exact for every zone, with one look-up for each distinct hour. Patterns are in `joda_format`, which does
not need Arrow, so connector files are read without it.
"""

import re
from datetime import date, datetime, timedelta, timezone
from functools import lru_cache
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.core.model.connect import Int32s, Int64s
from kafka_s3_platform.core.model.times import EPOCH, HOUR_MS, ONE_MS

# Python's datetime ends at year 9999; a day less on each side leaves room for any UTC offset.
MIN_MS = (datetime(1, 1, 3, tzinfo=timezone.utc) - EPOCH) // ONE_MS
MAX_MS = (datetime(9999, 12, 29, tzinfo=timezone.utc) - EPOCH) // ONE_MS

_Cell = tuple[int, int, int]
# Up to this many hours are looked up first: if all have the same UTC offset, no record needs its own look-up.
_FEW_CELLS = 64


def find_utc_offsets(times: Int64s, zone: ZoneInfo) -> Int64s | int:
    """Return the zone's UTC offsets (ms) at instants (epoch ms in [MIN_MS, MAX_MS)), or one number if all are equal."""
    if not len(times):
        return 0
    cells = times // HOUR_MS
    first = int(cells.min())
    last = int(cells.max())
    if last - first < _FEW_CELLS:
        hour_offsets = {_find_hour_offsets(zone, cell) for cell in range(first, last + 1)}
        offsets_before = {offset_before for offset_before, _, _ in hour_offsets}
        offsets_after = {offset_after for _, _, offset_after in hour_offsets}
        if len(offsets_before | offsets_after) == 1:
            return hour_offsets.pop()[0]
    hours, codes = factorize_values(cells)
    offset_before, change, offset_after = np.array([_find_hour_offsets(zone, cell) for cell in hours], np.int64).T
    offsets: Int64s = np.where(times < change[codes], offset_before[codes], offset_after[codes])
    return offsets


def convert_local_times(local: Int64s, zone: ZoneInfo) -> Int64s:
    """Return the instants (epoch ms) of the zone's local times (ms since 1970-01-01T00:00 there).

    A repeated time means the first of its instants. A skipped time lies as long after the change as it lies after the
    start of the skipped span. Times outside [MIN_MS, MAX_MS) get the offset of the nearest bound.
    """
    hours, codes = factorize_values(np.clip(local, MIN_MS, MAX_MS - 1) // HOUR_MS)
    firsts = np.array([_find_local_offset(zone, hour * HOUR_MS) for hour in hours], np.int64)
    lasts = np.array([_find_local_offset(zone, (hour + 1) * HOUR_MS - 1) for hour in hours], np.int64)
    offsets = firsts[codes]
    for i in np.flatnonzero((firsts != lasts)[codes]).tolist():
        offsets[i] = _find_local_offset(zone, int(local[i]))
    instants: Int64s = local - offsets
    return instants


def factorize_values(values: Int64s) -> tuple[list[int], Int32s]:
    """Return the distinct values in order of appearance, and for each value its index among them."""
    encoded = pa.array(values).dictionary_encode()
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy()


@lru_cache(maxsize=100_000)
def _find_hour_offsets(zone: ZoneInfo, cell: int) -> _Cell:
    """Return the UTC offset (ms) at the start of a UTC hour, the instant when it changes, and the offset after it."""
    start = cell * HOUR_MS
    end = (cell + 1) * HOUR_MS
    offset_before = _find_offset(zone, start)
    offset_after = _find_offset(zone, end - 1)
    if offset_before == offset_after:
        return offset_before, end, offset_after
    # Find the instant of the change by bisection.
    while start + 1 < end:
        middle = (start + end) // 2
        start, end = (middle, end) if _find_offset(zone, middle) == offset_before else (start, middle)
    return offset_before, end, offset_after


def _find_offset(zone: ZoneInfo, utc_ms: int) -> int:
    """Return the zone's UTC offset (ms) at an instant (epoch ms)."""
    offset = (EPOCH + utc_ms * ONE_MS).astimezone(zone).utcoffset()
    return (offset or timedelta()) // ONE_MS


def _find_local_offset(zone: ZoneInfo, local_ms: int) -> int:
    """Return the zone's UTC offset (ms) at a local time (ms since 1970-01-01T00:00 there)."""
    offset = (EPOCH + local_ms * ONE_MS).replace(tzinfo=zone).utcoffset()
    return (offset or timedelta()) // ONE_MS


# Arrow can parse these: full dates and times with up to six decimals. In RE2, which `pc` uses, `$` is the text's end.
_COMMON = r"^[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?"
_COMMON_UTC = _COMMON + r"(Z|[+-][0-9]{2}:[0-9]{2})$"
_COMMON_LOCAL = _COMMON + "$"

_TEXT = re.compile(
    r"(?P<year>\d{1,4})"
    r"(?:-(?P<day_of_year>\d{3})|-W(?P<week>\d{1,2})(?:-(?P<weekday>\d))?|-(?P<month>\d{1,2})(?:-(?P<day>\d{1,2}))?)?"
    r"(?:T(?:(?P<hour>\d{1,2})(?::(?P<minute>\d{1,2})(?::(?P<second>\d{1,2}))?)?(?:[.,](?P<fraction>\d{1,9}))?)?"
    r"(?P<zone>Z|(?P<sign>[+-])(?P<zone_hour>\d\d)(?::?(?P<zone_minute>\d\d)"
    r"(?::?(?P<zone_second>\d\d)(?:[.,]?(?P<zone_ms>\d{1,3}))?)?)?)?)?",
    re.ASCII | re.IGNORECASE,
)


def parse_texts(texts: pa.StringArray, zone: ZoneInfo) -> pa.Int64Array:
    """Return the epoch ms of each text, or null if it is no ISO 8601 time. A text without an offset is in `zone`."""
    has_offset = pc.match_substring_regex(texts, _COMMON_UTC).to_numpy(zero_copy_only=False)
    is_local = pc.match_substring_regex(texts, _COMMON_LOCAL).to_numpy(zero_copy_only=False)
    times = np.zeros(len(texts), np.int64)
    is_parsed = np.ones(len(texts), bool)
    for common, unit in ((has_offset, pa.timestamp("us", "UTC")), (is_local, pa.timestamp("us"))):
        if common.any():
            parsed_times = _cast_texts(texts.filter(common), unit)
            times[common] = parsed_times.cast(pa.int64()).fill_null(0).to_numpy() // 1000
            is_parsed[common] = parsed_times.is_valid().to_numpy(zero_copy_only=False)
    for i in np.flatnonzero(~has_offset & ~is_local).tolist():
        parsed = _parse_text(texts[i].as_py())
        times[i], is_local[i] = parsed or (0, False)
        is_parsed[i] = parsed is not None
    times[is_local] = convert_local_times(times[is_local], zone)
    return pa.array(times, mask=~is_parsed)


def _cast_texts(texts: pa.StringArray, unit: pa.TimestampType) -> pa.TimestampArray:
    """Cast texts with Arrow. An impossible time such as 30 February becomes null."""
    try:
        return texts.cast(unit)
    except pa.ArrowInvalid:
        # Arrow does not tell which text is bad, so halves are tried until the bad text is alone.
        half = len(texts) // 2
        if half:
            return pa.concat_arrays([_cast_texts(t, unit) for t in (texts[:half], texts[half:])])
        return pa.nulls(1, unit)


def _parse_text(text: str) -> tuple[int, bool] | None:
    """Return the ms of an ISO 8601 time, and True if they are local, not epoch ms. Return None for any other text."""
    match = _TEXT.fullmatch(text)
    if match is None:
        return None
    try:
        day = _read_day(match.groupdict())
        local = (
            datetime(day.year, day.month, day.day, tzinfo=timezone.utc) - EPOCH + _read_time_of_day(match)
        ) // ONE_MS
        if match["zone"] is None:
            return (local, True)
        return (local - _read_offset(match) // ONE_MS, False)
    except (ValueError, OverflowError):
        return None


def _read_day(parts: dict[str, str | None]) -> date:
    """Return the day that the pattern's groups give: by week and weekday, by day of the year, or by month and day."""
    year = int(parts["year"] or 0)
    if parts["week"]:
        return date.fromisocalendar(year, int(parts["week"]), int(parts["weekday"] or 1))
    if parts["day_of_year"]:
        day = date(year, 1, 1) + timedelta(days=int(parts["day_of_year"]) - 1)
        if day.year != year:
            raise ValueError("no such day")
        return day
    return date(year, int(parts["month"] or 1), int(parts["day"] or 1))


def _read_time_of_day(match: re.Match[str]) -> timedelta:
    """Read the time of day. A fraction belongs to the smallest unit in the text, and is cut to milliseconds."""
    hour, minute, second = (int(match[name] or 0) for name in ("hour", "minute", "second"))
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError("no such time")
    unit = timedelta(seconds=1) if match["second"] else timedelta(minutes=1) if match["minute"] else timedelta(hours=1)
    billionths = int((match["fraction"] or "").ljust(9, "0"))
    fraction = (unit // ONE_MS * billionths // 10**9) * ONE_MS
    return timedelta(hours=hour, minutes=minute, seconds=second) + fraction


def _read_offset(match: re.Match[str]) -> timedelta:
    """Return the UTC offset in the text, positive to the east."""
    hour, minute, second = (int(match[name] or 0) for name in ("zone_hour", "zone_minute", "zone_second"))
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError("no such offset")
    ms = int((match["zone_ms"] or "0").ljust(3, "0"))
    offset = timedelta(hours=hour, minutes=minute, seconds=second, milliseconds=ms)
    return -offset if match["sign"] == "-" else offset
