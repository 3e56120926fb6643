"""Check the archive against its index: coverage, counts, and every object by name."""

import hashlib
import logging
from collections import defaultdict
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import chain, pairwise

import numpy as np
import pyarrow as pa

from kafka_s3_platform.core.config.formats import find_format
from kafka_s3_platform.core.config.settings import ConnectorConfig, StoreSettings
from kafka_s3_platform.core.errors import HEAL_OBJECT, IntegrityError
from kafka_s3_platform.core.formats.columns import RecordDigest
from kafka_s3_platform.core.formats.envelope.records import check_place, new_envelope_reader
from kafka_s3_platform.core.model.batches import read_offset_column
from kafka_s3_platform.core.model.connect import Int64s
from kafka_s3_platform.core.model.gaps import Gap, Unresolved
from kafka_s3_platform.core.model.offsets import RangeSet
from kafka_s3_platform.core.model.segment import Segment, StoredObject, cluster_overlaps
from kafka_s3_platform.core.model.times import HOUR, shift_time
from kafka_s3_platform.core.spark.progress import Progress
from kafka_s3_platform.core.spark.runner import Attempt, TaskRunner
from kafka_s3_platform.core.store.index import IndexSnapshot, TopicIndex
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform.core.store.row_filter import SegmentFilter
from kafka_s3_platform.core.upkeep.compact.days import find_day_end, find_span

logger = logging.getLogger(__name__)

HEAD_THREADS = 8
TASK_BYTES = 268_435_456
READ_BYTES = 4_194_304


@dataclass(frozen=True, order=True)
class Damage:
    """One difference between the archive and its index. `key` is None if it concerns no single object."""

    kafka_partition: int
    key: str | None
    message: str


@dataclass(frozen=True)
class Hole:
    """Offsets `[start_offset, end_offset)` between archived ones, which no run has scanned (yet)."""

    kafka_partition: int
    start_offset: int
    end_offset: int


@dataclass(frozen=True)
class VerifyReport:
    """Result of a verification. If `deep`, every object was read to its end, not only compared by size and ETag.

    The offsets of `gaps` are lost. An earlier sink has the offsets `taken_over`. `unresolved` offsets could not be
    archived, and do not count as holes. `record_bytes` counts keys, values and headers. `inventory` is the SHA-256 of
    the sorted lines `<SHA-256 of an object> <its key>`.
    """

    topic: str
    deep: bool
    segment_count: int
    record_count: int
    size: int
    damages: tuple[Damage, ...]
    holes: tuple[Hole, ...]
    gaps: tuple[Gap, ...]
    taken_over: tuple[Gap, ...] = ()
    unresolved: tuple[Unresolved, ...] = ()
    record_bytes: int = 0
    inventory: str = ""

    @property
    def ok(self) -> bool:
        """True if there is no damage. Holes and gaps are not damage, and are reported separately."""
        return not self.damages


@dataclass(frozen=True)
class VerifyTask:
    """Live segments of one kafka partition. None of them overlaps a segment of another task."""

    store: StoreSettings = field(repr=False)
    segments: tuple[Segment, ...]

    @property
    def size(self) -> int:
        return sum(s.size for s in self.segments)


def verify_archive(config: ConnectorConfig, topic: str, deep: bool, runner: TaskRunner) -> VerifyReport:
    """Check the archive of `topic`. If `deep`, tasks of `runner` read every object to its end.

    An archive without any records is not an error. Raises store errors. Faults of the archive are in the report.
    """
    index = TopicIndex.of(config, topic)
    snapshot = index.peek()
    if snapshot is None:
        return VerifyReport(topic, deep, 0, 0, 0, (), (), ())
    damages: list[Damage] = []
    compared_keys = set[str]()
    while True:
        others = [segment for segment in snapshot.segments if segment.key not in compared_keys]
        new_damages = _find_damages(config, topic, others, deep, runner)
        compared_keys.update(segment.key for segment in others)
        newest = index.open() if new_damages else snapshot
        live_keys = {key for segment in newest.segments for key in segment.keys}
        damages += (damage for damage in new_damages if damage.key in live_keys)
        if all(damage.key in live_keys for damage in new_damages):
            break
        # Retention or an erasure removed objects before they were read. Those that hold their records now come next.
        snapshot = newest
    damages += _find_count_damages(snapshot)
    segments = snapshot.segments
    return VerifyReport(
        topic=topic,
        deep=deep,
        segment_count=len(segments),
        record_count=sum(s.record_count for s in segments),
        size=sum(s.size for s in segments),
        damages=tuple(sorted(damages, key=lambda d: (d.kafka_partition, d.key or "", d.message))),
        holes=tuple(_find_holes(snapshot)),
        gaps=tuple(g for g in snapshot.state.judge.left_out if g.is_lost),
        taken_over=tuple(g for g in snapshot.state.judge.left_out if not g.is_lost),
        unresolved=snapshot.state.unresolved,
        record_bytes=sum(s.record_bytes for s in segments),
        inventory=hash_inventory(segments),
    )


def _find_damages(
    config: ConnectorConfig, topic: str, segments: Sequence[Segment], deep: bool, runner: TaskRunner
) -> list[Damage]:
    """Compare the objects of the segments with the index, and read them if `deep`. Return the damages."""
    damages = _compare_objects(ObjectStore(config.store), segments)
    if deep:
        missing = {d.key for d in damages}
        damages += _read_all(config, topic, [s for s in segments if missing.isdisjoint(s.keys)], runner)
    return damages


def hash_inventory(segments: Iterable[Segment]) -> str:
    """Return the SHA-256 of the lines `<SHA-256 of an object> <its key>` of all objects, sorted."""
    objects = chain.from_iterable(segment.objects for segment in segments)
    lines = sorted(f"{item.sha256} {item.key}\n" for item in objects)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def verify_hours(
    snapshot: IndexSnapshot, store: ObjectStore, hours: Collection[datetime], deep: bool = False
) -> tuple[Damage, ...]:
    """Check the existence, the size and the ETag of the objects with records of `hours`.

    They belong to hourly segments, and to daily and monthly ones with merged hours. If `deep`, read every object to its
    end too.
    """
    return verify_segments(store, read_hour_segments(snapshot, hours), deep)


def verify_segments(store: ObjectStore, segments: Sequence[Segment], deep: bool) -> tuple[Damage, ...]:
    """Check the existence, the size and the ETag of the objects. If `deep`, read every object to its end too."""
    damages = _compare_objects(store, segments)
    if deep:
        missing = {d.key for d in damages}
        present = [s for s in segments if missing.isdisjoint(s.keys)]
        for cluster in _cluster_segments(present):
            damages += _read_cluster(store, cluster)
    return tuple(damages)


def read_checked(store: ObjectStore, segment: Segment) -> Generator[pa.RecordBatch, None, None]:
    """Yield the records of a segment, in the reader's batches.

    Raises:
        IntegrityError: the object is gone or is not the one in the index. Raised at the end of the reading if the
            object holds other records.
    """
    digest = RecordDigest()
    count = 0
    with store.open_stored(segment.objects[0]) as source:
        for batch in new_envelope_reader(segment.format, source, segment.key, store.settings.limits).batches():
            check_place(batch, segment.kafka_partition, segment.offsets, store.uri(segment.key))
            digest.update(batch)
            count += batch.num_rows
            yield batch
    for subject, actual, expected in (
        ("records", count, segment.record_count),
        ("record digest", digest.hexdigest(), segment.digest),
    ):
        if actual != expected:
            raise IntegrityError(
                f"{store.uri(segment.key)}, kafka partition {segment.kafka_partition} {segment.offsets}: {subject} "
                f"{actual}, "
                f"the index has {expected}. It is damaged or was replaced; {HEAL_OBJECT}"
            )


def read_and_verify(task: VerifyTask, _: Attempt) -> tuple[VerifyTask, list[Damage]]:
    """Read each object of a task to its end, in a Spark process. Return the task, and the damages.

    The checks are of the SHA-256, the number of records, their digest, and offsets held by two objects.
    """
    store = ObjectStore(task.store)
    damages: list[Damage] = []
    for cluster in cluster_overlaps(task.segments):
        damages += _read_cluster(store, cluster)
    return task, damages


LONGEST_DAY = timedelta(hours=26)
LONGEST_MONTH = timedelta(days=31, hours=2)
"""Longest time from the start of a day or month to one of its hours, if clocks change."""


def read_hour_segments(snapshot: IndexSnapshot, hours: Collection[datetime]) -> list[Segment]:
    """Return the live segments that overlap these hours: hourly, daily and monthly ones."""
    if not hours:
        return []
    begin = shift_time(min(hours), -LONGEST_DAY)
    months = SegmentFilter("monthly", (shift_time(min(hours), -LONGEST_MONTH), begin))
    others = SegmentFilter(chunk_starts=(begin, shift_time(max(hours), HOUR)))
    segments = (*snapshot.select_segments(months), *snapshot.select_segments(others))
    return [segment for segment in segments if overlaps_hours(segment, hours)]


def overlaps_hours(segment: Segment, hours: Collection[datetime]) -> bool:
    """Return True if a segment's hour, day or month overlaps one of these hours.

    Days and months are counted in the segment's own timezone. Records out of range belong to no hour.
    """
    if segment.chunk_start is None:
        return False
    span = find_span(segment)
    end = segment.chunk_start + HOUR
    if span is not None and segment.chunk != "hourly":
        end = find_day_end(span, segment.zone)
    # Compare a difference, not `hour + HOUR`, because the last hour of the calendar has no end.
    return any(segment.chunk_start - hour < HOUR and hour < end for hour in hours)


def _compare_objects(store: ObjectStore, segments: Sequence[Segment]) -> list[Damage]:
    """Compare the objects of the segments with their rows in the index, several at once."""
    with ThreadPoolExecutor(HEAD_THREADS, thread_name_prefix="verify") as pool:
        damages = pool.map(lambda s: list(_compare_segment(store, s)), segments)
        return list(chain.from_iterable(damages))


def _compare_segment(store: ObjectStore, segment: Segment) -> Iterator[Damage]:
    """Yield a damage for each object of the segment that is missing, or differs from its row."""
    for item in segment.objects:
        info = store.head(item.key)
        if info is None:
            fault = "the object is missing: it was deleted, by hand or by a lifecycle rule"
        elif info.size != item.size:
            fault = f"the object has {info.size} bytes, the index {item.size}: it was cut off or replaced"
        elif not store.is_stored(item, info):
            fault = f"the object has etag {info.etag}, the index {item.etag}, and other bytes: it was replaced"
        else:
            continue
        yield _build_damage(segment, fault, item.key)


def _build_damage(segment: Segment, message: str, key: str | None = None) -> Damage:
    return Damage(segment.kafka_partition, key or segment.key, f"{message} (offsets {segment.offsets})")


def _find_count_damages(snapshot: IndexSnapshot) -> Iterator[Damage]:
    """Find kafka partitions whose segments hold another number of records than their scans.

    A merge does not change the numbers. Expired segments count as before, and so do erased records.
    """
    scanned: dict[int, int] = defaultdict(int)
    live: dict[int, int] = defaultdict(int)
    for scan in snapshot.state.all_scans:
        scanned[scan.kafka_partition] += scan.output_count
    for segment in (*snapshot.segments, *snapshot.expired, *snapshot.erased):
        live[segment.kafka_partition] += segment.record_count
    for kafka_partition in sorted({*scanned, *live}):
        if scanned[kafka_partition] != live[kafka_partition]:
            yield Damage(
                kafka_partition,
                None,
                f"{scanned[kafka_partition]} records came of the scans, the live segments hold {live[kafka_partition]}",
            )


def _find_holes(snapshot: IndexSnapshot) -> Iterator[Hole]:
    """Find the holes between archived or unresolved offsets."""
    for kafka_partition in snapshot.state.scanned_kafka_partitions:
        ranges: RangeSet = snapshot.state.as_if_resolved.coverage(kafka_partition)
        for previous, following in pairwise(ranges):
            yield Hole(kafka_partition, previous.end_offset, following.start_offset)


def _read_all(config: ConnectorConfig, topic: str, segments: Sequence[Segment], runner: TaskRunner) -> list[Damage]:
    """Read the segments to their ends in tasks of the runner. Return the damages found."""
    tasks = [VerifyTask(config.store, tuple(group)) for group in _group_for_tasks(segments)]
    progress = Progress(logger, f"verify {topic}", len(tasks), sum(t.size for t in tasks))
    damages: list[Damage] = []
    for task, task_damages in runner.run(read_and_verify, tasks, config.tasks_max):
        record_bytes = sum(s.record_bytes for s in task.segments)
        progress.advance(task.size, sum(s.record_count for s in task.segments), record_bytes)
        damages += task_damages
    return damages


def _group_for_tasks(segments: Sequence[Segment]) -> Iterator[list[Segment]]:
    """Group clusters of overlapping segments, so that each task has enough bytes to be worth its start.

    A group has segments of one kafka partition only.
    """
    group: list[Segment] = []
    for cluster in _cluster_segments(segments):
        is_other = bool(group) and group[0].kafka_partition != cluster[0].kafka_partition
        if is_other or sum(s.size for s in group) >= TASK_BYTES:
            yield group
            group = []
        group += cluster
    if group:
        yield group


def _cluster_segments(segments: Iterable[Segment]) -> Iterator[list[Segment]]:
    """Yield groups of segments whose offsets overlap, each group of one kafka partition."""
    by_kafka_partition: dict[int, list[Segment]] = defaultdict(list)
    for segment in segments:
        by_kafka_partition[segment.kafka_partition].append(segment)
    for group in by_kafka_partition.values():
        yield from cluster_overlaps(group)


def _read_cluster(store: ObjectStore, segments: Sequence[Segment]) -> Iterator[Damage]:
    """Read overlapping segments to their ends. Yield the damages, including offsets held by two of them."""
    runs: list[tuple[Segment, Int64s]] = []
    for segment in segments:
        try:
            for item in segment.objects:
                _check_sha256(store, item)
            # other formats hold values only: only their bytes can be checked
            if find_format(segment.format).is_envelope:
                runs.append((segment, _read_runs(store, segment)))
        except IntegrityError as err:
            yield _build_damage(segment, err.text)
    yield from _find_repeated(runs)


def _check_sha256(store: ObjectStore, item: StoredObject) -> None:
    """Read an object, and raise IntegrityError if its SHA-256 is not the one in the index."""
    digest = hashlib.sha256()
    with store.open_stored(item) as source:
        while part := source.read(READ_BYTES):
            digest.update(part)
    if digest.hexdigest() != item.sha256:
        raise IntegrityError(f"{item.key}: the object's SHA-256 is {digest.hexdigest()}, the index has {item.sha256}")


def _read_runs(store: ObjectStore, segment: Segment) -> Int64s:
    """Read the segment's offsets as runs (first, after last), so dense offsets take almost no memory.

    Returns an array of shape (runs, 2).
    """
    runs: list[Int64s] = []
    expected_start = segment.start_offset
    for batch in read_checked(store, segment):
        offsets = read_offset_column(batch)
        steps = np.diff(offsets)
        if offsets[0] < expected_start or (steps <= 0).any():
            raise IntegrityError(
                f"offsets {offsets.min()} to {offsets.max()} stand where ascending ones from {expected_start} on are "
                f"due"
            )
        bounds = np.flatnonzero(steps != 1) + 1
        starts = offsets[np.append(0, bounds)]
        lasts = offsets[np.append(bounds, len(offsets)) - 1]
        runs.append(np.stack([starts, lasts + 1], axis=1))
        expected_start = int(offsets[-1]) + 1
    if runs:
        return np.concatenate(runs)
    return np.empty((0, 2), np.int64)


def _find_repeated(segment_runs: Sequence[tuple[Segment, Int64s]]) -> Iterator[Damage]:
    """Find offsets held by two segments. Each pair of segments is reported once, with its first such offset."""
    if len(segment_runs) < 2:
        return
    runs = np.concatenate([r for _, r in segment_runs])
    owners = np.repeat(np.arange(len(segment_runs)), [len(r) for _, r in segment_runs])
    order = np.lexsort((runs[:, 1], runs[:, 0]))
    runs = runs[order]
    owners = owners[order]
    reached_ends = np.maximum.accumulate(runs[:, 1])
    holders = owners[np.maximum.accumulate(np.where(runs[:, 1] == reached_ends, np.arange(len(runs)), 0))]
    first_offsets: dict[tuple[int, int], int] = {}
    for row in np.flatnonzero(runs[1:, 0] < reached_ends[:-1]) + 1:
        first_offsets.setdefault((int(owners[row]), int(holders[row - 1])), int(runs[row, 0]))
    for (first_owner, second_owner), offset in first_offsets.items():
        message = f"offset {offset} is also held by {segment_runs[second_owner][0].key}: it would be restored twice"
        yield _build_damage(segment_runs[first_owner][0], message)
