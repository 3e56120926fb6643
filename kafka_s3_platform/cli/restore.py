"""`kafka-s3 restore`."""

import os
from typing import Any
from uuid import uuid4

import click
import dagster as dg

from kafka_s3_platform.cli.connector_files.names import connector_argument
from kafka_s3_platform.cli.output import Verdict, json_option, print_result
from kafka_s3_platform.cli.restore_options import add_restore_options, read_terms
from kafka_s3_platform.cli.runs import RunOutcome, find_native_topics, run_job
from kafka_s3_platform.config.files import find_connector
from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.defs.restore.config import (
    ArchivedTargetConfig,
    ForeignRestoreConfig,
    RestoreConfig,
    TargetConfig,
    WhatConfig,
)
from kafka_s3_platform.defs.restore.foreign import EVERY_TOPIC, make_foreign_key
from kafka_s3_platform.defs.restore.form import name_restore_job, name_restored_op
from kafka_s3_platform.defs.topic import ArchivedTopic
from kafka_s3_platform.errors import ConfigError

INCOMPLETE = 3
"""Exit status of a verified restore that lacks some of the requested records."""


@click.command
@connector_argument
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="T",
    help="Restore this topic. Required for a sink connector. For a source connector it may be repeated; default: the "
    "topics of its file, else every topic found.",
)
@add_restore_options
@json_option
@click.pass_context
def restore(
    ctx: click.Context,
    /,
    *,
    connector: str,
    topics: tuple[str, ...],
    as_json: bool,
    **options: Any,
) -> None:
    """Replay archived records to a topic, as they were.

    Restores every archived record of a topic of CONNECTOR, unless options select some. A record must pass all options
    that are set.

    If CONNECTOR is a source connector, or a sink of another format than our envelope, replays the objects that its file
    describes. A RegexRouter in the file of a source may name the target topics.

    Exit status 1 if a dry run finds that the restore would be refused, or if nothing could be restored. Exit status 3
    if a restore is verified, but some of the requested records are missing (in gaps of the archive, or left out) or in
    doubt, and if there was no record to restore.
    """
    terms = read_terms(options, topics)
    run_id = str(uuid4())
    if terms.how.restore_id is None:
        ctx.obj += ["--restore-id", run_id]
    config = find_connector(connector, os.environ)
    source = config if config.source is not None else config.reader
    if source is not None:
        outcome = run_foreign_restore(source, terms, run_id)
    elif config.unreadable:
        raise ConfigError(
            f"connector {connector} writes objects of format {config.layout.format}, and its file does not say how "
            f"they are read back: {'; '.join(config.unreadable)}"
        )
    else:
        outcome = _restore_archived(connector, terms, run_id)
    report = {"topic": outcome.topic, "run_id": outcome.run_id, **outcome.events[0]}
    print_result(report, as_json, _format_report(report))
    ctx.exit(_choose_exit_status(report))


def _choose_exit_status(report: dict[str, Any]) -> int:
    if report["refusals"]:
        return 1
    return 0 if report["dry_run"] or (report["complete"] and report["records"]) else INCOMPLETE


def _restore_archived(connector: str, terms: ForeignRestoreConfig, run_id: str) -> RunOutcome:
    # not needed to show the options
    from kafka_s3_platform.defs.restore.request import read_rename
    from kafka_s3_platform.restore.target_topic import name_target_topic

    topics, rule = terms.what.topics, read_rename(terms.to)
    if terms.what.after is not None:
        raise click.UsageError(f"--after is of source connectors: {connector} is none")
    if len(topics) != 1:
        raise click.UsageError("Missing option '--topic': one archived topic" if not topics else "name one --topic")
    if rule is None and not terms.values.outgoing_file:
        raise click.UsageError(
            "nothing names the target: --to-topic, --rename, --topic-map, or --outgoing's RegexRouter"
        )
    [archived] = find_native_topics(connector, topics[0], "restore")
    config = RestoreConfig(
        what=WhatConfig(**_take(terms.what, WhatConfig)),
        to=ArchivedTargetConfig(
            topic=name_target_topic(rule, archived.topic) if rule else "", **_take(terms.to, TargetConfig)
        ),
        values=terms.values,
        how=terms.how,
    )
    return run_restore(archived, config, run_id)


def _take(config: dg.Config, kind: type[dg.Config]) -> dict[str, Any]:
    """Return the fields of `config` that the class `kind` has too."""
    return {name: getattr(config, name) for name in kind.model_fields}


def run_restore(topic: ArchivedTopic, config: RestoreConfig, run_id: str) -> RunOutcome:
    """Run the restore job for the topic."""
    return run_job(
        topic,
        name_restore_job(topic.config.name),
        topic.key("restored"),
        ops={name_restored_op(topic.config.name): config},
        only_looks=config.how.dry_run,
        run_id=run_id,
    )


def run_foreign_restore(connector: ConnectorConfig, config: ForeignRestoreConfig, run_id: str) -> RunOutcome:
    """Run a source connector's restore job."""
    name = connector.name
    ops = {name_restored_op(name): config}
    topic = ArchivedTopic(connector, EVERY_TOPIC)
    job_name = name_restore_job(name)
    return run_job(topic, job_name, make_foreign_key(name), ops=ops, only_looks=config.how.dry_run, run_id=run_id)


def _format_report(report: dict[str, Any]) -> list[str | Verdict]:
    where = f"{report['topic']} -> {report['to_topic']}"
    return [
        Verdict(f"{where}: {_format_summary(report)}", _choose_exit_status(report) == 0),
        *report["notes"],
        *report["gaps"],
        *(f"skipped: {line}" for line in report["skipped"]),
        *(f"would be refused: {reason}" for reason in report["refusals"]),
        *([] if report["dry_run"] else [f"restore id {report['restore_id']}, report {report['report']}"]),
    ]


def _format_summary(report: dict[str, Any]) -> str:
    if report["already_finished"]:
        counts = f"{report['records']:,} records{_format_doubled(report)}"
        return (
            f"restore {report['restore_id']} was finished before, with {counts}. Nothing was sent or read now; "
            f"its result then: {report['verdict']}"
        )
    if report["dry_run"]:
        return _format_forecast(report)
    return _format_done(report)


def _format_doubled(report: dict[str, Any]) -> str:
    if report["doubled_records"]:
        return f"; the target holds {report['doubled_records']:,} once more than sent"
    return ""


def _format_forecast(report: dict[str, Any]) -> str:
    count = "an unknown number of records"
    if report["exact"] or report["records"]:
        count = f"{'' if report['exact'] else 'at most '}{report['records']:,} records"
    if report["before_transforms"]:
        count += " (before transforms, which may leave some out or make more of them)"
    if report["refusals"]:
        return f"the restore of {count} would be refused"
    return f"{count} would be restored, roughly in {max(1.0, report['estimated_seconds']):.0f} s after Spark's start"


def _format_done(report: dict[str, Any]) -> str:
    if not report["records"]:
        return str(report["verdict"])
    now = "" if report["sent_records"] == report["records"] else f" ({report['sent_records']:,} sent by this run)"
    done = f"{report['records']:,} records restored, each found in the target{now}, in {report['seconds']:.1f} s"
    return f"{done}. {report['verdict']}"
