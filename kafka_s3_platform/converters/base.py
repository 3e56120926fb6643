"""What every converter gives, and how a record that cannot be converted is told."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_s3_platform.model.connect import Int64s, Payload, Positions, RecordFailure

DATA_EXCEPTION = "org.apache.kafka.connect.errors.DataException"
SERIALIZATION_EXCEPTION = "org.apache.kafka.common.errors.SerializationException"


class BadRecordError(Exception):
    """One record cannot be converted; the message says why. Never leaves this room."""


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
