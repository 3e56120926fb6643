"""Finds the topics that a connector with `topics.regex` archives."""

from collections.abc import Iterable

from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.java.regex import compile_java_regex

INTERNAL = "__"
"""The start of the names of Kafka's own topics (`__consumer_offsets`). No pattern matches them; `topics` may name them.
"""


def match_topics(config: ConnectorConfig, topics: Iterable[str]) -> tuple[str, ...]:
    """Return the `topics` whose whole name the connector's `topics.regex` matches, sorted. None match without a regex.

    The connector's own dead letter topic and internal topics are left out.
    """
    if config.topics_regex is None:
        return ()
    pattern = compile_java_regex(config.topics_regex)
    own = config.records.errors.dead_letter_topic
    return tuple(sorted(t for t in set(topics) if pattern.fullmatch(t) and not t.startswith(INTERNAL) and t != own))
