"""Reads the index of a connector once per tick, and keeps it open, so the next tick reads only new rows."""

import threading
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from typing import TypeVar

from kafka_s3_platform.core.config.settings import StoreSettings
from kafka_s3_platform.core.lazy import lazy_property
from kafka_s3_platform.core.status.topic import ArchivedTopic
from kafka_s3_platform.core.store.index import ConnectorIndex, ConnectorSnapshot, IndexSnapshot

R = TypeVar("R")

SHOWN_WITHIN = timedelta(days=7)
"""The age up to which a tick compares commits with Dagster's events. A killed run may have committed unreported.

The first tick of a topic, without a cursor, compares all commits.
"""

_handles: dict[tuple[str, str, str], tuple[StoreSettings, ConnectorIndex]] = {}
"""Open indexes by user, store and place. A handle keeps its settings, and is not used with others."""

_lock = threading.Lock()


class IndexLook:
    """The index of a connector's `topics`, at the moment of the first read.

    Each `user`, a sensor or a schedule, has a handle of its own. `close` caches the handle for the next IndexLook. A
    read may go on after its tick, and caches the handle when it ends, so even a slow store is read in the end.
    """

    def __init__(self, user: str, topics: Sequence[ArchivedTopic]) -> None:
        hour = datetime.now(timezone.utc).replace(minute=0, second=0, microsecond=0)
        # A full hour: later ticks with the same version ask for the same, and get it from memory.
        self.since = hour - SHOWN_WITHIN
        """Earlier commits are not compared with Dagster's events again."""
        self._topics = topics
        self._config = topics[0].config
        index = ConnectorIndex.of(self._config)
        self._place = (user, self._config.store.endpoint_url or "", index.uri)
        self._reading = 0
        self._is_closed = False
        self._opened: ConnectorIndex | None = None

    def read(self, topic: ArchivedTopic, use: Callable[[IndexSnapshot], R]) -> R | None:
        """Return the result of `use`, or None if nothing of the topic is archived yet.

        The first call reads the states of all topics in one pass. Raises store errors.
        """
        with _lock:
            self._reading += 1
        try:
            snapshot = self._snapshot.topic(topic.topic) if self._snapshot else None
            if snapshot is None or snapshot.is_empty:
                return None
            _ = snapshot.state  # raises here if its rows are wrong
            return use(snapshot)
        finally:
            with _lock:
                self._reading -= 1
                self._cache_handle()

    def close(self) -> None:
        """Cache the handle for the next IndexLook, as soon as the last read ends."""
        with _lock:
            self._is_closed = True
            self._cache_handle()

    def _cache_handle(self) -> None:
        """Keep the open index for the next IndexLook of this user, if this one is closed and nobody reads."""
        if self._is_closed and not self._reading and self._opened is not None:
            _handles[self._place] = self._config.store, self._opened

    @lazy_property
    def _snapshot(self) -> ConnectorSnapshot | None:
        with _lock:
            store, handle = _handles.pop(self._place, (None, None))
        index = handle if handle is not None and store == self._config.store else ConnectorIndex.of(self._config)
        snapshot = index.peek()
        if snapshot is not None:
            snapshot.load_states(topic.topic for topic in self._topics)
        self._opened = index
        return snapshot
