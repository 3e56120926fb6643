"""The lag sensor: observes how far each topic is behind, and asks for the hours that are due. It never consumes."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace

import dagster as dg

from kafka_s3_platform.defs.backlog import MAX_HOURS, Backlog, answering, contiguous, look
from kafka_s3_platform.defs.jobs import Job
from kafka_s3_platform.defs.metadata import table
from kafka_s3_platform.defs.names import op_name
from kafka_s3_platform.defs.runs import is_requested, reason_to_wait, request, unfinished, windows_of
from kafka_s3_platform.defs.tick import Tick
from kafka_s3_platform.defs.topic import ArchivedTopic
from kafka_s3_platform.errors import MissingTopicError
from kafka_s3_platform.kafka.admin import ClusterAdmin
from kafka_s3_platform.store.index import IndexSnapshot

INTERVAL_SECONDS = 60
BROKER_SECONDS = 5.0
"""How long a tick waits for one answer of the broker: a topic takes four, and a tick has 60 seconds in all."""


def lag_sensor(topics: Sequence[ArchivedTopic], job: Job, status: dg.DefaultSensorStatus) -> dg.SensorDefinition:
    """One connector's sensor over its `topics`, which asks for runs of its archive job."""
    connector = topics[0].config

    @dg.sensor(
        name=op_name("lag", connector.name),
        job=job,
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=status,
        description=f"Observes how far connector {connector.name} is behind and asks for the hours that are due.",
    )
    def lag(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        tick = Tick(json.loads(context.cursor or "{}"), context.log)
        with ClusterAdmin(connector.kafka, BROKER_SECONDS) as admin:
            tick.each("lag", topics, lambda topic: evaluate(context.instance, topic, admin, job.name, tick))
        return tick.result()

    return lag


def evaluate(
    instance: dg.DagsterInstance, topic: ArchivedTopic, admin: ClusterAdmin, job_name: str, tick: Tick
) -> None:
    """One topic's part of a tick."""
    try:
        backlog = look(topic, admin, tick.read(f"the index of topic {topic.topic}", lambda: _snapshot(topic)))
    except MissingTopicError:
        if topic.config.topics_regex is None:
            raise
        tick.reasons.append(f"{topic.name}: the topic is not at Kafka any more; what is archived of it stays")
        return
    backlog = answering(replace(backlog, lookup=tick.within(backlog.lookup)))
    for failure in backlog.failures.values():
        tick.tell(f"{topic.name}: {failure}")
    observe(backlog, tick)
    ask(instance, backlog, job_name, tick)


def observe(backlog: Backlog, tick: Tick) -> None:
    """Report the topic's lag where it is not what the last tick reported.

    Raises what the broker does, once the lag itself is reported, where it does not tell how old that is.
    """
    topic, lag = backlog.topic, backlog.lag
    seen = [sorted(lag.items()), backlog.state.version, sorted(backlog.failures)]
    digest = hashlib.sha256(json.dumps(seen).encode()).hexdigest()[:16]
    if tick.cursor.get(topic.topic) == digest:
        return
    metadata = _lag_metadata(backlog)
    try:
        metadata |= _age_metadata(backlog)
    finally:
        tick.observations.append(dg.AssetObservation(topic.kafka_key, metadata=metadata))
    # only what was reported whole is not reported again
    tick.cursor[topic.topic] = digest


def ask(instance: dg.DagsterInstance, backlog: Backlog, job_name: str, tick: Tick) -> None:
    """Ask for the due hours of a topic that no run of ours is working on, one run for each contiguous range."""
    topic = backlog.topic
    key = topic.key("hourly")
    runs = unfinished(instance, key)
    if is_requested(runs, key):
        tick.reasons.append(f"{topic.name}: a run asked for earlier is queued or under way")
        return
    if backlog.begins_cut:
        _ask_until_now(instance, backlog, job_name, tick)
        return
    asked_before = len(tick.requests)
    busy = windows_of(runs, topic.hours)
    materialized = topic.hours.starts(instance.get_materialized_partitions(key))
    due = [h for h in backlog.hours_due(materialized) if not any(start <= h < end for start, end in busy)]
    due, lost = backlog.within_reach(due)
    if lost:
        tick.tell(_lost_reason(topic, len(lost)))
    for hours in contiguous([h for h in due if h not in lost][:MAX_HOURS]):
        fingerprint = backlog.fingerprint(hours)
        if reason := reason_to_wait(instance, key, fingerprint):
            tick.reasons.append(f"{topic.name}: {reason}")
        else:
            keys = [topic.hours.key(h) for h in hours]
            tick.requests.append(request(instance, key, job_name, keys, fingerprint))
    is_idle = not runs and len(tick.requests) == asked_before
    # What is left of lost hours is archived by no hour's run: one would fail, and so would those of later hours then.
    is_left = is_idle and backlog.has_left(lost)
    if is_left or backlog.precedes_hours or (not due and backlog.has_hole) or (is_idle and backlog.is_rotation_due):
        _ask_until_now(instance, backlog, job_name, tick)


def _ask_until_now(instance: dg.DagsterInstance, backlog: Backlog, job_name: str, tick: Tick) -> None:
    """Ask for what belongs to no hour that would be asked for, or to an open one: a run up to now archives it."""
    topic, key = backlog.topic, backlog.topic.key("hourly")
    starts = sorted((p, r.ranges[0].start_offset) for p, r in backlog.uncovered.items())
    inputs = json.dumps([backlog.description.topic_id, topic.config_digest, starts])
    fingerprint = hashlib.sha256(inputs.encode()).hexdigest()[:16]
    if reason := reason_to_wait(instance, key, fingerprint):
        tick.reasons.append(f"{topic.name}: {reason}")
        return
    tick.requests.append(request(instance, key, job_name, [], fingerprint))


def _lag_metadata(backlog: Backlog) -> dict[str, dg.MetadataValue]:
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
        "kafka_partitions": table(rows, list(rows[0])),
        **({"without_an_answer": dg.MetadataValue.text("\n".join(silent))} if silent else {}),
    }


def _age_metadata(backlog: Backlog) -> dict[str, dg.MetadataValue]:
    """What only the times of records tell, for which the broker is asked again and again."""
    oldest, left = backlog.oldest_uncovered, backlog.seconds_to_retention_loss
    return {
        **({"oldest_hour_not_archived": dg.MetadataValue.timestamp(oldest)} if oldest else {}),
        **({"seconds_to_retention_loss": dg.MetadataValue.float(left)} if left is not None else {}),
    }


def _snapshot(topic: ArchivedTopic) -> IndexSnapshot | None:
    """The topic's index, with all that `look` reads of it."""
    snapshot = topic.index.peek()
    if snapshot is not None:
        _ = snapshot.state, snapshot.segments, snapshot.retired
    return snapshot


def _lost_reason(topic: ArchivedTopic, count: int) -> str:
    return (
        f"{topic.name}: retention took records of {count} hour(s) before they were archived; they are not asked for. "
        f"Set archive.allow.gaps=true to record the gap. A run up to now archives what is left of them"
    )
