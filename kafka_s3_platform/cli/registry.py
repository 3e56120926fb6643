"""The commands of whole Schema Registries: `kafka-s3 registry archive`, `show` and `restore`."""

import os
from collections.abc import Collection, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from kafka_s3_platform.cli.messages import INCOMPLETE, Verdict, align_columns, json_option, print_result
from kafka_s3_platform.cli.options import connector_argument
from kafka_s3_platform.connect.config.files import find_connector
from kafka_s3_platform.connect.converters.registry import open_registry
from kafka_s3_platform.connect.converters.registry_contents import RegistryContents
from kafka_s3_platform.connect.registries.archive import (
    RegistryArchive,
    RegistryDocument,
    archive_registry,
    choose_registry,
    read_registry_file,
)
from kafka_s3_platform.connect.registries.restore import RegistryReport, choose_subjects, restore_registry
from kafka_s3_platform.core.config.settings import ConnectorConfig, RegistrySettings
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.text import count_noun

MOST_LINES = 20

registry_option = click.option(
    "--registry", "url", metavar="URL", help="The registry, where CONNECTOR names several: its URL in the file."
)
archived_option = click.option(
    "--registry",
    "url",
    metavar="URL",
    help="The registry, where CONNECTOR names several, or named another one before: its URL, or its name in the"
    " archive.",
)
document_option = click.option(
    "--document",
    "number",
    type=click.IntRange(1),
    metavar="N",
    help="This document of the archive. Default: the newest.",
)


@click.group
def registry() -> None:
    """Archive and restore whole Schema Registries: also schemas that no archived record names."""


@registry.command
@connector_argument
@registry_option
@json_option
def archive(*, connector: str, url: str | None, as_json: bool) -> None:
    """Archive all subjects, versions and settings of CONNECTOR's Schema Registry, if any has changed."""
    config = find_connector(connector, os.environ)
    document, is_new = archive_registry(config, choose_registry(config, url))
    change = "archived" if is_new else f"unchanged since {document.observed_at:%Y-%m-%d %H:%M:%S} UTC"
    lines: list[str | Verdict] = [f"{change}: {_describe_contents(document.contents)}"]
    if document.gone:
        lines.append(Verdict(_describe_gone(document.gone), is_good=False))
    _print_document(config, document, as_json, *lines)


@registry.command
@connector_argument
@archived_option
@document_option
@click.option("--subjects", "with_subjects", is_flag=True, help="List the subjects, with their versions and ids.")
@json_option
def show(*, connector: str, url: str | None, number: int | None, with_subjects: bool, as_json: bool) -> None:
    """Show the archived contents of CONNECTOR's Schema Registry."""
    config = find_connector(connector, os.environ)
    archive = _find_archive(config, url)
    document = _read_document(archive, number)
    headline = (
        f"document {document.number} of {max(archive.list_numbers())}, as of"
        f" {document.observed_at:%Y-%m-%d %H:%M:%S} UTC: {_describe_contents(document.contents)}"
    )
    _print_document(config, document, as_json, headline, *(_list_subjects(document.contents) if with_subjects else ()))


@registry.command
@connector_argument
@archived_option
@document_option
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
    number: int | None,
    target_file: Path | None,
    subjects: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
) -> None:
    """Register the archived contents of a Schema Registry, with their ids if the target allows it, and compare."""
    config = find_connector(connector, os.environ)
    archive = _find_archive(config, url)
    document = _read_complete(archive, number, subjects)
    contents = document.contents
    if unknown := set(subjects) - {*contents.subjects}:
        raise ConfigError(
            f"no subject {' and no subject '.join(sorted(unknown))} is archived: `kafka-s3 registry show"
            f" {connector} --subjects` lists them"
        )
    chosen_contents = choose_subjects(contents, subjects) if subjects else contents
    settings = read_registry_file(target_file, os.environ) if target_file else _choose_target(config, url)
    target = open_registry(settings)
    report = restore_registry(chosen_contents, target, dry_run=dry_run)
    print_result(
        {"registry": target.url, "dry_run": dry_run, **asdict(report)}, as_json, _format_report(report, dry_run)
    )
    if report.differences:
        ctx.exit(INCOMPLETE)


def restore_registries(
    connectors: Sequence[str], target_file: Path, *, dry_run: bool
) -> tuple[list[dict[str, Any]], list[str | Verdict]]:
    """Restore the archived registries of the connectors' files to the one named in `target_file`.

    Returns their documents and lines, as `kafka-s3 registry restore` does. If several connectors have the same
    registry, its newest document counts.

    Raises:
        ConfigError: no connector names a registry, or nothing is archived of one.
    """
    target = open_registry(read_registry_file(target_file, os.environ))
    newest: dict[str, RegistryDocument] = {}
    for config in (find_connector(name, os.environ) for name in connectors):
        for settings in config.records.registries:
            url = open_registry(settings).url
            document = _read_complete(_find_archive(config, url), None)
            if url not in newest or newest[url].observed_at < document.observed_at:
                newest[url] = document
    if not newest:
        raise ConfigError(f"--to-registry: no Schema Registry is named in the files of {' and '.join(connectors)}")
    documents: list[dict[str, Any]] = []
    lines: list[str | Verdict] = []
    for url, document in newest.items():
        report = restore_registry(document.contents, target, dry_run=dry_run)
        documents.append({"archived": url, "registry": target.url, "dry_run": dry_run, **asdict(report)})
        lines += [f"registry {url} -> {target.url}", *_format_report(report, dry_run)]
    return documents, lines


def _find_archive(config: ConnectorConfig, url: str | None) -> RegistryArchive:
    """Return the documents of the registry at `url`, or else of the one in the connector's file.

    Raises:
        ConfigError: there are none, or the file names no registry or several.
    """
    where = url or open_registry(choose_registry(config, None)).url
    archive = RegistryArchive(config, where)
    if not archive.list_numbers():
        names = archive.list_names()
        others = f"; archived are {', '.join(names)}: name one by --registry" if names else ""
        raise ConfigError(
            f"nothing is archived of the Schema Registry at {where}: run `kafka-s3 registry archive {config.name}`"
            f"{others}"
        )
    return archive


def _read_document(archive: RegistryArchive, number: int | None) -> RegistryDocument:
    """Read a document of the archive, by default the newest."""
    numbers = archive.list_numbers()
    if number is not None and number not in numbers:
        raise ConfigError(f"no document {number} is in {archive.folder}: there are {numbers[0]} to {numbers[-1]}")
    return archive.read(number or numbers[-1])


def _read_complete(archive: RegistryArchive, number: int | None, subjects: Collection[str] = ()) -> RegistryDocument:
    """Read a document, by default the newest. This one is refused if it lacks versions of earlier ones."""
    document = _read_document(archive, number)
    gone = [place for place in document.gone if not subjects or place[0] in subjects]
    if number is None and gone:
        raise ConfigError(
            f"{_describe_gone(gone)}. Nothing was registered: name the document by kafka-s3 registry restore --document"
            f" N, {document.number} for the newest one"
        )
    return document


def _choose_target(config: ConnectorConfig, url: str | None) -> RegistrySettings:
    """Return the registry of the connector's file, even if `url` names its predecessor."""
    urls = {open_registry(settings).url for settings in config.records.registries}
    return choose_registry(config, url if url in urls else None)


def _describe_gone(gone: Sequence[tuple[str, int, int]]) -> str:
    """Describe versions missing from the newest document, each by a subject, a version and an earlier document."""
    named = ", ".join(f"version {version} of {subject} (document {number})" for subject, version, number in gone[:3])
    more = f" and {len(gone) - 3:,} more" if len(gone) > 3 else ""
    return (
        f"{count_noun(len(gone), 'version')} of earlier documents are in the newest one no more: {named}{more}."
        " Somebody deleted them permanently, the login sees fewer subjects, or the registry has lost them"
    )


def _print_document(config: ConnectorConfig, document: RegistryDocument, as_json: bool, *lines: str | Verdict) -> None:
    """Print a document, as JSON or as these lines with its place."""
    facts: dict[str, Any] = {"connector": config.name, "key": document.key, "observed_at": document.observed_at}
    where = f"{config.store.bucket}/{document.key}"
    print_result({**facts, **asdict(document.contents)}, as_json, [*lines, where])


def _describe_contents(contents: RegistryContents) -> str:
    """Describe how much of a registry is archived."""
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
    """Return a table of all versions."""
    deleted = {*contents.deleted}
    rows = [
        (subject, str(version), str(schema.schema_id), schema.schema_type, "deleted" * ((subject, version) in deleted))
        for (subject, version), schema in sorted(contents.versions.items(), key=lambda item: item[0])
    ]
    return align_columns([("subject", "version", "id", "type", ""), *rows], numbers=(1, 2))


def _format_report(report: RegistryReport, dry_run: bool) -> list[str | Verdict]:
    """Return the lines about a restore of a registry."""
    archived = f"{count_noun(report.subjects, 'subject')} with {count_noun(report.versions, 'version')}"
    changed = sum(map(len, report.new_ids.values()))
    if dry_run:
        other_ids = report.obstacle or f"{count_noun(changed, 'schema')} there have others already"
        ids = f"; ids would be others: {other_ids}" if report.obstacle or changed else ""
        return [f"{count_noun(report.registered, 'version')} would be registered, of {archived}{ids}"]
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
