"""An Arrow dataset whose records come from our own readers, batch by batch, in the thread that asks for them.

DuckDB, polars and Arrow ask a dataset for a scan of some columns with a condition. This one answers with batches that
Python makes. As a `FileSystemDataset`, it finds the parts that a condition needs; nothing else of that class can open
one of them.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from kafka_s3_platform.reading.parts import ReadPart

BATCH_RECORDS = 131_072
"""Most records of a batch, as in Arrow's own scans."""

ScanColumns = Sequence[str] | Mapping[str, pc.Expression] | None


class PulledDataset(ds.FileSystemDataset):  # type: ignore[misc]  # Arrow has no types
    """The records of `whole`, which Arrow reads, and those of `parts`, that meet `conditions`."""

    def __init__(
        self, schema: pa.Schema, whole: ds.Dataset, parts: Sequence[ReadPart], conditions: Sequence[pc.Expression]
    ) -> None:
        file_format = ds.ParquetFileFormat()
        nowhere = SubTreeFileSystem("/dev/null", LocalFileSystem())
        fragments = [
            file_format.make_fragment(str(at), filesystem=nowhere, partition_expression=part.describe())
            for at, part in enumerate(parts)
        ]
        super().__init__(fragments, schema, file_format, nowhere)
        self._whole = whole
        self._parts = tuple(parts)
        self._conditions = tuple(conditions)

    def filter(self, expression: pc.Expression) -> "PulledDataset":
        """Return the dataset with one condition more."""
        return PulledDataset(self.schema, self._whole, self._parts, (*self._conditions, expression))

    def replace_schema(self, schema: pa.Schema) -> ds.Dataset:
        """Refuse: the schema is that of the objects."""
        raise NotImplementedError("the schema of an archive cannot be replaced: cast the table that is read")

    def scanner(
        self,
        columns: ScanColumns = None,
        filter: pc.Expression | None = None,  # noqa: A002 - Arrow's name
        batch_size: int = BATCH_RECORDS,
        **_: Any,
    ) -> "PulledScan":
        """Return a scan. Options that say how Arrow reads ahead have no meaning here."""
        conditions = [*self._conditions, *([] if filter is None else [filter])]
        return PulledScan(self, columns, _join_conditions(conditions), batch_size)

    def read(self, names: Sequence[str], condition: pc.Expression | None) -> Iterator[pa.RecordBatch]:
        """Read these columns of all records that meet the condition, and perhaps of others."""
        schema = pa.schema([self.schema.field(name) for name in names])
        for batch in self._whole.to_batches(columns=list(names), filter=condition):
            yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)
        for fragment in self.get_fragments(condition):
            for found in self._parts[int(fragment.path.rpartition("/")[2])].batches():
                yield pa.RecordBatch.from_arrays([found.records.column(name) for name in names], schema=schema)


class PulledScan:
    """What Arrow's `Scanner` is for other datasets. Each of its methods reads the records anew."""

    def __init__(
        self, dataset: PulledDataset, columns: ScanColumns, condition: pc.Expression | None, batch_size: int
    ) -> None:
        self._dataset = dataset
        self._wanted: Mapping[str, Any] = {"columns": columns, "filter": condition, "batch_size": batch_size}
        self._names = _list_needed(dataset.schema, columns, condition)

    @property
    def dataset_schema(self) -> pa.Schema:
        return self._dataset.schema

    @property
    def projected_schema(self) -> pa.Schema:
        """The schema of what is read."""
        return self._scan(self._dataset.schema.empty_table()).projected_schema

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        for batch in self._dataset.read(self._names, self._wanted["filter"]):
            yield from self._scan(batch).to_batches()

    def to_reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self.projected_schema, self.to_batches())

    def to_table(self) -> pa.Table:
        return self.to_reader().read_all()

    def count_rows(self) -> int:
        """Count the records. Of the columns, only those of the condition are read."""
        counted = PulledScan(self._dataset, [], self._wanted["filter"], self._wanted["batch_size"])
        return sum(batch.num_rows for batch in counted.to_batches())

    def head(self, num_rows: int) -> pa.Table:
        """Return the first records. Nothing behind them is read."""
        return pa.Table.from_batches(_take_first(self.to_batches(), num_rows), self.projected_schema)

    def _scan(self, records: pa.RecordBatch | pa.Table) -> ds.Scanner:
        return ds.dataset(records).scanner(**self._wanted, use_threads=False)


def _join_conditions(conditions: Iterable[pc.Expression]) -> pc.Expression | None:
    found = None
    for each in conditions:
        found = each if found is None else found & each
    return found


def _list_needed(schema: pa.Schema, columns: ScanColumns, condition: pc.Expression | None) -> list[str]:
    """List the columns that the scan may need. Only its text tells which columns an expression names."""
    if columns is None:
        return list(schema.names)
    wanted = columns.values() if isinstance(columns, Mapping) else columns
    text = " ".join(map(str, (*wanted, condition)))
    # Without a column, a batch would not know how many records it has.
    return [name for name in schema.names if re.search(rf"\b{re.escape(name)}\b", text)] or ["partition"]


def _take_first(batches: Iterator[pa.RecordBatch], num_rows: int) -> Iterator[pa.RecordBatch]:
    while num_rows > 0 and (batch := next(batches, None)) is not None:
        yield batch.slice(0, num_rows)
        num_rows -= batch.num_rows
