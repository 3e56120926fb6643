"""Jobs: archive, compact, verify, restore and nightly upkeep for each connector; verify and restore for a source."""

from collections.abc import Sequence
from dataclasses import dataclass

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.defs.failures import raise_dagster_failures
from kafka_s3_platform.core.defs.restore.form import name_restore_job
from kafka_s3_platform.core.defs.topic import TopicAssets
from kafka_s3_platform.core.instance.names import make_op_name
from kafka_s3_platform.core.instance.work import REPLAY_JOBS
from kafka_s3_platform.core.upkeep.index import UpkeepReport, keep_up_index

UPKEEP_TIME = "0 4 * * *"
"""After the night's compaction, and before the check of the objects."""

DESCRIPTION = (
    "Keep the index of connector {} small: merge files, write a checkpoint, remove dead files. "
    "Archives go on meanwhile."
)


def make_upkeep_job(config: ConnectorConfig) -> dg.JobDefinition:
    """Make the job of one connector. Its pool makes it wait for another upkeep, and for no other run."""
    description = DESCRIPTION.format(config.name)

    @dg.op(
        name=make_op_name("upkeep", "index", config.name),
        pool=make_op_name("upkeep", config.name),
        description=description,
    )
    def keep_up(context: dg.OpExecutionContext) -> None:
        with raise_dagster_failures(context, "Each step is a commit of its own, and finished steps stay."):
            report = keep_up_index(config, dry_run=False)
            context.add_output_metadata(_make_metadata(report))
            report.raise_refusal()

    @dg.job(name=make_op_name("upkeep", config.name), description=description)
    def upkeep_job() -> None:
        keep_up()

    return upkeep_job


def make_nightly_schedule(
    config: ConnectorConfig, job: "dg.JobDefinition | Job", cron_schedule: str, status: dg.DefaultScheduleStatus
) -> dg.ScheduleDefinition:
    """Make the schedule of a job that runs once a night, whatever has happened."""
    return dg.ScheduleDefinition(
        name=job.name,
        job=job,
        cron_schedule=cron_schedule,
        execution_timezone=config.layout.timezone,
        default_status=status,
        description=job.description,
    )


def _make_metadata(report: UpkeepReport) -> dict[str, int]:
    return {
        "version": report.version or 0,
        "folded_hours": report.fold.hours,
        "moved_rows": report.fold.rows,
        "merged_files": report.merge.files,
        "new_files": report.merge.new_files,
        "new_bytes": report.merge.new_bytes,
        "removed_files": report.cleanup.files,
        "removed_bytes": report.cleanup.file_bytes + report.cleanup.log_bytes,
        "removed_log_entries": report.cleanup.log_entries,
    }


Job = UnresolvedAssetJobDefinition
"""The type of `define_asset_job`'s result. Dagster exports no name for it."""


@dataclass(frozen=True)
class ConnectorJobs:
    """The jobs of one connector. `compact` and `restore` exist only if the objects have the native format."""

    archive: Job
    compact: Job | None
    verify: Job
    restore: Job | None

    @property
    def all(self) -> list[Job]:
        native = [job for job in (self.compact, self.restore) if job is not None]
        return [self.archive, self.verify, *native]


def make_connector_jobs(topics: Sequence[TopicAssets], slow_checks: dg.AssetChecksDefinition) -> ConnectorJobs:
    """Make the jobs of one connector. Checks that read the store run in `verify`, not after every hour."""
    connector = topics[0].config.name
    hourly = dg.AssetSelection.assets(*(topic.key("hourly") for topic in topics))
    slow = dg.AssetSelection.checks(slow_checks)
    return ConnectorJobs(
        archive=dg.define_asset_job(
            make_op_name("archive", connector), hourly - slow, description=f"Archive hours of connector {connector}."
        ),
        compact=_make_compact_job(topics) if topics[0].is_native else None,
        verify=dg.define_asset_job(
            make_op_name("verify", connector), slow, description=f"Check the objects of connector {connector} in S3."
        ),
        restore=_make_restore_job(topics) if topics[0].is_native else None,
    )


def make_foreign_job(connector: str, key: dg.AssetKey) -> Job:
    """Make the job of a source connector."""
    return dg.define_asset_job(
        name_restore_job(connector),
        dg.AssetSelection.assets(key),
        description=f"Replay to topics the objects that the file of connector {connector} describes.",
    )


def make_readable_job(connector: str, checks: dg.AssetChecksDefinition) -> Job:
    """Make the job that reads the objects of a source connector."""
    return dg.define_asset_job(
        make_op_name("verify", connector),
        dg.AssetSelection.checks(checks),
        description=f"Read the objects that the file of connector {connector} describes, and list what cannot be read.",
    )


def list_changing_jobs(key: dg.AssetKey) -> frozenset[str]:
    """Return the names of the jobs that write the asset when they run as a whole. `verify` writes no asset."""
    if len(key.path) < len(("connector", "group")):
        return frozenset()
    connector, group = key.path[:2]
    verbs = {"hourly": ("archive",), "daily": ("compact",), "restored": ("restore", *REPLAY_JOBS)}.get(group, ())
    return frozenset(make_op_name(verb, connector) for verb in verbs)


def _make_compact_job(topics: Sequence[TopicAssets]) -> Job:
    connector = topics[0].config.name
    daily = dg.AssetSelection.assets(*(topic.key("daily") for topic in topics))
    return dg.define_asset_job(
        make_op_name("compact", connector), daily, description=f"Compact days of connector {connector}."
    )


def _make_restore_job(topics: Sequence[TopicAssets]) -> Job:
    connector = topics[0].config.name
    return dg.define_asset_job(
        name_restore_job(connector),
        dg.AssetSelection.assets(*(topic.key("restored") for topic in topics)),
        description=f"Restore records of a topic of connector {connector} to another topic. Pick the asset of one "
        "topic.",
    )
