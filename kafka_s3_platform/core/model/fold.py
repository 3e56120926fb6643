"""Fold the old rows of a topic: move them out of its state, and keep their sum. The upkeep calls this.

Everything archived up to an observation of the log is summed up, if nothing is missing. The rows of complete hours,
scans and frontiers up to there are then no longer needed for plans, lag and complete hours. A hole stops the fold,
because only the single frontiers know its bounds. After it is closed, the next fold goes on.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta

from kafka_s3_platform.core.model.frontier import UNTIMED, Frontier
from kafka_s3_platform.core.model.offsets import OffsetRange, RangeSet
from kafka_s3_platform.core.model.segment import Fold, FoldedFrontier, FoldedHours, FoldedScan, HourRange, Scan
from kafka_s3_platform.core.model.state import IndexState
from kafka_s3_platform.core.model.times import HOUR

FEWEST_HOURS = 24
"""With fewer new hours, a fold is not worth a commit."""


@dataclass(frozen=True)
class Folding:
    """The `fold` of a topic, and the rows of its state that it replaces.

    `observed_at` is the time of the last folded observation, `ends` has the end of the folded scans by kafka partition.
    """

    fold: Fold
    observed_at: datetime
    ends: Mapping[int, int]
    hours: frozenset[datetime]

    def holds_scan(self, scan: Scan) -> bool:
        """Return True if the scan is part of the fold, so its row leaves the state."""
        return scan.end_offset <= self.ends.get(scan.kafka_partition, 0)

    def holds_frontier(self, frontier: Frontier) -> bool:
        return frontier.observed_at <= self.observed_at

    def holds_hour(self, row: HourRange) -> bool:
        return row.hour in self.hours

    def apply(self, state: IndexState) -> IndexState:
        """Return the state without the folded rows."""
        return replace(
            state,
            fold=self.fold,
            scans=tuple(s for s in state.scans if not self.holds_scan(s)),
            frontiers=tuple(f for f in state.frontiers if not self.holds_frontier(f)),
            hours=tuple(h for h in state.hours if not self.holds_hour(h)),
        )


def fold_state(state: IndexState, lateness: timedelta, before: datetime) -> Folding | None:
    """Return the fold of everything observed up to `before`, or None if there is too little, or it cannot be folded.

    Earlier folds are part of it. The folded state must give the same scanned hours, complete hours and archived
    offsets; otherwise nothing is folded.
    """
    choice = _choose_observation(state, before)
    if choice is None:
        return None
    observed_at, ends = choice
    done_hours = frozenset(_list_done_hours(state, observed_at - HOUR - lateness, lateness))
    if len(done_hours) < FEWEST_HOURS:
        return None
    frontiers = tuple(_list_folded_frontiers(state, observed_at))
    scans = tuple(_merge_scans(state, ends))
    folding = Folding(
        Fold(scans, frontiers, _make_runs(done_hours | state.folded_hours)), observed_at, ends, done_hours
    )
    return folding if _answers_alike(state, folding.apply(state), lateness) else None


def _choose_observation(state: IndexState, before: datetime) -> tuple[datetime, Mapping[int, int]] | None:
    """Return the time and the highest ends of the latest observation without a hole below, or None if it is not new."""
    highest: dict[int, int] = {}
    choice = None
    last = max((folded.observed_at for folded in state.fold.frontiers), default=UNTIMED)
    archived_ends = state.contiguous_ends
    for observed_at, high_watermarks in state.observations.complete:
        for kafka_partition, high_watermark in high_watermarks.items():
            highest[kafka_partition] = max(high_watermark, highest.get(kafka_partition, 0))
        if observed_at > before:
            break
        if observed_at > last and set(high_watermarks) == set(highest) and _reach(archived_ends, highest):
            choice = observed_at, dict(highest)
    return choice


def _list_done_hours(state: IndexState, last: datetime, lateness: timedelta) -> Iterator[datetime]:
    """Yield the scanned and complete hours up to `last`, each planned in all kafka partitions of earlier ones."""
    rows: dict[datetime, set[int]] = defaultdict(set)
    for row in state.hours:
        if row.hour <= last and row.start_offset is not None:
            rows[row.hour].add(row.kafka_partition)
    planned = {folded.kafka_partition for folded in state.fold.frontiers}
    for hour in sorted(rows):
        if planned <= rows[hour] and state.is_scanned(hour) and state.judge.is_complete(hour, lateness):
            planned = rows[hour]
            yield hour


def _reach(archived_ends: Mapping[int, int], ends: Mapping[int, int]) -> bool:
    """Return True if the archive has no hole below these ends."""
    return all(end <= archived_ends.get(kafka_partition, 0) for kafka_partition, end in ends.items())


def _list_folded_frontiers(state: IndexState, observed_at: datetime) -> Iterator[FoldedFrontier]:
    """Yield each log's first frontier, the one of this time, and the two before it. Some may be the same.

    With these two, the judge knows for most later hours the offsets deleted before the hour began.
    """
    for kafka_partition in sorted(state.observations.highest_ends):
        frontiers = state.observations.of(kafka_partition)
        until = [frontier for frontier in frontiers if frontier.observed_at <= observed_at]
        for frontier in dict.fromkeys((frontiers[0], *until[-3:])):
            yield FoldedFrontier(**asdict(frontier))


def _merge_scans(state: IndexState, ends: Mapping[int, int]) -> Iterator[FoldedScan]:
    """Yield, by kafka partition, the sums of the scans up to these ends, one for each range without a hole."""
    scans: dict[int, list[Scan]] = defaultdict(list)
    for scan in state.all_scans:
        if scan.end_offset <= ends.get(scan.kafka_partition, 0):
            scans[scan.kafka_partition].append(scan)
    for kafka_partition, own_scans in sorted(scans.items()):
        for offsets in _cut_ranges(own_scans):
            yield _sum_scans(state, kafka_partition, offsets, [s for s in own_scans if s.start_offset in offsets])


def _cut_ranges(scans: Iterable[Scan]) -> Iterator[OffsetRange]:
    """Yield the scans' ranges, cut after the last scan with dropped records. Restores of group offsets need it."""
    scans = [*scans]
    border = max((s.end_offset for s in scans if s.filtered_count or s.dead_letter_count), default=0)
    for offsets in RangeSet(s.offsets for s in scans):
        if offsets.start_offset < border < offsets.end_offset:
            yield OffsetRange(offsets.start_offset, border)
            yield OffsetRange(border, offsets.end_offset)
        else:
            yield offsets


def _sum_scans(state: IndexState, kafka_partition: int, offsets: OffsetRange, scans: Iterable[Scan]) -> FoldedScan:
    """Return the sum of the scans, all of which lie inside `offsets`."""
    scans = [*scans]
    epochs = {mark.offset: mark.leader_epoch for mark in state.list_epoch_marks(kafka_partition)}
    return FoldedScan(
        kafka_partition,
        offsets.start_offset,
        offsets.end_offset,
        sum(s.record_count for s in scans),
        epochs.get(offsets.end_offset),
        max(s.epoch for s in scans),
        sum(s.filtered_count for s in scans),
        sum(s.dead_letter_count for s in scans),
        sum(s.output_count for s in scans),
    )


def _make_runs(hours: Iterable[datetime]) -> tuple[FoldedHours, ...]:
    """Return the hours as runs without holes. Hours that begin at another minute form runs of their own."""
    runs: list[FoldedHours] = []
    open_runs: dict[timedelta, int] = {}
    for hour in sorted(hours):
        minute = timedelta(minutes=hour.minute, seconds=hour.second)
        at = open_runs.get(minute)
        if at is not None and runs[at].until == hour:
            runs[at] = FoldedHours(runs[at].hour, runs[at].size + 1)
        else:
            open_runs[minute] = len(runs)
            runs.append(FoldedHours(hour, 1))
    return tuple(runs)


def _answers_alike(folded_from: IndexState, folded_to: IndexState, lateness: timedelta) -> bool:
    """Return True if both states give the same answers about hours, coverage and deleted offsets."""
    hours = folded_from.asked_hours
    # of the other hours, the rows that decide are read where they are moved to
    folded = folded_to.folded_hours
    return (
        folded_to.asked_hours == hours
        and folded_to.judge.list_complete(folded, lateness) == folded_from.judge.list_complete(folded, lateness)
        and all(folded_to.is_scanned(hour) == folded_from.is_scanned(hour) for hour in hours)
        and all(folded_to.coverage(p) == folded_from.coverage(p) for p in folded_from.contiguous_ends)
        and all(folded_to.deleted(p) == folded_from.deleted(p) for p in folded_from.contiguous_ends)
    )
