"""Starts a warm Spark, once: a process makes the socket, and leaves a child behind that serves it."""

import fcntl
import logging
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kafka_s3_platform.spark.warm.identity import Identity, forget_unread, identify_process
from kafka_s3_platform.spark.warm.server import WarmServer
from kafka_s3_platform.spark.warm.wire import (
    SILENCE_SECONDS,
    FrameKind,
    PeerGoneError,
    connect,
    find_folder,
    find_log,
    find_socket,
    refuse_foreign_folder,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALIVE_SECONDS = 5.0
"""How long a server may take to show that it lives, before another one takes its socket."""

LAUNCH_SECONDS = 60.0
"""How long the socket may take to be there."""

# Python imports from the working directory first, where somebody may have left a module: not from there.
_MAIN = "import sys; sys.path[:] = [p for p in sys.path if p]; from {} import {} as main; main()"


def launch_server(main: Callable[[], None]) -> None:
    """Run a function of a module, which calls `become_server`, in a process of its own. Wait for its socket.

    Raises OSError with what it printed.
    """
    command = [sys.executable, "-c", _MAIN.format(main.__module__, main.__qualname__)]
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, check=False, start_new_session=True, timeout=LAUNCH_SECONDS
        )
    except subprocess.TimeoutExpired as err:
        raise OSError(f"its process did not make a socket in {LAUNCH_SECONDS:g} s") from err
    if ended.returncode:
        raise OSError(f"its process ended with status {ended.returncode}: {ended.stderr.strip()[-2000:]}")


def become_server(start: "Callable[[], tuple[SparkSession, int]]", idle_seconds: float) -> None:
    """Make the socket of this process's identity, and serve it in a child, while this process ends.

    Do nothing if another process serves it. `start` is called in the child; before, no thread may run.
    """
    os.umask(0o077)
    identity = identify_process()
    folder = find_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    refuse_foreign_folder(folder)
    path = find_socket(folder, identity)
    with _lock(folder):
        if _is_served(path):
            return
        _remove_dead(folder)
        listener = _listen(path)
    if os.fork():
        return
    _detach(find_log(path))
    forget_unread()
    threading.Thread(target=retire_servers, args=(folder, identity, path), daemon=True).start()
    WarmServer(listener, path, idle_seconds).serve(start)


def retire_servers(folder: Path, identity: Identity, but: Path | None = None) -> int:
    """Tell the servers of the same place, of any version, to end with their last client. Return how many were told."""
    told = 0
    for path in folder.glob(f"{identity.place}-*.sock"):
        if path == but:
            continue
        try:
            with connect(path) as peer:
                peer.send(FrameKind.RETIRE)
                told += 1
                while True:
                    peer.receive(SILENCE_SECONDS)
        except PeerGoneError:
            continue  # it was told, or is gone
    return told


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Let one process at a time make sockets."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)


def _is_served(path: Path) -> bool:
    try:
        with connect(path) as peer:
            kind, _ = peer.receive(ALIVE_SECONDS)
            return kind in (FrameKind.BEAT, FrameKind.READY)
    except PeerGoneError:
        return False


def _remove_dead(folder: Path) -> None:
    """Remove the sockets of servers that were killed, and the logs of all that ended."""
    for path in folder.glob("*.sock"):
        try:
            connect(path).close()
        except PeerGoneError as err:
            if isinstance(err.__cause__, ConnectionRefusedError):
                path.unlink(missing_ok=True)
    for log in folder.glob("*.log"):
        if not log.with_suffix(".sock").exists():
            log.unlink(missing_ok=True)


def _listen(path: Path) -> socket.socket:
    """Listen on a socket that takes the place of one which nobody serves, or a suspended server."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made = path.with_suffix(f".{os.getpid()}")
    listener.bind(str(made))
    listener.listen(128)
    made.rename(path)
    return listener


def _detach(log: Path) -> None:
    """Print to the log, and read nothing: whoever started this process waits for the end of its output."""
    opened = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for given, standard in ((nothing, 0), (opened, 1), (opened, 2)):
        os.dup2(given, standard)
    os.close(opened)
    os.close(nothing)
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(message)s")
    logging.getLogger("kafka_s3_platform").setLevel(logging.INFO)
