"""What every converter gives, and how a record that cannot be converted is told."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from fastavro.schema import parse_schema

from kafka_s3_platform.errors import PermanentError, PlatformError, TransientError
from kafka_s3_platform.model.avro_walk import Datum
from kafka_s3_platform.model.connect import Int64s, Payload, Positions, RecordFailure

DATA_EXCEPTION = "org.apache.kafka.connect.errors.DataException"
SERIALIZATION_EXCEPTION = "org.apache.kafka.common.errors.SerializationException"


class BadRecordError(Exception):
    """One record cannot be converted; the message says why. Never leaves this room."""


def refusal(err: Exception) -> str:
    """Why one record cannot be converted. What is no matter of that record is raised.

    Schemas and values come from strangers: what they make libraries raise is never known in full. What the operating
    system refuses is never theirs.

    Raises:
        TransientError: this machine lacks something.
    """
    if isinstance(err, PlatformError):
        raise err
    if isinstance(err, OSError):
        raise TransientError(
            f"records cannot be converted on this machine: {err}. Make sure that it has room for files in its temporary"
            f" folder, and for processes, and run again"
        ) from err
    return str(err) if isinstance(err, BadRecordError) else f"cannot be converted: {type(err).__name__}: {err}"


def walkable(avro: str) -> str:
    """The text of an Avro schema that was made of a stranger's, if what is written with it can be read back.

    Raises:
        BadRecordError: its values would be too deep or too many; and whatever fastavro raises for what is no schema,
            such as a decimal with more digits behind the point than at all.
    """
    try:
        Datum(json.loads(avro))
        parse_schema(json.loads(avro), _ignore_default_error=True)
    except PermanentError as err:
        raise BadRecordError(f"its values cannot be read back as Avro: {err}") from err
    return avro


@dataclass(frozen=True)
class Converted:
    """The payload of the records that converted, their positions among those given, and why the others did not."""

    payload: Payload
    kept: Positions
    failures: tuple[RecordFailure, ...] = ()


class Converter(Protocol):
    """Makes keys, or values, out of bytes. Nulls stay nulls."""

    def convert(self, raw: pa.BinaryArray, offsets: Int64s) -> Converted:
        """`offsets` are the records' own, for the failures.

        Raises:
            RegistryUnavailableError: the Registry did not answer, or had a fault of its own.
            AuthorizationError: the Registry refused the credentials.
        """
        ...


@dataclass(frozen=True)
class Origin:
    """Whose bytes are converted, and as what: for messages. `executing_class` is Connect's class."""

    topic: str
    is_key: bool
    executing_class: str
    exception: str = DATA_EXCEPTION

    @property
    def subject(self) -> str:
        """The Registry's subject by TopicNameStrategy."""
        return f"{self.topic}-{'key' if self.is_key else 'value'}"

    def failure(self, offset: int, reason: str) -> RecordFailure:
        side = "key" if self.is_key else "value"
        return RecordFailure(
            offset,
            "KEY_CONVERTER" if self.is_key else "VALUE_CONVERTER",
            self.executing_class,
            self.exception,
            f"the {side} of the record at offset {offset} of topic {self.topic} {reason}",
        )

    def converted(self, payload: Payload, bad: Mapping[int, str], offsets: Int64s) -> Converted:
        """`payload`, of all records, less those that are bad: the reason by position."""
        if not bad:
            return Converted(payload, np.arange(len(payload)))
        wrong = sorted(bad)
        kept = np.delete(np.arange(len(payload)), wrong)
        failures = tuple(self.failure(int(offsets[at]), bad[at]) for at in wrong)
        return Converted(payload.take(kept), kept, failures)


def spread(values: Sequence[Any], where: npt.NDArray[np.bool_], otherwise: Any) -> list[Any]:
    """The values where it is true, in their order, and `otherwise` elsewhere."""
    spread_out = [otherwise] * len(where)
    for position, value in zip(np.flatnonzero(where).tolist(), values, strict=True):
        spread_out[position] = value
    return spread_out
