"""`kafka-s3 resolve`."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from typing import Any
from uuid import uuid4

import click

from kafka_s3_platform.archive.failures import skip_command, time_left
from kafka_s3_platform.archive.resolve import (
    AcceptTruncation,
    BeginAt,
    Decision,
    ResolveReport,
    Skip,
    unresolved_of,
)
from kafka_s3_platform.archive.resolve import resolve as decide
from kafka_s3_platform.cli.output import json_option, show
from kafka_s3_platform.cli.runs import of_each, raise_failures, topic_option, topics_of
from kafka_s3_platform.model.offsets import OffsetRange
from kafka_s3_platform.model.unresolved import Unresolved


def _offsets(ctx: click.Context, param: click.Parameter, text: str | None) -> OffsetRange | None:  # noqa: ARG001
    if text is None:
        return None
    found = re.fullmatch(r"([0-9]+):([0-9]+)", text)
    if found is None or int(found[1]) >= int(found[2]):
        raise click.BadParameter(f"{text!r}: not offsets, such as 10:12 for 10 and 11")
    return OffsetRange(int(found[1]), int(found[2]))


@click.command
@click.argument("connector")
@topic_option
@click.option("--kafka-partition", type=click.IntRange(0), metavar="P", help="The kafka partition to decide about.")
@click.option("--offsets", callback=_offsets, metavar="A:B", help="For --skip: from offset A, before offset B.")
@click.option("--skip", is_flag=True, help="Do without these offsets, which are not archived.")
@click.option("--accept-truncation", is_flag=True, help="Keep what is archived of a truncated log, and go on after it.")
@click.option("--begin-at", type=click.IntRange(1), metavar="OFFSET", help="Do without what is not archived below it.")
@click.option("--dry-run", is_flag=True, help="Say what would be recorded, and record nothing.")
@json_option
def resolve(
    *,
    connector: str,
    topic: str | None,
    kafka_partition: int | None,
    offsets: OffsetRange | None,
    skip: bool,
    accept_truncation: bool,
    begin_at: int | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """List what of CONNECTOR's topics could not be archived, or decide to do without it."""
    actions = [skip, accept_truncation, begin_at is not None]
    if not any([*actions, offsets is not None, kafka_partition is not None]):
        _list(connector, topic, as_json)
        return
    if sum(actions) != 1 or topic is None or kafka_partition is None or skip != (offsets is not None):
        raise click.UsageError(
            "a decision needs --topic, --kafka-partition, and one of: --offsets A:B --skip, --accept-truncation, "
            "--begin-at OFFSET"
        )
    decision = _decision(kafka_partition, offsets, begin_at)
    (found,) = topics_of(connector, topic)
    report = decide(found.config, topic, decision, str(uuid4()), dry_run)
    show(asdict(report), as_json, list(_lines(report)))


def _decision(kafka_partition: int, offsets: OffsetRange | None, begin_at: int | None) -> Decision:
    if offsets is not None:
        return Skip(kafka_partition, offsets)
    return AcceptTruncation(kafka_partition) if begin_at is None else BeginAt(kafka_partition, begin_at)


def _list(connector: str, topic: str | None, as_json: bool) -> None:
    found, failures = of_each(topics_of(connector, topic), lambda t: (t.topic, unresolved_of(t.config, t.topic)))
    documents = [{"topic": name, "unresolved": [_document(u) for u in rows]} for name, rows in found]
    show({"topics": documents}, as_json, [line for name, rows in found for line in _rows(connector, name, rows)])
    raise_failures(failures)


def _document(item: Unresolved) -> dict[str, Any]:
    return {**asdict(item), "found_at": item.found_at.isoformat()}


def _rows(connector: str, topic: str, rows: Sequence[Unresolved]) -> Iterator[str]:
    now = datetime.now(timezone.utc)
    yield f"{topic}: {len(rows)} range(s) of offsets are unresolved" if rows else f"{topic}: nothing is unresolved"
    for item in rows:
        yield f"  kafka partition {item.kafka_partition} {item.offsets}: {item.reason}: {item.message}"
        yield f"    time until retention may delete them: {time_left(item, now)}"
        yield f"    to do without them: {skip_command(connector, topic, item)}"


def _lines(report: ResolveReport) -> Iterator[str]:
    verb = "would be recorded" if report.dry_run else "recorded"
    count = f"{report.offset_count:,} offsets of the log stay out of the archive"
    yield f"{report.topic}: {len(report.gaps)} gap(s) {verb}; {count}"
    for gap in report.gaps:
        yield f"  kafka partition {gap.kafka_partition} [{gap.start_offset}, {gap.end_offset}): {gap.reason}"
