"""Where a restore begins: at an offset that its target has told, and never at one that no log has."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from kafka_s3_platform.config.settings import ConnectorConfig, KafkaSettings, StoreSettings
from kafka_s3_platform.errors import BrokerUnavailableError, PreflightError
from kafka_s3_platform.kafka.admin import ClusterAdmin
from kafka_s3_platform.kafka.groups import publish_offsets
from kafka_s3_platform.restore.archive_source import ArchiveSource
from kafka_s3_platform.restore.groups.archived import read_finished_restore, translate_groups
from kafka_s3_platform.restore.replay.task import replay
from kafka_s3_platform.restore.request import RestoreRequest
from kafka_s3_platform.restore.run import restore
from kafka_s3_platform.restore.source.archive_plan import ArchivePlan
from kafka_s3_platform.restore.source.base import TargetStart
from kafka_s3_platform.restore.source.foreign_plan import ForeignPlan
from kafka_s3_platform.restore.verify.against_topic import compare_with_topic
from kafka_s3_platform.restore.verify.read_back import verify_stream
from kafka_s3_platform.store.objects import ObjectStore
from kafka_s3_platform_tests.conftest import CreateTopic
from kafka_s3_platform_tests.kafka.answering import NOTHING, answering, nothing
from kafka_s3_platform_tests.restore import foreign
from kafka_s3_platform_tests.restore.foreign import Load, Put
from kafka_s3_platform_tests.restore.runners import StoppingRunner
from kafka_s3_platform_tests.restore.test_restore import keys, numbered, request, restored, values
from kafka_s3_platform_tests.support import InProcessRunner, Sent, archived, connector, produce


@pytest.fixture
def config(
    kafka_settings: KafkaSettings, store_settings: StoreSettings, topic_name: str, create_topic: CreateTopic
) -> ConnectorConfig:
    """Ten records are archived, with what a group has read of them; the target holds three records of others."""
    create_topic(topic_name)
    create_topic(f"{topic_name}-restored")
    config = connector(kafka_settings, store_settings, topic_name, consumer_groups=(f"{topic_name}-app",))
    produce(kafka_settings, topic_name, numbered(10))
    produce(kafka_settings, f"{topic_name}-restored", [Sent(b"foreign")] * 3)
    with ClusterAdmin(kafka_settings) as admin:
        publish_offsets(admin, f"{topic_name}-app", topic_name, {0: 4})
    archived(config)
    return config


def believed(config: ConnectorConfig, asked: RestoreRequest) -> None:
    """Make the stored plan one of an earlier version that took -1001 for an offset."""
    store = ObjectStore(config.restore_store)
    found = store.head(asked.documents.plan)
    assert found is not None
    plan = ArchivePlan.from_json(store.get(asked.documents.plan), asked.documents.plan)
    wrong = replace(plan, target=TargetStart(plan.start.topic_id, ((0, NOTHING),)))
    store.replace(asked.documents.plan, wrong.to_json(), found.etag)


def stored_start(config: ConnectorConfig, asked: RestoreRequest) -> int:
    plan = ArchivePlan.from_json(ObjectStore(config.restore_store).get(asked.documents.plan), asked.documents.plan)
    return plan.start.offset(0)


@pytest.mark.parametrize("question", ["earliest", "latest", "stable"])
def test_a_broker_going_down_begins_no_restore(config: ConnectorConfig, question: str) -> None:
    """A plan is written once: with a wrong start in it, all was sent and the restore refused for ever."""
    down = answering(lambda _, __, asked, true: NOTHING if asked == question else true)
    with down, pytest.raises(BrokerUnavailableError, match=r"-restored, kafka partition 0.*-1001"):
        restored(config)
    assert keys(config.store, config.archive.restore_dir) == []
    report = restored(config)
    assert (report.record_count, report.foreign_count) == (10, 0)
    assert stored_start(config, request(config)) == 3


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_a_stored_start_that_is_no_offset_is_asked_for_again(config: ConnectorConfig, delivery: str) -> None:
    asked = request(config, delivery=delivery)
    with pytest.raises(InterruptedError):
        restore(ArchiveSource(asked), StoppingRunner(replay))
    believed(config, asked)
    assert restore(ArchiveSource(replace(asked, dry_run=True)), InProcessRunner()).refusals == ()
    assert stored_start(config, asked) == NOTHING

    report = restore(ArchiveSource(asked), InProcessRunner())

    assert (report.verified, report.record_count, report.foreign_count) == (True, 10, 0)
    assert stored_start(config, asked) == 3
    assert restore(ArchiveSource(asked), InProcessRunner()).already_finished


def test_what_was_sent_under_such_a_plan_is_not_sent_again_and_its_way_out_works(config: ConnectorConfig) -> None:
    asked = request(config)
    with pytest.raises(InterruptedError):
        restore(ArchiveSource(asked), StoppingRunner(verify_stream))
    believed(config, asked)
    with pytest.raises(PreflightError, match=r"no true offset .* Restore to another topic under another restore id"):
        restore(ArchiveSource(asked), InProcessRunner())
    assert len(values(config.kafka, asked.to_topic)) == 13
    another = restored(config, to_topic=f"{asked.to_topic}-2", restore_id="r2")
    assert (another.verified, another.record_count) == (True, 10)


def test_of_a_restore_of_objects_of_others_it_is_asked_for_again_too(load: Load, put: Put, topic_name: str) -> None:
    put(topic_name, 0, foreign.numbered(0, 5))
    config = load(foreign.LINES, foreign.JSON)
    given = foreign.asked(config, (), "{topic}-copy", restore_id=topic_name)
    with pytest.raises(InterruptedError):
        restore(given, StoppingRunner(replay))
    store, key = ObjectStore(config.restore_store), given.request.documents.plan
    plan, found = ForeignPlan.from_json(store.get(key), key), store.head(key)
    assert found is not None
    assert plan.starts is not None
    wrong = {name: TargetStart(start.topic_id, ((0, NOTHING),)) for name, start in plan.starts.items()}
    store.replace(key, replace(plan, starts=wrong).to_json(), found.etag)

    report = restore(given, InProcessRunner())

    assert (report.verified, report.record_count) == (True, 5)
    assert ForeignPlan.from_json(store.get(key), key) == plan


def groups_of(config: ConnectorConfig) -> object:
    documents = read_finished_restore(config, "r1")
    assert documents is not None
    with ClusterAdmin(config.kafka) as admin:
        return translate_groups(config, *documents, admin)


@pytest.mark.parametrize(
    "ask",
    [
        lambda config: restored(config, dry_run=True, restore_id="r2"),
        lambda config: compare_with_topic(request(config), InProcessRunner()),
        groups_of,
    ],
    ids=["a dry run", "a comparison", "the offsets of groups"],
)
def test_what_cannot_be_is_no_finding_of_anything_that_looks_at_a_target(
    config: ConnectorConfig, ask: Callable[[ConnectorConfig], object]
) -> None:
    restored(config)
    with answering(nothing), pytest.raises(BrokerUnavailableError, match=r"-1001 as its log start"):
        ask(config)
    ask(config)
