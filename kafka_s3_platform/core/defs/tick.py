"""One evaluation of a sensor or schedule: gathers results over topics, within a time limit."""

import json
import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import dagster as dg

from kafka_s3_platform.core.defs.topic import TopicAssets
from kafka_s3_platform.core.errors import BrokerUnavailableError, StoreUnavailableError, TransientError
from kafka_s3_platform.core.model.silence import NO_ANSWER, Silence
from kafka_s3_platform.core.status.deadline import Deadline
from kafka_s3_platform.core.status.index_look import IndexLook
from kafka_s3_platform.core.store.index import IndexSnapshot
from kafka_s3_platform.core.text import count_noun

R = TypeVar("R")

TICK_SECONDS = 40.0
"""A tick begins no further topic after this time. Dagster ends a tick after 60 seconds and drops its results."""


class Tick(Deadline):
    """The state of one tick, which has `seconds` of time, by default TICK_SECONDS.

    `cursor` is a small JSON object with a value for each topic. A value changes only if the tick sees something new. If
    a tick does not reach all topics, the cursor holds the next topic under `/<what>`. No topic has such a name, because
    Kafka allows no `/` in one.
    """

    def __init__(self, cursor: dict[str, Any], log: logging.Logger, seconds: float | None = None) -> None:
        super().__init__(TICK_SECONDS if seconds is None else seconds)
        self.cursor = cursor
        self.log = log
        self.requests: list[dg.RunRequest] = []
        self.observations: list[dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation] = []
        self.reasons: list[str] = []
        self.errors: list[Exception] = []
        self.unavailable: list[tuple[TopicAssets, BrokerUnavailableError | StoreUnavailableError]] = []
        """The topics whose cluster or store did not answer, with the error."""
        self.answered = 0
        """Number of topics that got an answer, or had another error."""
        self._before = dict(cursor)

    def evaluate_each(self, what: str, topics: Sequence[TopicAssets], evaluate: Callable[[TopicAssets], None]) -> bool:
        """Evaluate the topics, beginning where the last tick ended. Return False if not all topics were reached.

        An error of one topic does not stop the others. But topics may share a cluster and a store, so if several topics
        in a row get no answer, or if the time is over, the rest is left to the next tick.
        """
        names = [topic.topic for topic in topics]
        next_topic = self.cursor.pop(f"/{what}", None)
        first = names.index(next_topic) if next_topic in names else 0
        silence = Silence()
        for n in range(len(topics)):
            index = (first + n) % len(topics)
            if self.is_over():
                topic_count = count_noun(len(topics) - n, "topic")
                self.warn(f"no time is left in this tick for {topic_count}{self.describe_slow_store()}")
                self._store_next_topic(what, names, index)
                return False
            silence.note(self._evaluate(topics[index], evaluate))
            if silence.is_noted and (self.is_over() or silence.error is not None):
                # The next tick begins with the next topic: this one may be the only one without an answer. But if
                # the topics before it used up the time, the next tick begins with this one.
                self._store_next_topic(what, names, index if self.is_over() and n else (index + 1) % len(topics))
                return False
        return True

    def read_index(self, topic: TopicAssets, index: IndexLook, use: Callable[[IndexSnapshot], R]) -> R | None:
        """Return the result of `use` on the topic's index, or None if nothing is archived. Raises like `read_store`."""
        return self.read_store(f"the index of topic {topic.topic}", lambda: index.read(topic, use))

    def result(self) -> dg.SensorResult:
        """Return the sensor's result: requests, events, cursor. Raise the first error if there is nothing else."""
        if self.errors and not (self.requests or self.observations or self.cursor != self._before):
            raise self.errors[0]
        return dg.SensorResult(
            run_requests=self.requests,
            asset_events=self.observations,
            cursor=json.dumps(self.cursor),
            skip_reason=None if self.requests else self._join_reasons("nothing is due"),
        )

    def schedule_result(self, otherwise: str) -> list[dg.RunRequest] | dg.SkipReason:
        """Return a schedule's result: the requested runs, or the reason for requesting none.

        The reason is `otherwise` if nothing is wrong. Raises the first error if no run is requested.
        """
        if self.errors and not self.requests:
            raise self.errors[0]
        return self.requests or dg.SkipReason(self._join_reasons(otherwise))

    def _join_reasons(self, otherwise: str) -> str:
        """Join errors and reasons to Dagster's text about a tick without requests."""
        return "; ".join([*map(str, self.errors), *self.reasons]) or otherwise

    def warn(self, reason: str) -> None:
        """Add a reason and log it. Dagster drops a tick's reasons if the tick requests runs."""
        self.reasons.append(reason)
        self.log.warning("%s", reason)

    def _store_next_topic(self, what: str, names: Sequence[str], index: int) -> None:
        """Make the next tick begin with this topic of `names`, unless it is the first one."""
        if index:
            self.cursor[f"/{what}"] = names[index]

    def _evaluate(self, topic: TopicAssets, evaluate: Callable[[TopicAssets], None]) -> Exception | None:
        """Evaluate one topic. Return the error if its cluster or store did not answer, or else None."""
        unavailable_count = len(self.unavailable)
        try:
            evaluate(topic)
        except NO_ANSWER as err:
            self.miss(topic, err)
            return err
        except TransientError as err:
            self.warn(f"{topic.name}: {err}")
        except Exception as err:
            # Catch defects of the platform too: one topic must not stop the archiving of the others.
            self.log.exception("%s", topic.name)
            self.errors.append(err)
        self.answered += len(self.unavailable) == unavailable_count
        return None

    def miss(self, topic: TopicAssets, err: BrokerUnavailableError | StoreUnavailableError) -> None:
        """Note that the topic's cluster or store did not answer, and warn of it."""
        self.unavailable.append((topic, err))
        self.warn(f"{topic.name}: {err}")
