"""`kafka-s3 check`."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TypeVar
from zoneinfo import ZoneInfo

import click

from kafka_s3_platform.cli.output import json_option, print_result, strip_links
from kafka_s3_platform.cli.times import parse_time
from kafka_s3_platform.config.check import CheckReport, check_report
from kafka_s3_platform.config.files import WORKER_FILE
from kafka_s3_platform.config.keys.sheet import KeyClass, KeyFinding
from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.errors import PlatformError
from kafka_s3_platform.sources.sample import Sample, make_sample_keys
from kafka_s3_platform.store.credentials import describe_credentials

T = TypeVar("T")


@dataclass(frozen=True)
class _Outlook:
    """The effects of a file that loads: object keys of a sample, and credentials; or the problems with these."""

    keys: tuple[str, ...] = ()
    credentials: str | None = None
    hindrances: tuple[str, ...] = ()


@click.command
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--topic", metavar="T", help="Topic of the sample record. Default: the first topic of the file.")
@click.option(
    "--timestamp",
    metavar="TIME",
    help="Timestamp of the sample record, ISO 8601. Default: the start of the archive.",
)
@click.option("--value", metavar="JSON", help="Value of the sample record, for a partitioner that looks at a field.")
@json_option
@click.pass_context
def check(
    ctx: click.Context, file: Path, topic: str | None, timestamp: str | None, value: str | None, as_json: bool
) -> None:
    """Show what each key of the connector file FILE does here. Exit status 1 if the file does not load.

    The cluster is the one that worker.properties in the same folder names. A sample record shows how objects would be
    named.
    """
    report = check_report(file, file.parent / WORKER_FILE, os.environ)
    outlook = _make_outlook(report.config, topic, timestamp, value) if report.config else _Outlook()
    print_result(_make_document(report, outlook), as_json, list(_format_outlook(report, outlook)))
    ctx.exit(0 if report.ok else 1)


def _make_outlook(config: ConnectorConfig, topic: str | None, timestamp: str | None, value: str | None) -> _Outlook:
    start = config.archive.start_hour
    time = parse_time("--timestamp", timestamp, ZoneInfo(config.layout.timezone)) if timestamp else start
    sample = Sample(topic or (config.topics[0] if config.topics else "TOPIC"), time, value)
    hindrances: list[str] = []
    keys = _try_call(lambda: make_sample_keys(config, sample), "no example of a key", hindrances)
    credentials = _try_call(lambda: describe_credentials(config.store), "no credentials", hindrances)
    return _Outlook(keys or (), credentials, tuple(hindrances))


def _try_call(what: Callable[[], T], failing: str, hindrances: list[str]) -> T | None:
    try:
        return what()
    except PlatformError as err:
        hindrances.append(f"{failing}: {err}")
        return None


def _make_document(report: CheckReport, outlook: _Outlook) -> dict[str, object]:
    return {
        "file": str(report.path),
        "name": report.name,
        "class": report.connector_class,
        "ok": report.ok,
        "example_keys": list(outlook.keys),
        "credentials": outlook.credentials,
        "hindrances": list(outlook.hindrances),
        "problems": list(report.problems),
        "keys": [_format_finding(f) for f in report.findings],
        "worker_keys": [_format_finding(f) for f in report.worker_findings],
    }


def _format_finding(finding: KeyFinding) -> dict[str, str]:
    return {"key": finding.key, "class": finding.key_class.value, "value": finding.value, "effect": finding.effect}


def _format_outlook(report: CheckReport, outlook: _Outlook) -> Iterator[str]:
    yield f"{report.path}: {'loads' if report.ok else 'does not load'}"
    yield from report.problems
    yield from _format_keys(report, (KeyClass.REFUSED,))
    yield from (f"an object's key, for example: {key}" for key in outlook.keys)
    if outlook.credentials:
        yield f"credentials: {outlook.credentials}"
    yield from outlook.hindrances
    yield from _format_keys(report, (KeyClass.HONOURED, KeyClass.WITHOUT_MEANING))


def _format_keys(report: CheckReport, classes: Sequence[KeyClass]) -> Iterator[str]:
    """Yield the keys of each class, by file. If several keys in a row have the same effect, it follows the last one."""
    for path, findings in ((report.path, report.findings), (report.worker, report.worker_findings)):
        for key_class in classes:
            found = [f for f in findings if f.key_class is key_class]
            if found:
                yield f"{path.name}, {key_class.value}:"
            for finding, following in zip_longest(found, found[1:]):
                is_said_below = following is not None and following.effect == finding.effect
                effect = "" if is_said_below else f": {strip_links(finding.effect)}"
                yield f"  {finding.key} = {finding.value}{effect}"
