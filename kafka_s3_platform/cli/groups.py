"""`kafka-s3 groups`."""

import os
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import click

from kafka_s3_platform.cli.output import json_option, show
from kafka_s3_platform.cli.windows import target_kafka, target_worker_option
from kafka_s3_platform.config.files import FOLDER_VARIABLE, connectors_folder, load_connectors
from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.errors import ConfigError
from kafka_s3_platform.kafka.admin import ClusterAdmin
from kafka_s3_platform.restore.groups import (
    Rollback,
    Translation,
    apply,
    check_applicable,
    plan_and_report,
    roll_back,
    translated,
)
from kafka_s3_platform.restore.plan import RestorePlan
from kafka_s3_platform.restore.request import RestoreReport

COLUMNS = ("group_id", "kafka_partition", "source_offset", "target_offset", "precision", "reason")


@click.command
@click.argument("restore_id")
@click.option("--group", "groups", multiple=True, metavar="G", help="Only this consumer group. May be repeated.")
@click.option("--apply", "is_applied", is_flag=True, help="Commit the translated offsets at the target.")
@click.option("--dry-run", is_flag=True, help="With --apply: check whether that is possible, and change nothing.")
@click.option(
    "--allow-approximate", is_flag=True, help="Commit approximate offsets too; those without a place are left out."
)
@click.option(
    "--rollback",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Set back what an earlier --apply changed, which wrote FILE.",
)
@target_worker_option
@json_option
def groups(
    *,
    restore_id: str,
    groups: tuple[str, ...],
    is_applied: bool,
    dry_run: bool,
    allow_approximate: bool,
    rollback: Path | None,
    target_worker: Path | None,
    as_json: bool,
) -> None:
    """Show where consumer groups go on at the target of the finished restore RESTORE_ID, and, with --apply, set them.

    The groups are those of archive.consumer.groups, as they were when the topic was archived last. Their consumers must
    be stopped. What the groups had committed of the target before is written to a file first.
    """
    if rollback is not None and (is_applied or dry_run or groups):
        raise click.UsageError("--rollback undoes a whole --apply: no other option goes with it")
    config, plan, report = _restore(restore_id)
    with ClusterAdmin(target_kafka(target_worker) or config.kafka) as admin:
        if rollback is not None:
            lines = roll_back(admin, _rollback(rollback, restore_id))
            show({"restore_id": restore_id, "rolled_back": lines}, as_json, lines)
            return
        found = translated(config, plan, report, admin, groups)
        file = None
        if is_applied:
            file = _applied(admin, found, dry_run=dry_run, allow_approximate=allow_approximate)
    show(_document(found, file), as_json, _lines(found, file, is_applied=is_applied))


def _restore(restore_id: str) -> tuple[ConnectorConfig, RestorePlan, RestoreReport]:
    """The one connector here with a restore of that id."""
    files = load_connectors(connectors_folder(os.environ), os.environ)
    found = [(c, *documents) for c in files.connectors if (documents := plan_and_report(c, restore_id)) is not None]
    if not found:
        raise ConfigError(
            f"no connector here has a restore {restore_id}; its id is in the restore's report and run"
            f"{files.reservation}"
        )
    if len(found) > 1:
        names = ", ".join(config.name for config, _, _ in found)
        raise ConfigError(
            f"connectors {names} each have a restore {restore_id}; name a folder with only one of them in "
            f"{FOLDER_VARIABLE}"
        )
    return found[0]


def _rollback(file: Path, restore_id: str) -> Rollback:
    found = Rollback.from_json(file.read_bytes())
    if found.restore_id != restore_id:
        raise ConfigError(f"{file} is of restore {found.restore_id}, not of {restore_id}")
    return found


def _applied(admin: ClusterAdmin, found: Translation, *, dry_run: bool, allow_approximate: bool) -> Path | None:
    if dry_run:
        check_applicable(admin, found, allow_approximate=allow_approximate)
        return None
    moment = datetime.now(timezone.utc)
    file = Path(f"groups-{found.restore_id}-{moment:%Y%m%dT%H%M%S%f}.rollback.json")
    apply(admin, found, lambda content: _write(file, content), allow_approximate=allow_approximate)
    return file


def _write(file: Path, content: bytes) -> None:
    """It has to be on disk before anything is changed."""
    with file.open("xb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())


def _document(found: Translation, file: Path | None) -> dict[str, Any]:
    return {**asdict(found), "applied": file is not None, "rollback_file": str(file) if file else None}


def _lines(found: Translation, file: Path | None, *, is_applied: bool) -> list[str]:
    rows = [[_text(getattr(offset, name)) for name in COLUMNS] for offset in found.offsets]
    heads = ["group", "kafka partition", "source offset", "target offset", "", "why"]
    lines = [f"restore {found.restore_id}: {found.topic} -> {found.to_topic}", *_table([heads, *rows])]
    if file is not None:
        return [*lines, f"committed and read back; to undo: kafka-s3 groups {found.restore_id} --rollback {file}"]
    return [*lines, "could be committed; nothing is changed" if is_applied else "nothing is changed; --apply commits"]


def _text(value: Any) -> str:
    return "-" if value is None else str(getattr(value, "value", value))


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
