"""Records as Kafka Connect sees them: keys and values with their schemas, and the bytes as they were read.

Every schema is an Avro schema. It may come from the Registry's Avro, JSON Schema or Protobuf, or from the envelope of
Connect's JsonConverter. Decoded values are plain objects in Avro's physical form, so no detail gets lost between two
formats: a timestamp-millis is an int, a decimal is bytes, an enum is a str, a map or record is a dict. A value of a
union of several types besides null keeps its branch, as the tuple `(branch, value)`. A branch is named as in Avro: by
the full name of a record, enum or fixed, else the type's name. A union of one type and null has none.
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
Mask = npt.NDArray[np.bool_]
"""Selects records of a batch: one bool for each record."""

Side = Literal["key", "value"]
"""The part of a record that a converter or a transform works on."""

NO_SCHEMA = -1
"""The code of a payload that has no schema, because it is schemaless or null."""

Stage = Literal[
    "KEY_CONVERTER",
    "VALUE_CONVERTER",
    "HEADER_CONVERTER",
    "TRANSFORMATION",
    "TASK_PUT",
    "DEAD_LETTER",
    "RETURNED_LETTER",
]
"""The stages that can fail for one record, by Connect's names. The last two mean that it gets no dead letter."""

LETTER_REFUSED: Stage = "DEAD_LETTER"
LETTER_RETURNED: Stage = "RETURNED_LETTER"

LETTER_HEADER = "kafka_s3.dead_letter"
"""Each dead letter has this header, which names the connector that made it, after the record's headers.

A letter comes back if two connectors archive each other's dead letter topics. If nothing stopped it, one bad record
would become letters for ever.
"""

LETTER_ADVICE = {
    LETTER_REFUSED: "Change the config of the dead letter topic, or name another topic, and run again",
    LETTER_RETURNED: "Where connectors archive each other's dead letter topics, leave these out of their topics. Where "
    f"letters are sent again, leave out their headers {LETTER_HEADER}",
}
"""Advice for a record that gets no letter."""


@dataclass(frozen=True)
class Schema:
    """The schema of keys or values. `text` is the JSON of an Avro schema.

    `schema_id`, `subject` and `version` come from the Registry, and are None without one. Within a subject, versions
    give the order of schemas.
    """

    text: str
    schema_id: int | None = None
    subject: str | None = None
    version: int | None = None

    @cached_property
    def avro(self) -> Any:
        """The schema as parsed JSON. Never change it in place."""
        return json.loads(self.text)


RowSelection = Positions | slice
"""Rows of a batch in a certain order. A slice gives views instead of copies."""


class Payload:
    """The keys, or the values, of the records of a batch, decoded only if somebody looks at them.

    Attributes:
        raw: the bytes as they were read, null for a record without any; None after a transform changed the values.
        codes: for each record the index of its schema in `schemas`, or NO_SCHEMA.
        objects: the values, decoded at first use. A null is None.
        raw_is_value: True if every item of `raw` is the value itself (text, bytes or JSON), without a frame around it.
        raw_is_json: True if every item of `raw` is one line of valid JSON, and can be copied.
        avro_start: from this byte on, every item of `raw` is one valid datum of its schema in Avro's binary form, and
            can be copied (5 in the wire format of Confluent's Registry). None if it is something else.
        bare: the bytes of the record, if `raw` has a schema id from a header before them. Otherwise None.
    """

    raw_is_value: bool = True
    raw_is_json: bool = False
    avro_start: int | None = None
    bare: pa.BinaryArray | None = None

    def __init__(
        self, raw: pa.BinaryArray | None, codes: Int32s, schemas: Sequence[Schema], objects: Sequence[Any] | None = None
    ) -> None:
        self.raw = raw
        self.codes = codes
        self.schemas = tuple(schemas)
        # Once set, it hides the cached property: nothing is decoded.
        if objects is not None:
            self.objects = objects

    @cached_property
    def objects(self) -> Sequence[Any]:
        """The decoded value of each record. Never change these in place."""
        return self._decode()

    def _decode(self) -> Sequence[Any]:
        """Decode the values: bytes stay bytes. Converters override this."""
        return self.raw.to_pylist() if self.raw is not None else []

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def bytes_read(self) -> pa.BinaryArray | None:
        """The bytes of the records, or None after a transform changed the values."""
        return self.raw if self.bare is None else self.bare

    @property
    def is_null(self) -> npt.NDArray[np.bool_]:
        """The mask of nulls (tombstones, if these are values)."""
        if self.raw is not None:
            nulls: npt.NDArray[np.bool_] = self.raw.is_null().to_numpy(zero_copy_only=False)
            return nulls
        return np.fromiter((o is None for o in self.objects), bool, len(self))

    def field(self, path: Sequence[str]) -> list[Any]:
        """Return the field at `path` (outermost name first) of each record, or MISSING if a record does not have it."""
        return [get_field(o, path) for o in self.objects]

    def take(self, positions: RowSelection) -> "Payload":
        """Return the payloads at `positions`, in this order."""
        raw = None if self.raw is None else _take_rows(self.raw, positions)
        # Subclasses have more attributes, which the copy keeps.
        copy = type(self).__new__(type(self))
        copy.__dict__.update({k: v for k, v in self.__dict__.items() if k != "objects"})
        copy.raw = raw
        if self.bare is not None:
            copy.bare = _take_rows(self.bare, positions)
        copy.codes = self.codes[positions]
        if "objects" in self.__dict__:
            objects = self.objects
            copy.objects = objects[positions] if isinstance(positions, slice) else [objects[i] for i in positions]
        return copy


MISSING: Any = type("Missing", (), {"__repr__": lambda _: "MISSING"})()
"""Returned by `field` for a field that does not exist. A field that exists and is null gives None."""


def get_field(value: Any, path: Sequence[str]) -> Any:
    """Return the field at `path` of a decoded value, without its union's branch, or MISSING if there is none."""
    for name in path:
        value = strip_branch(value)
        if not isinstance(value, Mapping) or name not in value:
            return MISSING
        value = value[name]
    return strip_branch(value)


def strip_branch(value: Any) -> Any:
    """Return a decoded value without the branch of its union."""
    return value[1] if type(value) is tuple else value


@dataclass(frozen=True)
class ConnectBatch:
    """Records of one kafka partition on their way to objects, ascending by (offset, ordinal).

    `records` has RECORD_SCHEMA. Its topic, perhaps renamed by a transform, decides the path. Its key and value columns
    always hold the bytes of the source record, even after `key` and `value` were changed. `ordinals` numbers the
    records that a mapper made from one record. It is None if each record comes from a source record of its own.
    """

    records: pa.RecordBatch
    key: Payload
    value: Payload
    ordinals: Int32s | None = None

    @classmethod
    def of(cls, records: pa.RecordBatch) -> "ConnectBatch":
        """Make a batch whose keys and values are bytes without a schema."""
        key, value = (_make_bytes_payload(records.column(name)) for name in ("key", "value"))
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

    def take(self, positions: RowSelection) -> "ConnectBatch":
        """Return the records at `positions`, in this order."""
        if not isinstance(positions, slice) and len(positions) == self.num_rows and _is_run(positions):
            return self
        return replace(
            self,
            records=_take_rows(self.records, positions),
            key=self.key.take(positions),
            value=self.value.take(positions),
            ordinals=None if self.ordinals is None else self.ordinals[positions],
        )


def describe_batch(batch: ConnectBatch) -> str:
    """Describe the records of a batch, by topic, kafka partition and offsets, for an error."""
    if not batch.num_rows:
        return "an empty batch"
    topic, kafka_partition = (batch.records.column(name)[0].as_py() for name in ("topic", "partition"))
    return f"{topic}-{kafka_partition}, offsets {batch.offsets[0]} to {batch.offsets[-1]}"


VALUE_ERRORS = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError, pa.ArrowException)
"""The errors for a value that does not fit its schema, or that a format cannot hold."""

DATA_EXCEPTION = "org.apache.kafka.connect.errors.DataException"


class DataError(ValueError):
    """A record cannot be processed: Connect's DataException."""


REASON_CHARACTERS = 1_000
"""The number of characters kept of a reason. Foreign schemas may cause reasons of megabytes, for every record."""


def cut_reason(reason: str) -> str:
    """Return the reason, or its beginning and length. The result is valid UTF-8, unlike some mappers' errors."""
    reason = reason.encode(errors="backslashreplace").decode()
    if len(reason) <= REASON_CHARACTERS:
        return reason
    return f"{reason[:REASON_CHARACTERS]}... ({len(reason):,} characters)"


@dataclass(frozen=True)
class RecordFailure:
    """The failure of one record. `exception` is the name of the error's class. A long message is cut."""

    offset: int
    stage: Stage
    executing_class: str
    exception: str
    message: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", cut_reason(self.message))


@dataclass(frozen=True)
class Outcome:
    """The result of a stage for a batch: its records and its failures. All other records are dropped."""

    batch: ConnectBatch
    failures: tuple[RecordFailure, ...] = ()


class Transform(Protocol):
    """A stage between conversion and partitioning: a single message transform, or a mapper."""

    def apply(self, batch: ConnectBatch) -> Outcome:
        """Return the changed records, in their order. Raise nothing for the fault of a single record."""
        ...


def _make_bytes_payload(column: pa.BinaryArray) -> Payload:
    return Payload(column, np.full(len(column), NO_SCHEMA, np.int32), ())


def _take_rows(rows: Any, positions: RowSelection) -> Any:
    """Take rows. A run of rows becomes a view without a copy."""
    if isinstance(positions, slice):
        return rows[positions]
    if _is_run(positions):
        return rows.slice(int(positions[0]), len(positions))
    return rows.take(pa.array(positions))


def _is_run(positions: Positions) -> bool:
    """Return True if the positions follow each other without a hole."""
    return len(positions) > 0 and bool((np.diff(positions) == 1).all())
