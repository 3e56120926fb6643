"""`kafka-s3 check`."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TypeVar
from zoneinfo import ZoneInfo

import click

from kafka_s3_platform.cli.output import json_option, show, without_links
from kafka_s3_platform.cli.times import moment
from kafka_s3_platform.config.check import CheckReport, check_report
from kafka_s3_platform.config.files import WORKER_FILE
from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.config.sheet import Finding, KeyClass
from kafka_s3_platform.errors import PlatformError
from kafka_s3_platform.sources.sample import Sample, sample_keys
from kafka_s3_platform.store.credentials import describe

T = TypeVar("T")


@dataclass(frozen=True)
class _Outlook:
    """What a file that loads will do: its objects' keys for a sample, its credentials; what hinders them instead."""

    keys: tuple[str, ...] = ()
    credentials: str | None = None
    hindrances: tuple[str, ...] = ()


@click.command
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--topic", metavar="T", help="The sample record's topic. Default: the first one.")
@click.option("--timestamp", metavar="TIME", help="The sample record's time, ISO 8601. Default: the archive's start.")
@click.option("--value", metavar="JSON", help="The sample record's value, for folders that a field decides.")
@json_option
@click.pass_context
def check(
    ctx: click.Context, file: Path, topic: str | None, timestamp: str | None, value: str | None, as_json: bool
) -> None:
    """Tell what each key of the connector file FILE does here. Exit status 1 if it does not load.

    The cluster is that of the worker.properties beside it. A sample record shows how objects are named.
    """
    report = check_report(file, file.parent / WORKER_FILE, os.environ)
    outlook = _outlook(report.config, topic, timestamp, value) if report.config else _Outlook()
    show(_document(report, outlook), as_json, list(_lines(report, outlook)))
    ctx.exit(0 if report.ok else 1)


def _outlook(config: ConnectorConfig, topic: str | None, timestamp: str | None, value: str | None) -> _Outlook:
    start = config.archive.start_hour
    time = moment("--timestamp", timestamp, ZoneInfo(config.layout.timezone)) if timestamp else start
    sample = Sample(topic or (config.topics[0] if config.topics else "TOPIC"), time, value)
    hindrances: list[str] = []
    keys = _tried(lambda: sample_keys(config, sample), "no example of a key", hindrances)
    credentials = _tried(lambda: describe(config.store), "no credentials", hindrances)
    return _Outlook(keys or (), credentials, tuple(hindrances))


def _tried(what: Callable[[], T], failing: str, hindrances: list[str]) -> T | None:
    try:
        return what()
    except PlatformError as err:
        hindrances.append(f"{failing}: {err}")
        return None


def _document(report: CheckReport, outlook: _Outlook) -> dict[str, object]:
    return {
        "file": str(report.path),
        "name": report.name,
        "class": report.connector_class,
        "ok": report.ok,
        "example_keys": list(outlook.keys),
        "credentials": outlook.credentials,
        "hindrances": list(outlook.hindrances),
        "problems": list(report.problems),
        "keys": [_finding(f) for f in report.findings],
        "worker_keys": [_finding(f) for f in report.worker_findings],
    }


def _finding(finding: Finding) -> dict[str, str]:
    return {"key": finding.key, "class": finding.key_class.value, "value": finding.value, "effect": finding.effect}


def _lines(report: CheckReport, outlook: _Outlook) -> Iterator[str]:
    yield f"{report.path}: {'loads' if report.ok else 'does not load'}"
    yield from report.problems
    yield from _keys(report, (KeyClass.REFUSED,))
    yield from (f"an object's key, for example: {key}" for key in outlook.keys)
    if outlook.credentials:
        yield f"credentials: {outlook.credentials}"
    yield from outlook.hindrances
    yield from _keys(report, (KeyClass.HONOURED, KeyClass.WITHOUT_MEANING))


def _keys(report: CheckReport, classes: Sequence[KeyClass]) -> Iterator[str]:
    """The keys of each class, by file. What several in a row do is said once, with the last of them."""
    for path, findings in ((report.path, report.findings), (report.worker, report.worker_findings)):
        for key_class in classes:
            found = [f for f in findings if f.key_class is key_class]
            if found:
                yield f"{path.name}, {key_class.value}:"
            for finding, following in zip_longest(found, found[1:]):
                is_said_below = following is not None and following.effect == finding.effect
                effect = "" if is_said_below else f": {without_links(finding.effect)}"
                yield f"  {finding.key} = {finding.value}{effect}"
