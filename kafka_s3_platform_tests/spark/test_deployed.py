"""Spark as a deployment wants it: what its file says holds, and is not shown to every user of the machine."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kafka_s3_platform.defs.resources import SUBMIT_VARIABLE, make_submit_arguments

SECRET = "mark-7f3a-spark"
LOOK = """
import json, os, tempfile
from pathlib import Path
import psutil
from kafka_s3_platform.defs.resources import SparkResource
from kafka_s3_platform_tests.spark.test_session import NO_OBJECTS, answer

def look(task, attempt):
    return [a for p in psutil.Process().parents() if p.name() == "java" for a in p.cmdline()], os.environ.get("SEEN")

runner = SparkResource().make_runner()
[found] = runner.run(look, [0], 1)
conf = dict(runner._session().sparkContext.getConf().getAll())
modes = {str(path): path.stat().st_mode for path in Path(tempfile.gettempdir()).rglob("*")}
print(json.dumps([*found, conf, modes, answer(int(conf["spark.driver.port"]), NO_OBJECTS)]))
"""


def looked_at(folder: Path, **properties: str) -> Any:
    """Spark's arguments, a variable of its tasks, its properties, the modes of its local files, and what it answers.

    In a process of its own: Spark is started once in each.
    """
    path, local = folder / "spark of mine.properties", folder / "local"
    local.mkdir()
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    env = {**os.environ, "KAFKA_S3_SPARK_CONF": str(path), "SPARK_LOCAL_IP": "127.0.0.1"}
    env |= {"TMPDIR": str(local), "SPARK_LOCAL_DIRS": str(local)}
    command = [sys.executable, "-c", LOOK]
    found = subprocess.run(command, env=env, capture_output=True, text=True, check=False, umask=0o022)
    assert found.returncode == 0, found.stderr
    assert SECRET not in found.stderr
    return json.loads(found.stdout)


@pytest.mark.usefixtures("spark")
def test_the_properties_of_a_deployment_hold_and_are_nobodys_arguments(tmp_path: Path) -> None:
    """Also in a process that was started by one with a session, and other properties."""
    arguments, seen, conf, modes, said = looked_at(
        tmp_path,
        **{
            "spark.master": "local[1]",
            "spark.app.name": "mine",
            "spark.authenticate": "false",
            "spark.authenticate.secret": SECRET,
            "spark.executorEnv.SEEN": "yes",
        },
    )
    assert (conf["spark.app.name"], conf["spark.master"], seen) == ("mine", "local[1]", "yes")
    assert conf["spark.authenticate.secret"] == SECRET
    assert "StreamCorruptedException" in said, "who is not asked for the secret is heard by Java's deserializer"
    assert conf["spark.speculation"] == "false", "what the file does not say is as the platform wants it"
    assert any("org.apache.spark.deploy.SparkSubmit" in argument for argument in arguments)
    assert SECRET not in " ".join(arguments)
    assert any("blockmgr" in path for path in modes)
    assert {path: oct(mode) for path, mode in modes.items() if mode & 0o077} == {}, "tasks carry secrets, and may spill"


@pytest.mark.parametrize("given", ["--jars /a.jar pyspark-shell", None])
def test_sparks_other_arguments_stay(given: str | None) -> None:
    own = {"KAFKA_S3_SPARK_CONF": "/etc/my spark.properties"}
    made = make_submit_arguments(own if given is None else {**own, SUBMIT_VARIABLE: given})
    assert made == f"--load-spark-defaults --properties-file '/etc/my spark.properties' {given or 'pyspark-shell'}"
