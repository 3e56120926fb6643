"""A limit of a whole restore, shared out among its tasks. Pure."""

from collections.abc import Sequence


def shares(limit: float | None, sizes: Sequence[int], at_once: int) -> list[float | None]:
    """Each task's share of `limit`, by the tasks' sizes: whichever `at_once` of them run, their shares stay below it.

    If all run at once, the shares are as the sizes, so that all end together and the limit is used to the end. Else
    they are equal: tasks follow each other, and only the last ones leave some of the limit unused.
    """
    if limit is None:
        return [None] * len(sizes)
    total = sum(sizes)
    if len(sizes) > at_once or not total:
        return [limit / max(1, min(at_once, len(sizes)))] * len(sizes)
    # a size may be too low by a little, and nothing is sent at a rate of zero
    return [limit * max(size, 1) / sum(max(s, 1) for s in sizes) for size in sizes]
