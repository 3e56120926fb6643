"""Runs tasks on a warm Spark. Each task has a connection. Its end tells either side that the other one is gone."""

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
"""The silence of a server after which a run uses a session of its own. A server answers in milliseconds."""

START_SECONDS = 120.0
"""The longest time a live server may take to start its session."""


class NoWarmSparkError(Exception):
    """There is no warm Spark to use. The text gives the reason."""


class SparkTaskError(RuntimeError):
    """A task raised an error other than the platform's, or its Python worker died. The text is Spark's."""


@dataclass(frozen=True, slots=True)
class WarmSpark:
    """A server that greeted this process."""

    path: Path
    peer: Peer
    """The connection of the greeting. While it is open, the server has a client."""
    pid: int
    """The server's process id. The kernel knows only the process that made the socket, which has ended."""
    at_once: int
    """The greatest number of a run's tasks at once."""


def find_warm_spark(launch: Callable[[], None] | None) -> WarmSpark:
    """Connect to this process's warm Spark, or start one with `launch`, unless it is None. Raises NoWarmSparkError."""
    try:
        return _greet_or_launch(launch)
    except FileNotFoundError as err:
        raise NoWarmSparkError(f"none was started: {err.filename} is missing") from err
    except PeerGoneError as err:
        raise NoWarmSparkError(f"none answers for this environment, folder and installation: {err}") from err
    except (OSError, RuntimeError) as err:
        raise NoWarmSparkError(str(err)) from err


def _greet_or_launch(launch: Callable[[], None] | None) -> WarmSpark:
    """Return the warm Spark for this process, or start one with `launch`. If `launch` is None, raise the error."""
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
    """Connect to the socket of a warm Spark, and wait until its session has started.

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
    """Runs tasks on a warm Spark. If it ends, its tasks fail with a TransientError."""

    def __init__(self, warm: WarmSpark) -> None:
        self._warm = warm

    def start(self) -> None:
        # The server sends nothing before it gets a task, so anything to read is the end of the connection.
        if self._warm.peer.is_readable(0):
            raise _make_error(self._warm, "before the first task")

    def run(self, function: Callable[[T, Attempt], R], tasks: Sequence[T], max_concurrent: int) -> Iterator[R]:
        if not tasks:
            return
        running_tasks = _RunningTasks(self._warm)
        run_task = partial(running_tasks.run_task, function)
        yield from run_in_threads(run_task, tasks, self.at_once(max_concurrent), running_tasks.cancel)

    def at_once(self, max_concurrent: int) -> int:
        """Return at most this machine's number of cores, as in a session of the run's own."""
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
        """Ask the server to cancel the running tasks. It answers each task once this is done."""
        with self._lock:
            self._is_cancelled = True
            for peer in self._peers:
                peer.end_sending()

    def _await_answer(self, peer: Peer, pickled: bytes) -> tuple[FrameKind, bytes]:
        """Send the task and return its answer. Beats in between show the server is alive."""
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
    """Return the error for a run whose warm Spark has ended."""
    return SparkUnavailableError(
        f"the warm Spark (process {warm.pid}) ended {when}. Perhaps it was killed, suspended or out of memory: "
        f"{find_log(warm.path)} may explain more. Run again: what was committed stays"
    )
