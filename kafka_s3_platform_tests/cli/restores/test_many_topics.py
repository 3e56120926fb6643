"""`kafka-s3 restore` of several topics: one plan, one restore id, one report."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import Any

import pytest

from kafka_s3_platform.connect.config.files import load_connector
from kafka_s3_platform.core.config.settings import ConnectorConfig, StoreSettings
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.kafka.groups import publish_offsets, read_committed_offsets
from kafka_s3_platform.core.restore.archive_source import ArchiveSource
from kafka_s3_platform.core.restore.request import RestoreRequest
from kafka_s3_platform.core.restore.run import restore as restore_source
from kafka_s3_platform_tests.cli.conftest import KafkaS3, make_environment, parsed, write_reachable_connector
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.kafka.topics import delete_records, values
from kafka_s3_platform_tests.registries.importing_registry import ImportingRegistry
from kafka_s3_platform_tests.restore.own import delete_topic, numbered, set_configs
from kafka_s3_platform_tests.store.http_proxy import running
from kafka_s3_platform_tests.support import NOON, InProcessRunner, Sent, archived, produce

COUNTS = {"orders": 20, "stock": 5, "users": 1}
FAILED, INCOMPLETE = 1, 3


def names(lab: Lab) -> dict[str, str]:
    return {name: f"{lab.topic}-{name}" for name in COUNTS}


@pytest.fixture
def config(kafka_s3: KafkaS3, lab: Lab) -> ConnectorConfig:
    """Connector `c` has archived three topics. One has a config of its own, and what a group has committed."""
    topics = names(lab)
    for number, (name, topic) in enumerate(topics.items(), 1):
        lab.create(topic, number, segment_ms=3_600_000 * number)
        moments = (NOON + n * timedelta(minutes=1) for n in range(COUNTS[name]))
        produce(lab.kafka, topic, [Sent(b"%d" % n, timestamp=at) for n, at in enumerate(moments)])
    groups = {"archive.consumer.groups": f"{lab.topic}-app"}
    made = write_reachable_connector(kafka_s3, lab.kafka, lab.store, ",".join(topics.values()), **groups)
    with ClusterAdmin(lab.kafka) as admin:
        publish_offsets(admin, f"{lab.topic}-app", topics["orders"], {0: 7})
        publish_offsets(admin, f"{lab.topic}-app", topics["stock"], {0: 2, 1: 0})
    for topic in topics.values():
        archived(made.model_copy(update={"topics": (topic,)}))
    return made


def restore(kafka_s3: KafkaS3, *options: str, status: int | None = None) -> "subprocess.CompletedProcess[str]":
    return kafka_s3("restore", "c", *options, "--create-topic", "--restore-id", "r1", status=status)


def check_copies(config: ConnectorConfig, prefix: str) -> None:
    """Each target's values are its source's, in order and each once."""
    for number, topic in enumerate(config.topics, 1):
        for p in range(number):
            assert values(config.kafka, f"{prefix}{topic}", p) == values(config.kafka, topic, p)


def test_all_topics_of_a_connector_are_one_restore(kafka_s3: KafkaS3, config: ConnectorConfig, lab: Lab) -> None:
    users = names(lab)["users"]
    everything = ["--all-topics", "--to-topic", "copy.{topic}", "--first", users]
    found = parsed(restore(kafka_s3, *everything, "--json"))

    assert [(row["topic"], row["records"]) for row in found["topics"]] == [
        (names(lab)[name], count) for name, count in COUNTS.items()
    ]
    assert all(row["verified"] and row["complete"] and row["exact"] for row in found["topics"])
    assert (found["records"], found["sent_records"], found["failures"]) == (26, 26, {})
    assert {row["report"] for row in found["topics"]} == {found["report"]}
    check_copies(config, "copy.")
    with ClusterAdmin(config.kafka) as admin:
        described = [admin.describe_topic(f"copy.{topic}") for topic in config.topics]
    assert [len(topic.kafka_partitions) for topic in described] == [1, 2, 3]
    assert [topic.configs["segment.ms"] for topic in described] == ["3600000", "7200000", "10800000"]

    page = lab.s3.get_object(Bucket=lab.store.bucket, Key=found["report"].split("/", 3)[3])["Body"].read().decode()
    for topic in config.topics:
        assert re.search(rf"<td>{topic}</td><td>copy\.{topic}</td>", page), "a row a topic"

    again = parsed(restore(kafka_s3, *everything, "--json"))
    assert all(row["already_finished"] for row in again["topics"])
    table = restore(kafka_s3, *everything, status=0).stdout
    assert re.search(rf"{users}\s+copy\.{users}\s+1\s+nothing\s+yes\s+yes", table)

    delete_records(config.kafka, f"copy.{users}", 1)
    gone = restore(kafka_s3, *everything, status=3)
    assert f"copy.{users}-0 now begins at offset 1" in gone.stdout + gone.stderr


def test_a_group_goes_on_in_all_topics_by_one_command(kafka_s3: KafkaS3, config: ConnectorConfig, lab: Lab) -> None:
    group = f"{lab.topic}-app"
    restore(kafka_s3, "--all-topics", "--to-topic", "copy.{topic}", status=0)
    orders, stock, _ = (f"copy.{topic}" for topic in config.topics)

    applied = parsed(kafka_s3("groups", "r1", "--apply", "--json"))
    with ClusterAdmin(config.kafka) as admin:
        assert [topic["to_topic"] for topic in applied["topics"]] == [orders, stock]
        assert read_committed_offsets(admin, group, orders) == {0: 7}
        assert read_committed_offsets(admin, group, stock) == {0: 2, 1: 0}
        kafka_s3("groups", "r1", "--rollback", applied["rollback_file"], status=0)
        assert read_committed_offsets(admin, group, orders) == read_committed_offsets(admin, group, stock) == {}


@pytest.fixture
def registries(kafka_s3: KafkaS3, config: ConnectorConfig) -> Iterator[tuple[ImportingRegistry, ImportingRegistry]]:
    """The registry that connector `c` names, archived; and an empty one, named by `target.registry`."""
    with running(ImportingRegistry()) as source, running(ImportingRegistry()) as target:
        for subject in ("a", "b"):
            source.register(subject, json.dumps({"type": "record", "name": subject, "fields": []}))
        file = kafka_s3.folder / "connectors" / "c.json"
        url = {"value.converter": "AvroConverter", "value.converter.schema.registry.url": source.endpoint}
        file.write_text(json.dumps(json.loads(file.read_text()) | url))
        (kafka_s3.folder / "target.registry").write_text(f"schema.registry.url={target.endpoint}\n")
        kafka_s3("registry", "archive", "c", status=0)
        yield source, target


ONE_COMMAND = ("--all-topics", "--to-topic", "copy.{topic}", "--to-registry", "target.registry", "--groups")


def test_registry_records_and_groups_come_back_by_one_command(
    kafka_s3: KafkaS3, config: ConnectorConfig, lab: Lab, registries: tuple[ImportingRegistry, ImportingRegistry]
) -> None:
    source, target = registries
    planned = parsed(restore(kafka_s3, *ONE_COMMAND, "--dry-run", "--json"))
    assert (planned["registries"][0]["registered"], target.versions, "groups" in planned) == (2, {}, False)

    found = parsed(restore(kafka_s3, *ONE_COMMAND, "--json"))
    assert target.versions == source.versions
    check_copies(config, "copy.")
    group, orders = f"{lab.topic}-app", f"copy.{config.topics[0]}"
    assert found["groups"]["applied"]
    with ClusterAdmin(config.kafka) as admin:
        assert read_committed_offsets(admin, group, orders) == {0: 7}
        again = restore(kafka_s3, *ONE_COMMAND, status=0)
        assert " committed and read back; to undo: kafka-s3 groups r1" in again.stdout
        publish_offsets(admin, group, orders, {0: 9})
        gone_on = restore(kafka_s3, *ONE_COMMAND, status=FAILED)
        assert f"group {group} has committed other offsets of {orders}: it has gone on since" in gone_on.stderr
        assert "was finished before" in gone_on.stdout or "verified" in gone_on.stdout, "the restore is told first"
        assert read_committed_offsets(admin, group, orders) == {0: 9}
        kafka_s3("groups", "r1", "--group", group, "--apply", status=0)
        assert read_committed_offsets(admin, group, orders) == {0: 7}, "as the error advises"


def test_no_record_is_sent_where_it_would_name_another_schema(
    kafka_s3: KafkaS3, config: ConnectorConfig, registries: tuple[ImportingRegistry, ImportingRegistry]
) -> None:
    registries[1].register("other", json.dumps({"type": "record", "name": "Other", "fields": []}))
    would_be = restore(kafka_s3, *ONE_COMMAND, "--dry-run", status=FAILED)
    assert "schemas would get other ids (there, id 1 is of another schema, such as in other)" in would_be.stderr
    assert {subject for subject, _ in registries[1].versions} == {"other"}
    refused = restore(kafka_s3, *ONE_COMMAND, status=FAILED)
    assert "2 schemas got other ids" in refused.stderr
    assert f"copy.{config.topics[0]}" not in topics_of(config)
    mapped = restore(kafka_s3, *ONE_COMMAND, "--map-schema-ids", "--outgoing", "target.registry")
    assert "got other ids" not in mapped.stderr
    check_copies(config, "copy.")


def test_all_refusals_are_told_by_topic_before_anything_is_made(
    kafka_s3: KafkaS3, config: ConnectorConfig, lab: Lab
) -> None:
    orders, stock, users = config.topics
    for topic in (stock, users):
        lab.create(f"no.{topic}", 3, cleanup_policy="compact")
    refused = restore(kafka_s3, "--topics", ".*", "--to-topic", "no.{topic}", status=FAILED)
    for topic in (stock, users):
        assert re.search(rf"\d\. {topic}: .*cleanup.policy", refused.stderr)
    assert f"no.{orders}" not in topics_of(config)
    planned = restore(kafka_s3, "--topics", ".*", "--to-topic", "no.{topic}", "--dry-run", status=FAILED)
    assert planned.stdout.count("would be refused: ") == 2


def topics_of(config: ConnectorConfig) -> set[str]:
    with ClusterAdmin(config.kafka) as admin:
        return set(admin.list_topics())


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--to-topic", "x"], "Missing option '--topic'"),
        (["--all-topics", "--topics", "a"], "keep one"),
        (["--all-topics", "--to-topic", "x"], "several topics that would go to x"),
        (["--topics", "none", "--to-topic", "x"], "matches none of"),
        (["--topics", "(", "--to-topic", "x"], "is not a valid regular expression"),
        (["--all-topics", "--to-topic", "y.{topic}", "--first", "none"], "none: no topic of this restore"),
    ],
)
def test_a_choice_of_topics_that_cannot_be_is_refused(
    kafka_s3: KafkaS3, config: ConnectorConfig, options: list[str], told: str
) -> None:
    found = restore(kafka_s3, *options)
    assert found.returncode in (1, 2)
    assert told in found.stderr
    assert "x" not in topics_of(config)


def test_a_topic_that_fails_leaves_the_others_restored(kafka_s3: KafkaS3, config: ConnectorConfig, lab: Lab) -> None:
    orders, stock, users = config.topics
    produce(lab.kafka, stock, [*numbered(50), Sent(b"x" * 5000, timestamp=NOON)])
    archived(config.model_copy(update={"topics": (stock,)}))
    lab.create(f"copy.{stock}", 2, max_message_bytes=2000)
    lab.create(f"copy.{orders}", 2)

    everything = ["--all-topics", "--to-topic", "copy.{topic}"]
    failed = restore(kafka_s3, *everything, status=FAILED)
    assert re.search(rf"{stock}\s.*not restored", failed.stdout)
    assert f"copy.{stock}" in failed.stderr
    assert "max.message.bytes" in failed.stderr
    for topic in (orders, users):
        assert re.search(rf"{topic}\s.*yes\s+yes", failed.stdout)
        assert values(config.kafka, f"copy.{topic}") == values(config.kafka, topic)

    groups = {"archive.consumer.groups": f"{lab.topic}-app"}
    write_reachable_connector(kafka_s3, lab.kafka, lab.store, f"{orders},{users}", **groups)
    without = restore(kafka_s3, *everything, status=FAILED)
    assert re.search(rf"{stock}\s.*not restored", without.stdout), "it keeps its topics"
    write_reachable_connector(kafka_s3, lab.kafka, lab.store, ",".join(config.topics), **groups)

    set_configs(config.kafka, f"copy.{stock}", {"max.message.bytes": "100000"})
    produce(lab.kafka, f"copy.{orders}", [Sent(b"of others", kafka_partition=1)])
    found = parsed(restore(kafka_s3, *everything, "--json"))
    assert [row["sent_records"] > 0 for row in found["topics"]] == [False, True, False]
    grown = f"copy.{orders}: kafka partitions 1 grew since the restore began"
    assert [any(grown in note for note in row["notes"]) for row in found["topics"]] == [True, False, False]
    check_copies(config, "copy.")


def test_a_target_that_is_deleted_meanwhile_leaves_the_others_to_go_on(
    kafka_s3: KafkaS3, config: ConnectorConfig, lab: Lab
) -> None:
    orders, stock, users = config.topics
    produce(lab.kafka, stock, [*numbered(50), Sent(b"x" * 5000, timestamp=NOON)])
    archived(config.model_copy(update={"topics": (stock,)}))
    lab.create(f"copy.{stock}", 2, max_message_bytes=2000)
    everything = ["--all-topics", "--to-topic", "copy.{topic}"]
    restore(kafka_s3, *everything, status=FAILED)
    delete_topic(lab.kafka, f"copy.{users}")
    set_configs(lab.kafka, f"copy.{stock}", {"max.message.bytes": "100000"})

    failed = restore(kafka_s3, *everything, status=FAILED)
    assert f"the target topic copy.{users} was deleted after the restore began" in failed.stderr
    assert re.search(rf"{users}\s.*not restored", failed.stdout)
    for topic in (orders, stock):
        assert re.search(rf"{topic}\s.*yes\s+yes", failed.stdout)
        assert values(lab.kafka, f"copy.{topic}") == values(lab.kafka, topic)


def test_each_topic_has_its_own_error_where_all_fail(kafka_s3: KafkaS3, config: ConnectorConfig, lab: Lab) -> None:
    for number, topic in enumerate(config.topics, 1):
        produce(lab.kafka, topic, [*numbered(50), Sent(b"x" * 5000 * number, timestamp=NOON)])
        archived(config.model_copy(update={"topics": (topic,)}))
        lab.create(f"copy.{topic}", number, max_message_bytes=2000)
    failed = restore(kafka_s3, "--all-topics", "--to-topic", "copy.{topic}", status=FAILED)
    for topic in config.topics:
        assert re.search(rf"{topic}: run .*copy\.{topic} .*max\.message\.bytes", failed.stderr)
    assert "the others are restored" not in failed.stderr


def test_topics_that_change_places_on_their_own_cluster_are_refused(kafka_s3: KafkaS3, config: ConnectorConfig) -> None:
    orders, stock, _ = config.topics
    swap = ["--topic", orders, "--topic", stock, "--topic-map", f"{orders}={stock}", "--topic-map", f"{stock}={orders}"]
    refused = restore(kafka_s3, *swap, status=FAILED)
    for topic in (orders, stock):
        assert f"{topic} is also archived by connector c: restored records would be archived again" in refused.stderr
    assert "--allow-source-topic" in refused.stderr
    planned = restore(kafka_s3, *swap, "--allow-source-topic", "--dry-run")
    assert "would be refused: " not in planned.stdout


def test_a_topic_of_a_pattern_that_was_never_archived_is_told(
    kafka_s3: KafkaS3, config: ConnectorConfig, lab: Lab
) -> None:
    late = lab.create(f"{lab.topic}-late")
    write_reachable_connector(kafka_s3, lab.kafka, lab.store, ",".join((*config.topics, late)))
    by_pattern = restore(kafka_s3, "--all-topics", "--to-topic", "copy.{topic}", status=INCOMPLETE)
    assert f"skipped: connector c has archived nothing of topic {late}" in by_pattern.stdout
    check_copies(config, "copy.")
    named = [argument for topic in (*config.topics, late) for argument in ("--topic", topic)]
    refused = kafka_s3("restore", "c", *named, "--to-topic", "again.{topic}", "--create-topic", status=FAILED)
    assert f"connector c has archived nothing of topic {late}" in refused.stderr


def test_topics_of_several_connectors_are_one_restore(kafka_s3: KafkaS3, config: ConnectorConfig, lab: Lab) -> None:
    other = lab.create(f"{lab.topic}-other")
    produce(lab.kafka, other, numbered(3))
    with ClusterAdmin(lab.kafka) as admin:
        publish_offsets(admin, f"{lab.topic}-app", other, {0: 2})
    keys = (kafka_s3.folder / "connectors" / "c.json").read_text()
    second = json.loads(keys) | {"name": "d", "topics": other}
    (kafka_s3.folder / "connectors" / "d.json").write_text(json.dumps(second))
    worker = kafka_s3.folder / "connectors" / "worker.properties"
    archived(load_connector(worker.parent / "d.json", worker, {}))

    options = ["--all-topics", "--to-topic", "copy.{topic}", "--create-topic", "--restore-id", "r1", "--json"]
    found = parsed(kafka_s3("restore", "c", "d", *options))
    assert {row["topic"]: row["records"] for row in found["topics"]}[other] == 3
    check_copies(config, "copy.")
    assert values(lab.kafka, f"copy.{other}") == values(lab.kafka, other)
    options[options.index("r1")] = "r2"
    alone = parsed(kafka_s3("restore", "c", "d", "--topics", other, *options[1:2], "again.{topic}", *options[3:]))
    assert alone["records"] == 3, "of the second connector alone"
    groups = parsed(kafka_s3("groups", "r1", "--apply", "--json"))
    assert groups["topics"][-1]["to_topic"] == f"copy.{other}"
    (worker.parent / "d.json").unlink()
    alone = kafka_s3("groups", "r1", status=FAILED)
    assert "has topics of connector d, which has no file here" in alone.stderr
    assert "chosen by --topics" in kafka_s3("restore", "c", "d", "--topic", other, "--to-topic", "x", status=2).stderr


def test_connectors_of_several_buckets_go_on_in_their_order_and_each_gets_evidence(
    kafka_s3: KafkaS3, config: ConnectorConfig, lab: Lab, module_store: StoreSettings
) -> None:
    other = lab.create(f"{lab.topic}-other")
    produce(lab.kafka, other, numbered(3))
    folder = kafka_s3.folder / "connectors"
    second = json.loads((folder / "c.json").read_text()) | {"name": "d", "topics": other}
    places = {"s3.bucket.name": module_store.bucket, "archive.restore.bucket": "not-there"}
    (folder / "d.json").write_text(json.dumps(second | places))
    archived(load_connector(folder / "d.json", folder / "worker.properties", {}))

    options = ["--all-topics", "--to-topic", "copy.{topic}", "--create-topic", "--restore-id", "r1"]
    refused = kafka_s3("restore", "c", "d", *options, status=FAILED)
    assert "not-there" in refused.stderr
    with ClusterAdmin(lab.kafka) as admin:
        assert not admin.topic_exists(f"copy.{other}"), "nothing was begun"
    del places["archive.restore.bucket"]
    (folder / "d.json").write_text(json.dumps(second | places))
    kafka_s3("restore", "c", "d", *options, status=0)
    swapped = kafka_s3("restore", "d", "c", *options, status=FAILED)
    alone = kafka_s3("restore", "d", *options, status=FAILED)
    for refused in (swapped, alone):
        assert "restore id r1 was begun with connector c first" in refused.stderr
    assert values(lab.kafka, f"copy.{other}") == values(lab.kafka, other)


def test_what_is_wanted_first_is_sent_first(config: ConnectorConfig) -> None:
    runner = NotingRunner()
    given: dict[str, Any] = {"restore_id": "r1", "run_id": "x", "create_topic": True}
    requests = [RestoreRequest(config, topic, f"copy.{topic}", **given) for topic in config.topics]
    *others, last = config.topics
    asked = replace(requests[0], topic=".*", to_topic="copy.{topic}", first_topics=(last, others[1]))
    restore_source(ArchiveSource(asked, tuple(requests)), runner)
    assert list(dict.fromkeys(runner.topics)) == [last, others[1], others[0]]


def test_records_of_one_topic_stay_until_all_topics_are_restored(lab: Lab) -> None:
    """A topic that is sent first must not lose its records while the others take hours."""
    given: dict[str, Any] = {"restore_id": "r1", "run_id": "x", "dry_run": True, "records_per_second": 0.01}
    requests: list[RestoreRequest] = []
    for name, count, hours in (("small", 1, 4), ("large", 100, 24)):
        topic = lab.create(f"{lab.topic}-{name}")
        produce(lab.kafka, topic, [Sent(b"x", timestamp=datetime.now(timezone.utc))] * count)
        config = lab.connector().model_copy(update={"topics": (topic,)})
        archived(config)
        target = lab.create(f"copy.{topic}", 1, retention_ms=hours * 3_600_000)
        requests.append(RestoreRequest(config, topic, target, **given))
    assert restore_source(ArchiveSource(requests[0]), InProcessRunner()).refusals == ()
    together = replace(requests[0], topic=".*", to_topic="copy.{topic}")
    report = restore_source(ArchiveSource(together, tuple(requests)), InProcessRunner())
    [refusal] = report.refusals
    assert "retention.ms=14400000" in refusal


class NotingRunner(InProcessRunner):
    """Notes the topics of what is sent, in order."""

    def __init__(self) -> None:
        self.topics: list[str] = []

    def run(self, function: Any, tasks: Sequence[Any], max_concurrent: int) -> Iterator[Any]:
        if isinstance(function, partial):
            self.topics += [task.stream.topic for group in tasks for task in group]
        yield from super().run(function, tasks, max_concurrent)


def test_a_restore_that_goes_on_keeps_its_topics(kafka_s3: KafkaS3, config: ConnectorConfig, lab: Lab) -> None:
    everything = ["--all-topics", "--to-topic", "copy.{topic}"]
    restore(kafka_s3, *everything, status=0)
    late = lab.create(f"{lab.topic}-late")
    write_reachable_connector(kafka_s3, lab.kafka, lab.store, ",".join((*config.topics, late)))
    again = parsed(restore(kafka_s3, *everything, "--json"))
    assert [row["already_finished"] for row in again["topics"]] == [True] * len(config.topics)


def test_a_killed_restore_of_several_topics_goes_on_as_one(kafka_s3: KafkaS3, config: ConnectorConfig) -> None:
    orders = config.topics[0]
    everything = ["--all-topics", "--to-topic", "copy.{topic}"]
    slowly = ["restore", "c", *everything, "--create-topic", "--restore-id", "r1", "--records-per-second", "4"]
    killed = start(kafka_s3, slowly)
    with ClusterAdmin(config.kafka) as admin:
        while f"copy.{orders}" not in admin.list_topics() or not committed(admin, f"copy.{orders}"):
            assert killed.poll() is None, "it ended before it was killed"
            time.sleep(0.1)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait(30)

    found = parsed(restore(kafka_s3, *everything, "--json"))
    assert (found["records"], found["sent_records"] < 26) == (26, True)
    check_copies(config, "copy.")


def committed(admin: ClusterAdmin, topic: str) -> int:
    return admin.frontiers(topic, [0])[0].last_stable_offset


def start(kafka_s3: KafkaS3, arguments: list[str]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-m", "kafka_s3_platform.cli", *arguments],
        cwd=kafka_s3.folder,
        env=make_environment(kafka_s3.folder),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
