"""The topics at Kafka: external assets, whose lag the sensors report."""

from collections.abc import Iterable

import dagster as dg

from kafka_s3_platform.defs.topic import ArchivedTopic


def make_topic_specs(topics: Iterable[ArchivedTopic]) -> list[dg.AssetSpec]:
    """`kafka/<topic>`, one for each topic however many connectors archive it."""
    by_key = {topic.kafka_key: topic for topic in topics}
    return [
        dg.AssetSpec(key, group_name="kafka", kinds={"kafka"}, description=f"Topic `{topic.topic}` in Kafka.")
        for key, topic in by_key.items()
    ]
