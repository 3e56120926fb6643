"""Finds the Java runtime and the jars of the PySpark wheel, and chooses options for a quick start.

Class data (CDS, class data sharing) are a program's classes in the form that they have once they are loaded. Java uses
them only if they fit exactly this Java and class path, and otherwise silently starts without them. So the name of their
file holds a digest of both.
"""

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from kafka_s3_platform.core.errors import ConfigError, ErrorCode

# Kafka 4's broker and Spark 4 need this version.
LEAST_VERSION = 17


def find_java() -> Path:
    """Return the `java` of JAVA_HOME, else of PATH. Raises ConfigError if it is missing or below LEAST_VERSION."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home, "bin")) if home else None)
    if java is None:
        where = f"JAVA_HOME={home}" if home else "PATH"
        raise ConfigError(
            f"no java in {where}: install Java {LEAST_VERSION} or newer, or set JAVA_HOME", code=ErrorCode.JAVA
        )
    version = read_version(Path(java))
    if version < LEAST_VERSION:
        raise ConfigError(
            f"{java} is Java {version}: Kafka and Spark need Java {LEAST_VERSION} or newer; set JAVA_HOME",
            code=ErrorCode.JAVA,
        )
    return Path(java)


def find_pyspark_jars() -> Path:
    """Return the folder of jars in the installed PySpark, without importing PySpark."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError("PySpark is not installed in this environment: run `make setup`")
    return Path(spec.submodule_search_locations[0], "jars")


def read_version(java: Path) -> int:
    """Return the major version of a `java`. Raises ConfigError if `java` does not tell it."""
    release = java.resolve().parents[1] / "release"
    text = release.read_text() if release.is_file() else ""
    if declared := re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', text, re.MULTILINE):
        return int(declared[1])
    # asking Java itself takes as long as starting it
    shown = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    match = re.search(r'version "(?:1\.)?(\d+)', shown)
    if match is None:
        raise ConfigError(f"`{java} -version` does not tell its version: {shown.strip()!r}", code=ErrorCode.JAVA)
    return int(match[1])


_KINDS = (
    # This must be the first option: an older, newer or other Java may not know one of the options below.
    (r"IgnoreUnrecognizedVMOptions", "-XX:+IgnoreUnrecognizedVMOptions"),
    # Warnings (for example, that class data does not fit) go to where they disturb nobody's output.
    (r"-Xlog", "-Xlog:disable -Xlog:all=warning:stderr"),
    # The quick compiler alone: archiving 4,000,000 records costs less with it (docs/bench.md).
    (r"-XX:(TieredStopAtLevel|[+-]TieredCompilation|CompilationMode)|-Xint|-Xcomp|JVMCI", "-XX:TieredStopAtLevel=1"),
    # Java does not start with two collectors.
    (r"-XX:[+-]Use\w*GC\b", "-XX:+UseSerialGC"),
)
"""For each kind of option: the pattern that shows that a user has chosen one, and our own choice."""

_OWN_CLASS_DATA = re.compile(r"-Xshare|SharedArchiveFile|ArchiveClassesAtExit|SharedClassListFile|AutoCreateShared")

FOLDER = Path(sys.prefix, "share", "kafka-s3")
"""The folder of class data, in this Python's environment. Only people whose code it runs anyway may write there."""


def choose_options(user_options: str, class_data: Path | None = None) -> list[str]:
    """Return options for a quick start, except of kinds that `user_options` (all of the user's, as a text) include.

    `class_data` is left out as well if this user cannot read it, or if Java would take its path for two paths.
    """
    chosen_options = [
        option for kind, options in _KINDS if not re.search(kind, user_options) for option in options.split()
    ]
    usable = class_data is not None and os.access(class_data, os.R_OK) and os.pathsep not in str(class_data)
    if usable and not _OWN_CLASS_DATA.search(user_options):
        chosen_options.append(f"-XX:SharedArchiveFile={class_data}")
    return chosen_options


def name_class_data(java: Path, jars: Iterable[Path], program: str = "spark", folder: Path | None = None) -> Path:
    """Return the path of a program's class data, which may not exist. Another Java or jar gives another path.

    The file is in `FOLDER`, or in `folder` if it is named. Only users who are trusted to run code here may write there.
    """
    home = java.resolve().parents[1]
    parts = [java.resolve(), home / "release", *(home / "lib" / name for name in ("modules", "server/classes.jsa"))]
    made_of = "\n".join([*map(str, _KINDS), *map(_describe_file, [*parts, *sorted(jars)])])
    return (folder or FOLDER) / f"{program}-{hashlib.sha256(made_of.encode()).hexdigest()[:16]}.jsa"


def _describe_file(path: Path) -> str:
    """Return the attributes of a file that Java compares. A container image keeps times in whole seconds."""
    if not path.exists():
        return f"{path} is missing"
    status = path.stat()
    return f"{path} {status.st_size} {int(status.st_mtime)}"


def remove_others(current: Path) -> None:
    """Remove the program's class data that were made for another Java or other jars."""
    for path in current.parent.glob(f"{current.name.partition('-')[0]}-*.jsa"):
        if path != current:
            path.unlink(missing_ok=True)
