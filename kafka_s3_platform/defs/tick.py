"""What one evaluation of a sensor gathers over its topics, and how long it may take."""

import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import dagster as dg

from kafka_s3_platform.defs.topic import ArchivedTopic
from kafka_s3_platform.errors import BrokerUnavailableError, PermanentError, StoreUnavailableError, TransientError

TICK_SECONDS = 40.0
"""After these no further topic is begun: Dagster gives up a tick after 60 seconds, with all that it gathered."""

A = TypeVar("A")
R = TypeVar("R")


@dataclass
class Tick:
    """`cursor` is a small JSON object by topic, and changes only with what was seen.

    Under `/<what>`, which no topic is named, it holds the topic to begin with where the last tick did not come to all.
    """

    cursor: dict[str, Any]
    requests: list[dg.RunRequest] = field(default_factory=list)
    observations: list[dg.AssetObservation] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    errors: list[PermanentError] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._before = dict(self.cursor)
        self._deadline = time.monotonic() + TICK_SECONDS

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self._deadline

    def each(
        self,
        what: str,
        topics: Sequence[ArchivedTopic],
        evaluate: Callable[[ArchivedTopic], None],
        log: logging.Logger,
    ) -> bool:
        """Evaluate the topics, beginning with the one that the last tick left; one's errors leave the others alone.

        But they share a cluster and a store: where that does not answer, or time is up, the rest is the next tick's.
        Returns whether it came to all.
        """
        names = [topic.topic for topic in topics]
        left = self.cursor.pop(f"/{what}", None)
        first = names.index(left) if left in names else 0
        for n in range(len(topics)):
            at = (first + n) % len(topics)
            if self.is_over:
                self.reasons.append(f"no time is left in this tick for {len(topics) - n} topic(s)")
                self._leave(what, names, at)
                return False
            if not self._evaluated(topics[at], evaluate, log):
                # not this one again: it may be the only one whose broker is down
                self._leave(what, names, (at + 1) % len(topics))
                return False
        return True

    def within(self, ask: Callable[[A], R]) -> Callable[[A], R]:
        """`ask` a broker, as long as the tick has time."""

        def asked(question: A) -> R:
            if self.is_over:
                raise BrokerUnavailableError(f"the broker answers slowly: not all is known after {TICK_SECONDS:g} s")
            return ask(question)

        return asked

    def result(self) -> dg.SensorResult:
        """What Dagster is told. Raises the first permanent error, unless there is anything that would be lost then."""
        if self.errors and not (self.requests or self.observations or self.cursor != self._before):
            raise self.errors[0]
        reasons = "; ".join([*map(str, self.errors), *self.reasons])
        return dg.SensorResult(
            run_requests=self.requests,
            asset_events=self.observations,
            cursor=json.dumps(self.cursor),
            skip_reason=None if self.requests else reasons or "nothing is due",
        )

    def _leave(self, what: str, names: Sequence[str], at: int) -> None:
        if at:
            self.cursor[f"/{what}"] = names[at]

    def _evaluated(self, topic: ArchivedTopic, evaluate: Callable[[ArchivedTopic], None], log: logging.Logger) -> bool:
        """Whether the cluster and the store answered."""
        try:
            evaluate(topic)
        except (BrokerUnavailableError, StoreUnavailableError) as err:
            self.reasons.append(str(err))
            return False
        except TransientError as err:
            self.reasons.append(str(err))
        except PermanentError as err:
            log.exception("%s", topic.name)
            self.errors.append(err)
        return True
