"""Runs `dagster dev`, and calls its GraphQL API as the UI does."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from kafka_s3_platform.core.errors import PermanentError, TransientError

LAUNCH = """
mutation Launch($params: LaunchBackfillParams!) {
  launchPartitionBackfill(backfillParams: $params) {
    __typename
    ... on LaunchBackfillSuccess { backfillId }
    ... on PythonError { message }
  }
}"""

LAUNCH_RUN = """
mutation Launch($params: ExecutionParams!) {
  launchRun(executionParams: $params) {
    __typename
    ... on LaunchRunSuccess { run { runId } }
    ... on PythonError { message }
    ... on RunConfigValidationInvalid { errors { message } }
  }
}"""

TERMINATE = """
mutation Terminate($id: String!) {
  terminateRun(runId: $id) {
    __typename
    ... on TerminateRunFailure { message }
    ... on PythonError { message }
  }
}"""

STATUS = """
query Status($id: String!) {
  partitionBackfillOrError(backfillId: $id) {
    ... on PartitionBackfill {
      status
      error { message }
      runs(limit: 10) { runId status }
    }
    ... on PythonError { message }
  }
}"""

DONE = ("COMPLETED", "COMPLETED_SUCCESS", "COMPLETED_FAILED", "FAILED", "CANCELED")
ENDED = ("SUCCESS", "FAILURE", "CANCELED")
"""Final statuses of a run. A contiguous backfill is one run, which ends up to 30 seconds before its backfill."""

START_SECONDS = 120


class DagsterUI:
    """One running `dagster dev`."""

    def __init__(self, url: str) -> None:
        self.url = url

    def query(self, text: str, variables: dict[str, Any]) -> Any:
        """Return the `data` of a GraphQL answer."""
        body = json.dumps({"query": text, "variables": variables}).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}/graphql", body, headers)  # noqa: S310 - always our own http URL
        with urllib.request.urlopen(request, timeout=60) as response:  # noqa: S310
            answer = json.load(response)
        if "errors" in answer:
            raise PermanentError(f"Dagster's GraphQL API at {self.url} refused a query: {answer['errors']}")
        return answer["data"]


@contextmanager
def run_dagster_dev(log: Path, prefix: str = "") -> Iterator[DagsterUI]:
    """Start `dagster dev` on a free port, below a path, and stop it at the end; its output goes to `log`."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}{prefix}"
    command = [sys.executable, "-m", "dagster", "dev", "-h", "127.0.0.1", "-p", str(port)]
    env = {"PATH": _make_path(), "KAFKA_S3_DAGSTER_URL": url, "DAGSTER_WEBSERVER_PATH_PREFIX": prefix}
    log.parent.mkdir(parents=True, exist_ok=True)
    # Dagster ends its children by SIGINT. A job in the background of a shell ignores it, and so would they.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=os.environ | env)
        try:
            ui = DagsterUI(url)
            _await_ready(ui, process, log)
            yield ui
        finally:
            process.terminate()
            _end_processes(process)


def _end_processes(process: "subprocess.Popen[bytes]") -> None:
    """Wait until Dagster ends, else kill it and its children."""
    children = psutil.Process(process.pid).children(recursive=True)
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        for child in children:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        process.kill()
        process.wait(10)


def _make_path() -> str:
    """Return a PATH with this interpreter's folder first: Dagster starts its own console scripts by name."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])


def _await_ready(ui: DagsterUI, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise PermanentError(f"dagster dev ended with status {process.returncode}; its output is in {log}")
        try:
            if ui.query("{ repositoriesOrError { ... on RepositoryConnection { nodes { name } } } }", {}):
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.5)
    raise TransientError(f"dagster dev did not answer within {START_SECONDS} s; its output is in {log}")
