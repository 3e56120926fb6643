"""Chooses a topic's hours for the next rehearsal, a trial restore, and counts the hours that came back."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from kafka_s3_platform.core.model.times import HOUR

DAY = timedelta(days=1)


@dataclass(frozen=True)
class RehearsedHours:
    """Consecutive hours `[start, end)`, all with records, rehearsed together at `at`.

    `failure` says why they did not come back; it is empty if they did.
    """

    start: datetime
    end: datetime
    at: datetime
    failure: str = ""

    @property
    def hour_count(self) -> int:
        return (self.end - self.start) // HOUR

    def list_hours(self) -> list[datetime]:
        """List the starts of the hours."""
        return [self.start + number * HOUR for number in range(self.hour_count)]


@dataclass(frozen=True)
class TopicTurns:
    """The turns of a topic's hours, as of its last rehearsal.

    `hour_count` and `record_bytes` cover all hours that had records then. From `due_at` on, some hour may not have
    come back for longer than the period. `first_at` is the first rehearsal: an older hour
    has its first turn within a period of it.
    """

    first_at: datetime
    period_days: int
    hour_count: int
    record_bytes: int
    due_at: datetime
    rehearsed: tuple[RehearsedHours, ...] = ()

    def count_proven(self, now: datetime) -> int:
        """Count the hours that came back within the period before `now`."""
        since = now - self.period_days * DAY
        return sum(hours.hour_count for hours in self.rehearsed if not hours.failure and hours.at >= since)

    @property
    def failed(self) -> tuple[RehearsedHours, ...]:
        """The hours whose last rehearsal failed."""
        return tuple(hours for hours in self.rehearsed if hours.failure)

    @property
    def failed_count(self) -> int:
        """The number of hours whose last rehearsal failed."""
        return sum(hours.hour_count for hours in self.failed)


def draw_turns(counts: Mapping[datetime, int], turns: TopicTurns | None, period_days: int) -> list[datetime]:
    """Return the hours to rehearse now, ascending. `counts` maps each hour to its number of records.

    The hours chosen are those rehearsed longest ago or, without a rehearsal, ended longest ago. With a rehearsal a day,
    they give each hour its turn within the period, with a day to spare. As many failed ones may be tried again.
    """
    last_turns = _map_turns(turns.rehearsed if turns else ())
    failed_hours = [hour for hour in counts if hour in last_turns and last_turns[hour].failure]
    others = sorted(counts.keys() - set(failed_hours), key=lambda hour: (_find_last(hour, last_turns), hour))
    failed_hours.sort(key=lambda hour: (last_turns[hour].at, hour))
    share = -(-len(counts) // max(1, period_days - 1))
    return sorted([*others[:share], *failed_hours[:share]])


def add_turn(
    turns: TopicTurns | None,
    outcomes: Mapping[datetime, str],
    at: datetime,
    period_days: int,
    counts: Mapping[datetime, int],
    record_bytes: int,
) -> TopicTurns:
    """Return the turns after a rehearsal at `at`. `outcomes` maps each hour to why it did not come back, or "".

    Hours that the archive no longer holds are forgotten.
    """
    first_at = turns.first_at if turns else at
    last_turns = _map_turns(turns.rehearsed if turns else ())
    last_turns |= {hour: RehearsedHours(hour, hour + HOUR, at, failure) for hour, failure in outcomes.items()}
    present = {hour: last_turns[hour] for hour in sorted(counts) if hour in last_turns}
    waiting = (
        max(_find_last(hour, present), first_at if hour not in present else hour)
        for hour in counts
        if hour not in present or not present[hour].failure
    )
    oldest = min(waiting, default=at)
    return TopicTurns(
        first_at=first_at,
        period_days=period_days,
        hour_count=len(counts),
        record_bytes=record_bytes,
        due_at=oldest + period_days * DAY,
        rehearsed=tuple(_join_hours(present)),
    )


def join_hours(hours: Sequence[datetime]) -> list[tuple[datetime, datetime]]:
    """Join ascending hours into separate windows `[start, end)`."""
    windows: list[tuple[datetime, datetime]] = []
    for hour in hours:
        start = windows.pop()[0] if windows and windows[-1][1] == hour else hour
        windows.append((start, hour + HOUR))
    return windows


def _map_turns(rehearsed: Iterable[RehearsedHours]) -> dict[datetime, RehearsedHours]:
    """Map each single hour to its last rehearsal."""
    last_turns: dict[datetime, RehearsedHours] = {}
    for hours in rehearsed:
        last_turns |= dict.fromkeys(hours.list_hours(), hours)
    return last_turns


def _find_last(hour: datetime, last_turns: Mapping[datetime, RehearsedHours]) -> datetime:
    """Return when an hour was last rehearsed or, if it never was, when it ended."""
    return last_turns[hour].at if hour in last_turns else hour + HOUR


def _join_hours(turns: Mapping[datetime, RehearsedHours]) -> Iterable[RehearsedHours]:
    """Join consecutive hours with the same turn and outcome."""
    ranges: list[RehearsedHours] = []
    for hour, turn in turns.items():
        start = hour
        if ranges and ranges[-1].end == hour and (ranges[-1].at, ranges[-1].failure) == (turn.at, turn.failure):
            start = ranges.pop().start
        ranges.append(RehearsedHours(start, hour + HOUR, turn.at, turn.failure))
    return ranges
