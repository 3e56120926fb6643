"""`kafka-s3 check`."""

import os
from pathlib import Path

import click
import numpy as np

from kafka_s3_platform.cli.runs import json_option, show
from kafka_s3_platform.config.check import CheckReport, check_report
from kafka_s3_platform.config.files import WORKER_FILE
from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.config.sheet import Finding, KeyClass
from kafka_s3_platform.formats.envelope import EXTENSION
from kafka_s3_platform.partitioners.keys import segment_key
from kafka_s3_platform.partitioners.time_based import TimeBasedPartitioner


@click.command
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@json_option
@click.pass_context
def check(ctx: click.Context, file: Path, as_json: bool) -> None:
    """Tell what each key of the connector file FILE does here. Exit status 1 if it does not load.

    The cluster is that of the worker.properties beside it.
    """
    report = check_report(file, file.parent / WORKER_FILE, os.environ)
    show(_document(report), as_json, _lines(report))
    ctx.exit(0 if report.ok else 1)


def _document(report: CheckReport) -> dict[str, object]:
    return {
        "file": str(report.path),
        "name": report.name,
        "ok": report.ok,
        "example_key": report.config and _example_key(report.config),
        "problems": list(report.problems),
        "keys": [_finding(f) for f in report.findings],
        "worker_keys": [_finding(f) for f in report.worker_findings],
    }


def _example_key(config: ConnectorConfig) -> str:
    """The key of an object that begins with the first record of kafka partition 0, if that is of the start hour."""
    layout, start_ms = config.layout, int(config.archive.start_hour.timestamp() * 1000)
    [(_, folder)], _ = TimeBasedPartitioner(layout).encode(np.array([start_ms], np.int64))
    return segment_key(layout.topics_dir, config.topics[0], folder, 0, 0, layout.offset_pad_width, EXTENSION)


def _finding(finding: Finding) -> dict[str, str]:
    return {"key": finding.key, "class": finding.key_class.value, "value": finding.value, "effect": finding.effect}


def _lines(report: CheckReport) -> list[str]:
    lines = [f"{report.path}: {'loads' if report.ok else 'does not load'}", *report.problems]
    if report.config:
        lines.append(f"an object's key, for example: {_example_key(report.config)}")
    for path, findings in ((report.path, report.findings), (report.worker, report.worker_findings)):
        for key_class in KeyClass:
            found = [f for f in findings if f.key_class is key_class]
            if found:
                lines += [f"{path.name}, {key_class.value}:", *(f"  {f.key} = {f.value}: {f.effect}" for f in found)]
    return lines
