"""Schedules: the newest closed hour, hourly; the newest day that is over, daily. Nothing is asked for twice."""

import hashlib
import json
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import dagster as dg

from kafka_s3_platform.compact.days import days_due
from kafka_s3_platform.defs.discovery import gone_topics, topics_folder
from kafka_s3_platform.defs.folder_sensor import days_fingerprint, read_days
from kafka_s3_platform.defs.jobs import Job
from kafka_s3_platform.defs.names import op_name
from kafka_s3_platform.defs.runs import reason_to_wait, request, unfinished, windows_of
from kafka_s3_platform.defs.tick import Tick
from kafka_s3_platform.defs.topic import ArchivedTopic, newest_closed_hour

AFTER_LATENESS = timedelta(minutes=2)
DAILY_HOUR = 1


def hourly_schedule(
    topics: Sequence[ArchivedTopic], job: Job, status: dg.DefaultScheduleStatus
) -> dg.ScheduleDefinition:
    """Asks for the newest closed hour of each topic, shortly after its allowed lateness."""
    minute = int((topics[0].lateness + AFTER_LATENESS).total_seconds() // 60) % 60

    @dg.schedule(
        name=op_name("hourly", topics[0].config.name),
        job=job,
        cron_schedule=f"{minute} * * * *",
        execution_timezone=topics[0].config.layout.timezone,
        default_status=status,
    )
    def hourly(context: dg.ScheduleEvaluationContext) -> list[dg.RunRequest] | dg.SkipReason:
        gone = gone_topics(topics[0].config, topics_folder())
        present = [topic for topic in topics if topic.topic not in gone]
        tick, now = Tick({}, context.log), context.scheduled_execution_time
        tick.each("hours", present, lambda topic: _ask_hour(context.instance, topic, job.name, now, tick))
        return tick.asked("the newest closed hour is archived, being archived, or was tried already")

    return hourly


def daily_schedule(
    topics: Sequence[ArchivedTopic], job: Job, status: dg.DefaultScheduleStatus
) -> dg.ScheduleDefinition:
    """Asks for the newest day that is over of each topic, where the index holds hourly segments of it.

    That is yesterday, or an earlier day where the allowed lateness is longer than what has passed of today.
    """
    lateness = topics[0].lateness + AFTER_LATENESS
    minute, hours = int(lateness.total_seconds() // 60) % 60, int(lateness.total_seconds() // 3600)

    @dg.schedule(
        name=op_name("daily", topics[0].config.name),
        job=job,
        cron_schedule=f"{minute} {(DAILY_HOUR + hours) % 24} * * *",
        execution_timezone=topics[0].config.layout.timezone,
        default_status=status,
    )
    def daily(context: dg.ScheduleEvaluationContext) -> list[dg.RunRequest] | dg.SkipReason:
        tick, now = Tick({}, context.log), context.scheduled_execution_time
        tick.each("days", topics, lambda topic: _ask_day(context.instance, topic, job.name, now, tick))
        return tick.asked(
            "the newest day that is over is compacted, being compacted, was tried already, or holds nothing"
        )

    return daily


def verify_schedule(
    topics: Sequence[ArchivedTopic], job: Job, status: dg.DefaultScheduleStatus
) -> dg.ScheduleDefinition:
    """Looks at the objects once a day, after the night's compaction."""
    return dg.ScheduleDefinition(
        name=op_name("verify", topics[0].config.name),
        job=job,
        cron_schedule="0 6 * * *",
        execution_timezone=topics[0].config.layout.timezone,
        default_status=status,
    )


def _ask_hour(instance: dg.DagsterInstance, topic: ArchivedTopic, job_name: str, now: datetime, tick: Tick) -> None:
    key = topic.key("hourly")
    hour = newest_closed_hour(now, topic.lateness, topic.hours.first)
    if hour is None or topic.hours.key(hour) in instance.get_materialized_partitions(key):
        return
    busy = windows_of(unfinished(instance, key), topic.hours)
    # without Kafka, which the lag sensor asks: an hour that failed for good is the sensor's, which sees what changes
    inputs = json.dumps(["schedule", topic.config_digest, hour.isoformat()])
    fingerprint = hashlib.sha256(inputs.encode()).hexdigest()[:16]
    if not _holds(busy, hour) and reason_to_wait(instance, key, fingerprint) is None:
        tick.requests.append(request(instance, key, job_name, [topic.hours.key(hour)], fingerprint))


def _ask_day(instance: dg.DagsterInstance, topic: ArchivedTopic, job_name: str, now: datetime, tick: Tick) -> None:
    key, snapshot = topic.key("daily"), read_days(topic, tick)
    zone = ZoneInfo(topic.config.layout.timezone)
    newest = (now - topic.lateness).astimezone(zone).date() - timedelta(days=1)
    if snapshot is None or newest not in days_due(snapshot, zone, topic.lateness, datetime.now(timezone.utc)):
        return
    busy = windows_of(unfinished(instance, key), topic.days)
    partition_key = newest.isoformat()
    fingerprint = days_fingerprint(topic, snapshot, [newest])
    if not _holds(busy, topic.days.start(partition_key)) and reason_to_wait(instance, key, fingerprint) is None:
        tick.requests.append(request(instance, key, job_name, [partition_key], fingerprint))


def _holds(windows: Sequence[tuple[datetime, datetime]], moment: datetime) -> bool:
    return any(start <= moment < end for start, end in windows)
