"""What an archive holds, day by day, on a real index."""

from datetime import date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from kafka_s3_platform.upkeep.compact.days import summarize_days
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.support import HOUR, NOON, Sent, archived, snapshot

pytestmark = pytest.mark.integration

BERLIN = ZoneInfo("Europe/Berlin")
SPRING = datetime(2026, 3, 29, 12, tzinfo=timezone.utc)
"""A day of 23 hours in Berlin."""


def test_days_are_those_of_the_timezone_and_count_their_own_hours(lab: Lab) -> None:
    lab.create_topic(2)
    late_in_the_evening = SPRING.replace(hour=23)
    sent = [Sent(timestamp=SPRING), Sent(timestamp=SPRING, kafka_partition=1), Sent(timestamp=late_in_the_evening)]
    lab.produce([*sent, Sent(timestamp=datetime(1999, 1, 1, tzinfo=timezone.utc))])
    config = lab.connector(layout={"timezone": "Europe/Berlin"})
    archived(config)
    found = summarize_days(snapshot(config), BERLIN, timedelta())
    assert [(d.day, d.record_count, len(d.objects), d.hour_count) for d in found] == [
        (None, 1, 1, 0),
        (date(2026, 3, 29), 2, 2, 23),
        (date(2026, 3, 30), 1, 1, 24),
    ]
    assert not any(d.is_merged for d in found)


def test_an_hour_without_records_that_was_asked_for_shows_its_day(lab: Lab) -> None:
    lab.create_topic()
    config = lab.connector()
    archived(config, [NOON, NOON + HOUR])
    [day] = summarize_days(snapshot(config), ZoneInfo("UTC"), timedelta())
    assert (day.day, day.record_count, day.hour_count, day.complete_count) == (NOON.date(), 0, 24, 24)
    assert not day.is_merged
