"""Remove rows of an index that cannot be true. Earlier versions recorded them from brokers and clocks, unchecked.

Every reader of the index ignores these rows, so nothing depends on the repair. It reports the rows, and the hours that
were complete only because of them. It also knows more than a reader: the time at which the store wrote each version. So
it finds a look of a clock that was ahead even if the look's time has passed meanwhile.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from kafka_s3_platform.archive.clock import refuse_wrong_clock
from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.store.index import IndexSnapshot, TopicIndex
from kafka_s3_platform.store.index_commit import Change, retry_commit
from kafka_s3_platform.store.index_rows import IndexRow, build_state
from kafka_s3_platform.store.objects import ObjectStore
from kafka_s3_platform.store.predicates import RowPredicate, match_row
from kafka_s3_platform.store.sound import Judged

_VALUES: Mapping[str, tuple[str, ...]] = {
    "frontier": ("log_start_offset", "last_stable_offset", "high_watermark"),
    "group": ("group_id", "committed_offset"),
}
_RANGE = ("start_offset", "end_offset")


@dataclass(frozen=True)
class BadRow:
    """A row that does not count, or not as it was written. `values` are its offsets; `at` is its hour or its look's."""

    kind: str
    version: int
    kafka_partition: int
    values: Mapping[str, int | str | None]
    at: datetime | None
    why: str

    @property
    def predicate(self) -> RowPredicate:
        """Match this row, and others only if they are bad for the same reason."""
        known = {"version": self.version, "kafka_partition": self.kafka_partition, **self.values}
        return match_row(self.kind, known)


@dataclass(frozen=True)
class RepairReport:
    """What was found, and removed if `applied`. `reopened` hours were complete by such rows, and are not without."""

    topic: str
    rows: tuple[BadRow, ...]
    reopened: tuple[datetime, ...]
    applied: bool


def remove_bad_rows(config: ConnectorConfig, topic: str, run_id: str, apply: bool) -> RepairReport:
    """Find the bad rows of the topic's index; with `apply` remove them in one commit, else write nothing.

    Where the log began when it was first looked at, and where hours begin, is kept. A run that is at work meanwhile
    is not disturbed: the commit is a compare-and-swap, and the run goes on from it. Raises ClockError where this
    machine's clock is wrong.
    """
    index = TopicIndex.of(config, topic)
    if index.peek() is None:
        return RepairReport(topic, (), (), applied=False)
    # this machine's clock decides what lies in the future: if it is behind, sound looks would seem to lie there
    refuse_wrong_clock(config, ObjectStore(config.store))
    lateness = timedelta(milliseconds=config.archive.allowed_lateness_ms)

    def step(snapshot: IndexSnapshot) -> RepairReport:
        _ = snapshot.state  # raises IndexDamagedError where rows cannot be read at all
        found = snapshot.judged(snapshot.whole.list_write_times())
        bad = tuple(_list_bad_rows(found))
        if apply and bad:
            removed = tuple(sorted({row.predicate for row in bad}))
            snapshot.commit(Change(added=_keep_doubtful(found), removed=removed, run_id=run_id))
        return RepairReport(topic, bad, _find_reopened(snapshot, found, lateness), applied=apply and bool(bad))

    return retry_commit(index, step)


def _list_bad_rows(found: Judged) -> Iterator[BadRow]:
    for row in found.bad.sort_by([("version", "ascending"), ("kafka_partition", "ascending")]).to_pylist():
        values: dict[str, Any] = {name: row[name] for name in _VALUES.get(row["kind"], _RANGE)}
        at = row["hour"] or row["observed_at"] or row["chunk_start"]
        yield BadRow(row["kind"], row["version"], row["kafka_partition"], values, at, row["why"])


def _keep_doubtful(found: Judged) -> tuple[IndexRow, ...]:
    """Return the facts of bad rows that count all the same: where the log first began, and where hours begin."""
    doubtful = build_state(0, found.doubtful)
    first = {f.kafka_partition: f for f in reversed(build_state(0, found.sound).all_looks)}
    looks = [f for f in first.values() if f in doubtful.frontiers]
    return (*looks, *dict.fromkeys(doubtful.hours))


def _find_reopened(snapshot: IndexSnapshot, found: Judged, lateness: timedelta) -> tuple[datetime, ...]:
    before = build_state(snapshot.version, found.as_written)
    after = build_state(snapshot.version, found.sound)
    hours = {h.hour for h in before.hours} | {s.chunk_start for s in snapshot.segments if s.chunk == "hourly"}
    known = {hour for hour in hours if hour is not None}
    return tuple(sorted(before.complete_hours(known, lateness) - after.complete_hours(known, lateness)))
