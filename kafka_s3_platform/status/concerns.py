"""What needs attention, the nearest loss first: one order for the page, `kafka-s3 health` and the health check.

Topics of which the same is said are one concern, with their number.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from kafka_s3_platform.model.health import ConnectorHealth, Level, format_place, group_errors

ConcernKind = Literal["loss", "silent", "unknown", "late", "soon", "removed"]
"""`loss`: Kafka deletes what is not archived, soon. Then causes: a server is `silent`, or something is `unknown`.
`late` and what is at risk `soon` are rather their effects. Of what was `removed`, somebody may not know.
"""

ORDER: Sequence[ConcernKind] = ("loss", "silent", "unknown", "late", "soon", "removed")


@dataclass(frozen=True)
class Concern:
    """What is said of `topics` of a connector, and of `others` of other connectors. No topics: of the connector."""

    kind: ConcernKind
    connector: str
    topics: tuple[str, ...]
    says: str
    others: int = 0
    seconds_left: float = math.inf

    @property
    def place(self) -> str:
        """The name of the first topic, and the number of the others."""
        return format_place(self.connector, (*self.topics, *[""] * self.others))

    @property
    def text(self) -> str:
        """The place and what is said of it."""
        return f"{self.place}: {'not known: ' if self.kind == 'unknown' else ''}{self.says}"


def list_concerns(connectors: Sequence[ConnectorHealth]) -> list[Concern]:
    """List what needs attention, the nearest loss first, then causes, then what is late."""
    concerns = [*_list_risks(connectors)]
    for health in connectors:
        for what, is_up in (("Kafka cluster", health.is_kafka_up), ("object store", health.is_store_up)):
            if is_up is False:
                concerns.append(
                    Concern("silent", health.connector, (), f"its {what} does not answer, so nothing is archived.")
                )
        if health.removed_topics:
            concerns.append(Concern("removed", health.connector, health.removed_topics, health.removal))
        if health.error:
            concerns.append(Concern("unknown", health.connector, (), health.error))
        errors = group_errors(health.topics).items()
        concerns += [Concern("unknown", health.connector, tuple(topics), error) for error, topics in errors]
    return sorted(
        concerns, key=lambda health: (ORDER.index(health.kind), health.seconds_left, health.connector, health.topics)
    )


def _list_risks(connectors: Sequence[ConnectorHealth]) -> list[Concern]:
    groups: dict[tuple[Level, str], list[tuple[float, str, str]]] = defaultdict(list)
    for health in connectors:
        for topic in health.topics:
            if topic.risk is not None and topic.risk.level is not Level.FINE:
                # an age that nobody knows is no loss that is seen to come
                is_near = topic.risk.hours is not None and topic.retention_left is not None
                seconds = topic.retention_left if is_near and topic.retention_left is not None else math.inf
                groups[topic.risk.level, topic.risk.text].append((seconds, health.connector, topic.topic))
    concerns = []
    for (level, text), places in groups.items():
        seconds, connector, _ = min(places)
        topics = tuple(topic for _, name, topic in sorted(places) if name == connector)
        kind: ConcernKind = "soon" if level is Level.WARN else "late" if math.isinf(seconds) else "loss"
        concerns.append(Concern(kind, connector, topics, text, len(places) - len(topics), seconds))
    return concerns
