"""Finds the health of a connector's topics. Asks Kafka about many topics at once, and reads the index once."""

import logging
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, replace
from datetime import datetime, timedelta, timezone
from functools import partial
from itertools import islice
from pathlib import Path

from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.errors import BrokerUnavailableError, PlatformError, StoreUnavailableError
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.model.gaps import count_reasons
from kafka_s3_platform.core.model.health import ArchivedTotals, ConnectorHealth, Level, SegmentSums, TopicHealth
from kafka_s3_platform.core.model.silence import NO_ANSWER, Silence
from kafka_s3_platform.core.restore.evidence import EvidenceFolder, Standing
from kafka_s3_platform.core.status.backlog import Archived, Backlog
from kafka_s3_platform.core.status.backlogs import Backlogs, read_archived
from kafka_s3_platform.core.status.deadline import Deadline
from kafka_s3_platform.core.status.discovery import (
    find_gone_topics,
    find_topics_folder,
    give_topics,
    recall_topics,
    resolve_now,
)
from kafka_s3_platform.core.status.index_look import IndexLook
from kafka_s3_platform.core.status.risk import RetentionLeft, find_retention_left, find_risk
from kafka_s3_platform.core.status.topic import ArchivedTopic, find_newest_closed_hour
from kafka_s3_platform.core.store.index import IndexSnapshot

logger = logging.getLogger(__name__)

BROKER_SECONDS = 5.0
"""The longest wait for one answer of the broker."""

AT_ONCE = 8
"""The number of connectors looked at in parallel."""


FirstLooks = Mapping[tuple[str, str], datetime]
"""The time of a process's first look at each topic, by connector and topic. A topic without one gets the time now."""


def look_at_connectors(
    configs: Sequence[ConnectorConfig], seconds: float, first_looks: FirstLooks | None = None
) -> list[ConnectorHealth]:
    """Find the health of connectors, AT_ONCE at a time. If one cluster does not answer, no other connector waits."""
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="look") as pool:
        return [*pool.map(lambda config: look_at_connector(config, seconds, first_looks), configs)]


def look_at_connector(
    config: ConnectorConfig, seconds: float, first_looks: FirstLooks | None = None
) -> ConnectorHealth:
    """Find the health of all topics of a connector, in about `seconds`.

    Anything that does not answer is reported as unknown. A source connector has no topics here. A process with repeated
    looks passes `first_looks`. Then the archived records are counted too.
    """
    health = ConnectorHealth(config.name, datetime.now(timezone.utc), is_source=config.source is not None)
    if config.source is not None:
        return health
    try:
        folder = find_topics_folder(os.environ)
        deadline = Deadline(seconds)
        resolved = _resolve_topics(config, folder, deadline)
        gone_topics = find_gone_topics(resolved, folder)
        topics = [ArchivedTopic(resolved, name) for name in resolved.topics if name not in gone_topics]
        return _look_at_topics(health, topics, deadline, first_looks) if topics else health
    except (PlatformError, OSError) as err:
        is_kafka_up = False if isinstance(err, BrokerUnavailableError) else None
        return replace(health, error=str(err), is_kafka_up=is_kafka_up)
    except Exception as err:
        # a defect of ours hides only this connector
        logger.exception("connector %s", config.name)
        return replace(health, error=f"{type(err).__name__}: {err}")


def _resolve_topics(config: ConnectorConfig, folder: Path, deadline: Deadline) -> ConnectorConfig:
    """Return the connector with the topics matching now, or with remembered ones if the store is silent or too slow."""
    try:
        return deadline.read_store("the list of topics", partial(resolve_now, config, folder), share=0.5)
    except StoreUnavailableError:
        recalled = recall_topics(config, folder).topics
        if not recalled:
            raise
        return give_topics(config, recalled)


def _look_at_topics(
    health: ConnectorHealth, topics: Sequence[ArchivedTopic], deadline: Deadline, first_looks: FirstLooks | None
) -> ConnectorHealth:
    """Return the connector's health with the health of its topics."""
    with closing(IndexLook("health", topics)) as index, ClusterAdmin(topics[0].config.kafka, BROKER_SECONDS) as admin:
        topics_look = _TopicsLook(topics, index, admin, deadline, first_looks)
        healths = tuple(topics_look.find_health(topic) for topic in topics)
    health = replace(health, topics=healths, is_kafka_up=topics_look.is_kafka_up, is_store_up=topics_look.is_store_up)
    return _add_evidence(health, topics[0].config, deadline)


def _add_evidence(health: ConnectorHealth, config: ConnectorConfig, deadline: Deadline) -> ConnectorHealth:
    """Add when each topic last came back, and its turns in rehearsals, from the connector's newest evidence."""
    try:
        evidence = deadline.read_store("the newest evidence", EvidenceFolder(config).read_newest)
    except PlatformError as err:
        return replace(health, evidence_error=str(err))
    standing = evidence.standing if evidence else Standing()
    topics = (
        replace(
            topic,
            proof=standing.proofs.get(topic.topic),
            turns=standing.turns.get(topic.topic),
            is_rehearsed=config.archive.rehearsal_days is not None,
            return_seconds=standing.estimate_return([topic.topic]),
        )
        for topic in health.topics
    )
    return replace(health, topics=tuple(topics))


class _TopicsLook:
    """Finds the health of a connector's topics, one after the other.

    The topics share a cluster and a store, so after several in a row without an answer, the others are not asked about.
    """

    def __init__(
        self,
        topics: Sequence[ArchivedTopic],
        index: IndexLook,
        admin: ClusterAdmin,
        deadline: Deadline,
        first_looks: FirstLooks | None,
    ) -> None:
        self._index = index
        self._deadline = deadline
        self._first_looks = first_looks
        self._totals: dict[str, ArchivedTotals] = {}
        self._backlogs = Backlogs(topics, admin, self._read_archived, deadline)
        self._archived: dict[str, Archived] = {}
        self._store_errors: dict[str, PlatformError] = {}
        self._silence = Silence()
        self._silent_kafka = _find_silence(admin)
        self.is_kafka_up = self._silent_kafka is None
        self._silent_store = ""

    def find_health(self, topic: ArchivedTopic) -> TopicHealth:
        """Return the topic's health. If something did not answer, the health has this as an error."""
        kafka_error = str(self._silent_kafka or "")
        store_error = ""
        backlog = None
        try:
            backlog = self._read(topic)
            if backlog is not None and backlog.silent_store is not None:
                store_error = self._note_silent_store(backlog.silent_store)
        except StoreUnavailableError as err:
            store_error = self._note_silent_store(err)
        except PlatformError as err:
            if topic.topic in self._store_errors:
                store_error = str(err)
            else:
                kafka_error = str(err)
        archived = self._archived.get(topic.topic)
        totals = self._totals.get(topic.topic)
        health = TopicHealth(topic.topic, kafka_error=kafka_error, store_error=store_error, totals=totals)
        if archived is not None:
            health = _add_archived(health, topic, archived)
        if backlog is None:
            return health
        first_look = None if self._first_looks is None else self._first_looks[topic.config.name, topic.topic]
        return _add_backlog(health, backlog, first_look)

    def _note_silent_store(self, err: StoreUnavailableError) -> str:
        """Return the first such error for all topics, because they share the index, and one reason is enough."""
        self._silent_store = self._silent_store or str(err)
        return self._silent_store

    @property
    def is_store_up(self) -> bool | None:
        """True if the store answers, or None if it was not asked."""
        if self._silent_store:
            return False
        return True if self._archived or self._store_errors else None

    def _read(self, topic: ArchivedTopic) -> Backlog | None:
        """Return the topic's backlog, or None if the cluster is known to be silent.

        Its index is read even then, to learn if the store answers. Raises the error of a read without an answer; after
        several in a row, raises it again without reading.
        """
        if self._silence.error is not None:
            raise self._silence.error
        backlog = None
        try:
            if self._silent_kafka is None:
                backlog = self._backlogs.read(topic)
            else:
                self._deadline.read_store(f"the index of topic {topic.topic}", partial(self._read_archived, topic))
        except NO_ANSWER as err:
            self._silence.note(err)
            raise
        self._silence.note(None)
        return backlog

    def _read_archived(self, topic: ArchivedTopic) -> Archived:
        """Read the topic's index, and note its contents, or the error."""
        try:
            archived = read_archived(topic, self._index, is_known=True)
            totals = self._index.read(topic, _count_totals) if self._first_looks is not None else None
        except PlatformError as err:
            self._store_errors[topic.topic] = err
            raise
        self._archived[topic.topic] = archived
        if totals is not None:
            self._totals[topic.topic] = totals
        return archived


def _count_totals(snapshot: IndexSnapshot) -> ArchivedTotals:
    """Count the archived records and objects of a topic."""
    topic = snapshot.index.topic
    sums = snapshot.connector_snapshot.segment_sums.get(topic, SegmentSums())
    today = datetime.now(timezone.utc).replace(hour=0, minute=0, second=0, microsecond=0)
    hours = snapshot.connector_snapshot.count_hours(topic, today - timedelta(days=1))
    groups: dict[str, datetime] = {}
    for row in snapshot.state.groups:
        groups[row.group_id] = min(row.observed_at, groups.get(row.group_id, row.observed_at))
    return ArchivedTotals(
        **asdict(sums),
        dead_letters=sum(scan.dead_letter_count for scan in snapshot.state.all_scans),
        gap_offsets=count_reasons(snapshot.state.judge.left_out),
        yesterday_records=sum(records for hour, (records, _) in hours.items() if hour < today),
        groups=groups,
    )


def _find_silence(admin: ClusterAdmin) -> BrokerUnavailableError | None:
    """Return the error of a cluster that does not answer at all. Other errors are reported for each topic."""
    try:
        admin.describe_cluster()
    except BrokerUnavailableError as err:
        return err
    except PlatformError:
        return None
    return None


def _add_archived(health: TopicHealth, topic: ArchivedTopic, archived: Archived) -> TopicHealth:
    """Add the facts the index alone shows: the newest complete hour, and the number of unresolved offsets."""
    first = topic.start_hour
    newest = find_newest_closed_hour(datetime.now(timezone.utc), topic.lateness, first)
    complete = None if newest is None else archived.state.judge.find_newest_complete(first, newest, topic.lateness)
    unresolved = sum(len(item.offsets) for item in archived.state.unresolved)
    return replace(health, newest_complete=complete, unresolved_offsets=unresolved)


def _add_backlog(health: TopicHealth, backlog: Backlog, first_look: datetime | None) -> TopicHealth:
    """Add lag, risk and the oldest incomplete hour, but leave out anything a missing answer could change."""
    try:
        risk = find_risk(backlog, first_look)
        retention_left = find_retention_left(backlog)
        oldest = _find_oldest_incomplete(backlog)
    except PlatformError as err:
        return replace(health, kafka_error=str(err))
    lag = None if backlog.undecided else sum(backlog.lag.values())
    if backlog.silent_store is not None:
        # the index is as it was last read: what was at risk then may be archived by now, and cannot be called fine
        return replace(health, lag=lag, risk=risk if risk.level is not Level.FINE else None)
    health = replace(health, risk=risk, oldest_incomplete=oldest, lag=lag)
    health = replace(health, retention_left=None if backlog.undecided else _bound_retention(retention_left))
    if not backlog.failures:
        return health
    return replace(health, lag=None, retention_left=None, kafka_error="; ".join(map(str, backlog.failures.values())))


def _bound_retention(retention_left: RetentionLeft | None) -> float | None:
    """Return the seconds until Kafka deletes records, 0 if their age is not known, or None if it deletes none."""
    if retention_left is None:
        return None
    return max(0.0, retention_left.seconds) if retention_left.is_age_known else 0.0


def _find_oldest_incomplete(backlog: Backlog) -> datetime | None:
    """Return the oldest incomplete hour of the past: a due hour, or one with unresolved offsets.

    An hour without records may be due, because nobody has asked for it, and yet be complete.
    """
    state = backlog.state
    due_hours = (hour for hour in backlog.hours_left if not state.judge.is_complete(hour, backlog.topic.lateness))
    first_offsets: dict[int, int] = {}
    for item in state.unresolved:
        first_offsets.setdefault(item.kafka_partition, item.start_offset)
    hours = [hour for place in first_offsets.items() if (hour := state.hour_of(*place)) is not None]
    return min([*islice(due_hours, 1), *hours], default=None)
