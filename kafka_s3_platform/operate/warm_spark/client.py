"""Runs tasks on a warm Spark. Each task is a connection: its end tells either side that the other one is gone."""

import pickle
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kafka_s3_platform.core.errors import SparkUnavailableError
from kafka_s3_platform.core.spark.runner import Attempt, GroupingRunner, R, T, TaskOutcome, pickle_task, run_in_threads
from kafka_s3_platform.operate.warm_spark.wire import (
    SILENCE_SECONDS,
    FrameKind,
    Peer,
    PeerGoneError,
    connect,
    find_folder,
    find_log,
    find_socket,
    identify_process,
    refuse_foreign_folder,
)

GREETING_SECONDS = 10.0
"""Silence of a server after which a run uses a session of its own. A server answers in milliseconds."""

START_SECONDS = 120.0
"""The longest time for the start of a live server's session."""


class NoWarmSparkError(Exception):
    """There is no warm Spark to use. The text has the reason."""


class SparkTaskError(RuntimeError):
    """A task raised an error other than the platform's, or its Python worker died. The text is Spark's."""


@dataclass(frozen=True, slots=True)
class WarmSpark:
    """A server that greeted this process."""

    path: Path
    peer: Peer
    """The connection of the greeting. While it is open, the server has a client."""
    pid: int
    """The server's process id. The kernel knows only the maker of the socket, a process already ended."""
    at_once: int
    """The greatest number of a run's tasks at once."""


def find_warm_spark(launch: Callable[[], None] | None) -> WarmSpark:
    """Connect to this process's warm Spark, or start one with `launch`, unless None. Raises NoWarmSparkError."""
    try:
        return _greet_or_launch(launch)
    except FileNotFoundError as err:
        raise NoWarmSparkError(f"none was started: {err.filename} is missing") from err
    except PeerGoneError as err:
        raise NoWarmSparkError(f"none answers for this environment, folder and installation: {err}") from err
    except (OSError, RuntimeError) as err:
        raise NoWarmSparkError(str(err)) from err


def _greet_or_launch(launch: Callable[[], None] | None) -> WarmSpark:
    """Return the warm Spark for this process. Without one, `launch` starts it; with None, the error is raised."""
    folder = find_folder()
    path = find_socket(folder, identify_process())
    try:
        refuse_foreign_folder(folder)
        return greet_server(path)
    except (FileNotFoundError, PeerGoneError):
        if launch is None:
            raise
    launch()
    return greet_server(path)


def greet_server(path: Path, silence_seconds: float = GREETING_SECONDS) -> WarmSpark:
    """Connect to the socket of a warm Spark, and wait until its session is there.

    Raises PeerGoneError if nobody answers, and NoWarmSparkError if the session does not start.
    """
    peer = connect(path)
    started_at = time.monotonic()
    try:
        while time.monotonic() - started_at < START_SECONDS:
            kind, body = peer.receive(silence_seconds)
            if kind is FrameKind.READY:
                pid, at_once = body.split()
                return WarmSpark(path, peer, int(pid), int(at_once))
            if kind is FrameKind.FAILED:
                raise NoWarmSparkError(body.decode())
        raise PeerGoneError(f"its session is not there after {START_SECONDS:g} s")
    except BaseException:
        peer.close()
        raise


class WarmRunner(GroupingRunner):
    """Runs tasks on a warm Spark. If this ends, so do the tasks, with a TransientError."""

    def __init__(self, warm: WarmSpark) -> None:
        self._warm = warm

    def start(self) -> None:
        # The server says nothing before it gets a task. What can be read is the end.
        if self._warm.peer.is_readable(0):
            raise _make_error(self._warm, "before the first task")

    def run(self, function: Callable[[T, Attempt], R], tasks: Sequence[T], max_concurrent: int) -> Iterator[R]:
        if not tasks:
            return
        running_tasks = _RunningTasks(self._warm)
        run_task = partial(running_tasks.run_task, function)
        yield from run_in_threads(run_task, tasks, self.at_once(max_concurrent), running_tasks.cancel)

    def at_once(self, max_concurrent: int) -> int:
        """Return this machine's number of cores at most, as in a session of the run's own."""
        return min(max_concurrent, self._warm.at_once)


class _RunningTasks:
    """The running tasks of one call. Each has a connection to the server."""

    def __init__(self, warm: WarmSpark) -> None:
        self._warm = warm
        self._peers = set[Peer]()
        self._lock = threading.Lock()
        self._is_cancelled = False

    def run_task(self, function: Callable[[T, Attempt], R], task: T) -> R:
        """Run a function on the warm Spark over a connection of its own. Return its result, or raise its error."""
        pickled = pickle_task(function, task)
        try:
            with greet_server(self._warm.path, SILENCE_SECONDS).peer as peer:
                kind, body = self._await_answer(peer, pickled)
        except (PeerGoneError, NoWarmSparkError) as err:
            raise _make_error(self._warm, f"under a task: {err}") from err
        if kind is FrameKind.FAILED:
            raise SparkTaskError(body.decode())
        outcome: TaskOutcome[R] = pickle.loads(body)  # noqa: S301 - from a process of this user: see `wire`
        return outcome.unwrap()

    def cancel(self) -> None:
        """Ask the server to cancel the running tasks. It answers each of them when this is done."""
        with self._lock:
            self._is_cancelled = True
            for peer in self._peers:
                peer.end_sending()

    def _await_answer(self, peer: Peer, pickled: bytes) -> tuple[FrameKind, bytes]:
        """Send the task and return its answer. Beats in between are signs of the server's life."""
        with self._lock:
            self._peers.add(peer)
            if self._is_cancelled:
                raise PeerGoneError("the run was stopped")
        try:
            peer.send(FrameKind.TASK, pickled)
            while True:
                kind, body = peer.receive(SILENCE_SECONDS)
                if kind is not FrameKind.BEAT:
                    return kind, body
        finally:
            with self._lock:
                self._peers.discard(peer)


def _make_error(warm: WarmSpark, when: str) -> SparkUnavailableError:
    """Return the error for a run after the end of its warm Spark."""
    return SparkUnavailableError(
        f"the warm Spark (process {warm.pid}) ended {when}. Perhaps it was killed, suspended or out of memory: "
        f"{find_log(warm.path)} may explain more. Run again: what was committed stays"
    )
