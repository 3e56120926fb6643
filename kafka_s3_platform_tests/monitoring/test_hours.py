"""What is known of an hour in each kafka partition, as the page of hours has it."""

from collections.abc import Mapping
from datetime import datetime

from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.upkeep.hour_states import HourState
from kafka_s3_platform.operate.monitoring.hours import HoursReader
from kafka_s3_platform.operate.monitoring.hours_page import HoursPage, render_hours_page
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.kafka.topics import delete_records
from kafka_s3_platform_tests.support import HOUR, NOON, Sent, archived, connector

States = Mapping[int | None, HourState]


def states(config: ConnectorConfig, hour: datetime, at_risk: tuple[datetime, datetime] | None = None) -> States:
    """The state of an hour, under None, and in each kafka partition."""
    found = HoursReader(0.0).read(config, config.topics[0], 2, at_risk)
    assert "Kafka partition" in render_hours_page(HoursPage(found, 1, 2, "../../", "http://dagster"))
    [stated] = [each for day in found.days for each in day.hours if each.report.hour == hour]
    found_in: dict[int | None, HourState] = {None: stated.state}
    found_in.update(stated.kafka_partitions.items())
    return found_in


def test_a_kafka_partition_that_lacks_something_is_told_from_those_that_do_not(lab: Lab) -> None:
    config = connector(lab.kafka, lab.store, lab.create_topic(kafka_partitions=2))
    sent = [Sent(timestamp=NOON), Sent(timestamp=NOON + HOUR), Sent(timestamp=NOON, kafka_partition=1)]
    lab.produce(sent)
    archived(config, [NOON])
    assert states(config, NOON) == {None: "partial", 0: "partial", 1: "complete"}
    assert states(config, NOON + HOUR) == {None: "none", 0: "none", 1: "empty"}
    soon = (NOON + HOUR, NOON + 2 * HOUR)
    assert states(config, NOON + HOUR, soon) == {None: "at risk", 0: "at risk", 1: "empty"}
    delete_records(lab.kafka, lab.topic, 2)
    archived(config.model_copy(update={"archive": config.archive.model_copy(update={"allow_gaps": True})}))
    assert states(config, NOON) == {None: "gap", 0: "gap", 1: "complete"}
