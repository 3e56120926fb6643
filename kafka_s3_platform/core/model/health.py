"""The health of connectors' topics: their lag, lateness and risk, and the reasons for unknown values."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from datetime import datetime
from enum import IntEnum
from typing import Literal

from kafka_s3_platform.core.model.times import EPOCH
from kafka_s3_platform.core.model.turns import TopicTurns
from kafka_s3_platform.core.text import count_noun


class Level(IntEnum):
    """The severity of a risk."""

    FINE = 0
    WARN = 1
    FAIL = 2

    @property
    def answer(self) -> str:
        """The risk as an answer: `no`, `soon` or `yes`."""
        return ("no", "soon", "yes")[self]


@dataclass(frozen=True)
class Risk:
    """The risk of losing records of one topic at one moment. `text` is empty if nothing is at risk.

    Kafka soon deletes unarchived records of `hours`, [from, to). It may delete the oldest from `lost_at` on.
    """

    level: Level
    text: str
    hours: tuple[datetime, datetime] | None = None
    lost_at: datetime | None = None


@dataclass(frozen=True)
class SegmentSums:
    """Sums of a topic's segments, for pages and metrics.

    `records`, `late_records`, `record_bytes` and `expired_records` cover hours, merged or not. `record_bytes` are the
    bytes of keys, values and headers before archiving; `expired_records` were removed by a rule of retention.
    `segments` counts live segments, `segment_bytes` the bytes of their main objects, `day_segments` and `day_bytes`
    merged ones. `merged_bytes` are of hours merged into days, and days into months, until retention removes them.
    """

    records: int = 0
    late_records: int = 0
    record_bytes: int = 0
    segments: int = 0
    segment_bytes: int = 0
    day_segments: int = 0
    day_bytes: int = 0
    merged_bytes: int = 0
    expired_records: int = 0

    def __add__(self, other: "SegmentSums") -> "SegmentSums":
        return SegmentSums(*(number + its for number, its in zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True)
class ArchivedTotals(SegmentSums):
    """The archived and left-out records of a topic, since the beginning.

    `gap_offsets` counts offsets by the reason of the gap, `yesterday_records` the records of the last full day (UTC).
    `groups` maps each consumer group with archived offsets to the time of the oldest of them.
    """

    dead_letters: int = 0
    gap_offsets: Mapping[str, int] = field(default_factory=dict)
    yesterday_records: int = 0
    groups: Mapping[str, datetime] = field(default_factory=dict)


@dataclass(frozen=True)
class Proof:
    """Records of a topic that were proven to come back: by a verified restore, a rehearsal, or a check of every object.

    `how` is the kind of evidence.
    """

    at: datetime
    how: str
    records: int


@dataclass(frozen=True)
class TopicHealth:
    """The health of a topic in one look. None means unknown: `kafka_error`, `store_error` or `risk` has the reason.

    `lag` counts offsets of all kafka partitions. `newest_complete` and `oldest_incomplete` are the starts of hours in
    UTC, None also if no hour is complete yet, or none is late. Kafka keeps the oldest unarchived record for at least
    `retention_left` seconds; 0 if its age is unknown, None also if nothing can be lost. The lag and age of a topic that
    was truncated or created again are unknown until somebody decides. `turns` shows its hours in rehearsals, None
    before the first one; `is_rehearsed` is True if it is to have any. A restore of it takes about `return_seconds`, as
    measured.
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
    turns: TopicTurns | None = None
    is_rehearsed: bool = False
    return_seconds: float | None = None
    kafka_error: str = ""
    store_error: str = ""

    @property
    def is_index_known(self) -> bool:
        """True if the index was read. If not, no hour was looked at, perhaps only because of Kafka."""
        return self.unresolved_offsets is not None

    @property
    def is_known(self) -> bool:
        """True if Kafka and the store have answered everything."""
        return not self.kafka_error and not self.store_error

    @property
    def is_well(self) -> bool:
        """True if everything is known, nothing is at risk, and all rehearsed hours came back."""
        is_safe = self.is_known and self.risk is not None and self.risk.level is Level.FINE
        return is_safe and not (self.turns and self.turns.failed)

    @property
    def rehearsal_due(self) -> datetime | None:
        """The time by which an hour has to come back: in the past if none was ever rehearsed, None if none has to."""
        if not self.is_rehearsed or (self.turns is None and self.newest_complete is None):
            return None
        return self.turns.due_at if self.turns else EPOCH


@dataclass(frozen=True)
class FailedRun:
    """A failed run.

    `kind` is the run's work, such as `archive` or `restore`. `is_over` is True if later runs of this kind succeeded for
    all failed topics. If not, `topics` are the ones without such a run; they are empty if the work has no topics.
    `is_healing` is True if the same work is requested again automatically.
    """

    run_id: str
    kind: str
    ended_at: datetime
    message: str
    is_over: bool
    topics: tuple[str, ...] = ()
    is_healing: bool = False


@dataclass(frozen=True)
class EndedRun:
    """The last run of a kind to end."""

    kind: str
    ended_at: datetime
    seconds: float | None
    is_success: bool

    def describe(self) -> str:
        """Return the run's kind, and how it ended."""
        return f"{self.kind} {'succeeded' if self.is_success else 'failed'}"


@dataclass(frozen=True)
class Trigger:
    """A sensor or schedule of a connector. `name` is its name in Dagster without the connector's, such as `lag`.

    It was turned on at `started_at`, and Dagster evaluated it last at `evaluated_at`. Each is None if unknown, or if it
    never happened. `is_late` is True if it is on, and should have been evaluated since.
    """

    name: str
    is_on: bool
    started_at: datetime | None = None
    evaluated_at: datetime | None = None
    is_late: bool = False


RUN_TRIGGERS: Mapping[str, Collection[str]] = {"archive": ("lag", "hourly"), "restore": ("poll",)}
"""The triggers that request runs of a connector's own work: a sink archives, a source restores."""


@dataclass(frozen=True)
class ConnectorState:
    """The state of a connector's own work, in Kafka Connect's words.

    FAILED: no run has succeeded `since` the first known failure. PAUSED: all triggers of its runs are off. UNASSIGNED:
    one is on, but Dagster is late to evaluate it. RUNNING: Dagster evaluates them in time. `since` is when the first
    one was turned on if RUNNING, and the last evaluation if PAUSED or UNASSIGNED; None if it is unknown, or never was.
    """

    name: Literal["RUNNING", "PAUSED", "FAILED", "UNASSIGNED"]
    since: datetime | None


@dataclass(frozen=True)
class RunningRestore:
    """A restore under way. Fields are None if it has no plan yet, or restores objects of other tools.

    `planned_records` is exact, or an upper bound if records are filtered. `sent_records` is the sum of the last
    checkpoints. When all are sent, they are read back.
    """

    run_id: str
    restore_id: str
    topic: str | None = None
    to_topic: str | None = None
    planned_records: int | None = None
    sent_records: int | None = None


@dataclass(frozen=True)
class RunHistory:
    """A connector's runs in Dagster's instance.

    `failures` are the failed runs without a later success, and the last one with a success. Restores without records
    (dry runs, empty ones) are in none of these fields. `topics` are those that Dagster knows from a sensor. `day_runs`
    and `day_failures` count the ended and the failed runs of the last 24 hours. `triggers` are those that Dagster has
    evaluated or somebody has turned on or off: all others are off.
    """

    failures: tuple[FailedRun, ...] = ()
    ended: tuple[EndedRun, ...] = ()
    restores: tuple[RunningRestore, ...] = ()
    topics: frozenset[str] = frozenset()
    day_runs: int = 0
    day_failures: int = 0
    triggers: tuple[Trigger, ...] = ()

    def find_failure(self, topic: str) -> FailedRun | None:
        """Return the topic's failure, preferably one without a later success."""
        of_topic = (failure for failure in self.failures if not failure.topics or topic in failure.topics)
        return min(of_topic, key=lambda failure: (failure.is_over, -failure.ended_at.timestamp()), default=None)


@dataclass(frozen=True)
class ConnectorHealth:
    """The health of a connector in one look. `error` has the reason if nothing is known about its topics.

    `is_kafka_up` and `is_store_up` are True if its cluster and its store answer, None if they were not asked. A source
    connector has no topics: it archives nothing. `history` is None, with the reason in `history_error`, if Dagster's
    instance did not answer or there is none. `removed_topics` were archived and are gone: `removal` has the reason and
    advice. `is_removed` is True if the connector itself no longer exists, `is_loaded` if its file was read.
    `is_dagster_silent` is True if there is an instance of Dagster, and its storage does not answer.
    `evidence_error` is the reason if it is not known when topics last came back.
    """

    connector: str
    looked_at: datetime
    topics: tuple[TopicHealth, ...] = ()
    error: str = ""
    is_kafka_up: bool | None = None
    is_store_up: bool | None = None
    history: RunHistory | None = None
    history_error: str = ""
    is_dagster_silent: bool = False
    removed_topics: tuple[str, ...] = ()
    removal: str = ""
    is_removed: bool = False
    is_loaded: bool = True
    is_source: bool = False
    evidence_error: str = ""

    @property
    def is_known(self) -> bool:
        """True if Kafka and the store have answered everything about every topic."""
        return not self.error and all(topic.is_known for topic in self.topics)

    @property
    def is_well(self) -> bool:
        """True if everything is known, nothing is at risk, Dagster is up, and no failed run needs somebody."""
        is_known = not self.error and not self.evidence_error and self.is_dagster_up is not False
        return is_known and not self.failures and all(topic.is_well for topic in self.topics)

    @property
    def is_dagster_up(self) -> bool | None:
        """False if Dagster does not answer, or is late to evaluate what is to request its runs. None if unknown."""
        if self.history is None:
            return False if self.is_dagster_silent else None
        return not any(trigger.is_late for trigger in self._run_triggers)

    @property
    def failures(self) -> list[FailedRun]:
        """The failed runs that need somebody: no later run succeeded, and none is requested automatically."""
        return [run for run in self._open_failures if not run.is_healing]

    @property
    def state(self) -> "ConnectorState | None":
        """The state of its own work, or None if it is not known."""
        if self.history is None:
            return None
        failed_at = [run.ended_at for run in self._open_failures if run.kind == self._work]
        if failed_at:
            return ConnectorState("FAILED", min(failed_at))
        triggers = self._run_triggers
        running = [trigger for trigger in triggers if trigger.is_on]
        if running and self.is_dagster_up:
            return ConnectorState("RUNNING", min(filter(None, (t.started_at for t in running)), default=None))
        last_evaluated_at = max(filter(None, (t.evaluated_at for t in triggers)), default=None)
        return ConnectorState("UNASSIGNED" if running else "PAUSED", last_evaluated_at)

    @property
    def lag(self) -> int | None:
        """The lag of all topics together, or None if one topic's lag is unknown, or there is no topic."""
        lags = [topic.lag for topic in self.topics]
        return sum(filter(None, lags)) if lags and None not in lags else None

    @property
    def last_run(self) -> EndedRun | None:
        """The last run to end, of any kind."""
        return max(self.history.ended if self.history else (), key=lambda run: run.ended_at, default=None)

    @property
    def turned_off(self) -> list[str]:
        """The names of its sensors and schedules known to be off."""
        return [trigger.name for trigger in (self.history.triggers if self.history else ()) if not trigger.is_on]

    @property
    def _work(self) -> str:
        """The kind of the connector's own work."""
        return "restore" if self.is_source else "archive"

    @property
    def _run_triggers(self) -> list[Trigger]:
        """The triggers that request runs of the connector's own work."""
        triggers = self.history.triggers if self.history else ()
        return [trigger for trigger in triggers if trigger.name in RUN_TRIGGERS[self._work]]

    @property
    def _open_failures(self) -> list[FailedRun]:
        return [run for run in self.history.failures if not run.is_over] if self.history else []


def group_errors(topics: Sequence[TopicHealth]) -> dict[str, list[str]]:
    """Map each error to the topics that have it: many share one, since they share a cluster and a store."""
    topics_by_error: dict[str, list[str]] = {}
    for topic in topics:
        for error in filter(None, (topic.kafka_error, topic.store_error)):
            topics_by_error.setdefault(error, []).append(topic.topic)
    return topics_by_error


def format_place(connector: str, topics: Sequence[str]) -> str:
    """Return `connector/topic`, with the number of the other topics if there are more."""
    more = f" and {count_noun(len(topics) - 1, 'more topic')}" if len(topics) > 1 else ""
    return "/".join([connector, *topics[:1]]) + more
