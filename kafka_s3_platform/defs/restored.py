"""Chunks of a topic replayed to a topic."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from zoneinfo import ZoneInfo

import dagster as dg
from dagster._core.storage.tags import BACKFILL_ID_TAG
from pydantic import Field

from kafka_s3_platform.defs.failures import dagster_failures
from kafka_s3_platform.defs.metadata import Metadata, table
from kafka_s3_platform.defs.resources import SparkResource
from kafka_s3_platform.defs.topic import ArchivedTopic
from kafka_s3_platform.errors import ConfigError, PreflightError
from kafka_s3_platform.restore.request import RestoreReport, RestoreRequest
from kafka_s3_platform.restore.run import restore


class RestoreConfig(dg.Config):
    """What is restored, and where to. Times, or `everything`, win over the hours picked."""

    to_topic: str = Field(description="The topic to write to.")
    create_topic: bool = Field(
        default=False, description="Create the topic, with as many kafka partitions as the source has, if it is absent."
    )
    dry_run: bool = Field(default=False, description="Plan and check, and say what would be done; write nothing.")
    everything: bool = Field(
        default=False,
        description="Restore all that is archived, timestamps before and after any hour included. Dagster still wants "
        "an hour to be picked: the newest is as good as any.",
    )
    from_time: str | None = Field(
        default=None,
        description="Restore records with this timestamp or a later one: ISO 8601; without an offset, in the "
        "connector's timezone.",
    )
    to_time: str | None = Field(default=None, description="Restore records with an earlier timestamp than this.")
    from_offset: Mapping[str, int] = Field(
        default_factory=dict, description="First offset to restore, by kafka partition; `all` stands for every one."
    )
    to_offset: Mapping[str, int] = Field(
        default_factory=dict, description="Offset to stop before, by kafka partition; `all` stands for every one."
    )
    kafka_partitions: list[int] = Field(default_factory=list, description="Only these kafka partitions; none: all.")
    restore_id: str | None = Field(
        default=None,
        description="Run again under the same id, a restore goes on where it ended. Default: the id of the run, or of "
        "the run that this one re-executes.",
    )
    allow_source_topic: bool = Field(
        default=False, description="Allow the archived topic itself as target. Its archive will hold the records twice."
    )
    allow_unsendable_timestamps: bool = Field(
        default=False, description="Allow that timestamps which the client cannot send become the time of sending."
    )
    records_per_second: float | None = Field(default=None, gt=0, description="The most records sent in a second.")
    bytes_per_second: float | None = Field(default=None, gt=0, description="The most bytes sent in a second.")


def restored_asset(topic: ArchivedTopic) -> dg.AssetsDefinition:
    """`<connector>/restored/<topic>`: a contiguous range of hours, or a window in the config, in one run."""
    spec = dg.AssetSpec(
        topic.key("restored"),
        deps=[topic.key("hourly"), topic.key("daily")],
        group_name="restored",
        kinds={"kafka", "spark"},
        partitions_def=topic.hours.definition,
        description=f"Archived records of topic `{topic.topic}`, replayed to another topic as they were.",
        skippable=True,
    )

    @dg.multi_asset(
        name=topic.op_name("restored"),
        specs=[spec],
        backfill_policy=dg.BackfillPolicy.single_run(),
        pool=f"{topic.name}/restore",
    )
    def restored(
        context: dg.AssetExecutionContext, config: RestoreConfig, spark: SparkResource
    ) -> Iterator[dg.AssetObservation | dg.MaterializeResult[None]]:
        with dagster_failures(context), spark.runner() as runner:
            report = restore(restore_request(context, topic, config), runner)
        metadata = restore_metadata(report, topic.config.store.bucket)
        if report.dry_run:
            yield dg.AssetObservation(topic.key("restored"), metadata=metadata)
        else:
            yield dg.MaterializeResult(metadata=metadata)

    return restored


def restore_request(context: dg.AssetExecutionContext, topic: ArchivedTopic, config: RestoreConfig) -> RestoreRequest:
    """The request that a run's config and hours make. PreflightError when Dagster cut the hours into several runs."""
    from_time, to_time = _window(context, topic, config)
    return RestoreRequest(
        config=topic.config,
        topic=topic.topic,
        to_topic=config.to_topic,
        restore_id=config.restore_id or context.run.root_run_id or context.run.run_id,
        run_id=context.run.run_id,
        from_time=from_time,
        to_time=to_time,
        from_offset=_offsets("from_offset", config.from_offset),
        to_offset=_offsets("to_offset", config.to_offset),
        kafka_partitions=tuple(config.kafka_partitions) or None,
        create_topic=config.create_topic,
        dry_run=config.dry_run,
        allow_source_topic=config.allow_source_topic,
        allow_unsendable_timestamps=config.allow_unsendable_timestamps,
        records_per_second=config.records_per_second,
        bytes_per_second=config.bytes_per_second,
    )


def restore_metadata(report: RestoreReport, bucket: str) -> Metadata:
    """What was restored, by kafka partition with its offsets at the source and at the target."""
    columns = [
        "kafka_partition",
        "record_count",
        "record_bytes",
        "first_source_offset",
        "last_source_offset",
        "first_target_offset",
        "last_target_offset",
        "foreign_count",
        "mapping_key",
    ]
    rows = [{name: getattr(p, name) for name in columns} for p in report.kafka_partitions]
    return {
        "to_topic": dg.MetadataValue.text(report.to_topic),
        "restore_id": dg.MetadataValue.text(report.restore_id),
        "records": dg.MetadataValue.int(report.record_count),
        "record_bytes": dg.MetadataValue.int(report.record_bytes),
        "sent_records": dg.MetadataValue.int(report.sent_count),
        "out_of_range_records": dg.MetadataValue.int(report.out_of_range_count),
        "objects": dg.MetadataValue.int(report.object_count),
        "object_bytes": dg.MetadataValue.int(report.object_bytes),
        "foreign_records": dg.MetadataValue.int(report.foreign_count),
        "exact": dg.MetadataValue.bool(report.exact),
        "verified": dg.MetadataValue.bool(report.verified),
        "dry_run": dg.MetadataValue.bool(report.dry_run),
        "already_finished": dg.MetadataValue.bool(report.already_finished),
        "replay_seconds": dg.MetadataValue.float(report.replay_seconds),
        "verify_seconds": dg.MetadataValue.float(report.verify_seconds),
        "estimated_seconds": dg.MetadataValue.float(report.estimated_seconds),
        "records_per_second": dg.MetadataValue.float(report.records_per_second),
        "gaps": dg.MetadataValue.json(list(report.gaps)),
        "notes": dg.MetadataValue.json(list(report.notes)),
        "refusals": dg.MetadataValue.json(list(report.refusals)),
        "plan": dg.MetadataValue.text(f"s3://{bucket}/{report.plan_key}"),
        "kafka_partitions": table(rows, columns),
    }


def _window(
    context: dg.AssetExecutionContext, topic: ArchivedTopic, config: RestoreConfig
) -> tuple[datetime | None, datetime | None]:
    zone = ZoneInfo(topic.config.layout.timezone)
    if config.from_time or config.to_time:
        return _time("from_time", config.from_time, zone), _time("to_time", config.to_time, zone)
    if config.everything:
        return None, None
    _refuse_split(context, topic)
    first, last = context.partition_key_range
    return topic.hours.start(first), topic.hours.end(last)


def _refuse_split(context: dg.AssetExecutionContext, topic: ArchivedTopic) -> None:
    """Dagster gives each contiguous part of a selection a run of its own: none of them knows the whole."""
    backfill_id = context.run.tags.get(BACKFILL_ID_TAG)
    backfill = context.instance.get_backfill(backfill_id) if backfill_id else None
    if backfill is None or backfill.asset_backfill_data is None:
        return
    asked = backfill.asset_backfill_data.get_target_partitions_subset(topic.key("restored"))
    picked = sorted(asked.get_partition_keys(), key=topic.hours.start)
    if len(picked) == len(context.partition_keys):
        return
    first, last = topic.hours.start(picked[0]).isoformat(), topic.hours.end(picked[-1]).isoformat()
    raise PreflightError(
        f"topic {topic.topic}: {len(picked)} hours were picked that do not follow each other, and a restore has one "
        f"window. Launch one restore for each run of hours, or pick any one hour and set `from_time: '{first}'` and "
        f"`to_time: '{last}'` in the config to restore also what lies between"
    )


def _time(name: str, text: str | None, zone: ZoneInfo) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError as err:
        raise ConfigError(f"{name} {text!r} is no ISO 8601 time, such as 2013-01-31T15:00; correct it") from err
    return moment if moment.tzinfo else moment.replace(tzinfo=zone)


def _offsets(name: str, given: Mapping[str, int]) -> int | dict[int, int] | None:
    if not given:
        return None
    if set(given) == {"all"}:
        return given["all"]
    if not all(p.isdecimal() for p in given):
        raise ConfigError(f"{name} {dict(given)}: name kafka partitions by number, or all of them by `all` alone")
    return {int(p): offset for p, offset in given.items()}
