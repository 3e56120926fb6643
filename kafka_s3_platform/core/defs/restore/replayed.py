"""Jobs to replay picked hours or days of a topic. Each run is a restore. All runs of a backfill go to one new topic."""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import dagster as dg

from kafka_s3_platform.core.defs.failures import raise_dagster_failures
from kafka_s3_platform.core.defs.metadata import find_dagster_path
from kafka_s3_platform.core.defs.resources import SparkResource
from kafka_s3_platform.core.defs.restore.config import FORM, RestoreConfig
from kafka_s3_platform.core.defs.restore.restored import STAYS, make_restore_metadata, yield_outcome
from kafka_s3_platform.core.defs.run_config import make_plain_schema, read_config
from kafka_s3_platform.core.defs.topic import TopicAssets
from kafka_s3_platform.core.errors import PreflightError
from kafka_s3_platform.core.instance.names import make_op_name, name_restore_pool
from kafka_s3_platform.core.instance.windows import link_window
from kafka_s3_platform.core.instance.work import (
    BACKFILL_TAG,
    FIRST_BACKFILL_TAG,
    REPLAY_JOBS,
    RESTORE_TAG,
    TOPIC_TAG,
    WINDOW_TAG,
    list_picked_keys,
)

if TYPE_CHECKING:
    from kafka_s3_platform.core.restore.request import RestoreRequest

ReplayEvent = dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation

BACKFILL = "{backfill}"
"""Stands in the target's name for the backfill's id or, without a backfill, for the first characters of the run id."""

_USE_FORM = "Materialize the restored asset, whose form names hours, days and the target"
"""The way to restore without a backfill."""

_DESCRIPTION = """Replay picked {windows} of a topic of connector {connector}: press *Launch backfill* on the page \
*Partitions*. Where the connector has several topics, add the tag `{tag}` there, with the name of one.

All that one backfill picks goes to one new topic, `<topic>.replay-<backfill id>`, one run after the other, in order. \
Each run is a restore, and is verified. Another backfill makes another topic. If a run fails, the later ones are \
refused. Re-execute the backfill *from failure* then: it goes on, in order, and sends nothing twice."""


def make_replay_jobs(topics: Sequence[TopicAssets]) -> list[dg.JobDefinition]:
    """Make `replay_hours` and `replay_days` of a connector.

    Their op belongs to no asset, because the page *Partitions* of an asset job is about the partitions of its assets.
    """
    connector = topics[0].config.name
    name = make_op_name("replay", connector)
    every = {topic.key("restored") for topic in topics}

    def replay(context: dg.OpExecutionContext, spark: dg.ResourceParam[SparkResource]) -> Iterator[ReplayEvent]:
        # what restores is not needed to load definitions
        from kafka_s3_platform.core.restore.archive_source import ArchiveSource
        from kafka_s3_platform.core.restore.run import restore

        with raise_dagster_failures(context, STAYS):
            topic = find_picked_topic(topics, list_picked_keys(context.run, connector) or every)
            request = _read_request(context, topic, read_config(context, RestoreConfig))
            tags = {TOPIC_TAG: topic.topic, RESTORE_TAG: request.restore_id, "to_topic": request.to_topic}
            context.instance.add_run_tags(context.run_id, tags)
            report = restore(ArchiveSource(request), spark.make_runner())
        metadata = make_restore_metadata(report, topic.config.restore_store.bucket)
        metadata |= _make_window_link(topic, context.run.tags.get(WINDOW_TAG))
        for event in yield_outcome(context, topic.key("restored"), report, metadata):
            if isinstance(event, dg.MaterializeResult):
                yield dg.AssetMaterialization(topic.key("restored"), metadata=metadata)
            else:
                yield event

    op = dg.op(
        name=name,
        config_schema=make_plain_schema(RestoreConfig, FORM),
        pool=name_restore_pool(connector),
        out=dg.Out(dg.Nothing),
    )(replay)
    offered = (topics[0].offered_hours, topics[0].offered_days)
    return [
        dg.GraphDefinition(
            make_op_name(job, connector),
            node_defs=[op],
            description=_DESCRIPTION.format(windows=windows, connector=connector, tag=TOPIC_TAG),
        ).to_job(config=_make_config(name, windows, definition))
        for (job, windows), definition in zip(REPLAY_JOBS.items(), offered, strict=True)
    ]


def _make_config(op: str, windows: str, definition: dg.PartitionsDefinition) -> dg.PartitionedConfig:
    """Make the run config of each picked hour or day, to restore it to the backfill's new topic."""
    to = {"topic": f"{{topic}}.replay-{BACKFILL}", "create_topic": True}
    return dg.PartitionedConfig(
        definition,
        run_config_for_partition_key_fn=lambda key: {"ops": {op: {"config": {"what": {windows: [key]}, "to": to}}}},
    )


def _read_request(context: dg.OpExecutionContext, topic: TopicAssets, config: RestoreConfig) -> "RestoreRequest":
    """Make the request from a run's config. An hour or day of a backfill has the same restore id in all its runs."""
    from kafka_s3_platform.core.defs.restore.request import make_archive_source

    run = context.run
    # when a backfill is over, Dagster removes its tags from runs that are executed again
    first_run = context.instance.get_run_by_id(run.root_run_id) if run.root_run_id else run
    if first_run is None:
        raise PreflightError(
            f"run {run.root_run_id}, which this one executes again, is deleted, so the backfill and its topic are not "
            f"known. Nothing was sent. {_USE_FORM}"
        )
    backfill = first_run.tags.get(FIRST_BACKFILL_TAG) or first_run.tags.get(BACKFILL_TAG)
    window_key = run.tags.get(WINDOW_TAG)
    root_id = run.root_run_id or run.run_id
    restore_id = config.how.restore_id or (_name_restore(backfill, window_key) if backfill and window_key else root_id)
    to = config.to.model_copy(update={"topic": config.to.topic.replace(BACKFILL, backfill or root_id[:8])})
    request = make_archive_source([topic], config.model_copy(update={"to": to}), restore_id, run.run_id).request
    if backfill and window_key:
        _check_order(context.instance, request, backfill, window_key)
    return request


def find_picked_topic(topics: Sequence[TopicAssets], picked_keys: Collection[dg.AssetKey]) -> TopicAssets:
    """Return the topic of the only asset the run picked. Raises PreflightError if it picked none, or several."""
    picked_topics = [topic for topic in topics if topic.key("restored") in picked_keys]
    if len(picked_topics) == 1:
        return picked_topics[0]
    raise PreflightError(
        f"connector {topics[0].config.name}: this run picked {len(picked_topics)} topics to replay, and a run of this "
        f"job replays one. Nothing was sent. Name it by the tag {TOPIC_TAG}, and start a run for each topic"
    )


def _name_restore(backfill: str, window_key: str) -> str:
    """Return the restore id of one hour or day of a backfill. All its runs have the same id."""
    return f"{backfill}.{re.sub('[^0-9A-Za-z-]', '', window_key)}"


def _check_order(instance: dg.DagsterInstance, request: "RestoreRequest", backfill: str, window_key: str) -> None:
    """Raise PreflightError if the window before this one in the backfill is not restored."""
    from kafka_s3_platform.core.store.objects import ObjectStore

    backfill_record = instance.get_backfill(backfill)
    names = list(backfill_record.partition_names or ()) if backfill_record else []
    if window_key not in names:
        raise PreflightError(
            f"Dagster has no backfill {backfill} that names {window_key}, so what has to come before it is not known. "
            f"Nothing was sent. {_USE_FORM}"
        )
    index = names.index(window_key)
    if not index:
        return
    previous_request = replace(request, restore_id=_name_restore(backfill, names[index - 1]))
    if ObjectStore(request.config.restore_store).head(previous_request.documents.report) is None:
        raise PreflightError(
            f"{window_key} has to follow {names[index - 1]} in topic {request.to_topic}, whose restore "
            f"{previous_request.restore_id} "
            f"is not finished. Nothing of {window_key} was sent. Do what the error of the run of {names[index - 1]} "
            f"says, and "
            f"re-execute backfill {backfill} from failure: it goes on, in order, and sends nothing twice"
        )


def _make_window_link(topic: TopicAssets, window_key: str | None) -> dict[str, dg.MetadataValue]:
    """Link to the page of the restored hour or day."""
    if window_key is None:
        return {}
    name = "day" if len(window_key) == len("2013-01-31") else "hour"
    key = topic.key("daily" if name == "day" else "hourly")
    prefix = find_dagster_path()
    return {name: dg.MetadataValue.url(link_window(prefix, key.path, window_key))}
