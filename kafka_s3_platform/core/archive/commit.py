"""Check the results of tasks, and commit them together with corrections of the index rows they make untrue.

A run (`run.py`) uses this. A *slice* is the results of one topic in one commit. A *gap* is a range of offsets missing
from the archive for good, and an *unresolved* row is a range of offsets that could not be archived so far because of an
error.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kafka_s3_platform.core.archive.reserve import ReservedPlan
from kafka_s3_platform.core.archive.task import ScanResult
from kafka_s3_platform.core.errors import IntegrityError, PlatformError, TopicRecreatedError
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.model.gaps import Gap, Unresolved, subtract_offsets
from kafka_s3_platform.core.model.offsets import RangeSet, make_span
from kafka_s3_platform.core.model.schema import ArchivedSchema
from kafka_s3_platform.core.model.silence import try_topics
from kafka_s3_platform.core.model.state import IndexState
from kafka_s3_platform.core.segments.schemas import load_schema_fetcher
from kafka_s3_platform.core.store.index import ConnectorIndex, ConnectorSnapshot, IndexSnapshot
from kafka_s3_platform.core.store.index_commit import Change
from kafka_s3_platform.core.store.index_rows import IndexRow
from kafka_s3_platform.core.store.row_filter import RowPredicate, match_gap, match_unresolved


@dataclass(frozen=True)
class RowChanges:
    """Rows to add, and predicates for the rows to remove."""

    added: tuple[Unresolved | Gap, ...]
    removed: tuple[RowPredicate, ...]


def plan_row_changes(state: IndexState, results: Sequence[ScanResult]) -> RowChanges:
    """Return the index rows to add and to remove in a commit of `results`.

    Unresolved offsets that were read again lose their old rows, and get new ones if they failed again. Offsets that
    were recorded as deleted by retention, but were read by this run, are no longer a gap.
    """
    added: list[Unresolved | Gap] = []
    removed: list[RowPredicate] = []
    for kafka_partition, partition_results in _group_by_kafka_partition(results).items():
        failures = [u for u in state.failures if u.kafka_partition == kafka_partition]
        unresolved = RangeSet(u.offsets for r in partition_results for u in r.unresolved)
        scanned = RangeSet(s.offsets for r in partition_results for s in r.scans)
        decided_offsets = scanned | unresolved
        if any(any(decided_offsets.within(u.offsets)) for u in failures):
            removed.append(match_unresolved(kafka_partition))
            added += subtract_offsets(failures, decided_offsets)
        added += [u for r in partition_results for u in r.unresolved]
        lost = {g for g in state.gaps if g.kafka_partition == kafka_partition and g.reason == "retention"}
        for gap in sorted(lost):
            pieces = make_span(gap.start_offset, gap.end_offset) - scanned
            if pieces.ranges != (gap.offsets,):
                removed.append(match_gap(gap))
                added += (replace(gap, start_offset=p.start_offset, end_offset=p.end_offset) for p in pieces)
    return RowChanges(tuple(added), tuple(removed))


def _group_by_kafka_partition(results: Sequence[ScanResult]) -> dict[int, list[ScanResult]]:
    """Return the results of each kafka partition's tasks."""
    groups: dict[int, list[ScanResult]] = {}
    for result in results:
        groups.setdefault(result.kafka_partition, []).append(result)
    return groups


logger = logging.getLogger(__name__)


def find_recreated_topics(admin: ClusterAdmin, plans: Mapping[str, ReservedPlan]) -> dict[str, PlatformError]:
    """Return an error for each topic created again since its plan, and for each that Kafka did not answer for."""
    current = admin.find_topics(plans)
    failures = dict(current.failures)
    for topic, latest in current.results.items():
        planned_id = plans[topic].description.topic_id
        if latest.topic_id != planned_id:
            failures[topic] = TopicRecreatedError(
                f"topic {topic} was deleted and created again during the scan (id {planned_id}, now "
                f"{latest.topic_id}); "
                f"nothing of it was committed"
            )
    return failures


@dataclass(frozen=True)
class TopicSlice:
    """Results of one topic's tasks, to be committed together. The topic's lease ends with the `last` slice."""

    reserved: ReservedPlan
    results: Sequence[ScanResult]
    last: bool

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to commit."""
        return not self.results and not (self.last and self.reserved.plan.needed)


def _fetch_named_schemas(
    slices: Mapping[str, TopicSlice], index: ConnectorIndex
) -> dict[str, tuple[ArchivedSchema, ...]]:
    """Fetch, by topic, the registry's schemas named by the records of the slices, or none without a registry."""
    if not any(topic_slice.reserved.request.config.records.registries for topic_slice in slices.values()):
        return dict.fromkeys(slices, ())
    snapshot = index.open()
    return {topic: _fetch_topic_schemas(topic_slice, snapshot.topic(topic)) for topic, topic_slice in slices.items()}


def _fetch_topic_schemas(topic_slice: TopicSlice, snapshot: IndexSnapshot) -> tuple[ArchivedSchema, ...]:
    """Fetch the schemas named by the results' records, and any that an earlier run could not fetch."""
    request = topic_slice.reserved.request
    records = request.config.records
    # of single segments, an old archive has hundreds of thousands
    schema_ids = {*snapshot.list_schema_ids()}
    for result in topic_slice.results:
        schema_ids.update(*(segment.schema_ids for segment in result.segments))
    if not schema_ids:
        return ()
    schemas = load_schema_fetcher()(snapshot.state, schema_ids, records)
    if schemas.problem:
        logger.warning("%s: schemas %s are not archived yet: %s", request.topic, schemas.missing, schemas.problem)
    return schemas.rows


def commit_results(index: ConnectorIndex, slices: Mapping[str, TopicSlice]) -> dict[str, PlatformError]:
    """Commit the slices of all topics in one commit on the newest version of the index.

    A topic is skipped if its results do not fit its plan, or if another run has ended its lease. Return the errors of
    the skipped topics.
    """
    checked, failures = try_topics(slices, lambda topic: _check_results(slices[topic]))
    pending = [topic for topic in checked if not slices[topic].is_empty]
    if not pending:
        return failures
    # a registry is asked once, however often the commit is tried
    schemas = _fetch_named_schemas({topic: slices[topic] for topic in pending}, index)

    def plan(snapshot: ConnectorSnapshot) -> tuple[Mapping[str, Change], Mapping[str, PlatformError]]:
        """Return the changes to commit on one version of the index, and the errors of topics whose lease has ended."""
        snapshot.load_states(pending)
        return try_topics(
            (topic for topic in pending if _is_due(slices[topic], snapshot.topic(topic))),
            lambda topic: _build_change(slices[topic], snapshot.topic(topic), schemas[topic]),
        )

    return {**failures, **index.commit_planned(plan)}


def _is_due(topic_slice: TopicSlice, snapshot: IndexSnapshot) -> bool:
    """Return True if there is something to commit: rows, or a lease to be ended.

    If the response to a commit without rows is lost, only the ended lease tells a second try that the first one
    succeeded.
    """
    return bool(topic_slice.results) or topic_slice.reserved.lease.is_held(snapshot.state)


def _build_change(topic_slice: TopicSlice, snapshot: IndexSnapshot, schemas: Sequence[ArchivedSchema]) -> Change:
    """Return the index rows to add and to remove for a slice. Raises SupersededError if another run ended the lease."""
    lease = topic_slice.reserved.lease
    lease.refuse_superseded(snapshot.state)
    rows: list[IndexRow] = [*schemas]
    for result in topic_slice.results:
        rows += [*result.scans, *result.segments, *result.gaps]
    row_changes = plan_row_changes(snapshot.state, topic_slice.results)
    lease_end = lease.end if topic_slice.last else ()
    return Change(
        added=(*rows, *row_changes.added),
        removed=(*lease_end, *row_changes.removed),
        run_id=lease.run_id,
    )


def _check_results(topic_slice: TopicSlice) -> None:
    """Check that each offset read is scanned, unresolved or in a gap, and the segments hold the records read."""
    reserved = topic_slice.reserved
    for kafka_partition, partition_results in _group_by_kafka_partition(topic_slice.results).items():
        read_offsets = RangeSet(item for r in partition_results for item in r.ranges)
        scanned = RangeSet(s.offsets for r in partition_results for s in r.scans)
        unresolved = RangeSet(u.offsets for r in partition_results for u in r.unresolved)
        gaps = RangeSet(g.offsets for r in partition_results for g in r.gaps)
        if read_offsets != scanned | unresolved | gaps or scanned & unresolved:
            raise _build_defect_error(
                reserved, kafka_partition, f"{read_offsets} was read, {scanned} scanned, {unresolved} unresolved"
            )
        _check_segments(reserved, kafka_partition, partition_results, read_offsets)


def _check_segments(
    reserved: ReservedPlan, kafka_partition: int, results: Sequence[ScanResult], read_offsets: RangeSet
) -> None:
    """Raise IntegrityError if an object is outside the offsets read or named twice, or if numbers of records differ."""
    segments = [s for r in results for s in r.segments]
    outside = [s.key for s in segments if not read_offsets.covers(s.start_offset, s.end_offset)]
    keys = [key for s in segments for key in s.keys]
    if outside or len(set(keys)) != len(keys):
        raise _build_defect_error(reserved, kafka_partition, f"objects outside the scan or named twice: {outside}")
    if sum(s.record_count for s in segments) != sum(r.record_count for r in results):
        raise _build_defect_error(reserved, kafka_partition, "records read and records written differ")


def _build_defect_error(reserved: ReservedPlan, kafka_partition: int, what: str) -> IntegrityError:
    """Build the error for results of tasks that contradict each other. None of them is committed."""
    where = f"{reserved.description.topic}-{kafka_partition}, run {reserved.lease.run_id}"
    return IntegrityError(f"{where}: {what}. This is a defect of the platform; nothing was committed")
