from collections.abc import Callable
from datetime import datetime, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_s3_platform.config import values


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (values.integer(-1), "-1", -1),
        (values.integer(0), "+7", 7),
        (values.rate, "0.5", 0.5),
        (values.boolean, "TRUE", True),
        (values.choice(["HOURLY", "DAILY"]), "daily", "DAILY"),
        (values.topic_list, " a.b , a_b,,a.b ", ("a.b", "a_b")),
        (values.directory, "/json_logs/hourly/", "json_logs/hourly"),
        (values.url, "http://127.0.0.1:8333/", "http://127.0.0.1:8333"),
        (values.bootstrap_servers, " SASL_SSL://a.b:9092 ,[::1]:9093", "a.b:9092,[::1]:9093"),
        (values.timezone_id, "Europe/Paris", "Europe/Paris"),
        (values.timezone_id, "PST", "America/Los_Angeles"),
        (values.timezone_id, "WET", "WET"),
        (values.locale_id, "fr-FR", "fr-FR"),
        (values.field_list, "a, b.c", ("a", "b.c")),
        (values.unescaped, r"\r\n\u0041\\", "\r\nA\\"),
        (values.extension, ".bin", "bin"),
        (values.folder_or_root, "/", ""),
        (values.path_format(), "'dt'=YYYY-MM-dd/", "'dt'=YYYY-MM-dd"),
        (values.connector_name, "s3-sink_1.a", "s3-sink_1.a"),
        (values.bucket_name, "abc", "abc"),
    ],
)
def test_a_value_is_parsed(parse: Callable[[str], object], text: str, value: object) -> None:
    assert parse(text) == value


@pytest.mark.parametrize(
    ("parse", "text", "reason"),
    [
        (values.integer(0), "1e3", "no whole number"),
        (values.integer(0), "\u0661", "no whole number"),
        (values.integer(5), "4", "4 is not between 5"),
        (values.rate, "0", "not above 0"),
        (values.rate, "nan", "not above 0"),
        (values.rate, "fast", "no number"),
        (values.boolean, "yes", "neither true nor false"),
        (values.choice(["a", "b"]), "c", "'c' is none of a, b"),
        (values.topic_list, " , ", "names no topic"),
        (values.topic_list, "ok,<topic-2>", "'<topic-2>' is no legal topic name"),
        (values.topic_list, "..", "no legal topic name"),
        (values.topic_list, "x" * 250, "no legal topic name"),
        (values.directory, "/", "name a folder"),
        (values.directory, "a//b", "is no folder"),
        (values.directory, "a/../b", "is no folder"),
        (values.url, "s3.example.com", "is no endpoint"),
        (values.url, "https://s3.example.com/bucket", "names more than a host"),
        (values.url, "http://host:port", "port"),
        (values.url, "http://me:hunter2@host", "holds credentials"),
        (values.bootstrap_servers, "host", "is no host:port"),
        (values.bootstrap_servers, "host:0", "is no host:port"),
        (values.bootstrap_servers, ",", "names no broker"),
        (values.timezone_id, "Mars/Olympus", "'Mars/Olympus' is no timezone"),
        (values.timezone_id, "../etc/passwd", "is no timezone"),
        (values.timezone_id, "America", "is no timezone"),
        (values.locale_id, "english!", "is no locale id"),
        (values.path_format(), "/", "is empty"),
        (values.path_format(), "'zone'=z", "'z' at position 7 is not honoured"),
        (values.path_format("xx"), "'month'=MMM", "locale 'xx'"),
        (values.field_list, "a,,b", "a field twice, or an empty one"),
        (values.field_list, "a,a", "a field twice"),
        (values.unescaped, r"\q", "is no escape"),
        (values.extension, "a/b", "is no extension"),
        (values.connector_name, "a/b", "is no usable name"),
        (values.bucket_name, "<my-bucket-name>", "is no bucket name"),
        (values.hour(ZoneInfo("UTC")), "2013-01-01T00:30", "is not on the hour"),
        (values.hour(ZoneInfo("UTC")), "yesterday", "is no hour such as"),
        (values.hour(ZoneInfo("Europe/Paris")), "2021-03-28T02:00", "does not exist in Europe/Paris"),
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
    hour = values.hour(ZoneInfo("Europe/Paris"))(text)
    assert hour.astimezone(timezone.utc) == datetime(2013, 7, 1, tzinfo=timezone.utc)
    assert hour.tzinfo == ZoneInfo("Europe/Paris")


def test_every_java_zone_is_one_that_exists() -> None:
    assert all(ZoneInfo(zone) for zone in values.JAVA_ZONES.values())


@given(st.lists(st.from_regex(r"[a-zA-Z0-9_-]{1,20}", fullmatch=True), min_size=1))
def test_a_topic_list_keeps_order_and_holds_each_topic_once(topics: list[str]) -> None:
    assert values.topic_list(" , ".join(topics)) == tuple(dict.fromkeys(topics))
