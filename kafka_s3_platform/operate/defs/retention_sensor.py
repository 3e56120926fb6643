"""The retention sensor: deletes old runs of this code location from Dagster's storage, the oldest first."""

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone

import dagster as dg

from kafka_s3_platform.core.config import environment
from kafka_s3_platform.core.defs.processes import PROCESS_TAG
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.instance.tables import (
    EVENTS_AT_ONCE,
    delete_backfill,
    delete_observations,
    delete_run,
    list_ended_backfills,
)
from kafka_s3_platform.core.instance.work import BACKFILL_TAG, ENDED
from kafka_s3_platform.core.status.deadline import Deadline
from kafka_s3_platform.core.text import count_noun

DAYS_VARIABLE = environment.RUN_RETENTION_DAYS
"""The days to keep runs after their end. 0 keeps them for ever."""

DEFAULT_DAYS = 30
INTERVAL_SECONDS = 600
TICK_SECONDS = 30.0
"""The time for a tick. The next tick goes on. Dagster ends a tick after 60 seconds."""

PAGE = 100


def make_retention_sensor(status: dg.DefaultSensorStatus) -> dg.SensorDefinition:
    """Make the sensor. It deletes old runs of the code location, and requests none."""

    @dg.sensor(
        name="retention",
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=status,
        description=f"Deletes runs, their logs, observations and backfills from Dagster's storage {DEFAULT_DAYS} days "
        f"after their end, or as many days as {DAYS_VARIABLE} says. What they materialized stays materialized.",
    )
    def retention(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        """Delete old runs, observations and backfills, as far as the time allows."""
        days = read_retention_days(os.environ)
        if days == 0:
            return dg.SkipReason(f"{DAYS_VARIABLE} is 0: all runs are kept")
        repository = context.repository_def
        if repository is None:
            raise ConfigError(
                "the retention sensor is evaluated outside of a code location: its own runs are not known"
            )
        sweep = Sweep(
            context.instance,
            datetime.now(timezone.utc) - timedelta(days=days),
            frozenset(repository.asset_graph.get_all_asset_keys()),
            frozenset(repository.job_names) - {"__ASSET_JOB"},
            context.log,
        )
        context.update_cursor(sweep.delete_runs(context.cursor or ""))
        sweep.delete_observations()
        sweep.delete_backfills()
        return dg.SkipReason(sweep.summarize(days))

    return retention


def read_retention_days(env: Mapping[str, str]) -> int:
    """Return the days to keep runs, or 0 for ever. Raise ConfigError if the variable is not a number."""
    text = env.get(DAYS_VARIABLE) or str(DEFAULT_DAYS)
    if not (text.isascii() and text.isdigit()):
        raise ConfigError(f"{DAYS_VARIABLE}: {text!r} is no number of days; 0 keeps all runs")
    return int(text)


@dataclass
class Sweep:
    """The deletions of one tick: of everything older than `cutoff`, as long as there is time."""

    instance: dg.DagsterInstance
    cutoff: datetime
    keys: frozenset[dg.AssetKey]
    """All assets of the code location."""

    job_names: frozenset[str]
    """All jobs of the code location except the assets' job, because each location has one of that name."""

    log: logging.Logger
    deleted: int = 0
    errors: list[Exception] = field(default_factory=list)
    deadline: Deadline = field(default_factory=lambda: Deadline(TICK_SECONDS))

    def delete_runs(self, last_run_id: str) -> str:
        """Delete old runs, beginning after the run `last_run_id`.

        Return the run to go on after, or "" to begin again. The cursor passes over other code locations' runs, and over
        failed deletions.
        """
        if last_run_id and self.instance.get_run_by_id(last_run_id) is None:
            last_run_id = ""
        old_runs = dg.RunsFilter(statuses=ENDED, created_before=self.cutoff, updated_before=self.cutoff)
        while records := self.instance.get_run_records(
            old_runs, limit=PAGE, cursor=last_run_id or None, ascending=True
        ):
            for record in records:
                if self.deadline.is_over():
                    return last_run_id
                if not self._delete_own_run(record.dagster_run):
                    last_run_id = record.dagster_run.run_id
        return ""

    def delete_observations(self) -> None:
        """Delete the sensors' old observations and check results. The newest of each asset stays."""
        for key in sorted(key for key in self.keys if key.path[1:2] in (["kafka"], ["objects"])):
            while (
                not self.deadline.is_over() and delete_observations(self.instance, key, self.cutoff) == EVENTS_AT_ONCE
            ):
                pass

    def delete_backfills(self) -> None:
        """Delete ended backfills of the location's assets and jobs if they have no run left."""
        for backfill in list_ended_backfills(self.instance, self.cutoff):
            runs_of_backfill = dg.RunsFilter(tags={BACKFILL_TAG: backfill.backfill_id})
            job = (backfill.partition_set_name or "").removesuffix("_partition_set")
            keys = {*(backfill.asset_selection or ())}
            is_ours = job in self.job_names or (bool(keys) and self.keys >= keys)
            if is_ours and not self.deadline.is_over() and not self.instance.get_runs(runs_of_backfill, limit=1):
                delete_backfill(self.instance, backfill.backfill_id)

    def summarize(self, days: int) -> str:
        """Return the tick's text for Dagster. Raise the first error if no run was deleted."""
        if self.errors and not self.deleted:
            raise self.errors[0]
        sentences = [f"{count_noun(self.deleted, 'run')} deleted, which ended more than {days} days ago"]
        if self.deadline.is_over():
            sentences.append("the next tick goes on")
        return "; ".join([*sentences, *map(str, self.errors)])

    def _delete_own_run(self, run: dg.DagsterRun) -> bool:
        """Delete the run if it belongs to this code location. Return True if it is gone."""
        if not self._is_ours(run):
            return False
        try:
            delete_run(self.instance, run.run_id)
        except Exception as err:
            # A run that cannot be deleted must not keep all later ones from being deleted.
            self.log.exception("run %s is kept", run.run_id)
            self.errors.append(err)
            return False
        self.deleted += 1
        return True

    def _is_ours(self, run: dg.DagsterRun) -> bool:
        """Return True if the run belongs to this code location, because others may share the instance."""
        if PROCESS_TAG in run.tags or run.job_name in self.job_names:
            return True
        selected = {*(run.asset_selection or ()), *(check.asset_key for check in run.asset_check_selection or ())}
        return bool(selected) and selected <= self.keys
