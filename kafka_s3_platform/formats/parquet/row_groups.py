"""Writes Parquet row groups whose bounds depend on the records alone. One of them is in memory at a time."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kafka_s3_platform.model.connect import Int64s


class RowGroups:
    """Writes batches through a Parquet writer. A row group ends at the record that brings it to its bytes or records.

    Args:
        writer: pyarrow's writer.
        max_bytes: bytes of a row group, by the sizes that `write` gets with the records.
        max_records: records of a row group.
    """

    def __init__(self, writer: pq.ParquetWriter, max_bytes: int, max_records: int) -> None:
        self._writer = writer
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
        """Write the records that are still buffered, `metadata` and the footer. The sink stays open."""
        self._flush()
        self._writer.add_key_value_metadata(dict(sorted(metadata.items())))
        self._writer.close()

    def _end(self, sizes: Int64s, start: int) -> tuple[int, bool]:
        """Return the end of the records from `start` on that the open row group takes, and whether they fill it."""
        by_bytes = np.searchsorted(np.cumsum(sizes[start:]), self._max_bytes - self.buffered_bytes) + 1
        end = start + int(min(by_bytes, self._max_records - self._records))
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
            self._writer.write_table(table, row_group_size=table.num_rows)
        self._pending = []
        self._records = 0
        self.buffered_bytes = 0
