"""The lag sensor: observes how far each topic is behind, and requests the hours that are due. It reads no records."""

import json
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime

import dagster as dg

from kafka_s3_platform.defs.archive.backlog import (
    MAX_HOURS,
    Backlog,
    read_answering_backlog,
    read_backlog,
    split_contiguous,
)
from kafka_s3_platform.defs.fingerprint import fingerprint_inputs
from kafka_s3_platform.defs.jobs import Job
from kafka_s3_platform.defs.metadata import make_metadata_table
from kafka_s3_platform.defs.names import make_op_name
from kafka_s3_platform.defs.runs import find_reason_to_wait, find_unfinished, is_requested, list_windows, request_run
from kafka_s3_platform.defs.tick import Tick
from kafka_s3_platform.defs.topic import ArchivedTopic
from kafka_s3_platform.errors import MissingTopicError
from kafka_s3_platform.kafka.admin import ClusterAdmin
from kafka_s3_platform.store.index import IndexSnapshot

INTERVAL_SECONDS = 60
BROKER_SECONDS = 5.0
"""How long a tick waits for one answer of the broker. A topic needs four answers, and a tick has 60 seconds."""


def make_lag_sensor(topics: Sequence[ArchivedTopic], job: Job, status: dg.DefaultSensorStatus) -> dg.SensorDefinition:
    """Make the lag sensor of one connector for its `topics`. It requests runs of the connector's archive job."""
    connector = topics[0].config

    @dg.sensor(
        name=make_op_name("lag", connector.name),
        job=job,
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=status,
        description=f"Reports how far connector {connector.name} is behind, and requests runs for the hours that are "
        "due.",
    )
    def lag(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        tick = Tick(json.loads(context.cursor or "{}"), context.log)
        with ClusterAdmin(connector.kafka, BROKER_SECONDS) as admin:
            tick.each("lag", topics, lambda topic: evaluate_topic(context.instance, topic, admin, job.name, tick))
        return tick.result()

    return lag


def evaluate_topic(
    instance: dg.DagsterInstance, topic: ArchivedTopic, admin: ClusterAdmin, job_name: str, tick: Tick
) -> None:
    """Report the lag of one topic and request its due hours."""
    try:
        backlog = read_backlog(
            topic, admin, tick.read(f"the index of topic {topic.topic}", lambda: _read_snapshot(topic))
        )
    except MissingTopicError:
        if topic.config.topics_regex is None:
            raise
        tick.reasons.append(f"{topic.name}: the topic is not at Kafka any more; what is archived of it stays")
        return
    backlog = read_answering_backlog(replace(backlog, lookup=tick.within(backlog.lookup)))
    for failure in backlog.failures.values():
        tick.tell(f"{topic.name}: {failure}")
    observe_lag(backlog, tick)
    request_hours(instance, backlog, job_name, tick)


def observe_lag(backlog: Backlog, tick: Tick) -> None:
    """Report the topic's lag if it has changed since the last tick's report.

    If the broker does not answer how old the lag is, report the lag and then raise the broker's error.
    """
    topic = backlog.topic
    lag = backlog.lag
    seen = [sorted(lag.items()), backlog.state.version, sorted(backlog.failures)]
    digest = fingerprint_inputs(seen)
    if tick.cursor.get(topic.topic) == digest:
        return
    metadata = _make_lag_metadata(backlog)
    try:
        metadata |= _make_age_metadata(backlog)
    finally:
        tick.observations.append(dg.AssetObservation(topic.kafka_key, metadata=metadata))
    # Set this last: an incomplete report is repeated by the next tick.
    tick.cursor[topic.topic] = digest


def request_hours(instance: dg.DagsterInstance, backlog: Backlog, job_name: str, tick: Tick) -> None:
    """Request the topic's due hours that no run is working on: one run for each contiguous range."""
    topic = backlog.topic
    runs = find_unfinished(instance, topic.key("hourly"))
    if is_requested(runs, topic.key("hourly")):
        tick.reasons.append(f"{topic.name}: a run asked for earlier is queued or under way")
        return
    # The run of an hour at the start of a cut log would fail. A run up to now records which offsets are gone.
    if backlog.begins_cut:
        _request_until_now(instance, backlog, job_name, tick)
        return
    requested_before = len(tick.requests)
    due, lost = backlog.within_reach(_find_due_hours(instance, backlog, runs))
    if lost:
        tick.tell(_describe_lost(topic, len(lost)))
    for hours in split_contiguous([hour for hour in due if hour not in lost][:MAX_HOURS]):
        _request_range(instance, backlog, job_name, hours, tick)
    is_idle = not runs and len(tick.requests) == requested_before
    if _needs_run_until_now(backlog, due, lost, is_idle=is_idle):
        _request_until_now(instance, backlog, job_name, tick)


def _find_due_hours(instance: dg.DagsterInstance, backlog: Backlog, runs: Sequence[dg.DagsterRun]) -> list[datetime]:
    """Find the due hours that no run is working on."""
    hours = backlog.topic.hours
    busy = list_windows(runs, hours)
    materialized = hours.starts(instance.get_materialized_partitions(backlog.topic.key("hourly")))
    due = backlog.hours_due(materialized)
    return [hour for hour in due if not any(start <= hour < end for start, end in busy)]


def _request_range(
    instance: dg.DagsterInstance, backlog: Backlog, job_name: str, hours: Sequence[datetime], tick: Tick
) -> None:
    topic = backlog.topic
    partition_keys = [topic.hours.key(hour) for hour in hours]
    _request_or_wait(instance, topic, job_name, partition_keys, backlog.fingerprint(hours), tick)


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
    instance: dg.DagsterInstance,
    topic: ArchivedTopic,
    job_name: str,
    partition_keys: Sequence[str],
    fingerprint: str,
    tick: Tick,
) -> None:
    key = topic.key("hourly")
    reason = find_reason_to_wait(instance, key, fingerprint)
    if reason:
        tick.reasons.append(f"{topic.name}: {reason}")
    else:
        tick.requests.append(request_run(instance, key, job_name, partition_keys, fingerprint))


def _request_until_now(instance: dg.DagsterInstance, backlog: Backlog, job_name: str, tick: Tick) -> None:
    """Request a run up to now. It archives the records of the open hour and of hours that no run is requested for."""
    topic = backlog.topic
    starts = sorted((p, r.ranges[0].start_offset) for p, r in backlog.uncovered.items())
    fingerprint = fingerprint_inputs([backlog.description.topic_id, topic.config_digest, starts])
    _request_or_wait(instance, topic, job_name, [], fingerprint, tick)


def _make_lag_metadata(backlog: Backlog) -> dict[str, dg.MetadataValue]:
    rows = [
        {
            "kafka_partition": p,
            "lag": backlog.lag[p],
            "log_start_offset": frontier.log_start_offset,
            "last_stable_offset": frontier.last_stable_offset,
            "high_watermark": frontier.high_watermark,
            "archived_up_to": backlog.state.coverage(p).end_offset,
        }
        for p, frontier in sorted(backlog.frontiers.items())
    ]
    silent = [f"kafka partition {p}: {failure}" for p, failure in sorted(backlog.failures.items())]
    return {
        "lag": dg.MetadataValue.int(sum(backlog.lag.values())),
        "waiting_for_transactions": dg.MetadataValue.int(
            sum(f.last_stable_offset < f.high_watermark for f in backlog.frontiers.values())
        ),
        "kafka_partitions": make_metadata_table(rows, list(rows[0])),
        **({"without_an_answer": dg.MetadataValue.text("\n".join(silent))} if silent else {}),
    }


def _make_age_metadata(backlog: Backlog) -> dict[str, dg.MetadataValue]:
    """Return the oldest hour not archived and the time until retention. It takes many questions to the broker."""
    oldest = backlog.oldest_uncovered
    left = backlog.seconds_to_retention_loss
    return {
        **({"oldest_hour_not_archived": dg.MetadataValue.timestamp(oldest)} if oldest else {}),
        **({"seconds_to_retention_loss": dg.MetadataValue.float(left)} if left is not None else {}),
    }


def _read_snapshot(topic: ArchivedTopic) -> IndexSnapshot | None:
    """Read the topic's index, and load all parts that `read_backlog` uses while the tick limits the time."""
    snapshot = topic.index.peek()
    if snapshot is not None:
        _ = snapshot.state, snapshot.segments, snapshot.retired
    return snapshot


def _describe_lost(topic: ArchivedTopic, count: int) -> str:
    return (
        f"{topic.name}: retention took records of {count} hour(s) before they were archived; they are not asked for. "
        f"Set archive.allow.gaps=true to record the gap. A run up to now archives what is left of them"
    )
