"""DropHeaders, InsertHeader and HeaderFrom, on headers in Arrow.

Source of the rules: the classes of these names in Apache Kafka 4.3's `org.apache.kafka.connect.transforms`. A header's
value is bytes here. An inserted value is written as Connect's SimpleHeaderConverter writes it, but bytes stay bytes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.connect.avro.plain_json import compile_plain_json
from kafka_s3_platform.connect.avro.structs import EditableSchema
from kafka_s3_platform.connect.java.numbers import format_json, format_text
from kafka_s3_platform.connect.transforms.cast import compile_cast
from kafka_s3_platform.connect.transforms.edits import Edit, Plan, TransformStep, replace_payload
from kafka_s3_platform.connect.transforms.fields import require_map
from kafka_s3_platform.core.model.batches import HEADER, RECORD_SCHEMA, replace_column
from kafka_s3_platform.core.model.connect import ConnectBatch, DataError, Mask, Outcome, Payload

Rows = npt.NDArray[np.int64]

HEADERS = RECORD_SCHEMA.field("headers").type


@dataclass(frozen=True)
class BatchHeaders:
    """All headers of a batch in one sequence: the row of each header's record (ascending), its key and its value."""

    rows: Rows
    keys: pa.StringArray
    values: pa.BinaryArray

    @staticmethod
    def of(records: pa.RecordBatch) -> "BatchHeaders":
        """Collect the headers of the records."""
        column = records.column("headers")
        keys, values = pc.list_flatten(column).flatten()
        return BatchHeaders(pc.list_parent_indices(column).to_numpy().astype(np.int64), keys, values)

    def put_into(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """Return the records with these headers. A record without headers gets null."""
        counts = np.bincount(self.rows, minlength=records.num_rows)
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        elements = pa.StructArray.from_arrays([self.keys, self.values], fields=list(HEADER))
        column = pa.ListArray.from_arrays(offsets, elements, type=HEADERS, mask=pa.array(counts == 0))
        return replace_column(records, "headers", column)

    def select(self, selected: Mask) -> "BatchHeaders":
        """Return the headers the mask selects."""
        mask = pa.array(selected)
        return BatchHeaders(self.rows[selected], self.keys.filter(mask), self.values.filter(mask))

    def append(self, name: str, rows: Rows, values: pa.BinaryArray) -> "BatchHeaders":
        """Add one header to each of the records `rows`, after its other headers."""
        keys = pa.concat_arrays([self.keys, pa.array([name] * len(rows), pa.string())])
        all_rows = np.concatenate([self.rows, rows])
        # The sort is stable, so the new header comes last in its record.
        order = np.argsort(all_rows, kind="stable")
        indices = pa.array(order)
        return BatchHeaders(all_rows[order], keys.take(indices), pa.concat_arrays([self.values, values]).take(indices))


def encode_header(value: Any) -> bytes | None:
    """Encode a header's value: text as UTF-8, numbers as Java formats them, lists and maps as JSON."""
    if value is None or isinstance(value, bytes):
        return value
    return (format_json(value) if isinstance(value, list | dict) else format_text(value)).encode()


class DropHeaders(TransformStep):
    """Removes headers by name."""

    def run(self, batch: ConnectBatch, selected: Mask) -> Outcome:
        headers = BatchHeaders.of(batch.records)
        is_named = pc.is_in(headers.keys, pa.array(self._values["headers"], pa.string()))
        is_dropped: Mask = is_named.to_numpy(zero_copy_only=False) & selected[headers.rows]
        if not is_dropped.any():
            return Outcome(batch)
        return Outcome(replace(batch, records=headers.select(~is_dropped).put_into(batch.records)))


class InsertHeader(TransformStep):
    """Adds a header after the other headers."""

    def run(self, batch: ConnectBatch, selected: Mask) -> Outcome:
        literal: str = self._values["value.literal"]
        rows = np.flatnonzero(selected)
        values = pa.array([None if literal == "null" else literal.encode()] * len(rows), pa.binary())
        headers = BatchHeaders.of(batch.records).append(self._values["header"], rows, values)
        return Outcome(replace(batch, records=headers.put_into(batch.records)))


class HeaderFrom(Edit):
    """Moves or copies fields into headers."""

    nulls_pass = False

    def __init__(self, executing_class: str, side: str, values: Mapping[str, Any]) -> None:
        super().__init__(executing_class, side, values)
        self._fields: Sequence[str] = values["fields"]
        self._headers: Sequence[str] = values["headers"]
        self._moves: bool = values["operation"] == "move"
        self._purpose = f"header {values['operation']}"

    def run(self, batch: ConnectBatch, selected: Mask) -> Outcome:
        """Add the headers to the selected records, and remove the fields if they are moved."""
        changed = self.change_objects(batch, selected)
        rows = np.flatnonzero(selected)
        rows = rows[[row not in changed.faults for row in rows.tolist()]] if changed.faults else rows
        # Each changed object is a pair of the rest of the key or value, and the values of the headers.
        pairs = [changed.objects[row] for row in rows.tolist()]
        headers = BatchHeaders.of(batch.records)
        for index, name in enumerate(self._headers):
            headers = headers.append(name, rows, pa.array([pair[1][index] for pair in pairs], pa.binary()))
        batch = replace(batch, records=headers.put_into(batch.records))
        if self._moves:
            for row, pair in zip(rows.tolist(), pairs, strict=True):
                changed.objects[row] = pair[0]
            batch = replace_payload(batch, self._side, Payload(None, changed.codes, changed.schemas, changed.objects))
        return self.fail_records(batch, changed.faults)

    def plan_schemaless(self) -> Plan:
        def change(value: Any) -> tuple[Any, list[bytes | None]]:
            fields = require_map(value, self._purpose)
            return self._drop_moved(fields), [encode_header(fields.get(name)) for name in self._fields]

        return Plan(change)

    def plan_schema(self, avro: EditableSchema) -> Plan:
        """Plan the copying of fields to headers. Moved fields also leave the record and its schema."""
        by_name = {field.name: field for field in avro.list_fields(avro.root, self._purpose)}
        if missing := [name for name in self._fields if name not in by_name]:
            raise DataError(f"Unknown field: {', '.join(missing)}")
        texts = [(name, _compile_header_writer(avro, by_name[name].node)) for name in self._fields]

        def change(value: dict[str, Any]) -> tuple[Any, list[bytes | None]]:
            return self._drop_moved(value), [text(value.get(name)) for name, text in texts]

        if not self._moves:
            return Plan(change, avro.origin)
        declarations = [field for field in avro.list_declarations(self._purpose) if field["name"] not in self._fields]
        return Plan(change, avro.replace_fields(declarations).write_schema())

    def _drop_moved(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Return a record's fields without the fields moved into headers."""
        if self._moves:
            return {name: field_value for name, field_value in fields.items() if name not in self._fields}
        return fields


def _compile_header_writer(avro: EditableSchema, node: Any) -> Any:
    """Compile an encoder of values of a node. Logical types and 32-bit floats need their schema for it."""
    if avro.find_logical_type(node) or avro.find_type(node) == "float32":
        cast = compile_cast(avro, node, "string")
        return lambda value: encode_header(cast(value))
    plain = compile_plain_json(replace(avro, root=node).write_schema(), "BASE64")
    return encode_header if plain is None else lambda value: encode_header(None if value is None else plain(value))
