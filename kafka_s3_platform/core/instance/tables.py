"""Reads and deletes rows of Dagster's own tables, because Dagster's calls read or delete too much.

Its `delete_run` also deletes the materializations of the run, so sensors would request its hours again. Here the newest
materialization and the newest observation of each partition key become events without a run, like reported ones. They
keep their id, time and metadata, so nothing looks materialized again, and the latest stays the latest. Every step can
be killed and repeated; the run itself is deleted last.

Dagster's list of the checks' last results reads the last event of every check, even of passed ones, and omits checks
that a run is about to evaluate.

The end of the time in which a run counts as alive is recorded in a table as well. It is no tag of the run, because
Dagster writes all of a run's tags at once, so one thread would undo another's.
"""

import json
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import dagster as dg
import sqlalchemy as db
from dagster._core.execution.backfill import BULK_ACTION_TERMINAL_STATUSES, BulkActionsFilter, PartitionBackfill
from dagster._core.instance import RUNLESS_JOB_NAME, RUNLESS_RUN_ID
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus
from dagster._core.storage.event_log.schema import (
    AssetCheckExecutionsTable,
    AssetEventTagsTable,
    AssetKeyTable,
    SqlEventLogStorageTable,
)
from dagster._core.storage.event_log.sql_event_log import SqlEventLogStorage
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage
from dagster._core.storage.runs.schema import (
    BackfillTagsTable,
    BulkActionsTable,
    KeyValueStoreTable,
    RunsTable,
    SnapshotsTable,
)
from dagster._core.storage.runs.sql_run_storage import SqlRunStorage
from sqlalchemy.engine import Connection

from kafka_s3_platform.core.errors import PermanentError


def set_alive_until(instance: dg.DagsterInstance, run_id: str, until: float) -> None:
    """Record the run as alive until a time (seconds since the epoch)."""
    instance.run_storage.set_cursor_values({make_alive_key(run_id): repr(until)})


def read_alive_until(instance: dg.DagsterInstance, run_id: str) -> float | None:
    """Return the time (seconds since the epoch) recorded by `set_alive_until`, or None if none was."""
    key = make_alive_key(run_id)
    value = instance.run_storage.get_cursor_values({key}).get(key)
    return None if value is None else float(value)


def make_alive_key(run_id: str) -> str:
    """Return the key in Dagster's storage for the record that a run's process is alive."""
    return f"kafka_s3/alive/{run_id}"


EVENTS_AT_ONCE = 1_000
"""The number of events in one transaction. While it lasts, about a second, nobody else can write to SQLite."""

MATERIALIZATION = dg.DagsterEventType.ASSET_MATERIALIZATION.value
OBSERVATION = dg.DagsterEventType.ASSET_OBSERVATION.value

_events = SqlEventLogStorageTable
_checks = AssetCheckExecutionsTable
_SUCCEEDED = AssetCheckExecutionRecordStatus.SUCCEEDED
_FAILED = AssetCheckExecutionRecordStatus.FAILED


def delete_run(instance: dg.DagsterInstance, run_id: str) -> None:
    """Delete a finished run, its log, the output of its processes, and definitions that only this run uses.

    Keep the newest events of its partition keys. Raises PermanentError if Dagster's storage is in no SQL database.
    """
    storage = _find_event_log(instance)
    while _detach_events(storage, run_id):
        pass
    _update_last_materializations(storage, run_id)
    _delete_check_results(storage, run_id)
    while _delete_events(storage, _events.c.run_id == run_id):
        pass
    _delete_own_file(storage, run_id)
    if storage.supports_global_concurrency_limits:
        storage.free_concurrency_slots_for_run(run_id)
    instance.compute_log_manager.delete_logs(prefix=[run_id])
    _delete_snapshots(instance.run_storage, instance.get_run_by_id(run_id))
    _delete_alive_until(instance.run_storage, run_id)
    instance.run_storage.delete_run(run_id)


def delete_observations(instance: dg.DagsterInstance, key: dg.AssetKey, cutoff: datetime) -> int:
    """Delete the asset's observations and check results without a run from before `cutoff` (UTC).

    The newest of each stays. Return the number of deleted observations: if it is EVENTS_AT_ONCE, there may be more.
    """
    storage = _find_event_log(instance)
    cutoff_utc = cutoff.astimezone(timezone.utc).replace(tzinfo=None)
    _delete_check_results(
        storage, RUNLESS_RUN_ID, _checks.c.asset_key == key.to_string(), _checks.c.create_timestamp < cutoff_utc
    )
    is_of_asset = db.and_(_events.c.asset_key == key.to_string(), _events.c.dagster_event_type == OBSERVATION)
    with storage.index_connection() as conn:
        newest = conn.execute(db.select(db.func.max(_events.c.id)).where(is_of_asset)).scalar()
    is_old = _events.c.timestamp < cutoff_utc
    return _delete_events(
        storage, db.and_(is_of_asset, _events.c.run_id == RUNLESS_RUN_ID, _events.c.id < (newest or 0), is_old)
    )


def list_ended_backfills(instance: dg.DagsterInstance, cutoff: datetime) -> Sequence[PartitionBackfill]:
    """List the ended backfills created before `cutoff`."""
    return instance.get_backfills(BulkActionsFilter(statuses=BULK_ACTION_TERMINAL_STATUSES, created_before=cutoff))


def delete_backfill(instance: dg.DagsterInstance, backfill_id: str) -> None:
    """Delete a backfill, if it has ended."""
    storage: Any = instance.run_storage
    if not isinstance(storage, SqlRunStorage):
        return
    table = BulkActionsTable.c
    statuses = [status.value for status in BULK_ACTION_TERMINAL_STATUSES]
    with storage.connect() as conn:
        deleted = conn.execute(BulkActionsTable.delete().where(table.key == backfill_id, table.status.in_(statuses)))
        if deleted.rowcount:
            conn.execute(BackfillTagsTable.delete().where(BackfillTagsTable.c.backfill_id == backfill_id))


def _delete_alive_until(storage: Any, run_id: str) -> None:
    """Delete the time recorded by `set_alive_until` for the run."""
    if isinstance(storage, SqlRunStorage):
        with storage.connect() as conn:
            conn.execute(KeyValueStoreTable.delete().where(KeyValueStoreTable.c.key == make_alive_key(run_id)))


def _find_event_log(instance: dg.DagsterInstance) -> SqlEventLogStorage:
    """Return Dagster's event log. Raises PermanentError if it is in no SQL database, whose tables this module needs."""
    storage = instance.event_log_storage
    if not isinstance(storage, SqlEventLogStorage):
        raise PermanentError(
            f"Dagster keeps its events in {type(storage).__name__}, where alerts cannot list failed checks, and old "
            "runs cannot be deleted without their materializations. Use one of its SQL storages, or set "
            "KAFKA_S3_RUN_RETENTION_DAYS=0 and no receiver of alerts"
        )
    return storage


def _detach_events(storage: SqlEventLogStorage, run_id: str) -> int:
    """Process up to EVENTS_AT_ONCE of the run's asset events: detach the newest of each partition key from the run.

    The others are deleted. Return the number of processed events.
    """
    newer = _events.alias()
    is_same_key = db.and_(
        newer.c.asset_key == _events.c.asset_key,
        newer.c.dagster_event_type == _events.c.dagster_event_type,
        newer.c.id > _events.c.id,
    )
    is_superseded = db.case(
        (_events.c.partition.is_(None), db.exists().where(is_same_key, newer.c.partition.is_(None))),
        else_=db.exists().where(is_same_key, newer.c.partition == _events.c.partition),
    )
    columns = (_events.c.id, _events.c.event, is_superseded.label("is_superseded"))
    is_of_run = db.and_(_events.c.run_id == run_id, _events.c.dagster_event_type.in_([MATERIALIZATION, OBSERVATION]))
    with storage.index_transaction() as conn:
        rows = conn.execute(
            db.select(*columns).where(is_of_run).order_by(_events.c.id).limit(EVENTS_AT_ONCE)
        ).fetchall()
        superseded = [row.id for row in rows if row.is_superseded]
        survivors = [
            {"kept_id": row.id, "kept_event": _report_without_run(row.event)} for row in rows if not row.is_superseded
        ]
        _delete_ids(conn, superseded)
        if survivors:
            conn.execute(
                _events.update()
                .where(_events.c.id == db.bindparam("kept_id"))
                .values(run_id=RUNLESS_RUN_ID, step_key=None, event=db.bindparam("kept_event")),
                survivors,
            )
    return len(rows)


def _report_without_run(serialized: str) -> str:
    """Return a run's event in the form that Dagster gives events without a run, at the event's own time."""
    entry = dg.deserialize_value(serialized, dg.EventLogEntry)
    source = entry.get_dagster_event()
    event = dg.DagsterEvent(
        source.event_type_value, job_name=RUNLESS_JOB_NAME, event_specific_data=source.event_specific_data
    )
    without_run = dg.EventLogEntry(  # type: ignore[no-untyped-call]
        None, entry.level, "", RUNLESS_RUN_ID, entry.timestamp, None, RUNLESS_JOB_NAME, event
    )
    return dg.serialize_value(without_run)


def _update_last_materializations(storage: SqlEventLogStorage, run_id: str) -> None:
    """Update the last materialization of the assets that the run was the last to materialize."""
    with storage.index_transaction() as conn:
        keys = conn.execute(db.select(AssetKeyTable.c.asset_key).where(AssetKeyTable.c.last_run_id == run_id)).scalars()
        for key in keys.fetchall():
            last = conn.execute(
                db.select(_events.c.id, _events.c.event, _events.c.run_id)
                .where(_events.c.asset_key == key, _events.c.dagster_event_type == MATERIALIZATION)
                .order_by(_events.c.id.desc())
                .limit(1)
            ).first()
            if last is not None:
                record = dg.EventLogRecord(last.id, dg.deserialize_value(last.event, dg.EventLogEntry))
                values = {"last_materialization": dg.serialize_value(record), "last_run_id": last.run_id}
                conn.execute(AssetKeyTable.update().where(AssetKeyTable.c.asset_key == key).values(values))


def _delete_check_results(storage: SqlEventLogStorage, run_id: str, *conditions: Any) -> None:
    """Delete the results of the run's checks and their events, except the last result of each check."""
    newer = _checks.alias()
    is_superseded = db.exists().where(
        newer.c.asset_key == _checks.c.asset_key,
        newer.c.check_name == _checks.c.check_name,
        newer.c.id > _checks.c.id,
        newer.c.execution_status != AssetCheckExecutionRecordStatus.PLANNED.value,
    )
    is_planned = _checks.c.execution_status == AssetCheckExecutionRecordStatus.PLANNED.value
    query = db.select(_checks.c.id, _checks.c.evaluation_event_storage_id).where(
        _checks.c.run_id == run_id, db.or_(is_planned, is_superseded), *conditions
    )
    with storage.index_transaction() as conn:
        rows = conn.execute(query).fetchall()
        conn.execute(_checks.delete().where(_checks.c.id.in_([row.id for row in rows])))
        _delete_ids(conn, [row.evaluation_event_storage_id for row in rows if row.evaluation_event_storage_id])


def _delete_snapshots(storage: Any, run: dg.DagsterRun | None) -> None:
    """Delete the definitions of the run's selection, if no other run has the same.

    The definition of a complete job stays, since its selections name it. A run created at this very moment may have
    found the definitions. Dagster then refuses to store the run, and it is requested again, or it runs without them.
    """
    if run is None or not run.job_snapshot_id or not isinstance(storage, SqlRunStorage):
        return
    same_snapshot = db.select(RunsTable.c.id).where(RunsTable.c.snapshot_id == run.job_snapshot_id)
    with storage.connect() as conn:
        if conn.execute(same_snapshot.where(RunsTable.c.run_id != run.run_id).limit(1)).first() is not None:
            return
    # A plan names its job, so no other run has this plan.
    snapshot_ids = [run.execution_plan_snapshot_id]
    # None if a killed call has deleted it
    job: Any = storage.get_job_snapshot(run.job_snapshot_id)
    if job is not None and job.lineage_snapshot is not None:
        snapshot_ids.append(run.job_snapshot_id)
    with storage.connect() as conn:
        # PostgreSQL deletes nothing that a run names.
        conn.execute(RunsTable.update().where(RunsTable.c.run_id == run.run_id).values(snapshot_id=None))
        conn.execute(SnapshotsTable.delete().where(SnapshotsTable.c.snapshot_id.in_(snapshot_ids)))


def _delete_events(storage: SqlEventLogStorage, condition: Any) -> int:
    """Delete up to EVENTS_AT_ONCE matching events. Return their number."""
    with storage.index_transaction() as conn:
        ids = conn.execute(db.select(_events.c.id).where(condition).limit(EVENTS_AT_ONCE)).scalars().fetchall()
        _delete_ids(conn, ids)
    return len(ids)


def _delete_ids(conn: Connection, ids: Sequence[int]) -> None:
    """Delete the events with these ids, and their tags."""
    conn.execute(_events.delete().where(_events.c.id.in_(ids)))
    conn.execute(AssetEventTagsTable.delete().where(AssetEventTagsTable.c.event_id.in_(ids)))


def _delete_own_file(storage: SqlEventLogStorage, run_id: str) -> None:
    """Delete the file that Dagster's SQLite storage made for the run."""
    if isinstance(storage, SqliteEventLogStorage):
        path = Path(storage.path_for_shard(run_id))
        if path.name == f"{run_id}.db":
            for file in (path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm"), path):
                file.unlink(missing_ok=True)


def list_failed_checks(instance: dg.DagsterInstance) -> Iterator[tuple[dg.AssetCheckEvaluation, float]]:
    """Yield the last result of each failed check, and its time (epoch s). Raises PermanentError like `delete_run`."""
    storage = _find_event_log(instance)
    # Without a condition the index alone finds the last ids: of 500 topics and a month, in a tenth of the time.
    last_ids = (
        db.select(db.func.max(_checks.c.id).label("id")).group_by(_checks.c.asset_key, _checks.c.check_name).subquery()
    )
    columns = (_checks.c.asset_key, _checks.c.check_name, _checks.c.execution_status, _checks.c.evaluation_event)
    query = db.select(*columns).join(last_ids, _checks.c.id == last_ids.c.id)
    with storage.index_connection() as conn:
        rows = conn.execute(query.where(_checks.c.execution_status != _SUCCEEDED.value)).fetchall()
    for row in rows:
        if row.execution_status == _FAILED.value:
            entry: dg.EventLogEntry | None = dg.deserialize_value(row.evaluation_event, dg.EventLogEntry)
        else:
            key = dg.AssetCheckKey(dg.AssetKey(json.loads(row.asset_key)), row.check_name)
            entry = _read_last_failure(storage, key)
        if entry is not None:
            yield entry.get_dagster_event().asset_check_evaluation_data, entry.timestamp


def _read_last_failure(storage: SqlEventLogStorage, key: dg.AssetCheckKey) -> dg.EventLogEntry | None:
    """Return the last failure of a check that a run is about to evaluate, or None if its last result is no failure."""
    ended = storage.get_asset_check_execution_history(key, limit=1, status={_SUCCEEDED, _FAILED})
    return ended[0].event if ended and ended[0].status == _FAILED else None
