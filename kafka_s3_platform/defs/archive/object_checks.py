"""Asset checks that look at the objects in S3."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

import dagster as dg

from kafka_s3_platform.defs.archive.checks import ERROR, MAX_ROWS, WARN, make_check_specs
from kafka_s3_platform.defs.failures import raise_dagster_failures
from kafka_s3_platform.defs.metadata import make_metadata_table
from kafka_s3_platform.defs.resources import SparkResource
from kafka_s3_platform.defs.runs import list_windows
from kafka_s3_platform.defs.topic import ArchivedTopic
from kafka_s3_platform.model.times import HOUR
from kafka_s3_platform.store.objects import ObjectStore
from kafka_s3_platform.upkeep.vacuum import VacuumReport, vacuum_topic
from kafka_s3_platform.upkeep.verify import Damage, verify_archive, verify_hours

OBJECT_CHECKS = {
    "checksums": "Every object exists, with the size and ETag that the index records. After a run, only the objects of "
    "its hours are checked.",
    "orphans": "No object or unfinished upload of this platform is older than a day and unknown to the index.",
}
ORPHAN_AGE = timedelta(days=1)


def make_object_checks(topic: ArchivedTopic) -> dg.AssetChecksDefinition:
    """Make the checks that the objects are as the index records them."""

    @dg.multi_asset_check(
        name=topic.op_name("check", "objects"),
        specs=make_check_specs(topic.key("hourly"), OBJECT_CHECKS),
        can_subset=True,
    )
    def objects(
        context: dg.AssetCheckExecutionContext, spark: dg.ResourceParam[SparkResource]
    ) -> Iterator[dg.AssetCheckResult]:
        names = {key.name for key in context.selected_asset_check_keys}
        with raise_dagster_failures(context):
            if "checksums" in names:
                yield _check_checksums(topic, _find_damages(topic, _find_hours(context, topic), spark))
            if "orphans" in names:
                yield _check_orphans(
                    topic, vacuum_topic(topic.config, topic.topic, context.run.run_id, ORPHAN_AGE, dry_run=True)
                )

    return objects


def _find_hours(context: dg.AssetCheckExecutionContext, topic: ArchivedTopic) -> list[datetime]:
    """Return the hours of the run, if it has any."""
    windows = list_windows([context.run], topic.hours)
    hours: list[datetime] = []
    for start, end in windows:
        hours += [start + n * HOUR for n in range(int((end - start) // HOUR))]
    return hours


def _find_damages(topic: ArchivedTopic, hours: Sequence[datetime], spark: SparkResource) -> Sequence[Damage]:
    snapshot = topic.index.peek() if hours else None
    if snapshot is not None:
        return verify_hours(snapshot, ObjectStore(topic.config.store), set(hours))
    with spark.runner() as runner:
        return verify_archive(topic.config, topic.topic, deep=False, runner=runner).damages


def _check_checksums(topic: ArchivedTopic, damages: Sequence[Damage]) -> dg.AssetCheckResult:
    columns = ["kafka_partition", "key", "message"]
    rows = [{name: getattr(d, name) for name in columns} for d in damages[:MAX_ROWS]]
    return dg.AssetCheckResult(
        passed=not damages,
        check_name="checksums",
        asset_key=topic.key("hourly"),
        severity=ERROR,
        metadata={"count": len(damages), "found": make_metadata_table(rows, columns)},
    )


def _check_orphans(topic: ArchivedTopic, report: VacuumReport) -> dg.AssetCheckResult:
    found = [*report.removed, *report.aborted_uploads]
    return dg.AssetCheckResult(
        passed=not found,
        check_name="orphans",
        asset_key=topic.key("hourly"),
        severity=WARN,
        metadata={
            "count": len(found),
            "orphan_bytes": report.removed_bytes,
            "unfinished_uploads": len(report.aborted_uploads),
            "foreign_objects": len(report.foreign),
            "found": make_metadata_table([{"key": key} for key in found[:MAX_ROWS]], ["key"]),
        },
    )
