"""Writes row groups of Parquet, whose bounds depend on the records alone. One of them is in memory at a time."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kafka_s3_platform.core.codecs.compression import Sink
from kafka_s3_platform.core.codecs.table import PARQUET_CODECS
from kafka_s3_platform.core.model.connect import Int64s

_SMALL_BYTES = 1_048_576
"""Up to this size a file is made in Arrow's memory, and goes to the sink at once. Otherwise Arrow calls Python for each
of its thirty pieces, and waits for the interpreter's lock each time while other threads upload."""


# These decide the bytes of an object: a run that is repeated after a change here writes other objects.
ROW_GROUP_BYTES = 33_554_432


ROW_GROUP_RECORDS = 131_072


class RowGroupWriter:
    """Writes batches of Arrow as Parquet. The same records and facts give the same bytes, however they are batched.

    A row group ends with the record that brings it to `ROW_GROUP_BYTES` of bytes from Kafka or to `ROW_GROUP_RECORDS`.
    At most one is in memory. `options` are for pyarrow's writer, `metadata` is for the footer.
    """

    def __init__(
        self, sink: Sink, schema: pa.Schema, codec: str, level: int | None, metadata: Mapping[str, str], **options: Any
    ) -> None:
        self._open_writer = partial(
            pq.ParquetWriter,
            schema=schema,
            version="2.6",
            data_page_version="1.0",
            compression=codec,
            compression_level=level or PARQUET_CODECS[codec].parquet_level,
            write_page_checksum=True,
            **options,
        )
        self._sink = sink
        self._metadata = metadata
        self._writer: pq.ParquetWriter | None = None
        self._pending: list[pa.RecordBatch] = []
        self._records = 0
        self.buffered_bytes = 0
        self.sidecars: Mapping[str, bytes] = {}

    def write_rows(self, batch: pa.RecordBatch, sizes: Int64s) -> None:
        """Append a batch. `sizes` are the bytes of each record."""
        start = 0
        while start < batch.num_rows:
            end, full = self._end(sizes, start)
            self._hold(batch.slice(start, end - start), int(sizes[start:end].sum()))
            if full:
                self._flush()
            start = end

    def close(self, facts: Mapping[str, str], /) -> None:
        """Write the buffered records, `facts` and the footer. The sink stays open."""
        if self._writer is not None or self.buffered_bytes > _SMALL_BYTES:
            self._end_file(self._opened(), facts)
            return
        buffer = pa.BufferOutputStream()
        self._writer = self._open_writer(buffer)
        self._end_file(self._writer, facts)
        self._sink.write(buffer.getvalue().to_pybytes())

    def _end_file(self, writer: pq.ParquetWriter, facts: Mapping[str, str]) -> None:
        """Write the last row group and the footer with `facts`."""
        self._flush()
        writer.add_key_value_metadata(dict(sorted({**self._metadata, **facts}.items())))
        writer.close()

    def _opened(self) -> pq.ParquetWriter:
        """Return the writer of the sink, which is made at the first row group."""
        if self._writer is None:
            self._writer = self._open_writer(self._sink)
        return self._writer

    def _end(self, sizes: Int64s, start: int) -> tuple[int, bool]:
        """Return the end of the records from `start` on that go into the open row group, and True if they fill it."""
        by_bytes = int(np.searchsorted(np.cumsum(sizes[start:]), ROW_GROUP_BYTES - self.buffered_bytes)) + 1
        end = start + min(by_bytes, ROW_GROUP_RECORDS - self._records)
        return min(end, len(sizes)), end <= len(sizes)

    def _hold(self, batch: pa.RecordBatch, size: int) -> None:
        """Add records of `size` bytes to the open row group."""
        # A small slice would keep in memory the whole batch that it was cut from.
        is_slice = batch.get_total_buffer_size() > 2 * batch.nbytes
        self._pending.append(batch.take(pa.array(np.arange(batch.num_rows))) if is_slice else batch)
        self._records += batch.num_rows
        self.buffered_bytes += size

    def _flush(self) -> None:
        """Write the open row group."""
        if self._pending:
            # One chunk, so that the bounds of pages do not depend on how the records were batched.
            table = pa.Table.from_batches(self._pending).combine_chunks()
            self._opened().write_table(table, row_group_size=table.num_rows)
        self._pending = []
        self._records = 0
        self.buffered_bytes = 0
