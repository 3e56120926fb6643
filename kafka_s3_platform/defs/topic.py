"""One topic of one connector: its asset keys, its hours and its days."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property
from typing import Literal, TypedDict

import dagster as dg

from kafka_s3_platform.config.formats import find_format
from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.instance.names import make_name
from kafka_s3_platform.instance.windows import Days, Hours, define_days, define_hours
from kafka_s3_platform.status.topic import ArchivedTopic, find_local_day, find_start_day

Group = Literal["kafka", "hourly", "daily", "objects", "restored"]

ASSET_TAG = "kafka_s3/asset"
"""Tag of an asset: the `Group` in its key, to select by: `tag:kafka_s3/asset=hourly`."""


class AssetPlace(TypedDict):
    """Fields of an asset's spec: its group in the UI, and its owners."""

    group_name: str
    owners: Sequence[str]
    tags: Mapping[str, str]


@dataclass(frozen=True)
class TopicAssets(ArchivedTopic):
    """A topic that a connector archives, and its assets."""

    first_hour: datetime | None = None
    """The earliest hour of the connector, if it is known. It only limits the hours that Dagster offers."""

    def key(self, group: Group) -> dg.AssetKey:
        """Return the asset key `<connector>/<group>/<topic>`."""
        return dg.AssetKey([self.config.name, group, self.topic])

    def shown_in(self, group: Group) -> AssetPlace:
        """Return the asset's group in the UI, and its owners.

        Its group is in one for its connector: the graph calls an asset by its topic alone.
        """
        return AssetPlace(
            group_name=f"{make_name(self.config.name)}/{group}",
            owners=self.config.archive.owners,
            tags={ASSET_TAG: group},
        )

    @property
    def kinds(self) -> set[str]:
        """Dagster's kind tags of the asset: the store, the engine that writes the objects, and their format."""
        layout = self.config.layout
        return {"s3", "spark", *find_format(layout.format).kinds(layout.codec)}

    @cached_property
    def hours(self) -> Hours:
        return Hours(self.config)

    @cached_property
    def days(self) -> Days:
        return Days(self.config)

    @property
    def offered_hours(self) -> dg.TimeWindowPartitionsDefinition:
        """The hours that Dagster offers, from the day of `first_hour` on."""
        return define_hours(self._offered_from, self.config.layout.timezone)

    @property
    def offered_days(self) -> dg.TimeWindowPartitionsDefinition:
        """The days that Dagster offers, from the day of `first_hour` on."""
        return define_days(self._offered_from, self.config.layout.timezone)

    @property
    def first_offered(self) -> datetime:
        """The start of the first hour that Dagster offers, UTC. It refuses runs of earlier ones."""
        return self.offered_hours.start.astimezone(timezone.utc)

    @property
    def _offered_from(self) -> datetime:
        start = find_start_day(self.config)
        return start if self.first_hour is None else max(start, find_local_day(self.first_hour, self.config))


def list_topic_assets(connectors: Iterable[ConnectorConfig]) -> list[TopicAssets]:
    """Return every topic of every sink connector. A source connector archives none."""
    sinks = (config for config in connectors if config.source is None)
    return [TopicAssets(config, topic) for config in sinks for topic in config.topics]
