"""Calculates with the runs of an offset mapping."""

from collections.abc import Iterable

import numpy as np

from kafka_s3_platform.model.segment import Segment, cluster_overlaps
from kafka_s3_platform.restore.documents import parse_table
from kafka_s3_platform.restore.groups.restored import NO_DOUBT, NO_RUNS, Doubt
from kafka_s3_platform.restore.verify.offset_mapping import MAPPING_SCHEMA, Runs
from kafka_s3_platform.store.objects import ObjectStore


def read_runs(store: ObjectStore, key: str | None) -> Runs:
    """Read an offset mapping of `MappingWriter`. Without a key there are no runs."""
    if key is None:
        return NO_RUNS
    table = parse_table(store.get(key), MAPPING_SCHEMA, key)
    return np.stack([column.to_numpy() for column in table.columns])


def find_doubled(runs: Runs) -> Doubt:
    """Find the end of the source offsets with more than one record in the target."""
    sources, _, counts = runs
    ends = sources + counts
    twice = np.flatnonzero(sources[1:] < ends[:-1])
    if not twice.size:
        return NO_DOUBT
    end = int(ends[twice[-1]])
    return end, f"the record of offset {end - 1} is in the target more than once"


def drop_repeats(runs: Runs) -> Runs:
    """Drop repeats of the record before: a transform may make several records of one."""
    sources, targets, counts = runs
    again = np.zeros(sources.size, np.int64)
    again[1:] = sources[1:] < (sources + counts)[:-1]
    once = np.stack([sources + again, targets + again, counts - again])
    return once[:, once[2] > 0]


def find_absent(runs: Runs, segments: Iterable[Segment]) -> Doubt:
    """Find the source offset from which on no archived record is absent from `runs`, which have each offset once.

    Only archived records are restored. So if their number equals an object's, they are the same.
    """
    doubt = NO_DOUBT
    for cluster in cluster_overlaps(segments):
        start = cluster[0].start_offset
        end = max(s.end_offset for s in cluster)
        archived = sum(s.record_count for s in cluster)
        count = count_restored(runs, start, end)
        if count == archived:
            continue
        # If an object has no holes, each of its offsets is a record. Otherwise the object would have to be read.
        last = _find_last_absent(runs, end) if archived == end - start else end
        doubt = (
            last,
            (f"of the {archived:,} records that are archived in offsets [{start}, {end}) {count:,} are in the target"),
        )
    return doubt


def _find_last_absent(runs: Runs, end: int) -> int:
    """Find the end of the last hole of the runs below `end`."""
    sources, _, counts = runs
    ends = sources + counts
    after = int(np.searchsorted(sources, end))
    if not after or ends[after - 1] < end:
        return end
    holes = np.flatnonzero(sources[1:after] > ends[: after - 1])
    if holes.size:
        return int(sources[holes[-1] + 1])
    return int(sources[0])


def count_restored(runs: Runs, start_offset: int, end_offset: int) -> int:
    """Count the target's records of source offsets `[start_offset, end_offset)`."""
    sources, _, counts = runs
    if not sources.size:
        return 0
    before = np.cumsum(counts) - counts
    bounds = np.array([start_offset, end_offset])
    at = np.maximum(np.searchsorted(sources, bounds, side="right") - 1, 0)
    below = before[at] + np.clip(bounds - sources[at], 0, counts[at])
    return int(below[1] - below[0])
