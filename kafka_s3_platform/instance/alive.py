"""Until when a run is to be taken for alive, kept in Dagster's storage.

It is no tag of the run: Dagster writes all of a run's tags at once, so one thread would undo what another has set.
"""

import dagster as dg
from dagster._core.storage.runs.base import RunStorage
from dagster._core.storage.runs.schema import KeyValueStoreTable
from dagster._core.storage.runs.sql_run_storage import SqlRunStorage


def tell_alive(instance: dg.DagsterInstance, run_id: str, until: float) -> None:
    """Keep until when the run is alive, in seconds since the epoch."""
    instance.run_storage.set_cursor_values({_make_key(run_id): repr(until)})


def read_alive(instance: dg.DagsterInstance, run_id: str) -> float | None:
    """Return until when the run is alive, or None if it never said so."""
    key = _make_key(run_id)
    told = instance.run_storage.get_cursor_values({key}).get(key)
    return None if told is None else float(told)


def forget_alive(storage: RunStorage, run_id: str) -> None:
    """Delete what is kept of the run."""
    if not isinstance(storage, SqlRunStorage):
        return
    with storage.connect() as conn:
        conn.execute(KeyValueStoreTable.delete().where(KeyValueStoreTable.c.key == _make_key(run_id)))


def _make_key(run_id: str) -> str:
    return f"kafka_s3/alive/{run_id}"
