"""`kafka-s3 rehearse`."""

import os
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

import click
import msgspec

from kafka_s3_platform.cli.messages import Verdict, align_columns, json_option, print_result
from kafka_s3_platform.cli.options import connectors_argument, read_target_kafka, target_worker_option
from kafka_s3_platform.cli.runs import raise_failures
from kafka_s3_platform.connect.config.files import find_connector
from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.defs.resources import SparkResource
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.model.silence import try_each
from kafka_s3_platform.core.restore.evidence import Evidence
from kafka_s3_platform.core.status.discovery import find_topics_folder, resolve_now
from kafka_s3_platform.core.status.risk import describe_time
from kafka_s3_platform.core.text import count_noun
from kafka_s3_platform.operate.defs.warm_spark import choose_runner
from kafka_s3_platform.operate.monitoring.overview import load_all
from kafka_s3_platform.operate.rehearsal.rehearse import rehearse_archive


@click.command
@connectors_argument
@target_worker_option
@json_option
@click.pass_context
def rehearse(ctx: click.Context, connectors: Sequence[str], target_worker: Path | None, as_json: bool) -> None:
    """Restore drawn hours of each topic to a Kafka that is started for it, compare, and remove them.

    Covers each CONNECTOR, or all whose files have archive.rehearsal.period.days. Draws the hours that came back longest
    ago, so many that with a rehearsal a day each hour has its turn within the period (30 days if the file names none).

    With --target-worker, its cluster is used, and the topics rehearsal-* are deleted there. Nothing of the archive is
    changed. The comparison is stored as evidence. Exit status 1 if something did not come back.
    """
    configs = {config.name: config for config in _find_configs(connectors)}
    target = read_target_kafka(target_worker)
    spark = SparkResource(choose_runner)
    documents, failures = try_each(configs, lambda name: rehearse_archive(configs[name], spark, target))
    lines = chain.from_iterable(_format(name, document) for name, document in documents.items())
    print_result({"connectors": msgspec.to_builtins(documents)}, as_json, [*lines])
    raise_failures(failures)
    ctx.exit(0 if all(document is None or document.is_complete for document in documents.values()) else 1)


def _find_configs(connectors: Sequence[str]) -> Iterator[ConnectorConfig]:
    """Yield the named connectors, or else those with a rehearsal period. Raises ConfigError if there is none."""
    configs = [find_connector(name, os.environ) for name in connectors] or load_all()[0]
    chosen_configs = [config for config in configs if connectors or config.archive.rehearsal_days]
    if not chosen_configs:
        raise ConfigError(
            "no connector file has archive.rehearsal.period.days: set it, or name a CONNECTOR to rehearse now"
        )
    for config in chosen_configs:
        yield config if config.source is not None else resolve_now(config, find_topics_folder())


def _format(name: str, document: Evidence | None) -> Iterator[str | Verdict]:
    """Yield the lines about the rehearsal of a connector. `document` is None if there was nothing to rehearse."""
    if document is None:
        yield f"{name}: no hour is over and has records, so nothing was rehearsed"
        return
    heads = ["topic", "records", "bytes", ""]
    rows = [[t.topic, f"{t.records:,}", f"{t.record_bytes:,}", t.verdict] for t in document.topics]
    head, *lines = align_columns([heads, *rows], numbers=(1, 2))
    yield head
    for line, topic in zip(lines, document.topics, strict=True):
        yield Verdict(line, topic.is_complete)
        yield from (f"  {sentence}" for sentence in topic.left_out)
    turns = document.standing.turns
    proven = sum(topic.count_proven(document.finished_at) for topic in turns.values())
    seconds = document.standing.estimate_return(turns)
    estimate = (
        "not known" if seconds is None else f"about {describe_time(max(60.0, seconds))} at the rate of this rehearsal"
    )
    hours = count_noun(sum(topic.hour_count for topic in turns.values()), "hour")
    came_back = f"{proven:,} of {hours} came back within their period"
    yield f"{name}: {came_back}; a restore of all: {estimate}; evidence {document.number}"
