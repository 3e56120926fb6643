"""The engine of transforms of keys or values: one plan for each schema, one Python call for each record.

A *plan* is the function that changes objects of one schema, with the schema of its results. Objects without a schema
(*schemaless* ones) have a plan of their own. `selected` is the mask of the records to change; None means all.
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
    Side,
)

RowNumbers = npt.NDArray[np.intp]
Columns = Sequence[Sequence[Any]]
"""Further inputs of an edit: each is a sequence with one item for each record of the batch."""

# The errors of plain code for an object that does not fit its schema. They are the fault of one record.
FAULTS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


@dataclass(frozen=True)
class Plan:
    """The change of objects of one schema: `change(object, *columns)` returns the new object, of the new `schema`."""

    change: Callable[..., Any]
    schema: Schema | None = None


@dataclass
class Changed:
    """The objects of a batch after a change of the selected ones. `faults` (position -> error) could not be changed."""

    objects: list[Any]
    codes: Int32s
    schemas: list[Schema]
    faults: dict[int, Exception]

    def payload(self) -> Payload:
        """Return the changed objects as keys or values."""
        return Payload(None, self.codes, self.schemas, self.objects)


def replace_payload(batch: ConnectBatch, side: Side, payload: Payload) -> ConnectBatch:
    """Return the batch with `payload` as its keys or values."""
    if side == "key":
        return replace(batch, key=payload)
    return replace(batch, value=payload)


def fail_records(batch: ConnectBatch, reasons: Mapping[int, object], executing_class: str) -> Outcome:
    """Return the batch without the records at these positions, and a failure with its reason for each of them.

    `executing_class` is the Java class of the transform, which the failures name.
    """
    if not reasons:
        return Outcome(batch)
    offsets = batch.offsets
    failures = tuple(
        RecordFailure(int(offsets[at]), "TRANSFORMATION", executing_class, DATA_EXCEPTION, str(reasons[at]))
        for at in sorted(reasons)
    )
    return Outcome(batch.take(np.setdiff1d(np.arange(batch.num_rows), list(reasons))), failures)


class Edit(ABC):
    """A transform of keys or values. Subclasses make one plan for each schema, and one for objects without a schema.

    `values` are the parsed options by name. With `replace.null.with.default`, a subclass's plans see the defaults of
    top-level fields in place of their nulls.
    """

    def __init__(self, executing_class: str, side: Side, values: Mapping[str, Any]) -> None:
        self.executing_class = executing_class
        self.side = side
        self._values = values
        self._plans: dict[Schema | None, Plan | DataError] = {}

    nulls_pass = True
    """Whether a null stays as it is. If not, it gets the plan for objects without a schema."""

    @abstractmethod
    def plan_schemaless(self) -> Plan:
        """Return the plan for objects without a schema."""

    @abstractmethod
    def plan_schema(self, avro: EditableSchema) -> Plan:
        """Return the plan for objects of a schema. Raise DataError if no object of it can be changed."""

    def read_columns(self, _: ConnectBatch) -> Columns:
        """Return the arguments of `change` after the object."""
        return ()

    def run(self, batch: ConnectBatch, selected: Mask | None) -> Outcome:
        """Change the selected keys or values.

        Return the batch without records that could not be changed, and failures.
        """
        changed = self.change_objects(batch, selected)
        return fail_records(replace_payload(batch, self.side, changed.payload()), changed.faults, self.executing_class)

    def change_objects(self, batch: ConnectBatch, selected: Mask | None) -> Changed:
        """Change the selected keys or values of the batch, and return all of them."""
        source: Payload = getattr(batch, self.side)
        return self.apply(source, source, self.read_columns(batch), selected)

    def apply(self, source: Payload, target: Payload, columns: Columns, selected: Mask | None) -> Changed:
        """Change the selected objects of `source`, and put the results in place of the objects of `target`."""
        changed = Changed(list(target.objects), target.codes.copy(), list(target.schemas), {})
        schema_codes = {schema: code for code, schema in enumerate(changed.schemas)}
        for code, positions in self._group_by_schema(source, selected):
            schema = None if code == NO_SCHEMA else source.schemas[code]
            self._apply_plan(self._get_plan(schema), source.objects, columns, positions, changed, schema_codes)
        return _prune_schemas(changed)

    def _group_by_schema(self, source: Payload, selected: Mask | None) -> Iterable[tuple[int, RowNumbers]]:
        """Yield each schema's code and the positions of its selected records. A null has no schema."""
        nulls = np.fromiter((o is None for o in source.objects), bool, len(source))
        codes = np.where(nulls, NO_SCHEMA, source.codes)
        is_selected = np.ones(len(source), bool) if selected is None else selected
        if self.nulls_pass:
            is_selected = is_selected & ~nulls
        for code in np.unique(codes[is_selected]).tolist():
            yield code, np.flatnonzero(is_selected & (codes == code))

    def _get_plan(self, schema: Schema | None) -> Plan | DataError:
        """Return the plan for a schema, made at its first use, or the error of each of its records."""
        if schema not in self._plans:
            try:
                self._plans[schema] = (
                    self.plan_schemaless() if schema is None else self._plan_filled(EditableSchema.of(schema))
                )
            except DataError as error:
                # Kept like a plan: each record of this schema fails with it.
                self._plans[schema] = error
        return self._plans[schema]

    def _plan_filled(self, avro: EditableSchema) -> Plan:
        """Return the plan for a schema, which first replaces nulls by their fields' defaults if the options say so."""
        plan = self.plan_schema(avro)
        if not self._values.get("replace.null.with.default") or avro.find_type(avro.root) != "struct":
            return plan
        fields = avro.list_fields(avro.root, "replacing nulls")
        defaults = {f.name: f.default for f in fields if f.optional and f.default is not None}

        def change(value: dict[str, Any], *columns: Any) -> Any:
            nulls = {name: default for name, default in defaults.items() if value.get(name) is None}
            return plan.change({**value, **nulls}, *columns)

        return replace(plan, change=change)

    def _apply_plan(
        self,
        plan: Plan | DataError,
        objects: Sequence[Any],
        columns: Columns,
        positions: RowNumbers,
        changed: Changed,
        schema_codes: dict[Schema, int],
    ) -> None:
        """Write the plan's results for the rows at `positions` into `changed`: objects, schema codes and faults."""
        if isinstance(plan, DataError):
            changed.faults.update(dict.fromkeys(positions.tolist(), plan))
            return
        results = _apply_change(plan.change, objects, columns, positions, changed.faults)
        code = NO_SCHEMA if plan.schema is None else schema_codes.setdefault(plan.schema, len(schema_codes))
        if code == len(changed.schemas) and plan.schema is not None:
            changed.schemas.append(plan.schema)
        changed.codes[positions] = code
        _place_results(results, positions, changed)


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
    """Change one record. If that fails, note the error in `faults` at its position, and return None."""
    try:
        return change(*row)
    except FAULTS as error:
        faults[position] = error if isinstance(error, ValueError) else DataError(f"{type(error).__name__}: {error}")
        return None


def _place_results(results: list[Any], positions: RowNumbers, changed: Changed) -> None:
    """Put the results in the place of the changed objects. A null result has no schema."""
    if len(positions) == len(changed.objects):
        changed.objects = results
    else:
        for position, result in zip(positions.tolist(), results, strict=True):
            changed.objects[position] = result
    # A null has no schema, whatever the plan says.
    nulls = np.fromiter((result is None for result in results), bool, len(results))
    changed.codes[positions[nulls]] = NO_SCHEMA


def _prune_schemas(changed: Changed) -> Changed:
    """Drop the schemas without a record after the change."""
    used_codes = [int(code) for code in np.unique(changed.codes) if code != NO_SCHEMA]
    codes = np.full(len(changed.schemas) + 1, NO_SCHEMA, np.int32)
    codes[used_codes] = np.arange(len(used_codes), dtype=np.int32)
    # NO_SCHEMA is -1, so it picks the last item, which is always NO_SCHEMA.
    return replace(changed, codes=codes[changed.codes], schemas=[changed.schemas[code] for code in used_codes])
