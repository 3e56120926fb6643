"""Finds the topics of a connector with `topics.regex`."""

from collections.abc import Iterable

from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.java.regex import compile_java_regex

INTERNAL = "__"
"""The start of the names of Kafka's own topics (`__consumer_offsets`). No pattern matches them; `topics` may name them.
"""


def match_topics(config: ConnectorConfig, topics: Iterable[str]) -> tuple[str, ...]:
    """Return the `topics` that fully match the connector's `topics.regex`, sorted. None match without a regex.

    Internal topics and the dead letter topics of all connectors are left out: two connectors archiving each other's
    letters would make letters of letters, for ever.
    """
    return tuple(topic for topic in _match_all(config, topics) if not _is_of_letters(config, topic))


def list_letter_topics(config: ConnectorConfig, topics: Iterable[str]) -> tuple[str, ...]:
    """Return the matching topics left out as dead letter topics."""
    return tuple(topic for topic in _match_all(config, topics) if _is_of_letters(config, topic))


def _match_all(config: ConnectorConfig, topics: Iterable[str]) -> list[str]:
    if config.topics_regex is None:
        return []
    pattern = compile_java_regex(config.topics_regex)
    return sorted(t for t in set(topics) if pattern.fullmatch(t) and not t.startswith(INTERNAL))


def _is_of_letters(config: ConnectorConfig, topic: str) -> bool:
    return topic == config.records.errors.dead_letter_topic or topic in config.others_dead_letters
