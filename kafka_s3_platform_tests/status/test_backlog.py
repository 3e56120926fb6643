"""Which hours are due, for made-up logs: (offset, timestamp) of every record, the bounds and what is archived."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from itertools import accumulate
from typing import Any

import pytest
from pydantic import SecretStr

from kafka_s3_platform.core.config.settings import KafkaSettings, StoreSettings
from kafka_s3_platform.core.defs.topic import TopicAssets
from kafka_s3_platform.core.errors import ClockError, LogTruncatedError
from kafka_s3_platform.core.kafka.answers import Answers, OffsetAtTime, RecordOffset
from kafka_s3_platform.core.model.frontier import Frontier
from kafka_s3_platform.core.model.gaps import Gap, Unresolved
from kafka_s3_platform.core.model.health import Level
from kafka_s3_platform.core.model.offsets import OffsetRange
from kafka_s3_platform.core.model.segment import HourRange, Scan
from kafka_s3_platform.core.model.state import IndexState
from kafka_s3_platform.core.model.times import to_epoch_ms
from kafka_s3_platform.core.status.backlog import MAX_HOURS, Backlog, split_contiguous
from kafka_s3_platform.core.status.risk import find_risk
from kafka_s3_platform_tests.support import HOUR, NOON, connector

NOW = NOON + timedelta(minutes=30)
NEWEST = NOON - HOUR


def backlog(
    times: Sequence[datetime],
    *,
    log_start: int = 0,
    scanned: Sequence[tuple[int, int]] = (),
    unresolved: Sequence[tuple[int, int]] = (),
    asked: Mapping[datetime, tuple[int, int]] | None = None,
    stored: Sequence[datetime] = (),
    seen_at: datetime | None = None,
    seen_log_start: int | None = None,
    seen_end: int | None = None,
    configs: Mapping[str, str] | None = None,
    password: str = "",
    rotate_schedule_interval_ms: int | None = None,
    timezone: str = "UTC",
    **archive: Any,
) -> Backlog:
    """One kafka partition whose record at offset n has the timestamp `times[n]`; `seen_at`: when it was observed."""
    highest = list(accumulate((to_epoch_ms(t) for t in times), max))

    def lookup(kafka_partitions: Iterable[int], timestamps: Sequence[int]) -> Answers[int, Mapping[int, OffsetAtTime]]:
        found = {t: max(bisect_left(highest, t), log_start) for t in timestamps}
        offsets: Mapping[int, OffsetAtTime] = {t: RecordOffset(o) if o < len(times) else None for t, o in found.items()}
        return Answers(dict.fromkeys(kafka_partitions, offsets), {})

    kafka = KafkaSettings(bootstrap_servers="b:1", common={"sasl.password": SecretStr(password)})
    layout = {"rotate_schedule_interval_ms": rotate_schedule_interval_ms, "timezone": timezone}
    config = connector(kafka, StoreSettings(bucket="bucket"), "t", layout=layout, **archive)
    seen_start = log_start if seen_log_start is None else seen_log_start
    end = len(times) if seen_end is None else seen_end
    state = IndexState(
        version=1,
        scans=tuple(Scan(0, a, b, b - a, None, 1) for a, b in scanned),
        hours=tuple(HourRange(h, 0, a, b) for h, (a, b) in (asked or {}).items()),
        failures=tuple(Unresolved(0, a, b, "VALUE_CONVERTER", "no JSON", NOW) for a, b in unresolved),
        frontiers=(Frontier(0, seen_start, end, end, 0, seen_at),) if seen_at else (),
    )
    frontier = Frontier(0, log_start, len(times), len(times), 0, NOW)
    in_force = {"cleanup.policy": "delete"} | dict(configs or {})
    topic = TopicAssets(config, "t")

    def read_timestamp(_: int, offsets: OffsetRange) -> int:
        return to_epoch_ms(times[offsets.start_offset])

    return Backlog(topic, "id", NOW, {0: frontier}, state, frozenset(stored), lookup, lambda: in_force, read_timestamp)


def undecided(found: Backlog) -> Backlog:
    """The same of a topic of which nothing is archived until somebody decides."""
    return replace(found, frontiers={}, undecided={0: LogTruncatedError("the log ends early")})


def ago(*hours: float) -> list[datetime]:
    return [NOON - h * HOUR for h in hours]


def test_nothing_archived_asks_for_all_hours_from_the_first_record_to_the_newest_closed_one() -> None:
    assert backlog(ago(3.5, 2.5)).hours_due(()) == ago(4, 3, 2, 1)


def test_empty_hours_before_the_first_record_are_not_asked_for() -> None:
    found = backlog(ago(3.5))
    assert found.oldest_uncovered == NOON - 4 * HOUR
    assert found.lag == {0: 1}


@pytest.mark.parametrize("age", [0.5, 1.5, 2.5, 3.5, 5.5, 17.5, 100.5, 700.5])
def test_the_oldest_hour_is_found_in_few_questions_if_it_is_a_new_one(age: float) -> None:
    found = backlog(ago(900, age), scanned=[(0, 1)])
    asked: list[Sequence[int]] = []

    def counted(kafka_partitions: Iterable[int], times: Sequence[int]) -> Answers[int, Mapping[int, OffsetAtTime]]:
        asked.append(times)
        return found.lookup(kafka_partitions, times)

    assert replace(found, lookup=counted).oldest_uncovered == NOON - (age + 0.5) * HOUR
    assert len(asked) <= 2 * int(age).bit_length() + 3


def test_an_archived_topic_asks_for_the_newest_closed_hour_alone() -> None:
    found = backlog(ago(30), scanned=[(0, 1)], asked={NOON - 100 * HOUR: (0, 1)})
    assert found.hours_due([NOON - 100 * HOUR]) == [NEWEST]


def test_idle_hours_since_the_last_one_asked_for_are_asked_for_too() -> None:
    found = backlog(ago(5.5), scanned=[(0, 1)], asked={NOON - 6 * HOUR: (0, 1)})
    assert found.hours_due([NOON - 6 * HOUR]) == ago(5, 4, 3, 2, 1)


def test_nothing_is_due_once_the_newest_closed_hour_is_complete_and_materialized() -> None:
    found = backlog(ago(1.5, 0.5), scanned=[(0, 2)], asked={NEWEST: (1, 2)}, seen_at=NOW)
    assert found.hours_due([NEWEST]) == []


def test_an_hour_that_was_archived_but_not_materialized_is_asked_for_again() -> None:
    found = backlog(ago(1.5, 0.5), scanned=[(0, 2)], asked={NEWEST: (1, 2)}, seen_at=NOW)
    assert found.hours_due([]) == [NEWEST]


def test_an_hour_that_was_archived_in_passing_but_not_materialized_is_asked_for() -> None:
    late = NOON - 5 * HOUR
    found = backlog(ago(1.5, 0.5), scanned=[(0, 2)], asked={NEWEST: (1, 2)}, seen_at=NOW, stored=[late, NEWEST])
    assert found.hours_due([NEWEST]) == [late]


def test_after_a_change_of_the_timezone_by_half_an_hour_only_hours_of_the_new_one_are_due() -> None:
    old = ago(*range(100, 1, -1))
    half_past = dict.fromkeys(old[:-1], (0, 1)) | {old[-1]: (1, 1)}
    found = backlog(
        ago(100.5, 0.3), scanned=[(0, 1)], asked=half_past, stored=old[:1], timezone="Asia/Kolkata", seen_at=NEWEST
    )
    assert found.hours_due(()) == ago(1.5, 0.5)
    unscanned = replace(found.state, hours=(*found.state.hours, HourRange(NOON - 3 * HOUR, 0, 0, 2)))
    assert replace(found, state=unscanned).hours_due(()) == ago(1.5, 0.5)


def test_a_record_far_ahead_asks_for_no_hour_but_the_newest_closed_one() -> None:
    ahead = NOON + 1000 * HOUR
    found = backlog([ahead, *ago(0.5)], scanned=[(0, 1)], asked={NOON - 2 * HOUR: (0, 0)}, seen_at=NOON - HOUR)
    assert found.hours_due([NOON - 2 * HOUR]) == [NEWEST]


def test_a_record_far_ahead_hides_no_record_that_is_not_archived_behind_it() -> None:
    """Archived is one record of a time far ahead; what came since is two days old."""
    ahead = NOON + 1000 * HOUR
    found = backlog([ahead, *ago(47.5, 0.5)], scanned=[(0, 1)], seen_at=NOON - 48 * HOUR, seen_end=1)
    assert found.oldest_uncovered == NOON - 48 * HOUR
    assert NOON - 48 * HOUR in found.hours_due(())
    assert find_risk(found).level is Level.FAIL
    assert backlog([ahead, *ago(24 * 40)], scanned=[(0, 1)], seen_at=NOON - 48 * HOUR, seen_end=1).precedes_hours


def test_where_such_a_record_cannot_be_read_it_may_have_come_right_after_the_last_look() -> None:
    found = backlog([NOON + 1000 * HOUR, *ago(0.5)], scanned=[(0, 1)], seen_at=NOON - 7.5 * HOUR, seen_end=1)
    assert replace(found, read_timestamp=lambda *_: None).oldest_uncovered == NOON - 8 * HOUR


def test_nothing_is_read_of_a_topic_that_is_archived_in_time() -> None:
    def refuse(*_: object) -> int:
        raise AssertionError("not to be asked")

    found = backlog(ago(1.5, 0.5, 0.4), scanned=[(0, 2)], seen_at=NOW - HOUR, seen_end=2)
    assert replace(found, read_timestamp=refuse).oldest_uncovered == NEWEST


def test_an_hour_that_was_asked_for_and_is_not_scanned_is_due_however_old() -> None:
    old = NOON - (MAX_HOURS + 30) * HOUR
    found = backlog(ago(60), scanned=[(0, 1)], asked={old: (0, 2), NEWEST: (1, 1)}, seen_at=NOW)
    assert found.hours_due([NEWEST]) == [old]


@pytest.mark.parametrize("hours", [3, 12, MAX_HOURS + 27])
def test_a_topic_that_waits_for_a_decision_fails_at_once_and_stays_so(hours: int) -> None:
    """It was archived until that many hours ago, and is up to date in all that can be compared."""
    then = NEWEST - hours * HOUR
    found = undecided(backlog(ago(hours + 5), scanned=[(0, 1)], asked={then: (0, 1)}, seen_at=then + HOUR))
    risk = find_risk(found)
    assert risk.level is Level.FAIL
    assert "Until somebody decides, not archived: 1 kafka partition.\n" in risk.text
    assert "the log ends early" in risk.text
    assert found.hours_due([then]) == [then + n * HOUR for n in range(1, hours + 1)]


def test_a_clock_that_is_wrong_makes_the_topic_fail() -> None:
    found = backlog(ago(0.5), scanned=[(0, 1)], asked={NEWEST: (0, 1)}, seen_at=NOW)
    assert find_risk(found).level is Level.FINE
    risk = find_risk(replace(found, clock_error=ClockError("3 days behind")))
    assert (risk.level, "3 days behind" in risk.text) == (Level.FAIL, True)


def test_an_open_hour_is_never_asked_for() -> None:
    assert NOON not in backlog([NOON + timedelta(minutes=10)]).hours_due(())


def test_records_before_the_first_hour_belong_to_no_hour() -> None:
    found = backlog(ago(24 * 90, 1.5))
    assert found.precedes_hours
    assert not backlog(ago(24 * 20, 1.5)).precedes_hours


def test_an_hour_that_lost_records_to_retention_is_known_as_such() -> None:
    found = backlog(ago(9, 8, 3.5, 2.5), log_start=2, scanned=[(0, 1)])
    assert found.oldest_uncovered == NOON - 4 * HOUR
    # it may have been of each hour that was over since
    assert found.find_lost_hours(ago(4, 3, 2)) == {*ago(4, 3, 2)}
    assert found.has_left(ago(4))
    assert not found.has_left(ago(5))
    assert not backlog(ago(9, 8, 3.5, 2.5), log_start=2, scanned=[(0, 1), (2, 3)]).has_left(ago(4))


def test_what_retention_took_before_archiving_began_is_not_lost() -> None:
    found = backlog(ago(3.6, 3.5, 2.5), log_start=1)
    assert found.find_lost_hours(found.hours_due(())) == set()


def test_a_hole_is_what_lies_before_covered_records() -> None:
    assert backlog(ago(5, 4, 3), scanned=[(0, 1), (2, 3)]).has_hole
    assert not backlog(ago(5, 4, 3), scanned=[(0, 2)]).has_hole


def test_what_is_recorded_as_deleted_is_asked_for_while_the_log_has_it() -> None:
    """A run up to now reads it: once a broker told a log start that was too high."""
    told = replace(backlog(ago(5, 4, 3), scanned=[(2, 3)]).state, gaps=(Gap(0, 0, 2),))
    found = replace(backlog(ago(5, 4, 3)), state=told)
    assert (found.lag, found.has_hole) == ({0: 2}, True)
    assert replace(backlog(ago(5, 4, 3), log_start=2), state=told).lag == {0: 0}


def test_what_is_unresolved_is_asked_for_no_more_but_counts_as_lag_and_is_at_stake() -> None:
    """Offset 1 of hour 3 cannot be archived; all else is."""
    found = backlog(
        ago(3.5, 3.4, 0.5),
        scanned=[(0, 1), (2, 3)],
        unresolved=[(1, 2)],
        asked={NOON - 4 * HOUR: (0, 2), NEWEST: (2, 3)},
        seen_at=NOW,
        configs={"retention.ms": str(to_epoch_ms(NOW) - to_epoch_ms(NOON - 5 * HOUR))},
    )
    assert found.hours_due([NEWEST]) == []
    assert not found.has_hole
    assert not found.precedes_hours
    assert found.lag == {0: 1}
    assert found.seconds_to_retention_loss == HOUR.total_seconds()


def test_what_retention_took_after_the_first_run_looked_is_lost_though_it_archived_nothing() -> None:
    assert backlog(ago(9, 8, 3.5), log_start=2, seen_at=NOON - 8 * HOUR, seen_log_start=0).find_lost_hours(
        ago(4)
    ) == set(ago(4))


def test_nothing_is_lost_where_retention_took_archived_records_or_gaps_are_allowed() -> None:
    assert backlog(ago(9, 8, 3.5), log_start=2, scanned=[(0, 2)]).find_lost_hours(ago(4)) == set()
    assert backlog(ago(9, 8, 3.5), log_start=2, allow_gaps=True).find_lost_hours(ago(4)) == set()


def test_the_time_left_counts_from_the_oldest_hour_that_is_not_archived() -> None:
    found = backlog(ago(3.5), configs={"retention.ms": str(10 * 3_600_000)})
    assert found.seconds_to_retention_loss == pytest.approx(5.5 * 3600)
    assert backlog(ago(3.5)).seconds_to_retention_loss is None


@pytest.mark.parametrize(("policy", "is_at_stake"), [("delete", True), ("compact,delete", True), ("compact", False)])
def test_retention_takes_nothing_from_a_topic_that_is_only_compacted(policy: str, is_at_stake: bool) -> None:
    found = backlog(ago(3.5), configs={"retention.ms": "3600000", "cleanup.policy": policy})
    assert (found.seconds_to_retention_loss is not None) == is_at_stake


def test_the_fingerprint_of_closed_hours_does_not_move_with_new_records() -> None:
    hours = ago(4, 3)
    before, after = backlog(ago(3.5, 1.5)), backlog(ago(3.5, 1.5, 0.2, 0.1))
    assert before.fingerprint(hours) == after.fingerprint(hours)


def test_the_fingerprint_moves_with_coverage_retention_and_configuration() -> None:
    hours, times = ago(4, 3), ago(3.5, 3.4, 1.5)
    found = {
        backlog(times).fingerprint(hours),
        backlog(times, scanned=[(0, 1)]).fingerprint(hours),
        backlog(times, log_start=1).fingerprint(hours),
        backlog(times, allow_gaps=True).fingerprint(hours),
        backlog(times, password="corrected").fingerprint(hours),
    }
    assert len(found) == 5


@pytest.mark.parametrize(("minutes", "is_due"), [(9, False), (10, True), (11, True), (None, True)])
def test_a_rotation_is_due_when_its_interval_has_passed_since_any_run_looked(minutes: int | None, is_due: bool) -> None:
    seen_at = None if minutes is None else NOW - timedelta(minutes=minutes)
    assert backlog(ago(0.2), rotate_schedule_interval_ms=600_000, seen_at=seen_at).is_rotation_due == is_due


def test_no_rotation_is_due_without_an_interval_or_without_anything_to_archive() -> None:
    assert not backlog(ago(0.2)).is_rotation_due
    assert not backlog(ago(0.2), rotate_schedule_interval_ms=1, scanned=[(0, 1)]).is_rotation_due


def test_no_secret_is_in_a_fingerprint() -> None:
    found = backlog(ago(3.5), password="correct-horse")
    assert "correct-horse" not in found.topic.config_digest + found.fingerprint(ago(4))


def test_hours_are_asked_for_in_runs_that_follow_each_other() -> None:
    assert split_contiguous(ago(9, 8, 5, 2, 1)) == [ago(9, 8), ago(5), ago(2, 1)]
    assert split_contiguous([]) == []
    days = [date(2026, 1, 31), date(2026, 2, 1), date(2026, 2, 3)]
    assert split_contiguous(days, timedelta(days=1)) == [days[:2], days[2:]]


def test_a_long_backlog_is_due_as_a_whole_oldest_first() -> None:
    due = backlog(ago(500)).hours_due(())
    assert len(due) == 500 > MAX_HOURS
    assert due == sorted(due)
