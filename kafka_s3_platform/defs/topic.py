"""One topic of one connector: its asset keys, its partitions and its index."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import cache, cached_property, lru_cache
from typing import Any, Literal, TypedDict
from zoneinfo import ZoneInfo

import dagster as dg
from pydantic import SecretStr

from kafka_s3_platform.config.formats import NATIVE_FORMAT, find_format
from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.defs.names import make_name
from kafka_s3_platform.errors import ConfigError
from kafka_s3_platform.model.times import HOUR
from kafka_s3_platform.store.index import TopicIndex

Group = Literal["kafka", "hourly", "daily", "objects", "restored"]

ASSET_TAG = "kafka_s3/asset"
"""Tag of an asset: the `Group` in its key, to select by: `tag:kafka_s3/asset=hourly`."""


class AssetPlace(TypedDict):
    """Fields of an asset's spec: its group in the UI, and its owners."""

    group_name: str
    owners: Sequence[str]
    tags: Mapping[str, str]


@dataclass(frozen=True)
class ArchivedTopic:
    """A topic that a connector archives."""

    config: ConnectorConfig
    topic: str
    first_hour: datetime | None = None
    """The earliest hour of the connector, if it is known. It only limits the hours that Dagster offers."""

    @property
    def name(self) -> str:
        """`<connector>/<topic>`."""
        return f"{self.config.name}/{self.topic}"

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
    def lateness(self) -> timedelta:
        return timedelta(milliseconds=self.config.archive.allowed_lateness_ms)

    @property
    def index(self) -> TopicIndex:
        return TopicIndex.of(self.config, self.topic)

    @property
    def is_native(self) -> bool:
        """Whether compaction and restore can read the objects. Objects of other formats stay as they are."""
        return self.config.layout.format == NATIVE_FORMAT

    @property
    def can_drop(self) -> bool:
        """Whether a run may leave out records: filtered ones, failed but tolerated ones, or those with a null value."""
        records = self.config.records
        ignores_nulls = self.config.layout.null_values == "ignore"
        return bool(records.transforms) or records.errors.tolerance == "all" or ignores_nulls

    @property
    def kinds(self) -> set[str]:
        """Dagster's kind tags of the asset: the store, the engine that writes the objects, and their format."""
        layout = self.config.layout
        return {"s3", "spark", *find_format(layout.format).kinds(layout.codec)}

    @cached_property
    def config_digest(self) -> str:
        """A digest that changes with every setting, secrets too: a corrected password is a reason to try again.

        All topics of a connector have the same.
        """
        settings = json.dumps(self.config.model_dump(exclude={"topics"}), default=_unmask, sort_keys=True)
        return _digest_settings(settings.encode(), self.config.name.encode())

    @cached_property
    def hours(self) -> "Hours":
        return Hours(self.config)

    @cached_property
    def days(self) -> "Days":
        return Days(self.config)

    @property
    def offered_hours(self) -> dg.TimeWindowPartitionsDefinition:
        """The hours that Dagster offers, from the day of `first_hour` on."""
        return _define_hours(self._offered_from, self.config.layout.timezone)

    @property
    def offered_days(self) -> dg.TimeWindowPartitionsDefinition:
        """The days that Dagster offers, from the day of `first_hour` on."""
        return _define_days(self._offered_from, self.config.layout.timezone)

    @property
    def first_offered(self) -> datetime:
        """The start of the first hour that Dagster offers, UTC. It refuses runs of earlier ones."""
        return self.offered_hours.start.astimezone(timezone.utc)

    @property
    def _offered_from(self) -> datetime:
        start = _find_start_day(self.config)
        return start if self.first_hour is None else max(start, find_local_day(self.first_hour, self.config))


def list_archived_topics(connectors: Iterable[ConnectorConfig]) -> list[ArchivedTopic]:
    """Return every topic of every sink connector. A source connector archives none."""
    sinks = (config for config in connectors if config.source is None)
    return [ArchivedTopic(config, topic) for config in sinks for topic in config.topics]


class Windows:
    """Converts between partition keys and the starts of their time windows in UTC.

    Dagster's own rules apply, also at clock changes.
    """

    def __init__(self, definition: dg.TimeWindowPartitionsDefinition) -> None:
        self.definition = definition

    def names(self, text: str) -> bool:
        """Return True if `text` is a partition key. Dagster's own check accepts any minute as the start of an hour."""
        return self.definition.has_partition_key(text) and self.key(self.start(text)) == text

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
        """Return the starts of the keys' windows from `first` on. Earlier keys remain from an earlier start day."""
        return {start for key in partition_keys if (start := self.start(key)) >= self.first}

    @cached_property
    def first(self) -> datetime:
        """The start of the first window, UTC."""
        return self.definition.start.astimezone(timezone.utc)


class Hours(Windows):
    """The hours of a connector, from the first hour of its start day up to the open hour.

    They begin with the day because a daily chunk depends on all hours of its day. The open hour can be archived on
    demand. All topics of a connector share them: Dagster runs a range of several assets only over one definition.
    """

    def __init__(self, config: ConnectorConfig) -> None:
        super().__init__(_define_hours(_find_start_day(config), config.layout.timezone))


class Days(Windows):
    """The days of a connector, from its start day up to today."""

    def __init__(self, config: ConnectorConfig) -> None:
        super().__init__(_define_days(_find_start_day(config), config.layout.timezone))


def find_restorable_windows(config: ConnectorConfig) -> tuple[Windows, Windows]:
    """Return the hours and days that may be archived, also before the connector's start hour: it may have moved."""
    start, zone = datetime(1970, 1, 1), config.layout.timezone  # noqa: DTZ001 - of the zone, as Dagster wants it
    return Windows(_define_hours(start, zone)), Windows(_define_days(start, zone))


@cache
def _define_hours(start: datetime, zone: str) -> dg.TimeWindowPartitionsDefinition:
    return dg.HourlyPartitionsDefinition(start, timezone=zone, end_offset=1)


@cache
def _define_days(start: datetime, zone: str) -> dg.TimeWindowPartitionsDefinition:
    return dg.DailyPartitionsDefinition(start, timezone=zone, end_offset=1)


@lru_cache(maxsize=64)
def _digest_settings(settings: bytes, salt: bytes) -> str:
    # Run tags show digests made from this one. A slow hash keeps people from guessing a password by them.
    return hashlib.scrypt(settings, salt=salt, n=2**14, r=8, p=1, dklen=16).hex()


def _unmask(value: Any) -> str:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return str(value)


def _find_start_day(config: ConnectorConfig) -> datetime:
    return find_local_day(config.archive.start_hour, config)


def find_local_day(hour: datetime, config: ConnectorConfig) -> datetime:
    """Return the start of the hour's day in the connector's timezone."""
    local = hour.astimezone(ZoneInfo(config.layout.timezone))
    return local.replace(hour=0, minute=0, second=0, microsecond=0, fold=0)


def find_newest_closed_hour(now: datetime, lateness: timedelta, first: datetime) -> datetime | None:
    """Return the newest hour whose end and allowed lateness have passed, or None if there is no such hour yet."""
    hours = int((now - lateness - first) // HOUR)
    return first + (hours - 1) * HOUR if hours > 0 else None
