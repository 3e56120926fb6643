"""DropHeaders, InsertHeader and HeaderFrom: headers as Arrow holds them.

Source of the rules: the classes of these names in Apache Kafka 4.3's `org.apache.kafka.connect.transforms`. A header
is bytes here: what is inserted is written as Connect's SimpleHeaderConverter writes it, except that bytes stay bytes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.model.connect import ConnectBatch, Outcome, Payload, Schema
from kafka_s3_platform.model.record import HEADER, RECORD_SCHEMA
from kafka_s3_platform.transforms.avro import Avro, DataError
from kafka_s3_platform.transforms.cast import caster
from kafka_s3_platform.transforms.edits import Edit, Mask, Plan, Side, with_payload
from kafka_s3_platform.transforms.fields import defaults_of, filled, required_map
from kafka_s3_platform.transforms.java_values import json_text, text_of

Rows = npt.NDArray[np.int64]

HEADERS = RECORD_SCHEMA.field("headers").type


@dataclass(frozen=True)
class Headers:
    """All headers of a batch in a row: the record each belongs to, ascending, its key and its value."""

    rows: Rows
    keys: pa.StringArray
    values: pa.BinaryArray

    @staticmethod
    def of(records: pa.RecordBatch) -> "Headers":
        column = records.column("headers")
        keys, values = pc.list_flatten(column).flatten()
        return Headers(pc.list_parent_indices(column).to_numpy().astype(np.int64), keys, values)

    def put_into(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """The records with these headers. A record without any has null."""
        counts = np.bincount(self.rows, minlength=records.num_rows)
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        elements = pa.StructArray.from_arrays([self.keys, self.values], fields=list(HEADER))
        column = pa.ListArray.from_arrays(offsets, elements, type=HEADERS, mask=pa.array(counts == 0))
        return with_column(records, "headers", column)

    def kept(self, kept: Mask) -> "Headers":
        mask = pa.array(kept)
        return Headers(self.rows[kept], self.keys.filter(mask), self.values.filter(mask))

    def appended(self, name: str, rows: Rows, values: pa.BinaryArray) -> "Headers":
        """One more header behind those of each of the records `rows`."""
        keys = pa.concat_arrays([self.keys, pa.array([name] * len(rows), pa.string())])
        everyone = np.concatenate([self.rows, rows])
        order = np.argsort(everyone, kind="stable")
        taken = pa.array(order)
        return Headers(everyone[order], keys.take(taken), pa.concat_arrays([self.values, values]).take(taken))


def with_column(records: pa.RecordBatch, name: str, column: pa.Array) -> pa.RecordBatch:
    """The records with one column of RECORD_SCHEMA replaced."""
    index = records.schema.get_field_index(name)
    return records.set_column(index, records.schema.field(index), column)


def header_bytes(value: Any) -> bytes | None:
    """A header's value as bytes: text in UTF-8, numbers in Java's text, lists and maps as JSON."""
    if value is None or isinstance(value, bytes):
        return value
    return (json_text(value) if isinstance(value, list | dict) else text_of(value)).encode()


class DropHeaders:
    """Removes headers by name."""

    def __init__(self, executing_class: str, values: Mapping[str, Any]) -> None:
        self.executing_class = executing_class
        self._names = pa.array(values["headers"], pa.string())

    def run(self, batch: ConnectBatch, selected: Mask | None) -> Outcome:
        headers = Headers.of(batch.records)
        dropped: Mask = pc.is_in(headers.keys, self._names).to_numpy(zero_copy_only=False)
        if selected is not None:
            dropped = dropped & selected[headers.rows]
        if not dropped.any():
            return Outcome(batch)
        return Outcome(replace(batch, records=headers.kept(~dropped).put_into(batch.records)))


class InsertHeader:
    """Adds a header behind the others."""

    def __init__(self, executing_class: str, values: Mapping[str, Any]) -> None:
        self.executing_class = executing_class
        self._name: str = values["header"]
        literal: str = values["value.literal"]
        self._value = None if literal == "null" else literal.encode()

    def run(self, batch: ConnectBatch, selected: Mask | None) -> Outcome:
        rows = np.arange(batch.num_rows) if selected is None else np.flatnonzero(selected)
        values = pa.array([self._value] * len(rows), pa.binary())
        headers = Headers.of(batch.records).appended(self._name, rows, values)
        return Outcome(replace(batch, records=headers.put_into(batch.records)))


class HeaderFrom(Edit):
    """Moves or copies fields into headers."""

    nulls_pass = False

    def __init__(self, executing_class: str, side: Side, values: Mapping[str, Any]) -> None:
        super().__init__(executing_class, side)
        self._fields: Sequence[str] = values["fields"]
        self._headers: Sequence[str] = values["headers"]
        self._moves: bool = values["operation"] == "move"
        self._purpose = f"header {values['operation']}"
        self._replace_nulls: bool = values["replace.null.with.default"]

    def run(self, batch: ConnectBatch, selected: Mask | None) -> Outcome:
        changed = self.changed(batch, selected)
        rows = np.arange(batch.num_rows) if selected is None else np.flatnonzero(selected)
        rows = rows[[row not in changed.faults for row in rows.tolist()]] if changed.faults else rows
        pairs = [changed.objects[row] for row in rows.tolist()]
        headers = Headers.of(batch.records)
        for index, name in enumerate(self._headers):
            headers = headers.appended(name, rows, pa.array([pair[1][index] for pair in pairs], pa.binary()))
        batch = replace(batch, records=headers.put_into(batch.records))
        if self._moves:
            for row, pair in zip(rows.tolist(), pairs, strict=True):
                changed.objects[row] = pair[0]
            batch = with_payload(batch, self.side, Payload(None, changed.codes, changed.schemas, changed.objects))
        return self.outcome(batch, changed.faults)

    def schemaless(self) -> Plan:
        def change(value: Any) -> tuple[Any, list[bytes | None]]:
            fields = required_map(value, self._purpose)
            return self._rest(fields), [header_bytes(fields.get(name)) for name in self._fields]

        return Plan(change)

    def with_schema(self, avro: Avro, schema: Schema) -> Plan:
        known = avro.fields(avro.root, self._purpose)
        by_name = {field.name: field for field in known}
        if missing := [name for name in self._fields if name not in by_name]:
            raise DataError(f"Unknown field: {', '.join(missing)}")
        texts = [(name, _header_of(avro, by_name[name].node)) for name in self._fields]
        defaults = defaults_of(known, replace_nulls=self._replace_nulls)

        def change(value: dict[str, Any]) -> tuple[Any, list[bytes | None]]:
            fields = filled(value, defaults)
            return self._rest(fields), [text(fields.get(name)) for name, text in texts]

        if not self._moves:
            return Plan(change, schema)
        rest = [field for field in avro.raw_fields(self._purpose) if field["name"] not in self._fields]
        return Plan(change, avro.with_fields(rest).schema())

    def _rest(self, fields: dict[str, Any]) -> dict[str, Any]:
        return {name: each for name, each in fields.items() if name not in self._fields} if self._moves else fields


def _header_of(avro: Avro, node: Any) -> Any:
    """A function that writes what a node of a schema holds: logical types and floats by their schema."""
    if avro.logical_of(node) or avro.type_of(node) == "float32":
        cast = caster(avro, node, "string")
        return lambda value: header_bytes(cast(value))
    return header_bytes
