"""The commands of whole Schema Registries: `kafka-s3 registry archive`, `show` and `restore`."""

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from kafka_s3_platform.cli.connector_files.names import connector_argument
from kafka_s3_platform.cli.messages import Verdict, align_columns, json_option, print_result
from kafka_s3_platform.config.files import find_connector
from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.converters.registry import open_registry
from kafka_s3_platform.errors import ConfigError
from kafka_s3_platform.model.registry import RegistryContents
from kafka_s3_platform.registries.archive import (
    RegistryArchive,
    RegistryDocument,
    archive_registry,
    choose_registry,
    read_registry_file,
)
from kafka_s3_platform.registries.restore import RegistryReport, choose_subjects, restore_registry
from kafka_s3_platform.text import count_noun

INCOMPLETE = 3
"""The exit status if the target differs from the archive afterwards, as of a restore of records."""

MOST_LINES = 20

registry_option = click.option(
    "--registry", "url", metavar="URL", help="The registry, where CONNECTOR names several: its URL in the file."
)


@click.group
def registry() -> None:
    """Archive and restore whole Schema Registries: also schemas that no archived record names."""


@registry.command
@connector_argument
@registry_option
@json_option
def archive(*, connector: str, url: str | None, as_json: bool) -> None:
    """Archive all subjects, versions and settings of the Schema Registry that CONNECTOR names, if any has changed."""
    config = find_connector(connector, os.environ)
    document, is_new = archive_registry(config, choose_registry(config, url))
    change = "archived" if is_new else f"unchanged since {document.observed_at:%Y-%m-%d %H:%M:%S} UTC"
    _print(config, document, as_json, f"{change}: {_describe(document.contents)}")


@registry.command
@connector_argument
@registry_option
@click.option("--subjects", "with_subjects", is_flag=True, help="List the subjects, with their versions and ids.")
@json_option
def show(*, connector: str, url: str | None, with_subjects: bool, as_json: bool) -> None:
    """Show what is archived of the Schema Registry that CONNECTOR names."""
    config = find_connector(connector, os.environ)
    document = _read(config, url)
    headline = f"as of {document.observed_at:%Y-%m-%d %H:%M:%S} UTC: {_describe(document.contents)}"
    _print(config, document, as_json, headline, *(_list_subjects(document.contents) if with_subjects else ()))


@registry.command
@connector_argument
@registry_option
@click.option(
    "--to",
    "target_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Restore to the registry of this file: schema.registry.url, and its login and TLS as a converter has them."
    " Default: the registry of CONNECTOR.",
)
@click.option("--subject", "subjects", multiple=True, help="Restore this subject, and those its schemas refer to.")
@click.option("--dry-run", is_flag=True, help="Say what would be registered, and register nothing.")
@json_option
@click.pass_context
def restore(
    ctx: click.Context,
    *,
    connector: str,
    url: str | None,
    target_file: Path | None,
    subjects: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
) -> None:
    """Register what is archived of a Schema Registry, with its ids where the target can, and compare."""
    config = find_connector(connector, os.environ)
    contents = _read(config, url).contents
    if unknown := set(subjects) - {*contents.subjects}:
        raise ConfigError(
            f"no subject {' and no subject '.join(sorted(unknown))} is archived: `kafka-s3 registry show"
            f" {connector} --subjects` lists them"
        )
    chosen_contents = choose_subjects(contents, subjects) if subjects else contents
    target = open_registry(read_registry_file(target_file, os.environ) if target_file else choose_registry(config, url))
    report = restore_registry(chosen_contents, target, dry_run=dry_run)
    print_result({"registry": target.url, "dry_run": dry_run, **asdict(report)}, as_json, _format(report, dry_run))
    if report.differences:
        ctx.exit(INCOMPLETE)


def _read(config: ConnectorConfig, url: str | None) -> RegistryDocument:
    where = open_registry(choose_registry(config, url)).url
    document = RegistryArchive(config, where).read_newest()
    if document is None:
        raise ConfigError(
            f"nothing is archived of the Schema Registry at {where}: run `kafka-s3 registry archive {config.name}`"
        )
    return document


def _print(config: ConnectorConfig, document: RegistryDocument, as_json: bool, *lines: str) -> None:
    facts: dict[str, Any] = {"connector": config.name, "key": document.key, "observed_at": document.observed_at}
    where = f"{config.store.bucket}/{document.key}"
    print_result({**facts, **asdict(document.contents)}, as_json, [*lines, where])


def _describe(contents: RegistryContents) -> str:
    counts = [
        count_noun(len(contents.subjects), "subject"),
        count_noun(len(contents.versions), "version"),
        count_noun(len(contents.schemas), "schema"),
    ]
    deleted = f", {len(contents.deleted):,} of the versions soft-deleted" if contents.deleted else ""
    unreadable = (
        f"; {len(contents.unreadable):,} deleted versions the registry does not give" if contents.unreadable else ""
    )
    return f"{', '.join(counts)} of {contents.url}{deleted}{unreadable}"


def _list_subjects(contents: RegistryContents) -> list[str]:
    deleted = {*contents.deleted}
    rows = [
        (subject, str(version), str(schema.schema_id), schema.schema_type, "deleted" * ((subject, version) in deleted))
        for (subject, version), schema in sorted(contents.versions.items(), key=lambda item: item[0])
    ]
    return align_columns([("subject", "version", "id", "type", ""), *rows], numbers=(1, 2))


def _format(report: RegistryReport, dry_run: bool) -> list[str | Verdict]:
    archived = f"{count_noun(report.subjects, 'subject')} with {count_noun(report.versions, 'version')}"
    if dry_run:
        return [f"{count_noun(report.registered, 'version')} would be registered, of {archived}"]
    changed = sum(map(len, report.new_ids.values()))
    ids = (
        f"{count_noun(changed, 'schema')} got other ids: restore records with --map-schema-ids"
        if changed
        else "all ids are as archived"
    )
    lines: list[str | Verdict] = [f"{count_noun(report.registered, 'version')} registered, of {archived}; {ids}"]
    if not report.differences:
        return [*lines, Verdict("read back: all is there, as archived", is_good=True)]
    shown = [f"  {sentence}" for sentence in report.differences[:MOST_LINES]]
    more = [f"  and {len(report.differences) - MOST_LINES:,} more"] if len(report.differences) > MOST_LINES else []
    verdict = Verdict(f"read back: {count_noun(len(report.differences), 'difference')}", is_good=False)
    return [*lines, verdict, *shown, *more]
