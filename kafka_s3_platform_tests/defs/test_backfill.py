"""Backfills as the UI asks for them, by its GraphQL API, and as Dagster's own daemons make runs of them.

No run is executed: what is looked at is which runs there are, and which of them start.
"""

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime, timezone

import dagster as dg
import pytest
from dagster._core.storage.tags import BACKFILL_ID_TAG, SENSOR_NAME_TAG
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._daemon.backfill import execute_backfill_iteration
from dagster._daemon.run_coordinator import QueuedRunCoordinatorDaemon
from dagster._daemon.sensor import execute_sensor_iteration
from dagster_graphql.test.utils import execute_dagster_graphql

from kafka_s3_platform_tests.cli.conftest import (
    KafkaS3,
    write_connector,
    write_reachable_connector,
)
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.dagster_ui import LAUNCH, LAUNCH_RUN
from kafka_s3_platform_tests.defs.running import daemon_context
from kafka_s3_platform_tests.support import HOUR, Sent, produce

# Dagster's GraphQL schema uses it itself.
pytestmark = pytest.mark.filterwarnings("ignore:Function `AssetSelection.sources`:DeprecationWarning")

LOG = logging.getLogger(__name__)
# Runs that are started stay as if they were starting: each would start a JVM.
NO_PROCESS = "run_launcher: {module: dagster._core.test_utils, class: MockedRunLauncher}"

OpenDaemon = Callable[[], WorkspaceProcessContext]
Range = tuple[str | None, str | None]


@pytest.fixture
def open_daemon(
    kafka_s3_without_spark: KafkaS3, dagster_yaml: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[OpenDaemon]:
    """Opens the daemons' view of a home with each of this project's `dagster.yaml`. Write the connector before."""
    with ExitStack() as opened:

        def start() -> WorkspaceProcessContext:
            settings = f"{dagster_yaml}\n{NO_PROCESS}"
            return opened.enter_context(daemon_context(kafka_s3_without_spark.folder, settings, monkeypatch))

        yield start


def submit(
    daemon: WorkspaceProcessContext, group: str, topics: Sequence[str], partition_keys: Sequence[str]
) -> list[dg.DagsterRun]:
    """The runs that the daemon makes of one backfill, the oldest range first."""
    selected = [{"path": ["c", group, topic]} for topic in topics]
    params = {"assetSelection": selected, "partitionNames": partition_keys}
    answer = execute_dagster_graphql(daemon.create_request_context(), LAUNCH, {"params": params})
    launched = answer.data["launchPartitionBackfill"]
    assert launched["__typename"] == "LaunchBackfillSuccess", launched
    assert not [error for error in execute_backfill_iteration(daemon, LOG) if error]
    return sorted(list_runs(daemon, {BACKFILL_ID_TAG: launched["backfillId"]}), key=lambda run: str(find_range(run)))


def list_runs(daemon: WorkspaceProcessContext, tags: Mapping[str, str]) -> Sequence[dg.DagsterRun]:
    return daemon.instance.get_runs(dg.RunsFilter(tags=tags))


def find_range(run: dg.DagsterRun) -> Range:
    """The first and the last partition key of a run."""
    return run.tags.get("dagster/asset_partition_range_start"), run.tags.get("dagster/asset_partition_range_end")


def list_topics(run: dg.DagsterRun) -> set[str]:
    return {key.path[-1] for key in run.asset_selection or ()}


def list_ops(daemon: WorkspaceProcessContext, run: dg.DagsterRun) -> set[str]:
    assert run.execution_plan_snapshot_id is not None
    return set(daemon.instance.get_execution_plan_snapshot(run.execution_plan_snapshot_id).step_keys_to_execute)


def start_queued(daemon: WorkspaceProcessContext) -> set[str]:
    """Let the daemon of the queue choose once. The ids of all runs that have started until now."""
    with QueuedRunCoordinatorDaemon(interval_seconds=1) as queue:
        assert not [error for error in queue.run_iteration(daemon) if error]
    return {run.run_id for run in daemon.instance.get_runs() if run.status == dg.DagsterRunStatus.STARTING}


@pytest.mark.parametrize("dagster_yaml", ["dagster.yaml"], indirect=True)
def test_a_backfill_is_one_run_for_each_contiguous_range(
    kafka_s3_without_spark: KafkaS3, open_daemon: OpenDaemon
) -> None:
    topics = ["a", "b", "c.d", "c_d"]
    write_connector(
        kafka_s3_without_spark, ",".join(topics), **{"timezone": "UTC", "archive.start.hour": "2025-12-01T00:00"}
    )
    daemon = open_daemon()
    hours = [f"2026-01-01-{hour:02d}:00" for hour in range(24)]
    days = [f"2026-01-{day:02d}" for day in range(1, 6)]
    for picked in (topics[:1], topics[1:]):
        for group, keys, ranges in (
            ("hourly", hours, [(hours[0], hours[-1])]),
            ("hourly", hours[4:5], [(hours[4], hours[4])]),
            ("hourly", [*hours[:5], *hours[6:]], [(hours[0], hours[4]), (hours[6], hours[-1])]),
            ("daily", days, [(days[0], days[-1])]),
            ("daily", [*days[:2], *days[3:]], [(days[0], days[1]), (days[3], days[-1])]),
        ):
            runs = submit(daemon, group, picked, keys)
            assert [find_range(run) for run in runs] == ranges
            for run in runs:
                assert list_topics(run) == set(picked)
                assert f"{group}__c" in list_ops(daemon, run)


def test_the_first_two_restores_of_a_connector_start_one_after_the_other(
    kafka_s3_without_spark: KafkaS3, open_daemon: OpenDaemon
) -> None:
    write_connector(kafka_s3_without_spark, "a,b", **{"timezone": "UTC", "archive.start.hour": "2025-12-01T00:00"})
    daemon = open_daemon()
    for topic in ("a", "b"):
        launch_restore(daemon, topic)
    assert len(start_queued(daemon)) == 1
    assert len(start_queued(daemon)) == 1


def test_restores_of_other_connectors_leave_places_for_hours(
    kafka_s3_without_spark: KafkaS3, open_daemon: OpenDaemon
) -> None:
    """They take days, and Kafka deletes what is not archived meanwhile."""
    keys = {"timezone": "UTC", "archive.start.hour": "2025-12-01T00:00"}
    write_connector(kafka_s3_without_spark, "a", **keys)
    first = kafka_s3_without_spark.folder / "connectors" / "c.json"
    for name in "def":
        own = {"name": name, "topics": f"topic-{name}", "topics.dir": name}
        first.with_name(f"{name}.json").write_text(json.dumps(json.loads(first.read_text()) | own))
    daemon = open_daemon()
    launch_restore(daemon, "a")
    for name in "def":
        launch_restore(daemon, f"topic-{name}", name)
    assert len(start_queued(daemon)) == 2
    assert len(start_queued(daemon)) == 2
    [hours] = submit(daemon, "hourly", ["a"], ["2026-01-01-00:00"])
    assert hours.run_id in start_queued(daemon)


def launch_restore(daemon: WorkspaceProcessContext, topic: str, connector: str = "c") -> None:
    context = daemon.create_request_context()
    [location] = context.code_locations
    [repository] = location.get_repositories()
    selector = {
        "repositoryLocationName": location.name,
        "repositoryName": repository,
        "pipelineName": f"restore__{connector}",
        "assetSelection": [{"path": [connector, "restored", topic]}],
    }
    config = {
        "ops": {
            f"restored__{connector}": {"config": {"what": {"everything": True}, "to": {"topic": f"copy-of-{topic}"}}}
        }
    }
    params = {"selector": selector, "mode": "default", "runConfigData": config}
    answer = execute_dagster_graphql(context, LAUNCH_RUN, {"params": params})
    assert answer.data["launchRun"]["__typename"] == "LaunchRunSuccess", answer.data


def test_live_hours_that_the_lag_sensor_asks_for_do_not_wait_for_backfills(
    kafka_s3_without_spark: KafkaS3, open_daemon: OpenDaemon, lab: Lab
) -> None:
    first = datetime.now(timezone.utc).replace(minute=0, second=0, microsecond=0) - 50 * HOUR
    topics = [lab.create(f"{lab.topic}-{n}") for n in range(2)]
    for topic in topics:
        produce(lab.kafka, topic, [Sent(timestamp=first)])
    keys = {"timezone": "UTC", "archive.start.hour": f"{first:%Y-%m-%dT%H:%M}", "archive.allowed.lateness.ms": "60000"}
    write_reachable_connector(kafka_s3_without_spark, lab.kafka, lab.store, ",".join(topics), **keys)
    daemon = open_daemon()
    hours = [f"{first + n * HOUR:%Y-%m-%d-%H:%M}" for n in range(48)]

    under_way, waiting = submit(daemon, "hourly", topics, [*hours[:20], *hours[21:40]])
    # more than a day ago: a day that has begun needs hours that have not
    [day] = submit(daemon, "daily", topics, [hours[24][:10]])
    started = start_queued(daemon)
    assert len(started) == 1, "backfills take one place"
    assert started < {under_way.run_id, waiting.run_id, day.run_id}
    assert start_queued(daemon) == started

    assert not [error for error in execute_sensor_iteration(daemon, LOG, None, None) if error]
    live = list_runs(daemon, {SENSOR_NAME_TAG: "lag__c"})
    [between, newest] = sorted(live, key=lambda run: str(find_range(run)))
    assert find_range(between) == (hours[20], hours[20]), "the hours of the backfill are not asked for"
    assert str(find_range(newest)[0]) == hours[40]
    assert str(find_range(newest)[1]) >= hours[-1]
    assert list_topics(between) == list_topics(newest) == set(topics)
    assert start_queued(daemon) == {*started, between.run_id, newest.run_id}
    queued = {run.run_id for run in daemon.instance.get_runs() if run.status == dg.DagsterRunStatus.QUEUED}
    assert queued == {under_way.run_id, waiting.run_id, day.run_id} - started
