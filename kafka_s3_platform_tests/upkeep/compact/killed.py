"""A compaction in a process of its own, killed at a named stage, or measured.

`python -m kafka_s3_platform_tests.upkeep.compact.killed STAGE < pickled requests`. Prints two peaks in MiB: by how much
resident memory grew, and what Arrow had allocated at a time.
"""

import os
import pickle
import signal
import sys
import time
from collections.abc import Callable
from threading import Thread
from typing import Any

import psutil
import pyarrow as pa

from kafka_s3_platform.store.index import ConnectorSnapshot
from kafka_s3_platform.store.upload import SegmentUpload
from kafka_s3_platform.upkeep.compact.request import CompactRequest
from kafka_s3_platform.upkeep.compact.run import compact_days
from kafka_s3_platform_tests.support import InProcessRunner

STAGES = ("after the first upload", "before the commit", "after the commit")


def main(stage: str) -> None:
    requests: list[CompactRequest] = pickle.load(sys.stdin.buffer)  # noqa: S301 - the test's own
    if stage == STAGES[0]:
        SegmentUpload.finish = _then_die(SegmentUpload.finish)  # type: ignore[method-assign]
    elif stage in STAGES:
        _die_at_commit(after=stage == STAGES[2])
    peak = _Peak()
    compact_days(requests, InProcessRunner())
    sys.stdout.write(f"{peak.growth() >> 20} {pa.default_memory_pool().max_memory() >> 20}\n")


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


if __name__ == "__main__":
    main(sys.argv[1])
