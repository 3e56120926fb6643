"""`kafka-s3 doctor`: says whether this machine has what the platform needs, and uses what makes it quick."""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from kafka_s3_platform.cli.machine.prepare import TRAINING
from kafka_s3_platform.cli.output import align_columns, json_option, print_result
from kafka_s3_platform.errors import PlatformError
from kafka_s3_platform.java.runtime import find_java
from kafka_s3_platform.spark.session import find_class_data


@dataclass(frozen=True)
class Finding:
    """What was looked at, whether it is well, and what was found, with what to do if it is not."""

    what: str
    is_well: bool
    found: str


@click.command
@json_option
@click.pass_context
def doctor(ctx: click.Context, as_json: bool) -> None:
    """Say whether this machine has what the platform needs, and uses what makes it quick.

    Starts Spark once. Exit status 1 if something is not well.
    """
    findings = [_examine(what, look) for what, look in LOOKS.items()]
    rows = [[f.what, "well" if f.is_well else "not well", f.found] for f in findings]
    print_result({"findings": [asdict(f) for f in findings]}, as_json, align_columns(rows))
    ctx.exit(0 if all(f.is_well for f in findings) else 1)


def _examine(what: str, look: Callable[[], tuple[bool, str]]) -> Finding:
    try:
        return Finding(what, *look())
    except (PlatformError, OSError) as err:
        return Finding(what, is_well=False, found=str(err))


def _look_at_java() -> tuple[bool, str]:
    return True, str(find_java())


def _look_at_class_data() -> tuple[bool, str]:
    """Start Spark as a run does, and count where its Java's classes came from. Java does not say that it uses none."""
    data = find_class_data()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "classes")
        asked = shlex.quote(f"-Xlog:class+load:file={log}")
        env = {**os.environ, "SPARK_SUBMIT_OPTS": f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} {asked}"}
        done = subprocess.run([sys.executable, "-c", TRAINING], env=env, capture_output=True, text=True, check=False)
        if done.returncode:
            *_, said = ["it printed nothing", *done.stderr.strip().splitlines()]
            return False, f"Spark does not start: {said}"
        sources = re.findall(r"source: (.*)", log.read_text() if log.exists() else "")
    used = sum(source.endswith("(top)") for source in sources)
    if used:
        return True, f"{used:,} of {len(sources):,} classes of Spark's Java come from class data"
    if not data.is_file():
        return False, f"there is none for this Java and these jars ({data}): run `kafka-s3 prepare`"
    return False, (
        f"{data} is there, and Java does not use it. Look for other options or another class path: "
        f"spark.driver.extraClassPath or extraJavaOptions, SPARK_CONF_DIR, SPARK_SUBMIT_OPTS, JAVA_TOOL_OPTIONS"
    )


def _look_at_kernels() -> tuple[bool, str]:
    from kafka_s3_platform.cli.machine.training import run_kernels

    found = run_kernels()
    missed = [kernel.name for kernel in found if not kernel.was_cached]
    if not missed:
        return True, f"all {len(found)} were in numba's cache"
    return False, (
        f"{len(missed)} of {len(found)} had to be compiled. If it is so again, numba cannot write its cache: set "
        f"NUMBA_CACHE_DIR to a folder that this user can write"
    )


LOOKS: dict[str, Callable[[], tuple[bool, str]]] = {
    "Java": _look_at_java,
    "class data of Spark": _look_at_class_data,
    "compiled functions": _look_at_kernels,
}
"""What is looked at, in this order: a function returns whether it is well, and what it found."""
