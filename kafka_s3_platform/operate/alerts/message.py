"""Makes the message about an incident, with a text for people and a document for programs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from kafka_s3_platform.core.status.risk import describe_time
from kafka_s3_platform.core.text import escape_unprintable
from kafka_s3_platform.operate.alerts.incidents import Incident

DOCS = "docs/operating.md#alerts"
"""The place of the documentation about alerts, as a path in the project and after the status page's address."""


@dataclass(frozen=True)
class Message:
    """One message. `subject` is one line, and the first line of `text`. `document` can be written as JSON.

    `id` is the incident's id. A message that is sent twice has the same id and stage. For this the stage `nearer` is
    numbered.
    """

    id: str
    stage: str
    subject: str
    text: str
    document: Mapping[str, Any] = field(default_factory=dict)


def make_message(incident: Incident, dagster_url: str | None) -> Message:
    """Make the message due now. `dagster_url` ends without a slash."""
    finding = incident.finding
    subject = escape_unprintable(" ".join(f"{_BEGINS[incident.stage]}{finding.title}".split()))
    link = f"{dagster_url}/runs/{finding.run_id}" if dagster_url and finding.run_id else None
    names = ", ".join(finding.names)
    if more_count := incident.name_count - len(finding.names):
        names += f" and {more_count:,} more"
    rows = {
        "connectors" if finding.connector is None else "topics": names,
        "since": _format_time(finding.since),
        **(_describe_present(incident) if incident.ended_at is None else _describe_end(incident, incident.ended_at)),
        "run": link or finding.run_id or "",
        "more": DOCS,
    }
    lines = [f"{name}: {escape_unprintable(text)}" for name, text in rows.items() if text]
    document = {
        "id": incident.id,
        "event": incident.stage,
        "number": incident.approaches,
        "kind": finding.kind,
        "title": finding.title,
        "connector": finding.connector,
        "names": finding.names,
        "name_count": incident.name_count,
        "since": finding.since.isoformat(),
        "ended_at": incident.ended_at.isoformat() if incident.ended_at else None,
        "seconds_left": incident.seconds_left,
        "heals_by_itself": finding.is_healing,
        "error": finding.error,
        "what_to_do": finding.advice,
        "run_id": finding.run_id,
        "run_url": link,
    }
    stage = f"nearer{incident.approaches}" if incident.stage == "nearer" else incident.stage
    return Message(incident.id, stage, subject, "\n".join([subject, *lines]), document)


def make_test_message(now: datetime) -> Message:
    """Make the message for testing the receivers."""
    subject = "This is a test: alerts arrive here."
    text = f"{subject}\nsent: {_format_time(now)}\nmore: {DOCS}"
    return Message(f"test-{now:%Y%m%d%H%M%S}", "test", subject, text, {"id": "test", "event": "test"})


_BEGINS = {"began": "", "nearer": "Nearer to a loss: ", "over": "Over: ", "gone": "No longer watched: "}


def _describe_present(incident: Incident) -> dict[str, str]:
    """Return the lines about an open incident."""
    finding = incident.finding
    return {
        "heals by itself": "yes, as soon as its cause is gone" if finding.is_healing else "no, somebody has to act",
        "what to do": finding.advice,
        "error": finding.error,
    }


def _describe_end(incident: Incident, ended_at: datetime) -> dict[str, str]:
    """Return the lines about an incident that is over, or no longer watched."""
    lasted = describe_time((ended_at - incident.finding.since).total_seconds())
    ended = f"{_format_time(ended_at)}, after {lasted}"
    if incident.is_gone:
        return {"not watched from": f"{ended}. It is not defined any more, so nobody knows how it is"}
    return {"over": ended, "it was": incident.finding.error}


def _format_time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"
