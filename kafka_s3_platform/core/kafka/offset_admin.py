"""Questions to a cluster about topics and offsets: the bounds of logs, and the first record at or after a time.

Every question covers many topics at once. A question about one topic is the same question with one topic. A *place* is
a topic with one of its kafka partitions; o(t) is the offset of the first record with the timestamp t or a later one.
"""

import time
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property
from typing import Any, TypeVar

from confluent_kafka import IsolationLevel, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import ListOffsetsResultInfo, OffsetSpec

from kafka_s3_platform.core.config.settings import KafkaSettings
from kafka_s3_platform.core.errors import BrokerUnavailableError, MissingTopicError, PlatformError
from kafka_s3_platform.core.kafka.answers import (
    Answers,
    LogEnds,
    OffsetAtTime,
    RecordOffset,
    Untold,
    ask_again,
    ask_in_parts,
    check_frontier,
    check_log_ends,
    check_time_offset,
)
from kafka_s3_platform.core.kafka.client import TIMEOUT_SECONDS, AdminCalls
from kafka_s3_platform.core.kafka.failures import NO_LEADER
from kafka_s3_platform.core.model.frontier import Frontier
from kafka_s3_platform.core.text import find_nearest

TimeOffsets = Mapping[int, RecordOffset | None]
"""Maps a timestamp (epoch ms) to the first record at or after it, according to one answer of a broker."""

OffsetSearch = Generator[Sequence[int], Answers[int, TimeOffsets], Answers[int, TimeOffsets]]
"""Yields the timestamps to ask about next, receives the answers by kafka partition, and returns the answers for all."""


def search_offsets(times: Sequence[int]) -> OffsetSearch:
    """Search the offsets of `times` (epoch ms, ascending) in all kafka partitions of one topic.

    This generator asks nothing itself. Its caller sends requests for many topics together (see OffsetSearch). Since
    o(t) never falls as t grows, nothing is asked between two timestamps with equal answers, so long spans of empty
    hours cost few questions.
    """
    answers = yield [*times[:1], *times[1:][-1:]]
    spans = [(0, len(times) - 1)] if times else []
    while spans and answers.results:
        answers = _fill_spans(times, spans, answers)
        one_answer = next(iter(answers.results.values()))
        # A span whose ends differ is halved: few questions find where, between them, the offset rises.
        halves = [(low, (low + high) // 2, high) for low, high in spans if not one_answer.keys() >= {*times[low:high]}]
        if not halves:
            break
        middles = yield [times[middle] for _, middle, _ in halves]
        answers = answers.zip(middles).convert(lambda _, pair: {**pair[0], **pair[1]})
        spans = []
        for low, middle, high in halves:
            spans += [(low, middle), (middle, high)]
    return answers


def _fill_spans(
    times: Sequence[int], spans: Iterable[tuple[int, int]], answers: Answers[int, TimeOffsets]
) -> Answers[int, TimeOffsets]:
    """Add the answers for the times inside spans (pairs of indices of `times`) whose ends have the same answer."""
    offsets_by_time = answers.results.values()
    inside: dict[int, int] = {}
    for low, high in spans:
        if all(offsets[times[low]] == offsets[times[high]] for offsets in offsets_by_time):
            inside |= dict.fromkeys(times[low + 1 : high], times[low])
    return answers.convert(lambda _, offsets: {**offsets, **{t: offsets[at] for t, at in inside.items()}})


LEADERS_SECONDS = 5.0
"""The time for which leaders are remembered. Planning may ask for a thousand kafka partitions one by one."""

TOPICS_AT_ONCE = 250
"""The number of topics in one request. A broker's answer has some kB for each, above all its configs."""

PLACES_AT_ONCE = 6_000
"""The number of kafka partitions asked about together. Each answer takes about 1 kB of memory while it is awaited."""

CALLS_IN_FLIGHT = 64
"""The number of ListOffsets calls under way at once. A plan may have to ask for thousands of hours."""

ANSWERS_IN_FLIGHT = 24_000
"""The number of answers that are awaited at once, over all calls."""

Place = tuple[str, int]
"""A topic and one of its kafka partitions."""

Where = Callable[[Place], str]
"""Describes, for an error, what was tried and on which kafka partition."""

A = TypeVar("A")

OffsetFutures = Mapping[TopicPartition, "Future[ListOffsetsResultInfo]"]


@dataclass(frozen=True, slots=True)
class FoundTopic:
    """A broker's metadata of a topic. `leaders` gives the id of each kafka partition's leader, if it has one now.

    `operations` holds Kafka's names for the admin client's rights on the topic, and is None if they are unknown.
    `replicas` gives the ids of the brokers that hold each kafka partition.
    """

    topic: str
    topic_id: str
    kafka_partitions: tuple[int, ...]
    leaders: Mapping[int, int]
    replicas: Mapping[int, tuple[int, ...]]
    operations: frozenset[str] | None


class OffsetAdmin(AdminCalls):
    """An admin client that lists topics, and asks the leaders of kafka partitions for offsets.

    A call about many topics does not raise the errors of brokers: each topic gets an answer or a failure. If there is
    no answer at all, all topics get the same failure.
    """

    def __init__(
        self, settings: KafkaSettings, timeout_seconds: float = TIMEOUT_SECONDS, *, begins: bool = False
    ) -> None:
        super().__init__(settings, timeout_seconds, begins=begins)
        self._seen: dict[str, tuple[float, FoundTopic]] = {}

    def find_topics(self, topics: Iterable[str]) -> Answers[str, FoundTopic]:
        """Ask a broker for the topics' metadata, TOPICS_AT_ONCE per request. librdkafka then knows their leaders."""

        def ask(names: Sequence[str]) -> Answers[str, FoundTopic]:
            futures = self._client.describe_topics(
                TopicCollection([*names]), include_authorized_operations=True, request_timeout=self._timeout
            )
            return self._await_answers(futures, lambda topic: f"describing topic {topic}").convert(_read_topic)

        answers = ask_in_parts(tuple(dict.fromkeys(topics)), TOPICS_AT_ONCE, ask)
        now = time.monotonic()
        self._seen |= {topic: (now, found_topic) for topic, found_topic in answers.results.items()}
        return Answers(
            answers.results, {topic: self._suggest_topic(topic, err) for topic, err in answers.failures.items()}
        )

    def list_topics(self) -> frozenset[str]:
        """Return the names of all topics visible to the admin client."""
        return frozenset(self._ask_metadata().topics)

    def find_near_topic(self, topic: str) -> str | None:
        """Return the topic with the most similar name, for "Did you mean", or None if there is none, or no answer."""
        try:
            return find_nearest(topic, self._known_names)
        except PlatformError:
            return None

    def _suggest_topic(self, topic: str, err: PlatformError) -> PlatformError:
        """Return the error, which for a missing topic also names the topic with the nearest name, if there is one."""
        if not isinstance(err, MissingTopicError):
            return err
        near = self.find_near_topic(topic)
        suggestion = err.retell(f"{err.text}. Did you mean {near}?") if near else err
        suggestion.__cause__ = err.__cause__
        return suggestion

    @cached_property
    def _known_names(self) -> frozenset[str]:
        """The names of all topics at the time when a topic was first found to be missing."""
        return self.list_topics()

    def frontiers(self, topic: str, kafka_partitions: Iterable[int]) -> dict[int, Frontier]:
        """Return the present log start, last stable offset and high watermark of each kafka partition.

        Raises the error of the first kafka partition without an answer.
        """
        return dict(self.frontiers_of({topic: kafka_partitions}).all_or_raise()[topic].all_or_raise())

    def frontiers_of(self, kafka_partitions: Mapping[str, Iterable[int]]) -> Answers[str, Answers[int, Frontier]]:
        """Return log start, last stable offset and high watermark by topic and kafka partition, or a failure.

        A topic fails as a whole if it does not exist, or if no broker answers.
        """
        return self.add_log_starts(self.log_ends_of(kafka_partitions))

    def log_ends_of(self, kafka_partitions: Mapping[str, Iterable[int]]) -> Answers[str, Answers[int, LogEnds]]:
        """Return the ends of logs. Ask for offsets of timestamps after this, and before `add_log_starts`.

        In this order, a record the answers lack came later, so it lies at or above the end. And records deleted by
        retention meanwhile lie below the log start, so the record after them is not mistaken for the first of its time.
        """
        where = _name_attempt("reading the ends of the logs of topic")
        observed_at = datetime.now(timezone.utc)

        def ask(places: Collection[Place]) -> Answers[Place, LogEnds]:
            # Since it is asked for after the high watermark, the last stable offset is below it only because of open
            # transactions, and not because of new records.
            ends = self._ask_offsets(dict.fromkeys(places, OffsetSpec.latest()), where, IsolationLevel.READ_UNCOMMITTED)
            stable = self._ask_offsets(dict.fromkeys(ends.results, OffsetSpec.latest()), where)
            return ends.zip(stable).convert(check)

        def check(place: Place, infos: tuple[ListOffsetsResultInfo, ListOffsetsResultInfo]) -> LogEnds:
            end, stable_end = infos
            return check_log_ends((end.offset, stable_end.offset), end.leader_epoch, observed_at, where(place))

        return self._ask_by_topic(kafka_partitions, lambda places: ask_again(ask(places), ask))

    def add_log_starts(self, log_ends: Answers[str, Answers[int, LogEnds]]) -> Answers[str, Answers[int, Frontier]]:
        """Ask for log starts, and combine them with `log_ends` into frontiers. A failure in `log_ends` stays one."""
        where = _name_attempt("reading the log starts of topic")
        ends = {(topic, p): end for topic, logs in log_ends.results.items() for p, end in logs.results.items()}

        def ask(places: Collection[Place]) -> Answers[Place, Frontier]:
            starts = self._ask_offsets(dict.fromkeys(places, OffsetSpec.earliest()), where)
            return starts.convert(lambda place, info: check_frontier(place[1], info.offset, ends[place], where(place)))

        starts = self._ask_by_topic(
            {topic: tuple(topic_ends.results) for topic, topic_ends in log_ends.results.items()},
            lambda places: ask_again(ask(places), ask),
        )
        return log_ends.zip(starts).convert(
            lambda _, pair: Answers(pair[1].results, {**pair[0].failures, **pair[1].failures})
        )

    def newest_records(
        self, kafka_partitions: Mapping[str, Iterable[int]]
    ) -> Answers[str, Answers[int, tuple[int, int]]]:
        """Return the offset and epoch ms of the record with the latest timestamp, if there is one (since Kafka 3.0)."""
        where = _name_attempt("looking for the newest record of topic")

        def ask(places: Iterable[Place]) -> Answers[Place, tuple[int, int]]:
            newest = self._ask_offsets(dict.fromkeys(places, OffsetSpec.max_timestamp()), where)
            offsets = newest.convert(lambda place, info: check_time_offset(info.offset, info.timestamp, where(place)))
            records: dict[Place, tuple[int, int]] = {}
            for place, offset in offsets.results.items():
                timestamp_ms = newest.results[place].timestamp
                if offset is not None and timestamp_ms >= 0:
                    records[place] = offset, timestamp_ms
            return Answers(records, offsets.failures)

        return self._ask_by_topic(kafka_partitions, ask)

    def offsets_for_times_of(
        self, questions: Mapping[str, tuple[Iterable[int], Sequence[int]]]
    ) -> Answers[str, Answers[int, Mapping[int, OffsetAtTime]]]:
        """Return o(t) by topic, kafka partition and timestamp t (epoch ms): the first committed record at t or later.

        `questions` maps each topic to its kafka partitions and timestamps. The answers come from slightly different
        moments. A kafka partition that lacks the answer for one timestamp has no answer at all.
        """
        times = {topic: sorted(set(timestamps_ms)) for topic, (_, timestamps_ms) in questions.items()}
        for topic_times in times.values():
            if topic_times and topic_times[0] < 0:
                raise ValueError(f"a timestamp below 0 has a meaning of its own in ListOffsets: {topic_times[0]}")
        where = _name_attempt("looking for the leaders of topic")

        def ask(places: Iterable[Place]) -> Answers[Place, Mapping[int, OffsetAtTime]]:
            leaders = ask_again(self._find_leaders(places, where), lambda unled: self._find_leaders(unled, where))
            first_answers = self._search_times(leaders.results, times)
            doubted = self._find_doubted_times(first_answers.results)
            # Records may have come since then. So an answer counts as wrong only if the second one is the same.
            second_answers = self._search_times(doubted, _collect_times(doubted))
            unknown = second_answers.convert(
                lambda place, offsets: {t: Untold.UNTOLD if offsets[t] is None else offsets[t] for t in doubted[place]}
            )
            certain = {p: offsets for p, offsets in first_answers.results.items() if p not in second_answers.failures}
            offsets = {p: {**by_time, **unknown.results.get(p, {})} for p, by_time in certain.items()}
            return Answers(offsets, {**leaders.failures, **first_answers.failures, **second_answers.failures})

        return self._ask_by_topic({topic: kafka_partitions for topic, (kafka_partitions, _) in questions.items()}, ask)

    def _find_doubted_times(self, answers: Mapping[Place, TimeOffsets]) -> dict[Place, list[int]]:
        """Return the timestamps to ask about again: a broker named no record so late, though its newest one is.

        A record of an open transaction counts too: as long as it is the newest one, brokers name no committed one.
        """
        silent: dict[Place, list[int]] = {}
        for place, offsets in answers.items():
            times = [time_ms for time_ms, offset in offsets.items() if offset is None]
            if times:
                silent[place] = times
        if not silent:
            return {}
        where = _name_attempt("looking for the newest record of topic")
        specs = dict.fromkeys(silent, OffsetSpec.max_timestamp())
        newest_infos = self._ask_offsets(specs, where, IsolationLevel.READ_UNCOMMITTED)
        # A broker before Kafka 3.0 cannot name its newest record, so every such answer of it is doubted.
        newest = {place: max(times) for place, times in silent.items()}
        newest |= {place: info.timestamp if info.offset >= 0 else -1 for place, info in newest_infos.results.items()}
        doubted: dict[Place, list[int]] = {}
        for place, times in silent.items():
            doubted_times = [time_ms for time_ms in times if time_ms <= newest[place]]
            if doubted_times:
                doubted[place] = doubted_times
        return doubted

    def _search_times(self, places: Iterable[Place], times: Mapping[str, Sequence[int]]) -> Answers[Place, TimeOffsets]:
        """Search the offsets of each topic's timestamps. The searches take their steps together, in shared requests."""
        open_places: Mapping[str, Sequence[int]] = _group_places(places)
        searches = {topic: search_offsets(times[topic]) for topic in open_places}
        steps = {topic: next(search) for topic, search in searches.items()}
        results: dict[Place, TimeOffsets] = {}
        failures: dict[Place, PlatformError] = {}
        while steps:
            questions = {(topic, p): times for topic, times in steps.items() for p in open_places[topic]}
            topic_answers = _sort_by_topic(open_places, self._ask_times(questions))
            open_places = {topic: tuple(topic_answers[topic].results) for topic in steps}
            for topic in tuple(steps):
                try:
                    steps[topic] = searches[topic].send(topic_answers[topic])
                except StopIteration as end:
                    del steps[topic]
                    last: Answers[int, TimeOffsets] = end.value
                    results |= {(topic, p): offsets for p, offsets in last.results.items()}
                    failures |= {(topic, p): failure for p, failure in last.failures.items()}
        return Answers(results, failures)

    def _ask_times(self, questions: Mapping[Place, Sequence[int]]) -> Answers[Place, TimeOffsets]:
        """Ask each kafka partition for the offsets of its timestamps, in few calls, until one of these fails for it."""
        results: dict[Place, dict[int, RecordOffset | None]] = {place: {} for place in questions}
        failures: dict[Place, PlatformError] = {}
        layers = _list_layers(questions)
        at_once = max(1, min(CALLS_IN_FLIGHT, ANSWERS_IN_FLIGHT // max(1, len(questions))))
        for start in range(0, len(layers), at_once):
            open_layers = [
                {p: t for p, t in layer.items() if p not in failures} for layer in layers[start : start + at_once]
            ]
            futures_of_layers = [self._list_offsets(_build_time_specs(layer)) for layer in open_layers]
            for layer, futures in zip(open_layers, futures_of_layers, strict=True):
                answers = self._await_layer(layer, futures)
                failures |= answers.failures
                for place, offset in answers.results.items():
                    results[place][layer[place]] = offset
        return Answers({place: offsets for place, offsets in results.items() if place not in failures}, failures)

    def _await_layer(self, layer: Mapping[Place, int], futures: OffsetFutures) -> Answers[Place, RecordOffset | None]:
        """Await the answer about one timestamp of each kafka partition (`layer`). Ask failed ones again for a while."""

        def where(place: Place) -> str:
            return _name_attempt(f"looking for timestamp {layer[place]} ms in topic")(place)

        def check(place: Place, info: ListOffsetsResultInfo) -> RecordOffset | None:
            return check_time_offset(info.offset, info.timestamp, where(place))

        def ask(places: Collection[Place]) -> Answers[Place, RecordOffset | None]:
            return self._ask_offsets(_build_time_specs({place: layer[place] for place in places}), where).convert(check)

        return ask_again(self._await_offsets(futures, where).convert(check), ask)

    def _ask_by_topic(
        self,
        kafka_partitions: Mapping[str, Iterable[int]],
        ask: Callable[[Sequence[Place]], Answers[Place, A]],
    ) -> Answers[str, Answers[int, A]]:
        """Call `ask` for some thousand kafka partitions at a time. Return the answers by topic and kafka partition."""
        numbers = {topic: tuple(topic_numbers) for topic, topic_numbers in kafka_partitions.items()}
        described = self._find_recent_topics(dict.fromkeys(numbers, ()))
        places = [(topic, p) for topic in described.results for p in numbers[topic]]
        answers = ask_in_parts(places, PLACES_AT_ONCE, ask)
        by_topic = _sort_by_topic({topic: numbers[topic] for topic in described.results}, answers)
        return Answers(by_topic, described.failures)

    def _ask_offsets(
        self,
        specs: Mapping[Place, OffsetSpec],
        where: Where,
        isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> Answers[Place, ListOffsetsResultInfo]:
        """Ask the leader of each kafka partition for an offset. Await the answers. Having no leader is a failure."""
        leaders = self._find_leaders(specs, where)
        futures = self._list_offsets({place: specs[place] for place in leaders.results}, isolation_level)
        answers = self._await_offsets(futures, where)
        return Answers(answers.results, {**leaders.failures, **answers.failures})

    def _find_leaders(self, places: Iterable[Place], where: Where) -> Answers[Place, int]:
        """Return the id of each kafka partition's leader, which librdkafka then has in its cache.

        ListOffsets is asked only of kafka partitions whose leader was seen some seconds ago at most. For any other,
        librdkafka asks for metadata in our thread. If the answer arrives meanwhile, a thread of librdkafka ends this
        question and frees its memory while our thread still uses it, and the process crashes
        (`rd_kafka_topic_partition_list_query_leaders_async_worker` of librdkafka 2.16).
        """
        by_topic = _group_places(places)
        described = self._find_recent_topics(by_topic)
        leaders: dict[Place, int] = {}
        failures: dict[Place, PlatformError] = {}
        for topic, kafka_partitions in by_topic.items():
            for kafka_partition in kafka_partitions:
                place = topic, kafka_partition
                if topic in described.failures:
                    failures[place] = described.failures[topic]
                elif kafka_partition in described.results[topic].leaders:
                    leaders[place] = described.results[topic].leaders[kafka_partition]
                elif kafka_partition in described.results[topic].kafka_partitions:
                    failures[place] = BrokerUnavailableError(f"{where(place)} has no leader at the moment")
                else:
                    failures[place] = MissingTopicError(f"{where(place)}: the topic has no such kafka partition")
        return Answers(leaders, failures)

    def _find_recent_topics(self, needed: Mapping[str, Collection[int]]) -> Answers[str, FoundTopic]:
        """Return the topics' metadata: from a few seconds ago, if it has leaders for all `needed`, or asked for now."""
        since = time.monotonic() - LEADERS_SECONDS
        recent: dict[str, FoundTopic] = {}
        for topic, kafka_partitions in needed.items():
            seen_at, found_topic = self._seen.get(topic, (since, None))
            if found_topic is not None and seen_at > since and found_topic.leaders.keys() >= {*kafka_partitions}:
                recent[topic] = found_topic
        answers = self.find_topics(topic for topic in needed if topic not in recent)
        return Answers({**recent, **answers.results}, answers.failures)

    def _list_offsets(
        self,
        specs: Mapping[Place, OffsetSpec],
        isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> OffsetFutures:
        """Send Kafka's ListOffsets request for each topic and kafka partition. Return the futures of the answers."""
        requests = {TopicPartition(*place): spec for place, spec in specs.items()}
        if not requests:
            return {}
        return self._client.list_offsets(requests, isolation_level=isolation_level, request_timeout=self._timeout)

    def _await_offsets(self, futures: OffsetFutures, where: Where) -> Answers[Place, ListOffsetsResultInfo]:
        """Await the answers to ListOffsets. If a broker refuses, the kafka partition has a failure."""
        infos: dict[Place, ListOffsetsResultInfo] = {}
        failures: dict[Place, PlatformError] = {}
        for tp, future in futures.items():
            place = tp.topic, tp.partition
            try:
                infos[place] = self._await_result(future, where(place))
            except KafkaException as err:
                failures[place] = self._translate_refusal(err, where(place))
        return Answers(infos, failures)

    def _translate_refusal(self, err: KafkaException, where: str) -> PlatformError:
        """Return our error for a broker's refusal of ListOffsets, and forget the leaders known so far."""
        # After any error, the leaders may have changed.
        self._seen.clear()
        # librdkafka looks for leaders itself. If one has gone since we looked, this code is all that it reports.
        leaderless = err.args[0].code() == NO_LEADER
        failure = (
            BrokerUnavailableError(f"{where} has no leader any more")
            if leaderless
            else self._translate_error(err, where)
        )
        failure.__cause__ = err
        return failure


def _name_attempt(what: str) -> Where:
    """Return a function that describes, for errors, the attempt `what` on a topic and kafka partition."""
    return lambda place: f"{what} {place[0]}, kafka partition {place[1]}"


def _read_topic(topic: str, described: Any) -> FoundTopic:
    """Convert the client's description of a topic. Raise BrokerUnavailableError if it has no kafka partitions."""
    if not described.partitions:
        raise BrokerUnavailableError(
            f"describing topic {topic}: the broker names no kafka partition of it, which cannot be; the next try asks "
            f"again"
        )
    return FoundTopic(
        topic,
        str(described.topic_id),
        tuple(sorted(p.id for p in described.partitions)),
        # A leader that is not among the brokers has no address.
        {p.id: p.leader.id for p in described.partitions if p.leader is not None and p.leader.host},
        {p.id: tuple(sorted(node.id for node in p.replicas)) for p in described.partitions},
        read_operations(described),
    )


def read_operations(described: Any) -> frozenset[str] | None:
    """Return the names of the authorized operations, or None if the cluster does not return them."""
    operations = described.authorized_operations
    if operations:
        return frozenset(operation.name for operation in operations)
    return None


def _build_time_specs(times: Mapping[Place, int]) -> dict[Place, OffsetSpec]:
    return {place: OffsetSpec.for_timestamp(time_ms) for place, time_ms in times.items()}


def _group_places(places: Iterable[Place]) -> dict[str, list[int]]:
    grouped: dict[str, list[int]] = {}
    for topic, kafka_partition in places:
        grouped.setdefault(topic, []).append(kafka_partition)
    return grouped


def _sort_by_topic(by_topic: Mapping[str, Iterable[int]], answers: Answers[Place, A]) -> dict[str, Answers[int, A]]:
    """Nest answers by topic and kafka partition. Each topic of `by_topic` is included, even without any answer."""
    results: dict[str, dict[int, A]] = {topic: {} for topic in by_topic}
    failures: dict[str, dict[int, PlatformError]] = {topic: {} for topic in by_topic}
    for (topic, kafka_partition), answer in answers.results.items():
        results[topic][kafka_partition] = answer
    for (topic, kafka_partition), failure in answers.failures.items():
        failures[topic][kafka_partition] = failure
    return {topic: Answers(results[topic], failures[topic]) for topic in by_topic}


def _collect_times(doubted: Mapping[Place, Iterable[int]]) -> dict[str, list[int]]:
    """Return, by topic, the ascending timestamps that any of its kafka partitions is to be asked about again."""
    times: dict[str, set[int]] = {}
    for (topic, _), place_times in doubted.items():
        times.setdefault(topic, set()).update(place_times)
    return {topic: sorted(place_times) for topic, place_times in times.items()}


def _list_layers(questions: Mapping[Place, Sequence[int]]) -> list[dict[Place, int]]:
    """List the first timestamp of each kafka partition, then the second of each, as one call asks each about one."""
    layers: list[dict[Place, int]] = []
    for place, times in questions.items():
        for n, time_ms in enumerate(times):
            if n == len(layers):
                layers.append({})
            layers[n][place] = time_ms
    return layers
