"""The folder sensor: requests days that are due, and finds folders in S3 that hold no segments of the index."""

import hashlib
import json
from collections.abc import Callable, Collection, Container, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from datetime import date, datetime, timedelta, timezone
from functools import partial

import dagster as dg

from kafka_s3_platform.core.defs.archive.empty_windows import EmptyWindows, Window
from kafka_s3_platform.core.defs.jobs import Job
from kafka_s3_platform.core.defs.metadata import Metadata
from kafka_s3_platform.core.defs.runs import Requests
from kafka_s3_platform.core.defs.tick import Tick
from kafka_s3_platform.core.defs.topic import TopicAssets
from kafka_s3_platform.core.errors import StoreUnavailableError
from kafka_s3_platform.core.instance.names import make_op_name
from kafka_s3_platform.core.status.backlog import split_contiguous
from kafka_s3_platform.core.status.index_look import IndexLook
from kafka_s3_platform.core.status.topic import find_newest_past_day, fingerprint_inputs
from kafka_s3_platform.core.store.index import IndexSnapshot
from kafka_s3_platform.core.store.index_rows import LIVE, RETIRED
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform.core.store.row_filter import SegmentFilter
from kafka_s3_platform.core.text import count_noun
from kafka_s3_platform.core.upkeep.compact.days import (
    find_day,
    find_day_end,
    find_day_start,
    list_day_hours,
    list_due_days,
    read_day_segments,
)

INTERVAL_SECONDS = 300
MAX_DAYS = 31
MAX_LISTINGS = 100
"""Maximum number of folders of a topic that a tick lists. The next tick goes on after them."""

WALK_EVERY = timedelta(hours=1)
"""Time between the walks over a topic's folders.

A walk lists every day of the archive and reads the folders of all segments: for 500 topics, thousands of requests.
"""


@dataclass(frozen=True)
class Pass:
    """The state of a walk over a topic's folders. `after` is the last folder so far; other fields hold the findings.

    `reported` is the digest of the last complete walk's findings, and `ended_at` is when this walk ended.
    """

    after: str = ""
    unknown: int = 0
    digest: str = ""
    reported: str = ""
    example: str = ""
    ended_at: str = ""

    def is_due(self, now: datetime) -> bool:
        """Return True if a walk is under way, or the next one is to begin."""
        return bool(self.after) or not self.ended_at or now - datetime.fromisoformat(self.ended_at) >= WALK_EVERY


def make_folder_sensor(topics: Sequence[TopicAssets], job: Job, status: dg.DefaultSensorStatus) -> dg.SensorDefinition:
    """Make the sensor of one connector.

    In each tick it requests runs of the compact job for days that are due, shows past days without records as filled,
    and compares the folders in the bucket with the index, topic by topic, as far as the time of the tick allows.
    """
    connector = topics[0].config
    empty_days = EmptyWindows("daily")

    @dg.sensor(
        name=make_op_name("folders", connector.name),
        job=job,
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=status,
        description=f"Requests runs for the days of connector {connector.name} that are due, and finds folders that "
        "the index does not know.",
    )
    def folders(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        """Request the days that are due, and go on with the walks over folders."""
        tick = Tick(json.loads(context.cursor or "{}"), context.log)
        index = IndexLook("folders", topics)
        requests = Requests(context.instance, [topic.key("daily") for topic in topics])
        reached_topics: list[TopicAssets] = []

        def evaluate_topic(topic: TopicAssets) -> None:
            materialized_days = context.instance.get_materialized_partitions(topic.key("daily"))
            request_days(materialized_days, topic, index, requests, tick)
            newest = find_newest_past_day(topic, datetime.now(timezone.utc))
            start = find_day_start(newest, topic.config.layout.zone)
            empty_days.report(topic, start, lambda: list_idle_days(topic, newest, materialized_days), index, tick)
            reached_topics.append(topic)

        with closing(index):
            # First request the days of all topics. Walks take long and can wait.
            if tick.evaluate_each("days", topics, evaluate_topic):
                store = ObjectStore(connector.store)
                tick.evaluate_each("walks", reached_topics, lambda topic: walk_folders(topic, store, index, tick))
        tick.requests += requests.make(job.name)
        return tick.result()

    return folders


def request_days(
    shown_days: Container[str], topic: TopicAssets, index: IndexLook, requests: Requests, tick: Tick
) -> None:
    """Request runs of the due days, one run for each contiguous range: of the oldest, or if all wait, of the newest.

    A day is due if it holds live hourly segments. A day with daily ones is due too if it is not in `shown_days`, the
    days Dagster shows, because a run crashed between its commit and its event.
    """
    key = topic.key("daily")
    since = index.since if topic.topic in tick.cursor else None
    due_days = tick.read_index(topic, index, lambda snapshot: _find_due_days(topic, snapshot, since, shown_days)) or []
    if due_days and requests.is_requested(key):
        tick.reasons.append(f"{topic.name}: a run asked for earlier is queued or under way")
        return
    _request_windows(due_days[:MAX_DAYS], topic, index, requests, tick)
    if not requests.has_asked(key):
        # days that cannot be merged stay due, and must not hold up later ones
        _request_windows(due_days[MAX_DAYS:][-MAX_DAYS:], topic, index, requests, tick)


def _request_windows(
    days: Sequence[date], topic: TopicAssets, index: IndexLook, requests: Requests, tick: Tick
) -> None:
    """Request a run of each contiguous range of days, or note in the tick why it has to wait."""
    for window in split_contiguous(days, timedelta(days=1)):
        fingerprint = tick.read_index(topic, index, partial(fingerprint_days, topic, window)) or ""
        if reason := requests.ask(topic.key("daily"), [day.isoformat() for day in window], fingerprint):
            tick.reasons.append(f"{topic.name}: {reason}")


def fingerprint_days(topic: TopicAssets, days: Sequence[date], snapshot: IndexSnapshot) -> str:
    """Return a digest of configuration and segments of these days. The same digest means the same merged objects."""
    keys = [s.key for day in days for s in read_day_segments(snapshot, day)]
    return fingerprint_inputs([topic.config_digest, keys])


def list_idle_days(topic: TopicAssets, newest: date, shown_days: Container[str]) -> Iterator[Window]:
    """List the days up to `newest` that Dagster offers, but does not show as materialized."""
    zone = topic.config.layout.zone
    day = topic.first_offered.astimezone(zone).date()
    while day <= newest:
        if day.isoformat() not in shown_days:
            hours = list_day_hours(day, zone)
            yield hours[0], hours
        day += timedelta(days=1)


def walk_folders(topic: TopicAssets, store: ObjectStore, index: IndexLook, tick: Tick) -> None:
    """Go on with the walk over the topic's folders in S3, if it is due, to find folders the index does not know.

    A walk takes several ticks. When it ends, new findings are reported.
    """
    now = datetime.now(timezone.utc)
    progress = Pass(**tick.cursor.get(topic.topic, {}))
    if not progress.is_due(now):
        return
    archived = tick.read_index(topic, index, IndexSnapshot.list_folders) or frozenset()
    root = topic.config.layout.topics_dir
    base = f"{root}/{topic.topic}/" if root else f"{topic.topic}/"

    def list_folders(prefix: str) -> list[str]:
        return tick.read_store(store.uri(prefix), lambda: list(store.list_prefixes(prefix)))

    walk = _Walk(list_folders, base, archived, progress.after, tick.is_over)
    for folder in walk.find_unknown(""):
        digest = hashlib.sha256(f"{progress.digest}{folder}".encode()).hexdigest()[:16]
        example = progress.example or folder
        progress = replace(progress, after=folder, unknown=progress.unknown + 1, digest=digest, example=example)
    if walk.stopped_at:
        tick.cursor[topic.topic] = asdict(replace(progress, after=walk.stopped_at))
        if walk.error:
            raise walk.error
        return
    if progress.digest != progress.reported:
        tick.observations.append(_make_observation(topic, store.uri(base), progress))
    tick.cursor[topic.topic] = asdict(Pass(reported=progress.digest, ended_at=now.isoformat()))


class _Walk:
    """A depth-first walk in byte order over folders that hold no segments of the index, from `after` on."""

    def __init__(
        self,
        list_folders: Callable[[str], list[str]],
        base: str,
        archived: Collection[str],
        last_folder: str,
        is_over: Callable[[], bool],
    ) -> None:
        self._list_folders = list_folders
        self._base = base
        self._archived = archived
        self._after = last_folder
        self._is_over = is_over
        self._listings = 0
        self.stopped_at = ""
        self.error: StoreUnavailableError | None = None
        """The error that stopped the walk, or None if the walk ended or its time was over."""

    def find_unknown(self, prefix: str) -> Iterator[str]:
        """Yield the folders below `prefix` that hold neither folders nor segments of the index."""
        children = self._list_children(prefix)
        if not children and prefix and not self.stopped_at:
            yield prefix
        for child in children:
            if self.stopped_at:
                return
            is_ahead = child > self._after or self._after.startswith(child)
            if is_ahead and child[:-1] not in self._archived:
                yield from self.find_unknown(child)

    def _list_children(self, prefix: str) -> list[str]:
        """Return the folders in a folder. Past the limits of a tick, note the place to go on from, and return none."""
        # Make the first listing in any case: a walk without a listing has no place to go on from.
        if self._listings == MAX_LISTINGS or (self._listings and self._is_over()):
            self.stopped_at = self.stopped_at or prefix
            return []
        try:
            folders = self._list_folders(self._base + prefix)
        except StoreUnavailableError as err:
            if not self._listings:
                raise
            self.stopped_at = prefix
            self.error = err
            return []
        self._listings += 1
        return sorted(folder.removeprefix(self._base) for folder in folders)


def _make_observation(topic: TopicAssets, folder: str, findings: Pass) -> dg.AssetObservation:
    """Make the event about folders in S3 whose objects the index does not know."""
    text = (
        f"{count_noun(findings.unknown, 'folder')} below {folder} with objects not in the index, which are left alone. "
        "To restore objects that another tool wrote, describe them in the file of a source connector."
    )
    metadata: Metadata = {"folders_not_in_index": findings.unknown, "example": findings.example}
    return dg.AssetObservation(topic.key("hourly"), description=text if findings.unknown else None, metadata=metadata)


def _find_due_days(
    topic: TopicAssets, snapshot: IndexSnapshot, since: datetime | None, shown_days: Container[str]
) -> list[date]:
    """Return the days that need a run, either to merge their hours, or to show a killed run's merge in Dagster."""
    zone = topic.config.layout.zone
    now = datetime.now(timezone.utc)
    due_days = list_due_days(snapshot, zone, topic.lateness, now)
    days = {*due_days, *_find_unshown_days(topic, snapshot, since, shown_days, now)}
    return sorted(d for d in days if find_day_start(d, zone) >= topic.first_offered)


def _find_unshown_days(
    topic: TopicAssets, snapshot: IndexSnapshot, since: datetime | None, shown_days: Container[str], now: datetime
) -> Iterator[date]:
    """Yield the past days that were merged at `since` or later, but that Dagster does not show as materialized."""
    zone = topic.config.layout.zone
    daily = snapshot.list_chunks(SegmentFilter(chunk="daily", committed_since=since), [LIVE, RETIRED])
    for day in {find_day(chunk) for chunk in daily} - {None}:
        if day is not None and find_day_end(day, zone) + topic.lateness <= now and day.isoformat() not in shown_days:
            yield day
