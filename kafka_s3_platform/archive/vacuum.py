"""Removes what runs that never committed left behind: orphan objects and unfinished multipart uploads.

An object goes only if all of this holds: its metadata names this connector, this topic and a topic id of the index;
its epoch is older than the vacuum's own commit and no reservation or compaction of it is open; an index read after that
commit holds its key neither as live nor as retired; it is neither older than the index nor younger than asked.

An unfinished upload has no readable metadata. It goes if its key has the layout and the extension of this topic's
segments, a rewrite's epoch in it is older than the vacuum's commit, and it is neither older than the index nor younger
than asked. Another tool that writes keys of this very layout (Connect's S3 sink, uncompressed Parquet) could lose an
upload it is working on, though never an object: `older_than` must exceed the longest that such a tool keeps one open.

No run can reserve while the vacuum's row holds, so nothing becomes live meanwhile. The row is a lease: archive and
compaction put an expired one aside, which the vacuum sees before each step; it deletes only in the lease's first half.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import TypeVar

from kafka_s3_platform.config.settings import ConnectorConfig, LayoutSettings
from kafka_s3_platform.errors import BusyError, TransientError
from kafka_s3_platform.formats.writers import extension
from kafka_s3_platform.model.segment import MAINTENANCE_LEASE, Compaction, Maintenance, Reservation
from kafka_s3_platform.model.state import IndexState
from kafka_s3_platform.partitioners.key_layouts import KeyLayout, new_key_layout
from kafka_s3_platform.store.errors import PreconditionError
from kafka_s3_platform.store.index import Change, IndexSnapshot, TopicIndex, committed, live_keys
from kafka_s3_platform.store.objects import ObjectInfo, ObjectStore, UnfinishedUpload
from kafka_s3_platform.store.upload import Provenance

logger = logging.getLogger(__name__)

T = TypeVar("T")

STEP = 100
"""Deletions between two looks at the index: is the lease still ours?"""


@dataclass(frozen=True)
class VacuumReport:
    """What one vacuum removed, or on a dry run would remove.

    `foreign` objects are none of ours, or of an index that is not this one. `kept` counts orphans that are too young,
    or whose run may still commit. `finished` is false where the lease ended first,
    or an object changed under it: run it again.
    """

    removed: tuple[str, ...] = ()
    removed_bytes: int = 0
    aborted_uploads: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    kept: int = 0
    dry_run: bool = False
    finished: bool = True


def vacuum(config: ConnectorConfig, topic: str, run_id: str, older_than: timedelta, dry_run: bool) -> VacuumReport:
    """Remove orphans older than `older_than`. Superseded are reservations and compactions older than that.

    Raises:
        IndexConflictError: a younger run, or another vacuum, is at work on the topic: run again when it has ended.
    """
    index = TopicIndex(config.store, config.archive.index_dir, config.name, topic)
    if index.peek() is None:
        logger.info("%s: nothing was archived, so nothing is an orphan", index.uri)
        return VacuumReport(dry_run=dry_run)
    if dry_run:
        return _Vacuum(config, topic, index, older_than, None).run()
    lease = _begin(index, run_id, older_than)
    try:
        return _Vacuum(config, topic, index, older_than, lease).run()
    finally:
        _end(lease)


@dataclass(frozen=True)
class _Lease:
    """The vacuum's row in the index."""

    index: TopicIndex
    run_id: str
    epoch: int
    reserved_at: datetime

    @property
    def predicate(self) -> str:
        return f"(kind = 'maintenance' AND epoch = {self.epoch})"

    def is_mine(self, state: IndexState) -> bool:
        return any(m.epoch == self.epoch for m in state.maintenance)

    def may_delete(self) -> bool:
        """Whether the row still stands, and long enough for a slow request to end before somebody puts it aside."""
        in_time = datetime.now(timezone.utc) < self.reserved_at + MAINTENANCE_LEASE / 2
        return in_time and self.is_mine(self.index.open().state)


@dataclass
class _Found:
    """What there is to do."""

    orphans: list[ObjectInfo] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    kept: int = 0


class _Vacuum:
    """One vacuum; without a lease a dry run."""

    def __init__(
        self, config: ConnectorConfig, topic: str, index: TopicIndex, older_than: timedelta, lease: _Lease | None
    ) -> None:
        self._config, self._topic, self._index, self._lease = config, topic, index, lease
        self._store = ObjectStore(config.store)
        self._before = datetime.now(timezone.utc) - older_than

    def run(self) -> VacuumReport:
        before = self._index.open()
        layouts = _layouts(before, self._config)
        self._layouts = [(layout, new_key_layout(layout)) for layout in layouts]
        folders = _folders(before, layouts, self._topic)
        objects = {o.key: o for folder in folders for o in self._store.list(folder)}
        uploads = [u for folder in folders for u in self._store.list_uploads(folder)]
        # read after the listing: what was committed up to now is known
        snapshot = self._index.open()
        found = self._classified(list(objects.values()), snapshot)
        aborted = [u for u in uploads if self._is_abandoned(u, snapshot)]
        removed = list(self._each(found.orphans, self._delete))
        ended = list(self._each(aborted, self._abort))
        report = VacuumReport(
            removed=tuple(o.key for o in removed),
            removed_bytes=sum(o.size for o in removed),
            aborted_uploads=tuple(u.key for u in ended),
            foreign=tuple(found.foreign),
            kept=found.kept,
            dry_run=self._lease is None,
            finished=len(removed) == len(found.orphans) and len(ended) == len(aborted),
        )
        logger.info(
            "%s: vacuum %s %d orphans (%d bytes) and %d unfinished uploads; %d kept, %d foreign objects",
            self._index.uri,
            "removed" if self._lease else "would remove",
            len(report.removed),
            report.removed_bytes,
            len(report.aborted_uploads),
            report.kept,
            len(report.foreign),
        )
        return report

    def _classified(self, objects: Sequence[ObjectInfo], snapshot: IndexSnapshot) -> _Found:
        found = _Found()
        known = live_keys((*snapshot.segments, *snapshot.retired))
        for listed in objects:
            if listed.key in known:
                continue
            info = self._store.head(listed.key)
            if info is None:
                continue
            provenance = Provenance.of(info)
            if provenance is None or not self._is_ours(info, provenance, snapshot):
                found.foreign.append(info.key)
            elif info.last_modified < self._before and self._is_closed(provenance.epoch, snapshot):
                found.orphans.append(info)
            else:
                found.kept += 1
        return found

    def _is_ours(self, info: ObjectInfo, provenance: Provenance, snapshot: IndexSnapshot) -> bool:
        ids = {g.topic_id for g in snapshot.state.generations}
        return (
            (provenance.connector, provenance.topic) == (self._config.name, self._topic)
            and provenance.topic_id in ids
            and provenance.index_id == snapshot.index_id
            and any(keys.parse(info.key) is not None for _, keys in self._layouts)
            and info.last_modified >= _second(snapshot.created_at)
        )

    def _is_closed(self, epoch: int, snapshot: IndexSnapshot) -> bool:
        state = snapshot.state
        working = {r.epoch for r in state.reservations} | {c.epoch for c in state.compactions}
        return epoch not in working and epoch < (self._lease.epoch if self._lease else snapshot.version + 1)

    def _is_abandoned(self, upload: UnfinishedUpload, snapshot: IndexSnapshot) -> bool:
        in_time = _second(snapshot.created_at) <= upload.initiated < self._before
        return in_time and any(self._is_segment_key(*layout, upload.key, snapshot) for layout in self._layouts)

    def _is_segment_key(self, layout: LayoutSettings, keys: KeyLayout, key: str, snapshot: IndexSnapshot) -> bool:
        found = keys.parse(key)
        return (
            found is not None
            and (found.topic, found.extension) == (self._topic, extension(layout, "value"))
            and (found.epoch is None or self._is_closed(found.epoch, snapshot))
        )

    def _each(self, items: Sequence[T], remove: Callable[[T], bool]) -> Iterator[T]:
        """Those of `items` that were removed; on a dry run all. Ends early with the lease."""
        for at, item in enumerate(items):
            if self._lease and at % STEP == 0 and not self._lease.may_delete():
                return
            if self._lease is None or remove(item):
                yield item

    def _delete(self, orphan: ObjectInfo) -> bool:
        try:
            self._store.delete(orphan.key, orphan.etag)
        except PreconditionError as err:
            logger.warning("%s; it is kept", err)
            return False
        return True

    def _abort(self, upload: UnfinishedUpload) -> bool:
        self._store.abort_upload(upload.key, upload.upload_id)
        return True


def _begin(index: TopicIndex, run_id: str, older_than: timedelta) -> _Lease:
    """Commit the vacuum's row; with it go the reservations of runs that ended without a word, and expired leases."""

    def step(snapshot: IndexSnapshot) -> _Lease:
        now = datetime.now(timezone.utc)
        _refuse_if_busy(index, snapshot.state, run_id, now, older_than)
        lease = _Lease(index, run_id, snapshot.version + 1, now)
        old = ("(kind = 'reservation')", "(kind = 'compaction')", "(kind = 'maintenance')")
        snapshot.commit(Change(added=(Maintenance(run_id, lease.epoch, now),), removed=old, run_id=run_id))
        return lease

    return committed(index, step)


def _refuse_if_busy(index: TopicIndex, state: IndexState, run_id: str, now: datetime, older_than: timedelta) -> None:
    busy: list[Reservation | Compaction | Maintenance] = []
    busy += [r for r in state.reservations if now - r.reserved_at < older_than]
    busy += [c for c in state.compactions if now - c.reserved_at < older_than]
    # one of this very run is there when the response of its commit was lost
    busy += [m for m in state.maintenance if m.holds(now) and m.run_id != run_id]
    for other in busy:
        raise BusyError(
            f"{index.uri}: run {other.run_id} is at work since {other.reserved_at:%Y-%m-%d %H:%M:%S} UTC; run the "
            f"vacuum when it has ended. If it was killed, run it again, or vacuum with an age that its start is past"
        )


def _end(lease: _Lease) -> None:
    """Take the row away. Where that fails, it holds others off for the rest of its lease."""

    def step(snapshot: IndexSnapshot) -> None:
        if lease.is_mine(snapshot.state):
            snapshot.commit(Change(removed=(lease.predicate,), run_id=lease.run_id))

    try:
        committed(lease.index, step)
    except TransientError as err:
        until = lease.reserved_at + MAINTENANCE_LEASE
        logger.warning("%s: the vacuum's row stays until %s: %s", lease.index.uri, until, err)


def _layouts(snapshot: IndexSnapshot, config: ConnectorConfig) -> list[LayoutSettings]:
    """Every layout that the connector has written, as its segments tell, and the one of today."""
    written = {s.settings for s in (*snapshot.segments, *snapshot.retired)}
    return [*map(LayoutSettings.model_validate_json, sorted(written)), config.layout]


def _folders(snapshot: IndexSnapshot, layouts: Sequence[LayoutSettings], topic: str) -> list[str]:
    """Prefixes of all keys that the layouts may have given: the topic's folder, or all where there is none."""
    keys = [s.key for s in (*snapshot.segments, *snapshot.retired)]
    found = set()
    for root in {layout.topics_dir for layout in layouts}:
        ours = f"{root}/{topic}/" if root else f"{topic}/"
        simple = all(o.key_layout == "connect" and o.directory_delim == "/" for o in layouts if o.topics_dir == root)
        routed = any(k.startswith(root) and not k.startswith(ours) for k in keys)
        found.add(ours if simple and not routed else root)
    return sorted(found)


def _second(moment: datetime) -> datetime:
    """Stores tell times in whole seconds."""
    return moment.replace(microsecond=0)
