"""Hours that Dagster shows as materialized. They stay in the process, so that a tick reads only new events."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

import dagster as dg

from kafka_s3_platform.defs.topic import TopicAssets

MARGIN = 1000
"""Events whose ids are so close to the newest are read again: an event may get its id before others, and be seen later.
"""


@dataclass
class _ReadHours:
    """Hours of one asset, read up to an event."""

    event_id: int = 0
    starts: set[datetime] = field(default_factory=set)


_read_hours: dict[tuple[str, dg.AssetKey], _ReadHours] = {}


class ShownHours:
    """The hours that an instance shows in one tick."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self._instance = instance

    def of(self, topic: TopicAssets) -> Collection[datetime]:
        """Return the starts of the topic's materialized hours, for `in`."""
        hours = _read_hours.setdefault((self._instance_id, topic.key("hourly")), _ReadHours())
        return _Shown(self._instance, topic, hours, self)

    @cached_property
    def _instance_id(self) -> str:
        # A storage without an id is taken for the only one of this process.
        find = getattr(self._instance.run_storage, "get_run_storage_id", None)
        return str(find()) if find else ""

    @cached_property
    def newest_event_id(self) -> int:
        return self._instance.event_log_storage.get_maximum_record_id() or 0


class _Shown(Collection[datetime]):
    """Asks the instance only if an hour is not known to be shown. Events that are deleted later stay known."""

    def __init__(self, instance: dg.DagsterInstance, topic: TopicAssets, hours: _ReadHours, shown: ShownHours) -> None:
        self._instance = instance
        self._topic = topic
        self._hours = hours
        self._shown = shown
        self._is_read = False

    def __contains__(self, hour: object) -> bool:
        if hour in self._hours.starts:
            return True
        self._read()
        return hour in self._hours.starts

    def __iter__(self) -> Iterator[datetime]:
        self._read()
        return iter(self._hours.starts)

    def __len__(self) -> int:
        self._read()
        return len(self._hours.starts)

    def _read(self) -> None:
        if self._is_read:
            return
        self._is_read = True
        newest = self._shown.newest_event_id
        keys = self._instance.get_materialized_partitions(
            self._topic.key("hourly"), after_cursor=max(0, self._hours.event_id - MARGIN)
        )
        self._hours.starts |= self._topic.hours.starts(keys)
        self._hours.event_id = newest
