"""Run one step for each topic of a run: an error of one topic leaves the others."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from kafka_s3_platform.errors import IndexConflictError, MissingBucketError, PlatformError, StoreUnavailableError
from kafka_s3_platform.model.silence import try_each

R = TypeVar("R")

SHARED = (IndexConflictError, MissingBucketError, StoreUnavailableError)
"""Errors that every other topic would get too: they end the run. All topics of a run share a store and an index."""


def try_topics(topics: Iterable[str], ask: Callable[[str], R]) -> tuple[dict[str, R], dict[str, PlatformError]]:
    """Return the answers of `ask` for each topic, and the errors of the others. Raises errors that all topics share."""
    return try_each(topics, ask, SHARED)
