"""What time it is by the store: every answer of S3 bears a `Date`."""

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from email.utils import parsedate_to_datetime
from typing import Any

logger = logging.getLogger(__name__)

SECOND = timedelta(seconds=1)
_SENT = "kafka-s3-sent"


@dataclass(frozen=True, slots=True)
class StoreTime:
    """One answer: its `Date`, and this machine's clock when the request was sent and when the answer had come, UTC.

    A `Date` has whole seconds, so the store's clock showed a time between `told` and one second later. `received_at` is
    the time of `time.monotonic`, a clock that nobody can set.
    """

    told: datetime
    sent: datetime
    received: datetime
    received_at: float

    @property
    def difference(self) -> timedelta:
        """The least that this machine's clock is ahead of the store's. It is negative if this clock is behind.

        It is zero if the clocks may agree: the store made the answer at an unknown time between request and response.
        """
        least = self.sent - self.told - SECOND
        most = self.received - self.told
        return max(least, timedelta()) + min(most, timedelta())

    def now(self) -> datetime:
        """Return the least time that the store's clock shows now."""
        return self.told + timedelta(seconds=time.monotonic() - self.received_at)


class StoreClock:
    """The store's clock, as the newest answer to a request that it watched shows it."""

    def __init__(self) -> None:
        self.latest: StoreTime | None = None

    def earlier_now(self) -> datetime:
        """Return the earlier of the times of this machine's clock and the store's clock: either may be wrong.

        Return this machine's time if no answer of the store had a time.
        """
        here = datetime.now(timezone.utc)
        return min(here, self.latest.now()) if self.latest else here

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Look at every answer that this thread gets in the block from a client of `tell_times`, also at refusals."""
        token = _WATCHING.set(self)
        try:
            yield
        finally:
            _WATCHING.reset(token)


_WATCHING: ContextVar[StoreClock | None] = ContextVar("_WATCHING", default=None)


def tell_times(client: Any) -> None:
    """Make a boto3 client tell the clock that is watching the time of each answer."""
    client.meta.events.register("request-created.s3", _note_sent)
    client.meta.events.register("response-received.s3", _note_received)


def _note_sent(request: Any, **_: Any) -> None:
    request.context[_SENT] = datetime.now(timezone.utc)


def _note_received(context: Mapping[str, Any], parsed_response: Mapping[str, Any] | None, **_: Any) -> None:
    headers = (parsed_response or {}).get("ResponseMetadata", {}).get("HTTPHeaders", {})
    # an answer with an `Age` comes from a cache
    told = None if "age" in headers else _parse_date(headers.get("date", ""))
    clock = _WATCHING.get()
    if clock is not None and told is not None and _SENT in context:
        clock.latest = StoreTime(told, context[_SENT], datetime.now(timezone.utc), time.monotonic())


def _parse_date(text: str) -> datetime | None:
    """Return the time of a `Date` header, None where it cannot be read or is missing."""
    try:
        found = parsedate_to_datetime(text)
    except ValueError:
        logger.debug("the store answered with the Date %r, which says nothing", text)
        return None
    return found if found.tzinfo else found.replace(tzinfo=timezone.utc)
