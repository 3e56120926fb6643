"""Records the target offset of each source offset, as runs. Groups are translated by it."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

MAPPING_SCHEMA = pa.schema(
    [
        pa.field("source_offset", pa.int64(), nullable=False),
        pa.field("target_offset", pa.int64(), nullable=False),
        pa.field("count", pa.int64(), nullable=False),
    ]
)
"""A row is a run: the record of source offset + i has target offset + i, for each i below count."""

ROW_GROUP_RUNS = 131_072
"""Number of runs before they are compressed: 3 MiB."""

Runs = npt.NDArray[np.int64]
"""Source offsets, target offsets and counts: three rows of one length."""


class MappingWriter:
    """Builds the mapping of one kafka partition from pairs of batches, in offset order.

    It keeps the compressed runs in memory. Offsets that alternate regularly take next to nothing.
    """

    def __init__(self) -> None:
        self._sink = pa.BufferOutputStream()
        self._writer = pq.ParquetWriter(
            self._sink,
            MAPPING_SCHEMA,
            compression="zstd",
            use_dictionary=False,
            column_encoding=dict.fromkeys(MAPPING_SCHEMA.names, "DELTA_BINARY_PACKED"),
        )
        self._runs: list[pa.RecordBatch] = []
        self._run_count = 0
        self._open: tuple[int, int, int] | None = None

    def add(self, source: pa.RecordBatch, target: pa.RecordBatch) -> None:
        """Add two batches of the same length, never empty, with equal records one by one."""
        sources = source.column("offset").to_numpy()
        targets = target.column("offset").to_numpy()
        starts = np.flatnonzero((np.diff(sources) != 1) | (np.diff(targets) != 1)) + 1
        starts = np.concatenate([[0], starts])
        counts = np.diff(np.append(starts, len(sources)))
        runs = np.stack([sources[starts], targets[starts], counts])
        self._write(self._joined(runs))

    def close(self) -> pa.Buffer:
        """Return the mapping as a Parquet file."""
        if self._open is not None:
            self._buffer(np.array(self._open, np.int64).reshape(3, 1))
        self._flush()
        self._writer.close()
        return self._sink.getvalue()

    def _joined(self, runs: Runs) -> Runs:
        """Put the open run before the others. If the first of them continues it, make one run of both."""
        if self._open is None:
            return runs
        source, target, count = self._open
        if (runs[0, 0], runs[1, 0]) == (source + count, target + count):
            runs[:, 0] = source, target, count + runs[2, 0]
            return runs
        return np.concatenate([np.array(self._open, np.int64).reshape(3, 1), runs], axis=1)

    def _write(self, runs: Runs) -> None:
        """Buffer all runs but the last, which the next batch may continue."""
        self._open = (int(runs[0, -1]), int(runs[1, -1]), int(runs[2, -1]))
        self._buffer(runs[:, :-1])

    def _buffer(self, runs: Runs) -> None:
        if not runs.shape[1]:
            return
        self._runs.append(pa.RecordBatch.from_arrays([pa.array(row) for row in runs], schema=MAPPING_SCHEMA))
        self._run_count += runs.shape[1]
        if self._run_count >= ROW_GROUP_RUNS:
            self._flush()

    def _flush(self) -> None:
        if self._runs:
            self._writer.write_table(pa.Table.from_batches(self._runs).combine_chunks())
        self._runs = []
        self._run_count = 0
