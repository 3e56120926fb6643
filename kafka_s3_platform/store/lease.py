"""Reserve what a run is going to write. A lease begins with the commit of the run's plan.

No clock ends a lease. The commit of a plan adds rows that name what the run has reserved. While they are present, the
run may commit. A later run that needs the same removes them in the commit of its own plan, and a vacuum removes old
ones. The first run then does not find its rows and never commits. So the rows of a killed run make no other run wait.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from kafka_s3_platform.errors import SupersededError
from kafka_s3_platform.model.segment import Compaction, Reservation
from kafka_s3_platform.model.state import IndexState
from kafka_s3_platform.store.index import ConnectorIndex, ConnectorSnapshot
from kafka_s3_platform.store.index_commit import Change
from kafka_s3_platform.store.predicates import RowPredicate, match_run

logger = logging.getLogger(__name__)

_WORDS: Mapping[type[Reservation | Compaction], tuple[str, str, str]] = {
    Reservation: ("reservation", "that overlaps it", "missing"),
    Compaction: ("compaction", "of the same day", "due"),
}


@dataclass(frozen=True)
class Lease:
    """The `rows` of a topic that a run reserved in the commit of version `epoch`. A run that needs nothing has none.

    `uri` is that of the index.
    """

    uri: str
    topic: str
    rows: tuple[Reservation | Compaction, ...]
    run_id: str
    epoch: int

    @property
    def end(self) -> tuple[RowPredicate, ...]:
        """The predicates of the rows that the run's last commit removes."""
        return end_runs(self.rows)

    def refuse_superseded(self, state: IndexState) -> None:
        """Raise SupersededError if the index, as it is now, holds the rows no more."""
        if self.is_held(state):
            return
        others = sorted({r.run_id for r in self._open_rows(state)} - {self.run_id})
        what, later, left = _WORDS[type(self.rows[0])]
        raise SupersededError(
            f"{self.uri}, topic {self.topic}: the {what} of run {self.run_id} (epoch {self.epoch}) was "
            f"superseded by a later one {later} or by a vacuum; it commits nothing (open now: "
            f"{', '.join(others) or 'none'}). Run it again for "
            f"what is still {left}"
        )

    def is_held(self, state: IndexState) -> bool:
        """Whether the index still holds the rows."""
        # an index that was put back from a copy gives the epochs after it to other runs
        return any((row.epoch, row.run_id) == (self.epoch, self.run_id) for row in self._open_rows(state))

    def _open_rows(self, state: IndexState) -> list[Reservation | Compaction]:
        kinds = {type(row) for row in self.rows}
        found: list[Reservation | Compaction] = [*state.reservations, *state.compactions]
        return [row for row in found if type(row) in kinds]


def take_leases(
    snapshot: ConnectorSnapshot,
    changes: Mapping[str, Change],
    superseded: Mapping[str, Iterable[Reservation | Compaction]],
) -> dict[str, Lease]:
    """Commit the plans of topics in one commit, on the version that they were made from. Each topic has its own lease.

    Their rows of epoch `snapshot.version + 1` are the leases. Ends the runs that hold the `superseded` rows, each for
    the row's topic alone. Raises IndexConflictError when another commit came first.
    """
    whole: dict[str, Change] = {}
    for topic, change in changes.items():
        whole[topic] = replace(change, removed=(*end_runs(superseded.get(topic, ())), *change.removed))
    epoch = snapshot.commit(whole)
    found: dict[str, Lease] = {}
    for topic, change in changes.items():
        rows = tuple(row for row in change.added if isinstance(row, Reservation | Compaction))
        found[topic] = Lease(snapshot.index.uri, topic, rows, change.run_id, epoch)
    return found


@contextmanager
def released_on_failure(index: ConnectorIndex, leases: Sequence[Lease]) -> Iterator[None]:
    """Give the leases back if the block fails, so that the vacuum need not wait for them."""
    try:
        yield
    except Exception:
        release_leases(index, leases)
        raise


def release_leases(index: ConnectorIndex, leases: Sequence[Lease]) -> None:
    """Remove the rows of the leases in one commit, if possible: they may be gone, or the store may not answer."""
    wanted = [lease for lease in leases if lease.rows]
    if not wanted:
        return
    try:
        snapshot = index.open()
        snapshot.load_states(lease.topic for lease in wanted)
        held = {a.topic: a for a in wanted if a.is_held(snapshot.topic(a.topic).state)}
        if held:
            snapshot.commit({topic: Change(removed=lease.end) for topic, lease in held.items()})
    except Exception as err:  # noqa: BLE001 - the run's own error is the one to tell
        logger.warning("%s: reservations of epoch %d were not released: %s", index.uri, wanted[0].epoch, err)


def end_runs(rows: Iterable[Reservation | Compaction]) -> tuple[RowPredicate, ...]:
    """Match everything that the runs of these rows reserved: a run holds all of its plan, or nothing."""
    return tuple(dict.fromkeys(match_run(row) for row in rows))
