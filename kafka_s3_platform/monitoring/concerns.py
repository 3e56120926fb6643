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
    found = [*_list_risks(connectors)]
    for each in connectors:
        for what, is_up in (("Kafka cluster", each.is_kafka_up), ("object store", each.is_store_up)):
            if is_up is False:
                found.append(
                    Concern("silent", each.connector, (), f"its {what} does not answer, so nothing is archived.")
                )
        if each.removed_topics:
            found.append(Concern("removed", each.connector, each.removed_topics, each.removal))
        if each.error:
            found.append(Concern("unknown", each.connector, (), each.error))
        errors = group_errors(each.topics).items()
        found += [Concern("unknown", each.connector, tuple(topics), error) for error, topics in errors]
    return sorted(found, key=lambda each: (ORDER.index(each.kind), each.seconds_left, each.connector, each.topics))


def _list_risks(connectors: Sequence[ConnectorHealth]) -> list[Concern]:
    groups: dict[tuple[Level, str], list[tuple[float, str, str]]] = defaultdict(list)
    for each in connectors:
        for topic in each.topics:
            if topic.risk is not None and topic.risk.level is not Level.FINE:
                # an age that nobody knows is no loss that is seen to come
                is_near = topic.risk.hours is not None and topic.retention_left is not None
                seconds = topic.retention_left if is_near and topic.retention_left is not None else math.inf
                groups[topic.risk.level, topic.risk.text].append((seconds, each.connector, topic.topic))
    found = []
    for (level, says), places in groups.items():
        seconds, connector, _ = min(places)
        topics = tuple(topic for _, name, topic in sorted(places) if name == connector)
        kind: ConcernKind = "soon" if level is Level.WARN else "late" if math.isinf(seconds) else "loss"
        found.append(Concern(kind, connector, topics, says, len(places) - len(topics), seconds))
    return found
