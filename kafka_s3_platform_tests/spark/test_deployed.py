"""Spark as a deployment wants it: what its file says holds, and is not shown to every user of the machine."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from kafka_s3_platform.core.defs.resources import SUBMIT_VARIABLE, make_submit_arguments, read_deployed_conf
from kafka_s3_platform.core.errors import ConfigError, PlatformError, SparkUnavailableError, TransientError
from kafka_s3_platform_tests.conftest import REPOSITORY

SECRET = "mark-7f3a-spark"
LOOK = """
import json, os, tempfile
from pathlib import Path
import psutil
from kafka_s3_platform.core.defs.resources import SparkResource, start_session
from kafka_s3_platform_tests.spark.standalone import NO_OBJECTS, answer

def look(task, attempt):
    return [a for p in psutil.Process().parents() if p.name() == "java" for a in p.cmdline()], os.environ.get("SEEN")

runner = SparkResource().make_runner()
[found] = runner.run(look, [0], 1)
conf = dict(start_session().sparkContext.getConf().getAll())
modes = {str(path): path.stat().st_mode for path in Path(tempfile.gettempdir()).rglob("*")}
print(json.dumps([*found, conf, modes, answer(int(conf["spark.driver.port"]), NO_OBJECTS)]))
"""


def looked_at(
    folder: Path, properties: Mapping[str, str], before: Sequence[str] = (), variables: Mapping[str, str] | None = None
) -> Any:
    """Spark's arguments, a variable of its tasks, its properties, the modes of its local files, and what it answers.

    In a process of its own, whose working directory is `folder / "here"`: Spark is started once in each.
    """
    path, local = folder / "spark of mine.properties", folder / "local"
    script = folder / "code" / "look.py"
    for each in (local, script.parent, folder / "here"):
        each.mkdir(exist_ok=True)
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    script.write_text(LOOK)
    env = {name: value for name, value in os.environ.items() if name not in ("SPARK_HOME", "PYTHONSAFEPATH")}
    env |= {"KAFKA_S3_SPARK_CONF": str(path), "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(REPOSITORY)}
    env |= {"TMPDIR": str(local), "SPARK_LOCAL_DIRS": str(local), **(variables or {})}
    command = [*before, sys.executable, str(script)]
    found = subprocess.run(
        command, cwd=folder / "here", env=env, capture_output=True, text=True, check=False, umask=0o022, timeout=300
    )
    assert found.returncode == 0, found.stderr
    assert SECRET not in found.stderr
    return json.loads(found.stdout)


def write_strangers(folder: Path) -> Path:
    """Python modules and a Spark in the working directory and above it. Return the file that names those that ran."""
    run = folder / "run"
    for each in (folder / "here", folder / "bin", folder / "jars"):
        each.mkdir()
    for module in ("socket", "numbers", "psutil", "numpy"):
        (folder / "here" / f"{module}.py").write_text(f"open({str(run)!r}, 'a').write('{module} ')")
    submit = folder / "bin" / "spark-submit"
    submit.write_text(f"#!/bin/sh\necho spark-submit >> {run}; exit 1\n")
    submit.chmod(0o755)
    return run


@pytest.mark.usefixtures("spark")
def test_the_properties_of_a_deployment_hold_and_are_nobodys_arguments(tmp_path: Path) -> None:
    """Also in a process that was started by one with a session, and other properties.

    Neither Spark nor its workers run what lies in the working directory or above it.
    """
    strangers = write_strangers(tmp_path)
    arguments, seen, conf, modes, said = looked_at(
        tmp_path,
        {
            "spark.master": "local[1]",
            "spark.app.name": "mine",
            "spark.authenticate": "false",
            "spark.authenticate.secret": SECRET,
            "spark.executorEnv.SEEN": "yes",
        },
    )
    assert not strangers.exists()
    assert (conf["spark.app.name"], conf["spark.master"], seen) == ("mine", "local[1]", "yes")
    assert conf["spark.authenticate.secret"] == SECRET
    assert "StreamCorruptedException" in said, "who is not asked for the secret is heard by Java's deserializer"
    assert conf["spark.speculation"] == "false", "what the file does not say is as the platform wants it"
    assert any("org.apache.spark.deploy.SparkSubmit" in argument for argument in arguments)
    assert SECRET not in " ".join(arguments)
    assert any("blockmgr" in path for path in modes)
    assert {path: oct(mode) for path, mode in modes.items() if mode & 0o077} == {}, "tasks carry secrets, and may spill"


def test_a_user_without_an_entry_in_the_user_database_starts_spark(
    tmp_path: Path,
) -> None:
    """Containers run under any user id; and a shell may be set up for another Spark."""
    another = ["unshare", "--user", "--map-user=12345", "--map-group=12345"]
    if subprocess.run([*another, "true"], check=False).returncode:
        pytest.skip("this machine lets nobody map user ids")
    others = {
        "SPARK_HOME": "/opt/an-old-spark",
        "SPARK_REMOTE": "sc://nowhere:15002",
        "SPARK_CONNECT_MODE_ENABLED": "1",
        "SPARK_API_MODE": "connect",
        "PYSPARK_PYTHON": "/usr/bin/python2",
    }
    _, _, conf, *_ = looked_at(tmp_path, {"spark.master": "local[1]"}, another, others)
    assert conf["spark.master"] == "local[1]"


@pytest.mark.parametrize(
    ("variables", "error", "said"),
    [
        (
            {"JAVA_HOME": "/nowhere"},
            ConfigError,
            "[KS-JAVA] Spark does not start: no java in JAVA_HOME=/nowhere: install Java 17",
        ),
        (
            {"PYSPARK_SUBMIT_ARGS": "--no-such-option"},
            SparkUnavailableError,
            "[KS-SPARK] Spark does not start: [JAVA_GATEWAY_EXITED]",
        ),
    ],
)
def test_a_spark_that_does_not_start_is_one_sentence_and_heals_where_java_is(
    monkeypatch: pytest.MonkeyPatch, variables: Mapping[str, str], error: type[PlatformError], said: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("KAFKA_S3_SPARK_CONF")
    command = [
        sys.executable,
        "-c",
        "from kafka_s3_platform.core.defs.resources import SparkResource as S; S().make_runner().start()",
    ]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    last = found.stderr.strip().splitlines()[-1]
    assert last.startswith(f"kafka_s3_platform.core.errors.{error.__name__}: {said}")
    assert issubclass(error, TransientError) == (error is SparkUnavailableError), "a sensor asks again"


def test_a_machine_whose_defaults_name_a_cluster_runs_on_itself_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    defaults = tmp_path / "spark-defaults.conf"
    defaults.write_text("# of the machine\nspark.master   k8s://https://nowhere\nspark.submit.deployMode=cluster\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.delenv("KAFKA_S3_SPARK_CONF")
    look = "from kafka_s3_platform.core.defs.resources import start_session as s; print(s().sparkContext.master)"
    found = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "local[*,4]"
    where = f"spark.master=k8s://https://nowhere, spark.submit.deployMode=cluster in {defaults}"
    assert f"not used: {where}. Only the file that KAFKA_S3_SPARK_CONF names" in found.stderr


def test_a_deploy_mode_without_a_driver_here_is_named_with_its_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.properties"
    path.write_text("spark.master=yarn\nspark.submit.deployMode=cluster\n")
    with pytest.raises(ConfigError, match=r"mine\.properties: spark\.submit\.deployMode=cluster: the driver is this"):
        read_deployed_conf({"KAFKA_S3_SPARK_CONF": str(path)})


@pytest.mark.parametrize("given", ["--jars /a.jar pyspark-shell", None])
def test_sparks_other_arguments_stay(given: str | None) -> None:
    own = {"KAFKA_S3_SPARK_CONF": "/etc/my spark.properties"}
    made = make_submit_arguments(own if given is None else {**own, SUBMIT_VARIABLE: given})
    assert made == f"--load-spark-defaults --properties-file '/etc/my spark.properties' {given or 'pyspark-shell'}"
