"""The transforms of fields: InsertField, ReplaceField, ExtractField, HoistField and ValueToKey.

Source of the rules: the classes of these names in Apache Kafka 4.3's `org.apache.kafka.connect.transforms`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kafka_s3_platform.avro.structs import TIMESTAMP, Avro, Field, declare_field
from kafka_s3_platform.config.keys.transforms.options import Inserted, split_field_path
from kafka_s3_platform.model.connect import ConnectBatch, DataError, Mask, Outcome, Schema, Side
from kafka_s3_platform.model.json_values import require_exact
from kafka_s3_platform.model.record import NO_TIMESTAMP
from kafka_s3_platform.transforms.edits import Columns, Edit, Plan

FieldValues = Mapping[str, Any]


def require_map(value: Any, purpose: str) -> dict[str, Any]:
    """Return the schemaless value if it is a map. Raise DataError if not."""
    if not isinstance(value, dict):
        require_exact(value)
        raise DataError(f"Only Map objects supported in absence of schema for [{purpose}], found: {_name_class(value)}")
    return value


def collect_defaults(fields: Sequence[Field], *, replace_nulls: bool) -> dict[str, Any]:
    """Return the replacements of nulls, by field. Empty unless `replace_nulls`."""
    if replace_nulls:
        return {f.name: f.default for f in fields if f.optional and f.default is not None}
    return {}


def fill_nulls(value: dict[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value with defaults in place of nulls."""
    if not defaults:
        return value
    nulls = {name: default for name, default in defaults.items() if value.get(name) is None}
    return {**value, **nulls} if nulls else value


def _name_class(value: Any) -> str:
    return "null" if value is None else type(value).__name__


class InsertField(Edit):
    """Adds metadata of the record, or a fixed value, as fields."""

    PURPOSE = "field insertion"
    NODES: Mapping[str, Any] = {
        "topic.field": "string",
        "partition.field": "int",
        "offset.field": "long",
        "timestamp.field": TIMESTAMP,
        "static.field": "string",
    }

    def __init__(self, executing_class: str, side: Side, values: FieldValues) -> None:
        super().__init__(executing_class, side)
        self._values = values
        self._inserted: list[tuple[str, Inserted]] = [(o, values[o]) for o in self.NODES if values[o] is not None]
        self._names = [inserted.name for _, inserted in self._inserted]

    def columns(self, batch: ConnectBatch) -> Columns:
        return [self._column(option, batch) for option, _ in self._inserted]

    def schemaless(self) -> Plan:
        def change(value: Any, *inserted: Any) -> dict[str, Any]:
            pairs = zip(self._names, inserted, strict=True)
            return {**require_map(value, self.PURPOSE), **{name: v for name, v in pairs if v is not None}}

        return Plan(change)

    def with_schema(self, avro: Avro, schema: Schema) -> Plan:  # noqa: ARG002 - Edit's
        names = self._names
        required = {inserted.name for _, inserted in self._inserted if inserted.required}
        added = [declare_field(new.name, self.NODES[o], optional=not new.required) for o, new in self._inserted]
        updated = avro.with_fields([*avro.raw_fields(self.PURPOSE), *added]).schema()
        fields = avro.fields(avro.root, self.PURPOSE)
        defaults = collect_defaults(fields, replace_nulls=self._values["replace.null.with.default"])

        def change(value: dict[str, Any], *inserted: Any) -> dict[str, Any]:
            if None in inserted:
                _refuse_missing(required, names, inserted)
            return {**fill_nulls(value, defaults), **dict(zip(names, inserted, strict=True))}

        return Plan(change, updated)

    def _column(self, option: str, batch: ConnectBatch) -> list[Any]:
        if option == "static.field":
            return [self._values["static.value"]] * batch.num_rows
        if option == "timestamp.field":
            return [None if time == NO_TIMESTAMP else time for time in batch.timestamps.tolist()]
        column: list[Any] = batch.records.column(option.removesuffix(".field")).to_pylist()
        return column


def _refuse_missing(required: set[str], names: Sequence[str], inserted: Sequence[Any]) -> None:
    for name, field_value in zip(names, inserted, strict=True):
        if field_value is None and name in required:
            raise DataError(f"Invalid value: null used for required field: {name}")


class ReplaceField(Edit):
    """Drops, keeps and renames fields."""

    PURPOSE = "field replacement"

    def __init__(self, executing_class: str, side: Side, values: FieldValues) -> None:
        super().__init__(executing_class, side)
        self._exclude = frozenset(values["exclude"])
        self._include = frozenset(values["include"])
        self._renames: Mapping[str, str] = values["renames"]
        self._replace_nulls: bool = values["replace.null.with.default"]

    def schemaless(self) -> Plan:
        renamed = self._renames.get

        def change(value: Any) -> dict[str, Any]:
            fields = require_map(value, self.PURPOSE).items()
            return {renamed(name, name): field_value for name, field_value in fields if self._keeps(name)}

        return Plan(change)

    def with_schema(self, avro: Avro, schema: Schema) -> Plan:  # noqa: ARG002 - Edit's
        declarations = [field for field in avro.raw_fields(self.PURPOSE) if self._keeps(field["name"])]
        pairs = [(field["name"], self._renames.get(field["name"], field["name"])) for field in declarations]
        fields = [{**field, "name": new} for field, (_, new) in zip(declarations, pairs, strict=True)]
        defaults = collect_defaults(avro.fields(avro.root, self.PURPOSE), replace_nulls=self._replace_nulls)

        def change(value: dict[str, Any]) -> dict[str, Any]:
            get = fill_nulls(value, defaults).get
            return {new: get(old) for old, new in pairs}

        return Plan(change, avro.with_fields(fields).schema())

    def _keeps(self, name: str) -> bool:
        return name not in self._exclude and (not self._include or name in self._include)


class ExtractField(Edit):
    """Replaces the key or value by one of its fields: null if a value without a schema does not have the field."""

    PURPOSE = "field extraction"

    def __init__(self, executing_class: str, side: Side, values: FieldValues) -> None:
        super().__init__(executing_class, side)
        self._values = values
        self._path = split_field_path(values["field"], values["field.syntax.version"])

    def schemaless(self) -> Plan:
        *outer, last = self._path

        def change(value: Any) -> Any:
            fields = require_map(value, self.PURPOSE)
            for name in outer:
                inner = fields.get(name)
                if inner is None:
                    return None
                fields = require_map(inner, "nested field access")
            return fields.get(last)

        return Plan(change)

    def with_schema(self, avro: Avro, schema: Schema) -> Plan:  # noqa: ARG002 - Edit's
        avro.fields(avro.root, self.PURPOSE)
        node = avro.root
        steps = []
        for name in self._path:
            field = self._field(avro, node, name)
            replaced = self._values["replace.null.with.default"] and field.optional
            steps.append((name, field.default if replaced else None))
            node = field.node

        def change(value: Any) -> Any:
            inner = value
            for name, default in steps:
                inner = inner.get(name)
                if inner is None:
                    inner = default
                if inner is None:
                    return None
            return inner

        return Plan(change, replace(avro, root=node).schema())

    def _field(self, avro: Avro, node: Any, name: str) -> Field:
        fields = avro.fields(node, self.PURPOSE) if avro.type_of(node) == "struct" else []
        for field in fields:
            if field.name == name:
                return field
        raise DataError(f"Unknown field: {self._values['field']}")


class HoistField(Edit):
    """Makes the key or value the only field of a new record, even if it is null."""

    nulls_pass = False

    def __init__(self, executing_class: str, side: Side, values: FieldValues) -> None:
        super().__init__(executing_class, side)
        self._name: str = values["field"]

    def schemaless(self) -> Plan:
        return Plan(lambda value: {self._name: value})

    def with_schema(self, avro: Avro, schema: Schema) -> Plan:  # noqa: ARG002 - Edit's
        inner, optional = avro.inner(avro.root)
        field = declare_field(self._name, inner if optional else avro.root, optional=optional)
        return Plan(lambda value: {self._name: value}, avro.nameless_record([field]).schema())


class ValueToKey(Edit):
    """Replaces the key by a record of fields of the value."""

    PURPOSE = "copying fields from value to key"
    nulls_pass = False

    def __init__(self, executing_class: str, side: Side, values: FieldValues) -> None:
        super().__init__(executing_class, side)
        self._values = values
        self._fields: tuple[str, ...] = values["fields"]

    def run(self, batch: ConnectBatch, selected: Mask | None) -> Outcome:
        changed = self.apply(batch.value, batch.key, (), selected)
        return self.outcome(replace(batch, key=changed.payload()), changed.faults)

    def schemaless(self) -> Plan:
        def change(value: Any) -> dict[str, Any]:
            get = require_map(value, self.PURPOSE).get
            return {name: get(name) for name in self._fields}

        return Plan(change)

    def with_schema(self, avro: Avro, schema: Schema) -> Plan:  # noqa: ARG002 - Edit's
        declared = {field["name"]: field for field in avro.raw_fields(self.PURPOSE)}
        for name in self._fields:
            if name not in declared:
                raise DataError(f"Field does not exist: {name}")
        fields = [field for field in avro.fields(avro.root, self.PURPOSE) if field.name in self._fields]
        defaults = collect_defaults(fields, replace_nulls=self._values["replace.null.with.default"])

        def change(value: dict[str, Any]) -> dict[str, Any]:
            get = fill_nulls(value, defaults).get
            return {name: get(name) for name in self._fields}

        return Plan(change, avro.nameless_record([declared[name] for name in self._fields]).schema())
