"""Archive and restore on three brokers, of which one dies meanwhile.

Some cases of `make chaos ELECTIONS=1`, and what its judge finds of what is planted.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import pytest
from confluent_kafka import Producer

from kafka_s3_platform.core.archive.request import ArchiveRequest
from kafka_s3_platform.core.archive.run import archive_topic
from kafka_s3_platform.core.config.settings import ConnectorConfig, KafkaSettings, StoreSettings
from kafka_s3_platform.core.errors import MissingTopicError, TransientError
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.kafka.client import Reasons, open_client
from kafka_s3_platform.core.restore.archive_source import ArchiveSource
from kafka_s3_platform.core.restore.request import Delivery
from kafka_s3_platform.core.restore.run import restore
from kafka_s3_platform.core.spark.runner import Attempt
from kafka_s3_platform.core.upkeep.verify import verify_archive
from kafka_s3_platform_tests.chaos.elections import CASES, ClusterArchive, count_missing, made_archive, run
from kafka_s3_platform_tests.chaos.world import Servers
from kafka_s3_platform_tests.cluster.brokers import Cluster
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.kafka.topics import handed_over, records_of
from kafka_s3_platform_tests.restore.own import numbered, request
from kafka_s3_platform_tests.support import (
    InProcessRunner,
    archived,
    connector,
    offsets_by_kafka_partition,
    produce,
    stored,
)

T = TypeVar("T")
R = TypeVar("R")

KAFKA_PARTITIONS = 3
RECORDS = 2000


@pytest.fixture
def config(cluster: Cluster, lab: Lab) -> ConnectorConfig:
    """A connector of a topic whose leaders are spread over the brokers."""
    with ClusterAdmin(cluster.kafka) as admin:
        admin.create_topic(lab.topic, KAFKA_PARTITIONS)
    records = [sent for p in range(KAFKA_PARTITIONS) for sent in numbered(RECORDS, kafka_partition=p)]
    produce(cluster.kafka, lab.topic, records, acks="all")
    assert set(cluster.leaders(lab.topic).values()) == {1, 2, 3}
    return connector(cluster.kafka, lab.store, lab.topic)


def all_archived(config: ConnectorConfig) -> bool:
    every = {p: list(range(RECORDS)) for p in range(KAFKA_PARTITIONS)}
    return offsets_by_kafka_partition(stored(config)) == every


def test_kafka_partitions_are_read_from_their_leaders_wherever_those_are(
    config: ConnectorConfig, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        archived(config)
    assert all_archived(config)
    assert not handed_over(caplog)


def test_asking_for_a_topic_does_not_create_it_where_brokers_would(cluster: Cluster, topic_name: str) -> None:
    admin_asks, producer_asks = f"{topic_name}-admin", f"{topic_name}-producer"
    with ClusterAdmin(cluster.kafka) as admin:
        with pytest.raises(MissingTopicError, match=admin_asks):
            admin.frontiers(admin_asks, [0])
        open_client(Producer, cluster.kafka, Reasons(), {}, {}).list_topics(producer_asks, timeout=10)
        time.sleep(1)
        assert not {admin_asks, producer_asks} & admin.list_topics()


class WhileOneDies(InProcessRunner):
    """A broker dies half a second after the first task begins, however long a run takes until then."""

    def __init__(self, cluster: Cluster, node_id: int) -> None:
        self._cluster, self._node_id = cluster, node_id
        self._death = threading.Timer(0.5, cluster.kill, [node_id])

    def run(self, function: Callable[[T, Attempt], R], tasks: Sequence[T], max_concurrent: int) -> Iterator[R]:
        if tasks and self._death.ident is None:
            self._death.start()
        return super().run(function, tasks, max_concurrent)

    def until_it_succeeds(self, work: Callable[[], object]) -> None:
        """Do `work` again as Dagster does where it failed for a passing reason. Start the broker in the end."""
        try:
            until_it_succeeds(work)
            assert not self._death.is_alive(), "it was done before the broker died"
        finally:
            self._death.join()
            self._cluster.start(self._node_id)


def until_it_succeeds(work: Callable[[], object]) -> None:
    for _ in range(10):
        with suppress(TransientError):
            work()
            return
    raise AssertionError("it failed ten times")


def test_a_leader_that_dies_during_a_scan_loses_nothing(cluster: Cluster, config: ConnectorConfig) -> None:
    slow = config.model_copy(update={"archive": config.archive.model_copy(update={"records_per_second": 2000.0})})
    runner = WhileOneDies(cluster, 2)
    request = ArchiveRequest(slow, slow.topics[0], "run-1", None)
    runner.until_it_succeeds(lambda: archive_topic(request, runner).raise_failure())
    assert all_archived(config)
    assert verify_archive(config, config.topics[0], deep=True, runner=InProcessRunner()).ok


def test_a_leader_that_dies_under_a_restore_loses_nothing_and_doubles_nothing(
    cluster: Cluster, config: ConnectorConfig
) -> None:
    archived(config)
    topic = config.topics[0]
    given = request(config, records_per_second=3000.0, replication_factor=3)
    runner = WhileOneDies(cluster, 3)
    runner.until_it_succeeds(lambda: restore(ArchiveSource(given), runner))
    report = restore(ArchiveSource(given), InProcessRunner())
    assert report.verified
    for kafka_partition in range(KAFKA_PARTITIONS):
        was, now = (records_of(cluster.kafka, t, kafka_partition)["value"] for t in (topic, f"{topic}-restored"))
        assert now.equals(was)


@pytest.fixture(scope="module")
def archive(
    cluster: Cluster, kafka_settings: KafkaSettings, module_store: StoreSettings, s3_client: Any
) -> Iterator[ClusterArchive]:
    with made_archive(Servers(kafka_settings, module_store, s3_client), cluster) as made:
        yield made


@pytest.mark.parametrize(
    "case",
    [
        ("exactly_once", "after it was read back", "unclean, filled by others"),
        pytest.param(("exactly_once", "while it sends", "unclean, left short"), marks=pytest.mark.long),
        pytest.param(("exactly_once", "between two runs", "unclean, filled by others"), marks=pytest.mark.long),
        pytest.param(("at_least_once", "while it sends", "another in sync leads"), marks=pytest.mark.long),
        pytest.param(("at_least_once", "between two runs", "unclean, filled by others"), marks=pytest.mark.long),
    ],
    ids=", ".join,
)
def test_a_restore_whose_leader_dies_is_not_called_verified_if_it_lacks_records(
    archive: ClusterArchive, case: tuple[Delivery, str, str]
) -> None:
    outcome = run(archive, str(CASES.index(case)))
    assert outcome.verdicts == [], "\n".join(outcome.log)
    assert outcome.told


def rows(*values: bytes) -> list[dict[str, Any]]:
    return [{"value": value} for value in values]


@pytest.mark.parametrize(
    ("found", "missing"),
    [
        (rows(b"a", b"a", b"b"), 0),
        (rows(b"a", b"x", b"a", b"b", b"b"), 0),
        (rows(b"a", b"b"), 2),
        (rows(b"b", b"a", b"a"), 1),
        ([], 3),
    ],
)
def test_records_that_are_missing_or_out_of_order_are_seen(found: list[dict[str, Any]], missing: int) -> None:
    assert count_missing(rows(b"a", b"a", b"b"), found) == missing
