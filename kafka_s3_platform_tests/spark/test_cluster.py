"""Archive, merge and restore on a Spark cluster, whose workers die, stand still and join: nothing lost, nothing twice.

Workers share no file system and no host name: see `standalone`.
"""

import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kafka_s3_platform.core.archive.request import ArchiveRequest
from kafka_s3_platform.core.archive.run import archive_topic
from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.defs.resources import SparkResource, start_session
from kafka_s3_platform.core.errors import SparkUnavailableError
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.restore.archive_source import ArchiveSource
from kafka_s3_platform.core.restore.run import restore
from kafka_s3_platform.core.spark.runner import Attempt
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform.core.upkeep.compact.days import CompactRequest
from kafka_s3_platform.core.upkeep.verify import verify_archive
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.kafka.topics import until
from kafka_s3_platform_tests.restore.own import check_restored_once, request, target_of
from kafka_s3_platform_tests.spark.standalone import StandaloneCluster, Worker, opened_driver
from kafka_s3_platform_tests.support import (
    HOUR,
    NOON,
    InProcessRunner,
    Sent,
    archived,
    compact_day,
    offsets_by_kafka_partition,
    snapshot,
    stored,
)

KAFKA_PARTITIONS = 8
RECORDS = 400
DAY = date(2026, 1, 1)
LOST_SOON = {
    "spark.network.timeout": "10s",
    "spark.network.timeoutInterval": "1s",
    "spark.executor.heartbeatInterval": "1s",
    "spark.storage.blockManagerHeartbeatTimeoutMs": "5000",
}
"""An executor that says nothing is given up after 5 seconds, by default after 2 minutes."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    """A master. Each test has workers of its own."""
    if subprocess.run(["unshare", "--user", "--map-root-user", "--mount", "--uts", "true"], check=False).returncode:
        pytest.skip("this machine lets nobody make namespaces")
    made = StandaloneCluster(tmp_path_factory.mktemp("spark-cluster"))
    try:
        made.start_master()
        yield made
    finally:
        made.stop()


@pytest.fixture
def workers(cluster: StandaloneCluster) -> Iterator[list[Worker]]:
    """Two workers of one core each, alone in the cluster."""
    yield [cluster.add_worker(), cluster.add_worker()]
    cluster.stop_workers()


@pytest.fixture
def config(lab: Lab) -> ConnectorConfig:
    """A connector whose topic holds 400 records in each of 8 kafka partitions, over 4 hours, in objects of 50."""
    moments = [NOON + n * 4 * HOUR / RECORDS for n in range(RECORDS)]
    records = [Sent(b"%d" % n, None, at, (), p) for n, at in enumerate(moments) for p in range(KAFKA_PARTITIONS)]
    return lab.fill(records, kafka_partitions=KAFKA_PARTITIONS, layout={"flush_size": 50})


def archive_there(config: ConnectorConfig) -> None:
    found = archive_topic(ArchiveRequest(config, config.topics[0], "run", None), SparkResource().make_runner())
    found.raise_failure()


def merge_there(config: ConnectorConfig) -> None:
    compact_day(CompactRequest(config, config.topics[0], DAY, "merge"), SparkResource().make_runner())


def restore_there(config: ConnectorConfig) -> bool:
    given = request(config, records_per_second=800.0)
    return restore(ArchiveSource(given), SparkResource().make_runner()).verified


def count_tasks_there() -> dict[str, int]:
    """How many tasks have been done at each address."""
    context: Any = start_session().sparkContext
    store = context._jsc.sc().statusStore()  # noqa: SLF001 - PySpark shows none of it
    found: Counter[str] = Counter()
    executors = store.executorList(False)
    for n in range(executors.size()):
        each = executors.apply(n)
        found[each.hostPort().partition(":")[0]] += each.completedTasks()
    return dict(found)


def slow(config: ConnectorConfig) -> ConnectorConfig:
    return config.model_copy(update={"archive": config.archive.model_copy(update={"records_per_second": 400.0})})


def wait_for(running: "Future[Any]", begun: Callable[[], bool]) -> None:
    """Wait until the work has begun, and is not done."""
    until(lambda: running.done() or begun())
    assert not running.done(), f"it ended before: {running.exception() or running.result()}"


def has_objects(config: ConnectorConfig, folder: str = "topics/") -> bool:
    return any(o.key.endswith(".parquet") for o in ObjectStore(config.store).list(folder))


def has_restored(config: ConnectorConfig) -> bool:
    with ClusterAdmin(config.kafka) as admin:
        target = target_of(config)
        logs = admin.frontiers(target, range(KAFKA_PARTITIONS)) if target in admin.list_topics() else {}
    return any(log.high_watermark for log in logs.values())


def check_archived_once(config: ConnectorConfig) -> None:
    every = {p: list(range(RECORDS)) for p in range(KAFKA_PARTITIONS)}
    assert offsets_by_kafka_partition(stored(config)) == every
    assert verify_archive(config, config.topics[0], deep=True, runner=InProcessRunner()).ok


def look_there(path: Path) -> list[tuple[str, str, bool]]:
    """Where tasks find the package, what their host calls itself, and whether they see a file of the driver."""

    def look(_: int, __: Attempt) -> tuple[str, str, bool]:
        import socket

        import kafka_s3_platform

        return kafka_s3_platform.__file__, socket.gethostname(), path.exists()

    return list(SparkResource().make_runner().run(look, [1, 2], 2))


def test_workers_that_share_nothing_die_and_join_under_archive_and_restore(
    cluster: StandaloneCluster, workers: list[Worker], config: ConnectorConfig
) -> None:
    with opened_driver(cluster.write_properties()) as driver:
        for file, host, sees_driver in driver.submit(look_there, cluster.folder).result(180):
            assert file.startswith("/tmp/work/")
            assert host.startswith("worker-")
            assert not sees_driver

        archiving = driver.submit(archive_there, slow(config))
        wait_for(archiving, lambda: has_objects(config))
        # what is left is for the one that joins, however long that takes
        workers[1].suspend()
        workers[0].kill()
        joined = cluster.add_worker()
        workers[1].kill()
        archiving.result(180)
        check_archived_once(config)
        done = driver.submit(count_tasks_there).result(60)
        assert done.get(joined.address), done

        cluster.add_worker()
        restoring = driver.submit(restore_there, config)
        wait_for(restoring, lambda: has_restored(config))
        joined.kill()
        assert restoring.result(180), "it was not verified"
    check_restored_once(config, kafka_partitions=KAFKA_PARTITIONS)


@pytest.mark.long
def test_a_worker_that_dies_while_a_day_is_merged_loses_and_doubles_nothing(
    cluster: StandaloneCluster, workers: list[Worker], config: ConnectorConfig
) -> None:
    """Its executors outlive it by a moment: both attempts of a task may be at work."""
    archived(config)
    with opened_driver(cluster.write_properties()) as driver:
        driver.submit(look_there, cluster.folder).result(180)
        merging = driver.submit(merge_there, config)
        wait_for(merging, lambda: has_objects(config, "topics_daily/"))
        workers[0].kill_alone()
        merging.result(180)
    assert {segment.chunk for segment in snapshot(config).segments} == {"daily"}
    check_archived_once(config)


@pytest.mark.long
def test_a_worker_that_was_cut_off_and_comes_back_does_no_harm(
    cluster: StandaloneCluster, workers: list[Worker], config: ConnectorConfig
) -> None:
    """Its tasks were given to the other one, and go on where they stood."""
    with opened_driver(cluster.write_properties(LOST_SOON)) as driver:
        driver.submit(look_there, cluster.folder).result(180)
        for work, begun in ((archive_there, has_objects), (restore_there, has_restored)):
            running = driver.submit(work, slow(config))
            wait_for(running, partial(begun, config))
            workers[0].suspend()
            running.result(180)
            workers[0].resume()
            until(lambda: not workers[0].has_tasks())
    check_archived_once(config)
    check_restored_once(config, kafka_partitions=KAFKA_PARTITIONS)


@pytest.mark.long
def test_a_run_whose_session_ended_fails_and_its_process_starts_another(
    cluster: StandaloneCluster, workers: list[Worker], config: ConnectorConfig
) -> None:
    with opened_driver(cluster.write_properties()) as driver:
        archiving = driver.submit(archive_there, slow(config))
        wait_for(archiving, lambda: has_objects(config))
        cluster.end_application()
        with pytest.raises(SparkUnavailableError, match=f"{cluster.master}.* gave a task up: .*(SparkContext|KILLED)"):
            archiving.result(180)
        driver.submit(archive_there, config).result(180)
    check_archived_once(config)
