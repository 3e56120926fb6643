"""Other writers' objects as external assets, and the folder sensor of a source connector, which counts them."""

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

import dagster as dg
import msgspec

from kafka_s3_platform.config.formats import find_format
from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.defs.metadata import Metadata, make_metadata_table
from kafka_s3_platform.defs.restore.foreign import EVERY_TOPIC, make_foreign_key
from kafka_s3_platform.defs.restore.form import make_form_link
from kafka_s3_platform.defs.tick import Tick
from kafka_s3_platform.defs.topic import TopicAssets
from kafka_s3_platform.instance.names import make_op_name
from kafka_s3_platform.instance.reload import reload_code_location
from kafka_s3_platform.model.times import EPOCH, ONE_MS
from kafka_s3_platform.sources.inventory import (
    MAX_TAILS,
    MAX_TOPICS,
    Inventory,
    InventoryState,
    TopicInventory,
    WalkedTopic,
)
from kafka_s3_platform.status.discovery import find_topics_folder, remember_listed_topics

INTERVAL_SECONDS = 300
STATE = "/objects"
"""The place of the inventory in the cursor."""

MAX_FOLDERS = 100
"""Rows of an observation's table of the newest folders."""


def make_objects_specs(config: ConnectorConfig, topics: Iterable[str]) -> list[dg.AssetSpec]:
    """Make `<connector>/objects/<topic>` of each topic of a source connector."""
    return [_make_spec(TopicAssets(config, topic)) for topic in topics]


def _make_spec(topic: TopicAssets) -> dg.AssetSpec:
    layout = topic.config.layout
    return dg.AssetSpec(
        topic.key("objects"),
        **topic.shown_in("objects"),
        kinds={"s3", *find_format(layout.format).kinds(layout.codec)},
        description=f"Objects of topic `{topic.topic}` in `s3://{topic.config.store.bucket}`, which others wrote. The "
        "folder sensor counts them, and observes changes. Its observations link to the form of a restore, filled with "
        "the newest folder.",
    )


def make_objects_sensor(
    config: ConnectorConfig, topics: Sequence[str], status: dg.DefaultSensorStatus
) -> dg.SensorDefinition:
    """Make the folder sensor of a source connector with assets for `topics`. It requests no run."""
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
            tick.evaluate_each("bucket", [every], lambda _: _look(config, state, tick, _find_place(context)))
        finally:
            tick.cursor[STATE] = msgspec.to_builtins(state)
        tick.reasons += _tell_progress(config, state)
        if new := sorted(state.topics.keys() - set(topics)):
            tick.tell(f"new topics: {', '.join(new)}; {_define_new(context, config, state)}")
        return tick.result()

    return folders


def _define_new(context: dg.SensorEvaluationContext, config: ConnectorConfig, state: InventoryState) -> str:
    """Have new topics defined. Return a sentence about the next step."""
    try:
        remember_listed_topics(config, state.topics, find_topics_folder())
    except OSError as err:
        # The counts must not be lost with it.
        return f"they get no asset, since they cannot be remembered: {err}. Name them in the connector's file (topics)"
    return reload_code_location(context)


def _read_state(tick: Tick) -> InventoryState:
    try:
        return msgspec.convert(tick.cursor.get(STATE, {}), InventoryState)
    except msgspec.ValidationError as err:
        tick.tell(f"the cursor holds no valid counts, so the objects are counted anew: {err}")
        return InventoryState()


def _look(config: ConnectorConfig, state: InventoryState, tick: Tick, place: str | None) -> None:
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
    """Make an observation of each topic with a change."""
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
    topic = state.topics[name]
    what: dict[str, object] = {"topics": [name]}
    metadata: Metadata = {
        "objects": dg.MetadataValue.int(topic.objects),
        "object_bytes": dg.MetadataValue.int(topic.size),
        "all_counted_at": dg.MetadataValue.timestamp(_read_time(state.counted)),
        "newest_object_at": dg.MetadataValue.timestamp(_read_time(topic.fresh.modified)),
    }
    if topic.fresh.newest is not None:
        start, end, folder = topic.fresh.newest
        metadata["newest_folder"] = dg.MetadataValue.text(folder)
        what |= {"from_time": _read_time(start).isoformat(), "to_time": _read_time(end).isoformat()}
    if topic.fewer:
        metadata["missing_objects"] = dg.MetadataValue.int(topic.fewer)
    rows = [
        {"folder": folder, "objects": objects, "object_bytes": size}
        for folder, (objects, size) in sorted(walked.folders.items(), reverse=True)[:MAX_FOLDERS]
    ]
    if rows:
        metadata["recent_folders"] = make_metadata_table(rows, list(rows[0]))
    return metadata | {"restore": make_form_link(place, config.name, make_foreign_key(config.name), what)}


def _describe_loss(topic: TopicInventory) -> str | None:
    if not topic.fewer:
        return None
    were = "object was" if topic.fewer == 1 else "objects were"
    return f"At least {topic.fewer:,} {were} deleted since the count before this one: so many fewer there are."


def _tell_progress(config: ConnectorConfig, state: InventoryState) -> Iterator[str]:
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
        yield f"{state.refused:,} names cannot be read, such as {state.refusal}"
    if state.unnamed:
        yield (
            f"{state.unnamed:,} objects are of topics beyond the first {MAX_TOPICS}, which have no asset: name in the "
            "connector's file those that matter (topics)"
        )


def _find_place(context: dg.SensorEvaluationContext) -> str | None:
    """Return the UI's name of this code location, None without a UI."""
    origin = context.code_location_origin
    return None if origin is None else f"{context.repository_name}@{origin.location_name}"


def _read_time(ms: int) -> datetime:
    return EPOCH + ms * ONE_MS
