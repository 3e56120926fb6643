"""Remove what runs that never committed left behind: orphan objects and unfinished multipart uploads.

An object is an orphan only if all of these are true:

- Its metadata names this connector, this topic, this index with one of its topic ids, and the key that the object lies
  at. So it is no copy.
- Its epoch is not later than the index's version, and no reservation or compaction of that epoch is open.
- No open reservation holds its first offset.
- The index knows its key neither as live nor as retired.
- It is not older than the index, and it is older than `older_than`.

Deleting comes last. One commit condemns the orphans' keys and ends the runs that are older than `older_than`. The
commit succeeds only on the index version in which these objects are orphans. A run that reserves later finds the
condemned keys in the index and never writes them: it puts its epoch into the names of its objects. A run that reserved
before and is still open has no such key in its ranges. So nothing live ever lies at a condemned key, and a DELETE may
arrive at any time. Therefore the vacuum needs no lease and makes no run wait. It may be suspended or killed, and two of
them may run at once.

The metadata of an unfinished upload cannot be read. The upload is aborted if all of these are true: its key has the
layout and the extension of this topic's segments; the epoch in the key, if there is one, is closed; no open reservation
holds its first offset; it is not older than the index, and it is older than `older_than`. Aborting ends this one upload
and nothing else at its key. Another tool that writes keys of the same layout (Connect's S3 sink, uncompressed Parquet)
could lose an upload that it is working on, but never an object. So `older_than` must be longer than such a tool keeps
an upload open.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone

from kafka_s3_platform.archive.clock import refuse_wrong_clock
from kafka_s3_platform.config.settings import ConnectorConfig, LayoutSettings
from kafka_s3_platform.formats.writers import find_extension
from kafka_s3_platform.layouts.key_reader import SegmentLayout
from kafka_s3_platform.layouts.new_layout import new_segment_layout
from kafka_s3_platform.layouts.segment_key import strip_offsets_key
from kafka_s3_platform.model.segment import Compaction, Condemned, Reservation
from kafka_s3_platform.store.errors import PreconditionError
from kafka_s3_platform.store.index import IndexSnapshot, TopicIndex, collect_object_keys
from kafka_s3_platform.store.index_commit import Change, retry_commit
from kafka_s3_platform.store.lease import end_runs
from kafka_s3_platform.store.objects import ObjectInfo, ObjectStore, UnfinishedUpload
from kafka_s3_platform.store.upload import Provenance

logger = logging.getLogger(__name__)

STEP = 100
"""Number of deletions after which the index is read again.

No key that it knows is deleted. The condemned keys already make this safe: it is a second check.
"""


@dataclass(frozen=True)
class VacuumReport:
    """What one vacuum removed, or on a dry run would remove.

    `foreign` objects were written by other tools, are copies, or belong to another index. `kept` counts objects of ours
    that are too young, or whose run may still commit. `finished` is false if an object changed meanwhile: run the
    vacuum again.
    """

    removed: tuple[str, ...] = ()
    removed_bytes: int = 0
    aborted_uploads: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    kept: int = 0
    dry_run: bool = False
    finished: bool = True


def vacuum_topic(
    config: ConnectorConfig, topic: str, run_id: str, older_than: timedelta, dry_run: bool
) -> VacuumReport:
    """Remove orphans that are older than `older_than`, and end reservations and compactions that are older than that.

    Younger runs continue meanwhile, and new ones may begin. Raises store errors; a second call removes the rest.
    """
    index = TopicIndex.of(config, topic)
    if index.peek() is None:
        logger.info("%s: nothing was archived, so nothing is an orphan", index.uri)
        return VacuumReport(dry_run=dry_run)
    # this machine's clock decides what is old, but the times of objects come from the store's clock
    refuse_wrong_clock(config, ObjectStore(config.store))
    return _Vacuum(config, topic, index, datetime.now(timezone.utc) - older_than).run(run_id, dry_run)


def set_aside_unknown(config: ConnectorConfig, topic: str, run_id: str) -> tuple[str, ...]:
    """Let no later run write to the keys of our objects that the index does not know. Return these keys.

    So it has to be after the index was put back from a copy: it names epochs again that objects have already, which
    later runs could neither replace nor take for theirs. Deletes nothing: these objects may be the only ones with
    records that Kafka has deleted since. A later vacuum takes them for orphans when they are old enough.
    """
    index = TopicIndex.of(config, topic)
    if index.within_connector.peek() is None:
        return ()
    # no run is that old, so none is ended
    return _Vacuum(config, topic, index, datetime.min.replace(tzinfo=timezone.utc)).set_aside(run_id)


@dataclass(frozen=True)
class _Orphan:
    """An object to delete, and the kafka partitions and first offsets that its key may name."""

    info: ObjectInfo
    begins: tuple[tuple[int, int], ...]


@dataclass
class _Found:
    """What is to be removed, and what is kept, according to one version of the index."""

    unknown: list[_Orphan] = field(default_factory=list)
    """All objects of this connector, topic and index that the index does not know."""

    orphans: list[_Orphan] = field(default_factory=list)
    kept: int = 0
    uploads: list[UnfinishedUpload] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)


class _Vacuum:
    """One vacuum of what is older than `before`."""

    def __init__(self, config: ConnectorConfig, topic: str, index: TopicIndex, before: datetime) -> None:
        self._config = config
        self._topic = topic
        self._index = index
        self._before = before
        self._store = ObjectStore(config.store)
        self._heads: dict[str, ObjectInfo | None] = {}

        snapshot = index.open()
        layouts = _collect_layouts(snapshot, config)
        self._layouts = [(layout, new_segment_layout(layout)) for layout in layouts]
        self._folders = _list_folders(snapshot, layouts, topic)

    def set_aside(self, run_id: str) -> tuple[str, ...]:
        objects = self._list_objects()

        def condemn(snapshot: IndexSnapshot) -> tuple[str, ...]:
            found = self._classified(objects, (), snapshot)
            self._condemn(found.unknown, snapshot, run_id)
            return tuple(orphan.info.key for orphan in found.unknown)

        return retry_commit(self._index, condemn)

    def _list_objects(self) -> list[ObjectInfo]:
        return list({o.key: o for folder in self._folders for o in self._store.list(folder)}.values())

    def run(self, run_id: str, dry_run: bool) -> VacuumReport:
        objects = self._list_objects()
        uploads: list[UnfinishedUpload] = []
        for folder in self._folders:
            uploads += self._store.list_uploads(folder)

        def look(snapshot: IndexSnapshot) -> _Found:
            # The index is read after the listing. So every listed object that a commit has made live is known.
            return self._classified(objects, uploads, snapshot)

        def condemn(snapshot: IndexSnapshot) -> _Found:
            found = look(snapshot)
            self._condemn(found.orphans, snapshot, run_id)
            return found

        found = look(self._index.open()) if dry_run else retry_commit(self._index, condemn)
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
        known = collect_object_keys((*snapshot.segments, *snapshot.retired))
        topic_ids = {g.topic_id for g in snapshot.state.generations}
        for listed in objects:
            info = None if listed.key in known else self._head(listed.key)
            if info is None:
                continue
            provenance = Provenance.of(info)
            begins = self._begins(info.key)
            if provenance is None or not begins or not self._is_ours(info, provenance, snapshot):
                found.foreign.append(info.key)
                continue
            orphan = _Orphan(info, begins)
            found.unknown.append(orphan)
            if provenance.topic_id not in topic_ids:
                found.foreign.append(info.key)
            elif info.last_modified < self._before and self._is_closed(provenance.epoch, begins, snapshot):
                found.orphans.append(orphan)
            else:
                found.kept += 1
        return found

    def _head(self, key: str) -> ObjectInfo | None:
        """Look at the object, only once: it is not deleted if it differs later from what was seen here."""
        if key not in self._heads:
            self._heads[key] = self._store.head(key)
        return self._heads[key]

    def _begins(self, key: str) -> tuple[tuple[int, int], ...]:
        """Return the kafka partition and the first offset that the key names, one pair for each layout that fits."""
        begins: dict[tuple[int, int], None] = {}
        for layout, keys in self._layouts:
            found = keys.parse(strip_offsets_key(key, layout.directory_delim))
            if found is not None and found.first_offset is not None:
                begins[found.kafka_partition, found.first_offset] = None
        return tuple(begins)

    def _is_ours(self, info: ObjectInfo, provenance: Provenance, snapshot: IndexSnapshot) -> bool:
        return (
            (provenance.connector, provenance.topic) == (self._config.name, self._topic)
            and provenance.index_id == snapshot.index_id
            and Provenance.is_in_place(info, self._index.index_dir)
            and info.last_modified >= _truncate_to_second(snapshot.created_at)
        )

    def _is_closed(self, epoch: int, begins: Sequence[tuple[int, int]], snapshot: IndexSnapshot) -> bool:
        """Return whether no run can still commit the object: neither the run of its epoch, nor one with its offsets.

        Reservations and compactions that are old enough do not count: the commit that condemns the keys ends them.
        """
        state = snapshot.state
        reserved = [r for r in state.reservations if not self._is_old(r)]
        working = {r.epoch for r in reserved} | {c.epoch for c in state.compactions if not self._is_old(c)}
        if epoch > snapshot.version or epoch in working:
            return False
        for kafka_partition, offset in begins:
            if any(r.kafka_partition == kafka_partition and offset in r.offsets for r in reserved):
                return False
        return True

    def _is_old(self, row: Reservation | Compaction) -> bool:
        return row.reserved_at <= self._before

    def _is_abandoned(self, upload: UnfinishedUpload, snapshot: IndexSnapshot) -> bool:
        in_time = _truncate_to_second(snapshot.created_at) <= upload.initiated < self._before
        return in_time and any(self._is_segment_key(*layout, upload.key, snapshot) for layout in self._layouts)

    def _is_segment_key(self, layout: LayoutSettings, keys: SegmentLayout, key: str, snapshot: IndexSnapshot) -> bool:
        found = keys.parse(key)
        return (
            found is not None
            and (found.topic, found.extension) == (self._topic, find_extension(layout, "value"))
            and self._is_closed(found.epoch or 0, self._begins(key), snapshot)
        )

    def _condemn(self, orphans: Sequence[_Orphan], snapshot: IndexSnapshot, run_id: str) -> None:
        """Commit that the objects' keys are never used again, and that the old runs have ended."""
        state = snapshot.state
        epoch = snapshot.version + 1
        before = {(c.key, c.kafka_partition, c.start_offset) for c in state.condemned}
        new = [(o.info.key, *begin) for o in orphans for begin in o.begins]
        rows = tuple(Condemned(*row, epoch) for row in new if row not in before)
        runs: list[Reservation | Compaction] = [*state.reservations, *state.compactions]
        ended = end_runs(row for row in runs if self._is_old(row))
        if rows or ended:
            snapshot.commit(Change(added=rows, removed=ended, run_id=run_id))

    def _deleted(self, orphans: Sequence[_Orphan]) -> Iterator[ObjectInfo]:
        """Delete each orphan that is still the object that was seen before. Yield those that are gone."""
        known: frozenset[str] = frozenset()
        for at, orphan in enumerate(orphans):
            if at % STEP == 0:
                now = self._index.open()
                known = collect_object_keys((*now.segments, *now.retired))
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


def _collect_layouts(snapshot: IndexSnapshot, config: ConnectorConfig) -> list[LayoutSettings]:
    """Return the layouts of all segments that the connector has written, and of the hours and days of its config.

    For each layout of hours, the layout of days is added: a compaction that was killed may have left objects of days
    though no segment has that layout.
    """
    written = {(s.settings, s.chunk) for s in (*snapshot.segments, *snapshot.retired)}
    found = [(LayoutSettings.model_validate_json(settings), chunk) for settings, chunk in sorted(written)]
    hourly = [config.layout, *(layout for layout, chunk in found if chunk == "hourly")]
    days = (o.model_copy(update={"topics_dir": o.daily_dir}) for o in hourly if o.is_envelope)
    return [*(layout for layout, _ in found), config.layout, *days]


def _list_folders(snapshot: IndexSnapshot, layouts: Sequence[LayoutSettings], topic: str) -> list[str]:
    """Return prefixes of all keys that the layouts may have made.

    This is the topic's folder where all keys lie in it, else the whole `topics.dir`.
    """
    known = (*snapshot.segments, *snapshot.retired)
    settings = {s.settings for s in known}
    roots = {text: LayoutSettings.model_validate_json(text).topics_dir for text in settings}
    found = set()
    for root in {layout.topics_dir for layout in layouts}:
        ours = f"{root}/{topic}/" if root else f"{topic}/"
        simple = all(o.key_layout == "connect" and o.directory_delim == "/" for o in layouts if o.topics_dir == root)
        routed = any(roots[s.settings] == root and not s.key.startswith(ours) for s in known)
        found.add(ours if simple and not routed else root)
    return sorted(found)


def _truncate_to_second(moment: datetime) -> datetime:
    """Truncate the time as stores do: their times have whole seconds."""
    return moment.replace(microsecond=0)
