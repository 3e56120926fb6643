"""Reserve what a run is going to write. A lease begins with the commit of the run's plan.

No clock ends a lease. The commit of a plan adds rows that name what the run has reserved. While they are present, the
run may commit. A later run that needs the same removes them in the commit of its own plan, and a vacuum removes old
ones. The first run then does not find its rows and never commits. So the rows of a killed run make no other run wait.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime

from kafka_s3_platform.errors import SupersededError
from kafka_s3_platform.model.gap import Gap
from kafka_s3_platform.model.segment import Compaction, Maintenance, Reservation
from kafka_s3_platform.model.state import IndexState
from kafka_s3_platform.store.index import Change, IndexSnapshot, TopicIndex
from kafka_s3_platform.store.predicates import RowPredicate, match_run

logger = logging.getLogger(__name__)

_WORDS: Mapping[type[Reservation | Compaction], tuple[str, str, str]] = {
    Reservation: ("reservation", "that overlaps it", "missing"),
    Compaction: ("compaction", "of the same day", "due"),
}


@dataclass(frozen=True)
class Lease:
    """The `rows` that a run reserved in the commit of version `epoch`. A run that needs nothing has none."""

    index: TopicIndex
    rows: tuple[Reservation | Compaction, ...]
    run_id: str
    epoch: int

    @property
    def end(self) -> tuple[RowPredicate, ...]:
        """The predicates of the rows that the run's last commit removes."""
        return end_runs(self.rows)

    def refuse_superseded(self, state: IndexState) -> None:
        """Raise SupersededError if the index, as it is now, holds the rows no more."""
        if self._is_held(state):
            return
        others = sorted({r.run_id for r in self._open_rows(state)} - {self.run_id})
        what, later, left = _WORDS[type(self.rows[0])]
        raise SupersededError(
            f"{self.index.uri}: the {what} of run {self.run_id} (epoch {self.epoch}) was superseded by a later one "
            f"{later} or by a vacuum; it commits nothing (open now: {', '.join(others) or 'none'}). Run it again for "
            f"what is still {left}"
        )

    @contextmanager
    def released_on_failure(self) -> Iterator[None]:
        """Give the lease back if the block fails, so that the vacuum need not wait for it."""
        try:
            yield
        except Exception:
            self._release()
            raise

    def _release(self) -> None:
        """Remove the rows if possible: they may be gone, or the store may not answer."""
        if not self.rows:
            return
        try:
            snapshot = self.index.open()
            if self._is_held(snapshot.state):
                snapshot.commit(Change(removed=self.end))
        except Exception as err:  # noqa: BLE001 - the run's own error is the one to tell
            logger.warning("%s: reservation %d was not released: %s", self.index.uri, self.epoch, err)

    def _is_held(self, state: IndexState) -> bool:
        return any(row.epoch == self.epoch for row in self._open_rows(state))

    def _open_rows(self, state: IndexState) -> list[Reservation | Compaction]:
        kinds = {type(row) for row in self.rows}
        found: list[Reservation | Compaction] = [*state.reservations, *state.compactions]
        return [row for row in found if type(row) in kinds]


def take_lease(
    snapshot: IndexSnapshot,
    change: Change,
    superseded: Iterable[Reservation | Compaction],
    gap_hours: Mapping[Gap, datetime] | None = None,
) -> Lease:
    """Commit a plan on the version that it was made from. Its rows of epoch `snapshot.version + 1` are the lease.

    Ends the runs that hold the `superseded` rows. Raises IndexConflictError when another commit came first.
    """
    # Vacuums of earlier versions whose time is over hold such rows. Without them they see that they were ended.
    ended = end_runs((*superseded, *snapshot.state.maintenance))
    epoch = snapshot.commit(replace(change, removed=(*ended, *change.removed)), None, gap_hours)
    rows = tuple(row for row in change.added if isinstance(row, Reservation | Compaction))
    return Lease(snapshot.index, rows, change.run_id, epoch)


def end_runs(rows: Iterable[Reservation | Compaction | Maintenance]) -> tuple[RowPredicate, ...]:
    """Match everything that the runs of these rows reserved: a run holds all of its plan, or nothing."""
    return tuple(dict.fromkeys(match_run(row) for row in rows))
