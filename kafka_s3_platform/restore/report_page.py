"""A restore's report as one HTML page that needs nothing from elsewhere.

Every piece is a `Markup`, whose `format` and `join` escape whatever is none: what the report tells cannot become HTML.
Only constants are made a `Markup`, which `make lint` proves (S704).
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from markupsafe import Markup

from kafka_s3_platform.restore.checkpoint import save_document
from kafka_s3_platform.restore.request import KafkaPartitionReport, RestoreReport
from kafka_s3_platform.store.objects import ObjectStore

BAR_WIDTH, STRIP_WIDTH, LINE_WIDTH, ROW_HEIGHT = 90, 200, 1000, 12

_GAP = re.compile(r"-(\d+): offsets \[(\d+), (\d+)\)")
"""Where a sentence of `RestorePlan.gaps` says which offsets it is about."""

_NOTHING = Markup()
_PAGE = Markup(
    '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
    '<meta name="viewport" content="width=device-width"><title>{title}</title><style>{style}</style></head>\n'
    "<body><main>\n{body}</main></body></html>\n"
)
_STYLE = Markup("""
:root { --ink: #1d2733; --soft: #5d6b7a; --line: #dde3ea; --back: #fff; --page: #f4f6f8; --blue: #2f6fde;
  --pale: #d5e2f8; --red: #d03b3b; --green: #1a7f4b; --amber: #9a6200; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e9ef; --soft: #9aa7b5; --line: #313b47; --back: #1a212a;
  --page: #12171d; --blue: #6c9ef5; --pale: #2b3b57; --red: #f07c7c; --green: #5fc48d; --amber: #e0ab55; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 28px 20px 60px; }
h1 { font-size: 24px; margin: 0; overflow-wrap: anywhere; } h2 { font-size: 17px; margin: 0 0 10px; }
.way { color: var(--soft); margin: 2px 0 20px; overflow-wrap: anywhere; }
.head { display: flex; gap: 14px; align-items: center; flex-wrap: wrap; }
.badge { color: #fff; border-radius: 99px; padding: 2px 12px; font-size: 13px; font-weight: 600; white-space: nowrap; }
@media (prefers-color-scheme: dark) { .badge { color: #12171d; } }
.good { background: var(--green); } .plan { background: var(--blue); } .part { background: var(--amber); }
.bad { background: var(--red); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(130px, 1fr)); gap: 12px; }
.tile, section { background: var(--back); border: 1px solid var(--line); border-radius: 10px; }
.tile { padding: 12px 14px; }
.tile b { display: block; font-size: 20px; font-variant-numeric: tabular-nums; white-space: nowrap; }
.tile span, .legend { color: var(--soft); font-size: 13px; }
section { padding: 16px 18px; margin-top: 16px; overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th { text-align: left; color: var(--soft); font-weight: 600; font-size: 13px; white-space: nowrap; }
th, td { padding: 5px 12px 5px 0; border-bottom: 1px solid var(--line); vertical-align: middle; }
td.n, th.n { text-align: right; white-space: nowrap; } tr:last-child > * { border-bottom: 0; }
thead tr:last-child > * { border-bottom: 1px solid var(--line); } .wrap th { width: 220px; }
code { font: 12.5px ui-monospace, monospace; overflow-wrap: anywhere; }
td code { white-space: nowrap; } .wrap code { white-space: normal; }
ul { margin: 0; padding-left: 20px; } svg { display: block; }
.legend i { display: inline-block; width: 12px; height: 10px; border-radius: 2px; margin: 0 5px 0 14px; }
.legend i:first-child { margin-left: 0; }
.mark { border-left: 4px solid var(--amber); } .alarm { border-left: 4px solid var(--red); }
""")


def save_page(store: ObjectStore, key: str, report: RestoreReport) -> None:
    """Store the page, in place of an earlier one."""
    save_document(store, key, page(report).encode())


def page(report: RestoreReport) -> str:
    """The report as HTML, without scripts and without anything from elsewhere."""
    parts = [
        _head(report),
        _tiles(report),
        _list("Why it would be refused", report.refusals, "alarm"),
        _list("What the archive lacks of the windows", report.gaps, "alarm"),
        _list("What was skipped", report.skipped, "alarm"),
        _kafka_partitions(report),
        _shared(report),
        _windows(report),
        _asked(report),
        _list("Notes", report.notes, "mark"),
        _schema_ids(report),
        _evidence(report),
    ]
    return str(_PAGE.format(title=f"Restore {report.restore_id}", style=_STYLE, body=_NOTHING.join(parts)))


def _head(report: RestoreReport) -> Markup:
    kind, word = _verdict(report)
    return Markup(
        '<div class="head"><h1>Restore {}</h1><span class="badge {}">{}</span></div>\n'
        '<p class="way">{} &rarr; {}{}</p>\n'
    ).format(
        report.restore_id,
        kind,
        word,
        report.topic,
        report.to_topic,
        f", finished {report.finished_at}" if report.finished_at else "",
    )


def _verdict(report: RestoreReport) -> tuple[str, str]:
    if report.refusals:
        return "bad", "would be refused"
    if report.dry_run:
        return "plan", "dry run, nothing was sent"
    if not report.verified:
        return "bad", "not verified"
    if report.doubled_count:
        return "part", f"all was found, {report.doubled_count:,} records once more than sent"
    if report.gaps or report.skipped:
        return "part", "verified; not all was there to restore"
    return "good", f"verified: every record {'read' if report.of_others else 'sent'} was found once"


def _tiles(report: RestoreReport) -> Markup:
    counted = "records" if report.exact else "records at most"
    if report.dry_run and report.before_transforms:
        counted = f"{counted}, before transforms"
    seconds = report.replay_seconds + report.verify_seconds
    rate = report.records_per_second
    tiles = [
        (f"{report.record_count:,}", counted),
        (_bytes(report.record_bytes), "keys, values, headers"),
        (f"{report.object_count:,}", f"objects, {_bytes(report.object_bytes)}"),
    ]
    if report.dry_run:
        tiles.append((_duration(report.estimated_seconds), "estimated, sending and verifying"))
    else:
        parts = f"sending {_duration(report.replay_seconds)}, verifying {_duration(report.verify_seconds)}"
        tiles += [(_duration(seconds), parts), (f"{rate:,.0f}", "records/s sent"), _sent(report)]
    tiles.append((f"{len(report.gaps):,}", "gaps in the archive"))
    inside = _each(Markup('<div class="tile"><b>{}</b><span>{}</span></div>'), tiles)
    return Markup('<div class="tiles">{}</div>\n').format(inside)


def _sent(report: RestoreReport) -> tuple[str, str]:
    return f"{report.sent_count:,}", "sent by the last run" if report.sent_count < report.record_count else "sent"


def _kafka_partitions(report: RestoreReport) -> Markup:
    """A row each, with its share of the records and its place among the source's offsets."""
    found = report.kafka_partitions
    if not found:
        return _NOTHING
    scale = _Scale.of(report)
    most = max(1, *(p.record_count for p in found))
    columns = ("n Kafka partition", " ", "n Records", "n Bytes", " Source offsets", " ", " Target offsets")
    # Where streams share kafka partitions of the target, what else is there belongs to none of them.
    extra = () if _is_shared(report) else ("n Doubled", "n Foreign")
    more = (*extra, "n Altered times")
    heads = _each(Markup('<th class="{}">{}</th>'), (c.split(" ", 1) for c in (*columns, *more)))
    rows = _NOTHING.join(_row(p, most, scale, has_extra=bool(extra)) for p in found)
    colours = (("--blue", "restored"), ("--pale", "asked for"), ("--red", "not in the archive"))
    legend = _each(Markup('<i style="background: var({})"></i>{}'), colours)
    return Markup(
        "<section><h2>Kafka partitions</h2><table><thead><tr>{}</tr></thead><tbody>{}</tbody></table>"
        '<p class="legend">{}{}</p></section>\n'
    ).format(heads, rows, legend, f"; each strip is offsets {scale.first:,} to {scale.end:,}")


def _row(part: KafkaPartitionReport, most: int, scale: "_Scale", *, has_extra: bool) -> Markup:
    extra = [("n", f"{part.doubled_count:,}"), ("n", f"{part.foreign_count:,}")] if has_extra else []
    cells = [
        ("n", _name(part)),
        ("", _bar(part.record_count / most, f"{part.record_count:,} records")),
        ("n", f"{part.record_count:,}"),
        ("n", _bytes(part.record_bytes)),
        ("", scale.strip(part)),
        ("n", _range(part.first_source_offset, part.last_source_offset)),
        ("n", _range(part.first_target_offset, part.last_target_offset)),
        *extra,
        ("n", f"{part.altered_timestamps:,}"),
    ]
    return Markup("<tr>{}</tr>").format(_each(Markup('<td class="{}">{}</td>'), cells))


def _is_shared(report: RestoreReport) -> bool:
    """Whether the kafka partitions of the target are not those of the source, one by one."""
    is_one_each = len(report.targets) <= len(report.kafka_partitions)
    return not is_one_each or any(target.stream_count > 1 for target in report.targets)


def _shared(report: RestoreReport) -> Markup:
    """The kafka partitions of the target, where they are not those of the source."""
    if not _is_shared(report):
        return _NOTHING
    cells = (
        (
            f"{t.to_topic}-{t.kafka_partition}",
            f"{t.stream_count:,}",
            _range(t.start_offset, t.end_offset - 1),
            f"{t.doubled_count:,}",
            f"{t.foreign_count:,}",
        )
        for t in report.targets
    )
    rows = _each(
        Markup('<tr><td>{}</td><td class="n">{}</td><td>{}</td><td class="n">{}</td><td class="n">{}</td></tr>'), cells
    )
    return Markup(
        '<section><h2>Kafka partitions of the target</h2><table><thead><tr><th>Kafka partition</th><th class="n">Of so '
        'many of the source</th><th>Offsets read back</th><th class="n">Doubled</th><th class="n">Foreign</th></tr>'
        "</thead><tbody>{}</tbody></table></section>\n"
    ).format(rows)


def _name(part: KafkaPartitionReport) -> str:
    """Its number; the topic too where a restore is of several."""
    return f"{part.topic}-{part.kafka_partition}" if part.topic else f"{part.kafka_partition}"


def _bar(share: float, title: str) -> Markup:
    return _svg(BAR_WIDTH, [_rect(0, max(1.0, share * BAR_WIDTH) if share else 0, "--blue")], title)


@dataclass(frozen=True)
class _Scale:
    """The offsets `[first, end)` that all strips show, with what was asked for and what is missing."""

    first: int
    end: int
    windows: tuple[tuple[int, int, int], ...]
    gaps: tuple[tuple[int, int, int], ...]

    @staticmethod
    def of(report: RestoreReport) -> "_Scale":
        gaps = tuple(_gaps(report.gaps))
        restored = (r for p in report.kafka_partitions for r in _restored(p))
        ends = [*restored, *((start, end) for _, start, end in gaps)]
        first, end = min((s for s, _ in ends), default=0), max((e for _, e in ends), default=1)
        windows = tuple((p.kafka_partition, *_window(report.asked, p.kafka_partition)) for p in report.kafka_partitions)
        return _Scale(first, end, windows, gaps)

    def strip(self, part: KafkaPartitionReport) -> Markup:
        """Where the records of one kafka partition were at the source."""
        number = part.kafka_partition
        shapes = [self._span(s, e, "--pale") for p, s, e in self.windows if p == number]
        shapes += [self._span(s, e, "--blue") for s, e in _restored(part)]
        missing = [(s, e) for p, s, e in self.gaps if p == number]
        shapes += [self._span(s, e, "--red") for s, e in missing]
        said = "".join(f", [{s:,}, {e:,}) is not in the archive" for s, e in missing)
        return _svg(STRIP_WIDTH, shapes, f"offsets {_range(part.first_source_offset, part.last_source_offset)}{said}")

    def _span(self, start: int, end: int, colour: str) -> Markup:
        left, right = (STRIP_WIDTH * (o - self.first) / (self.end - self.first) for o in (start, end))
        left, right = max(0.0, left), min(float(STRIP_WIDTH), right)
        return _rect(left, max(1.0, right - left), colour) if right > left or left < STRIP_WIDTH else _NOTHING


def _restored(part: KafkaPartitionReport) -> list[tuple[int, int]]:
    """From the first record's source offset to after the last one's; empty without records."""
    if part.first_source_offset is None or part.last_source_offset is None:
        return []
    return [(part.first_source_offset, part.last_source_offset + 1)]


def _gaps(sentences: Iterable[str]) -> Iterator[tuple[int, int, int]]:
    """(kafka partition, start, end) of those that name offsets."""
    found = (_GAP.search(text) for text in sentences)
    yield from ((int(m[1]), int(m[2]), int(m[3])) for m in found if m)


def _window(asked: Mapping[str, Any], kafka_partition: int) -> tuple[int, int]:
    start, end = (
        _bound(asked.get(name), kafka_partition, at) for name, at in (("from_offset", 0), ("to_offset", 2**63))
    )
    return start, end


def _bound(asked: Any, kafka_partition: int, default: int) -> int:
    if isinstance(asked, dict):
        return int(asked.get(str(kafka_partition), default))
    return default if asked is None else int(asked)


def _rect(left: float, width: float, colour: str) -> Markup:
    shape = Markup('<rect x="{:.1f}" width="{:.1f}" height="{}" rx="2" fill="var({})"/>')
    return shape.format(left, width, ROW_HEIGHT, colour)


def _svg(width: int, shapes: Sequence[Markup], title: str, style: str = "") -> Markup:
    """A picture of `ROW_HEIGHT`; `style` is its CSS."""
    return Markup(
        '<svg style="{}" width="{}" height="{}" viewBox="0 0 {} {}" role="img"><title>{}</title>{}</svg>'
    ).format(style, width, ROW_HEIGHT, width, ROW_HEIGHT, title, _NOTHING.join(shapes))


def _windows(report: RestoreReport) -> Markup:
    """Several windows of time on one line; a single one is told among what was asked for."""
    found = [(datetime.fromisoformat(s), datetime.fromisoformat(e)) for s, e in report.asked.get("windows") or ()]
    if len(found) < 2:
        return _NOTHING
    first, last = min(s for s, _ in found), max(e for _, e in found)
    whole = last - first
    spans = [(LINE_WIDTH * ((s - first) / whole), LINE_WIDTH * ((e - s) / whole)) for s, e in found]
    shapes = [_rect(0, LINE_WIDTH, "--pale"), *(_rect(left, max(1.0, width), "--blue") for left, width in spans)]
    ends = f"{first.isoformat()} to {last.isoformat()}"
    picture = _svg(LINE_WIDTH, shapes, f"{len(found)} windows", "max-width: 100%")
    words = f"{len(found):,} windows of time, from {ends}"
    return Markup('<section><h2>Windows</h2>{}<p class="legend">{}</p></section>\n').format(picture, words)


def _asked(report: RestoreReport) -> Markup:
    given = {name: value for name, value in report.asked.items() if value not in (None, [], {}, "", False)}
    return _pairs(
        "What was asked for", [(name.replace("_", " "), _code(_plain(value))) for name, value in given.items()]
    )


def _schema_ids(report: RestoreReport) -> Markup:
    if not report.schema_ids:
        return _NOTHING
    rows = _each(Markup('<tr><td class="n">{}</td><td class="n">{}</td></tr>'), report.schema_ids)
    return Markup(
        '<section><h2>Schema ids</h2><table style="width: auto"><tr><th class="n">Archived id</th>'
        '<th class="n">Id in the target registry</th></tr>{}</table></section>\n'
    ).format(rows)


def _evidence(report: RestoreReport) -> Markup:
    rows = [
        ("plan", _code(report.plan_key)),
        ("plan digest", _code(report.plan_digest)),
        ("records out of any hour", f"{report.out_of_range_count:,}"),
        ("records found once more than sent", f"{report.doubled_count:,}"),
        ("records of other writers", f"{report.foreign_count:,}"),
    ]
    return _pairs("Evidence", rows) + _digests(report)


def _digests(report: RestoreReport) -> Markup:
    if not report.kafka_partitions:
        return _NOTHING
    cells = ((_name(p), p.digest, p.mapping_key or "none") for p in report.kafka_partitions)
    rows = _each(Markup('<tr><td class="n">{}</td><td><code>{}</code></td><td><code>{}</code></td></tr>'), cells)
    return Markup(
        '<section><h2>Digests and offset mappings</h2><table style="width: auto"><thead><tr>'
        '<th class="n">Kafka partition</th><th>Digest of the records</th><th>Offset mapping</th>'
        "</tr></thead><tbody>{}</tbody></table></section>\n"
    ).format(rows)


def _pairs(title: str, rows: Sequence[tuple[str, str]]) -> Markup:
    if not rows:
        return _NOTHING
    inside = _each(Markup("<tr><th>{}</th><td>{}</td></tr>"), rows)
    return Markup('<section class="wrap"><h2>{}</h2><table>{}</table></section>\n').format(title, inside)


def _list(title: str, lines: Sequence[str], kind: str) -> Markup:
    if not lines:
        return _NOTHING
    inside = _each(Markup("<li>{}</li>"), ((line,) for line in lines))
    return Markup('<section class="{}"><h2>{}</h2><ul>{}</ul></section>\n').format(kind, title, inside)


def _code(text: str) -> Markup:
    return Markup("<code>{}</code>").format(text)


def _each(template: Markup, rows: Iterable[Sequence[object]]) -> Markup:
    """The template filled with each row."""
    return _NOTHING.join(template.format(*row) for row in rows)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _range(first: int | None, last: int | None) -> str:
    return "none" if first is None or last is None else f"{first:,} to {last:,}"


def _bytes(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:,.0f} B" if unit == "B" else f"{size:,.1f} {unit}"
        size /= 1000
    return f"{size:,.1f} TB"


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
