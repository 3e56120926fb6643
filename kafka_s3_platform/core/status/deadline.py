"""A time limit for requests about topics that share a cluster and a store, either of which may be slow."""

import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from kafka_s3_platform.core.errors import BrokerUnavailableError, StoreUnavailableError
from kafka_s3_platform.core.waits import Waiting

P = ParamSpec("P")
R = TypeVar("R")


class Deadline:
    """A limit of `seconds` from now on, for requests to the brokers and the store."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._ends_at = time.monotonic() + seconds
        self._store_seconds = 0.0

    def is_over(self) -> bool:
        return time.monotonic() > self._ends_at

    def limit_broker(self, ask: Callable[P, R]) -> Callable[P, R]:
        """Return a function that asks a broker with `ask`, as long as there is time."""

        def ask_in_time(*args: P.args, **kwargs: P.kwargs) -> R:
            if self.is_over() and self.describe_slow_store():
                raise StoreUnavailableError(f"no time is left to ask the broker{self.describe_slow_store()}")
            if self.is_over():
                raise BrokerUnavailableError(f"the broker answers slowly: not all is known after {self.seconds:g} s")
            return ask(*args, **kwargs)

        return ask_in_time

    def read_store(self, subject: str, ask: Callable[[], R], *, share: float = 1.0) -> R:
        """Return the store's answer to `ask`. Stop waiting when the store has used its `share` of the time.

        `ask` only reads, so its thread may go on without harm. Raises StoreUnavailableError if the time is over, and
        the errors of `ask`.
        """
        started_at = time.monotonic()
        try:
            seconds = min(self._ends_at - started_at, share * self.seconds - self._store_seconds)
            reading = Waiting(ask)
            if not reading.ended_within(max(0.0, seconds)):
                waited = time.monotonic() - started_at
                raise StoreUnavailableError(f"the store answers slowly: {subject} was not read in {waited:.0f} s")
        finally:
            self._store_seconds += time.monotonic() - started_at
        return reading.answer

    def describe_slow_store(self) -> str:
        """Return the end of an error's text if the store used up the time, else an empty text."""
        if self._store_seconds <= self.seconds / 2:
            return ""
        return f": the store answers slowly, reading it took {self._store_seconds:.0f} s of {self.seconds:g} s"
