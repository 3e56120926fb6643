"""Check what tasks have read and written, and commit it."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import uuid4

from kafka_s3_platform.archive.reserve import ReservedPlan
from kafka_s3_platform.archive.retold import retell_rows
from kafka_s3_platform.archive.task import ScanResult
from kafka_s3_platform.archive.topics import try_topics
from kafka_s3_platform.errors import IntegrityError, PlatformError, TopicRecreatedError
from kafka_s3_platform.kafka.admin import ClusterAdmin
from kafka_s3_platform.model.offsets import RangeSet
from kafka_s3_platform.model.schema import ArchivedSchema
from kafka_s3_platform.segments.schema_ids import fetch_archived_schemas, list_registries
from kafka_s3_platform.store.index import ConnectorIndex, ConnectorSnapshot, IndexSnapshot
from kafka_s3_platform.store.index_commit import Change, retry_commit
from kafka_s3_platform.store.index_rows import IndexRow

logger = logging.getLogger(__name__)


def find_recreated_topics(admin: ClusterAdmin, plans: Mapping[str, ReservedPlan]) -> dict[str, PlatformError]:
    """Find topics that were deleted and created again while they were scanned: the archive must not mix the two.

    Return the error of each, and of those of which it is not known.
    """
    now = admin.find_topics(plans)
    failures = dict(now.failures)
    for topic, found in now.found.items():
        before = plans[topic].description.topic_id
        if found.topic_id != before:
            failures[topic] = TopicRecreatedError(
                f"topic {topic} was deleted and created again during the scan (id {before} became {found.topic_id}); "
                f"nothing of it was committed"
            )
    return failures


@dataclass(frozen=True)
class TopicSlice:
    """What tasks have read and written of one topic, to be committed. With the `last` slice its lease ends."""

    reserved: ReservedPlan
    results: Sequence[ScanResult]
    last: bool

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to commit."""
        return not self.results and not (self.last and self.reserved.plan.needed)


def _fetch_schemas(parts: Mapping[str, TopicSlice], index: ConnectorIndex) -> dict[str, tuple[ArchivedSchema, ...]]:
    if not any(list_registries(part.reserved.request.config.records) for part in parts.values()):
        return dict.fromkeys(parts, ())
    snapshot = index.open()
    return {topic: _fetch_topic_schemas(part, snapshot.topic(topic)) for topic, part in parts.items()}


def _fetch_topic_schemas(part: TopicSlice, snapshot: IndexSnapshot) -> tuple[ArchivedSchema, ...]:
    """Fetch the schemas that the records of the results name, and those that an earlier run could not fetch."""
    request = part.reserved.request
    records = request.config.records
    segments = [*snapshot.segments]
    for result in part.results:
        segments += result.segments
    schema_ids: set[int | str] = set()
    for segment in segments:
        schema_ids.update(segment.schema_ids)
    found = fetch_archived_schemas(snapshot.state, schema_ids, records)
    if found.problem:
        logger.warning("%s: schemas %s are not archived yet: %s", request.topic, found.missing, found.problem)
    return found.rows


def commit_results(index: ConnectorIndex, parts: Mapping[str, TopicSlice]) -> dict[str, PlatformError]:
    """Commit the slices of all topics in one commit on the newest version of the index.

    A topic is left out if its results do not fit its plan, or if another run has ended its lease. Return the errors of
    the topics that were left out.
    """
    checked, failures = try_topics(parts, lambda topic: _check_results(parts[topic]))
    wanted = [topic for topic in checked if not parts[topic].is_empty]
    if not wanted:
        return failures
    commit_id = str(uuid4())
    # a registry is asked once, however often the commit is tried
    schemas = _fetch_schemas({topic: parts[topic] for topic in wanted}, index)
    left_out: dict[str, PlatformError] = {}
    reserved_at = min(parts[topic].reserved.lease.epoch for topic in wanted)

    def step(snapshot: ConnectorSnapshot) -> dict[str, PlatformError]:
        # an earlier try may have committed, and only its response was lost
        if snapshot.has_commit(commit_id, reserved_at):
            return left_out
        snapshot.load_states(wanted)
        changes, superseded = try_topics(
            (topic for topic in wanted if _is_due(parts[topic], snapshot.topic(topic))),
            lambda topic: _build_change(parts[topic], snapshot.topic(topic), schemas[topic]),
        )
        left_out.clear()
        left_out.update(superseded)
        if changes:
            snapshot.commit(changes, commit_id)
        return left_out

    return {**failures, **retry_commit(index, step)}


def _is_due(part: TopicSlice, snapshot: IndexSnapshot) -> bool:
    """Whether there is something to commit: rows, or a lease to be ended.

    A commit that only ends a lease adds no row by which a second try would know it, if its response was lost.
    """
    return bool(part.results) or part.reserved.lease.is_held(snapshot.state)


def _build_change(part: TopicSlice, snapshot: IndexSnapshot, schemas: Sequence[ArchivedSchema]) -> Change:
    """Return what the slice adds and removes. Raises SupersededError if another run has ended the lease."""
    lease = part.reserved.lease
    lease.refuse_superseded(snapshot.state)
    rows: list[IndexRow] = [*schemas]
    for result in part.results:
        rows += [*result.scans, *result.segments, *result.gaps]
    told = retell_rows(snapshot.state, part.results)
    lease_end = lease.end if part.last else ()
    return Change(
        added=(*rows, *told.added),
        removed=(*lease_end, *told.removed),
        run_id=lease.run_id,
    )


def _check_results(part: TopicSlice) -> None:
    """Check that all ranges are accounted for, each offset in one segment at most, each record in one segment."""
    reserved = part.reserved
    results = part.results
    for kafka_partition in {r.kafka_partition for r in results}:
        mine = [r for r in results if r.kafka_partition == kafka_partition]
        wanted = RangeSet(item for r in mine for item in r.ranges)
        scanned = RangeSet(s.offsets for r in mine for s in r.scans)
        bad = RangeSet(u.offsets for r in mine for u in r.unresolved)
        gone = RangeSet(g.offsets for r in mine for g in r.gaps)
        if wanted != scanned | bad | gone or scanned & bad:
            raise _defect_error(reserved, kafka_partition, f"{wanted} was read, {scanned} scanned, {bad} unresolved")
        _check_segments(reserved, kafka_partition, mine, wanted)


def _check_segments(
    reserved: ReservedPlan, kafka_partition: int, results: Sequence[ScanResult], wanted: RangeSet
) -> None:
    segments = [s for r in results for s in r.segments]
    outside = [s.key for s in segments if not wanted.covers(s.start_offset, s.end_offset)]
    keys = [key for s in segments for key in s.keys]
    if outside or len(set(keys)) != len(keys):
        raise _defect_error(reserved, kafka_partition, f"objects outside the scan or named twice: {outside}")
    if sum(s.record_count for s in segments) != sum(r.record_count for r in results):
        raise _defect_error(reserved, kafka_partition, "records read and records written differ")


def _defect_error(reserved: ReservedPlan, kafka_partition: int, what: str) -> IntegrityError:
    where = f"{reserved.description.topic}-{kafka_partition}, run {reserved.lease.run_id}"
    return IntegrityError(f"{where}: {what}. This is a defect of the platform; nothing was committed")
