"""The plan of a restore of our archive: objects and records, with their targets.

A plan is made once for a restore id and stays in the bucket. It names requested records the archive lacks. Planning
refuses ambiguous schema ids.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from itertools import chain, groupby
from zoneinfo import ZoneInfo

from kafka_s3_platform.core.config.formats import find_format
from kafka_s3_platform.core.errors import ErrorCode, IntegrityError, MissingTopicError, PreflightError
from kafka_s3_platform.core.model.gaps import Gap, GapReason, MissingRecords
from kafka_s3_platform.core.model.offsets import OffsetRange, OffsetSpan, RangeSet, make_span
from kafka_s3_platform.core.model.segment import Segment, StoredObject, TopicAcl, TopicGeneration
from kafka_s3_platform.core.model.state import IndexState
from kafka_s3_platform.core.model.times import EPOCH, HOUR, ONE_MS
from kafka_s3_platform.core.model.turns import join_hours
from kafka_s3_platform.core.restore.request import RestoreRequest
from kafka_s3_platform.core.restore.source.base import ObjectFacts, RestorePlan, TargetPlan, TargetStart
from kafka_s3_platform.core.restore.source.selection import FOREVER, Selection, list_time_windows, select_records
from kafka_s3_platform.core.restore.source.terms import check_plan_field, collect_request_terms, hash_place
from kafka_s3_platform.core.segments.schemas import find_ambiguous_ids
from kafka_s3_platform.core.store.index import ConnectorIndex, IndexSnapshot, TopicIndex
from kafka_s3_platform.core.store.index_rows import ERASED, EXPIRED
from kafka_s3_platform.core.store.row_filter import SegmentFilter
from kafka_s3_platform.core.text import count_noun, find_nearest

MAX_STRETCHES = 20
"""A sentence names at most this many stretches of offsets or hours."""

_GAPS: Mapping[GapReason, str] = {
    "retention": "were lost to retention before they were archived",
    "before archiving began": "were deleted before archiving began",
    "skipped": "were skipped by somebody's decision",
    "truncated": "were lost by the log after they were archived; what it holds there since is not archived",
    "cut off": "were lost by the log before they were archived; what is archived there came later",
    "taken over": "were archived by another sink, before this connector took over from it",
}
"""Descriptions of gaps."""


def describe_gaps(
    request: RestoreRequest, state: IndexState, selection: Selection, segments: Sequence[Segment]
) -> Iterator[MissingRecords]:
    """Describe the requested offsets and hours that the archive lacks, with the reasons.

    `segments` are the archived ones that overlap the selection.
    """
    topic = request.topic
    for window in selection.windows:
        p = window.kafka_partition
        covered = state.coverage(p)
        gaps = [g for g in state.judge.left_out if g.kafka_partition == p]
        # Without an end of its own, a window goes to the archive's end: anything after it is no gap.
        end = (covered.end_offset or 0) if window.end_offset == FOREVER else window.end_offset
        requested = make_span(window.start_offset, end)
        if selection.is_timed:
            requested &= _surround([s for s in segments if s.kafka_partition == p], gaps)
        for gap in gaps:
            yield from (MissingRecords.of(topic, p, r, _GAPS[gap.reason]) for r in requested.within(gap.offsets))
        missing = requested - covered - RangeSet(g.offsets for g in gaps)
        yield from (MissingRecords.of(topic, p, r, f"are not archived{_write_end(r, covered)}") for r in missing)
    yield from _describe_incomplete(request, state)


def describe_expired(topic: str, expired: Sequence[Segment]) -> Iterator[MissingRecords]:
    """Describe the records removed by a rule of retention, in a sentence for each kafka partition."""
    for kafka_partition, group in groupby(expired, key=lambda s: s.kafka_partition):
        segments = list(group)
        hours = _join_stretches(sorted({s.chunk_start for s in segments if s.chunk_start}))
        yield MissingRecords(
            f"{topic}-{kafka_partition}: {count_noun(sum(s.record_count for s in segments), 'record')} of hours "
            f"{', '.join(hours[:MAX_STRETCHES])} expired: a rule of retention removed them from the archive"
        )


def describe_erased(topic: str, erased: Sequence[Segment]) -> Iterator[MissingRecords]:
    """Describe the records erased by request, in a sentence for each kafka partition."""
    for kafka_partition, group in groupby(erased, key=lambda s: s.kafka_partition):
        segments = list(group)
        offsets = OffsetRange(segments[0].start_offset, max(s.end_offset for s in segments))
        yield MissingRecords(
            f"{topic}-{kafka_partition}: up to {count_noun(sum(s.record_count for s in segments), 'record')} of these"
            f" hours and offsets, within {offsets}, were erased by request"
        )


def _write_end(missing: OffsetRange, covered: RangeSet) -> str:
    """Return the rest of a sentence about missing offsets beyond the archive's end, else nothing."""
    end = covered.end_offset or 0
    return f", or were never there: the archive ends at offset {end}" if missing.end_offset > end else ""


def describe_values_only(topic: str, chosen: Iterable[Segment]) -> Iterator[str]:
    """Describe the objects that hold values only, in a sentence for each kafka partition and format."""
    segments_of_values = sorted(
        (s for s in chosen if not find_format(s.format).is_envelope),
        key=lambda s: (s.kafka_partition, s.format, s.start_offset),
    )
    for (number, format_name), group in groupby(segments_of_values, key=lambda s: (s.kafka_partition, s.format)):
        segments = list(group)
        records = sum(s.record_count for s in segments)
        ranges = RangeSet(s.offsets for s in segments)
        shown = ", ".join(str(r) for r in list(ranges)[:MAX_STRETCHES])
        yield (
            f"{topic}-{number}: {len(segments)} objects ({records:,} records within offsets {shown}) are of format "
            f"{format_name}, which their connector wrote then. It holds values only, of which no restore of the "
            f"archive can make the records that they were"
        )


def _surround(segments: Sequence[Segment], gaps: Iterable[Gap]) -> RangeSet:
    """Return the offsets from the segments' first to their last one, and the offsets of the gaps that touch these.

    The records of such a gap may have had timestamps in the selected window of time.
    """
    if not segments:
        return RangeSet()
    inside = OffsetRange(min(s.start_offset for s in segments), max(s.end_offset for s in segments))
    touching = (g for g in gaps if g.start_offset <= inside.end_offset and inside.start_offset <= g.end_offset)
    return RangeSet([inside, *(g.offsets for g in touching)])


def _describe_incomplete(request: RestoreRequest, state: IndexState) -> Iterator[MissingRecords]:
    """Describe the incomplete hours of the windows of time, which may get more records later."""
    hours = _list_hours(request)
    lateness = timedelta(milliseconds=request.config.archive.allowed_lateness_ms)
    missing = sorted(set(hours) - state.judge.list_complete(hours, lateness))
    if missing:
        named = ", ".join(_join_stretches(missing)[:MAX_STRETCHES])
        yield MissingRecords(
            f"{request.topic}: {len(missing)} of {len(hours)} hours are not complete in the archive ({named}): what is "
            f"not archived yet may hold more of their records, until the archive goes far enough (kafka-s3 archive "
            f"{request.config.name} --until-now)"
        )


def _join_stretches(hours: Sequence[datetime]) -> list[str]:
    """Write ascending hours, with consecutive ones as one stretch: `2026-03-01T10:00+0000 to 2026-03-01T12:00+0000`."""
    stretches = []
    for start, end in join_hours(hours):
        first, last = (f"{hour:%Y-%m-%dT%H:%M%z}" for hour in (start, end - HOUR))
        stretches.append(first if first == last else f"{first} to {last}")
    return stretches


def _list_hours(request: RestoreRequest) -> list[datetime]:
    """List, ascending, the hours in the windows of time that may be archived by now. They begin as in the archive.

    For a window without an end, these are the hours that are over, together with the time for their late records.
    """
    archive = request.config.archive
    zone = ZoneInfo(request.config.layout.timezone)
    now = datetime.now(timezone.utc)
    last = now - HOUR - timedelta(milliseconds=archive.allowed_lateness_ms)
    hours: set[datetime] = set()
    for from_ms, to_ms in list_time_windows(request):
        start = archive.start_hour if from_ms == -FOREVER else max(archive.start_hour, EPOCH + from_ms * ONE_MS)
        end = last if to_ms == FOREVER else min(now, EPOCH + to_ms * ONE_MS)
        # An hour begins as in its zone, which may differ from UTC by less than whole hours.
        first = start.astimezone(zone).replace(minute=0, second=0, microsecond=0).astimezone(timezone.utc)
        # Steps in UTC: when clocks change, a local hour is missing or comes twice.
        hours.update(first + n * HOUR for n in range(-((first - end) // HOUR)))
    return sorted(hours)


def check_schema_ids(request: RestoreRequest, snapshot: IndexSnapshot, segments: Sequence[Segment]) -> None:
    """Raise PreflightError if records must be decoded, and name schema ids that registries use differently."""
    outgoing = request.outgoing
    if not (outgoing.changes_content or outgoing.map_schema_ids):
        return
    named = set(chain.from_iterable(segment.schema_ids for segment in segments))
    ambiguous = find_ambiguous_ids(snapshot.state.schemas, request.config.records)
    if ambiguous_ids := sorted(ambiguous.keys() & named):
        where = "; ".join(
            f"{schema_id} is a different schema in each of {' and '.join(ambiguous[schema_id])}"
            for schema_id in ambiguous_ids
        )
        raise PreflightError(
            f"records of topic {request.topic} name schema ids that registries have given to different schemas: "
            f"{where}. A record may mean any of them. Restore without mapping schema ids and without converters and "
            "transforms of keys or values, which leaves their bytes as they are, or restore a window without these "
            "records"
        )


def describe_missing_schemas(
    request: RestoreRequest, state: IndexState, segments: Sequence[Segment]
) -> Iterator[MissingRecords]:
    """Describe the schemas of the chosen segments that the archive lacks."""
    if not request.outgoing.map_schema_ids:
        return
    named = set(chain.from_iterable(s.schema_ids for s in segments))
    if missing := sorted(named.difference(*((s.schema_id, s.schema_guid) for s in state.schemas)), key=str):
        yield MissingRecords(
            f"{request.topic}: schemas {missing} were not archived (their registry did not answer, or does not know "
            f"them): records that name them are bad ones, behavior.on.error decides"
        )


@dataclass(frozen=True, slots=True)
class PlannedObject(OffsetSpan):
    """One object of the archive as the index held it when the restore was planned. The fields are as in `Segment`."""

    key: str
    etag: str
    size: int
    sha256: str
    digest: str
    kafka_partition: int
    start_offset: int
    end_offset: int
    record_count: int
    record_bytes: int
    min_timestamp: int
    max_timestamp: int
    out_of_range: bool
    format: str

    @property
    def stored_object(self) -> StoredObject:
        """The object as it was finished. Its SHA-256 is empty for an object of another sink."""
        return StoredObject(self.key, self.size, self.etag, self.sha256)


@dataclass(frozen=True, kw_only=True)
class ArchivePlan(RestorePlan):
    """The plan for replaying the objects of one topic.

    `gaps` are requested records the archive lacks. `values_only` are sentences about objects of the selection that are
    not in `objects`, because their format holds no whole records.
    """

    kind = "an archive with an index"

    source: TopicGeneration
    index_version: int
    selection: Selection
    objects: tuple[PlannedObject, ...]
    allow_unsendable_timestamps: bool
    gaps: tuple[MissingRecords, ...] = ()
    values_only: tuple[str, ...] = ()

    @property
    def to_topic(self) -> str:
        return str(self.terms["to_topic"])

    @property
    def kafka_partitions(self) -> tuple[int, ...]:
        """The source kafka partitions with records to restore."""
        return tuple(sorted({o.kafka_partition for o in self.objects}))

    def objects_of(self, kafka_partition: int) -> tuple[PlannedObject, ...]:
        """Return the objects of one source kafka partition."""
        return tuple(o for o in self.objects if o.kafka_partition == kafka_partition)

    @property
    def start(self) -> TargetStart:
        """The target before the first record. Raises ValueError if the restore has not begun."""
        [start] = (self.starts or {}).values()
        return start

    @property
    def is_exact(self) -> bool:
        """True if every record of every object is restored, so that the index holds the exact number."""
        return not self.facts.chooses and all(map(self.selection.holds, self.objects))

    @property
    def record_count(self) -> int:
        """The number of records to restore: exact if `is_exact`, else an upper bound."""
        return sum(self.records_at_most(o) for o in self.objects)

    def records_at_most(self, item: PlannedObject) -> int:
        """Return an upper bound of the number of records restored from the object."""
        start, end = self.selection.bounds(item)
        return max(0, min(item.record_count, end - start))


def make_archive_target(request: RestoreRequest, plan: ArchivePlan) -> TargetPlan:
    """Return the part of the plan for its target topic, in the form the checks of a target need."""
    selection = plan.selection
    return TargetPlan(
        request=request,
        topics=(request.topic,),
        facts=plan.facts,
        objects=tuple(
            ObjectFacts(
                key=o.key,
                kafka_partition=o.kafka_partition,
                size=o.size,
                record_count=o.record_count,
                wanted_count=plan.records_at_most(o),
                record_bytes=o.record_bytes,
                oldest=max(o.min_timestamp, selection.from_ms),
                newest=min(o.max_timestamp, selection.to_ms - 1),
                is_out_of_range=o.out_of_range,
            )
            for o in plan.objects
        ),
        is_exact=plan.is_exact,
        start=(plan.starts or {}).get(request.to_topic),
        source_kafka_partitions=plan.source.kafka_partitions,
        topic_id=plan.source.topic_id,
        configs=plan.source.configs,
        acls=plan.source.acls,
        gaps=plan.gaps,
    )


def make_plan(request: RestoreRequest, connector_index: ConnectorIndex | None = None) -> ArchivePlan:
    """Choose objects from the current index. `connector_index` is the connector's index, if it is open already.

    Raises:
        MissingTopicError: the connector has archived nothing of the topic.
        ConfigError: the request names kafka partitions that are not archived, or an empty window of offsets.
        IntegrityError: the index is another topic's.
        PreflightError: records have to be decoded, and name schema ids that registries use differently.
    """
    config = request.config
    index = TopicIndex(connector_index or ConnectorIndex.of(config), request.topic)
    snapshot = index.peek()
    source = snapshot.state.topic if snapshot else None
    if snapshot is None or source is None:
        connector_snapshot = index.within_connector.peek()
        near = (
            find_nearest(request.topic, [topic for topic in connector_snapshot.topics if topic != request.topic])
            if connector_snapshot
            else None
        )
        raise MissingTopicError(
            f"connector {config.name} has archived nothing of topic {request.topic}: there is no index at {index.uri}"
            f"{' that has it' if connector_snapshot else ''}. Archive it first, or correct the topic, the connector or "
            f"archive.index.dir{f'. Did you mean {near}?' if near else ''}",
            code=ErrorCode.ARCHIVE_TOPIC,
        )
    if source.topic != request.topic:
        raise IntegrityError(
            f"{index.uri} holds topic {source.topic} instead of {request.topic}: the folder of an earlier index was "
            "copied or moved. Put each index back into the folder of its topic"
        )
    numbers = {*source.kafka_partitions, *snapshot.state.scanned_kafka_partitions}
    selection = select_records(request, numbers)
    segment_filter = _make_filter(selection)
    chosen = [s for s in snapshot.select_segments(segment_filter) if selection.overlaps(s)]
    expired = [s for s in snapshot.select_segments(segment_filter, [EXPIRED]) if selection.overlaps(s)]
    erased = [s for s in snapshot.select_segments(segment_filter, [ERASED]) if selection.overlaps(s)]
    check_schema_ids(request, snapshot, chosen)
    return ArchivePlan(
        restore_id=request.restore_id,
        terms=collect_request_terms(request),
        source=replace(source, kafka_partitions=tuple(sorted(numbers)), acls=_find_known_acls(snapshot.state, source)),
        index_version=snapshot.version,
        selection=selection,
        objects=tuple(_plan_object(s) for s in chosen if find_format(s.format).is_envelope),
        gaps=(
            *describe_gaps(request, snapshot.state, selection, chosen),
            *describe_expired(request.topic, expired),
            *describe_erased(request.topic, erased),
            *describe_missing_schemas(request, snapshot.state, chosen),
        ),
        allow_unsendable_timestamps=request.allow_unsendable_timestamps,
        created_at=datetime.now(timezone.utc).isoformat(),
        values_only=tuple(describe_values_only(request.topic, chosen)),
        place=hash_place(request.config),
    )


def _make_filter(selection: Selection) -> SegmentFilter:
    """Return the index's filter for the segments that may overlap the selection."""
    numbers = frozenset(window.kafka_partition for window in selection.windows)
    if not selection.windows:
        return SegmentFilter(kafka_partitions=numbers)
    offsets = (min(w.start_offset for w in selection.windows), max(w.end_offset for w in selection.windows))
    return SegmentFilter(timestamps=(selection.from_ms, selection.to_ms), kafka_partitions=numbers, offsets=offsets)


def _find_known_acls(state: IndexState, source: TopicGeneration) -> tuple[TopicAcl, ...] | None:
    """Return the last ACLs of the topic that could be read. The cluster may have refused to show them later."""
    same = (g.acls for g in reversed(state.generations) if g.topic_id == source.topic_id)
    return next((acls for acls in same if acls is not None), None)


def check_same(request: RestoreRequest, plan: ArchivePlan) -> None:
    """Check that a stored plan belongs to this request. It raises the errors of `RestorePlan.check_same`."""
    plan.check_same(
        request,
        collect_request_terms(request),
        [request.to_topic],
        selection=select_records(request, plan.source.kafka_partitions),
        allow_unsendable_timestamps=request.allow_unsendable_timestamps,
    )
    check_plan_field(request, "topic", plan.source.topic, request.topic)


def _plan_object(segment: Segment) -> PlannedObject:
    """Return the index's facts about a segment, as far as a restore needs them."""
    facts = {name: getattr(segment, name) for name in PlannedObject.__dataclass_fields__ if name != "out_of_range"}
    # A segment without an hour holds records with timestamps outside of all hours.
    return PlannedObject(**facts, out_of_range=segment.chunk_start is None)
