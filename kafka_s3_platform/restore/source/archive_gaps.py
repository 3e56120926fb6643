"""Sentences about requested records missing in the archive."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from itertools import count, groupby, takewhile
from zoneinfo import ZoneInfo

from kafka_s3_platform.config.formats import find_format
from kafka_s3_platform.model.gap import GapReason
from kafka_s3_platform.model.offsets import OffsetRange, RangeSet, make_span
from kafka_s3_platform.model.segment import Segment
from kafka_s3_platform.model.state import IndexState
from kafka_s3_platform.model.times import HOUR
from kafka_s3_platform.restore.request import RestoreRequest
from kafka_s3_platform.restore.source.selection import FOREVER, Selection

MAX_STRETCHES = 20
"""A sentence names so many stretches of offsets or hours at most."""

_GAPS: Mapping[GapReason, str] = {
    "retention": "were lost to retention before they were archived",
    "before archiving began": "were deleted before archiving began",
    "skipped": "were skipped by somebody's decision",
    "truncated": "were lost by the log after they were archived; what it holds there since is not archived",
    "cut off": "were lost by the log before they were archived; what is archived there came later",
    "taken over": "were archived by another sink, before this connector took over from it",
}
"""Descriptions of gaps."""


def describe_gaps(
    request: RestoreRequest, state: IndexState, selection: Selection, chosen: Sequence[Segment]
) -> Iterator[str]:
    """Describe the offsets and hours of the selection missing in the archive; `chosen` overlap it."""
    topic = request.topic
    for window in selection.windows:
        p = window.kafka_partition
        covered = state.coverage(window.kafka_partition)
        mine = [s for s in chosen if s.kafka_partition == p]
        # Without an end of its own, a window goes to the archive's end: anything after it is no gap.
        end = (covered.end_offset or 0) if window.end_offset == FOREVER else window.end_offset
        requested = make_span(window.start_offset, end)
        if selection.is_timed:
            requested &= _surround(state, p, mine)
        gaps = [g for g in state.judge.left_out if g.kafka_partition == p]
        for gap in gaps:
            yield from (f"{topic}-{p}: offsets {r} {_GAPS[gap.reason]}" for r in requested.within(gap.offsets))
        missing = requested - covered - RangeSet(g.offsets for g in gaps)
        yield from (f"{topic}-{p}: offsets {r} are not archived{_write_end(r, covered)}" for r in missing)
    yield from _describe_incomplete(request, state, selection)


def _write_end(missing: OffsetRange, covered: RangeSet) -> str:
    end = covered.end_offset or 0
    return f", or were never there: the archive ends at offset {end}" if missing.end_offset > end else ""


def describe_values_only(topic: str, chosen: Iterable[Segment]) -> Iterator[str]:
    """Describe the objects of values only: a sentence for each kafka partition and format."""
    segments_of_values = sorted(
        (s for s in chosen if not find_format(s.format).is_envelope),
        key=lambda s: (s.kafka_partition, s.format, s.start_offset),
    )
    for (number, format_name), group in groupby(segments_of_values, key=lambda s: (s.kafka_partition, s.format)):
        segments = list(group)
        records = sum(s.record_count for s in segments)
        ranges = RangeSet(s.offsets for s in segments)
        shown = ", ".join(str(r) for r in list(ranges)[:MAX_STRETCHES])
        yield (
            f"{topic}-{number}: {len(segments)} objects ({records:,} records within offsets {shown}) are of format "
            f"{format_name}, which their connector wrote then. It holds values only, of which no restore of the "
            f"archive can make the records that they were"
        )


def _surround(state: IndexState, kafka_partition: int, segments: Iterable[Segment]) -> RangeSet:
    """Return the offsets of the chosen segments and of the gaps that touch them.

    The records of such a gap may have had timestamps in the window of time.
    """
    chosen = list(segments)
    if not chosen:
        return RangeSet()
    inside = make_span(min(s.start_offset for s in chosen), max(s.end_offset for s in chosen))
    gaps = [g for g in state.judge.left_out if g.kafka_partition == kafka_partition]
    touching = [
        make_span(g.start_offset, g.end_offset)
        for g in gaps
        if any(r.start_offset <= g.end_offset and g.start_offset <= r.end_offset for r in inside)
    ]
    for more in touching:
        inside |= more
    return inside


def _describe_incomplete(request: RestoreRequest, state: IndexState, selection: Selection) -> Iterator[str]:
    """Describe the hours of a window of time that may get more records later."""
    hours = list(_list_hours(request)) if selection.is_timed else []
    lateness = timedelta(milliseconds=request.config.archive.allowed_lateness_ms)
    missing = sorted(set(hours) - state.judge.list_complete(hours, lateness))
    if missing:
        named = ", ".join(_join_stretches(missing)[:MAX_STRETCHES])
        yield (
            f"{request.topic}: {len(missing)} of {len(hours)} hours are not complete in the archive ({named}): what is "
            f"not archived yet may hold more of their records, until the archive goes far enough (kafka-s3 archive "
            f"{request.config.name} --until-now)"
        )


def _join_stretches(hours: Sequence[datetime]) -> list[str]:
    """Write consecutive hours as one stretch."""
    stretches = []
    # Hours without a gap between them grow as their places do, so the difference is the same for all of them.
    for _, run in groupby(enumerate(hours), lambda place: place[1] - place[0] * HOUR):
        stretch = [hour for _, hour in run]
        first = f"{stretch[0]:%Y-%m-%dT%H:%M%z}"
        last = f"{stretch[-1]:%Y-%m-%dT%H:%M%z}"
        stretches.append(first if first == last else f"{first} to {last}")
    return stretches


def _list_hours(request: RestoreRequest) -> Iterator[datetime]:
    """List the hours of the connector's timezone in the windows, from the archive's start up to now.

    Of a window without an end, only hours with passed lateness.
    """
    hours: set[datetime] = set()
    for window_start, window_end in request.windows or [(None, None)]:
        hours.update(_list_hours_of(request, window_start, window_end))
    yield from sorted(hours)


def _list_hours_of(
    request: RestoreRequest, window_start: datetime | None, window_end: datetime | None
) -> Iterator[datetime]:
    now = datetime.now(timezone.utc)
    archive_start = request.config.archive.start_hour
    zone = ZoneInfo(request.config.layout.timezone)
    start = max(t for t in (request.from_time, window_start, archive_start) if t is not None)
    # Without an end, a window goes to the last archivable hour: hours that are not over yet lack nothing.
    lateness = timedelta(milliseconds=request.config.archive.allowed_lateness_ms)
    end = min((t for t in (request.to_time, window_end) if t is not None), default=now - HOUR - lateness)
    end = min(end, now)
    # An hour begins as in its zone, which may differ from UTC by less than whole hours.
    first = start.astimezone(zone).replace(minute=0, second=0, microsecond=0).astimezone(timezone.utc)
    # Steps in UTC: when clocks change, a local hour is missing or comes twice.
    yield from takewhile(lambda hour: hour < end, (first + n * HOUR for n in count()))
