"""Parquet row groups whose bounds depend on the records alone, one of them in memory at a time."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kafka_s3_platform.formats.columns import Int64s

DEFAULT_LEVELS = {"zstd": 1, "gzip": 6}
"""pyarrow's own are 1 and 9; parquet-java's gzip has 6."""


class RowGroups:
    """Writes batches through a Parquet writer. A row group ends at the record that brings it to its bytes or records.

    Args:
        writer: pyarrow's writer.
        max_bytes: bytes of a row group, as given for each record with it.
        max_records: records of a row group.
    """

    def __init__(self, writer: pq.ParquetWriter, max_bytes: int, max_records: int) -> None:
        self._writer, self._max_bytes, self._max_records = writer, max_bytes, max_records
        self._pending: list[pa.RecordBatch] = []
        self._records = 0
        self.buffered_bytes = 0

    def write(self, batch: pa.RecordBatch, sizes: Int64s) -> None:
        """Append a batch whose records have these sizes in bytes."""
        start = 0
        while start < batch.num_rows:
            end, full = self._end(sizes, start)
            self._hold(batch.slice(start, end - start), int(sizes[start:end].sum()))
            if full:
                self._flush()
            start = end

    def close(self, metadata: Mapping[str, Any]) -> None:
        """Write what is held, `metadata` and the footer. The sink stays open."""
        self._flush()
        self._writer.add_key_value_metadata(dict(sorted(metadata.items())))
        self._writer.close()

    def _end(self, sizes: Int64s, start: int) -> tuple[int, bool]:
        """Index after the last record of `sizes[start:]` that the open row group takes, and whether that fills it."""
        by_bytes = np.searchsorted(np.cumsum(sizes[start:]), self._max_bytes - self.buffered_bytes) + 1
        end = start + int(min(by_bytes, self._max_records - self._records))
        return min(end, len(sizes)), end <= len(sizes)

    def _hold(self, batch: pa.RecordBatch, size: int) -> None:
        # A small slice would keep the whole batch it was cut from in memory.
        is_slice = batch.get_total_buffer_size() > 2 * batch.nbytes
        self._pending.append(batch.take(pa.array(np.arange(batch.num_rows))) if is_slice else batch)
        self._records += batch.num_rows
        self.buffered_bytes += size

    def _flush(self) -> None:
        if self._pending:
            # One chunk, so that page bounds do not depend on how the records came.
            table = pa.Table.from_batches(self._pending).combine_chunks()
            self._writer.write_table(table, row_group_size=table.num_rows)
        self._pending, self._records, self.buffered_bytes = [], 0, 0
