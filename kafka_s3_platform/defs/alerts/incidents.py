"""Incidents: what is wrong, from the tick that sees it first until all receivers know that it is over.

They are kept in the sensor's cursor, so they survive restarts. What was told of one does not change: an outage
that turns 200 topics red is one incident of one server.
"""

import hashlib
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

MOST_NAMES = 5
"""So many topics or connectors are named. Then their number is told."""

MOST_CHARACTERS = 1_000
"""Of what an error says: the cursor is stored with each tick."""

IncidentStage = Literal["began", "nearer", "over", "gone"]
"""`nearer`: it goes on, and Kafka deletes what is not archived soon. `gone`: what was wrong is not looked at any more,
since its connector, topic or file is not defined any more.
"""

NEAREST_SECONDS = 900.0
"""With less time left than that, an incident is told again only when there is none left."""

CALM_SECONDS = 3_600.0
"""For so long after it was told, more time that is left does not make the same nearness news again."""


@dataclass(frozen=True)
class Finding:
    """What is wrong at the moment.

    `key` tells it from all others: one for a server, for a check of a connector, for a kind of run of a connector.
    `names` are the topics, or the connectors, of which it is so. `is_healing`: nobody has to act, it is tried again.
    From `lost_at` on, in seconds since the epoch, Kafka may delete what is not archived. None: that is not near.
    """

    key: str
    kind: Literal["outage", "check", "run"]
    title: str
    connector: str | None
    names: tuple[str, ...]
    since: datetime
    says: str
    advice: str
    is_healing: bool
    run_id: str | None = None
    lost_at: float | None = None


@dataclass(frozen=True)
class Incident:
    """A finding that is told. `ended_at` is None until it is over.

    `known_by` are the receivers that know that it began, or came nearer to a loss the `approaches`-th time, `told_end`
    those that know that it is over. `seconds_left` were left until the loss when that was told, at `noted_at`.
    """

    id: str
    finding: Finding
    name_count: int
    known_by: tuple[str, ...] = ()
    told_end: tuple[str, ...] = ()
    ended_at: datetime | None = None
    is_gone: bool = False
    seconds_left: float | None = None
    noted_at: float = 0.0
    approaches: int = 0

    @property
    def stage(self) -> IncidentStage:
        """What there is to tell of it."""
        if self.ended_at is None:
            return "nearer" if self.approaches else "began"
        return "gone" if self.is_gone else "over"

    def is_told(self, receiver: str) -> bool:
        """Return whether the receiver knows how it is."""
        return receiver in (self.known_by if self.ended_at is None else self.told_end)

    def tell(self, receiver: str) -> "Incident":
        """Return the incident after the receiver was told how it is."""
        if self.ended_at is None:
            return replace(self, known_by=(*self.known_by, receiver))
        return replace(self, told_end=(*self.told_end, receiver))


Incidents = Mapping[str, Incident]
"""By the keys of their findings."""


def update_incidents(
    incidents: Incidents, findings: Collection[Finding], is_defined: Mapping[str, bool], now: datetime
) -> dict[str, Incident]:
    """Return the incidents as they are now: those that went on, those that began, and those that are over.

    `is_defined` says of each incident that is not found any more whether what it is about is still looked at.
    """
    found = {finding.key: finding for finding in findings}
    updated = {}
    for key, incident in incidents.items():
        if key in found:
            updated[key] = _go_on(incident, found[key], now.timestamp())
        elif incident.ended_at is None:
            updated[key] = replace(incident, ended_at=now, is_gone=not is_defined.get(key, True))
        else:
            updated[key] = incident
    for key, finding in found.items():
        if key not in updated:
            updated[key] = _begin(finding, now.timestamp())
    return updated


def drop_told(incidents: Incidents, receivers: Collection[str]) -> dict[str, Incident]:
    """Return the incidents without those whose end all receivers know."""
    return {
        key: incident
        for key, incident in incidents.items()
        if incident.ended_at is None or not all(map(incident.is_told, receivers))
    }


def _look_ahead(incident: Incident, finding: Finding, now: float) -> Incident:
    """Have the incident told again when half of the time until a loss is over, as it is now.

    That is a few times at most, since a time that grows again is not noted before CALM_SECONDS are over.
    """
    before = math.inf if incident.seconds_left is None else incident.seconds_left
    present = math.inf if finding.lost_at is None else max(0.0, finding.lost_at - now)
    is_nearer = before > NEAREST_SECONDS and present <= before / 2 and present < math.inf
    if is_nearer or present == 0 < before:
        incident = replace(incident, finding=_shorten(finding), known_by=(), approaches=incident.approaches + 1)
    elif present < before or now - incident.noted_at < CALM_SECONDS:
        return incident
    return replace(incident, seconds_left=None if math.isinf(present) else present, noted_at=now)


def _go_on(incident: Incident, finding: Finding, now: float) -> Incident:
    if incident.finding.is_healing and not finding.is_healing:
        # who was told that nobody has to act must hear of it again
        return _begin(finding, now)
    incident = _look_ahead(incident, finding, now)
    if len(finding.names) > incident.name_count:
        # for the message that it is over
        widest = replace(incident.finding, names=finding.names[:MOST_NAMES])
        incident = replace(incident, finding=widest, name_count=len(finding.names))
    # One that came back before all knew that it was over goes on. Who knew it already hears of it again.
    known = tuple(each for each in incident.known_by if each not in incident.told_end)
    return replace(incident, known_by=known, told_end=(), ended_at=None, is_gone=False)


def _begin(finding: Finding, now: float) -> Incident:
    told = f"{finding.key} {finding.since.isoformat()} {finding.is_healing}"
    digest = hashlib.sha256(told.encode()).hexdigest()
    seconds = None if finding.lost_at is None else max(0.0, finding.lost_at - now)
    return Incident(digest[:16], _shorten(finding), len(finding.names), seconds_left=seconds, noted_at=now)


def _shorten(finding: Finding) -> Finding:
    says = finding.says if len(finding.says) <= MOST_CHARACTERS else finding.says[:MOST_CHARACTERS] + " ..."
    return replace(finding, names=finding.names[:MOST_NAMES], says=says)
