"""How much may be on its way to a target: no more than it acknowledges in time, however slow it is or becomes."""

import time
from collections import deque

FIRST_BYTES = 64 * 1024
"""What is on its way at first, and to the slowest target: many tasks may share one quota."""

MOST_BYTES_PER_SECOND = 64 * 1024
"""How much at most, for each second of the timeout: 4 MiB of a minute, which keeps a fast target busy."""

SPANS = 12
"""What the target acknowledged in the last of so many parts of the timeout is taken for what it will in the next."""


class Pace:
    """Tells how many bytes may be on their way, from those that were acknowledged lately.

    It begins small, and doubles with every answer of a target that keeps up. A broker's quota lets ten seconds' worth
    pass at once, and then holds up whatever comes, a commit too, until what was too much is paid for: so there is a
    bound that no speed lifts.
    """

    def __init__(self, timeout_seconds: float) -> None:
        self._span = timeout_seconds / SPANS
        self._most = max(FIRST_BYTES, int(MOST_BYTES_PER_SECOND * timeout_seconds))
        self._lately: deque[tuple[float, int]] = deque()
        self._total = 0
        self.on_its_way = 0
        self.delay = 0.0
        """Seconds between sending and acknowledgement, of what was acknowledged last."""

    @property
    def room(self) -> int:
        """Bytes that may be on their way at once."""
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
        """Whether so much may be sent now; anything may be when nothing is on its way."""
        return not self.on_its_way or self.on_its_way + size <= self.room

    def _forget(self) -> None:
        before = time.monotonic() - self._span
        while self._lately and self._lately[0][0] < before:
            self._total -= self._lately.popleft()[1]
