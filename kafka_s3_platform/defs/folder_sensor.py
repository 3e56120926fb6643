"""The folder sensor: asks for days that are due, and finds time folders in S3 that the index does not know."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import dagster as dg

from kafka_s3_platform.compact.days import days_due, segments_of_day
from kafka_s3_platform.defs.jobs import Job
from kafka_s3_platform.defs.names import op_name
from kafka_s3_platform.defs.runs import is_requested, reason_to_wait, request, unfinished
from kafka_s3_platform.defs.tick import Tick
from kafka_s3_platform.defs.topic import ArchivedTopic
from kafka_s3_platform.errors import PermanentError, TransientError
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
        tick = Tick(json.loads(context.cursor or "{}"))
        for topic in topics:
            _evaluate(context, topic, job.name, tick)
        return tick.result()

    return folders


def _evaluate(context: dg.SensorEvaluationContext, topic: ArchivedTopic, job_name: str, tick: Tick) -> None:
    try:
        snapshot = topic.index.peek()
        if snapshot is not None:
            ask_days(context.instance, topic, snapshot, job_name, tick)
        walk_folders(topic, ObjectStore(topic.config.store), snapshot, tick)
    except TransientError as err:
        tick.reasons.append(str(err))
    except PermanentError as err:
        context.log.exception("%s", topic.name)
        tick.errors.append(err)


def ask_days(
    instance: dg.DagsterInstance, topic: ArchivedTopic, snapshot: IndexSnapshot, job_name: str, tick: Tick
) -> None:
    """Ask for the days that hold live hourly segments, oldest first, a run for each contiguous range."""
    key, zone = topic.key("daily"), ZoneInfo(topic.config.layout.timezone)
    due = [d for d in days_due(snapshot, zone, topic.lateness, datetime.now(timezone.utc)) if _is_known(topic, d)]
    if due and is_requested(unfinished(instance, key), key):
        tick.reasons.append(f"{topic.name}: a run asked for earlier is queued or under way")
        return
    for days in _contiguous(due[:MAX_DAYS]):
        fingerprint = _fingerprint(snapshot, days, zone)
        if reason := reason_to_wait(instance, key, fingerprint):
            tick.reasons.append(f"{topic.name}: {reason}")
        else:
            tick.requests.append(request(key, job_name, [d.isoformat() for d in days], fingerprint))


def walk_folders(topic: ArchivedTopic, store: ObjectStore, snapshot: IndexSnapshot | None, tick: Tick) -> None:
    """Go on with the walk over the topic's folders; report what it found when it is through and found something new."""
    known = {s.encoded_partition for s in (*snapshot.segments, *snapshot.retired)} if snapshot else set()
    base = f"{topic.config.layout.topics_dir}/{topic.topic}/"
    progress = Pass(**tick.cursor.get(topic.topic, {}))
    walk = _Walk(store, base, known, progress.after)
    for folder in walk.unknown(""):
        digest = hashlib.sha256(f"{progress.digest}{folder}".encode()).hexdigest()[:16]
        example = progress.example or folder
        progress = Pass(folder, progress.unknown + 1, digest, progress.reported, example)
    if walk.stopped_at:
        tick.cursor[topic.topic] = asdict(Pass(**{**asdict(progress), "after": walk.stopped_at}))
        return
    if progress.digest != progress.reported:
        tick.observations.append(_observation(topic, store.uri(base), progress))
    tick.cursor[topic.topic] = asdict(Pass(reported=progress.digest))


class _Walk:
    """A depth-first walk in byte order over the folders that the index does not know, from `after` on."""

    def __init__(self, store: ObjectStore, base: str, known: set[str], after: str) -> None:
        self._store, self._base, self._known, self._after = store, base, known, after
        self._listings = 0
        self.stopped_at = ""

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
        if self._listings == MAX_LISTINGS:
            self.stopped_at = self.stopped_at or prefix
            return []
        self._listings += 1
        return sorted(found.removeprefix(self._base) for found in self._store.list_prefixes(self._base + prefix))

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


def _is_known(topic: ArchivedTopic, day: date) -> bool:
    return topic.days.definition.has_partition_key(day.isoformat())


def _contiguous(days: Sequence[date]) -> list[list[date]]:
    found: list[list[date]] = []
    for day in days:
        if found and day - found[-1][-1] == timedelta(days=1):
            found[-1].append(day)
        else:
            found.append([day])
    return found


def _fingerprint(snapshot: IndexSnapshot, days: Sequence[date], zone: ZoneInfo) -> str:
    """A digest of what there is to merge: with the same one, compaction ends the same way again."""
    keys = [s.key for day in days for s in segments_of_day(snapshot.segments, day, zone) if s.chunk == "hourly"]
    return hashlib.sha256(json.dumps(keys).encode()).hexdigest()[:16]
