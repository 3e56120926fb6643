from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_s3_platform.config.formats import NATIVE_FORMAT
from kafka_s3_platform.config.settings import (
    ArchiveSettings,
    ConnectorConfig,
    KafkaSettings,
    LayoutSettings,
    StoreSettings,
)
from kafka_s3_platform.errors import ConfigError
from kafka_s3_platform.restore.request import RestoreRequest
from kafka_s3_platform.restore.source.archive_plan import PlannedObject
from kafka_s3_platform.restore.source.selection import round_up_to_ms, select_records
from kafka_s3_platform_tests.restore.records import batch_of

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)

CONFIG = ConnectorConfig(
    name="c",
    topics=("t",),
    kafka=KafkaSettings(bootstrap_servers="127.0.0.1:1"),
    store=StoreSettings(bucket="bucket"),
    layout=LayoutSettings(),
    archive=ArchiveSettings(start_hour=NOON),
)


def request(**changes: Any) -> RestoreRequest:
    given: dict[str, Any] = {"topic": "t", "to_topic": "u", "restore_id": "r", "run_id": "x"}
    return RestoreRequest(CONFIG, **given | changes)


def planned(kafka_partition: int, offsets: tuple[int, int], times: tuple[int, int]) -> PlannedObject:
    return PlannedObject(
        "k", "e", 1, "", "", kafka_partition, *offsets, 5, 50, *times, out_of_range=False, format=NATIVE_FORMAT
    )


def test_without_a_window_every_record_is_held_whatever_its_timestamp() -> None:
    chosen = select_records(request(), [0, 1])

    assert chosen.holds(planned(1, (0, 2**40), (-(2**60), 2**60)))
    assert not chosen.is_timed


def test_a_window_of_time_ends_before_its_end_to_the_millisecond() -> None:
    chosen = select_records(request(from_time=NOON, to_time=NOON + timedelta(milliseconds=10)), [0])
    start = round_up_to_ms(NOON)

    assert chosen.holds(planned(0, (0, 5), (start, start + 9)))
    assert chosen.overlaps(planned(0, (0, 5), (start + 9, start + 10)))
    assert not chosen.holds(planned(0, (0, 5), (start + 9, start + 10)))
    assert not chosen.overlaps(planned(0, (0, 5), (start + 10, start + 20)))
    assert not chosen.overlaps(planned(0, (0, 5), (start - 9, start - 1)))


def test_a_bound_between_two_milliseconds_is_the_later_one() -> None:
    assert round_up_to_ms(NOON + timedelta(microseconds=1)) == round_up_to_ms(NOON) + 1
    assert round_up_to_ms(datetime(1969, 12, 31, 23, 59, 59, 999_500, tzinfo=timezone.utc)) == 0


def test_offsets_are_one_window_for_all_or_one_a_kafka_partition() -> None:
    one = select_records(request(from_offset=3, to_offset=9), [0, 1])
    each = select_records(request(from_offset={1: 3}, to_offset={1: 9}), [0, 1])

    assert one.bounds(planned(0, (0, 20), (0, 0))) == (3, 9)
    assert each.bounds(planned(0, (0, 20), (0, 0))) == (0, 20)
    assert each.bounds(planned(1, (0, 20), (0, 0))) == (3, 9)
    assert not one.overlaps(planned(0, (9, 20), (0, 0)))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"kafka_partitions": (0, 7)}, "kafka partition 7"),
        ({"from_offset": {4: 0}}, "kafka partition 4"),
        ({"from_offset": 9, "to_offset": 9}, r"no offset is in \[9, 9\)"),
        ({"from_time": NOON, "to_time": NOON}, "no time is in"),
        ({"from_time": NOON.replace(tzinfo=None)}, "has no timezone"),
        ({"restore_id": "a/b"}, "restore id 'a/b'"),
    ],
)
def test_what_cannot_be_selected_is_refused_by_name(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        select_records(request(**changes), [0, 1])


HOUR = 3_600_000
START = round_up_to_ms(NOON)


def hours(*numbers: int) -> tuple[tuple[datetime, datetime], ...]:
    return tuple((NOON + timedelta(hours=n), NOON + timedelta(hours=n + 1)) for n in numbers)


def test_hours_picked_here_and_there_are_windows_of_their_own() -> None:
    chosen = select_records(request(windows=hours(5, 0, 1)), [0])

    assert chosen.times == ((START, START + 2 * HOUR), (START + 5 * HOUR, START + 6 * HOUR))
    assert (chosen.from_ms, chosen.to_ms) == (START, START + 6 * HOUR)
    assert chosen.holds(planned(0, (0, 5), (START + HOUR - 1, START + HOUR)))
    assert chosen.overlaps(planned(0, (0, 5), (START + 3 * HOUR, START + 5 * HOUR)))
    assert not chosen.holds(planned(0, (0, 5), (START + 3 * HOUR, START + 5 * HOUR)))
    assert not chosen.overlaps(planned(0, (0, 5), (START + 2 * HOUR, START + 5 * HOUR - 1)))


def test_hours_and_a_window_must_both_hold() -> None:
    chosen = select_records(request(windows=hours(0, 5), from_time=NOON + timedelta(hours=5, minutes=30)), [0])

    assert not chosen.overlaps(planned(0, (0, 5), (START, START + HOUR)))
    assert chosen.overlaps(planned(0, (0, 5), (START + 6 * HOUR - 1, START + 6 * HOUR - 1)))


@given(st.lists(st.integers(-3 * HOUR, 9 * HOUR)), st.sets(st.integers(0, 5)))
def test_records_of_the_picked_hours_and_no_others_are_taken(times: list[int], picked: set[int]) -> None:
    batch = batch_of([{"timestamp": START + t} for t in times])

    found = select_records(request(windows=hours(*picked)), [0]).within_times(batch)

    expected = [n for n, t in enumerate(times) if not picked or t // HOUR in picked]
    assert found.column("offset").to_pylist() == expected
