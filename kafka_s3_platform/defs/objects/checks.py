"""The check of other writers' objects: each can be read to its end."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import dagster as dg
from pydantic import Field

from kafka_s3_platform.config.settings import SourceSettings
from kafka_s3_platform.defs.archive.checks import ERROR, MAX_ROWS, WARN
from kafka_s3_platform.defs.failures import raise_dagster_failures
from kafka_s3_platform.defs.metadata import make_metadata_table
from kafka_s3_platform.defs.resources import SparkResource
from kafka_s3_platform.defs.restore.values import read_time
from kafka_s3_platform.defs.run_config import make_plain_schema, read_config
from kafka_s3_platform.defs.topic import TopicAssets, check_each, make_topic_checks, pick_topics
from kafka_s3_platform.errors import ConfigError
from kafka_s3_platform.instance.names import make_op_name
from kafka_s3_platform.model.times import EPOCH, ONE_MS

if TYPE_CHECKING:
    from kafka_s3_platform.sources.readable import ReadableReport

READABLE_CHECK = "readable"

_COLUMNS = ("kafka_partition", "objects", "object_bytes", "records", "first_offset", "last_offset", "gaps", "bad")


class ReadConfig(dg.Config):
    """Objects to read. Default: time folders of the look-back, and all folders without a time."""

    from_time: str | None = Field(
        default=None,
        description="Read objects whose folder may hold records of this time or later. ISO 8601; without a UTC offset, "
        "in the connector's timezone.",
    )
    to_time: str | None = Field(
        default=None, description="Read objects whose folder may hold records before this time. Same format."
    )
    everything: bool = Field(default=False, description="Read all objects.")


def make_readable_checks(topics: Sequence[TopicAssets]) -> dg.AssetChecksDefinition:
    """Make the check of each topic's objects. One op evaluates the picked ones."""
    connector = topics[0].config

    def readable(
        context: dg.AssetCheckExecutionContext, spark: dg.ResourceParam[SparkResource]
    ) -> Iterator[dg.AssetCheckResult]:
        # not needed to load definitions
        from kafka_s3_platform.sources.readable import read_objects

        with raise_dagster_failures(context):
            start, end = _find_window(topics[0], read_config(context, ReadConfig))
            window = ((start - EPOCH) // ONE_MS, (end - EPOCH) // ONE_MS) if start and end else None

            def check(topic: TopicAssets) -> dg.AssetCheckResult:
                report = read_objects(topic.config, topic.topic, window, spark.make_runner())
                return _make_result(topic, report, start, end)

            yield from check_each(pick_topics(context, topics, "objects"), check)

    return make_topic_checks(
        readable,
        name=name_readable_op(connector.name),
        checks=[_make_spec(topic) for topic in topics],
        config_schema=make_plain_schema(ReadConfig),
    )


def name_readable_op(connector: str) -> str:
    """Return the name of the op of a connector's checks."""
    return make_op_name("check", "readable", connector)


def _make_spec(topic: TopicAssets) -> dg.AssetCheckSpec:
    op = name_readable_op(topic.config.name)
    return dg.AssetCheckSpec(
        READABLE_CHECK,
        asset=topic.key("objects"),
        description="Each object is read to its end, as a restore reads it. Every record decodes, there are as many "
        "keys and headers as values, and no offset comes twice. If all objects are in one folder, none is missing "
        "between two of them, by their names and numbers of records. Nothing proves that the objects are as they were "
        "written. By default, objects in time folders of the look-back are read, and all in folders without a time. "
        f"A config chooses others:\n\n```yaml\nops:\n  {op}:\n    config:\n      everything: true\n```",
    )


def _find_window(topic: TopicAssets, config: ReadConfig) -> tuple[datetime | None, datetime | None]:
    """Return the window to read, None and None for everything."""
    if config.everything and (config.from_time or config.to_time):
        raise ConfigError("everything, and from_time or to_time: set only one of both")
    if config.everything:
        return None, None
    source = topic.config.source or SourceSettings()
    now = datetime.now(timezone.utc)
    zone = ZoneInfo(topic.config.layout.timezone)
    end = read_time("to_time", config.to_time, zone) if config.to_time else now + timedelta(days=1)
    if config.from_time:
        return read_time("from_time", config.from_time, zone), end
    if config.to_time:
        return EPOCH, end
    return now - source.look_back_ms * ONE_MS, end


def _make_result(
    topic: TopicAssets, report: "ReadableReport", start: datetime | None, end: datetime | None
) -> dg.AssetCheckResult:
    gap_count = sum(group.gap_count for group in report.groups)
    problems = [
        *([f"There is no object to read: {report.searched}."] if not report.object_count else []),
        *([f"{report.bad_count:,} object(s) or record(s) cannot be read."] if report.bad_count else []),
        *([f"Offsets between objects are in none, {gap_count:,} time(s)."] if gap_count else []),
    ]
    rows = [
        {
            "kafka_partition": group.kafka_partition,
            "objects": group.object_count,
            "object_bytes": group.object_bytes,
            "records": group.record_count,
            "first_offset": group.first_offset,
            "last_offset": group.last_offset,
            "gaps": group.gap_count,
            "bad": group.bad_count,
        }
        for group in report.groups
    ]
    lines = {"bad": report.bad, "gaps": [line for group in report.groups for line in group.gaps]}
    return dg.AssetCheckResult(
        passed=not problems,
        check_name=READABLE_CHECK,
        asset_key=topic.key("objects"),
        severity=ERROR if report.bad_count else WARN,
        description=" ".join(problems) or None,
        metadata={
            "objects": report.object_count,
            "object_bytes": sum(group.object_bytes for group in report.groups),
            "records": sum(group.record_count for group in report.groups),
            "records_without_proven_offset": sum(group.position_count for group in report.groups),
            "bad": report.bad_count,
            "gaps": gap_count,
            "read": f"folders of {start:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M %Z}" if start and end else "everything",
            "kafka_partitions": make_metadata_table(rows, _COLUMNS),
            **{
                f"all_{name}": make_metadata_table([{"what": line} for line in texts[:MAX_ROWS]], ["what"])
                for name, texts in lines.items()
                if texts
            },
        },
    )
