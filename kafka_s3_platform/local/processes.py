"""Server processes that outlive the command which started them, found again by their pid file."""

import fcntl
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

from kafka_s3_platform.errors import ConfigError, PermanentError
from kafka_s3_platform.local.settings import HOST, variable

logger = logging.getLogger(__name__)

KILL_SECONDS = 10.0
RELEASE_SECONDS = 2.0
CLOCK_STEP_SECONDS = 60.0
LOG_TAIL_LINES = 15

# The shell leaves the server to init: no zombie, no handle stays with whoever called.
# Nobody else reads what it writes.
DETACH = 'umask 077; log=$1; shift; "$@" </dev/null >>"$log" 2>&1 & echo $!'


@dataclass(frozen=True, slots=True)
class Daemon:
    """One server process. Everything of it is in `folder`, and `folder` is named in its command line."""

    name: str
    folder: Path
    ports: Mapping[str, int]
    """Port by field of `StackSettings`."""
    stop_seconds: float
    """How long SIGTERM may take before SIGKILL follows."""

    @property
    def log(self) -> Path:
        """Standard output and error."""
        return self.folder / "output.log"

    @property
    def _pid_file(self) -> Path:
        return self.folder / "process.json"

    def start(self, command: Sequence[str | Path], env: Mapping[str, str]) -> None:
        """Run `command` in a session of its own, with `env` beside this process's environment."""
        if self.log.exists():
            self.log.replace(self.log.with_suffix(".previous.log"))
        shell = ["sh", "-c", DETACH, "sh", str(self.log), *map(str, command)]
        started = subprocess.run(
            shell, cwd=self.folder, env={**os.environ, **env}, stdout=subprocess.PIPE, text=True, check=True,
            start_new_session=True,
        )  # fmt: skip
        self._remember(int(started.stdout))

    @property
    def is_wanted(self) -> bool:
        """Whether it was started, and not stopped since by `await_end`: it may have died."""
        return self._pid_file.exists()

    def process(self) -> psutil.Process | None:
        """The running process, or None. Never another one that got the same pid later."""
        try:
            known = json.loads(self._pid_file.read_text())
            process = psutil.Process(known["pid"])
            ours = str(self.folder) in " ".join(process.cmdline())
            # The start time is derived from the wall clock, which may have been set since.
            same_start = abs(process.create_time() - known["create_time"]) < CLOCK_STEP_SECONDS
            return process if ours and same_start and process.status() != psutil.STATUS_ZOMBIE else None
        except (FileNotFoundError, psutil.NoSuchProcess, psutil.ZombieProcess):
            return None

    def refuse_taken_ports(self) -> None:
        """Raises ConfigError, naming the port and its variable, if another process has one of the ports."""
        for name, port in self.ports.items():
            if not _becomes_free(port):
                raise ConfigError(
                    f"cannot start {self.name}: port {port} of {HOST} is taken by another process; "
                    f"end that one or choose another port with {variable(name)}"
                )

    def refuse_other_ports(self) -> None:
        """Raises ConfigError if the running process was started with other ports than these."""
        running_on = json.loads(self._pid_file.read_text())["ports"]
        if other := [name for name, port in self.ports.items() if running_on.get(name) != port]:
            raise ConfigError(
                f"{self.name} of {self.folder} runs with {variable(other[0])}={running_on.get(other[0])}, "
                f"not {self.ports[other[0]]}: run `kafka-s3 down` first"
            )

    def terminate(self) -> bool:
        """Ask it to end. Returns whether it was running."""
        process = self.process()
        if process:
            logger.info("stopping %s (pid %d)", self.name, process.pid)
            process.terminate()
        return process is not None

    def await_end(self) -> None:
        """Wait after `terminate`, and kill what is left."""
        if not self._ended(self.stop_seconds):
            process = self.process()
            if process:
                process.kill()
            if not self._ended(KILL_SECONDS):
                raise PermanentError(f"{self.name} (see {self._pid_file}) does not end: look at that process")
        self._pid_file.unlink(missing_ok=True)

    def refuse_dead(self) -> None:
        """Raises PermanentError, with the end of the log, unless the process runs."""
        if self.process() is None:
            tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])
            raise PermanentError(f"{self.name} stopped while it was starting; the end of {self.log} is:\n{tail}")

    def _ended(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self.process():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def _remember(self, pid: int) -> None:
        try:
            create_time = psutil.Process(pid).create_time()
        except psutil.NoSuchProcess:
            return
        text = json.dumps({"pid": pid, "create_time": create_time, "ports": dict(self.ports)})
        write_atomically(self._pid_file, text)


def port_is_free(port: int) -> bool:
    """Whether a server could listen on this port of the loopback address now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
            probe.listen()
        except OSError:
            return False
        return True


def _becomes_free(port: int) -> bool:
    """A server killed just now holds its ports until the last of its threads is gone."""
    deadline = time.monotonic() + RELEASE_SECONDS
    while not port_is_free(port):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def write_atomically(path: Path, text: str) -> None:
    """Replace `path`; a reader, or a process killed here, leaves the old text or the new one. Only we may read it."""
    partial = path.with_name(path.name + ".partial")
    partial.unlink(missing_ok=True)
    partial.touch(mode=0o600)
    partial.write_text(text)
    partial.replace(path)


def private_folder(path: Path) -> Path:
    """The folder, made if it is missing; only we may enter it."""
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o700)
    return path


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold `folder`, which is made if missing, against other processes. Ends with this process at the latest."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
