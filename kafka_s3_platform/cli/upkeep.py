"""The commands that keep an archive small: `kafka-s3 compact`, `vacuum`, `retain` and `upkeep`."""

import os
import re
from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime, timedelta, timezone
from itertools import chain
from typing import Any
from uuid import uuid4

import click

from kafka_s3_platform.cli.messages import json_option, print_result
from kafka_s3_platform.cli.options import connector_argument, parse_day, topic_option
from kafka_s3_platform.cli.runs import (
    find_archived_topics,
    find_native_topics,
    print_topics,
    raise_failures,
    run_topics,
    try_topics,
)
from kafka_s3_platform.connect.config.files import find_connector
from kafka_s3_platform.core.defs.topic import TopicAssets
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.text import count_noun
from kafka_s3_platform.core.upkeep.index import UpkeepReport, keep_up_index
from kafka_s3_platform.core.upkeep.retain import RetentionReport, collect_refusals, plan_retention, retain_topic
from kafka_s3_platform.core.upkeep.vacuum import VacuumReport, set_aside_unknown, vacuum_topic

UNITS = {"m": "minutes", "h": "hours", "d": "days"}


def _parse_age(text: str) -> timedelta:
    """Parse an age such as 90m, 24h or 7d."""
    match = re.fullmatch(r"([0-9]+)([mhd])", text)
    if match is None:
        raise click.BadParameter(f"{text!r}: not an age, such as 90m, 24h or 7d")
    return timedelta(**{UNITS[match[2]]: int(match[1])})


@click.command
@connector_argument
@topic_option
@click.option(
    "--older-than",
    default="24h",
    type=_parse_age,
    metavar="AGE",
    help="Remove only objects and uploads older than this, such as 90m, 24h or 7d. Default: 24h.",
)
@click.option("--dry-run", is_flag=True, help="Print the objects that would be removed, and remove nothing.")
@click.option(
    "--index-put-back",
    is_flag=True,
    help="Remove nothing: after the index was put back from a copy, let runs write beside objects that it lacks.",
)
@json_option
def vacuum(
    *, connector: str, topic: str | None, older_than: timedelta, dry_run: bool, index_put_back: bool, as_json: bool
) -> None:
    """Remove objects that CONNECTOR's runs never committed, and unfinished uploads. Touches nothing else."""
    run_id = str(uuid4())
    if index_put_back and dry_run:
        raise click.UsageError("--index-put-back removes nothing, so it needs no --dry-run")

    def set_aside(archived: TopicAssets) -> tuple[dict[str, Any], list[str]]:
        """Have later runs write beside objects that the index lacks. Return the JSON and the lines about a topic."""
        name = archived.topic
        keys = set_aside_unknown(archived.config, name, run_id)
        line = f"{name}: {count_noun(len(keys), 'object')} not in the index: left there, and later runs write beside"
        return {"topic": name, "set_aside": keys}, [line]

    def remove(archived: TopicAssets) -> tuple[dict[str, Any], list[str]]:
        """Remove uncommitted objects and unfinished uploads. Return the JSON and the lines about a topic."""
        report = vacuum_topic(archived.config, archived.topic, run_id, older_than, dry_run)
        return {"topic": archived.topic, **asdict(report)}, [_format_vacuum(archived.topic, report)]

    topics = find_archived_topics(connector, topic)
    print_topics(topics, set_aside if index_put_back else remove, as_json, run_id=run_id)


def _format_vacuum(topic: str, report: VacuumReport) -> str:
    """Return the line about the objects removed by a vacuum, or to be removed."""
    verb = "would be removed" if report.dry_run else "removed"
    ending = "" if report.finished else "; not finished, run again"
    if report.missing:
        ending += (
            f"; no orphan goes while {count_noun(len(report.missing), 'object')} of the index, such as "
            f"{report.missing[0]}, cannot be found: `kafka-s3 verify` lists them"
        )
    return (
        f"{topic}: {count_noun(len(report.removed), 'orphan object')}, {count_noun(report.removed_bytes, 'byte')}, and "
        f"{count_noun(len(report.aborted_uploads), 'unfinished upload')} {verb}; {report.retained} kept for now, "
        f"{len(report.foreign)} of other writers left alone{ending}"
    )


@click.command
@connector_argument
@click.option(
    "--day", required=True, metavar="DAY", help="Compact this day of the connector's timezone, such as 2013-01-31."
)
@topic_option
@json_option
def compact(connector: str, day: str, topic: str | None, as_json: bool) -> None:
    """Merge the hourly objects of a day into daily ones, for all topics of CONNECTOR in one run."""
    key = parse_day(day).isoformat()
    topics = find_native_topics(connector, topic, "compact")
    for archived in topics:
        if not archived.days.definition.has_partition_key(key):
            raise click.UsageError(
                f"--day {day}: the days of {archived.name} begin with archive.start.hour, "
                f"{archived.config.archive.start_hour.isoformat()}, and end with today. An earlier day can be restored "
                f"as it is; to merge it, move archive.start.hour back to that day"
            )
    outcomes, failures = run_topics("compact", topics, [key])
    documents = [{"topic": o.topic, "run_id": o.run_id, "days": list(o.events)} for o in outcomes]
    print_result({"runs": documents}, as_json, [_format_day(d) for d in documents])
    raise_failures(failures)


def _format_day(document: dict[str, Any]) -> str:
    """Return the line about a merged day."""
    day = document["days"][0]
    unmerged = day["hourly_objects_of_values_only"]
    unmerged_text = f", {unmerged} stay hourly: their format holds values only" if unmerged else ""
    out_of_range = day.get("out_of_range_records")
    out_of_range_text = (
        f", up to {count_noun(out_of_range, 'record')} out of range since archive.start.hour was later"
        if out_of_range
        else ""
    )
    return (
        f"{document['topic']}: {day['partition_key']} holds {count_noun(day['partition_row_count'], 'record')} in "
        f"{count_noun(day['objects'], 'object')}, {day['merged_objects']} merged{unmerged_text}{out_of_range_text} "
        f"(run {document['run_id']})"
    )


@click.command
@connector_argument
@topic_option
@click.option("--apply", is_flag=True, help="Remove it. Default: print what would go, and remove nothing.")
@click.option(
    "--price",
    type=click.FloatRange(min=0),
    default=0.023,
    show_default=True,
    metavar="USD",
    help="What the store takes for a GB a month, to tell what the objects cost.",
)
@json_option
def retain(*, connector: str, topic: str | None, apply: bool, price: float, as_json: bool) -> None:
    """Remove hours and days that CONNECTOR's rules of retention let go.

    Without --apply, print what would go: hours merged into their day, and days.

    Changes the index first, then the objects. If the command is killed at any moment, running it again goes on, and
    `vacuum` removes leftover objects. The schedule `retain` does the same every night.
    """
    run_id = str(uuid4())
    now = datetime.now(timezone.utc)
    reports, failures = try_topics(
        find_archived_topics(connector, topic),
        lambda t: (
            retain_topic(t.config, t.topic, run_id)
            if apply
            else RetentionReport(plan_retention(t.config, t.topic, now))
        ),
    )
    documents = [_make_retention_document(report, apply=apply, price=price) for report in reports]
    print_result(
        {"run_id": run_id, "applied": apply, "topics": documents},
        as_json,
        [*chain.from_iterable(_format_retention(document, apply=apply) for document in documents)],
    )
    raise_failures({**failures, **collect_refusals(reports)})


def _make_retention_document(report: RetentionReport, *, apply: bool, price: float) -> dict[str, Any]:
    """Make the JSON of a topic: its removals and remains, and their costs."""
    plan = report.plan
    removals = report.removals if apply else plan.removals
    expiring = [r for r in removals if r.expires]
    going = sum(r.size for r in removals)
    return {
        "topic": plan.topic,
        "hours": sum(r.hour_count for r in removals if not r.expires),
        "days": len(expiring),
        "records": sum(r.record_count for r in expiring),
        "objects": sum(len(r.objects) for r in removals),
        "bytes": going,
        "remaining_bytes": plan.object_bytes - going,
        "usd_a_month": round(going * price / 1e9, 4),
        "remaining_usd_a_month": round((plan.object_bytes - going) * price / 1e9, 4),
        "by_day": [
            {
                "day": r.span.isoformat(),
                "rule": r.rule,
                "hours": r.hour_count,
                "records": r.record_count,
                "objects": len(r.objects),
                "bytes": r.size,
            }
            for r in removals
        ],
        "on_hold": [day.isoformat() for day in plan.days_on_hold],
        "undated_records": plan.undated_records,
        "refused": report.refused,
        "replaced": report.replaced,
    }


def _format_retention(document: dict[str, Any], *, apply: bool) -> Iterator[str]:
    """Yield the lines about a topic's removals."""
    topic = document["topic"]
    verb = "went" if apply else "would go"
    yield (
        f"{topic}: {count_noun(document['hours'], 'hour')} that their days hold, and "
        f"{count_noun(document['days'], 'day')} with {count_noun(document['records'], 'record')} {verb}: "
        f"{count_noun(document['objects'], 'object')}, {count_noun(document['bytes'], 'byte')} "
        f"(USD {document['usd_a_month']} a month); {count_noun(document['remaining_bytes'], 'byte')} stay "
        f"(USD {document['remaining_usd_a_month']} a month)"
    )
    for day in document["by_day"]:
        yield f"  {day['day']} by {day['rule']}: {count_noun(day['objects'], 'object')}, {day['bytes']:,} bytes"
    if days := document["on_hold"]:
        yield f"  on hold, {count_noun(len(days), 'day')}: {', '.join(days)}"
    if count := document["undated_records"]:
        yield f"  {count_noun(count, 'record')} out of range stay: they are of no day"
    yield from (f"  {key} is not the object of the index, and stays" for key in document["replaced"])


@click.command
@connector_argument
@click.option("--dry-run", is_flag=True, help="Print what would be done, and change nothing.")
@json_option
def upkeep(connector: str, dry_run: bool, as_json: bool) -> None:
    """Keep the index of CONNECTOR small: fold old rows, merge files, write a checkpoint, remove dead files.

    Runs may archive meanwhile. If the command is killed at any moment, running it again goes on. The schedule `upkeep`
    does the same every night.
    """
    config = find_connector(connector, os.environ)
    if config.source is not None:
        raise ConfigError(f"{connector} is a source connector: it restores, and keeps no index")
    report = keep_up_index(config, dry_run)
    print_result(asdict(report), as_json, list(_format_report(report)))
    report.raise_refusal()


def _format_report(report: UpkeepReport) -> Iterator[str]:
    """Yield the lines about what was done to the index, or would be."""
    if report.version is None:
        yield f"{report.uri}: nothing was archived, so there is nothing to do"
        return
    would = "would be " if report.dry_run else ""
    fold = report.fold
    hours = f"{count_noun(fold.hours, 'hour')} of {count_noun(fold.topics, 'topic')}"
    yield f"fold: {hours} {would}folded, {count_noun(fold.rows, 'row')} {would}moved"
    if fold.is_overtaken:
        yield "fold: a run changed the state meanwhile, so it is folded another time"
    merge = report.merge
    files = f"{count_noun(merge.files, 'file')} of {count_noun(len(merge.periods), 'period')}"
    yield f"merge: {files} {would}put together" + (
        "" if report.dry_run else f", to {merge.new_files:,} of {merge.new_bytes:,} bytes"
    )
    if merge.overtaken:
        yield f"merge: runs changed {', '.join(merge.overtaken)} meanwhile, so they are merged another time"
    yield f"checkpoint: {f'{would}written' if report.checkpoint else 'is there'}"
    cleanup = report.cleanup
    yield (
        f"dead files: {cleanup.files:,} of {cleanup.file_bytes:,} bytes {would}removed"
        if report.refused is None
        else "dead files: not removed, or not all of them"
    )
    if report.refused is None:
        yield (
            f"log: {cleanup.log_entries:,} entries and {cleanup.checkpoints:,} checkpoints of {cleanup.log_bytes:,} "
            f"bytes {would}removed"
        )
    yield f"{report.uri}: version {report.version}"
