"""Where a restore's documents lie, and which format they have.

Documents of restores that a writer of the bucket made up: their digest is right, and they reach nothing new.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import fields
from datetime import datetime, timezone
from typing import Any

import pytest

from kafka_s3_platform.connect.restore.foreign_source import ForeignSource
from kafka_s3_platform.connect.restore.source.foreign_plan import SentObjects
from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.errors import (
    IntegrityError,
    PermanentError,
    PlatformError,
    PreflightError,
    TopicRecreatedError,
)
from kafka_s3_platform.core.model.notes import DoubtNote
from kafka_s3_platform.core.restore.archive_source import ArchiveSource
from kafka_s3_platform.core.restore.documents import RestoreDocuments, StreamDocuments, parse_document, parse_table
from kafka_s3_platform.core.restore.evidence import Evidence, describe_restored
from kafka_s3_platform.core.restore.execution import replay_streams
from kafka_s3_platform.core.restore.replay.checkpoint import Position, read_positions
from kafka_s3_platform.core.restore.request import LeftOut, RestoreReport, RestoreRequest
from kafka_s3_platform.core.restore.run import restore
from kafka_s3_platform.core.restore.source.topics_plan import TopicsPlan
from kafka_s3_platform.core.restore.verify.read_back import MAPPING_SCHEMA
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform.operate.groups.group_offsets import read_finished_restore, read_runs
from kafka_s3_platform_tests.conftest import CreateTopic, Lab
from kafka_s3_platform_tests.hostile.containers import footer_of
from kafka_s3_platform_tests.kafka.topics import values
from kafka_s3_platform_tests.restore.foreign import JSON, LINES, SourceLab
from kafka_s3_platform_tests.restore.own import Archive, StoppingRunner, own_restores, target_of
from kafka_s3_platform_tests.restore.plans import part, report
from kafka_s3_platform_tests.support import HOUR, NOON, InProcessRunner, Sent

NO_DOCUMENTS = [b"", b"[", b"[" * 100_000, b"5", b"null", b"[]", b"\xff", b'{"a":' * 100_000, b'{"digest": 5}']

Edit = Callable[[dict[str, Any]], object]

STEP = {
    "alias": "x",
    "type": "subprocess.Popen",
    "options": {"args": "touch /tmp/x"},
    "predicate": None,
    "negate": False,
}


def keys(of: RestoreDocuments | StreamDocuments) -> dict[str, object]:
    names = {name for name, found in vars(type(of)).items() if isinstance(found, property)}
    return {name: getattr(of, name) for name in names - {f.name for f in fields(of)}}


def test_each_document_has_a_key_of_its_own() -> None:
    documents = RestoreDocuments("topics/_restore", "incident.7")
    assert keys(documents) == {
        "plan": "topics/_restore/incident.7.json",
        "report": "topics/_restore/incident.7.report.json",
        "page": "topics/_restore/incident.7.report.html",
        "sent_before": "topics/_restore/incident.7.known.parquet",
        "successor": "topics/_restore/incident.7.next",
        "streams": "topics/_restore/incident.7/",
    }
    assert keys(documents.stream(3)) == {
        "checkpoint": "topics/_restore/incident.7/3.json",
        "mapping": "topics/_restore/incident.7/3.mapping.parquet",
        "left_out": "topics/_restore/incident.7/3.left-out.json",
    }
    assert documents.stream(3, "a.json").checkpoint == "topics/_restore/incident.7/a.json/3.json"
    assert RestoreDocuments.of_plan(documents.plan) == documents


def test_an_id_is_reserved_in_the_buckets_of_all_connectors_of_its_restore(archive: ConnectorConfig) -> None:
    first, second, third = (own_restores(archive).model_copy(update={"name": name}) for name in ("c", "d", "e"))

    def together(*configs: ConnectorConfig) -> ArchiveSource:
        given: dict[str, Any] = {"to_topic": "copy", "restore_id": "r", "run_id": "x"}
        requests = [RestoreRequest(config, config.topics[0], **given) for config in configs]
        return ArchiveSource(requests[0], tuple(requests))

    for _ in range(2):  # a run that is killed before it stores its plan claims again
        together(first, second).make_plan(InProcessRunner()).claim()
    refusal = "restore id r was begun with connector c first .* Name that connector first"
    with pytest.raises(PreflightError, match=refusal):
        restored(second)
    with pytest.raises(PreflightError, match=refusal):
        together(third, second).make_plan(InProcessRunner())
    assert read_finished_restore(second, "r") is None, "groups looks for the first connector's"


@pytest.mark.parametrize(("said", "found"), [(2, "format 2"), (None, "no format")])
def test_a_report_of_another_format_is_refused_and_says_what_to_do(said: int | None, found: str) -> None:
    document = json.loads(report().to_json())
    assert document.pop("format") == 1
    content = json.dumps(document if said is None else {**document, "format": said}).encode()
    advice = f"restore report k has {found}, and this version reads format 1: use the version that wrote it, or restore"
    with pytest.raises(IntegrityError, match=rf"\] {advice} under another restore id$"):
        RestoreReport.from_json(content, "k")
    assert RestoreReport.from_json(report().to_json(), "k").plan_digest == report().plan_digest


@pytest.mark.parametrize("content", NO_DOCUMENTS, ids=lambda content: str(content[:9]))
def test_what_is_no_document_is_told_as_that(content: bytes) -> None:
    for read in (
        TopicsPlan.from_json,
        RestoreReport.from_json,
        lambda *given: parse_document(given[0], Position, "k"),
    ):
        with pytest.raises(IntegrityError, match="k is not a valid restore document"):
            read(content, "k")


def begun(archive: ConnectorConfig, create_topic: CreateTopic) -> ConnectorConfig:
    """The archive, of which a restore `r` was begun."""
    config = own_restores(archive)
    create_topic(target_of(config), 2)
    with pytest.raises(InterruptedError):
        restored(config, StoppingRunner(replay_streams))
    return config


@pytest.fixture(scope="module")
def archive(archive_once: Archive) -> ConnectorConfig:
    """Two hours of a topic."""
    return archive_once([Sent(b"%d" % n, None, NOON + n % 2 * HOUR) for n in range(20)], 2)


@pytest.fixture(scope="module")
def of_module(archive: ConnectorConfig, create_topic: CreateTopic) -> tuple[ConnectorConfig, bytes]:
    """A restore was begun, and this is its plan."""
    config = begun(archive, create_topic)
    return config, ObjectStore(config.store).get(documents(config).plan)


@pytest.fixture
def config(of_module: tuple[ConnectorConfig, bytes], lab: Lab) -> ConnectorConfig:
    """Of a restore that was begun, nothing but its plan is there. Nothing is sent by the tests that use this."""
    config, plan = of_module
    for item in list(ObjectStore(config.store).list(f"{config.archive.restore_dir}/r")):
        lab.s3.delete_object(Bucket=config.store.bucket, Key=item.key)
    lab.s3.put_object(Bucket=config.store.bucket, Key=documents(config).plan, Body=plan)
    return config


@pytest.fixture
def sending(archive: ConnectorConfig, lab: Lab) -> ConnectorConfig:
    """A restore of the test's own was begun."""
    return begun(archive, lab.create)


def documents(config: ConnectorConfig) -> RestoreDocuments:
    return RestoreDocuments(config.archive.restore_dir, "r")


def restored(config: ConnectorConfig, runner: InProcessRunner | None = None, **changes: Any) -> RestoreReport:
    topic = config.topics[0]
    given: dict[str, Any] = {"to_topic": target_of(config), "restore_id": "r", "run_id": "x", "from_offset": 2}
    return restore(ArchiveSource(RestoreRequest(config, topic, **given | changes)), runner or InProcessRunner())


def sent(config: ConnectorConfig, topic: str = "") -> list[bytes]:
    target = topic or target_of(config)
    return [v for p in (0, 1) for v in values(config.kafka, target, p)]


def edited(config: ConnectorConfig, client: Any, edit: Edit) -> None:
    """The stored plan, changed, its digest made anew as the platform makes it."""
    key = documents(config).plan
    plan = json.loads(client.get_object(Bucket=config.store.bucket, Key=key)["Body"].read())
    kind = {name: plan.pop(name) for name in ("format", "kind", "digest") if name in plan}
    edit(plan)
    kind["digest"] = hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest()
    client.put_object(Bucket=config.store.bucket, Key=key, Body=json.dumps(plan | kind).encode())


def at(*path: Any) -> Callable[[Any], Callable[[dict[str, Any]], None]]:
    def to(value: Any) -> Callable[[dict[str, Any]], None]:
        def edit(plan: dict[str, Any]) -> None:
            place: Any = plan
            for step in path[:-1]:
                place = place[step]
            place[path[-1]] = value

        return edit

    return to


def replace_log(plan: dict[str, Any]) -> None:
    [start] = plan["starts"].values()
    start["topic_id"] = "other"


EDITS = {
    "another window": (
        at("topics", 0, "selection", "windows", 0, "start_offset")(0),
        IntegrityError,
        "its selection is",
    ),
    "other times": (at("topics", 0, "selection", "times")([[0, 1]]), IntegrityError, "its selection is"),
    "another restore": (at("restore_id")("../r"), IntegrityError, "its restore_id is"),
    "another topic": (at("topics", 0, "source", "topic")("other"), IntegrityError, "its topic is"),
    "timestamps": (at("topics", 0, "allow_unsendable_timestamps")(True), IntegrityError, "allow_unsendable_timestamps"),
    "another target": (at("terms", "to_topic")("other"), PreflightError, "belongs to another restore"),
    "a class": (at("terms", "outgoing")({"transforms": [STEP]}), PreflightError, "belongs to another restore"),
    "terms of nothing": (at("terms", "outgoing")(5), IntegrityError, "has terms that are not those of a restore"),
    "terms of deep nothing": (at("terms", "outgoing")({"transforms": [5]}), IntegrityError, "has terms that are not"),
    "a folder": (
        at("topics", 0, "objects", 0, "kafka_partition")("../../topics/x"),
        IntegrityError,
        "is not a valid restore document",
    ),
    "no number": (at("topics", 0, "objects", 0, "size")(1.5), IntegrityError, "is not a valid restore document"),
    "a format": (
        at("topics", 0, "objects", 0, "format")("subprocess.Popen"),
        PermanentError,
        "of format subprocess.Popen",
    ),
    "a file": (at("topics", 0, "objects", 0, "key")("../../../etc/passwd"), PermanentError, "etc/passwd"),
    "the index": (
        at("topics", 0, "objects", 0, "key")("INDEX"),
        PreflightError,
        "the index does not list 1 object of the plan",
    ),
    "another log": (replace_log, TopicRecreatedError, "began with target topic"),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edited_plan_is_refused_and_nothing_is_sent(config: ConnectorConfig, lab: Lab, name: str) -> None:
    edit, error, words = EDITS[name]
    listed = lab.s3.list_objects_v2(Bucket=config.store.bucket, Prefix=f"{config.archive.index_dir}/")["Contents"]
    index = next(item["Key"] for item in listed if item["Key"].endswith(".parquet"))

    def made(plan: dict[str, Any]) -> None:
        edit(plan)
        [topic] = plan["topics"]
        if topic["objects"][0]["key"] == "INDEX":
            topic["objects"][0]["key"] = index

    refused(config, lab.s3, made, error, words)
    assert sent(config) == []


def test_so_is_an_object_of_another_place_and_only_that_of_another_task_is_sent(
    sending: ConnectorConfig, lab: Lab
) -> None:
    moved = at("topics", 0, "objects", 0, "kafka_partition")(1)
    refused(sending, lab.s3, moved, IntegrityError, "holds records of kafka partitions 0")
    assert sent(sending) == [b"%d" % n for n in range(3, 20, 2)]


def refused(config: ConnectorConfig, client: Any, edit: Edit, error: type[PlatformError], words: str) -> None:
    """The restore goes on by the edited plan, fails, and writes nothing but documents of restores."""
    edited(config, client, edit)
    before = {item.key for item in ObjectStore(config.store).list("")}
    with pytest.raises(error, match=words):
        restored(config)
    written = {item.key for item in ObjectStore(config.store).list("")} - before
    assert all(key.startswith(f"{config.archive.restore_dir}/") for key in written)


def test_what_an_edited_plan_can_do_is_leave_out_objects(sending: ConnectorConfig, lab: Lab) -> None:
    """Told in docs/security.md: who writes plans is believed about what of the topic's archive is sent."""
    edited(sending, lab.s3, lambda plan: plan["topics"][0]["objects"].pop())
    report = restored(sending)
    assert (report.to_topic, report.record_count) == (target_of(sending), 9)


@pytest.mark.parametrize("name", ["r.json", "r.report.json", "r/0.json"])
def test_what_is_no_document_in_the_bucket_is_told_as_that(config: ConnectorConfig, lab: Lab, name: str) -> None:
    """`test_documents` has what is none."""
    key = f"{config.archive.restore_dir}/{name}"
    lab.s3.put_object(Bucket=config.store.bucket, Key=key, Body=b'{"a":' * 100_000)
    with pytest.raises(PlatformError, match=f"{key} is not a valid restore document"):
        restored(config)
    assert sent(config) == []


def test_the_report_of_a_restore_is_believed(sending: ConnectorConfig, lab: Lab) -> None:
    """Nothing is sent for it: who writes there may say that a restore is finished."""
    report = restored(sending, restore_id="other")
    lab.s3.put_object(Bucket=sending.store.bucket, Key=documents(sending).report, Body=report.to_json())
    assert restored(sending).already_finished


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1" * 10, footer_of(1_000_000)])
def test_tables_of_restores_are_read_as_those_of_strangers(lab: Lab, content: bytes) -> None:
    lab.put_object("m.parquet", content)
    store = ObjectStore(lab.store)
    for read in (
        lambda: read_runs(store, "m.parquet"),
        lambda: SentObjects.from_parquet(content, "m.parquet"),
        lambda: parse_table(content, MAPPING_SCHEMA, "m.parquet"),
    ):
        with pytest.raises(IntegrityError, match=r"m\.parquet"):
            read()


def test_checkpoints_that_are_none_are_told_to_those_who_watch(config: ConnectorConfig, lab: Lab) -> None:
    key = documents(config).stream(0).checkpoint
    lab.s3.put_object(Bucket=config.store.bucket, Key=key, Body=b'{"next_source_offset": "x"}')
    with pytest.raises(IntegrityError, match=rf"{key} is not a valid restore document \(Position\)"):
        read_positions(ObjectStore(config.store), [key])


FOREIGN = {
    "another target": (at("targets")({"TOPIC": ["OTHER"]}), "its targets is"),
    "its start": (at("starts")({"OTHER": {"topic_id": "x", "offsets": [[0, 0]]}}), "its starts is"),
    "a stranger's file": (
        at("objects", 0, "key")("secrets/x.json"),
        "none that this connector reads below topics/",
    ),
    "a file above": (
        at("objects", 0, "key")("topics/../secrets/x+0+0.json"),
        "its object topics/../secrets",
    ),
    "a topic": (at("objects", 0, "topic")("OTHER"), "its targets is"),
    "a kafka partition": (at("objects", 0, "kafka_partition")(1), "its object topics/"),
    "other times": (at("times")([[0, 1]]), "its times is"),
    "a folder": (at("objects", 0, "kafka_partition")("../x"), "is not a valid restore document"),
}


def test_so_is_the_plan_of_a_restore_of_objects_that_others_wrote(lab: SourceLab) -> None:
    """Its targets were taken from it: it led a restore to any topic of the cluster."""
    other = lab.create(f"{lab.topic}-other", 2)
    lab.create_topic(2)
    lab.put(lab.topic, 0, [{"n": 1}])
    config = lab.load(LINES, JSON)
    lab.put_object("secrets/x.json", b'{"n": 2}\n')
    request = RestoreRequest(config, topic="", to_topic="", restore_id="r", run_id="x", allow_source_topic=True)
    asked = ForeignSource(request, (lab.topic,))
    with pytest.raises(InterruptedError):
        restore(asked, StoppingRunner(replay_streams))

    begun_plan = ObjectStore(config.store).get(request.documents.plan)
    for edit, words in FOREIGN.values():

        def made(plan: dict[str, Any], edit: Edit = edit) -> None:
            edit(plan)
            text = json.dumps(plan).replace("TOPIC", lab.topic).replace("OTHER", other)
            plan.clear()
            plan.update(json.loads(text))

        lab.put_object(request.documents.plan, begun_plan)
        edited(config, lab.s3, made)
        with pytest.raises(IntegrityError, match=words):
            restore(asked, InProcessRunner())
        assert (sent(config, other), sent(config, lab.topic)) == ([], [])


def test_evidence_is_read_as_it_was_written_whatever_a_restore_lacks() -> None:
    lacking = report(
        kafka_partitions=(part(0, 5, left_out=LeftOut(failed=2, filtered=3)),),
        doubts=(DoubtNote("read by its name"),),
        skipped_count=1,
    )
    topic = describe_restored(lacking)
    assert topic.left_out == (
        "1 object or record skipped",
        "2 records failed and left out",
        "3 records left out by transforms",
        "read by its name",
    )
    assert not topic.is_complete
    moment = datetime(2026, 1, 1, tzinfo=timezone.utc)
    evidence = Evidence(
        kind="restore",
        connector="c",
        bucket="b",
        started_at=moment,
        finished_at=moment,
        seconds=1.5,
        topics=(topic,),
    )
    assert Evidence.from_json(evidence.to_json(), "k") == evidence
    with pytest.raises(IntegrityError, match="its format is 2, and this version reads 1"):
        Evidence.from_json(evidence.to_json().replace(b'"format": 1', b'"format": 2'), "k")
