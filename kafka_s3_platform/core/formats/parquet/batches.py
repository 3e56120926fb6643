"""Reads row groups in bounded memory: as many columns at once as fit, and the others from temporary files.

Arrow holds a page of each column, and DuckDB writes pages of up to 100 MB. So some columns are read first and put aside
in temporary files. These are compressed, so that a highly compressed file does not fill the disk.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kafka_s3_platform.core.errors import ErrorCode, PermanentError
from kafka_s3_platform.core.formats.parquet.pages import CheckedFile, ReadMemory, RowGroupPages
from kafka_s3_platform.core.formats.reading import build_limit_error
from kafka_s3_platform.core.model.limits import ReadLimits

_MOST_BLOCKS = 32
"""The largest size of the records of a row group, in multiples of the limit of a block."""

_LZ4 = pa.ipc.IpcWriteOptions(compression="lz4")


class RowGroupReader:
    """Reads row groups of a file from `open_checked` within the limits. `key` names the file in errors.

    A column is put aside if the pages of all columns do not fit into memory at once.
    """

    def __init__(self, source: Any, checked: CheckedFile, key: str, limits: ReadLimits) -> None:
        self._source = source
        self._checked = checked
        self._key = key
        self._limits = limits
        self._rows = self._page_bytes = 0

    def batches(self, at: int, most: int) -> Iterator[pa.RecordBatch]:
        """Read the records of a row group, in batches of at most `most`.

        Raises:
            IntegrityError: it exceeds the limits.
            ValueError: it contradicts the footer. Arrow's errors for damaged pages pass through.
            PermanentError: there is no room for temporary files.
        """
        pages = RowGroupPages(self._source, self._checked.row_groups[at], self._key, self._limits)
        memory = pages.measure(most)
        self._count_rows(self._checked.row_groups[at].rows, memory.size)
        file = self._checked.file if pages.is_small else self._checked.buffered(self._source)

        def read_group(columns: list[str] | None, source: pq.ParquetFile = file) -> Iterator[pa.RecordBatch]:
            batches: Iterator[pa.RecordBatch] = source.iter_batches(
                memory.rows, row_groups=[at], columns=columns, use_threads=False
            )
            return batches

        fields = self._fields(at, memory)
        # A list cannot be split over batches. Indices into a dictionary show its size before its values are unpacked.
        large = [field for field in fields if field.list_bytes > self._limits.block_bytes]
        if large:
            encoded = self._checked.encoded(self._source, at)
            for field in large:
                self._check_lists(field, lambda path: read_group([path], encoded))
        *aside, last = self._groups(fields)
        yield from self._counted(self._beside(aside, last, read_group) if aside else read_group(None))

    def _beside(
        self, aside: Sequence[list[str]], last: list[str], read_group: Callable[[list[str]], Iterator[pa.RecordBatch]]
    ) -> Iterator[pa.RecordBatch]:
        """Read groups of columns one after the other: all but the last into temporary files, then all side by side."""
        with ExitStack() as files:
            parts = [self._put_aside(read_group(names), files.enter_context(_open_temporary_file())) for names in aside]
            yield from self._together([*parts, read_group(last)])

    def _counted(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pass batches on, and raise IntegrityError if they are too large together.

        Some encodings repeat bytes: a value that begins like the one before it may take one byte in a page, but takes
        all of its bytes here.
        """
        total_bytes = 0
        for batch in batches:
            total_bytes += batch.nbytes
            if total_bytes > _MOST_BLOCKS * self._limits.block_bytes:
                raise build_limit_error(
                    self._key, f"has a row group that comes to more than {total_bytes:,} bytes", "block.bytes"
                )
            yield batch

    def _count_rows(self, rows: int, page_bytes: int) -> None:
        """Check the number of rows against the bytes of pages. The footer's number of bytes proves nothing."""
        self._rows = self._rows + rows
        self._page_bytes = self._page_bytes + page_bytes
        if self._rows > max(self._limits.empty_records, self._page_bytes):
            raise build_limit_error(
                self._key, f"has {self._rows:,} records in {self._page_bytes:,} bytes", "empty.records"
            )

    def _check_lists(self, field: "_Field", read_column: Callable[[str], Iterator[pa.RecordBatch]]) -> None:
        """Check the size of a column of lists before reading it as a whole, one inner column after the other.

        A list may repeat a value of a dictionary a million times and take nearly no bytes in the file. So values are
        read as indices into their dictionary, and their bytes are counted without unpacking them.
        """
        batch_bytes = list[int]()
        for path in field.paths:
            for place, batch in enumerate(read_column(path)):
                batch_bytes += [0] if place == len(batch_bytes) else []
                batch_bytes[place] += sum(map(_count_batch_bytes, batch.columns))
                if batch_bytes[place] > self._limits.block_bytes:
                    what = f"has records of {batch_bytes[place]:,} bytes in column {field.name}"
                    raise build_limit_error(self._key, what, "block.bytes")
                del batch  # it would stay in memory while the next one is read

    def _groups(self, fields: Sequence["_Field"]) -> list[list[str]]:
        """Return the names of columns in groups that can be read at once, since a group's pages fit into memory."""
        groups = [list[str]()]
        group_bytes = 0
        for field in fields:
            if field.open_bytes > self._limits.block_bytes:
                what = f"has pages of {field.open_bytes:,} bytes in column {field.name}"
                raise build_limit_error(self._key, what, "block.bytes")
            field_bytes = field.open_bytes + field.list_bytes
            if groups[-1] and group_bytes + field_bytes > self._limits.block_bytes:
                groups.append([])
                group_bytes = 0
            groups[-1].append(field.name)
            group_bytes += field_bytes
        return groups

    def _fields(self, at: int, memory: ReadMemory) -> "list[_Field]":
        """Return each top-level column with the columns inside of it, as the footer orders them, and their sizes."""
        paths = [chunk.name for chunk in self._checked.row_groups[at].chunks]
        fields = list[_Field]()
        end = 0
        for name in self._checked.file.schema_arrow.names:
            start = end
            while end < len(paths) and (paths[end] == name or paths[end].startswith(f"{name}.")):
                end += 1
            sizes = sum(memory.open_bytes[start:end]), sum(memory.list_bytes[start:end])
            fields.append(_Field(name, paths[start:end], *sizes))
        return fields

    def _put_aside(self, batches: Iterator[pa.RecordBatch], target: IO[bytes]) -> Iterator[pa.RecordBatch]:
        """Write the batches to a temporary file. Return an iterator that reads them back."""
        first = next(batches, None)
        if first is None:
            return iter(())
        with _name_lack_of_room():
            stream = pa.ipc.new_stream(target, first.schema, options=_LZ4)
        while first is not None:
            with _name_lack_of_room():
                stream.write_batch(first)
            if target.tell() > self._limits.row_group_bytes:
                what = f"has a row group of which one part comes to {target.tell():,} bytes in a temporary file"
                raise build_limit_error(self._key, what, "row.group.bytes")
            first = next(batches, None)
        with _name_lack_of_room():
            stream.close()
            target.seek(0)
        return _take_out(target)

    def _together(self, parts: Sequence[Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
        """Yield batches of all columns from the parts, each of which has some of the columns."""
        schema = self._checked.file.schema_arrow
        while columns := self._next_of(parts):
            if list(columns) != schema.names:
                raise ValueError(f"its columns {', '.join(schema.names)} do not differ in their names")
            yield pa.RecordBatch.from_arrays(list(columns.values()), schema=schema)

    def _next_of(self, parts: Sequence[Iterator[pa.RecordBatch]]) -> dict[str, pa.Array]:
        """Return the columns of each part's next batch by name, or none at the end. Their total size is limited."""
        columns = dict[str, pa.Array]()
        size = 0
        for part in parts:
            for batch in islice(part, 1):
                columns |= zip(batch.schema.names, batch.columns, strict=True)
                size += batch.nbytes
            if size > self._limits.block_bytes:
                raise build_limit_error(self._key, f"has records of {size:,} bytes side by side", "block.bytes")
        return columns


@dataclass(frozen=True)
class _Field:
    """A top-level column, the `paths` of the columns inside of it, and their sizes together, as in `ReadMemory`."""

    name: str
    paths: list[str]
    open_bytes: int
    list_bytes: int


def _count_batch_bytes(column: pa.Array) -> int:
    """Count the bytes of a column as if each row had its own copy of its value, even if the column has a dictionary."""
    if pa.types.is_dictionary(column.type):
        sizes = pc.binary_length(column.dictionary).take(column.indices)
        return int(column.indices.nbytes) + int(pc.sum(sizes).as_py() or 0)
    if pa.types.is_struct(column.type):
        return sum(map(_count_batch_bytes, column.flatten()))
    if pa.types.is_fixed_size_list(column.type):
        return _count_batch_bytes(column.flatten())
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type) or pa.types.is_map(column.type):
        return int(column.offsets.nbytes) + _count_batch_bytes(column.flatten())
    return int(column.nbytes)


def _take_out(source: IO[bytes]) -> Iterator[pa.RecordBatch]:
    """Read the batches of a temporary file."""
    with _name_lack_of_room():
        yield from pa.ipc.open_stream(source)


@contextmanager
def _open_temporary_file() -> Iterator[IO[bytes]]:
    """Open a temporary file without a name until the block ends. Raises PermanentError if there is no room."""
    with _name_lack_of_room():
        file = tempfile.TemporaryFile()  # noqa: SIM115 - closed below
    try:
        yield file
    finally:
        # Closing writes again what could not be written before, so it can fail for the same reason.
        with _name_lack_of_room():
            file.close()


@contextmanager
def _name_lack_of_room() -> Iterator[None]:
    """Raise PermanentError for an OSError of a temporary file.

    Only reads and writes of temporary files belong inside, since Arrow raises OSError for damaged objects too.
    """
    try:
        yield
    except OSError as err:
        raise PermanentError(
            f"columns of a Parquet file that do not fit into memory together cannot be kept in temporary files: {err}. "
            f"Make room there, or have TMPDIR name a folder that has it",
            code=ErrorCode.DISK,
        ) from err
