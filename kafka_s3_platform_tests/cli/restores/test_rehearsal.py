"""`kafka-s3 rehearse` on a real archive: hours come back to a Kafka that is started for it, or are found not to."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest

from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.model.segment import Segment
from kafka_s3_platform.core.restore.request import RestoreReport
from kafka_s3_platform.core.restore.run import restore
from kafka_s3_platform.operate.rehearsal import rehearse as rehearsing
from kafka_s3_platform_tests.cli.conftest import KafkaS3, make_environment, parsed, write_reachable_connector
from kafka_s3_platform_tests.cli.restores.test_evidence import KeyPair, fetch, use_key, write_keys
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.restore.own import keys
from kafka_s3_platform_tests.support import HOUR, NOON, Sent, archived, produce, snapshot
from kafka_s3_platform_tests.upkeep.compact.test_compact import compacted
from kafka_s3_platform_tests.upkeep.test_erase import erased
from kafka_s3_platform_tests.upkeep.test_retain import retained

FAILED = 1
HOURS = 4
PERIOD = {"archive.rehearsal.period.days": "3"}


@pytest.fixture
def config(kafka_s3: KafkaS3, lab: Lab) -> ConnectorConfig:
    """Connector `c` has archived four hours of `orders`, of two kafka partitions, and one of `users`."""
    orders, users = f"{lab.topic}-orders", f"{lab.topic}-users"
    lab.create(orders, 2)
    lab.create(users)
    for hour in range(HOURS):
        times = [NOON + hour * HOUR + n * timedelta(minutes=5) for n in range(10)]
        produce(lab.kafka, orders, [Sent(b"%d" % n, b"k", t, (), n % 2) for n, t in enumerate(times)])
    produce(lab.kafka, users, [Sent(b"u"), Sent(None, b"tombstone")])
    made = write_reachable_connector(kafka_s3, lab.kafka, lab.store, f"{orders},{users}", **PERIOD)
    for topic in made.topics:
        archived(made.model_copy(update={"topics": (topic,)}))
    return made


@pytest.fixture(autouse=True)
def own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the Kafka of a rehearsal has its data."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    return folder


def find_brokers(folder: Path) -> list[psutil.Process]:
    return [p for p in psutil.process_iter(["cmdline"]) if any(str(folder) in part for part in p.info["cmdline"] or ())]


def check_gone(config: ConnectorConfig, folder: Path) -> None:
    """No process, no file, no topic and no document of a rehearsal is left."""
    assert find_brokers(folder) == []
    assert list(folder.glob("kafka-s3-rehearsal-*")) == []
    assert keys(config.store, f"{config.archive.restore_dir}/rehearsal=") == []
    with ClusterAdmin(config.kafka) as admin:
        # the controller has deleted them, and a broker lists them a moment longer
        await_truth(lambda: not any(topic.startswith("rehearsal-") for topic in admin.list_topics()))


def rehearse(kafka_s3: KafkaS3, *options: str, status: int = 0) -> Any:
    done = kafka_s3("rehearse", "c", "--json", *options, status=status)
    return json.loads(done.stdout)["connectors"]["c"]


RUNNING_KAFKA = ("--target-worker", "connectors/worker.properties")
"""The Kafka that runs already is the target, where the test is about what comes back, and not about where to."""


def is_complete(document: Any) -> bool:
    return all(topic["is_complete"] for topic in document["topics"])


def read_health(kafka_s3: KafkaS3) -> dict[str, Any]:
    [connector] = json.loads(kafka_s3("health", "--json").stdout)["connectors"]
    return {topic["topic"]: topic for topic in connector["topics"]}


def test_all_hours_have_come_back_after_two_rehearsals_and_everything_says_so(
    kafka_s3: KafkaS3, config: ConnectorConfig, lab: Lab, own_temporary_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key_pair: KeyPair = write_keys(kafka_s3.folder)
    use_key(monkeypatch, key_pair.private)
    orders, users = config.topics
    assert "was never rehearsed" in kafka_s3("health").stdout
    archive = {
        key: lab.s3.head_object(Bucket=lab.store.bucket, Key=key)["ETag"] for key in keys(config.store, "topics")
    }

    first = rehearse(kafka_s3)
    assert [(t["topic"], t["records"], t["verdict"]) for t in first["topics"]] == [
        (orders, 20, "2 of 2 hours came back"),
        (users, 2, "1 of 1 hour came back"),
    ]
    assert first["standing"]["bytes_per_second"] > 0
    check_gone(config, own_temporary_folder)
    second = rehearse(kafka_s3, *RUNNING_KAFKA)
    windows = [doc["topics"][0]["windows"] for doc in (first, second)]
    assert windows == [
        [[at(0), at(2)]],
        [[at(2), at(4)]],
    ]
    assert archive == {
        key: lab.s3.head_object(Bucket=lab.store.bucket, Key=key)["ETag"] for key in keys(config.store, "topics")
    }

    topic = read_health(kafka_s3)[orders]
    assert topic["last_proven"]["how"] == "rehearsal"
    rehearsal = topic["rehearsal"]
    assert (rehearsal["hours"], rehearsal["proven_hours"], rehearsal["failed_hours"]) == (4, 4, 0)
    assert rehearsal["whole_restore_seconds"] > 0
    assert "was never rehearsed" not in kafka_s3("health").stdout

    path = fetch(lab, config, kafka_s3.folder, 2)
    shown = kafka_s3("evidence", "check", str(path), "--public-key", str(key_pair.public), status=0).stdout
    assert "rehearsal" in shown
    assert "2 of 2 hours came back" in shown


def at(hour: int) -> str:
    return (NOON + hour * HOUR).isoformat().replace("+00:00", "Z")


def find_segment(config: ConnectorConfig, hour: int, kafka_partition: int) -> Segment:
    of_topic = config.model_copy(update={"topics": config.topics[:1]})
    [segment] = [
        segment
        for segment in snapshot(of_topic).segments
        if segment.kafka_partition == kafka_partition and segment.chunk_start == NOON + hour * HOUR
    ]
    return segment


def damage(lab: Lab, key: str) -> bytes:
    """Change a byte in the middle. Return what was there."""
    content: bytes = lab.s3.get_object(Bucket=lab.store.bucket, Key=key)["Body"].read()
    changed = bytearray(content)
    changed[len(changed) // 2] ^= 1
    lab.s3.put_object(Bucket=lab.store.bucket, Key=key, Body=bytes(changed))
    return content


def delete(lab: Lab, key: str) -> bytes:
    content: bytes = lab.s3.get_object(Bucket=lab.store.bucket, Key=key)["Body"].read()
    lab.s3.delete_object(Bucket=lab.store.bucket, Key=key)
    return content


@pytest.mark.parametrize(("harm", "target"), [(damage, ()), (delete, RUNNING_KAFKA)], ids=["damaged", "gone"])
def test_an_object_that_is_damaged_or_gone_is_found_and_only_its_hour_does_not_come_back(
    kafka_s3: KafkaS3,
    config: ConnectorConfig,
    lab: Lab,
    own_temporary_folder: Path,
    harm: Callable[[Lab, str], bytes],
    target: tuple[str, ...],
) -> None:
    orders, users = config.topics
    segment = find_segment(config, 1, kafka_partition=1)
    content = harm(lab, segment.key)

    found = rehearse(kafka_s3, *target, status=FAILED)
    verdicts = [(t["verdict"], t["is_complete"]) for t in found["topics"]]
    assert verdicts == [("1 of 2 hours came back", False), ("1 of 1 hour came back", True)]
    assert any(segment.key in sentence for sentence in found["topics"][0]["left_out"])
    check_gone(config, own_temporary_folder)
    health = read_health(kafka_s3)
    assert (health[orders]["rehearsal"]["failed_hours"], health[orders]["is_well"]) == (1, False)
    assert health[orders]["last_proven"] is None
    assert health[users]["last_proven"]["how"] == "rehearsal"
    shown = kafka_s3("health", status=FAILED).stdout
    assert f"1 hour did not come back when rehearsed, the first of 2026-01-01 13:00 UTC: object {segment.key}" in shown

    lab.s3.put_object(Bucket=lab.store.bucket, Key=segment.key, Body=content)
    assert is_complete(rehearse(kafka_s3, *RUNNING_KAFKA)), "it is tried again, with those whose turn it is"
    assert read_health(kafka_s3)[orders]["rehearsal"]["proven_hours"] == 4


def test_of_a_merged_day_all_hours_fail_whose_object_is_damaged(
    kafka_s3: KafkaS3, config: ConnectorConfig, lab: Lab
) -> None:
    of_topic = config.model_copy(update={"topics": config.topics[:1]})
    compacted(of_topic)
    [segment] = [s for s in snapshot(of_topic).segments if s.kafka_partition == 1]
    delete(lab, segment.key)
    found = rehearse(kafka_s3, *RUNNING_KAFKA, status=FAILED)
    assert [t["verdict"] for t in found["topics"]] == ["0 of 2 hours came back", "1 of 1 hour came back"]


@pytest.mark.parametrize("lost", [0, 1])
def test_late_records_after_the_draw_are_no_fault_and_hide_none(
    kafka_s3: KafkaS3, config: ConnectorConfig, monkeypatch: pytest.MonkeyPatch, lost: int
) -> None:
    users = config.model_copy(update={"topics": config.topics[1:]})

    def lose(report: RestoreReport) -> RestoreReport:
        return replace(report, record_count=report.record_count - lost * (report.topic == users.topics[0]))

    def restore_later(*arguments: Any) -> RestoreReport:
        """Restore after a late record has come. As many records as were drawn come back if one is lost."""
        produce(config.kafka, users.topics[0], [Sent(b"late")])
        archived(users)
        report = restore(*arguments)
        return replace(lose(report), parts=tuple(map(lose, report.parts)))

    monkeypatch.setattr(rehearsing, "restore", restore_later)
    topics = rehearse(kafka_s3, *RUNNING_KAFKA, status=FAILED if lost else 0)["topics"]
    assert topics[0]["verdict"] == "2 of 2 hours came back"
    assert topics[1]["verdict"] == f"{1 - lost} of 1 hour came back"
    assert topics[1]["records"] == 3, "where one is lost, that of the second restore, before which another has come"


def test_records_out_of_range_with_times_of_a_drawn_hour_are_no_fault(
    kafka_s3: KafkaS3, config: ConnectorConfig
) -> None:
    users = config.topics[1]
    produce(config.kafka, users, [Sent(b"before the archive began, by its file then")])
    archive = config.archive.model_copy(update={"start_hour": NOON + HOUR})
    archived(config.model_copy(update={"topics": (users,), "archive": archive}))
    document = rehearse(kafka_s3)
    assert [(t["verdict"], t["records"]) for t in document["topics"][1:]] == [("1 of 1 hour came back", 3)]


def test_hours_of_values_only_from_before_the_envelope_are_told_and_not_drawn(
    kafka_s3: KafkaS3, config: ConnectorConfig
) -> None:
    users = config.topics[1]
    produce(config.kafka, users, [Sent(b"a value", None, NOON + HOUR)])
    layout = config.layout.model_copy(update={"format": "bytes", "codec": "none"})
    archived(config.model_copy(update={"topics": (users,), "layout": layout}))
    topic = rehearse(kafka_s3)["topics"][1]
    assert (topic["verdict"], topic["records"]) == ("1 of 1 hour came back", 2)
    assert "1 record of hours with values only, which no rehearsal restores" in topic["left_out"]


def test_hours_that_expired_are_not_waited_for(kafka_s3: KafkaS3, config: ConnectorConfig, lab: Lab) -> None:
    delete(lab, find_segment(config, 1, kafka_partition=1).key)
    rehearse(kafka_s3, status=FAILED)
    assert "1 hour did not come back when rehearsed" in kafka_s3("health").stdout
    for topic in config.topics:
        retained(config.model_copy(update={"topics": (topic,)}), first_day=date(2026, 1, 2))
    assert rehearse(kafka_s3) is None
    assert "rehearsed" not in kafka_s3("health").stdout


@pytest.mark.parametrize("is_merged", [False, True], ids=["hours", "a day"])
def test_what_was_erased_is_not_missed(kafka_s3: KafkaS3, config: ConnectorConfig, is_merged: bool) -> None:
    users = config.model_copy(update={"topics": config.topics[1:]})
    if is_merged:
        compacted(users)
    assert erased(users, b"tombstone").record_count == 1
    document = rehearse(kafka_s3, *RUNNING_KAFKA)
    assert [(t["verdict"], t["records"]) for t in document["topics"]] == [
        ("2 of 2 hours came back", 20),
        ("1 of 1 hour came back", 1),
    ]
    sentence = "up to 1 record, which may have been erased by request"
    assert (sentence in document["topics"][1]["left_out"]) == is_merged, "of an hour, the number is known"


def test_a_killed_rehearsal_leaves_no_kafka_and_the_next_one_goes_on(
    kafka_s3: KafkaS3, config: ConnectorConfig, own_temporary_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [sys.executable, "-m", "kafka_s3_platform.cli", "rehearse", "c"]
    env = {**make_environment(kafka_s3.folder), "TMPDIR": str(own_temporary_folder)}
    with subprocess.Popen(command, cwd=kafka_s3.folder, env=env, stderr=subprocess.PIPE) as process:
        await_truth(lambda: any("kafka.Kafka" in p.cmdline() for p in alive(own_temporary_folder)))
        await_truth(lambda: bool(keys(config.store, f"{config.archive.restore_dir}/rehearsal=c/")))
        os.kill(process.pid, signal.SIGKILL)
    await_truth(lambda: find_brokers(own_temporary_folder) == [])
    await_truth(lambda: list(own_temporary_folder.glob("kafka-s3-rehearsal-*")) == [])
    assert keys(config.store, f"{config.archive.restore_dir}/rehearsal=c/")
    assert keys(config.store, f"{config.archive.restore_dir}/evidence=c/") == []

    monkeypatch.setattr(rehearsing, "LONGEST_RUN", timedelta())
    assert is_complete(rehearse(kafka_s3, *RUNNING_KAFKA))
    check_gone(config, own_temporary_folder)


def test_topics_of_a_rehearsal_that_was_killed_are_deleted_by_the_next_one_of_their_cluster(
    kafka_s3: KafkaS3, config: ConnectorConfig, own_temporary_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as killed:
        killed.setattr(rehearsing, "_remove_traces", lambda *_: None)
        assert is_complete(rehearse(kafka_s3, *RUNNING_KAFKA))
    left = keys(config.store, f"{config.archive.restore_dir}/rehearsal=c/")
    monkeypatch.setattr(rehearsing, "LONGEST_RUN", timedelta())
    assert is_complete(rehearse(kafka_s3)), "at a Kafka of its own"
    assert keys(config.store, f"{config.archive.restore_dir}/rehearsal=c/") == left
    assert is_complete(rehearse(kafka_s3, *RUNNING_KAFKA))
    check_gone(config, own_temporary_folder)


def alive(folder: Path) -> Iterator[psutil.Process]:
    yield from (process for process in find_brokers(folder) if process.is_running())


def await_truth(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while True:
        try:
            if is_true():
                return
        except psutil.NoSuchProcess:
            pass
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_cluster_of_the_users_is_left_as_it_was(
    kafka_s3: KafkaS3, config: ConnectorConfig, own_temporary_folder: Path
) -> None:
    worker = kafka_s3.folder / "connectors" / "worker.properties"
    with ClusterAdmin(config.kafka) as admin:
        before = set(admin.list_topics())
        found = rehearse(kafka_s3, "--target-worker", str(worker))
        assert set(admin.list_topics()) - {"__transaction_state", "__consumer_offsets"} == before - {
            "__transaction_state",
            "__consumer_offsets",
        }
    assert found["target"] == f"Kafka at {config.kafka.bootstrap_servers}"
    check_gone(config, own_temporary_folder)


@pytest.mark.parametrize(
    ("options", "more", "told"),
    [
        ([], {"archive.rehearsal.period.days": ""}, "no connector file has archive.rehearsal.period.days"),
        (["c"], {"timestamp.extractor": "Wallclock"}, "those of places in the log"),
        (["c"], {"format.class": "ByteArrayFormat"}, "has no archive of whole records"),
        (["c"], {}, "nothing is archived of connector c"),
    ],
    ids=["no key", "hours of places", "values only", "nothing archived"],
)
def test_what_cannot_be_rehearsed_is_refused_with_what_to_do(
    kafka_s3: KafkaS3, lab: Lab, options: list[str], more: dict[str, str], told: str
) -> None:
    named = {name: value for name, value in {**PERIOD, **more}.items() if value}
    write_reachable_connector(kafka_s3, lab.kafka, lab.store, lab.topic, **named)
    assert told in kafka_s3("rehearse", *options, status=FAILED).stderr


def test_a_topic_without_a_finished_hour_starts_no_kafka(kafka_s3: KafkaS3, lab: Lab) -> None:
    lab.create_topic()
    config = write_reachable_connector(kafka_s3, lab.kafka, lab.store, lab.topic, **PERIOD)
    archived(config)
    assert parsed(kafka_s3("rehearse", "c", "--json", status=0)) == {"connectors": {"c": None}}
    assert "no hour is over and has records" in kafka_s3("rehearse", status=0).stdout
    assert "was never rehearsed" not in kafka_s3("health").stdout
