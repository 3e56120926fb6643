"""Documents of restores that a writer of the bucket made up: their digest is right, and they reach nothing new."""

import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest

from kafka_s3_platform.config.settings import ConnectorConfig, KafkaSettings, StoreSettings
from kafka_s3_platform.errors import IntegrityError, PermanentError, PlatformError, PreflightError, TopicRecreatedError
from kafka_s3_platform.restore.archive_source import ArchiveSource
from kafka_s3_platform.restore.documents import parse_table
from kafka_s3_platform.restore.foreign_source import ForeignSource
from kafka_s3_platform.restore.groups.runs import read_runs
from kafka_s3_platform.restore.replay.checkpoint import read_positions
from kafka_s3_platform.restore.replay.task import replay
from kafka_s3_platform.restore.request import RestoreReport, RestoreRequest
from kafka_s3_platform.restore.run import restore
from kafka_s3_platform.restore.source.sent_before import Known
from kafka_s3_platform.restore.verify.offset_mapping import MAPPING_SCHEMA
from kafka_s3_platform.store.objects import ObjectStore
from kafka_s3_platform_tests.conftest import CreateTopic
from kafka_s3_platform_tests.hostile.containers import footer_of
from kafka_s3_platform_tests.kafka.topics import records_of
from kafka_s3_platform_tests.restore.foreign import JSON, LINES, Load, Put
from kafka_s3_platform_tests.restore.runners import StoppingRunner
from kafka_s3_platform_tests.support import HOUR, NOON, InProcessRunner, Sent, archived, connector, produce

pytestmark = pytest.mark.integration

NO_DOCUMENTS = [b"", b"[", b"[" * 100_000, b"5", b"null", b"[]", b"\xff", b'{"a":' * 100_000, b'{"digest": 5}']
PLAN, REPORT = "_restore/r.json", "_restore/r.report.json"


@pytest.fixture
def config(
    kafka_settings: KafkaSettings, store_settings: StoreSettings, topic_name: str, create_topic: CreateTopic
) -> ConnectorConfig:
    """Two hours of a topic, of which a restore `r` was begun."""
    create_topic(topic_name, 2)
    create_topic(f"{topic_name}-restored", 2)
    config = connector(kafka_settings, store_settings, topic_name)
    produce(kafka_settings, topic_name, [Sent(b"%d" % n, None, NOON + n % 2 * HOUR) for n in range(20)])
    archived(config)
    with pytest.raises(InterruptedError):
        restored(config, StoppingRunner(replay))
    return config


def restored(config: ConnectorConfig, runner: InProcessRunner | None = None, **changes: Any) -> RestoreReport:
    topic = config.topics[0]
    given: dict[str, Any] = {"to_topic": f"{topic}-restored", "restore_id": "r", "run_id": "x", "from_offset": 2}
    return restore(ArchiveSource(RestoreRequest(config, topic, **given | changes)), runner or InProcessRunner())


def sent(config: ConnectorConfig, topic: str = "") -> list[bytes]:
    target = topic or f"{config.topics[0]}-restored"
    return [v for p in (0, 1) for v in records_of(config.kafka, target, p).column("value").to_pylist()]


def edited(config: ConnectorConfig, client: Any, edit: Callable[[dict[str, Any]], object]) -> None:
    """The stored plan, changed, its digest made anew as the platform makes it."""
    plan = json.loads(client.get_object(Bucket=config.store.bucket, Key=PLAN)["Body"].read())
    kind = {name: plan.pop(name) for name in ("format", "kind", "digest") if name in plan}
    edit(plan)
    kind["digest"] = hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest()
    client.put_object(Bucket=config.store.bucket, Key=PLAN, Body=json.dumps(plan | kind).encode())


def at(*path: Any) -> Callable[[Any], Callable[[dict[str, Any]], None]]:
    def to(value: Any) -> Callable[[dict[str, Any]], None]:
        def edit(plan: dict[str, Any]) -> None:
            place: Any = plan
            for step in path[:-1]:
                place = place[step]
            place[path[-1]] = value

        return edit

    return to


STEP = {
    "alias": "x",
    "type": "subprocess.Popen",
    "options": {"args": "touch /tmp/x"},
    "predicate": None,
    "negate": False,
}
EDITS = {
    "another window": (at("selection", "windows", 0, "start_offset")(0), IntegrityError, "its selection is"),
    "other times": (at("selection", "times")([[0, 1]]), IntegrityError, "its selection is"),
    "another restore": (at("restore_id")("../r"), IntegrityError, "its restore_id is"),
    "another topic": (at("source", "topic")("other"), IntegrityError, "its topic is"),
    "timestamps": (at("allow_unsendable_timestamps")(True), IntegrityError, "allow_unsendable_timestamps"),
    "another target": (at("terms", "to_topic")("other"), PreflightError, "belongs to another restore"),
    "a class": (at("terms", "outgoing")({"transforms": [STEP]}), PreflightError, "belongs to another restore"),
    "terms of nothing": (at("terms", "outgoing")(5), IntegrityError, "its terms are none of a restore"),
    "terms of deep nothing": (at("terms", "outgoing")({"transforms": [5]}), IntegrityError, "its terms are none"),
    "a folder": (at("objects", 0, "kafka_partition")("../../topics/x"), IntegrityError, "is no document of a restore"),
    "no number": (at("objects", 0, "size")(1.5), IntegrityError, "is no document of a restore"),
    "another place": (at("objects", 0, "kafka_partition")(1), IntegrityError, "holds records of kafka partitions 0"),
    "a format": (at("objects", 0, "format")("subprocess.Popen"), PermanentError, "of format subprocess.Popen"),
    "a file": (at("objects", 0, "key")("../../../etc/passwd"), PermanentError, "etc/passwd"),
    "the index": (at("objects", 0, "key")("INDEX"), PreflightError, "was replaced"),
    "another log": (at("target", "topic_id")("other"), TopicRecreatedError, "began with target topic"),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edited_plan_is_refused_and_nothing_is_sent(config: ConnectorConfig, s3_client: Any, name: str) -> None:
    edit, error, words = EDITS[name]
    listed = s3_client.list_objects_v2(Bucket=config.store.bucket, Prefix="_index/")["Contents"]
    index = next(item["Key"] for item in listed if item["Key"].endswith(".parquet"))

    def made(plan: dict[str, Any]) -> None:
        edit(plan)
        if plan["objects"][0]["key"] == "INDEX":
            plan["objects"][0]["key"] = index

    edited(config, s3_client, made)
    before = {item.key for item in ObjectStore(config.store).list("")}
    with pytest.raises(error, match=words):
        restored(config)
    # of the other object, which is read by a task of its own
    assert sent(config) == ([b"%d" % n for n in range(3, 20, 2)] if name == "another place" else [])
    written = {item.key for item in ObjectStore(config.store).list("")} - before
    assert all(key.startswith("_restore/") for key in written)


def test_what_an_edited_plan_can_do_is_leave_out_objects(config: ConnectorConfig, s3_client: Any) -> None:
    """Told in docs/security.md: who writes plans is believed about what of the topic's archive is sent."""
    edited(config, s3_client, lambda plan: plan["objects"].pop())
    report = restored(config)
    assert (report.to_topic, report.record_count) == (f"{config.topics[0]}-restored", 9)


@pytest.mark.parametrize("content", NO_DOCUMENTS)
@pytest.mark.parametrize("key", [PLAN, REPORT, "_restore/r/0.json"])
def test_what_is_no_document_is_told_as_that(config: ConnectorConfig, s3_client: Any, key: str, content: bytes) -> None:
    s3_client.put_object(Bucket=config.store.bucket, Key=key, Body=content)
    with pytest.raises(PlatformError, match=f"{key} is no document of a restore|is of objects that others wrote"):
        restored(config)
    assert sent(config) == []


def test_the_report_of_a_restore_is_believed(config: ConnectorConfig, s3_client: Any) -> None:
    """Nothing is sent for it: who writes there may say that a restore is finished."""
    report = restored(config, restore_id="other", to_topic=f"{config.topics[0]}-restored")
    s3_client.put_object(Bucket=config.store.bucket, Key=REPORT, Body=report.to_json())
    assert restored(config).already_finished


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1" * 10, footer_of(1_000_000)])
def test_tables_of_restores_are_read_as_those_of_strangers(
    store_settings: StoreSettings, s3_client: Any, content: bytes
) -> None:
    s3_client.put_object(Bucket=store_settings.bucket, Key="m.parquet", Body=content)
    store = ObjectStore(store_settings)
    for read in (
        lambda: read_runs(store, "m.parquet"),
        lambda: Known.from_parquet(content, "m.parquet"),
        lambda: parse_table(content, MAPPING_SCHEMA, "m.parquet"),
    ):
        with pytest.raises(IntegrityError, match=r"m\.parquet"):
            read()


def test_checkpoints_that_are_none_are_told_to_those_who_watch(config: ConnectorConfig, s3_client: Any) -> None:
    s3_client.put_object(Bucket=config.store.bucket, Key="_restore/r/0.json", Body=b'{"next_source_offset": "x"}')
    with pytest.raises(IntegrityError, match=r"_restore/r/0\.json is no document of a restore \(Position\)"):
        read_positions(ObjectStore(config.store), ["_restore/r/0.json"])


FOREIGN = {
    "another target": (at("targets")({"TOPIC": "OTHER"}), "its targets is"),
    "its start": (at("starts")({"OTHER": {"topic_id": "x", "offsets": [[0, 0]]}}), "its starts is"),
    "a stranger's file": (at("objects", 0, "key")("secrets/x.json"), "none that this connector reads below topics/"),
    "a file above": (at("objects", 0, "key")("topics/../secrets/x+0+0.json"), "its object topics/../secrets"),
    "a topic": (at("objects", 0, "topic")("OTHER"), "its targets is"),
    "a kafka partition": (at("objects", 0, "kafka_partition")(1), "its object topics/"),
    "other times": (at("times")([[0, 1]]), "its times is"),
    "a folder": (at("objects", 0, "kafka_partition")("../x"), "is no document of a restore"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_so_is_the_plan_of_a_restore_of_objects_that_others_wrote(
    load: Load, put: Put, s3_client: Any, topic_name: str, create_topic: CreateTopic, name: str
) -> None:
    """Its targets were taken from it: it led a restore to any topic of the cluster."""
    edit, words = FOREIGN[name]
    other = create_topic(f"{topic_name}-other", 2)
    create_topic(topic_name, 2)
    put(topic_name, 0, [{"n": 1}])
    config = load(LINES, JSON)
    s3_client.put_object(Bucket=config.store.bucket, Key="secrets/x.json", Body=b'{"n": 2}\n')
    request = RestoreRequest(config, topic="", to_topic="", restore_id="r", run_id="x", allow_source_topic=True)
    asked = ForeignSource(request, (topic_name,))
    with pytest.raises(InterruptedError):
        restore(asked, StoppingRunner(replay))

    def made(plan: dict[str, Any]) -> None:
        edit(plan)
        text = json.dumps(plan).replace("TOPIC", topic_name).replace("OTHER", other)
        plan.clear()
        plan.update(json.loads(text))

    edited(config, s3_client, made)
    with pytest.raises(IntegrityError, match=words):
        restore(asked, InProcessRunner())
    assert (sent(config, other), sent(config, topic_name)) == ([], [])
