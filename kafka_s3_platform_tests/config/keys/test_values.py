from collections.abc import Callable
from datetime import datetime, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from kafka_s3_platform.connect.config.keys import values
from kafka_s3_platform.core.config.settings import (
    ArchiveSettings,
    ConnectorConfig,
    ErrorSettings,
    LayoutSettings,
    RoleSettings,
    Settings,
    SourceSettings,
    StoreSettings,
)


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (values.expect_integer(-1), "-1", -1),
        (values.expect_integer(0), "+7", 7),
        (values.parse_rate, "0.5", 0.5),
        (values.parse_boolean, "TRUE", True),
        (values.expect_one_of(["HOURLY", "DAILY"]), "daily", "DAILY"),
        (values.parse_topics, " a.b , a_b,,a.b ", ("a.b", "a_b")),
        (values.parse_folder, "/json_logs/hourly/", "json_logs/hourly"),
        (values.parse_endpoint_url, "http://127.0.0.1:8333/", "http://127.0.0.1:8333"),
        (values.parse_bootstrap_servers, " SASL_SSL://a.b:9092 ,[::1]:9093", "a.b:9092,[::1]:9093"),
        (values.parse_timezone, "Europe/Paris", "Europe/Paris"),
        (values.parse_timezone, "PST", "America/Los_Angeles"),
        (values.parse_timezone, "WET", "WET"),
        (values.parse_locale, "fr-FR", "fr-FR"),
        (values.parse_fields, "a, b.c", ("a", "b.c")),
        (values.unescape_java, r"\r\n\u0041\\", "\r\nA\\"),
        (values.parse_extension, ".bin", "bin"),
        (values.parse_folder_or_root, "/", ""),
        (values.expect_path_format(), "'dt'=YYYY-MM-dd/", "'dt'=YYYY-MM-dd"),
        (values.parse_connector_name, "s3-sink_1.a", "s3-sink_1.a"),
        (values.parse_bucket, "abc", "abc"),
    ],
)
def test_a_value_is_parsed(parse: Callable[[str], object], text: str, value: object) -> None:
    assert parse(text) == value


@pytest.mark.parametrize(
    ("parse", "text", "reason"),
    [
        (values.expect_integer(0), "1e3", "no whole number"),
        (values.expect_integer(0), "\u0661", "no whole number"),
        (values.expect_integer(5), "4", "4 is not between 5"),
        (values.parse_rate, "0", "not above 0"),
        (values.parse_rate, "nan", "not above 0"),
        (values.parse_rate, "fast", "no number"),
        (values.parse_boolean, "yes", "neither true nor false"),
        (values.expect_one_of(["a", "b"]), "c", "'c' is none of a, b"),
        (values.parse_topics, " , ", "names no topic"),
        (values.parse_topics, "ok,<topic-2>", "'<topic-2>' is no legal topic name"),
        (values.parse_topics, "..", "no legal topic name"),
        (values.parse_topics, "x" * 250, "no legal topic name"),
        (values.parse_folder, "/", "name a folder"),
        (values.parse_folder, "a//b", "is no folder"),
        (values.parse_folder, "a/../b", "is no folder"),
        (values.parse_endpoint_url, "s3.example.com", "is no endpoint"),
        (values.parse_endpoint_url, "https://s3.example.com/bucket", "names more than a host"),
        (values.parse_endpoint_url, "http://host:port", "port"),
        (values.parse_endpoint_url, "http://me:hunter2@host", "holds credentials"),
        (values.parse_bootstrap_servers, "host", "is no host:port"),
        (values.parse_bootstrap_servers, "host:0", "is no host:port"),
        (values.parse_bootstrap_servers, ",", "names no broker"),
        (values.parse_timezone, "Mars/Olympus", "'Mars/Olympus' is no timezone"),
        (values.parse_timezone, "../etc/passwd", "is no timezone"),
        (values.parse_timezone, "America", "is no timezone"),
        (values.parse_locale, "english!", "is no locale id"),
        (values.expect_path_format(), "/", "is empty"),
        (values.expect_path_format(), "'zone'=z", "'z' at position 7 is not honoured"),
        (values.expect_path_format("xx"), "'month'=MMM", "locale 'xx'"),
        (values.parse_fields, "a,,b", "a field twice, or an empty one"),
        (values.parse_fields, "a,a", "a field twice"),
        (values.unescape_java, r"\q", "is no escape"),
        (values.parse_extension, "a/b", "is no extension"),
        (values.parse_connector_name, "a/b", "is no usable name"),
        (values.parse_bucket, "<my-bucket-name>", "is no bucket name"),
        (values.expect_hour(ZoneInfo("UTC")), "2013-01-01T00:30", "is not on the hour"),
        (values.expect_hour(ZoneInfo("UTC")), "yesterday", "is no hour such as"),
        (values.expect_hour(ZoneInfo("Europe/Paris")), "2021-03-28T02:00", "does not exist in Europe/Paris"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_with_its_reason(
    parse: Callable[[str], object], text: str, reason: str
) -> None:
    with pytest.raises(ValueError, match=reason) as caught:
        parse(text)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["2013-07-01T02:00", "2013-07-01 02:00", "2013-07-01T00:00Z", "2013-06-30T17:00-07:00"]
)
def test_an_hour_is_in_the_connectors_timezone_unless_it_says_its_offset(text: str) -> None:
    hour = values.expect_hour(ZoneInfo("Europe/Paris"))(text)
    assert hour.astimezone(timezone.utc) == datetime(2013, 7, 1, tzinfo=timezone.utc)
    assert hour.tzinfo == ZoneInfo("Europe/Paris")


def test_every_java_zone_is_one_that_exists() -> None:
    assert all(ZoneInfo(zone) for zone in values.JAVA_ZONES.values())


@given(st.lists(st.from_regex(r"[a-zA-Z0-9_-]{1,20}", fullmatch=True), min_size=1))
def test_a_topic_list_keeps_order_and_holds_each_topic_once(topics: list[str]) -> None:
    assert values.parse_topics(" , ".join(topics)) == tuple(dict.fromkeys(topics))


@pytest.mark.parametrize(
    ("zone", "text"),
    [
        ("UTC", "0001-01-01T00:00+14:00"),
        ("UTC", "9999-12-31T23:00-12:00"),
        ("Asia/Tokyo", "0001-01-01T00:00"),
        ("America/New_York", "9999-12-31T23:00"),
    ],
)
def test_an_hour_outside_of_all_calendars_is_refused(zone: str, text: str) -> None:
    with pytest.raises(ValueError, match="is outside of the years 1 to 9999"):
        values.expect_hour(ZoneInfo(zone))(text)


_REQUIRED: dict[type[Settings], dict[str, object]] = {
    ArchiveSettings: {"start_hour": datetime(2020, 1, 1, tzinfo=timezone.utc)},
    RoleSettings: {"arn": "arn:aws:iam::1:role/a", "session_name": "archive", "region": "us-east-1"},
    StoreSettings: {"bucket": "archive"},
}


@pytest.mark.parametrize(
    ("settings", "field", "lowest", "below"),
    [
        (ArchiveSettings, "allowed_lateness_ms", 0, -1),
        (ArchiveSettings, "task_size", 1, 0),
        (ArchiveSettings, "daily_segment_bytes", 1, 0),
        (ArchiveSettings, "clock_tolerance_ms", 0, -1),
        (ArchiveSettings, "records_per_second", 0.5, 0.0),
        (ArchiveSettings, "bytes_per_second", 0.5, 0.0),
        (ErrorSettings, "dead_letter_replication_factor", 1, 0),
        (LayoutSettings, "block_size", 1, 0),
        (LayoutSettings, "partition_duration_ms", 1, 0),
        (LayoutSettings, "offset_pad_width", 0, -1),
        (LayoutSettings, "flush_size", 1, 0),
        (LayoutSettings, "rotate_interval_ms", 1, 0),
        (LayoutSettings, "rotate_schedule_interval_ms", 1, 0),
        (LayoutSettings, "segment_bytes", 1, 0),
        (RoleSettings, "duration_s", 900, 899),
        (SourceSettings, "poll_interval_ms", 1, 0),
        (SourceSettings, "thaw_days", 1, 0),
        (StoreSettings, "part_size", 5_242_880, 5_242_879),
        (StoreSettings, "max_retries", 0, -1),
        (StoreSettings, "retry_backoff_ms", 0, -1),
    ],
)
def test_a_number_below_its_bound_is_no_setting(
    settings: type[Settings], field: str, lowest: float, below: float
) -> None:
    required = _REQUIRED.get(settings, {})
    assert getattr(settings.model_validate({**required, field: lowest}), field) == lowest
    with pytest.raises(ValidationError):
        settings.model_validate({**required, field: below})


def test_a_role_lasts_twelve_hours_at_most() -> None:
    with pytest.raises(ValidationError):
        RoleSettings.model_validate({**_REQUIRED[RoleSettings], "duration_s": 43_201})


def test_a_connector_has_a_task() -> None:
    settings: dict[str, object] = {
        "name": "n",
        "topics": ["t"],
        "kafka": {"bootstrap_servers": "b:9092"},
        "store": _REQUIRED[StoreSettings],
        "layout": {},
        "archive": _REQUIRED[ArchiveSettings],
    }
    assert ConnectorConfig.model_validate({**settings, "tasks_max": 1}).tasks_max == 1
    with pytest.raises(ValidationError):
        ConnectorConfig.model_validate({**settings, "tasks_max": 0})
