"""`kafka-s3 dev`: the embedded stack, Dagster's UI and the status page, for one person on one machine."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import IO

import click

from kafka_s3_platform.cli.messages import MESSAGES, paint_text
from kafka_s3_platform.cli.stack import start_spark
from kafka_s3_platform.core.config import environment
from kafka_s3_platform.core.config.folder import find_connectors_folder
from kafka_s3_platform.core.errors import ConfigError, PermanentError
from kafka_s3_platform.core.folders import make_private_folder
from kafka_s3_platform.core.text import format_entry
from kafka_s3_platform.operate.defs.warm_spark import DEFAULT_MINUTES
from kafka_s3_platform.operate.local.settings import HOST, StackSettings
from kafka_s3_platform.operate.local.stack import start_stack

_SETTINGS = ("dagster.yaml", "workspace.yaml")
_START_SECONDS = 120
_END_SECONDS = 30
_RECORD = re.compile(r"\S+ (?P<time>\d\d:\d\d:\d\d) \S+ - \S+ - (?P<level>[A-Z]+) - (?P<text>.*)", re.DOTALL)
_STEP = re.compile(r"\S+ - [0-9a-f-]{36} - (\d+ - )?\S+ - (?P<text>.*)", re.DOTALL)
_OF_DAGSTER = "did not yield or return expected outputs"
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_CHANGING = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|(?<![\w.-])\d[\d.,:]*(?![\w-])")
"""The changing parts of a repeated message: ids and numbers, but not those in names, such as topic orders-2."""


@click.command
@click.option("--port", type=click.IntRange(1, 65535), default=3000, show_default=True, help="Of Dagster's UI.")
@click.option(
    "--status-port", type=click.IntRange(1, 65535), default=9000, show_default=True, help="Of the status page."
)
def dev(port: int, status_port: int) -> None:
    """Start Kafka, S3, Dagster's UI with sensors and schedules on, and the status page, until Ctrl-C.

    Works in the folder DAGSTER_HOME, or else in this one, and writes a missing dagster.yaml or workspace.yaml there.
    Shows the progress of runs, and each warning once; .dagster/dev.log has everything. Kafka and S3 keep running after
    Ctrl-C; kafka-s3 down stops them.
    """
    for option, number in {"--port": port, "--status-port": status_port}.items():
        if _answers(number):
            raise ConfigError(f"port {number} of this machine is in use: end what uses it, or give another {option}")
    # SIGTERM ends it as Ctrl-C does. In the background of a shell, SIGINT would be ignored, by the children too.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    home = write_settings()
    find_connectors_folder(os.environ).mkdir(parents=True, exist_ok=True)
    os.environ.setdefault(environment.WARM_SPARK, str(DEFAULT_MINUTES))
    state = start_stack(StackSettings.from_environment())
    start_spark()
    # No "at work for 10 s" between the lines of the servers.
    MESSAGES.end()
    MESSAGES.set_verbosity("quiet")
    click.echo(f"Kafka {state.bootstrap_servers}, S3 {state.s3_endpoint}, bucket {state.bucket}")
    ui = f"http://{HOST}:{port}"
    commands = {
        port: ["-m", "dagster", "dev", "-h", HOST, "-p", str(port)],
        status_port: ["-m", "kafka_s3_platform.cli", "serve", "--port", str(status_port)],
    }
    with (home / ".dagster" / "dev.log").open("w") as log:
        log_filter = LogFilter(log)
        children = {port: _start(command, home, ui) for port, command in commands.items()}
        readers = [threading.Thread(target=log_filter.copy_lines, args=(child.stdout,)) for child in children.values()]
        for reader in readers:
            reader.start()
        try:
            _await_answers(children)
            click.echo(
                f"Dagster's UI: {ui}\nstatus page:  http://{HOST}:{status_port}\nCtrl-C ends both; log: {log.name}"
            )
            while all(child.poll() is None for child in children.values()):
                time.sleep(0.2)
        except KeyboardInterrupt:
            click.echo("\nending; Kafka and S3 go on: `kafka-s3 down` stops them")
            return
        finally:
            _end(children.values())
            for reader in readers:
                reader.join()
    raise PermanentError(f"Dagster or the status page has ended by itself: see {log.name}")


class LogFilter:
    """Copies the output of several processes to a file, and shows only what matters.

    This is the progress of runs, and each warning or error once, even if it recurs with other numbers in it.
    """

    def __init__(self, log: IO[str]) -> None:
        self._log = log
        self._shown: set[str] = set()

    def copy_lines(self, output: Iterable[bytes]) -> None:
        """Copy the lines of one process until it ends."""
        for raw in output:
            line = _COLOURS.sub("", raw.decode(errors="replace"))
            self._log.write(line)
            self._log.flush()
            self._show(line.rstrip())

    def _show(self, line: str) -> None:
        """Print a line of a log if it is a step's progress, or a new warning or error."""
        record = _RECORD.match(line)
        if record is None or record["level"] == "DEBUG" or _OF_DAGSTER in line:
            return
        step = _STEP.fullmatch(record["text"])
        text = format_entry(step["text"] if step else record["text"])
        is_fault = record["level"] != "INFO"
        kind = _CHANGING.sub("", text)
        if (step or is_fault) and not (is_fault and kind in self._shown):
            self._shown.add(kind)
            click.echo(f"{record['time']} {paint_text(text, 'red') if is_fault else text}")


def write_settings() -> Path:
    """Write the settings of Dagster that are missing in DAGSTER_HOME, or else in this folder. Return the folder.

    Only this user may enter its folder of runs.
    """
    home = Path(os.environ.get("DAGSTER_HOME") or Path.cwd())
    for name in _SETTINGS:
        if not (home / name).exists():
            (home / name).write_text(_read_template(name))
            click.echo(f"wrote {home / name}")
    make_private_folder(home / ".dagster")
    return home


def _read_template(name: str) -> str:
    """Return the settings from the wheel or, in a checkout, from the file at its top."""
    package = files("kafka_s3_platform")
    places = (package / "operate" / "instance" / name, Path(str(package)).parent / name)
    for place in places:
        if place.is_file():
            return place.read_text()
    raise ConfigError(f"{name} is missing in this installation: install the package again")


def _start(arguments: list[str], home: Path, ui: str) -> "subprocess.Popen[bytes]":
    """Start a process of Python with the environment of development."""
    # Dagster starts its own scripts by name. Its config of runs is in files that are for this user alone.
    changes = {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        "PYTHONWARNINGS": "ignore:Function `dev_command` is superseded",
        environment.AUTOSTART: "1",
        environment.DAGSTER_URL: os.environ.get(environment.DAGSTER_URL, ui),
    }
    inherited: Mapping[str, str] = {name: value for name, value in os.environ.items() if name != "DAGSTER_HOME"}
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=home,
        env={**inherited, **changes},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def _await_answers(children: Mapping[int, "subprocess.Popen[bytes]"]) -> None:
    """Wait until each server takes connections, or one has ended."""
    deadline = time.monotonic() + _START_SECONDS
    while not all(map(_answers, children)) and time.monotonic() < deadline:
        if any(child.poll() is not None for child in children.values()):
            return
        time.sleep(0.2)


def _answers(port: int) -> bool:
    """Return True if something on this machine takes connections at the port."""
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True


def _end(children: Iterable["subprocess.Popen[bytes]"]) -> None:
    """End the processes, as Ctrl-C in their own terminal would; kill those still alive."""
    for child in children:
        child.send_signal(signal.SIGINT)
    for child in children:
        try:
            child.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
