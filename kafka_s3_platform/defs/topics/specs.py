"""The topics at Kafka: external assets. The sensors report their connector's lag."""

from collections.abc import Iterable

import dagster as dg

from kafka_s3_platform.defs.topic import ArchivedTopic


def make_topic_specs(topics: Iterable[ArchivedTopic]) -> list[dg.AssetSpec]:
    """Make `<connector>/kafka/<topic>` of each topic: the topic at Kafka, with this connector's lag."""
    return [
        dg.AssetSpec(
            topic.key("kafka"),
            **topic.shown_in("kafka"),
            kinds={"kafka"},
            description=f"Topic `{topic.topic}` in Kafka, and how far connector `{topic.config.name}` is behind.",
        )
        for topic in topics
    ]
