"""A compaction in a process of its own, killed at a named stage, or measured."""

import os
import signal
import time
from collections.abc import Callable, Sequence
from threading import Thread
from typing import Any

import psutil
import pyarrow as pa

from kafka_s3_platform.core.store.index import ConnectorSnapshot
from kafka_s3_platform.core.store.upload import SegmentUpload
from kafka_s3_platform.core.upkeep.compact.days import CompactRequest
from kafka_s3_platform.core.upkeep.compact.run import compact_days
from kafka_s3_platform_tests.forked import call_apart, end_apart
from kafka_s3_platform_tests.support import InProcessRunner

STAGES = ("after the first upload", "before the commit", "after the commit")


def killed_at(stage: str, requests: Sequence[CompactRequest]) -> bool:
    """Whether the process was killed."""
    return end_apart(_compact_until, stage, requests) == -signal.SIGKILL


def measured(requests: Sequence[CompactRequest]) -> tuple[int, int]:
    """Two peaks in MiB: by how much resident memory grew, and what Arrow had allocated at a time."""
    return call_apart(_measure, requests)


def _compact_until(stage: str, requests: Sequence[CompactRequest]) -> None:
    if stage == STAGES[0]:
        SegmentUpload.finish = _then_die(SegmentUpload.finish)  # type: ignore[method-assign]
    else:
        _die_at_commit(after=stage == STAGES[2])
    compact_days(requests, InProcessRunner())


def _measure(requests: Sequence[CompactRequest]) -> tuple[int, int]:
    peak = _Peak()
    compact_days(requests, InProcessRunner())
    return peak.growth() >> 20, pa.default_memory_pool().max_memory() >> 20


def _die_at_commit(after: bool) -> None:
    commit = ConnectorSnapshot.commit

    def dying(snapshot: ConnectorSnapshot, changes: Any, *args: Any) -> int:
        if not any(change.retired for change in changes.values()):
            return commit(snapshot, changes, *args)
        if after:
            commit(snapshot, changes, *args)
        _die()
        raise AssertionError

    ConnectorSnapshot.commit = dying  # type: ignore[method-assign, assignment]


def _then_die(function: Callable[..., Any]) -> Callable[..., Any]:
    def dying(*args: Any) -> None:
        function(*args)
        _die()

    return dying


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class _Peak:
    """Samples resident memory: `ru_maxrss` would begin with that of the process this one was forked from."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._first = self._most = self._process.memory_info().rss
        Thread(target=self._sample, daemon=True).start()

    def growth(self) -> int:
        return self._most - self._first

    def _sample(self) -> None:
        while True:
            self._most = max(self._most, self._process.memory_info().rss)
            time.sleep(0.01)
