"""`kafka-s3 restore`."""

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

import click

from kafka_s3_platform.cli.output import json_option, show
from kafka_s3_platform.cli.runs import RunOutcome, native_topics_of, run_job
from kafka_s3_platform.cli.times import moment
from kafka_s3_platform.config.values import rate
from kafka_s3_platform.defs.restored import RestoreConfig
from kafka_s3_platform.defs.topic import ArchivedTopic

RESOLUTION = timedelta(milliseconds=1)
"""Of record timestamps: what a half-open window ends with."""

LONGEST_SHOWN = timedelta(days=31)
"""Dagster notes a materialization for each hour of a run, at some milliseconds each."""

OFFSETS = "For all kafka partitions, or P:N for one; may be repeated."


def _offsets(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> dict[str, int]:  # noqa: ARG001 - click's signature
    """`N` or `P:N`s as the config of a run has them."""
    found = [re.fullmatch(r"(?:([0-9]{1,10}):)?([0-9]{1,19})", text) for text in given]
    offsets = {str(int(f[1])) if f[1] else "all": int(f[2]) for f in found if f}
    if not all(found) or len(offsets) < len(given) or ("all" in offsets and len(offsets) > 1):
        raise click.BadParameter(f"{' '.join(given)}: one N, or P:N for each of some kafka partitions, such as 0:15")
    return offsets


@click.command
@click.argument("connector")
@click.option("--topic", required=True, metavar="T", help="The archived topic.")
@click.option("--to-topic", required=True, metavar="T2", help="The topic to write to.")
@click.option("--from", "from_time", metavar="TIME", help="Only records with this timestamp or a later one, ISO 8601.")
@click.option("--to", "to_time", metavar="TIME", help="Only records with an earlier timestamp than this.")
@click.option("--from-offset", multiple=True, callback=_offsets, metavar="N", help=f"First offset. {OFFSETS}")
@click.option("--to-offset", multiple=True, callback=_offsets, metavar="N", help=f"Offset to stop before. {OFFSETS}")
@click.option("--kafka-partitions", metavar="0,1,...", help="Only these kafka partitions.")
@click.option("--restore-id", metavar="ID", help="Go on with the restore of that id. Default: the run's id.")
@click.option("--create-topic", is_flag=True, help="Create T2 with the source's kafka partition count if it is absent.")
@click.option("--allow-source-topic", is_flag=True, help="Allow T2 to be T itself: its archive holds all twice then.")
@click.option(
    "--allow-unsendable-timestamps", is_flag=True, help="Allow that records with timestamp 0 get the time of sending."
)
@click.option("--records-per-second", type=rate, metavar="R", help="The most records sent in a second.")
@click.option("--bytes-per-second", type=rate, metavar="R", help="The most bytes sent in a second.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and write nothing.")
@json_option
@click.pass_context
def restore(
    ctx: click.Context,
    *,
    connector: str,
    topic: str,
    to_topic: str,
    from_time: str | None,
    to_time: str | None,
    from_offset: Mapping[str, int],
    to_offset: Mapping[str, int],
    kafka_partitions: str | None,
    restore_id: str | None,
    create_topic: bool,
    allow_source_topic: bool,
    allow_unsendable_timestamps: bool,
    records_per_second: float | None,
    bytes_per_second: float | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Replay archived records of a topic of CONNECTOR to another topic, as they were. Without a window: all of them.

    Exit status 1 if a dry run finds that the restore would be refused.
    """
    [archived] = native_topics_of(connector, topic, "restore")
    config = RestoreConfig(
        everything=from_time is None and to_time is None,
        to_topic=to_topic,
        from_time=from_time,
        to_time=to_time,
        from_offset=from_offset,
        to_offset=to_offset,
        kafka_partitions=_numbers(kafka_partitions),
        restore_id=restore_id,
        create_topic=create_topic,
        allow_source_topic=allow_source_topic,
        allow_unsendable_timestamps=allow_unsendable_timestamps,
        records_per_second=records_per_second,
        bytes_per_second=bytes_per_second,
        dry_run=dry_run,
    )
    outcome = run_restore(archived, config)
    report = {"topic": topic, "run_id": outcome.run_id, **outcome.events[0]}
    show(report, as_json, _lines(report))
    ctx.exit(1 if report["refusals"] else 0)


def run_restore(topic: ArchivedTopic, config: RestoreConfig) -> RunOutcome:
    """A run of the topic's restore job on the hours of its window, or the newest: there the UI shows it."""
    keys = _hours(topic, config)
    return run_job(
        topic, topic.op_name("restore"), topic.key("restored"), keys, ops={topic.op_name("restored"): config}
    )


def _hours(topic: ArchivedTopic, config: RestoreConfig) -> list[str]:
    """First and last hour of a window with both times that is no longer than `LONGEST_SHOWN`, else the newest hour."""
    zone, first = ZoneInfo(topic.config.layout.timezone), topic.hours.first
    last = topic.hours.start(topic.hours.definition.get_last_partition_key() or topic.hours.key(first))
    start = moment("--from", config.from_time, zone) if config.from_time else None
    end = moment("--to", config.to_time, zone) if config.to_time else None
    if start is None or end is None or not RESOLUTION <= end - start <= LONGEST_SHOWN:
        return [topic.hours.key(last)]
    return [topic.hours.key(min(max(t, first), last)) for t in (start, end - RESOLUTION)]


def _lines(report: dict[str, Any]) -> list[str]:
    done = "would be restored" if report["dry_run"] else "restored and read back"
    seconds = report["estimated_seconds"] if report["dry_run"] else report["replay_seconds"] + report["verify_seconds"]
    return [
        f"{report['topic']} -> {report['to_topic']}: {report['records']:,} records {done} in {seconds:.1f} s",
        f"restore id {report['restore_id']}, run {report['run_id']}",
        *report["notes"],
        *report["gaps"],
        *(f"would be refused: {reason}" for reason in report["refusals"]),
    ]


def _numbers(text: str | None) -> list[int]:
    parts = [part.strip() for part in (text or "").split(",") if part.strip()]
    if not all(part.isdecimal() for part in parts):
        raise click.UsageError(f"--kafka-partitions {text}: not numbers separated by commas")
    return [int(part) for part in parts]
