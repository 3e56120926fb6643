"""Reads the store's clock: every answer of S3 has a `Date`.

This clock and the machine's decide if an hour is over, since a machine with its clock ahead must not complete it early.
"""

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
    """One answer: its `Date`, and this machine's time (UTC) when the request was sent and the answer received.

    A `Date` has whole seconds, so the store's clock was between `date` and one second later. `received_at` is the time
    of receiving by `time.monotonic`, a clock nobody can set.
    """

    date: datetime
    sent: datetime
    received: datetime
    received_at: float

    @property
    def difference(self) -> timedelta:
        """The least time by which this machine's clock is ahead of the store's, or negative if it is behind.

        It is zero if the clocks may agree, since the store made the answer at an unknown time between request and
        response.
        """
        least = self.sent - self.date - SECOND
        most = self.received - self.date
        return max(least, timedelta()) + min(most, timedelta())

    def now(self) -> datetime:
        """Return the earliest time the store's clock can show now."""
        return self.date + timedelta(seconds=time.monotonic() - self.received_at)


class StoreClock:
    """The store's clock, by the newest answer in a `watching` block."""

    def __init__(self) -> None:
        self.latest: StoreTime | None = None

    def earlier_now(self) -> datetime:
        """Return the earlier of this machine's and the store's time, as either may be wrong, or the only one known."""
        local_time = datetime.now(timezone.utc)
        return min(local_time, self.latest.now()) if self.latest else local_time

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Note the time of each answer our clients get in this thread during the block, even of a refusal."""
        token = _WATCHING.set(self)
        try:
            yield
        finally:
            _WATCHING.reset(token)


_WATCHING: ContextVar[StoreClock | None] = ContextVar("_WATCHING", default=None)


def record_answer_times(client: Any) -> None:
    """Make a boto3 client set the time of each answer on the clock watching in its thread, if any."""
    client.meta.events.register("request-created.s3", _note_sending_time)
    client.meta.events.register("response-received.s3", _note_answer_time)


def _note_sending_time(request: Any, **_: Any) -> None:
    request.context[_SENT] = datetime.now(timezone.utc)


def _note_answer_time(context: Mapping[str, Any], parsed_response: Mapping[str, Any] | None, **_: Any) -> None:
    """Give the clock watching in this thread the time of an answer, unless it was cached and so is old."""
    headers = (parsed_response or {}).get("ResponseMetadata", {}).get("HTTPHeaders", {})
    # a cache adds `Age`
    date = None if "age" in headers else _parse_date(headers.get("date", ""))
    clock = _WATCHING.get()
    if clock is not None and date is not None and _SENT in context:
        clock.latest = StoreTime(date, context[_SENT], datetime.now(timezone.utc), time.monotonic())


def _parse_date(text: str) -> datetime | None:
    """Return the time of a `Date` header, or None if it cannot be read or is missing."""
    try:
        date = parsedate_to_datetime(text)
    except ValueError:
        logger.debug("the store answered with the unreadable Date %r", text)
        return None
    return date if date.tzinfo else date.replace(tzinfo=timezone.utc)
