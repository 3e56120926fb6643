"""Converts and transforms records, and refuses the ones their format cannot hold."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain

import numpy as np

from kafka_s3_platform.connect.converters.framed import RecordConverter
from kafka_s3_platform.connect.segments.schema_targets import SchemaTargets
from kafka_s3_platform.connect.transforms import new_chain
from kafka_s3_platform.core.config.formats import find_format
from kafka_s3_platform.core.config.settings import LayoutSettings, RecordSettings
from kafka_s3_platform.core.formats.format_io import find_unsafe_keys, find_unsafe_values
from kafka_s3_platform.core.model.connect import NO_SCHEMA, ConnectBatch, Mask, Outcome, Payload
from kafka_s3_platform.core.model.notes import Notes
from kafka_s3_platform.core.segments.writers import build_put_failures


def list_record_steps(
    layout: LayoutSettings, records: RecordSettings, topic: str, notes: Notes
) -> Iterator[Callable[[ConnectBatch], Outcome]]:
    """Yield the steps for each batch of a topic's records, in order, before the batch is written to objects.

    The records are converted, transformed, and checked if the format does not hold whole records as they are. `notes`
    gets the losses of conversion.
    """
    yield _Conversion(layout, records, topic, notes).apply
    if records.transforms:
        yield new_chain(records.transforms, topic).apply
    if not layout.is_envelope:
        yield _WritableCheck(layout).apply


class _Conversion:
    """Converts the values, and also the keys if anything reads them."""

    def __init__(self, layout: LayoutSettings, records: RecordSettings, topic: str, notes: Notes) -> None:
        # An envelope keeps the bytes, so it lacks nothing.
        self._notes = Notes() if layout.is_envelope else notes
        self._value = RecordConverter(records.value, topic, "value")
        reads_keys = layout.keys_format is not None or bool(records.transforms)
        self._key: RecordConverter | None = RecordConverter(records.key, topic, "key") if reads_keys else None

    def apply(self, batch: ConnectBatch) -> Outcome:
        """Return the batch with converted values and keys, and a failure for each record left out."""
        values = self._value.convert(batch.records)
        self._notes.join(values.notes)
        batch = replace(batch.take(values.positions), value=values.payload)
        if self._key is None or not batch.num_rows:
            return Outcome(batch, values.failures)
        keys = self._key.convert(batch.records)
        self._notes.join(keys.notes)
        return Outcome(replace(batch.take(keys.positions), key=keys.payload), (*values.failures, *keys.failures))


class _WritableCheck:
    """Refuses or leaves out records that the sink cannot write. This step checks the results of the transforms."""

    def __init__(self, layout: LayoutSettings) -> None:
        self._layout = layout
        self._targets = SchemaTargets(layout.schema_compatibility)
        self._with_schema: bool | None = None

    def apply(self, batch: ConnectBatch) -> Outcome:
        """Return the batch without nulls to be ignored, and failures for records that cannot be written."""
        nulls = batch.value.is_null
        if self._layout.null_values == "ignore" and nulls.any():
            batch = batch.take(np.flatnonzero(~nulls))
            nulls = np.zeros(batch.num_rows, bool)
        refusals = list(self._find_refusals(batch, nulls)) if batch.num_rows else []
        failures = (build_put_failures(batch.offsets[mask], reason) for mask, reason in refusals)
        return Outcome(batch, tuple(chain.from_iterable(failures)))

    def _find_refusals(self, batch: ConnectBatch, nulls: Mask) -> Iterator[tuple[Mask, str]]:
        """Yield the rows that the object format cannot hold, once for each reason."""
        if self._layout.null_values == "fail":
            yield nulls, "the value is null; behavior.on.null.values=ignore or write lets such records pass"
        yield (
            self._find_mixed_schemas(batch.value, nulls),
            "records with and without a schema cannot be mixed, and the first one of this range was of the other kind",
        )
        yield (
            self._targets.find_versionless(batch.value),
            f"schema.compatibility={self._layout.schema_compatibility} needs the Registry's version of its schema",
        )
        yield (
            find_unsafe_values(batch, self._layout) & ~nulls,
            "the value holds the separator of records, so it would read back as several records",
        )
        if self._layout.keys_format is not None:
            no_key = batch.key.is_null
            yield no_key, "the key is null, and an object of keys (store.kafka.keys) holds none"
            yield find_unsafe_keys(batch, self._layout) & ~no_key, "the key holds the separator of records"

    def _find_mixed_schemas(self, values: Payload, nulls: Mask) -> Mask:
        """Mark records with a schema if the range's first value had none, and the other way round."""
        if find_format(self._layout.format).needs_schema:
            # the writer of such a format refuses every record without a schema, the first one too
            return np.zeros(len(nulls), bool)
        has_schema = values.codes != NO_SCHEMA
        if self._with_schema is None and not nulls.all():
            self._with_schema = bool(has_schema[np.flatnonzero(~nulls)[0]])
        mixed: Mask = ~nulls & (has_schema != self._with_schema)
        return mixed
