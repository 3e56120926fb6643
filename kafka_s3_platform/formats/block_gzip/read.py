"""Reads Block-GZIP objects by their index: only the selected blocks, each with its first offset."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from kafka_s3_platform.formats.block_gzip.write import Block, ReadRange, read_from
from kafka_s3_platform.formats.reading import ReadBatch, batch_values, build_bytes_payload
from kafka_s3_platform.model.limits import NO_KEYS, ReadLimits


class BlockGzipReader:
    """Reads the blocks of the slice `selection`. `key` names the object in errors.

    If the next block begins as many offsets later as this one has records, the offset of each record is known. If
    offsets have holes, and in the last block, only the first record's is known. A line break at the end of a value
    looks like its line's, and is lost.
    """

    def __init__(
        self,
        read_range: ReadRange,
        blocks: Sequence[Block],
        key: str,
        selection: slice = slice(None),
        limits: ReadLimits = NO_KEYS,
    ) -> None:
        self._read_range = read_range
        self._blocks = tuple(blocks)
        self._key = key
        self._selection = selection
        self._limits = limits

    def batches(self) -> Iterator[ReadBatch]:
        """Return batches, none of them over two blocks.

        Raises:
            IntegrityError: a block is damaged, or does not have as many lines as the index says.
        """
        ends = [*(block.first_record_offset for block in self._blocks[1:]), None]
        for block, end in list(zip(self._blocks, ends, strict=True))[self._selection]:
            yield from self._of_block(block, end)

    def _of_block(self, block: Block, end: int | None) -> Iterator[ReadBatch]:
        first = at = block.first_record_offset
        is_dense = end is not None and end - first == block.num_records
        values = read_from(self._read_range, (block,), first, first + block.num_records, self._key, self._limits)
        for lines in batch_values(values):
            offsets = np.full(len(lines), -1, np.int64)
            if is_dense:
                offsets[:] = np.arange(at, at + len(lines))
            elif at == first:
                offsets[0] = first
            at += len(lines)
            yield ReadBatch(build_bytes_payload(pa.array(lines, pa.binary())), offsets=offsets)
