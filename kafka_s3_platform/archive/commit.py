"""Check what tasks have read and written, and commit it."""

import logging
from collections.abc import Sequence
from datetime import datetime
from uuid import uuid4

from kafka_s3_platform.archive.request import ArchiveRequest
from kafka_s3_platform.archive.reserve import ReservedPlan
from kafka_s3_platform.archive.retold import retell_rows
from kafka_s3_platform.archive.task import ScanResult
from kafka_s3_platform.errors import IntegrityError, TopicRecreatedError
from kafka_s3_platform.kafka.admin import ClusterAdmin
from kafka_s3_platform.model.gap import Gap
from kafka_s3_platform.model.offsets import RangeSet
from kafka_s3_platform.model.schema import ArchivedSchema
from kafka_s3_platform.segments.schema_ids import fetch_archived_schemas, list_registries
from kafka_s3_platform.store.index import Change, IndexSnapshot, retry_commit
from kafka_s3_platform.store.index_rows import IndexRow

logger = logging.getLogger(__name__)


def refuse_recreated_topic(admin: ClusterAdmin, reserved: ReservedPlan) -> None:
    """Refuse a topic that was deleted and created again while it was scanned: the archive must not mix the two."""
    now = admin.describe_topic(reserved.description.topic)
    if now.topic_id != reserved.description.topic_id:
        raise TopicRecreatedError(
            f"topic {now.topic} was deleted and created again during the scan (id {reserved.description.topic_id} "
            f"became {now.topic_id}); nothing of it was committed"
        )


def fetch_schemas(
    request: ArchiveRequest, reserved: ReservedPlan, results: Sequence[ScanResult]
) -> tuple[ArchivedSchema, ...]:
    """Fetch the schemas that the records of the results name, and those that an earlier run could not fetch."""
    records = request.config.records
    if not list_registries(records):
        return ()
    snapshot = reserved.index.open()
    segments = [*snapshot.segments]
    for result in results:
        segments += result.segments
    schema_ids: set[int] = set()
    for segment in segments:
        schema_ids.update(segment.schema_ids)
    found = fetch_archived_schemas(snapshot.state, schema_ids, records)
    if found.problem:
        logger.warning("%s: schemas %s are not archived yet: %s", request.topic, found.missing, found.problem)
    return found.rows


def commit_results(
    reserved: ReservedPlan, results: Sequence[ScanResult], schemas: Sequence[ArchivedSchema], last: bool
) -> None:
    """Commit a slice on the newest version of the index, if the reservation still exists in it.

    The `last` slice ends the lease. Raises SupersededError if another run has ended it.
    """
    _check_results(reserved, results)
    if not results and not (last and reserved.plan.needed):
        return
    commit_id = str(uuid4())
    lease_end = reserved.lease.end if last else ()
    rows: list[IndexRow] = [*schemas]
    for result in results:
        rows += [*result.scans, *result.segments, *result.gaps]
    gap_hours = _find_gap_hours(reserved, results)

    def step(snapshot: IndexSnapshot) -> None:
        # an earlier try may have committed, and only its response was lost
        if commit_id not in snapshot.state.commit_ids:
            reserved.lease.refuse_superseded(snapshot.state)
            told = retell_rows(snapshot, results)
            change = Change((*rows, *told.added), (), (*lease_end, *told.removed), reserved.lease.run_id)
            snapshot.commit(change, commit_id, {**told.gap_hours, **gap_hours})

    retry_commit(reserved.index, step)


def _find_gap_hours(reserved: ReservedPlan, results: Sequence[ScanResult]) -> dict[Gap, datetime]:
    """Find the planned hour in which each gap begins that a scan found."""
    hours = [h for h in reserved.plan.hours if h.start_offset != h.end_offset]
    found: dict[Gap, datetime] = {}
    for result in results:
        for gap in result.gaps:
            for hour in hours:
                if hour.kafka_partition == gap.kafka_partition and hour.holds(gap.start_offset):
                    found[gap] = hour.hour
    return found


def _check_results(reserved: ReservedPlan, results: Sequence[ScanResult]) -> None:
    """Check that all ranges are accounted for, each offset in one segment at most, each record in one segment."""
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
