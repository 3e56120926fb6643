"""The hours and days of a connector as Dagster names them, by partition keys."""

from collections.abc import Iterable
from datetime import datetime, timezone
from functools import cache, cached_property
from urllib.parse import quote, urlencode

import dagster as dg

from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.status.topic import find_start_day


class Windows:
    """Converts between partition keys and the starts of their time windows in UTC.

    Dagster's own rules apply, also when clocks change.
    """

    def __init__(self, definition: dg.TimeWindowPartitionsDefinition) -> None:
        self.definition = definition

    def is_key(self, partition_key: str) -> bool:
        """Return True if this is a partition key. Dagster's own check accepts any minute as the start of an hour."""
        return self.definition.has_partition_key(partition_key) and self.key(self.start(partition_key)) == partition_key

    def check(self, partition_keys: Iterable[str]) -> None:
        """Raise ConfigError for a key that Dagster does not make. Anybody who launches a run can set one."""
        for key in partition_keys:
            nearest = self.key(self.start(key))
            if nearest != key:
                raise ConfigError(f"partition key {key} is none of this asset: the window that holds it is {nearest}")

    def start(self, partition_key: str) -> datetime:
        """Return the start of a partition key's window, UTC."""
        return self.definition.start_time_for_partition_key(partition_key).astimezone(timezone.utc)

    def end(self, partition_key: str) -> datetime:
        """Return the end of a partition key's window, UTC."""
        return self.definition.end_time_for_partition_key(partition_key).astimezone(timezone.utc)

    def key(self, moment: datetime) -> str:
        """Return the partition key of the window around `moment`."""
        return self.definition.get_partition_key_for_timestamp(moment.timestamp())

    def starts(self, partition_keys: Iterable[str]) -> set[datetime]:
        """Return the starts of the keys' windows from `first` on. Earlier keys are left over from an earlier start day.

        Anybody with access to Dagster's UI may report any text as materialized. A text without a window is ignored.
        """
        starts = map(self._find_start, partition_keys)
        return {start for start in starts if start is not None and start >= self.first}

    def _find_start(self, text: str) -> datetime | None:
        """Return the start of a partition key's window, or None if the text is no key."""
        try:
            return self.start(text)
        except (ValueError, OverflowError):
            return None

    @cached_property
    def first(self) -> datetime:
        """The start of the first window, UTC."""
        return self.definition.start.astimezone(timezone.utc)


class Hours(Windows):
    """The hours of a connector, from the first hour of its start day up to the open hour.

    They begin with the day because a daily chunk depends on all hours of its day. The open hour can be archived on
    demand. All topics of a connector share them, because Dagster runs a range of several assets only over one
    definition.
    """

    def __init__(self, config: ConnectorConfig) -> None:
        super().__init__(define_hours(find_start_day(config), config.layout.timezone))


class Days(Windows):
    """The days of a connector, from its start day up to today."""

    def __init__(self, config: ConnectorConfig) -> None:
        super().__init__(define_days(find_start_day(config), config.layout.timezone))


def find_restorable_windows(config: ConnectorConfig) -> tuple[Windows, Windows]:
    """Return the hours and days an archive may hold, also before the connector's start hour, which may have moved."""
    start = datetime(1970, 1, 1)  # noqa: DTZ001 - of the zone, as Dagster wants it
    zone = config.layout.timezone
    return Windows(define_hours(start, zone)), Windows(define_days(start, zone))


@cache
def define_hours(start: datetime, zone: str) -> dg.TimeWindowPartitionsDefinition:
    """Define the hours from `start` to the open one."""
    return dg.HourlyPartitionsDefinition(start, timezone=zone, end_offset=1)


@cache
def define_days(start: datetime, zone: str) -> dg.TimeWindowPartitionsDefinition:
    """Define the days from `start` to today."""
    return dg.DailyPartitionsDefinition(start, timezone=zone, end_offset=1)


def link_window(prefix: str, asset: Iterable[str], partition_key: str) -> str:
    """Return the link to the page of an asset's hour or day. `prefix` is the address of Dagster, or its path."""
    path = "/".join(quote(part, safe="") for part in asset)
    return f"{prefix}/assets/{path}?{urlencode({'view': 'partitions', 'partition': partition_key})}"
