"""Selects the blocks of a Block-GZIP object for a window of source offsets."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kafka_s3_platform.formats.block_gzip.write import Block
from kafka_s3_platform.formats.kept_offsets import KeptOffsets


@dataclass(frozen=True)
class BlockSelection:
    """The blocks to read of an object: the slice `span` of its `blocks`. The index gives the numbers of records.

    The first selected block begins at `next_offset` or later, the next object at `end_offset` or later.
    """

    blocks: tuple[Block, ...]
    span: slice
    next_offset: int
    end_offset: int

    @property
    def record_count(self) -> int:
        """The number of records in all blocks."""
        return sum(b.num_records for b in self.blocks)

    @property
    def rows(self) -> tuple[int, int]:
        """The positions of the selected records among all records of the object, half-open."""
        first = sum(b.num_records for b in self.blocks[: self.span.start])
        return first, first + self.record_count - self.left_out_count

    @property
    def left_out_count(self) -> int:
        """The number of records in other blocks."""
        return self.record_count - sum(b.num_records for b in self.blocks[self.span])


def select_blocks_by_offsets(blocks: Sequence[Block], offsets: KeptOffsets, start: int, end: int) -> BlockSelection:
    """Select the blocks with records of source offsets [start, end). The offset of each record is known."""
    bounds = np.cumsum([0, *(b.num_records for b in blocks)])
    bounds = np.append(offsets.of(0, offsets.count), offsets.last + 1)[bounds]
    first = bisect_right(bounds[1:].tolist(), start)
    last = bisect_left(bounds[:-1].tolist(), end)
    return BlockSelection(tuple(blocks), slice(first, last), offsets.first, offsets.last + 1)


def select_blocks_by_counts(blocks: Sequence[Block], next_offset: int, start: int, end: int) -> BlockSelection:
    """Select the blocks with records of source offsets [start, end), by counting records.

    Reading every block would count the same offsets: a block begins at the offset in the index, or behind the block
    before it if that is higher. The first block begins at `next_offset` or later.
    """
    starts: list[int] = []
    ends: list[int] = []
    position = next_offset
    for block in blocks:
        starts.append(max(position, block.first_record_offset))
        position = starts[-1] + block.num_records
        ends.append(position)
    first = bisect_right(ends, start)
    last = bisect_left(starts, end)
    return BlockSelection(tuple(blocks), slice(first, last), ends[first - 1] if first else next_offset, position)
