"""Dagster's event log in one SQLite file.

Dagster's `SqliteEventLogStorage` makes a file for each run, and copies the events of assets to `index.db`. This storage
writes everything only to `index.db`.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import dagster as dg
from dagster._core.events import ASSET_CHECK_EVENTS, ASSET_EVENTS
from dagster._core.storage.event_log.sql_event_log import SqlEventLogStorage
from dagster._core.storage.event_log.sqlite.sqlite_event_log import (
    INDEX_SHARD_NAME,
    SqliteEventLogStorage,
    SqliteEventLogStorageWatchdog,
)
from sqlalchemy import create_engine
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.pool import QueuePool
from watchdog.events import FileSystemEvent
from watchdog.observers import Observer

EventHandler = Callable[[dg.EventLogEntry, str], None]

BUSY_SECONDS = 30.0
"""The time a writer waits for another one, as in Dagster's own storage."""


class OneFileEventLogStorage(SqliteEventLogStorage):
    """`SqliteEventLogStorage` with one file for all runs.

    A process keeps one connection open, because opening and closing one costs more than writing an event.
    """

    def __init__(self, base_dir: str, inst_data: Any = None) -> None:
        self._engine_of_pid: tuple[int, Engine] | None = None
        self._schema_names: set[str] = set()
        super().__init__(base_dir, inst_data)

    @classmethod
    def from_config_value(cls, inst_data: Any, config_value: Mapping[str, Any]) -> "OneFileEventLogStorage":
        """Make the storage that `dagster.yaml` describes."""
        return cls(inst_data=inst_data, **config_value)

    def optimize_for_webserver(self, statement_timeout: int, pool_recycle: int, max_overflow: int) -> None:
        """Install the origin guard. Dagster calls this in the webserver's process, before it serves requests."""
        # imports Starlette, which no other process needs
        from kafka_s3_platform.operate.instance.webserver import guard_webserver

        super().optimize_for_webserver(statement_timeout, pool_recycle, max_overflow)
        guard_webserver()

    @property
    def is_run_sharded(self) -> bool:
        """Return False, because the ids of events increase over all runs."""
        return False

    def path_for_shard(self, run_id: str) -> str:  # noqa: ARG002 - all runs share it
        """Return the one file."""
        return super().path_for_shard(INDEX_SHARD_NAME)

    def conn_string_for_shard(self, shard_name: str) -> str:  # noqa: ARG002
        """Return SQLAlchemy's connection string for the one file."""
        return super().conn_string_for_shard(INDEX_SHARD_NAME)

    def store_event(self, event: dg.EventLogEntry) -> None:
        """Store one event."""
        self.store_event_batch([event])

    def store_event_batch(self, events: Sequence[dg.EventLogEntry]) -> None:
        """Store events in one transaction. Results of checks follow in transactions of their own."""
        with self.index_connection() as conn:
            rows = [(self._insert_event(conn, event), event) for event in events]
        for event_id, event in rows:
            if event.is_dagster_event and event.dagster_event_type in ASSET_CHECK_EVENTS:
                self.store_asset_check_event(event, event_id)

    def _insert_event(self, conn: Connection, event: dg.EventLogEntry) -> int:
        """Insert one event, and the other rows Dagster keeps for an asset's event. Return the event's id."""
        primary_key: Any = conn.execute(self.prepare_insert_event(event)).inserted_primary_key
        event_id: int = primary_key[0]
        is_of_assets = event.is_dagster_event and event.dagster_event_type in ASSET_EVENTS
        if is_of_assets and event.get_dagster_event().asset_key:
            self._store_asset_event_tags(conn, [event], [event_id])
            self._store_asset_event(conn, event, event_id)
        return event_id

    def get_event_records(
        self, event_records_filter: dg.EventRecordsFilter, limit: int | None = None, ascending: bool = False
    ) -> Sequence[dg.EventLogRecord]:
        """Return events of all runs."""
        return SqlEventLogStorage.get_event_records(self, event_records_filter, limit, ascending)

    def has_table(self, table_name: str) -> bool:
        """Return True if the one file has the table, and remember it, because Dagster asks with each event."""
        if table_name not in self._schema_names:
            with self.index_connection() as conn:
                if not conn.dialect.has_table(conn, table_name):
                    return False
            self._schema_names.add(table_name)
        return True

    def _has_asset_key_col_on_connection(self, conn: Connection, column_name: str) -> bool:
        if column_name not in self._schema_names:
            if not super()._has_asset_key_col_on_connection(conn, column_name):
                return False
            self._schema_names.add(column_name)
        return True

    def watch(self, run_id: str, cursor: str | None, callback: EventHandler) -> None:
        """Call `callback` with each new event of the run."""
        observer: Any = self._obs
        if observer is None:
            observer = Observer()
            observer.start()
            self._obs = observer
        watchdog = _Watchdog(self, run_id, callback, cursor)
        self._watchers[run_id][callback] = (watchdog, observer.schedule(watchdog, self._base_dir))

    def dispose(self) -> None:
        """Close the connection and end the watching."""
        super().dispose()
        if self._engine_of_pid is not None:
            self._engine_of_pid[1].dispose()

    @contextmanager
    def _connect(self, shard: str) -> Iterator[Connection]:  # noqa: ARG002
        with self._open_engine().connect() as conn, conn.begin():
            yield conn

    def _open_engine(self) -> Engine:
        """Return this process's engine. A connection to SQLite must not be used after a fork."""
        with self._db_lock:
            if self._engine_of_pid is None or self._engine_of_pid[0] != os.getpid():
                engine = create_engine(
                    self.conn_string_for_shard(INDEX_SHARD_NAME),
                    poolclass=QueuePool,
                    pool_size=1,
                    max_overflow=-1,
                    connect_args={"timeout": BUSY_SECONDS, "check_same_thread": False},
                )
                self._initdb(engine, for_index_shard=True)
                self._engine_of_pid = (os.getpid(), engine)
            return self._engine_of_pid[1]


class _Watchdog(SqliteEventLogStorageWatchdog):
    """Also notices changes of SQLite's write-ahead log."""

    def __init__(
        self, storage: OneFileEventLogStorage, run_id: str, callback: EventHandler, cursor: str | None
    ) -> None:
        super().__init__(storage, run_id, callback, cursor)
        self._patterns = [self._log_path, self._log_path + "-wal"]

    def on_modified(self, event: FileSystemEvent) -> None:  # noqa: ARG002 - whichever file it was
        """Read the new events of the run."""
        self._process_log()
