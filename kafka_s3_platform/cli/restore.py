"""`kafka-s3 restore`. Its options are made from the fields of a run's config."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar, get_args
from uuid import uuid4

import click
import dagster as dg
from annotated_types import Ge
from pydantic.fields import FieldInfo

from kafka_s3_platform.cli.groups import apply_groups
from kafka_s3_platform.cli.messages import INCOMPLETE, Verdict, align_columns, json_option, print_result
from kafka_s3_platform.cli.options import complete_connector, parse_numbers, parse_offsets
from kafka_s3_platform.cli.registry import restore_registries
from kafka_s3_platform.cli.runs import RunsOfTopics, find_native_topics, raise_failures, run_assets
from kafka_s3_platform.connect.config.files import find_connector
from kafka_s3_platform.connect.config.keys.values import parse_rate
from kafka_s3_platform.connect.defs.restore.foreign import EVERY_TOPIC, make_foreign_key
from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.defs.restore.config import (
    ArchivedTargetConfig,
    ForeignRestoreConfig,
    RestoreConfig,
    RestoreOption,
    TargetConfig,
    WhatConfig,
    find_options,
    list_fields,
)
from kafka_s3_platform.core.defs.restore.form import name_restore_job
from kafka_s3_platform.core.defs.restore.values import allow_paths
from kafka_s3_platform.core.defs.topic import TopicAssets
from kafka_s3_platform.core.errors import ConfigError, PlatformError, PreflightError
from kafka_s3_platform.core.instance.work import name_restored_op
from kafka_s3_platform.core.text import count_noun

C = TypeVar("C", bound=Callable[..., Any])

_OPTIONS = find_options(ForeignRestoreConfig)
_FIELDS = list_fields(ForeignRestoreConfig)
_NAMES = {path: option.name or f"--{path.rpartition('.')[2].replace('_', '-')}" for path, option in _OPTIONS.items()}


def add_restore_options(command: C) -> C:
    """Add the option of each field to a command, in the order of the fields."""
    for path in reversed(_OPTIONS):
        option = _OPTIONS[path]
        field = _FIELDS[path]
        command = click.option(
            _NAMES[path],
            _name_parameter(path),
            metavar=option.metavar,
            help=option.help or _format_help(field.description or ""),
            default=field.default if field.default_factory is None else None,
            show_default=isinstance(field.default, str),
            nargs=1 if option.second is None else 2,
            **_choose_attributes(field, option),
        )(command)
    return command


def read_terms(values: Mapping[str, Any], topics: Sequence[str]) -> ForeignRestoreConfig:
    """Make a config of the values of the options. Without times and offsets, it selects everything."""
    terms: dict[str, Any] = {"what": {"topics": list(topics)}, "to": {}, "values": {}, "how": {}}
    for path, option in _OPTIONS.items():
        value = values[_name_parameter(path)]
        if option.second is not None:
            value, second = value or (None, None)
            _put(terms, option.second, second)
        _put(terms, path, value)
    config = ForeignRestoreConfig(**terms)
    selection = config.what
    is_open = not (selection.has_times or selection.from_offset or selection.to_offset)
    return config.model_copy(update={"what": selection.model_copy(update={"everything": is_open})})


def _put(terms: dict[str, Any], path: str, value: Any) -> None:
    """Set the field at a path such as `what.topics`."""
    group, _, name = path.partition(".")
    terms[group][name] = value


def _name_parameter(path: str) -> str:
    """Return the name of the parameter of a field, for click: it allows no dots."""
    return path.replace(".", "__")


def _format_help(description: str) -> str:
    """Return a field's description with names of options instead of fields."""
    return re.sub("`(.*?)`", lambda match: _NAMES.get(match[1], match[1]), description)


def _name_options(message: str) -> str:
    """Return an error's message with names of options instead of fields, and without fields that stand beside them."""
    fields = "|".join(map(re.escape, sorted(_NAMES, key=len, reverse=True)))
    message = re.sub(rf" \((?:{fields})\)", "", message)
    # Names of topics and files have dots too: `move.to.topic` is no field.
    return re.sub(rf"(?<![\w.-])(?:{fields})(?![\w-]|\.\w)", lambda match: _NAMES[match[0]], message)


def _choose_attributes(field: FieldInfo, option: RestoreOption) -> Mapping[str, Any]:
    """Return the attributes of a click option for the field's type."""
    if option.choices:
        return {"type": click.Choice(option.choices)}
    if option.is_file:
        return {"type": click.Path(exists=True, dir_okay=False, path_type=Path), "callback": _make_absolute}
    kind = _strip_none(field.annotation)
    lowest: Any = next((bound.ge for bound in field.metadata if isinstance(bound, Ge)), None)
    if kind is int:
        return {"type": click.IntRange(min=lowest)}
    if kind is float:
        return {"type": parse_rate if lowest is None else click.FloatRange(min=lowest)}
    return _BY_TYPE[kind]


def _strip_none(annotation: Any) -> Any:
    """Return `str` for `str | None`, and any other type as it is."""
    parts = get_args(annotation)
    return parts[0] if NoneType in parts else annotation


def _make_absolute(ctx: click.Context, param: click.Parameter, path: Path | None) -> str | None:  # noqa: ARG001 - click's signature
    """Return the absolute path, since the run may be executed again from another folder."""
    return None if path is None else str(path.absolute())


def _parse_pairs(ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:  # noqa: ARG001 - click's signature
    """Parse several `T=T2`."""
    pairs = [text.partition("=") for text in texts]
    if not all(source and equals and target for source, equals, target in pairs):
        raise click.UsageError(f"{param.opts[0]} {' '.join(texts)}: not T=T2, such as orders=copy_of_orders")
    return {source: target for source, _, target in pairs}


_BY_TYPE: Mapping[Any, Mapping[str, Any]] = {
    str: {},
    bool: {"is_flag": True},
    list[str]: {"multiple": True},
    list[int]: {"callback": parse_numbers},
    Mapping[str, int]: {"multiple": True, "callback": parse_offsets},
    Mapping[str, str]: {"multiple": True, "callback": _parse_pairs},
}


@click.command
@click.argument("connectors", metavar="CONNECTOR...", nargs=-1, required=True, shell_complete=complete_connector)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="T",
    help="Restore this topic; may be repeated. Required for a sink connector, or --topics, or --all-topics. For a "
    "source connector, default: the topics of its file, else every topic found.",
)
@click.option("--all-topics", "all_topics", is_flag=True, help="Restore all topics of the connector.")
@add_restore_options
@click.option(
    "--to-registry",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="First restore the archived Schema Registries of the connectors to that of FILE, as registry restore --to.",
)
@click.option(
    "--groups",
    "with_groups",
    is_flag=True,
    help="When all is restored, commit the archived offsets of consumer groups, as groups --apply.",
)
@json_option
@click.pass_context
def restore(
    ctx: click.Context,
    /,
    *,
    connectors: tuple[str, ...],
    topics: tuple[str, ...],
    all_topics: bool,
    to_registry: Path | None,
    with_groups: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Replay archived records to topics, as they were.

    Restores every archived record of topics of CONNECTOR, unless options select some. A record must pass all options.

    Several topics are one restore, with one restore id. All are checked before the first record. A topic that fails
    does not stop the others. They may be of several connectors, if --topics or --all-topics chooses them.

    If CONNECTOR is a source connector, or a sink of another format than our envelope, replays the objects of its file.
    A RegexRouter in the file of a source may name the target topics.

    Exit status 1 if a dry run finds a reason to refuse, or if a topic could not be restored. Exit status 3 if a
    restore is verified, but some of the requested records are missing (in gaps of the archive, or left out) or in
    doubt, and if there was no record to restore.
    """
    connector, *others = dict.fromkeys(connectors)
    pattern = _choose_pattern(topics, options["what__topics_regex"], others, is_all=all_topics)
    terms = read_terms({**options, "what__topics_regex": pattern}, topics)
    run_id = str(uuid4())
    if terms.how.restore_id is None:
        ctx.obj += ["--restore-id", run_id]
    run = _prepare_run(connector, others, terms, run_id)
    around: dict[str, Any] = {}
    lines: list[str | Verdict] = []
    if to_registry is not None:
        around, lines = _restore_registries([connector, *others], to_registry, terms)
    outcomes, failures = run()
    reports = [{"topic": o.topic, "run_id": o.run_id, **o.events[0]} for o in outcomes if o.events]
    try:
        if with_groups and reports and not failures and not terms.how.dry_run:
            around["groups"], of_groups = apply_groups(reports[0]["restore_id"], terms.to.worker)
            lines += of_groups
    finally:
        if reports:
            document, of_records = _describe_reports(reports, failures)
            print_result({**document, **around}, as_json, [*of_records, *lines])
    raise_failures(failures)
    statuses = [*map(_choose_exit_status, reports)] or [INCOMPLETE]
    statuses += (INCOMPLETE for registry in around.get("registries", ()) if registry["differences"])
    ctx.exit(max(statuses, key=_SEVERITY.index))


def _prepare_run(
    connector: str, others: Sequence[str], terms: ForeignRestoreConfig, run_id: str
) -> Callable[[], RunsOfTopics]:
    """Return the run of the restore, to be called.

    Raises:
        ConfigError: no restore can use a value; the message names its option. Nothing was changed yet.
    """
    config = find_connector(connector, os.environ)
    source = config if config.source is not None else config.reader
    if source is None and config.unreadable:
        raise ConfigError(
            f"connector {connector} writes objects of format {config.layout.format}, and its file does not say how "
            f"they are read back: {'; '.join(config.unreadable)}"
        )
    try:
        with allow_paths():
            if source is not None:
                return _prepare_foreign(source, terms, run_id)
            return _prepare_archived(connector, others, terms, run_id)
    except ConfigError as err:
        raise err.retell(_name_options(err.text)) from err


def _prepare_foreign(source: ConnectorConfig, terms: ForeignRestoreConfig, run_id: str) -> Callable[[], RunsOfTopics]:
    """Check the config for a restore of objects that others wrote. Return the run, to be called."""
    # not needed to show the options
    from kafka_s3_platform.connect.defs.restore.foreign_request import make_foreign_request
    from kafka_s3_platform.core.restore.filters.stage import check_filter

    restore_id = terms.how.restore_id or run_id
    check_filter(make_foreign_request(TopicAssets(source, EVERY_TOPIC), terms, restore_id, run_id).request.records)
    return lambda: run_assets(
        {make_foreign_key(source.name): EVERY_TOPIC},
        name_restore_job(source.name),
        ops={name_restored_op(source.name): terms},
        only_looks=terms.how.dry_run,
        run_id=run_id,
    )


def _restore_registries(
    connectors: Sequence[str], file: Path, terms: ForeignRestoreConfig
) -> tuple[dict[str, Any], list[str | Verdict]]:
    """Restore the registries. Refuse to go on if schemas have other ids there, and records keep theirs."""
    reports, lines = restore_registries(connectors, file, dry_run=terms.how.dry_run)
    changed = sum(map(len, chain.from_iterable(report["new_ids"].values() for report in reports)))
    reasons = [f"{count_noun(changed, 'schema')} got other ids"] if changed else []
    reasons += (f"schemas would get other ids ({r['obstacle']})" for r in reports if r["obstacle"])
    if reasons and not terms.values.map_schema_ids:
        raise PreflightError(
            f"{'; '.join(reasons)} in the registry of {file}, and records name the archived ones. No record was sent: "
            f"add --map-schema-ids --outgoing {file}"
        )
    return {"registries": reports}, lines


def _choose_pattern(topics: Sequence[str], regex: str | None, others: Sequence[str], *, is_all: bool) -> str | None:
    """Return the regular expression of the topics, None if they are named. UsageError if options contradict."""
    if bool(topics) + is_all + (regex is not None) > 1:
        raise click.UsageError("--topic, --topics and --all-topics each choose the topics: keep one")
    pattern = ".*" if is_all else regex
    if others and pattern is None:
        raise click.UsageError("topics of several connectors are chosen by --topics or --all-topics")
    return pattern


_SEVERITY = (0, INCOMPLETE, 1)
"""Exit statuses, the worst one last."""


def _choose_exit_status(report: dict[str, Any]) -> int:
    """Return the exit status for a report of a topic, see the help of the command."""
    together = report.get("all_topics", {"refusals": [], "skipped": []})
    if report["refusals"] or together["refusals"]:
        return 1
    is_good = report["complete"] and report["records"] and not together["skipped"]
    return 0 if report["dry_run"] or is_good else INCOMPLETE


def _describe_reports(
    reports: Sequence[dict[str, Any]], failures: Mapping[str, PlatformError]
) -> tuple[dict[str, Any], list[str | Verdict]]:
    """Return the document and the lines: of the only topic, or of several with what they have in common."""
    if len(reports) == 1 and not failures:
        return reports[0], _format_report(reports[0])
    shared = {name: reports[0].get(name) for name in ("restore_id", "run_id", "report", "dry_run", "all_topics")}
    document = {
        **shared,
        "records": sum(report["records"] for report in reports),
        "sent_records": sum(report["sent_records"] for report in reports),
        "topics": reports,
        "failures": {topic: str(err) for topic, err in failures.items()},
    }
    return document, _format_reports(reports, failures)


def _format_reports(reports: Sequence[dict[str, Any]], failures: Mapping[str, PlatformError]) -> list[str | Verdict]:
    """Return the lines about several topics: a table, then what is to be known of them."""
    heads = ["topic", "target", "records", "missing", "exact", "verified", "seconds", ""]
    rows = [*map(_format_row, reports), *([topic, "", "", "", "", "no", "", "not restored"] for topic in failures)]
    head, *lines = align_columns([heads, *rows], numbers=(2, 6))
    statuses = [*map(_choose_exit_status, reports), *([1] * len(failures))]
    together = reports[0].get("all_topics", {"refusals": [], "skipped": []})
    notes: list[str | Verdict] = []
    for report in reports:
        notes += (f"{report['topic']}: {note}" for note in (*report["notes"], *report["gaps"]))
    return [
        head,
        *(Verdict(line, status == 0) for line, status in zip(lines, statuses, strict=True)),
        *notes,
        *(f"skipped: {line}" for line in together["skipped"]),
        *(f"would be refused: {reason}" for reason in together["refusals"]),
        *([] if reports[0]["dry_run"] else [_name_documents(reports[0])]),
    ]


def _format_row(report: dict[str, Any]) -> list[str]:
    """Return the cells of a topic."""
    missing = "; ".join(report["missing"]) or "nothing"
    is_exact, is_verified = ("yes" if report[name] else "no" for name in ("exact", "verified"))
    counts = (f"{report['records']:,}", missing, is_exact, is_verified, f"{report['seconds']:.1f}")
    return [report["topic"], report["to_topic"], *counts, report["verdict"]]


def _name_documents(report: dict[str, Any]) -> str:
    """Return the line that names the restore and its report."""
    return f"restore id {report['restore_id']}, report {report['report']}"


def _prepare_archived(
    connector: str, others: Sequence[str], terms: ForeignRestoreConfig, run_id: str
) -> Callable[[], RunsOfTopics]:
    """Check the options for a restore of the archive. Return the run, to be called."""
    # not needed to show the options
    from kafka_s3_platform.core.defs.restore.request import make_archive_source, read_rename
    from kafka_s3_platform.core.restore.filters.stage import check_filter
    from kafka_s3_platform.core.restore.target_topic import match_names

    names = list(dict.fromkeys(terms.what.topics))
    regex = terms.what.topics_regex
    if terms.what.after is not None:
        raise click.UsageError(f"--after is for source connectors only, and {connector} is not one")
    if not names and regex is None:
        raise click.UsageError("Missing option '--topic': an archived topic, or --topics REGEX, or --all-topics")
    if read_rename(terms.to) is None and not terms.values.outgoing_file:
        raise click.UsageError(
            "nothing names the target: --to-topic, --rename, --topic-map, or --outgoing's RegexRouter"
        )
    if regex is None:
        topics = list(chain.from_iterable(find_native_topics(connector, name, "restore") for name in names))
    else:
        archived = chain.from_iterable(find_native_topics(name, None, "restore") for name in (connector, *others))
        by_name = {(topic.config.name, topic.topic): topic for topic in archived}
        matching = set(match_names(regex, [name for _, name in by_name]))
        topics = [topic for (_, name), topic in by_name.items() if name in matching]
    # The run is of the first topic's connector, which may not be the first that was named.
    others = list(dict.fromkeys(topic.config.name for topic in topics))[1:]
    config = RestoreConfig(
        what=WhatConfig(**(_take(terms.what, WhatConfig) | {"connectors": list(others)})),
        to=ArchivedTargetConfig(topic=terms.to.topic or "", **_take(terms.to, TargetConfig)),
        values=terms.values,
        how=terms.how,
    )
    check_filter(make_archive_source(topics, config, terms.how.restore_id or run_id, run_id).request.records)
    return lambda: run_restore(topics, config, run_id)


def _take(config: dg.Config, kind: type[dg.Config]) -> dict[str, Any]:
    """Return the fields of `config` that the class `kind` has too."""
    return {name: getattr(config, name) for name in kind.model_fields}


def run_restore(topics: Sequence[TopicAssets], config: RestoreConfig, run_id: str) -> RunsOfTopics:
    """Run the restore job of the first topic's connector. None is restored if another run changes one of them."""
    connector = topics[0].config.name
    return run_assets(
        {topic.key("restored"): topic.topic for topic in topics},
        name_restore_job(connector),
        ops={name_restored_op(connector): config},
        only_looks=config.how.dry_run,
        run_id=run_id,
        is_together=True,
    )


def _format_report(report: dict[str, Any]) -> list[str | Verdict]:
    """Return the lines about the only topic."""
    head = f"{report['topic']} -> {report['to_topic']}"
    return [
        Verdict(f"{head}: {_format_summary(report)}", _choose_exit_status(report) == 0),
        *report["notes"],
        *report["gaps"],
        *(f"skipped: {line}" for line in report["skipped"]),
        *(f"would be refused: {reason}" for reason in report["refusals"]),
        *([] if report["dry_run"] else [_name_documents(report)]),
    ]


def _format_summary(report: dict[str, Any]) -> str:
    """Return a sentence about what came of the restore of a topic."""
    if report["already_finished"]:
        doubled = report["doubled_records"]
        counts = count_noun(report["records"], "record")
        counts += f"; the target holds {doubled:,} once more than sent" if doubled else ""
        return (
            f"restore {report['restore_id']} was finished before, with {counts}. Nothing was sent or read now; "
            f"its result then: {report['verdict']}"
        )
    if report["dry_run"]:
        return _format_forecast(report)
    return _format_done(report)


def _format_forecast(report: dict[str, Any]) -> str:
    """Return a sentence about what a dry run has found."""
    count = "an unknown number of records"
    if report["exact"] or report["records"]:
        count = f"{'' if report['exact'] else 'at most '}{count_noun(report['records'], 'record')}"
    if report["before_transforms"]:
        count += " (before transforms, which may leave some out or make more of them)"
    if report["refusals"]:
        return f"the restore of {count} would be refused"
    return f"{count} would be restored, roughly in {max(1.0, report['estimated_seconds']):.0f} s after Spark's start"


def _format_done(report: dict[str, Any]) -> str:
    """Return a sentence about records that were sent."""
    if not report["records"]:
        return str(report["verdict"])
    now = "" if report["sent_records"] == report["records"] else f" ({report['sent_records']:,} sent by this run)"
    records = count_noun(report["records"], "record")
    sentence = f"{records} restored, each found in the target{now}, in {report['seconds']:.1f} s"
    return f"{sentence}. {report['verdict']}"
