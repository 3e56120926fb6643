"""The transforms of fields: InsertField, ReplaceField, MaskField, ExtractField, HoistField, Flatten, ValueToKey.

Source of the rules: the classes of these names in Apache Kafka 4.3's `org.apache.kafka.connect.transforms`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kafka_s3_platform.config.transform_catalogue import Inserted, field_path
from kafka_s3_platform.model.connect import ConnectBatch, Outcome, Schema
from kafka_s3_platform.model.record import NO_TIMESTAMP
from kafka_s3_platform.transforms.avro import TIMESTAMP, Avro, DataError, Field, new_field, optional_node
from kafka_s3_platform.transforms.edits import Columns, Edit, Mask, Plan, Side
from kafka_s3_platform.transforms.java_values import (
    INTEGER_BITS,
    encoded_decimal,
    float32,
    parsed_decimal,
    wrapped,
)

Values = Mapping[str, Any]


def required_map(value: Any, purpose: str) -> dict[str, Any]:
    """DataError: a value without a schema is no map."""
    if not isinstance(value, dict):
        raise DataError(f"Only Map objects supported in absence of schema for [{purpose}], found: {_class_of(value)}")
    return value


def defaults_of(fields: Sequence[Field], *, replace_nulls: bool) -> dict[str, Any]:
    """What a null becomes, by field."""
    return {f.name: f.default for f in fields if f.optional and f.default is not None} if replace_nulls else {}


def filled(value: dict[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The value with defaults in the place of nulls."""
    if not defaults:
        return value
    nulls = {name: default for name, default in defaults.items() if value.get(name) is None}
    return {**value, **nulls} if nulls else value


def _class_of(value: Any) -> str:
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

    def __init__(self, executing_class: str, side: Side, values: Values) -> None:
        super().__init__(executing_class, side)
        self._values = values
        self._inserted: list[tuple[str, Inserted]] = [(o, values[o]) for o in self.NODES if values[o] is not None]
        self._names = [inserted.name for _, inserted in self._inserted]

    def columns(self, batch: ConnectBatch) -> Columns:
        return [self._column(option, batch) for option, _ in self._inserted]

    def schemaless(self) -> Plan:
        def change(value: Any, *inserted: Any) -> dict[str, Any]:
            known = {name: each for name, each in zip(self._names, inserted, strict=True) if each is not None}
            return {**required_map(value, self.PURPOSE), **known}

        return Plan(change)

    def with_schema(self, avro: Avro, schema: Schema) -> Plan:  # noqa: ARG002 - Edit's
        names, required = self._names, {inserted.name for _, inserted in self._inserted if inserted.required}
        added = [new_field(each.name, self.NODES[o], optional=not each.required) for o, each in self._inserted]
        updated = avro.with_fields([*avro.raw_fields(self.PURPOSE), *added]).schema()
        fields = avro.fields(avro.root, self.PURPOSE)
        defaults = defaults_of(fields, replace_nulls=self._values["replace.null.with.default"])

        def change(value: dict[str, Any], *inserted: Any) -> dict[str, Any]:
            if None in inserted:
                _refuse_missing(required, names, inserted)
            return {**filled(value, defaults), **dict(zip(names, inserted, strict=True))}

        return Plan(change, updated)

    def _column(self, option: str, batch: ConnectBatch) -> list[Any]:
        if option == "static.field":
            return [self._values["static.value"]] * batch.num_rows
        if option == "timestamp.field":
            return [None if time == NO_TIMESTAMP else time for time in batch.timestamps.tolist()]
        column: list[Any] = batch.records.column(option.removesuffix(".field")).to_pylist()
        return column


def _refuse_missing(required: set[str], names: Sequence[str], inserted: Sequence[Any]) -> None:
    for name, each in zip(names, inserted, strict=True):
        if each is None and name in required:
            raise DataError(f"Invalid value: null used for required field: {name}")


class ReplaceField(Edit):
    """Drops, keeps and renames fields."""

    PURPOSE = "field replacement"

    def __init__(self, executing_class: str, side: Side, values: Values) -> None:
        super().__init__(executing_class, side)
        self._exclude, self._include = frozenset(values["exclude"]), frozenset(values["include"])
        self._renames: Mapping[str, str] = values["renames"]
        self._replace_nulls: bool = values["replace.null.with.default"]

    def schemaless(self) -> Plan:
        renamed, kept = self._renames.get, self._keeps

        def change(value: Any) -> dict[str, Any]:
            fields = required_map(value, self.PURPOSE).items()
            return {renamed(name, name): each for name, each in fields if kept(name)}

        return Plan(change)

    def with_schema(self, avro: Avro, schema: Schema) -> Plan:  # noqa: ARG002 - Edit's
        kept = [field for field in avro.raw_fields(self.PURPOSE) if self._keeps(field["name"])]
        pairs = [(field["name"], self._renames.get(field["name"], field["name"])) for field in kept]
        fields = [{**field, "name": new} for field, (_, new) in zip(kept, pairs, strict=True)]
        defaults = defaults_of(avro.fields(avro.root, self.PURPOSE), replace_nulls=self._replace_nulls)

        def change(value: dict[str, Any]) -> dict[str, Any]:
            get = filled(value, defaults).get
            return {new: get(old) for old, new in pairs}

        return Plan(change, avro.with_fields(fields).schema())

    def _keeps(self, name: str) -> bool:
        return name not in self._exclude and (not self._include or name in self._include)


class MaskField(Edit):
    """Replaces fields by the empty value of their type, or by a replacement. Schemas stay."""

    PURPOSE = "mask fields"
    nulls_pass = False

    def __init__(self, executing_class: str, side: Side, values: Values) -> None:
        super().__init__(executing_class, side)
        self._values = values
        self._fields: tuple[str, ...] = values["fields"]
        self._replacement: str | None = values["replacement"]

    def schemaless(self) -> Plan:
        def change(value: Any) -> dict[str, Any]:
            fields = required_map(value, self.PURPOSE)
            return {**fields, **{name: self._masked(fields.get(name)) for name in self._fields}}

        return Plan(change)

    def with_schema(self, avro: Avro, schema: Schema) -> Plan:
        fields = avro.fields(avro.root, self.PURPOSE)
        masks = {f.name: self._mask_of(avro, f.node) for f in fields if f.name in self._fields}
        defaults = defaults_of(fields, replace_nulls=self._values["replace.null.with.default"])

        def change(value: dict[str, Any]) -> dict[str, Any]:
            known = filled(value, defaults)
            return {**known, **{name: mask(known.get(name)) for name, mask in masks.items()}}

        return Plan(change, schema)

    def _masked(self, value: Any) -> Any:
        names = {bool: "boolean", int: "int64", float: "float64", str: "string", list: "array", dict: "map"}
        return None if value is None else self._mask(names.get(type(value), type(value).__name__))

    def _mask_of(self, avro: Avro, node: Any) -> Callable[[Any], Any]:
        """What a field of a schema becomes. Faults are those of records that have the field."""
        try:
            mask = self._logical_mask(avro, node)
        except DataError as error:
            return _raising(error)
        return lambda value: None if value is None else mask

    def _logical_mask(self, avro: Avro, node: Any) -> Any:
        logical = avro.logical_of(node)
        if logical == "Decimal":
            definition = avro.definition(avro.inner(node)[0])
            return encoded_decimal(
                parsed_decimal(self._replacement or "0"), definition.get("scale", 0), definition.get("size")
            )
        if logical and self._replacement is not None:
            raise DataError("Cannot mask value of type class java.util.Date with custom replacement.")
        return self._mask(avro.type_of(node))

    def _mask(self, type_: str) -> Any:
        if self._replacement is not None:
            return _replaced(type_, self._replacement)
        if type_ in INTEGER_BITS:
            return 0
        empty = {"float32": 0.0, "float64": 0.0, "boolean": False, "string": "", "array": [], "map": {}}
        if type_ not in empty:
            raise DataError(f"Cannot mask value of type: {type_}")
        return empty[type_]


def _raising(error: DataError) -> Callable[[Any], None]:
    def mask(value: Any) -> None:
        if value is not None:
            raise error

    return mask


def _replaced(type_: str, replacement: str) -> Any:
    if type_ == "string":
        return replacement
    if type_ in INTEGER_BITS:
        return wrapped(wrapped(int(parsed_decimal(replacement)), 64), INTEGER_BITS[type_])
    if type_ in {"float32", "float64"}:
        number = float(parsed_decimal(replacement))
        return float32(number) if type_ == "float32" else number
    raise DataError(f"Cannot mask value of type {type_} with custom replacement.")


class ExtractField(Edit):
    """The key or value becomes one of its fields; null where a value without a schema has no such field."""

    PURPOSE = "field extraction"

    def __init__(self, executing_class: str, side: Side, values: Values) -> None:
        super().__init__(executing_class, side)
        self._values = values
        self._path = field_path(values["field"], values["field.syntax.version"])

    def schemaless(self) -> Plan:
        *outer, last = self._path

        def change(value: Any) -> Any:
            held = required_map(value, self.PURPOSE)
            for name in outer:
                inner = held.get(name)
                if inner is None:
                    return None
                held = required_map(inner, "nested field access")
            return held.get(last)

        return Plan(change)

    def with_schema(self, avro: Avro, schema: Schema) -> Plan:  # noqa: ARG002 - Edit's
        avro.fields(avro.root, self.PURPOSE)
        node, steps = avro.root, []
        for name in self._path:
            field = self._field(avro, node, name)
            steps.append((name, field.default if field.optional else None))
            node = field.node
        if not self._values["replace.null.with.default"]:
            steps[-1] = (steps[-1][0], None)

        def change(value: Any) -> Any:
            held = value
            for name, default in steps:
                held = held.get(name)
                if held is None:
                    held = default
                if held is None:
                    return None
            return held

        return Plan(change, replace(avro, root=node).schema())

    def _field(self, avro: Avro, node: Any, name: str) -> Field:
        fields = avro.fields(node, self.PURPOSE) if avro.type_of(node) == "struct" else []
        for field in fields:
            if field.name == name:
                return field
        raise DataError(f"Unknown field: {self._values['field']}")


class HoistField(Edit):
    """The key or value becomes the only field of a new record, also when it is null."""

    nulls_pass = False

    def __init__(self, executing_class: str, side: Side, values: Values) -> None:
        super().__init__(executing_class, side)
        self._name: str = values["field"]

    def schemaless(self) -> Plan:
        return Plan(lambda value: {self._name: value})

    def with_schema(self, avro: Avro, schema: Schema) -> Plan:  # noqa: ARG002 - Edit's
        inner, optional = avro.inner(avro.root)
        field = new_field(self._name, inner if optional else avro.root, optional=optional)
        return Plan(lambda value: {self._name: value}, avro.nameless_record([field]).schema())


@dataclass(frozen=True)
class _Branch:
    """A field of a record that is flattened: a leaf, or a record with branches of its own."""

    name: str
    flat_name: str
    default: Any
    branches: "tuple[_Branch, ...] | None"


class Flatten(Edit):
    """Nested records become top-level fields. A field is optional when one above it is."""

    PURPOSE = "flattening"

    def __init__(self, executing_class: str, side: Side, values: Values) -> None:
        super().__init__(executing_class, side)
        self._delimiter: str = values["delimiter"]

    def schemaless(self) -> Plan:
        def change(value: Any) -> dict[str, Any]:
            out: dict[str, Any] = {}
            self._flatten_map(required_map(value, self.PURPOSE), "", out)
            return out

        return Plan(change)

    def with_schema(self, avro: Avro, schema: Schema) -> Plan:  # noqa: ARG002 - Edit's
        avro.fields(avro.root, self.PURPOSE)
        inner, optional = avro.inner(avro.root)
        flattening = _Flattening(avro, self._joined)
        branches = flattening.branches(inner, "", _Above(optional))
        updated = avro.with_fields(flattening.fields)

        def change(value: dict[str, Any]) -> dict[str, Any]:
            out: dict[str, Any] = {}
            _flatten_record(value, branches, out)
            return out

        return Plan(change, updated.schema())

    def _flatten_map(self, value: dict[str, Any], prefix: str, out: dict[str, Any]) -> None:
        for name, each in value.items():
            flat_name = self._joined(prefix, name)
            if isinstance(each, dict):
                self._flatten_map(each, flat_name, out)
            else:
                out[flat_name] = each

    def _joined(self, prefix: str, name: str) -> str:
        return f"{prefix}{self._delimiter}{name}" if prefix else name


@dataclass(frozen=True)
class _Above:
    """What a field gets from the records it lies in."""

    optional: bool
    defaults: Mapping[str, Any] | None = None
    names: tuple[str, ...] = ()


class _Flattening:
    """Walks through a record's fields: `branches` are how values are flattened, `fields` what they are then."""

    def __init__(self, avro: Avro, joined: Callable[[str, str], str]) -> None:
        self._avro, self._joined = avro, joined
        self.fields: list[dict[str, Any]] = []

    def branches(self, node: Any, prefix: str, above: _Above) -> tuple[_Branch, ...]:
        name = self._avro.inner(node)[0]
        if name in above.names:
            raise DataError(f"{name} holds itself: a recursive schema cannot be flattened")
        within = replace(above, names=(*above.names, name))
        declared = self._avro.definition(name)["fields"]
        return tuple(self._branch(field, self._joined(prefix, field["name"]), within) for field in declared)

    def _branch(self, field: Mapping[str, Any], flat_name: str, above: _Above) -> _Branch:
        type_ = self._avro.type_of(field["type"])
        inner, nullable = self._avro.inner(field["type"])
        optional = above.optional or nullable
        default = field.get("default")
        if default is None and above.defaults is not None:
            default = above.defaults.get(field["name"])
        if type_ == "struct":
            within = _Above(optional, default, above.names)
            return _Branch(field["name"], flat_name, None, self.branches(inner, flat_name, within))
        if type_ in {"map", "union", "null"}:
            raise DataError(
                f"Flatten transformation does not support {type_.upper()} for record with schemas "
                f"(for field {flat_name})."
            )
        self.fields.append(_flat_field(field, flat_name, inner, default, optional=optional))
        physical = self._avro.physical_default(default, inner) if optional else None
        return _Branch(field["name"], flat_name, physical, None)


def _flat_field(declared: Mapping[str, Any], name: str, node: Any, default: Any, *, optional: bool) -> dict[str, Any]:
    rest = {key: value for key, value in declared.items() if key not in {"name", "type", "default"}}
    field = {"name": name, "type": optional_node(node, default) if optional else node, **rest}
    return {**field, "default": default} if optional or default is not None else field


def _flatten_record(value: Mapping[str, Any] | None, branches: tuple[_Branch, ...], out: dict[str, Any]) -> None:
    for branch in branches:
        each = None if value is None else value.get(branch.name)
        if branch.branches is None:
            out[branch.flat_name] = branch.default if each is None else each
        else:
            _flatten_record(each, branch.branches, out)


class ValueToKey(Edit):
    """The key becomes a record of fields of the value."""

    PURPOSE = "copying fields from value to key"
    nulls_pass = False

    def __init__(self, executing_class: str, side: Side, values: Values) -> None:
        super().__init__(executing_class, side)
        self._values = values
        self._fields: tuple[str, ...] = values["fields"]

    def run(self, batch: ConnectBatch, selected: Mask | None) -> Outcome:
        changed = self.apply(batch.value, batch.key, (), selected)
        return self.outcome(replace(batch, key=changed.payload()), changed.faults)

    def schemaless(self) -> Plan:
        def change(value: Any) -> dict[str, Any]:
            get = required_map(value, self.PURPOSE).get
            return {name: get(name) for name in self._fields}

        return Plan(change)

    def with_schema(self, avro: Avro, schema: Schema) -> Plan:  # noqa: ARG002 - Edit's
        declared = {field["name"]: field for field in avro.raw_fields(self.PURPOSE)}
        for name in self._fields:
            if name not in declared:
                raise DataError(f"Field does not exist: {name}")
        fields = [field for field in avro.fields(avro.root, self.PURPOSE) if field.name in self._fields]
        defaults = defaults_of(fields, replace_nulls=self._values["replace.null.with.default"])

        def change(value: dict[str, Any]) -> dict[str, Any]:
            get = filled(value, defaults).get
            return {name: get(name) for name in self._fields}

        return Plan(change, avro.nameless_record([declared[name] for name in self._fields]).schema())
