"""What time it is by the store: every answer of S3 bears a `Date`."""

import logging
import time
from collections.abc import Mapping
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

    A `Date` has whole seconds, so the store's clock stood between `told` and a second later. `received_at` is that of
    `time.monotonic`, which nobody sets.
    """

    told: datetime
    sent: datetime
    received: datetime
    received_at: float

    @property
    def difference(self) -> timedelta:
        """How far this machine's clock is ahead of the store's at the least, below zero where it is behind.

        Zero where the clocks may agree, for all that is known: the answer was made at some time while it was awaited.
        """
        least, most = self.sent - self.told - SECOND, self.received - self.told
        return max(least, timedelta()) + min(most, timedelta())

    def now(self) -> datetime:
        """The time by the store's clock now, at the least."""
        return self.told + timedelta(seconds=time.monotonic() - self.received_at)


class StoreClock:
    """The store's clock, as the newest answer to a client shows it."""

    def __init__(self) -> None:
        self.latest: StoreTime | None = None

    def now(self) -> datetime | None:
        """The time by the store's clock now, at the least. None: it has not told the time."""
        return self.latest.now() if self.latest else None

    def earlier_now(self) -> datetime:
        """The time by this machine's clock or by the store's, whichever is earlier: none of them alone is believed."""
        here = datetime.now(timezone.utc)
        return min(here, self.now() or here)

    def watch(self, client: Any) -> None:
        """Look at every answer that the boto3 client gets from now on, also at refusals."""
        client.meta.events.register("request-created.s3", self._sent)
        client.meta.events.register("response-received.s3", self._received)

    def _sent(self, request: Any, **_: Any) -> None:
        request.context[_SENT] = datetime.now(timezone.utc)

    def _received(self, context: Mapping[str, Any], parsed_response: Mapping[str, Any] | None, **_: Any) -> None:
        headers = (parsed_response or {}).get("ResponseMetadata", {}).get("HTTPHeaders", {})
        told = None if "age" in headers else _moment(headers.get("date", ""))
        if told is not None and _SENT in context:
            self.latest = StoreTime(told, context[_SENT], datetime.now(timezone.utc), time.monotonic())


def _moment(text: str) -> datetime | None:
    """A `Date` header's, None where it cannot be read or is missing. An answer with an `Age` comes from a cache."""
    try:
        found = parsedate_to_datetime(text)
    except ValueError:
        logger.debug("the store answered with the Date %r, which says nothing", text)
        return None
    return found if found.tzinfo else found.replace(tzinfo=timezone.utc)
