"""The hourly chunks of a topic."""

from collections.abc import Iterator, Sequence

import dagster as dg
from pydantic import Field

from kafka_s3_platform.archive.request import ArchiveReport, ArchiveRequest
from kafka_s3_platform.archive.run import archive_topic
from kafka_s3_platform.defs.archive.checks import make_hourly_evaluations
from kafka_s3_platform.defs.failures import raise_dagster_failures
from kafka_s3_platform.defs.metadata import make_hour_metadata, make_totals_metadata
from kafka_s3_platform.defs.resources import SparkResource
from kafka_s3_platform.defs.run_config import make_plain_schema, read_config
from kafka_s3_platform.defs.topic import ArchivedTopic


class ArchiveConfig(dg.Config):
    """How the hours are archived."""

    until_now: bool = Field(
        default=False,
        description="Also archive everything else that is readable now, whatever its hour. A run for which no hour is "
        "picked does only this.",
    )


def make_hourly_asset(topic: ArchivedTopic) -> dg.AssetsDefinition:
    """`<connector>/hourly/<topic>`. Picked hours are archived in one run; without any, all up to now."""
    spec = dg.AssetSpec(
        topic.key("hourly"),
        deps=[topic.kafka_key],
        group_name="hourly",
        kinds=topic.kinds,
        partitions_def=topic.hours.definition,
        description=f"Records of topic `{topic.topic}` by the hour of their timestamp. Each offset is archived exactly "
        "once.",
        metadata={"dagster/uri": f"s3://{topic.config.store.bucket}/{topic.config.layout.topics_dir}/{topic.topic}"},
    )

    @dg.multi_asset(
        name=topic.op_name("hourly"),
        specs=[spec],
        config_schema=make_plain_schema(ArchiveConfig),
        backfill_policy=dg.BackfillPolicy.single_run(),
        pool=topic.name,
    )
    def hourly(
        context: dg.AssetExecutionContext, spark: dg.ResourceParam[SparkResource]
    ) -> Iterator[dg.AssetMaterialization | dg.AssetCheckEvaluation | dg.MaterializeResult[None]]:
        keys = list(context.partition_keys) if context.has_partition_key or context.has_partition_key_range else []
        with raise_dagster_failures(context), spark.runner() as runner:
            topic.hours.check(keys)
            if read_config(context, ArchiveConfig).until_now or not keys:
                report = archive_topic(ArchiveRequest(topic.config, topic.topic, context.run.run_id, None), runner)
                yield from make_hour_events(context, topic, report, keys)
                yield from _make_failed_checks(topic, report)
                report.raise_failure()
            if not keys:
                yield dg.MaterializeResult(metadata=make_totals_metadata(report, can_drop=topic.can_drop))
                return
            hours = tuple(topic.hours.start(key) for key in keys)
            report = archive_topic(ArchiveRequest(topic.config, topic.topic, context.run.run_id, hours), runner)
            yield from make_hour_events(context, topic, report, keys)
            yield from _make_failed_checks(topic, report)
            report.raise_failure()
        yield dg.MaterializeResult()

    return hourly


def _make_failed_checks(topic: ArchivedTopic, report: ArchiveReport) -> Iterator[dg.AssetCheckEvaluation]:
    if report.failure is not None:
        yield from make_hourly_evaluations(topic)


def make_hour_events(
    context: dg.AssetExecutionContext, topic: ArchivedTopic, report: ArchiveReport, keys: Sequence[str]
) -> Iterator[dg.AssetMaterialization]:
    """Make each hour's own facts: on Dagster's event for an hour of `keys`, on an event of its own for others.

    Dagster makes no event for a run that fails. So events of its own report what such a run has archived. They are
    yielded, since logged events are lost with the error.
    """
    for hour in report.hours:
        if hour.hour < topic.hours.first:
            continue
        key = topic.hours.key(hour.hour)
        metadata = make_hour_metadata(hour, report, topic.config.store.bucket, can_drop=topic.can_drop)
        if key in keys and report.failure is None:
            context.add_asset_metadata(metadata, partition_key=key)
        elif hour.scanned or hour.complete or hour.segments:
            yield dg.AssetMaterialization(topic.key("hourly"), partition=key, metadata=metadata)
