"""`kafka-s3 restore`."""

from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

import click

from kafka_s3_platform.cli.runs import RunOutcome, json_option, run_job, show, topics_of
from kafka_s3_platform.cli.times import moment
from kafka_s3_platform.defs.restored import RestoreConfig
from kafka_s3_platform.defs.topic import ArchivedTopic

RESOLUTION = timedelta(milliseconds=1)
"""Of record timestamps: what a half-open window ends with."""


@click.command
@click.argument("connector")
@click.option("--topic", required=True, metavar="T", help="The archived topic.")
@click.option("--to-topic", required=True, metavar="T2", help="The topic to write to.")
@click.option("--from", "from_time", metavar="TIME", help="Only records with this timestamp or a later one, ISO 8601.")
@click.option("--to", "to_time", metavar="TIME", help="Only records with an earlier timestamp than this.")
@click.option("--from-offset", type=click.IntRange(0), metavar="N", help="First offset of every kafka partition.")
@click.option("--to-offset", type=click.IntRange(0), metavar="N", help="Offset to stop before.")
@click.option("--kafka-partitions", metavar="0,1,...", help="Only these kafka partitions.")
@click.option("--restore-id", metavar="ID", help="Go on with the restore of that id. Default: the run's id.")
@click.option("--create-topic", is_flag=True, help="Create T2 with the source's kafka partition count if it is absent.")
@click.option("--allow-source-topic", is_flag=True, help="Allow T2 to be T itself: its archive holds all twice then.")
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
    from_offset: int | None,
    to_offset: int | None,
    kafka_partitions: str | None,
    restore_id: str | None,
    create_topic: bool,
    allow_source_topic: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Replay archived records of a topic of CONNECTOR to another topic, as they were. Without a window: all of them.

    Exit status 1 if a dry run finds that the restore would be refused.
    """
    [archived] = topics_of(connector, topic)
    config = RestoreConfig(
        everything=from_time is None and to_time is None,
        to_topic=to_topic,
        from_time=from_time,
        to_time=to_time,
        from_offset=_everywhere(from_offset),
        to_offset=_everywhere(to_offset),
        kafka_partitions=_numbers(kafka_partitions),
        restore_id=restore_id,
        create_topic=create_topic,
        allow_source_topic=allow_source_topic,
        dry_run=dry_run,
    )
    outcome = run_restore(archived, config)
    report = {"topic": topic, "run_id": outcome.run_id, **outcome.events[0]}
    show(report, as_json, _lines(report))
    ctx.exit(1 if report["refusals"] else 0)


def run_restore(topic: ArchivedTopic, config: RestoreConfig) -> RunOutcome:
    """A run of the topic's restore job on the hours of its window: those show it in the UI."""
    keys = _hours(topic, config)
    return run_job(
        topic, topic.op_name("restore"), topic.key("restored"), keys, ops={topic.op_name("restored"): config}
    )


def _hours(topic: ArchivedTopic, config: RestoreConfig) -> list[str]:
    """First and last hour of the window as far as there are such hours, the newest hour where it is everything."""
    zone, first = ZoneInfo(topic.config.layout.timezone), topic.hours.first
    last = topic.hours.start(topic.hours.definition.get_last_partition_key() or topic.hours.key(first))
    if config.everything:
        return [topic.hours.key(last)]
    start = moment("--from", config.from_time, zone) if config.from_time else first
    end = moment("--to", config.to_time, zone) - RESOLUTION if config.to_time else last
    return [topic.hours.key(min(max(t, first), last)) for t in (start, end)]


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


def _everywhere(offset: int | None) -> dict[str, int]:
    return {} if offset is None else {"all": offset}


def _numbers(text: str | None) -> list[int]:
    parts = [part.strip() for part in (text or "").split(",") if part.strip()]
    if not all(part.isdecimal() for part in parts):
        raise click.UsageError(f"--kafka-partitions {text}: not numbers separated by commas")
    return [int(part) for part in parts]
