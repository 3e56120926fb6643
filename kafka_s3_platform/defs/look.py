"""Looks at the index of a connector once in a tick, and keeps it open until the next one, which reads what is new."""

import threading
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from typing import TypeVar

from kafka_s3_platform.config.settings import StoreSettings
from kafka_s3_platform.defs.topic import ArchivedTopic
from kafka_s3_platform.lazy import lazy_property
from kafka_s3_platform.store.index import ConnectorIndex, ConnectorSnapshot, IndexSnapshot

R = TypeVar("R")

SHOWN_WITHIN = timedelta(days=7)
"""How far back a tick looks for what is archived and not shown, because a run was killed between the two.

The first look at a topic, without a cursor, goes back to the beginning.
"""

_kept: dict[tuple[str, str, str], tuple[StoreSettings, ConnectorIndex]] = {}
"""By user, store and place. A handle goes on with the settings that it was opened with: with others it is not used."""

_lock = threading.Lock()


class IndexLook:
    """What the index of a connector holds of `topics`, as it is when the first of them is asked for.

    Each `user`, a sensor or a schedule, has a handle of its own. When the look is closed, the handle is kept for the
    next one. A read that outlasts its tick goes on, and keeps the handle when it ends: so a slow store is read at last.
    """

    def __init__(self, user: str, topics: Sequence[ArchivedTopic]) -> None:
        hour = datetime.now(timezone.utc).replace(minute=0, second=0, microsecond=0)
        # A whole hour, so that the next looks at the same version ask for the same, which is known.
        self.since = hour - SHOWN_WITHIN
        """Segments of earlier commits are not looked at again, to see whether Dagster shows them."""
        self._topics = topics
        self._config = topics[0].config
        index = ConnectorIndex.of(self._config)
        self._place = (user, self._config.store.endpoint_url or "", index.uri)
        self._reading = 0
        self._is_closed = False
        self._opened: ConnectorIndex | None = None

    def read(self, topic: ArchivedTopic, use: Callable[[IndexSnapshot], R]) -> R | None:
        """Return what `use` makes of what is known of the topic, None if nothing of it was archived yet.

        The first call reads the states of all topics, so that they take one pass. Raises store errors.
        """
        with _lock:
            self._reading += 1
        try:
            found = self._find(topic)
            return None if found is None else use(found)
        finally:
            with _lock:
                self._reading -= 1
                self._keep()

    def close(self) -> None:
        """Keep the handle for the next look, as soon as nothing is read by it any more."""
        with _lock:
            self._is_closed = True
            self._keep()

    def _keep(self) -> None:
        if self._is_closed and not self._reading and self._opened is not None:
            _kept[self._place] = self._config.store, self._opened

    def _find(self, topic: ArchivedTopic) -> IndexSnapshot | None:
        found = self._whole.topic(topic.topic) if self._whole else None
        if found is None or found.is_empty:
            return None
        _ = found.state  # raises here what is wrong with its rows
        return found

    @lazy_property
    def _whole(self) -> ConnectorSnapshot | None:
        with _lock:
            store, kept = _kept.pop(self._place, (None, None))
        index = kept if kept is not None and store == self._config.store else ConnectorIndex.of(self._config)
        found = index.peek()
        if found is not None:
            found.load_states(topic.topic for topic in self._topics)
        self._opened = index
        return found
