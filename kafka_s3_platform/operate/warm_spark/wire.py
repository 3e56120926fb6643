"""Finds a warm Spark, and exchanges frames with it, each of a kind and a length.

The socket of a warm Spark is in a folder of the user, and its name is a digest of everything its tasks read. A client
computes the same digest for itself, and uses only the socket of this name.

A task comes pickled, and a pickle is code, so whoever can connect can run code as this user. Therefore nobody else can
connect: the folder is closed to others, and each side asks the kernel for the user of the other process.
"""

import hashlib
import json
import os
import resource
import select
import shutil
import socket
import stat
import struct
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import final

from kafka_s3_platform.core.config import environment
from kafka_s3_platform.core.errors import PermanentError
from kafka_s3_platform.core.java.runtime import find_pyspark_jars

PACKAGE = Path(__file__).resolve().parents[2]

UNREAD = frozenset(
    {
        *("_", "PWD", "OLDPWD", "SHLVL", "PS1", "LS_COLORS", "LESSOPEN", "LESSCLOSE", "PYTHONWARNINGS"),
        *("TERM", "COLORTERM", "COLUMNS", "LINES", "WINDOWID", "DISPLAY", "WAYLAND_DISPLAY", "STY", "WT_SESSION"),
        *("DBUS_SESSION_BUS_ADDRESS", "INVOCATION_ID", "JOURNAL_STREAM", "MEMORY_PRESSURE_WATCH", "SYSTEMD_EXEC_PID"),
        *("XDG_RUNTIME_DIR", "XDG_SEAT", "XDG_VTNR"),
        *("MAKEFLAGS", "MFLAGS", "GNUMAKEFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "MAKE_TERMOUT", "MAKE_TERMERR"),
        *(environment.CONNECTORS, environment.AUTOSTART, environment.RUN_RETENTION_DAYS),
        *(environment.WARM_SPARK, environment.DAGSTER_URL),
    }
)
"""Variables tasks do not read: variables of terminals, shells, sessions and make, and our own for drivers only."""

UNREAD_PREFIXES = (
    *("DAGSTER_", environment.LOCAL_PREFIX, "SSH_", "XDG_SESSION_", "PYTEST_"),
    *("TERM_", "TMUX", "VTE_", "ITERM_", "KITTY_", "GNOME_TERMINAL_", "KONSOLE_", "ALACRITTY_", "VSCODE_"),
)
"""Prefixes of other variables tasks do not read. Any other counts, because libraries and plug-ins may read it."""


@dataclass(frozen=True)
class Identity:
    """Two processes with the same identity would start the same Spark for the same tasks."""

    home: str
    """The digest of the working directory and the Python."""
    place: str
    """`home`, and a digest of the environment, limits and niceness. It stays the same after a new installation."""
    version: str
    """The digest of the installed packages, Spark's properties, and the inode of the working directory."""


def identify_process(env: Mapping[str, str] = os.environ) -> Identity:
    """Return a digest of all that decides which Spark this process starts. Processes with the same digest share it."""
    read_variables = {name: value for name, value in env.items() if may_be_read(name)}
    limits = {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")}
    # The three parts name a socket. The kernel takes about 100 characters of its path.
    home = _digest(str(Path.cwd()).encode(), os.path.normpath(sys.executable).encode())[:8]
    surroundings = [sorted(read_variables.items()), limits, os.nice(0)]
    place = f"{home}-{_digest(json.dumps(surroundings).encode())[:12]}"
    return Identity(home, place, _digest(*_list_installation(env))[:11])


def may_be_read(variable: str) -> bool:
    """Return True if a task may read this environment variable."""
    return variable not in UNREAD and not variable.startswith(UNREAD_PREFIXES)


def delete_unread_variables() -> None:
    """Delete from this process's environment the variables tasks do not read. They are its first client's."""
    for name in [*os.environ]:
        if not may_be_read(name):
            del os.environ[name]


def _list_installation(env: Mapping[str, str]) -> Iterator[bytes]:
    """Yield everything that affects a warm Spark: Python, folder, package, settings and Java."""
    yield sys.version.encode()
    # if a server's folder is renamed, the server stays in it, and another folder may get the name
    folder = Path.cwd().stat()
    yield f"{folder.st_dev} {folder.st_ino}".encode()
    for path in sorted(PACKAGE.rglob("*.py")):
        yield str(path).encode()
        yield path.read_bytes()
    installed = {path.name for entry in sys.path if entry for path in Path(entry).glob("*.dist-info")}
    yield json.dumps(sorted(installed)).encode()
    for path in _list_settings(env):
        yield str(path).encode()
        yield path.read_bytes() if path.is_file() else b""
    yield _describe_java(env).encode()


def _list_settings(env: Mapping[str, str]) -> Iterator[Path]:
    """Yield the settings files Spark's start reads, even if they do not exist."""
    if named := env.get(environment.SPARK_CONF):
        yield Path(named).absolute()
    folder = Path(env.get("SPARK_CONF_DIR") or find_pyspark_jars().parent / "conf")
    for name in ("spark-defaults.conf", "spark-env.sh", "log4j2.properties"):
        yield folder / name


def _describe_java(env: Mapping[str, str]) -> str:
    """Describe the Java without starting it, by its file, size and time."""
    home = env.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home, "bin")) if home else env.get("PATH"))
    if java is None:
        return "none"
    real = Path(java).resolve()
    return f"{real} {real.stat().st_size} {real.stat().st_mtime_ns}"


def _digest(*parts: bytes) -> str:
    """Digest the parts, each with its length, so different lists of parts have different digests."""
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.hexdigest()


SILENCE_SECONDS = 30.0
"""The silence after which the other side counts as gone, because it or its JVM is suspended."""

BEAT_SECONDS = 1.0
"""The time between two beats of a server to a waiting client."""

MAX_FRAME = 1 << 30
"""The longest body of a frame: Spark's own limit for a job's results (`spark.driver.maxResultSize`)."""

_HEAD = struct.Struct(">BQ")

_PEER = struct.Struct("3i")
"""The ids of the process, user and group at the other end, as Linux gives them."""


class FrameKind(IntEnum):
    """The kind of a frame."""

    BEAT = 0
    READY = 1
    """The session has started. The body is the server's process id, and the most tasks of a run at once."""
    TASK = 2
    RETIRE = 3
    """Another server takes this one's place, so this one has to end with its last client."""
    RESULT = 4
    FAILED = 5
    """The body is Spark's error."""


class PeerGoneError(Exception):
    """The other side has ended, or shows no sign of life."""


class ForeignFolderError(OSError):
    """The folder of the sockets is not only this user's."""


@final
class Peer:
    """One end of a connection. Only this user's processes can connect."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        pid, uid, _ = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
        if uid != os.geteuid():
            connection.close()
            raise PeerGoneError(f"process {pid} at the other end is of user {uid}, not of {os.geteuid()}")

    def send(self, kind: FrameKind, body: bytes = b"") -> None:
        """Send a frame. Raises PeerGoneError if nobody reads it, and PermanentError if it is too long."""
        if len(body) > MAX_FRAME:
            raise PermanentError(f"a task or its result is {len(body):,} bytes: at most {MAX_FRAME:,} can be sent")
        try:
            self._socket.sendall(_HEAD.pack(kind, len(body)) + body)
        except OSError as err:
            raise PeerGoneError(str(err)) from err

    def receive(self, seconds: float | None = None) -> tuple[FrameKind, bytes]:
        """Receive the next frame. Wait `seconds` for each part of it, or for ever if None. Raises PeerGoneError."""
        self._socket.settimeout(seconds)
        try:
            kind, size = _HEAD.unpack(self._receive_exactly(_HEAD.size))
            if size > MAX_FRAME:
                raise PeerGoneError(f"it announces a frame of {size:,} bytes: at most {MAX_FRAME:,} are taken")
            return FrameKind(kind), self._receive_exactly(size)
        except TimeoutError as err:
            raise PeerGoneError(f"it shows no sign of life for {seconds:g} s") from err
        except (OSError, ValueError) as err:
            raise PeerGoneError(str(err)) from err
        finally:
            self._socket.settimeout(None)

    def is_readable(self, seconds: float) -> bool:
        """Return True if a frame, or the end of the connection, comes within `seconds`."""
        poll = select.poll()  # `select.select` knows no more than 1,024 files
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def end_sending(self) -> None:
        """Close the sending direction. Frames of the other side can still be received."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            return  # it is already gone

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def __enter__(self) -> "Peer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self._socket.close()  # of a runner that nobody uses any more

    def _receive_exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self._socket.recv(min(size - len(parts), 1 << 20))
            if not part:
                raise PeerGoneError("it ended")
            parts += part
        return bytes(parts)


def connect(path: Path) -> Peer:
    """Connect to a server's socket. Raises PeerGoneError if no server listens, or if it is another user's."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(SILENCE_SECONDS)
    try:
        connection.connect(str(path))
    except OSError as err:
        connection.close()
        raise PeerGoneError(f"{path}: {err.strerror or err}") from err
    return Peer(connection)


def find_folder() -> Path:
    """Return the folder of the user's sockets, in the login session's folder or else in the home. It may not exist."""
    session = os.environ.get("XDG_RUNTIME_DIR")
    return Path(session, "kafka-s3") if session else Path.home() / ".cache" / "kafka-s3"


def find_socket(folder: Path, identity: Identity) -> Path:
    """Return the socket of the warm Spark with this identity."""
    return folder / f"{identity.place}-{identity.version}.sock"


def find_log(path: Path) -> Path:
    """Return the file with the output of the socket's server and its JVM."""
    return path.with_suffix(".log")


def refuse_foreign_folder(folder: Path) -> None:
    """Raise ForeignFolderError if somebody else could put a socket into the folder, or connect to one there."""
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise ForeignFolderError(
            f"{folder} has to be a folder (no link) of user {os.geteuid()} with mode 0700, and is of user "
            f"{status.st_uid} with mode {stat.filemode(status.st_mode)}: correct or remove it"
        )
