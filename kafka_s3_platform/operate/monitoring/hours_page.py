"""Renders the hours of a topic as a page with a row for each day and a cell for each hour.

Each cell has a colour and a mark.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import chain

from kafka_s3_platform.core.instance.windows import Hours, link_window
from kafka_s3_platform.core.status.topic import ArchivedTopic
from kafka_s3_platform.core.templates import render_template
from kafka_s3_platform.core.text import count_noun
from kafka_s3_platform.core.upkeep.hour_states import COLOURS, MARKS, DescribedHour, GridDay, HourState

MAX_DAYS = 366


@dataclass(frozen=True)
class HoursOfTopic:
    """The days of a topic, as they were in the index at `read_at`."""

    topic: ArchivedTopic
    days: Sequence[GridDay]
    read_at: datetime


@dataclass(frozen=True)
class HoursPage:
    """The hours of a topic and the rest of their page, for all kafka partitions or for one.

    `status_link` is a link from this page to the status page, `dagster` the address of Dagster.
    """

    hours: HoursOfTopic
    kafka_partition: int | None
    day_count: int
    status_link: str
    dagster: str

    @cached_property
    def kafka_partitions(self) -> list[int]:
        """The kafka partitions that have hours."""
        return sorted({*chain.from_iterable(hour.kafka_partitions for hour in self._hours)})

    @cached_property
    def counts(self) -> Counter[HourState]:
        """The number of hours in each state."""
        return Counter(map(self.name_state, self._hours))

    @property
    def _hours(self) -> list[DescribedHour]:
        return [*chain.from_iterable(day.hours for day in self.hours.days)]

    @cached_property
    def _windows(self) -> Hours:
        return Hours(self.hours.topic.config)

    def name_state(self, hour: DescribedHour) -> HourState:
        """Name the state of an hour, in the chosen kafka partition."""
        return hour.state if self.kafka_partition is None else hour.kafka_partitions.get(self.kafka_partition, "none")

    def count_complete(self, day: GridDay) -> int:
        """Count the complete hours of a day."""
        return sum(self.name_state(hour) in {"complete", "late", "empty", "in doubt", "expired"} for hour in day.hours)

    def describe_hour(self, hour: DescribedHour) -> list[str]:
        """Describe an hour, and the kafka partitions in which it is incomplete."""
        report = hour.report
        lines = [
            f"{self._windows.key(report.hour)}: {self.name_state(hour)}",
            count_noun(report.record_count, "record"),
        ]
        lines += [f"{report.late_count:,} late"] if report.late_count else []
        lacking = ((p, state) for p, state in hour.kafka_partitions.items() if state in {"gap", "at risk", "partial"})
        return [*lines, *(f"kafka partition {p}: {state}" for p, state in lacking)]

    def link_hour(self, hour: DescribedHour) -> str:
        """Link to the page of an hour in Dagster."""
        topic = self.hours.topic
        asset = [topic.config.name, "hourly", topic.topic]
        return link_window(self.dagster, asset, self._windows.key(hour.report.hour))


def render_hours_page(page: HoursPage) -> str:
    """Render the page."""
    return render_template("operate/monitoring/hours_page.html.j2", page=page, colours=COLOURS, marks=MARKS)
