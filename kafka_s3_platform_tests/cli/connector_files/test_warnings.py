"""What `kafka-s3 check` warns of in files that load."""

import json

from click.testing import CliRunner

from kafka_s3_platform.cli import main
from kafka_s3_platform_tests.cli.conftest import KafkaS3, write_connector

MOVED = {
    "KAFKA_S3_LOCAL_KAFKA_PORT": "31699",
    "KAFKA_S3_LOCAL_S3_PORT": "31698",
    "KAFKA_S3_LOCAL_REGISTRY_PORT": "31697",
}
"""The embedded stack is where `write_connector` says that cluster and store are."""


def list_warnings(path: str, variables: dict[str, str]) -> list[str]:
    found = CliRunner().invoke(main, ["check", path, "--json"], env=variables)
    assert found.exit_code == 0, found.output
    warnings: list[str] = json.loads(found.stdout)["warnings"]
    return warnings


def test_an_address_of_this_machine_where_the_embedded_stack_is_not_is_warned_of(
    kafka_s3_without_spark: KafkaS3,
) -> None:
    registry = {
        "format.class": "AvroFormat",
        "value.converter": "AvroConverter",
        "value.converter.schema.registry.url": "http://user:hidden@localhost:31697",
    }
    write_connector(kafka_s3_without_spark, "t", **registry)
    path = str(kafka_s3_without_spark.folder / "connectors" / "c.json")
    assert list_warnings(path, MOVED) == []
    warnings = list_warnings(path, {})
    assert [next(word for word in MOVED if f"${{env:{word}}}" in warning) for warning in warnings] == list(MOVED)
    assert "hidden" not in "".join(warnings)


def test_addresses_of_other_machines_are_the_users_own(kafka_s3_without_spark: KafkaS3) -> None:
    write_connector(kafka_s3_without_spark, "t", **{"store.url": "https://s3.example.com"})
    folder = kafka_s3_without_spark.folder / "connectors"
    (folder / "worker.properties").write_text("bootstrap.servers=kafka.example.com:9092,10.0.0.7:29093\n")
    assert list_warnings(str(folder / "c.json"), {}) == []


def test_a_pattern_of_folders_that_mixes_times_is_warned_of(kafka_s3_without_spark: KafkaS3) -> None:
    path_format = {"partitioner.class": "HourlyPartitioner", "path.format": "YYYY-MM-dd-hh"}
    write_connector(kafka_s3_without_spark, "t", **path_format)
    [warning] = list_warnings(str(kafka_s3_without_spark.folder / "connectors" / "c.json"), MOVED)
    assert "write HH" in warning
