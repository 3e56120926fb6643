"""`kafka-s3 check`."""

import os
from pathlib import Path

import click

from kafka_s3_platform.cli.runs import json_option, show
from kafka_s3_platform.config.check import CheckReport, check_report
from kafka_s3_platform.config.files import WORKER_FILE
from kafka_s3_platform.config.sheet import Finding, KeyClass


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
        "problems": list(report.problems),
        "keys": [_finding(f) for f in report.findings],
        "worker_keys": [_finding(f) for f in report.worker_findings],
    }


def _finding(finding: Finding) -> dict[str, str]:
    return {"key": finding.key, "class": finding.key_class.value, "value": finding.value, "effect": finding.effect}


def _lines(report: CheckReport) -> list[str]:
    lines = [f"{report.path}: {'loads' if report.ok else 'does not load'}", *report.problems]
    for path, findings in ((report.path, report.findings), (report.worker, report.worker_findings)):
        for key_class in KeyClass:
            found = [f for f in findings if f.key_class is key_class]
            if found:
                lines += [f"{path.name}, {key_class.value}:", *(f"  {f.key} = {f.value}: {f.effect}" for f in found)]
    return lines
