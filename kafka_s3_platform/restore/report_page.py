"""Renders a restore's report as one self-contained HTML page.

Every piece is a `Markup`. Its `format` and `join` escape all other values, so text of the report cannot become HTML.
Only constants become a `Markup`, which `make lint` checks (S704).
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from markupsafe import Markup

from kafka_s3_platform.restore.replay.checkpoint import save_document
from kafka_s3_platform.restore.request import KafkaPartitionReport, RestoreReport, judge_report
from kafka_s3_platform.store.objects import ObjectStore
from kafka_s3_platform.web_page import PAGE, PAGE_STYLE

BAR_WIDTH = 90
STRIP_WIDTH = 200
LINE_WIDTH = 1000
ROW_HEIGHT = 12
"""Pixels."""

_GAP = re.compile(r"-(\d+): offsets \[(\d+), (\d+)\)")
"""Finds the offsets in a sentence of `ArchivePlan.gaps`."""

_NOTHING = Markup()


def save_page(store: ObjectStore, key: str, report: RestoreReport) -> None:
    """Store the page. Replace an earlier one."""
    save_document(store, key, render_page(report).encode())


def render_page(report: RestoreReport) -> str:
    """Render the report as HTML, without scripts and without anything from elsewhere."""
    parts = [
        _render_head(report),
        _render_tiles(report),
        _render_list("Why the restore would be refused", report.refusals, "alarm"),
        _render_list("Missing from the archive in the selected windows", report.gaps, "alarm"),
        _render_list("What was skipped", report.skipped, "alarm"),
        _render_kafka_partitions(report),
        _render_shared(report),
        _render_windows(report),
        _render_asked(report),
        _render_list("Notes", report.notes, "mark"),
        _render_schema_ids(report),
        _render_evidence(report),
    ]
    return str(PAGE.format(title=f"Restore {report.restore_id}", style=PAGE_STYLE, body=_NOTHING.join(parts)))


def _render_head(report: RestoreReport) -> Markup:
    verdict = judge_report(report)
    return Markup(
        '<div class="head"><h1>Restore {}</h1><span class="badge {}">{}</span></div>\n'
        '<p class="way">{} &rarr; {}{}</p>\n'
    ).format(
        report.restore_id,
        verdict.kind,
        verdict.text,
        report.topic,
        report.to_topic,
        f", finished {report.finished_at}" if report.finished_at else "",
    )


def _render_tiles(report: RestoreReport) -> Markup:
    counted = "records" if report.exact else "records at most"
    if report.dry_run and report.before_transforms:
        counted = f"{counted}, before transforms"
    rate = report.records_per_second
    tiles = [
        (f"{report.record_count:,}", counted),
        (_format_bytes(report.record_bytes), "keys, values, headers"),
        (f"{report.object_count:,}", f"objects, {_format_bytes(report.object_bytes)}"),
    ]
    if report.dry_run:
        tiles.append((_format_duration(report.estimated_seconds), "estimated time to send and verify"))
    else:
        who = "sent by the last run" if report.sent_count < report.record_count else "sent"
        tiles.append((_format_duration(report.seconds), "to send and verify"))
        tiles.append((f"{rate:,.0f}", "records/s sent and verified"))
        tiles.append((f"{report.sent_count:,}", who))
    tiles.append((f"{report.gap_count:,}", "gaps in the archive"))
    inside = _render_each(Markup('<div class="tile"><b>{}</b><span>{}</span></div>'), tiles)
    return Markup('<div class="tiles">{}</div>\n').format(inside)


def _render_kafka_partitions(report: RestoreReport) -> Markup:
    """Render a row for each kafka partition, with its share of the records and its place among the source's offsets."""
    parts = report.kafka_partitions
    if not parts:
        return _NOTHING
    scale = _Scale.of(report)
    most = max(1, *(p.record_count for p in parts))
    columns = ("n Kafka partition", " ", "n Records", "n Bytes", " Source offsets", " ", " Target offsets")
    # If streams share kafka partitions of the target, its other records belong to none of them.
    extra = () if _is_shared(report) else ("n Doubled", "n Foreign")
    more = (*extra, "n Changed timestamps")
    heads = _render_each(Markup('<th class="{}">{}</th>'), (c.split(" ", 1) for c in (*columns, *more)))
    rows = _NOTHING.join(_render_row(p, most, scale, has_extra=bool(extra)) for p in parts)
    colours = (("--blue", "restored"), ("--pale", "requested"), ("--red", "not in the archive"))
    legend = _render_each(Markup('<i style="background: var({})"></i>{}'), colours)
    return Markup(
        "<section><h2>Kafka partitions</h2><table><thead><tr>{}</tr></thead><tbody>{}</tbody></table>"
        '<p class="legend">{}{}</p></section>\n'
    ).format(heads, rows, legend, f"; each strip shows offsets {scale.first:,} to {scale.end:,}")


def _render_row(part: KafkaPartitionReport, most: int, scale: "_Scale", *, has_extra: bool) -> Markup:
    extra = [("n", f"{part.doubled_count:,}"), ("n", f"{part.foreign_count:,}")] if has_extra else []
    cells = [
        ("n", _format_name(part)),
        ("", _render_bar(part.record_count / most, f"{part.record_count:,} records")),
        ("n", f"{part.record_count:,}"),
        ("n", _format_bytes(part.record_bytes)),
        ("", scale.strip(part)),
        ("n", _format_range(part.first_source_offset, part.last_source_offset)),
        ("n", _format_range(part.first_target_offset, part.last_target_offset)),
        *extra,
        ("n", f"{part.altered_timestamps:,}"),
    ]
    return Markup("<tr>{}</tr>").format(_render_each(Markup('<td class="{}">{}</td>'), cells))


def _is_shared(report: RestoreReport) -> bool:
    """Return True if kafka partitions of the target do not each have one stream of the source."""
    is_one_each = len(report.targets) <= len(report.kafka_partitions)
    return not is_one_each or any(target.stream_count > 1 for target in report.targets)


def _render_shared(report: RestoreReport) -> Markup:
    """Render the kafka partitions of the target, if they do not each have one stream of the source."""
    if not _is_shared(report):
        return _NOTHING
    cells = (
        (
            f"{t.to_topic}-{t.kafka_partition}",
            f"{t.stream_count:,}",
            _format_range(t.start_offset, t.end_offset - 1),
            f"{t.doubled_count:,}",
            f"{t.foreign_count:,}",
        )
        for t in report.targets
    )
    rows = _render_each(
        Markup('<tr><td>{}</td><td class="n">{}</td><td>{}</td><td class="n">{}</td><td class="n">{}</td></tr>'), cells
    )
    return Markup(
        "<section><h2>Kafka partitions of the target</h2><table><thead><tr><th>Kafka partition</th>"
        '<th class="n">Source streams</th><th>Offsets read back</th><th class="n">Doubled</th>'
        '<th class="n">Foreign</th></tr></thead><tbody>{}</tbody></table></section>\n'
    ).format(rows)


def _format_name(part: KafkaPartitionReport) -> str:
    """Format its number, with the topic if the restore has several."""
    if part.topic:
        return f"{part.topic}-{part.kafka_partition}"
    return f"{part.kafka_partition}"


def _render_bar(share: float, title: str) -> Markup:
    return _render_svg(BAR_WIDTH, [_render_rect(0, max(1.0, share * BAR_WIDTH) if share else 0, "--blue")], title)


@dataclass(frozen=True)
class _Scale:
    """The offsets `[first, end)` of all strips, with the requested windows and the gaps."""

    first: int
    end: int
    windows: tuple[tuple[int, int, int], ...]
    gaps: tuple[tuple[int, int, int], ...]

    @staticmethod
    def of(report: RestoreReport) -> "_Scale":
        gaps = tuple(_parse_gaps(report.gaps))
        ends = [(start, end) for _, start, end in gaps]
        for part in report.kafka_partitions:
            ends += _list_restored(part)
        first = min((start for start, _ in ends), default=0)
        # Never the same as `first`: strips divide by the distance.
        end = max((end for _, end in ends), default=1)
        windows = tuple(
            (p.kafka_partition, *_read_window(report.terms, p.kafka_partition)) for p in report.kafka_partitions
        )
        return _Scale(first, end, windows, gaps)

    def strip(self, part: KafkaPartitionReport) -> Markup:
        """Render the places of one kafka partition's records at the source."""
        number = part.kafka_partition
        shapes = [self._span(s, e, "--pale") for p, s, e in self.windows if p == number]
        shapes += [self._span(s, e, "--blue") for s, e in _list_restored(part)]
        missing = [(s, e) for p, s, e in self.gaps if p == number]
        shapes += [self._span(s, e, "--red") for s, e in missing]
        missing_text = "".join(f", [{s:,}, {e:,}) is not in the archive" for s, e in missing)
        return _render_svg(
            STRIP_WIDTH,
            shapes,
            f"offsets {_format_range(part.first_source_offset, part.last_source_offset)}{missing_text}",
        )

    def _span(self, start: int, end: int, colour: str) -> Markup:
        x, x_end = (STRIP_WIDTH * (o - self.first) / (self.end - self.first) for o in (start, end))
        x = max(0.0, x)
        x_end = min(float(STRIP_WIDTH), x_end)
        # At least a pixel: a single record, or a short gap, would not be seen.
        if x_end > x or x < STRIP_WIDTH:
            return _render_rect(x, max(1.0, x_end - x), colour)
        return _NOTHING


def _list_restored(part: KafkaPartitionReport) -> list[tuple[int, int]]:
    """Return the range from the first record's source offset to after the last one's, nothing without records."""
    if part.first_source_offset is None or part.last_source_offset is None:
        return []
    return [(part.first_source_offset, part.last_source_offset + 1)]


def _parse_gaps(sentences: Iterable[str]) -> Iterator[tuple[int, int, int]]:
    """Parse (kafka partition, start, end) from sentences with offsets."""
    matches = (_GAP.search(text) for text in sentences)
    yield from ((int(m[1]), int(m[2]), int(m[3])) for m in matches if m)


def _read_window(terms: Mapping[str, Any], kafka_partition: int) -> tuple[int, int]:
    start, end = (
        _read_bound(terms.get(name), kafka_partition, at) for name, at in (("from_offset", 0), ("to_offset", 2**63))
    )
    return start, end


def _read_bound(bound: Any, kafka_partition: int, default: int) -> int:
    if isinstance(bound, dict):
        return int(bound.get(str(kafka_partition), default))
    return default if bound is None else int(bound)


def _render_rect(x: float, width: float, colour: str) -> Markup:
    shape = Markup('<rect x="{:.1f}" width="{:.1f}" height="{}" rx="2" fill="var({})"/>')
    return shape.format(x, width, ROW_HEIGHT, colour)


def _render_svg(width: int, shapes: Sequence[Markup], title: str, style: str = "") -> Markup:
    """Render a picture of height `ROW_HEIGHT`. `style` is its CSS."""
    return Markup(
        '<svg style="{}" width="{}" height="{}" viewBox="0 0 {} {}" role="img"><title>{}</title>{}</svg>'
    ).format(style, width, ROW_HEIGHT, width, ROW_HEIGHT, title, _NOTHING.join(shapes))


def _render_windows(report: RestoreReport) -> Markup:
    """Render several windows of time on one line. A single one is listed with the request."""
    windows = [(datetime.fromisoformat(s), datetime.fromisoformat(e)) for s, e in report.terms.get("windows") or ()]
    if len(windows) < 2:
        return _NOTHING
    first = min(start for start, _ in windows)
    last = max(end for _, end in windows)
    span = last - first
    spans = [(LINE_WIDTH * ((s - first) / span), LINE_WIDTH * ((e - s) / span)) for s, e in windows]
    shapes = [
        _render_rect(0, LINE_WIDTH, "--pale"),
        *(_render_rect(x, max(1.0, width), "--blue") for x, width in spans),
    ]
    ends = f"{first.isoformat()} to {last.isoformat()}"
    picture = _render_svg(LINE_WIDTH, shapes, f"{len(windows)} windows", "max-width: 100%")
    words = f"{len(windows):,} windows of time, from {ends}"
    return Markup('<section><h2>Windows</h2>{}<p class="legend">{}</p></section>\n').format(picture, words)


def list_set_terms(terms: Mapping[str, Any]) -> dict[str, Any]:
    """Return the terms set by somebody: windows, offsets, filters, changes."""
    return {name: value for name, value in terms.items() if value not in (None, [], {}, "", False)}


def _render_asked(report: RestoreReport) -> Markup:
    terms = list_set_terms(report.terms)
    return _render_pairs(
        "What was requested",
        [(name.replace("_", " "), _render_code(_format_value(value))) for name, value in terms.items()],
    )


def _render_schema_ids(report: RestoreReport) -> Markup:
    if not report.schema_ids:
        return _NOTHING
    rows = _render_each(Markup('<tr><td class="n">{}</td><td class="n">{}</td></tr>'), report.schema_ids)
    return Markup(
        '<section><h2>Schema ids</h2><table style="width: auto"><tr><th class="n">Archived id</th>'
        '<th class="n">Id in the target registry</th></tr>{}</table></section>\n'
    ).format(rows)


def _render_evidence(report: RestoreReport) -> Markup:
    left_out = report.left_out_records
    rows = [
        ("plan", _render_code(report.plan_key)),
        ("plan digest", _render_code(report.plan_digest)),
        ("records left out by transforms", f"{left_out.filtered:,}"),
        ("records that failed and were left out", f"{left_out.failed:,}"),
        ("records without a key that were left out", f"{left_out.without_key:,}"),
        ("records routed to other topics", f"{left_out.elsewhere:,}"),
        ("records that lack something that they held", f"{left_out.incomplete:,}"),
        ("records outside all hours", f"{report.out_of_range_count:,}"),
        ("extra copies of records", f"{report.doubled_count:,}"),
        ("records of other writers", f"{report.foreign_count:,}"),
    ]
    return _render_pairs("Evidence", rows) + _render_digests(report)


def _render_digests(report: RestoreReport) -> Markup:
    if not report.kafka_partitions:
        return _NOTHING
    cells = ((_format_name(p), p.digest, p.mapping_key or "none") for p in report.kafka_partitions)
    rows = _render_each(Markup('<tr><td class="n">{}</td><td><code>{}</code></td><td><code>{}</code></td></tr>'), cells)
    return Markup(
        '<section><h2>Digests and offset mappings</h2><table style="width: auto"><thead><tr>'
        '<th class="n">Kafka partition</th><th>Digest of the records</th><th>Offset mapping</th>'
        "</tr></thead><tbody>{}</tbody></table></section>\n"
    ).format(rows)


def _render_pairs(title: str, rows: Sequence[tuple[str, str]]) -> Markup:
    if not rows:
        return _NOTHING
    inside = _render_each(Markup("<tr><th>{}</th><td>{}</td></tr>"), rows)
    return Markup('<section class="wrap"><h2>{}</h2><table>{}</table></section>\n').format(title, inside)


def _render_list(title: str, lines: Sequence[str], kind: str) -> Markup:
    if not lines:
        return _NOTHING
    inside = _render_each(Markup("<li>{}</li>"), ((line,) for line in lines))
    return Markup('<section class="{}"><h2>{}</h2><ul>{}</ul></section>\n').format(kind, title, inside)


def _render_code(text: str) -> Markup:
    return Markup("<code>{}</code>").format(text)


def _render_each(template: Markup, rows: Iterable[Sequence[object]]) -> Markup:
    """Fill the template with each row, and join the results."""
    return _NOTHING.join(template.format(*row) for row in rows)


def _format_value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _format_range(first: int | None, last: int | None) -> str:
    if first is None or last is None:
        return "none"
    return f"{first:,} to {last:,}"


def _format_bytes(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            if unit == "B":
                return f"{size:,.0f} B"
            return f"{size:,.1f} {unit}"
        size /= 1000
    return f"{size:,.1f} TB"


def _format_duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
