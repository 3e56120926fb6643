"""Compare this machine's clock with the store's clock, and with the times brokers wrote into records.

A run does this before it plans. This machine's clock decides if an hour is over, and so can be complete. If the clock
is wrong, so is the decision.
"""

import logging
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta, timezone

import pyarrow.compute as pc

from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.errors import AuthorizationError, ClockError, PlatformError
from kafka_s3_platform.core.kafka.admin import ClusterAdmin, TopicDescription
from kafka_s3_platform.core.kafka.new_reader import new_reader
from kafka_s3_platform.core.model.offsets import OffsetRange
from kafka_s3_platform.core.store.objects import ObjectStore

logger = logging.getLogger(__name__)

LOG_APPEND_TIME = 1
"""The `timestampType` of a record whose timestamp was set by the broker."""


def refuse_wrong_clock(config: ConnectorConfig, store: ObjectStore) -> None:
    """Raise ClockError if this machine's clock and the store's differ by more than `archive.clock.tolerance.ms`."""
    if store.clock.latest is None:
        # any answer may have a Date, even a refusal
        with suppress(AuthorizationError):
            store.head(f"{config.archive.index_dir}/{config.name}")
    reading = store.clock.latest
    if reading is None:
        logger.debug("the store at %s sends no time: its answers have no Date", _name_endpoint(config))
    elif abs(reading.difference) > _get_tolerance(config):
        who = f"the store at {_name_endpoint(config)}"
        difference = _describe_difference(reading.received, who, reading.date, reading.difference)
        raise ClockError(
            f"{difference}. Nothing was committed: hours that are not over would count as complete, or records "
            f"would get a wrong time. {_advise_on_clocks(config)}"
        )


def find_wrong_clocks(
    config: ConnectorConfig, store: ObjectStore, admin: ClusterAdmin, descriptions: Mapping[str, TopicDescription]
) -> dict[str, PlatformError]:
    """Call `refuse_wrong_clock`, then compare this machine's clock with the brokers' clocks.

    A topic with `LogAppendTime` shows the brokers' clocks: a broker's clock has reached at least the time it wrote into
    a record. If a broker's clock is ahead, the topic gets a ClockError only if the store's answers have no Date. If the
    store agrees with this machine, the difference is logged, and archiving goes on.
    """
    try:
        refuse_wrong_clock(config, store)
    except ClockError as err:
        return dict.fromkeys(descriptions, err)
    stamped = {
        topic: description.kafka_partitions
        for topic, description in descriptions.items()
        if description.configs_in_force.get("message.timestamp.type") == "LogAppendTime"
    }
    failures: dict[str, PlatformError] = {}
    for topic, newest in admin.newest_records(stamped).results.items():
        problem = _find_future_append(config, topic, newest.results)
        if problem is None:
            continue
        message = f"{problem}. {_advise_on_clocks(config)}"
        if store.clock.latest is None:
            failures[topic] = ClockError(f"{message}. Nothing was committed")
        else:
            logger.warning("%s. The store agrees with this machine", message)
    return failures


def _find_future_append(
    config: ConnectorConfig, topic: str, newest_records: Mapping[int, tuple[int, int]]
) -> str | None:
    """Describe a record appended in the future, by this machine's clock. Return None if there is none.

    `newest_records` maps each kafka partition to the offset and the timestamp (epoch ms) of its record with the latest
    timestamp.
    """
    try:
        now = datetime.now(timezone.utc)
        for kafka_partition, (offset, timestamp_ms) in newest_records.items():
            appended = datetime.fromtimestamp(timestamp_ms / 1000, timezone.utc)
            if appended - now > _get_tolerance(config) and _has_append_time(config, topic, kafka_partition, offset):
                who = f"the broker that appended {topic}-{kafka_partition} offset {offset}"
                return _describe_difference(now, who, appended, now - appended)
    except PlatformError as err:
        logger.debug("topic %s: cannot read when its newest records were appended: %s", topic, err)
    return None


def _has_append_time(config: ConnectorConfig, topic: str, kafka_partition: int, offset: int) -> bool:
    """Return True if the broker set this record's timestamp. An older record may have its producer's timestamp."""
    with new_reader(config.kafka, topic) as reader:
        batches = list(reader.read(kafka_partition, OffsetRange(offset, offset + 1)))
    return any(pc.any(pc.equal(b.column("timestampType"), LOG_APPEND_TIME)).as_py() for b in batches)


def _get_tolerance(config: ConnectorConfig) -> timedelta:
    return timedelta(milliseconds=config.archive.clock_tolerance_ms)


def _name_endpoint(config: ConnectorConfig) -> str:
    return config.store.endpoint_url or "AWS"


def _describe_difference(local_time: datetime, clock_owner: str, other_time: datetime, difference: timedelta) -> str:
    """Say how far this machine's clock is ahead of (`difference` > 0) or behind another, for an error or a warning."""
    direction = "ahead" if difference > timedelta() else "behind"
    return (
        f"this machine's clock says {local_time:%Y-%m-%d %H:%M:%S} UTC, the clock of {clock_owner} "
        f"{other_time:%Y-%m-%d %H:%M:%S} UTC: "
        f"this one is at least {abs(difference).total_seconds():.0f} s {direction}"
    )


def _advise_on_clocks(config: ConnectorConfig) -> str:
    return (
        f"Set the one that is wrong (NTP), or let them differ by more than archive.clock.tolerance.ms="
        f"{config.archive.clock_tolerance_ms}"
    )
