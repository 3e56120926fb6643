"""Run one step for each topic of a run: an error of one topic leaves the others."""

import logging
from collections.abc import Callable, Iterable
from typing import TypeVar

from kafka_s3_platform.errors import (
    BrokerUnavailableError,
    IndexConflictError,
    MissingBucketError,
    PlatformError,
    StoreUnavailableError,
)

logger = logging.getLogger(__name__)

R = TypeVar("R")

SHARED = (IndexConflictError, MissingBucketError, StoreUnavailableError)
"""Errors that every other topic would get too: they end the run. All topics of a run share a store and an index."""

MAX_UNANSWERED = 2
"""After so many topics in a row without an answer of the broker, the rest is not asked about: it is probably down."""


def try_topics(topics: Iterable[str], ask: Callable[[str], R]) -> tuple[dict[str, R], dict[str, PlatformError]]:
    """Return the answers of `ask` for each topic, and the errors of the others. Raises errors that all topics share."""
    answers: dict[str, R] = {}
    failures: dict[str, PlatformError] = {}
    unanswered = 0
    for topic in topics:
        if unanswered == MAX_UNANSWERED:
            failures[topic] = BrokerUnavailableError(
                f"topic {topic} was not asked about: {MAX_UNANSWERED} topics before it got no answer. Run again when "
                f"the brokers answer"
            )
            continue
        try:
            answers[topic] = ask(topic)
            unanswered = 0
        except SHARED:
            raise
        except PlatformError as err:
            unanswered = unanswered + 1 if isinstance(err, BrokerUnavailableError) else 0
            failures[topic] = err
    return answers, failures
