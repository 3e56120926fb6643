"""`kafka-s3 list`."""

import os
from collections.abc import Sequence
from typing import Any

import click

from kafka_s3_platform.cli.messages import align_columns, json_option, print_result
from kafka_s3_platform.connect.config.describe import CheckReport, check_report
from kafka_s3_platform.connect.config.files import find_conflicts
from kafka_s3_platform.connect.config.keys.table import Support
from kafka_s3_platform.core.config.folder import WORKER_FILE, find_connectors_folder, list_connector_files
from kafka_s3_platform.core.errors import ConfigError


@click.command
@json_option
@click.pass_context
def list(ctx: click.Context, as_json: bool) -> None:  # noqa: A001 - the command's name
    """List the connector files, and whether they load. Exit status 1 if one does not load.

    STATUS is about the file only. Dagster's UI shows what its runs do and whether they fail.
    """
    folder = find_connectors_folder(os.environ)
    if not folder.is_dir():
        raise ConfigError(f"{folder} is no folder; put connector files there, or run `kafka-s3 up` where one is")
    reports = [check_report(path, folder / WORKER_FILE, os.environ) for path in list_connector_files(folder)]
    conflicts = find_conflicts({report.path: report.config for report in reports if report.config})
    in_conflict = {path for conflict in conflicts for path in conflict.paths}
    rows = [_make_row(report, is_loaded=report.ok and report.path not in in_conflict) for report in reports]
    problems = [conflict.message for conflict in conflicts]
    print_result({"connectors": rows, "problems": problems}, as_json, [*_format_rows(rows), *problems])
    ctx.exit(0 if all(row["status"] == "loaded" for row in rows) else 1)


def _make_row(report: CheckReport, *, is_loaded: bool) -> dict[str, Any]:
    refused_keys = [f.key for f in (*report.findings, *report.worker_findings) if f.support is Support.REFUSED]
    return {
        "name": report.name,
        "class": report.connector_class,
        "file": str(report.path),
        "status": "loaded" if is_loaded else "refused",
        "refused_keys": refused_keys,
        "problems": [*report.problems],
    }


def _format_rows(rows: Sequence[dict[str, Any]]) -> Sequence[str]:
    if not rows:
        return ["there are no connector files"]
    cells = [("NAME", "CLASS", "STATUS", "FILE")]
    cells += [(row["name"] or "?", row["class"], _describe_status(row), row["file"]) for row in rows]
    return align_columns(cells)


def _describe_status(row: dict[str, Any]) -> str:
    if row["problems"]:
        return "refused: cannot be read"
    count = len(row["refused_keys"])
    if count:
        return f"refused: {count} key{'s' * (count > 1)}"
    if row["status"] == "loaded":
        return "loaded"
    return "refused: in conflict"
