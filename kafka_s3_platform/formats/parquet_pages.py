"""Looks at what Parquet files say of themselves, before Arrow takes memory for it.

Arrow takes for each page what its header says it comes to, and for each batch what its rows come to: a page of some
bytes may say gigabytes, an entry of a dictionary may be a value a million times. So the headers of a row group's pages
are read first, from bytes that are read for Arrow too, and batches have as many rows as fit.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kafka_s3_platform.formats.damage import beyond
from kafka_s3_platform.formats.thrift import struct_at
from kafka_s3_platform.model.limits import ReadLimits

_TAIL_BYTES, _MAGIC_BYTES, _END_BYTES = 65_536, 4, 8
"""Arrow reads as much at the end of a file at once: a source that keeps its last read serves it from it."""

_CONTAINER_ITEMS = 100_000
_BATCH_BYTES = 16_777_216
_SMALL_DICTIONARY = 256
_MOST_BLOCKS, _MOST_BLOCKS_OF_LISTS = 128, 8
"""What a column may come to, in times of the largest block, if each value were the longest of its dictionary."""

_DATA, _DICTIONARY, _DATA_V2 = 0, 2, 3
_TYPE, _SIZE, _COMPRESSED, _DATA_HEAD, _DICTIONARY_HEAD, _V2_HEAD = 1, 2, 3, 5, 7, 8
_ROW_GROUPS, _COLUMNS, _GROUP_BYTES, _GROUP_ROWS, _META = 4, 1, 2, 3, 3
_CODEC, _CHUNK_VALUES, _CHUNK_BYTES, _DATA_AT, _DICTIONARY_AT, _STATISTICS = 4, 5, 7, 9, 11, 12
_NULLS, _MOST, _LEAST = 3, 5, 6
_COUNT, _ENCODING, _V2_ENCODING = 1, 2, 4
_BY_DICTIONARY, _BY_PREFIX = (2, 8), 7
_BYTE_ARRAY, _FIXED = "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"


@dataclass(frozen=True)
class CheckedFile:
    """A file, and what its footer says of each column of each row group.

    pyarrow's own words for these end the process where they contradict the schema: exceptions of C++ that nobody
    catches.
    """

    file: pq.ParquetFile
    row_groups: "tuple[RowGroup, ...]"


@dataclass(frozen=True)
class RowGroup:
    """A row group as the footer has it."""

    rows: int
    size: int
    chunks: "tuple[Chunk, ...]"

    @classmethod
    def of(cls, told: Any, schema: pq.ParquetSchema) -> "RowGroup":
        columns = [column[_META] for column in told[_COLUMNS]]
        if len(columns) != len(schema):
            raise ValueError(f"a row group of {len(columns)} columns where the schema has {len(schema)}")
        chunks = tuple(Chunk.of(column, schema.column(at)) for at, column in enumerate(columns))
        return cls(told[_GROUP_ROWS], told[_GROUP_BYTES], chunks)


def opened(source: Any, key: str, limits: ReadLimits) -> CheckedFile:
    """The file, its footer checked.

    Raises:
        IntegrityError: it asks for more than `limits` allow.
        ValueError: its footer contradicts itself. Arrow raises what it has of a file that is none.
    """
    size = source.seek(0, 2)
    source.seek(max(size - _TAIL_BYTES, 0))
    tail = source.read(min(size, _TAIL_BYTES))
    footer = int.from_bytes(tail[-_END_BYTES:-_MAGIC_BYTES], "little")
    if footer > limits.footer_bytes and footer <= size:
        raise beyond(key, f"has a footer of {footer:,} bytes", "footer.bytes")
    source.seek(0)
    # without pre_buffer: its threads may outlive the interpreter and abort the process (apache/arrow 34314)
    file = pq.ParquetFile(source, page_checksum_verification=True, thrift_container_size_limit=_CONTAINER_ITEMS)
    if footer + _END_BYTES > len(tail):
        source.seek(size - footer - _END_BYTES)
        tail = source.read(footer + _END_BYTES)
        source.seek(0)
    try:
        told, _ = struct_at(memoryview(tail)[len(tail) - footer - _END_BYTES : len(tail) - _END_BYTES], 0)
        groups = tuple(RowGroup.of(group, file.schema) for group in told[_ROW_GROUPS])
    except (LookupError, TypeError, AttributeError) as err:
        raise ValueError(f"its footer is none that is read: {err!r}") from err
    rows, told_bytes = sum(group.rows for group in groups), sum(group.size for group in groups)
    if rows > max(limits.empty_records, told_bytes):
        raise beyond(key, f"has {rows:,} records in {told_bytes:,} bytes", "empty.records")
    return CheckedFile(file, groups)


class RowGroupPages:
    """The pages of one row group, read at once where they lie together. `key` names the file in errors.

    Raises:
        ValueError: what they say of themselves contradicts the footer.
        IntegrityError: they ask for more than `limits` allow.
    """

    def __init__(self, source: Any, row_group: RowGroup, key: str, limits: ReadLimits) -> None:
        self._source, self._key, self._limits = source, key, limits
        self._chunks, self._rows = row_group.chunks, max(row_group.rows, 1)
        self._size = source.seek(0, 2)
        held = sum(chunk.size for chunk in self._chunks)
        if any(chunk.start < 0 or chunk.size < 0 or chunk.start + chunk.size > self._size for chunk in self._chunks):
            raise ValueError("a column lies outside of the file")
        if held > min(limits.row_group_bytes, self._size):
            raise beyond(key, f"has a row group of {held:,} bytes", "row.group.bytes")

    def batch_rows(self, most: int) -> int:
        """How many records a batch may have, at most `most`, so that it takes some tens of megabytes."""
        weight = largest = 0.0
        for chunk, data in self._read():
            pages = list(self._pages(chunk, data))
            largest += max((page.size for page in pages), default=0)
            if largest > self._limits.block_bytes:
                what = f"has pages that come to more than {self._limits.block_bytes:,} bytes at once"
                raise beyond(self._key, what, "block.bytes")
            weight += self._weight(chunk, pages)
        return max(1, min(most, math.floor(_BATCH_BYTES / max(weight, 1))))

    def _read(self) -> "Iterator[tuple[Chunk, memoryview]]":
        """The bytes of each column: one read where they lie together, from which Arrow is served too."""
        start = min((c.start for c in self._chunks), default=0)
        end = max((c.start + c.size for c in self._chunks), default=0)
        if end - start <= sum(c.size for c in self._chunks):
            data = memoryview(self._bytes(start, end - start))
            yield from ((c, data[c.start - start : c.start - start + c.size]) for c in self._chunks)
        else:
            yield from ((c, memoryview(self._bytes(c.start, c.size))) for c in self._chunks)

    def _bytes(self, start: int, size: int) -> bytes:
        self._source.seek(start)
        found: bytes = self._source.read(size)
        return found

    def _pages(self, chunk: "Chunk", data: memoryview) -> "Iterator[_Page]":
        pos = values = 0
        while pos < len(data):
            try:
                found, body = struct_at(data, pos)
                page = _Page.of(found, data[body : body + found[_COMPRESSED]])
            except (ValueError, LookupError, TypeError, AttributeError) as err:
                if values >= chunk.values:
                    return  # old writers leave bytes behind their pages
                raise ValueError(f"column {chunk.name} has a page without a head: {err!r}") from err
            if min(page.size, found[_COMPRESSED], page.values) < 0 or body + found[_COMPRESSED] > len(data):
                raise ValueError(f"column {chunk.name} has a page of {found[_COMPRESSED]} bytes in {len(data)}")
            if page.size > self._limits.block_bytes:
                raise beyond(self._key, f"has a page of {page.size:,} bytes", "block.bytes")
            values += 0 if page.is_dictionary else page.values
            yield page
            pos = body + found[_COMPRESSED]

    def _weight(self, chunk: "Chunk", pages: "list[_Page]") -> float:
        """Bytes that a record may take of this column, about: of a page that is plain, its share."""
        values = sum(page.values for page in pages if not page.is_dictionary)
        if chunk.is_repeated and values > max(self._limits.empty_records, sum(page.size for page in pages)):
            raise beyond(self._key, f"has {values:,} values in one column", "empty.records")
        dictionary = max((chunk.longest(page) for page in pages if page.is_dictionary), default=0)
        blocks = _MOST_BLOCKS_OF_LISTS if chunk.is_repeated else _MOST_BLOCKS
        if values * dictionary > blocks * self._limits.block_bytes:
            raise beyond(self._key, f"has {values:,} values of up to {dictionary:,} bytes in one column", "block.bytes")
        weights = (page.weight(chunk, dictionary) for page in pages if not page.is_dictionary)
        items: float = max(1.0, values / self._rows)
        return max(weights, default=0.0) * items


@dataclass(frozen=True)
class Chunk:
    """A column of a row group: where it lies, what it holds."""

    name: str
    start: int
    size: int
    values: int
    codec: int
    kind: str
    width: int
    is_repeated: bool

    least: bytes | None
    most: bytes | None
    nulls: int | None

    @classmethod
    def of(cls, told: Any, column: pq.ColumnSchema) -> "Chunk":
        # Arrow begins at the dictionary where it is said to lie before the data.
        starts = [told[_DATA_AT], told.get(_DICTIONARY_AT) or told[_DATA_AT]]
        statistics = told.get(_STATISTICS, {})
        return cls(
            name=column.path,
            start=min(starts),
            size=told[_CHUNK_BYTES],
            values=told[_CHUNK_VALUES],
            codec=told[_CODEC],
            kind=column.physical_type,
            width=column.length if column.physical_type == _FIXED else 12,
            is_repeated=column.max_repetition_level > 0,
            least=_bytes_or_none(statistics.get(_LEAST)),
            most=_bytes_or_none(statistics.get(_MOST)),
            nulls=statistics.get(_NULLS),
        )

    def longest(self, page: "_Page") -> int:
        """Bytes of the longest value of a dictionary, at most those of all of them."""
        if self.kind != _BYTE_ARRAY:
            return self.width
        if page.size <= _SMALL_DICTIONARY or self.codec not in _CODECS:
            return page.size
        data = bytes(page.body)
        if _CODECS[self.codec]:
            data = pa.Codec(_CODECS[self.codec]).decompress(data, page.size, asbytes=True)
        at = longest = 0
        while at + 4 <= len(data):
            size = int.from_bytes(data[at : at + 4], "little")
            longest, at = max(longest, size), at + 4 + size
        return min(longest, page.size)


def _bytes_or_none(found: Any) -> bytes | None:
    return None if found is None else bytes(found)


_CODECS = {0: "", 1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd"}


@dataclass(frozen=True)
class _Page:
    """A page by its header; `size` is what it comes to."""

    kind: int
    size: int
    values: int
    encoding: int
    body: memoryview

    @property
    def is_dictionary(self) -> bool:
        return self.kind == _DICTIONARY

    @classmethod
    def of(cls, found: dict[int, Any], body: memoryview) -> "_Page":
        kind = found[_TYPE]
        if kind == _DICTIONARY:
            return cls(kind, found[_SIZE], found[_DICTIONARY_HEAD][_COUNT], 0, body)
        if kind not in (_DATA, _DATA_V2):
            return cls(kind, found[_SIZE], 0, 0, body)
        head, encoding = (found[_V2_HEAD], _V2_ENCODING) if kind == _DATA_V2 else (found[_DATA_HEAD], _ENCODING)
        return cls(kind, found[_SIZE], head[_COUNT], head[encoding], body)

    def weight(self, chunk: Chunk, dictionary: int) -> float:
        """Bytes that one of its values may take, on the average where nothing repeats a longer one."""
        if chunk.kind != _BYTE_ARRAY:
            return chunk.width
        if self.encoding in _BY_DICTIONARY:
            return dictionary
        return self.size if self.encoding == _BY_PREFIX else self.size / max(self.values, 1)
