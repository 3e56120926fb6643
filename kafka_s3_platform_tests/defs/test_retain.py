"""What sensors, schedules and hours say of an archive after retention."""

from datetime import timedelta

import dagster as dg

from kafka_s3_platform.core.defs.retain import RETAIN_TIME
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.defs.running import (
    ago,
    connector_of_this_hour,
    definitions,
    events,
    launch,
    run,
    tick,
    topic_of,
)
from kafka_s3_platform_tests.support import Sent, archived, snapshot
from kafka_s3_platform_tests.upkeep.test_retain import retained, ruled, states

AGES = (27, 26, 25)


def test_no_sensor_asks_for_a_run_after_days_expired(lab: Lab, instance: dg.DagsterInstance) -> None:
    lab.create_topic()
    config = connector_of_this_hour(lab.kafka, lab.store, lab.topic)
    hours = [ago(config, age) for age in AGES]
    lab.produce([Sent(timestamp=hour + timedelta(minutes=1)) for hour in hours])
    archived(config, [ago(config, age) for age in range(27, 0, -1)])
    [asked] = tick(config, "lag__c").run_requests or ()
    assert launch(config, asked).success
    report = retained(config, ms=(("", 0),))
    assert sum(r.record_count for r in report.removals) == 3
    assert snapshot(config).segments == ()
    assert states(config, hours) == ["expired"] * 3
    assert not tick(config, "lag__c").run_requests
    assert not tick(config, "folders__c").run_requests
    topic = topic_of(config)
    key = topic.hours.key(hours[0])
    [metadata] = events(run(config, "archive__c", topic.key("hourly"), [key]), topic.key("hourly"))[key]
    numbers = [metadata[name] for name in ("partition_row_count", "objects", "object_bytes", "removed_objects", "uris")]
    assert numbers == [1, 0, 0, 1, []], "an hour's page keeps its records, and names no object that went"


def test_a_connector_with_a_rule_has_the_job_and_its_schedule_and_no_other(lab: Lab) -> None:
    config = lab.connector()
    assert "retain__c" not in {job.name for job in definitions(config).resolve_all_job_defs()}
    schedule = definitions(ruled(config, ms=(("", 1),))).resolve_schedule_def("retain__c")
    assert (schedule.cron_schedule, schedule.job_name) == (RETAIN_TIME, "retain__c")
