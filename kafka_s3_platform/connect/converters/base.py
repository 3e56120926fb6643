"""The interface of converters, their reports of failed records, and the converters of bytes and strings.

A *loss* is a part of a value missing from its converted form. It is noted, and the record is archived anyway.
"""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from fastavro.schema import parse_schema

from kafka_s3_platform.connect.avro.walk import Datum
from kafka_s3_platform.core.errors import PermanentError, PlatformError, TransientError
from kafka_s3_platform.core.model.connect import (
    DATA_EXCEPTION,
    NO_SCHEMA,
    Int32s,
    Int64s,
    Payload,
    Positions,
    RecordFailure,
    Schema,
    cut_reason,
)
from kafka_s3_platform.core.model.notes import Notes

SERIALIZATION_EXCEPTION = "org.apache.kafka.common.errors.SerializationException"


class _Lost(threading.local):
    """The losses of this thread's current value: the first place of each loss, by the sentence of its note."""

    def __init__(self) -> None:
        self.places: dict[str, str] = {}


lost = _Lost()


class BadRecordError(Exception):
    """One record cannot be converted. The message is the reason, cut if long. It never leaves the converters."""

    def __init__(self, reason: str) -> None:
        super().__init__(cut_reason(reason))


def explain_bad_record(err: Exception) -> str:
    """Explain why one record cannot be converted. Raise the error if it is not the record's fault.

    Schemas and values come from strangers, and may cause any error in a library. So every error counts as the record's
    fault, except for the platform's own errors and the operating system's.

    Raises:
        PlatformError: `err` itself, if it is one.
        TransientError: this machine lacks space, memory or processes.
    """
    if isinstance(err, PlatformError):
        raise err
    if isinstance(err, OSError):
        raise TransientError(
            f"records cannot be converted on this machine: {err}. Make sure that it has room for files in its temporary"
            f" folder, and for processes, and run again"
        ) from err
    if isinstance(err, BadRecordError):
        return str(err)
    return cut_reason(f"cannot be converted: {type(err).__name__}: {err}")


def check_walkable(avro: str) -> str:
    """Return the text of an Avro schema made from a stranger's schema, if its values can be written and read back.

    Raises:
        BadRecordError: its values could be nested too deeply, or be too many.
        Exception: fastavro's error for an invalid schema, such as a decimal with a scale above its precision.
    """
    try:
        Datum(json.loads(avro))
        parse_schema(json.loads(avro), _ignore_default_error=True)
    except PermanentError as err:
        raise BadRecordError(f"its values cannot be read back as Avro: {err.text}") from err
    return avro


@dataclass(frozen=True)
class ConvertedPayload:
    """The payload of the converted records, their positions in the input, and the failures of all other records.

    `losses` has, by position in the input, notes on the parts of a record missing from the payload.
    """

    payload: Payload
    positions: Positions
    failures: tuple[RecordFailure, ...] = ()
    losses: Mapping[int, Notes] = field(default_factory=dict)

    @property
    def notes(self) -> Notes:
        """The notes of all losses, each with its number of records."""
        notes = Notes()
        for loss in self.losses.values():
            notes.join(loss)
        return notes


class DecodedPayload(Payload):
    """Values already decoded. In `raw`, each value has a frame, such as the id of its schema."""

    raw_is_value = False


DecodeRow = Callable[[bytes], tuple[Schema | None, Any, Notes | None]]
"""Decodes the bytes of one record to the schema, the value, and notes of the value's losses, if it has any."""


@dataclass(frozen=True)
class Serializer:
    """Writes values of one Avro schema in a format with a Schema Registry.

    `schema_type` and `text` are the schema to register. `body` returns the bytes after the schema's id, or raises one
    of VALUE_ERRORS if the value does not fit the schema.
    """

    schema_type: str
    text: str
    body: Callable[[Any], bytes]


class Converter(Protocol):
    """Converts bytes to keys or values. Nulls stay nulls."""

    def convert(self, raw: pa.BinaryArray, offsets: Int64s) -> ConvertedPayload:
        """Convert a batch. `offsets` are the offsets of its records, to name in failures.

        Raises:
            RegistryUnavailableError: the Registry did not answer, or reported an internal failure.
            AuthorizationError: the Registry refused the credentials.
        """
        ...


@dataclass(frozen=True)
class Origin:
    """The origin of a converter's records, for messages: the topic, key or value, and the name of Connect's class."""

    topic: str
    is_key: bool
    executing_class: str
    exception: str = DATA_EXCEPTION

    @property
    def subject(self) -> str:
        """The subject in the Registry according to TopicNameStrategy."""
        return f"{self.topic}-{'key' if self.is_key else 'value'}"

    def failure(self, offset: int, reason: str) -> RecordFailure:
        """Make the failure of one record."""
        side = "key" if self.is_key else "value"
        return RecordFailure(
            offset,
            "KEY_CONVERTER" if self.is_key else "VALUE_CONVERTER",
            self.executing_class,
            self.exception,
            f"the {side} of the record at offset {offset} of topic {self.topic} {reason}",
        )

    def split_failures(self, payload: Payload, reasons: Mapping[int, str], offsets: Int64s) -> ConvertedPayload:
        """Take the bad records out of the payload, and report each. `reasons` has the reasons by position."""
        if not reasons:
            return ConvertedPayload(payload, np.arange(len(payload)))
        bad_positions = sorted(reasons)
        positions = np.delete(np.arange(len(payload)), bad_positions)
        failures = tuple(self.failure(int(offsets[position]), reasons[position]) for position in bad_positions)
        return ConvertedPayload(payload.take(positions), positions, failures)

    def decode_rows(
        self,
        raw: pa.BinaryArray,
        offsets: Int64s,
        decode: DecodeRow,
        explain: Callable[[Exception], str] = explain_bad_record,
        *,
        keeps_raw: bool = True,
    ) -> ConvertedPayload:
        """Decode the values of a batch one by one, so a value that cannot be decoded fails alone.

        Nulls stay nulls. `explain` returns the reason for a failure, or raises the error if it is not the record's
        fault. If `keeps_raw`, the payload keeps the bytes, so they can be written as they were read.
        """
        objects: list[Any] = [None] * len(raw)
        codes = np.full(len(raw), NO_SCHEMA, np.int32)
        schemas: dict[Schema, int] = {}
        reasons: dict[int, str] = {}
        losses: dict[int, Notes] = {}
        for position, row in enumerate(raw.to_numpy(zero_copy_only=False)):
            if row is None:
                continue
            try:
                schema, objects[position], notes = decode(row)
            except Exception as err:  # noqa: BLE001 - `explain` knows what is a record's own
                reasons[position] = explain(err)
                continue
            if notes is not None:
                losses[position] = notes
            if schema is not None and objects[position] is not None:
                codes[position] = schemas.setdefault(schema, len(schemas))
        payload = DecodedPayload(raw if keeps_raw else None, codes, tuple(schemas), objects)
        return replace(self.split_failures(payload, reasons, offsets), losses=losses)


def spread_values(values: Sequence[Any], mask: npt.NDArray[np.bool_], otherwise: Any) -> list[Any]:
    """Return a list with the values, in their order, where the mask is true, and `otherwise` elsewhere."""
    spread_out = [otherwise] * len(mask)
    for position, value in zip(np.flatnonzero(mask).tolist(), values, strict=True):
        spread_out[position] = value
    return spread_out


BYTES_SCHEMA = Schema('"bytes"')
STRING_SCHEMA = Schema('"string"')


class BytesConverter:
    """Connect's ByteArrayConverter. It accepts any bytes."""

    def __init__(self, topic: str, is_key: bool) -> None:
        self._origin = Origin(topic, is_key, "org.apache.kafka.connect.converters.ByteArrayConverter")

    def convert(self, raw: pa.BinaryArray, offsets: Int64s) -> ConvertedPayload:
        return self._origin.split_failures(Payload(raw, make_codes(raw), (BYTES_SCHEMA,)), {}, offsets)


class StringPayload(Payload):
    """Texts in UTF-8."""

    def _decode(self) -> Sequence[Any]:
        strings: list[Any] = pa.array(self.raw).cast(pa.string()).to_pylist()
        return strings


class StringConverter:
    """Connect's StringConverter, but bytes other than UTF-8 fail. Connect replaces them with question marks."""

    def __init__(self, topic: str, is_key: bool) -> None:
        name = "org.apache.kafka.connect.storage.StringConverter"
        self._origin = Origin(topic, is_key, name, SERIALIZATION_EXCEPTION)

    def convert(self, raw: pa.BinaryArray, offsets: Int64s) -> ConvertedPayload:
        """Check that each value is UTF-8. The text is decoded only when it is first used."""
        payload = StringPayload(raw, make_codes(raw), (STRING_SCHEMA,))
        return self._origin.split_failures(payload, find_invalid_utf8(raw), offsets)


def make_codes(raw: pa.BinaryArray) -> Int32s:
    """Return the code 0 for each value, and NO_SCHEMA for each null."""
    return np.where(raw.is_null().to_numpy(zero_copy_only=False), NO_SCHEMA, 0).astype(np.int32)


def is_utf8(raw: pa.BinaryArray) -> bool:
    """Return True if every value is UTF-8."""
    try:
        raw.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def find_invalid_utf8(raw: pa.BinaryArray) -> dict[int, str]:
    """Find the values that are not UTF-8. Return the reason for each by its position."""
    if is_utf8(raw):
        return {}
    reasons = {}
    for position, row in enumerate(raw.to_numpy(zero_copy_only=False)):
        try:
            row is None or row.decode()
        except UnicodeDecodeError as err:
            reasons[position] = f"is not UTF-8: {err}"
    return reasons
