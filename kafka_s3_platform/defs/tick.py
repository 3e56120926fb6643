"""One evaluation of a sensor or schedule: gathers results over topics, within a time limit."""

import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar

import dagster as dg

from kafka_s3_platform.defs.topic import ArchivedTopic
from kafka_s3_platform.errors import BrokerUnavailableError, StoreUnavailableError, TransientError
from kafka_s3_platform.kafka.produce.waiting import Waiting

TICK_SECONDS = 40.0
"""A tick begins no further topic after this time. Dagster ends a tick after 60 seconds and drops its results."""

MAX_UNANSWERED = 2
"""A tick ends after so many topics in a row without an answer: their cluster or store is probably down."""

P = ParamSpec("P")
R = TypeVar("R")


@dataclass
class Tick:
    """The state of one tick.

    `cursor` is a small JSON object with a value for each topic. A value changes only if the tick sees something new.
    If a tick does not reach all topics, the cursor holds under `/<what>` the next topic. No topic has such a name:
    Kafka allows no `/` in it.
    """

    cursor: dict[str, Any]
    log: logging.Logger
    seconds: float | None = None
    """Time for the tick. None means TICK_SECONDS."""
    requests: list[dg.RunRequest] = field(default_factory=list)
    observations: list[dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation] = field(
        default_factory=list
    )
    reasons: list[str] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)
    unavailable: list[BrokerUnavailableError | StoreUnavailableError] = field(default_factory=list)
    """Errors of topics without an answer of their cluster or their store."""
    answered: int = 0
    """Number of topics with answers, or with another error."""

    def __post_init__(self) -> None:
        self._before = dict(self.cursor)
        self._seconds = TICK_SECONDS if self.seconds is None else self.seconds
        self._deadline = time.monotonic() + self._seconds
        self._store_seconds = 0.0

    def is_over(self) -> bool:
        return time.monotonic() > self._deadline

    def evaluate_each(
        self, what: str, topics: Sequence[ArchivedTopic], evaluate: Callable[[ArchivedTopic], None]
    ) -> bool:
        """Evaluate the topics, from the end of the last tick on. Return False if not all topics were reached.

        An error of one topic does not stop the others. But topics may share a cluster and a store: if MAX_UNANSWERED
        topics in a row get no answer, or if the time is over, the next tick evaluates the rest.
        """
        names = [topic.topic for topic in topics]
        next_topic = self.cursor.pop(f"/{what}", None)
        first = names.index(next_topic) if next_topic in names else 0
        unanswered = 0
        for n in range(len(topics)):
            at = (first + n) % len(topics)
            if self.is_over():
                self.tell(f"no time is left in this tick for {len(topics) - n} topic(s){self._slow_store()}")
                self._leave(what, names, at)
                return False
            unanswered = 0 if self._evaluated(topics[at], evaluate) else unanswered + 1
            if unanswered and (self.is_over() or unanswered == MAX_UNANSWERED):
                # The next tick begins with the next topic: this one may be the only one without an answer. But if
                # the topics before it used up the time, the next tick begins with this one.
                self._leave(what, names, at if self.is_over() and n else (at + 1) % len(topics))
                return False
        return True

    def within(self, ask: Callable[P, R]) -> Callable[P, R]:
        """Return a function that asks a broker by `ask`, as long as the tick has time."""

        def ask_in_time(*args: P.args, **kwargs: P.kwargs) -> R:
            if self.is_over() and self._slow_store():
                raise StoreUnavailableError(f"no time is left to ask the broker{self._slow_store()}")
            if self.is_over():
                raise BrokerUnavailableError(f"the broker answers slowly: not all is known after {self._seconds:g} s")
            return ask(*args, **kwargs)

        return ask_in_time

    def read(self, what: str, ask: Callable[[], R], *, share: float = 1.0) -> R:
        """Return the store's answer to `ask`. Stop waiting when the store has used that share of the tick.

        `ask` only reads, so its thread may go on without harm. Raises StoreUnavailableError if the time is over, and
        errors of `ask`.
        """
        answers: list[R] = []
        begun = time.monotonic()
        try:
            seconds = min(self._deadline - begun, share * self._seconds - self._store_seconds)
            if not Waiting(lambda: answers.append(ask()), ()).ended_within(max(0.0, seconds)):
                waited = time.monotonic() - begun
                raise StoreUnavailableError(f"the store answers slowly: {what} was not read in {waited:.0f} s")
        finally:
            self._store_seconds += time.monotonic() - begun
        return answers[0]

    def result(self) -> dg.SensorResult:
        """Return the tick's result for Dagster. Raises the first error if there is nothing else to return."""
        if self.errors and not (self.requests or self.observations or self.cursor != self._before):
            raise self.errors[0]
        return dg.SensorResult(
            run_requests=self.requests,
            asset_events=self.observations,
            cursor=json.dumps(self.cursor),
            skip_reason=None if self.requests else self._reason("nothing is due"),
        )

    def schedule_result(self, otherwise: str) -> list[dg.RunRequest] | dg.SkipReason:
        """Return a schedule's result: the requested runs, or the reason for requesting none.

        The reason is `otherwise` if nothing is wrong. Raises the first error if no run is requested.
        """
        if self.errors and not self.requests:
            raise self.errors[0]
        return self.requests or dg.SkipReason(self._reason(otherwise))

    def _reason(self, otherwise: str) -> str:
        return "; ".join([*map(str, self.errors), *self.reasons]) or otherwise

    def tell(self, reason: str) -> None:
        """Add a reason and log it. Dagster drops a tick's reasons if the tick requests runs."""
        self.reasons.append(reason)
        self.log.warning("%s", reason)

    def _slow_store(self) -> str:
        """Return a text about a slow store, or an empty one."""
        if self._store_seconds <= self._seconds / 2:
            return ""
        return f": the store answers slowly, reading it took {self._store_seconds:.0f} s of {self._seconds:g} s"

    def _leave(self, what: str, names: Sequence[str], at: int) -> None:
        if at:
            self.cursor[f"/{what}"] = names[at]

    def _evaluated(self, topic: ArchivedTopic, evaluate: Callable[[ArchivedTopic], None]) -> bool:
        """Return False if the cluster or the store did not answer."""
        missed = len(self.unavailable)
        try:
            evaluate(topic)
        except (BrokerUnavailableError, StoreUnavailableError) as err:
            self.miss(topic, err)
            return False
        except TransientError as err:
            self.tell(f"{topic.name}: {err}")
        except Exception as err:
            # Catch defects of the platform too: one topic must not stop the archiving of the others.
            self.log.exception("%s", topic.name)
            self.errors.append(err)
        self.answered += len(self.unavailable) == missed
        return True

    def miss(self, topic: ArchivedTopic, err: BrokerUnavailableError | StoreUnavailableError) -> None:
        """Report that the topic's cluster or its store did not answer."""
        self.unavailable.append(err)
        self.tell(f"{topic.name}: {err}")
