"""Rows of earlier commits that what is committed now makes untrue: taken out in the same commit, the rest kept."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from kafka_s3_platform.archive.task import ScanResult
from kafka_s3_platform.model.gap import Gap
from kafka_s3_platform.model.offsets import RangeSet, span
from kafka_s3_platform.model.unresolved import Unresolved, without
from kafka_s3_platform.store.index import IndexSnapshot


@dataclass(frozen=True)
class Retold:
    """Rows to add, predicates of rows to remove, and the hours of the gaps among those that are added."""

    added: tuple[Unresolved | Gap, ...]
    removed: tuple[str, ...]
    gap_hours: Mapping[Gap, datetime]


def retold(snapshot: IndexSnapshot, results: Sequence[ScanResult]) -> Retold:
    """What committing `results` changes of the rows that tell what is not archived.

    Unresolved offsets that were read again are told anew. Offsets that another run recorded as lost while this one had
    read them already are lost no more.
    """
    added: list[Unresolved | Gap] = []
    removed: list[str] = []
    for kafka_partition, read in _by_kafka_partition(results).items():
        known = [u for u in snapshot.state.failures if u.kafka_partition == kafka_partition]
        bad = RangeSet(u.offsets for r in read for u in r.unresolved)
        scanned = RangeSet(s.offsets for r in read for s in r.scans)
        done = scanned | bad
        if any(True for u in known for _ in done.within(u.offsets)):
            removed.append(f"(kind = 'unresolved' AND kafka_partition = {kafka_partition})")
            added += without(known, done)
        added += [u for r in read for u in r.unresolved]
        lost = {g for g in snapshot.state.gaps if g.kafka_partition == kafka_partition and g.reason == "retention"}
        for gap in sorted(lost):
            pieces = span(gap.start_offset, gap.end_offset) - scanned
            if pieces.ranges != (gap.offsets,):
                removed.append(_predicate(gap))
                added += (replace(gap, start_offset=p.start_offset, end_offset=p.end_offset) for p in pieces)
    return Retold(tuple(added), tuple(removed), _hours(snapshot, added))


def _by_kafka_partition(results: Sequence[ScanResult]) -> dict[int, list[ScanResult]]:
    found: dict[int, list[ScanResult]] = {}
    for result in results:
        found.setdefault(result.kafka_partition, []).append(result)
    return found


def _predicate(gap: Gap) -> str:
    place = f"kafka_partition = {gap.kafka_partition} AND start_offset = {gap.start_offset}"
    return f"(kind = 'gap' AND {place} AND end_offset = {gap.end_offset} AND reason = 'retention')"


def _hours(snapshot: IndexSnapshot, added: Sequence[Unresolved | Gap]) -> dict[Gap, datetime]:
    """The hours of the gaps that pieces of gaps come from."""
    pieces = [g for g in added if isinstance(g, Gap)]
    return dict(_hours_of(snapshot, pieces)) if pieces else {}


def _hours_of(snapshot: IndexSnapshot, pieces: Sequence[Gap]) -> Iterator[tuple[Gap, datetime]]:
    for hour, gap in snapshot.gaps_by_hour():
        for piece in pieces:
            same = (gap.kafka_partition, gap.reason) == (piece.kafka_partition, piece.reason)
            if hour and same and gap.start_offset <= piece.start_offset < gap.end_offset:
                yield piece, hour
