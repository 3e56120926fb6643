"""How the topics of connectors are: how far behind, how late, what is at risk, and what of it is not known."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum

from kafka_s3_platform.text import count_noun


class Level(IntEnum):
    """How bad it is."""

    FINE = 0
    WARN = 1
    FAIL = 2

    @property
    def answer(self) -> str:
        """The answer to whether something is at risk: `no`, `soon` or `yes`."""
        return ("no", "soon", "yes")[self]


@dataclass(frozen=True)
class Risk:
    """What was found of one topic at one moment. `text` is empty if nothing is at risk.

    Of `hours`, [from, to), Kafka soon deletes what is not archived. It may delete the oldest from `lost_at` on.
    """

    level: Level
    text: str
    hours: tuple[datetime, datetime] | None = None
    lost_at: datetime | None = None


@dataclass(frozen=True)
class ArchivedTotals:
    """What the archive holds of a topic, and left out of it, since the beginning.

    `record_bytes` are those of keys, values and headers, before they were archived. `segments` are those that readers
    need now: an hour that was merged into its day counts in the day, of which there are `day_segments`. `segment_bytes`
    are the bytes of their objects, without the objects beside them. `gap_offsets` counts offsets by the reason of the
    gap, `yesterday_records` the records of the last day of UTC that is over.
    """

    records: int
    late_records: int
    record_bytes: int
    segments: int
    segment_bytes: int
    dead_letters: int
    gap_offsets: Mapping[str, int] = field(default_factory=dict)
    day_segments: int = 0
    yesterday_records: int = 0


@dataclass(frozen=True)
class Proof:
    """Records of a topic that came back: in a verified restore, or in a verification that read every object."""

    at: datetime
    how: str
    records: int


@dataclass(frozen=True)
class TopicHealth:
    """What one look found of a topic. None is not known: `kafka_error`, `store_error` or `risk` says why.

    `lag` counts offsets of all kafka partitions. `newest_complete` and `oldest_incomplete` are the starts of hours in
    UTC: None also if no hour is complete yet, or none is late. `retention_left` are the seconds for which Kafka keeps
    the oldest record that is not archived, at least; 0 if nobody knows its age, None also if nothing can be lost. Lag
    and age are not known of a topic that was truncated or created again, until somebody decides.
    """

    topic: str
    lag: int | None = None
    risk: Risk | None = None
    newest_complete: datetime | None = None
    oldest_incomplete: datetime | None = None
    retention_left: float | None = None
    unresolved_offsets: int | None = None
    totals: ArchivedTotals | None = None
    proof: Proof | None = None
    kafka_error: str = ""
    store_error: str = ""

    @property
    def is_index_known(self) -> bool:
        """Whether the index was read. If not, no hour was looked at, and Kafka alone may be why."""
        return self.unresolved_offsets is not None

    @property
    def is_known(self) -> bool:
        """Whether Kafka and the store have answered everything."""
        return not self.kafka_error and not self.store_error

    @property
    def is_well(self) -> bool:
        """Whether everything is known, and nothing is at risk."""
        return self.is_known and self.risk is not None and self.risk.level is Level.FINE


@dataclass(frozen=True)
class FailedRun:
    """A run that failed. `error` is the name of the error's class, empty if it is none of ours.

    `kind` is what the run did: `archive`, `compact`, `restore`, `verify` or `upkeep`. `is_over`: later runs of that
    kind succeeded for all `topics` that failed. If not, `topics` are the others. They are empty if the work has none.
    """

    run_id: str
    kind: str
    ended_at: datetime
    error: str
    message: str
    is_over: bool
    topics: tuple[str, ...] = ()


@dataclass(frozen=True)
class EndedRun:
    """The run of a kind that ended last."""

    kind: str
    ended_at: datetime
    seconds: float | None
    is_success: bool


@dataclass(frozen=True)
class RunningRestore:
    """A restore under way. None: it has no plan yet, or restores objects that others wrote.

    `planned_records` is exact, or an upper bound if records are filtered. `sent_records` is what the last checkpoints
    say. When all are sent, they are read back.
    """

    run_id: str
    restore_id: str
    topic: str | None = None
    to_topic: str | None = None
    planned_records: int | None = None
    sent_records: int | None = None


@dataclass(frozen=True)
class RunHistory:
    """What Dagster's instance knows of a connector's runs.

    `failures` are those that are not over, and the last one that is. `proofs` are by topic. A restore that sent nothing
    (a dry run, an empty one) is in none of these. `topics` are those of which Dagster has heard from a sensor. Of
    the runs that ended in the last 24 hours, `day_runs` are the number, and `day_failures` that of the failed ones.
    """

    failures: tuple[FailedRun, ...] = ()
    ended: tuple[EndedRun, ...] = ()
    restores: tuple[RunningRestore, ...] = ()
    proofs: Mapping[str, Proof] = field(default_factory=dict)
    topics: frozenset[str] = frozenset()
    day_runs: int = 0
    day_failures: int = 0

    def find_failure(self, topic: str) -> FailedRun | None:
        """Return the failure that concerns the topic, rather one that is not over."""
        of_topic = (failure for failure in self.failures if not failure.topics or topic in failure.topics)
        return min(of_topic, key=lambda failure: (failure.is_over, -failure.ended_at.timestamp()), default=None)


@dataclass(frozen=True)
class ConnectorHealth:
    """What one look found of a connector. `error` says why nothing of its topics is known.

    `is_kafka_up` and `is_store_up`: whether its cluster and its store answer, None if they were not asked. A source
    connector has no topics: it archives nothing. `history` is None, and `history_error` says why, if Dagster's instance
    did not answer or there is none. `removed_topics` were archived and are no more: `removal` says why and what to do.
    `is_removed`: the connector itself is no more.
    """

    connector: str
    looked_at: datetime
    topics: tuple[TopicHealth, ...] = ()
    error: str = ""
    is_kafka_up: bool | None = None
    is_store_up: bool | None = None
    history: RunHistory | None = None
    history_error: str = ""
    removed_topics: tuple[str, ...] = ()
    removal: str = ""
    is_removed: bool = False

    @property
    def is_known(self) -> bool:
        """Whether Kafka and the store have answered everything about every topic."""
        return not self.error and all(topic.is_known for topic in self.topics)

    @property
    def is_well(self) -> bool:
        """Whether everything is known, and nothing is at risk. A run that failed is no risk by itself."""
        return not self.error and all(topic.is_well for topic in self.topics)


def group_errors(topics: Sequence[TopicHealth]) -> dict[str, list[str]]:
    """Return why things are not known, and of which topics: they share a cluster and a store."""
    topics_by_error: dict[str, list[str]] = {}
    for topic in topics:
        for error in filter(None, (topic.kafka_error, topic.store_error)):
            topics_by_error.setdefault(error, []).append(topic.topic)
    return topics_by_error


def format_place(connector: str, topics: Sequence[str]) -> str:
    """Return `connector/topic`, with the number of the other topics if there are more."""
    more = f" and {count_noun(len(topics) - 1, 'more topic')}" if len(topics) > 1 else ""
    return "/".join([connector, *topics[:1]]) + more
