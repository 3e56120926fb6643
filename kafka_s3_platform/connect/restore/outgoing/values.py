"""Makes the keys and values to send, by mapping their schema ids or by re-encoding them."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.connect.avro.wire import (
    SCHEMA_HEADERS,
    encode_schema_name,
    map_schema_ids,
    parse_schema_name,
    read_schema_ids,
    read_schema_names,
)
from kafka_s3_platform.connect.converters.base import ConvertedPayload
from kafka_s3_platform.connect.converters.encoding import ValueEncoder, new_encoder
from kafka_s3_platform.connect.converters.framed import RecordConverter
from kafka_s3_platform.connect.converters.registry import Registration
from kafka_s3_platform.connect.transforms.headers import BatchHeaders
from kafka_s3_platform.core.config.settings import ConverterSettings
from kafka_s3_platform.core.model.batches import replace_column
from kafka_s3_platform.core.model.connect import ConnectBatch, Outcome, Payload, RecordFailure, Side, Stage
from kafka_s3_platform.core.model.notes import DoubtNote, Notes
from kafka_s3_platform.core.restore.outgoing.sent import ValueSettings

SERIALIZATION_EXCEPTION = "org.apache.kafka.common.errors.SerializationException"


@dataclass(frozen=True)
class Rewritten:
    """The records to send, with their keys and values, and the failures of the other records.

    `losses` describes the losses in re-encoded keys and values, by source offset.
    """

    batch: pa.RecordBatch
    failures: tuple[RecordFailure, ...] = ()
    losses: tuple[tuple[int, Notes], ...] = ()


class Values:
    """Makes the keys and values to send. The result does not depend on how records are batched.

    Raises:
        ConfigError: a registry is needed to write the bytes, but none is named.
    """

    def __init__(self, settings: ValueSettings) -> None:
        self._settings = settings
        self._sides = (_Side(settings, is_key=True), _Side(settings, is_key=False))

    @property
    def changes_nothing(self) -> bool:
        """True if every record of our archive is sent unchanged."""
        return not any(side.encodes or side.ids is not None for side in self._sides)

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about headers with schema names in the records encoded so far."""
        counts = (counts_of_side for side in self._sides for counts_of_side in side.header_counts.items())
        notes = [f"{count:,} records named their schema in the header {what}" for what, count in counts if count]
        ruled = sorted(s.schema_id for s in self._settings.schemas if s.other_fields != "{}")
        if ruled and self.registered:
            notes.append(f"schemas {ruled} have metadata or rules, and what was written anew has schemas without them")
        doubts = (
            DoubtNote(
                f"{side.framed_count:,} {side.name}s begin with a 0 and a schema's id, as serializers of a registry "
                f"write them, and were wrapped as bytes, since the connector's file does not name the converter that "
                f"reads them ({side.name}.converter), such as AvroConverter"
            )
            for side in self._sides
            if side.framed_count
        )
        return (*notes, *doubts)

    @property
    def registered(self) -> tuple[Registration, ...]:
        """The schemas registered, or found in the target's registry, for the values re-encoded so far."""
        key, value = self._sides
        return (*key.registered, *value.registered)

    def decode(self, batch: pa.RecordBatch, everything: bool = False) -> Outcome:
        """Decode records as Connect does: keys and values to be re-encoded, or `everything`."""
        outcome = Outcome(ConnectBatch.of(batch))
        for side in self._sides:
            if (side.encodes or everything) and outcome.batch.num_rows:
                done = side.decode(outcome.batch)
                outcome = Outcome(done.batch, (*outcome.failures, *done.failures))
        return outcome

    def encode(self, batch: ConnectBatch) -> Rewritten:
        """Encode records for sending. A key or value keeps its bytes if it need not be re-encoded."""
        done = Rewritten(batch.records)
        for side in self._sides:
            encoded = side.encode(batch, done.batch)
            done = Rewritten(encoded.batch, (*done.failures, *encoded.failures), (*done.losses, *encoded.losses))
        if not done.failures:
            return done
        # By offset: if a key fails, its value is left out too.
        rows = np.flatnonzero(~np.isin(batch.offsets, [f.offset for f in done.failures]))
        losses = tuple(loss for loss in done.losses if loss[0] in batch.offsets[rows])
        return Rewritten(done.batch.take(pa.array(rows)), done.failures, losses)


class _Side:
    """Decodes and encodes either the keys of records or their values.

    `ids` maps schema ids of the source to the target's. It is None if ids stay as they are.
    """

    def __init__(self, settings: ValueSettings, is_key: bool) -> None:
        self.name: Side = "key" if is_key else "value"
        self.header_counts = Counter[str]()
        self._header = SCHEMA_HEADERS[self.name]
        self._is_key = is_key
        self._settings = settings
        outgoing = settings.outgoing
        mapping = settings.mapping
        self._source: ConverterSettings = settings.source.key if is_key else settings.source.value
        self._requested = outgoing.key if is_key else outgoing.value
        self.ids = None if mapping is None else (mapping.key_ids if is_key else mapping.value_ids)
        self._encoder: ValueEncoder | None = self._new_encoder(self._requested) if self._requested else None
        self._converter: RecordConverter | None = None
        self._loss_notes: Mapping[int, Notes] = {}
        self.framed_count = 0
        """The number of values read as bytes and written as something else, though they begin with a schema id."""

    @property
    def encodes(self) -> bool:
        """True if the restore names a converter, so all bytes are written anew."""
        return self._requested is not None

    @property
    def registered(self) -> tuple[Registration, ...]:
        """The schemas that the encoder has registered, or found in the target's registry."""
        return self._encoder.registered if self._encoder else ()

    def decode(self, batch: ConnectBatch) -> Outcome:
        """Decode the keys or values with the source's converter. Failed records are left out of the batch."""
        if self._converter is None:
            self._converter = RecordConverter(self._make_source_settings(), self._settings.topic, self.name)
        done: ConvertedPayload = self._converter.convert(batch.records)
        self._loss_notes = {int(batch.offsets[at]): notes for at, notes in done.losses.items()}
        passed = batch.take(done.positions)
        passed = replace(passed, key=done.payload) if self._is_key else replace(passed, value=done.payload)
        return Outcome(passed, done.failures)

    def encode(self, batch: ConnectBatch, records: pa.RecordBatch) -> Rewritten:
        """Write the keys or values of `batch` into `records`, which are the same records, with none left out."""
        payload: Payload = batch.key if self._is_key else batch.value
        names = read_schema_names(records.column("headers"), self.name)
        if self._requested is None and payload.bytes_read is not None:
            return self._keep_bytes(batch, records, payload.bytes_read, names)
        if self._encoder is None:
            # Transforms and objects of another sink give values without bytes: write them with the source's converter.
            self._encoder = self._new_encoder(self._source)
        done = self._encoder.encode(payload)
        hint = (
            ""
            if self.encodes
            else f"; to write it otherwise, set {self.name}.converter (--outgoing, values.outgoing_file)"
        )
        records = replace_column(records, self.name, done.column)
        raw = payload.bytes_read if payload.raw_is_value and self._source.format == "BYTES" else None
        if raw is not None and not raw.equals(done.column):
            self.framed_count += int((read_schema_ids(raw) > 0).sum())
        offsets = batch.offsets.tolist()
        losses = [(offsets[at], notes) for at, notes in done.losses.items()]
        if done.column is not payload.bytes_read:
            losses += (
                (offset, self._loss_notes[offset]) for offset in dict.fromkeys(offsets) if offset in self._loss_notes
            )
            if names is not None:
                # Confluent's readers trust such a header more than the bytes.
                removed = pc.and_(done.column.is_valid(), names.is_valid())
                records = self._write_header(records, None, removed)
                what = f"{self._header}, and come without it: the {self.name} was written anew"
                self.header_counts[what] += removed.true_count
        failures = self._make_failures(batch, ((at, f"{reason}{hint}") for at, reason in done.bad.items()))
        return Rewritten(records, failures, tuple(losses))

    def _keep_bytes(
        self, batch: ConnectBatch, records: pa.RecordBatch, raw: pa.BinaryArray, names: pa.BinaryArray | None
    ) -> Rewritten:
        """Write the bytes `raw` into the records. If schema ids are mapped, replace them with the target's.

        `names` are the schema names in headers. If a record has such a header, its bytes do not begin with an id.
        """
        if self.ids is None:
            return Rewritten(replace_column(records, self.name, raw))
        column, rows, ids = map_schema_ids(raw, self.ids, None if names is None else names.is_valid())
        records = replace_column(records, self.name, column)
        bad = [
            (row, f"names schema {schema_id}, which was not archived and so is not in the target's registry")
            for row, schema_id in zip(rows.tolist(), ids.tolist(), strict=True)
        ]
        if names is not None:
            records, unknown = self._map_headers(records, names)
            bad += unknown
        return Rewritten(records, self._make_failures(batch, bad))

    def _map_headers(
        self, records: pa.RecordBatch, names: pa.BinaryArray
    ) -> tuple[pa.RecordBatch, list[tuple[int, str]]]:
        """Write the target's schema names into the headers of all records but nulls.

        Return the records, and (row, why) for each record whose schema has no name at the target.
        """
        bad: list[tuple[int, str]] = []
        for text in names.unique().drop_null().to_pylist():
            rows = pc.and_(pc.is_in(names, pa.array([text])), records.column(self.name).is_valid())
            new = self._find_target_name(text)
            if isinstance(new, str):
                at = np.flatnonzero(rows.to_numpy(zero_copy_only=False)).tolist()
                bad += zip(at, [f"has the header {self._header}, which {new}"] * len(at), strict=True)
                continue
            what = f"{self._header}, which names it at the target too: no byte of the {self.name} is an id"
            self.header_counts[what] += rows.true_count
            if new != text:
                records = self._write_header(records, new, rows)
        return records, bad

    def _find_target_name(self, text: bytes) -> bytes | str:
        """Return the header's text at the target, or the reason why there is none."""
        mapping = self._settings.mapping
        try:
            name, rest = parse_schema_name(text)
        except ValueError as err:
            return str(err)
        names: Mapping[Any, int | str] = {**(self.ids or {}), **(mapping.guids if mapping else {})}
        if name not in names:
            return f"names schema {name}, which was not archived, or has no GUID in the target's registry"
        return encode_schema_name(names[name], rest)

    def _write_header(self, records: pa.RecordBatch, name: bytes | None, rows: pa.BooleanArray) -> pa.RecordBatch:
        """Write a name into the header of these records. If it is None, remove the header."""
        headers = BatchHeaders.of(records)
        mine = pc.and_(pc.equal(headers.keys, self._header), rows.take(pa.array(headers.rows)))
        values = pc.if_else(mine, pa.scalar(name, pa.binary()), headers.values)
        is_kept = pc.invert(mine) if name is None else mine.is_valid()
        return replace(headers, values=values).select(is_kept.to_numpy(zero_copy_only=False)).put_into(records)

    def _make_failures(self, batch: ConnectBatch, bad: Iterable[tuple[int, str]]) -> tuple[RecordFailure, ...]:
        """Make failures from (row, why) of records, in the same form as Connect reports a converter's failures."""
        stage: Stage = "KEY_CONVERTER" if self._is_key else "VALUE_CONVERTER"
        where = self._settings.topic
        return tuple(
            RecordFailure(
                int(batch.offsets[at]),
                stage,
                __name__,
                SERIALIZATION_EXCEPTION,
                f"the {self.name} of the record at offset {batch.offsets[at]} of topic {where} {reason}",
            )
            for at, reason in bad
        )

    def _make_source_settings(self) -> ConverterSettings:
        """Return the settings of the source's converter, with schemas from the archive, not from a registry."""
        registry_settings = self._source.registry
        if registry_settings is None:
            return self._source
        # The source's registry may be gone, so the archived schemas decode.
        registry = registry_settings.model_copy(update={"archived": self._settings.schemas})
        return self._source.model_copy(update={"registry": registry})

    def _new_encoder(self, settings: ConverterSettings) -> ValueEncoder:
        """Make the encoder of a converter, which registers schemas in the target's registry."""
        registry = self._settings.outgoing.target_registry
        # The source's converter names the source's registry, but new schemas belong in the target's.
        if settings is self._source and registry is not None:
            settings = settings.model_copy(update={"registry": registry})
        return new_encoder(
            settings, self._settings.to_topic, self._is_key, registry, registers=self._settings.registers
        )
