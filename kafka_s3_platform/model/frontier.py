"""The bounds of a kafka partition's log at the time of an observation."""

from dataclasses import dataclass
from datetime import datetime

from kafka_s3_platform.model.times import EPOCH

UNTIMED = EPOCH
"""`observed_at` of an observation at an unknown time. It tells where the log began, but proves nothing for an hour."""


@dataclass(frozen=True, slots=True)
class Frontier:
    """The bounds of one kafka partition's log.

    `observed_at` is UTC and was taken before the request to the broker: every record appended before it lies below
    `high_watermark`. `last_stable_offset < high_watermark` means that a transaction is open. `kafka_partition_count` is
    the number of the topic's kafka partitions at that time, None if it was not recorded. An observation that lacks some
    of them proves nothing about an hour.
    """

    kafka_partition: int
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    leader_epoch: int | None
    observed_at: datetime
    kafka_partition_count: int | None = None

    def __post_init__(self) -> None:
        # A last defence: `kafka.answers` checks the broker's answers, and `store.sound` the offsets of an index.
        if not 0 <= self.log_start_offset <= min(self.last_stable_offset, self.high_watermark):
            raise ValueError(
                f"kafka partition {self.kafka_partition}: no log starts at {self.log_start_offset}, is stable up to "
                f"{self.last_stable_offset} and ends at {self.high_watermark}"
            )
