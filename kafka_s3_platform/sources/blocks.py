"""Which blocks of a Block-GZIP object have to be read for a window of source offsets."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from kafka_s3_platform.formats.block_gzip import Block


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
    def left_out_count(self) -> int:
        """Of blocks that are not wanted."""
        return self.record_count - sum(b.num_records for b in self.blocks[self.wanted])


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
