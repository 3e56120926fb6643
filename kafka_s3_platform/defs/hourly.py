"""The hourly chunks of a topic."""

from collections.abc import Sequence

import dagster as dg
from pydantic import Field

from kafka_s3_platform.archive.request import ArchiveReport, ArchiveRequest
from kafka_s3_platform.archive.run import archive
from kafka_s3_platform.defs.failures import dagster_failures
from kafka_s3_platform.defs.metadata import hour_metadata, totals_metadata
from kafka_s3_platform.defs.resources import SparkResource
from kafka_s3_platform.defs.topic import ArchivedTopic


class ArchiveConfig(dg.Config):
    """How the hours are archived."""

    until_now: bool = Field(
        default=False,
        description="Also archive everything else that is readable now, whatever its hour. A run without partitions "
        "does only that.",
    )


def hourly_asset(topic: ArchivedTopic) -> dg.AssetsDefinition:
    """`<connector>/hourly/<topic>`. Picked hours are archived in one run; without any, all up to now."""
    spec = dg.AssetSpec(
        topic.key("hourly"),
        deps=[topic.kafka_key],
        group_name="hourly",
        kinds=topic.kinds,
        partitions_def=topic.hours.definition,
        description=f"Records of topic `{topic.topic}` by the hour of their timestamp, each offset exactly once.",
        metadata={"dagster/uri": f"s3://{topic.config.store.bucket}/{topic.config.layout.topics_dir}/{topic.topic}"},
    )

    @dg.multi_asset(
        name=topic.op_name("hourly"), specs=[spec], backfill_policy=dg.BackfillPolicy.single_run(), pool=topic.name
    )
    def hourly(
        context: dg.AssetExecutionContext, config: ArchiveConfig, spark: SparkResource
    ) -> dg.MaterializeResult[None]:
        keys = list(context.partition_keys) if context.has_partition_key or context.has_partition_key_range else []
        with dagster_failures(context), spark.runner() as runner:
            if config.until_now or not keys:
                report = archive(ArchiveRequest(topic.config, topic.topic, context.run.run_id, None), runner)
                report_hours(context, topic, report, keys)
            if not keys:
                return dg.MaterializeResult(metadata=totals_metadata(report, can_drop=topic.can_drop))
            hours = tuple(topic.hours.start(key) for key in keys)
            report = archive(ArchiveRequest(topic.config, topic.topic, context.run.run_id, hours), runner)
            report_hours(context, topic, report, keys)
        return dg.MaterializeResult()

    return hourly


def report_hours(
    context: dg.AssetExecutionContext, topic: ArchivedTopic, report: ArchiveReport, keys: Sequence[str]
) -> None:
    """Each hour's own facts: on the event that Dagster makes for each of `keys`, on one of its own for the others."""
    for hour in report.hours:
        if hour.hour < topic.hours.first:
            continue
        key = topic.hours.key(hour.hour)
        metadata = hour_metadata(hour, report, topic.config.store.bucket, can_drop=topic.can_drop)
        if key in keys:
            context.add_asset_metadata(metadata, partition_key=key)
        elif hour.scanned or hour.complete:
            event = dg.AssetMaterialization(topic.key("hourly"), partition=key, metadata=metadata)
            context.log_event(event)
