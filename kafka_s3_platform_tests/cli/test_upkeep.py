"""`kafka-s3 upkeep` on a real store, as a person and a script call it."""

from datetime import datetime, timezone

import pytest

from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.store.index import ConnectorIndex
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform_tests.cli.conftest import KafkaS3, parsed, write_connector, write_reachable_connector
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.support import NOON, Sent, archived, snapshot
from kafka_s3_platform_tests.upkeep.index.hours import HOUR, answer_all, archive_hour

DAY = datetime(2026, 1, 1, tzinfo=timezone.utc)


@pytest.fixture
def config(kafka_s3: KafkaS3, lab: Lab) -> ConnectorConfig:
    """Connector `c`, which has archived nothing yet."""
    return write_reachable_connector(kafka_s3, lab.kafka, lab.store, "t")


@pytest.fixture
def archived_config(config: ConnectorConfig) -> ConnectorConfig:
    """Connector `c`, whose index has the small files of five hours."""
    for number in range(5):
        archive_hour(config, DAY + number * HOUR, number)
    return config


def list_stored(config: ConnectorConfig) -> dict[str, str]:
    """Every object of the bucket, with its etag."""
    return {info.key: info.etag for info in ObjectStore(config.store).list("")}


def test_a_dry_run_tells_what_the_next_run_does_and_changes_nothing(
    kafka_s3: KafkaS3, archived_config: ConnectorConfig
) -> None:
    stored = list_stored(archived_config)
    version = ConnectorIndex.of(archived_config).open().version
    told = parsed(kafka_s3("upkeep", "c", "--dry-run", "--json"))
    assert (told["dry_run"], told["version"], told["checkpoint"]) == (True, version, True)
    assert told["merge"]["files"] > 0
    assert told["merge"]["new_files"] == 0
    words = kafka_s3("upkeep", "c", "--dry-run", status=0)
    assert f"merge: {told['merge']['files']} files of {len(told['merge']['periods'])} periods would be" in words.stdout
    assert "checkpoint: would be written" in words.stdout
    assert words.stdout.endswith(f": version {version}\n")
    assert list_stored(archived_config) == stored


def test_a_run_does_it_and_a_second_one_finds_nothing_to_do(
    kafka_s3: KafkaS3, archived_config: ConnectorConfig
) -> None:
    answers = answer_all(archived_config)
    stored = list_stored(archived_config)
    planned = parsed(kafka_s3("upkeep", "c", "--dry-run", "--json"))
    done = parsed(kafka_s3("upkeep", "c", "--json"))
    assert (done["dry_run"], done["checkpoint"], done["refused"]) == (False, True, None)
    assert (done["merge"]["files"], done["merge"]["periods"]) == (
        planned["merge"]["files"],
        planned["merge"]["periods"],
    )
    assert 0 < done["merge"]["new_files"] < done["merge"]["files"]
    assert done["version"] == ConnectorIndex.of(archived_config).open().version > planned["version"]
    assert answer_all(archived_config) == answers
    kept_up = list_stored(archived_config)
    # keys alone: a process that commits has written its check of the store's promises anew
    assert stored.keys() <= kept_up.keys(), "versions of the last days stay readable"

    again = parsed(kafka_s3("upkeep", "c", "--json"))
    assert (again["merge"]["files"], again["checkpoint"], again["version"]) == (0, False, done["version"])
    words = kafka_s3("upkeep", "c", status=0)
    assert "merge: 0 files of 0 periods put together" in words.stdout
    assert "checkpoint: is there" in words.stdout
    assert "would be" not in words.stdout
    assert list_stored(archived_config).keys() == kept_up.keys()


@pytest.mark.parametrize("options", [[], ["--dry-run"]], ids=["run", "dry run"])
def test_a_connector_that_archived_nothing_has_nothing_to_keep_up(
    kafka_s3: KafkaS3, config: ConnectorConfig, options: list[str]
) -> None:
    words = kafka_s3("upkeep", "c", *options, status=0)
    assert words.stdout == f"{ConnectorIndex.of(config).uri}: nothing was archived, so there is nothing to do\n"
    told = parsed(kafka_s3("upkeep", "c", *options, "--json"))
    assert (told["version"], told["dry_run"]) == (None, bool(options))
    assert list_stored(config) == {}, "no index was made"


def test_a_connector_that_does_not_exist_or_keeps_no_index_is_refused_by_name(kafka_s3: KafkaS3) -> None:
    write_connector(kafka_s3, "t", **{"connector.class": "io.confluent.connect.s3.source.S3SourceConnector"})
    for name, reason in (("d", "no connector file declares d"), ("c", "c is a source connector")):
        found = kafka_s3("upkeep", name, status=1)
        assert reason in found.stderr
        assert "Traceback" not in found.stderr
        assert found.stdout == ""


def test_retain_plans_what_it_then_removes(kafka_s3: KafkaS3, lab: Lab) -> None:
    lab.create_topic()
    lab.produce([Sent(b"a"), Sent(b"b", None, NOON + HOUR)])
    rules = {"archive.retention.ms": f"-1,{lab.topic}:86400000"}
    config = write_reachable_connector(kafka_s3, lab.kafka, lab.store, lab.topic, **rules)
    archived(config)
    plan = parsed(kafka_s3("retain", "c", "--json"))
    [topic] = plan["topics"]
    assert (plan["applied"], topic["days"], topic["records"], topic["objects"]) == (False, 1, 2, 2)
    assert (topic["bytes"], topic["remaining_bytes"]) == (sum(s.size for s in snapshot(config).segments), 0)
    words = kafka_s3("retain", "c", status=0).stdout
    assert "and 1 day with 2 records would go: 2 objects" in words
    assert "2026-01-01 by archive.retention.ms" in words
    [done] = parsed(kafka_s3("retain", "c", "--apply", "--json"))["topics"]
    assert (done["days"], done["records"], done["bytes"]) == (1, 2, topic["bytes"])
    assert snapshot(config).segments == ()
    [day] = parsed(kafka_s3("show", "c", "--json"))["topics"][0]["days"]
    assert (day["day"], day["records"], day["expired_records"]) == ("2026-01-01", 0, 2)
    assert "2 records expired" in kafka_s3("show", "c", status=0).stdout
    assert parsed(kafka_s3("retain", "c", "--json"))["topics"][0]["days"] == 0


@pytest.mark.parametrize("hold", ["*", "t", "t:2026-01-01/2026-01-02"])
def test_the_plan_of_retain_names_the_days_on_hold(kafka_s3: KafkaS3, lab: Lab, hold: str) -> None:
    rules = {"archive.retention.before": "2026-06-01", "archive.retention.hold": hold}
    config = write_reachable_connector(kafka_s3, lab.kafka, lab.store, "t", **rules)
    archive_hour(config, DAY, 0)
    assert "on hold, 1 day: 2026-01-01" in kafka_s3("retain", "c", "--apply", status=0).stdout
    assert len(snapshot(config).segments) == 1


def test_erase_plans_what_it_then_erases(kafka_s3: KafkaS3, lab: Lab) -> None:
    lab.create_topic()
    lab.produce([Sent(b"a", b"alice"), Sent(b"b", b"bob"), Sent(b"c", b"\xff"), Sent(b"d", b"dora")])
    config = write_reachable_connector(kafka_s3, lab.kafka, lab.store, lab.topic)
    archived(config)
    keys = kafka_s3.folder / "keys"
    keys.write_text("\ufeffalice\nnobody\n")
    command = ("erase", "c", "--topic", lab.topic, "--keys-from", str(keys), "--key", "hex:ff")
    plan = parsed(kafka_s3(*command, "--json"))
    assert (plan["applied"], plan["records"], plan["records_by_key"]) == (False, 2, [1, 1, 0])
    words = kafka_s3(*command, status=0).stdout
    assert "2 records would be erased, of 1 object; 1 object with 4 records searched" in words
    assert "key 3 of 3: 0 records" in words
    report = parsed(kafka_s3(*command, "--apply", "--json"))
    assert (report["records"], report["compared_records"], len(report["removed_objects"])) == (2, 2, 1)
    assert "alice" not in str(report)
    assert [s.record_count for s in snapshot(config).segments] == [2]
    [day] = parsed(kafka_s3("show", "c", "--json"))["topics"][0]["days"]
    assert (day["records"], day["erased_records"]) == (2, 2)
    assert "no; 2 records erased" in kafka_s3("show", "c", status=0).stdout
    words = kafka_s3(*command, "--apply", status=0).stdout
    assert "0 records were erased, of 0 objects; 1 object with 2 records searched" in words


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ((), "name the keys by --key or --keys-from"),
        (("--key", "a", "--key", ""), "key 2 of 2 is empty"),
        (("--key", "a", "--key", "b", "--key", "hex:61"), "key 3 of 3 is key 1 again"),
        (("--key", "hex:f"), "--key 'hex:f'"),
    ],
)
def test_erase_refuses_what_names_no_key(
    kafka_s3: KafkaS3, config: ConnectorConfig, options: tuple[str, ...], reason: str
) -> None:
    refused = kafka_s3("erase", config.name, "--topic", "t", *options)
    assert refused.returncode != 0
    assert reason in refused.stderr
