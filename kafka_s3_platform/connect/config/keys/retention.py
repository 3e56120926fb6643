"""The keys of retention: the rules for removing data from an archive, and the holds that override them."""

from datetime import date

from kafka_s3_platform.connect.config.keys import values
from kafka_s3_platform.connect.config.keys.table import Key, declare_setting
from kafka_s3_platform.core.config.settings import PerTopic, RetentionSettings

_PER_TOPIC = "A number for all topics, and `topic:number` for single ones, separated by commas; `-1` is for ever."


def _parse_per_topic(text: str) -> PerTopic:
    """Parse a number for all topics, and items `topic:number` for single ones, separated by commas."""
    # as many ms as a difference of times can hold
    parse_number = values.expect_integer(-1, 2**53)
    numbers: dict[str, int] = {}
    for item in text.split(","):
        topic, colon, number = item.strip().rpartition(":")
        if colon and not values.is_topic_name(topic):
            raise ValueError(f"{item.strip()!r} is no topic:number: {topic!r} is no name of a topic")
        if topic in numbers:
            raise ValueError(f"{text!r} has two numbers for {topic or 'all topics'}")
        numbers[topic] = parse_number(number)
    return tuple(numbers.items())


def _parse_day(text: str) -> date:
    """Parse a day such as 2026-01-31."""
    try:
        return date.fromisoformat(text)
    except ValueError as err:
        raise ValueError(f"{text!r} is no day such as 2026-01-31") from err


def _parse_holds(text: str) -> tuple[tuple[str, date, date], ...]:
    """Parse topics, or `topic:first/end`, into triples of the topic, the first day, and the day after the last one."""
    holds = []
    for item in filter(None, map(str.strip, text.split(","))):
        topic, colon, days = item.partition(":")
        if topic != "*" and not values.is_topic_name(topic):
            raise ValueError(f"{item!r}: {topic!r} is no name of a topic, nor * for all of them")
        first, slash, end = days.partition("/")
        if colon and not slash:
            raise ValueError(f"{item!r}: give the first day and the day after the last one, 2026-01-01/2026-02-01")
        hold = (topic, _parse_day(first), _parse_day(end)) if colon else (topic, date.min, date.max)
        if hold[1] >= hold[2]:
            raise ValueError(f"{item!r} holds no day: the second day is the one after the last one")
        holds.append(hold)
    return tuple(holds)


RETENTION_KEYS: tuple[Key, ...] = (
    declare_setting(
        RetentionSettings,
        "merged_ms",
        "archive.retention.merged.ms",
        _parse_per_topic,
        "How long the objects of hours stay after they were merged into their day, in ms. Then they go, if the day's"
        f" objects are read and hold every record. {_PER_TOPIC} See [retention](retention.md).",
        shown="for ever",
        for_sinks=True,
    ),
    declare_setting(
        RetentionSettings,
        "ms",
        "archive.retention.ms",
        _parse_per_topic,
        f"How long a day stays after its end, in ms. Then its records go. {_PER_TOPIC}",
        shown="for ever",
        for_sinks=True,
    ),
    declare_setting(
        RetentionSettings,
        "max_bytes",
        "archive.retention.bytes",
        _parse_per_topic,
        f"How many bytes of objects a topic may have. Beyond that its oldest days go. {_PER_TOPIC}",
        shown="unlimited",
        for_sinks=True,
    ),
    declare_setting(
        RetentionSettings,
        "first_day",
        "archive.retention.before",
        _parse_day,
        "Days before this one go, such as `2025-01-01`.",
        shown="none",
        for_sinks=True,
    ),
    declare_setting(
        RetentionSettings,
        "holds",
        "archive.retention.hold",
        _parse_holds,
        "Nothing of these goes by any rule: topics, or `topic:first/end` for the days from `first` up to the day before"
        " `end`, separated by commas. `*` is every topic.",
        shown="none",
        for_sinks=True,
    ),
)
