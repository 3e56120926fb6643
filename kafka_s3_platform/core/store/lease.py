"""Reserves what a run will write. A lease is the reservation rows that the commit of the run's plan adds to the index.

No clock ends a lease. While the index holds the rows, the run may commit. A later run that has to write the same
removes the rows in the commit of its own plan, and a vacuum removes old rows. The first run then does not find its rows
and never commits. The rows of a killed run therefore make no other run wait.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.errors import SupersededError
from kafka_s3_platform.core.model.segment import Compaction, Reservation
from kafka_s3_platform.core.model.state import IndexState
from kafka_s3_platform.core.store.index import ConnectorIndex, ConnectorSnapshot
from kafka_s3_platform.core.store.index_commit import Change
from kafka_s3_platform.core.store.row_filter import RowPredicate, match_run
from kafka_s3_platform.core.store.upload import Provenance

logger = logging.getLogger(__name__)

_WORDS: Mapping[type[Reservation | Compaction], tuple[str, str, str]] = {
    Reservation: ("reservation", "that overlaps it", "missing"),
    Compaction: ("compaction", "of the same day", "due"),
}


@dataclass(frozen=True)
class Lease:
    """A run's reserved `rows` of a topic (maybe none), committed as version `epoch` of the index at `uri`."""

    uri: str
    topic: str
    rows: tuple[Reservation | Compaction, ...]
    run_id: str
    epoch: int

    @property
    def end(self) -> tuple[RowPredicate, ...]:
        """The predicates by which the run's last commit removes its rows."""
        return end_runs(self.rows)

    def build_provenance(self, config: ConnectorConfig, topic_id: str, index_id: str) -> Provenance:
        """Return the metadata of the objects the run writes: who wrote them, for which topic and index."""
        ids = (config.name, self.topic, topic_id, index_id)
        return Provenance(*ids, self.run_id, self.epoch, index_dir=config.archive.index_dir)

    def refuse_superseded(self, state: IndexState) -> None:
        """Raise SupersededError if the current index has lost the rows."""
        if self.is_held(state):
            return
        open_runs = sorted({r.run_id for r in self._open_rows(state)} - {self.run_id})
        noun, cause, left_work = _WORDS[type(self.rows[0])]
        raise SupersededError(
            f"{self.uri}, topic {self.topic}: the {noun} of run {self.run_id} (epoch {self.epoch}) was "
            f"superseded by a later one {cause} or by a vacuum; it commits nothing (open now: "
            f"{', '.join(open_runs) or 'none'}). Run it again for "
            f"what is still {left_work}"
        )

    def is_held(self, state: IndexState) -> bool:
        """Return True if the index still holds the rows."""
        # an index that was put back from a copy gives later epochs to other runs
        return any((row.epoch, row.run_id) == (self.epoch, self.run_id) for row in self._open_rows(state))

    def _open_rows(self, state: IndexState) -> list[Reservation | Compaction]:
        """Return all rows of this lease's kind, of any run, still in the index."""
        kinds = {type(row) for row in self.rows}
        open_rows: list[Reservation | Compaction] = [*state.reservations, *state.compactions]
        return [row for row in open_rows if type(row) in kinds]


def take_leases(
    snapshot: ConnectorSnapshot,
    changes: Mapping[str, Change],
    superseded: Mapping[str, Iterable[Reservation | Compaction]],
) -> dict[str, Lease]:
    """Commit the plans of several topics (`changes`) in one commit on the snapshot. Return each topic's lease.

    A lease has the reservation rows its topic's change adds, and the new version as its epoch. The commit also removes
    the `superseded` rows, and so ends their runs, each for the row's topic only. Raises IndexConflictError if another
    commit came first.
    """
    merged: dict[str, Change] = {}
    for topic, change in changes.items():
        merged[topic] = replace(change, removed=(*end_runs(superseded.get(topic, ())), *change.removed))
    epoch = snapshot.commit(merged)
    leases: dict[str, Lease] = {}
    for topic, change in changes.items():
        rows = tuple(row for row in change.added if isinstance(row, Reservation | Compaction))
        leases[topic] = Lease(snapshot.index.uri, topic, rows, change.run_id, epoch)
    return leases


@contextmanager
def released_on_failure(index: ConnectorIndex, leases: Sequence[Lease]) -> Iterator[None]:
    """Remove the leases' reservations if the block fails, so no later run or vacuum has to end them."""
    try:
        yield
    except Exception:
        release_leases(index, leases)
        raise


def release_leases(index: ConnectorIndex, leases: Sequence[Lease]) -> None:
    """Remove the rows of the leases in one commit, if possible. They may be gone, or the store may not answer."""
    open_leases = [lease for lease in leases if lease.rows]
    if not open_leases:
        return
    try:
        snapshot = index.open()
        snapshot.load_states(lease.topic for lease in open_leases)
        held_leases = {a.topic: a for a in open_leases if a.is_held(snapshot.topic(a.topic).state)}
        if held_leases:
            snapshot.commit({topic: Change(removed=lease.end) for topic, lease in held_leases.items()})
    except Exception as err:  # noqa: BLE001 - the run's own error is the one to report
        logger.warning("%s: reservations of epoch %d were not released: %s", index.uri, open_leases[0].epoch, err)


def end_runs(rows: Iterable[Reservation | Compaction]) -> tuple[RowPredicate, ...]:
    """Return the SQL conditions of all reservations of these rows' runs. A run that has lost them ends."""
    return tuple(dict.fromkeys(match_run(row) for row in rows))
