"""What becomes of keys and values on their way to the target: their schema ids mapped, or their bytes written anew."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from kafka_s3_platform.config.settings import ConverterSettings, RecordSettings
from kafka_s3_platform.converters import Converter, new_converter
from kafka_s3_platform.converters.base import Converted
from kafka_s3_platform.converters.registry import Registration
from kafka_s3_platform.model.connect import ConnectBatch, Outcome, Payload, RecordFailure, Stage
from kafka_s3_platform.model.schema import ArchivedSchema
from kafka_s3_platform.restore.encoding import Encoder, new_encoder
from kafka_s3_platform.restore.request import Outgoing
from kafka_s3_platform.restore.schemas import SchemaMapping
from kafka_s3_platform.restore.wire import with_mapped_ids

SERIALIZATION_EXCEPTION = "org.apache.kafka.common.errors.SerializationException"


@dataclass(frozen=True)
class ValueSettings:
    """What an executor needs to make keys and values.

    `source` are the converters that the records were archived with. `schemas` are the index's: records are decoded with
    them, not with the source's registry, which may be gone. `mapping` is None where ids stay as they are.
    Without `registers` no schema is registered: nothing is sent then.
    """

    outgoing: Outgoing = field(repr=False)
    source: RecordSettings = field(repr=False)
    topic: str
    to_topic: str
    mapping: SchemaMapping | None = None
    schemas: tuple[ArchivedSchema, ...] = field(default=(), repr=False)
    registers: bool = True


@dataclass(frozen=True)
class Rewritten:
    """The records that go on, with the keys and values that are sent, and why the others do not."""

    batch: pa.RecordBatch
    failures: tuple[RecordFailure, ...] = ()


def new_values(settings: ValueSettings) -> "Values":
    """The stage of these settings.

    Raises:
        ConfigError: bytes are to be written that need a registry, and none is named.
    """
    return Values(settings)


class Values:
    """Makes the keys and values that are sent. Deterministic, and the same however records are batched."""

    def __init__(self, settings: ValueSettings) -> None:
        self._settings = settings
        self._sides = (_Side(settings, is_key=True), _Side(settings, is_key=False))

    @property
    def changes_nothing(self) -> bool:
        """Whether every record of our archive is sent as it was archived."""
        return not any(side.encodes or side.ids is not None for side in self._sides)

    @property
    def registered(self) -> tuple[Registration, ...]:
        """What was registered in the target's registry, or found there, for the values written anew so far."""
        return tuple(r for side in self._sides for r in side.registered)

    def apply(self, batch: pa.RecordBatch) -> Rewritten:
        """Archived records as they are sent.

        Raises:
            RegistryUnavailableError, AuthorizationError, ConfigError: as a registry answers.
        """
        if self.changes_nothing or not batch.num_rows:
            return Rewritten(batch)
        outcome = self.decode(batch)
        done = self.encode(outcome.batch)
        return Rewritten(done.batch, (*outcome.failures, *done.failures))

    def decode(self, batch: pa.RecordBatch, everything: bool = False) -> Outcome:
        """Records as Connect sees them: keys and values decoded where they are written anew, or `everything`."""
        outcome = Outcome(ConnectBatch.of(batch))
        for side in self._sides:
            if (side.encodes or everything) and outcome.batch.num_rows:
                done = side.decode(outcome.batch)
                outcome = Outcome(done.batch, (*outcome.failures, *done.failures))
        return outcome

    def encode(self, batch: ConnectBatch) -> Rewritten:
        """Records as they are sent. What has kept its bytes, and is not asked to be written anew, keeps them."""
        made = [side.encode(batch) for side in self._sides]
        failures = tuple(f for _, found in made for f in found)
        records = batch.records
        for (column, _), side in zip(made, self._sides, strict=True):
            records = records.set_column(records.schema.get_field_index(side.name), side.name, column)
        if failures:
            kept = np.flatnonzero(~np.isin(batch.offsets, [f.offset for f in failures]))
            records = records.take(pa.array(kept))
        return Rewritten(records, failures)


class _Side:
    """Keys, or values."""

    def __init__(self, settings: ValueSettings, is_key: bool) -> None:
        self.name = "key" if is_key else "value"
        self._is_key, self._settings = is_key, settings
        outgoing, mapping = settings.outgoing, settings.mapping
        self._source: ConverterSettings = settings.source.key if is_key else settings.source.value
        self._wanted = outgoing.key if is_key else outgoing.value
        self.ids = None if mapping is None else (mapping.key_ids if is_key else mapping.value_ids)
        self._encoder: Encoder | None = self._new_encoder(self._wanted) if self._wanted else None
        self._converter: Converter | None = None

    @property
    def encodes(self) -> bool:
        """Whether bytes are written anew."""
        return self._wanted is not None

    @property
    def registered(self) -> tuple[Registration, ...]:
        return self._encoder.registered if self._encoder else ()

    def decode(self, batch: ConnectBatch) -> Outcome:
        if self._converter is None:
            self._converter = new_converter(self._archived(), self._settings.topic, self._is_key)
        done: Converted = self._converter.convert(batch.records.column(self.name), batch.offsets)
        kept = batch.take(done.kept)
        kept = replace(kept, key=done.payload) if self._is_key else replace(kept, value=done.payload)
        return Outcome(kept, done.failures)

    def encode(self, batch: ConnectBatch) -> tuple[pa.BinaryArray, Sequence[RecordFailure]]:
        payload: Payload = batch.key if self._is_key else batch.value
        if self._wanted is None and payload.raw is not None:
            return self._mapped(payload.raw, batch)
        if self._encoder is None:
            # a transform, or another's archive, has objects only: they are written as they were read
            self._encoder = self._new_encoder(self._source)
        done = self._encoder.encode(payload)
        hint = "" if self.encodes else f"; to write it otherwise, set {self.name}.converter (--outgoing, outgoing_file)"
        return done.column, self._failures(batch, ((at, f"{reason}{hint}") for at, reason in done.bad.items()))

    def _mapped(self, raw: pa.BinaryArray, batch: ConnectBatch) -> tuple[pa.BinaryArray, Sequence[RecordFailure]]:
        if self.ids is None:
            return raw, ()
        column, unknown, ids = with_mapped_ids(raw, self.ids)
        reasons = (
            (at, f"names schema {schema_id}, which was not archived and so is not in the target's registry")
            for at, schema_id in zip(unknown.tolist(), ids.tolist(), strict=True)
        )
        return column, self._failures(batch, reasons)

    def _failures(self, batch: ConnectBatch, bad: Iterable[tuple[int, str]]) -> list[RecordFailure]:
        stage: Stage = "KEY_CONVERTER" if self._is_key else "VALUE_CONVERTER"
        where = self._settings.topic
        return [
            RecordFailure(
                int(batch.offsets[at]),
                stage,
                __name__,
                SERIALIZATION_EXCEPTION,
                f"the {self.name} of the record at offset {batch.offsets[at]} of topic {where} {reason}",
            )
            for at, reason in bad
        ]

    def _archived(self) -> ConverterSettings:
        """The converter with the archived schemas at hand."""
        found = self._source.registry
        if found is None:
            return self._source
        registry = found.model_copy(update={"archived": self._settings.schemas})
        return self._source.model_copy(update={"registry": registry})

    def _new_encoder(self, settings: ConverterSettings) -> Encoder:
        registry = self._settings.outgoing.target_registry
        if settings is self._source and registry is not None:
            settings = settings.model_copy(update={"registry": registry})
        to_topic, registers = self._settings.to_topic, self._settings.registers
        return new_encoder(settings, to_topic, self._is_key, registry, registers=registers)
