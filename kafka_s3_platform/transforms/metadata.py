"""SetSchemaMetadata: sets the name and the version of a schema.

Source of the rules: `SetSchemaMetadata` in Apache Kafka 4.3's `org.apache.kafka.connect.transforms`, and Confluent's
AvroData for their place in Avro: a named type's own name, else `connect.name`, and `connect.version`.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kafka_s3_platform.avro.structs import Avro, make_optional
from kafka_s3_platform.model.connect import DataError, Schema, Side
from kafka_s3_platform.transforms.edits import Edit, Plan
from kafka_s3_platform.transforms.fields import collect_defaults, fill_nulls

PURPOSE = "updating schema metadata"


class SetSchemaMetadata(Edit):
    """Sets name and version of schemas. Values keep their content, but nulls may become defaults."""

    def __init__(self, executing_class: str, side: Side, values: Mapping[str, Any]) -> None:
        super().__init__(executing_class, side)
        self._name: str | None = values["schema.name"]
        self._version: int | None = values["schema.version"]
        self._replace_nulls: bool = values["replace.null.with.default"]

    def schemaless(self) -> Plan:
        raise DataError(f"Schema required for [{PURPOSE}]")

    def with_schema(self, avro: Avro, schema: Schema) -> Plan:  # noqa: ARG002 - Edit's
        updated = replace(self._updated(avro), version=self._version or avro.version).schema()
        if avro.type_of(avro.root) != "struct":
            return Plan(lambda value: value, updated)
        defaults = collect_defaults(avro.fields(avro.root, PURPOSE), replace_nulls=self._replace_nulls)
        return Plan(lambda value: fill_nulls(value, defaults), updated)

    def _updated(self, avro: Avro) -> Avro:
        inner, optional = avro.inner(avro.root)
        if isinstance(inner, list):
            raise DataError(f"a union of several types has no name or version [{PURPOSE}]")
        version = {} if self._version is None else {"connect.version": self._version}
        definition = {**avro.definition(inner), **version}
        if isinstance(inner, str) and inner in avro.names:
            name = self._name or inner
            return avro.with_record(name, {**definition, "name": name, **self._connect_name(definition)})
        named = {**definition, **({} if self._name is None else {"connect.name": self._name})}
        return replace(avro, root=make_optional(named) if optional else named)

    def _connect_name(self, definition: Mapping[str, Any]) -> dict[str, Any]:
        if self._name and "connect.name" in definition:
            return {"connect.name": self._name}
        return {}
