"""Questions to a cluster about offsets: where logs begin and end, and which record has which time."""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from datetime import datetime, timezone
from functools import partial
from itertools import chain
from typing import TypeVar

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import ListOffsetsResultInfo, OffsetSpec

from kafka_s3_platform.config.settings import KafkaSettings
from kafka_s3_platform.errors import BrokerUnavailableError, MissingTopicError, PlatformError
from kafka_s3_platform.kafka.admin_calls import TIMEOUT_SECONDS, AdminCalls
from kafka_s3_platform.kafka.answers import (
    Answers,
    OffsetAtTime,
    RecordOffset,
    Untold,
    ask_again,
    check_frontier,
    check_time_offset,
)
from kafka_s3_platform.kafka.failures import NO_LEADER
from kafka_s3_platform.model.frontier import Frontier

LEADERS_SECONDS = 5.0
"""How long leaders are remembered: planning may ask for each of a thousand kafka partitions alone."""

# ListOffsets calls of one plan that are under way at once; a plan may have thousands of hours to ask for.
CALLS_IN_FLIGHT = 64

A = TypeVar("A")

OffsetFutures = Mapping[TopicPartition, "Future[ListOffsetsResultInfo]"]


class OffsetAdmin(AdminCalls):
    """An admin client that asks the leaders of kafka partitions for offsets."""

    def __init__(self, settings: KafkaSettings, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        super().__init__(settings, timeout_seconds)
        self._seen_leaders: dict[str, tuple[float, Mapping[int, int]]] = {}

    def frontiers(self, topic: str, kafka_partitions: Iterable[int]) -> dict[int, Frontier]:
        """Return log start, last stable offset and high watermark of each kafka partition, now.

        Raises the error of the first kafka partition that has no answer; `look` goes on with the others.
        """
        return dict(self.look(topic, kafka_partitions).get())

    def look(self, topic: str, kafka_partitions: Iterable[int]) -> Answers[int, Frontier]:
        """Return what `frontiers` does, and the error of each kafka partition that has no answer.

        Raises only what concerns all kafka partitions: the topic is absent, or no broker answers.
        """
        what = f"reading the frontiers of topic {topic}"
        observed_at = datetime.now(timezone.utc)

        def ask(wanted: Iterable[int]) -> Answers[int, Frontier]:
            return self._led(topic, wanted, what, lambda led: self._frontiers(topic, led, observed_at, what))

        return ask_again(ask(kafka_partitions), ask)

    def _frontiers(self, topic: str, wanted: Iterable[int], observed_at: datetime, what: str) -> Answers[int, Frontier]:
        """Ask for the last stable offset after the high watermark is known.

        In this order, only an open transaction puts it below the high watermark, and not records that came in between.
        """
        earliest = self._ask(topic, wanted, OffsetSpec.earliest())
        latest = self._ask(topic, wanted, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)
        bounds = self._answers(earliest, what).and_of(self._answers(latest, what))
        stable = self._answers(self._ask(topic, bounds.found, OffsetSpec.latest()), what)

        def checked(
            kafka_partition: int, seen: tuple[tuple[ListOffsetsResultInfo, ...], ListOffsetsResultInfo]
        ) -> Frontier:
            (start, end), held = seen
            where = f"{what}, kafka partition {kafka_partition}"
            offsets = (start.offset, end.offset, held.offset)
            return check_frontier(kafka_partition, offsets, end.leader_epoch, observed_at, where)

        return bounds.and_of(stable).checked(checked)

    def newest_records(self, topic: str, kafka_partitions: Iterable[int]) -> dict[int, tuple[int, int]]:
        """Return offset and epoch ms of the record with the latest timestamp, of kafka partitions that have one.

        Answered since Kafka 3.0.
        """
        told = self._newest(topic, kafka_partitions)
        what = f"looking for the newest record of topic {topic}"
        records = told.checked(lambda p, info: check_time_offset(info.offset, f"{what}, kafka partition {p}"))
        times = {p: info.timestamp for p, info in told.found.items()}
        return {p: (offset, times[p]) for p, offset in records.get().items() if offset is not None and times[p] >= 0}

    def offsets_for_times(
        self, topic: str, kafka_partitions: Iterable[int], timestamps_ms: Sequence[int]
    ) -> Answers[int, Mapping[int, OffsetAtTime]]:
        """Return o(t) by kafka partition and timestamp: the first committed record with that or a later timestamp.

        o(t) never falls as t grows, so between two timestamps with equal answers nothing is asked: long spans of empty
        hours cost few calls. The answers are of slightly different moments. A kafka partition that does not answer to
        one of the timestamps has no answer at all.
        """
        times = sorted(set(timestamps_ms))
        if times and times[0] < 0:
            raise ValueError(f"a timestamp below 0 has a meaning of its own in ListOffsets: {times[0]}")
        ask = partial(self._leaders, topic, what=f"looking for the leaders of topic {topic}")
        leaders = ask_again(ask(kafka_partitions), ask)
        found = self._told_for_times(topic, tuple(leaders.found), times)
        doubted = self._doubted(topic, found.found)
        # Records may have come since then. So an answer counts as wrong only if the second one is the same.
        again = self._told_for_times(topic, tuple(doubted), sorted({*chain.from_iterable(doubted.values())}))
        untold = again.checked(lambda p, each: {t: Untold.UNTOLD if each[t] is None else each[t] for t in doubted[p]})
        offsets = {p: {**each, **untold.found.get(p, {})} for p, each in found.found.items() if p not in again.failures}
        return Answers(offsets, {**leaders.failures, **found.failures, **again.failures})

    def _doubted(self, topic: str, found: Mapping[int, Mapping[int, RecordOffset | None]]) -> dict[int, list[int]]:
        """Return, by kafka partition, timestamps for which no record was found though a later record exists."""
        silent: dict[int, list[int]] = {}
        for kafka_partition, offsets in found.items():
            times = [time_ms for time_ms, offset in offsets.items() if offset is None]
            if times:
                silent[kafka_partition] = times
        if not silent:
            return {}
        told = self._newest(topic, tuple(silent))
        # A broker before Kafka 3.0 cannot tell the newest record. Then every such answer of it is doubted.
        newest = {p: max(silent[p]) for p in silent}
        newest |= {p: info.timestamp if info.offset >= 0 else -1 for p, info in told.found.items()}
        doubted: dict[int, list[int]] = {}
        for kafka_partition, times in silent.items():
            earlier = [time_ms for time_ms in times if time_ms <= newest[kafka_partition]]
            if earlier:
                doubted[kafka_partition] = earlier
        return doubted

    def _newest(self, topic: str, kafka_partitions: Iterable[int]) -> Answers[int, ListOffsetsResultInfo]:
        what = f"looking for the newest record of topic {topic}"
        spec = OffsetSpec.max_timestamp()
        return self._led(topic, kafka_partitions, what, lambda led: self._answers(self._ask(topic, led, spec), what))

    def _told_for_times(
        self, topic: str, kafka_partitions: tuple[int, ...], times: Sequence[int]
    ) -> Answers[int, Mapping[int, RecordOffset | None]]:
        answers = self._at_times(topic, kafka_partitions, [*times[:1], *times[1:][-1:]])
        spans = [(0, len(times) - 1)] if times else []
        while spans and answers.found:
            answers = _fill_spans(times, spans, answers)
            known = next(iter(answers.found.values()))
            # Where both ends of a span differ, its middle is asked: a step between them is found in few questions.
            halves = [(low, (low + high) // 2, high) for low, high in spans if not known.keys() >= {*times[low:high]}]
            middles = self._at_times(topic, tuple(answers.found), [times[middle] for _, middle, _ in halves])
            answers = answers.and_of(middles).checked(lambda _, both: {**both[0], **both[1]})
            spans = []
            for low, middle, high in halves:
                spans += [(low, middle), (middle, high)]
        return answers

    def _at_times(
        self, topic: str, kafka_partitions: tuple[int, ...], times: Sequence[int]
    ) -> Answers[int, Mapping[int, RecordOffset | None]]:
        found: dict[int, dict[int, RecordOffset | None]] = {p: {} for p in kafka_partitions}
        failures: dict[int, PlatformError] = {}
        for start in range(0, len(times), CALLS_IN_FLIGHT):
            some = times[start : start + CALLS_IN_FLIGHT]
            asked = [self._ask(topic, tuple(found), OffsetSpec.for_timestamp(t)) for t in some]
            for t, each in zip(some, asked, strict=True):
                answers = self._at_time(topic, t, each)
                failures |= answers.failures
                for kafka_partition, offset in answers.found.items():
                    found[kafka_partition][t] = offset
            found = {p: offsets for p, offsets in found.items() if p not in failures}
        return Answers(found, failures)

    def _at_time(self, topic: str, timestamp_ms: int, asked: OffsetFutures) -> Answers[int, RecordOffset | None]:
        what = f"looking for timestamp {timestamp_ms} ms in topic {topic}"

        def answered(asked: OffsetFutures) -> Answers[int, RecordOffset | None]:
            return self._answers(asked, what).checked(
                lambda p, info: check_time_offset(info.offset, f"{what}, kafka partition {p}")
            )

        def ask(wanted: Iterable[int]) -> Answers[int, RecordOffset | None]:
            spec = OffsetSpec.for_timestamp(timestamp_ms)
            return self._led(topic, wanted, what, lambda led: answered(self._ask(topic, led, spec)))

        return ask_again(answered(asked), ask)

    def _led(
        self, topic: str, wanted: Iterable[int], what: str, ask: Callable[[Sequence[int]], Answers[int, A]]
    ) -> Answers[int, A]:
        """Ask about the kafka partitions that have a leader; return also why the others have none."""
        leaders = self._leaders(topic, wanted, what)
        answers = ask(tuple(leaders.found))
        return Answers(answers.found, {**leaders.failures, **answers.failures})

    def _leaders(self, topic: str, wanted: Iterable[int], what: str) -> Answers[int, int]:
        """Return the id of each kafka partition's leader, which librdkafka then has in its cache.

        ListOffsets is asked only of kafka partitions that had one when we looked, which is seconds ago at most. For any
        other, librdkafka asks for metadata in our thread. If the answer arrives meanwhile, a thread of librdkafka ends
        that question and frees its memory, which ours still uses: the process crashes
        (`rd_kafka_topic_partition_list_query_leaders_async_worker` of librdkafka 2.16).
        """
        wanted = tuple(wanted)
        seen_at, leaders = self._seen_leaders.get(topic, (-math.inf, {}))
        if time.monotonic() - seen_at < LEADERS_SECONDS and leaders.keys() >= set(wanted):
            return Answers({p: leaders[p] for p in wanted}, {})
        cluster = self._metadata(topic, what)
        there = cluster.topics[topic].partitions
        leaders = {p: told.leader for p, told in there.items() if told.leader in cluster.brokers}
        self._seen_leaders[topic] = time.monotonic(), leaders
        failures: dict[int, PlatformError] = {}
        for kafka_partition in wanted:
            where = f"{what}, kafka partition {kafka_partition}"
            if kafka_partition not in there:
                failures[kafka_partition] = MissingTopicError(f"{where}: the topic has no such kafka partition")
            elif kafka_partition not in leaders:
                failures[kafka_partition] = BrokerUnavailableError(f"{where} has no leader at the moment")
        return Answers({p: leaders[p] for p in wanted if p in leaders}, failures)

    def _ask(
        self,
        topic: str,
        kafka_partitions: Iterable[int],
        spec: OffsetSpec,
        isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> OffsetFutures:
        asked = {TopicPartition(topic, p): spec for p in kafka_partitions}
        if not asked:
            return {}
        return self._client.list_offsets(asked, isolation_level=isolation_level, request_timeout=self._timeout)

    def _answers(self, asked: OffsetFutures, what: str) -> Answers[int, ListOffsetsResultInfo]:
        found: dict[int, ListOffsetsResultInfo] = {}
        failures: dict[int, PlatformError] = {}
        for tp, future in asked.items():
            try:
                found[tp.partition] = self._wait(future, what)
            except KafkaException as err:
                failures[tp.partition] = self._refusal(err, f"{what}, kafka partition {tp.partition}")
        return Answers(found, failures)

    def _refusal(self, err: KafkaException, where: str) -> PlatformError:
        # After any error, the leaders may have changed.
        self._seen_leaders.clear()
        # librdkafka looks for leaders itself. If one is gone since we looked, this code is all that it tells.
        leaderless = err.args[0].code() == NO_LEADER
        failure = BrokerUnavailableError(f"{where} has no leader any more") if leaderless else self._failure(err, where)
        failure.__cause__ = err
        return failure


def _fill_spans(
    times: Sequence[int], spans: Iterable[tuple[int, int]], answers: Answers[int, Mapping[int, RecordOffset | None]]
) -> Answers[int, Mapping[int, RecordOffset | None]]:
    """Fill in the answers inside those spans whose two ends have the same answer in every kafka partition."""
    known = answers.found.values()
    inside: dict[int, int] = {}
    for low, high in spans:
        if all(each[times[low]] == each[times[high]] for each in known):
            inside |= dict.fromkeys(times[low + 1 : high], times[low])
    return answers.checked(lambda _, each: {**each, **{t: each[at] for t, at in inside.items()}})
