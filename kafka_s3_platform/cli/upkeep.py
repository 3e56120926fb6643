"""`kafka-s3 upkeep`."""

import os
from collections.abc import Iterator
from dataclasses import asdict

import click

from kafka_s3_platform.cli.connector_files.names import connector_argument
from kafka_s3_platform.cli.output import json_option, print_result
from kafka_s3_platform.config.files import find_connector
from kafka_s3_platform.errors import ConfigError
from kafka_s3_platform.upkeep.index.run import UpkeepReport, keep_up_index


@click.command
@connector_argument
@click.option("--dry-run", is_flag=True, help="Print what would be done, and change nothing.")
@json_option
def upkeep(connector: str, dry_run: bool, as_json: bool) -> None:
    """Keep the index of CONNECTOR small: fold old rows, merge files, write a checkpoint, remove dead files.

    Runs may archive meanwhile. Killed at any moment, the same command goes on. The schedule `upkeep` does the same
    every night.
    """
    config = find_connector(connector, os.environ)
    if config.source is not None:
        raise ConfigError(f"{connector} is a source connector: it restores, and keeps no index")
    report = keep_up_index(config, dry_run)
    print_result(asdict(report), as_json, list(_format_report(report)))
    report.raise_refusal()


def _format_report(report: UpkeepReport) -> Iterator[str]:
    if report.version is None:
        yield f"{report.uri}: nothing was archived, so there is nothing to do"
        return
    would = "would be " if report.dry_run else ""
    fold = report.fold
    yield f"fold: {fold.hours:,} hours of {fold.topics:,} topics {would}folded, {fold.rows:,} rows {would}moved"
    if fold.is_overtaken:
        yield "fold: a run changed the state meanwhile, so it is folded another time"
    merge = report.merge
    yield f"merge: {merge.files:,} files of {len(merge.periods):,} periods {would}put together" + (
        "" if report.dry_run else f", to {merge.new_files:,} of {merge.new_bytes:,} bytes"
    )
    if merge.overtaken:
        yield f"merge: runs changed {', '.join(merge.overtaken)} meanwhile, so they are merged another time"
    yield f"checkpoint: {f'{would}written' if report.checkpoint else 'is there'}"
    removed = report.cleanup
    yield (
        f"dead files: {removed.files:,} of {removed.file_bytes:,} bytes {would}removed"
        if report.refused is None
        else "dead files: not removed, or not all of them"
    )
    if report.refused is None:
        yield (
            f"log: {removed.log_entries:,} entries and {removed.checkpoints:,} checkpoints of {removed.log_bytes:,} "
            f"bytes {would}removed"
        )
    yield f"{report.uri}: version {report.version}"
