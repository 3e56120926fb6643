"""Other writers' objects: external assets, which the folder sensor observes."""

from collections.abc import Iterable

import dagster as dg

from kafka_s3_platform.config.formats import find_format
from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.defs.topic import ArchivedTopic


def make_objects_specs(config: ConnectorConfig, topics: Iterable[str]) -> list[dg.AssetSpec]:
    """Make `<connector>/objects/<topic>` of each topic of a source connector."""
    return [_make_spec(ArchivedTopic(config, topic)) for topic in topics]


def _make_spec(topic: ArchivedTopic) -> dg.AssetSpec:
    layout = topic.config.layout
    return dg.AssetSpec(
        topic.key("objects"),
        **topic.shown_in("objects"),
        kinds={"s3", *find_format(layout.format).kinds(layout.codec)},
        description=f"Objects of topic `{topic.topic}` in `s3://{topic.config.store.bucket}`, which others wrote. The "
        "folder sensor counts them, and observes changes. Its observations link to the form of a restore, filled with "
        "the newest folder.",
    )
