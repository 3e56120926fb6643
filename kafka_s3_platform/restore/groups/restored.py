"""The result of a restore in one kafka partition, as far as the places of groups depend on it."""

from dataclasses import dataclass

import numpy as np

from kafka_s3_platform.restore.verify.offset_mapping import Runs

Doubt = tuple[int, str]
"""An offset, and why records before it are not as they were in the source."""


NO_DOUBT: Doubt = (0, "")


NO_RUNS: Runs = np.empty((3, 0), np.int64)


@dataclass(frozen=True)
class Restored:
    """The result of a restore in one kafka partition.

    `runs` is its offset mapping. The archive ends before `archived_end`. From the source offset of `missing` on, every
    archived record is in the target once. From the target offset of `mixed` on, there is nothing else up to the last of
    them, and no copy of them after it.
    """

    runs: Runs
    archived_end: int
    missing: Doubt = NO_DOUBT
    mixed: Doubt = NO_DOUBT

    @property
    def target_end(self) -> int:
        """The target offset after the last restored record, 0 if there is none."""
        if self.runs.size:
            return int(self.runs[1, -1] + self.runs[2, -1])
        return 0
