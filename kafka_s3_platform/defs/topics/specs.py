"""The topics at Kafka: external assets, of which the sensors report how far their connector is behind."""

from collections.abc import Iterable

import dagster as dg

from kafka_s3_platform.defs.topic import ArchivedTopic


def make_topic_specs(topics: Iterable[ArchivedTopic]) -> list[dg.AssetSpec]:
    """`<connector>/kafka/<topic>`: the topic, and how far this connector is behind. Another one has its own."""
    return [
        dg.AssetSpec(
            topic.key("kafka"),
            **topic.shown_in("kafka"),
            kinds={"kafka"},
            description=f"Topic `{topic.topic}` in Kafka, and how far connector `{topic.config.name}` is behind.",
        )
        for topic in topics
    ]
