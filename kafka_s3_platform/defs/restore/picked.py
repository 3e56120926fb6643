"""Restores of hours and days that are picked on the page of a job, in a backfill without a form."""

from functools import partial
from typing import Any

import dagster as dg

from kafka_s3_platform.defs.restore.form import name_restored_op
from kafka_s3_platform.defs.topic import ArchivedTopic
from kafka_s3_platform.errors import PreflightError

BACKFILL = "{backfill}"
"""Stands for the id of the backfill in `to.topic`; without a backfill, for the id of the run."""

TARGET = f"{{topic}}.replay-{BACKFILL}"
"""The target of picked hours and days: a new topic for each backfill."""

TOPIC_TAG = "kafka_s3/topic"
"""Tag of a backfill that names the topic, where a connector has several."""

DESCRIPTION = (
    f"On the page *Partitions*, pick what is restored and launch a backfill. It goes to a new topic `{TARGET}`, a run "
    f"after another, the oldest first. A run is refused while one before it has not succeeded: re-execute that one "
    f"first. Where the connector has several topics, add the tag `{TOPIC_TAG}` to the backfill, with the name of one. "
    "In the launchpad, a picked partition fills the form, and no other launch needs one."
)

_BACKFILL_TAG, _KEY_TAG, _ROOT_TAG = "dagster/backfill", "dagster/partition", "dagster/root_run_id"


def make_picked_config(
    connector: str, field: str, offered: dg.TimeWindowPartitionsDefinition
) -> dg.PartitionedConfig[Any]:
    """Make a job's config: each of its hours or days fills `what.hours` or `what.days` of the form."""
    return dg.PartitionedConfig(offered, run_config_for_partition_key_fn=partial(_fill_form, connector, field))


def _fill_form(connector: str, field: str, key: str) -> dict[str, Any]:
    config = {"what": {field: [key]}, "to": {"topic": TARGET, "create_topic": True}}
    return {"ops": {name_restored_op(connector): {"config": config}}}


def find_first_run(instance: dg.DagsterInstance, run: dg.DagsterRun) -> dg.DagsterRun:
    """Return the run that `run` executes again, or `run` itself. Only the first one has the tags of a backfill."""
    return (instance.get_run_by_id(run.root_run_id) if run.root_run_id else None) or run


def name_backfill(first_run: dg.DagsterRun) -> str:
    """Return what `BACKFILL` stands for in a run."""
    return first_run.tags.get(_BACKFILL_TAG, first_run.run_id.partition("-")[0])


def check_order(instance: dg.DagsterInstance, first_run: dg.DagsterRun, topic: ArchivedTopic) -> None:
    """Raise PreflightError if a run of the same backfill, of an earlier hour or day, has not succeeded."""
    backfill = first_run.tags.get(_BACKFILL_TAG)
    if backfill is None:
        return
    runs = instance.get_runs(dg.RunsFilter(tags={_BACKFILL_TAG: backfill}))
    again = instance.get_runs(dg.RunsFilter(tags={_ROOT_TAG: [run.run_id for run in runs]}))
    succeeded = {run.root_run_id or run.run_id for run in (*runs, *again) if run.is_success}
    pending = {_find_key(run): run for run in runs if run.run_id not in succeeded}
    starts = topic.hours if topic.hours.names(_find_key(first_run)) else topic.days
    oldest = min(pending, key=starts.start, default=_find_key(first_run))
    if starts.start(oldest) < starts.start(_find_key(first_run)):
        raise PreflightError(
            f"backfill {backfill}: {oldest} is not restored yet (run {pending[oldest].run_id}), and"
            f" {_find_key(first_run)} comes after it in the target. Nothing was sent. Re-execute that one, then this"
        )


def _find_key(run: dg.DagsterRun) -> str:
    return run.tags[_KEY_TAG]
