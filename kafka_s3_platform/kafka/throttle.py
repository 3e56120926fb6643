"""Limits how fast a task reads or writes."""

import time

BURST_SECONDS = 1.0
"""How much unused budget is kept."""


class Throttle:
    """Token buckets for records and for bytes; None leaves its side unbounded.

    A task has its own share: the caller divides a limit by the number of concurrent tasks.
    """

    def __init__(self, records_per_second: float | None = None, bytes_per_second: float | None = None) -> None:
        self._records = _Bucket(records_per_second) if records_per_second else None
        self._bytes = _Bucket(bytes_per_second) if bytes_per_second else None

    def take(self, records: int, size: int) -> None:
        """Spend `records` and `size` bytes; sleep until the overdraft is earned."""
        # Both buckets are charged even if one alone makes the task wait.
        wait = max(self._records.spend(records) if self._records else 0, self._bytes.spend(size) if self._bytes else 0)
        if wait > 0:
            time.sleep(wait)

    def records_at_once(self, most: int) -> int:
        """Return `most`, but at most the records of one second, so a low rate flows evenly."""
        if self._records:
            return min(most, max(1, int(self._records.rate)))
        return most


class _Bucket:
    def __init__(self, rate: float) -> None:
        self.rate = rate
        self._tokens = rate * BURST_SECONDS
        self._filled_at = time.monotonic()

    def spend(self, amount: int) -> float:
        """Spend the amount. Return the seconds to wait."""
        now = time.monotonic()
        earned = (now - self._filled_at) * self.rate
        self._tokens = min(self._tokens + earned, self.rate * BURST_SECONDS) - amount
        self._filled_at = now
        return -self._tokens / self.rate
