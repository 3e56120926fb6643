"""Reads Block-GZIP objects by their index: block by block, each one's first offset known, and only those wanted."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from kafka_s3_platform.formats.block_gzip import Block, ReadRange, read_from
from kafka_s3_platform.formats.reading import ReadBatch, batched, bytes_payload
from kafka_s3_platform.model.limits import NO_KEYS, ReadLimits


class BlockGzipReader:
    """Reads the blocks of numbers `wanted`. `key` names the object in errors.

    A block ends where the next one begins: where that is as many offsets on as it has records, each record's offset is
    known; where there are holes, and in the last block, only the first one's is. A line break at the end of a value is
    not told from that of its line.
    """

    def __init__(
        self,
        read_range: ReadRange,
        blocks: Sequence[Block],
        key: str,
        wanted: slice = slice(None),
        limits: ReadLimits = NO_KEYS,
    ) -> None:
        self._read_range, self._blocks, self._key, self._wanted = read_range, tuple(blocks), key, wanted
        self._limits = limits

    def batches(self) -> Iterator[ReadBatch]:
        """Batches within blocks. Raises IntegrityError where one is damaged, or has other lines than the index says."""
        ends = [*(block.first_record_offset for block in self._blocks[1:]), None]
        for block, end in list(zip(self._blocks, ends, strict=True))[self._wanted]:
            yield from self._of_block(block, end)

    def _of_block(self, block: Block, end: int | None) -> Iterator[ReadBatch]:
        first = at = block.first_record_offset
        is_dense = end is not None and end - first == block.num_records
        found = read_from(self._read_range, (block,), first, first + block.num_records, self._key, self._limits)
        for lines in batched(found):
            offsets = np.full(len(lines), -1, np.int64)
            if is_dense:
                offsets[:] = np.arange(at, at + len(lines))
            elif at == first:
                offsets[0] = first
            at += len(lines)
            yield ReadBatch(bytes_payload(pa.array(lines, pa.binary())), offsets=offsets)
