"""`kafka-s3 doctor`: probes of Java, memory, disk, ports and caches, and of each connector file."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import click
import psutil

from kafka_s3_platform.cli.connector_files.findings import (
    Answer,
    Finding,
    Judgement,
    Probe,
    describe_findings,
    format_findings,
    gather_findings,
    is_well,
    judge,
    list_warnings,
)
from kafka_s3_platform.cli.machine.prepare import TRAINING
from kafka_s3_platform.cli.messages import json_option, print_result
from kafka_s3_platform.connect.config.files import load_connectors
from kafka_s3_platform.core.config.folder import find_connectors_folder
from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.errors import PlatformError
from kafka_s3_platform.core.java.runtime import find_java, read_version
from kafka_s3_platform.core.spark.session import find_class_data
from kafka_s3_platform.core.waits import waiting_for
from kafka_s3_platform.operate.local.processes import Daemon, is_port_free
from kafka_s3_platform.operate.local.settings import HOST, StackSettings, name_variable
from kafka_s3_platform.operate.local.stack import list_daemons

MACHINE_SECONDS = 180.0
AT_ONCE = 32
"""The number of connectors tried at a time, so that a silent server holds up few others."""

GIB = 2**30
LITTLE_MEMORY = 2 * GIB
"""Spark's Java takes up to 1 GB by default, and each of its tasks has a Python process."""

LITTLE_DISK = 5 * GIB
NO_DISK = GIB // 2

START_SECONDS = 120


def look_at_java() -> Iterator[Finding]:
    """Check if Java is installed in a supported version."""
    java = find_java()
    yield Finding("Java", Judgement.OK, f"{java} is Java {read_version(java)}")


def look_at_memory() -> Iterator[Finding]:
    """Check the free memory."""
    memory = psutil.virtual_memory()
    free = f"{memory.available / GIB:.1f} of {memory.total / GIB:.1f} GiB are free"
    if memory.available >= LITTLE_MEMORY:
        yield Finding("memory", Judgement.OK, free)
        return
    advice = "Spark and its tasks need more than 2: end other programs, or lower spark.driver.memory and tasks.max"
    yield Finding("memory", Judgement.WARNING, f"{free}. {advice}")


def look_at_disk() -> Iterator[Finding]:
    """Check the room for temporary files and for the data of the embedded stack."""
    # Dagster, which no other look needs
    from kafka_s3_platform.core.defs.resources import read_deployed_conf

    spilled = os.environ.get("SPARK_LOCAL_DIRS") or read_deployed_conf(os.environ).get("spark.local.dir") or ""
    temporary = {Path(tempfile.gettempdir()), *map(Path, filter(None, spilled.split(",")))}
    for folder in sorted(temporary):
        yield _judge_folder("disk for temporary files", folder)
    yield _judge_folder("disk for the embedded stack", StackSettings.from_environment().data_dir)


def _judge_folder(subject: str, folder: Path) -> Finding:
    """Judge a folder by this user's right to write to it, and by its free space."""
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not os.access(existing, os.W_OK | os.X_OK):
        return Finding(
            subject, Judgement.WRONG, f"this user cannot write to {existing}: change its owner, or set another"
        )
    free = shutil.disk_usage(existing).free
    room = f"{free / GIB:.1f} GiB are free at {existing}"
    if free >= LITTLE_DISK:
        return Finding(subject, Judgement.OK, room)
    judgement = Judgement.WARNING if free >= NO_DISK else Judgement.WRONG
    return Finding(subject, judgement, f"{room}: remove what is not needed, or set another folder")


def look_at_ports() -> Iterator[Finding]:
    """Check the servers of the embedded stack, and find the owners of the ports that stopped servers need."""
    for daemon in list_daemons(StackSettings.from_environment()):
        yield _judge_ports(daemon)


def _judge_ports(daemon: Daemon) -> Finding:
    """Judge the ports of the embedded server: it runs on them, all are free, or other processes have them."""
    subject = f"ports of the embedded {daemon.name}"
    process = daemon.process()
    if process is not None:
        try:
            daemon.refuse_other_ports()
        except PlatformError as err:
            return Finding(subject, Judgement.WRONG, str(err))
        return Finding(subject, Judgement.OK, f"it runs (pid {process.pid}) in {daemon.folder}")
    taken_ports = {name: port for name, port in daemon.ports.items() if not is_port_free(port)}
    if not taken_ports:
        ports = ", ".join(map(str, daemon.ports.values()))
        return Finding(subject, Judgement.OK, f"it does not run, and all are free: {ports}")
    owners = "; ".join(
        f"{port} ({name_variable(name)}) is taken by {_name_owner(port)}" for name, port in taken_ports.items()
    )
    advice = "`kafka-s3 up` does not start it: end that process, or set the variable to another port"
    return Finding(subject, Judgement.WARNING, f"{owners}. {advice}")


def _name_owner(port: int) -> str:
    """Name the process that listens on a port of this machine, if this user may see it."""
    try:
        for connection in psutil.net_connections("tcp"):
            address = connection.laddr
            if connection.status == psutil.CONN_LISTEN and address and address.port == port and connection.pid:
                return f"{psutil.Process(connection.pid).name()} (pid {connection.pid})"
    except psutil.Error:
        pass
    return f"a process of {HOST} that this user cannot see"


def look_at_class_data() -> Iterator[Finding]:
    """Start Spark as a run does, and count its Java's classes by origin, as Java does not report unused class data."""
    with waiting_for("Spark to start"):
        yield judge("class data of Spark", _start_spark)


def _start_spark() -> Answer:
    """Start Spark with a log of its classes, and count those that come from class data."""
    data = find_class_data()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "classes")
        option = shlex.quote(f"-Xlog:class+load:file={log}")
        env = {**os.environ, "SPARK_SUBMIT_OPTS": f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} {option}"}
        command = [sys.executable, "-c", TRAINING]
        try:
            finished = subprocess.run(
                command, env=env, capture_output=True, text=True, check=False, timeout=START_SECONDS
            )
        except subprocess.TimeoutExpired:
            return (
                Judgement.WRONG,
                f"Spark does not start in {START_SECONDS} s: is this machine busy with something else?",
            )
        if finished.returncode:
            *_, reason = ["it printed nothing", *finished.stderr.strip().splitlines()]
            return Judgement.WRONG, f"Spark does not start: {reason}"
        sources = re.findall(r"source: (.*)", log.read_text() if log.exists() else "")
    used_count = sum(source.endswith("(top)") for source in sources)
    if used_count:
        return f"{used_count:,} of {len(sources):,} classes of Spark's Java come from class data"
    if not data.is_file():
        return Judgement.WARNING, (
            f"there is none for this Java and these jars ({data}), so Spark starts slowly: run `kafka-s3 prepare`"
        )
    return Judgement.WARNING, (
        f"{data} is there, and Java does not use it. Look for other options or another class path: "
        f"spark.driver.extraClassPath or extraJavaOptions, SPARK_CONF_DIR, SPARK_SUBMIT_OPTS, JAVA_TOOL_OPTIONS"
    )


def try_kernels() -> Iterator[Finding]:
    """Call the functions compiled by numba, and count those in its cache."""
    from kafka_s3_platform.cli.machine.training import compile_kernels

    subject = "compiled functions"
    kernels = compile_kernels()
    missed = [kernel.name for kernel in kernels if not kernel.was_cached]
    if not missed:
        yield Finding(subject, Judgement.OK, f"all {len(kernels)} were in numba's cache")
        return
    advice = (
        f"{len(missed)} of {len(kernels)} had to be compiled. If it is so again, numba cannot write its cache: set "
        f"NUMBA_CACHE_DIR to a folder that this user can write"
    )
    yield Finding(subject, Judgement.WARNING, advice)


MACHINE: Mapping[str, Probe] = {
    "Java": look_at_java,
    "memory": look_at_memory,
    "disk": look_at_disk,
    "ports": look_at_ports,
    "class data of Spark": look_at_class_data,
    "compiled functions": try_kernels,
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
    """Yield the findings on each connector file of the folder."""
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
        for findings in pool.map(_try_file, files.loaded, files.loaded.values()):
            yield from findings
    yield UNTRIED


def _try_file(path: Path, config: ConnectorConfig) -> list[Finding]:
    """Try the servers of one connector file, and list its likely mistakes."""
    from kafka_s3_platform.cli.connector_files.connect import try_connector

    warnings = list_warnings(config, StackSettings.from_environment())
    findings = [Finding("what the file says", Judgement.WARNING, warning) for warning in warnings]
    return [replace(finding, what=f"{path.name}: {finding.what}") for finding in [*findings, *try_connector(config)]]
