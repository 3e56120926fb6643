"""Rows of earlier commits that what is committed now makes untrue: taken out in the same commit, the rest kept."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from kafka_s3_platform.archive.task import ScanResult
from kafka_s3_platform.model.gap import Gap
from kafka_s3_platform.model.offsets import RangeSet, make_span
from kafka_s3_platform.model.unresolved import Unresolved, subtract_offsets
from kafka_s3_platform.store.index import IndexSnapshot
from kafka_s3_platform.store.predicates import RowPredicate, match_gap, match_unresolved


@dataclass(frozen=True)
class Retold:
    """Rows to add, predicates of rows to remove, and the hours of the gaps among those that are added."""

    added: tuple[Unresolved | Gap, ...]
    removed: tuple[RowPredicate, ...]
    gap_hours: Mapping[Gap, datetime]


def retell_rows(snapshot: IndexSnapshot, results: Sequence[ScanResult]) -> Retold:
    """Return how committing `results` changes the rows that record what is not archived.

    Unresolved offsets that were read again are told anew. Offsets that another run recorded as lost while this one had
    read them already are lost no more.
    """
    added: list[Unresolved | Gap] = []
    removed: list[RowPredicate] = []
    for kafka_partition, read in _group_by_kafka_partition(results).items():
        known = [u for u in snapshot.state.failures if u.kafka_partition == kafka_partition]
        bad = RangeSet(u.offsets for r in read for u in r.unresolved)
        scanned = RangeSet(s.offsets for r in read for s in r.scans)
        done = scanned | bad
        if any(any(done.within(u.offsets)) for u in known):
            removed.append(match_unresolved(kafka_partition))
            added += subtract_offsets(known, done)
        added += [u for r in read for u in r.unresolved]
        lost = {g for g in snapshot.state.gaps if g.kafka_partition == kafka_partition and g.reason == "retention"}
        for gap in sorted(lost):
            pieces = make_span(gap.start_offset, gap.end_offset) - scanned
            if pieces.ranges != (gap.offsets,):
                removed.append(match_gap(gap))
                added += (replace(gap, start_offset=p.start_offset, end_offset=p.end_offset) for p in pieces)
    return Retold(tuple(added), tuple(removed), _map_hours(snapshot, added))


def _group_by_kafka_partition(results: Sequence[ScanResult]) -> dict[int, list[ScanResult]]:
    found: dict[int, list[ScanResult]] = {}
    for result in results:
        found.setdefault(result.kafka_partition, []).append(result)
    return found


def _map_hours(snapshot: IndexSnapshot, added: Sequence[Unresolved | Gap]) -> dict[Gap, datetime]:
    """Return the hours of the gaps from which the added pieces come."""
    pieces = [g for g in added if isinstance(g, Gap)]
    return dict(_find_hours(snapshot, pieces)) if pieces else {}


def _find_hours(snapshot: IndexSnapshot, pieces: Sequence[Gap]) -> Iterator[tuple[Gap, datetime]]:
    for hour, gap in snapshot.gaps_by_hour():
        for piece in pieces:
            same = (gap.kafka_partition, gap.reason) == (piece.kafka_partition, piece.reason)
            if hour and same and gap.start_offset <= piece.start_offset < gap.end_offset:
                yield piece, hour
