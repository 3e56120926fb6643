"""Vacuums that are suspended, killed, doubled or slow, by real signals: nothing live goes, and nobody has to wait."""

import signal
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from kafka_s3_platform.core.archive.request import ArchiveRequest
from kafka_s3_platform.core.archive.run import archive_topic
from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.errors import StoreUnavailableError
from kafka_s3_platform.core.store.index import IndexSnapshot
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform.core.upkeep.vacuum import VacuumReport, vacuum_topic
from kafka_s3_platform.core.upkeep.verify import verify_archive
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.faults.children import Child, signal_on_call
from kafka_s3_platform_tests.faults.proxy import faulty_proxy
from kafka_s3_platform_tests.support import (
    HOUR,
    NOON,
    FailingRunner,
    InProcessRunner,
    Sent,
    archived,
    offsets_by_kafka_partition,
    produce,
    snapshot,
    stored,
)

RECORDS = 12
ALL = {0: list(range(RECORDS + 1))}
NOW = timedelta(0)

Start = Callable[..., Child]


@pytest.fixture
def config(lab: Lab) -> ConnectorConfig:
    """A connector that has archived one record; a run left 12 orphans, of the records that follow."""
    found = lab.archive([Sent(b"first")], layout={"flush_size": 1})
    produce(found.kafka, found.topics[0], [Sent(b"%d" % n, None, NOON + HOUR) for n in range(RECORDS)])
    with pytest.raises(StoreUnavailableError):
        archive_topic(ArchiveRequest(found, found.topics[0], "failed", None), FailingRunner())
    assert len(objects(found) - live(found)) == RECORDS
    return found


def objects(config: ConnectorConfig) -> set[str]:
    return {o.key for o in ObjectStore(config.store).list("topics/") if o.key.endswith(".parquet")}


def live(config: ConnectorConfig) -> set[str]:
    return {s.key for s in snapshot(config).segments}


def vacuumed(config: ConnectorConfig) -> VacuumReport:
    return vacuum_topic(config, config.topics[0], "vacuum", NOW, dry_run=False)


def vacuum_with_signal(config: ConnectorConfig, *of_call: Any) -> None:
    """A vacuum that is sent a signal on a call, as `signal_on_call` is told."""
    signal_on_call(*of_call)
    vacuumed(config)


def check(config: ConnectorConfig) -> None:
    """All that is live is there, and holds every record once."""
    assert live(config) <= objects(config)
    assert offsets_by_kafka_partition(stored(config)) == ALL
    assert verify_archive(config, config.topics[0], True, InProcessRunner()).ok


@pytest.mark.parametrize("nth", [1, 6])
def test_a_suspended_vacuum_deletes_nothing_that_became_live(config: ConnectorConfig, start: Start, nth: int) -> None:
    child = start(vacuum_with_signal, config, ObjectStore, "delete", nth, signal.SIGSTOP)
    child.wait_until_stopped()
    archived(config)
    child.send(signal.SIGCONT)
    assert child.wait() == 0
    check(config)
    assert objects(config) == live(config)


STAGES: dict[str, tuple[type, str, int, bool]] = {
    "before the keys are condemned": (IndexSnapshot, "commit", 1, False),
    "after the keys are condemned": (IndexSnapshot, "commit", 1, True),
    "after the first delete": (ObjectStore, "delete", 1, True),
    "after some deletes": (ObjectStore, "delete", 6, True),
}


@pytest.mark.parametrize("stage", STAGES)
def test_a_vacuum_killed_at_any_stage_holds_nobody_off_and_is_made_good_by_the_next(
    config: ConnectorConfig, start: Start, stage: str
) -> None:
    owner, method, nth, after = STAGES[stage]
    assert start(vacuum_with_signal, config, owner, method, nth, signal.SIGKILL, after).wait() == -signal.SIGKILL
    archived(config)
    check(config)
    vacuumed(config)
    check(config)
    assert objects(config) == live(config)


def test_two_vacuums_at_once_do_no_more_than_one(config: ConnectorConfig, start: Start) -> None:
    child = start(vacuum_with_signal, config, ObjectStore, "delete", 4, signal.SIGSTOP)
    child.wait_until_stopped()
    assert len(vacuumed(config).removed) == RECORDS - 3
    archived(config)
    child.send(signal.SIGCONT)
    assert child.wait() == 0
    check(config)


def test_deletes_that_arrive_when_the_vacuum_has_long_ended_find_nothing_live(config: ConnectorConfig) -> None:
    """A gateway that holds requests back and sends them in the end, though nobody waits for their answers."""
    with faulty_proxy(config.store.endpoint_url or "") as proxy:
        slow = config.model_copy(update={"store": config.store.model_copy(update={"endpoint_url": proxy.endpoint})})
        held = proxy.delay("DELETE", r"\.parquet")
        assert len(vacuumed(slow).removed) == RECORDS
        archived(config)
        assert held.deliver() == [204] * RECORDS
    check(config)
