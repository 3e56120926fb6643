"""Records in Dagster's storage until when a run counts as alive.

It is no tag of the run: Dagster writes all of a run's tags at once, so one thread would undo another's.
"""

import dagster as dg


def set_alive_until(instance: dg.DagsterInstance, run_id: str, until: float) -> None:
    """Record until when the run is alive, in seconds since the epoch."""
    instance.run_storage.set_cursor_values({make_alive_key(run_id): repr(until)})


def read_alive_until(instance: dg.DagsterInstance, run_id: str) -> float | None:
    """Return until when the run is alive, or None if this was never recorded."""
    key = make_alive_key(run_id)
    value = instance.run_storage.get_cursor_values({key}).get(key)
    return None if value is None else float(value)


def make_alive_key(run_id: str) -> str:
    """Return the name of the record in Dagster's storage."""
    return f"kafka_s3/alive/{run_id}"
