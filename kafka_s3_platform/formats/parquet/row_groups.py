"""Writes Parquet row groups. Their bounds depend on the records alone. One of them is in memory at a time."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kafka_s3_platform.formats.sink import Sink
from kafka_s3_platform.model.connect import Int64s

_SMALL_BYTES = 1_048_576
"""Up to here a file is made in memory of Arrow's, and goes to the sink at once. Else Arrow calls Python for each of its
thirty pieces, and waits for the interpreter's lock each time while other threads upload."""


class RowGroups:
    """Writes batches through a Parquet writer. A row group ends at the record that brings it to its bytes or records.

    Args:
        open_writer: opens pyarrow's writer on a file of Arrow's or on `sink`.
        sink: takes the bytes.
        max_bytes: bytes of a row group, by the sizes of records in `write`.
        max_records: records of a row group.
    """

    def __init__(
        self,
        open_writer: Callable[[Sink | pa.BufferOutputStream], pq.ParquetWriter],
        sink: Sink,
        max_bytes: int,
        max_records: int,
    ) -> None:
        self._open_writer = open_writer
        self._sink = sink
        self._writer: pq.ParquetWriter | None = None
        self._max_bytes = max_bytes
        self._max_records = max_records
        self._pending: list[pa.RecordBatch] = []
        self._records = 0
        self.buffered_bytes = 0

    def write(self, batch: pa.RecordBatch, sizes: Int64s) -> None:
        """Append a batch. `sizes` are the bytes of each record."""
        start = 0
        while start < batch.num_rows:
            end, full = self._end(sizes, start)
            self._hold(batch.slice(start, end - start), int(sizes[start:end].sum()))
            if full:
                self._flush()
            start = end

    def close(self, metadata: Mapping[str, Any]) -> None:
        """Write the buffered records, `metadata` and the footer. The sink stays open."""
        if self._writer is not None or self.buffered_bytes > _SMALL_BYTES:
            self._end_file(self._opened(), metadata)
            return
        buffer = pa.BufferOutputStream()
        self._writer = self._open_writer(buffer)
        self._end_file(self._writer, metadata)
        self._sink.write(buffer.getvalue().to_pybytes())

    def _end_file(self, writer: pq.ParquetWriter, metadata: Mapping[str, Any]) -> None:
        self._flush()
        writer.add_key_value_metadata(dict(sorted(metadata.items())))
        writer.close()

    def _opened(self) -> pq.ParquetWriter:
        if self._writer is None:
            self._writer = self._open_writer(self._sink)
        return self._writer

    def _end(self, sizes: Int64s, start: int) -> tuple[int, bool]:
        """Return the end of the records from `start` on in the open row group, and True if they fill it."""
        by_bytes = int(np.searchsorted(np.cumsum(sizes[start:]), self._max_bytes - self.buffered_bytes)) + 1
        end = start + min(by_bytes, self._max_records - self._records)
        return min(end, len(sizes)), end <= len(sizes)

    def _hold(self, batch: pa.RecordBatch, size: int) -> None:
        # A small slice would keep in memory the whole batch that it was cut from.
        is_slice = batch.get_total_buffer_size() > 2 * batch.nbytes
        self._pending.append(batch.take(pa.array(np.arange(batch.num_rows))) if is_slice else batch)
        self._records += batch.num_rows
        self.buffered_bytes += size

    def _flush(self) -> None:
        if self._pending:
            # One chunk, so that the bounds of pages do not depend on how the records were batched.
            table = pa.Table.from_batches(self._pending).combine_chunks()
            self._opened().write_table(table, row_group_size=table.num_rows)
        self._pending = []
        self._records = 0
        self.buffered_bytes = 0
