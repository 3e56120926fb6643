"""What of a topic is not archived yet, and which hours to ask for next, by Kafka and the index alone."""

import hashlib
import json
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from functools import cached_property, partial
from typing import TypeVar

from kafka_s3_platform.archive.failures import FOR_EVER, retention_ms
from kafka_s3_platform.archive.plan import OffsetLookup, lost_offsets, ms, readable_offset, start_of_hour
from kafka_s3_platform.defs.topic import ArchivedTopic, newest_closed_hour
from kafka_s3_platform.errors import BrokerUnavailableError, PlatformError
from kafka_s3_platform.kafka.admin import ClusterAdmin, TopicDescription
from kafka_s3_platform.kafka.answers import OffsetAtTime
from kafka_s3_platform.model.frontier import Frontier
from kafka_s3_platform.model.offsets import RangeSet, span
from kafka_s3_platform.model.state import HOUR, IndexState
from kafka_s3_platform.store.index import IndexSnapshot


class UnansweredError(PlatformError):
    """Kafka partitions that do not answer, with the error of each."""

    def __init__(self, failures: Mapping[int, PlatformError]) -> None:
        super().__init__("; ".join(map(str, failures.values())))
        self.failures = failures


MAX_HOURS = 48
"""Hours that are asked for at once."""

T = TypeVar("T", date, datetime)


@dataclass(frozen=True)
class Backlog:
    """A topic as Kafka and the index show it at one moment."""

    topic: ArchivedTopic
    description: TopicDescription
    frontiers: Mapping[int, Frontier]
    state: IndexState
    stored_hours: frozenset[datetime]
    lookup: OffsetLookup
    configs: Mapping[str, str]
    """The topic's configs in force, the broker's defaults among them."""

    failures: Mapping[int, PlatformError] = field(default_factory=dict)
    """Of kafka partitions that do not answer: nothing else here is of them."""

    @property
    def now(self) -> datetime:
        return next(iter(self.frontiers.values())).observed_at

    @cached_property
    def uncovered(self) -> dict[int, RangeSet]:
        """Readable offsets to ask for, of those kafka partitions that have any: not archived, and not unresolved."""
        return self._left_by(self.state.settled)

    def _left_by(self, state: IndexState) -> dict[int, RangeSet]:
        # what counts as deleted by retention, though the log has it, is read as a run would
        found = {p: _readable(f) - (state.coverage(p) - state.deleted(p)) for p, f in self.frontiers.items()}
        return {p: ranges for p, ranges in found.items() if ranges}

    @property
    def lag(self) -> dict[int, int]:
        """Offsets behind, by kafka partition: an upper bound of records, since offsets have holes."""
        left = self._left_by(self.state)
        return {p: sum(map(len, left.get(p, ()))) for p in self.frontiers}

    @cached_property
    def newest_closed(self) -> datetime | None:
        return newest_closed_hour(self.now, self.topic.lateness, self.topic.hours.first)

    @cached_property
    def oldest_uncovered(self) -> datetime | None:
        """The last hour that begins at or before the first uncovered record of every kafka partition.

        None when all is archived, or when an uncovered record comes before the first hour's.
        """
        return self._oldest(self.uncovered)

    def _oldest(self, uncovered: Mapping[int, RangeSet]) -> datetime | None:
        first = self.topic.hours.first
        starts = {p: ranges.ranges[0].start_offset for p, ranges in uncovered.items()}

        def is_beyond(hour: int) -> bool:
            at = ms(first + hour * HOUR)
            found = self._offsets([at])
            return any(_is_after(found[p][at], offset) for p, offset in starts.items())

        hours = range(int((self.now - first) // HOUR) + 1)
        reached = bisect_left(hours, 1, key=is_beyond) if starts else 0
        return first + (reached - 1) * HOUR if reached else None

    @property
    def precedes_hours(self) -> bool:
        """Whether an uncovered record comes before the first hour's: only a run up to now reads it."""
        return bool(self.uncovered) and self.oldest_uncovered is None

    @property
    def begins_cut(self) -> bool:
        """Whether nothing is archived yet of a log that retention has cut: an hour at its start would be refused.

        A run up to now records what was gone before archiving began, and archives the rest.
        """
        return any(
            f.log_start_offset > 0 and self.state.promised_start(p, None) is None for p, f in self.frontiers.items()
        )

    @property
    def has_hole(self) -> bool:
        """Whether uncovered records lie before covered ones: hours that follow read what comes after these only."""
        ends = {p: self.state.settled.coverage(p).end_offset or 0 for p in self.uncovered}
        return any(r.end_offset <= ends[p] for p, ranges in self.uncovered.items() for r in ranges)

    @property
    def is_rotation_due(self) -> bool:
        """Whether `rotate.schedule.interval.ms` has passed since a run last looked, and there is something to archive.

        Any run counts: each records when it observed the log.
        """
        interval = self.topic.config.layout.rotate_schedule_interval_ms
        if interval is None or not self.uncovered:
            return False
        last = max((f.observed_at for f in self.state.frontiers), default=None)
        return last is None or self.now - last >= timedelta(milliseconds=interval)

    @property
    def seconds_to_retention_loss(self) -> float | None:
        """How long the oldest records are kept at least that are not archived, None when nothing is at stake."""
        kept = retention_ms(self.configs)
        if kept == FOR_EVER:
            return None
        oldest = self._oldest(self._left_by(self.state)) if self.state.unresolved else self.oldest_uncovered
        return (oldest + timedelta(milliseconds=kept) - self.now).total_seconds() if oldest is not None else None

    def hours_due(self, materialized: Collection[datetime]) -> list[datetime]:
        """Closed hours to archive or to report, oldest first.

        Those are not scanned though the log can hold records of them; or archived, but not `materialized` (a crash
        between commit and event); or the newest one, not complete. Old empty hours that nobody asked for are not due;
        nor are those of which only unresolved offsets are missing.
        """
        newest = self.newest_closed
        if newest is None:
            return []
        settled = self.state.settled
        due = {h for h in self._reachable(newest) if not settled.is_scanned(h)}
        due |= {h for h in self._archived() if h not in materialized and h <= newest}
        if not settled.is_complete(newest, self.topic.lateness):
            due.add(newest)
        return sorted(due)

    def within_reach(self, due: list[datetime]) -> tuple[list[datetime], set[datetime]]:
        """As many of the `due` hours as a tick looks at, and those of them that are `lost`.

        The oldest ones, unless all of these are lost: then from about the first on that is not. What retention takes
        of a kafka partition is its oldest, so that lost hours come first.
        """
        hours = due[: 2 * MAX_HOURS]
        lost = self.lost(hours)
        if len(lost) < len(hours) or len(hours) == len(due):
            return hours, lost
        first = bisect_left(due, 1, lo=len(hours), key=lambda hour: not self.lost([hour]))
        hours = due[first : first + 2 * MAX_HOURS]
        return due[: first + 2 * MAX_HOURS], {*due[:first], *self.lost(hours)}

    def lost(self, hours: Sequence[datetime]) -> set[datetime]:
        """Those of `hours` that retention may have taken records of: asking for one fails unless gaps are allowed."""
        if self.topic.config.archive.allow_gaps or not hours:
            return set()
        found = self._offsets([ms(h) for h in hours])
        return {h for h in hours if any(self._is_lost(f, h, found[p][ms(h)]) for p, f in self.frontiers.items())}

    def has_left(self, hours: Collection[datetime]) -> bool:
        """Whether there is anything of `hours` to archive."""
        found = self._offsets([ms(t) for h in hours for t in (h, self._over(h))])
        return any(self._left_of(h, f, found[p]) for h in hours for p, f in self.frontiers.items())

    def fingerprint(self, hours: Sequence[datetime]) -> str:
        """A digest of all that decides how archiving `hours` ends: with the same one, it ends the same way again."""
        start, end = ms(hours[0]), ms(self._over(hours[-1]))
        found = self._offsets([start, end])
        parts = {p: self._inputs(f, found[p][start], found[p][end]) for p, f in sorted(self.frontiers.items())}
        inputs = [self.description.topic_id, self.topic.config_digest, hours[0].isoformat(), parts]
        return hashlib.sha256(json.dumps(inputs).encode()).hexdigest()[:16]

    def _reachable(self, newest: datetime) -> Sequence[datetime]:
        """Closed hours that uncovered records may belong to, and a short idle time since the last hour asked for."""
        starts = [newest]
        last = max((h.hour for h in self.state.hours), default=None)
        if self.oldest_uncovered is not None:
            starts.append(self.oldest_uncovered)
        if last is not None and newest - last <= MAX_HOURS * HOUR:
            starts.append(last + HOUR)
        count = int((newest - min(starts)) // HOUR) + 1
        return [min(starts) + n * HOUR for n in range(count)]

    def _archived(self) -> set[datetime]:
        asked = {h.hour for h in self.state.hours}
        first = self.topic.hours.first
        scanned = {h for h in asked if self.state.is_scanned(h)}
        stored = {h for h in self.stored_hours - asked if self.state.is_complete(h, self.topic.lateness)}
        return {h for h in scanned | stored if h >= first}

    def _offsets(self, times: Sequence[int]) -> Mapping[int, Mapping[int, OffsetAtTime]]:
        """o(t) by kafka partition and timestamp."""
        answers = self.lookup(self.frontiers, times)
        if answers.failures:
            raise UnansweredError(answers.failures)
        return answers.found

    def _over(self, hour: datetime) -> datetime:
        return hour + HOUR + self.topic.lateness

    def _left_of(self, hour: datetime, frontier: Frontier, found: Mapping[int, OffsetAtTime]) -> bool:
        start = start_of_hour(self.state, frontier, found[ms(hour)])
        end = readable_offset(frontier, found[ms(self._over(hour))])
        uncovered = self.uncovered.get(frontier.kafka_partition, RangeSet())
        return bool(uncovered & span(start, max(start, end)))

    def _is_lost(self, frontier: Frontier, hour: datetime, found: OffsetAtTime) -> bool:
        """As a run would see it. What was gone before archiving began is not lost: nothing was promised of it."""
        if self.state.promised_start(frontier.kafka_partition, None) is None:
            return False
        return bool(lost_offsets(self.state, frontier, hour, start_of_hour(self.state, frontier, found)))

    def _inputs(self, frontier: Frontier, start: OffsetAtTime, end: OffsetAtTime) -> list[int]:
        bounds = [start_of_hour(self.state, frontier, start), readable_offset(frontier, end)]
        covered = self.state.coverage(frontier.kafka_partition) & span(*bounds)
        edges = [edge for r in covered for edge in (r.start_offset, r.end_offset)]
        return [frontier.log_start_offset, *bounds, *edges]


def look(topic: ArchivedTopic, admin: ClusterAdmin, snapshot: IndexSnapshot | None) -> Backlog:
    """The topic's backlog now. Reads only; raises the errors of Kafka's and the store's rooms."""
    description = admin.describe_topic(topic.topic)
    seen = admin.look(topic.topic, description.kafka_partitions)
    segments = (*snapshot.segments, *snapshot.retired) if snapshot else ()
    return Backlog(
        topic,
        description,
        seen.some(),
        snapshot.state if snapshot else IndexState(),
        frozenset(s.chunk_start for s in segments if s.chunk == "hourly" and s.chunk_start),
        partial(admin.offsets_for_times, topic.topic),
        admin.topic_configs(topic.topic),
        seen.failures,
    )


def answering(backlog: Backlog) -> Backlog:
    """Without the kafka partitions that do not answer to a time, unless none does.

    Whatever else keeps the broker from answering is left to those who need the answer.
    """
    with suppress(BrokerUnavailableError):
        try:
            _ = backlog.oldest_uncovered
        except UnansweredError as err:
            left = {p: f for p, f in backlog.frontiers.items() if p not in err.failures}
            if left:
                failures = {**backlog.failures, **err.failures}
                return answering(replace(backlog, frontiers=left, failures=failures))
    return backlog


def contiguous(starts: Sequence[T], step: timedelta = HOUR) -> list[list[T]]:
    """Ascending hours, or days with a `step` of one, as runs of those that follow each other."""
    found: list[list[T]] = []
    for start in starts:
        if found and start - found[-1][-1] == step:
            found[-1].append(start)
        else:
            found.append([start])
    return found


def _readable(frontier: Frontier) -> RangeSet:
    return span(frontier.log_start_offset, frontier.last_stable_offset)


def _is_after(found: OffsetAtTime, offset: int) -> bool:
    return not isinstance(found, int) or found > offset
