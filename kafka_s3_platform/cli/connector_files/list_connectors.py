"""`kafka-s3 list`."""

import os
from collections.abc import Sequence
from typing import Any

import click

from kafka_s3_platform.cli.messages import align_columns, json_option, print_result
from kafka_s3_platform.cli.operating.health import UNKNOWN, describe_state
from kafka_s3_platform.connect.config.describe import CheckReport, check_report
from kafka_s3_platform.connect.config.files import find_conflicts
from kafka_s3_platform.connect.config.keys.table import Support
from kafka_s3_platform.core.config.folder import WORKER_FILE, find_connectors_folder, list_connector_files
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.model.health import ConnectorHealth
from kafka_s3_platform.operate.monitoring.overview import Overviews

LOOK_SECONDS = 10.0


@click.command
@json_option
@click.pass_context
def list(ctx: click.Context, as_json: bool) -> None:  # noqa: A001 - the command's name
    """List the connectors: which load and run, their lag and last run.

    STATE is about the connector's own work, in Kafka Connect's words. RUNNING: Dagster evaluates the sensor or schedule
    of its runs. PAUSED: this is turned off. UNASSIGNED: it is on, but Dagster's daemon does not evaluate it in time.
    FAILED: no run has succeeded since one failed. Exit status 1 if a file does not load. `kafka-s3 health` says what
    needs somebody.
    """
    folder = find_connectors_folder(os.environ)
    if not folder.is_dir():
        raise ConfigError(f"{folder} is no folder; put connector files there, or run `kafka-s3 up` where one is")
    reports = [check_report(path, folder / WORKER_FILE, os.environ) for path in list_connector_files(folder)]
    conflicts = find_conflicts({report.path: report.config for report in reports if report.config})
    in_conflict = {path for conflict in conflicts for path in conflict.paths}
    loaded = {r.path: r.config for r in reports if r.config is not None and r.ok and r.path not in in_conflict}
    healths = {health.connector: health for health in Overviews(LOOK_SECONDS).take([*loaded.values()])}
    by_path = {str(path): healths[config.name] for path, config in loaded.items()}
    rows = [_make_row(report, by_path.get(str(report.path))) for report in reports]
    problems = [conflict.message for conflict in conflicts]
    problems += {f"state not known: {health.history_error}": 0 for health in healths.values() if not health.history}
    lines = _format_rows([(row, by_path.get(row["file"])) for row in rows])
    print_result({"connectors": rows, "problems": problems}, as_json, [*lines, *problems])
    ctx.exit(0 if all(row["status"] == "loaded" for row in rows) else 1)


def _make_row(report: CheckReport, health: ConnectorHealth | None) -> dict[str, Any]:
    """Make the JSON of a file. `health` is None if it does not load."""
    refused_keys = [f.key for f in (*report.findings, *report.worker_findings) if f.support is Support.REFUSED]
    return {
        "name": report.name,
        "class": report.connector_class,
        "file": str(report.path),
        "status": "refused" if health is None else "loaded",
        "refused_keys": refused_keys,
        "problems": [*report.problems],
        **({} if health is None else describe_state(health)),
    }


def _format_rows(rows: Sequence[tuple[dict[str, Any], ConnectorHealth | None]]) -> Sequence[str]:
    """Return the lines of the table, one for each connector file."""
    if not rows:
        return ["there are no connector files"]
    cells = [("NAME", "STATUS", "STATE", "SINCE (UTC)", "LAG", "LAST RUN", "OFF", "CLASS", "FILE")]
    for row, health in rows:
        state = _format_state(health) if health else ("", "", "", "", "")
        cells.append((row["name"] or "?", _describe_status(row), *state, row["class"], row["file"]))
    return align_columns(cells, numbers=(4,))


def _format_state(health: ConnectorHealth) -> tuple[str, str, str, str, str]:
    """Return the cells about a connector's work: state, since when, lag, last run, and what is turned off."""
    state = health.state
    run = health.last_run
    return (
        state.name if state else UNKNOWN,
        f"{state.since:%Y-%m-%d %H:%M}" if state and state.since else "",
        "" if health.is_source else UNKNOWN if health.lag is None else f"{health.lag:,}",
        f"{run.describe()} {run.ended_at:%m-%d %H:%M}" if run else "",
        ", ".join(health.turned_off),
    )


def _describe_status(row: dict[str, Any]) -> str:
    """Describe the status of a file: loaded, or refused for a reason."""
    if row["problems"]:
        return "refused: cannot be read"
    count = len(row["refused_keys"])
    if count:
        return f"refused: {count} key{'s' * (count > 1)}"
    if row["status"] == "loaded":
        return "loaded"
    return "refused: in conflict"
