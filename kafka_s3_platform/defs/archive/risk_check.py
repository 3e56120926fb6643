"""The check `at_risk` of each topic: nothing that is not archived is about to be lost, and no hour is late.

The lag sensor evaluates it when its outcome changes, and again with each observation of the lag while something is at
risk. It can be run by hand, too.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import datetime, timezone
from typing import Any

import dagster as dg

from kafka_s3_platform.defs.archive.checks import ERROR, WARN
from kafka_s3_platform.defs.failures import raise_dagster_failures
from kafka_s3_platform.defs.tick import Tick
from kafka_s3_platform.defs.topic import TopicAssets, check_each, make_topic_checks, pick_topics
from kafka_s3_platform.errors import BrokerUnavailableError, StoreUnavailableError
from kafka_s3_platform.instance.names import make_op_name
from kafka_s3_platform.kafka.admin import ClusterAdmin
from kafka_s3_platform.model.health import Level, Risk
from kafka_s3_platform.status.backlogs import Backlogs, read_archived
from kafka_s3_platform.status.index_look import IndexLook
from kafka_s3_platform.status.risk import describe_time, find_risk

RISK_CHECK = "at_risk"
SILENT_METADATA = "does_not_answer"
"""Names the server, if the check fails because it has not answered for some minutes. Alerts tell it once for all."""

LOST_METADATA = "lost_at"
"""From when on Kafka may delete the oldest record that is not archived. Alerts name the nearest loss first."""

_HOURS_METADATA = ("hours_at_risk_from", "hours_at_risk_to")

RUN_SECONDS = 3_600.0
"""How long a run of the checks may ask Kafka and the store. A tick has less."""


def make_evaluation(
    topic: TopicAssets, risk: Risk, silence: BrokerUnavailableError | StoreUnavailableError | None = None
) -> dg.AssetCheckEvaluation:
    """Make the event of the check's outcome. `silence` is why nothing was known for some minutes, if that is so."""
    return dg.AssetCheckEvaluation(
        asset_key=topic.key("kafka"),
        check_name=RISK_CHECK,
        passed=risk.level is Level.FINE,
        severity=ERROR if risk.level is Level.FAIL else WARN,
        description=risk.text or None,
        metadata={
            **({} if silence is None else {SILENT_METADATA: _name_server(topic, silence)}),
            **({} if risk.lost_at is None else {LOST_METADATA: _show_time(risk.lost_at)}),
            **({} if risk.hours is None else dict(zip(_HOURS_METADATA, map(_show_time, risk.hours), strict=True))),
        },
    )


def read_hours_at_risk(
    instance: dg.DagsterInstance, topics: Iterable[TopicAssets]
) -> dict[str, tuple[datetime, datetime]]:
    """Return what the last result of the check says of topics: [from, to) of the hours that Kafka soon deletes."""
    by_key = {dg.AssetCheckKey(topic.key("kafka"), RISK_CHECK): topic.topic for topic in topics}
    last = instance.event_log_storage.get_latest_asset_check_execution_by_key([*by_key])
    hours_by_topic = {}
    for key, record in last.items():
        if record.event is None or record.event.dagster_event is None:
            continue
        metadata = record.event.dagster_event.asset_check_evaluation_data.metadata
        start, end = (read_reported_time(metadata, name) for name in _HOURS_METADATA)
        if start and end:
            hours_by_topic[by_key[key]] = start, end
    return hours_by_topic


def read_reported_time(metadata: Mapping[str, dg.MetadataValue[Any]], name: str) -> datetime | None:
    """Return a time of a result, None if it has none: whoever reaches Dagster's UI may report any result."""
    try:
        return datetime.fromtimestamp(float(str(metadata[name].value)), timezone.utc)
    except (LookupError, ValueError, OverflowError, OSError):
        return None


def _show_time(moment: datetime) -> dg.TimestampMetadataValue:
    return dg.MetadataValue.timestamp(moment)


def _name_server(topic: TopicAssets, silence: BrokerUnavailableError | StoreUnavailableError) -> str:
    if isinstance(silence, BrokerUnavailableError):
        return f"Kafka at {topic.config.kafka.bootstrap_servers}"
    return f"the store at {topic.config.store.endpoint_url or f'S3 in {topic.config.store.region}'}"


def make_risk_checks(topics: Sequence[TopicAssets]) -> dg.AssetChecksDefinition:
    """Make the check of each topic. Run by hand, one op evaluates those that were picked."""
    config = topics[0].config

    def at_risk(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckEvaluation]:
        picked = pick_topics(context, topics, "kafka")
        with (
            raise_dagster_failures(context),
            closing(IndexLook("risk", picked)) as index_look,
            ClusterAdmin(config.kafka) as admin,
        ):
            tick = Tick({}, logging.getLogger(__name__), RUN_SECONDS)
            backlogs = Backlogs(picked, admin, lambda topic: read_archived(topic, index_look, is_known=True), tick)
            yield from check_each(picked, lambda topic: make_evaluation(topic, find_risk(backlogs.read(topic))))

    specs = [_make_spec(topic) for topic in topics]
    return make_topic_checks(at_risk, name=make_op_name("check", "risk", config.name), checks=specs)


def _make_spec(topic: TopicAssets) -> dg.AssetCheckSpec:
    settings = topic.config.archive
    warn, fail = (describe_time(ms / 1000) for ms in (settings.risk_age_warn_ms, settings.risk_age_fail_ms))
    return dg.AssetCheckSpec(
        RISK_CHECK,
        asset=topic.key("kafka"),
        description="Nothing that is not archived is about to be lost or late. Warns if no more than "
        f"{settings.risk_retention_warn:.0%} of the topic's retention.ms is left to the oldest record that is not "
        f"archived, or if an hour that ended {warn} ago is not complete. Fails at {settings.risk_retention_fail:.0%} "
        f"and {fail}, when Kafka or the store has not answered for some minutes, and while the topic is not archived "
        "until somebody decides. The lag sensor evaluates it.",
    )
