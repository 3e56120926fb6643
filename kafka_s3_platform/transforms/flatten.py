"""Flatten: turns nested records into top-level fields.

Source of the rules: `Flatten` in Apache Kafka 4.3's `org.apache.kafka.connect.transforms`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from kafka_s3_platform.avro.structs import Avro, make_optional
from kafka_s3_platform.model.connect import DataError, Schema, Side
from kafka_s3_platform.transforms.edits import Edit, Plan
from kafka_s3_platform.transforms.fields import FieldValues, require_map


@dataclass(frozen=True)
class _Branch:
    """A field of a flattened record. It is a leaf if `branches` is None, else a record with these branches."""

    name: str
    flat_name: str
    branches: "tuple[_Branch, ...] | None"


class Flatten(Edit):
    """Turns nested records into top-level fields. A field becomes optional if a record around it is."""

    PURPOSE = "flattening"

    def __init__(self, executing_class: str, side: Side, values: FieldValues) -> None:
        super().__init__(executing_class, side)
        self._delimiter: str = values["delimiter"]

    def schemaless(self) -> Plan:
        def change(value: Any) -> dict[str, Any]:
            out: dict[str, Any] = {}
            self._flatten_map(require_map(value, self.PURPOSE), "", out)
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
        for name, inner in value.items():
            flat_name = self._joined(prefix, name)
            if isinstance(inner, dict):
                self._flatten_map(inner, flat_name, out)
            else:
                out[flat_name] = inner

    def _joined(self, prefix: str, name: str) -> str:
        return f"{prefix}{self._delimiter}{name}" if prefix else name


@dataclass(frozen=True)
class _Above:
    """The attributes of a field inherited from the records around it."""

    optional: bool
    defaults: Mapping[str, Any] | None = None
    names: tuple[str, ...] = ()


class _Flattening:
    """Walks through the fields of a record: `branches` returns how to flatten values, `fields` collects new fields."""

    def __init__(self, avro: Avro, joined: Callable[[str, str], str]) -> None:
        self._avro = avro
        self._joined = joined
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
        # The default of a record holds defaults for its fields.
        if default is None and above.defaults is not None:
            default = above.defaults.get(field["name"])
        if type_ == "struct":
            within = _Above(optional, default, above.names)
            return _Branch(field["name"], flat_name, self.branches(inner, flat_name, within))
        if type_ in {"map", "union", "null"}:
            raise DataError(
                f"Flatten transformation does not support {type_.upper()} for record with schemas "
                f"(for field {flat_name})."
            )
        self.fields.append(_flatten_field(field, flat_name, inner, default, optional=optional))
        return _Branch(field["name"], flat_name, None)


def _flatten_field(
    declared: Mapping[str, Any], name: str, node: Any, default: Any, *, optional: bool
) -> dict[str, Any]:
    rest = {key: value for key, value in declared.items() if key not in {"name", "type", "default"}}
    field = {"name": name, "type": make_optional(node, default) if optional else node, **rest}
    if optional or default is not None:
        return {**field, "default": default}
    return field


def _flatten_record(value: Mapping[str, Any] | None, branches: tuple[_Branch, ...], out: dict[str, Any]) -> None:
    for branch in branches:
        inner = None if value is None else value.get(branch.name)
        if branch.branches is None:
            out[branch.flat_name] = inner
        else:
            _flatten_record(inner, branch.branches, out)
