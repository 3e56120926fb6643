"""Months on a real Kafka and a real S3: small days become objects of their month, and nobody reads a record twice."""

from collections.abc import Callable
from datetime import date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform.core.upkeep.compact import run
from kafka_s3_platform.core.upkeep.compact.days import (
    CompactRequest,
    Month,
    explain_lost_records,
    find_holder,
    list_due_days,
    summarize_days,
)
from kafka_s3_platform.core.upkeep.compact.plan import list_due_months
from kafka_s3_platform.core.upkeep.compact.run import compact_due_months
from kafka_s3_platform.core.upkeep.erase import ErasureRequest, erase_records
from kafka_s3_platform.core.upkeep.vacuum import vacuum_topic
from kafka_s3_platform.core.upkeep.verify import read_hour_segments, verify_archive, verify_hours
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.restore.own import restored
from kafka_s3_platform_tests.support import (
    HOUR,
    NOON,
    InProcessRunner,
    Sent,
    archived,
    compact_day,
    produce,
    snapshot,
    stored,
)
from kafka_s3_platform_tests.upkeep.compact.killed import STAGES, killed_at
from kafka_s3_platform_tests.upkeep.test_retain import live_keys, objects, retained

UTC = ZoneInfo("UTC")
ONE_DAY = timedelta(days=1)
JANUARY = Month(date(2026, 1, 1))
SIZE = 2**20
DAY_MS = 86_400_000
DAYS = (0, 1, 30)
RECORDS = [
    *(Sent(b"%d" % day, b"k", NOON + day * ONE_DAY + hour * HOUR) for day in DAYS for hour in range(2)),
    *(Sent(b"other", b"k", NOON + day * ONE_DAY, (), 1) for day in DAYS),
    Sent(b"of February", b"k", NOON + 31 * ONE_DAY),
]


def monthly(config: ConnectorConfig, size: int = SIZE) -> ConnectorConfig:
    return config.model_copy(update={"archive": config.archive.model_copy(update={"monthly_segment_bytes": size})})


def merge_days(config: ConnectorConfig) -> None:
    topic = config.topics[0]
    for day in list_due_days(snapshot(config), UTC, timedelta(0), datetime.now(UTC)):
        compact_day(CompactRequest(config, topic, day, "days"), InProcessRunner())


def merge_months(config: ConnectorConfig) -> list[str]:
    """Merge what is due, and return the months."""
    reports = compact_due_months({config.topics[0]: config}, "months", InProcessRunner())
    return [str(span) for _, span in reports]


def due(config: ConnectorConfig, now: datetime | None = None, size: int = SIZE) -> list[str]:
    months = list_due_months(snapshot(config), UTC, timedelta(0), now or datetime.now(UTC), size)
    return list(map(str, months))


def chunks(config: ConnectorConfig) -> list[tuple[str, int, str]]:
    return sorted((s.chunk, s.kafka_partition, f"{s.chunk_start:%m-%d}") for s in snapshot(config).segments)


def is_whole(config: ConnectorConfig) -> bool:
    return verify_archive(config, config.topics[0], True, InProcessRunner()).ok


@pytest.fixture
def of_days(copied_archive: Callable[..., ConnectorConfig]) -> ConnectorConfig:
    """A connector with three merged days of January and one of February."""
    config = monthly(copied_archive(RECORDS, kafka_partitions=2))
    merge_days(config)
    return config


@pytest.fixture
def of_months(of_days: ConnectorConfig) -> ConnectorConfig:
    """The same, with January merged."""
    assert merge_months(of_days) == ["2026-01"]
    return of_days


def test_a_month_holds_the_records_of_its_days_in_one_object_a_kafka_partition(of_days: ConnectorConfig) -> None:
    before = stored(of_days).drop_columns("object")
    assert merge_months(of_days) == ["2026-01"]
    assert stored(of_days).drop_columns("object").equals(before)
    assert chunks(of_days) == [("daily", 0, "02-01"), ("monthly", 0, "01-01"), ("monthly", 1, "01-01")]
    [key, *_] = sorted(s.key for s in snapshot(of_days).segments if s.chunk == "monthly")
    assert key.startswith(f"topics_daily/{of_days.topics[0]}/year=2026/month=01/{of_days.topics[0]}+0+0000000000+")
    assert is_whole(of_days)
    assert merge_months(of_days) == []


def test_months_are_merged_only_if_the_file_says_so(of_days: ConnectorConfig) -> None:
    assert merge_months(monthly(of_days, 0)) == []


def test_a_month_that_is_not_over_is_not_due(of_days: ConnectorConfig) -> None:
    end = datetime(2026, 2, 1, tzinfo=UTC)
    assert due(of_days, end - timedelta(seconds=1)) == []
    assert due(of_days, end) == ["2026-01"]


def test_large_days_stay_and_a_day_alone_is_not_rewritten(of_days: ConnectorConfig) -> None:
    sizes = sorted(s.size for s in snapshot(of_days).segments)
    assert due(of_days, size=2 * sizes[0]) == []
    assert due(of_days, size=2 * sizes[-1] + 1) == ["2026-01"], "February has one day"


def test_months_that_cannot_be_merged_hold_up_no_later_one(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "MAX_MONTHS", 2)
    config = monthly(lab.archive([Sent(b"v", None, NOON + day * ONE_DAY) for day in (0, 1, 31, 32, 59, 60)]))
    merge_days(config)
    for segment in snapshot(config).segments[:4]:
        lab.s3.delete_object(Bucket=config.store.bucket, Key=segment.key)
    merge_months(config)
    assert [chunk for chunk in chunks(config) if chunk[0] == "monthly"] == [("monthly", 0, "03-01")]


def test_an_hour_of_a_merged_month_is_restored_alone(of_months: ConnectorConfig) -> None:
    report = restored(of_months, from_time=NOON + 30 * ONE_DAY, to_time=NOON + 30 * ONE_DAY + HOUR)
    assert (report.record_count, report.gaps) == (2, ())


def test_an_hour_at_the_end_of_a_month_is_verified_in_the_months_object(of_months: ConnectorConfig, lab: Lab) -> None:
    hour = NOON + 30 * ONE_DAY
    keys = {s.key for s in read_hour_segments(snapshot(of_months), [hour])}
    assert keys == {s.key for s in snapshot(of_months).segments if s.chunk == "monthly"}
    lab.put_object(min(keys), b"other bytes")
    damages = verify_hours(snapshot(of_months), ObjectStore(of_months.store), [hour])
    assert [damage.key for damage in damages] == [min(keys)]


def test_a_month_is_one_line_of_what_is_archived(of_months: ConnectorConfig) -> None:
    found = summarize_days(snapshot(of_months), UTC, timedelta(0))
    assert [(str(d.span), d.record_count, len(d.objects), d.is_merged) for d in found] == [
        ("2026-01", 9, 2, True),
        ("2026-02-01", 1, 1, True),
    ]
    assert found[0].hour_count == 31 * 24


def test_late_records_are_merged_into_their_day_and_then_into_the_month(lab: Lab) -> None:
    config = monthly(lab.archive(RECORDS, kafka_partitions=2))
    merge_days(config)
    merge_months(config)
    produce(config.kafka, config.topics[0], [Sent(b"late", b"k", NOON + ONE_DAY)])
    archived(config)
    merge_days(config)
    assert ("daily", 0, "01-02") in chunks(config)
    assert is_whole(config)
    assert merge_months(config) == ["2026-01"]
    assert chunks(config) == [("daily", 0, "02-01"), ("monthly", 0, "01-01"), ("monthly", 1, "01-01")]
    assert is_whole(config)
    assert restored(config).record_count == len(RECORDS) + 1


@pytest.mark.parametrize("stage", STAGES)
def test_a_killed_merge_of_a_month_leaves_days_or_the_month(of_days: ConnectorConfig, stage: str) -> None:
    topic = of_days.topics[0]
    before = stored(of_days).drop_columns("object")
    assert killed_at(stage, [CompactRequest(of_days, topic, JANUARY, "killed")])
    assert stored(of_days).drop_columns("object").equals(before)
    assert merge_months(of_days) == ([] if stage == STAGES[2] else ["2026-01"])
    vacuum_topic(of_days, topic, "v", timedelta(0), dry_run=False)
    assert stored(of_days).drop_columns("object").equals(before)
    retired = {s.key for s in snapshot(of_days).retired}
    assert objects(of_days) == live_keys(of_days) | retired, "the vacuum knows the keys of months"


def test_days_and_hours_go_when_their_month_holds_them(of_months: ConnectorConfig) -> None:
    before = stored(of_months).drop_columns("object")
    counts = snapshot(of_months).count_hours(NOON)
    report = retained(of_months, merged_ms=(("", 0),))
    assert [(str(r.span), r.hour_count, len(r.objects)) for r in report.removals] == [
        ("2026-01", 6, 9 + 6),
        ("2026-02-01", 1, 1),
    ]
    assert objects(of_months) == live_keys(of_months)
    assert len(objects(of_months)) == 3
    assert stored(of_months).drop_columns("object").equals(before)
    assert snapshot(of_months).count_hours(NOON) == counts
    assert is_whole(of_months)


def test_days_stay_where_an_object_of_their_month_is_damaged(of_months: ConnectorConfig, lab: Lab) -> None:
    lab.put_object(next(s.key for s in snapshot(of_months).segments if s.chunk == "monthly"), b"other bytes")
    before = objects(of_months)
    report = retained(of_months, merged_ms=(("", 0),))
    assert [str(r.span) for r in report.removals] == ["2026-02-01"]
    assert "the hours of 2026-01 stay" in report.refused[0]
    assert len(before) - len(objects(of_months)) == 1


@pytest.mark.parametrize(
    ("rules", "spans"),
    [
        (
            {"ms": (("", DAY_MS),)},
            {datetime(2026, 2, 1, tzinfo=UTC): [], datetime(2026, 2, 2, tzinfo=UTC): ["2026-01"]},
        ),
        ({"first_day": date(2026, 1, 31)}, {datetime(2026, 3, 1, tzinfo=UTC): []}),
        ({"first_day": date(2026, 2, 1)}, {datetime(2026, 3, 1, tzinfo=UTC): ["2026-01"]}),
        ({"ms": (("", 0),), "holds": (("*", date(2026, 1, 31), date.max),)}, {datetime(2026, 2, 2, tzinfo=UTC): []}),
    ],
    ids=["age", "before its last day", "before the next month", "a day on hold"],
)
def test_a_month_goes_when_all_its_days_may(
    of_months: ConnectorConfig, rules: dict[str, Any], spans: dict[datetime, list[str]]
) -> None:
    for now, expected in spans.items():
        report = retained(of_months, now, **rules)
        assert [str(r.span) for r in report.removals] == expected
    if expected:
        assert [s.chunk for s in snapshot(of_months).expired] == ["hourly"] * 9
        assert chunks(of_months) == [("daily", 0, "02-01")]
        assert is_whole(of_months)


def test_a_late_record_of_a_month_that_was_erased_as_a_whole_is_erased_and_expires(lab: Lab) -> None:
    config = monthly(lab.archive(RECORDS, kafka_partitions=2))
    merge_days(config)
    merge_months(config)

    def erase(key: bytes) -> None:
        request = ErasureRequest(config, config.topics[0], (key,), "erase")
        assert erase_records(request, InProcessRunner(), applies=True).faults == ()

    erase(b"k")
    assert chunks(config) == []
    produce(config.kafka, config.topics[0], [Sent(b"late", key, NOON) for key in (b"l", b"m")])
    archived(config)
    merge_days(config)
    now = snapshot(config)
    assert explain_lost_records(now, find_holder(now, NOON.date())) == ""
    erase(b"l")
    assert retained(config, merged_ms=(("", 0),)).refused == ()
    report = retained(config, first_day=date(2026, 2, 1))
    assert (report.refused, [r.record_count for r in report.removals]) == ((), [1])
    assert objects(config) == set()


def test_days_go_with_their_row_alone_and_a_lost_answer_leaves_none_of_their_objects(
    of_days: ConnectorConfig, lose_answer: Callable[[int], None]
) -> None:
    retained(of_days, merged_ms=(("", 0),))
    merge_months(of_days)
    lose_answer(1)
    assert [str(r.span) for r in retained(of_days, merged_ms=(("", 0),)).removals] == ["2026-01"]
    assert objects(of_days) == live_keys(of_days)
