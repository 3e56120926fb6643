"""`kafka-s3 groups`."""

import os
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from itertools import chain
from pathlib import Path
from typing import Any

import click

from kafka_s3_platform.cli.messages import align_columns, json_option, print_result
from kafka_s3_platform.cli.options import read_target_kafka, target_worker_option
from kafka_s3_platform.connect.config.files import load_connectors
from kafka_s3_platform.core.config.folder import FOLDER_VARIABLE, find_connectors_folder
from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.restore.request import RestoreReport
from kafka_s3_platform.core.restore.source.topics_plan import TopicsPlan
from kafka_s3_platform.core.text import count_noun
from kafka_s3_platform.operate.groups.group_commit import (
    Rollback,
    apply_translations,
    check_translations,
    roll_back_groups,
)
from kafka_s3_platform.operate.groups.group_offsets import Translation, read_finished_restore, translate_groups

COLUMNS = ("group_id", "kafka_partition", "source_offset", "target_offset", "precision", "reason")


@click.command
@click.argument("restore_id")
@click.option(
    "--group",
    "groups",
    multiple=True,
    metavar="G",
    help="Use only this consumer group; may be repeated. Default: all of them.",
)
@click.option("--apply", "is_applied", is_flag=True, help="Commit the translated offsets at the target.")
@click.option(
    "--dry-run", is_flag=True, help="With --apply: check whether the offsets could be committed, and change nothing."
)
@click.option(
    "--allow-approximate",
    is_flag=True,
    help="With --apply: also commit approximate offsets, and leave out offsets that have no place in the target. "
    "Default: if there are any such offsets, commit nothing.",
)
@click.option(
    "--rollback",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Undo an earlier --apply: restore the offsets from the FILE that it wrote.",
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
    """Show, or commit, offsets of consumer groups for a restore.

    Shows each group's next offsets in the target topics of the finished restore RESTORE_ID. With --apply, commits these
    offsets there, for each group in all topics at once.

    The key archive.consumer.groups names the groups. Their offsets are the last ones archived with the topic. Stop
    their consumers first. --apply writes the groups' earlier offsets at the target to a file, for --rollback.
    """
    if rollback is not None and (is_applied or dry_run or groups):
        raise click.UsageError("--rollback undoes a whole --apply: no other option goes with it")
    connectors, (config, plan, report) = _find_restore(restore_id)
    with ClusterAdmin(read_target_kafka(target_worker) or config.kafka, begins=True) as admin:
        if rollback is not None:
            lines = roll_back_groups(admin, _read_rollback(rollback, restore_id))
            print_result({"restore_id": restore_id, "rolled_back": lines}, as_json, lines)
            return
        translations = translate_groups(config, plan, report, admin, groups, connectors)
        file = None
        if is_applied:
            file = _apply_offsets(admin, translations, dry_run=dry_run, allow_approximate=allow_approximate)
    document, lines = _describe_translations(restore_id, translations, file, is_applied=is_applied)
    print_result(document, as_json, lines)


def apply_groups(restore_id: str, target_worker: str | None) -> tuple[dict[str, Any], list[str]]:
    """Commit the offsets of all groups for a finished restore. Return the document, and lines.

    Raises PreflightError if a group has committed other offsets there, because it has gone on since.
    """
    connectors, (config, plan, report) = _find_restore(restore_id)
    worker = None if target_worker is None else Path(target_worker)
    with ClusterAdmin(read_target_kafka(worker) or config.kafka, begins=True) as admin:
        translations = translate_groups(config, plan, report, admin, (), connectors)
        file = _apply_offsets(admin, translations, dry_run=False, allow_approximate=False, sets_back=False)
    return _describe_translations(restore_id, translations, file, is_applied=True)


def _describe_translations(
    restore_id: str, translations: Sequence[Translation], file: Path | None, *, is_applied: bool
) -> tuple[dict[str, Any], list[str]]:
    """Return the JSON and the lines of the command. `file` is for a rollback, None if nothing was committed."""
    document = {
        "restore_id": restore_id,
        "topics": [asdict(translation) for translation in translations],
        "applied": file is not None,
        "rollback_file": str(file) if file else None,
    }
    tables = chain.from_iterable(map(_format_translation, translations))
    return document, [*tables, _format_outcome(translations, file, is_applied=is_applied)]


def _find_restore(
    restore_id: str,
) -> tuple[Sequence[ConnectorConfig], tuple[ConnectorConfig, TopicsPlan, RestoreReport]]:
    """Find the connector of a restore. Return all connectors, and this one with the restore's plan and report."""
    files = load_connectors(find_connectors_folder(os.environ), os.environ)
    matches = [
        (c, *documents) for c in files.connectors if (documents := read_finished_restore(c, restore_id)) is not None
    ]
    if not matches:
        raise ConfigError(
            f"no connector here has a restore {restore_id}; its id is in the restore's report and run"
            f"{files.reservation}"
        )
    if len(matches) > 1:
        names = ", ".join(config.name for config, _, _ in matches)
        raise ConfigError(
            f"connectors {names} each have a restore {restore_id}; name a folder with only one of them in "
            f"{FOLDER_VARIABLE}"
        )
    return files.connectors, matches[0]


def _read_rollback(file: Path, restore_id: str) -> Rollback:
    """Read the rollback file of a commit. Raises ConfigError if it belongs to another restore."""
    rollback = Rollback.from_json(file.read_bytes())
    if rollback.restore_id != restore_id:
        raise ConfigError(f"{file} is of restore {rollback.restore_id}, not of {restore_id}")
    return rollback


def _apply_offsets(
    admin: ClusterAdmin,
    translations: Sequence[Translation],
    *,
    dry_run: bool,
    allow_approximate: bool,
    sets_back: bool = True,
) -> Path | None:
    """Commit the offsets, and return the rollback file. With `dry_run` only check, and return None."""
    if dry_run:
        check_translations(admin, translations, allow_approximate=allow_approximate)
        return None
    moment = datetime.now(timezone.utc)
    file = Path(f"groups-{translations[0].restore_id}-{moment:%Y%m%dT%H%M%S%f}.rollback.json")
    apply_translations(
        admin,
        translations,
        lambda content: _write_durably(file, content),
        allow_approximate=allow_approximate,
        sets_back=sets_back,
    )
    return file


def _write_durably(file: Path, content: bytes) -> None:
    """Write a file and wait until it is on disk. Only then may the group's offsets be changed."""
    with file.open("xb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())


def _format_translation(translation: Translation) -> list[str]:
    """Return the lines about the offsets of one topic."""
    rows = [[_format_cell(getattr(offset, name)) for name in COLUMNS] for offset in translation.offsets]
    heads = ["group", "kafka partition", "source offset", "target offset", "", "why"]
    head = f"restore {translation.restore_id}: {translation.topic} -> {translation.to_topic}"
    return [head, *align_columns([heads, *rows])]


def _format_outcome(translations: Sequence[Translation], file: Path | None, *, is_applied: bool) -> str:
    """Return the last line: how many offsets were committed and how to undo that, or how to commit them."""
    if file is None:
        return "could be committed; nothing is changed" if is_applied else "nothing is changed; --apply commits"
    offsets = [*chain.from_iterable(translation.offsets for translation in translations)]
    placed_count = sum(offset.target_offset is not None for offset in offsets)
    text = f"{count_noun(placed_count, 'offset')} committed and read back"
    if missing_count := len(offsets) - placed_count:
        text += f", {missing_count} not committed, having no place at the target"
    return f"{text}; to undo: kafka-s3 groups {translations[0].restore_id} --rollback {file}"


def _format_cell(value: Any) -> str:
    """Return the text of a cell, `-` for None."""
    return "-" if value is None else str(getattr(value, "value", value))
