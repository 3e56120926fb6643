"""Where a kafka partition's log began and ended when it was looked at."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Frontier:
    """The bounds of one kafka partition's log.

    `observed_at` is UTC and taken before the broker was asked: every record appended before it lies below
    `high_watermark`. `last_stable_offset < high_watermark` means that a transaction is open.
    """

    kafka_partition: int
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    leader_epoch: int | None
    observed_at: datetime
