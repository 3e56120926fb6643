import json
import time

import pytest
from click.shell_completion import ShellComplete

from kafka_s3_platform.cli import main
from kafka_s3_platform.core.kafka import client
from kafka_s3_platform.core.kafka.offset_admin import OffsetAdmin
from kafka_s3_platform_tests.cli.conftest import KafkaS3, write_connector

USAGE, FAILED, TRY_AGAIN = 2, 1, 75
RESTORE = ["restore", "c", "--topic", "t", "--to-topic", "u"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["archive", "c", "--from", "2026-01-01T00"], "both --from and --to"),
        (["archive", "c", "--from", "2026-01-01T00", "--to", "2026-01-01T02", "--until-now"], "or --until-now"),
        (["archive", "c", "--from", "2026-01-01T02", "--to", "2026-01-01T02"], "is not an hour before --to"),
        (["archive", "c", "--from", "2026-01-01T00:30", "--to", "2026-01-01T02"], "not the start of an hour of UTC"),
        (["archive", "c", "--from", "yesterday", "--to", "2026-01-01T02"], "not an ISO 8601 time"),
        (["archive", "c", "--from", "1999-01-01T00", "--to", "1999-01-01T02"], "archive.start.hour"),
        (["archive", "c", "--from", "2026-01-01T00", "--to", "2999-01-01T00"], "now"),
        (
            ["archive", "c", "--from", "9999-12-31T23:00-12:00", "--to", "2026-01-01T02"],
            "outside of the years 1 to 9999",
        ),
        (["take-over", "c", "--group", ""], "--group is empty"),
        (["compact", "c"], "--day"),
        (["compact", "c", "--day", "2026-13-01"], "not a day"),
        (["compact", "c", "--day", "1999-01-01"], "begin with archive.start.hour, 20"),
        (["restore", "c", "--topic", "t"], "--to-topic"),
        ([*RESTORE, "--kafka-partitions", "0,x"], "not numbers"),
        ([*RESTORE, "--kafka-partitions", ""], "not numbers"),
        ([*RESTORE, "--from-offset", "0:15:2"], "one N, or P:N"),
        ([*RESTORE, "--from-offset", "15", "--from-offset", "1:20"], "one N, or P:N"),
        ([*RESTORE, "--to-offset", "1:20", "--to-offset", "01:21"], "one N, or P:N"),
        ([*RESTORE, "--records-per-second", "0"], "--records-per-second"),
        ([*RESTORE, "--bytes-per-second", "nan"], "--bytes-per-second"),
        (["vacuum", "c", "--older-than", "soon"], "not an age"),
        (["vacuum", "c", "--index-put-back", "--dry-run"], "removes nothing"),
        (["check", "connectors/none.json"], "none.json"),
        (["arcive", "c"], "Did you mean 'archive'?"),
        (["groups"], "RESTORE_ID"),
        (["groups", "r1", "--rollback", "none.json"], "none.json"),
        (["groups", "r1", "--rollback", "connectors/c.json", "--apply"], "no other option"),
        (["verify", "c", "--against", "u"], "one --topic"),
        (["verify", "c", "--topic", "t", "--against", "u", "--deep"], "no --deep"),
        (["verify", "c", "--from-offset", "3"], "without --against all is verified: no --from-offset"),
        (["verify", "c", "--exactly"], "without --against all is verified: no --exactly"),
        (["verify", "c", "--topic", "t", "--against", "u", "--from", "soon"], "not an ISO 8601 time"),
        (["verify", "c", "--topic", "t", "--against", "u", "--target-worker", "none"], "none"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(kafka_s3: KafkaS3, arguments: list[str], reason: str) -> None:
    write_connector(kafka_s3, "t")
    found = kafka_s3(*arguments)
    assert (found.returncode, found.stdout) == (USAGE, ""), found.stderr
    assert reason in found.stderr


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--rename", "x", "y"], "--to-topic, --rename and --topic-map each name the target: keep one"),
        (["--hour", "15:20"], "--hour '15:20' is no ISO 8601 time"),
        (["--from", "2026"], "--from '2026' is no ISO 8601 time"),
        (["--key", "hex:z"], "--key 'hex:z': "),
        (["--key-regex", "("], "--key-regex '(' is not a valid Python regular expression"),
        (["--predicate", "os.system"], "'os.system', named by --predicate, is no plug-in"),
        (["--first", "u"], "--first: u: no topic of this restore; name one of t\n"),
        (["--first", "move.to.topic"], "--first: move.to.topic: no topic of this restore; name one of t\n"),
        (
            ["--key-regex", "(", "--to-registry", "connectors/worker.properties"],
            "--key-regex '(' is not a valid Python regular",
        ),
    ],
)
def test_a_value_that_no_restore_can_use_is_refused_by_its_option_before_any_run_or_request(
    kafka_s3_without_spark: KafkaS3, options: list[str], reason: str
) -> None:
    """There is no broker, store or registry, and the message of a run would begin with the run."""
    write_connector(kafka_s3_without_spark, "t")
    found = kafka_s3_without_spark(*RESTORE, *options, status=FAILED)
    assert f"Error: [KS-CONFIG] {reason}" in found.stderr


def test_so_is_one_of_a_source_connector(kafka_s3_without_spark: KafkaS3) -> None:
    keys = {"connector.class": "S3SourceConnector", "format.class": "JsonFormat", "value.converter": "JsonConverter"}
    write_connector(kafka_s3_without_spark, "t", **keys)
    for options, reason in (
        (["--hour", "15:20"], "--hour '15:20' is"),
        (["--key-regex", "("], "--key-regex '(' is no"),
    ):
        found = kafka_s3_without_spark(*RESTORE, *options, status=FAILED)
        assert f"Error: [KS-CONFIG] {reason}" in found.stderr


def test_an_unknown_connector_or_topic_is_told_with_the_nearest_one(kafka_s3: KafkaS3) -> None:
    write_connector(kafka_s3, "flights, trains")
    for arguments, near in ((["verify", "cc"], "c?"), (["verify", "c", "--topic", "flight"], "flights?")):
        assert f"did you mean {near}" in kafka_s3(*arguments, status=FAILED).stderr


def test_a_command_says_whom_it_waits_for_and_soon_that_nothing_listens_there(
    kafka_s3_without_spark: KafkaS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_connector(kafka_s3_without_spark, "t")
    monkeypatch.setattr(client, "GRACE_SECONDS", 2.0)  # the default is 5 s, and ends with the same error
    begun = time.monotonic()
    found = kafka_s3_without_spark("archive", "c", "--until-now")
    assert time.monotonic() - begun < 15
    assert found.returncode == TRY_AGAIN
    waits, error = [line for line in found.stderr.splitlines() if "at work for" not in line]
    assert waits == "archive: waiting for Kafka at 127.0.0.1:31699"
    assert "[KS-KAFKA-DOWN]" in error


def test_shells_complete_the_names_of_connectors(kafka_s3: KafkaS3, monkeypatch: pytest.MonkeyPatch) -> None:
    write_connector(kafka_s3, "t")
    (kafka_s3.folder / "connectors" / "customers.json").write_text("{")
    monkeypatch.chdir(kafka_s3.folder)
    for begun, names in (("", ["c", "customers"]), ("cu", ["customers"])):
        found = ShellComplete(main, {}, "kafka-s3", "_KAFKA_S3_COMPLETE").get_completions(["archive"], begun)
        assert [item.value for item in found] == names


def test_shells_complete_the_names_of_commands_and_classes() -> None:
    complete = ShellComplete(main, {}, "kafka-s3", "_KAFKA_S3_COMPLETE").get_completions
    assert [item.value for item in complete([], "re")] == ["restore", "registry", "rehearse", "retain", "resolve"]
    assert [item.value for item in complete([], "--v")] == ["--version", "--verbose"]
    assert [item.value for item in complete(["describe"], "cloud")] == []
    assert [item.value for item in complete(["describe"], "s3_s")] == ["S3_SINK", "S3_SOURCE"]


def test_a_store_that_does_not_answer_is_worth_another_try(kafka_s3_process: KafkaS3) -> None:
    write_connector(kafka_s3_process, "t")
    found = kafka_s3_process("verify", "c", "--json", status=TRY_AGAIN)
    assert "127.0.0.1:31698" in found.stderr
    assert found.stdout == ""


def test_a_broker_that_does_not_answer_fails_the_run_in_a_way_worth_another_try(
    kafka_s3: KafkaS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OffsetAdmin.__init__, "__defaults__", (1.0,))
    write_connector(kafka_s3, "t")
    found = kafka_s3("archive", "c", status=TRY_AGAIN)
    assert "127.0.0.1:31699" in found.stderr
    assert "Traceback" not in found.stderr


def test_check_tells_what_each_key_does_and_hides_secrets(kafka_s3: KafkaS3) -> None:
    write_connector(kafka_s3, "t", **{"confluent.topic.replication.factor": "1"})
    found = kafka_s3("check", "connectors/c.json", "--json", status=0)
    document = json.loads(found.stdout)
    classes = {key["key"]: key["class"] for key in document["keys"]}
    assert document["ok"]
    assert classes["topics"] == "honoured"
    assert classes["confluent.topic.replication.factor"] == "accepted without meaning here"
    assert document["example_keys"] == ["topics/t/year=2020/month=01/day=01/hour=00/t+0+0000000000.parquet"]
    assert '"secret"' not in found.stdout
    shown = kafka_s3("check", "connectors/c.json").stdout
    assert "accepted without meaning here" in shown
    assert document["example_keys"][0] in shown


def test_check_of_a_file_that_does_not_load_fails_and_names_the_key(kafka_s3: KafkaS3) -> None:
    write_connector(kafka_s3, "t", **{"flush.sise": "10", "path.format": "'zone'=z"})
    found = kafka_s3("check", "connectors/c.json", status=FAILED)
    assert "flush.size" in found.stdout
    assert "'z' at position 7" in found.stdout
    assert kafka_s3("verify", "c").returncode == FAILED
