"""The transforms of fields and of their schema's name.

They are InsertField, ReplaceField, ExtractField, HoistField, ValueToKey, MaskField, SetSchemaMetadata, and Flatten,
which turns nested records into top-level fields. Each makes a *plan* (see `edits`) for objects of one schema, and one
for objects without a schema. Source of the rules: the classes of these names in Apache Kafka 4.3's
`org.apache.kafka.connect.transforms`. As in Confluent's AvroData, a schema's name in Avro is a named type's own name or
else `connect.name`, and its version is `connect.version`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from kafka_s3_platform.connect.avro.json_values import require_exact
from kafka_s3_platform.connect.avro.structs import (
    TIMESTAMP,
    EditableSchema,
    Field,
    declare_field,
    make_optional,
    refuse_repeated,
)
from kafka_s3_platform.connect.config.keys.transform_catalogue import Inserted, split_field_path
from kafka_s3_platform.connect.java.numbers import (
    INTEGER_BITS,
    encode_decimal,
    parse_java_decimal,
    round_to_float32,
    wrap_int,
)
from kafka_s3_platform.connect.transforms.edits import Columns, Edit, Plan
from kafka_s3_platform.core.model.batches import NO_TIMESTAMP
from kafka_s3_platform.core.model.connect import ConnectBatch, DataError, Mask, Outcome

FieldValues = Mapping[str, Any]


def require_map(value: Any, purpose: str) -> dict[str, Any]:
    """Return the schemaless value if it is a map. Raise DataError if not."""
    if not isinstance(value, dict):
        require_exact(value)
        class_name = "null" if value is None else type(value).__name__
        raise DataError(f"Only Map objects supported in absence of schema for [{purpose}], found: {class_name}")
    return value


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

    def __init__(self, executing_class: str, side: str, values: FieldValues) -> None:
        super().__init__(executing_class, side, values)
        self._inserted: list[tuple[str, Inserted]] = [(o, values[o]) for o in self.NODES if values[o] is not None]
        self._names = [inserted.name for _, inserted in self._inserted]

    def read_columns(self, batch: ConnectBatch) -> Columns:
        return [self._read_column(option, batch) for option, _ in self._inserted]

    def plan_schemaless(self) -> Plan:
        """Plan the insertion into maps. A null, such as a missing timestamp, is left out."""

        def change(value: Any, *inserted: Any) -> dict[str, Any]:
            pairs = zip(self._names, inserted, strict=True)
            return {**require_map(value, self.PURPOSE), **{name: v for name, v in pairs if v is not None}}

        return Plan(change)

    def plan_schema(self, avro: EditableSchema) -> Plan:
        """Plan the insertion. Fields are appended to the schema, and `change` gets their values for each record."""
        names = self._names
        required = {inserted.name for _, inserted in self._inserted if inserted.required}
        declarations = [
            declare_field(inserted_field.name, self.NODES[o], optional=not inserted_field.required)
            for o, inserted_field in self._inserted
        ]
        updated = avro.replace_fields([*avro.list_declarations(self.PURPOSE), *declarations]).write_schema()

        def change(value: dict[str, Any], *inserted: Any) -> dict[str, Any]:
            inserted_fields = dict(zip(names, inserted, strict=True))
            if None in inserted:
                for name, field_value in inserted_fields.items():
                    if field_value is None and name in required:
                        raise DataError(f"Invalid value: null used for required field: {name}")
            return {**value, **inserted_fields}

        return Plan(change, updated)

    def _read_column(self, option: str, batch: ConnectBatch) -> list[Any]:
        """Return the values the option inserts, one for each record."""
        if option == "static.field":
            return [self._values["static.value"]] * batch.num_rows
        if option == "timestamp.field":
            return [None if time == NO_TIMESTAMP else time for time in batch.timestamps.tolist()]
        column: list[Any] = batch.records.column(option.removesuffix(".field")).to_pylist()
        return column


class ReplaceField(Edit):
    """Drops, keeps and renames fields."""

    PURPOSE = "field replacement"

    def __init__(self, executing_class: str, side: str, values: FieldValues) -> None:
        super().__init__(executing_class, side, values)
        self._exclude = frozenset(values["exclude"])
        self._include = frozenset(values["include"])
        self._renames: Mapping[str, str] = values["renames"]

    def plan_schemaless(self) -> Plan:
        """Plan the entries of maps to keep, and their new names."""
        renamed = self._renames.get

        def change(value: Any) -> dict[str, Any]:
            fields = [name for name in require_map(value, self.PURPOSE) if self._keeps_field(name)]
            new_names = [renamed(name, name) for name in fields]
            refuse_repeated(new_names)
            return {new_name: value[name] for name, new_name in zip(fields, new_names, strict=True)}

        return Plan(change)

    def plan_schema(self, avro: EditableSchema) -> Plan:
        """Plan the fields to keep, and their new names."""
        declarations = [field for field in avro.list_declarations(self.PURPOSE) if self._keeps_field(field["name"])]
        pairs = [(field["name"], self._renames.get(field["name"], field["name"])) for field in declarations]
        fields = [{**field, "name": new_name} for field, (_, new_name) in zip(declarations, pairs, strict=True)]
        updated = avro.replace_fields(fields).write_schema()
        return Plan(lambda value: {new_name: value.get(old_name) for old_name, new_name in pairs}, updated)

    def _keeps_field(self, name: str) -> bool:
        return name not in self._exclude and (not self._include or name in self._include)


class ExtractField(Edit):
    """Replaces the key or value with one of its fields, or with null if a value without a schema lacks the field."""

    PURPOSE = "field extraction"

    def __init__(self, executing_class: str, side: str, values: FieldValues) -> None:
        super().__init__(executing_class, side, values)
        self._path = split_field_path(values["field"], values["field.syntax.version"])

    def plan_schemaless(self) -> Plan:
        """Plan the replacement of a map with one of its entries, or with null if there is no such entry."""
        *outer_names, last_name = self._path

        def change(value: Any) -> Any:
            fields = require_map(value, self.PURPOSE)
            for name in outer_names:
                inner = fields.get(name)
                if inner is None:
                    return None
                fields = require_map(inner, "nested field access")
            return fields.get(last_name)

        return Plan(change)

    def plan_schema(self, avro: EditableSchema) -> Plan:
        """Plan the replacement of a record with one of its fields, or with null if a record on the way is null."""
        avro.list_fields(avro.root, self.PURPOSE)
        node = avro.root
        steps = []
        for name in self._path:
            field = self._field(avro, node, name)
            replaces_nulls = self._values["replace.null.with.default"] and field.optional
            steps.append((name, field.default if replaces_nulls else None))
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

        return Plan(change, replace(avro, root=node).write_schema())

    def _field(self, avro: EditableSchema, node: Any, name: str) -> Field:
        """Return the field `name` of a record. Raise DataError if the node is not a record with this field."""
        fields = avro.list_fields(node, self.PURPOSE) if avro.find_type(node) == "struct" else []
        for field in fields:
            if field.name == name:
                return field
        raise DataError(f"Unknown field: {self._values['field']}")


class HoistField(Edit):
    """Makes the key or value the only field of a new record, even if it is null."""

    nulls_pass = False

    def plan_schemaless(self) -> Plan:
        name = self._values["field"]
        return Plan(lambda value: {name: value})

    def plan_schema(self, avro: EditableSchema) -> Plan:
        """Plan a record of one field. An optional value makes the field optional."""
        inner, optional = avro.split_optional(avro.root)
        field = declare_field(self._values["field"], inner if optional else avro.root, optional=optional)
        return replace(self.plan_schemaless(), schema=avro.make_nameless_record([field]).write_schema())


class ValueToKey(Edit):
    """Replaces the key with a record of fields of the value."""

    PURPOSE = "copying fields from value to key"
    nulls_pass = False

    def run(self, batch: ConnectBatch, selected: Mask) -> Outcome:
        """Replace the keys of the selected records. A record fails if its value lacks one of the fields."""
        changed = self.apply(batch.value, batch.key, (), selected)
        return self.fail_records(replace(batch, key=changed.payload()), changed.faults)

    def plan_schemaless(self) -> Plan:
        def change(value: Any) -> dict[str, Any]:
            get = require_map(value, self.PURPOSE).get
            return {name: get(name) for name in self._values["fields"]}

        return Plan(change)

    def plan_schema(self, avro: EditableSchema) -> Plan:
        """Plan a key of some of the value's fields. Raise DataError if the schema lacks one of them."""
        declared = {field["name"]: field for field in avro.list_declarations(self.PURPOSE)}
        names = self._values["fields"]
        for name in names:
            if name not in declared:
                raise DataError(f"Field does not exist: {name}")
        schema = avro.make_nameless_record([declared[name] for name in names]).write_schema()
        return Plan(lambda value: {name: value.get(name) for name in names}, schema)


class MaskField(Edit):
    """Replaces fields with the empty value of their type, or with a replacement. Schemas do not change."""

    PURPOSE = "mask fields"
    nulls_pass = False

    def __init__(self, executing_class: str, side: str, values: FieldValues) -> None:
        super().__init__(executing_class, side, values)
        self._fields: tuple[str, ...] = values["fields"]
        self._replacement: str | None = values["replacement"]

    def plan_schemaless(self) -> Plan:
        def change(value: Any) -> dict[str, Any]:
            fields = require_map(value, self.PURPOSE)
            return {**fields, **{name: self._mask_schemaless(fields[name]) for name in self._fields if name in fields}}

        return Plan(change)

    def plan_schema(self, avro: EditableSchema) -> Plan:
        """Plan the replacement of fields with a fixed text or number, or with an empty value of their type."""
        fields = avro.list_fields(avro.root, self.PURPOSE)
        masks = {f.name: self._compile_mask(avro, f.node) for f in fields if f.name in self._fields}

        def change(value: dict[str, Any]) -> dict[str, Any]:
            return {**value, **{name: mask(value.get(name)) for name, mask in masks.items()}}

        return Plan(change, avro.origin)

    def _mask_schemaless(self, value: Any) -> Any:
        """Return the mask of a value without a schema, by its Python type. Null stays null."""
        names = {bool: "boolean", int: "int64", str: "string", list: "array", dict: "map"}
        names |= dict.fromkeys((float, Decimal), "float64")
        if value is None:
            return None
        return self._build_plain_mask(names.get(type(value), type(value).__name__))

    def _compile_mask(self, avro: EditableSchema, node: Any) -> Callable[[Any], Any]:
        """Compile a mask of a field. If its type cannot be masked, only records in which the field is not null fail."""
        try:
            mask = self._build_mask(avro, node)
        except DataError as error:
            return _compile_refusal(error)
        return lambda value: None if value is None else mask

    def _build_mask(self, avro: EditableSchema, node: Any) -> Any:
        """Return the value that replaces a field's values: an empty one, or the replacement in the field's type."""
        logical = avro.find_logical_type(node)
        if logical == "Decimal":
            definition = avro.find_definition(avro.split_optional(node)[0])
            return encode_decimal(
                parse_java_decimal(self._replacement or "0"), definition.get("scale", 0), definition.get("size")
            )
        if logical and self._replacement is not None:
            raise DataError("Cannot mask value of type class java.util.Date with custom replacement.")
        return self._build_plain_mask(avro.find_type(node))

    def _build_plain_mask(self, type_: str) -> Any:
        """Return the mask of values of a type: the replacement, or else 0, false, or an empty text, list or map."""
        if self._replacement is not None:
            return _parse_replacement(type_, self._replacement)
        if type_ in INTEGER_BITS:
            return 0
        empty = {"float32": 0.0, "float64": 0.0, "boolean": False, "string": "", "array": [], "map": {}}
        if type_ not in empty:
            raise DataError(f"Cannot mask value of type: {type_}")
        return empty[type_]


def _compile_refusal(error: DataError) -> Callable[[Any], None]:
    """Return a mask that raises this error for each value except null."""

    def mask(value: Any) -> None:
        if value is not None:
            raise error

    return mask


def _parse_replacement(type_: str, replacement: str) -> Any:
    """Return the text of the option `replacement` as a value of a type. Raise DataError if it is not one."""
    if type_ == "string":
        return replacement
    if type_ in INTEGER_BITS:
        # Narrowed in two steps, to a long and then to the type.
        return wrap_int(wrap_int(int(parse_java_decimal(replacement)), 64), INTEGER_BITS[type_])
    if type_ in {"float32", "float64"}:
        number = float(parse_java_decimal(replacement))
        if type_ == "float32":
            return round_to_float32(number)
        return number
    raise DataError(f"Cannot mask value of type {type_} with custom replacement.")


PURPOSE = "updating schema metadata"


class SetSchemaMetadata(Edit):
    """Sets the name and version of schemas. Values keep their content, but nulls may become defaults."""

    def plan_schemaless(self) -> Plan:
        raise DataError(f"Schema required for [{PURPOSE}]")

    def plan_schema(self, avro: EditableSchema) -> Plan:
        """Plan the new name and version. Values stay as they are."""
        updated = replace(self._rename_schema(avro), version=self._values["schema.version"] or avro.version)
        return Plan(lambda value: value, updated.write_schema())

    def _rename_schema(self, avro: EditableSchema) -> EditableSchema:
        """Return the schema with the new name and version. A type without a name gets it as an attribute."""
        inner, optional = avro.split_optional(avro.root)
        if isinstance(inner, list):
            raise DataError(f"a union of several types has no name or version [{PURPOSE}]")
        new_name: str | None = self._values["schema.name"]
        definition = dict(avro.find_definition(inner))
        if self._values["schema.version"] is not None:
            definition["connect.version"] = self._values["schema.version"]
        is_named_type = isinstance(inner, str) and inner in avro.names
        if new_name is not None and (not is_named_type or "connect.name" in definition):
            definition["connect.name"] = new_name
        if is_named_type:
            return avro.replace_record(new_name or inner, {**definition, "name": new_name or inner})
        return replace(avro, root=make_optional(definition) if optional else definition)


@dataclass(frozen=True)
class _FieldBranch:
    """A field of a flattened record. It is a leaf if `branches` is None, else a record with these branches."""

    name: str
    flat_name: str
    branches: "tuple[_FieldBranch, ...] | None"


class Flatten(Edit):
    """Turns nested records into top-level fields. A field becomes optional if a record around it is optional."""

    PURPOSE = "flattening"

    def plan_schemaless(self) -> Plan:
        delimiter = self._values["delimiter"]
        return Plan(lambda value: _flatten_map(require_map(value, self.PURPOSE), "", delimiter, {}))

    def plan_schema(self, avro: EditableSchema) -> Plan:
        """Plan one flat record with the fields of all nested records, under joined names."""
        avro.list_fields(avro.root, self.PURPOSE)
        inner, optional = avro.split_optional(avro.root)
        flattening = _Flattening(avro, self._values["delimiter"])
        branches = flattening.compile_branches(inner, (), _OuterAttributes(optional))
        updated = avro.replace_fields(flattening.fields).write_schema()
        return Plan(lambda value: _flatten_record(value, branches, {}), updated)


def _flatten_map(value: Mapping[str, Any], prefix: str, delimiter: str, out: dict[str, Any]) -> dict[str, Any]:
    """Put the entries of nested maps into `out`, under the joined names of the keys above them. Return `out`."""
    for name, inner in value.items():
        flat_name = f"{prefix}{delimiter}{name}" if prefix else name
        if isinstance(inner, dict):
            _flatten_map(inner, flat_name, delimiter, out)
        elif flat_name in out:
            refuse_repeated([flat_name, flat_name])
        else:
            out[flat_name] = inner
    return out


def _flatten_record(
    value: Mapping[str, Any] | None, branches: tuple[_FieldBranch, ...], out: dict[str, Any]
) -> dict[str, Any]:
    """Put the fields of nested records into `out` under flat names, and return `out`. Fields of a null are null."""
    for branch in branches:
        inner = None if value is None else value.get(branch.name)
        if branch.branches is None:
            out[branch.flat_name] = inner
        else:
            _flatten_record(inner, branch.branches, out)
    return out


@dataclass(frozen=True)
class _OuterAttributes:
    """The attributes that a field inherits from the records around it."""

    optional: bool
    defaults: Mapping[str, Any] | None = None
    names: tuple[str, ...] = ()


class _Flattening:
    """Compiles the fields of nested records to branches, for flattening values, and to flat declarations (`fields`)."""

    def __init__(self, avro: EditableSchema, delimiter: str) -> None:
        self._avro = avro
        self._delimiter = delimiter
        self.fields: list[dict[str, Any]] = []

    def compile_branches(self, name: str, path: tuple[str, ...], outer: _OuterAttributes) -> tuple[_FieldBranch, ...]:
        """Compile the fields of the named record type at `path`. Raise DataError if a type cannot be flattened."""
        if name in outer.names:
            raise DataError(f"{name} holds itself: a recursive schema cannot be flattened")
        inner_outer = replace(outer, names=(*outer.names, name))
        declared = self._avro.find_definition(name)["fields"]
        return tuple(self._compile_branch(field, (*path, field["name"]), inner_outer) for field in declared)

    def _compile_branch(self, field: Mapping[str, Any], path: tuple[str, ...], outer: _OuterAttributes) -> _FieldBranch:
        """Compile one field of a record that is flattened, and all fields below it."""
        flat_name = self._delimiter.join(path)
        type_ = self._avro.find_type(field["type"])
        inner, nullable = self._avro.split_optional(field["type"])
        optional = outer.optional or nullable
        default = field.get("default")
        # The default of a record holds defaults for its fields.
        if default is None and outer.defaults is not None:
            default = outer.defaults.get(field["name"])
        if type_ == "struct":
            inner_outer = _OuterAttributes(optional, default, outer.names)
            return _FieldBranch(field["name"], flat_name, self.compile_branches(inner, path, inner_outer))
        if type_ in {"map", "union", "null"}:
            raise DataError(
                f"Flatten transformation does not support {type_.upper()} for record with schemas "
                f"(for field {flat_name})."
            )
        attributes = {key: attribute for key, attribute in field.items() if key not in {"name", "type", "default"}}
        flat_field = {"name": flat_name, "type": make_optional(inner, default) if optional else inner, **attributes}
        if optional or default is not None:
            flat_field["default"] = default
        self.fields.append(flat_field)
        return _FieldBranch(field["name"], flat_name, None)
