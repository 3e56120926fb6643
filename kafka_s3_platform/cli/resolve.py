"""`kafka-s3 resolve`: lists unresolved offsets, and records decisions about them."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from typing import Any
from uuid import uuid4

import click

from kafka_s3_platform.cli.messages import json_option, print_result
from kafka_s3_platform.cli.options import connector_argument, topic_option
from kafka_s3_platform.cli.runs import find_archived_topics, print_topics
from kafka_s3_platform.core.archive.failures import describe_time_left, format_skip_command
from kafka_s3_platform.core.defs.topic import TopicAssets
from kafka_s3_platform.core.model.gaps import Unresolved
from kafka_s3_platform.core.model.offsets import OffsetRange
from kafka_s3_platform.core.text import count_noun
from kafka_s3_platform.core.upkeep.resolve import (
    AcceptTruncation,
    BeginAt,
    Decision,
    ResolveReport,
    Skip,
    list_unresolved,
)
from kafka_s3_platform.core.upkeep.resolve import resolve_offsets as decide


def _parse_range(text: str) -> OffsetRange:
    """Parse `A:B` to the offsets from A up to, but not including, B."""
    match = re.fullmatch(r"([0-9]+):([0-9]+)", text)
    if match is None or int(match[1]) >= int(match[2]):
        raise click.BadParameter(f"{text!r}: not offsets, such as 10:12 for 10 and 11")
    return OffsetRange(int(match[1]), int(match[2]))


@click.command
@connector_argument
@topic_option
@click.option("--kafka-partition", type=click.IntRange(0), metavar="P", help="Decide about this kafka partition.")
@click.option(
    "--offsets", type=_parse_range, metavar="A:B", help="Offsets to --skip: from A up to, but not including, B."
)
@click.option("--skip", is_flag=True, help="Give up the --offsets: none of them is archived.")
@click.option(
    "--accept-truncation",
    is_flag=True,
    help="Accept that the log was truncated: keep what is archived, and continue after it.",
)
@click.option(
    "--begin-at",
    type=click.IntRange(1),
    metavar="OFFSET",
    help="Do without all offsets below OFFSET that are not archived.",
)
@click.option("--dry-run", is_flag=True, help="Print what would be recorded, and record nothing.")
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
    """List offsets that could not be archived, or resolve them.

    Without a decision, lists the offsets of all of CONNECTOR's topics. A decision to do without offsets needs --topic,
    --kafka-partition, and one of --skip with --offsets, --accept-truncation, or --begin-at.
    """
    actions = [skip, accept_truncation, begin_at is not None]
    if not any([*actions, offsets is not None, kafka_partition is not None]):
        _list_unresolved(connector, topic, as_json)
        return
    if sum(actions) != 1 or topic is None or kafka_partition is None or skip != (offsets is not None):
        raise click.UsageError(
            "a decision needs --topic, --kafka-partition, and one of: --offsets A:B --skip, --accept-truncation, "
            "--begin-at OFFSET"
        )
    decision = _make_decision(kafka_partition, offsets, begin_at)
    (archived,) = find_archived_topics(connector, topic)
    report = decide(archived.config, topic, decision, str(uuid4()), dry_run)
    print_result(asdict(report), as_json, list(_format_report(report)))


def _make_decision(kafka_partition: int, offsets: OffsetRange | None, begin_at: int | None) -> Decision:
    """Return the decision made by the options: skip `offsets`, begin at an offset, or accept a truncation."""
    if offsets is not None:
        return Skip(kafka_partition, offsets)
    if begin_at is None:
        return AcceptTruncation(kafka_partition)
    return BeginAt(kafka_partition, begin_at)


def _list_unresolved(connector: str, topic: str | None, as_json: bool) -> None:
    """Print the unresolved offsets."""

    def describe(archived: TopicAssets) -> tuple[dict[str, Any], Iterator[str]]:
        rows = list_unresolved(archived.config, archived.topic)
        document = {"topic": archived.topic, "unresolved": [asdict(row) for row in rows]}
        return document, _format_unresolved(connector, archived.topic, rows)

    print_topics(find_archived_topics(connector, topic), describe, as_json)


def _format_unresolved(connector: str, topic: str, rows: Sequence[Unresolved]) -> Iterator[str]:
    """Yield the lines about ranges of unresolved offsets, with the commands to give them up."""
    now = datetime.now(timezone.utc)
    if rows:
        yield f"{topic}: {count_noun(len(rows), 'unresolved range')} of offsets"
    else:
        yield f"{topic}: no run has recorded unresolved offsets. A run that failed for another reason shows it"
    for item in rows:
        yield f"  kafka partition {item.kafka_partition} {item.offsets}: {item.reason}: {item.message}"
        yield f"    time until retention may delete them: {describe_time_left(item, now)}"
        yield f"    to do without them: {format_skip_command(connector, topic, item)}"


def _format_report(report: ResolveReport) -> Iterator[str]:
    """Yield the lines about a decision: the offsets that the archive leaves out from now on.

    `later_count` of them lie beyond the end of the log, so records written there later are left out as well.
    """
    verb = "would be recorded" if report.dry_run else "recorded"
    count = f"{count_noun(report.offset_count, 'offset')} of the log left out of the archive"
    if report.later_count:
        end = max(gap.end_offset for gap in report.gaps)
        count += f", and so the next {report.later_count:,} that are written, up to offset {end}"
    yield f"{report.topic}: {count_noun(len(report.gaps), 'gap')} {verb}; {count}"
    for gap in report.gaps:
        yield f"  kafka partition {gap.kafka_partition} [{gap.start_offset}, {gap.end_offset}): {gap.reason}"
    if not report.is_start_exact:
        yield (
            "No leader epoch shows the place of the truncation: the gap begins at its lowest possible offset. The log "
            "may still hold some of the records that are archived in it"
        )
