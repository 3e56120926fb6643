"""Plan the merges of a compaction, and commit the plans of its days on the version of the index they were made from.

A daily segment holds about `archive.daily.segment.bytes` object bytes. The compression of the merged records is unknown
before, so the inputs decide: their object bytes in the index are shared out among a number of outputs, and several
outputs of one merge end at equal shares of its record bytes. The bounds are thus a function of index rows and records
alone, the same for every attempt and on any number of cores.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timezone
from functools import partial
from itertools import groupby
from typing import TypeAlias
from zoneinfo import ZoneInfo

from kafka_s3_platform.core.config.settings import LayoutSettings
from kafka_s3_platform.core.errors import PlatformError
from kafka_s3_platform.core.java.joda_format import compile_path_format
from kafka_s3_platform.core.model.segment import Compaction, Segment, cluster_overlaps
from kafka_s3_platform.core.model.silence import try_topics
from kafka_s3_platform.core.model.times import DAY_MS
from kafka_s3_platform.core.spark.runner import TaskRunner
from kafka_s3_platform.core.store.index import ConnectorIndex, ConnectorSnapshot, IndexSnapshot
from kafka_s3_platform.core.store.index_commit import Change, retry_commit
from kafka_s3_platform.core.store.lease import Lease, take_leases
from kafka_s3_platform.core.upkeep.compact.days import (
    CompactRequest,
    find_day_start,
    is_mergeable,
    load_day_segments,
    read_day_segments,
    select_day_segments,
)

DAILY_PATH = "'year'=YYYY/'month'=MM/'day'=dd"
_COMPONENT = re.compile(r"(?:'[^']*(?:'|$)|[^'/])+")
_QUOTED = re.compile(r"'[^']*(?:'|$)")
_FINER_THAN_A_DAY = frozenset("HkKhmsSa")


@dataclass(frozen=True)
class Merge:
    """Segments of one kafka partition and timezone, by first offset, to be merged into `outputs` daily segments."""

    inputs: tuple[Segment, ...]
    outputs: int

    @property
    def kafka_partition(self) -> int:
        return self.inputs[0].kafka_partition

    @property
    def zone(self) -> ZoneInfo:
        """The timezone of the merged hours."""
        return self.inputs[0].zone

    @property
    def size(self) -> int:
        return sum(s.size for s in self.inputs)

    @property
    def record_count(self) -> int:
        return sum(s.record_count for s in self.inputs)

    @property
    def segment_bytes(self) -> int:
        """Record bytes at which each output ends; never reached if there is only one."""
        return sum(s.record_bytes for s in self.inputs) // self.outputs + 1


def plan_day(segments: Sequence[Segment], day: date, daily_segment_bytes: int) -> list[Merge]:
    """Return the merges of a day, from all live segments. Empty when no hourly segment of it is live.

    Inputs are the hourly segments, and earlier daily ones that overlap them or are smaller than half of
    `daily_segment_bytes`. No merge reaches across a daily segment that stays, or into another timezone: if the
    connector's was changed, a day of either is another span of time. A segment stays unless it `is_mergeable`.
    """
    mergeable = filter(is_mergeable, select_day_segments(segments, day))
    day_segments = sorted(mergeable, key=lambda s: (*_get_merge_key(s), s.start_offset, s.end_offset))
    merges: list[Merge] = []
    for _, group in groupby(day_segments, key=_get_merge_key):
        for run in _split_runs(list(group), daily_segment_bytes):
            merges += _split_merges(run, daily_segment_bytes)
    return merges


def _get_merge_key(segment: Segment) -> tuple[int, str]:
    return segment.kafka_partition, segment.zone.key


def build_daily_layout(layout: LayoutSettings, zone: ZoneInfo, segment_bytes: int) -> LayoutSettings:
    """Return the layout of daily segments of `zone` with at most `segment_bytes` record bytes."""
    return layout.model_copy(
        update={
            "topics_dir": layout.daily_dir,
            "timezone": zone.key,
            "partitioner": "TimeBased",
            "path_format": build_daily_path_format(layout.path_format),
            "partition_duration_ms": DAY_MS,
            "flush_size": None,
            "rotate_interval_ms": None,
            "rotate_schedule_interval_ms": None,
            "segment_bytes": segment_bytes,
        }
    )


def build_daily_path_format(path_format: str) -> str:
    """Shorten to the folders before the first with an hour or less; Connect's daily folders if none is before it."""
    folders: list[str] = []
    for folder in _COMPONENT.findall(path_format):
        if _FINER_THAN_A_DAY & set(_QUOTED.sub("", folder)):
            break
        folders.append(folder)
    return "/".join(folders) or DAILY_PATH


def encode_day(layout: LayoutSettings, zone: ZoneInfo, day: date) -> str:
    """Return the folder of a day's daily segments of `zone` below the topic's."""
    return compile_path_format(build_daily_path_format(layout.path_format))(find_day_start(day, zone).astimezone(zone))


def _split_runs(segments: Sequence[Segment], daily_segment_bytes: int) -> Iterator[list[Segment]]:
    """Split the segments of one kafka partition at daily ones that stay. Each run has an hourly one."""
    hourly = [s for s in segments if s.chunk == "hourly"]
    runs: list[list[Segment]] = [[]]
    for segment in segments if hourly else ():
        overlaps = any(segment.offsets.overlaps(h.offsets) for h in hourly)
        if overlaps or segment.size < daily_segment_bytes / 2:
            runs[-1].append(segment)
        else:
            runs.append([])
    return (run for run in runs if any(s.chunk == "hourly" for s in run))


def _split_merges(run: Sequence[Segment], daily_segment_bytes: int) -> Iterator[Merge]:
    """Assign each cluster of overlapping segments to the output in whose share of the bytes its middle lies."""
    total = max(1, sum(s.size for s in run))
    share = total / max(1, round(total / daily_segment_bytes))
    inputs_by_output: dict[int, list[Segment]] = {}
    bytes_before = 0
    for cluster in cluster_overlaps(run):
        size = sum(s.size for s in cluster)
        inputs_by_output.setdefault(int((bytes_before + size / 2) / share), []).extend(cluster)
        bytes_before += size
    for inputs in inputs_by_output.values():
        if len(inputs) > 1 or inputs[0].chunk == "hourly":
            yield Merge(tuple(inputs), max(1, round(sum(s.size for s in inputs) / daily_segment_bytes)))


Plans: TypeAlias = Mapping[date, tuple[Merge, ...]]
"""The merges of each day of a topic that has any."""


@dataclass(frozen=True)
class ReservedDay:
    """One day of one topic, with a committed plan. The topic's days share the lease."""

    request: CompactRequest
    lease: Lease
    topic_id: str
    index_id: str
    merges: tuple[Merge, ...]

    @property
    def inputs(self) -> tuple[Segment, ...]:
        return tuple(s for m in self.merges for s in m.inputs)


@dataclass(frozen=True)
class ReservedDays:
    """The days with something to merge, and the errors of topics without a reservation."""

    days: tuple[ReservedDay, ...]
    failures: Mapping[str, PlatformError]

    @property
    def leases(self) -> Mapping[str, Lease]:
        return {day.request.topic: day.lease for day in self.days}


def reserve_days(requests: Sequence[CompactRequest], index: ConnectorIndex, runner: TaskRunner) -> ReservedDays:
    """Commit the plans of all days. Earlier compactions of one of the days end here, with all days of their topic.

    An error of one topic leaves the others. Plans again if another commit came first. Nothing is reserved if `runner`
    cannot run tasks.
    """
    by_topic: dict[str, list[CompactRequest]] = {}
    for request in requests:
        by_topic.setdefault(request.topic, []).append(request)
    return retry_commit(index, partial(_reserve, by_topic, runner))


def _reserve(
    by_topic: Mapping[str, Sequence[CompactRequest]], runner: TaskRunner, snapshot: ConnectorSnapshot
) -> ReservedDays:
    """Plan the days of all topics on this version of the index, and commit a lease for each topic with a plan."""
    snapshot.load_states(by_topic)
    for day in sorted({request.day for requests in by_topic.values() for request in requests}):
        load_day_segments(snapshot, by_topic, day)
    all_plans, failures = try_topics(by_topic, lambda topic: _plan_topic(by_topic[topic], snapshot.topic(topic)))
    plans = {topic: topic_plans for topic, topic_plans in all_plans.items() if topic_plans}
    if plans:
        runner.start()
    leases = _commit_plans(by_topic, plans, snapshot) if plans else {}
    days = [
        day
        for topic in plans
        for day in _build_days(by_topic[topic], plans[topic], leases[topic], snapshot.topic(topic))
    ]
    return ReservedDays(tuple(days), failures)


def _plan_topic(requests: Sequence[CompactRequest], snapshot: IndexSnapshot) -> Plans:
    _ = snapshot.state  # a topic with damaged rows fails here, alone
    size = requests[0].config.archive.daily_segment_bytes
    plans = {r.day: tuple(plan_day(read_day_segments(snapshot, r.day), r.day, size)) for r in requests}
    return {day: merges for day, merges in plans.items() if merges}


def _commit_plans(
    by_topic: Mapping[str, Sequence[CompactRequest]], plans: Mapping[str, Plans], snapshot: ConnectorSnapshot
) -> Mapping[str, Lease]:
    now = datetime.now(timezone.utc)
    changes: dict[str, Change] = {}
    superseded: dict[str, list[Compaction]] = {}
    for topic, days in plans.items():
        request = by_topic[topic][0]
        zone = ZoneInfo(request.config.layout.timezone)
        starts = [find_day_start(day, zone) for day in days]
        rows = tuple(Compaction(start, request.run_id, snapshot.version + 1, now) for start in starts)
        changes[topic] = Change(added=rows, run_id=request.run_id)
        superseded[topic] = [c for c in snapshot.topic(topic).state.compactions if c.chunk_start in starts]
    return take_leases(snapshot, changes, superseded)


def _build_days(
    requests: Sequence[CompactRequest], plans: Plans, lease: Lease, snapshot: IndexSnapshot
) -> Iterator[ReservedDay]:
    state = snapshot.state
    topic_id = state.topic.topic_id if state.topic else ""
    for request in requests:
        if request.day in plans:
            yield ReservedDay(request, lease, topic_id, snapshot.index_id, plans[request.day])
