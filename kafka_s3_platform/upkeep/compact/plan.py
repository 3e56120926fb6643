"""Plan the merges of a compaction, and the number of their outputs. Pure.

A daily segment holds about `archive.daily.segment.bytes` object bytes. The compression of the merged records is unknown
before, so the inputs decide: their object bytes in the index are shared out among a number of outputs, and several
outputs of one merge end at equal shares of its record bytes. The bounds are thus a function of index rows and records
alone, the same for every attempt and on any number of cores.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import groupby
from zoneinfo import ZoneInfo

from kafka_s3_platform.config.settings import LayoutSettings
from kafka_s3_platform.java.joda_format import compile_path_format
from kafka_s3_platform.model.segment import Segment, cluster_overlaps
from kafka_s3_platform.model.times import DAY_MS
from kafka_s3_platform.upkeep.compact.days import find_day_start, select_day_segments
from kafka_s3_platform.upkeep.compact.request import is_mergeable

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
    ours = sorted(mergeable, key=lambda s: (*_merge_key(s), s.start_offset, s.end_offset))
    merges: list[Merge] = []
    for _, group in groupby(ours, key=_merge_key):
        for run in _split_runs(list(group), daily_segment_bytes):
            merges += _split_merges(run, daily_segment_bytes)
    return merges


def _merge_key(segment: Segment) -> tuple[int, str]:
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
    dealt: dict[int, list[Segment]] = {}
    before = 0
    for cluster in cluster_overlaps(run):
        size = sum(s.size for s in cluster)
        dealt.setdefault(int((before + size / 2) / share), []).extend(cluster)
        before += size
    for inputs in dealt.values():
        if len(inputs) > 1 or inputs[0].chunk == "hourly":
            yield Merge(tuple(inputs), max(1, round(sum(s.size for s in inputs) / daily_segment_bytes)))
