"""SIGKILL at every stage of an archive run; run again: nothing lost, nothing twice, nothing left after the vacuum."""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from kafka_s3_platform.archive.request import ArchiveRequest
from kafka_s3_platform.archive.run import archive_topic
from kafka_s3_platform.archive.task import FailedScan
from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.errors import ForeignObjectError, PlatformError, SupersededError
from kafka_s3_platform.spark.runner import Attempt, SparkRunner
from kafka_s3_platform.store.index import ConnectorSnapshot
from kafka_s3_platform.store.objects import ObjectStore
from kafka_s3_platform.store.upload import SegmentUpload
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.faults.children import Child
from kafka_s3_platform_tests.support import (
    HOUR,
    NOON,
    InProcessRunner,
    R,
    Sent,
    T,
    archived,
    is_spark_worker,
    offsets_by_kafka_partition,
    scanned,
    snapshot,
    stored,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

RECORDS = 400


@pytest.fixture
def config(lab: Lab) -> ConnectorConfig:
    """A connector whose topic holds 400 records in each of 2 kafka partitions, over 4 hours, in objects of 50."""
    records = [Sent(b"%d" % n, None, NOON + n * 4 * HOUR / RECORDS, (), p) for n in range(RECORDS) for p in range(2)]
    return lab.fill(records, kafka_partitions=2, layout={"flush_size": 50})


def killed_on_call(owner: type, method: str, nth: int, after: bool) -> None:
    """Let this process die when `method` is called for the nth time, before or after it did its work."""
    calls, original = count(1), getattr(owner, method)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        call = next(calls)  # threads call it at once
        if call == nth and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*args, **kwargs)
        if call == nth:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, method, wrapped)


STAGES: dict[str, tuple[type, str, int, bool]] = {
    "after the reservation": (ConnectorSnapshot, "commit", 1, True),
    "before the first upload ends": (SegmentUpload, "finish", 1, False),
    "after some uploads": (SegmentUpload, "finish", 7, True),
    "before the commit": (ConnectorSnapshot, "commit", 2, False),
    "after the commit": (ConnectorSnapshot, "commit", 2, True),
}


def archive_until_killed(config: ConnectorConfig, stage: str) -> None:
    killed_on_call(*STAGES[stage])
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


class StallingRunner(InProcessRunner):
    """Stops before its first task until told to go on."""

    def __init__(self) -> None:
        self.reserved, self.go_on = threading.Event(), threading.Event()

    def run(self, function: Callable[[T, Attempt], R], tasks: Sequence[T], max_concurrent: int) -> Iterator[R]:
        self.reserved.set()
        assert self.go_on.wait(60)
        yield from super().run(function, tasks, max_concurrent)


class LateCommitRunner(InProcessRunner):
    """Stops after its last task until told to go on."""

    def __init__(self) -> None:
        self.scanned, self.go_on = threading.Event(), threading.Event()

    def run(self, function: Callable[[T, Attempt], R], tasks: Sequence[T], max_concurrent: int) -> Iterator[R]:
        yield from super().run(function, tasks, max_concurrent)
        self.scanned.set()
        assert self.go_on.wait(60)


def in_background(config: ConnectorConfig, runner: InProcessRunner) -> tuple[threading.Thread, list[Exception]]:
    errors: list[Exception] = []

    def run() -> None:
        try:
            archive_topic(ArchiveRequest(config, config.topics[0], "stalled", None), runner)
        except PlatformError as err:
            errors.append(err)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, errors


def test_a_stalled_run_that_wakes_after_another_took_its_ranges_touches_nothing(config: ConnectorConfig) -> None:
    runner = StallingRunner()
    thread, errors = in_background(config, runner)
    assert runner.reserved.wait(60)
    archived(config)
    before = {s.key: s.etag for s in snapshot(config).segments}
    runner.go_on.set()
    thread.join(60)
    assert [type(e) for e in errors] == [SupersededError]
    store = ObjectStore(config.store)
    assert {k: info.etag for k in before if (info := store.head(k))} == before
    assert offsets_by_kafka_partition(stored(config)) == {0: list(range(RECORDS)), 1: list(range(RECORDS))}


def test_a_run_superseded_between_its_uploads_and_its_commit_commits_nothing(config: ConnectorConfig) -> None:
    """Its objects are replaced by the run that superseded it."""
    runner = LateCommitRunner()
    thread, errors = in_background(config, runner)
    assert runner.scanned.wait(60)
    archived(config)
    runner.go_on.set()
    thread.join(60)
    assert [type(e) for e in errors] == [SupersededError]
    store = ObjectStore(config.store)
    for segment in snapshot(config).segments:
        info = store.head(segment.key)
        assert info is not None
        assert (info.etag, info.metadata["epoch"]) == (segment.etag, str(segment.epoch))
    assert offsets_by_kafka_partition(stored(config)) == {0: list(range(RECORDS)), 1: list(range(RECORDS))}


def test_many_runs_racing_on_one_topic_archive_each_offset_once(config: ConnectorConfig) -> None:
    runs = [in_background(config, InProcessRunner()) for _ in range(4)]
    for thread, _ in runs:
        thread.join(120)
    assert all(isinstance(e, SupersededError) for _, errors in runs for e in errors)
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


def test_a_first_attempt_that_finishes_late_does_not_touch_the_objects_of_the_second(config: ConnectorConfig) -> None:
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
    killed: list[int] = []

    def kill_one_worker() -> None:
        for _ in range(600):
            workers = [p for p in psutil.Process().children(recursive=True) if is_spark_worker(p)]
            if workers and any(o.key.endswith(".parquet") for o in ObjectStore(config.store).list("topics/")):
                killed.append(workers[0].pid)
                workers[0].kill()
                return
            threading.Event().wait(0.05)

    thread = threading.Thread(target=kill_one_worker)
    thread.start()
    archive_topic(ArchiveRequest(slow, slow.topics[0], "run", None), SparkRunner(lambda: spark))
    thread.join(60)
    assert killed
    assert offsets_by_kafka_partition(stored(config)) == {0: list(range(RECORDS)), 1: list(range(RECORDS))}
