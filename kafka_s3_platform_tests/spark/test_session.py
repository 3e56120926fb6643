import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafka_s3_platform.core.spark.session import (
    DAEMON_MODULE,
    LOG_SETTINGS,
    MAX_TASK_ATTEMPTS,
    build_spark_conf,
    log_errors_only,
    set_java_options,
)
from kafka_s3_platform_tests.spark.standalone import NO_OBJECTS, answer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_platforms_own_settings_hold_unless_overridden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    conf = build_spark_conf({"spark.master": "spark://host:7077", "spark.executor.memory": "4g"})
    assert (conf["spark.master"], conf["spark.executor.memory"]) == ("spark://host:7077", "4g")
    assert conf["spark.speculation"] == "false"
    assert conf["spark.pyspark.python"] == sys.executable


def test_local_mode_retries_a_failed_task_as_a_cluster_does() -> None:
    assert build_spark_conf()["spark.master"] == f"local[*,{MAX_TASK_ATTEMPTS}]"


def test_spark_of_this_machine_asks_for_a_secret_and_a_cluster_does_not() -> None:
    assert build_spark_conf()["spark.authenticate"] == "true"
    assert build_spark_conf({"spark.authenticate": "false"})["spark.authenticate"] == "false"
    assert "spark.authenticate" not in build_spark_conf({"spark.master": "spark://host:7077"})


def test_workers_of_this_machine_are_forked_with_their_imports() -> None:
    name = "spark.python.daemon.module"
    assert build_spark_conf()[name] == DAEMON_MODULE
    assert build_spark_conf({name: "mine"})[name] == "mine"
    assert name not in build_spark_conf({"spark.master": "spark://host:7077"})


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="only Linux shows a process's threads")
def test_the_process_that_is_forked_has_one_thread_and_all_that_a_task_imports() -> None:
    look = (
        "import os, sys; from kafka_s3_platform.python_daemon import TASKS, import_for_tasks as i; i();"
        "print(len(os.listdir('/proc/self/task')), set(TASKS) <= set(sys.modules));"
        "kinds = [type(finder).__name__ for finder in sys.path_importer_cache.values()];"
        "print('.zip/' in sys.modules['pyspark'].__file__, kinds.count('zipimporter'))"
    )
    # as Spark starts it: PySpark comes from its zip file
    [zipped] = Path(sysconfig.get_paths()["purelib"]).glob("pyspark/python/lib/pyspark.zip")
    paths = os.pathsep.join([str(zipped), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "OMP_NUM_THREADS": "4", "JE_ARROW_MALLOC_CONF": "background_thread:true", "PYTHONPATH": paths}
    found = subprocess.run([sys.executable, "-c", look], env=env, capture_output=True, text=True, check=True)
    assert (found.stdout, found.stderr) == ("1 True\nTrue 0\n", "")


@pytest.mark.parametrize("chosen", ["variable", "property", "file"])
def test_spark_starts_quickly_in_all_that_nobody_chose(tmp_path: Path, chosen: str) -> None:
    (tmp_path / "spark-defaults.conf").write_text("spark.x -XX:+UseG1GC" if chosen == "file" else "")
    before = {"SPARK_CONF_DIR": str(tmp_path), "SPARK_SUBMIT_OPTS": "-XX:+UseG1GC" if chosen == "variable" else "-Dx=y"}
    env, conf = dict(before), {"spark.driver.extraJavaOptions": "-XX:+UseG1GC"} if chosen == "property" else {}
    with set_java_options(conf, env):
        own = env["SPARK_SUBMIT_OPTS"].split()
        assert own[-1] == before["SPARK_SUBMIT_OPTS"], "the last one counts"
        assert "-XX:TieredStopAtLevel=1" in own
        assert "-XX:+UseSerialGC" not in own
        assert "SharedArchiveFile" not in env["SPARK_LAUNCHER_OPTS"], "it has another class path"
    assert env == before


def test_what_a_neighbour_on_this_machine_sends_is_not_deserialized(spark: "SparkSession") -> None:
    """Without a secret it is: see `test_deployed`."""
    said = answer(int(spark.sparkContext.getConf().get("spark.driver.port") or "0"), NO_OBJECTS)
    assert "StreamCorruptedException" not in said, said
    assert "AuthRpcHandler" in said or "SaslRpcHandler" in said, said


@pytest.mark.parametrize("chosen", [{"SPARK_SUBMIT_OPTS": "-Dlog4j2.level=info"}, {"SPARK_CONF_DIR": "/etc/spark"}])
def test_java_logs_errors_only_unless_somebody_chose_what_it_logs(chosen: dict[str, str]) -> None:
    env = {"SPARK_SUBMIT_OPTS": "-Xshare:auto"}
    with log_errors_only(env):
        assert env["SPARK_SUBMIT_OPTS"] == f"-Xshare:auto -Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}"
    assert env == {"SPARK_SUBMIT_OPTS": "-Xshare:auto"}
    env = dict(chosen)
    with log_errors_only(env):
        assert env == chosen
