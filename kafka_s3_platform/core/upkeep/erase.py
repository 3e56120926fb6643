"""Erase every record with some keys from an archive, in hours, days and months.

All live objects of whole records are read to their ends. An object that holds such records is written anew without them
and read back: the new object must hold the other records unchanged, and none with one of the keys. One commit puts the
new objects in the place of the old ones. Then the old objects are deleted. Merged hours whose objects still exist are
removed too if they hold such a record, as in retention: their day has their other records.

The index keeps the numbers of the erased records (the kind `erased`). It keeps no key, and no hash of one, because
whoever has the hash of a telephone number can find the number by trying all of them. Scanned offsets stay covered, so
no hour becomes incomplete, and no run archives the records again.

A run killed before the commit leaves objects without the erased records, which the vacuum removes. If it is killed
after the commit, the same command deletes the remaining old objects, which the rows of the kind `erased` name.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from itertools import chain
from typing import TypeAlias, TypeVar
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from kafka_s3_platform.core.archive.clock import refuse_wrong_clock
from kafka_s3_platform.core.config.settings import ConnectorConfig, LayoutSettings, StoreSettings
from kafka_s3_platform.core.errors import (
    AuthorizationError,
    IndexConflictError,
    IntegrityError,
    PermanentError,
    PlatformError,
    SupersededError,
)
from kafka_s3_platform.core.formats.columns import RecordDigest, read_strings
from kafka_s3_platform.core.layouts.new_layout import new_segment_layout
from kafka_s3_platform.core.model.batches import cut_batches, read_offset_column
from kafka_s3_platform.core.model.connect import Int64s
from kafka_s3_platform.core.model.segment import Compaction, Segment, StoredObject
from kafka_s3_platform.core.model.times import to_epoch_ms
from kafka_s3_platform.core.segments.target import Bucket, SegmentTarget
from kafka_s3_platform.core.spark.progress import Progress
from kafka_s3_platform.core.spark.runner import Attempt, TaskRunner
from kafka_s3_platform.core.store.index import ConnectorSnapshot, IndexSnapshot, TopicIndex, collect_object_keys
from kafka_s3_platform.core.store.index_commit import Change, retry_commit
from kafka_s3_platform.core.store.lease import Lease, released_on_failure, take_leases
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform.core.store.promises import check_promises
from kafka_s3_platform.core.store.upload import Provenance
from kafka_s3_platform.core.text import count_noun
from kafka_s3_platform.core.upkeep.compact.days import (
    Month,
    Span,
    choose_holder,
    cover_days,
    explain_lost_records,
    find_day,
    find_span,
    is_mergeable,
    list_merged_months,
)
from kafka_s3_platform.core.upkeep.compact.merge import write_segments
from kafka_s3_platform.core.upkeep.retain import delete_objects, forget_sums, refuse_without_right
from kafka_s3_platform.core.upkeep.verify import read_checked

logger = logging.getLogger(__name__)

R = TypeVar("R")

Place: TypeAlias = tuple[int, Span | None, str]
"""A kafka partition, the day or month that holds the records (None if out of range), and the day's timezone."""

MAX_ROUNDS = 5
"""Number of times the search goes on with objects that have replaced searched ones meanwhile."""


@dataclass(frozen=True)
class ErasureRequest:
    """A request to erase the records of `topic` that have one of the `keys`.

    If `despite_hold`, records in days on hold are erased too.
    """

    config: ConnectorConfig = field(repr=False)
    topic: str
    keys: tuple[bytes, ...] = field(repr=False)
    run_id: str
    despite_hold: bool = False


@dataclass(frozen=True)
class ErasureTask:
    """A live segment to search or to rewrite. `merged` are the segments that may have been merged into it.

    `late_count` of the remaining records are late. `writer` is the run that rewrites the segment.
    """

    store: StoreSettings = field(repr=False)
    keys: tuple[bytes, ...] = field(repr=False)
    segment: Segment
    merged: tuple[Segment, ...] = ()
    late_count: int = 0
    writer: Provenance | None = None


@dataclass(frozen=True)
class SearchedSegment:
    """A segment after it was read to its end.

    `counts` has the number of its records for each key, in the order of the keys. `erased` is the index row for these
    records. If there are none, `counts` is empty and `erased` is None. `merged` are the merged segments that hold some
    of them. If there is an `error`, the segment could not be read, so nothing is certain about it.
    """

    segment: Segment
    counts: tuple[int, ...] = ()
    erased: Segment | None = None
    merged: tuple[Segment, ...] = ()
    error: PlatformError | None = None


@dataclass(frozen=True)
class ErasureReport:
    """Result of an erasure, or its plan if it is not `applied`.

    `counts` has the number of records for each key, in the order of the keys, including records on hold. `erased` are
    the rows of the erased records, and `merged` the segments removed because their day holds their other records. The
    records of `outputs` were read back, and were as before. `leftovers` are objects with erased records that an earlier
    run did not delete. `removed` objects were deleted. `not_deleted` objects were not the index's, and stay. `faults`
    are sentences about objects not searched or not deleted, and `unreached` about other places where such records may
    be.
    """

    topic: str
    applied: bool
    counts: tuple[int, ...]
    searched: tuple[Segment, ...] = ()
    erased: tuple[Segment, ...] = ()
    merged: tuple[Segment, ...] = ()
    on_hold: tuple[Segment, ...] = ()
    outputs: tuple[Segment, ...] = ()
    leftovers: tuple[StoredObject, ...] = ()
    removed: tuple[StoredObject, ...] = ()
    not_deleted: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    unreached: tuple[str, ...] = ()

    @property
    def record_count(self) -> int:
        return sum(s.record_count for s in self.erased)


def erase_records(request: ErasureRequest, runner: TaskRunner, *, applies: bool) -> ErasureReport:
    """Search the topic's archive for records with the keys, and erase them if `applies` is True.

    Raises store errors, and SupersededError if a later erasure of the topic, or a vacuum, has ended this one, in which
    case nothing was committed.
    """
    index = TopicIndex.of(request.config, request.topic)
    if index.peek() is None:
        return ErasureReport(request.topic, applies, (0,) * len(request.keys))
    erasure = _Erasure(request, index, runner)
    erasure.search()
    unreached = [*erasure.list_unreached()]
    leftovers = tuple(erasure.list_leftovers(index.open()))
    report = erasure.apply() if applies else erasure.report()
    return replace(report, applied=applies, leftovers=leftovers, unreached=(*report.unreached, *unreached))


class _Erasure:
    """One erasure: the results of its searches and its new segments, by the key of each searched segment."""

    def __init__(self, request: ErasureRequest, index: TopicIndex, runner: TaskRunner) -> None:
        self._request = request
        self._config = request.config
        self._index = index
        self._runner = runner
        self._store = ObjectStore(request.config.store)
        self._searched: dict[str, SearchedSegment] = {}
        self._outputs: dict[str, tuple[Segment, ...]] = {}
        self._results: tuple[SearchedSegment, ...] = ()
        """The results for the segments that were live at the last search."""
        self._months: frozenset[Span | None] = frozenset()
        """Months whose days were merged. The segments of such a month are treated together, other segments by day."""
        self._unequal: Mapping[Span | None, str] = {}
        """Days and months whose objects do not hold as many records as their merged hours, each with a sentence."""

    def search(self) -> None:
        """Read all live segments of whole records, including segments that replace them in a merge meanwhile."""
        for _ in range(MAX_ROUNDS):
            snapshot = self._index.open()
            live = [s for s in snapshot.segments if is_mergeable(s)]
            self._months = list_merged_months(snapshot)
            self._read([s for s in live if s.key not in self._searched], snapshot.retired)
            self._results = tuple(self._searched[s.key] for s in live)
            failed_keys = {r.segment.key for r in self._results if r.error is not None}
            for key in failed_keys:
                # it may have been replaced while it was read, or be put back before the next search
                del self._searched[key]
            snapshot = self._index.open()
            if failed_keys <= {s.key for s in snapshot.segments}:
                self._unequal = self._find_unequal(snapshot)
                return

    def _read(self, segments: Sequence[Segment], retired: Sequence[Segment]) -> None:
        """Search segments, each with the retired segments that may be merged into it, and keep the results."""
        merged: dict[Place, list[Segment]] = defaultdict(list)
        for segment in retired:
            merged[self._find_place(segment)].append(segment)
        tasks = [
            ErasureTask(self._config.store, self._request.keys, s, _list_overlaps(s, merged[self._find_place(s)]))
            for s in segments
        ]
        progress = Progress(logger, f"search {self._request.topic}", len(tasks), sum(s.size for s in segments))
        for result in self._run(search_segment, tasks):
            segment = result.segment
            progress.advance(segment.size, segment.record_count, segment.record_bytes)
            self._searched[segment.key] = result

    def _run(self, function: Callable[[ErasureTask, Attempt], R], tasks: Sequence[ErasureTask]) -> Iterator[R]:
        return self._runner.run_grouped(function, tasks, self._config.tasks_max, lambda t: t.segment.record_count)

    @property
    def _due(self) -> dict[str, SearchedSegment]:
        """The segments to rewrite, by key: they are not on hold, and no object of their day is in doubt."""
        doubtful = {self._find_place(r.segment) for r in self._results if r.error is not None}
        places = (self._find_place(s) for r in self._results for s in r.merged)
        doubtful.update(place for place in places if place[1] in self._unequal)
        return {
            r.segment.key: r
            for r in self._results
            if r.erased is not None and not self._is_on_hold(r.segment) and self._find_place(r.segment) not in doubtful
        }

    def _find_place(self, segment: Segment) -> Place:
        """Return a segment's kafka partition, day or month, and timezone, within which hours are merged."""
        return segment.kafka_partition, choose_holder(find_day(segment), self._months), segment.zone.key

    def _find_unequal(self, snapshot: IndexSnapshot) -> dict[Span | None, str]:
        """Return a fault for each day or month whose number of records differs from its merged hours.

        These hours have to stay, because some records may be in their objects only. Retention makes the same comparison
        before it removes hours.
        """
        unequal: dict[Span | None, str] = {}
        for span in {self._find_place(s)[1] for r in self._results for s in r.merged}:
            if span is not None and (loss := explain_lost_records(snapshot, span)):
                unequal[span] = f"nothing of {_describe_span(span)} goes: {loss}"
        return unequal

    def _is_on_hold(self, segment: Segment) -> bool:
        """Return True if a hold forbids erasing from the segment. Records out of range may be in any day on hold."""
        rules = self._config.archive.retention
        topic = self._request.topic
        span = find_span(segment)
        if self._request.despite_hold:
            return False
        # records of no day may belong to any day
        is_named = any(name in {topic, "*"} for name, _, _ in rules.holds)
        if span is None:
            return is_named
        return rules.is_on_hold(topic, *cover_days(span, [segment.zone], ZoneInfo(self._config.layout.timezone)))

    def apply(self) -> ErasureReport:
        """Rewrite segments without the records to erase, commit them, and delete old objects, even of killed runs."""
        if self._due:
            refuse_wrong_clock(self._config, self._store)
            due = self._due.values()
            refuse_without_right(self._config, self._store, [*(r.segment for r in due), *_list_merged(due)])
            check_promises(self._store, self._config.archive.index_dir, uploads=True)
            self._runner.start()
            lease = retry_commit(self._index, self._reserve)
            with released_on_failure(self._index.within_connector, [lease]):
                self._replace(lease)
        report = self.report()
        logger.info("%s: %d records of %d objects erased", report.topic, report.record_count, len(report.erased))
        snapshot = self._index.open()
        present = self.list_leftovers(snapshot)
        report = replace(report, unreached=tuple(self._list_later(snapshot)))
        try:
            foreign_keys = tuple(delete_objects(self._store, present))
        except PlatformError as err:
            # report in any case what was committed, and that its old objects may still be there
            text = f"the index names no record with a key, but old objects that hold some were not deleted: {err}"
            return replace(report, faults=(*report.faults, f"{text}. Run it again"))
        removed = tuple(item for item in present if item.key not in foreign_keys)
        return replace(report, removed=removed, not_deleted=foreign_keys)

    def list_leftovers(self, snapshot: IndexSnapshot) -> list[StoredObject]:
        """Return the objects with erased records that are still in the store, even from killed runs."""
        live_keys = collect_object_keys((*snapshot.segments, *snapshot.retired))
        siblings = chain.from_iterable(row.siblings for row in snapshot.erased)
        objects = [item for item in dict.fromkeys(siblings) if item.key not in live_keys]
        infos = self._store.heads([item.key for item in objects])
        return [item for item, info in zip(objects, infos, strict=True) if info is not None]

    def _reserve(self, snapshot: IndexSnapshot) -> Lease:
        """Commit the lease of this run to erase records of the topic. This ends an earlier erasure of the topic."""
        run_id = self._request.run_id
        topic = self._request.topic
        row = Compaction(None, run_id, snapshot.version + 1, datetime.now(timezone.utc))
        superseded = [c for c in snapshot.state.compactions if c.chunk_start is None]
        change = Change(added=(row,), run_id=run_id)
        return take_leases(snapshot.connector_snapshot, {topic: change}, {topic: superseded})[topic]

    def _replace(self, lease: Lease) -> None:
        """Write the due segments anew and commit them. Raise IndexConflictError if others keep changing them."""
        for _ in range(MAX_ROUNDS):
            failed_keys = self._rewrite(lease)
            # if another run has replaced segments meanwhile, the new ones are searched and rewritten in their place
            if failed_keys <= {s.key for s in self._index.open().segments} and self._commit(lease):
                return
            self.search()
        raise IndexConflictError(
            f"{self._index.uri}, topic {self._request.topic}: {MAX_ROUNDS} times others changed what was to be erased; "
            f"nothing was committed. Run it again"
        )

    def _rewrite(self, lease: Lease) -> set[str]:
        """Write those due segments not written yet, without the records to erase.

        Return the keys of segments that failed. Nothing is erased from their places (a day or month of a kafka
        partition).
        """
        snapshot = self._index.open()
        topic = snapshot.state.topic
        writer = lease.build_provenance(self._config, topic.topic_id if topic else "", snapshot.index_id)
        due = {key: result for key, result in self._due.items() if key not in self._outputs}
        tasks = [
            ErasureTask(self._config.store, self._request.keys, r.segment, late_count=_count_late(r), writer=writer)
            for r in due.values()
        ]
        progress = Progress(
            logger, f"erase from {self._request.topic}", len(tasks), sum(r.segment.size for r in due.values())
        )
        errors: dict[str, PlatformError] = {}
        for key, outcome in self._run(rewrite_segment, tasks):
            if isinstance(outcome, PlatformError):
                errors[key] = outcome
            else:
                self._outputs[key] = outcome
            progress.advance(due[key].segment.size, due[key].segment.record_count, due[key].segment.record_bytes)
        self._results = tuple(replace(r, error=errors.get(r.segment.key, r.error)) for r in self._results)
        return {*errors}

    def _commit(self, lease: Lease) -> bool:
        """Put the written segments in the place of the due ones. Return False if one of these is no longer live."""
        due = {result.segment for result in self._due.values()}

        def plan(connector_snapshot: ConnectorSnapshot) -> tuple[Mapping[str, Change], bool]:
            snapshot = connector_snapshot.topic(lease.topic)
            if not lease.is_held(snapshot.state):
                raise SupersededError(
                    f"{lease.uri}, topic {lease.topic}: the erasure of run {lease.run_id} was ended by a later erasure "
                    f"of the topic or by a vacuum; it commits nothing. Run it again"
                )
            is_live = due <= set(snapshot.segments)
            return ({lease.topic: self._build_change(snapshot, lease)} if is_live else {}), is_live

        return self._index.within_connector.commit_planned(plan)

    def _build_change(self, snapshot: IndexSnapshot, lease: Lease) -> Change:
        """Build the index rows of the erasure: new segments for the due ones, and the numbers of the erased records."""
        # retention may have removed some of the merged segments meanwhile
        merged = frozenset(_list_merged(self._due.values())).intersection(snapshot.retired)
        hours = tuple(s for s in merged if s.chunk == "hourly")
        return Change(
            added=tuple(chain.from_iterable(self._outputs[key] for key in self._due)),
            # the digest of a record and a time would be a hash of its key
            emptied=tuple(map(forget_sums, hours)),
            dropped=(*(r.segment for r in self._due.values()), *merged.difference(hours)),
            erased=_list_erased(self._due.values()),
            removed=lease.end,
            run_id=lease.run_id,
        )

    def report(self) -> ErasureReport:
        """Return the report: the searched segments, the records to erase, and the segments written without them."""
        due = self._due
        counts = np.zeros(len(self._request.keys), np.int64)
        for result in self._results:
            counts += np.array(result.counts or 0, np.int64)
        return ErasureReport(
            topic=self._request.topic,
            applied=False,
            counts=tuple(counts.tolist()),
            searched=tuple(r.segment for r in self._results if r.error is None),
            erased=_list_erased(due.values()),
            merged=_list_merged(due.values()),
            on_hold=_list_erased(r for r in self._results if self._is_on_hold(r.segment)),
            outputs=tuple(chain.from_iterable(self._outputs.get(key, ()) for key in due)),
            faults=tuple(self._list_faults()),
        )

    def _list_faults(self) -> Iterator[str]:
        """Yield the reasons why objects of the archive may still hold records with a key."""
        snapshot = self._index.open()
        for result in self._results:
            if result.error is not None:
                number, span, _ = self._find_place(result.segment)
                place = f"kafka partition {number}, {_describe_span(span)}"
                yield f"nothing of {place} goes while an object cannot be read: {result.error}"
        yield from self._unequal.values()
        values = [s for s in snapshot.segments if not is_mergeable(s)]
        for name, number in sorted(Counter(s.format for s in values).items()):
            yield (
                f"{count_noun(number, 'object')} of format {name} were not searched: the format holds values only, so "
                f"the key of a record is not there. Retention can remove their days (archive.retention.ms, "
                f"archive.retention.before)"
            )

    def list_unreached(self) -> Iterator[str]:
        """Yield, for the report, each place outside the archive that may hold records with the keys."""
        snapshot = self._index.open()
        yield f"objects that the index does not name: `kafka-s3 vacuum {self._config.name} --dry-run` lists them"
        yield "archives of the topic by other connectors"
        if any(not gap.is_lost for gap in snapshot.state.judge.left_out):
            yield "the objects of the sink before this one"
        if snapshot.state.unresolved:
            yield "offsets that could not be archived: if they are read again, their records are archived"
        yield f"topic {self._request.topic} in Kafka, and topics that were restored from it"
        if letters := self._config.records.errors.dead_letter_topic:
            yield f"the dead letter topic {letters}"
        yield "copies of the bucket, and plans and reports of restores with the key as their filter"
        try:
            status = self._store.read_bucket_setting("get_bucket_versioning").get("Status", "none")
        except PlatformError as err:
            status = f"unknown: {err}"
        yield (
            f"versions of the deleted objects (versioning of the bucket: {status}): delete them, or let a lifecycle "
            f"rule with NoncurrentVersionExpiration do it, when no lock holds them"
        )

    def _list_later(self, snapshot: IndexSnapshot) -> Iterator[str]:
        """Yield a sentence about objects archived since the search, which may hold such records too."""
        searched_keys = {r.segment.key for r in self._results}
        searched_keys.update(s.key for s in chain.from_iterable(self._outputs.values()))
        later = [s for s in snapshot.segments if is_mergeable(s) and s.key not in searched_keys]
        if later:
            count = count_noun(sum(s.record_count for s in later), "record")
            yield f"{count_noun(len(later), 'object')} with {count} that came meanwhile: run it again"


def _list_overlaps(segment: Segment, merged: Iterable[Segment]) -> tuple[Segment, ...]:
    """Return the merged segments whose offsets overlap, as they may hold the same records. An hour has none."""
    if segment.chunk == "hourly":
        return ()
    start = segment.start_offset
    end = segment.end_offset
    return tuple(s for s in merged if s.start_offset < end and start < s.end_offset)


def _describe_span(span: Span | None) -> str:
    if span is None:
        return "no day (out of range)"
    return f"{'month' if isinstance(span, Month) else 'day'} {span}"


def _list_erased(results: Iterable[SearchedSegment]) -> tuple[Segment, ...]:
    return tuple(r.erased for r in results if r.erased is not None)


def _list_merged(results: Iterable[SearchedSegment]) -> tuple[Segment, ...]:
    """Return the merged hours to remove, each once, as several objects of a day may hold records of one hour."""
    return tuple(dict.fromkeys(chain.from_iterable(r.merged for r in results)))


def _count_late(result: SearchedSegment) -> int:
    return result.segment.late_count - (result.erased.late_count if result.erased else 0)


def search_segment(task: ErasureTask, _: Attempt) -> SearchedSegment:
    """Read a segment to its end, and count its records for each key. A permanent error becomes part of the result.

    Merged segments that include the offset of such a record are read too.
    """
    store = ObjectStore(task.store)
    matches = _Matches(task)
    try:
        for batch in read_checked(store, task.segment):
            matches.add(batch)
    except AuthorizationError:
        raise
    except PermanentError as err:
        return SearchedSegment(task.segment, error=err)
    return matches.build_result(tuple(s for s in matches.list_touched() if _may_hold(store, s, task.keys)))


def _may_hold(store: ObjectStore, segment: Segment, keys: Sequence[bytes]) -> bool:
    """Return True if a record of a merged segment has a key, or if the segment cannot be read."""
    try:
        places = (find_keys(batch, keys) for batch in read_checked(store, segment))
        return any(column.null_count < len(column) for column in places)
    except PermanentError:
        return True


def find_keys(batch: pa.RecordBatch, keys: Sequence[bytes]) -> pa.Int32Array:
    """Return for each record the place of its key in `keys`, or null if it is none of them."""
    return pc.index_in(batch.column("key"), value_set=pa.array(keys, pa.binary()), skip_nulls=True)


class _Matches:
    """The records of a segment with one of the keys: their numbers, and the merged segments around their offsets."""

    def __init__(self, task: ErasureTask) -> None:
        self._task = task
        self._counts = np.zeros(len(task.keys), np.int64)
        self._digest = RecordDigest()
        self._offsets: list[int] = []
        self._times: list[int] = []
        self._starts = np.array([s.start_offset for s in task.merged], np.int64)
        self._ends = np.array([s.end_offset for s in task.merged], np.int64)
        self._is_touched = np.zeros(len(task.merged), bool)

    def add(self, batch: pa.RecordBatch) -> None:
        """Count the records of a batch that have one of the keys, and note the span of their offsets and times."""
        places = find_keys(batch, self._task.keys)
        if places.null_count == len(places):
            return
        records = batch.filter(places.is_valid())
        self._counts += np.bincount(places.drop_null().to_numpy(), minlength=len(self._counts))
        self._digest.update(records)
        offsets: Int64s = read_offset_column(records)
        times = records.column("timestamp").cast(pa.int64()).to_numpy()
        self._offsets += int(offsets[0]), int(offsets[-1])
        self._times += int(times.min()), int(times.max())
        self._is_touched |= np.searchsorted(offsets, self._starts) < np.searchsorted(offsets, self._ends)

    def list_touched(self) -> list[Segment]:
        """Return the merged segments whose offsets include a record with one of the keys."""
        return [s for s, is_touched in zip(self._task.merged, self._is_touched, strict=True) if is_touched]

    def build_result(self, merged: tuple[Segment, ...]) -> SearchedSegment:
        """Return the result. `merged` are the merged segments with such records."""
        segment = self._task.segment
        count = int(self._counts.sum())
        if not count:
            return SearchedSegment(segment)
        # Which records are late is not archived, so as many of them as possible are counted among the others.
        late_count = max(0, segment.late_count - (segment.record_count - count))
        row = replace(
            segment,
            start_offset=self._offsets[0],
            end_offset=self._offsets[-1] + 1,
            record_count=count,
            late_count=late_count,
            record_bytes=self._digest.record_bytes,
            size=0,
            etag="",
            sha256="",
            digest="",
            min_timestamp=min(self._times),
            max_timestamp=max(self._times),
            siblings=(*segment.objects, *chain.from_iterable(s.objects for s in merged)),
        )
        return SearchedSegment(segment, tuple(self._counts.tolist()), row, merged)


def rewrite_segment(task: ErasureTask, attempt: Attempt) -> tuple[str, tuple[Segment, ...] | PlatformError]:
    """Write the records of a segment that have none of the keys to new segments, and read these back.

    Return the segment's key and the new segments. If the segment is gone or not as in the index, or if the records read
    back are not the ones to keep, return the error in place of the new segments. Then nothing of its day is removed.

    Raises:
        AuthorizationError: the store refuses.
        TransientError: the store does not answer.
    """
    try:
        return task.segment.key, _rewrite(task, attempt)
    except AuthorizationError:
        raise
    except PermanentError as err:
        return task.segment.key, err


def _rewrite(task: ErasureTask, attempt: Attempt) -> tuple[Segment, ...]:
    """Write the remaining records to new segments, and read them back. Raises IntegrityError if they differ."""
    assert task.writer is not None  # noqa: S101 - it is a task to rewrite
    store = ObjectStore(task.store)
    expected = _Contents()

    def list_others() -> Iterator[tuple[pa.RecordBatch, int]]:
        late_count = task.late_count
        for batch in cut_batches(_drop_matches(read_checked(store, task.segment), task.keys)):
            expected.add(batch)
            yield batch, late_count
            late_count = 0

    target, bucket = _make_target(task.segment, replace(task.writer, attempt=attempt.attempt_id))
    segments = write_segments(target, store, bucket, list_others())
    actual = _Contents()
    for batch in chain.from_iterable(read_checked(store, s) for s in segments):
        places = find_keys(batch, task.keys)
        if places.null_count < len(places):
            raise IntegrityError(f"{task.segment.key}: a record to erase was read back. {_DEFECT}")
        actual.add(batch)
    if expected.digests != actual.digests:
        raise IntegrityError(f"{task.segment.key}: other records were read back than were to stay. {_DEFECT}")
    return tuple(segments)


_DEFECT = "This is a defect of the platform"


def _drop_matches(batches: Iterable[pa.RecordBatch], keys: Sequence[bytes]) -> Iterator[pa.RecordBatch]:
    """Yield the batches without the records that have one of the keys."""
    for batch in batches:
        others = batch.filter(find_keys(batch, keys).is_null())
        if others.num_rows:
            yield others


class _Contents:
    """Digests of records, of all columns but the kafka partition, which the reader compares."""

    def __init__(self) -> None:
        self._records = RecordDigest()
        self._places = xxhash.xxh3_128()
        self._topics = xxhash.xxh3_128()

    def add(self, batch: pa.RecordBatch) -> None:
        self._records.update(batch)
        numbers = np.stack(
            [batch.column(name).to_numpy().astype("<i8") for name in ("offset", "timestampType")], axis=1
        )
        self._places.update(numbers.tobytes())
        self._topics.update(read_strings(batch.column("topic")).data)

    @property
    def digests(self) -> tuple[str, ...]:
        return self._records.hexdigest(), self._places.hexdigest(), self._topics.hexdigest()


def _make_target(segment: Segment, writer: Provenance) -> tuple[SegmentTarget, Bucket]:
    """Return the target and the bucket for the segments that replace this one, by its layout."""
    layout = LayoutSettings.model_validate_json(segment.settings)
    parsed = new_segment_layout(layout).parse(segment.key)
    hour_ms = None if segment.chunk_start is None else to_epoch_ms(segment.chunk_start)
    target = SegmentTarget(
        layout,
        writer.topic,
        segment.kafka_partition,
        writer,
        chunk=segment.chunk,
        rewrite=True,
        schema_ids=frozenset(segment.schema_ids),
        start_hour=segment.start_hour,
    )
    return target, Bucket(hour_ms, segment.encoded_partition, parsed.topic if parsed else None)
