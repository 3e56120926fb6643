"""Finds the Java runtime, and the jars of the PySpark wheel."""

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

from kafka_s3_platform.errors import ConfigError, ErrorCode

# Kafka 4's broker and Spark 4 need it.
LEAST_VERSION = 17


def find_java() -> Path:
    """Return the `java` of JAVA_HOME, else the one in PATH.

    Raises:
        ConfigError: there is none, or it is older than `LEAST_VERSION`.
    """
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
    """Return the major version of a `java`. Raises ConfigError without one."""
    release = java.resolve().parents[1] / "release"
    text = release.read_text() if release.is_file() else ""
    if declared := re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', text, re.MULTILINE):
        return int(declared[1])
    # to ask Java itself takes as long as to start it
    shown = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    match = re.search(r'version "(?:1\.)?(\d+)', shown)
    if match is None:
        raise ConfigError(f"`{java} -version` does not tell its version: {shown.strip()!r}", code=ErrorCode.JAVA)
    return int(match[1])
