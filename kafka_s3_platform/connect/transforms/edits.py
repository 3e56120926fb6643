"""The engine of transforms of keys or values: one plan for each schema, one Python call for each record.

A *plan* is the function that changes objects of one schema, together with the schema of its results. Objects without a
schema (*schemaless* ones) have a plan of their own. `selected` is the mask of the records to change.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from kafka_s3_platform.connect.avro.structs import EditableSchema
from kafka_s3_platform.core.model.connect import (
    DATA_EXCEPTION,
    NO_SCHEMA,
    ConnectBatch,
    DataError,
    Int32s,
    Mask,
    Outcome,
    Payload,
    RecordFailure,
    Schema,
)

RowNumbers = npt.NDArray[np.intp]
Columns = Sequence[Sequence[Any]]
"""Further inputs of an edit. Each is a sequence with one item for each record of the batch."""

# The errors that plain code raises for an object that does not fit its schema. They are the fault of one record.
FAULTS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


@dataclass(frozen=True)
class Plan:
    """The change of objects of one schema: `change(object, *columns)` returns the new object, of the new `schema`."""

    change: Callable[..., Any]
    schema: Schema | None = None


@dataclass(frozen=True)
class Changed:
    """The objects of a batch after a change of the selected ones. `faults` are the errors of failed ones, by position.

    `schemas` are the schemas of the objects after the change, and `codes` are each object's index in them.
    """

    objects: list[Any]
    codes: Int32s
    schemas: list[Schema]
    faults: dict[int, Exception]

    def payload(self) -> Payload:
        """Return the changed objects as keys or values."""
        return Payload(None, self.codes, self.schemas, self.objects)


def replace_payload(batch: ConnectBatch, side: str, payload: Payload) -> ConnectBatch:
    """Return the batch with `payload` as its keys or values."""
    if side == "key":
        return replace(batch, key=payload)
    return replace(batch, value=payload)


class TransformStep(ABC):
    """One of Connect's transforms. It changes the selected records of a batch, and leaves the others as they are.

    `executing_class` is its Java class. `side` is the part of a record it changes: `key`, `value` or `header`. `values`
    are its parsed options by name.
    """

    def __init__(self, executing_class: str, side: str, values: Mapping[str, Any]) -> None:
        self._executing_class = executing_class
        self._side = side
        self._values = values

    @abstractmethod
    def run(self, batch: ConnectBatch, selected: Mask) -> Outcome:
        """Change the selected records. Return the batch without the failed records, and the failures."""

    def fail_records(self, batch: ConnectBatch, reasons: Mapping[int, object]) -> Outcome:
        """Return the batch without the records at these positions, and a failure with the reason for each of them."""
        if not reasons:
            return Outcome(batch)
        offsets = batch.offsets
        failures = tuple(
            RecordFailure(int(offsets[at]), "TRANSFORMATION", self._executing_class, DATA_EXCEPTION, str(reasons[at]))
            for at in sorted(reasons)
        )
        return Outcome(batch.take(np.setdiff1d(np.arange(batch.num_rows), list(reasons))), failures)


class Edit(TransformStep):
    """A transform of keys or values. Subclasses make one plan for each schema, and one for objects without a schema.

    With the option `replace.null.with.default`, the plans of a subclass see the defaults of top-level fields in place
    of nulls.
    """

    def __init__(self, executing_class: str, side: str, values: Mapping[str, Any]) -> None:
        super().__init__(executing_class, side, values)
        self._plans: dict[Schema | None, Plan | DataError] = {}

    nulls_pass = True
    """True if a null stays as it is. If not, it gets the plan for objects without a schema."""

    @abstractmethod
    def plan_schemaless(self) -> Plan:
        """Return the plan for objects without a schema."""

    @abstractmethod
    def plan_schema(self, avro: EditableSchema) -> Plan:
        """Return the plan for objects of a schema. Raise DataError if none of its objects can be changed."""

    def read_columns(self, _: ConnectBatch) -> Columns:
        """Return the arguments that `change` gets after the object."""
        return ()

    def run(self, batch: ConnectBatch, selected: Mask) -> Outcome:
        changed = self.change_objects(batch, selected)
        return self.fail_records(replace_payload(batch, self._side, changed.payload()), changed.faults)

    def change_objects(self, batch: ConnectBatch, selected: Mask) -> Changed:
        """Change the selected keys or values of the batch, and return all of them."""
        source: Payload = getattr(batch, self._side)
        return self.apply(source, source, self.read_columns(batch), selected)

    def apply(self, source: Payload, target: Payload, columns: Columns, selected: Mask) -> Changed:
        """Change the selected objects of `source`, and put the results in their places among `target`'s objects."""
        objects = list(target.objects)
        codes = target.codes.copy()
        schemas = list(target.schemas)
        schema_codes = {schema: code for code, schema in enumerate(schemas)}
        faults: dict[int, Exception] = {}
        for source_code, positions in self._group_by_schema(source, selected):
            plan = self._get_plan(None if source_code == NO_SCHEMA else source.schemas[source_code])
            if isinstance(plan, DataError):
                faults |= dict.fromkeys(positions.tolist(), plan)
                continue
            results = _apply_change(plan.change, source.objects, columns, positions, faults)
            code = NO_SCHEMA
            if plan.schema is not None:
                code = schema_codes.setdefault(plan.schema, len(schemas))
                if code == len(schemas):
                    schemas.append(plan.schema)
            if len(results) == len(objects):
                objects = results
            else:
                for position, result in zip(positions.tolist(), results, strict=True):
                    objects[position] = result
            # A null has no schema, whatever the plan says.
            codes[positions] = [NO_SCHEMA if result is None else code for result in results]
        used_codes = np.unique(codes[codes != NO_SCHEMA])
        renumbered = np.where(codes == NO_SCHEMA, NO_SCHEMA, np.searchsorted(used_codes, codes)).astype(np.int32)
        return Changed(objects, renumbered, [schemas[code] for code in used_codes.tolist()], faults)

    def _group_by_schema(self, source: Payload, selected: Mask) -> Iterable[tuple[int, RowNumbers]]:
        """Yield each schema's code and the positions of its selected records. A null has no schema."""
        nulls = np.fromiter((o is None for o in source.objects), bool, len(source))
        codes = np.where(nulls, NO_SCHEMA, source.codes)
        is_selected = selected & ~nulls if self.nulls_pass else selected
        for code in np.unique(codes[is_selected]).tolist():
            yield code, np.flatnonzero(is_selected & (codes == code))

    def _get_plan(self, schema: Schema | None) -> Plan | DataError:
        """Return the plan for a schema, made at its first use, or the error for each of its records."""
        if schema not in self._plans:
            try:
                plan = self.plan_schemaless() if schema is None else self._plan_filled(EditableSchema.of(schema))
                self._plans[schema] = plan
            except DataError as error:
                # Kept like a plan, because each record of this schema fails with it.
                self._plans[schema] = error
        return self._plans[schema]

    def _plan_filled(self, avro: EditableSchema) -> Plan:
        """Return the plan for a schema. If the options say so, it first replaces nulls with their fields' defaults."""
        plan = self.plan_schema(avro)
        if not self._values.get("replace.null.with.default") or avro.find_type(avro.root) != "struct":
            return plan
        fields = avro.list_fields(avro.root, "replacing nulls")
        defaults = {f.name: f.default for f in fields if f.optional and f.default is not None}

        def change(value: dict[str, Any], *columns: Any) -> Any:
            nulls = {name: default for name, default in defaults.items() if value.get(name) is None}
            return plan.change({**value, **nulls}, *columns)

        return replace(plan, change=change)


def _apply_change(
    change: Callable[..., Any],
    objects: Sequence[Any],
    columns: Columns,
    positions: RowNumbers,
    faults: dict[int, Exception],
) -> list[Any]:
    """Change all records in one pass. If one fails, start again and change them one by one."""
    inputs: list[Sequence[Any]] = [objects, *columns]
    if len(positions) < len(objects):
        rows = positions.tolist()
        inputs = [list(map(column.__getitem__, rows)) for column in inputs]
    try:
        return list(map(change, *inputs))
    except FAULTS:
        return [
            _apply_to_row(change, row, position, faults)
            for position, *row in zip(positions.tolist(), *inputs, strict=True)
        ]


def _apply_to_row(change: Callable[..., Any], row: list[Any], position: int, faults: dict[int, Exception]) -> Any:
    """Change one record. If this fails, note the error in `faults` at the record's position, and return None."""
    try:
        return change(*row)
    except FAULTS as error:
        faults[position] = error if isinstance(error, ValueError) else DataError(f"{type(error).__name__}: {error}")
        return None
