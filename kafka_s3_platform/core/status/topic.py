"""The archived topic of a connector, for sensors, pages, metrics and commands."""

import hashlib
import json
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from functools import cached_property, lru_cache
from typing import Any

from pydantic import SecretStr

from kafka_s3_platform.core.config.formats import NATIVE_FORMAT
from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.model.times import HOUR
from kafka_s3_platform.core.store.index import TopicIndex


@dataclass(frozen=True)
class ArchivedTopic:
    """A topic that a connector archives."""

    config: ConnectorConfig
    topic: str

    @property
    def name(self) -> str:
        """`<connector>/<topic>`."""
        return f"{self.config.name}/{self.topic}"

    @cached_property
    def start_hour(self) -> datetime:
        """The first hour (UTC) of the connector's start day, since a daily chunk depends on all hours of its day."""
        return find_start_day(self.config).astimezone(timezone.utc)

    @property
    def lateness(self) -> timedelta:
        return timedelta(milliseconds=self.config.archive.allowed_lateness_ms)

    @property
    def index(self) -> TopicIndex:
        return TopicIndex.of(self.config, self.topic)

    @property
    def is_native(self) -> bool:
        """True if compaction and restore can read the objects. Objects of other formats stay as they are."""
        return self.config.layout.format == NATIVE_FORMAT

    @property
    def can_drop(self) -> bool:
        """True if a run may leave out records: filtered ones, failed but tolerated ones, or those with a null value."""
        records = self.config.records
        ignores_nulls = self.config.layout.null_values == "ignore"
        return bool(records.transforms) or records.errors.tolerance == "all" or ignores_nulls

    @cached_property
    def config_digest(self) -> str:
        """A digest of all settings, including secrets: a corrected password is a reason to try again.

        All topics of a connector have the same digest.
        """
        settings = json.dumps(self.config.model_dump(exclude={"topics"}), default=_unmask, sort_keys=True)
        return _digest_settings(settings.encode(), self.config.name.encode())


def find_start_day(config: ConnectorConfig) -> datetime:
    """Return the start of the connector's first day, in its timezone."""
    return find_local_day(config.archive.start_hour, config)


def find_local_day(hour: datetime, config: ConnectorConfig) -> datetime:
    """Return the start of the hour's day in the connector's timezone."""
    local = hour.astimezone(config.layout.zone)
    return local.replace(hour=0, minute=0, second=0, microsecond=0, fold=0)


def find_newest_closed_hour(now: datetime, lateness: timedelta, first: datetime) -> datetime | None:
    """Return the newest hour whose end and allowed lateness have passed, or None if there is no such hour yet."""
    hours = int((now - lateness - first) // HOUR)
    return first + (hours - 1) * HOUR if hours > 0 else None


def find_newest_past_day(topic: ArchivedTopic, now: datetime) -> date:
    """Return the newest day, in the connector's timezone, whose end and allowed lateness have passed."""
    return (now - topic.lateness).astimezone(topic.config.layout.zone).date() - timedelta(days=1)


def fingerprint_inputs(inputs: Any) -> str:
    """Return a short digest of JSON values, the inputs of a run, for cursors and tags."""
    return hashlib.sha256(json.dumps(inputs).encode()).hexdigest()[:16]


@lru_cache(maxsize=64)
def _digest_settings(settings: bytes, salt: bytes) -> str:
    """Return a digest of a connector's settings, including secrets. It is slow on purpose."""
    # Run tags show digests made from this one. A slow hash keeps people from guessing a password by them.
    return hashlib.scrypt(settings, salt=salt, n=2**14, r=8, p=1, dklen=16).hex()


def _unmask(value: Any) -> str:
    """Return the text of a secret, or of any other value that JSON does not know."""
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return str(value)
