from kafka_s3_platform.core.config.settings import (
    ConnectorConfig,
    ErrorSettings,
    KafkaSettings,
    RecordSettings,
    StoreSettings,
    match_topics,
)
from kafka_s3_platform_tests.support import connector

TOPICS = ["orders", "orders.eu", "orders.dlq", "old-orders", "__orders", "__consumer_offsets", "users"]


def config(regex: str | None, dead_letter_topic: str | None = None) -> ConnectorConfig:
    found = connector(KafkaSettings(bootstrap_servers="b:1"), StoreSettings(bucket="bucket"), "t")
    errors = ErrorSettings(dead_letter_topic=dead_letter_topic)
    return found.model_copy(update={"topics_regex": regex, "records": RecordSettings(errors=errors)})


def test_the_whole_name_has_to_match() -> None:
    assert match_topics(config("orders"), TOPICS) == ("orders",)
    assert match_topics(config("orders.*"), TOPICS) == ("orders", "orders.dlq", "orders.eu")


def test_names_that_begin_with_two_underscores_never_match() -> None:
    assert match_topics(config(".*orders"), TOPICS) == ("old-orders", "orders")
    assert match_topics(config("__.*"), TOPICS) == ()


def test_the_connectors_own_dead_letter_topic_does_not_match() -> None:
    assert match_topics(config("orders.*", "orders.dlq"), TOPICS) == ("orders", "orders.eu")


def test_without_a_pattern_nothing_matches() -> None:
    assert match_topics(config(None), TOPICS) == ()
