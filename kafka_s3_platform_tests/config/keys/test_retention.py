"""The keys of retention: numbers by topic, days and holds, and what of them is refused."""

from datetime import date, timedelta

import pytest

from kafka_s3_platform.core.config.settings import RetentionSettings
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.upkeep.retain import find_number
from kafka_s3_platform_tests.config.conftest import Load


def test_a_file_without_rules_lets_nothing_go(load: Load) -> None:
    rules = load({}).config.archive.retention
    assert rules == RetentionSettings()
    assert not rules.has_rule


def test_a_rule_has_a_number_for_all_topics_and_for_single_ones(load: Load) -> None:
    keys = {"archive.retention.ms": "86400000, audit:-1,clicks:3600000", "archive.retention.before": "2025-01-31"}
    rules = load(keys | {"topics": "orders,audit,clicks"}).config.archive.retention
    numbers = [find_number(rules.ms, topic) for topic in ("orders", "audit", "clicks")]
    assert numbers == [86_400_000, None, 3_600_000]
    assert rules.first_day == date(2025, 1, 31)
    assert rules.has_rule


def test_a_hold_ends_before_its_second_day(load: Load) -> None:
    holds = "audit, orders:2026-01-01/2026-02-01"
    rules = load({"archive.retention.hold": holds, "topics": "orders,audit"}).config.archive.retention
    days = [date(2025, 12, 31), date(2026, 1, 1), date(2026, 1, 31), date(2026, 2, 1)]
    assert [rules.is_on_hold("orders", day, day + timedelta(days=1)) for day in days] == [False, True, True, False]
    assert rules.is_on_hold("audit", days[0], days[0] + timedelta(days=1))
    assert not rules.is_on_hold("clicks", days[1], days[1] + timedelta(days=1))


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("archive.retention.ms", "a b:1", "no name of a topic"),
        ("archive.retention.ms", "1,2", "two numbers for all topics"),
        ("archive.retention.bytes", "-2", "-1"),
        ("archive.retention.ms", "9223372036854775807", "9007199254740992"),
        ("archive.retention.before", "January", "is no day such as 2026-01-31"),
        ("archive.retention.hold", "orders:2026-01-01", "give the first day and the day after the last one"),
        ("archive.retention.hold", "orders:2026-02-01/2026-02-01", "holds no day"),
        ("archive.retention.hold", "a b", "nor * for all of them"),
        ("archive.retention.hold", "misspelt", "misspelt: no topic of this connector"),
        ("archive.retention.ms", "-1,misspelt:1", "misspelt: no topic of this connector"),
    ],
)
def test_what_cannot_be_a_rule_is_refused(load: Load, key: str, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("*", r"\*")):
        load({key: text})


def test_a_rule_may_name_a_topic_that_a_pattern_matches(load: Load) -> None:
    keys = {"topics": "", "topics.regex": "or.*", "archive.retention.hold": "orders"}
    assert load(keys).config.archive.retention.holds == (("orders", date.min, date.max),)
    with pytest.raises(ConfigError, match="clicks: no topic of this connector"):
        load(keys | {"archive.retention.hold": "orders,clicks"})
