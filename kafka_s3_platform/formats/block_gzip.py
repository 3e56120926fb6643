"""Block-GZIP: lines in concatenated gzip members, and an index of them that allows range reads by offset.

Source: DeviantArt kafka-connect-s3, README and BlockGZIPFileWriter. A block holds at most `compressed_block_size`
uncompressed bytes: the record that would bring it above begins the next one, and one that is larger has its own. A
value that ends with a line break gets no second one. Unlike there, `first_record_offset` is the record's offset in
Kafka also behind a hole (compaction, transactions), sizes are bytes, not characters, and a block is never empty.
"""

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Annotated, TypedDict

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.formats.columns import strings
from kafka_s3_platform.formats.compression import CompressedSink, decompressed
from kafka_s3_platform.formats.damage import beyond, damaged
from kafka_s3_platform.formats.envelope import Sink
from kafka_s3_platform.formats.json_reader import lines_of
from kafka_s3_platform.formats.lines import LINE
from kafka_s3_platform.model.connect import ConnectBatch
from kafka_s3_platform.model.limits import NO_KEYS, ReadLimits

EXTENSION = "gz"
INDEX_SUFFIX = "index.json"

ReadRange = Callable[[int, int], bytes]
"""Reads an object's bytes: those from the first number on, as many as the second."""


_Number = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]


@dataclass(slots=True)
class Block:
    """A gzip member as the index names it. Numbers of bytes; `byte_offset` is where it begins in the object."""

    byte_length_uncompressed: _Number
    num_records: _Number
    byte_length: _Number
    byte_offset: _Number
    first_record_offset: _Number


class _Index(TypedDict):
    chunks: list[Block]


class BlockGzipWriter:
    """Writes one line a record into blocks. The same records give the same bytes, however they are batched.

    `values` gives the bytes of the values of a batch: none of them null, none with a line break before its end.
    """

    def __init__(
        self, sink: Sink, values: Callable[[ConnectBatch], pa.BinaryArray], block_size: int, level: int | None
    ) -> None:
        self._sink, self._values, self._block_size, self._level = _Counting(sink), values, block_size, level
        self._blocks: list[Block] = []
        self._member: CompressedSink | None = None
        self.sidecars: Mapping[str, bytes] = {}

    @property
    def buffered_bytes(self) -> int:
        return self._member.buffered_bytes if self._member else 0

    def write(self, batch: ConnectBatch) -> None:
        """Append the records of a batch."""
        found = strings(as_lines(self._values(batch)))
        ends, offsets = np.cumsum(found.lengths), batch.offsets
        row = start = 0
        while row < len(ends):
            room = self._block_size - (self._blocks[-1].byte_length_uncompressed if self._member else 0)
            last = int(np.searchsorted(ends, start + room, side="right"))
            if last <= row and self._member:
                self._end_block()
                continue
            last = max(last, row + 1)
            self._append(found.data[start : int(ends[last - 1])], last - row, int(offsets[row]))
            row, start = last, int(ends[last - 1])

    def close(self, facts: Mapping[str, str]) -> None:  # noqa: ARG002 - the file is lines and nothing else
        """Write what is held and make the index. The sink stays open."""
        self._end_block()
        chunks = [asdict(block) for block in self._blocks]
        self.sidecars = {INDEX_SUFFIX: json.dumps({"chunks": chunks}, separators=(",", ":")).encode()}

    def _append(self, data: memoryview, records: int, first_offset: int) -> None:
        if self._member is None:
            self._member = CompressedSink(self._sink, "gzip", self._level)
            self._blocks.append(Block(0, 0, 0, self._sink.written, first_offset))
        self._member.write(data)
        self._blocks[-1].byte_length_uncompressed += len(data)
        self._blocks[-1].num_records += records

    def _end_block(self) -> None:
        if self._member:
            self._member.close()
            self._blocks[-1].byte_length = self._sink.written - self._blocks[-1].byte_offset
            self._member = None


def as_lines(values: pa.BinaryArray) -> pa.BinaryArray:
    """The values, each with the line break that it does not end with itself."""
    return pc.binary_join_element_wise(values, pc.if_else(pc.ends_with(values, LINE), b"", LINE), b"")


def read_index(body: bytes, key: str, object_size: int = 2**62) -> tuple[Block, ...]:
    """The blocks that an index names. Raises IntegrityError when it is none; `key` names it there."""
    try:
        blocks = tuple(msgspec.json.decode(body, type=_Index)["chunks"])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as err:
        raise damaged(key, f"is no Block-GZIP index: {err}") from err
    ends = [*(block.byte_offset for block in blocks[1:]), object_size]
    for block, end in zip(blocks, ends, strict=True) if blocks else ():
        # One block named many times would be decompressed as often.
        if block.byte_offset + block.byte_length > end:
            raise damaged(
                key, f"is no Block-GZIP index: its block at byte {block.byte_offset} does not end before {end}"
            )
    return blocks


def read_from(
    read_range: ReadRange,
    blocks: Sequence[Block],
    offset: int,
    end_offset: int,
    key: str,
    limits: ReadLimits = NO_KEYS,
) -> Iterator[bytes]:
    """The values of the records from `offset` on; no block before the one that may hold it is read.

    A line does not say its offset. In a block whose offsets have holes the lines are therefore given from its first on:
    some may be of records before `offset`, but none is left out.

    Args:
        read_range: reads the object.
        blocks: its index.
        offset: of the first record that is wanted.
        end_offset: of the object's last record, plus 1.
        key: names the object in errors.
        limits: of what is read.

    Raises:
        IntegrityError: a block is damaged, or has not as many lines as the index says: told behind its last.
    """
    ends = [*(block.first_record_offset for block in blocks[1:]), end_offset]
    for block, end in zip(blocks, ends, strict=False):
        if end > offset:
            is_dense = end - block.first_record_offset == block.num_records
            skipped = max(offset - block.first_record_offset, 0) if is_dense else 0
            yield from islice(_lines(read_range, block, key, limits), skipped, None)


def _lines(read_range: ReadRange, block: Block, key: str, limits: ReadLimits) -> Iterator[bytes]:
    if block.byte_length > limits.block_bytes:
        raise beyond(key, f"has a block of {block.byte_length:,} bytes", "block.bytes")
    body, count = read_range(block.byte_offset, block.byte_length), 0
    pieces = decompressed(io.BytesIO(body), key, limits, "gzip", as_named=True)
    for line in lines_of(pieces, LINE, key, limits, open_end=False):
        count += 1
        if count <= block.num_records:
            yield line
    if count != block.num_records:
        what = f"has {count} lines in its block at byte {block.byte_offset} where its index says {block.num_records}"
        raise damaged(key, what)


class _Counting:
    """A sink that knows how much went through it."""

    def __init__(self, sink: Sink) -> None:
        self._sink, self.written, self.closed = sink, 0, False

    def write(self, data: bytes, /) -> int:
        self.written += len(data)
        return self._sink.write(data)

    def flush(self) -> None:
        self._sink.flush()
