"""One topic of one connector: its asset keys, its partitions and its index."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import cached_property
from typing import Any, Literal
from zoneinfo import ZoneInfo

import dagster as dg
from pydantic import SecretStr

from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.defs.names import op_name
from kafka_s3_platform.errors import ConfigError
from kafka_s3_platform.model.state import HOUR
from kafka_s3_platform.store.index import TopicIndex

Group = Literal["hourly", "daily", "restored"]

FORMATS = ("envelope.parquet", "envelope.avro", "envelope.json", "parquet", "avro", "json", "bytes", "block_gzip")
"""Formats of ours; a user's own are named by their class, which says nothing to Dagster."""

COMPRESSED_WHOLE = ("json", "bytes")
"""Families whose objects are compressed from the outside: what opens them has to know how."""


@dataclass(frozen=True)
class ArchivedTopic:
    """A topic that a connector archives."""

    config: ConnectorConfig
    topic: str

    @property
    def name(self) -> str:
        """`<connector>/<topic>`: also the pool, so that no two runs work on one topic at a time."""
        return f"{self.config.name}/{self.topic}"

    @property
    def kafka_key(self) -> dg.AssetKey:
        return dg.AssetKey(["kafka", self.topic])

    def key(self, group: Group) -> dg.AssetKey:
        """The asset key `<connector>/<group>/<topic>`."""
        return dg.AssetKey([self.config.name, group, self.topic])

    def op_name(self, *before: str) -> str:
        """The name of one of this topic's ops or jobs."""
        return op_name(*before, self.config.name, self.topic)

    @property
    def lateness(self) -> timedelta:
        return timedelta(milliseconds=self.config.archive.allowed_lateness_ms)

    @property
    def index(self) -> TopicIndex:
        return TopicIndex(self.config.store, self.config.archive.index_dir, self.config.name, self.topic)

    @property
    def is_native(self) -> bool:
        """Whether compaction and restore can read its objects; others stay as the sink wrote them."""
        return self.config.layout.format == "envelope.parquet"

    @property
    def can_drop(self) -> bool:
        """Whether records may be read that no object holds: filtered, or failed and tolerated."""
        records = self.config.records
        ignores_nulls = self.config.layout.null_values == "ignore"
        return bool(records.transforms) or records.errors.tolerance == "all" or ignores_nulls

    @property
    def kinds(self) -> set[str]:
        """What Dagster tags the asset of its objects with: where they are, how they are written, what writes them."""
        layout = self.config.layout
        family = layout.format.rpartition(".")[2] if layout.format in FORMATS else ""
        codec = layout.codec if family in COMPRESSED_WHOLE and layout.codec != "none" else ""
        return {"s3", "spark", family, codec} - {""}

    @cached_property
    def config_digest(self) -> str:
        """Changes with every setting, secrets too: a corrected password is a reason to try again."""
        settings = json.dumps(self.config.model_dump(exclude={"topics"}), default=_unmasked, sort_keys=True).encode()
        # run tags show what is derived from it: slow on purpose, so that nobody guesses a password from one
        return hashlib.scrypt(settings, salt=self.name.encode(), n=2**14, r=8, p=1, dklen=16).hex()

    @cached_property
    def hours(self) -> "Hours":
        return Hours(self.config)

    @cached_property
    def days(self) -> "Days":
        return Days(self.config)


def archived_topics(connectors: Iterable[ConnectorConfig]) -> list[ArchivedTopic]:
    """Every topic of every connector; those of sources are not archived, but read."""
    sinks = (config for config in connectors if config.source is None)
    return [ArchivedTopic(config, topic) for config in sinks for topic in config.topics]


class Windows:
    """Partition keys <-> starts of their time windows in UTC, by Dagster's own rules (clock changes included)."""

    def __init__(self, definition: dg.TimeWindowPartitionsDefinition) -> None:
        self.definition = definition

    def names(self, text: str) -> bool:
        """Whether it is a partition key. Dagster alone takes any minute for the start of an hour."""
        return self.definition.has_partition_key(text) and self.key(self.start(text)) == text

    def check(self, partition_keys: Iterable[str]) -> None:
        """ConfigError where one of them is none that Dagster makes, which whoever launches a run may give it."""
        for key in partition_keys:
            nearest = self.key(self.start(key))
            if nearest != key:
                raise ConfigError(f"partition key {key} is none of this asset: the window that holds it is {nearest}")

    def start(self, partition_key: str) -> datetime:
        """The start of a partition key's window, UTC."""
        return self.definition.start_time_for_partition_key(partition_key).astimezone(timezone.utc)

    def end(self, partition_key: str) -> datetime:
        """The end of a partition key's window, UTC."""
        return self.definition.end_time_for_partition_key(partition_key).astimezone(timezone.utc)

    def key(self, moment: datetime) -> str:
        """The partition key of the window that holds `moment`."""
        return self.definition.get_partition_key_for_timestamp(moment.timestamp())

    def starts(self, partition_keys: Iterable[str]) -> set[datetime]:
        """The starts of windows, without those before the first one: they are left of an earlier start day."""
        return {start for key in partition_keys if (start := self.start(key)) >= self.first}

    @cached_property
    def first(self) -> datetime:
        """The start of the first window, UTC."""
        return self.definition.start.astimezone(timezone.utc)


class Hours(Windows):
    """The hours of a connector, from the first of its start day up to the open one, which can be archived on demand.

    They begin with the day, because a day's chunk depends on all of its hours.
    """

    def __init__(self, config: ConnectorConfig) -> None:
        zone = config.layout.timezone
        super().__init__(dg.HourlyPartitionsDefinition(_start_day(config), timezone=zone, end_offset=1))


class Days(Windows):
    """The days of a connector, from that of its start hour up to today, which restored hours of today depend on."""

    def __init__(self, config: ConnectorConfig) -> None:
        zone = config.layout.timezone
        super().__init__(dg.DailyPartitionsDefinition(_start_day(config), timezone=zone, end_offset=1))


def _unmasked(value: Any) -> str:
    return value.get_secret_value() if isinstance(value, SecretStr) else str(value)


def _start_day(config: ConnectorConfig) -> datetime:
    local = config.archive.start_hour.astimezone(ZoneInfo(config.layout.timezone))
    return local.replace(hour=0, minute=0, second=0, microsecond=0, fold=0)


def newest_closed_hour(now: datetime, lateness: timedelta, first: datetime) -> datetime | None:
    """The start of the newest hour whose end and allowed lateness have passed, None before the first has."""
    hours = int((now - lateness - first) // HOUR)
    return first + (hours - 1) * HOUR if hours > 0 else None
