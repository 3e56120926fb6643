"""Limits the bytes in flight to a target, so even a slow target acknowledges them in time."""

import time
from collections import deque

FIRST_BYTES = 64 * 1024
"""The room at first, and for the slowest target. It is small because many tasks may share one quota."""

MOST_BYTES_PER_SECOND = 64 * 1024
"""The most room, for each second of the timeout. A minute gives about 4 MiB, which keeps a fast target busy."""

SPANS = 12
"""The timeout has so many parts. The room is what the target acknowledged within the last one of them."""


class Pace:
    """Computes how many bytes may be in flight, from the bytes acknowledged lately.

    The room begins small and doubles with every answer of a fast target. A broker's quota lets the bytes of
    ten seconds pass at once. Then it delays every request, also a commit, until the average is back at the quota. So
    the room has an upper bound, however fast the target seems.
    """

    def __init__(self, timeout_seconds: float) -> None:
        self._span = timeout_seconds / SPANS
        self._most = max(FIRST_BYTES, int(MOST_BYTES_PER_SECOND * timeout_seconds))
        self._lately: deque[tuple[float, int]] = deque()
        self._total = 0
        self.on_its_way = 0
        self.delay = 0.0
        """Seconds between sending and acknowledgement of the last acknowledged part."""

    @property
    def room(self) -> int:
        """The limit of bytes in flight."""
        self._forget()
        return min(max(FIRST_BYTES, self._total), self._most)

    def sent(self, size: int) -> None:
        self.on_its_way += size

    def acknowledged(self, size: int, sent_at: float) -> None:
        now = time.monotonic()
        self.on_its_way -= size
        self.delay = now - sent_at
        self._lately.append((now, size))
        self._total += size

    def admits(self, size: int) -> bool:
        """Return True if `size` bytes may be sent now. If nothing is in flight, any size may."""
        # Otherwise a record larger than the whole room would never be sent.
        return not self.on_its_way or self.on_its_way + size <= self.room

    def _forget(self) -> None:
        before = time.monotonic() - self._span
        while self._lately and self._lately[0][0] < before:
            self._total -= self._lately.popleft()[1]
