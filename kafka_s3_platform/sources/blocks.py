"""Which blocks of a Block-GZIP object have to be read for a window of source offsets."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kafka_s3_platform.formats.block_gzip import Block
from kafka_s3_platform.formats.kept_offsets import KeptOffsets


@dataclass(frozen=True)
class WantedBlocks:
    """`wanted` of an object's `blocks`, by number. Numbers of records are those of the index.

    Records of the first wanted block begin at `next_offset` or later; those of the next object, at `end_offset`.
    """

    blocks: tuple[Block, ...]
    wanted: slice
    next_offset: int
    end_offset: int

    @property
    def record_count(self) -> int:
        """Of all blocks."""
        return sum(b.num_records for b in self.blocks)

    @property
    def rows(self) -> tuple[int, int]:
        """The places of the records of wanted blocks among those of the object, half-open."""
        first = sum(b.num_records for b in self.blocks[: self.wanted.start])
        return first, first + self.record_count - self.left_out_count

    @property
    def left_out_count(self) -> int:
        """Of blocks that are not wanted."""
        return self.record_count - sum(b.num_records for b in self.blocks[self.wanted])


def told_blocks(blocks: Sequence[Block], offsets: KeptOffsets, start: int, end: int) -> WantedBlocks:
    """The blocks that hold records of source offsets [start, end), where that of each record is told."""
    bounds = np.cumsum([0, *(b.num_records for b in blocks)])
    bounds = np.append(offsets.of(0, offsets.count), offsets.last + 1)[bounds]
    first, last = bisect_right(bounds[1:].tolist(), start), bisect_left(bounds[:-1].tolist(), end)
    return WantedBlocks(tuple(blocks), slice(first, last), offsets.first, offsets.last + 1)


def wanted_blocks(blocks: Sequence[Block], next_offset: int, start: int, end: int) -> WantedBlocks:
    """The blocks that hold records of source offsets [start, end).

    Offsets are counted as a stream counts them that reads every block: a block begins at the offset that the index
    names, or at `next_offset`, behind what went before.
    """
    starts, ends, position = list[int](), list[int](), next_offset
    for block in blocks:
        starts.append(max(position, block.first_record_offset))
        position = starts[-1] + block.num_records
        ends.append(position)
    first, last = bisect_right(ends, start), bisect_left(starts, end)
    return WantedBlocks(tuple(blocks), slice(first, last), ends[first - 1] if first else next_offset, position)
