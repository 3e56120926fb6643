"""The nightly upkeep of a connector's index, as a job of one op. It starts no Spark."""

import dagster as dg

from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.defs.failures import raise_dagster_failures
from kafka_s3_platform.instance.names import make_op_name
from kafka_s3_platform.upkeep.index.run import UpkeepReport, keep_up_index

NIGHTLY = "0 4 * * *"
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


def make_upkeep_schedule(
    config: ConnectorConfig, job: dg.JobDefinition, status: dg.DefaultScheduleStatus
) -> dg.ScheduleDefinition:
    """Make the schedule: the upkeep runs once a night."""
    return dg.ScheduleDefinition(
        name=job.name,
        job=job,
        cron_schedule=NIGHTLY,
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
