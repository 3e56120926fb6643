"""Remove the objects an archive no longer needs: hours merged into their day, and days by the rules of retention.

The index comes first, the objects second. One commit records that the segments have no objects any more, then the
objects are deleted. A crash between the two leaves orphans, which the vacuum removes, but never a row without its
object.

- Merged hours are removed once all objects of their day were read, are as in the index, and hold as many records as the
  hours. Their rows stay, with the kind `removed`, so an hour keeps its numbers.
- A day is removed as a whole, with its live segments and its merged hours. Its hours stay as `expired` rows, which
  distinguish removed records from records that never existed. Scanned offsets stay covered, so no hour becomes
  incomplete, and nothing is read again.
- If days were merged into months, a month is removed as a whole, with its days and hours.
- A late record of a removed day is archived like any other. The next run removes it.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta, timezone
from itertools import chain
from zoneinfo import ZoneInfo

from kafka_s3_platform.core.archive.clock import refuse_wrong_clock
from kafka_s3_platform.core.config.settings import ConnectorConfig, LayoutSettings, PerTopic
from kafka_s3_platform.core.errors import HEAL_OBJECT, IntegrityError, PlatformError
from kafka_s3_platform.core.model.segment import Segment, StoredObject
from kafka_s3_platform.core.model.times import shift_time
from kafka_s3_platform.core.store.errors import PreconditionError
from kafka_s3_platform.core.store.index import ConnectorSnapshot, IndexSnapshot, TopicIndex
from kafka_s3_platform.core.store.index_commit import Change
from kafka_s3_platform.core.store.index_rows import ERASED, REMOVED, RETIRED
from kafka_s3_platform.core.store.objects import NO_ETAG, ObjectStore
from kafka_s3_platform.core.store.row_filter import SegmentFilter
from kafka_s3_platform.core.upkeep.compact.days import (
    Span,
    cover_days,
    explain_lost_records,
    find_day_end,
    find_first_day,
    group_by_holder,
    list_merged_months,
    read_day_segments,
)
from kafka_s3_platform.core.upkeep.verify import verify_segments

logger = logging.getLogger(__name__)

SLICE_ROWS = 500
"""Approximate number of segments to remove in one commit. A long run that is killed keeps what it has committed."""

DELETES_AT_ONCE = 8

DELETE_CHECK = ".delete-check"


@dataclass(frozen=True)
class DayRemoval:
    """The removal of a day's or month's merged hours or, if it `expires`, of everything in it.

    `rule` is the connector key that asks for the removal.
    """

    span: Span
    rule: str
    expires: bool
    live: tuple[Segment, ...]
    merged: tuple[Segment, ...]
    """Hours, days of a month and earlier objects, whose records are in live segments of the day or month."""

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments whose objects are to be removed."""
        return (*self.live, *self.merged) if self.expires else self.merged

    @property
    def objects(self) -> tuple[StoredObject, ...]:
        return tuple(chain.from_iterable(s.objects for s in self.segments))

    @property
    def size(self) -> int:
        return _sum_bytes(self.segments)

    @property
    def hour_count(self) -> int:
        return len({s.chunk_start for s in self.segments if s.chunk == "hourly"})

    @property
    def record_count(self) -> int:
        """The number of records removed from the archive."""
        return sum(s.record_count for s in self.live) if self.expires else 0


@dataclass(frozen=True)
class RetentionPlan:
    """The removals due in a topic now. `days_on_hold` would be due too if they were not on hold."""

    topic: str
    removals: tuple[DayRemoval, ...] = ()
    days_on_hold: tuple[Span, ...] = ()
    object_bytes: int = 0
    """The bytes of all objects of the topic before anything is removed."""

    undated_records: int = 0
    """Number of records whose timestamps are out of range. They belong to no day, and stay."""


@dataclass(frozen=True)
class RetentionReport:
    """The removals made in a topic. `refused` are sentences about days kept because something is wrong.

    `replaced` are the keys of objects left in place because they are not the index's.
    """

    plan: RetentionPlan
    removals: tuple[DayRemoval, ...] = ()
    refused: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()


def collect_refusals(reports: Iterable[RetentionReport]) -> dict[str, PlatformError]:
    """Return, by topic, the error about days kept because something is wrong."""
    return {r.plan.topic: IntegrityError("; ".join(r.refused)) for r in reports if r.refused}


def find_number(rule: PerTopic, topic: str) -> int | None:
    """Return a retention rule's number for the topic, in ms or bytes, or None if there is no limit."""
    numbers = dict(rule)
    number = numbers.get(topic, numbers.get("", -1))
    return None if number < 0 else number


def plan_retention(config: ConnectorConfig, topic: str, now: datetime) -> RetentionPlan:
    """Return the removals due in the topic by the connector's rules at `now`. Changes nothing. Raises store errors."""
    snapshot = TopicIndex.of(config, topic).peek()
    return RetentionPlan(topic) if snapshot is None else _Planner(config, topic, snapshot, now).plan()


def retain_topic(config: ConnectorConfig, topic: str, run_id: str, now: datetime | None = None) -> RetentionReport:
    """Remove hours and days of the topic by the connector's rules. If it is killed, a second call goes on.

    Objects left by a killed run are orphans, which the vacuum removes. Raises store errors. If the right to delete is
    missing, an AuthorizationError is raised before anything is committed.
    """
    refuse_wrong_clock(config, ObjectStore(config.store))
    plan = plan_retention(config, topic, now or datetime.now(timezone.utc))
    index = TopicIndex.of(config, topic)
    store = ObjectStore(config.store)
    if plan.removals:
        refuse_without_right(config, store, chain.from_iterable(removal.segments for removal in plan.removals))
    refused: list[str] = []
    removals: list[DayRemoval] = []
    replaced: list[str] = []
    for part in _slice(plan.removals):
        snapshot = index.open()
        same = [r for r in part if _is_same(snapshot, r)]
        faults = {r.span: fault for r in same if (fault := _find_fault(snapshot, store, r))}
        refused += faults.values()
        proven = [r for r in same if r.span not in faults]
        committed = _commit(index, proven, run_id)
        removals += committed
        replaced += delete_objects(store, chain.from_iterable(removal.objects for removal in committed))
    report = RetentionReport(plan, tuple(removals), tuple(refused), tuple(replaced))
    logger.info("%s: %d objects of %d days removed", topic, sum(len(r.objects) for r in removals), len(removals))
    return report


def refuse_without_right(config: ConnectorConfig, store: ObjectStore, segments: Iterable[Segment]) -> None:
    """Raise AuthorizationError if the right to delete is missing.

    To find out, delete an object that never exists, in each folder: the connector's, and those of the segments, because
    its file may have named others before.
    """
    settings = {segment.settings for segment in segments}
    folders = [config.layout.topics_dir, config.layout.daily_dir]
    folders += (LayoutSettings.model_validate_json(text).topics_dir for text in settings)
    for folder in dict.fromkeys(folders):
        store.delete(f"{folder}/{DELETE_CHECK}".lstrip("/"), NO_ETAG)


class _Planner:
    """Applies the rules of a connector to the days of one topic."""

    def __init__(self, config: ConnectorConfig, topic: str, snapshot: IndexSnapshot, now: datetime) -> None:
        self._rules = config.archive.retention
        self._topic = topic
        self._snapshot = snapshot
        self._now = now
        self._zone = ZoneInfo(config.layout.timezone)
        self._lateness = timedelta(milliseconds=config.archive.allowed_lateness_ms)
        self._months = list_merged_months(snapshot)
        self._live = group_by_holder(snapshot.segments, self._months)
        self._merged = group_by_holder(snapshot.retired, self._months)
        self._fresh_days = self._find_fresh_days()

    def plan(self) -> RetentionPlan:
        """Choose the days with objects to remove, the oldest first, and the days that only a hold keeps."""
        undated = self._live.pop(None, ())
        object_bytes = sum(map(_sum_bytes, (undated, *self._live.values(), *self._merged.values())))
        days = sorted((day for day in {*self._live, *self._merged} if day is not None), key=find_first_day)
        # Days on hold and records of no day cannot go, so no other day has to go because of their bytes.
        remaining = sum(self._count_bytes(day) for day in days if not self._is_on_hold(day))
        removals: list[DayRemoval] = []
        days_on_hold: list[Span] = []
        for day in days:
            is_on_hold = self._is_on_hold(day)
            rule = self._find_expiry(day, remaining + (self._count_bytes(day) if is_on_hold else 0))
            if not rule and not self._may_remove_merged(day):
                continue
            if is_on_hold:
                days_on_hold.append(day)
                continue
            live = tuple(self._live.get(day, ()))
            merged = tuple(self._merged.get(day, ()))
            removals.append(DayRemoval(day, rule or "archive.retention.merged.ms", bool(rule), live, merged))
            remaining -= self._count_bytes(day) if rule else 0
        undated_records = sum(s.record_count for s in undated)
        return RetentionPlan(self._topic, tuple(removals), tuple(days_on_hold), object_bytes, undated_records)

    def _is_on_hold(self, day: Span) -> bool:
        return self._rules.is_on_hold(self._topic, *self._cover_days(day))

    def _cover_days(self, day: Span) -> tuple[date, date]:
        """Return the first of the connector's days in which records of the day lie, and the day after the last one."""
        return cover_days(day, self._list_zones(day), self._zone)

    def _list_zones(self, day: Span) -> set[ZoneInfo]:
        """Return the timezones of the day's segments."""
        return {segment.zone for segment in (*self._live.get(day, ()), *self._merged.get(day, ()))}

    def _find_fresh_days(self) -> frozenset[Span | None]:
        """Return the days merged too recently for their hours to be removed. An hour's row is as old as its merge."""
        age = find_number(self._rules.merged_ms, self._topic)
        if age is None:
            return frozenset(self._merged)
        since = shift_time(self._now, -timedelta(milliseconds=age))
        fresh = self._snapshot.select_segments(SegmentFilter(committed_since=since), [RETIRED])
        return frozenset(group_by_holder(fresh, self._months))

    def _count_bytes(self, day: Span) -> int:
        """Return the bytes of the day, without merged hours if these are removed in any case."""
        merged = () if self._may_remove_merged(day) else self._merged.get(day, ())
        return _sum_bytes((*self._live.get(day, ()), *merged))

    def _may_remove_merged(self, day: Span) -> bool:
        """Return True if the day holds merged segments, and has done so for longer than their rule says."""
        return day in self._merged and day not in self._fresh_days

    def _find_expiry(self, day: Span, object_bytes: int) -> str:
        """Return the connector key by which the day expires now, or "" if it stays. A day stays until it is over."""
        end = max(find_day_end(day, zone) for zone in {self._zone, *self._list_zones(day)})
        if end + self._lateness > self._now:
            return ""
        age = find_number(self._rules.ms, self._topic)
        if age is not None and self._now - end >= timedelta(milliseconds=age):
            return "archive.retention.ms"
        if self._rules.first_day is not None and self._cover_days(day)[1] <= self._rules.first_day:
            return "archive.retention.before"
        most = find_number(self._rules.max_bytes, self._topic)
        return "archive.retention.bytes" if most is not None and object_bytes > most else ""


def _sum_bytes(segments: Iterable[Segment]) -> int:
    objects = chain.from_iterable(segment.objects for segment in segments)
    return sum(item.size for item in objects)


def _slice(removals: Sequence[DayRemoval]) -> Iterator[list[DayRemoval]]:
    """Yield the removals in parts of about SLICE_ROWS segments, the oldest days first."""
    part: list[DayRemoval] = []
    for removal in removals:
        part.append(removal)
        if sum(len(r.live) + len(r.merged) for r in part) >= SLICE_ROWS:
            yield part
            part = []
    if part:
        yield part


def _find_fault(snapshot: IndexSnapshot, store: ObjectStore, removal: DayRemoval) -> str:
    """Return the reason why the day has to stay, or an empty text.

    It may go if its objects hold as many records as its merged hours. Unless the day expires, its objects are also read
    and verified.
    """
    if loss := explain_lost_records(snapshot, removal.span):
        return f"{removal.span} stays: {loss}"
    if removal.expires:
        return ""
    damages = verify_segments(store, [s for s in removal.live if s.chunk != "hourly"], deep=True)
    if damages:
        return (
            f"the hours of {removal.span} stay, since objects that hold them are not as in the index: "
            f"{'; '.join(f'{d.key}: {d.message}' for d in damages[:3])}. {HEAL_OBJECT}"
        )
    return ""


def _commit(index: TopicIndex, removals: Sequence[DayRemoval], run_id: str) -> list[DayRemoval]:
    """Commit the removals to the index, except of days changed since the plan. Return the committed removals."""
    attempts: list[DayRemoval] = []

    def plan(connector_snapshot: ConnectorSnapshot) -> tuple[Mapping[str, Change], list[DayRemoval]]:
        snapshot = connector_snapshot.topic(index.topic)
        unchanged = [removal for removal in removals if _is_same(snapshot, removal)]
        # days of a month go without a row that stays, so a commit whose answer was lost is told by what it removed
        lost = [removal for removal in attempts if removal not in unchanged and _has_lost_merged(snapshot, removal)]
        attempts[:] = (*unchanged, *lost)
        return ({index.topic: _build_change(snapshot, unchanged, run_id)} if unchanged else {}), list(attempts)

    return index.within_connector.commit_planned(plan)


def _is_same(snapshot: IndexSnapshot, removal: DayRemoval) -> bool:
    live = read_day_segments(snapshot, removal.span)
    return (live, read_day_segments(snapshot, removal.span, [RETIRED])) == (removal.live, removal.merged)


def _has_lost_merged(snapshot: IndexSnapshot, removal: DayRemoval) -> bool:
    """Return True if the index names none of the merged segments any more that were to go alone."""
    return not removal.expires and set(read_day_segments(snapshot, removal.span, [RETIRED])).isdisjoint(removal.merged)


def _build_change(snapshot: IndexSnapshot, removals: Sequence[DayRemoval], run_id: str) -> Change:
    """Build the index rows of the removals. Hours keep a row with their numbers, merged segments keep none."""
    emptied: list[Segment] = []
    expired: list[Segment] = []
    dropped: list[Segment] = []
    for removal in removals:
        gone = list(removal.segments)
        if removal.expires:
            gone += read_day_segments(snapshot, removal.span, [REMOVED])
            # the hours of a merged day still count what was erased from it
            gone += (s for s in read_day_segments(snapshot, removal.span, [ERASED]) if s.chunk != "hourly")
        hours = [forget_sums(s) for s in gone if s.chunk == "hourly"]
        dropped += (s for s in gone if s.chunk != "hourly")
        (expired if removal.expires else emptied).extend(hours)
    return Change(emptied=tuple(emptied), expired=tuple(expired), dropped=tuple(dropped), run_id=run_id)


def forget_sums(segment: Segment) -> Segment:
    """Return the segment without ETag and checksums, which take most bytes, for its row after its object is deleted."""
    return replace(segment, etag="", sha256="", digest="")


def delete_objects(store: ObjectStore, objects: Iterable[StoredObject]) -> list[str]:
    """Delete the objects still as they are in the index. Return the keys of the others, which stay."""

    def delete(item: StoredObject) -> str:
        try:
            store.delete(item.key, item.etag)
        except PreconditionError:
            # a copy of the object, as after a move to another bucket, has another ETag and the same bytes
            info = store.head(item.key)
            if info is not None and store.is_stored(item, info):
                store.delete(item.key, info.etag)
                return ""
            logger.warning("%s is not the object of the index, and stays", store.uri(item.key))
            return item.key
        return ""

    with ThreadPoolExecutor(DELETES_AT_ONCE, thread_name_prefix="delete") as pool:
        return list(filter(None, pool.map(delete, objects)))
