"""Where a restore begins: at an offset that its target has told, and never at one that no log has."""

from collections.abc import Callable
from uuid import uuid4

import pytest

from kafka_s3_platform.core.config.settings import ConnectorConfig, KafkaSettings, StoreSettings
from kafka_s3_platform.core.errors import BrokerUnavailableError
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.kafka.groups import publish_offsets
from kafka_s3_platform.core.restore.request import RestoreRequest
from kafka_s3_platform.core.restore.source.topics_plan import TopicsPlan
from kafka_s3_platform.core.restore.verify.against_topic import compare_with_topic
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform.operate.groups.group_offsets import read_finished_restore, translate_groups
from kafka_s3_platform_tests.conftest import CreateTopic, Lab
from kafka_s3_platform_tests.kafka.answering import NOTHING, answering, nothing
from kafka_s3_platform_tests.restore.own import keys, numbered, own_restores, request, restored, target_of
from kafka_s3_platform_tests.support import InProcessRunner, Sent, archived, connector, produce


@pytest.fixture(scope="module")
def archive(kafka_settings: KafkaSettings, module_store: StoreSettings, create_topic: CreateTopic) -> ConnectorConfig:
    """Ten records, with what a group has read of them."""
    topic = create_topic(f"topic-{uuid4().hex[:12]}")
    config = connector(kafka_settings, module_store, topic, consumer_groups=(f"{topic}-app",))
    produce(kafka_settings, topic, numbered(10))
    with ClusterAdmin(kafka_settings) as admin:
        publish_offsets(admin, f"{topic}-app", topic, {0: 4})
    archived(config)
    return config


@pytest.fixture
def config(archive: ConnectorConfig, lab: Lab) -> ConnectorConfig:
    """The target holds three records of others."""
    config = own_restores(archive)
    produce(config.kafka, lab.create(target_of(config)), [Sent(b"foreign")] * 3)
    return config


def stored_start(config: ConnectorConfig, asked: RestoreRequest) -> int:
    plan = TopicsPlan.from_json(ObjectStore(config.restore_store).get(asked.documents.plan), asked.documents.plan)
    return dict(plan.begun_topics[0].start.offsets)[0]


@pytest.mark.parametrize("question", ["earliest", "latest", "stable"])
def test_a_broker_going_down_begins_no_restore(config: ConnectorConfig, question: str) -> None:
    """A plan is written once: with a wrong start in it, all was sent and the restore refused for ever."""
    down = answering(lambda _, __, asked, true: NOTHING if asked == question else true)
    with down, pytest.raises(BrokerUnavailableError, match=r"-restored-.*, kafka partition 0.*-1001"):
        restored(config)
    assert keys(config.store, config.archive.restore_dir) == []
    report = restored(config)
    assert (report.record_count, report.foreign_count) == (10, 0)
    assert stored_start(config, request(config)) == 3


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
    with answering(nothing), pytest.raises(BrokerUnavailableError, match=r"-1001 as the end of its log"):
        ask(config)
    ask(config)
