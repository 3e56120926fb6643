"""Reports complete hours and days without a record. Nothing is left to do for them, so no run shows them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Literal, TypeAlias

import dagster as dg

from kafka_s3_platform.core.defs.tick import Tick
from kafka_s3_platform.core.defs.topic import TopicAssets
from kafka_s3_platform.core.status.index_look import IndexLook
from kafka_s3_platform.core.upkeep.hour_states import find_empty_hours

MAX_EMPTY = 200
"""Most windows a tick reports over all topics, because Dagster stores them one by one while other sensors wait."""

DESCRIPTION = "Complete, and no record of it is in this archive. No run was needed."

Window: TypeAlias = tuple[datetime, Sequence[datetime]]
"""The start of an hour or a day, and the starts of its hours."""


@dataclass
class EmptyWindows:
    """Reports the empty hours (`hourly`) or days (`daily`) of a connector's topics, in the process of its sensor."""

    group: Literal["hourly", "daily"]
    _reported: dict[str, tuple[int, datetime]] = field(default_factory=dict)
    """For each topic, the index version and the newest window up to which all empty windows are reported."""

    def report(
        self,
        topic: TopicAssets,
        newest: datetime | None,
        list_windows: Callable[[], Iterable[Window]],
        index_look: IndexLook,
        tick: Tick,
    ) -> None:
        """Have Dagster show the topic's complete hours (or days) without records up to `newest` as materialized.

        `list_windows` lists the hours or days Dagster does not show, in order. At most MAX_EMPTY are reported in a
        tick, and none until the connector's earliest hour is known.
        """
        room = MAX_EMPTY - sum(isinstance(event, dg.AssetMaterialization) for event in tick.observations)
        if newest is None or topic.first_hour is None or room <= 0:
            return

        version = tick.read_index(topic, index_look, lambda snapshot: snapshot.state.version)
        if version is None or self._reported.get(topic.topic) == (version, newest):
            return
        windows = [*list_windows()]
        hours = [hour for _, hours_of_window in windows for hour in hours_of_window]
        list_empty = partial(find_empty_hours, hours=hours, lateness=topic.lateness)
        empty_hours = tick.read_index(topic, index_look, list_empty)
        if empty_hours is None:
            return  # not read: the next tick tries again
        empty = {*empty_hours}
        starts = [start for start, hours_of_window in windows if empty.issuperset(hours_of_window)]
        window_keys = topic.hours if self.group == "hourly" else topic.days
        metadata = {"dagster/partition_row_count": 0, "complete": True, "index_version": version}
        asset = topic.key(self.group)
        for partition_key in map(window_keys.key, starts[:room]):
            tick.observations.append(dg.AssetMaterialization(asset, DESCRIPTION, metadata, partition_key))
        if len(starts) <= room:
            self._reported[topic.topic] = version, newest
