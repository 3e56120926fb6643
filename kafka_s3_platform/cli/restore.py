"""`kafka-s3 restore`."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import click

from kafka_s3_platform.cli.output import json_option, show
from kafka_s3_platform.cli.runs import RunOutcome, connector_of, native_topics_of, run_job
from kafka_s3_platform.cli.times import moment
from kafka_s3_platform.cli.windows import OFFSETS, numbers, offsets, target_worker_option
from kafka_s3_platform.config.settings import THAW_TIERS, ConnectorConfig
from kafka_s3_platform.config.values import rate
from kafka_s3_platform.defs.foreign import EVERY_TOPIC, foreign_key, foreign_op
from kafka_s3_platform.defs.names import op_name
from kafka_s3_platform.defs.restore_config import BEHAVIOURS, DELIVERIES, ForeignRestoreConfig, RestoreConfig
from kafka_s3_platform.defs.topic import ArchivedTopic

RESOLUTION = timedelta(milliseconds=1)
"""Of record timestamps: what a half-open window ends with."""

LONGEST_SHOWN = timedelta(days=31)
"""Dagster notes a materialization for each hour of a run, at some milliseconds each."""

ANY_KEY = "Keys, prefixes and regex: any of them; may be repeated."


@click.command
@click.argument("connector")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="T",
    help="The archived topic. Of a source connector: only this one; may be repeated. Default there: all of them.",
)
@click.option("--to-topic", metavar="T2", help="The topic to write to; {topic} in it is T, as in copy_of_{topic}.")
@click.option(
    "--rename",
    nargs=2,
    metavar="REGEX REPLACEMENT",
    help="Instead of --to-topic: RegexRouter's pair, by Java's rules.",
)
@click.option("--topic-map", multiple=True, metavar="T=T2", help="Instead of --to-topic: a map; may be repeated.")
@target_worker_option
@click.option("--from", "from_time", metavar="TIME", help="Only records with this timestamp or a later one, ISO 8601.")
@click.option("--to", "to_time", metavar="TIME", help="Only records with an earlier timestamp than this.")
@click.option("--from-offset", multiple=True, callback=offsets, metavar="N", help=f"First offset. {OFFSETS}")
@click.option("--to-offset", multiple=True, callback=offsets, metavar="N", help=f"Offset to stop before. {OFFSETS}")
@click.option("--hour", "hours", multiple=True, metavar="HOUR", help="Only this hour, by its start; may be repeated.")
@click.option("--day", "days", multiple=True, metavar="DAY", help="Only this day; may be repeated.")
@click.option("--kafka-partitions", metavar="0,1,...", help="Only these kafka partitions.")
@click.option("--restore-id", metavar="ID", help="Go on with the restore of that id. Default: the run's id.")
@click.option("--after", metavar="ID", help="Of a source connector: only what the restore of that id did not find yet.")
@click.option("--create-topic", is_flag=True, help="Create T2 with the source's kafka partition count if it is absent.")
@click.option(
    "--target-kafka-partitions", type=click.IntRange(min=1), metavar="N", help="Kafka partitions of a created T2."
)
@click.option(
    "--replication-factor", type=click.IntRange(min=1), metavar="N", help="Of a created T2. Default: the brokers'."
)
@click.option("--restore-acls", is_flag=True, help="Give T2 the ACLs that were archived with T.")
@click.option("--key", "keys", multiple=True, metavar="KEY", help=f"Only this key, or hex:BYTES. {ANY_KEY}")
@click.option("--key-prefix", "key_prefixes", multiple=True, metavar="TEXT", help=f"Only keys that begin so. {ANY_KEY}")
@click.option("--key-regex", metavar="REGEX", help="Only keys that this Python regex matches as a whole.")
@click.option("--sql", metavar="CONDITION", help="Only records that this condition of DuckDB's SQL is true for.")
@click.option("--predicate", metavar="NAME", help="Only records that a Python function chooses, by its dotted name.")
@click.option("--latest-per-key", is_flag=True, help="Of each key only the last record that passes.")
@click.option(
    "--partitioning",
    default="source",
    show_default=True,
    metavar="HOW",
    help="source, murmur2 (Java's), crc32 (librdkafka's), or your own class by its dotted name.",
)
@click.option("--provenance-headers", is_flag=True, help="Add the source's offset, kafka partition and timestamp.")
@click.option(
    "--outgoing",
    "outgoing_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Properties with Connect's transforms.*, predicates.*, key.converter, value.converter, schema.registry.*.",
)
@click.option("--map-schema-ids", is_flag=True, help="Register archived schemas at the target and write its ids.")
@click.option("--delivery", type=click.Choice(DELIVERIES), default=DELIVERIES[0], show_default=True)
@click.option(
    "--behavior-on-error",
    type=click.Choice(BEHAVIOURS),
    help="Of bad objects and records. Default: fail, or what the file of a source connector says.",
)
@click.option("--thaw-days", type=click.IntRange(min=1), help="Ask for objects in cold storage, for so many days.")
@click.option("--thaw-tier", type=click.Choice(THAW_TIERS), help="How fast they come. Default: Standard.")
@click.option(
    "--thaw-seconds", type=click.FloatRange(min=0), default=0.0, help="How long to wait for them. Default: not at all."
)
@click.option("--allow-source-topic", is_flag=True, help="Allow T2 to be T itself: its archive holds all twice then.")
@click.option(
    "--allow-unsendable-timestamps", is_flag=True, help="Allow that records with timestamp 0 get the time of sending."
)
@click.option("--records-per-second", type=rate, metavar="R", help="The most records sent in a second.")
@click.option("--bytes-per-second", type=rate, metavar="R", help="The most bytes sent in a second.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and write nothing.")
@click.option("--exact", is_flag=True, help="On a dry run, read everything to count what filters let pass.")
@json_option
@click.pass_context
def restore(
    ctx: click.Context,
    /,
    *,
    connector: str,
    topics: tuple[str, ...],
    rename: tuple[str, str] | None,
    topic_map: tuple[str, ...],
    target_worker: Path | None,
    outgoing_file: Path | None,
    from_time: str | None,
    to_time: str | None,
    from_offset: Mapping[str, int],
    to_offset: Mapping[str, int],
    hours: tuple[str, ...],
    days: tuple[str, ...],
    keys: tuple[str, ...],
    key_prefixes: tuple[str, ...],
    kafka_partitions: str | None,
    after: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Replay archived records of a topic of CONNECTOR to another topic, as they were. Without a window: all of them.

    Of a source connector, the objects that its file describes are replayed; a RegexRouter in it may name the target.

    Exit status 1 if a dry run finds that the restore would be refused.
    """
    regex, replacement = rename or (None, None)
    terms: dict[str, Any] = dict(
        everything=from_time is None and to_time is None and not hours and not days,
        rename_regex=regex,
        rename_replacement=replacement,
        topic_map=_pairs(topic_map),
        target_worker=_absolute(target_worker),
        outgoing_file=_absolute(outgoing_file),
        from_time=from_time,
        to_time=to_time,
        from_offset=from_offset,
        to_offset=to_offset,
        hours=list(hours),
        days=list(days),
        record_keys=list(keys),
        key_prefixes=list(key_prefixes),
        kafka_partitions=numbers(kafka_partitions),
        **given,
    )
    found = connector_of(connector)
    if found.source is not None:
        outcome = run_foreign_restore(found, ForeignRestoreConfig(topics=list(topics), after=after, **terms))
    else:
        if after is not None:
            raise click.UsageError(f"--after is of source connectors: {connector} is none")
        named = any((given["to_topic"], rename, topic_map, outgoing_file))
        outcome = _restore_archived(connector, topics, RestoreConfig(**terms), is_named=named)
    report = {"topic": outcome.topic, "run_id": outcome.run_id, **outcome.events[0]}
    show(report, as_json, _lines(report))
    ctx.exit(1 if report["refusals"] else 0)


def _restore_archived(connector: str, topics: tuple[str, ...], config: RestoreConfig, *, is_named: bool) -> RunOutcome:
    if len(topics) != 1:
        raise click.UsageError("Missing option '--topic': one archived topic" if not topics else "name one --topic")
    if not is_named:
        raise click.UsageError(
            "nothing names the target: --to-topic, --rename, --topic-map, or --outgoing's RegexRouter"
        )
    [archived] = native_topics_of(connector, topics[0], "restore")
    return run_restore(archived, config)


def _absolute(path: Path | None) -> str | None:
    """The run may be executed again from another folder."""
    return None if path is None else str(path.absolute())


def _pairs(given: tuple[str, ...]) -> dict[str, str]:
    pairs = [text.partition("=") for text in given]
    if not all(source and equals and target for source, equals, target in pairs):
        raise click.UsageError(f"--topic-map {' '.join(given)}: not T=T2, such as orders=copy_of_orders")
    return {source: target for source, _, target in pairs}


def run_restore(topic: ArchivedTopic, config: RestoreConfig) -> RunOutcome:
    """A run of the topic's restore job on the hours of its window, or the newest: there the UI shows it."""
    keys = _hours(topic, config)
    return run_job(
        topic,
        topic.op_name("restore"),
        topic.key("restored"),
        keys,
        ops={topic.op_name("restored"): config},
        only_looks=config.dry_run,
    )


def run_foreign_restore(connector: ConnectorConfig, config: ForeignRestoreConfig) -> RunOutcome:
    """A run of a source connector's restore job."""
    name = connector.name
    ops = {foreign_op(name): config}
    topic, job_name = ArchivedTopic(connector, EVERY_TOPIC), op_name("restore", name)
    return run_job(topic, job_name, foreign_key(name), ops=ops, only_looks=config.dry_run)


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
    where = f"{report['topic']} -> {report['to_topic']}"
    return [
        f"{where}: {_said(report)}",
        *report["notes"],
        *report["gaps"],
        *(f"skipped: {line}" for line in report["skipped"]),
        *(f"would be refused: {reason}" for reason in report["refusals"]),
        *([] if report["dry_run"] else [f"restore id {report['restore_id']}, report {report['report']}"]),
    ]


def _said(report: dict[str, Any]) -> str:
    if report["already_finished"]:
        counts = f"{report['records']:,} records{_doubled(report)}"
        return (
            f"restore {report['restore_id']} was finished before, with {counts}. Nothing was sent or read now; what "
            f"follows is of then"
        )
    return _forecast(report) if report["dry_run"] else _done(report)


def _doubled(report: dict[str, Any]) -> str:
    return f"; the target holds {report['doubled_records']:,} once more than sent" if report["doubled_records"] else ""


def _forecast(report: dict[str, Any]) -> str:
    count = "a number of records that is not known yet"
    if report["exact"] or report["records"]:
        count = f"{'' if report['exact'] else 'at most '}{report['records']:,} records"
    if report["before_transforms"]:
        count += " (before transforms, which may leave some out or make more of them)"
    if report["refusals"]:
        return f"the restore of {count} would be refused"
    return f"{count} would be restored, roughly in {max(1.0, report['estimated_seconds']):.0f} s after Spark's start"


def _done(report: dict[str, Any]) -> str:
    seconds = report["replay_seconds"] + report["verify_seconds"]
    now = "" if report["sent_records"] == report["records"] else f" ({report['sent_records']:,} sent by this run)"
    done = f"{report['records']:,} records restored, each found in the target{now}, in {seconds:.1f} s"
    return f"{done}{_doubled(report)}"
