"""One run for many topics: one reservation, one commit of the results, and a failure that is one topic's alone."""

from collections.abc import Mapping

import pytest
from confluent_kafka.admin import AdminClient

from kafka_s3_platform.core.archive.request import ArchiveReport, ArchiveRequest
from kafka_s3_platform.core.archive.run import archive_topics
from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.errors import (
    MissingTopicError,
    PlatformError,
    StoreUnavailableError,
    SupersededError,
    TopicRecreatedError,
    UnresolvedOffsetsError,
)
from kafka_s3_platform.core.store.index import ConnectorIndex
from kafka_s3_platform_tests.archive.bad_values import JSON
from kafka_s3_platform_tests.conftest import CreateTopic, Lab
from kafka_s3_platform_tests.support import (
    HOUR,
    NOON,
    FailingRunner,
    InProcessRunner,
    InterleavedRunner,
    Sent,
    connector,
    produce,
    snapshot,
    stored,
)

Found = Mapping[str, ArchiveReport | PlatformError]


@pytest.fixture
def config(lab: Lab) -> ConnectorConfig:
    """A connector of three topics with two kafka partitions each, ten records of noon in each kafka partition."""
    topics = tuple(f"{lab.topic}.{name}" for name in "abc")
    for topic in topics:
        lab.create(topic, 2)
        produce(lab.kafka, topic, [Sent(b"%d" % n, None, NOON, (), n % 2) for n in range(20)])
    found = lab.connector()
    return found.model_copy(update={"topics": topics})


def one(config: ConnectorConfig, topic: str) -> ConnectorConfig:
    return config.model_copy(update={"topics": (topic,)})


def run(config: ConnectorConfig, runner: InProcessRunner | None = None, run_id: str = "run") -> Found:
    requests = [ArchiveRequest(config, topic, run_id, None) for topic in config.topics]
    return dict(archive_topics(requests, runner or InProcessRunner()))


def counts(found: Found) -> list[int | str]:
    return [f.record_count if isinstance(f, ArchiveReport) else type(f).__name__ for f in found.values()]


def test_all_topics_are_archived_by_two_commits(config: ConnectorConfig) -> None:
    found = run(config)
    assert counts(found) == [20, 20, 20]
    index = ConnectorIndex.of(config).open()
    assert index.version == 2
    assert index.topics == config.topics
    for topic in config.topics:
        report = found[topic]
        assert isinstance(report, ArchiveReport)
        assert report.failure is None
        assert [(h.hour, h.record_count) for h in report.hours] == [(NOON, 20)]
        assert stored(one(config, topic)).num_rows == 20
        assert snapshot(one(config, topic)).state.reservations == ()


def test_hours_of_each_topic_are_its_own(config: ConnectorConfig) -> None:
    a, b, _ = config.topics
    produce(config.kafka, a, [Sent(b"late", None, NOON + HOUR)])
    requests = [
        ArchiveRequest(config, a, "run", (NOON + HOUR,)),
        ArchiveRequest(config, b, "run", (NOON,)),
    ]
    found = dict(archive_topics(requests, InProcessRunner()))
    hours = [[h.hour for h in f.hours] for f in found.values() if isinstance(f, ArchiveReport)]
    assert [h[-1] for h in hours] == [NOON + HOUR, NOON]
    assert snapshot(one(config, config.topics[2])).segments == ()


def test_a_second_run_reads_nothing_again(config: ConnectorConfig) -> None:
    run(config)
    assert counts(run(config)) == [0, 0, 0]


def test_a_topic_that_is_not_there_leaves_the_others(config: ConnectorConfig) -> None:
    with_missing = config.model_copy(update={"topics": (config.topics[0], "not-there", config.topics[2])})
    found = run(with_missing)
    assert isinstance(found["not-there"], MissingTopicError)
    assert sorted(map(str, counts(found))) == ["20", "20", "MissingTopicError"]
    assert ConnectorIndex.of(config).open().version == 2


def test_a_bad_record_of_one_topic_leaves_the_others(config: ConnectorConfig) -> None:
    layout_of_json = connector(config.kafka, config.store, config.topics[0], **JSON)
    wanted = layout_of_json.model_copy(update={"topics": config.topics})
    produce(config.kafka, config.topics[1], [Sent(b"{")])
    found = run(wanted)
    assert counts(found) == [20, 20, 20]
    failures = [f.failure for f in found.values() if isinstance(f, ArchiveReport)]
    assert [type(f) for f in failures] == [type(None), UnresolvedOffsetsError, type(None)]


def test_another_run_ends_the_lease_of_one_topic_and_leaves_the_rest(config: ConnectorConfig) -> None:
    taken = config.topics[1]

    def archive_one() -> None:
        assert counts(run(one(config, taken), run_id="other")) == [20]

    found = run(config, InterleavedRunner(archive_one))
    assert isinstance(found[taken], SupersededError)
    for topic in config.topics:
        assert stored(one(config, topic)).num_rows == 20
        assert snapshot(one(config, topic)).state.reservations == ()


def test_a_topic_that_is_created_again_meanwhile_leaves_the_others(
    config: ConnectorConfig, create_topic: CreateTopic
) -> None:
    gone = config.topics[1]

    def recreate() -> None:
        admin = AdminClient({"bootstrap.servers": config.kafka.bootstrap_servers})
        admin.delete_topics([gone])[gone].result(10)
        create_topic(gone, 2)

    found = run(config, InterleavedRunner(recreate))
    assert isinstance(found[gone], TopicRecreatedError)
    assert sum(f.record_count for f in found.values() if isinstance(f, ArchiveReport)) == 40
    state = snapshot(one(config, gone)).state
    assert state.coverage(0).end_offset is None
    assert state.reservations == ()


def test_a_run_that_fails_gives_all_leases_back_in_one_commit(config: ConnectorConfig) -> None:
    with pytest.raises(StoreUnavailableError):
        run(config, FailingRunner())
    index = ConnectorIndex.of(config).open()
    assert index.version == 2
    assert [index.topic(t).state.reservations for t in config.topics] == [(), (), ()]
    assert counts(run(config)) == [20, 20, 20]


class Killed(BaseException):
    """No error of the platform's: nothing of the run goes on after it."""


def die() -> None:
    raise Killed


def test_of_a_run_that_is_killed_before_its_commit_nothing_counts_and_the_next_one_archives_all(
    config: ConnectorConfig,
) -> None:
    with pytest.raises(Killed):
        run(config, InterleavedRunner(die), run_id="killed")
    for topic in config.topics:
        assert snapshot(one(config, topic)).segments == ()
    assert counts(run(config)) == [20, 20, 20]
    for topic in config.topics:
        state = snapshot(one(config, topic)).state
        assert state.reservations == ()
        assert stored(one(config, topic)).num_rows == 20


def test_what_ends_every_topic_is_raised_once(config: ConnectorConfig) -> None:
    wrong = config.model_copy(update={"store": config.store.model_copy(update={"endpoint_url": "http://127.0.0.1:1"})})
    with pytest.raises(StoreUnavailableError):
        run(wrong)
