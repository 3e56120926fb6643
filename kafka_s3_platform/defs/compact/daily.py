"""The daily chunks of a topic."""

from collections.abc import Iterator, Mapping
from datetime import date

import dagster as dg

from kafka_s3_platform.defs.failures import raise_dagster_failures
from kafka_s3_platform.defs.metadata import Metadata, make_kafka_partitions_table, make_segments_metadata
from kafka_s3_platform.defs.resources import SparkResource
from kafka_s3_platform.defs.topic import ArchivedTopic
from kafka_s3_platform.errors import ClockError, PermanentError
from kafka_s3_platform.upkeep.compact.request import CompactReport, CompactRequest
from kafka_s3_platform.upkeep.compact.run import compact_day


def make_daily_asset(topic: ArchivedTopic) -> dg.AssetsDefinition:
    """`<connector>/daily/<topic>`. The days picked are compacted one after the other in one run.

    One that fails for good leaves the others merged; the run fails then, after all of them.
    """
    spec = dg.AssetSpec(
        topic.key("daily"),
        deps=[topic.key("hourly")],
        group_name="daily",
        kinds=topic.kinds,
        partitions_def=topic.days.definition,
        description=f"The hourly segments of topic `{topic.topic}`, merged by day into larger ones, in offset order.",
        metadata={"dagster/uri": f"s3://{topic.config.store.bucket}/{topic.config.layout.daily_dir}/{topic.topic}"},
    )

    @dg.multi_asset(
        name=topic.op_name("daily"), specs=[spec], backfill_policy=dg.BackfillPolicy.single_run(), pool=topic.name
    )
    def daily(
        context: dg.AssetExecutionContext, spark: dg.ResourceParam[SparkResource]
    ) -> Iterator[dg.AssetMaterialization | dg.MaterializeResult[None]]:
        merged: dict[str, Metadata] = {}
        failures: dict[str, PermanentError] = {}
        with raise_dagster_failures(context), spark.runner() as runner:
            for key in context.partition_keys:
                day = date.fromisoformat(key)
                try:
                    report = compact_day(CompactRequest(topic.config, topic.topic, day, context.run.run_id), runner)
                    merged[key] = make_day_metadata(report, topic.config.store.bucket)
                except PermanentError as err:
                    failures[key] = err
            if failures:
                # Dagster makes no event for a run that fails, and what is only logged is lost with the error
                for key, metadata in merged.items():
                    yield dg.AssetMaterialization(topic.key("daily"), partition=key, metadata=metadata)
                raise _make_failure(failures)
        for key, metadata in merged.items():
            context.add_asset_metadata(metadata, partition_key=key)
        yield dg.MaterializeResult()

    return daily


def _make_failure(failures: Mapping[str, PermanentError]) -> PermanentError:
    """Return the only error, or one error that names them all. A wrong clock fails every day."""
    first = next(iter(failures.values()))
    if len(failures) == 1 or isinstance(first, ClockError):
        return first
    return PermanentError("\n".join(f"{key}: {err}" for key, err in failures.items()))


def make_day_metadata(report: CompactReport, bucket: str) -> Metadata:
    """Make the metadata of one day. `merged_objects` and `run_records_per_second` are about what this run merged."""
    rate = report.record_count / report.seconds if report.seconds else 0.0
    return {
        **make_segments_metadata(report.day.segments, bucket),
        "hourly_objects_left": dg.MetadataValue.int(report.day.hourly_count),
        "hourly_objects_of_values_only": dg.MetadataValue.int(len(report.day.unmergeable)),
        "merged_objects": dg.MetadataValue.int(len(report.merged)),
        "run_records_per_second": dg.MetadataValue.float(rate),
        "index_version": dg.MetadataValue.int(report.version),
        "kafka_partitions": make_kafka_partitions_table(report.day.segments),
    }
