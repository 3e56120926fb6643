"""Asset checks of the objects in S3."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import dagster as dg

from kafka_s3_platform.core.defs.archive.checks import ERROR, MAX_ROWS, WARN
from kafka_s3_platform.core.defs.failures import raise_dagster_failures
from kafka_s3_platform.core.defs.metadata import make_metadata_table
from kafka_s3_platform.core.defs.resources import SparkResource
from kafka_s3_platform.core.defs.runs import list_windows
from kafka_s3_platform.core.defs.topic import TopicAssets, check_each, make_topic_checks, pick_topics
from kafka_s3_platform.core.instance.names import make_op_name
from kafka_s3_platform.core.model.times import HOUR
from kafka_s3_platform.core.text import count_noun

if TYPE_CHECKING:
    from kafka_s3_platform.core.upkeep.verify import Damage

CHECK = "objects"
ORPHAN_AGE = timedelta(days=1)


def make_object_checks(topics: Sequence[TopicAssets]) -> dg.AssetChecksDefinition:
    """Make a check for each topic that its objects are as the index records them. One op evaluates all the checks."""
    connector = topics[0].config

    def objects(
        context: dg.AssetCheckExecutionContext, spark: dg.ResourceParam[SparkResource]
    ) -> Iterator[dg.AssetCheckResult]:
        with raise_dagster_failures(context):
            yield from check_each(
                pick_topics(context, topics, "hourly"), lambda topic: _check_objects(context, topic, spark)
            )

    return make_topic_checks(
        objects, name=make_op_name("check", "objects", connector.name), checks=[_make_spec(topic) for topic in topics]
    )


def _make_spec(topic: TopicAssets) -> dg.AssetCheckSpec:
    """Define the check `objects` of a topic."""
    return dg.AssetCheckSpec(
        CHECK,
        asset=topic.key("hourly"),
        description="Every object exists, with the size and ETag that the index records; after a run, only the objects "
        "of its hours are checked. No object or unfinished upload of this platform is older than a day and unknown to "
        "the index (an orphan).",
    )


def _check_objects(
    context: dg.AssetCheckExecutionContext, topic: TopicAssets, spark: SparkResource
) -> dg.AssetCheckResult:
    """Compare a topic's objects in S3 with the index. Damage is an error, an object unknown to the index a warning."""
    # not needed to load definitions
    from kafka_s3_platform.core.upkeep.vacuum import vacuum_topic

    damages = _find_damages(topic, _find_hours(context, topic), spark)
    report = vacuum_topic(topic.config, topic.topic, context.run.run_id, ORPHAN_AGE, dry_run=True)
    orphans = [*report.removed, *report.aborted_uploads]
    sentences = [
        *([f"Not as the index records them: {count_noun(len(damages), 'object')}."] if damages else []),
        *([f"Unknown to the index: {count_noun(len(orphans), 'object or unfinished upload')}."] if orphans else []),
    ]
    columns = ["kafka_partition", "key", "message"]
    rows = [{name: getattr(d, name) for name in columns} for d in damages[:MAX_ROWS]]
    return dg.AssetCheckResult(
        passed=not damages and not orphans,
        check_name=CHECK,
        asset_key=topic.key("hourly"),
        severity=ERROR if damages else WARN,
        description=" ".join(sentences) or None,
        metadata={
            "damages": len(damages),
            "damaged_objects": make_metadata_table(rows, columns),
            "orphans": len(orphans),
            "orphan_bytes": report.removed_bytes,
            "unfinished_uploads": len(report.aborted_uploads),
            "foreign_objects": len(report.foreign),
            "found_orphans": make_metadata_table([{"key": key} for key in orphans[:MAX_ROWS]], ["key"]),
        },
    )


def _find_hours(context: dg.AssetCheckExecutionContext, topic: TopicAssets) -> list[datetime]:
    """Return the starts of the run's hours, or none if the run is for the whole archive."""
    windows = list_windows([context.run], topic.hours)
    hours: list[datetime] = []
    for start, end in windows:
        hours += [start + n * HOUR for n in range(int((end - start) // HOUR))]
    return hours


def _find_damages(topic: TopicAssets, hours: Sequence[datetime], spark: SparkResource) -> "Sequence[Damage]":
    """Return the damages found in the objects of these hours, or in all objects if there are no hours."""
    from kafka_s3_platform.core.store.objects import ObjectStore
    from kafka_s3_platform.core.upkeep.verify import verify_archive, verify_hours

    snapshot = topic.index.peek() if hours else None
    if snapshot is not None:
        return verify_hours(snapshot, ObjectStore(topic.config.store), set(hours))
    return verify_archive(topic.config, topic.topic, deep=False, runner=spark.make_runner()).damages
