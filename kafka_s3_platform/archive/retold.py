"""Rows of earlier commits that what is committed now makes untrue: taken out in the same commit, the rest kept."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kafka_s3_platform.archive.task import ScanResult
from kafka_s3_platform.model.gap import Gap
from kafka_s3_platform.model.offsets import RangeSet, make_span
from kafka_s3_platform.model.state import IndexState
from kafka_s3_platform.model.unresolved import Unresolved, subtract_offsets
from kafka_s3_platform.store.predicates import RowPredicate, match_gap, match_unresolved


@dataclass(frozen=True)
class Retold:
    """Rows to add, and predicates of rows to remove."""

    added: tuple[Unresolved | Gap, ...]
    removed: tuple[RowPredicate, ...]


def retell_rows(state: IndexState, results: Sequence[ScanResult]) -> Retold:
    """Return how committing `results` changes the rows that record what is not archived.

    Unresolved offsets that were read again are told anew. Offsets that another run recorded as lost while this one had
    read them already are lost no more.
    """
    added: list[Unresolved | Gap] = []
    removed: list[RowPredicate] = []
    for kafka_partition, read in _group_by_kafka_partition(results).items():
        known = [u for u in state.failures if u.kafka_partition == kafka_partition]
        bad = RangeSet(u.offsets for r in read for u in r.unresolved)
        scanned = RangeSet(s.offsets for r in read for s in r.scans)
        done = scanned | bad
        if any(any(done.within(u.offsets)) for u in known):
            removed.append(match_unresolved(kafka_partition))
            added += subtract_offsets(known, done)
        added += [u for r in read for u in r.unresolved]
        lost = {g for g in state.gaps if g.kafka_partition == kafka_partition and g.reason == "retention"}
        for gap in sorted(lost):
            pieces = make_span(gap.start_offset, gap.end_offset) - scanned
            if pieces.ranges != (gap.offsets,):
                removed.append(match_gap(gap))
                added += (replace(gap, start_offset=p.start_offset, end_offset=p.end_offset) for p in pieces)
    return Retold(tuple(added), tuple(removed))


def _group_by_kafka_partition(results: Sequence[ScanResult]) -> dict[int, list[ScanResult]]:
    found: dict[int, list[ScanResult]] = {}
    for result in results:
        found.setdefault(result.kafka_partition, []).append(result)
    return found
