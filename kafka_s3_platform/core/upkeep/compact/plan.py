"""Plan the merges of a compaction, and commit the plans of its days on the version of the index they were made from.

A daily segment holds about `archive.daily.segment.bytes` object bytes, a monthly one `archive.monthly.segment.bytes`.
How well the merged records will compress is not known, so the inputs decide: their object bytes in the index are shared
out among a number of outputs, and if a merge has several outputs, they end at equal shares of its record bytes. The
bounds thus depend on index rows and records alone, and are the same for every attempt and on any number of cores.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from itertools import groupby
from typing import TypeAlias
from zoneinfo import ZoneInfo

from kafka_s3_platform.core.config.settings import LayoutSettings
from kafka_s3_platform.core.errors import PlatformError
from kafka_s3_platform.core.java.joda_format import compile_path_format
from kafka_s3_platform.core.model.segment import Chunk, Compaction, Segment, cluster_overlaps
from kafka_s3_platform.core.model.silence import try_topics
from kafka_s3_platform.core.model.times import DAY_MS
from kafka_s3_platform.core.spark.runner import TaskRunner
from kafka_s3_platform.core.store.index import ConnectorIndex, ConnectorSnapshot, IndexSnapshot
from kafka_s3_platform.core.store.index_commit import Change, retry_commit
from kafka_s3_platform.core.store.lease import Lease, take_leases
from kafka_s3_platform.core.store.row_filter import SegmentFilter
from kafka_s3_platform.core.store.upload import Provenance
from kafka_s3_platform.core.upkeep.compact.days import (
    CompactRequest,
    Month,
    Span,
    find_day,
    find_day_end,
    find_day_start,
    find_first_day,
    is_mergeable,
    load_day_segments,
    read_day_segments,
    select_day_segments,
)

DAILY_PATH = "'year'=YYYY/'month'=MM/'day'=dd"
_COMPONENT = re.compile(r"(?:'[^']*(?:'|$)|[^'/])+")
_QUOTED = re.compile(r"'[^']*(?:'|$)")
MONTHLY_PATH = "'year'=YYYY/'month'=MM"
_FINER_THAN_A_DAY = frozenset("HkKhmsSa")
_FINER_THAN_A_MONTH = _FINER_THAN_A_DAY | frozenset("dDeEwx")


@dataclass(frozen=True)
class Merge:
    """Segments of one kafka partition and timezone, by first offset, to be merged into `outputs` segments."""

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
        """Record bytes at which each output ends, never reached if there is only one."""
        return sum(s.record_bytes for s in self.inputs) // self.outputs + 1


def plan_span(segments: Sequence[Segment], span: Span, segment_bytes: int) -> list[Merge]:
    """Return the merges of a day or month, from all live segments, or none if nothing is to be merged.

    Inputs of a day are its hourly segments, and earlier daily ones that overlap them or are smaller than half of
    `segment_bytes`. Inputs of a month are its daily segments and earlier monthly ones, if they are smaller than this
    half. No merge reaches across a segment that stays, or into another timezone: if the connector's timezone was
    changed, a day in each is another span of time. A segment stays unless it `is_mergeable`.
    """
    is_month = isinstance(span, Month)
    mergeable = (s for s in select_day_segments(segments, span) if is_mergeable(s))
    inputs = [s for s in mergeable if not is_month or s.chunk != "hourly"]
    finer: Chunk = "daily" if is_month else "hourly"
    merges: list[Merge] = []
    inputs.sort(key=lambda s: (*_get_merge_key(s), s.start_offset, s.end_offset))
    for _, group in groupby(inputs, key=_get_merge_key):
        for run in _split_runs(list(group), finer, segment_bytes):
            merges += _split_merges(run, finer, segment_bytes)
    return merges


def list_due_months(
    snapshot: IndexSnapshot, zone: ZoneInfo, lateness: timedelta, now: datetime, segment_bytes: int
) -> list[Month]:
    """Return the months to compact, ascending. They ended `lateness` ago or more, and have daily segments to merge.

    Reads the segments of each month with daily ones.
    """
    if not segment_bytes:
        return []
    chunks = snapshot.list_chunks(SegmentFilter(chunk="daily"))
    months = {(Month.of(day), chunk.zone) for chunk in chunks if (day := find_day(chunk)) is not None}
    ended = {m for m, m_zone in months if max(find_day_end(m, m_zone), find_day_end(m, zone)) <= now - lateness}
    due = [m for m in ended if plan_span(read_day_segments(snapshot, m), m, segment_bytes)]
    return sorted(due, key=find_first_day)


def _get_merge_key(segment: Segment) -> tuple[int, str]:
    return segment.kafka_partition, segment.zone.key


def build_merged_layout(layout: LayoutSettings, span: Span, zone: ZoneInfo, segment_bytes: int) -> LayoutSettings:
    """Return the layout of merged segments of `zone` with at most `segment_bytes` record bytes.

    Objects of months lie beside objects of days, in folders of months.
    """
    return layout.model_copy(
        update={
            "topics_dir": layout.daily_dir,
            "timezone": zone.key,
            "partitioner": "TimeBased",
            "path_format": build_merged_path_format(layout.path_format, span),
            "partition_duration_ms": DAY_MS,
            "flush_size": None,
            "rotate_interval_ms": None,
            "rotate_schedule_interval_ms": None,
            "segment_bytes": segment_bytes,
        }
    )


def build_merged_path_format(path_format: str, span: Span) -> str:
    """Return the path format of objects of a day or month: the folders before the first one of a finer unit.

    If there are none, return Connect's daily folders, or the first two of them for a month.
    """
    is_month = isinstance(span, Month)
    finer = _FINER_THAN_A_MONTH if is_month else _FINER_THAN_A_DAY
    folders: list[str] = []
    for folder in _COMPONENT.findall(path_format):
        if finer & set(_QUOTED.sub("", folder)):
            break
        folders.append(folder)
    return "/".join(folders) or (MONTHLY_PATH if is_month else DAILY_PATH)


def encode_span(layout: LayoutSettings, zone: ZoneInfo, span: Span) -> str:
    """Return the folder of the merged segments of a day or month of `zone` below the topic's."""
    path_format = build_merged_path_format(layout.path_format, span)
    return compile_path_format(path_format)(find_day_start(span, zone).astimezone(zone))


def _split_runs(segments: Sequence[Segment], finer: Chunk, segment_bytes: int) -> Iterator[list[Segment]]:
    """Split the segments at large ones, which stay. Return the parts with a segment of the `finer` chunk to merge."""
    hourly = [s for s in segments if s.chunk == "hourly"]
    runs: list[list[Segment]] = [[]]
    for segment in segments if any(s.chunk == finer for s in segments) else ():
        overlaps = any(segment.offsets.overlaps(h.offsets) for h in hourly)
        if overlaps or segment.size < segment_bytes / 2:
            runs[-1].append(segment)
        else:
            runs.append([])
    return (run for run in runs if any(s.chunk == finer for s in run))


def _split_merges(run: Sequence[Segment], finer: Chunk, segment_bytes: int) -> Iterator[Merge]:
    """Assign each cluster of overlapping segments to the output whose share of the bytes includes the cluster's middle.

    An hour is merged even if it is alone, because it has to become daily. A day alone in its output stays.
    """
    total = max(1, sum(s.size for s in run))
    share = total / max(1, round(total / segment_bytes))
    inputs_by_output: dict[int, list[Segment]] = {}
    bytes_before = 0
    for cluster in cluster_overlaps(run):
        size = sum(s.size for s in cluster)
        inputs_by_output.setdefault(int((bytes_before + size / 2) / share), []).extend(cluster)
        bytes_before += size
    for inputs in inputs_by_output.values():
        if any(s.chunk == finer for s in inputs) and (len(inputs) > 1 or finer == "hourly"):
            yield Merge(tuple(inputs), max(1, round(sum(s.size for s in inputs) / segment_bytes)))


Plans: TypeAlias = Mapping[Span, tuple[Merge, ...]]
"""The merges of each day or month of a topic that has any."""


@dataclass(frozen=True)
class ReservedDay:
    """One day or month of one topic, with a committed plan. All days of the topic share the lease."""

    request: CompactRequest
    lease: Lease
    writer: Provenance
    merges: tuple[Merge, ...]

    @property
    def inputs(self) -> tuple[Segment, ...]:
        return tuple(s for m in self.merges for s in m.inputs)


@dataclass(frozen=True)
class ReservedDays:
    """The days with something to merge, and the errors of topics that could not be reserved."""

    days: tuple[ReservedDay, ...]
    failures: Mapping[str, PlatformError]

    @property
    def leases(self) -> Mapping[str, Lease]:
        return {day.request.topic: day.lease for day in self.days}


def reserve_days(requests: Sequence[CompactRequest], index: ConnectorIndex, runner: TaskRunner) -> ReservedDays:
    """Plan the merges of the requested days, and reserve the days in one commit.

    The commit ends earlier reservations of these days. An error of one topic does not stop the others. If another
    commit came first, the merges are planned again. Nothing is reserved if `runner` cannot run tasks.
    """
    by_topic: dict[str, list[CompactRequest]] = {}
    for request in requests:
        by_topic.setdefault(request.topic, []).append(request)

    def reserve(snapshot: ConnectorSnapshot) -> ReservedDays:
        snapshot.load_states(by_topic)
        for span in {request.span for request in requests}:
            load_day_segments(snapshot, by_topic, span)
        all_plans, failures = try_topics(by_topic, lambda topic: _plan_topic(by_topic[topic], snapshot.topic(topic)))
        plans = {topic: topic_plans for topic, topic_plans in all_plans.items() if topic_plans}
        if plans:
            runner.start()
        leases = _commit_plans(by_topic, plans, snapshot) if plans else {}
        days: list[ReservedDay] = []
        for topic, merges in plans.items():
            topic_snapshot = snapshot.topic(topic)
            generation = topic_snapshot.state.topic
            topic_id = generation.topic_id if generation else ""
            for request in by_topic[topic]:
                if request.span in merges:
                    writer = leases[topic].build_provenance(request.config, topic_id, topic_snapshot.index_id)
                    days.append(ReservedDay(request, leases[topic], writer, merges[request.span]))
        return ReservedDays(tuple(days), failures)

    return retry_commit(index, reserve)


def _plan_topic(requests: Sequence[CompactRequest], snapshot: IndexSnapshot) -> Plans:
    """Plan the merges of a topic's requested days and months. Days and months with nothing to merge are left out."""
    _ = snapshot.state  # a topic with damaged rows fails here, alone
    plans = {r.span: tuple(plan_span(read_day_segments(snapshot, r.span), r.span, r.segment_bytes)) for r in requests}
    return {span: merges for span, merges in plans.items() if merges}


def _commit_plans(
    by_topic: Mapping[str, Sequence[CompactRequest]], plans: Mapping[str, Plans], snapshot: ConnectorSnapshot
) -> Mapping[str, Lease]:
    """Reserve the planned days of all topics in one commit, and end earlier reservations of them. Return the leases."""
    now = datetime.now(timezone.utc)
    changes: dict[str, Change] = {}
    superseded: dict[str, list[Compaction]] = {}
    for topic, days in plans.items():
        request = by_topic[topic][0]
        zone = ZoneInfo(request.config.layout.timezone)
        # a month and its first day have the same start, so if both are compacted at once, one ends the other
        starts = [find_day_start(span, zone) for span in days]
        rows = tuple(Compaction(start, request.run_id, snapshot.version + 1, now) for start in starts)
        changes[topic] = Change(added=rows, run_id=request.run_id)
        superseded[topic] = [c for c in snapshot.topic(topic).state.compactions if c.chunk_start in starts]
    return take_leases(snapshot, changes, superseded)
