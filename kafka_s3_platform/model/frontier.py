"""Where a kafka partition's log began and ended when it was looked at."""

from dataclasses import dataclass
from datetime import datetime, timezone

UNTIMED = datetime(1970, 1, 1, tzinfo=timezone.utc)
"""`observed_at` of a look whose time nobody knows: it tells where the log began, and proves nothing of an hour."""


@dataclass(frozen=True, slots=True)
class Frontier:
    """The bounds of one kafka partition's log.

    `observed_at` is UTC and taken before the broker was asked: every record appended before it lies below
    `high_watermark`. `last_stable_offset < high_watermark` means that a transaction is open. `kafka_partition_count` is
    how many kafka partitions the topic had then: a look that lacks some of them proves nothing of an hour. None where
    it was not recorded.
    """

    kafka_partition: int
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    leader_epoch: int | None
    observed_at: datetime
    kafka_partition_count: int | None = None

    def __post_init__(self) -> None:
        # Of what a broker answers `kafka.answers` finds this out, of rows of an index `store.sound`.
        if not 0 <= self.log_start_offset <= min(self.last_stable_offset, self.high_watermark):
            raise ValueError(
                f"kafka partition {self.kafka_partition}: no log starts at {self.log_start_offset}, is stable up to "
                f"{self.last_stable_offset} and ends at {self.high_watermark}"
            )
