"""Starts the server of a warm Spark. It holds a session, and runs tasks for processes of its user.

It is started once: a process makes the socket, and leaves a child behind to serve it. To the server, a task is only
bytes. A Python worker unpickles them, so the server never imports what tasks import. A *beat* is a frame to show that
the server and its JVM are alive.
"""

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from kafka_s3_platform.core.errors import PlatformError
from kafka_s3_platform.core.folders import lock_folder
from kafka_s3_platform.core.spark.runner import run_pickled
from kafka_s3_platform.core.spark.session import end_java
from kafka_s3_platform.operate.warm_spark.wire import (
    BEAT_SECONDS,
    SILENCE_SECONDS,
    FrameKind,
    Peer,
    PeerGoneError,
    connect,
    delete_unread_variables,
    find_folder,
    find_log,
    find_socket,
    identify_process,
    refuse_foreign_folder,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

STALE_SECONDS = 5.0
"""The age of the JVM's last answer from which on the JVM counts as not answering."""

END_SECONDS = 10.0
"""The longest time the JVM may take to end."""

FAILED_SERVER_SECONDS = 5.0
"""The time a server stays after a failed start, to send clients the reason."""


class WarmServer:
    """Serves a session until nobody uses it, another server replaces it, a signal ends it, or its JVM dies."""

    def __init__(self, listener: socket.socket, path: Path, idle_seconds: float) -> None:
        self._listener = listener
        self._path = path
        self._inode = path.stat().st_ino
        self._idle_seconds = idle_seconds
        self._context: Any = None
        self._at_once = 1
        self._failure: str | None = None
        self._started = threading.Event()
        self._ending = threading.Event()
        self._retired = False
        self._lock = threading.Lock()
        self._clients = 0
        self._used = self._answered = time.monotonic()

    def serve(self, start: "Callable[[], tuple[SparkSession, int]]") -> None:
        """Start the session, and serve it to the end. `start` returns the session, and the number of tasks at once."""
        signal.signal(signal.SIGTERM, lambda *_: self._ending.set())
        threading.Thread(target=self._accept, daemon=True).start()
        try:
            session, self._at_once = start()
        except PlatformError as err:
            logger.error("warm Spark: %s", err)  # noqa: TRY400 - the message says all
            self._failure = str(err)
            self._started.set()
            self._ending.wait(FAILED_SERVER_SECONDS)
            self._unlink()
            return
        self._context = session.sparkContext
        jvm: subprocess.Popen[bytes] = self._context._gateway.proc  # noqa: SLF001 - nothing else tells when it ends
        self._answered = self._used = time.monotonic()
        for watch in (lambda: self._end_after_jvm(jvm), self._probe_jvm):
            threading.Thread(target=watch, daemon=True).start()
        self._started.set()
        logger.info("warm Spark: ready in process %d, its JVM is process %d", os.getpid(), jvm.pid)
        self._await_end()
        self._unlink()
        _end_session(session, jvm)

    def _await_end(self) -> None:
        """Wait until the server has a reason to end, and log it."""
        reason = None
        while reason is None:
            reason = "a signal ended it" if self._ending.wait(BEAT_SECONDS) else self._begin_end()
        logger.info("warm Spark: ends: %s", reason)

    def _begin_end(self) -> str | None:
        """Return why the server has to end now, or None to go on. Once it ends, it greets no other client."""
        with self._lock:
            reason = None if self._clients else self._find_end_reason()
            if reason is not None:
                self._ending.set()
            return reason

    def _find_end_reason(self) -> str | None:
        """Return why a server without clients has to end (another server, no socket, or no use), or None to go on."""
        idle = time.monotonic() - self._used
        if self._retired:
            return "another one takes its place"
        if not self._is_reachable():
            return "its socket is gone"
        return f"it was not used for {idle:.0f} s" if idle > self._idle_seconds else None

    def _is_reachable(self) -> bool:
        try:
            return self._path.stat().st_ino == self._inode
        except FileNotFoundError:
            return False

    def _unlink(self) -> None:
        if self._is_reachable():
            self._path.unlink(missing_ok=True)

    def _end_after_jvm(self, jvm: "subprocess.Popen[bytes]") -> None:
        """Wait for the JVM's end, then end this process. Clients notice this, and new clients start another server."""
        status = jvm.wait()
        if self._ending.is_set():
            return
        logger.error("warm Spark: its JVM ended with status %d", status)
        self._unlink()
        os._exit(1)

    def _probe_jvm(self) -> None:
        """Call the JVM repeatedly, and note the time of its answers. While it does not answer, clients get no beats."""
        while not self._ending.wait(BEAT_SECONDS):
            self._context._jvm.System.nanoTime()  # noqa: SLF001 - any call will do
            self._answered = time.monotonic()

    def _is_answering(self) -> bool:
        return time.monotonic() - self._answered < STALE_SECONDS

    def _accept(self) -> None:
        """Take connections, each in a thread of its own, to the end of the process."""
        while True:
            try:
                connected, _ = self._listener.accept()
                peer = Peer(connected)
            except (OSError, PeerGoneError) as err:
                logger.warning("warm Spark: a client was not served: %s", err)
                time.sleep(BEAT_SECONDS)
                continue
            with self._lock:
                if self._ending.is_set():
                    peer.close()
                    continue
                self._clients += 1
            threading.Thread(target=self._serve_client, args=(peer,), daemon=True).start()

    def _serve_client(self, peer: Peer) -> None:
        """Greet a client, and do the one thing it asks for: run a task, or retire. Count it while it is connected."""
        try:
            with peer:
                self._greet(peer)
                kind, body = peer.receive()
                if kind is FrameKind.RETIRE:
                    self._retired = True
                elif kind is FrameKind.TASK:
                    self._run_task(peer, body)
        except PeerGoneError:
            pass  # the client has its result, or its task is cancelled
        finally:
            with self._lock:
                self._clients -= 1
                self._used = time.monotonic()

    def _greet(self, peer: Peer) -> None:
        """Send the client beats until the session has started, then this process's id. Else raise PeerGoneError."""
        while not self._started.wait(BEAT_SECONDS):
            peer.send(FrameKind.BEAT)
        if self._failure is not None:
            peer.send(FrameKind.FAILED, self._failure.encode())
            raise PeerGoneError("there is no session")
        while not self._is_answering():
            time.sleep(BEAT_SECONDS)
        peer.send(FrameKind.READY, f"{os.getpid()} {self._at_once}".encode())

    def _run_task(self, peer: Peer, pickled: bytes) -> None:
        """Run a task. Cancel it when the client ends the connection, or its sending side."""
        from pyspark import InheritableThread

        group = uuid4().hex
        sending = threading.Lock()
        job = InheritableThread(target=self._run_job, args=(peer, sending, group, pickled), daemon=True)
        job.start()
        try:
            while job.is_alive() and not peer.is_readable(BEAT_SECONDS):
                if self._is_answering():
                    with sending:
                        peer.send(FrameKind.BEAT)
        finally:
            # The first time may come before the job has begun.
            while job.is_alive():
                self._context.cancelJobGroup(group)
                job.join(BEAT_SECONDS)

    def _run_job(self, peer: Peer, sending: threading.Lock, group: str, pickled: bytes) -> None:
        """Run the task as a Spark job of its own, and send its result or its error.

        If Spark itself has died, nothing is sent. The end of the connection tells the client.
        """
        from py4j.protocol import Py4JError, Py4JJavaError

        context = self._context
        try:
            context.setJobGroup(group, "a task of a client", interruptOnCancel=True)
            answer = FrameKind.RESULT, context.parallelize([pickled], 1).map(run_pickled).collect()[0]
        except Py4JJavaError as err:
            if context._jsc.sc().isStopped():  # noqa: SLF001 - PySpark's own property asks nobody
                return
            answer = FrameKind.FAILED, str(err).encode()
        except (Py4JError, OSError) as err:
            logger.warning("warm Spark: the JVM does not answer: %s", err)
            return
        try:
            with sending:
                peer.send(*answer)
        except PeerGoneError:
            return


def _end_session(session: "SparkSession", jvm: "subprocess.Popen[bytes]") -> None:
    """End the session and its JVM, and with it the Python workers. A suspended JVM does not end by itself."""
    ending = threading.Thread(target=end_java, args=(session,), daemon=True)
    ending.start()
    ending.join(END_SECONDS)
    jvm.kill()


ALIVE_SECONDS = 5.0
"""The silence of a server after which another server takes its socket."""

LAUNCH_SECONDS = 60.0
"""The longest time until a new server's socket exists."""

# Python imports from the working directory first, where somebody may have left a module, so it is removed.
_MAIN = "import sys; sys.path[:] = [p for p in sys.path if p]; from {} import {} as main; main()"


def launch_server(main: Callable[[], None]) -> None:
    """Start a process that calls `main` to become a server, and wait for its socket. An OSError has its output."""
    command = [sys.executable, "-c", _MAIN.format(main.__module__, main.__qualname__)]
    try:
        finished = subprocess.run(
            command, capture_output=True, text=True, check=False, start_new_session=True, timeout=LAUNCH_SECONDS
        )
    except subprocess.TimeoutExpired as err:
        raise OSError(f"its process did not make a socket in {LAUNCH_SECONDS:g} s") from err
    if finished.returncode:
        raise OSError(f"its process ended with status {finished.returncode}: {finished.stderr.strip()[-2000:]}")


def become_server(start: "Callable[[], tuple[SparkSession, int]]", idle_seconds: float) -> None:
    """Make the socket of this process's identity, and serve it in a child, while this process ends.

    Do nothing if another process serves it. `start` is called in the child. Before that, no thread may run.
    """
    os.umask(0o077)
    identity = identify_process()
    folder = find_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    refuse_foreign_folder(folder)
    path = find_socket(folder, identity)
    with lock_folder(folder):
        if _has_live_server(path):
            return
        _remove_dead(folder)
        listener = _listen(path)
    if os.fork():
        return
    _detach(find_log(path))
    delete_unread_variables()
    threading.Thread(target=retire_servers, args=(folder, identity.place, path), daemon=True).start()
    WarmServer(listener, path, idle_seconds).serve(start)


def retire_servers(folder: Path, place: str, own_path: Path | None = None) -> int:
    """Make the servers of a place or a home end with their last client, whatever their version. Return their number."""
    count = 0
    for path in folder.glob(f"{place}-*.sock"):
        if path == own_path:
            continue
        try:
            with connect(path) as peer:
                peer.send(FrameKind.RETIRE)
                count += 1
                while True:
                    peer.receive(SILENCE_SECONDS)
        except PeerGoneError:
            continue  # it ends, or is gone
    return count


def _has_live_server(path: Path) -> bool:
    """Return True if a server answers at the socket."""
    try:
        with connect(path) as peer:
            kind, _ = peer.receive(ALIVE_SECONDS)
            return kind in (FrameKind.BEAT, FrameKind.READY)
    except PeerGoneError:
        return False


def _remove_dead(folder: Path) -> None:
    """Remove the sockets of servers that were killed, and the logs of all servers that have ended."""
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
    """Listen on a socket at `path`. It replaces the socket of a dead or suspended server."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    temporary = path.with_suffix(f".{os.getpid()}")
    listener.bind(str(temporary))
    listener.listen(128)
    temporary.rename(path)
    return listener


def _detach(log: Path) -> None:
    """Redirect this process's output to the log. The process that started it waits for the end of the old output."""
    log_descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    null_descriptor = os.open(os.devnull, os.O_RDONLY)
    for source, standard in ((null_descriptor, 0), (log_descriptor, 1), (log_descriptor, 2)):
        os.dup2(source, standard)
    os.close(log_descriptor)
    os.close(null_descriptor)
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(message)s")
    logging.getLogger("kafka_s3_platform").setLevel(logging.INFO)
