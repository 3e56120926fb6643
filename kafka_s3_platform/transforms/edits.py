"""The engine of transforms that change keys or values: one plan a schema, one plain Python call a record."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from kafka_s3_platform.model.connect import NO_SCHEMA, ConnectBatch, Int32s, Outcome, Payload, RecordFailure, Schema
from kafka_s3_platform.transforms.avro import Avro, DataError

Side = Literal["key", "value"]
Mask = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.intp]
Columns = Sequence[Sequence[Any]]
"""What an edit is given of each record besides its object, one sequence over all records of the batch for each."""

DATA_EXCEPTION = "org.apache.kafka.connect.errors.DataException"

# What plain code raises when an object is not what its schema says.
FAULTS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


@dataclass(frozen=True)
class Plan:
    """How objects of one schema are changed: `change(object, *columns)`, and the schema that they have then."""

    change: Callable[..., Any]
    schema: Schema | None = None


@dataclass
class Changed:
    """The objects of a batch, changed where they were selected, and why some could not be."""

    objects: list[Any]
    codes: Int32s
    schemas: list[Schema]
    faults: dict[int, Exception]

    def payload(self) -> Payload:
        return Payload(None, self.codes, self.schemas, self.objects)


def with_payload(batch: ConnectBatch, side: Side, payload: Payload) -> ConnectBatch:
    """The batch with other keys or values."""
    return replace(batch, key=payload) if side == "key" else replace(batch, value=payload)


class Edit(ABC):
    """A transform of keys or values. Subclasses plan once for each schema, and once for objects without one."""

    def __init__(self, executing_class: str, side: Side) -> None:
        self.executing_class, self.side = executing_class, side
        self._plans: dict[Schema | None, Plan | DataError] = {}

    nulls_pass = True
    """Whether a null stays as it is. Else it is planned for like an object without a schema."""

    @abstractmethod
    def schemaless(self) -> Plan:
        """The plan for objects without a schema."""

    @abstractmethod
    def with_schema(self, avro: Avro, schema: Schema) -> Plan:
        """The plan for objects of a schema. DataError: there is none."""

    def columns(self, batch: ConnectBatch) -> Columns:  # noqa: ARG002 - for subclasses to override
        """Further columns that `change` takes."""
        return ()

    def run(self, batch: ConnectBatch, selected: Mask | None) -> Outcome:
        changed = self.changed(batch, selected)
        return self.outcome(with_payload(batch, self.side, changed.payload()), changed.faults)

    def changed(self, batch: ConnectBatch, selected: Mask | None) -> Changed:
        """The objects of the batch's keys or values, changed where selected."""
        source: Payload = getattr(batch, self.side)
        return self.apply(source, source, self.columns(batch), selected)

    def apply(self, source: Payload, target: Payload, columns: Columns, selected: Mask | None) -> Changed:
        """What `source`'s objects become, put where they are selected in the place of `target`'s."""
        changed = Changed(list(target.objects), target.codes.copy(), list(target.schemas), {})
        known = {schema: code for code, schema in enumerate(changed.schemas)}
        for code, positions in self._groups(source, selected):
            schema = None if code == NO_SCHEMA else source.schemas[code]
            self._apply_plan(self._plan(schema), source.objects, columns, positions, changed, known)
        return _pruned(changed)

    def outcome(self, batch: ConnectBatch, faults: Mapping[int, Exception]) -> Outcome:
        """The batch without the records that failed."""
        if not faults:
            return Outcome(batch)
        offsets = batch.offsets
        failures = tuple(
            RecordFailure(int(offsets[at]), "TRANSFORMATION", self.executing_class, DATA_EXCEPTION, str(faults[at]))
            for at in sorted(faults)
        )
        kept = np.ones(batch.num_rows, bool)
        kept[list(faults)] = False
        return Outcome(batch.take(np.flatnonzero(kept)), failures)

    def _groups(self, source: Payload, selected: Mask | None) -> Iterable[tuple[int, Positions]]:
        """Each schema's code and the positions of its records. A null has no schema."""
        nulls = np.fromiter((o is None for o in source.objects), bool, len(source))
        codes = np.where(nulls, NO_SCHEMA, source.codes)
        chosen = np.ones(len(source), bool) if selected is None else selected
        if self.nulls_pass:
            chosen = chosen & ~nulls
        for code in np.unique(codes[chosen]).tolist():
            yield code, np.flatnonzero(chosen & (codes == code))

    def _plan(self, schema: Schema | None) -> Plan | DataError:
        if schema not in self._plans:
            try:
                made: Plan | DataError = (
                    self.schemaless() if schema is None else self.with_schema(Avro.of(schema), schema)
                )
            except DataError as error:
                made = error
            self._plans[schema] = made
        return self._plans[schema]

    def _apply_plan(
        self,
        plan: Plan | DataError,
        objects: Sequence[Any],
        columns: Columns,
        positions: Positions,
        changed: Changed,
        known: dict[Schema, int],
    ) -> None:
        if isinstance(plan, DataError):
            changed.faults.update(dict.fromkeys(positions.tolist(), plan))
            return
        results = _results(plan.change, objects, columns, positions, changed.faults)
        code = NO_SCHEMA if plan.schema is None else known.setdefault(plan.schema, len(known))
        if code == len(changed.schemas) and plan.schema is not None:
            changed.schemas.append(plan.schema)
        changed.codes[positions] = code
        _place(results, positions, changed)


def _results(
    change: Callable[..., Any],
    objects: Sequence[Any],
    columns: Columns,
    positions: Positions,
    faults: dict[int, Exception],
) -> list[Any]:
    """All at once; only where one fails, again one by one."""
    whole = len(positions) == len(objects)
    picked = [column if whole else [column[i] for i in positions.tolist()] for column in (objects, *columns)]
    try:
        return list(map(change, *picked))
    except FAULTS:
        return [
            _result(change, row, position, faults) for position, *row in zip(positions.tolist(), *picked, strict=True)
        ]


def _result(change: Callable[..., Any], row: list[Any], position: int, faults: dict[int, Exception]) -> Any:
    try:
        return change(*row)
    except FAULTS as error:
        faults[position] = error if isinstance(error, ValueError) else DataError(f"{type(error).__name__}: {error}")
        return None


def _place(results: list[Any], positions: Positions, changed: Changed) -> None:
    if len(positions) == len(changed.objects):
        changed.objects = results
    else:
        for position, result in zip(positions.tolist(), results, strict=True):
            changed.objects[position] = result
    nulls = np.fromiter((result is None for result in results), bool, len(results))
    changed.codes[positions[nulls]] = NO_SCHEMA


def _pruned(changed: Changed) -> Changed:
    """Without the schemas that no record has any more."""
    used = [int(code) for code in np.unique(changed.codes) if code != NO_SCHEMA]
    codes = np.full(len(changed.schemas) + 1, NO_SCHEMA, np.int32)
    codes[used] = np.arange(len(used), dtype=np.int32)
    # NO_SCHEMA is -1: it picks the last one, which stays NO_SCHEMA.
    return replace(changed, codes=codes[changed.codes], schemas=[changed.schemas[code] for code in used])
