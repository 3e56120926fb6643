"""Checks the sizes that Parquet files claim, before Arrow allocates memory for them.

Arrow allocates as much for a page as its header claims, and as much for a batch as its rows come to: a page of a few
bytes may claim gigabytes, and an entry of a dictionary may be repeated a million times. So the page headers of a row
group are read first, from the same bytes that Arrow reads later, and batches have as many rows as fit.

Footers and page headers are structs of Thrift. Source: Apache Thrift, "Thrift Compact protocol encoding".
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kafka_s3_platform.core.formats.magic_bytes import HEAD_BYTES, describe_foreign_to_parquet
from kafka_s3_platform.core.formats.reading import build_limit_error
from kafka_s3_platform.core.model.limits import FEW_VALUES, ReadLimits

_TRUE = 1
_FALSE = 2
_DOUBLE = 7
_BINARY = 8
_LISTS = (9, 10)
_STRUCT = 12
_NUMBERS = (3, 4, 5, 6)
# More than Parquet's structs need. Damaged bytes may claim any number.
_MAX_DEPTH = 12
_MAX_ITEMS = 100_000
# Each byte carries 7 of the 64 bits.
_MAX_BYTES = 10


def read_struct(data: memoryview, pos: int, depth: int = 0) -> tuple[dict[int, Any], int]:
    """Return the fields of the struct at `pos` by their ids, and the position after the struct.

    No field may occur twice: some readers take the first, others the last. Maps are not supported, as Parquet has none.

    Raises:
        ValueError: the bytes are no such struct.
        IndexError: it is cut off.
    """
    if depth > _MAX_DEPTH:
        raise ValueError("structs lie too deep inside each other")
    fields: dict[int, Any] = {}
    field = 0
    while head := data[pos]:
        pos += 1
        # The upper half of the byte is the distance to the last id. 0: the id follows as a number of its own.
        if head >> 4:
            field += head >> 4
        else:
            field, pos = _read_zigzag(data, pos)
        if field in fields:
            raise ValueError(f"field {field} comes twice")
        fields[field], pos = _read_value(data, pos, head & 15, depth)
    return fields, pos + 1


def _read_value(data: memoryview, pos: int, kind: int, depth: int) -> tuple[Any, int]:
    """Read the value of a field of type `kind` at `pos`. Return it and the position after it."""
    if kind in (_TRUE, _FALSE):
        return kind == _TRUE, pos
    if kind in _NUMBERS:
        return _read_zigzag(data, pos) if kind > _NUMBERS[0] else (data[pos], pos + 1)
    if kind == _DOUBLE:
        return None, _check_end(data, pos + 8)
    if kind == _BINARY:
        size, pos = _read_varint(data, pos)
        return data[pos : pos + size], _check_end(data, pos + size)
    if kind == _STRUCT:
        return read_struct(data, pos, depth + 1)
    if kind in _LISTS:
        return _read_list(data, pos, depth + 1)
    raise ValueError(f"a field of type {kind}")


def _read_list(data: memoryview, pos: int, depth: int) -> tuple[list[Any], int]:
    """Read a list of Thrift at `pos`. Return its items and the position after it."""
    head = data[pos]
    pos = pos + 1
    count = head >> 4
    kind = head & 15
    # 15 means that the number of items follows.
    if count == 15:
        count, pos = _read_varint(data, pos)
    if count > min(len(data) - pos, _MAX_ITEMS) or depth > _MAX_DEPTH:
        raise ValueError(f"a list of {count} items")
    items = []
    for _ in range(count):
        # A boolean takes a byte as an item. As a field it takes none: its type is its value.
        value, pos = (data[pos] == _TRUE, pos + 1) if kind in (_TRUE, _FALSE) else _read_value(data, pos, kind, depth)
        items.append(value)
    return items, pos


def _read_zigzag(data: memoryview, pos: int) -> tuple[int, int]:
    """Read a signed number of Thrift. Return it and the position after it."""
    value, pos = _read_varint(data, pos)
    return value >> 1 ^ -(value & 1), pos


def _read_varint(data: memoryview, pos: int) -> tuple[int, int]:
    """Read an unsigned number, seven bits a byte, the low ones first. Return it and the position after it."""
    value = 0
    for place in range(_MAX_BYTES):
        byte = data[pos + place]
        value |= (byte & 127) << 7 * place
        if byte < 128:
            return value, pos + place + 1
    raise ValueError("a number has more than 64 bits")


def _check_end(data: memoryview, pos: int) -> int:
    """Return the position. Raise IndexError if it is beyond the data, because the struct is cut off."""
    if pos > len(data):
        raise IndexError(pos)
    return pos


# Arrow reads this much at the end of a file at once: a source that keeps its last read then serves Arrow from memory.
TAIL_BYTES = 65_536
_MAGIC = b"PAR1"
_END_BYTES = 8
"""The end of a file: the size of the footer, then the magic bytes."""

# pre_buffer reads whole row groups, in threads that may outlive the interpreter and abort it (apache/arrow 34314).
_CHECKED: Mapping[str, Any] = {
    "page_checksum_verification": True,
    "pre_buffer": False,
    "thrift_container_size_limit": 100_000,
    # Nanoseconds, Arrow's default for INT96, hold the years 1677 to 2262, and other years become some of these.
    "coerce_int96_timestamp_unit": "us",
}
_BATCH_BYTES = 8_388_608
_SMALL_BYTES = 37_748_736
"""A row group of at most this many stored bytes is read at once. Those that we write are a little smaller."""

BUFFER_BYTES = 4_194_304
"""The bytes of a column of a larger row group read at a time, also by Arrow. An object is fetched in such pieces."""

_HEAD_BYTES = 1_048_576
"""More bytes than the header of a page takes, with its least and its greatest value."""

# A file may have empty pages, but a hostile one may have a million of them.
_PAGES_WITHOUT_VALUES = 16
_POINTER_BYTES = 16
"""The bytes that Arrow takes for each value of a dictionary, besides the value's own."""

_OFFSET_BYTES = 4
_SMALL_DICTIONARY = 256
_MOST_BLOCKS = 128
_MOST_BLOCKS_OF_LISTS = 8
"""The largest size of a column, in multiples of a block's limit, if each value is its dictionary's longest."""

# The numbers of Parquet's Thrift definition: types of pages, fields of structs, and encodings.
_DATA = 0
_DICTIONARY = 2
_DATA_V2 = 3
_TYPE = 1
_SIZE = 2
_COMPRESSED = 3
_DATA_HEAD = 5
_DICTIONARY_HEAD = 7
_V2_HEAD = 8
_ROW_GROUPS = 4
_COLUMNS = 1
_GROUP_BYTES = 2
_GROUP_ROWS = 3
_META = 3
_CODEC = 4
_CHUNK_VALUES = 5
_CHUNK_BYTES = 7
_DATA_AT = 9
_DICTIONARY_AT = 11
_STATISTICS = 12
_NULLS = 3
_MOST = 5
_LEAST = 6
_COUNT = 1
_ENCODING = 2
_V2_ENCODING = 4
_BY_DICTIONARY = (2, 8)
_BY_PREFIX = 7
_BYTE_ARRAY = "BYTE_ARRAY"
_FIXED = "FIXED_LEN_BYTE_ARRAY"


@dataclass(frozen=True)
class CheckedFile:
    """A file that Arrow can safely open, and what its footer says about each column of each row group.

    We parse the footer ourselves, because pyarrow's own properties end the process with a C++ exception if it
    contradicts the schema.
    """

    file: pq.ParquetFile
    row_groups: "tuple[RowGroup, ...]"

    def buffered(self, source: Any) -> pq.ParquetFile:
        """Open the same file again, to read a part of a column at a time."""
        return pq.ParquetFile(source, metadata=self.file.metadata, buffer_size=BUFFER_BYTES, **_CHECKED)

    def encoded(self, source: Any, row_group: int) -> pq.ParquetFile:
        """Open the file `source` once more, to read columns of bytes as indices into a dictionary.

        A value that is repeated a million times then takes memory only once. The columns are the row group's.
        """
        names = [chunk.name for chunk in self.row_groups[row_group].chunks if chunk.kind == _BYTE_ARRAY]
        return pq.ParquetFile(
            source, metadata=self.file.metadata, buffer_size=BUFFER_BYTES, read_dictionary=names, **_CHECKED
        )


@dataclass(frozen=True)
class RowGroup:
    """A row group, as the footer describes it: number of rows, uncompressed bytes, and its columns."""

    rows: int
    size: int
    chunks: "tuple[ColumnChunk, ...]"

    @classmethod
    def of(cls, struct: Any, schema: pq.ParquetSchema) -> "RowGroup":
        """Read the description from the footer's struct. Raises ValueError, LookupError or TypeError if it is none."""
        columns = [column[_META] for column in struct[_COLUMNS]]
        if len(columns) != len(schema):
            raise ValueError(f"a row group of {len(columns)} columns where the schema has {len(schema)}")
        chunks = tuple(ColumnChunk.of(column, schema.column(at)) for at, column in enumerate(columns))
        return cls(_read_number(struct, _GROUP_ROWS), _read_number(struct, _GROUP_BYTES), chunks)


def open_checked(source: Any, key: str, limits: ReadLimits) -> CheckedFile:
    """Open the file and check its footer.

    Raises:
        IntegrityError: it exceeds `limits`.
        ValueError: its footer contradicts itself. Arrow's errors for a file of another format pass through.
    """
    size = source.seek(0, 2)
    source.seek(max(size - TAIL_BYTES, 0))
    tail = source.read(min(size, TAIL_BYTES))
    if not tail.endswith(_MAGIC):
        source.seek(0)
        if what := describe_foreign_to_parquet(source.read(HEAD_BYTES)):
            raise ValueError(f"it does not begin as Parquet does, it is {what}")
    footer_size = int.from_bytes(tail[-_END_BYTES : -len(_MAGIC)], "little")
    # A number above the size of the file is no footer. Arrow reports that.
    if footer_size > limits.footer_bytes and footer_size <= size:
        raise build_limit_error(key, f"has a footer of {footer_size:,} bytes", "footer.bytes")
    source.seek(0)
    file = pq.ParquetFile(source, **_CHECKED)
    if footer_size + _END_BYTES > len(tail):
        source.seek(size - footer_size - _END_BYTES)
        tail = source.read(footer_size + _END_BYTES)
        source.seek(0)
    try:
        footer, _ = read_struct(memoryview(tail)[len(tail) - footer_size - _END_BYTES : len(tail) - _END_BYTES], 0)
        groups = tuple(RowGroup.of(group, file.schema) for group in footer[_ROW_GROUPS])
    except (LookupError, TypeError, AttributeError) as err:
        raise ValueError(f"its footer cannot be read: {err!r}") from err
    rows = sum(group.rows for group in groups)
    group_bytes = sum(group.size for group in groups)
    # Rows of nulls take no bytes, so their number has a limit of its own.
    if rows > max(limits.empty_records, group_bytes):
        raise build_limit_error(key, f"has {rows:,} records in {group_bytes:,} bytes", "empty.records")
    return CheckedFile(file, groups)


@dataclass(frozen=True)
class ReadMemory:
    """The memory that reading a row group takes.

    Attributes:
        rows: the number of records in a batch.
        open_bytes: the bytes that each column takes besides the batch.
        list_bytes: for each column of lists, its size if all of it belongs to one record, since page headers do not
            show where records end; 0 for other columns.
        size: the bytes of all pages, uncompressed.
        decoded_bytes: the most bytes of the decoded values, all together.
    """

    rows: int
    open_bytes: tuple[int, ...]
    list_bytes: tuple[int, ...]
    size: int
    decoded_bytes: float


class RowGroupPages:
    """Reads the page headers of one row group, to find out how much memory reading it takes. `key` is for errors.

    Raises ValueError if the headers contradict the footer, and IntegrityError if the pages exceed `limits`.
    """

    def __init__(self, source: Any, row_group: RowGroup, key: str, limits: ReadLimits) -> None:
        self._source = source
        self._key = key
        self._limits = limits
        self._chunks = row_group.chunks
        self._rows = row_group.rows
        size = source.seek(0, 2)
        stored_bytes = sum(chunk.size for chunk in self._chunks)
        if any(chunk.start < 0 or chunk.size < 0 or chunk.start + chunk.size > size for chunk in self._chunks):
            raise ValueError("a column lies outside of the file")
        if stored_bytes > min(limits.row_group_bytes, size):
            raise build_limit_error(key, f"has a row group of {stored_bytes:,} bytes", "row.group.bytes")
        self.is_small = stored_bytes <= _SMALL_BYTES

    def measure(self, most: int) -> ReadMemory:
        """Read all page headers. Return the memory that reading takes, in batches of at most `most` records."""
        columns = [self._column(chunk, window) for chunk, window in self._windows()]
        rows = math.floor(_BATCH_BYTES / max(sum(column.weight(self._rows) for column in columns), 1))
        return ReadMemory(
            max(1, min(most, rows)),
            tuple(column.memory + self._buffered(column) for column in columns),
            tuple(column.max_bytes if column.chunk.is_repeated else 0 for column in columns),
            sum(column.size for column in columns),
            sum(column.decoded_bytes for column in columns),
        )

    def _buffered(self, column: "_Column") -> int:
        """Return the bytes that Arrow buffers for this column: none for a small row group, already in memory."""
        if self.is_small:
            return 0
        return min(column.chunk.size, max(column.stored_bytes, BUFFER_BYTES))

    def _windows(self) -> "Iterator[tuple[ColumnChunk, _Window]]":
        """Open the bytes of each column. A small row group is read at once, and Arrow gets its bytes from memory."""
        start = min((c.start for c in self._chunks), default=0)
        end = max((c.start + c.size for c in self._chunks), default=0)
        # Bytes between the columns would be read in vain, and may be many.
        if not self.is_small or end - start > sum(c.size for c in self._chunks):
            yield from ((c, _Window(self._source, c)) for c in self._chunks)
            return
        self._source.seek(start)
        data = memoryview(self._source.read(end - start))
        yield from (
            (c, _Window(self._source, c, data[c.start - start : c.start - start + c.size])) for c in self._chunks
        )

    def _column(self, chunk: "ColumnChunk", window: "_Window") -> "_Column":
        """Sum up the sizes that the column's page headers claim. Raise IntegrityError if they exceed a limit."""
        column = _Column(chunk)
        for page, body in self._pages(chunk, window):
            column.add(page)
            if column.memory > self._limits.block_bytes:
                raise build_limit_error(self._key, f"has pages of {column.memory:,} bytes in one column", "block.bytes")
            if page.is_dictionary:
                column.longest = chunk.measure_longest(page, body)
        if not chunk.is_repeated and column.values != self._rows:
            raise ValueError(f"column {chunk.name} has {column.values} values in a row group of {self._rows} records")
        if chunk.is_repeated and column.values > max(self._limits.empty_records, column.size):
            raise build_limit_error(self._key, f"has {column.values:,} values in one column", "empty.records")
        if column.values > FEW_VALUES * self._limits.items * self._rows:
            # At least one record has more values than the limit.
            raise build_limit_error(self._key, f"has {column.values:,} values in {self._rows:,} records", "items")
        blocks = _MOST_BLOCKS_OF_LISTS if chunk.is_repeated else _MOST_BLOCKS
        if column.values * column.longest > blocks * self._limits.block_bytes:
            what = f"has {column.values:,} values of up to {column.longest:,} bytes in one column"
            raise build_limit_error(self._key, what, "block.bytes")
        return column

    def _pages(self, chunk: "ColumnChunk", window: "_Window") -> "Iterator[tuple[_Page, memoryview]]":
        """Yield each page of the column, with its bytes if it is a dictionary."""
        pos = values = pages = 0
        while pos < chunk.size:
            try:
                header, head = read_struct(window.at(pos, _HEAD_BYTES), 0)
                page = _Page.of(header)
            except (ValueError, LookupError, TypeError, AttributeError) as err:
                if values >= chunk.values:
                    return  # old writers leave bytes after the last page
                raise ValueError(f"column {chunk.name} has a page without a head: {err!r}") from err
            pos += head
            if min(page.size, page.stored_bytes, page.values) < 0 or pos + page.stored_bytes > chunk.size:
                raise ValueError(f"column {chunk.name} has a page of {page.stored_bytes} bytes in {chunk.size}")
            if page.size > self._limits.block_bytes:
                raise build_limit_error(self._key, f"has a page of {page.size:,} bytes", "block.bytes")
            values = values + (0 if page.is_dictionary else page.values)
            pages = pages + 1
            if pages > values + _PAGES_WITHOUT_VALUES:
                raise ValueError(f"column {chunk.name} has {pages} pages of {values} values")
            size = page.stored_bytes
            yield page, window.at(pos, size)[:size] if page.is_dictionary else memoryview(b"")
            pos += size


class _Window:
    """The bytes of a column, read as a whole or a part at a time."""

    def __init__(self, source: Any, chunk: "ColumnChunk", data: memoryview | None = None) -> None:
        self._source = source
        self._chunk = chunk
        self._data = data or memoryview(b"")
        self._from = 0

    def at(self, pos: int, size: int) -> memoryview:
        """Return the bytes from `pos` on: at least `size`, or as many as there are."""
        size = min(size, self._chunk.size - pos)
        if pos < self._from or pos + size > self._from + len(self._data):
            self._source.seek(self._chunk.start + pos)
            self._data = memoryview(self._source.read(min(max(size, BUFFER_BYTES), self._chunk.size - pos)))
            self._from = pos
        return self._data[pos - self._from :]


class _Column:
    """A column's sizes, summed up over pages. `memory` is the bytes of the largest page and the dictionary."""

    def __init__(self, chunk: "ColumnChunk") -> None:
        self.chunk = chunk
        self.values = self.size = self.longest = self.stored_bytes = 0
        self._dictionary = self._page = 0
        self._value = self.decoded_bytes = 0.0

    @property
    def memory(self) -> int:
        return self._dictionary + self._page

    @property
    def max_bytes(self) -> int:
        """The most bytes of all values together."""
        is_bytes = self.chunk.kind == _BYTE_ARRAY
        if is_bytes:
            return self.values * (_OFFSET_BYTES + self.longest) + self.size
        return self.values * self.chunk.width

    def add(self, page: "_Page") -> None:
        """Count the sizes of a page."""
        self.stored_bytes = max(self.stored_bytes, page.stored_bytes)
        if page.is_dictionary:
            self._dictionary = page.size + _POINTER_BYTES * page.values
            return
        self._page = max(self._page, page.size)
        self.values = self.values + page.values
        self.size = self.size + page.size
        value = page.weight(self.chunk, self.longest)
        self._value = max(self._value, value)
        self.decoded_bytes += page.values * (value + _OFFSET_BYTES)

    def weight(self, rows: int) -> float:
        """Return about how many bytes of this column a record may take."""
        return self._value * max(1.0, self.values / max(rows, 1))


@dataclass(frozen=True)
class ColumnChunk:
    """A column of a row group: its place in the file, and what the footer says about its content.

    `start` and `size` are bytes of the file, `kind` is the physical type, `width` the bytes of a value of fixed size.
    `least`, `most` and `nulls` are statistics, None if the file has none.
    """

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
    def of(cls, struct: Any, column: pq.ColumnSchema) -> "ColumnChunk":
        """Read the description from the footer's struct, and the column's type from the schema."""
        # Arrow begins at the dictionary if the footer places it before the data.
        starts = [
            _read_number(struct, _DATA_AT),
            _read_number(struct, _DICTIONARY_AT if struct.get(_DICTIONARY_AT) else _DATA_AT),
        ]
        statistics = struct.get(_STATISTICS, {})
        return cls(
            name=column.path,
            start=min(starts),
            size=_read_number(struct, _CHUNK_BYTES),
            values=_read_number(struct, _CHUNK_VALUES),
            codec=_read_number(struct, _CODEC),
            kind=column.physical_type,
            # The widest of the other types is INT96.
            width=column.length if column.physical_type == _FIXED else 12,
            is_repeated=column.max_repetition_level > 0,
            least=_copy_bytes(statistics.get(_LEAST)),
            most=_copy_bytes(statistics.get(_MOST)),
            nulls=_read_number(statistics, _NULLS) if _NULLS in statistics else None,
        )

    def measure_longest(self, page: "_Page", body: memoryview) -> int:
        """Return the size of the longest value in a dictionary page, or the page's size as an upper bound."""
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
            longest = max(longest, size)
            at = at + 4 + size
        return min(longest, page.size)


def _read_number(struct: Mapping[int, Any], field: int) -> int:
    """Read a number from a field of a struct. Raise ValueError if the field is of another type."""
    number = struct[field]
    if type(number) is not int:
        raise ValueError(f"field {field} of a struct is no number but {type(number).__name__}")
    return number


def _copy_bytes(value: Any) -> bytes | None:
    """Return the bytes of a statistic, or None if it has none."""
    # A damaged file may hold a number here, and bytes(number) would allocate that many bytes.
    return bytes(value) if isinstance(value, memoryview) else None


# The numbers that Parquet has for codecs, with Arrow's names.
_CODECS = {0: "", 1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd"}


@dataclass(frozen=True)
class _Page:
    """A page, as its header describes it: `stored_bytes` in the file become `size` bytes of `values` values."""

    kind: int
    size: int
    stored_bytes: int
    values: int
    encoding: int

    @property
    def is_dictionary(self) -> bool:
        return self.kind == _DICTIONARY

    @classmethod
    def of(cls, header: dict[int, Any]) -> "_Page":
        """Read the description from a page's header."""
        kind = _read_number(header, _TYPE)
        sizes = (_read_number(header, _SIZE), _read_number(header, _COMPRESSED))
        if kind == _DICTIONARY:
            return cls(kind, *sizes, _read_number(header[_DICTIONARY_HEAD], _COUNT), 0)
        if kind not in (_DATA, _DATA_V2):
            return cls(kind, *sizes, 0, 0)
        head, encoding = (header[_V2_HEAD], _V2_ENCODING) if kind == _DATA_V2 else (header[_DATA_HEAD], _ENCODING)
        return cls(kind, *sizes, _read_number(head, _COUNT), _read_number(head, encoding))

    def weight(self, chunk: ColumnChunk, dictionary: int) -> float:
        """Return about how many bytes a value takes at most: the average of a plain page, else the longest.

        `dictionary` is the size in bytes of the dictionary's longest value.
        """
        if chunk.kind != _BYTE_ARRAY:
            return chunk.width
        if self.encoding in _BY_DICTIONARY:
            return dictionary
        if self.encoding == _BY_PREFIX:
            return self.size
        return self.size / max(self.values, 1)
