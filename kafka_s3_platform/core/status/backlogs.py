"""Reads the backlogs of a connector's topics. Asks Kafka about many topics at once, and reads the index once."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import Any, TypeVar

from kafka_s3_platform.core.archive.clock import refuse_wrong_clock
from kafka_s3_platform.core.archive.observation import ArchivedLogs, open_divergence_finder, refuse_another_topic
from kafka_s3_platform.core.errors import (
    ClockError,
    LogTruncatedError,
    PlatformError,
    StoreUnavailableError,
    TopicRecreatedError,
    TransientError,
)
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.kafka.answers import Answers
from kafka_s3_platform.core.kafka.known_offsets import KnownOffsets
from kafka_s3_platform.core.kafka.new_reader import new_reader
from kafka_s3_platform.core.kafka.offset_admin import FoundTopic
from kafka_s3_platform.core.kafka.record_reader import EpochEnd
from kafka_s3_platform.core.model.frontier import Frontier
from kafka_s3_platform.core.model.offsets import OffsetRange
from kafka_s3_platform.core.model.segment import EpochMark
from kafka_s3_platform.core.model.silence import Silence
from kafka_s3_platform.core.model.state import IndexState
from kafka_s3_platform.core.status.backlog import Archived, Backlog, read_answering_backlog
from kafka_s3_platform.core.status.deadline import Deadline
from kafka_s3_platform.core.status.index_look import IndexLook
from kafka_s3_platform.core.status.topic import ArchivedTopic
from kafka_s3_platform.core.store.index import IndexSnapshot
from kafka_s3_platform.core.store.index_rows import SEGMENT_KINDS
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform.core.store.row_filter import SegmentFilter

R = TypeVar("R")

UNDECIDED = (LogTruncatedError, TopicRecreatedError)
"""Errors that recur until somebody decides with `kafka-s3 resolve`."""

SEARCHED = 1_000
"""The number of offsets in which a first record is searched, since compaction leaves holes."""

TOPICS_AT_ONCE = 100
"""The number of topics that are read together. When a tick's time is over, earlier topics' results are not lost."""

CONFIGS_SECONDS = 600.0
"""The age at which a topic's cached configs are read again: each tick needs them for all topics that are behind."""

_configs: dict[tuple[str, str], tuple[float, Mapping[str, str]]] = {}
"""Cached configs of topics, and the time of reading them, by bootstrap servers and topic id."""

REMEMBERED = 100_000
"""The most cached answers about logs. Each is valid as long as the log's leader epoch, or for ever."""

_answers: dict[tuple[object, ...], Any] = {}
"""Cached answers about logs, by bootstrap servers, topic id, kafka partition and the question."""

_archived: dict[tuple[str, str, str], Archived] = {}
"""The indexes as they were last read, by endpoint, place of the index and topic."""


class Backlogs:
    """The backlogs of `topics`. When a tick reaches an unread one, up to TOPICS_AT_ONCE are read together.

    So requests to the broker do not grow with every topic. A topic's failure is raised when its own turn comes.
    """

    def __init__(
        self,
        topics: Sequence[ArchivedTopic],
        admin: ClusterAdmin,
        read_archived: Callable[[ArchivedTopic], Archived],
        deadline: Deadline,
    ) -> None:
        self._topics = topics
        self._admin = admin
        self._read_archived = read_archived
        self._deadline = deadline
        self._offsets = KnownOffsets(deadline.limit_broker(admin.offsets_for_times_of))
        self._config = topics[0].config
        self._servers = self._config.kafka.bootstrap_servers
        self._backlogs: dict[str, Backlog] = {}
        self._failures: dict[str, Exception] = {}
        self._silent_store: dict[str, StoreUnavailableError] = {}

    def read(self, topic: ArchivedTopic) -> Backlog:
        """Return the topic's backlog in the answering kafka partitions. Raises the error if nothing of it is known."""
        if topic.topic not in self._backlogs and topic.topic not in self._failures:
            self._read_next(topic)
        if topic.topic in self._failures:
            raise self._failures[topic.topic]
        return self._backlogs[topic.topic]

    def _read_next(self, topic: ArchivedTopic) -> None:
        """Read the backlogs of this topic and of the next unread ones, in few requests.

        A topic's error is kept until the topic's backlog is asked for.
        """
        first = self._topics.index(topic)
        known_topics = self._backlogs.keys() | self._failures.keys()
        in_turn = (*self._topics[first:], *self._topics[:first])
        topics = [candidate for candidate in in_turn if candidate.topic not in known_topics][:TOPICS_AT_ONCE]
        archived = self._read_indexes(topics)
        descriptions = self._admin.find_topics(archived)
        frontiers_by_topic = self._admin.frontiers_of(
            {name: topic.kafka_partitions for name, topic in descriptions.results.items()}
        )
        self._failures |= {**descriptions.failures, **frontiers_by_topic.failures}
        backlogs: list[Backlog] = []
        for next_topic in topics:
            name = next_topic.topic
            if frontiers := frontiers_by_topic.results.get(name):
                try:
                    backlogs.append(self._build(next_topic, archived[name], descriptions.results[name], frontiers))
                except PlatformError as err:
                    self._failures[name] = err
        # The tick's time may be over. Then the error comes to the caller that needs an answer.
        with suppress(TransientError):
            self._search_oldest([backlog for backlog in backlogs if backlog.uncovered])
        for backlog in backlogs:
            try:
                self._backlogs[backlog.topic.topic] = read_answering_backlog(backlog)
            except PlatformError as err:
                self._failures[backlog.topic.topic] = err
        with suppress(TransientError):
            names = [next_topic.topic for next_topic in topics]
            self._ask_ahead([self._backlogs[name] for name in names if name in self._backlogs])

    def _read_indexes(self, topics: Sequence[ArchivedTopic]) -> dict[str, Archived]:
        """Read the index of the topics, as long as the store answers and the tick has time.

        For topics without an answer, return what was read last: their lag can still be computed.
        """
        archived: dict[str, Archived] = {}
        silence = Silence()
        for topic in topics:
            index_name = f"the index of topic {topic.topic}"
            try:
                # with a cached index, half of the time is for Kafka, which is asked afterwards
                share = 0.5 if _name_place(topic) in _archived else 1.0
                archived[topic.topic] = self._deadline.read_store(
                    index_name, partial(self._read_archived, topic), share=share
                )
            except Exception as err:  # noqa: BLE001 - raised when it is the topic's turn
                self._failures[topic.topic] = err
            failure = self._failures.get(topic.topic)
            silence.note(failure)
            if self._deadline.is_over() or silence.error is not None:
                break
        _archived.update({_name_place(topic): archived[topic.topic] for topic in topics if topic.topic in archived})
        if isinstance(failure, StoreUnavailableError):
            for topic in topics:
                cached = _archived.get(_name_place(topic))
                # another failure, such as a damaged index, is reported as it is
                is_silent = isinstance(self._failures.get(topic.topic, failure), StoreUnavailableError)
                if topic.topic not in archived and cached is not None and is_silent:
                    archived[topic.topic] = cached
                    self._silent_store[topic.topic] = failure
                    self._failures.pop(topic.topic, None)
        return archived

    def _build(
        self,
        topic: ArchivedTopic,
        archived: Archived,
        described: FoundTopic,
        frontiers_of_topic: Answers[int, Frontier],
    ) -> Backlog:
        """Build a topic's backlog from its index and its frontiers, without kafka partitions whose log has changed."""
        now = next(iter(frontiers_of_topic.any_or_raise().values())).observed_at
        changed = self._find_changed(topic, archived.state, described, frontiers_of_topic.results)
        undecided = {p: err for p, err in changed.items() if isinstance(err, UNDECIDED)}
        failures = {**frontiers_of_topic.failures, **{p: err for p, err in changed.items() if p not in undecided}}
        frontiers = {p: frontier for p, frontier in frontiers_of_topic.results.items() if p not in changed}
        return Backlog(
            topic,
            described.topic_id,
            now,
            frontiers if undecided else dict(Answers(frontiers, failures).any_or_raise()),
            archived.state,
            archived.stored_hours,
            self._offsets.of_topic(topic.topic),
            partial(self._read_configs, topic.topic, described.topic_id),
            partial(self._read_timestamp, described),
            failures,
            undecided,
            self._clock_error,
            self._silent_store.get(topic.topic),
        )

    def _find_changed(
        self, topic: ArchivedTopic, state: IndexState, described: FoundTopic, frontiers: Mapping[int, Frontier]
    ) -> Mapping[int, PlatformError]:
        """Return the errors of kafka partitions whose log is not the archived one: truncated, or of another topic."""
        try:
            refuse_another_topic(described, state)
        except TopicRecreatedError as err:
            return dict.fromkeys(described.kafka_partitions, err)
        find_divergence = partial(self._find_divergence, described)
        return ArchivedLogs(topic.config, topic.topic, state, find_divergence).find_changed(frontiers)

    def _find_divergence(self, described: FoundTopic, frontier: Frontier, mark: EpochMark) -> EpochEnd | None:
        """Return where the log diverges from the archived part of a leader epoch, from the cache or the broker."""

        def ask() -> EpochEnd | None:
            with open_divergence_finder(self._config.kafka, described.topic) as find_divergence:
                return find_divergence(frontier, mark)

        return self._ask_log(described, (frontier.kafka_partition, frontier.leader_epoch, mark), ask)

    def _read_timestamp(self, described: FoundTopic, kafka_partition: int, offsets: OffsetRange) -> int | None:
        """Return the timestamp (epoch ms) of the first record in the range, from the cache or the broker."""
        search_range = OffsetRange(offsets.start_offset, min(offsets.end_offset, offsets.start_offset + SEARCHED))

        def ask() -> int | None:
            with new_reader(self._config.kafka, described.topic, allow_gaps=True, skip_unreadable=True) as reader:
                columns = (
                    batch.column("timestamp") for batch in reader.read(kafka_partition, search_range) if len(batch)
                )
                return next((int(times.cast("int64")[0].as_py()) for times in columns), None)

        return self._ask_log(described, (kafka_partition, offsets.start_offset), ask)

    def _ask_log(self, described: FoundTopic, question: tuple[object, ...], ask: Callable[[], R]) -> R:
        """Return the cached answer about a log or, if the tick has time, ask for it. Most ticks ask nothing."""
        key = (self._servers, described.topic_id, *question)
        if key not in _answers:
            if len(_answers) >= REMEMBERED:
                _answers.clear()
            _answers[key] = self._deadline.limit_broker(ask)()
        answer: R = _answers[key]
        return answer

    @cached_property
    def _clock_error(self) -> ClockError | None:
        """The error if this machine's clock and the store's differ, None if not or if the store's time is unknown."""
        if self._silent_store:
            return None
        compare = partial(refuse_wrong_clock, self._config, ObjectStore(self._config.store))
        try:
            self._deadline.read_store("the store's clock", compare, share=0.5)
        except ClockError as err:
            return err
        except PlatformError:
            # reported where the index is read
            return None
        return None

    def _read_configs(self, topic: str, topic_id: str) -> Mapping[str, str]:
        """Return the topic's configs as the broker has them, or had them some minutes ago."""
        if not self._has_fresh_configs(topic_id):
            configs = self._deadline.limit_broker(self._admin.read_topic_configs)(topic)
            _configs[self._servers, topic_id] = time.monotonic(), configs
        return _configs[self._servers, topic_id][1]

    def _has_fresh_configs(self, topic_id: str) -> bool:
        """Return True if the topic's configs were read recently."""
        at, _ = _configs.get((self._servers, topic_id), (float("-inf"), {}))
        return time.monotonic() - at < CONFIGS_SECONDS

    def _ask_ahead(self, backlogs: Sequence[Backlog]) -> None:
        """Make the requests of all topics for lag and hours together, so each topic finds its answer in the cache."""
        stale = [b for b in backlogs if any(b.lag.values()) and not self._has_fresh_configs(b.topic_id)]
        topic_ids = {backlog.topic.topic: backlog.topic_id for backlog in stale}
        if topic_ids:
            configs = self._deadline.limit_broker(self._admin.read_topic_configs_of)(topic_ids).results
            now = time.monotonic()
            for name, configs_of_topic in configs.items():
                _configs[self._servers, topic_ids[name]] = now, configs_of_topic
        questions: dict[str, tuple[Mapping[int, Frontier], list[int]]] = {}
        for backlog in backlogs:
            # What is wrong with one topic is raised when it is its turn.
            with suppress(PlatformError):
                questions[backlog.topic.topic] = backlog.frontiers, backlog.list_times()
        self._offsets.ask_ahead({name: question for name, question in questions.items() if question[1]})

    def _search_oldest(self, backlogs: Sequence[Backlog]) -> None:
        """Make the requests of all searches together. Afterwards each topic's search can be repeated from the cache."""
        searches = {backlog.topic.topic: backlog.search_oldest(backlog.uncovered) for backlog in backlogs}
        frontiers = {backlog.topic.topic: backlog.frontiers for backlog in backlogs}
        steps: dict[str, int] = {}
        for name, search in searches.items():
            with suppress(StopIteration):
                steps[name] = next(search)
        while steps:
            self._offsets.ask_ahead({name: (frontiers[name], [at]) for name, at in steps.items()})
            next_steps: dict[str, int] = {}
            for name, at in steps.items():
                answers = self._offsets.of_topic(name)(frontiers[name], [at])
                with suppress(StopIteration):
                    # a topic that got no answer stops here: its search is repeated when its turn comes
                    if not answers.failures:
                        next_steps[name] = searches[name].send(answers.results)
            steps = next_steps


def read_archived(topic: ArchivedTopic, index_look: IndexLook, *, is_known: bool) -> Archived:
    """Read the topic's state and archived hours. If `is_known`, list hours of recent commits only (`SHOWN_WITHIN`)."""
    hourly = SegmentFilter(chunk="hourly", committed_since=index_look.since if is_known else None)

    def read(snapshot: IndexSnapshot) -> Archived:
        chunks = snapshot.list_chunks(hourly, SEGMENT_KINDS)
        return Archived(snapshot.state, frozenset(c.chunk_start for c in chunks if c.chunk_start))

    return index_look.read(topic, read) or Archived()


def _name_place(topic: ArchivedTopic) -> tuple[str, str, str]:
    """Return the key of the topic's index in the cache: endpoint, place of the index, topic."""
    return topic.config.store.endpoint_url or "", topic.index.uri, topic.topic
