"""Faults of the store and the cluster under an archive run: a clear error or none, nothing lost, nothing twice."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from kafka_s3_platform.core.archive.request import ArchiveRequest
from kafka_s3_platform.core.archive.run import archive_topic
from kafka_s3_platform.core.archive.scan import try_scans
from kafka_s3_platform.core.config.settings import ConnectorConfig, KafkaSettings
from kafka_s3_platform.core.errors import (
    LogTruncatedError,
    OffsetGapError,
    PlatformError,
    StoreUnavailableError,
    TransientError,
)
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.model.fold import FEWEST_HOURS
from kafka_s3_platform.core.model.segment import Scan
from kafka_s3_platform.core.spark.runner import Attempt
from kafka_s3_platform.core.store.index import ConnectorIndex
from kafka_s3_platform.core.store.index_commit import Change
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform.core.upkeep.index import FoldReport, fold_index
from kafka_s3_platform.operate.local.settings import StackSettings
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.faults.broker import kill_broker, start_broker
from kafka_s3_platform_tests.faults.proxy import FaultyProxy
from kafka_s3_platform_tests.kafka.topics import delete_records
from kafka_s3_platform_tests.store.http_proxy import HttpAnswer, refusal
from kafka_s3_platform_tests.support import (
    HOUR,
    NOON,
    InProcessRunner,
    R,
    Sent,
    T,
    archived,
    connector,
    offsets_by_kafka_partition,
    produce,
    snapshot,
    stored,
)

DAY = timedelta(days=1)
RECORDS = 120
EVERY_OFFSET = {0: list(range(RECORDS)), 1: list(range(RECORDS))}


@pytest.fixture
def config(lab: Lab) -> ConnectorConfig:
    """A connector whose topic holds 120 records in each of 2 kafka partitions, in objects of 50."""
    lab.create_topic(2)
    fill(lab.kafka, lab.topic)
    return lab.connector(layout={"flush_size": 50})


def fill(kafka: KafkaSettings, topic: str) -> None:
    produce(kafka, topic, [Sent(b"%d" % n, None, NOON, (), p) for n in range(RECORDS) for p in range(2)])


def through(proxy: FaultyProxy, config: ConnectorConfig) -> ConnectorConfig:
    return config.model_copy(update={"store": config.store.model_copy(update={"endpoint_url": proxy.endpoint})})


@pytest.mark.parametrize(
    ("what", "target", "nth"),
    [
        ("an object", r"\+0\+0000000050\.parquet", 1),
        ("the reservation's commit", r"_delta_log/0+1\.json", 1),
        ("the commit of the segments", r"_delta_log/0+2\.json", 1),
    ],
)
def test_a_lost_response_makes_nothing_twice(
    config: ConnectorConfig, proxy: FaultyProxy, what: str, target: str, nth: int
) -> None:
    lost = proxy.lose_response("PUT", target, nth)
    archived(through(proxy, config))
    assert lost.hit.is_set(), what
    assert offsets_by_kafka_partition(stored(config)) == EVERY_OFFSET
    assert snapshot(config).state.reservations == ()
    live = {s.key for s in snapshot(config).segments}
    assert live == {o.key for o in ObjectStore(config.store).list("topics/") if o.key.endswith(".parquet")}


def test_a_commit_that_was_folded_before_its_run_looks_for_it_has_succeeded(
    config: ConnectorConfig, proxy: FaultyProxy
) -> None:
    """Only its response was lost. The nightly fold takes its rows out of the state."""
    nights: list[FoldReport] = []

    def fold_instead(_: HttpAnswer) -> HttpAnswer:
        if not nights:
            nights.append(
                fold_index(ConnectorIndex.of(config), timedelta(), datetime.now(timezone.utc) + 3 * DAY, False)
            )
        return refusal(503, "SlowDown")

    proxy.falsify("PUT", r"_delta_log/0+2\.json", fold_instead)
    report = archived(through(proxy, config), [NOON + n * HOUR for n in range(FEWEST_HOURS)])
    assert [night.hours for night in nights] == [FEWEST_HOURS]
    assert report.record_count == 2 * RECORDS
    assert offsets_by_kafka_partition(stored(config)) == EVERY_OFFSET


@pytest.mark.usefixtures("_led_at_epoch_nine")
def test_a_lost_response_to_a_commit_that_only_ends_a_run_hides_no_error(
    config: ConnectorConfig, proxy: FaultyProxy
) -> None:
    """All that the run reads fails, as its log has lost an epoch: it has no row to commit."""
    archived(config)
    snapshot(config).commit(Change(added=(Scan(0, RECORDS, RECORDS + 5, 0, 9, 1),)))
    produce(config.kafka, config.topics[0], [Sent()] * 10)
    lost = proxy.lose_response("PUT", rf"_delta_log/0+{snapshot(config).version + 2}\.json")
    with pytest.raises(LogTruncatedError, match="--accept-truncation"):
        archived(through(proxy, config))
    assert lost.hit.is_set()
    assert snapshot(config).state.reservations == ()


def test_a_full_disk_on_upload_names_the_object_and_commits_nothing(
    config: ConnectorConfig, proxy: FaultyProxy
) -> None:
    full = through(proxy, config)
    proxy.refuse("PUT", r"/topics/.*\.parquet", 507, "InsufficientStorage")
    with pytest.raises(
        StoreUnavailableError, match=rf"{config.topics[0]}\+\d\+0000000000\.parquet.*InsufficientStorage"
    ):
        archived(full)
    assert snapshot(config).segments == ()
    assert not snapshot(config).state.coverage(0)
    proxy.clear()
    archived(full)
    assert offsets_by_kafka_partition(stored(config)) == EVERY_OFFSET


class OneGroupRunner(InProcessRunner):
    """Does all scans in one task."""

    def run(self, function: Callable[[T, Attempt], R], tasks: Sequence[T], max_concurrent: int) -> Iterator[Any]:  # noqa: ARG002
        groups: Sequence[Any] = tasks
        outcomes = iter(try_scans([scan for group in groups for scan in group.tasks], Attempt(1, 0)))
        for group in groups:
            yield group.number, [next(outcomes) for _ in group.tasks]


def test_the_next_scan_of_a_task_is_read_while_objects_of_the_last_one_are_uploaded(
    config: ConnectorConfig, proxy: FaultyProxy
) -> None:
    held = proxy.hold_response("PUT", r"/topics/.*\+0\+0000000000\.parquet")
    request = ArchiveRequest(through(proxy, config), config.topics[0], "run", None)
    thread = threading.Thread(target=archive_topic, args=(request, OneGroupRunner()))
    thread.start()
    assert held.hit.wait(60)
    wait_for_an_object(config, "+1+0000000100")
    assert snapshot(config).segments == ()
    held.release()
    thread.join(60)
    assert offsets_by_kafka_partition(stored(config)) == EVERY_OFFSET
    objects = [(s.kafka_partition, s.start_offset) for s in snapshot(config).segments]
    assert sorted(objects) == [(p, o) for p in range(2) for o in (0, 50, 100)]


class LosingRunner(InProcessRunner):
    """Retention takes the first offsets of kafka partition 0 after the run was planned and before it is scanned."""

    def __init__(self, config: ConnectorConfig, before_offset: int) -> None:
        self._config, self._before_offset = config, before_offset

    def run(self, function: Callable[[T, Attempt], R], tasks: Sequence[T], max_concurrent: int) -> Iterator[R]:
        delete_records(self._config.kafka, self._config.topics[0], self._before_offset)
        yield from super().run(function, tasks, max_concurrent)


def test_retention_during_a_scan_fails_naming_the_offsets(config: ConnectorConfig) -> None:
    request = ArchiveRequest(config, config.topics[0], "run", None)
    lost = rf"topic {config.topics[0]}, kafka partition 0: offsets \[0, 7\) were deleted"
    with pytest.raises(OffsetGapError, match=lost):
        archive_topic(request, LosingRunner(config, 7)).raise_failure()
    # the other kafka partition is archived all the same
    assert offsets_by_kafka_partition(stored(config)) == {1: list(range(RECORDS))}
    assert snapshot(config).state.reservations == ()


def test_retention_during_a_scan_is_a_gap_of_its_hour_where_gaps_are_allowed(config: ConnectorConfig) -> None:
    allowing = config.model_copy(update={"archive": config.archive.model_copy(update={"allow_gaps": True})})
    request = ArchiveRequest(allowing, config.topics[0], "run", (NOON,))
    report = archive_topic(request, LosingRunner(allowing, 7))
    assert [(g.kafka_partition, g.start_offset, g.end_offset) for g in report.gaps] == [(0, 0, 7)]
    assert [h.verdict.lacking for h in report.hours] == [report.gaps]
    assert offsets_by_kafka_partition(stored(config)) == {0: list(range(7, RECORDS)), 1: list(range(RECORDS))}


def test_a_broker_killed_during_a_scan_loses_nothing(mortal: StackSettings, lab: Lab) -> None:
    kafka = KafkaSettings(bootstrap_servers=mortal.bootstrap_servers)
    with ClusterAdmin(kafka) as admin:
        admin.create_topic(lab.topic, 2)
    fill(kafka, lab.topic)
    config = connector(kafka, lab.store, lab.topic, layout={"flush_size": 10})
    slow = config.model_copy(update={"archive": config.archive.model_copy(update={"records_per_second": 60.0})})
    errors: list[Exception] = []

    def run() -> None:
        try:
            archived(slow)
        except PlatformError as err:
            errors.append(err)

    thread = threading.Thread(target=run)
    thread.start()
    wait_for_an_object(config)
    kill_broker(mortal)
    start_broker(mortal)
    thread.join(120)
    assert not thread.is_alive()
    assert [type(e) for e in errors if not isinstance(e, TransientError)] == [], errors
    archived(config)
    assert offsets_by_kafka_partition(stored(config)) == EVERY_OFFSET


def wait_for_an_object(config: ConnectorConfig, name: str = "") -> None:
    deadline = time.monotonic() + 180
    while not any(o.key.endswith(f"{name}.parquet") for o in ObjectStore(config.store).list("topics/")):
        assert time.monotonic() < deadline, "nothing was uploaded"
        time.sleep(0.05)
