"""The lag sensor: tells how far each topic is behind and what is at risk, and requests the hours that are due.

It reads no records.
"""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import dagster as dg

from kafka_s3_platform.defs.archive.empty_windows import EmptyWindows, Window
from kafka_s3_platform.defs.archive.first_hour import FirstHourSearch
from kafka_s3_platform.defs.archive.hour_requests import request_hours
from kafka_s3_platform.defs.archive.lag_news import find_news, read_told
from kafka_s3_platform.defs.archive.risk_check import make_evaluation
from kafka_s3_platform.defs.jobs import Job
from kafka_s3_platform.defs.metadata import make_metadata_table
from kafka_s3_platform.defs.runs import Requests
from kafka_s3_platform.defs.shown import ShownHours
from kafka_s3_platform.defs.tick import Tick
from kafka_s3_platform.defs.topic import TopicAssets
from kafka_s3_platform.errors import MissingTopicError, PlatformError
from kafka_s3_platform.instance.names import make_op_name
from kafka_s3_platform.kafka.admin import ClusterAdmin
from kafka_s3_platform.model.health import Level, Risk
from kafka_s3_platform.model.times import HOUR
from kafka_s3_platform.status.backlog import Backlog
from kafka_s3_platform.status.backlogs import Backlogs, read_archived
from kafka_s3_platform.status.index_look import IndexLook
from kafka_s3_platform.status.risk import find_risk

INTERVAL_SECONDS = 60
BROKER_SECONDS = 5.0
"""How long a tick waits for one answer of the broker. Some topics need four answers, and a tick has 60 seconds."""

RED_TICKS = 3
"""After so many ticks in a row without any answer, the topics' checks fail. From the next tick on, ticks fail too."""

SILENT = "/silent"
"""Counts these ticks in the cursor. No topic has such a name."""


def make_lag_sensor(
    topics: Sequence[TopicAssets], job: Job, status: dg.DefaultSensorStatus, hours_folder: Path | None = None
) -> dg.SensorDefinition:
    """Make the lag sensor of one connector for its `topics`. It requests runs of the connector's archive job.

    In `hours_folder` it remembers the connector's earliest hour.
    """
    connector = topics[0].config
    search = FirstHourSearch(topics, hours_folder) if hours_folder is not None else None
    empty = EmptyWindows("hourly")

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
        index_look = IndexLook("lag", topics)
        requests = Requests(context.instance, [topic.key("hourly") for topic in topics])
        shown = ShownHours(context.instance)
        if tick.cursor.get(SILENT, 0) >= RED_TICKS:
            # A tick that fails keeps no cursor. So that each topic has its turn, the clock tells where to begin.
            tick.cursor["/lag"] = topics[int(time.time()) % len(topics)].topic
        with closing(index_look), ClusterAdmin(connector.kafka, BROKER_SECONDS) as admin:
            backlogs = Backlogs(
                topics, admin, lambda topic: read_archived(topic, index_look, is_known=topic.topic in tick.cursor), tick
            )

            def evaluate(topic: TopicAssets) -> None:
                if search is not None:
                    search.reach(topic)
                backlog = evaluate_topic(topic, backlogs, requests, shown, tick)
                if backlog is None or backlog.silent_store is not None:
                    return
                if search is not None:
                    search.see(backlog)
                empty.report(
                    topic, backlog.newest_closed, lambda: list_idle_hours(topic, backlog, shown), index_look, tick
                )

            tick.evaluate_each("lag", topics, evaluate)
        if search is not None:
            search.remember(context, shown, tick)
        tick.requests += requests.make(job.name)
        tell_silence(topics, tick)
        return tick.result()

    return lag


def evaluate_topic(
    topic: TopicAssets, backlogs: Backlogs, requests: Requests, shown: ShownHours, tick: Tick
) -> Backlog | None:
    """Report the lag of one topic and ask for its due hours. Return what is known of it, None if it is gone."""
    try:
        backlog = backlogs.read(topic)
    except MissingTopicError:
        if topic.config.topics_regex is None:
            raise
        tick.reasons.append(f"{topic.name}: the topic is not at Kafka any more; what is archived of it stays")
        return None
    for failure in backlog.failures.values():
        tick.tell(f"{topic.name}: {failure}")
    for reason in backlog.reasons_to_decide:
        tick.tell(f"{topic.name}: {reason}")
    level = observe_lag(topic, backlog, tick)
    if backlog.silent_store is None:
        request_hours(topic, backlog, requests, shown, tick, priority=max(level, 0))
    else:
        # what is due is not known, and its run could not write
        tick.miss(topic, backlog.silent_store)
    return backlog


def list_idle_hours(topic: TopicAssets, backlog: Backlog, shown: ShownHours) -> Iterator[Window]:
    """List the closed hours that Dagster offers and does not show, and for which no run is due."""
    shown_hours = shown.of(topic)
    due = {*backlog.hours_due(shown_hours)}
    hour, newest = topic.first_offered, backlog.newest_closed
    while newest is not None and hour <= newest:
        if hour not in shown_hours and hour not in due:
            yield hour, (hour,)
        hour += HOUR


def tell_silence(topics: Sequence[TopicAssets], tick: Tick) -> None:
    """Count ticks in which Kafka or the store answered for no topic. Raise their error when the checks have told it."""
    if tick.answered or not tick.unavailable:
        tick.cursor.pop(SILENT, None)
        return
    count = tick.cursor.get(SILENT, 0) + 1
    if count > RED_TICKS and not tick.observations:
        raise tick.unavailable[0]
    tick.cursor[SILENT] = min(count, RED_TICKS)
    if count == RED_TICKS:
        text = f"Nothing is archived: no tick of the last {count} had an answer: {tick.unavailable[0]}"
        for topic in topics:
            # a topic that was never looked at is evaluated by its first look
            if topic.topic in tick.cursor:
                tick.cursor[topic.topic] = str(replace(read_told(tick.cursor[topic.topic]), risk=int(Level.FAIL)))
            tick.observations.append(make_evaluation(topic, Risk(Level.FAIL, text), tick.unavailable[0]))


def observe_lag(topic: TopicAssets, backlog: Backlog, tick: Tick) -> int:
    """Report the topic's lag, and what is at risk, if that is due (`lag_news`). Return the level of the risk.

    If the broker does not answer how old the lag is, report the lag and then raise the broker's error.
    """
    name = topic.topic
    last = read_told(tick.cursor.get(name))
    first_tick = datetime.fromtimestamp(last.first_minute * 60, timezone.utc) if last.first_minute else backlog.now
    risk = _find_risk(backlog, Level(max(last.risk, 0)), first_tick)
    level = last.risk if risk is None else risk.level
    news = find_news(backlog, level, tick.cursor.get(name))
    if news is None:
        return level
    # An incomplete report is repeated, but not by each tick for as long as something does not answer.
    tick.cursor[name] = str(news.without_digest())
    metadata = _make_lag_metadata(backlog)
    try:
        metadata |= _make_age_metadata(backlog)
    finally:
        tick.observations.append(dg.AssetObservation(topic.key("kafka"), metadata=metadata))
        if risk is not None and (level != last.risk or level):
            # an outage that was told goes on until what is archived is known again
            is_outage = tick.cursor.get(SILENT, 0) >= RED_TICKS
            silence = backlog.silent_store if is_outage else None
            tick.observations.append(make_evaluation(topic, risk, silence))
    tick.cursor[name] = str(news)
    return level


def _find_risk(backlog: Backlog, last: Level, first_tick: datetime) -> Risk | None:
    """Find what is at risk now. None if Kafka does not answer: then what was told last stands."""
    try:
        risk = find_risk(backlog, first_tick)
    except PlatformError:
        return None
    if backlog.silent_store is not None and last > risk.level:
        # what the index held when it was read last tells nothing better
        return Risk(last, f"What is archived is not known: {backlog.silent_store}")
    return risk


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
    undecided = backlog.reasons_to_decide
    return {
        **({} if undecided else {"lag": dg.MetadataValue.int(sum(backlog.lag.values()))}),
        "waiting_for_transactions": dg.MetadataValue.int(
            sum(f.last_stable_offset < f.high_watermark for f in backlog.frontiers.values())
        ),
        "has_hole": dg.MetadataValue.bool(backlog.has_hole),
        **({"kafka_partitions": make_metadata_table(rows, list(rows[0]))} if rows else {}),
        **({"not_archived_until_somebody_decides": dg.MetadataValue.text("\n".join(undecided))} if undecided else {}),
        **({"without_an_answer": dg.MetadataValue.text("\n".join(silent))} if silent else {}),
    }


def _make_age_metadata(backlog: Backlog) -> dict[str, dg.MetadataValue]:
    """Return the hours that are due and the time until retention. It takes many questions to the broker."""
    oldest = backlog.oldest_uncovered
    seconds = backlog.seconds_to_retention_loss
    return {
        "hours_due": dg.MetadataValue.int(len(backlog.hours_left)),
        **({"oldest_hour_not_archived": dg.MetadataValue.timestamp(oldest)} if oldest else {}),
        **({"seconds_to_retention_loss": dg.MetadataValue.float(seconds)} if seconds is not None else {}),
    }
