"""A clock that is wrong proves nothing: it is told, and nothing is archived by it."""

import logging
import time
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from kafka_s3_platform.core.archive import clock as archive_clock
from kafka_s3_platform.core.archive.takeover import record_takeover
from kafka_s3_platform.core.config.settings import ConnectorConfig, KafkaSettings, StoreSettings
from kafka_s3_platform.core.errors import ClockError
from kafka_s3_platform.core.kafka import offset_admin
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.kafka.groups import publish_offsets
from kafka_s3_platform.core.store import clock as store_clock
from kafka_s3_platform.core.store import index as store_index
from kafka_s3_platform.core.store.clock import StoreClock, StoreTime
from kafka_s3_platform.core.store.index import ConnectorIndex, TopicIndex
from kafka_s3_platform.core.upkeep.compact.days import CompactRequest
from kafka_s3_platform.core.upkeep.vacuum import vacuum_topic
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.faults.proxy import FaultyProxy
from kafka_s3_platform_tests.support import (
    HOUR,
    NOON,
    InProcessRunner,
    Sent,
    archived,
    compact_day,
    connector,
    produce,
    snapshot,
)

DAY = timedelta(days=1)
NONE = timedelta()


@dataclass
class LocalClock:
    """This machine's clock, as the platform's modules read it."""

    shift: timedelta = NONE


@pytest.fixture
def local_clock(monkeypatch: pytest.MonkeyPatch) -> LocalClock:
    found = LocalClock()

    class Shifted(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.now(tz) + found.shift

    for module in (archive_clock, offset_admin, store_clock, store_index):
        monkeypatch.setattr(module, "datetime", Shifted)
    return found


@pytest.fixture
def config(lab: Lab, proxy: FaultyProxy) -> ConnectorConfig:
    """A connector of a topic with three records of this hour, whose store is behind the proxy."""
    lab.create_topic()
    lab.produce([Sent(timestamp=datetime.now(timezone.utc)) for _ in range(3)])
    store = lab.store.model_copy(update={"endpoint_url": proxy.endpoint})
    return connector(lab.kafka, store, lab.topic)


def nothing_was_committed(config: ConnectorConfig, store: StoreSettings) -> bool:
    return TopicIndex(ConnectorIndex(store, config.archive.index_dir, config.name), config.topics[0]).peek() is None


def this_hour() -> datetime:
    return datetime.now(timezone.utc).replace(minute=0, second=0, microsecond=0)


@pytest.mark.parametrize("difference", [NONE, timedelta(seconds=57), timedelta(seconds=-57)])
def test_clocks_that_agree_within_the_tolerance_are_believed(
    config: ConnectorConfig, proxy: FaultyProxy, difference: timedelta
) -> None:
    """An hour is complete when the earlier clock has seen its end: the last one may not have ended for a minute yet."""
    proxy.date_shift = -difference
    assert archived(config, [this_hour() - 2 * HOUR]).hours[0].complete
    assert archived(config).record_count == 0


@pytest.mark.parametrize("local_ahead", [DAY, timedelta(seconds=64), timedelta(seconds=-64), -2 * DAY])
def test_a_run_is_refused_where_the_store_tells_another_time(
    config: ConnectorConfig, store_settings: StoreSettings, proxy: FaultyProxy, local_ahead: timedelta
) -> None:
    proxy.date_shift = -local_ahead
    direction = "ahead" if local_ahead > NONE else "behind"
    with pytest.raises(
        ClockError, match=rf"this machine's clock says .* UTC, the clock of the store at .* {direction}"
    ):
        archived(config)
    assert nothing_was_committed(config, store_settings)


@pytest.mark.parametrize(
    ("shift", "said"), [(DAY, "at least 86(39|40)[0-9] s ahead"), (-2 * DAY, "at least 172[78][0-9]{2} s behind")]
)
def test_a_wrong_local_clock_neither_completes_hours_nor_misplaces_records(
    config: ConnectorConfig, store_settings: StoreSettings, local_clock: LocalClock, shift: timedelta, said: str
) -> None:
    """A day ahead, hours to come were complete; two days behind, records went to `__out_of_range__`."""
    local_clock.shift = shift
    with pytest.raises(ClockError, match=said):
        archived(config, [this_hour() + HOUR])
    assert nothing_was_committed(config, store_settings)
    local_clock.shift = NONE
    report = archived(config)
    assert (report.record_count, report.out_of_range_count) == (3, 0)


def test_the_tolerance_is_a_key_and_the_earlier_clock_counts(config: ConnectorConfig, local_clock: LocalClock) -> None:
    """What the error advises works, and still no hour to come is complete."""
    local_clock.shift = DAY
    archive = config.archive.model_copy(update={"clock_tolerance_ms": 2 * 86_400_000})
    hour = this_hour() + HOUR
    assert not archived(config.model_copy(update={"archive": archive}), [hour]).hours[-1].complete
    assert max(f.observed_at for f in snapshot(config).state.frontiers) <= datetime.now(timezone.utc)


def test_a_store_that_does_not_tell_the_time_is_no_reason_to_refuse(
    config: ConnectorConfig, proxy: FaultyProxy, caplog: pytest.LogCaptureFixture
) -> None:
    proxy.date_shift = None
    with caplog.at_level(logging.DEBUG, "kafka_s3_platform"):
        assert archived(config).record_count == 3
    assert "its answers have no Date" in caplog.text


def test_a_take_over_a_compaction_and_a_vacuum_are_refused_too(
    config: ConnectorConfig, kafka_settings: KafkaSettings, proxy: FaultyProxy
) -> None:
    archived(config)
    topic = config.topics[0]
    with ClusterAdmin(kafka_settings) as admin:
        publish_offsets(admin, f"connect-{topic}", topic, {0: 3})
    version = snapshot(config).version
    proxy.date_shift = -DAY
    with pytest.raises(ClockError):
        record_takeover(config, topic, f"connect-{topic}", "run")
    with pytest.raises(ClockError):
        compact_day(CompactRequest(config, topic, NOON.date(), "run"), InProcessRunner())
    with pytest.raises(ClockError):
        vacuum_topic(config, topic, "run", timedelta(days=1), dry_run=False)
    assert snapshot(config).version == version


def append_time(kafka: KafkaSettings, topic: str, value: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    entry = ConfigEntry("message.timestamp.type", value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(10)


def test_records_that_a_broker_appends_at_a_time_to_come_refuse_where_the_store_tells_none(
    config: ConnectorConfig, lab: Lab, proxy: FaultyProxy, local_clock: LocalClock
) -> None:
    append_time(lab.kafka, config.topics[0], "LogAppendTime")
    produce(lab.kafka, config.topics[0], [Sent()])
    proxy.date_shift, local_clock.shift = None, -2 * DAY
    with pytest.raises(ClockError, match=rf"the broker that appended {config.topics[0]}-0 offset 3 .* s behind"):
        archived(config)
    assert nothing_was_committed(config, lab.store)
    local_clock.shift = NONE
    assert archived(config).record_count == 4


def test_a_broker_that_is_read_back_early_with_its_time_is_told_and_archived_from(
    config: ConnectorConfig,
    kafka_settings: KafkaSettings,
    proxy: FaultyProxy,
    local_clock: LocalClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its records keep their times: refused, they would be until those times have come."""
    append_time(kafka_settings, config.topics[0], "LogAppendTime")
    produce(kafka_settings, config.topics[0], [Sent()])
    proxy.date_shift = local_clock.shift = -HOUR
    assert archived(config).record_count == 4
    assert "The store agrees with this machine" in caplog.text


def test_times_that_producers_gave_say_nothing_of_a_brokers_clock(
    config: ConnectorConfig, kafka_settings: KafkaSettings, proxy: FaultyProxy
) -> None:
    """Nor after the topic's timestamp type was changed."""
    produce(kafka_settings, config.topics[0], [Sent(timestamp=datetime.now(timezone.utc) + HOUR / 2)])
    append_time(kafka_settings, config.topics[0], "LogAppendTime")
    proxy.date_shift = None
    assert archived(config).record_count == 4


def test_the_earlier_of_the_two_clocks_says_when_the_look_was() -> None:
    clock, here = StoreClock(), datetime.now(timezone.utc)
    assert clock.earlier_now() >= here
    for told, is_the_stores in ((here + HOUR, False), (here - HOUR, True)):
        clock.latest = StoreTime(told, here, here, time.monotonic())
        assert (clock.earlier_now() < here) == is_the_stores
