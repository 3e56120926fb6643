"""Which checks fail: topics of one connector together, and all connectors whose cluster or store is silent together."""

import math
import textwrap
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone

import dagster as dg

from kafka_s3_platform.defs.alerts.incidents import Finding
from kafka_s3_platform.defs.archive.checks import ERROR
from kafka_s3_platform.defs.archive.risk_check import LOST_METADATA, RISK_CHECK, SILENT_METADATA, read_reported_time
from kafka_s3_platform.defs.file_checks import FILES_KEY
from kafka_s3_platform.instance.tables import list_failed_checks

MOST_TITLE = 200
"""Characters of an error in a title: it is the subject of a mail."""


@dataclass(frozen=True)
class FailedCheck:
    """A check that fails. `silent` names the server that does not answer, if that is why.

    `lost_at` is when Kafka may delete what is not archived, in seconds since the epoch, infinite if that is not near.
    """

    key: dg.AssetCheckKey
    at: datetime
    says: str
    silent: str
    lost_at: float = math.inf

    @property
    def connector(self) -> str:
        return self.key.asset_key.path[0]


def read_failed_checks(instance: dg.DagsterInstance, known: Collection[dg.AssetCheckKey]) -> list[FailedCheck]:
    """Return those of the `known` checks that fail. One that only warns needs nobody at night."""
    found = []
    for evaluation, at in list_failed_checks(instance):
        if evaluation.severity == ERROR and evaluation.asset_check_key in known:
            silent = evaluation.metadata.get(SILENT_METADATA)
            lost_at = read_reported_time(evaluation.metadata, LOST_METADATA)
            found.append(
                FailedCheck(
                    evaluation.asset_check_key,
                    datetime.fromtimestamp(at, timezone.utc),
                    evaluation.description or "",
                    "" if silent is None else str(silent.value),
                    math.inf if lost_at is None else lost_at.timestamp(),
                )
            )
    return sorted(found, key=lambda check: check.key.to_user_string())


def find_failed(checks: Sequence[FailedCheck]) -> Iterator[Finding]:
    """Make one finding of all that fails together."""
    groups: dict[str, list[FailedCheck]] = {}
    for check in checks:
        key = f"outage {check.silent}" if check.silent else name_check_finding(check.key)
        groups.setdefault(key, []).append(check)
    for key, group in groups.items():
        group.sort(key=lambda check: check.lost_at)
        first = group[0]
        since = min(check.at for check in group)
        if first.silent:
            connectors = tuple(sorted({check.connector for check in group}))
            title = f"{first.silent} does not answer"
            finding = Finding(key, "outage", title, None, connectors, since, first.says, _OUTAGE, is_healing=True)
        elif first.key.asset_key == FILES_KEY:
            # the first line names the file, the second one may be its first error
            lines = "\n".join(first.says.splitlines()[:2])
            title = f"a connector file does not load: {textwrap.shorten(lines, MOST_TITLE, placeholder=' ...')}"
            finding = Finding(key, "check", title, None, (), since, first.says, _FILE, is_healing=False)
        else:
            is_risk = first.key.name == RISK_CHECK
            title = "topics are at risk" if is_risk else f"check {first.key.name} fails"
            advice = _AT_RISK if is_risk else _OTHER.format(first.connector)
            topics = tuple(check.key.asset_key.path[-1] for check in group)
            about = (f"connector {first.connector}: {title}", first.connector, topics, since, _fold(group), advice)
            finding = Finding(key, "check", *about, is_healing=False)
        yield finding if math.isinf(first.lost_at) else replace(finding, lost_at=first.lost_at)


def _fold(group: Sequence[FailedCheck]) -> str:
    """Return what is said of the topics, once for all of which the same is said, the nearest loss first."""
    said: dict[str, list[str]] = {}
    for check in group:
        said.setdefault(check.says, []).append(check.key.asset_key.path[-1])
    if len(group) == 1:
        return group[0].says
    return "\n".join(f"{_name(topics)}: {says}" for says, topics in said.items())


def _name(topics: Sequence[str]) -> str:
    return topics[0] + (f" and {len(topics) - 1:,} more" if len(topics) > 1 else "")


def name_check_finding(key: dg.AssetCheckKey) -> str:
    """Return the key of the finding that the check fails: one for all topics of a connector."""
    connector = "" if key.asset_key == FILES_KEY else key.asset_key.path[0]
    return f"check {connector} {key.name}"


_OUTAGE = (
    "See why it does not answer. Nothing else has to be done: what is due is archived when it answers again, for as "
    "long as Kafka keeps it."
)
_FILE = "Correct the file; the others load. `kafka-s3 check FILE` explains it. What its connector archived stays."
_AT_RISK = "See docs/operating.md#what-is-at-risk: what hinders archiving comes first."
_OTHER = (
    "The page of the check in Dagster has more. `kafka-s3 resolve {0}` lists offsets that could not be archived, and "
    "`kafka-s3 verify {0}` compares objects with the index."
)
