"""Records as Kafka Connect sees them: keys and values with their schemas, beside the bytes they came as.

Every schema is held as an Avro schema, whatever it came from: the Registry's Avro, JSON Schema, Protobuf, or the
envelope of Connect's JsonConverter. Decoded values are plain objects in Avro's physical form (a timestamp-millis is an
int, a decimal is bytes, an enum is a str, a map or record is a dict), so that nothing is lost between two formats.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Positions = npt.NDArray[np.int64]

NO_SCHEMA = -1
"""Code of a payload that has no schema: schemaless, or null."""

Stage = Literal["KEY_CONVERTER", "VALUE_CONVERTER", "HEADER_CONVERTER", "TRANSFORMATION", "TASK_PUT"]
"""Connect's names of what can fail for one record (`__connect.errors.stage`)."""


@dataclass(frozen=True)
class Schema:
    """What keys or values look like: `text` is the JSON of an Avro schema.

    `schema_id`, `subject` and `version` are the Registry's, None where there is none; within a subject, versions order
    schemas.
    """

    text: str
    schema_id: int | None = None
    subject: str | None = None
    version: int | None = None

    @cached_property
    def avro(self) -> Any:
        """The schema as parsed JSON. Never change it in place."""
        return json.loads(self.text)


class Payload:
    """The keys, or the values, of the records of a batch.

    `raw` are the bytes as they came (null where the record has none), None once something changed them. `codes` gives
    for each record its schema's index in `schemas`, or NO_SCHEMA. `objects` are decoded at first use: a null is None.
    `raw_is_value` says that every value of `raw` is the value itself (text, bytes or JSON), without a frame around it.
    `raw_is_json` says that every value of `raw` is one line of valid JSON, so that it can be written as it is.
    `avro_start` says that from there on every value of `raw` is one valid datum of its schema in Avro's binary form, so
    that it can be moved as it is (5 in the wire format of Confluent's Registry); None: it is something else.
    """

    raw_is_value: bool = True
    raw_is_json: bool = False
    avro_start: int | None = None

    def __init__(
        self, raw: pa.BinaryArray | None, codes: Int32s, schemas: Sequence[Schema], objects: Sequence[Any] | None = None
    ) -> None:
        self.raw, self.codes, self.schemas = raw, codes, tuple(schemas)
        if objects is not None:
            self.objects = objects

    @cached_property
    def objects(self) -> Sequence[Any]:
        """One decoded value a record. Never change them in place."""
        return self._decode()

    def _decode(self) -> Sequence[Any]:
        """For converters to override: bytes are what they are."""
        return self.raw.to_pylist() if self.raw is not None else []

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def is_null(self) -> npt.NDArray[np.bool_]:
        """Which records have none (tombstones, when these are values)."""
        if self.raw is not None:
            nulls: npt.NDArray[np.bool_] = self.raw.is_null().to_numpy(zero_copy_only=False)
            return nulls
        return np.fromiter((o is None for o in self.objects), bool, len(self))

    def field(self, path: Sequence[str]) -> list[Any]:
        """The field at `path` (names from the outside in) of each record, `MISSING` where there is no such field."""
        return [field_of(o, path) for o in self.objects]

    def take(self, positions: Positions) -> "Payload":
        """The payloads at `positions`, in that order."""
        raw = None if self.raw is None else _taken(self.raw, positions)
        taken = type(self).__new__(type(self))
        taken.__dict__.update({k: v for k, v in self.__dict__.items() if k != "objects"})
        taken.raw, taken.codes = raw, self.codes[positions]
        if "objects" in self.__dict__:
            objects = self.objects
            taken.objects = [objects[i] for i in positions]
        return taken


MISSING: Any = type("Missing", (), {"__repr__": lambda _: "MISSING"})()
"""What `field` gives for a field that is not there, which differs from one that is null."""


def field_of(value: Any, path: Sequence[str]) -> Any:
    """The field at `path` of a decoded value, MISSING where there is none."""
    for name in path:
        if not isinstance(value, Mapping) or name not in value:
            return MISSING
        value = value[name]
    return value


@dataclass(frozen=True)
class ConnectBatch:
    """Records of one kafka partition on their way to objects, ascending by (offset, ordinal).

    `records` has RECORD_SCHEMA: offset, timestamp, headers and the topic that decides the path (a transform may have
    renamed it); its key and value columns are the bytes of the source record, whatever became of `key` and `value`.
    `ordinals` tell apart what a mapper made of one record; None while every record is itself.
    """

    records: pa.RecordBatch
    key: Payload
    value: Payload
    ordinals: Int32s | None = None

    @classmethod
    def of(cls, records: pa.RecordBatch) -> "ConnectBatch":
        """Records as they are: keys and values without schema, as bytes."""
        key, value = (_as_bytes(records.column(name)) for name in ("key", "value"))
        return cls(records, key, value)

    @property
    def num_rows(self) -> int:
        return int(self.records.num_rows)

    @property
    def offsets(self) -> Int64s:
        offsets: Int64s = self.records.column("offset").to_numpy()
        return offsets

    @property
    def timestamps(self) -> Int64s:
        """Epoch ms."""
        times: Int64s = self.records.column("timestamp").cast(pa.int64()).to_numpy()
        return times

    def take(self, positions: Positions) -> "ConnectBatch":
        """The records at `positions`, in that order."""
        if len(positions) == self.num_rows and _is_run(positions):
            return self
        return replace(
            self,
            records=_taken(self.records, positions),
            key=self.key.take(positions),
            value=self.value.take(positions),
            ordinals=None if self.ordinals is None else self.ordinals[positions],
        )


@dataclass(frozen=True)
class RecordFailure:
    """Why one record cannot be archived as asked. `exception` is the name of the error's class."""

    offset: int
    stage: Stage
    executing_class: str
    exception: str
    message: str


@dataclass(frozen=True)
class Outcome:
    """What a stage made of a batch: the records that go on, and those that failed. What is in neither was filtered."""

    batch: ConnectBatch
    failures: tuple[RecordFailure, ...] = ()


class Transform(Protocol):
    """A stage between conversion and partitioning: a single message transform, or a mapper."""

    def apply(self, batch: ConnectBatch) -> Outcome:
        """What becomes of the records, in their order. Raises nothing for a single record's fault."""
        ...


def _as_bytes(column: pa.BinaryArray) -> Payload:
    return Payload(column, np.full(len(column), NO_SCHEMA, np.int32), ())


def _taken(rows: Any, positions: Positions) -> Any:
    """A run of rows is a view of them, others are copied."""
    if _is_run(positions):
        return rows.slice(int(positions[0]), len(positions))
    return rows.take(pa.array(positions))


def _is_run(positions: Positions) -> bool:
    """Whether the positions follow one another; they are ascending wherever rows are only left out."""
    return len(positions) > 0 and bool((np.diff(positions) == 1).all())
