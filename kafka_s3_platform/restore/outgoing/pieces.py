"""Splits the records of a restore into pieces that fit into the room of its producer."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from kafka_s3_platform.model.batches import count_record_bytes, read_offset_column
from kafka_s3_platform.model.connect import Int64s
from kafka_s3_platform.restore.outgoing.sent import SentBatch

USUAL_OVERHEAD = 16
"""About how many bytes a record takes in a log beside its key, value and headers."""


@dataclass(frozen=True, slots=True)
class SizedPart:
    """Records for one kafka partition of the target. `sizes` are the bytes of each one's key, value and headers."""

    kafka_partition: int
    records: pa.RecordBatch
    sizes: Int64s

    @property
    def byte_count(self) -> int:
        """Bytes of keys, values and headers."""
        return int(self.sizes.sum())

    @property
    def log_bytes(self) -> int:
        """About how many bytes it takes in the target's log."""
        return self.byte_count + USUAL_OVERHEAD * len(self.sizes)

    def between(self, start_offset: int, end_offset: int) -> "SizedPart":
        """Return the records with source offsets in `[start_offset, end_offset)`."""
        start, end = np.searchsorted(read_offset_column(self.records), [start_offset, end_offset])
        return SizedPart(self.kafka_partition, self.records.slice(start, end - start), self.sizes[start:end])


@dataclass(frozen=True, slots=True)
class Piece:
    """Records to send at once. After them all of the stream below `next_source_offset` is sent."""

    next_source_offset: int
    parts: tuple[SizedPart, ...]

    @property
    def record_count(self) -> int:
        return sum(part.records.num_rows for part in self.parts)

    @property
    def byte_count(self) -> int:
        """Bytes of keys, values and headers."""
        return sum(part.byte_count for part in self.parts)

    @property
    def log_bytes(self) -> int:
        """About how many bytes it takes in the target's log."""
        return sum(part.log_bytes for part in self.parts)


def split_to_room(batch: SentBatch, room: Callable[[], int]) -> Iterator[Piece]:
    """Split a batch into pieces of at most `room()` bytes, or of one source offset. Each asks for the room anew."""
    # Compute sizes once for the batch: pieces get slices of them.
    sized = tuple(SizedPart(number, part, count_record_bytes(part)) for number, part in batch.parts)
    all_records = Piece(batch.next_source_offset, sized)
    if all_records.log_bytes <= room():
        yield all_records
        return
    offsets = np.concatenate([read_offset_column(part.records) for part in sized])
    sizes = np.concatenate([part.sizes for part in sized]) + USUAL_OVERHEAD
    order = np.argsort(offsets, kind="stable")
    offsets = offsets[order]
    before = np.concatenate([[0], np.cumsum(sizes[order])])
    start = 0
    while start < len(offsets):
        # The first record that does not fit any more begins the next piece.
        end = int(np.searchsorted(before, before[start] + room(), side="right")) - 1
        is_last = end == len(offsets)
        # Several records may have one source offset. They go together, because a marker counts whole offsets.
        bound = batch.next_source_offset if is_last else max(int(offsets[end]), int(offsets[start]) + 1)
        parts = (part.between(int(offsets[start]), bound) for part in sized)
        yield Piece(bound, tuple(part for part in parts if part.records.num_rows))
        start = int(np.searchsorted(offsets, bound))
