"""The processes of a server, as tests start them."""

import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from kafka_s3_platform_tests.conftest import free_ports
from kafka_s3_platform_tests.dagster_ui import DagsterUI

SECONDS = 420


@dataclass
class Servers:
    """Processes of one home. Each ends with the test, also if pytest is killed."""

    home: Path
    env: Mapping[str, str]
    opened: ExitStack

    def start(self, name: str, *arguments: str) -> "subprocess.Popen[bytes]":
        with (self.home / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", sys.executable, "-m", *arguments],
                cwd=self.home,
                env=self.env,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.opened.callback(end, process)
        return process

    def start_daemon(self) -> "subprocess.Popen[bytes]":
        return self.start("daemon", "dagster._daemon", "run")

    def start_webserver(self) -> DagsterUI:
        [port] = free_ports(1)
        options = ("--host", "127.0.0.1", "--port", str(port))
        self.start(f"webserver-{port}", "kafka_s3_platform.operate.instance.webserver", *options)
        return DagsterUI(f"http://127.0.0.1:{port}")


def end(process: "subprocess.Popen[bytes]") -> None:
    """End the process and all that it started. Nobody asks for the work of a test to be finished."""
    if process.poll() is None:
        children = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        for child in children:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        psutil.wait_procs(children, 30)
    process.wait(30)


def start_code_location(servers: Servers) -> None:
    options = ("--socket", str(servers.home / "code-location.sock"), "--module-name", "kafka_s3_platform.definitions")
    servers.start("code-location", "dagster", "code-server", "start", *options)


def wait_for(look: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        try:
            if found := look():
                return found
        except OSError:
            pass  # the webserver has not started yet
        time.sleep(0.5)
    pytest.fail(f"{what}: not within {SECONDS} s")
