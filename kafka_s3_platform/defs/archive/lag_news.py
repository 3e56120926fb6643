"""Decides when a topic's lag is observed again, so that Dagster's storage grows by a bounded number of observations."""

from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta

from kafka_s3_platform.errors import PlatformError
from kafka_s3_platform.status.backlog import Backlog
from kafka_s3_platform.status.topic import fingerprint_inputs

MINUTE = timedelta(minutes=1)
OBSERVED_EVERY = timedelta(minutes=10)
"""How often a lag that only moves is observed.

A tick a minute sees the lag of a busy topic move each time. Six points an hour show as well whether runs catch up, and
keep the rows of observations as few as those of the runs. The limits below are for each such interval.
"""

MORE_BY_LAG = 2
"""Further observations of a lag that came or went, and of hours that became due: with `rotate.schedule.interval.ms` of
a minute, the lag goes to zero and back all the time."""

MORE_BY_TROUBLE = 4
"""Further observations of all kinds, where a kafka partition begins or ceases to fail, a hole appears or goes, or what
is at risk changes.

It is more than MORE_BY_LAG, so that a lag that comes and goes never holds up a failure. A kafka partition that fails
and answers in turns is held up.
"""


@dataclass(frozen=True)
class Told:
    """What the last observation of a topic told, and how many there were in its interval.

    The cursor keeps it as a short text, since Dagster stores the cursor with each tick.
    """

    digest: str = ""
    first_minute: int = 0
    """When the first tick looked at the topic, in minutes since 1970 as `since_minute`. 0 if none did."""

    since_minute: int = 0
    more: int = 0
    trouble: str = ""
    is_behind: bool = False
    risk: int = -1
    """Level of the check `at_risk`, -1 if it was never evaluated."""

    due: tuple[int, ...] = ()
    """First and last hour due, in hours since 1970. Empty if none is, or if nothing is left to archive."""

    def __str__(self) -> str:
        numbers = (self.first_minute, self.since_minute, self.more)
        words = (self.digest, *numbers, self.trouble, int(self.is_behind), self.risk, *self.due)
        return " ".join(map(str, words))

    def without_digest(self) -> "Told":
        """Return this for an observation that lacks something: the next interval has another one."""
        return replace(self, digest="-")


def find_news(backlog: Backlog, risk: int, cursor_value: object) -> Told | None:
    """Return what an observation would tell now, None if none is to be written. `kept` is the cursor's value.

    `risk` is the level of the check `at_risk`, -1 if it was never evaluated.
    """
    last = read_told(cursor_value)
    minute = int(backlog.now.timestamp() // MINUTE.total_seconds())
    is_behind = any(backlog.lag.values())
    first = last.first_minute or minute
    now = Told(backlog.digest, first, minute, 0, _describe_trouble(backlog), is_behind, risk, _find_due(backlog))
    is_worth_more = _is_worth_more(last, now)
    # while something is at risk, the time that is left is told again and again
    if not is_worth_more and risk <= 0 and now.digest == last.digest:
        return None
    # The clock may have been set back.
    if not timedelta() <= (minute - last.since_minute) * MINUTE < OBSERVED_EVERY:
        return now
    is_trouble = (now.trouble, now.risk) != (last.trouble, last.risk)
    limit = MORE_BY_TROUBLE if is_trouble else MORE_BY_LAG
    if is_worth_more and last.more < limit:
        return replace(now, since_minute=last.since_minute, more=last.more + 1)
    return None


def read_told(cursor_value: object) -> Told:
    """Read a topic's value in the cursor. Without one, or with another text, nothing was told yet."""
    try:
        digest, first, since, more, trouble, is_behind, risk, *due = str(cursor_value).split()
        times = int(first), int(since)
        return Told(digest, *times, int(more), trouble, is_behind == "1", int(risk), tuple(map(int, due)))
    except ValueError:
        return Told()


def _is_worth_more(last: Told, now: Told) -> bool:
    """Return whether something changed that a person must see at once."""
    if (now.trouble, now.is_behind, now.risk) != (last.trouble, last.is_behind, last.risk):
        return True
    return bool(now.due) and (not last.due or now.due[0] < last.due[0] or now.due[-1] > last.due[-1])


def _describe_trouble(backlog: Backlog) -> str:
    """Return a word that changes with the kafka partitions that do not answer, and with whether there is a hole."""
    silent = fingerprint_inputs(sorted(backlog.failures)) if backlog.failures else "-"
    return f"{silent}+hole" if backlog.has_hole else silent


def _find_due(backlog: Backlog) -> tuple[int, ...]:
    # The newest hour of a topic without news is due as well, but an observation would tell nothing new of it. What
    # the broker does not answer is raised by whoever needs it.
    with suppress(PlatformError):
        if backlog.uncovered and backlog.hours_left:
            return tuple(int(hour.timestamp() // 3600) for hour in (backlog.hours_left[0], backlog.hours_left[-1]))
    return ()
