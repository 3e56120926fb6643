"""The part of a topic's state that replaces old rows, which the upkeep has moved out of it."""

from dataclasses import dataclass
from datetime import datetime, timezone
from functools import lru_cache

from kafka_s3_platform.model.frontier import Frontier
from kafka_s3_platform.model.segment import Scan
from kafka_s3_platform.model.times import HOUR


@dataclass(frozen=True, slots=True)
class FoldedScan(Scan):
    """Offsets of many scans without a hole between them. Counts are sums; the leader epoch belongs to their end."""


@dataclass(frozen=True, slots=True)
class FoldedLook(Frontier):
    """The first look at a log, the last one that was folded, or one of the two before that."""


@dataclass(frozen=True, slots=True)
class FoldedHours:
    """`size` hours from `hour` on. Each was complete when it was folded, in every kafka partition."""

    hour: datetime
    size: int

    @property
    def until(self) -> datetime:
        """The end of the last hour."""
        return self.hour + self.size * HOUR

    def last_before(self, hour: datetime) -> datetime | None:
        """Return the last of the hours that begins before `hour`, None if none does."""
        count = min(self.size, -((self.hour - hour) // HOUR))
        return self.hour + (count - 1) * HOUR if count > 0 else None

    def __contains__(self, hour: datetime) -> bool:
        # Hours of a timezone may begin at half past: these are other hours.
        return self.hour <= hour < self.until and not (hour - self.hour) % HOUR


@dataclass(frozen=True)
class Fold:
    """The folded rows of a topic: looks at each kafka partition, and a few runs of hours."""

    scans: tuple[FoldedScan, ...] = ()
    looks: tuple[FoldedLook, ...] = ()
    hours: tuple[FoldedHours, ...] = ()


@lru_cache(maxsize=64)
def list_folded_hours(runs: tuple[FoldedHours, ...]) -> frozenset[datetime]:
    """Return the single hours. Topics of one connector mostly have the same ones, and share the answer."""
    return frozenset(run.hour + n * HOUR for run in runs for n in range(run.size))


def find_folded_month(hour: datetime) -> str:
    """Return the month (UTC) of a folded hour's rows: `2026-03`."""
    return f"{hour.astimezone(timezone.utc):%Y-%m}"


@lru_cache(maxsize=64)
def list_months(runs: tuple[FoldedHours, ...]) -> tuple[str, ...]:
    """Return the months of the hours, in order."""
    return tuple(sorted({find_folded_month(hour) for hour in list_folded_hours(runs)}))
