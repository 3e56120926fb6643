"""Jobs: archive, compact, verify, restore and nightly upkeep for each connector; verify and restore for a source."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.defs.failures import raise_dagster_failures
from kafka_s3_platform.core.defs.topic import Group, TopicAssets
from kafka_s3_platform.core.instance.names import make_op_name
from kafka_s3_platform.core.instance.work import REPLAY_JOBS
from kafka_s3_platform.core.upkeep.index import UpkeepReport, keep_up_index

UPKEEP_TIME = "0 4 * * *"
"""After the night's compaction, and before the check of the objects."""

VERIFY_TIME = "0 6 * * *"
"""After the night's compaction and upkeep."""

Job = UnresolvedAssetJobDefinition
"""The type of `define_asset_job`'s result. Dagster exports no name for it."""


def make_op_job(
    verb: str, subject: str, connector: str, description: str, body: Callable[..., None]
) -> dg.JobDefinition:
    """Make the job `<verb>` of a connector. Its only op, `<verb> <subject>`, runs `body`.

    Its pool makes a run wait for another run of this job, but for no other run.
    """
    op = dg.op(
        name=make_op_name(verb, subject, connector), pool=make_op_name(verb, connector), description=description
    )(body)
    return dg.GraphDefinition(make_op_name(verb, connector), node_defs=[op], description=description).to_job()


def make_upkeep_job(config: ConnectorConfig) -> dg.JobDefinition:
    """Make a connector's upkeep job, which keeps the index small."""

    def keep_up(context: dg.OpExecutionContext) -> None:
        with raise_dagster_failures(context, "Each step is a commit of its own, and finished steps stay."):
            report = keep_up_index(config, dry_run=False)
            context.add_output_metadata(_make_metadata(report))
            report.raise_refusal()

    description = (
        f"Keep the index of connector {config.name} small: merge files, write a checkpoint, remove dead files. "
        "Archives go on meanwhile."
    )
    return make_op_job("upkeep", "index", config.name, description, keep_up)


def make_nightly_schedule(
    config: ConnectorConfig, job: dg.JobDefinition | Job, cron_schedule: str, status: dg.DefaultScheduleStatus
) -> dg.ScheduleDefinition:
    """Make the schedule of a nightly job, which runs whatever has happened."""
    return dg.ScheduleDefinition(
        name=job.name,
        job=job,
        cron_schedule=cron_schedule,
        execution_timezone=config.layout.timezone,
        default_status=status,
        description=job.description,
    )


def _make_metadata(report: UpkeepReport) -> dict[str, int]:
    """Make the metadata of an upkeep's op: how much of the index was folded, merged and removed."""
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


@dataclass(frozen=True)
class ConnectorJobs:
    """The jobs of one connector. `compact` and `restore` exist only if the objects have the native format."""

    archive: Job
    compact: Job | None
    verify: Job
    restore: Job | None

    @property
    def all(self) -> list[Job]:
        """The connector's jobs."""
        native = [job for job in (self.compact, self.restore) if job is not None]
        return [self.archive, self.verify, *native]


def make_asset_job(verb: str, connector: str, selection: dg.AssetSelection, description: str) -> Job:
    """Make the job `<verb>` of a connector, to materialize the selected assets or evaluate the selected checks."""
    return dg.define_asset_job(make_op_name(verb, connector), selection, description=description)


def make_connector_jobs(topics: Sequence[TopicAssets], slow_checks: dg.AssetChecksDefinition) -> ConnectorJobs:
    """Make the jobs of one connector. Slow checks, which read the store, run in `verify`, not after every hour."""
    name = topics[0].config.name

    def select(group: Group) -> dg.AssetSelection:
        return dg.AssetSelection.assets(*(topic.key(group) for topic in topics))

    slow = dg.AssetSelection.checks(slow_checks)
    archive = make_asset_job("archive", name, select("hourly") - slow, f"Archive hours of connector {name}.")
    verify_text = f"Check that the objects of connector {name} are in S3 as the index records them."
    verify = make_asset_job("verify", name, slow, verify_text)
    if not topics[0].is_native:
        return ConnectorJobs(archive, None, verify, None)
    compact = make_asset_job("compact", name, select("daily"), f"Compact days of connector {name}.")
    restore_text = f"Restore records of a topic of connector {name} to another topic. Pick the asset of one topic."
    return ConnectorJobs(archive, compact, verify, make_asset_job("restore", name, select("restored"), restore_text))


def make_foreign_job(connector: str, key: dg.AssetKey) -> Job:
    """Make the restore job of a source connector, whose only asset is `key`."""
    text = f"Replay to topics the objects that the file of connector {connector} describes."
    return make_asset_job("restore", connector, dg.AssetSelection.assets(key), text)


def make_readable_job(connector: str, checks: dg.AssetChecksDefinition) -> Job:
    """Make the verify job of a source connector, which reads the objects and lists the unreadable ones."""
    text = f"Read the objects that the file of connector {connector} describes, and list what cannot be read."
    return make_asset_job("verify", connector, dg.AssetSelection.checks(checks), text)


def list_changing_jobs(key: dg.AssetKey) -> frozenset[str]:
    """Return the names of the jobs that write the asset when they run as a whole. `verify` writes no asset."""
    if len(key.path) < len(("connector", "group")):
        return frozenset()
    connector, group = key.path[:2]
    verbs = {"hourly": ("archive",), "daily": ("compact",), "restored": ("restore", *REPLAY_JOBS)}.get(group, ())
    return frozenset(make_op_name(verb, connector) for verb in verbs)
