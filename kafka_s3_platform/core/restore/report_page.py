"""Renders a restore's report as one self-contained HTML page."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from kafka_s3_platform.core.model.offsets import OffsetRange
from kafka_s3_platform.core.restore.request import KafkaPartitionReport, RestoreReport, judge_report, list_missing
from kafka_s3_platform.core.templates import render_template
from kafka_s3_platform.core.text import format_size

Span = tuple[Any, Any, str]
"""Start and end, of offsets or of time, and a colour."""

Bar = tuple[float, float, str]
"""The place, width and colour of a span in a picture, in pixels."""


def render_page(report: RestoreReport) -> str:
    """Render the report as HTML, without scripts and without anything loaded from elsewhere."""
    return render_template(
        "core/restore/report_page.html.j2",
        page=ReportPage(report),
        verdict=judge_report(report),
        dump_json=json.dumps,
        format_duration=_format_duration,
        format_name=_format_name,
        format_range=_format_range,
        format_size=format_size,
        judge_report=judge_report,
        list_missing=list_missing,
        list_set_terms=list_set_terms,
        scale_spans=_scale_spans,
    )


@dataclass(frozen=True)
class ReportPage:
    """The report, and what its page shows besides."""

    report: RestoreReport

    @property
    def is_shared(self) -> bool:
        """True if not every kafka partition of the target has one stream of the source.

        Other records of the target then belong to no single stream.
        """
        is_one_each = len(self.report.targets) <= len(self.report.kafka_partitions)
        return not is_one_each or any(target.stream_count > 1 for target in self.report.targets)

    @cached_property
    def offsets(self) -> tuple[int, int]:
        """The offsets `[first, end)` of all strips, never of length 0, because strips divide by it."""
        ranges = [gap.offsets for gap in self.report.gaps if gap.offsets]
        for part in self.report.kafka_partitions:
            ranges += _list_restored(part)
        return min((r.start_offset for r in ranges), default=0), max((r.end_offset for r in ranges), default=1)

    @property
    def failures(self) -> list[str]:
        """The topics not restored, each with its error."""
        return [f"{part.topic}: {part.failure}" for part in self.report.failed]

    @property
    def windows(self) -> list[Span]:
        """The windows of time. A single window is listed with the request."""
        windows = self.report.terms.get("windows") or ()
        return [(datetime.fromisoformat(start), datetime.fromisoformat(end), "blue") for start, end in windows]

    def list_gaps(self, part: KafkaPartitionReport) -> list[OffsetRange]:
        """List a kafka partition's offsets that the archive lacks."""
        place = (part.topic or self.report.topic, part.kafka_partition)
        return [gap.offsets for gap in self.report.gaps if gap.offsets and (gap.topic, gap.kafka_partition) == place]

    def list_spans(self, part: KafkaPartitionReport) -> list[Span]:
        """List a kafka partition's requested, restored and missing offsets."""
        bounds = (self._read_bound("from_offset", part, 0), self._read_bound("to_offset", part, 2**63))
        restored = ((r.start_offset, r.end_offset, "blue") for r in _list_restored(part))
        missing = ((r.start_offset, r.end_offset, "red") for r in self.list_gaps(part))
        return [(*bounds, "pale"), *restored, *missing]

    def _read_bound(self, name: str, part: KafkaPartitionReport, default: int) -> int:
        """Return the requested bound of a kafka partition's offsets. A request has one for all, or one for each."""
        bound = self.report.terms.get(name)
        if isinstance(bound, dict):
            return int(bound.get(str(part.kafka_partition), default))
        return default if bound is None else int(bound)


def _scale_spans(spans: Iterable[Span], first: Any, end: Any, width: int) -> Iterator[Bar]:
    """Scale spans of [first, end) to a picture of `width` pixels."""
    for span_start, span_end, colour in spans:
        x = max(0.0, width * ((span_start - first) / (end - first)))
        x_end = min(float(width), width * ((span_end - first) / (end - first)))
        if x < width:
            # at least a pixel: a single record, or a short gap, would not be seen
            yield x, max(1.0, x_end - x), colour


def _list_restored(part: KafkaPartitionReport) -> list[OffsetRange]:
    """Return the range of source offsets from the first record to the last, or nothing if there are no records."""
    if part.first_source_offset is None or part.last_source_offset is None:
        return []
    return [OffsetRange(part.first_source_offset, part.last_source_offset + 1)]


def list_set_terms(terms: Mapping[str, Any]) -> dict[str, Any]:
    """Return the terms somebody has set: windows, offsets, filters, changes."""
    return {name: value for name, value in terms.items() if value not in (None, [], {}, "", False)}


def _format_name(part: KafkaPartitionReport) -> str:
    """Format a kafka partition's number, with the topic if the restore has several."""
    return f"{part.topic}-{part.kafka_partition}" if part.topic else f"{part.kafka_partition}"


def _format_range(first: int | None, last: int | None) -> str:
    return "none" if first is None or last is None else f"{first:,} to {last:,}"


def _format_duration(seconds: float) -> str:
    """Format a duration for people: `2.5 s`, `3 min 20 s` or `1 h 5 min`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
