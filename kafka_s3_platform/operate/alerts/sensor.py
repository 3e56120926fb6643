"""The alert sensor. It reads checks and runs from Dagster's storage, and reports each incident and its end once.

It asks neither Kafka nor a store, so no outage holds it up.
"""

import logging
import os
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone

import dagster as dg
from pydantic import TypeAdapter, ValidationError

from kafka_s3_platform.core.config.environment import read_dagster_url
from kafka_s3_platform.core.errors import ConfigError, TransientError
from kafka_s3_platform.core.instance.work import Subjects, list_subjects
from kafka_s3_platform.core.text import count_noun
from kafka_s3_platform.operate.alerts.findings import (
    EndedRuns,
    add_ended_runs,
    make_check_findings,
    make_run_findings,
    name_check_finding,
    name_run_finding,
    read_failed_checks,
)
from kafka_s3_platform.operate.alerts.incidents import Incident, Incidents, drop_notified, update_incidents
from kafka_s3_platform.operate.alerts.message import make_message
from kafka_s3_platform.operate.alerts.receivers import PartlyDeliveredError, Receiver, make_receivers
from kafka_s3_platform.operate.alerts.settings import read_alert_settings, select_alert_variables

INTERVAL_SECONDS = 30
SENDING_SECONDS = 25.0
"""The time after which a tick does not start to send another message. Dagster ends a tick after 60 seconds."""


@dataclass(frozen=True)
class AlertState:
    """The sensor's cursor. `silent` are the connectors whose cluster or store did not answer at the last tick."""

    runs: EndedRuns | None = None
    incidents: Mapping[str, Incident] = field(default_factory=dict)
    silent: tuple[str, ...] = ()


_STATE = TypeAdapter(AlertState)


def make_alert_sensor(connectors: Sequence[str], status: dg.DefaultSensorStatus) -> dg.SensorDefinition:
    """Make the code location's one sensor of alerts. The sensor requests no runs."""

    @dg.sensor(
        name="alerts",
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=status,
        description="Sends a webhook and mailboxes a message about each incident (work or a check fails, records are "
        "about to be lost), and one when it is over. It does nothing unless KAFKA_S3_ALERT_WEBHOOK_URL or "
        "KAFKA_S3_ALERT_EMAIL_TO is set.",
    )
    def alerts(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        """Update the incidents, and send each receiver the messages due to it."""
        receivers = make_receivers(read_alert_settings(os.environ))
        if not receivers:
            return dg.SensorResult(skip_reason="no receiver is set", cursor=context.cursor)
        if context.repository_def is None:
            raise ConfigError(
                "the alert sensor is evaluated outside of a code location: its own checks and runs are not known"
            )
        graph = context.repository_def.asset_graph
        subjects = list_subjects(connectors, graph.get_all_asset_keys())
        last_state = _read_state(context.cursor, context.log)
        state = _update_state(last_state, context.instance, graph.asset_check_keys, subjects)
        incidents, errors = _notify_receivers(state.incidents, receivers, read_dagster_url())
        cursor = _STATE.dump_json(replace(state, incidents=incidents)).decode()
        if errors and cursor == context.cursor:
            # there is nothing new to be stored, so the tick may fail, which turns the sensor itself red
            raise errors[0]
        for error in errors:
            context.log.warning("%s", error)
        return dg.SensorResult(skip_reason=_describe(incidents, errors), cursor=cursor)

    return alerts


def choose_alert_status(env: Mapping[str, str]) -> dg.DefaultSensorStatus:
    """Return RUNNING if any variable for alerts is set, else STOPPED."""
    return dg.DefaultSensorStatus.RUNNING if select_alert_variables(env) else dg.DefaultSensorStatus.STOPPED


def _update_state(
    last_state: AlertState, instance: dg.DagsterInstance, checks: Collection[dg.AssetCheckKey], subjects: Subjects
) -> AlertState:
    """Return the state with the incidents of this tick, before any receiver is notified."""
    now = datetime.now(timezone.utc)
    failed_checks = read_failed_checks(instance, checks)
    silent = tuple(sorted({check.connector for check in failed_checks if check.silent_server}))
    # work that failed a moment before the end of an outage has failed because of it
    runs = add_ended_runs(instance, last_state.runs, subjects, {*silent, *last_state.silent}, now)
    findings = [*make_check_findings(failed_checks), *make_run_findings(instance, runs, subjects)]
    watched = {name_check_finding(key) for key in checks} | {name_run_finding(*work) for work in subjects}
    connectors = {connector for connector, _ in subjects}
    is_watched = {
        key: key in watched or not connectors.isdisjoint(incident.finding.names)
        for key, incident in last_state.incidents.items()
    }
    return AlertState(runs, update_incidents(last_state.incidents, findings, is_watched, now), silent)


def _notify_receivers(
    incidents: Incidents, receivers: Sequence[Receiver], dagster_url: str | None
) -> tuple[dict[str, Incident], list[TransientError]]:
    """Send each receiver its due messages, oldest first, until sending fails or the time is over.

    Return the incidents as `drop_notified` leaves them, and the receivers' errors.
    """
    updated = dict(incidents)
    errors: list[TransientError] = []
    deadline = time.monotonic() + SENDING_SECONDS
    for receiver in receivers:
        due = [key for key, incident in updated.items() if not incident.is_notified(receiver.name)]
        for key in sorted(due, key=lambda key: updated[key].ended_at or updated[key].finding.since):
            if time.monotonic() > deadline:
                break
            try:
                receiver.send(make_message(updated[key], dagster_url))
            except PartlyDeliveredError as err:
                errors.append(err)
            except TransientError as err:
                errors.append(err)
                break
            updated[key] = updated[key].mark_notified(receiver.name)
    return drop_notified(updated, [receiver.name for receiver in receivers]), errors


def _read_state(cursor: str | None, log: logging.Logger) -> AlertState:
    """Read the sensor's cursor. A cursor of another version counts as none."""
    if not cursor:
        return AlertState()
    try:
        return _STATE.validate_json(cursor)
    except ValidationError:
        log.warning("the cursor is not one of this version: incidents that go on are reported again")
        return AlertState()


def _describe(incidents: Incidents, errors: Sequence[TransientError]) -> str:
    """Return the sensor's text for its tick, about the open incidents and undelivered messages."""
    titles = [incident.finding.title for incident in incidents.values() if incident.ended_at is None]
    summary = f"{count_noun(len(titles), 'open incident')}: {'; '.join(titles)}" if titles else "no open incident"
    return "; ".join([summary, *map(_describe_error, errors)])


def _describe_error(error: TransientError) -> str:
    """Return the error of a receiver, with what is done about it."""
    is_retried = not isinstance(error, PartlyDeliveredError)
    return f"not delivered{', and tried again' if is_retried else ' to all'}: {error}"
