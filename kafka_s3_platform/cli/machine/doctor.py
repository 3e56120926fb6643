"""`kafka-s3 doctor`."""

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import click

from kafka_s3_platform.cli.connector_files.findings import (
    Finding,
    Judgement,
    Probe,
    describe_findings,
    format_findings,
    gather_findings,
    is_well,
)
from kafka_s3_platform.cli.connector_files.warnings import list_warnings
from kafka_s3_platform.cli.machine import looks
from kafka_s3_platform.cli.output import json_option, print_result
from kafka_s3_platform.config.files import find_connectors_folder, load_connectors
from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.local.settings import StackSettings

MACHINE_SECONDS = 180.0
AT_ONCE = 32
"""Connectors tried at a time: a silent server holds up few others."""

MACHINE: Mapping[str, Probe] = {
    "Java": looks.look_at_java,
    "memory": looks.look_at_memory,
    "disk": looks.look_at_disk,
    "ports": looks.look_at_ports,
    "class data of Spark": looks.look_at_class_data,
    "compiled functions": looks.look_at_kernels,
}


@click.command
@json_option
@click.pass_context
def doctor(ctx: click.Context, as_json: bool) -> None:
    """Check this machine, and each connector file's servers.

    Checks Java, memory, disk and the ports of the embedded stack, starts Spark once, and tries each connector file as
    `kafka-s3 check FILE --connect` does. Exit status 1 if something is wrong.
    """
    findings = [*gather_findings(MACHINE, MACHINE_SECONDS), *_try_files(find_connectors_folder(os.environ))]
    print_result({"findings": describe_findings(findings)}, as_json, list(format_findings(findings)))
    ctx.exit(0 if is_well(findings) else 1)


def _try_files(folder: Path) -> Iterator[Finding]:
    # the clients of Kafka and S3
    from kafka_s3_platform.cli.connector_files.connect import UNTRIED

    if not folder.is_dir():
        advice = f"{folder} is no folder, so no file was tried: run this where it is, or set KAFKA_S3_CONNECTORS"
        yield Finding("connector files", Judgement.WARNING, advice)
        return
    files = load_connectors(folder, os.environ)
    for path, problem in files.broken.items():
        yield Finding(f"{path}", Judgement.WRONG, f"does not load: {problem}")
    if not files.loaded:
        yield Finding("connector files", Judgement.WARNING, f"none of {folder} loads, so none was tried")
        return
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="doctor") as pool:
        for tried in pool.map(_try_file, files.loaded, files.loaded.values()):
            yield from tried
    yield UNTRIED


def _try_file(path: Path, config: ConnectorConfig) -> list[Finding]:
    from kafka_s3_platform.cli.connector_files.connect import try_connector

    warnings = list_warnings(config, StackSettings.from_environment())
    findings = [Finding("what the file says", Judgement.WARNING, warning) for warning in warnings]
    return [replace(finding, what=f"{path.name}: {finding.what}") for finding in [*findings, *try_connector(config)]]
