"""The commands where another connector's file is broken."""

import json

import pytest

from kafka_s3_platform_tests.cli.conftest import KafkaS3, parsed, write_connector, write_reachable_connector
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.support import Sent

STORE = "127.0.0.1:31698"


def write(kafka_s3: KafkaS3, file: str, text: str) -> None:
    (kafka_s3.folder / "connectors" / file).write_text(text)


def typo(name: str) -> str:
    return json.dumps({"name": name, "topics": "x", "s3.bucket.name": "bucket", "flush.sise": "3"})


def test_a_command_refuses_the_connector_whose_file_is_broken_and_no_other(kafka_s3: KafkaS3) -> None:
    write_connector(kafka_s3, "t")
    write(kafka_s3, "file-of-bad.json", typo("bad"))
    good = kafka_s3("show", "c")
    assert STORE in good.stderr, "it was asked of the store"
    assert "bad" not in good.stderr
    bad = kafka_s3("show", "bad", status=1)
    assert "file-of-bad.json: 1 key refused" in bad.stderr
    assert "flush.size" in bad.stderr


def test_a_name_that_no_file_declares_may_be_in_one_that_cannot_be_read(kafka_s3: KafkaS3) -> None:
    write_connector(kafka_s3, "t")
    write(kafka_s3, "cut.json", '{"name": "orders"')
    found = kafka_s3("show", "orders")
    assert "no connector file declares orders" in found.stderr
    assert "cut.json is not known, since that does not load: `kafka-s3 list` and `check` say why" in found.stderr
    assert "line 1, column 18: invalid JSON" in kafka_s3("show", "cut").stderr
    (kafka_s3.folder / "connectors" / "c.json").unlink()
    assert "cut.json is not known" in kafka_s3("groups", "some-restore").stderr


def test_of_two_files_in_conflict_neither_is_loaded_and_list_fails(kafka_s3: KafkaS3) -> None:
    write_connector(kafka_s3, "t")
    assert kafka_s3("list").returncode == 0
    copy = json.loads((kafka_s3.folder / "connectors" / "c.json").read_text())
    write(kafka_s3, "other.json", json.dumps({**copy, "name": "other"}))
    for name in ("c", "other"):
        assert "share a folder of bucket bucket" in kafka_s3("show", name).stderr
    found = kafka_s3("list", status=1)
    assert found.stdout.count("refused: in conflict") == 2
    assert "share a folder of bucket bucket" in found.stdout


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("[" * 100_000, id="nested too deep"),
        pytest.param('{"name": "\\ud800", "topics": "x", "s3.bucket.name": "bucket"}', id="half a character"),
    ],
)
def test_list_tells_of_the_other_files_whatever_is_wrong_with_one(kafka_s3: KafkaS3, text: str) -> None:
    write_connector(kafka_s3, "t")
    write(kafka_s3, "bad.json", text)
    found = kafka_s3("list", status=1)
    assert "Traceback" not in found.stderr
    lines = {line.split()[-1].rpartition("/")[2]: line for line in found.stdout.splitlines()[1:]}
    assert " loaded " in lines["c.json"]
    assert " refused: " in lines["bad.json"]
    assert kafka_s3("check", "connectors/bad.json").returncode == 1


def test_a_run_goes_on_where_another_connectors_file_is_broken(kafka_s3: KafkaS3, lab: Lab) -> None:
    lab.create_topic()
    lab.produce([Sent()])
    write_reachable_connector(kafka_s3, lab.kafka, lab.store, lab.topic)
    write(kafka_s3, "bad.json", typo("bad"))
    [archived] = parsed(kafka_s3("archive", "c", "--json"))["runs"]
    assert archived["totals"]["records"] == 1
