"""Plan the replacement of index rows that a commit makes untrue: removed and corrected in the same commit."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kafka_s3_platform.archive.task import ScanResult
from kafka_s3_platform.model.gap import Gap
from kafka_s3_platform.model.offsets import RangeSet, make_span
from kafka_s3_platform.model.state import IndexState
from kafka_s3_platform.model.unresolved import Unresolved, subtract_offsets
from kafka_s3_platform.store.predicates import RowPredicate, match_gap, match_unresolved


@dataclass(frozen=True)
class RowChanges:
    """Rows to add, and predicates of rows to remove."""

    added: tuple[Unresolved | Gap, ...]
    removed: tuple[RowPredicate, ...]


def plan_row_changes(state: IndexState, results: Sequence[ScanResult]) -> RowChanges:
    """Return the changes of rows of unarchived offsets, if `results` are committed.

    Unresolved offsets that were read again get new rows. Offsets recorded as lost by another run, but read by this one
    before, are lost no more.
    """
    added: list[Unresolved | Gap] = []
    removed: list[RowPredicate] = []
    for kafka_partition, read in _group_by_kafka_partition(results).items():
        failures = [u for u in state.failures if u.kafka_partition == kafka_partition]
        bad = RangeSet(u.offsets for r in read for u in r.unresolved)
        scanned = RangeSet(s.offsets for r in read for s in r.scans)
        done = scanned | bad
        if any(any(done.within(u.offsets)) for u in failures):
            removed.append(match_unresolved(kafka_partition))
            added += subtract_offsets(failures, done)
        added += [u for r in read for u in r.unresolved]
        lost = {g for g in state.gaps if g.kafka_partition == kafka_partition and g.reason == "retention"}
        for gap in sorted(lost):
            pieces = make_span(gap.start_offset, gap.end_offset) - scanned
            if pieces.ranges != (gap.offsets,):
                removed.append(match_gap(gap))
                added += (replace(gap, start_offset=p.start_offset, end_offset=p.end_offset) for p in pieces)
    return RowChanges(tuple(added), tuple(removed))


def _group_by_kafka_partition(results: Sequence[ScanResult]) -> dict[int, list[ScanResult]]:
    groups: dict[int, list[ScanResult]] = {}
    for result in results:
        groups.setdefault(result.kafka_partition, []).append(result)
    return groups
