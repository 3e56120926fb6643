"""An Arrow dataset of records from our own readers, batch by batch, in the thread of the caller.

DuckDB, polars and Arrow ask a dataset for a scan of some columns with a condition. This one answers with batches made
in Python. Being a `FileSystemDataset`, it prunes parts by a condition; the rest of that class does not work on them.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from kafka_s3_platform.reading.parts import ReadPart
from kafka_s3_platform.reading.values import ValueDecoder

BATCH_RECORDS = 131_072
"""Most records of a batch, as in Arrow's own scans."""

ScanColumns = Sequence[str] | Mapping[str, pc.Expression] | None


class PulledDataset(ds.FileSystemDataset):  # type: ignore[misc]  # Arrow has no types
    """The records of `whole`, read by Arrow, and of `parts`, that meet `conditions`. `decoder` decodes values."""

    def __init__(
        self,
        schema: pa.Schema,
        arrow_dataset: ds.Dataset,
        parts: Sequence[ReadPart],
        conditions: Sequence[pc.Expression],
        decoder: ValueDecoder | None,
    ) -> None:
        file_format = ds.ParquetFileFormat()
        nowhere = SubTreeFileSystem("/dev/null", LocalFileSystem())
        fragments = [
            file_format.make_fragment(str(at), filesystem=nowhere, partition_expression=part.describe())
            for at, part in enumerate(parts)
        ]
        if decoder is not None:
            schema = schema.set(schema.get_field_index("value"), pa.field("value", decoder.type))
        super().__init__(fragments, schema, file_format, nowhere)
        self._decoder = decoder
        self._arrow_dataset = arrow_dataset
        self._parts = tuple(parts)
        self._conditions = tuple(conditions)

    def filter(self, expression: pc.Expression) -> "PulledDataset":
        """Return the dataset with one condition more."""
        return PulledDataset(
            self.schema, self._arrow_dataset, self._parts, (*self._conditions, expression), self._decoder
        )

    def replace_schema(self, schema: pa.Schema) -> ds.Dataset:
        """Refuse: the objects determine the schema."""
        raise NotImplementedError("the schema of an archive cannot be replaced: cast the table that is read")

    def scanner(
        self,
        columns: ScanColumns = None,
        filter: pc.Expression | None = None,  # noqa: A002 - Arrow's name
        batch_size: int = BATCH_RECORDS,
        **_: Any,
    ) -> "PulledScan":
        """Return a scan. Arrow's options for reading ahead have no meaning here."""
        conditions = [*self._conditions, *([] if filter is None else [filter])]
        return PulledScan(self, columns, conditions, batch_size)

    def read(self, names: Sequence[str], conditions: Sequence[pc.Expression]) -> Iterator[pa.RecordBatch]:
        """Read these columns of all records that meet the conditions, and perhaps of others."""
        decoder = self._decoder if "value" in names else None
        schema = pa.schema([self.schema.field(name) for name in names])
        arrow_conditions = (
            conditions
            if decoder is None
            else [condition for condition in conditions if not _is_named("value", str(condition))]
        )
        # An error names the place of a value, a header may name its schema.
        needed = list(names) if decoder is None else list(dict.fromkeys([*names, "partition", "offset", "headers"]))
        for batch in self._arrow_dataset.to_batches(columns=needed, filter=_join_conditions(arrow_conditions)):
            columns = {name: batch.column(name) for name in names}
            if decoder is not None:
                columns["value"] = decoder.decode_records(batch)
            yield pa.RecordBatch.from_arrays(list(columns.values()), schema=schema)
        for fragment in self.get_fragments(_join_conditions(conditions)):
            part = self._parts[int(fragment.path.rpartition("/")[2])]
            for connect_batch in part.batches(names if decoder is None else set(names) - {"value"}):
                columns = {name: connect_batch.records.column(name) for name in names}
                if decoder is not None:
                    columns["value"] = decoder.decode(connect_batch.value, connect_batch.records)
                yield pa.RecordBatch.from_arrays(list(columns.values()), schema=schema)


class PulledScan:
    """Replaces Arrow's `Scanner`. Each of its methods reads the records anew."""

    def __init__(
        self, dataset: PulledDataset, columns: ScanColumns, conditions: Sequence[pc.Expression], batch_size: int
    ) -> None:
        self._dataset = dataset
        self._conditions = conditions
        self._batch_size = batch_size
        self._scan_options: Mapping[str, Any] = {"columns": columns, "filter": _join_conditions(conditions)}
        self._names = _list_needed(dataset.schema, columns, conditions)

    @property
    def dataset_schema(self) -> pa.Schema:
        return self._dataset.schema

    @property
    def projected_schema(self) -> pa.Schema:
        """The schema of the result."""
        return self._scan(self._dataset.schema.empty_table()).projected_schema

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        for batch in self._dataset.read(self._names, self._conditions):
            yield from self._scan(batch).to_batches()

    def to_reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self.projected_schema, self.to_batches())

    def to_table(self) -> pa.Table:
        return self.to_reader().read_all()

    def count_rows(self) -> int:
        """Count the records. Only the columns of the condition are read."""
        counted = PulledScan(self._dataset, [], self._conditions, self._batch_size)
        return sum(batch.num_rows for batch in counted.to_batches())

    def head(self, num_rows: int) -> pa.Table:
        """Return the first records. Reading stops after them."""
        return pa.Table.from_batches(_take_first(self.to_batches(), num_rows), self.projected_schema)

    def _scan(self, records: pa.RecordBatch | pa.Table) -> ds.Scanner:
        return ds.dataset(records).scanner(**self._scan_options, batch_size=self._batch_size, use_threads=False)


def _join_conditions(conditions: Iterable[pc.Expression]) -> pc.Expression | None:
    joined = None
    for condition in conditions:
        joined = condition if joined is None else joined & condition
    return joined


def _list_needed(schema: pa.Schema, columns: ScanColumns, conditions: Sequence[pc.Expression]) -> list[str]:
    """List the columns that the scan may need."""
    if columns is None:
        return list(schema.names)
    selected = columns.values() if isinstance(columns, Mapping) else columns
    text = " ".join(map(str, (*selected, *conditions)))
    # Without a column, a batch would not know how many records it has.
    return [name for name in schema.names if _is_named(name, text)] or ["partition"]


def _is_named(column: str, text: str) -> bool:
    """Return True if the text of an expression may name the column. An expression has no other way to ask.

    An expression with the number of a column may mean any, and is right only if all columns are there.
    """
    return "FieldPath(" in text or re.search(rf"\b{re.escape(column)}\b", text) is not None


def _take_first(batches: Iterator[pa.RecordBatch], num_rows: int) -> Iterator[pa.RecordBatch]:
    while num_rows > 0 and (batch := next(batches, None)) is not None:
        yield batch.slice(0, num_rows)
        num_rows -= batch.num_rows
