"""Finds the earliest hour of a connector and remembers it in a file: Dagster's partitions begin with its day.

Every process of Dagster loads the definitions, also when nobody answers. So loading only reads the file. The lag sensor
writes it, in the code server, whose definitions are those that Dagster shows. Nothing that is archived depends on it.
"""

import json
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import dagster as dg

from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.defs.runs import ShownHours
from kafka_s3_platform.defs.tick import Tick
from kafka_s3_platform.defs.topic import TopicAssets
from kafka_s3_platform.errors import PlatformError
from kafka_s3_platform.instance.reload import reload_code_location
from kafka_s3_platform.status.backlog import Backlog
from kafka_s3_platform.status.discovery import write_remembered
from kafka_s3_platform.status.topic import find_local_day
from kafka_s3_platform.store.index import ConnectorIndex

logger = logging.getLogger(__name__)

FIRST_HOURS = "kafka_s3_first_hours"
"""The folder of the files, in Dagster's home."""


def recall_first_hour(config: ConnectorConfig, folder: Path) -> datetime | None:
    """Read the earliest hour that was seen of the connector. None if none is remembered of its index."""
    path = _name_file(folder, config)
    try:
        remembered = json.loads(path.read_text())
        hour = datetime.fromisoformat(remembered["first_hour"])
        return hour if remembered["index"] == _name_index(config) and hour.tzinfo else None
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as err:
        logger.warning("%s cannot be read, so Dagster offers hours from archive.start.hour on: %s", path, err)
        return None


@dataclass
class FirstHourSearch:
    """What the ticks of a lag sensor have seen of the connector's `topics`, in the process that evaluates them."""

    topics: Sequence[TopicAssets]
    folder: Path
    _seen: list[datetime] = field(default_factory=list)
    _left: set[str] = field(init=False)
    """Topics that no tick has come to. Those that do not answer were come to: they must not hold up the others."""

    def __post_init__(self) -> None:
        self._left = {topic.topic for topic in self.topics}

    def reach(self, topic: TopicAssets) -> None:
        """Tell that a tick has come to the topic."""
        self._left.discard(topic.topic)

    def see(self, backlog: Backlog) -> None:
        """Note the earliest hour of a topic that is archived, was asked for or is due."""
        hours = [*backlog.stored_hours]
        if (first_asked := backlog.state.first_asked_hour) is not None:
            hours.append(first_asked)
        with suppress(PlatformError):
            hours += backlog.hours_left[:1]
        if hours:
            self._seen = [min([*self._seen, *hours])]

    def remember(self, context: dg.SensorEvaluationContext, shown: ShownHours, tick: Tick) -> None:
        """Write the file if the earliest hour is of an earlier day than the remembered one, and load it.

        The first time, all topics were looked at, and no hour that Dagster shows lies before it.
        """
        config = self.topics[0].config
        first_hour = recall_first_hour(config, self.folder)
        hours = self._seen
        if first_hour is None:
            if self._left:
                return
            hours = [*hours, *(min(shown_hours) for topic in self.topics if (shown_hours := shown.of(topic)))]
        if not hours or (
            first_hour is not None and find_local_day(min(hours), config) >= find_local_day(first_hour, config)
        ):
            return
        document = {"index": _name_index(config), "first_hour": min(hours).isoformat()}
        try:
            write_remembered(_name_file(self.folder, config), document)
        except OSError as err:
            tick.tell(f"the earliest hour of connector {config.name} cannot be remembered: {err}")
            return
        day = find_local_day(min(hours), config).date()
        tick.reasons.append(f"the hours of connector {config.name} begin with {day}; {reload_code_location(context)}")


def _name_index(config: ConnectorConfig) -> list[str]:
    return [config.store.endpoint_url or "", ConnectorIndex.of(config).uri]


def _name_file(folder: Path, config: ConnectorConfig) -> Path:
    return folder / f"{config.name}.json"
