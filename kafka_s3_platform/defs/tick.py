"""What one evaluation of a sensor or schedule gathers over its topics, and how long it may take."""

import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar

import dagster as dg

from kafka_s3_platform.defs.topic import ArchivedTopic
from kafka_s3_platform.errors import BrokerUnavailableError, StoreUnavailableError, TransientError
from kafka_s3_platform.kafka.waiting import Waiting

TICK_SECONDS = 40.0
"""After these no further topic is begun: Dagster gives up a tick after 60 seconds, with all that it gathered."""

MAX_UNANSWERED = 2
"""Topics in a row without an answer, after which what they share is taken to be down."""

P = ParamSpec("P")
R = TypeVar("R")


@dataclass
class Tick:
    """`cursor` is a small JSON object by topic, and changes only with what was seen.

    Under `/<what>`, which no topic is named, it holds the topic to begin with where the last tick did not come to all.
    """

    cursor: dict[str, Any]
    log: logging.Logger
    seconds: float | None = None
    """None: TICK_SECONDS."""
    requests: list[dg.RunRequest] = field(default_factory=list)
    observations: list[dg.AssetObservation] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._before = dict(self.cursor)
        self._seconds = TICK_SECONDS if self.seconds is None else self.seconds
        self._deadline = time.monotonic() + self._seconds
        self._store_seconds = 0.0

    def is_over(self) -> bool:
        return time.monotonic() > self._deadline

    def each(self, what: str, topics: Sequence[ArchivedTopic], evaluate: Callable[[ArchivedTopic], None]) -> bool:
        """Evaluate the topics, beginning with the one that the last tick left; one's errors leave the others alone.

        But they may share a cluster and a store: where MAX_UNANSWERED in a row get no answer, or time is up, the rest
        is the next tick's. Returns whether it came to all.
        """
        names = [topic.topic for topic in topics]
        left = self.cursor.pop(f"/{what}", None)
        first = names.index(left) if left in names else 0
        unanswered = 0
        for n in range(len(topics)):
            at = (first + n) % len(topics)
            if self.is_over():
                self.tell(f"no time is left in this tick for {len(topics) - n} topic(s){self._slow_store()}")
                self._leave(what, names, at)
                return False
            unanswered = 0 if self._evaluated(topics[at], evaluate) else unanswered + 1
            if unanswered and (self.is_over() or unanswered == MAX_UNANSWERED):
                # not the same first again, which may be the only one that gets no answer; one that others left too
                # little time is the next tick's first
                self._leave(what, names, at if self.is_over() and n else (at + 1) % len(topics))
                return False
        return True

    def within(self, ask: Callable[P, R]) -> Callable[P, R]:
        """`ask` a broker, as long as the tick has time."""

        def asked(*args: P.args, **kwargs: P.kwargs) -> R:
            if self.is_over() and self._slow_store():
                raise StoreUnavailableError(f"no time is left to ask the broker{self._slow_store()}")
            if self.is_over():
                raise BrokerUnavailableError(f"the broker answers slowly: not all is known after {self._seconds:g} s")
            return ask(*args, **kwargs)

        return asked

    def read(self, what: str, ask: Callable[[], R]) -> R:
        """What the store answers to `ask`, which only reads: it is left alone when the tick has no time any more.

        Raises StoreUnavailableError then, else what `ask` raises.
        """
        found: list[R] = []
        begun = time.monotonic()
        try:
            if not Waiting(lambda: found.append(ask()), ()).ended_within(max(0.0, self._deadline - begun)):
                waited = time.monotonic() - begun
                raise StoreUnavailableError(f"the store answers slowly: {what} was not read in {waited:.0f} s")
        finally:
            self._store_seconds += time.monotonic() - begun
        return found[0]

    def result(self) -> dg.SensorResult:
        """What Dagster is told. Raises the first error, unless there is anything that would be lost then."""
        if self.errors and not (self.requests or self.observations or self.cursor != self._before):
            raise self.errors[0]
        return dg.SensorResult(
            run_requests=self.requests,
            asset_events=self.observations,
            cursor=json.dumps(self.cursor),
            skip_reason=None if self.requests else self._reason("nothing is due"),
        )

    def asked(self, otherwise: str) -> list[dg.RunRequest] | dg.SkipReason:
        """What Dagster is told by a schedule: `otherwise` where nothing is asked for and nothing is wrong.

        Raises the first error where nothing is asked for.
        """
        if self.errors and not self.requests:
            raise self.errors[0]
        return self.requests or dg.SkipReason(self._reason(otherwise))

    def _reason(self, otherwise: str) -> str:
        return "; ".join([*map(str, self.errors), *self.reasons]) or otherwise

    def tell(self, reason: str) -> None:
        """As a reason, and in the log: Dagster takes no reason beside requests."""
        self.reasons.append(reason)
        self.log.warning("%s", reason)

    def _slow_store(self) -> str:
        """That it was the store, where it was."""
        if self._store_seconds <= self._seconds / 2:
            return ""
        return f": the store answers slowly, reading it took {self._store_seconds:.0f} s of {self._seconds:g} s"

    def _leave(self, what: str, names: Sequence[str], at: int) -> None:
        if at:
            self.cursor[f"/{what}"] = names[at]

    def _evaluated(self, topic: ArchivedTopic, evaluate: Callable[[ArchivedTopic], None]) -> bool:
        """Whether the cluster and the store answered."""
        try:
            evaluate(topic)
        except (BrokerUnavailableError, StoreUnavailableError) as err:
            self.tell(f"{topic.name}: {err}")
            return False
        except TransientError as err:
            self.tell(f"{topic.name}: {err}")
        except Exception as err:
            # defects too: the others are archived whatever is wrong with one
            self.log.exception("%s", topic.name)
            self.errors.append(err)
        return True
