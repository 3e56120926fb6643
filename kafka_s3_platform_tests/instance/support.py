"""Instances of Dagster on disk, with one event log for all runs or Dagster's own."""

import time
from pathlib import Path

import dagster as dg
from dagster._core.events import DagsterEvent, StepMaterializationData
from dagster._core.events.log import EventLogEntry

from kafka_s3_platform_tests.conftest import REPOSITORY

HOURS = dg.StaticPartitionsDefinition([f"2026-01-01-{hour:02d}:00" for hour in range(24)])


@dg.asset(key_prefix=["c", "hourly"], partitions_def=HOURS)
def topic(context: dg.AssetExecutionContext) -> dg.MaterializeResult[None]:
    """Materialize the hours of the run."""
    return dg.MaterializeResult(metadata={"records": 7, "of_run": context.run.run_id})


@dg.asset_check(asset=topic)
def contiguous() -> dg.AssetCheckResult:
    """Pass."""
    return dg.AssetCheckResult(passed=True, metadata={"count": 0})


DEFINITIONS = dg.Definitions(assets=[topic], asset_checks=[contiguous], executor=dg.in_process_executor)


def open_home(home: Path, storage: str = "one file") -> dg.DagsterInstance:
    """Open the instance of `home`: the repository's own, or it with Dagster's SQLite storage, or that of servers.

    What runs print is in `home`, always.
    """
    home.mkdir(exist_ok=True)
    config = (REPOSITORY / "dagster.yaml").read_text()
    begin, end = config.index("#\n# The three storages"), config.index("local_artifact_storage:")
    if storage == "a file each":
        config = f"{config[:begin]}storage:\n  sqlite:\n    base_dir: .dagster/storage\n\n{config[end:]}"
    elif storage == "Postgres":
        deployed = (REPOSITORY / "deploy/dagster.yaml").read_text()
        config = config[:begin] + deployed[deployed.index("storage:") : deployed.index("\n\n")] + "\n\n" + config[end:]
    (home / "dagster.yaml").write_text(config.replace(".dagster", str(home / ".dagster")))
    return dg.DagsterInstance.from_config(str(home))


def materialize(instance: dg.DagsterInstance, *hours: int) -> str:
    """Run the asset and its check for a contiguous range of hours, and return the run's id."""
    keys = HOURS.get_partition_keys()
    tags = {
        "dagster/asset_partition_range_start": keys[hours[0]],
        "dagster/asset_partition_range_end": keys[hours[-1]],
    }
    quiet = dg.RunConfig(loggers={"console": {"config": {"log_level": "CRITICAL"}}})
    job = DEFINITIONS.resolve_implicit_global_asset_job_def()
    return job.execute_in_process(instance=instance, tags=tags, run_config=quiet).run_id


def make_materialization(run_id: str, hour: int, number: int = 0) -> EventLogEntry:
    """Make the event of a materialized hour."""
    hours = HOURS.get_partition_keys()
    reported = dg.AssetMaterialization(topic.key, partition=hours[hour], metadata={"number": number})
    event = DagsterEvent(
        "ASSET_MATERIALIZATION", "j", step_key="s", event_specific_data=StepMaterializationData(reported)
    )
    return _make_entry(run_id, "", event)


def make_line(run_id: str, number: int) -> EventLogEntry:
    """Make the event of a line in the log of a run."""
    return _make_entry(run_id, str(number), None)


def _make_entry(run_id: str, message: str, event: DagsterEvent | None) -> EventLogEntry:
    return EventLogEntry(None, 20, message, run_id, time.time(), "s", "j", event)  # type: ignore[no-untyped-call]
