"""Asset checks that look at the objects in S3."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

import dagster as dg

from kafka_s3_platform.archive.vacuum import VacuumReport, vacuum
from kafka_s3_platform.archive.verify import Damage, verify_archive, verify_hours
from kafka_s3_platform.defs.checks import ERROR, MAX_ROWS, WARN, specs
from kafka_s3_platform.defs.failures import dagster_failures
from kafka_s3_platform.defs.metadata import table
from kafka_s3_platform.defs.resources import SparkResource
from kafka_s3_platform.defs.runs import windows_of
from kafka_s3_platform.defs.topic import ArchivedTopic
from kafka_s3_platform.model.state import HOUR
from kafka_s3_platform.store.objects import ObjectStore

OBJECT_CHECKS = {
    "checksums": "Every object is there, with size and etag as in the index. After a run: those of its hours.",
    "orphans": "No object or unfinished upload of ours, older than a day, is left that the index does not hold.",
}
ORPHAN_AGE = timedelta(days=1)


def object_checks(topic: ArchivedTopic) -> dg.AssetChecksDefinition:
    """Whether the objects are as the index says."""

    @dg.multi_asset_check(
        name=topic.op_name("check", "objects"), specs=specs(topic.key("hourly"), OBJECT_CHECKS), can_subset=True
    )
    def objects(
        context: dg.AssetCheckExecutionContext, spark: dg.ResourceParam[SparkResource]
    ) -> Iterator[dg.AssetCheckResult]:
        names = {key.name for key in context.selected_asset_check_keys}
        with dagster_failures(context):
            if "checksums" in names:
                yield _checksums(topic, _damages(topic, _hours(context, topic), spark))
            if "orphans" in names:
                yield _orphans(topic, vacuum(topic.config, topic.topic, context.run.run_id, ORPHAN_AGE, dry_run=True))

    return objects


def _hours(context: dg.AssetCheckExecutionContext, topic: ArchivedTopic) -> list[datetime]:
    """The hours of the run, none where it has none."""
    windows = windows_of([context.run], topic.hours)
    return [start + n * HOUR for start, end in windows for n in range(int((end - start) // HOUR))]


def _damages(topic: ArchivedTopic, hours: Sequence[datetime], spark: SparkResource) -> Sequence[Damage]:
    snapshot = topic.index.peek() if hours else None
    if snapshot is not None:
        return verify_hours(snapshot, ObjectStore(topic.config.store), set(hours))
    with spark.runner() as runner:
        return verify_archive(topic.config, topic.topic, deep=False, runner=runner).damages


def _checksums(topic: ArchivedTopic, damages: Sequence[Damage]) -> dg.AssetCheckResult:
    columns = ["kafka_partition", "key", "message"]
    rows = [{name: getattr(d, name) for name in columns} for d in damages[:MAX_ROWS]]
    return dg.AssetCheckResult(
        passed=not damages,
        check_name="checksums",
        asset_key=topic.key("hourly"),
        severity=ERROR,
        metadata={"count": len(damages), "found": table(rows, columns)},
    )


def _orphans(topic: ArchivedTopic, report: VacuumReport) -> dg.AssetCheckResult:
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
            "found": table([{"key": key} for key in found[:MAX_ROWS]], ["key"]),
        },
    )
