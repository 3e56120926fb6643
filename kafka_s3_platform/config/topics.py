"""Which topics a connector with `topics.regex` archives."""

from collections.abc import Iterable

from kafka_s3_platform.config.java_regex import compile_java_regex
from kafka_s3_platform.config.settings import ConnectorConfig

INTERNAL = "__"
"""How names of Kafka's own topics begin (`__consumer_offsets`): no pattern takes them, `topics` may name them."""


def matching(config: ConnectorConfig, topics: Iterable[str]) -> tuple[str, ...]:
    """Those of `topics` that the whole of the connector's `topics.regex` matches, in order; none without a regex.

    Not the connector's own dead letter topic, nor internal ones.
    """
    if config.topics_regex is None:
        return ()
    pattern = compile_java_regex(config.topics_regex)
    own = config.records.errors.dead_letter_topic
    return tuple(sorted(t for t in set(topics) if pattern.fullmatch(t) and not t.startswith(INTERNAL) and t != own))
