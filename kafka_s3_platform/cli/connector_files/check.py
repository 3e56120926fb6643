"""`kafka-s3 check`."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TypeVar
from zoneinfo import ZoneInfo

import click

from kafka_s3_platform.cli.connector_files.findings import (
    Finding,
    describe_findings,
    format_findings,
    is_well,
    list_warnings,
)
from kafka_s3_platform.cli.messages import Verdict, json_option, print_result, strip_links
from kafka_s3_platform.cli.options import parse_time
from kafka_s3_platform.connect.config.describe import CheckReport, check_report
from kafka_s3_platform.connect.config.keys.config_file import KeyFinding
from kafka_s3_platform.connect.config.keys.table import Support
from kafka_s3_platform.connect.config.keys.transforms import route_topic
from kafka_s3_platform.connect.sources.objects import has_record_times
from kafka_s3_platform.connect.sources.report import explain_missing
from kafka_s3_platform.connect.sources.sample import Sample, make_sample_keys
from kafka_s3_platform.core.config.folder import WORKER_FILE
from kafka_s3_platform.core.config.formats import NATIVE_FORMAT, find_format
from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.errors import PlatformError
from kafka_s3_platform.core.layouts.segment_key import explain_hidden_names
from kafka_s3_platform.core.store.credentials import describe_credentials
from kafka_s3_platform.operate.local.settings import StackSettings

T = TypeVar("T")


@dataclass(frozen=True)
class _Outlook:
    """Effects of a valid file: object keys of a sample, and credentials; or the problems with these."""

    keys: tuple[str, ...] = ()
    credentials: str | None = None
    hindrances: tuple[str, ...] = ()
    gives: tuple[str, ...] = ()
    """The format, the way objects are restored, and the facts that a restore loses."""

    warnings: tuple[str, ...] = ()


@click.command
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--topic", metavar="T", help="Topic of the sample record. Default: the first topic of the file.")
@click.option(
    "--timestamp",
    metavar="TIME",
    help="Timestamp of the sample record, ISO 8601. Default: the start of the archive.",
)
@click.option("--value", metavar="JSON", help="Value of the sample record, for a partitioner that looks at a field.")
@click.option(
    "--connect",
    is_flag=True,
    help="Also try the broker, the topics, the bucket and the Schema Registry that the file names, with the rights"
    " that its runs need. Writes only the small object with which every run tries the store.",
)
@json_option
@click.pass_context
def check(
    ctx: click.Context,
    file: Path,
    topic: str | None,
    timestamp: str | None,
    value: str | None,
    connect: bool,
    as_json: bool,
) -> None:
    """Show what each key of the connector file FILE does here.

    The file worker.properties in the same folder names the cluster. A sample record shows the names of objects. Exit
    status 1 if the file does not load, or if --connect finds an error.
    """
    report = check_report(file, file.parent / WORKER_FILE, os.environ)
    outlook = _make_outlook(report.config, topic, timestamp, value) if report.config else _Outlook()
    findings = _try_connection(report.config) if connect and report.config else []
    document = _make_document(report, outlook)
    if connect:
        document["tried"] = describe_findings(findings)
    print_result(document, as_json, list(_format_outlook(report, outlook, findings)))
    ctx.exit(0 if report.ok and is_well(findings) else 1)


def _try_connection(config: ConnectorConfig) -> list[Finding]:
    """Try the servers that a connector file names, with the rights that its runs have."""
    # the clients of Kafka and S3, which no other check needs
    from kafka_s3_platform.cli.connector_files.connect import UNTRIED, try_connector

    return [*try_connector(config), UNTRIED]


def _make_outlook(config: ConnectorConfig, topic: str | None, timestamp: str | None, value: str | None) -> _Outlook:
    """Find the effects of a valid file on the sample record, and the problems with them."""
    start = config.archive.start_hour
    time = parse_time("--timestamp", timestamp, ZoneInfo(config.layout.timezone)) if timestamp else start
    routers = config.records.transforms if config.source is None else ()
    sample = Sample(topic or route_topic(routers, config.topics[0] if config.topics else "TOPIC"), time, value)
    hindrances: list[str] = []
    keys = _try_call(lambda: make_sample_keys(config, sample), "no example of a key", hindrances)
    credentials = _try_call(lambda: describe_credentials(config.store), "no credentials", hindrances)
    folders = [config.layout.out_of_range_folder] * (config.source is None and config.layout.has_out_of_range_folder)
    hidden = explain_hidden_names((*(keys or ()), *config.topics, *folders))
    gives = (*_explain_restore(config), *hidden)
    warnings = tuple(list_warnings(config, StackSettings.from_environment()))
    return _Outlook(keys or (), credentials, tuple(hindrances), gives, warnings)


def _explain_restore(config: ConnectorConfig) -> Iterator[str]:
    """Yield lines about a restore of this connector: its result, and its losses."""
    format_row = find_format(config.layout.format)
    reader = config if config.source is not None else config.reader
    name = format_row.short_class_name or format_row.name
    if format_row.name == NATIVE_FORMAT and reader is None:
        yield (
            f"{name} holds whole records: key, value, headers, timestamp and offset. `kafka-s3 restore {config.name} "
            f"--topic T --to-topic T2` brings them back as they were; the hours of a day are merged"
        )
        return
    if config.source is None:
        yield f"objects of {name} stay as they are written: the hours of a day are not merged"
    if reader is None:
        yield f"this file does not say how they are read back: {'; '.join(config.unreadable)}"
        return
    yield f"`kafka-s3 restore {config.name} --to-topic T2` reads objects of {name} from the bucket, as this file says"
    losses = [*explain_missing(reader), *([format_row.not_kept] if format_row.not_kept else [])]
    if not has_record_times(reader):
        losses.append("objects hold no timestamps: records get the time of the restore")
    yield from (f"cannot come back: {loss}" for loss in losses)


def _try_call(call: Callable[[], T], failure_text: str, hindrances: list[str]) -> T | None:
    """Return the result of a call. On an error, return None and add its text to the hindrances."""
    try:
        return call()
    except PlatformError as err:
        hindrances.append(f"{failure_text}: {err}")
        return None


def _make_document(report: CheckReport, outlook: _Outlook) -> dict[str, object]:
    """Make the JSON of the command."""
    return {
        "file": str(report.path),
        "name": report.name,
        "class": report.connector_class,
        "ok": report.ok,
        "example_keys": list(outlook.keys),
        "credentials": outlook.credentials,
        "hindrances": list(outlook.hindrances),
        "what_you_get": list(outlook.gives),
        "warnings": list(outlook.warnings),
        "problems": list(report.problems),
        "keys": [_format_finding(f) for f in report.findings],
        "worker_keys": [_format_finding(f) for f in report.worker_findings],
    }


def _format_finding(finding: KeyFinding) -> dict[str, str]:
    """Return the JSON of a key."""
    return {"key": finding.key, "class": finding.support.value, "value": finding.value, "effect": finding.effect}


def _format_outlook(report: CheckReport, outlook: _Outlook, findings: Sequence[Finding]) -> Iterator[str | Verdict]:
    """Yield the lines of the command, with the problems first, and the keys without any last."""
    yield f"{report.path}: {'loads' if report.ok else 'does not load'}"
    yield from report.problems
    yield from (Verdict(f"warning: {line}", is_good=False) for line in outlook.warnings)
    yield from format_findings(findings)
    yield from _format_keys(report, (Support.REFUSED,))
    yield from (f"what you get: {line}" for line in outlook.gives)
    yield from (f"an object's key, for example: {key}" for key in outlook.keys)
    if outlook.credentials:
        yield f"credentials: {outlook.credentials}"
    yield from outlook.hindrances
    yield from _format_keys(report, (Support.HONOURED, Support.WITHOUT_MEANING))


def _format_keys(report: CheckReport, classes: Sequence[Support]) -> Iterator[str]:
    """Yield the keys of each class, by file. If several keys in a row have the same effect, it follows the last one."""
    for path, findings in ((report.path, report.findings), (report.worker, report.worker_findings)):
        for support in classes:
            group = [f for f in findings if f.support is support]
            if group:
                yield f"{path.name}, {support.value}:"
            for finding, following in zip_longest(group, group[1:]):
                is_said_below = following is not None and following.effect == finding.effect
                effect = "" if is_said_below else f": {strip_links(finding.effect)}"
                yield f"  {finding.key} = {finding.value}{effect}"
