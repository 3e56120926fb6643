"""Names a warm Spark by everything that its tasks read. A client uses only the one whose name it would have given."""

import hashlib
import json
import os
import resource
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kafka_s3_platform.config.keys import environment
from kafka_s3_platform.java.runtime import find_pyspark_jars

PACKAGE = Path(__file__).parents[2]

UNREAD = frozenset(
    {
        *("_", "PWD", "OLDPWD", "SHLVL", "PS1", "LS_COLORS", "LESSOPEN", "LESSCLOSE", "PYTHONWARNINGS"),
        *("TERM", "COLORTERM", "COLUMNS", "LINES", "WINDOWID", "DISPLAY", "WAYLAND_DISPLAY", "STY", "WT_SESSION"),
        *("DBUS_SESSION_BUS_ADDRESS", "INVOCATION_ID", "JOURNAL_STREAM", "MEMORY_PRESSURE_WATCH", "SYSTEMD_EXEC_PID"),
        *("XDG_RUNTIME_DIR", "XDG_SEAT", "XDG_VTNR"),
        *("MAKEFLAGS", "MFLAGS", "GNUMAKEFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "MAKE_TERMOUT", "MAKE_TERMERR"),
        *(environment.CONNECTORS.name, environment.AUTOSTART.name, environment.RUN_RETENTION_DAYS.name),
        *(environment.WARM_SPARK.name, environment.DAGSTER_URL.name, environment.DOCS_URL.name),
    }
)
"""Variables that no task sees: of terminals, shells, sessions, make, and those of ours that only drivers read."""

UNREAD_PREFIXES = (
    *("DAGSTER_", environment.LOCAL_PREFIX, "SSH_", "XDG_SESSION_", "PYTEST_"),
    *("TERM_", "TMUX", "VTE_", "ITERM_", "KITTY_", "GNOME_TERMINAL_", "KONSOLE_", "ALACRITTY_", "VSCODE_"),
)
"""Variables that begin so are not seen either. Every other one counts: libraries and plug-ins read what they like."""


@dataclass(frozen=True)
class Identity:
    """Two processes with the same identity would start the same Spark for the same tasks."""

    place: str
    """Digest of the environment, limits, niceness, the working directory and the Python.

    It stays when something is installed anew.
    """
    version: str
    """Digest of what is installed, of Spark's properties, and of which folder has the working directory's name now."""


def identify_process(env: Mapping[str, str] = os.environ) -> Identity:
    """Return the identity of the warm Spark that this process would start."""
    read = {name: value for name, value in env.items() if is_read(name)}
    limits = {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")}
    place = [sorted(read.items()), limits, os.nice(0), str(Path.cwd()), sys.executable]
    return Identity(_digest(json.dumps(place).encode()), _digest(*_read_installed(env)))


def is_read(variable: str) -> bool:
    """Whether a task may read this environment variable."""
    return variable not in UNREAD and not variable.startswith(UNREAD_PREFIXES)


def forget_unread() -> None:
    """Take the variables that no task sees out of this process's environment: they are those of its first client."""
    for name in [*os.environ]:
        if not is_read(name):
            del os.environ[name]


def _read_installed(env: Mapping[str, str]) -> Iterator[bytes]:
    yield sys.version.encode()
    # a server stays in its folder when that is renamed, and another one gets the name
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
    """Yield the files of settings that Spark's start reads, whether they are there or not."""
    if named := env.get(environment.SPARK_CONF.name):
        yield Path(named).absolute()
    folder = Path(env.get("SPARK_CONF_DIR") or find_pyspark_jars().parent / "conf")
    for name in ("spark-defaults.conf", "spark-env.sh", "log4j2.properties"):
        yield folder / name


def _describe_java(env: Mapping[str, str]) -> str:
    """Tell which Java it is without starting it: the file, its size and its time."""
    home = env.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home, "bin")) if home else env.get("PATH"))
    if found is None:
        return "none"
    real = Path(found).resolve()
    return f"{real} {real.stat().st_size} {real.stat().st_mtime_ns}"


def _digest(*parts: bytes) -> str:
    """Digest the parts. Each is told with its length, so that they cannot run into each other."""
    made = hashlib.blake2b(digest_size=8)
    for part in parts:
        made.update(len(part).to_bytes(8, "big"))
        made.update(part)
    return made.hexdigest()
