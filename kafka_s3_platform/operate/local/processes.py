"""Starts servers as processes that outlive the command that starts them. A pid file finds them again."""

import json
import logging
import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from kafka_s3_platform.core.errors import ConfigError, PermanentError
from kafka_s3_platform.core.folders import replace_file
from kafka_s3_platform.operate.local.settings import HOST, name_variable

logger = logging.getLogger(__name__)

KILL_SECONDS = 10.0
# The longest time the ports of a killed server may stay in use: see `_await_free_port`.
RELEASE_SECONDS = 2.0
# The most the wall clock may have been moved since the start: see `Daemon.process`.
CLOCK_STEP_SECONDS = 60.0
LOG_TAIL_LINES = 15

# The shell ends at once, so init adopts the server: the caller keeps no zombie and no handle.
# The umask keeps the server's files from other users.
DETACH = 'umask 077; log=$1; shift; "$@" </dev/null >>"$log" 2>&1 & echo $!'

# The shell starts the server and kills it at its own end. The shell ends with the process at the other end of its
# input, however that process ends.
BOUND = (
    'umask 077; log=$1; folder=$2; shift 2; "$@" </dev/null >>"$log" 2>&1 & echo $!; '
    'cat >/dev/null; kill -9 $!; wait $! 2>/dev/null; rm -rf "$folder"'
)


@dataclass(frozen=True, slots=True)
class Daemon:
    """One server process. All its files are in `folder`, and its command line names `folder`."""

    name: str
    folder: Path
    ports: Mapping[str, int]
    """The ports, by their field of `StackSettings`."""
    stop_seconds: float
    """The time the server may take to end after SIGTERM, before it gets SIGKILL."""

    @property
    def log(self) -> Path:
        """The file of its standard output and error."""
        return self.folder / "output.log"

    @property
    def _pid_file(self) -> Path:
        return self.folder / "process.json"

    def start(self, command: Sequence[str | Path], env: Mapping[str, str]) -> None:
        """Run `command` in a new session, with `env` added to this process's environment."""
        if self.log.exists():
            self.log.replace(self.log.with_suffix(".previous.log"))
        shell = ["sh", "-c", DETACH, "sh", str(self.log), *map(str, command)]
        started = subprocess.run(
            shell, cwd=self.folder, env={**os.environ, **env}, stdout=subprocess.PIPE, text=True, check=True,
            start_new_session=True,
        )  # fmt: skip
        self._remember(int(started.stdout))

    @contextmanager
    def run_bound(self, command: Sequence[str | Path], folder: Path) -> Iterator[None]:
        """Run `command` until the block ends, or until this process ends, even if this is killed. Then kill `command`.

        `folder`, with all of the process's files, is then deleted.
        """
        shell = ["sh", "-c", BOUND, "sh", str(self.log), str(folder), *map(str, command)]
        with subprocess.Popen(
            shell, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        ) as watcher:
            # Leaving this block closes the input of the shell, and waits for its end.
            if watcher.stdout is not None:
                self._remember(int(watcher.stdout.readline()))
            yield

    @property
    def is_wanted(self) -> bool:
        """True if it was started, and has not been stopped by `await_end` since. It may have died."""
        return self._pid_file.exists()

    def process(self) -> psutil.Process | None:
        """Return the running process, or None. Never return another process that got the same pid later."""
        try:
            recorded = json.loads(self._pid_file.read_text())
            process = psutil.Process(recorded["pid"])
            ours = str(self.folder) in " ".join(process.cmdline())
            # psutil derives the start time from the wall clock, which may have been set since.
            same_start = abs(process.create_time() - recorded["create_time"]) < CLOCK_STEP_SECONDS
            if ours and same_start and process.status() != psutil.STATUS_ZOMBIE:
                return process
            return None
        # Access is denied only to another user's process, which cannot be ours (macOS, or Linux with `hidepid`).
        except (FileNotFoundError, psutil.NoSuchProcess, psutil.ZombieProcess, psutil.AccessDenied):
            return None

    def find_taken_ports(self) -> list[str]:
        """Return the ports that another process uses, each with the variable that chooses another one.

        Waits for a while: a killed server holds its ports until its last thread is gone.
        """
        deadline = time.monotonic() + RELEASE_SECONDS
        while taken_ports := [name for name, port in self.ports.items() if not is_port_free(port)]:
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
        return [f"{self.name} needs port {self.ports[name]} ({name_variable(name)})" for name in taken_ports]

    def refuse_other_ports(self) -> None:
        """Raise ConfigError if the running process was started with other ports."""
        running_on = json.loads(self._pid_file.read_text())["ports"]
        if other := [name for name, port in self.ports.items() if running_on.get(name) != port]:
            raise ConfigError(
                f"{self.name} of {self.folder} runs with {name_variable(other[0])}={running_on.get(other[0])}, "
                f"not {self.ports[other[0]]}: run `kafka-s3 down` first"
            )

    def terminate(self) -> bool:
        """Ask the process to end. Return True if it was running."""
        process = self.process()
        if process:
            logger.info("stopping %s (pid %d)", self.name, process.pid)
            process.terminate()
        return process is not None

    def await_end(self) -> None:
        """Wait for the process to end after `terminate`, and kill it if it takes too long."""
        if not self._ended(self.stop_seconds):
            process = self.process()
            if process:
                process.kill()
            if not self._ended(KILL_SECONDS):
                raise PermanentError(f"{self.name} (see {self._pid_file}) does not end: look at that process")
        self._pid_file.unlink(missing_ok=True)

    def refuse_dead(self) -> None:
        """Raise PermanentError, with the end of the log, if the process does not run."""
        if self.process() is None:
            tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])
            raise PermanentError(f"{self.name} stopped while it was starting; the end of {self.log} is:\n{tail}")

    def _ended(self, seconds: float) -> bool:
        """Wait at most `seconds` for the process to end. Return True if it has ended."""
        deadline = time.monotonic() + seconds
        while self.process():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def _remember(self, pid: int) -> None:
        """Record the process for later commands. Its start time distinguishes it from another process with its pid."""
        try:
            create_time = psutil.Process(pid).create_time()
        except psutil.NoSuchProcess:
            return
        text = json.dumps({"pid": pid, "create_time": create_time, "ports": dict(self.ports)})
        replace_file(self._pid_file, text)


def is_port_free(port: int) -> bool:
    """Return True if a server can now listen on this port of the loopback address."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
            probe.listen()
        except OSError:
            return False
        return True
