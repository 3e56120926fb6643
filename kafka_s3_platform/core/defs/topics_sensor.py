"""The topics at Kafka as external assets, and the sensor for new matches of a connector's `topics.regex`."""

from collections.abc import Iterable

import dagster as dg

from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.defs.topic import TopicAssets
from kafka_s3_platform.core.errors import TransientError
from kafka_s3_platform.core.instance.names import make_op_name
from kafka_s3_platform.core.instance.reload import reload_code_location
from kafka_s3_platform.core.status.discovery import find_topics_folder, look_for_topics

INTERVAL_SECONDS = 60


def make_topic_specs(topics: Iterable[TopicAssets]) -> list[dg.AssetSpec]:
    """Make `<connector>/kafka/<topic>` for each topic: the topic at Kafka, with this connector's lag."""
    return [
        topic.make_spec(
            "kafka",
            kinds={"kafka"},
            description=f"Topic `{topic.topic}` in Kafka, and how far connector `{topic.config.name}` is behind.",
        )
        for topic in topics
    ]


def make_topics_sensor(connector: ConnectorConfig) -> dg.SensorDefinition:
    """Make the topics sensor of one connector. It is on from the start and requests no run."""

    @dg.sensor(
        name=make_op_name("topics", connector.name),
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Finds new topics for connector {connector.name}, which archives every topic that "
        f"`{connector.topics_regex}` matches.",
    )
    def topics(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        """Look for new topics at Kafka, and have the code location loaded again if there are some."""
        try:
            matching = look_for_topics(connector, find_topics_folder())
        except TransientError as err:
            return dg.SkipReason(str(err))
        new = sorted(set(matching.topics) - set(connector.topics))
        if not new:
            return dg.SkipReason(f"no new topic matches {connector.topics_regex}{matching.letters_note}")
        return dg.SkipReason(f"new: {', '.join(new)}; {reload_code_location(context)}{matching.letters_note}")

    return topics
