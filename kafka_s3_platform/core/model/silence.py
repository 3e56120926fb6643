"""Asks about one topic after another, until several in a row get no answer.

A topic that fails does not stop the others, and a silent broker or store does not cost its timeout for each of them.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TypeVar

from kafka_s3_platform.core.errors import (
    BrokerUnavailableError,
    IndexConflictError,
    MissingBucketError,
    PermanentError,
    PlatformError,
    StoreUnavailableError,
    TransientError,
)

NO_ANSWER = (BrokerUnavailableError, StoreUnavailableError)

MAX_UNANSWERED = 2
"""After this many topics in a row without an answer, asking stops, since topics share a cluster and a store."""

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")

SHARED_ERRORS = (IndexConflictError, MissingBucketError, StoreUnavailableError)
"""Errors that end the run, since every other topic would get them too: all topics share a store and an index."""


class Silence:
    """Counts consecutive topics without an answer."""

    def __init__(self) -> None:
        self._errors: list[PlatformError] = []

    def note(self, outcome: object) -> None:
        """Note the outcome of a topic: its error, or anything else."""
        self._errors = [*self._errors, outcome] if isinstance(outcome, NO_ANSWER) else []

    @property
    def is_noted(self) -> bool:
        """True if the last topic got no answer."""
        return bool(self._errors)

    @property
    def error(self) -> PlatformError | None:
        """The last error if MAX_UNANSWERED topics in a row got no answer, and asking has to stop, else None."""
        return self._errors[-1] if len(self._errors) >= MAX_UNANSWERED else None


def try_each(
    keys: Iterable[K], ask: Callable[[K], R], shared: tuple[type[PlatformError], ...] = ()
) -> tuple[dict[K, R], dict[K, PlatformError]]:
    """Return the answers of `ask` by key, and the errors of the keys without one. Raise `shared` errors at once."""
    answers: dict[K, R] = {}
    failures: dict[K, PlatformError] = {}
    silence = Silence()
    for key in keys:
        if silence.error is not None:
            failures[key] = silence.error.retell(
                "not tried, since the topics before it got no answer; run again when there is one"
            )
            continue
        try:
            answers[key] = ask(key)
            silence.note(None)
        except shared:
            raise
        except PlatformError as err:
            failures[key] = err
            silence.note(err)
    return answers, failures


def try_topics(topics: Iterable[str], ask: Callable[[str], R]) -> tuple[dict[str, R], dict[str, PlatformError]]:
    """Return the answers of `ask` by topic, and the errors of the others. Raise errors that all topics share."""
    return try_each(topics, ask, SHARED_ERRORS)


def raise_failures(failures: Mapping[str, PlatformError]) -> None:
    """Raise the errors of `try_topics`: a single one as it is, several as one, transient only if all of them are."""
    if len(set(failures.values())) == 1:
        raise next(iter(failures.values()))
    if failures:
        may_pass = all(isinstance(err, TransientError) for err in failures.values())
        message = "\n".join(f"{topic}: {err}" for topic, err in failures.items())
        raise (TransientError if may_pass else PermanentError)(message)
