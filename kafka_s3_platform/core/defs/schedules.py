"""Schedules: request the newest closed hour every hour, and the newest past day every day, but none twice."""

from collections.abc import Sequence
from contextlib import closing
from datetime import datetime, timedelta, timezone

import dagster as dg

from kafka_s3_platform.core.defs.compact.folder_sensor import fingerprint_days
from kafka_s3_platform.core.defs.jobs import Job
from kafka_s3_platform.core.defs.runs import Requests, ShownHours
from kafka_s3_platform.core.defs.tick import Tick
from kafka_s3_platform.core.defs.topic import TopicAssets
from kafka_s3_platform.core.instance.names import make_op_name
from kafka_s3_platform.core.status.discovery import find_gone_topics, find_topics_folder
from kafka_s3_platform.core.status.index_look import IndexLook
from kafka_s3_platform.core.status.topic import find_newest_closed_hour, find_newest_past_day, fingerprint_inputs
from kafka_s3_platform.core.store.index import IndexSnapshot
from kafka_s3_platform.core.upkeep.compact.days import list_due_days

AFTER_LATENESS = timedelta(minutes=2)
DAILY_HOUR = 1


def make_hourly_schedule(
    topics: Sequence[TopicAssets], job: Job, status: dg.DefaultScheduleStatus
) -> dg.ScheduleDefinition:
    """Make the hourly schedule, which requests each topic's newest closed hour, shortly after the allowed lateness."""
    minute = int((topics[0].lateness + AFTER_LATENESS).total_seconds() // 60) % 60

    @dg.schedule(
        name=make_op_name("hourly", topics[0].config.name),
        job=job,
        cron_schedule=f"{minute} * * * *",
        execution_timezone=topics[0].config.layout.timezone,
        default_status=status,
        description=f"Requests the newest closed hour of each topic of connector {topics[0].config.name}, shortly "
        "after its end and the allowed lateness. Older hours are requested by the lag sensor.",
    )
    def hourly(context: dg.ScheduleEvaluationContext) -> list[dg.RunRequest] | dg.SkipReason:
        """Request the newest closed hour of each topic still in Kafka."""
        gone = find_gone_topics(topics[0].config, find_topics_folder())
        present = [topic for topic in topics if topic.topic not in gone]
        tick = Tick({}, context.log)
        now = context.scheduled_execution_time
        requests = Requests(context.instance, [topic.key("hourly") for topic in topics])
        shown = ShownHours(context.instance)
        tick.evaluate_each("hours", present, lambda topic: _request_hour(topic, requests, shown, now))
        tick.requests += requests.make(job.name)
        return tick.schedule_result("the newest closed hour is archived, being archived, or was tried already")

    return hourly


def make_daily_schedule(
    topics: Sequence[TopicAssets], job: Job, status: dg.DefaultScheduleStatus
) -> dg.ScheduleDefinition:
    """Make the daily schedule, which requests each topic's newest past day if the index holds hourly segments of it.

    This is yesterday, or an earlier day if the allowed lateness is longer than the part of today that has passed.
    """
    lateness = topics[0].lateness + AFTER_LATENESS
    minute = int(lateness.total_seconds() // 60) % 60
    hours = int(lateness.total_seconds() // 3600)

    @dg.schedule(
        name=make_op_name("daily", topics[0].config.name),
        job=job,
        cron_schedule=f"{minute} {(DAILY_HOUR + hours) % 24} * * *",
        execution_timezone=topics[0].config.layout.timezone,
        default_status=status,
        description=f"Requests that the newest past day of each topic of connector {topics[0].config.name} be merged "
        "into larger objects. Older days are requested by the folder sensor.",
    )
    def daily(context: dg.ScheduleEvaluationContext) -> list[dg.RunRequest] | dg.SkipReason:
        """Request the newest past day of each topic."""
        tick = Tick({}, context.log)
        now = context.scheduled_execution_time
        index = IndexLook("daily", topics)
        requests = Requests(context.instance, [topic.key("daily") for topic in topics])
        with closing(index):
            tick.evaluate_each("days", topics, lambda topic: _request_day(topic, index, requests, now, tick))
        tick.requests += requests.make(job.name)
        return tick.schedule_result(
            "the newest day that is over is compacted, being compacted, was tried already, or holds nothing"
        )

    return daily


def _request_hour(topic: TopicAssets, requests: Requests, shown: ShownHours, now: datetime) -> None:
    """Request a run of the newest closed hour, if Dagster does not show it and no run is archiving it."""
    key = topic.key("hourly")
    hour = find_newest_closed_hour(now, topic.lateness, topic.first_offered)
    if hour is None or hour in shown.of(topic):
        return
    # made without asking Kafka: the lag sensor asks it, and tries failed hours again after a change
    fingerprint = fingerprint_inputs(["schedule", topic.config_digest, hour.isoformat()])
    if not requests.is_under_way(key, topic.hours, hour):
        requests.ask(key, [topic.hours.key(hour)], fingerprint)


def _request_day(topic: TopicAssets, index: IndexLook, requests: Requests, now: datetime, tick: Tick) -> None:
    """Request a run of the newest past day, if the index holds hourly segments of it and no run is merging them."""
    key = topic.key("daily")
    newest = find_newest_past_day(topic, now)

    def fingerprint_if_due(snapshot: IndexSnapshot) -> str | None:
        due_days = list_due_days(snapshot, topic.config.layout.zone, topic.lateness, datetime.now(timezone.utc))
        return fingerprint_days(topic, [newest], snapshot) if newest in due_days else None

    fingerprint = tick.read_index(topic, index, fingerprint_if_due)
    if fingerprint is None:
        return
    partition_key = newest.isoformat()
    if not requests.is_under_way(key, topic.days, topic.days.start(partition_key)):
        requests.ask(key, [partition_key], fingerprint)
