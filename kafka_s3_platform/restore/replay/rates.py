"""Divides a limit of a whole restore among its tasks. Pure."""

from collections.abc import Sequence


def share_out_limit(limit: float | None, sizes: Sequence[int], at_once: int) -> list[float | None]:
    """Return each task's share of `limit`. The shares of any `at_once` tasks never exceed the limit together.

    If all tasks run at once, the shares are proportional to their sizes: all tasks end together, and the whole limit is
    used to the end. Otherwise the shares are equal: tasks follow each other, and only the last ones leave some unused.
    """
    if limit is None:
        return [None] * len(sizes)
    total = sum(sizes)
    if len(sizes) > at_once or not total:
        return [limit / max(1, min(at_once, len(sizes)))] * len(sizes)
    # A task of size 0 may still have records, since sizes are estimates. At a rate of 0 it would never end.
    weights = [max(size, 1) for size in sizes]
    return [limit * weight / sum(weights) for weight in weights]
