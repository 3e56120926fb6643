"""Remove the remains of runs that never committed: orphan objects and unfinished multipart uploads.

An object is an orphan only if all of these are true:

- Its metadata names this connector, this topic, this index with one of its topic ids, and the object's own key. So it
  is not a copy.
- Its epoch is not later than the index's version, and no reservation or compaction of the epoch is open.
- No open reservation holds its first offset.
- Its key is neither a live nor a retired key of the index.
- It is not older than the index, and it is older than `older_than`.
- No object of a live segment is missing. An index put back from a copy may name hours removed by retention since,
  but not the day that holds their records.

Deleting comes last. One commit condemns the orphans' keys and ends the runs older than `older_than`. The commit
succeeds only on the index version in which these objects are orphans. A run that reserves later finds the condemned
keys in the index and never writes them, because it puts its epoch into the names of its objects. A run that reserved
before, and is still open, has no such key in its ranges. So nothing live ever lies at a condemned key, and a DELETE may
arrive at any time. Therefore the vacuum needs no lease and makes no run wait. It may be suspended or killed, and two of
them may run at once.

The metadata of an unfinished upload cannot be read. The upload is aborted if all of these are true: its key has the
layout and the extension of this topic's segments; the epoch in the key, if there is one, is closed; no open reservation
holds its first offset; it is not older than the index, and it is older than `older_than`. Aborting ends this one upload
and nothing else at its key. Another tool that writes keys of the same layout (Connect's S3 sink, uncompressed Parquet)
could lose an upload in progress, but never an object. So `older_than` must be longer than such a tool keeps an upload
open.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone

from kafka_s3_platform.core.archive.clock import refuse_wrong_clock
from kafka_s3_platform.core.config.settings import ConnectorConfig, LayoutSettings
from kafka_s3_platform.core.formats.format_io import find_extension
from kafka_s3_platform.core.layouts.new_layout import new_segment_layout
from kafka_s3_platform.core.layouts.segment_key import SegmentLayout, list_parts, strip_offsets_key
from kafka_s3_platform.core.model.segment import Compaction, Condemned, Reservation
from kafka_s3_platform.core.store.errors import PreconditionError
from kafka_s3_platform.core.store.index import IndexSnapshot, TopicIndex, collect_object_keys
from kafka_s3_platform.core.store.index_commit import Change, retry_commit
from kafka_s3_platform.core.store.index_rows import SEGMENT_KINDS
from kafka_s3_platform.core.store.lease import end_runs
from kafka_s3_platform.core.store.objects import ObjectInfo, ObjectStore, UnfinishedUpload
from kafka_s3_platform.core.store.row_filter import EVERY_SEGMENT
from kafka_s3_platform.core.store.upload import Provenance

logger = logging.getLogger(__name__)

STEP = 100
"""Number of deletions after which the index is read again.

Keys the index then names are not deleted. This is only a second check, because the condemned keys already make the
deletion safe.
"""


@dataclass(frozen=True)
class VacuumReport:
    """Result of a vacuum or, on a dry run, its plan.

    `foreign` objects were written by other tools, are copies, or belong to another index. `retained` counts our objects
    that are too young, or whose runs may still commit. While objects of live segments are `missing`, it counts all of
    our objects the index does not name. `finished` is False if an object changed meanwhile and the vacuum has to run
    again.
    """

    removed: tuple[str, ...] = ()
    removed_bytes: int = 0
    aborted_uploads: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    retained: int = 0
    missing: tuple[str, ...] = ()
    dry_run: bool = False
    finished: bool = True


def vacuum_topic(
    config: ConnectorConfig, topic: str, run_id: str, older_than: timedelta, dry_run: bool
) -> VacuumReport:
    """Remove orphans older than `older_than`, and end reservations and compactions of the same age.

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
    """Forbid later runs to write to keys of our objects the index does not know. Return these keys.

    This is needed after the index was restored from a copy. The index then uses epochs of existing objects again, so
    later runs could neither replace these objects nor take them for their own. Nothing is deleted, because these
    objects may be the only ones with records that Kafka has deleted since. A later vacuum treats them as orphans once
    they are old enough.
    """
    index = TopicIndex.of(config, topic)
    if index.within_connector.peek() is None:
        return ()
    # no run is that old, so none is ended
    return _Vacuum(config, topic, index, datetime.min.replace(tzinfo=timezone.utc)).set_aside(run_id)


@dataclass(frozen=True)
class _Orphan:
    """An object to delete, and the kafka partitions and first offsets its key may stand for."""

    info: ObjectInfo
    begins: tuple[tuple[int, int], ...]


@dataclass
class _Findings:
    """Objects and uploads to remove, and others, according to one version of the index."""

    unknown: list[_Orphan] = field(default_factory=list)
    """All objects of this connector, topic and index that have no row in the index."""

    orphans: list[_Orphan] = field(default_factory=list)
    retained: int = 0
    missing: tuple[str, ...] = ()
    uploads: list[UnfinishedUpload] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)


class _Vacuum:
    """One vacuum of objects older than `cutoff`."""

    def __init__(self, config: ConnectorConfig, topic: str, index: TopicIndex, cutoff: datetime) -> None:
        self._config = config
        self._topic = topic
        self._index = index
        self._cutoff = cutoff
        self._store = ObjectStore(config.store)
        self._heads: dict[str, ObjectInfo | None] = {}

        snapshot = index.open()
        layouts = _collect_layouts(snapshot, config)
        self._layouts = [(layout, new_segment_layout(layout)) for layout in layouts]
        self._folders = _list_folders(snapshot, layouts, topic)

    def set_aside(self, run_id: str) -> tuple[str, ...]:
        """Condemn the keys of objects the index does not know, in one commit. Return these keys."""
        objects = self._list_objects()

        def condemn(snapshot: IndexSnapshot) -> tuple[str, ...]:
            findings = self._classify_objects(objects, (), snapshot)
            self._condemn(findings.unknown, snapshot, run_id)
            return tuple(orphan.info.key for orphan in findings.unknown)

        return retry_commit(self._index, condemn)

    def _list_objects(self) -> list[ObjectInfo]:
        return list({o.key: o for folder in self._folders for o in self._store.list(folder)}.values())

    def run(self, run_id: str, dry_run: bool) -> VacuumReport:
        """Delete orphans, and abort abandoned uploads. A dry run only finds them.

        An orphan is an object of a run that can no longer commit. Before the object is deleted, a commit forbids its
        key to all later runs (it *condemns* the key), so the deletion may arrive at any time.
        """
        objects = self._list_objects()
        uploads: list[UnfinishedUpload] = []
        for folder in self._folders:
            uploads += self._store.list_uploads(folder)

        def classify(snapshot: IndexSnapshot) -> _Findings:
            # The index is read after the listing, so it has all listed objects that a commit has made live.
            return self._classify_objects(objects, uploads, snapshot)

        def condemn(snapshot: IndexSnapshot) -> _Findings:
            findings = classify(snapshot)
            self._condemn(findings.orphans, snapshot, run_id)
            return findings

        findings = classify(self._index.open()) if dry_run else retry_commit(self._index, condemn)
        removed = [o.info for o in findings.orphans] if dry_run else list(self._delete_orphans(findings.orphans))
        report = VacuumReport(
            removed=tuple(o.key for o in removed),
            removed_bytes=sum(o.size for o in removed),
            aborted_uploads=tuple(u.key for u in findings.uploads),
            foreign=tuple(findings.foreign),
            retained=findings.retained,
            missing=findings.missing,
            dry_run=dry_run,
            finished=len(removed) == len(findings.orphans),
        )
        if not dry_run:
            for upload in findings.uploads:
                self._store.abort_upload(upload.key, upload.upload_id)
        logger.info(
            "%s: vacuum %s %d orphans (%d bytes) and %d unfinished uploads; %d kept, %d foreign objects",
            self._index.uri,
            "would remove" if dry_run else "removed",
            len(report.removed),
            report.removed_bytes,
            len(report.aborted_uploads),
            report.retained,
            len(report.foreign),
        )
        return report

    def _classify_objects(
        self, objects: Sequence[ObjectInfo], uploads: Sequence[UnfinishedUpload], snapshot: IndexSnapshot
    ) -> _Findings:
        """Classify the objects and uploads, by this version of the index and the rules of the module."""
        abandoned = [u for u in uploads if self._is_abandoned(u, snapshot)]
        findings = _Findings(missing=self._find_missing(objects, snapshot), uploads=abandoned)
        index_keys = collect_object_keys((*snapshot.segments, *snapshot.retired))
        topic_ids = {g.topic_id for g in snapshot.state.generations}
        for item in objects:
            info = None if item.key in index_keys else self._head(item.key)
            if info is None:
                continue
            provenance = Provenance.of(info)
            places = self._find_places(info.key)
            if provenance is None or not places or not self._is_ours(info, provenance, snapshot):
                findings.foreign.append(info.key)
                continue
            orphan = _Orphan(info, places)
            findings.unknown.append(orphan)
            if provenance.topic_id not in topic_ids:
                findings.foreign.append(info.key)
            elif (
                not findings.missing
                and info.last_modified < self._cutoff
                and self._is_closed(provenance.epoch, places, snapshot)
            ):
                findings.orphans.append(orphan)
            else:
                findings.retained += 1
        return findings

    def _find_missing(self, objects: Sequence[ObjectInfo], snapshot: IndexSnapshot) -> tuple[str, ...]:
        """Return the keys of live segments whose objects are missing. The store is asked about each unlisted object."""
        listed_keys = {item.key for item in objects}
        unlisted = [segment.key for segment in snapshot.segments if segment.key not in listed_keys]
        return tuple(key for key, info in zip(unlisted, self._store.heads(unlisted), strict=True) if info is None)

    def _head(self, key: str) -> ObjectInfo | None:
        """Return the object's metadata, which is read only once. If it differs later, the object is not deleted."""
        if key not in self._heads:
            self._heads[key] = self._store.head(key)
        return self._heads[key]

    def _find_places(self, key: str) -> tuple[tuple[int, int], ...]:
        """Return the kafka partition and the first offset in the key, one pair for each matching layout."""
        places: dict[tuple[int, int], None] = {}
        for layout, keys in self._layouts:
            parsed = keys.parse(strip_offsets_key(key, layout.directory_delim))
            if parsed is not None and parsed.first_offset is not None:
                places[parsed.kafka_partition, parsed.first_offset] = None
        return tuple(places)

    def _is_ours(self, info: ObjectInfo, provenance: Provenance, snapshot: IndexSnapshot) -> bool:
        """Return True if the object was written at this place for this topic and index, and not before the index."""
        return (
            (provenance.connector, provenance.topic) == (self._config.name, self._topic)
            and provenance.index_id == snapshot.index_id
            and Provenance.is_in_place(info, self._index.within_connector.index_dir)
            and info.last_modified >= _truncate_to_second(snapshot.created_at)
        )

    def _is_closed(self, epoch: int, begins: Sequence[tuple[int, int]], snapshot: IndexSnapshot) -> bool:
        """Return True if no run can still commit the object: neither its writer, nor a run that reserved its offsets.

        Old reservations and compactions do not count, because the commit of the condemned keys ends them.
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
        return row.reserved_at <= self._cutoff

    def _is_abandoned(self, upload: UnfinishedUpload, snapshot: IndexSnapshot) -> bool:
        has_age = _truncate_to_second(snapshot.created_at) <= upload.initiated < self._cutoff
        return has_age and any(self._is_segment_key(*layout, upload.key, snapshot) for layout in self._layouts)

    def _is_segment_key(self, layout: LayoutSettings, keys: SegmentLayout, key: str, snapshot: IndexSnapshot) -> bool:
        """Return True if the key fits the layout for this topic, and no run can still write the object."""
        parsed = keys.parse(key)
        return (
            parsed is not None
            and parsed.topic == self._topic
            and parsed.extension in {find_extension(layout, part) for part in list_parts(layout)}
            and self._is_closed(parsed.epoch or 0, self._find_places(key), snapshot)
        )

    def _condemn(self, orphans: Sequence[_Orphan], snapshot: IndexSnapshot, run_id: str) -> None:
        """Forbid all runs to write to these keys from now on, and end runs older than the limit, in one commit."""
        state = snapshot.state
        epoch = snapshot.version + 1
        condemned_rows = {(c.key, c.kafka_partition, c.start_offset) for c in state.condemned}
        orphan_rows = [(o.info.key, *begin) for o in orphans for begin in o.begins]
        rows = tuple(Condemned(*row, epoch) for row in orphan_rows if row not in condemned_rows)
        runs: list[Reservation | Compaction] = [*state.reservations, *state.compactions]
        run_predicates = end_runs(row for row in runs if self._is_old(row))
        if rows or run_predicates:
            snapshot.commit(Change(added=rows, removed=run_predicates, run_id=run_id))

    def _delete_orphans(self, orphans: Sequence[_Orphan]) -> Iterator[ObjectInfo]:
        """Delete each orphan that has not changed since its classification. Yield the deleted ones."""
        index_keys: frozenset[str] = frozenset()
        for number, orphan in enumerate(orphans):
            if number % STEP == 0:
                snapshot = self._index.open()
                index_keys = collect_object_keys((*snapshot.segments, *snapshot.retired))
            if orphan.info.key in index_keys or not self._delete(orphan.info):
                logger.warning("%s was written again meanwhile; it is kept", self._store.uri(orphan.info.key))
            else:
                yield orphan.info

    def _delete(self, orphan: ObjectInfo) -> bool:
        """Delete the object if it has not changed since its classification. Return False if it was written again."""
        current = self._store.head(orphan.key)
        if current is None:
            return True
        if (current.etag, current.metadata) != (orphan.etag, orphan.metadata):
            return False
        try:
            self._store.delete(orphan.key, orphan.etag)
        except PreconditionError:
            return False
        return True


def _collect_layouts(snapshot: IndexSnapshot, config: ConnectorConfig) -> list[LayoutSettings]:
    """Return every layout the topic's keys may have: of its segments, even removed ones, and of its config.

    For each layout of hours, its layout of days is included, because a killed compaction may have left objects of days,
    but no segment with this layout.
    """
    settings_of_chunks = {(s.settings, s.chunk) for s in snapshot.select_segments(EVERY_SEGMENT, SEGMENT_KINDS)}
    layouts = [(LayoutSettings.model_validate_json(settings), chunk) for settings, chunk in sorted(settings_of_chunks)]
    hourly = [config.layout, *(layout for layout, chunk in layouts if chunk == "hourly")]
    days = (o.model_copy(update={"topics_dir": o.daily_dir}) for o in hourly if o.is_envelope)
    return [*(layout for layout, _ in layouts), config.layout, *days]


def _list_folders(snapshot: IndexSnapshot, layouts: Sequence[LayoutSettings], topic: str) -> list[str]:
    """Return the prefixes of all keys the layouts may have made.

    A prefix is the topic's folder if all keys lie in it, or else the root `topics.dir`.
    """
    segments = snapshot.select_segments(EVERY_SEGMENT, SEGMENT_KINDS)
    settings = {s.settings for s in segments}
    roots = {text: LayoutSettings.model_validate_json(text).topics_dir for text in settings}
    folders = set()
    for root in {layout.topics_dir for layout in layouts}:
        topic_folder = f"{root}/{topic}/" if root else f"{topic}/"
        is_simple = all(o.key_layout == "connect" and o.directory_delim == "/" for o in layouts if o.topics_dir == root)
        is_routed = any(roots[s.settings] == root and not s.key.startswith(topic_folder) for s in segments)
        folders.add(topic_folder if is_simple and not is_routed else root)
    return sorted(folders)


def _truncate_to_second(moment: datetime) -> datetime:
    """Truncate the time to whole seconds, as stores do."""
    return moment.replace(microsecond=0)
