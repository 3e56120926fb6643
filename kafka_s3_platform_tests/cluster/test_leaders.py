"""Leaders of a restore's target change after its streams were read back, and while they are sent."""

from collections.abc import Callable
from typing import Any

import pytest

from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.restore.archive_source import ArchiveSource
from kafka_s3_platform.core.restore.request import RestoreReport, RestoreRequest
from kafka_s3_platform.core.restore.run import restore
from kafka_s3_platform_tests.cluster.brokers import Cluster
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.kafka.topics import records_of
from kafka_s3_platform_tests.restore.own import ReadingBack, numbered
from kafka_s3_platform_tests.support import archived, connector, produce

RECORDS = 150
FIRST, SECOND = 2, 3
"""The brokers that hold the target. The first one leads it while it may."""


class Leaders:
    """A restore to a topic of one kafka partition that two brokers hold, and what becomes of these."""

    def __init__(self, cluster: Cluster, config: ConnectorConfig, delivery: Any) -> None:
        self.cluster, self.config = cluster, config
        self.target = f"{config.topics[0]}-restored"
        self.request = RestoreRequest(config, config.topics[0], self.target, "r", "run", delivery=delivery)
        cluster.create_topic(self.target, 1, FIRST, SECOND)

    def restore(self, runner: ReadingBack) -> RestoreReport:
        return restore(ArchiveSource(self.request), runner)

    def lead_by_the_second_and_the_first_again(self) -> None:
        self.lead_by_the_second()
        self.cluster.start(FIRST)
        self.cluster.await_leader(self.target, SECOND, FIRST)
        self.cluster.elect(self.target, FIRST, SECOND)

    def lead_by_the_second(self) -> None:
        self.cluster.kill(FIRST)
        self.cluster.await_leader(self.target, SECOND)

    def is_restored(self) -> bool:
        both = (records_of(self.cluster.kafka, topic)["value"] for topic in (self.config.topics[0], self.target))
        was, now = both
        return bool(now.equals(was))


@pytest.fixture(params=["exactly_once", pytest.param("at_least_once", marks=pytest.mark.long)])
def leaders(cluster: Cluster, lab: Lab, request: pytest.FixtureRequest) -> Any:
    with ClusterAdmin(cluster.kafka) as admin:
        admin.create_topic(lab.topic, 1)
    produce(cluster.kafka, lab.topic, numbered(RECORDS), acks="all")
    config = connector(cluster.kafka, lab.store, lab.topic)
    archived(config)
    yield Leaders(cluster, config, request.param)
    for broker in (FIRST, SECOND):
        cluster.start(broker)


def test_a_target_whose_leader_stays_is_not_read_again(leaders: Leaders) -> None:
    runner = ReadingBack()
    assert leaders.restore(runner).verified
    assert runner.read_again == []


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(Leaders.lead_by_the_second, id="leads: another that is in sync"),
        pytest.param(
            Leaders.lead_by_the_second_and_the_first_again, id="leads: the preferred one again", marks=pytest.mark.long
        ),
    ],
)
def test_a_target_with_a_new_leader_that_lost_nothing_is_read_again_and_verified(
    leaders: Leaders, change: Callable[[Leaders], None]
) -> None:
    runner = ReadingBack(after_replay=lambda: change(leaders))
    assert leaders.restore(runner).verified
    assert runner.read_again == [0]
    assert leaders.is_restored()
