"""SIGKILL at every stage of an archive run; run again: nothing lost, nothing twice, nothing left after the vacuum."""

import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any

import pytest

from kafka_s3_platform.core.archive.request import ArchiveRequest
from kafka_s3_platform.core.archive.run import archive_topic
from kafka_s3_platform.core.archive.task import FailedScan
from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.errors import ForeignObjectError, SupersededError
from kafka_s3_platform.core.spark.runner import Attempt, SparkRunner
from kafka_s3_platform.core.store.index import ConnectorSnapshot
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform.core.store.upload import SegmentUpload
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.faults.children import Child, signal_on_call, spark_worker_killed
from kafka_s3_platform_tests.support import (
    HOUR,
    NOON,
    InProcessRunner,
    InterleavedRunner,
    R,
    Sent,
    T,
    archived,
    offsets_by_kafka_partition,
    scanned,
    snapshot,
    stored,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS = 400


@pytest.fixture
def config(lab: Lab) -> ConnectorConfig:
    """A connector whose topic holds 400 records in each of 2 kafka partitions, over 4 hours, in objects of 50."""
    records = [Sent(b"%d" % n, None, NOON + n * 4 * HOUR / RECORDS, (), p) for n in range(RECORDS) for p in range(2)]
    return lab.fill(records, kafka_partitions=2, layout={"flush_size": 50})


STAGES: dict[str, tuple[type, str, int, bool]] = {
    "after the reservation": (ConnectorSnapshot, "commit", 1, True),
    "before the first upload ends": (SegmentUpload, "finish", 1, False),
    "after some uploads": (SegmentUpload, "finish", 7, True),
    "before the commit": (ConnectorSnapshot, "commit", 2, False),
    "after the commit": (ConnectorSnapshot, "commit", 2, True),
}


def archive_until_killed(config: ConnectorConfig, stage: str) -> None:
    owner, method, nth, after = STAGES[stage]
    signal_on_call(owner, method, nth, signal.SIGKILL, after)
    archived(config)


@pytest.mark.parametrize("stage", STAGES)
def test_a_run_killed_at_any_stage_is_made_good_by_the_next(
    config: ConnectorConfig, start: Callable[..., Child], stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert start(archive_until_killed, config, stage).wait() == -signal.SIGKILL
    archived(config)
    assert offsets_by_kafka_partition(stored(config)) == {0: list(range(RECORDS)), 1: list(range(RECORDS))}
    assert snapshot(config).state.reservations == ()
    assert list(tmp_path.iterdir()) == []
    live = {s.key for s in snapshot(config).segments}
    assert live == {o.key for o in ObjectStore(config.store).list("topics/") if o.key.endswith(".parquet")}


class OvertakenRunner(InProcessRunner):
    """Stands still before its first task, and another run archives everything meanwhile."""

    def __init__(self, config: ConnectorConfig) -> None:
        self._config, self.before = config, dict[str, str]()

    def run(self, function: Callable[[T, Attempt], R], tasks: Sequence[T], max_concurrent: int) -> Iterator[R]:
        archived(self._config)
        self.before = {s.key: s.etag for s in snapshot(self._config).segments}
        yield from super().run(function, tasks, max_concurrent)


def test_a_stalled_run_that_wakes_after_another_took_its_ranges_touches_nothing(config: ConnectorConfig) -> None:
    runner = OvertakenRunner(config)
    with pytest.raises(SupersededError):
        archive_topic(ArchiveRequest(config, config.topics[0], "stalled", None), runner)
    store = ObjectStore(config.store)
    assert {k: info.etag for k in runner.before if (info := store.head(k))} == runner.before != {}
    assert offsets_by_kafka_partition(stored(config)) == {0: list(range(RECORDS)), 1: list(range(RECORDS))}


def test_a_run_superseded_between_its_uploads_and_its_commit_commits_nothing(config: ConnectorConfig) -> None:
    """Its objects are replaced by the run that superseded it."""
    runner = InterleavedRunner(lambda: archived(config))
    with pytest.raises(SupersededError):
        archive_topic(ArchiveRequest(config, config.topics[0], "late", None), runner)
    store = ObjectStore(config.store)
    for segment in snapshot(config).segments:
        info = store.head(segment.key)
        assert info is not None
        assert (info.etag, info.metadata["epoch"]) == (segment.etag, str(segment.epoch))
    assert offsets_by_kafka_partition(stored(config)) == {0: list(range(RECORDS)), 1: list(range(RECORDS))}


def test_many_runs_racing_on_one_topic_archive_each_offset_once(config: ConnectorConfig) -> None:
    request = ArchiveRequest(config, config.topics[0], "racing", None)
    with ThreadPoolExecutor(4) as pool:
        runs = [pool.submit(archive_topic, request, InProcessRunner()) for _ in range(4)]
    assert {type(run.exception(120)) for run in runs} <= {NoneType, SupersededError}
    archived(config)
    assert offsets_by_kafka_partition(stored(config)) == {0: list(range(RECORDS)), 1: list(range(RECORDS))}


class TwiceRunner(InProcessRunner):
    """Runs each task a second time, as a first attempt that finishes late: its id is lower, it comes last."""

    def __init__(self) -> None:
        self.late: list[Any] = []

    def run(
        self,
        function: Callable[[T, Attempt], R],
        tasks: Sequence[T],
        max_concurrent: int,  # noqa: ARG002
    ) -> Iterator[R]:
        for n, task in enumerate(tasks):
            yield function(task, Attempt(1000 + n, 1))
            self.late.append(function(task, Attempt(n, 0)))


def test_a_first_attempt_that_ends_late_leaves_the_seconds_objects_alone(config: ConnectorConfig) -> None:
    runner = TwiceRunner()
    archive_topic(ArchiveRequest(config, config.topics[0], "run", None), runner)
    failed = [found for _, results in runner.late for found in results]
    assert [type(f) for f in failed] == [FailedScan, FailedScan]
    store = ObjectStore(config.store)
    heads = [store.head(s.key) for s in snapshot(config).segments]
    assert all(h is not None and int(h.metadata["attempt"]) >= 1000 for h in heads)
    assert offsets_by_kafka_partition(stored(config)) == {0: list(range(RECORDS)), 1: list(range(RECORDS))}


def test_an_object_that_another_tool_wrote_is_never_overwritten(config: ConnectorConfig) -> None:
    store = ObjectStore(config.store)
    topic = config.topics[0]
    key = f"topics/{topic}/year=2026/month=01/day=01/hour=12/{topic}+0+0000000000.parquet"
    store.put_new(key, b"somebody else's")
    with pytest.raises(ForeignObjectError, match="hour=12"):
        archived(config)
    assert store.get(key) == b"somebody else's"
    assert scanned(config) == ()


def test_an_executor_process_killed_in_the_middle_of_a_scan_is_retried_by_spark(
    config: ConnectorConfig, spark: "SparkSession"
) -> None:
    slow = config.model_copy(update={"archive": config.archive.model_copy(update={"records_per_second": 400.0})})
    has_begun = lambda: any(o.key.endswith(".parquet") for o in ObjectStore(config.store).list("topics/"))  # noqa: E731
    with spark_worker_killed(has_begun):
        archive_topic(ArchiveRequest(slow, slow.topics[0], "run", None), SparkRunner(lambda: spark))
    assert offsets_by_kafka_partition(stored(config)) == {0: list(range(RECORDS)), 1: list(range(RECORDS))}
