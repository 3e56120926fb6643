"""Writes Block-GZIP: lines in concatenated gzip members, and an index of them for range reads by offset.

Source: DeviantArt kafka-connect-s3, README and BlockGZIPFileWriter. A block holds at most `compressed_block_size`
uncompressed bytes. A record that does not fit begins the next block, and a larger record has a block of its own. A
value with a line break at its end gets no second one. Unlike in DeviantArt's files, `first_record_offset` is the
record's offset in Kafka even after a hole (compaction, transactions), sizes are in bytes, not characters, and no block
is empty.

An object is read as lines or, by its index, in selected blocks, each with its first offset. The docs show users how to
call `read_from` in their programs.
"""

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Annotated, TypedDict

import msgspec
import numpy as np
import pyarrow as pa

from kafka_s3_platform.connect.config.formats_of_connect import FORMATS
from kafka_s3_platform.connect.formats.byte_array import BytesReader
from kafka_s3_platform.connect.formats.json import new_text_encoder
from kafka_s3_platform.core.codecs.compression import CompressedSink, Sink
from kafka_s3_platform.core.config.settings import LayoutSettings
from kafka_s3_platform.core.formats.columns import read_strings
from kafka_s3_platform.core.formats.format_io import FormatIO, ReadRequest, WriteRequest
from kafka_s3_platform.core.formats.lines import LINE, end_lines, holds_inner_line_break, split_lines
from kafka_s3_platform.core.formats.parts import read_plain_bytes
from kafka_s3_platform.core.formats.reading import (
    ReadBatch,
    batch_values,
    build_bytes_payload,
    build_damage_error,
    build_limit_error,
    decompress_lines,
)
from kafka_s3_platform.core.model.connect import ConnectBatch, Mask, Payload
from kafka_s3_platform.core.model.limits import DEFAULT_LIMITS, ReadLimits

INDEX_SUFFIX = FORMATS["block_gzip"].index_suffix

ReadRange = Callable[[int, int], bytes]
"""Reads bytes of an object. The arguments are the position of the first byte, and the number of bytes."""


# Below 2**62, so that the sum of two is an integer of 64 bits.
_Number = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]


@dataclass(slots=True)
class Block:
    """A gzip member, as the index describes it. `byte_offset` is its start in the object."""

    byte_length_uncompressed: _Number
    num_records: _Number
    byte_length: _Number
    byte_offset: _Number
    first_record_offset: _Number


class _Index(TypedDict):
    chunks: list[Block]


class BlockGzipWriter:
    """Writes a line for each record into blocks. The same records give the same bytes, however they are batched."""

    def __init__(self, request: WriteRequest) -> None:
        self._sink = _CountingSink(request.sink)
        self._encode_texts = new_text_encoder(request.schema, request.layout.decimal_format)
        self._block_size = request.layout.block_size
        self._level = request.level
        self._blocks: list[Block] = []
        self._member: CompressedSink | None = None
        self.sidecars: Mapping[str, bytes] = {}

    @property
    def buffered_bytes(self) -> int:
        """The number of bytes of the open block that wait in memory to be compressed."""
        return self._member.buffered_bytes if self._member else 0

    def write(self, batch: ConnectBatch) -> None:
        """Append the records of a batch. No value may be null, or hold a line break before its end."""
        lines = read_strings(end_lines(self._encode_texts(batch)))
        ends = np.cumsum(lines.lengths)
        offsets = batch.offsets
        row = start = 0
        while row < len(ends):
            room = self._block_size - (self._blocks[-1].byte_length_uncompressed if self._member else 0)
            last = int(np.searchsorted(ends, start + room, side="right"))
            # The next record does not fit any more, so it begins a new block, whatever its size.
            if last <= row and self._member:
                self._end_block()
                continue
            last = max(last, row + 1)
            self._append_lines(lines.data[start : int(ends[last - 1])], last - row, int(offsets[row]))
            row = last
            start = int(ends[last - 1])

    def close(self, _: Mapping[str, str], /) -> None:
        """Write the buffered lines, and build the index. The sink stays open. The file holds nothing but lines."""
        self._end_block()
        chunks = [asdict(block) for block in self._blocks]
        self.sidecars = {INDEX_SUFFIX: json.dumps({"chunks": chunks}, separators=(",", ":")).encode()}

    def _append_lines(self, data: memoryview, records: int, first_offset: int) -> None:
        """Add lines to the open block, or begin one with them. `first_offset` is the offset of the first record."""
        if self._member is None:
            self._member = CompressedSink(self._sink, "gzip", self._level)
            self._blocks.append(Block(0, 0, 0, self._sink.written, first_offset))
        self._member.write(data)
        self._blocks[-1].byte_length_uncompressed += len(data)
        self._blocks[-1].num_records += records

    def _end_block(self) -> None:
        """End the gzip member of the open block, if there is one."""
        if self._member:
            self._member.close()
            self._blocks[-1].byte_length = self._sink.written - self._blocks[-1].byte_offset
            self._member = None


def read_index(body: bytes, key: str, object_size: int = 2**62) -> tuple[Block, ...]:
    """Return the blocks of an index. Raise IntegrityError if it is not an index. `key` names it in errors."""
    try:
        blocks = tuple(msgspec.json.decode(body, type=_Index)["chunks"])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as err:
        raise build_damage_error(key, f"is no Block-GZIP index: {err}") from err
    ends = [*(block.byte_offset for block in blocks[1:]), object_size]
    for block, end in zip(blocks, ends, strict=True) if blocks else ():
        # Blocks must not overlap: one that is listed many times would be decompressed as often.
        if block.byte_offset + block.byte_length > end:
            raise build_damage_error(
                key, f"is no Block-GZIP index: its block at byte {block.byte_offset} does not end before {end}"
            )
    return blocks


def read_from(
    read_range: ReadRange,
    blocks: Sequence[Block],
    offset: int,
    end_offset: int,
    key: str,
    limits: ReadLimits = DEFAULT_LIMITS,
) -> Iterator[bytes]:
    """Read the values of the records from `offset` on. Skip the blocks before it.

    A line does not hold its offset. So a block with holes in its offsets is returned from its first line on: some lines
    may belong to records before `offset`, but none is missing.

    Args:
        read_range: reads bytes of the object.
        blocks: the blocks in its index.
        offset: the offset of the first record to read.
        end_offset: the offset of the object's last record, plus 1.
        key: names the object in errors.
        limits: how much an object may ask for.

    Raises:
        IntegrityError: a block is damaged, or does not have as many lines as the index says. The number of lines is
            checked after the last line of a block.
    """
    ends = [*(block.first_record_offset for block in blocks[1:]), end_offset]
    for block, end in zip(blocks, ends, strict=False):
        if end > offset:
            is_dense = end - block.first_record_offset == block.num_records
            skipped = max(offset - block.first_record_offset, 0) if is_dense else 0
            yield from islice(_read_lines(read_range, block, key, limits), skipped, None)


def _read_lines(read_range: ReadRange, block: Block, key: str, limits: ReadLimits) -> Iterator[bytes]:
    """Yield the values of a block. Raise IntegrityError if their number differs from the number in the index."""
    if block.byte_length > limits.block_bytes:
        raise build_limit_error(key, f"has a block of {block.byte_length:,} bytes", "block.bytes")
    body = read_range(block.byte_offset, block.byte_length)
    count = 0
    pieces = decompress_lines(io.BytesIO(body), key, limits, "gzip", as_named=True)
    for line in split_lines(pieces, LINE, key, limits, open_end=False):
        count += 1
        if count <= block.num_records:
            yield line
    if count != block.num_records:
        what = f"has {count} lines in its block at byte {block.byte_offset} where its index says {block.num_records}"
        raise build_damage_error(key, what)


class _CountingSink:
    """A sink that counts its bytes."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.written = 0
        self.closed = False

    def write(self, data: bytes, /) -> int:
        self.written += len(data)
        return self._sink.write(data)

    def flush(self) -> None:
        self._sink.flush()


@dataclass(frozen=True)
class BlockGzipReader:
    """Reads the blocks of the slice `selection`. `key` names the object in errors.

    If there are as many offsets up to the next block as this block has records, the offset of each record is known. If
    there are holes, and in the last block, only the first record's offset is known. A line break at the end of a value
    looks like the end of its line, and is lost.
    """

    read_range: ReadRange
    blocks: Sequence[Block]
    key: str
    selection: slice = field(default_factory=lambda: slice(None))
    limits: ReadLimits = DEFAULT_LIMITS

    def batches(self) -> Iterator[ReadBatch]:
        """Return batches, each from one block. Raise IntegrityError if a block is damaged, or contradicts the index."""
        ends = [*(block.first_record_offset for block in self.blocks[1:]), None]
        for block, end in list(zip(self.blocks, ends, strict=True))[self.selection]:
            yield from self._read_block(block, end)

    def _read_block(self, block: Block, end: int | None) -> Iterator[ReadBatch]:
        """Yield the block's values in batches, with their offsets as far as they are known."""
        first = at = block.first_record_offset
        is_dense = end is not None and end - first == block.num_records
        values = read_from(self.read_range, (block,), first, first + block.num_records, self.key, self.limits)
        for lines in batch_values(values):
            offsets = np.full(len(lines), -1, np.int64)
            if is_dense:
                offsets[:] = np.arange(at, at + len(lines))
            elif at == first:
                offsets[0] = first
            at += len(lines)
            yield ReadBatch(build_bytes_payload(pa.array(lines, pa.binary())), offsets=offsets)


def _new_reader(request: ReadRequest) -> BytesReader:
    """Make the reader of a whole object, which reads it as lines in gzip, without the index."""
    return BytesReader(request.source, request.key, "\n", "gzip", any_bytes=request.any_bytes, limits=request.limits)


def _find_unsafe(payload: Payload, _: LayoutSettings) -> Mask:
    """Mark values that would be read back as several lines."""
    # Values that came as JSON are on one line each: line breaks in strings are escaped.
    if payload.raw_is_json:
        return np.zeros(len(payload), bool)
    return holds_inner_line_break(read_plain_bytes(payload))


FORMAT_IO = FormatIO(new_writer=BlockGzipWriter, new_reader=_new_reader, find_unsafe=_find_unsafe)
