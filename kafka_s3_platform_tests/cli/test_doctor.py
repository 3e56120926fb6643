import json
from typing import Any

import pytest

from kafka_s3_platform.spark.session import find_class_data
from kafka_s3_platform_tests.cli.conftest import KafkaS3

CLASS_DATA = "class data of Spark"


def examine(kafka_s3: KafkaS3) -> dict[str, Any]:
    found = kafka_s3("doctor", "--json")
    assert found.stdout, found.stderr
    return {finding["what"]: finding for finding in json.loads(found.stdout)["findings"]}


def test_whether_sparks_java_uses_class_data_is_told(kafka_s3_process: KafkaS3) -> None:
    """Java itself says nothing of it. `make test` has made it; a checkout without any is told how to make it."""
    is_made = find_class_data().is_file()
    found = examine(kafka_s3_process)[CLASS_DATA]
    assert found["is_well"] == is_made, found
    assert ("come from class data" if is_made else "run `kafka-s3 prepare`") in found["found"]


def test_what_is_missing_is_told_and_the_rest_is_looked_at(
    kafka_s3_process: KafkaS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    found = examine(kafka_s3_process)
    assert {what for what, finding in found.items() if not finding["is_well"]} >= {"Java", CLASS_DATA}
    assert "no java in JAVA_HOME=/nowhere" in found["Java"]["found"]
