"""Finds the earliest hour of a connector and remembers it in a file, as Dagster's partitions begin with its day.

Every process of Dagster loads the definitions, even when no server answers. So loading only reads the file. The lag
sensor writes it, in the code server, whose definitions Dagster shows. No archived data depends on it.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import dagster as dg

from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.defs.runs import ShownHours
from kafka_s3_platform.core.defs.tick import Tick
from kafka_s3_platform.core.defs.topic import TopicAssets
from kafka_s3_platform.core.errors import PlatformError
from kafka_s3_platform.core.instance.reload import reload_code_location
from kafka_s3_platform.core.status.backlog import Backlog
from kafka_s3_platform.core.status.discovery import read_remembered, write_remembered
from kafka_s3_platform.core.status.topic import find_local_day
from kafka_s3_platform.core.store.index import ConnectorIndex

FIRST_HOURS = "kafka_s3_first_hours"
"""The folder of the files, in Dagster's home."""


def recall_first_hour(config: ConnectorConfig, folder: Path) -> datetime | None:
    """Read the connector's earliest hour from the file. Return None if it has none for the current index."""

    def parse(document: Any) -> datetime | None:
        hour = datetime.fromisoformat(document["first_hour"])
        return hour if document["index"] == _name_index(config) and hour.tzinfo else None

    return read_remembered(_name_file(folder, config), parse, "Dagster offers hours from archive.start.hour on")


@dataclass
class FirstHourSearch:
    """Gathers the earliest hour of the connector's `topics` over the ticks of its lag sensor, in one process."""

    topics: Sequence[TopicAssets]
    folder: Path
    _earliest: list[datetime] = field(default_factory=list)
    """The earliest hour so far, if there is one."""

    _unreached: set[str] = field(init=False)
    """Topics that no tick has reached. A topic that does not answer counts as reached, lest it hold up the others."""

    def __post_init__(self) -> None:
        self._unreached = {topic.topic for topic in self.topics}

    def mark_reached(self, topic: TopicAssets) -> None:
        """Note that a tick has reached the topic, with or without an answer."""
        self._unreached.discard(topic.topic)

    def add_hours(self, backlog: Backlog) -> None:
        """Note the earliest of a topic's archived, requested and due hours."""
        hours = [*backlog.stored_hours]
        if (first_asked := backlog.state.first_asked_hour) is not None:
            hours.append(first_asked)
        with suppress(PlatformError):
            hours += backlog.hours_left[:1]
        if hours:
            self._earliest = [min([*self._earliest, *hours])]

    def write_first_hour(
        self, context: dg.SensorEvaluationContext, shown_hours_by_topic: ShownHours, tick: Tick
    ) -> None:
        """Write the earliest hour if its day is before the day in the file, and reload the code location.

        The first write waits until all topics were reached, and also counts the hours Dagster shows.
        """
        config = self.topics[0].config
        first_hour = recall_first_hour(config, self.folder)
        hours = self._earliest
        if first_hour is None:
            if self._unreached:
                return
            hours = [
                *hours,
                *(min(shown_hours) for topic in self.topics if (shown_hours := shown_hours_by_topic.of(topic))),
            ]
        if not hours or (
            first_hour is not None and find_local_day(min(hours), config) >= find_local_day(first_hour, config)
        ):
            return
        document = {"index": _name_index(config), "first_hour": min(hours).isoformat()}
        try:
            write_remembered(_name_file(self.folder, config), document)
        except OSError as err:
            tick.warn(f"the earliest hour of connector {config.name} cannot be remembered: {err}")
            return
        day = find_local_day(min(hours), config).date()
        tick.reasons.append(f"the hours of connector {config.name} begin with {day}; {reload_code_location(context)}")


def _name_index(config: ConnectorConfig) -> list[str]:
    """Return the endpoint and the URI of the connector's index. Another index has another earliest hour."""
    return [config.store.endpoint_url or "", ConnectorIndex.of(config).uri]


def _name_file(folder: Path, config: ConnectorConfig) -> Path:
    return folder / f"{config.name}.json"
