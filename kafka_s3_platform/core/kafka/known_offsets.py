"""Offsets of timestamps in many topics, asked for ahead of time and together."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from kafka_s3_platform.core.errors import PlatformError
from kafka_s3_platform.core.kafka.answers import Answers, OffsetAtTime, Untold
from kafka_s3_platform.core.kafka.offset_admin import Place

TimeQuestions: TypeAlias = Mapping[str, tuple[Iterable[int], Sequence[int]]]
"""Maps each topic to the kafka partitions and the timestamps (epoch ms) to ask about."""

AskOffsets: TypeAlias = Callable[[TimeQuestions], Answers[str, Answers[int, Mapping[int, OffsetAtTime]]]]
"""Asks a cluster for o(t) of many topics, as `OffsetAdmin.offsets_for_times_of` does."""


class KnownOffsets:
    """The answers about o(t), the first offset at or after a time t, which the plans of many topics share.

    The plan of each topic asks here. If a few requests have asked ahead for all topics, the answer is here already, so
    the number of requests does not grow with the topics. Without asking ahead, a plan is the same. Failures are
    remembered too, so an unreachable leader does not cost a timeout for each topic.
    """

    def __init__(self, ask: AskOffsets) -> None:
        self._ask = ask
        self._found: dict[Place, dict[int, OffsetAtTime]] = {}
        self._failures: dict[Place, PlatformError] = {}

    def ask_ahead(self, questions: TimeQuestions) -> None:
        """Ask the cluster for those offsets of `questions` that are not known yet."""
        missing: dict[str, tuple[list[int], Sequence[int]]] = {}
        for topic, (kafka_partitions, times) in questions.items():
            unanswered = [p for p in kafka_partitions if (topic, p) not in self._failures]
            unknown = [p for p in unanswered if not self._found.get((topic, p), {}).keys() >= {*times}]
            if unknown:
                missing[topic] = (unknown, times)
        if not missing:
            return
        answers = self._ask(missing)
        for topic, (kafka_partitions, _) in missing.items():
            offsets = answers.results.get(topic)
            for kafka_partition in kafka_partitions:
                place = topic, kafka_partition
                if offsets is not None and kafka_partition in offsets.results:
                    self._found.setdefault(place, {}).update(offsets.results[kafka_partition])
                else:
                    failure = offsets.failures[kafka_partition] if offsets is not None else answers.failures[topic]
                    self._failures[place] = failure

    def doubt(self, topic: str, kafka_partition: int, time: int) -> None:
        """Mark an answer as unknown (UNTOLD), because the records of the log contradict it."""
        self._found[topic, kafka_partition][time] = Untold.UNTOLD

    def of_topic(self, topic: str) -> "partial[Answers[int, Mapping[int, OffsetAtTime]]]":
        """Return the lookup of one topic: a function of kafka partitions and timestamps."""
        return partial(self._look_up, topic)

    def _look_up(
        self, topic: str, kafka_partitions: Iterable[int], times: Sequence[int]
    ) -> Answers[int, Mapping[int, OffsetAtTime]]:
        """Return the offsets of `times` (epoch ms) by kafka partition, after asking for the unknown ones."""
        numbers = tuple(kafka_partitions)
        self.ask_ahead({topic: (numbers, times)})
        failures = {p: self._failures[topic, p] for p in numbers if (topic, p) in self._failures}
        answered = [p for p in numbers if p not in failures]
        return Answers({p: {t: self._found.get((topic, p), {})[t] for t in times} for p in answered}, failures)
