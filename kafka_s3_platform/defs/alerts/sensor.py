"""The alert sensor: looks at checks and runs in Dagster's storage, and tells each incident once, and once its end.

It asks neither Kafka nor a store, so that no outage holds it up.
"""

import logging
import os
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone

import dagster as dg
from pydantic import TypeAdapter, ValidationError

from kafka_s3_platform.config.keys.environment import DAGSTER_URL, read_page_url
from kafka_s3_platform.defs.alerts.findings import (
    EndedRuns,
    find_failed,
    find_failing,
    name_check_finding,
    name_run_finding,
    note_ended_runs,
    read_failed_checks,
)
from kafka_s3_platform.defs.alerts.incidents import Incident, Incidents, drop_told, update_incidents
from kafka_s3_platform.defs.alerts.message import make_message
from kafka_s3_platform.defs.alerts.receivers import Receiver, make_receivers
from kafka_s3_platform.defs.alerts.settings import read_alert_settings, select_alert_variables
from kafka_s3_platform.errors import ConfigError, TransientError
from kafka_s3_platform.instance.work import Subjects, list_subjects
from kafka_s3_platform.text import count_noun

INTERVAL_SECONDS = 30
TELLING_SECONDS = 25.0
"""A tick begins to send no further message after this time. Dagster ends a tick after 60 seconds."""


@dataclass(frozen=True)
class AlertState:
    """The sensor's cursor. `silent` are the connectors whose cluster or store did not answer at the last tick."""

    runs: EndedRuns | None = None
    incidents: Mapping[str, Incident] = field(default_factory=dict)
    silent: tuple[str, ...] = ()


_STATE = TypeAdapter(AlertState)


def make_alert_sensor(connectors: Sequence[str], status: dg.DefaultSensorStatus) -> dg.SensorDefinition:
    """Make the one sensor of the code location that tells what needs somebody. It requests no run."""

    @dg.sensor(
        name="alerts",
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=status,
        description="Tells a webhook and mailboxes what fails and is about to be lost, once for each incident and once "
        "when it is over. It does nothing unless KAFKA_S3_ALERT_WEBHOOK_URL or KAFKA_S3_ALERT_EMAIL_TO is set.",
    )
    def alerts(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        receivers = make_receivers(read_alert_settings(os.environ))
        if not receivers:
            return dg.SensorResult(skip_reason="no receiver is set", cursor=context.cursor)
        if context.repository_def is None:
            raise ConfigError(
                "the alert sensor is evaluated outside of a code location: it cannot tell what is its own"
            )
        graph = context.repository_def.asset_graph
        look = _Look(context.instance, graph.asset_check_keys, list_subjects(connectors, graph.get_all_asset_keys()))
        before = _read_state(context.cursor, context.log)
        seen = look.take(before)
        incidents, errors = _tell(seen.incidents, receivers, read_page_url(DAGSTER_URL, os.environ))
        cursor = _STATE.dump_json(AlertState(seen.runs, incidents, seen.silent)).decode()
        if errors and cursor == context.cursor:
            # all that can be kept is kept: from now on the sensor itself is red
            raise errors[0]
        for error in errors:
            context.log.warning("%s", error)
        return dg.SensorResult(skip_reason=_describe(incidents, errors), cursor=cursor)

    return alerts


def choose_alert_status(env: Mapping[str, str]) -> dg.DefaultSensorStatus:
    """Return whether the sensor runs from the start: if anything of alerts is set."""
    return dg.DefaultSensorStatus.RUNNING if select_alert_variables(env) else dg.DefaultSensorStatus.STOPPED


@dataclass(frozen=True)
class _Look:
    """What one tick sees."""

    instance: dg.DagsterInstance
    checks: Collection[dg.AssetCheckKey]
    subjects: Subjects

    def take(self, before: AlertState) -> AlertState:
        """Return the state as it is now. Nobody was told of it yet."""
        now = datetime.now(timezone.utc)
        failed = read_failed_checks(self.instance, self.checks)
        silent = tuple(sorted({check.connector for check in failed if check.silent}))
        # what failed a moment before the end of an outage has failed in it
        runs = note_ended_runs(self.instance, before.runs, self.subjects, {*silent, *before.silent}, now)
        findings = [*find_failed(failed), *find_failing(self.instance, runs, self.subjects)]
        watched = {name_check_finding(key) for key in self.checks} | {name_run_finding(*work) for work in self.subjects}
        connectors = {connector for connector, _ in self.subjects}
        is_watched = {
            key: key in watched or not connectors.isdisjoint(incident.finding.names)
            for key, incident in before.incidents.items()
        }
        return AlertState(runs, update_incidents(before.incidents, findings, is_watched, now), silent)


def _tell(
    incidents: Incidents, receivers: Sequence[Receiver], dagster_url: str | None
) -> tuple[dict[str, Incident], list[TransientError]]:
    """Tell each receiver what it does not know yet, the oldest first, until one does not answer."""
    told = dict(incidents)
    errors = []
    deadline = time.monotonic() + TELLING_SECONDS
    for receiver in receivers:
        untold = [key for key, incident in told.items() if not incident.is_told(receiver.name)]
        for key in sorted(untold, key=lambda key: told[key].ended_at or told[key].finding.since):
            if time.monotonic() > deadline:
                break
            try:
                receiver.send(make_message(told[key], dagster_url))
            except TransientError as err:
                errors.append(err)
                break
            told[key] = told[key].tell(receiver.name)
    return drop_told(told, [receiver.name for receiver in receivers]), errors


def _read_state(cursor: str | None, log: logging.Logger) -> AlertState:
    if not cursor:
        return AlertState()
    try:
        return _STATE.validate_json(cursor)
    except ValidationError:
        log.warning("the cursor is not one of this version: what is wrong now is told again")
        return AlertState()


def _describe(incidents: Incidents, errors: Sequence[TransientError]) -> str:
    open_ones = [incident.finding.title for incident in incidents.values() if incident.ended_at is None]
    told = f"{count_noun(len(open_ones), 'open incident')}: {'; '.join(open_ones)}" if open_ones else "no open incident"
    return "; ".join([told, *(f"not delivered, and tried again: {error}" for error in errors)])
