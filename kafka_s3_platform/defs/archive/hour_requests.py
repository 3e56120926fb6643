"""Requests the hours of a topic that are due, when the lag sensor has seen how far the topic is behind."""

from collections.abc import Collection, Sequence
from datetime import datetime

import dagster as dg

from kafka_s3_platform.defs.runs import Requests, list_windows
from kafka_s3_platform.defs.shown import ShownHours
from kafka_s3_platform.defs.tick import Tick
from kafka_s3_platform.defs.topic import TopicAssets
from kafka_s3_platform.status.backlog import MAX_HOURS, Backlog, split_contiguous
from kafka_s3_platform.status.topic import fingerprint_inputs


def request_hours(
    topic: TopicAssets, backlog: Backlog, requests: Requests, shown: ShownHours, tick: Tick, *, priority: int = 0
) -> None:
    """Ask for the topic's due hours that no run is working on: once for each contiguous range.

    Of the runs that are queued, Dagster starts those of a higher `priority` first.
    """
    key = topic.key("hourly")
    requests.set_priority(key, priority)
    if requests.is_requested(key):
        tick.reasons.append(f"{topic.name}: a run asked for earlier is queued or under way")
        return
    if not backlog.frontiers:
        tick.reasons.append(f"{topic.name}: a run would fail until somebody decides")
        return
    runs = requests.list_unfinished(key)
    due, lost = backlog.within_reach(_find_due_hours(topic, backlog, runs, shown))
    if lost:
        tick.tell(_describe_lost(topic, len(lost)))
    offered = [hour for hour in due if hour >= topic.first_offered]
    if len(offered) < len(due):
        # Dagster refuses a run of an hour that it does not offer yet
        tick.reasons.append(
            f"{topic.name}: hours before {topic.first_offered} wait: this code location is to be reloaded"
        )
    for hours in split_contiguous([hour for hour in offered if hour not in lost][:MAX_HOURS]):
        partition_keys = [topic.hours.key(hour) for hour in hours]
        _request_or_wait(topic, partition_keys, backlog.fingerprint(hours), requests, tick)
    is_idle = not runs and not requests.has_asked(key)
    if _needs_run_until_now(backlog, due, lost, is_idle=is_idle):
        _request_until_now(topic, backlog, requests, tick)


def _find_due_hours(
    topic: TopicAssets, backlog: Backlog, runs: Sequence[dg.DagsterRun], shown: ShownHours
) -> list[datetime]:
    """Find the due hours that no run is working on.

    While some kafka partitions are not archived until somebody decides, no hour is asked for twice: it lacks these.
    """
    busy = list_windows(runs, topic.hours)
    due = backlog.hours_due(shown.of(topic))
    if backlog.undecided:
        due = [hour for hour in due if hour not in backlog.state.asked_hours]
    return [hour for hour in due if not any(start <= hour < end for start, end in busy)]


def _needs_run_until_now(
    backlog: Backlog, due: Collection[datetime], lost: Collection[datetime], *, is_idle: bool
) -> bool:
    """Return whether records wait that no run of an hour archives."""
    # No run is requested for a lost hour, since it would fail. A run up to now archives what is left of the hour.
    if is_idle and backlog.has_left(lost):
        return True
    if backlog.precedes_hours or (not due and backlog.has_hole):
        return True
    return is_idle and backlog.is_rotation_due


def _request_or_wait(
    topic: TopicAssets, partition_keys: Sequence[str], fingerprint: str, requests: Requests, tick: Tick
) -> None:
    reason = requests.ask(topic.key("hourly"), partition_keys, fingerprint)
    if reason:
        tick.reasons.append(f"{topic.name}: {reason}")


def _request_until_now(topic: TopicAssets, backlog: Backlog, requests: Requests, tick: Tick) -> None:
    """Ask for a run up to now. It archives the records of the open hour and of hours that no run is requested for."""
    starts = sorted((p, r.ranges[0].start_offset) for p, r in backlog.uncovered.items())
    fingerprint = fingerprint_inputs([backlog.topic_id, topic.config_digest, starts])
    _request_or_wait(topic, [], fingerprint, requests, tick)


def _describe_lost(topic: TopicAssets, count: int) -> str:
    return (
        f"{topic.name}: retention took records of {count} hour(s) before they were archived; they are not asked for. "
        f"Set archive.allow.gaps=true to record the gap. A run up to now archives what is left of them"
    )
