"""The folder sensor: asks for days that are due, and finds time folders in S3 that the index does not know."""

import hashlib
import json
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import dagster as dg

from kafka_s3_platform.compact.days import day_end, day_of, day_start, days_due, segments_of_day
from kafka_s3_platform.defs.backlog import contiguous
from kafka_s3_platform.defs.jobs import Job
from kafka_s3_platform.defs.names import op_name
from kafka_s3_platform.defs.runs import is_requested, reason_to_wait, request, unfinished
from kafka_s3_platform.defs.tick import Tick
from kafka_s3_platform.defs.topic import ArchivedTopic
from kafka_s3_platform.errors import StoreUnavailableError
from kafka_s3_platform.store.index import IndexSnapshot
from kafka_s3_platform.store.objects import ObjectStore

INTERVAL_SECONDS = 300
MAX_DAYS = 31
MAX_LISTINGS = 100
"""Folders that one tick looks into, for one topic; the next tick goes on after them."""


@dataclass(frozen=True)
class Pass:
    """How far a walk over a topic's folders has come: `after` is the last folder seen, the rest what it found so far.

    `reported` is the digest of what the last whole walk found.
    """

    after: str = ""
    unknown: int = 0
    digest: str = ""
    reported: str = ""
    example: str = ""


def folder_sensor(topics: Sequence[ArchivedTopic], job: Job, status: dg.DefaultSensorStatus) -> dg.SensorDefinition:
    """One connector's sensor over its `topics`, which asks for runs of its compact job."""
    connector = topics[0].config

    @dg.sensor(
        name=op_name("folders", connector.name),
        job=job,
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=status,
        description=f"Asks for days of connector {connector.name} that are due, and finds folders that no index knows.",
    )
    def folders(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        tick = Tick(json.loads(context.cursor or "{}"), context.log)
        snapshots: dict[str, IndexSnapshot | None] = {}

        def days(topic: ArchivedTopic) -> None:
            snapshot = snapshots[topic.topic] = read_days(topic, tick)
            if snapshot is not None:
                ask_days(context.instance, topic, snapshot, job.name, tick)

        def walk(topic: ArchivedTopic) -> None:
            walk_folders(topic, ObjectStore(topic.config.store), snapshots[topic.topic], tick)

        # walks are long and can wait: days are asked for first, of all topics
        if tick.each("days", topics, days):
            tick.each("walks", [topic for topic in topics if topic.topic in snapshots], walk)
        return tick.result()

    return folders


def read_days(topic: ArchivedTopic, tick: Tick) -> IndexSnapshot | None:
    """The topic's index, with the segments of its days. Raises StoreUnavailableError where that takes too long."""

    def read() -> IndexSnapshot | None:
        snapshot = topic.index.peek()
        if snapshot is not None:
            _ = snapshot.segments
        return snapshot

    return tick.read(f"the index of topic {topic.topic}", read)


def ask_days(
    instance: dg.DagsterInstance, topic: ArchivedTopic, snapshot: IndexSnapshot, job_name: str, tick: Tick
) -> None:
    """Ask for the days that are due, oldest first, a run for each contiguous range.

    Those hold live hourly segments; or daily ones, but no materialization (a crash between commit and event).
    """
    key, zone, now = topic.key("daily"), ZoneInfo(topic.config.layout.timezone), datetime.now(timezone.utc)
    shown = instance.get_materialized_partitions(key)
    found = {*days_due(snapshot, zone, topic.lateness, now), *_days_not_shown(topic, snapshot, shown, now)}
    due = sorted(d for d in found if day_start(d, zone) >= topic.days.first)
    if due and is_requested(unfinished(instance, key), key):
        tick.reasons.append(f"{topic.name}: a run asked for earlier is queued or under way")
        return
    for days in contiguous(due[:MAX_DAYS], timedelta(days=1)):
        fingerprint = days_fingerprint(topic, snapshot, days)
        if reason := reason_to_wait(instance, key, fingerprint):
            tick.reasons.append(f"{topic.name}: {reason}")
        else:
            tick.requests.append(request(instance, key, job_name, [d.isoformat() for d in days], fingerprint))


def walk_folders(topic: ArchivedTopic, store: ObjectStore, snapshot: IndexSnapshot | None, tick: Tick) -> None:
    """Go on with the walk over the topic's folders; report what it found when it is through and found something new."""
    retired = tick.read(f"the index of topic {topic.topic}", lambda: snapshot.retired) if snapshot else ()
    known = {s.encoded_partition for s in (*snapshot.segments, *retired)} if snapshot else set()
    root = topic.config.layout.topics_dir
    base = f"{root}/{topic.topic}/" if root else f"{topic.topic}/"
    progress = Pass(**tick.cursor.get(topic.topic, {}))

    def listed(prefix: str) -> list[str]:
        return tick.read(store.uri(prefix), lambda: list(store.list_prefixes(prefix)))

    walk = _Walk(listed, base, known, progress.after, tick.is_over)
    for folder in walk.unknown(""):
        digest = hashlib.sha256(f"{progress.digest}{folder}".encode()).hexdigest()[:16]
        example = progress.example or folder
        progress = Pass(folder, progress.unknown + 1, digest, progress.reported, example)
    if walk.stopped_at:
        tick.cursor[topic.topic] = asdict(Pass(**{**asdict(progress), "after": walk.stopped_at}))
        if walk.error:
            raise walk.error
        return
    if progress.digest != progress.reported:
        tick.observations.append(_observation(topic, store.uri(base), progress))
    tick.cursor[topic.topic] = asdict(Pass(reported=progress.digest))


class _Walk:
    """A depth-first walk in byte order over the folders that the index does not know, from `after` on."""

    def __init__(
        self,
        listed: Callable[[str], list[str]],
        base: str,
        known: set[str],
        after: str,
        is_over: Callable[[], bool],
    ) -> None:
        self._listed, self._base, self._known, self._after, self._is_over = listed, base, known, after, is_over
        self._listings = 0
        self.stopped_at = ""
        self.error: StoreUnavailableError | None = None
        """What stopped it, where that was not the end of its time."""

    def unknown(self, prefix: str) -> Iterator[str]:
        """Folders without folders in them that no segment of the index lies in."""
        children = self._children(prefix)
        if not children and prefix and not self.stopped_at:
            yield prefix
        for child in children:
            if self.stopped_at:
                return
            if child[:-1] not in self._known and self._is_ahead(child):
                yield from self.unknown(child)

    def _children(self, prefix: str) -> list[str]:
        # the first listing is always made: there is no telling where a walk without any stopped
        if self._listings == MAX_LISTINGS or (self._listings and self._is_over()):
            self.stopped_at = self.stopped_at or prefix
            return []
        try:
            found = self._listed(self._base + prefix)
        except StoreUnavailableError as err:
            if not self._listings:
                raise
            self.stopped_at, self.error = prefix, err
            return []
        self._listings += 1
        return sorted(folder.removeprefix(self._base) for folder in found)

    def _is_ahead(self, folder: str) -> bool:
        return folder > self._after or self._after.startswith(folder)


def _observation(topic: ArchivedTopic, folder: str, found: Pass) -> dg.AssetObservation:
    text = (
        f"{found.unknown} folder(s) below {folder} hold objects that the index does not know. They are left alone; "
        "archives that others wrote are not indexed by this version yet."
    )
    metadata = {
        "folders_not_in_index": dg.MetadataValue.int(found.unknown),
        "example": dg.MetadataValue.text(found.example),
    }
    return dg.AssetObservation(topic.key("hourly"), description=text if found.unknown else None, metadata=metadata)


def _days_not_shown(
    topic: ArchivedTopic, snapshot: IndexSnapshot, shown: Container[str], now: datetime
) -> Iterator[date]:
    """Days that are over and compacted, and that Dagster knows nothing of."""
    zone = ZoneInfo(topic.config.layout.timezone)
    for day in {day_of(s) for s in snapshot.segments if s.chunk == "daily"} - {None}:
        if day is not None and day_end(day, zone) + topic.lateness <= now and day.isoformat() not in shown:
            yield day


def days_fingerprint(topic: ArchivedTopic, snapshot: IndexSnapshot, days: Sequence[date]) -> str:
    """A digest of the configuration and of what there is to merge: with the same one, compaction ends as it did."""
    keys = [s.key for day in days for s in segments_of_day(snapshot.segments, day)]
    return hashlib.sha256(json.dumps([topic.config_digest, keys]).encode()).hexdigest()[:16]
