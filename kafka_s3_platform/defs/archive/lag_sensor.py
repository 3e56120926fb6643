"""The lag sensor: observes how far each topic is behind, and requests the hours that are due. It reads no records."""

import json
from collections.abc import Sequence
from contextlib import closing

import dagster as dg

from kafka_s3_platform.defs.archive.backlog import Archived, Backlog
from kafka_s3_platform.defs.archive.backlogs import Backlogs
from kafka_s3_platform.defs.archive.hour_requests import request_hours
from kafka_s3_platform.defs.archive.lag_news import find_news
from kafka_s3_platform.defs.jobs import Job
from kafka_s3_platform.defs.look import IndexLook
from kafka_s3_platform.defs.metadata import make_metadata_table
from kafka_s3_platform.defs.names import make_op_name
from kafka_s3_platform.defs.runs import Requests
from kafka_s3_platform.defs.shown import ShownHours
from kafka_s3_platform.defs.tick import Tick
from kafka_s3_platform.defs.topic import ArchivedTopic
from kafka_s3_platform.errors import MissingTopicError
from kafka_s3_platform.kafka.admin import ClusterAdmin
from kafka_s3_platform.store.index import IndexSnapshot
from kafka_s3_platform.store.row_filter import SegmentFilter

INTERVAL_SECONDS = 60
BROKER_SECONDS = 5.0
"""How long a tick waits for one answer of the broker. Some topics need four answers, and a tick has 60 seconds."""


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
        look = IndexLook("lag", topics)
        requests = Requests(context.instance, [topic.key("hourly") for topic in topics])
        shown = ShownHours(context.instance)
        with closing(look), ClusterAdmin(connector.kafka, BROKER_SECONDS) as admin:
            backlogs = Backlogs(
                topics, admin, lambda topic: _read_archived(topic, look, topic.topic in tick.cursor), tick
            )
            tick.each("lag", topics, lambda topic: evaluate_topic(topic, backlogs, requests, shown, tick))
        tick.requests += requests.make(job.name)
        return tick.result()

    return lag


def evaluate_topic(topic: ArchivedTopic, backlogs: Backlogs, requests: Requests, shown: ShownHours, tick: Tick) -> None:
    """Report the lag of one topic and ask for its due hours."""
    try:
        backlog = backlogs.read(topic)
    except MissingTopicError:
        if topic.config.topics_regex is None:
            raise
        tick.reasons.append(f"{topic.name}: the topic is not at Kafka any more; what is archived of it stays")
        return
    for failure in backlog.failures.values():
        tick.tell(f"{topic.name}: {failure}")
    observe_lag(backlog, tick)
    request_hours(backlog, requests, shown, tick)


def observe_lag(backlog: Backlog, tick: Tick) -> None:
    """Report the topic's lag if that is due (`lag_news`).

    If the broker does not answer how old the lag is, report the lag and then raise the broker's error.
    """
    name = backlog.topic.topic
    news = find_news(backlog, tick.cursor.get(name))
    if news is None:
        return
    # An incomplete report is repeated, but not by each tick for as long as something does not answer.
    tick.cursor[name] = str(news.without_digest())
    metadata = _make_lag_metadata(backlog)
    try:
        metadata |= _make_age_metadata(backlog)
    finally:
        tick.observations.append(dg.AssetObservation(backlog.topic.kafka_key, metadata=metadata))
    tick.cursor[name] = str(news)


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
        "has_hole": dg.MetadataValue.bool(backlog.has_hole),
        "kafka_partitions": make_metadata_table(rows, list(rows[0])),
        **({"without_an_answer": dg.MetadataValue.text("\n".join(silent))} if silent else {}),
    }


def _make_age_metadata(backlog: Backlog) -> dict[str, dg.MetadataValue]:
    """Return the hours that are due and the time until retention. It takes many questions to the broker."""
    oldest = backlog.oldest_uncovered
    left = backlog.seconds_to_retention_loss
    return {
        "hours_due": dg.MetadataValue.int(len(backlog.hours_left)),
        **({"oldest_hour_not_archived": dg.MetadataValue.timestamp(oldest)} if oldest else {}),
        **({"seconds_to_retention_loss": dg.MetadataValue.float(left)} if left is not None else {}),
    }


def _read_archived(topic: ArchivedTopic, look: IndexLook, is_known: bool) -> Archived:
    """Read what the index holds of the topic while the tick limits the time."""
    wanted = SegmentFilter(chunk="hourly", committed_since=look.since if is_known else None)

    def read(snapshot: IndexSnapshot) -> Archived:
        chunks = snapshot.list_chunks(wanted, retired=True)
        return Archived(snapshot.state, frozenset(c.chunk_start for c in chunks if c.chunk_start))

    return look.read(topic, read) or Archived()
