"""Incidents. Each lasts from the first tick with its finding until all receivers know about its end.

They are kept in the sensor's cursor, so they survive restarts. An incident that receivers know keeps its text, so an
outage that turns 200 topics red is one incident of one server.
"""

import hashlib
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

MOST_NAMES = 5
"""The most topics or connectors named in a message. The others are only counted."""

MOST_CHARACTERS = 1_000
"""The longest text of an error in an incident, because the cursor is stored with each tick."""

IncidentStage = Literal["began", "nearer", "over", "gone"]
"""The kind of message that is due.

With `nearer`, the incident continues, and the time until Kafka deletes unarchived records has halved. With `gone`,
nobody watches the incident any more, because its connector, topic or file is no longer defined.
"""

NEAREST_SECONDS = 900.0
"""If less time than this is left until the loss, the next message comes only when no time is left."""

CALM_SECONDS = 3_600.0
"""The time after a message in which a longer time left is ignored, so ups and downs are no news.

In the same time after an incident has begun, further topics are part of it. Later ones begin it again.
"""


@dataclass(frozen=True)
class Finding:
    """Something that is wrong at the moment.

    `key` identifies it: there is one for a server, for a check of a connector, and for a kind of a connector's runs.
    `names` are the affected topics or connectors. If `is_healing`, nobody has to act, because the platform tries again.
    From `lost_at` on, in seconds since the epoch, Kafka may delete unarchived records. It is None if no such time is
    near. If it is `asked_once`, nobody asks for the work again, so a further topic is news.
    """

    key: str
    kind: Literal["outage", "check", "run"]
    title: str
    connector: str | None
    names: tuple[str, ...]
    since: datetime
    error: str
    advice: str
    is_healing: bool
    run_id: str | None = None
    lost_at: float | None = None
    asked_once: bool = False


@dataclass(frozen=True)
class Incident:
    """A finding, and the state of its notifications. `ended_at` is None until the incident is over.

    `notified_of_start` are the receivers that got the message of its start, or of the `approaches`-th halving of its
    time left; `notified_of_end` got the message of its end. `seconds_left` is the time until the loss as noted at
    `noted_at`, for comparison. It began, or began again, at `began_at`, with `told_count` topics, up to MOST_NAMES of
    them in `told_names`.
    """

    id: str
    finding: Finding
    name_count: int
    notified_of_start: tuple[str, ...] = ()
    notified_of_end: tuple[str, ...] = ()
    ended_at: datetime | None = None
    is_gone: bool = False
    seconds_left: float | None = None
    noted_at: float = 0.0
    approaches: int = 0
    began_at: float = 0.0
    told_names: tuple[str, ...] = ()
    told_count: int = 0

    @property
    def stage(self) -> IncidentStage:
        """The kind of message due now."""
        if self.ended_at is None:
            return "nearer" if self.approaches else "began"
        return "gone" if self.is_gone else "over"

    def is_notified(self, receiver: str) -> bool:
        """Return True if the receiver has already got the message due now."""
        return receiver in (self.notified_of_start if self.ended_at is None else self.notified_of_end)

    def mark_notified(self, receiver: str) -> "Incident":
        """Return the incident as it is after the receiver has got the message due now."""
        if self.ended_at is None:
            return replace(self, notified_of_start=(*self.notified_of_start, receiver))
        return replace(self, notified_of_end=(*self.notified_of_end, receiver))


Incidents = Mapping[str, Incident]
"""Incidents by the keys of their findings."""


def update_incidents(
    incidents: Incidents, findings: Collection[Finding], is_defined: Mapping[str, bool], now: datetime
) -> dict[str, Incident]:
    """Return the incidents after a tick's findings: continued, new and ended ones.

    `is_defined` maps the key of an incident to True if its connector, topic or file is still defined.
    """
    findings_by_key = {finding.key: finding for finding in findings}
    updated = {}
    for key, incident in incidents.items():
        if key in findings_by_key:
            updated[key] = _continue_incident(incident, findings_by_key[key], now.timestamp())
        elif incident.ended_at is None:
            updated[key] = replace(incident, ended_at=now, is_gone=not is_defined.get(key, True))
        else:
            updated[key] = incident
    for key, finding in findings_by_key.items():
        if key not in updated:
            updated[key] = _start_incident(finding, now.timestamp())
    return updated


def drop_notified(incidents: Incidents, receivers: Collection[str]) -> dict[str, Incident]:
    """Return the open incidents, and the ended ones whose end has not been reported to all receivers."""
    return {
        key: incident
        for key, incident in incidents.items()
        if incident.ended_at is None or not all(map(incident.is_notified, receivers))
    }


def _note_time_left(incident: Incident, finding: Finding, now: float) -> Incident:
    """Note the time left until Kafka deletes records. When it has halved, all receivers are due a message.

    This happens only a few times, because a longer time left is not noted before CALM_SECONDS are over.
    """
    noted_left = math.inf if incident.seconds_left is None else incident.seconds_left
    left_now = math.inf if finding.lost_at is None else max(0.0, finding.lost_at - now)
    is_nearer = noted_left > NEAREST_SECONDS and left_now <= noted_left / 2 and left_now < math.inf
    if is_nearer or left_now == 0 < noted_left:
        incident = replace(
            incident, finding=_shorten(finding), notified_of_start=(), approaches=incident.approaches + 1
        )
    elif left_now < noted_left or now - incident.noted_at < CALM_SECONDS:
        return incident
    return replace(incident, seconds_left=None if math.isinf(left_now) else left_now, noted_at=now)


def _continue_incident(incident: Incident, finding: Finding, now: float) -> Incident:
    """Continue an incident with news of its finding. It starts anew if somebody has to act now, but did not before."""
    if incident.finding.is_healing and not finding.is_healing:
        # receivers were told to do nothing, so they need a new message
        return _start_incident(finding, now)
    is_calm = finding.kind != "outage" and not finding.is_healing and now - incident.began_at >= CALM_SECONDS
    if (is_calm or finding.asked_once) and _has_further_name(incident, finding):
        return _start_incident(finding, now)
    incident = _note_time_left(incident, finding, now)
    if len(finding.names) > incident.name_count:
        # for the message at the end
        widest = replace(incident.finding, names=finding.names[:MOST_NAMES])
        incident = replace(incident, finding=widest, name_count=len(finding.names))
    # An incident that comes back before all receivers know its end continues. Receivers that know its end get its start
    # again.
    receivers = tuple(name for name in incident.notified_of_start if name not in incident.notified_of_end)
    return replace(incident, notified_of_start=receivers, notified_of_end=(), ended_at=None, is_gone=False)


def _has_further_name(incident: Incident, finding: Finding) -> bool:
    """Return True if a topic of the finding was not told when the incident began. Of many topics, only count them."""
    if len(finding.names) > incident.told_count or incident.told_count > MOST_NAMES:
        return len(finding.names) > incident.told_count
    return not set(finding.names) <= set(incident.told_names)


def _start_incident(finding: Finding, now: float) -> Incident:
    """Make the incident of a new finding. If a tick is repeated, the same finding gets the same id."""
    identity = f"{finding.key} {finding.since.isoformat()} {finding.is_healing} {finding.names}"
    digest = hashlib.sha256(identity.encode()).hexdigest()
    seconds = None if finding.lost_at is None else max(0.0, finding.lost_at - now)
    return Incident(
        digest[:16],
        _shorten(finding),
        len(finding.names),
        seconds_left=seconds,
        noted_at=now,
        began_at=now,
        told_names=finding.names[:MOST_NAMES],
        told_count=len(finding.names),
    )


def _shorten(finding: Finding) -> Finding:
    """Return the finding with less text and fewer names, to fit into the cursor."""
    error = finding.error if len(finding.error) <= MOST_CHARACTERS else finding.error[:MOST_CHARACTERS] + " ..."
    return replace(finding, names=finding.names[:MOST_NAMES], error=error)
