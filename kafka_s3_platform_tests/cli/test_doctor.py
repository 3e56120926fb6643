import json
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from kafka_s3_platform.cli import main
from kafka_s3_platform.core.spark.session import find_class_data
from kafka_s3_platform_tests.cli.conftest import KafkaS3, write_connector

CLASS_DATA = "class data of Spark"

Found = dict[str, tuple[str, str]]
"""What was looked at -> how it is, and what was found."""


def parse_findings(stdout: str) -> Found:
    return {each["what"]: (each["judgement"], each["found"]) for each in json.loads(stdout)["findings"]}


def test_whether_sparks_java_uses_class_data_is_told(kafka_s3_process: KafkaS3) -> None:
    """Java itself says nothing of it. `make test` has made it; a checkout without any is told how to make it."""
    is_made = find_class_data().is_file()
    found = parse_findings(kafka_s3_process("doctor", "--json").stdout)
    judgement, told = found[CLASS_DATA]
    assert judgement == ("ok" if is_made else "warning"), found
    assert ("come from class data" if is_made else "run `kafka-s3 prepare`") in told
    assert "is Java" in found["Java"][1]


def test_all_that_is_wrong_is_told_at_once_each_with_what_to_do(
    kafka_s3_without_spark: KafkaS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_connector(kafka_s3_without_spark, "t")
    folder = kafka_s3_without_spark.folder
    (folder / "connectors" / "bad.json").write_text('{"name": "bad", "config": {"flush.sise": "3"}}')
    monkeypatch.chdir(folder)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        variables = {
            "JAVA_HOME": "/nowhere",
            "KAFKA_S3_CONNECTORS": "connectors",
            "KAFKA_S3_LOCAL_DATA_DIR": str(folder / "data"),
            "KAFKA_S3_LOCAL_KAFKA_PORT": str(taken.getsockname()[1]),
        }
        done = CliRunner().invoke(main, ["doctor", "--json"], env=variables)
    assert done.exit_code == 1
    found = parse_findings(done.stdout)
    wrong = {what for what, (judgement, _) in found.items() if judgement == "wrong"}
    broken = str(Path("connectors", "bad.json"))
    assert wrong >= {"Java", CLASS_DATA, broken, "c.json: broker", "c.json: bucket"}
    assert "no java in JAVA_HOME=/nowhere" in found["Java"][1]
    assert "flush.size" in found[broken][1]
    judgement, told = found["ports of the embedded kafka"]
    assert judgement == "warning"
    assert "KAFKA_S3_LOCAL_KAFKA_PORT) is taken by" in told
    assert found["ports of the embedded s3"][0] in {"ok", "warning"}
    assert {"memory", "disk for temporary files", "disk for the embedded stack", "compiled functions"} <= found.keys()
