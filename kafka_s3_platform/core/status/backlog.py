"""Finds the unarchived offsets of a topic, and the hours to request next. Asks only Kafka and the index."""

from bisect import bisect_left
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from functools import cached_property
from typing import TypeVar

from kafka_s3_platform.core.archive.plan import (
    OffsetLookup,
    find_deleted_offsets,
    find_hour_start,
    find_lost_offsets,
    find_readable_offset,
)
from kafka_s3_platform.core.errors import BrokerUnavailableError, ClockError, PlatformError, StoreUnavailableError
from kafka_s3_platform.core.kafka.answers import OffsetAtTime
from kafka_s3_platform.core.model.frontier import Frontier
from kafka_s3_platform.core.model.gaps import FOR_EVER, parse_retention_ms
from kafka_s3_platform.core.model.offsets import OffsetRange, RangeSet, make_span
from kafka_s3_platform.core.model.state import IndexState
from kafka_s3_platform.core.model.times import HOUR, HOUR_MS, to_epoch_ms
from kafka_s3_platform.core.status.topic import ArchivedTopic, find_newest_closed_hour, fingerprint_inputs


class UnansweredError(PlatformError):
    """Some kafka partitions do not answer. `failures` holds the error of each."""

    def __init__(self, failures: Mapping[int, PlatformError]) -> None:
        super().__init__("; ".join(map(str, failures.values())))
        self.failures = failures


MAX_HOURS = 48
"""The most hours of a topic that a tick requests."""

T = TypeVar("T", date, datetime)

OldestSearch = Generator[
    int, Mapping[int, Mapping[int, OffsetAtTime]], tuple[datetime, Mapping[int, OffsetAtTime]] | None
]
"""Yields the timestamp to ask about next, and receives o(t) by kafka partition and timestamp."""


@dataclass(frozen=True)
class Archived:
    """The index of a topic: its state, and the hours with segments."""

    state: IndexState = field(default_factory=IndexState)
    stored_hours: frozenset[datetime] = frozenset()


@dataclass(frozen=True)
class Backlog:
    """A topic as Kafka and the index show it at one moment, `now`: its unarchived offsets and due hours."""

    topic: ArchivedTopic
    topic_id: str
    now: datetime
    frontiers: Mapping[int, Frontier]
    state: IndexState
    stored_hours: frozenset[datetime]
    lookup: OffsetLookup
    read_configs: Callable[[], Mapping[str, str]]
    """Returns the topic's configs in force, the broker's defaults among them. Most ticks do not need them."""

    read_timestamp: Callable[[int, OffsetRange], int | None]
    """Reads the timestamp (epoch ms) of the first record in a range of a kafka partition, None if there is none."""

    failures: Mapping[int, PlatformError] = field(default_factory=dict)
    """Errors of kafka partitions that do not answer. They are in no other field."""

    undecided: Mapping[int, PlatformError] = field(default_factory=dict)
    """Kafka partitions whose log is not the archived one, with the error.

    Nothing of them is archived until somebody decides: their lag is unknown, and they are in no other field.
    """

    clock_error: ClockError | None = None
    """The reason not to rely on `now`, or None if there is none."""

    silent_store: StoreUnavailableError | None = None
    """The reason why the index was not read this time. `state` is then an earlier one, and may lack rows."""

    @property
    def reasons_to_decide(self) -> list[str]:
        """The reasons why kafka partitions are `undecided`, without repetition."""
        return [*dict.fromkeys(map(str, self.undecided.values()))]

    @cached_property
    def uncovered(self) -> dict[int, RangeSet]:
        """The readable offsets that are neither archived nor unresolved, for each kafka partition with any."""
        return self._find_uncovered(self.state.as_if_resolved) if self.state.unresolved else self._unarchived

    @cached_property
    def _unarchived(self) -> dict[int, RangeSet]:
        return self._find_uncovered(self.state)

    def _find_uncovered(self, state: IndexState) -> dict[int, RangeSet]:
        """Return the readable offsets that the index does not cover, by kafka partition."""
        # The index may record offsets as deleted that the log still has. A run would read these, so they count here.
        by_kafka_partition = {
            p: make_span(f.log_start_offset, f.last_stable_offset) - (state.coverage(p) - state.deleted(p))
            for p, f in self.frontiers.items()
        }
        return {p: ranges for p, ranges in by_kafka_partition.items() if ranges}

    @cached_property
    def lag(self) -> dict[int, int]:
        """Number of unarchived offsets by kafka partition, if known. Offsets have holes: records may be fewer."""
        return {p: sum(map(len, self._unarchived.get(p, ()))) for p in self.frontiers}

    @cached_property
    def digest(self) -> str:
        """A digest of the lag, the archived offsets, and the kafka partitions about which nothing is known."""
        ends = {p: self.state.coverage(p).end_offset for p in self.frontiers}
        unknown = sorted({*self.failures, *self.undecided})
        return fingerprint_inputs([sorted(self.lag.items()), sorted(ends.items()), unknown])

    @cached_property
    def newest_closed(self) -> datetime | None:
        return find_newest_closed_hour(self.now, self.topic.lateness, self.topic.start_hour)

    @cached_property
    def oldest_uncovered(self) -> datetime | None:
        """The last hour that begins at or before the first uncovered record of every kafka partition.

        It is None if everything is archived, or if an uncovered record lies before the first hour.
        """
        return self._find_oldest_hour(self.uncovered)

    def _find_oldest_hour(self, uncovered: Mapping[int, RangeSet]) -> datetime | None:
        """Return the hour of these offsets' oldest record, or None if there is none or it is before the first hour."""
        search = self.search_oldest(uncovered)
        try:
            timestamp_ms = next(search)
            while True:
                timestamp_ms = search.send(self._look_up_offsets([timestamp_ms]))
        except StopIteration as end:
            return None if end.value is None else self._find_older_hour(uncovered, *end.value)

    def _find_older_hour(
        self, uncovered: Mapping[int, RangeSet], latest: datetime, offsets: Mapping[int, OffsetAtTime]
    ) -> datetime | None:
        """Return the hour of the oldest uncovered record if it is older than `latest`, else `latest`.

        `offsets` are o(t) of `latest` (the first offset with a timestamp of t or later). One may belong to an archived
        record with a time far ahead. Then the first uncovered record itself is read, unless an observation shows it to
        be younger than `latest`. So a topic archived in time costs no request. Return None before the first hour.
        """
        oldest = latest_ms = to_epoch_ms(latest)
        for kafka_partition, ranges in uncovered.items():
            start = ranges.ranges[0].start_offset
            frontiers = (f for f in self.state.observations.of(kafka_partition) if f.high_watermark <= start)
            since = max((to_epoch_ms(frontier.observed_at) for frontier in frontiers), default=None)
            if offsets[kafka_partition] == start or (since is not None and latest_ms <= since):
                continue
            timestamp_ms = self._read_timestamp(kafka_partition, ranges.ranges[0])
            # where nobody can tell, it may have come right after that observation
            oldest = min(oldest, since or latest_ms) if timestamp_ms is None else min(oldest, timestamp_ms)
        if oldest == latest_ms:
            return latest
        hours = (oldest - to_epoch_ms(self.topic.start_hour)) // HOUR_MS
        return self.topic.start_hour + hours * HOUR if hours >= 0 else None

    def _read_timestamp(self, kafka_partition: int, offsets: OffsetRange) -> int | None:
        """Return the timestamp (epoch ms) of the first record in these offsets. Raises UnansweredError."""
        try:
            return self.read_timestamp(kafka_partition, offsets)
        except PlatformError as err:
            raise UnansweredError({kafka_partition: err}) from err

    def search_oldest(self, uncovered: Mapping[int, RangeSet]) -> OldestSearch:
        """Search the last hour that begins at or before the first uncovered record of every kafka partition.

        Yield a time t (epoch ms), and receive o(t): by kafka partition, the first offset with a timestamp of t or
        later. Return the hour and its o(t). The search begins at the newest hour, as most topics are archived up to
        there, and doubles its steps back.
        """
        first = self.topic.start_hour
        starts = {p: ranges.ranges[0].start_offset for p, ranges in uncovered.items()}
        low = 0
        high = int((self.now - first) // HOUR) + 1 if starts else 0
        step = 1
        low_answers: Mapping[int, OffsetAtTime] = {}
        while low < high:
            middle = max(low, high - step) if step else (low + high) // 2
            middle_ms = to_epoch_ms(first + middle * HOUR)
            answers = yield middle_ms
            if any(_is_after(answers[p][middle_ms], offset) for p, offset in starts.items()):
                high = middle
                step *= 2
            else:
                low = middle + 1
                step = 0
                low_answers = {p: answers[p][middle_ms] for p in starts}
        return (first + (high - 1) * HOUR, low_answers) if high else None

    @property
    def precedes_hours(self) -> bool:
        """True if an uncovered record lies before the first hour. Only a run up to now reads it."""
        return bool(self.uncovered) and self.oldest_uncovered is None

    @property
    def has_hole(self) -> bool:
        """True if uncovered records lie before covered ones. Runs of later hours do not read these."""
        ends = {p: self.state.as_if_resolved.coverage(p).end_offset or 0 for p in self.uncovered}
        return any(r.end_offset <= ends[p] for p, ranges in self.uncovered.items() for r in ranges)

    @property
    def is_rotation_due(self) -> bool:
        """True if records wait, and the last run was at least `rotate.schedule.interval.ms` ago.

        Any run counts, since each records when it observed the log.
        """
        interval = self.topic.config.layout.rotate_schedule_interval_ms
        if interval is None or not self.uncovered:
            return False
        last = max((f.observed_at for f in self.state.all_frontiers), default=None)
        return last is None or self.now - last >= timedelta(milliseconds=interval)

    @property
    def seconds_to_retention_loss(self) -> float | None:
        """The shortest time (s) until Kafka may delete the oldest unarchived records, or None if none can be lost."""
        retention_ms = parse_retention_ms(self.read_configs())
        if retention_ms == FOR_EVER:
            return None
        oldest = self._find_oldest_hour(self._unarchived) if self.state.unresolved else self.oldest_uncovered
        if oldest is not None:
            return (oldest + timedelta(milliseconds=retention_ms) - self.now).total_seconds()
        return None

    def hours_due(self, materialized: Collection[datetime]) -> list[datetime]:
        """Return closed hours to archive or to report, oldest first.

        An hour is due if the log can hold records of it or it was requested, and no run has scanned it; if it is
        archived but not `materialized`, because a run crashed between its commit and its event; or if it is the newest
        closed hour and not complete. Old empty hours are not due unless they were requested. Hours that lack only
        unresolved offsets are not due either.
        """
        newest = self.newest_closed
        if newest is None:
            return []
        resolved = self.state.as_if_resolved
        due = {h for h in self._list_reachable(newest) if not resolved.is_scanned(h)}
        asked_hours = {row.hour for row in self.state.hours if row.hour <= newest and self._is_hour(row.hour)}
        due |= {h for h in asked_hours if not resolved.is_scanned(h)}
        due |= {h for h in self._list_archived() if h not in materialized and h <= newest}
        if not resolved.judge.is_complete(newest, self.topic.lateness):
            due.add(newest)
        return sorted(due)

    @cached_property
    def hours_left(self) -> list[datetime]:
        """The hours due even if Dagster shows all archived hours."""
        return self.hours_due(self._list_archived())

    def select_due_hours(self, due: list[datetime]) -> tuple[list[datetime], set[datetime]]:
        """Return the `due` hours to evaluate in a tick, and the lost ones among them.

        A tick evaluates the oldest due hours. If all of these are lost, it goes on to about the first hour not lost.
        Retention deletes the oldest records of a kafka partition first, so lost hours come first.
        """
        hours = due[: 2 * MAX_HOURS]
        lost = self.find_lost_hours(hours)
        if len(lost) < len(hours) or len(hours) == len(due):
            return hours, lost
        first = bisect_left(due, 1, lo=len(hours), key=lambda hour: not self.find_lost_hours([hour]))
        hours = due[first : first + 2 * MAX_HOURS]
        return due[: first + 2 * MAX_HOURS], {*due[:first], *self.find_lost_hours(hours)}

    def find_lost_hours(self, hours: Sequence[datetime]) -> set[datetime]:
        """Return the `hours` that may have lost records to retention. Their runs fail unless gaps are allowed."""
        if not hours or not self.can_lose:
            return set()
        lateness = self.topic.lateness
        return {
            hour
            for hour in hours
            if any(find_lost_offsets(self.state, f, [hour], lateness) for f in self.frontiers.values())
        }

    @property
    def can_lose(self) -> bool:
        """True if retention may have deleted offsets that are in no gap, so runs of their hours would fail."""
        if self.topic.config.archive.allow_gaps:
            return False
        return any(find_deleted_offsets(self.state, frontier) for frontier in self.frontiers.values())

    def list_times(self) -> list[int]:
        """List the times (epoch ms) a tick asks Kafka about if all unarchived hours are due. It may ask more."""
        due = self.hours_left
        times = [(hours[0], self._find_lateness_end(hours[-1])) for hours in split_contiguous(due[:MAX_HOURS])]
        return sorted({to_epoch_ms(edge) for pair in times for edge in pair})

    def has_left(self, hours: Collection[datetime]) -> bool:
        """Return True if the log holds unarchived records of `hours`."""
        times = [to_epoch_ms(hour) for hour in hours]
        times += [to_epoch_ms(self._find_lateness_end(hour)) for hour in hours]
        answers = self._look_up_offsets(times)
        for kafka_partition, frontier in self.frontiers.items():
            if any(self._has_unarchived(hour, frontier, answers[kafka_partition]) for hour in hours):
                return True
        return False

    def fingerprint(self, hours: Sequence[datetime]) -> str:
        """Return a digest of everything that decides how archiving `hours` ends. Equal digests mean the same end."""
        start = to_epoch_ms(hours[0])
        end = to_epoch_ms(self._find_lateness_end(hours[-1]))
        answers = self._look_up_offsets([start, end])
        parts = {p: self._list_inputs(f, answers[p][start], answers[p][end]) for p, f in sorted(self.frontiers.items())}
        inputs = [self.topic_id, self.topic.config_digest, hours[0].isoformat(), parts]
        return fingerprint_inputs(inputs)

    def _list_reachable(self, newest: datetime) -> Sequence[datetime]:
        """Return the closed hours that may have uncovered records, and those since the last requested hour if few.

        Also return all since the last observation of a log waiting for somebody's decision.
        """
        starts = [newest]
        times = [f.observed_at for p in self.undecided for f in self.state.observations.of(p)[-1:]]
        if times:
            closed = find_newest_closed_hour(min(times), self.topic.lateness, self.topic.start_hour)
            starts.append(self.topic.start_hour if closed is None else closed + HOUR)
        last = max(self.state.asked_hours, default=None)
        if self.oldest_uncovered is not None:
            starts.append(self.oldest_uncovered)
        if last is not None and newest - last <= MAX_HOURS * HOUR:
            starts.append(last + HOUR)
        # the last requested hour may be one of a former timezone
        count = -((min(starts) - newest) // HOUR) + 1
        return [newest - n * HOUR for n in reversed(range(count))]

    def _is_hour(self, start: datetime) -> bool:
        """Return True if an hour of the connector begins then. One of a former timezone may begin at another minute."""
        return start >= self.topic.start_hour and not (start - self.topic.start_hour) % HOUR

    def _list_archived(self) -> set[datetime]:
        """Return the archived hours: those scanned by a run, and complete ones with segments."""
        young = {row.hour for row in self.state.hours}
        scanned = (self.state.folded_hours - young) | {h for h in young if self.state.is_scanned(h)}
        other_hours = self.stored_hours - self.state.asked_hours
        complete_hours = {h for h in other_hours if self.state.judge.is_complete(h, self.topic.lateness)}
        return set(filter(self._is_hour, scanned | complete_hours))

    def _look_up_offsets(self, times: Sequence[int]) -> Mapping[int, Mapping[int, OffsetAtTime]]:
        """Return the first offset at or after each time (epoch ms) by kafka partition. Raises UnansweredError."""
        answers = self.lookup(self.frontiers, times)
        if answers.failures:
            raise UnansweredError(answers.failures)
        return answers.results

    def _find_lateness_end(self, hour: datetime) -> datetime:
        """Return the time when no more records of the hour are expected."""
        return hour + HOUR + self.topic.lateness

    def _has_unarchived(self, hour: datetime, frontier: Frontier, answers: Mapping[int, OffsetAtTime]) -> bool:
        """Return True if a kafka partition holds unarchived records of the hour. `answers` maps epoch ms to offsets."""
        start = find_hour_start(self.state, frontier, answers[to_epoch_ms(hour)])
        end = find_readable_offset(frontier, answers[to_epoch_ms(self._find_lateness_end(hour))])
        uncovered = self.uncovered.get(frontier.kafka_partition, RangeSet())
        return bool(uncovered & make_span(start, max(start, end)))

    def _list_inputs(self, frontier: Frontier, start: OffsetAtTime, end: OffsetAtTime) -> list[int]:
        """Return the offsets in one kafka partition that decide how archiving from `start` to `end` goes."""
        bounds = [find_hour_start(self.state, frontier, start), find_readable_offset(frontier, end)]
        covered = self.state.coverage(frontier.kafka_partition) & make_span(*bounds)
        edges = [edge for r in covered for edge in (r.start_offset, r.end_offset)]
        return [frontier.log_start_offset, *bounds, *edges]


def read_answering_backlog(backlog: Backlog) -> Backlog:
    """Return the backlog without the kafka partitions that do not answer questions about times.

    Return it as it is if none answers, or if the broker does not answer at all: whoever needs the answer gets the
    error.
    """
    with suppress(BrokerUnavailableError):
        try:
            _ = backlog.oldest_uncovered
        except UnansweredError as err:
            answering = {p: f for p, f in backlog.frontiers.items() if p not in err.failures}
            if answering:
                failures = {**backlog.failures, **err.failures}
                return read_answering_backlog(replace(backlog, frontiers=answering, failures=failures))
    return backlog


def split_contiguous(starts: Sequence[T], step: timedelta = HOUR) -> list[list[T]]:
    """Split ascending hours into contiguous groups. For days, `step` is one day."""
    groups: list[list[T]] = []
    for start in starts:
        if groups and start - groups[-1][-1] == step:
            groups[-1].append(start)
        else:
            groups.append([start])
    return groups


def _is_after(answer: OffsetAtTime, offset: int) -> bool:
    """Return True if Kafka's answer is after the offset, or is no offset but the end of the log."""
    return not isinstance(answer, int) or answer > offset
