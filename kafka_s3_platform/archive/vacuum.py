"""Removes what runs that never committed left behind: orphan objects and unfinished multipart uploads.

An object is an orphan only if all of this holds: its metadata names this connector, this topic, this index with a topic
id of it, and the very key that it lies at, so it is no copy; its epoch is one of the index's past and no reservation or
compaction of it is open; no open reservation holds its first offset; the index knows its key neither as live nor as
retired; it is neither older than the index nor younger than asked.

Deleting comes last. One commit condemns the orphans' keys, on the very version that tells that they are orphans, and
ends the runs that are older than asked. Whoever reserves later finds the condemned keys in the index and never writes
them again: it names its objects by its epoch. Whoever reserved before and is left has none of them in its ranges. So
nothing live ever lies at a condemned key, and a DELETE may arrive when it likes: the vacuum needs no lease, holds
nobody off, and may be suspended, killed or doubled.

An unfinished upload has no readable metadata. It goes if its key has the layout and the extension of this topic's
segments, a rewrite's epoch in it is closed, no open reservation holds its first offset, and it is neither older than
the index nor younger than asked. Aborting ends that one upload, whatever else is written at its key. Another tool that
writes keys of this very layout (Connect's S3 sink, uncompressed Parquet) could lose an upload it is working on, though
never an object: `older_than` must exceed the longest that such a tool keeps one open.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone

from kafka_s3_platform.archive.clock import refuse_wrong_clock
from kafka_s3_platform.config.settings import ConnectorConfig, LayoutSettings
from kafka_s3_platform.formats.writers import extension
from kafka_s3_platform.model.segment import Compaction, Condemned, Reservation
from kafka_s3_platform.partitioners.key_layouts import KeyLayout, new_key_layout
from kafka_s3_platform.partitioners.keys import beside_offsets
from kafka_s3_platform.store.errors import PreconditionError
from kafka_s3_platform.store.index import Change, IndexSnapshot, TopicIndex, committed, live_keys
from kafka_s3_platform.store.objects import ObjectInfo, ObjectStore, UnfinishedUpload
from kafka_s3_platform.store.upload import Provenance

logger = logging.getLogger(__name__)

STEP = 100
"""Deletions between two looks at the index, which has to hold none of what goes: a second bolt on the door."""


@dataclass(frozen=True)
class VacuumReport:
    """What one vacuum removed, or on a dry run would remove.

    `foreign` objects are none of ours, copies, or of an index that is not this one. `kept` counts orphans that are too
    young, or whose run may still commit. `finished` is false where an object changed under it: run it again.
    """

    removed: tuple[str, ...] = ()
    removed_bytes: int = 0
    aborted_uploads: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    kept: int = 0
    dry_run: bool = False
    finished: bool = True


def vacuum(config: ConnectorConfig, topic: str, run_id: str, older_than: timedelta, dry_run: bool) -> VacuumReport:
    """Remove orphans older than `older_than`. Reservations and compactions older than that are ended.

    Runs that are younger go on meanwhile, and others may begin. Raises store errors; run again, it goes on.
    """
    index = TopicIndex(config.store, config.archive.index_dir, config.name, topic)
    if index.peek() is None:
        logger.info("%s: nothing was archived, so nothing is an orphan", index.uri)
        return VacuumReport(dry_run=dry_run)
    # what is old is told by this machine's clock, when it was written by the store's
    refuse_wrong_clock(config, ObjectStore(config.store))
    return _Vacuum(config, topic, index, datetime.now(timezone.utc) - older_than).run(run_id, dry_run)


@dataclass(frozen=True)
class _Orphan:
    """An object that goes, and the kafka partitions and first offsets that its key may tell of."""

    info: ObjectInfo
    begins: tuple[tuple[int, int], ...]


@dataclass
class _Found:
    """What there is to do by one version of the index."""

    orphans: list[_Orphan] = field(default_factory=list)
    uploads: list[UnfinishedUpload] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    kept: int = 0


class _Vacuum:
    """One vacuum of what is older than `before`."""

    def __init__(self, config: ConnectorConfig, topic: str, index: TopicIndex, before: datetime) -> None:
        self._config, self._topic, self._index, self._before = config, topic, index, before
        self._store = ObjectStore(config.store)
        self._heads: dict[str, ObjectInfo | None] = {}

    def run(self, run_id: str, dry_run: bool) -> VacuumReport:
        snapshot = self._index.open()
        layouts = _layouts(snapshot, self._config)
        self._layouts = [(layout, new_key_layout(layout)) for layout in layouts]
        folders = _folders(snapshot, layouts, self._topic)
        objects = {o.key: o for folder in folders for o in self._store.list(folder)}
        uploads = [u for folder in folders for u in self._store.list_uploads(folder)]

        def look(snapshot: IndexSnapshot) -> _Found:
            # read after the listing: what was committed up to now is known
            return self._classified(list(objects.values()), uploads, snapshot)

        def condemn(snapshot: IndexSnapshot) -> _Found:
            found = look(snapshot)
            self._condemn(found, snapshot, run_id)
            return found

        found = look(self._index.open()) if dry_run else committed(self._index, condemn)
        removed = [o.info for o in found.orphans] if dry_run else list(self._deleted(found.orphans))
        report = VacuumReport(
            removed=tuple(o.key for o in removed),
            removed_bytes=sum(o.size for o in removed),
            aborted_uploads=tuple(u.key for u in found.uploads),
            foreign=tuple(found.foreign),
            kept=found.kept,
            dry_run=dry_run,
            finished=len(removed) == len(found.orphans),
        )
        if not dry_run:
            for upload in found.uploads:
                self._store.abort_upload(upload.key, upload.upload_id)
        logger.info(
            "%s: vacuum %s %d orphans (%d bytes) and %d unfinished uploads; %d kept, %d foreign objects",
            self._index.uri,
            "would remove" if dry_run else "removed",
            len(report.removed),
            report.removed_bytes,
            len(report.aborted_uploads),
            report.kept,
            len(report.foreign),
        )
        return report

    def _classified(
        self, objects: Sequence[ObjectInfo], uploads: Sequence[UnfinishedUpload], snapshot: IndexSnapshot
    ) -> _Found:
        found = _Found(uploads=[u for u in uploads if self._is_abandoned(u, snapshot)])
        known = live_keys((*snapshot.segments, *snapshot.retired))
        for listed in objects:
            info = None if listed.key in known else self._head(listed.key)
            if info is None:
                continue
            provenance, begins = Provenance.of(info), self._begins(info.key)
            if provenance is None or not begins or not self._is_ours(info, provenance, snapshot):
                found.foreign.append(info.key)
            elif info.last_modified < self._before and self._is_closed(provenance.epoch, begins, snapshot):
                found.orphans.append(_Orphan(info, begins))
            else:
                found.kept += 1
        return found

    def _head(self, key: str) -> ObjectInfo | None:
        """What the store says of the object, asked once: if it changes afterwards, it is not deleted."""
        if key not in self._heads:
            self._heads[key] = self._store.head(key)
        return self._heads[key]

    def _begins(self, key: str) -> tuple[tuple[int, int], ...]:
        """Kafka partition and first offset of a key, by each layout that it may be of."""
        told = (keys.parse(beside_offsets(key, layout.directory_delim)) for layout, keys in self._layouts)
        return tuple(dict.fromkeys((k.kafka_partition, k.first_offset) for k in told if k is not None))

    def _is_ours(self, info: ObjectInfo, provenance: Provenance, snapshot: IndexSnapshot) -> bool:
        ids = {g.topic_id for g in snapshot.state.generations}
        return (
            (provenance.connector, provenance.topic) == (self._config.name, self._topic)
            and provenance.topic_id in ids
            and provenance.index_id == snapshot.index_id
            # one that does not tell where it was written may be a copy
            and Provenance.is_in_place(info, self._index.index_dir) is True
            and info.last_modified >= _second(snapshot.created_at)
        )

    def _is_closed(self, epoch: int, begins: Sequence[tuple[int, int]], snapshot: IndexSnapshot) -> bool:
        """Whether no run may still commit what begins there, neither that of this epoch nor one that comes across it.

        Reservations and compactions that are old enough are ended by the commit that condemns.
        """
        state = snapshot.state
        reserved = [r for r in state.reservations if not self._is_old(r)]
        working = {r.epoch for r in reserved} | {c.epoch for c in state.compactions if not self._is_old(c)}
        held = (r for r in reserved for p, offset in begins if r.kafka_partition == p and offset in r.offsets)
        return epoch <= snapshot.version and epoch not in working and next(held, None) is None

    def _is_old(self, row: Reservation | Compaction) -> bool:
        return row.reserved_at <= self._before

    def _is_abandoned(self, upload: UnfinishedUpload, snapshot: IndexSnapshot) -> bool:
        in_time = _second(snapshot.created_at) <= upload.initiated < self._before
        return in_time and any(self._is_segment_key(*layout, upload.key, snapshot) for layout in self._layouts)

    def _is_segment_key(self, layout: LayoutSettings, keys: KeyLayout, key: str, snapshot: IndexSnapshot) -> bool:
        found = keys.parse(key)
        return (
            found is not None
            and (found.topic, found.extension) == (self._topic, extension(layout, "value"))
            and self._is_closed(found.epoch or 0, self._begins(key), snapshot)
        )

    def _condemn(self, found: _Found, snapshot: IndexSnapshot, run_id: str) -> None:
        """Commit that the orphans' keys are never used again, and that runs older than asked have ended."""
        state, epoch = snapshot.state, snapshot.version + 1
        before = {(c.key, c.kafka_partition, c.start_offset) for c in state.condemned}
        new = [(o.info.key, *begin) for o in found.orphans for begin in o.begins]
        rows = tuple(Condemned(*row, epoch) for row in new if row not in before)
        reservations = sorted({r.epoch for r in state.reservations if self._is_old(r)})
        compactions = sorted({c.epoch for c in state.compactions if self._is_old(c)})
        ended = (
            *(f"(kind = 'reservation' AND epoch = {e})" for e in reservations),
            *(f"(kind = 'compaction' AND epoch = {e})" for e in compactions),
        )
        if rows or ended:
            snapshot.commit(Change(added=rows, removed=ended, run_id=run_id))

    def _deleted(self, orphans: Sequence[_Orphan]) -> Iterator[ObjectInfo]:
        """Delete the orphans, each if it is still the object that was looked at."""
        known: frozenset[str] = frozenset()
        for at, orphan in enumerate(orphans):
            if at % STEP == 0:
                now = self._index.open()
                known = live_keys((*now.segments, *now.retired))
            if orphan.info.key in known or not self._delete(orphan.info):
                logger.warning("%s was written again meanwhile; it is kept", self._store.uri(orphan.info.key))
            else:
                yield orphan.info

    def _delete(self, orphan: ObjectInfo) -> bool:
        found = self._store.head(orphan.key)
        if found is None:
            return True
        if (found.etag, found.metadata) != (orphan.etag, orphan.metadata):
            return False
        try:
            self._store.delete(orphan.key, orphan.etag)
        except PreconditionError:
            return False
        return True


def _layouts(snapshot: IndexSnapshot, config: ConnectorConfig) -> list[LayoutSettings]:
    """Every layout that the connector has written, as its segments tell, and those of today's hours and days.

    The days of hours too: a compaction that was killed has left what no segment tells.
    """
    written = {(s.settings, s.chunk) for s in (*snapshot.segments, *snapshot.retired)}
    found = [(LayoutSettings.model_validate_json(settings), chunk) for settings, chunk in sorted(written)]
    hourly = [config.layout, *(layout for layout, chunk in found if chunk == "hourly")]
    days = (o.model_copy(update={"topics_dir": o.daily_dir}) for o in hourly if o.is_envelope)
    return [*(layout for layout, _ in found), config.layout, *days]


def _folders(snapshot: IndexSnapshot, layouts: Sequence[LayoutSettings], topic: str) -> list[str]:
    """Prefixes of all keys that the layouts may have given: the topic's folder, or all where there is none."""
    known = (*snapshot.segments, *snapshot.retired)
    roots = {text: LayoutSettings.model_validate_json(text).topics_dir for text in {s.settings for s in known}}
    found = set()
    for root in {layout.topics_dir for layout in layouts}:
        ours = f"{root}/{topic}/" if root else f"{topic}/"
        simple = all(o.key_layout == "connect" and o.directory_delim == "/" for o in layouts if o.topics_dir == root)
        routed = any(roots[s.settings] == root and not s.key.startswith(ours) for s in known)
        found.add(ours if simple and not routed else root)
    return sorted(found)


def _second(moment: datetime) -> datetime:
    """Stores tell times in whole seconds."""
    return moment.replace(microsecond=0)
