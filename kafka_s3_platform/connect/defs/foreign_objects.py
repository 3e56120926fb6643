"""Other writers' objects as external assets, the sensor that counts them, and the check that reads each to its end."""

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import dagster as dg
import msgspec
from pydantic import Field

from kafka_s3_platform.connect.defs.restore.foreign import EVERY_TOPIC, make_foreign_key
from kafka_s3_platform.connect.sources.inventory import (
    MAX_TAILS,
    MAX_TOPICS,
    Inventory,
    InventoryState,
    TopicInventory,
    WalkedTopic,
)
from kafka_s3_platform.core.config.formats import find_format
from kafka_s3_platform.core.config.settings import ConnectorConfig, SourceSettings
from kafka_s3_platform.core.defs.archive.checks import ERROR, MAX_ROWS, WARN
from kafka_s3_platform.core.defs.failures import raise_dagster_failures
from kafka_s3_platform.core.defs.metadata import Metadata, make_metadata_table
from kafka_s3_platform.core.defs.resources import SparkResource
from kafka_s3_platform.core.defs.restore.form import make_form_link
from kafka_s3_platform.core.defs.restore.values import read_time
from kafka_s3_platform.core.defs.run_config import make_plain_schema, read_config
from kafka_s3_platform.core.defs.tick import Tick
from kafka_s3_platform.core.defs.topic import TopicAssets, check_each, make_topic_checks, pick_topics
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.instance.names import make_op_name
from kafka_s3_platform.core.instance.reload import reload_code_location
from kafka_s3_platform.core.model.times import EPOCH, ONE_MS
from kafka_s3_platform.core.status.discovery import find_topics_folder, remember_listed_topics
from kafka_s3_platform.core.text import count_noun

if TYPE_CHECKING:
    from kafka_s3_platform.connect.sources.readable import ReadableReport

READABLE_CHECK = "readable"

_COLUMNS = ("kafka_partition", "objects", "object_bytes", "records", "first_offset", "last_offset", "gaps", "bad")


class ReadConfig(dg.Config):
    """The objects to read. By default they are in time folders of the look-back, and in all folders without a time."""

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
    """Make the check of each topic's objects. One op evaluates all picked checks."""
    connector = topics[0].config

    def readable(
        context: dg.AssetCheckExecutionContext, spark: dg.ResourceParam[SparkResource]
    ) -> Iterator[dg.AssetCheckResult]:
        # not needed to load definitions
        from kafka_s3_platform.connect.sources.readable import read_objects

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
        checks=[_make_check_spec(topic) for topic in topics],
        config_schema=make_plain_schema(ReadConfig),
    )


def name_readable_op(connector: str) -> str:
    """Return the name of the op for a connector's checks."""
    return make_op_name("check", "readable", connector)


def _make_check_spec(topic: TopicAssets) -> dg.AssetCheckSpec:
    """Describe the check that reads a topic's objects."""
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
    """Return the start and end of the window to read, or two Nones to read everything."""
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
    """Make the result of the check from the report on the objects read from `start` to `end`."""
    gap_count = sum(group.gap_count for group in report.groups)
    problems = [
        *([f"There is no object to read: {report.searched}."] if not report.object_count else []),
        *([f"{count_noun(report.bad_count, 'object or record')} cannot be read."] if report.bad_count else []),
        *([f"Offsets between objects are in none: {count_noun(gap_count, 'gap')}."] if gap_count else []),
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


INTERVAL_SECONDS = 300
STATE = "/objects"
"""The name under which the cursor holds the inventory."""

MAX_FOLDERS = 100
"""The most rows in an observation's table of the newest folders."""


def make_objects_specs(config: ConnectorConfig, topics: Iterable[str]) -> list[dg.AssetSpec]:
    """Make the asset `<connector>/objects/<topic>` for each topic of a source connector."""
    return [_make_spec(TopicAssets(config, topic)) for topic in topics]


def _make_spec(topic: TopicAssets) -> dg.AssetSpec:
    """Describe the asset of a topic's objects."""
    layout = topic.config.layout
    return topic.make_spec(
        "objects",
        kinds={"s3", *find_format(layout.format).kinds(layout.codec)},
        description=f"Objects of topic `{topic.topic}` in `s3://{topic.config.store.bucket}`, which others wrote. The "
        "folder sensor counts them, and observes changes. Its observations link to the form of a restore, filled with "
        "the newest folder.",
    )


def make_objects_sensor(
    config: ConnectorConfig, topics: Sequence[str], status: dg.DefaultSensorStatus
) -> dg.SensorDefinition:
    """Make the folder sensor of a source connector with assets for `topics`. The sensor requests no runs."""
    every = TopicAssets(config, EVERY_TOPIC)

    @dg.sensor(
        name=make_op_name("folders", config.name),
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=status,
        description=f"Finds new folders and objects that others wrote, by the file of connector {config.name}, and "
        "counts them.",
    )
    def folders(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        tick = Tick(json.loads(context.cursor or "{}"), context.log)
        state = _read_state(tick)
        try:
            tick.evaluate_each(
                "bucket", [every], lambda _: _update_inventory(config, state, tick, _find_place(context))
            )
        finally:
            tick.cursor[STATE] = msgspec.to_builtins(state)
        tick.reasons += _describe_progress(config, state)
        if new := sorted(state.topics.keys() - set(topics)):
            tick.warn(f"new topics: {', '.join(new)}; {_define_new(context, config, state)}")
        return tick.result()

    return folders


def _define_new(context: dg.SensorEvaluationContext, config: ConnectorConfig, state: InventoryState) -> str:
    """Have assets defined for new topics. Return a sentence about the next step."""
    try:
        remember_listed_topics(config, state.topics, find_topics_folder())
    except OSError as err:
        # The counts must not be lost with it.
        return f"they get no asset, since they cannot be remembered: {err}. Name them in the connector's file (topics)"
    return reload_code_location(context)


def _read_state(tick: Tick) -> InventoryState:
    """Read the counts in the cursor. If there are no valid ones, start from zero and warn."""
    try:
        return msgspec.convert(tick.cursor.get(STATE, {}), InventoryState)
    except msgspec.ValidationError as err:
        tick.warn(f"the cursor holds no valid counts, so the objects are counted anew: {err}")
        return InventoryState()


def _update_inventory(config: ConnectorConfig, state: InventoryState, tick: Tick, place: str | None) -> None:
    """Continue the count. Add an observation of each changed topic to the tick."""
    inventory = Inventory(config, state, tick.read_store, tick.is_over)
    try:
        inventory.update()
    finally:
        tick.log.info("%s requests to list s3://%s", inventory.requests, config.store.bucket)
        if state.is_walked:
            tick.observations += _observe_news(config, state, inventory.walked, place)


def _observe_news(
    config: ConnectorConfig, state: InventoryState, walked: dict[str, WalkedTopic], place: str | None
) -> Iterator[dg.AssetObservation]:
    """Make an observation of each changed topic."""
    for name, topic in state.topics.items():
        numbers = f"{topic.objects} {topic.size} {topic.fresh.newest and topic.fresh.newest[2]}"
        if numbers != topic.reported or topic.fewer:
            metadata = _make_metadata(config, state, name, walked.get(name, WalkedTopic()), place)
            key = TopicAssets(config, name).key("objects")
            yield dg.AssetObservation(key, description=_describe_loss(topic), metadata=metadata)
            topic.reported = numbers
            topic.fewer = 0


def _make_metadata(
    config: ConnectorConfig, state: InventoryState, name: str, walked: WalkedTopic, place: str | None
) -> Metadata:
    """Make the metadata of an observation: numbers, the newest folder, and a link to the form of a restore."""
    topic = state.topics[name]
    selection: dict[str, object] = {"topics": [name]}
    metadata: Metadata = {
        "objects": dg.MetadataValue.int(topic.objects),
        "object_bytes": dg.MetadataValue.int(topic.size),
        "all_counted_at": dg.MetadataValue.timestamp(_read_time(state.counted)),
        "newest_object_at": dg.MetadataValue.timestamp(_read_time(topic.fresh.modified)),
    }
    if topic.fresh.newest is not None:
        start, end, folder = topic.fresh.newest
        metadata["newest_folder"] = dg.MetadataValue.text(folder)
        selection |= {"from_time": _read_time(start).isoformat(), "to_time": _read_time(end).isoformat()}
    if topic.fewer:
        metadata["missing_objects"] = dg.MetadataValue.int(topic.fewer)
    rows = [
        {"folder": folder, "objects": objects, "object_bytes": size}
        for folder, (objects, size) in sorted(walked.folders.items(), reverse=True)[:MAX_FOLDERS]
    ]
    if rows:
        metadata["recent_folders"] = make_metadata_table(rows, list(rows[0]))
    return metadata | {"restore": make_form_link(place, config.name, make_foreign_key(config.name), selection)}


def _describe_loss(topic: TopicInventory) -> str | None:
    """Describe how many objects are gone since the last count, or return None if none is."""
    if not topic.fewer:
        return None
    were = "object was" if topic.fewer == 1 else "objects were"
    return (
        f"At least {topic.fewer:,} {were} deleted since the count before this one, unless the connector's file leaves "
        "them out now: there are fewer by this number."
    )


def _describe_progress(config: ConnectorConfig, state: InventoryState) -> Iterator[str]:
    """Yield sentences about the count for people: missing topics, unreadable names, unfinished counts."""
    if state.counted and (missing := [topic for topic in config.topics if topic not in state.topics]):
        yield f"there is no object of topic {', '.join(missing)}"
    if state.count is not None:
        yield f"the count of all objects goes on: {state.count.listed:,} were listed"
    if state.counted and state.tails is None:
        yield (
            f"more than {MAX_TAILS} folders have no time: only the count of all objects finds new ones, and is repeated"
            " at once"
        )
    if state.refused:
        yield f"{count_noun(state.refused, 'name')} cannot be read, such as {state.refusal}"
    if state.unnamed:
        yield (
            f"topics beyond the first {MAX_TOPICS} have {count_noun(state.unnamed, 'object')} and no asset: name in "
            "the connector's file those that matter (topics)"
        )


def _find_place(context: dg.SensorEvaluationContext) -> str | None:
    """Return the UI's name of this code location, or None if there is no UI."""
    origin = context.code_location_origin
    return None if origin is None else f"{context.repository_name}@{origin.location_name}"


def _read_time(ms: int) -> datetime:
    """Return the time of epoch milliseconds."""
    return EPOCH + ms * ONE_MS
