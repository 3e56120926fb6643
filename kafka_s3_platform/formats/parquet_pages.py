"""Looks at what Parquet files say of themselves, before Arrow takes memory for it.

Arrow takes for each page what its header says it comes to, and for each batch what its rows come to: a page of some
bytes may say gigabytes, an entry of a dictionary may be a value a million times. So the headers of a row group's pages
are read first, from bytes that are read for Arrow too, and batches have as many rows as fit.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kafka_s3_platform.formats.content import HEAD_BYTES, foreign_to_parquet
from kafka_s3_platform.formats.damage import beyond
from kafka_s3_platform.formats.thrift import struct_at
from kafka_s3_platform.model.avro_walk import FEW_VALUES
from kafka_s3_platform.model.limits import ReadLimits

_TAIL_BYTES, _MAGIC_BYTES, _END_BYTES = 65_536, 4, 8
"""Arrow reads as much at the end of a file at once: a source that keeps its last read serves it from it."""

# pre_buffer reads whole row groups, by threads that may outlive the interpreter and abort it (apache/arrow 34314).
_CHECKED: Mapping[str, Any] = {
    "page_checksum_verification": True,
    "pre_buffer": False,
    "thrift_container_size_limit": 100_000,
}
_BATCH_BYTES = 8_388_608
_SMALL_BYTES = 37_748_736
"""Stored bytes of a row group that is read at once: a little more than those that we write."""

BUFFER_BYTES = 4_194_304
"""How much of a column of any other is read at a time, by Arrow too: what is fetched of an object at once."""

_HEAD_BYTES = 1_048_576
"""More than the head of a page has, with the least and the greatest value."""

_PAGES_WITHOUT_VALUES = 16
_POINTER_BYTES = 16
"""What Arrow takes for each value of a dictionary beside its bytes."""

_OFFSET_BYTES = 4
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

    def buffered(self, source: Any) -> pq.ParquetFile:
        """The same file, of which some of a column is read at a time."""
        return pq.ParquetFile(source, metadata=self.file.metadata, buffer_size=BUFFER_BYTES, **_CHECKED)

    def encoded(self, source: Any, row_group: int) -> pq.ParquetFile:
        """The same file, whose columns of bytes come as they are stored: places in a dictionary."""
        names = [chunk.name for chunk in self.row_groups[row_group].chunks if chunk.kind == _BYTE_ARRAY]
        return pq.ParquetFile(
            source, metadata=self.file.metadata, buffer_size=BUFFER_BYTES, read_dictionary=names, **_CHECKED
        )


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
        return cls(_number(told, _GROUP_ROWS), _number(told, _GROUP_BYTES), chunks)


def opened(source: Any, key: str, limits: ReadLimits) -> CheckedFile:
    """The file, its footer checked.

    Raises:
        IntegrityError: it asks for more than `limits` allow.
        ValueError: its footer contradicts itself. Arrow raises what it has of a file that is none.
    """
    size = source.seek(0, 2)
    source.seek(0)
    if what := foreign_to_parquet(source.read(HEAD_BYTES)):
        raise ValueError(f"it does not begin as Parquet does, it is {what}")
    source.seek(max(size - _TAIL_BYTES, 0))
    tail = source.read(min(size, _TAIL_BYTES))
    footer = int.from_bytes(tail[-_END_BYTES:-_MAGIC_BYTES], "little")
    if footer > limits.footer_bytes and footer <= size:
        raise beyond(key, f"has a footer of {footer:,} bytes", "footer.bytes")
    source.seek(0)
    file = pq.ParquetFile(source, **_CHECKED)
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


@dataclass(frozen=True)
class Look:
    """What reading a row group takes: of each of its columns `open_bytes`, beside a batch of `rows` records.

    Of a column of lists, `list_bytes` are what it comes to if all of it is one record's, 0 of others: only its pages
    tell where a record ends. `size` are the bytes of all pages, uncompressed.
    """

    rows: int
    open_bytes: tuple[int, ...]
    list_bytes: tuple[int, ...]
    size: int


class RowGroupPages:
    """The pages of one row group. `key` names the file in errors.

    Raises:
        ValueError: what they say of themselves contradicts the footer.
        IntegrityError: they ask for more than `limits` allow.
    """

    def __init__(self, source: Any, row_group: RowGroup, key: str, limits: ReadLimits) -> None:
        self._source, self._key, self._limits = source, key, limits
        self._chunks, self._rows = row_group.chunks, row_group.rows
        size, held = source.seek(0, 2), sum(chunk.size for chunk in self._chunks)
        if any(chunk.start < 0 or chunk.size < 0 or chunk.start + chunk.size > size for chunk in self._chunks):
            raise ValueError("a column lies outside of the file")
        if held > min(limits.row_group_bytes, size):
            raise beyond(key, f"has a row group of {held:,} bytes", "row.group.bytes")
        self.is_small = held <= _SMALL_BYTES

    def look(self, most: int) -> Look:
        """At the head of each page. Batches are of at most `most` records, and so that they take some megabytes."""
        found = [self._column(chunk, window) for chunk, window in self._windows()]
        rows = math.floor(_BATCH_BYTES / max(sum(column.weight(self._rows) for column in found), 1))
        return Look(
            max(1, min(most, rows)),
            tuple(column.memory + self._buffered(column) for column in found),
            tuple(column.whole if column.chunk.is_repeated else 0 for column in found),
            sum(column.size for column in found),
        )

    def _buffered(self, column: "_Column") -> int:
        return 0 if self.is_small else min(column.chunk.size, max(column.stored, BUFFER_BYTES))

    def _windows(self) -> "Iterator[tuple[Chunk, _Window]]":
        """The bytes of each column: of a small row group one read, from which Arrow is served too."""
        start = min((c.start for c in self._chunks), default=0)
        end = max((c.start + c.size for c in self._chunks), default=0)
        if not self.is_small or end - start > sum(c.size for c in self._chunks):
            yield from ((c, _Window(self._source, c)) for c in self._chunks)
            return
        self._source.seek(start)
        data = memoryview(self._source.read(end - start))
        yield from (
            (c, _Window(self._source, c, data[c.start - start : c.start - start + c.size])) for c in self._chunks
        )

    def _column(self, chunk: "Chunk", window: "_Window") -> "_Column":
        column = _Column(chunk)
        for page, body in self._pages(chunk, window):
            column.add(page)
            if column.memory > self._limits.block_bytes:
                raise beyond(self._key, f"has pages of {column.memory:,} bytes in one column", "block.bytes")
            if page.is_dictionary:
                column.longest = chunk.longest(page, body)
        if not chunk.is_repeated and column.values != self._rows:
            raise ValueError(f"column {chunk.name} has {column.values} values in a row group of {self._rows} records")
        if chunk.is_repeated and column.values > max(self._limits.empty_records, column.size):
            raise beyond(self._key, f"has {column.values:,} values in one column", "empty.records")
        if column.values > FEW_VALUES * self._limits.items * self._rows:
            # one of them has more than its share, before any is read
            raise beyond(self._key, f"has {column.values:,} values in {self._rows:,} records", "items")
        blocks = _MOST_BLOCKS_OF_LISTS if chunk.is_repeated else _MOST_BLOCKS
        if column.values * column.longest > blocks * self._limits.block_bytes:
            what = f"has {column.values:,} values of up to {column.longest:,} bytes in one column"
            raise beyond(self._key, what, "block.bytes")
        return column

    def _pages(self, chunk: "Chunk", window: "_Window") -> "Iterator[tuple[_Page, memoryview]]":
        """Each page, and the bytes of those that are a dictionary."""
        pos = values = pages = 0
        while pos < chunk.size:
            try:
                found, head = struct_at(window.at(pos, _HEAD_BYTES), 0)
                page = _Page.of(found)
            except (ValueError, LookupError, TypeError, AttributeError) as err:
                if values >= chunk.values:
                    return  # old writers leave bytes behind their pages
                raise ValueError(f"column {chunk.name} has a page without a head: {err!r}") from err
            pos += head
            if min(page.size, page.stored, page.values) < 0 or pos + page.stored > chunk.size:
                raise ValueError(f"column {chunk.name} has a page of {page.stored} bytes in {chunk.size}")
            if page.size > self._limits.block_bytes:
                raise beyond(self._key, f"has a page of {page.size:,} bytes", "block.bytes")
            values, pages = values + (0 if page.is_dictionary else page.values), pages + 1
            if pages > values + _PAGES_WITHOUT_VALUES:
                raise ValueError(f"column {chunk.name} has {pages} pages of {values} values")
            yield page, window.at(pos, page.stored)[: page.stored] if page.is_dictionary else memoryview(b"")
            pos += page.stored


class _Window:
    """The bytes of a column: all of them, or some at a time."""

    def __init__(self, source: Any, chunk: "Chunk", data: memoryview | None = None) -> None:
        self._source, self._chunk, self._data, self._from = source, chunk, data or memoryview(b""), 0

    def at(self, pos: int, size: int) -> memoryview:
        """What begins at `pos`: `size` bytes at least, where there are so many."""
        size = min(size, self._chunk.size - pos)
        if pos < self._from or pos + size > self._from + len(self._data):
            self._source.seek(self._chunk.start + pos)
            self._data = memoryview(self._source.read(min(max(size, BUFFER_BYTES), self._chunk.size - pos)))
            self._from = pos
        return self._data[pos - self._from :]


class _Column:
    """What a column comes to: `memory` are its largest page and its dictionary, `longest` is a value of that."""

    def __init__(self, chunk: "Chunk") -> None:
        self.chunk = chunk
        self.values = self.size = self.longest = self.stored = 0
        self._dictionary = self._page = 0
        self._value = 0.0

    @property
    def memory(self) -> int:
        return self._dictionary + self._page

    @property
    def whole(self) -> int:
        """What all of its values may come to."""
        is_bytes = self.chunk.kind == _BYTE_ARRAY
        return self.values * (_OFFSET_BYTES + self.longest) + self.size if is_bytes else self.values * self.chunk.width

    def add(self, page: "_Page") -> None:
        """Count a page."""
        self.stored = max(self.stored, page.stored)
        if page.is_dictionary:
            self._dictionary = page.size + _POINTER_BYTES * page.values
            return
        self._page = max(self._page, page.size)
        self.values, self.size = self.values + page.values, self.size + page.size
        self._value = max(self._value, page.weight(self.chunk, self.longest))

    def weight(self, rows: int) -> float:
        """Bytes that a record may take of this column, about: of a page that is plain, its share."""
        return self._value * max(1.0, self.values / max(rows, 1))


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
        starts = [_number(told, _DATA_AT), _number(told, _DICTIONARY_AT if told.get(_DICTIONARY_AT) else _DATA_AT)]
        statistics = told.get(_STATISTICS, {})
        return cls(
            name=column.path,
            start=min(starts),
            size=_number(told, _CHUNK_BYTES),
            values=_number(told, _CHUNK_VALUES),
            codec=_number(told, _CODEC),
            kind=column.physical_type,
            width=column.length if column.physical_type == _FIXED else 12,
            is_repeated=column.max_repetition_level > 0,
            least=_bytes_or_none(statistics.get(_LEAST)),
            most=_bytes_or_none(statistics.get(_MOST)),
            nulls=_number(statistics, _NULLS) if _NULLS in statistics else None,
        )

    def longest(self, page: "_Page", body: memoryview) -> int:
        """Bytes of the longest value of a dictionary, at most those of all of them."""
        if self.kind != _BYTE_ARRAY:
            return self.width
        if page.size <= _SMALL_DICTIONARY or self.codec not in _CODECS:
            return page.size
        data = bytes(body)
        if _CODECS[self.codec]:
            data = pa.Codec(_CODECS[self.codec]).decompress(data, page.size, asbytes=True)
        at = longest = 0
        while at + 4 <= len(data):
            size = int.from_bytes(data[at : at + 4], "little")
            longest, at = max(longest, size), at + 4 + size
        return min(longest, page.size)


def _number(told: Mapping[int, Any], field: int) -> int:
    """A field of a struct, which may be anything. ValueError where it is no number."""
    found = told[field]
    if type(found) is not int:
        raise ValueError(f"field {field} of a struct is no number but {type(found).__name__}")
    return found


def _bytes_or_none(found: Any) -> bytes | None:
    """Of a number, Python would make as many bytes."""
    return bytes(found) if isinstance(found, memoryview) else None


_CODECS = {0: "", 1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd"}


@dataclass(frozen=True)
class _Page:
    """A page by its header: `size` is what its `stored` bytes come to."""

    kind: int
    size: int
    stored: int
    values: int
    encoding: int

    @property
    def is_dictionary(self) -> bool:
        return self.kind == _DICTIONARY

    @classmethod
    def of(cls, found: dict[int, Any]) -> "_Page":
        kind, sizes = _number(found, _TYPE), (_number(found, _SIZE), _number(found, _COMPRESSED))
        if kind == _DICTIONARY:
            return cls(kind, *sizes, _number(found[_DICTIONARY_HEAD], _COUNT), 0)
        if kind not in (_DATA, _DATA_V2):
            return cls(kind, *sizes, 0, 0)
        head, encoding = (found[_V2_HEAD], _V2_ENCODING) if kind == _DATA_V2 else (found[_DATA_HEAD], _ENCODING)
        return cls(kind, *sizes, _number(head, _COUNT), _number(head, encoding))

    def weight(self, chunk: Chunk, dictionary: int) -> float:
        """Bytes that one of its values may take, on the average where nothing repeats a longer one."""
        if chunk.kind != _BYTE_ARRAY:
            return chunk.width
        if self.encoding in _BY_DICTIONARY:
            return dictionary
        return self.size if self.encoding == _BY_PREFIX else self.size / max(self.values, 1)
