"""`kafka-s3 prepare`."""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import click

from kafka_s3_platform.core.config import environment
from kafka_s3_platform.core.errors import PermanentError
from kafka_s3_platform.core.java.runtime import remove_others
from kafka_s3_platform.core.spark.session import find_class_data

TRAINING = f"from {__package__}.training import run_spark; run_spark()"
"""Code for a process of its own, since a process can start Spark only once."""

_NOT_IN_TRAINING = (
    environment.SPARK_CONF,
    *("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS", "PYSPARK_SUBMIT_ARGS", "SPARK_CONF_DIR", "SPARK_DIST_CLASSPATH"),
    *("HADOOP_CONF_DIR", "YARN_CONF_DIR"),
)
"""Variables of a deployment's own Spark. Class data is for Spark as it is installed, which most deployments start."""


@click.command
def prepare() -> None:
    """Precompute class data and compiled functions, so that later starts are fast.

    The class data is for Spark's Java; numba compiles the functions. Existing files stay. Run the command again after
    an update of Java, since class data fits one Java and its jars. Without it, all works, but starts take longer.
    """
    from kafka_s3_platform.cli.machine.training import compile_kernels

    missed = sum(not kernel.was_cached for kernel in compile_kernels())
    click.echo(f"compiled functions: {f'{missed} compiled now' if missed else 'all were there'}")
    click.echo(f"class data of Spark: {_prepare_class_data()}")


def _prepare_class_data() -> str:
    """Make Spark's class data if it is not there. Return a sentence about it."""
    data = find_class_data()
    # for every user of this Python
    os.umask(0o022)
    try:
        if data.is_file():
            return f"{data} was there"
        data.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=".making-", dir=data.parent))
    except OSError as err:
        raise PermanentError(f"class data of Spark cannot be written: {err}") from err
    try:
        _make_class_data(data, folder / data.name)
    finally:
        shutil.rmtree(folder)
    remove_others(data)
    return f"made {data} ({data.stat().st_size / 1e6:.0f} MB)"


def _make_class_data(data: Path, partial: Path) -> None:
    """Run Spark once, have its Java write class data to `partial`, then move it to `data`."""
    env = {name: value for name, value in os.environ.items() if name not in _NOT_IN_TRAINING}
    env["SPARK_SUBMIT_OPTS"] = shlex.quote(f"-XX:ArchiveClassesAtExit={partial}")
    finished = subprocess.run([sys.executable, "-c", TRAINING], env=env, capture_output=True, text=True, check=False)
    if not partial.is_file():
        raise PermanentError(f"Java made no class data of Spark. It printed: {finished.stderr.strip() or 'nothing'}")
    partial.chmod(0o644)
    partial.replace(data)
