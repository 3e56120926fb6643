"""`kafka-s3 list`."""

import os
from collections.abc import Sequence
from typing import Any

import click

from kafka_s3_platform.cli.output import aligned, json_option, show
from kafka_s3_platform.config.check import CheckReport, check_report
from kafka_s3_platform.config.files import WORKER_FILE, conflicts, connector_files, connectors_folder
from kafka_s3_platform.config.sheet import KeyClass
from kafka_s3_platform.errors import ConfigError


@click.command
@json_option
def list(as_json: bool) -> None:  # noqa: A001 - the command's name
    """List the connector files: name, class, and whether they load."""
    folder = connectors_folder(os.environ)
    if not folder.is_dir():
        raise ConfigError(f"{folder} is no folder; put connector files there, or run `kafka-s3 up` where one is")
    reports = [check_report(path, folder / WORKER_FILE, os.environ) for path in connector_files(folder)]
    found = conflicts({report.path: report.config for report in reports if report.config})
    rows = [_row(report) for report in reports]
    show({"connectors": rows, "problems": found}, as_json, [*_lines(rows), *found])


def _row(report: CheckReport) -> dict[str, Any]:
    refused = [f.key for f in (*report.findings, *report.worker_findings) if f.key_class is KeyClass.REFUSED]
    return {
        "name": report.name,
        "class": report.connector_class,
        "file": str(report.path),
        "status": "loaded" if report.ok else "refused",
        "refused_keys": refused,
        "problems": [*report.problems],
    }


def _lines(rows: Sequence[dict[str, Any]]) -> Sequence[str]:
    if not rows:
        return ["there are no connector files"]
    cells = [("NAME", "CLASS", "STATUS", "FILE")]
    cells += [(row["name"] or "?", row["class"], _status(row), row["file"]) for row in rows]
    return aligned(cells)


def _status(row: dict[str, Any]) -> str:
    if row["problems"]:
        return "refused: cannot be read"
    count = len(row["refused_keys"])
    return f"refused: {count} key{'s' * (count > 1)}" if count else "loaded"
