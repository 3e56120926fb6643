"""Whether this machine's clock may be believed: it is held against the store's, and against what brokers wrote."""

import logging
from contextlib import suppress
from datetime import datetime, timedelta, timezone

import pyarrow.compute as pc

from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.errors import AuthorizationError, ClockError, PlatformError
from kafka_s3_platform.kafka.admin import ClusterAdmin, TopicDescription
from kafka_s3_platform.kafka.readers import new_reader
from kafka_s3_platform.model.offsets import OffsetRange
from kafka_s3_platform.store.objects import ObjectStore

logger = logging.getLogger(__name__)

LOG_APPEND_TIME = 1
"""The `timestampType` of a record that the broker gave its time."""


def refuse_wrong_clock(config: ConnectorConfig, store: ObjectStore) -> None:
    """Raise ClockError where this machine's clock and the store's differ by more than `archive.clock.tolerance.ms`."""
    if store.clock.latest is None:
        # any answer will do, a refusal too
        with suppress(AuthorizationError):
            store.head(f"{config.archive.index_dir}/{config.name}")
    seen = store.clock.latest
    if seen is None:
        logger.debug("the store at %s does not tell the time: its answers have no Date", _endpoint(config))
    elif abs(seen.difference) > _tolerance(config):
        who = f"the store at {_endpoint(config)}"
        raise ClockError(
            f"{_apart(seen.received, who, seen.told, seen.difference)}. Nothing was committed: hours would be called "
            f"complete that are not over, or records be taken for those of another time. {_advice(config)}"
        )


def refuse_wrong_clocks(
    config: ConnectorConfig, store: ObjectStore, admin: ClusterAdmin, description: TopicDescription
) -> None:
    """As `refuse_wrong_clock`, and for a broker's clock where the store does not tell the time.

    A broker's clock is known to be at least what it wrote into records that get the time at which they are appended.
    Where the store agrees with this machine, a broker that does not is told in the log: archiving goes on.
    """
    refuse_wrong_clock(config, store)
    found = _appended_in_the_future(config, admin, description)
    if found is None:
        return
    message = f"{found}. {_advice(config)}"
    if store.clock.latest is None:
        raise ClockError(f"{message}. Nothing was committed")
    logger.warning("%s. The store agrees with this machine", message)


def _appended_in_the_future(config: ConnectorConfig, admin: ClusterAdmin, description: TopicDescription) -> str | None:
    """What a broker says that it wrote at a time that is not yet, by this machine's clock; None: nothing."""
    topic = description.topic
    try:
        if admin.topic_configs(topic).get("message.timestamp.type") != "LogAppendTime":
            return None
        newest = admin.newest_records(topic, description.kafka_partitions)
        now = datetime.now(timezone.utc)
        for kafka_partition, (offset, timestamp_ms) in newest.items():
            appended = datetime.fromtimestamp(timestamp_ms / 1000, timezone.utc)
            if appended - now > _tolerance(config) and _has_append_time(config, topic, kafka_partition, offset):
                who = f"the broker that appended {topic}-{kafka_partition} offset {offset}"
                return _apart(now, who, appended, now - appended)
    except PlatformError as err:
        logger.debug("topic %s: when its newest records were appended is not known: %s", topic, err)
    return None


def _has_append_time(config: ConnectorConfig, topic: str, kafka_partition: int, offset: int) -> bool:
    """Whether the broker gave the record its time: one from before the topic's config was changed may bear another."""
    with new_reader(config.kafka, topic) as reader:
        batches = list(reader.read(kafka_partition, OffsetRange(offset, offset + 1)))
    return any(pc.any(pc.equal(b.column("timestampType"), LOG_APPEND_TIME)).as_py() for b in batches)


def _tolerance(config: ConnectorConfig) -> timedelta:
    return timedelta(milliseconds=config.archive.clock_tolerance_ms)


def _endpoint(config: ConnectorConfig) -> str:
    return config.store.endpoint_url or "AWS"


def _apart(here: datetime, who: str, there: datetime, difference: timedelta) -> str:
    direction = "ahead" if difference > timedelta() else "behind"
    return (
        f"this machine's clock says {here:%Y-%m-%d %H:%M:%S} UTC, that of {who} said {there:%Y-%m-%d %H:%M:%S} UTC: "
        f"this one is at least {abs(difference).total_seconds():.0f} s {direction}"
    )


def _advice(config: ConnectorConfig) -> str:
    return (
        f"Set the one that is wrong (NTP), or let them differ by more than archive.clock.tolerance.ms="
        f"{config.archive.clock_tolerance_ms}"
    )
