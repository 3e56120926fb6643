import sys

import pytest

from kafka_s3_platform.spark.session import MAX_TASK_ATTEMPTS, spark_conf


def test_the_platforms_own_settings_hold_unless_overridden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    conf = spark_conf({"spark.master": "spark://host:7077", "spark.executor.memory": "4g"})
    assert (conf["spark.master"], conf["spark.executor.memory"]) == ("spark://host:7077", "4g")
    assert conf["spark.speculation"] == "false"
    assert conf["spark.pyspark.python"] == sys.executable


def test_local_mode_retries_a_failed_task_as_a_cluster_does() -> None:
    assert spark_conf()["spark.master"] == f"local[*,{MAX_TASK_ATTEMPTS}]"
