"""Converters of the wire format with values decoded one by one: JSON Schema and Protobuf."""

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from kafka_s3_platform.avro.wire import NO_ID, PREFIX_BYTES, explain_unframed, read_schema_ids
from kafka_s3_platform.config.settings import RegistrySettings
from kafka_s3_platform.converters.base import BadRecordError, ConvertedPayload, Origin, explain_bad_record
from kafka_s3_platform.converters.registry import Registry, open_registry
from kafka_s3_platform.model.connect import NO_SCHEMA, Int64s, Payload, Schema
from kafka_s3_platform.model.notes import Notes


class FramedPayload(Payload):
    """Values with the wire format's frame before them, already decoded."""

    raw_is_value = False


class FramedConverter(ABC):
    """Decodes each value immediately, so misfits fail here."""

    executing_class: ClassVar[str]

    def __init__(self, topic: str, is_key: bool, registry: RegistrySettings) -> None:
        self._origin = Origin(topic, is_key, self.executing_class)
        self._settings = registry
        self.notes = Notes()
        """Of the record that is read."""

    @abstractmethod
    def read(self, registry: Registry, schema_id: int, body: bytes) -> tuple[Schema, Any]:
        """Decode the bytes after the schema's id to the schema and the value. Raise BadRecordError if they misfit."""

    def convert(self, raw: pa.BinaryArray, offsets: Int64s) -> ConvertedPayload:
        objects: list[Any] = [None] * len(raw)
        codes = np.full(len(raw), NO_SCHEMA, np.int32)
        schemas: dict[Schema, int] = {}
        bad: dict[int, str] = {}
        rows = raw.to_numpy(zero_copy_only=False)
        registry = open_registry(self._settings)
        losses: dict[int, Notes] = {}
        for position, schema_id in enumerate(read_schema_ids(raw).tolist()):
            row = rows[position]
            if row is None:
                continue
            try:
                if schema_id == NO_ID:
                    raise BadRecordError(explain_unframed(row))
                schema, objects[position] = self.read(registry, schema_id, row[PREFIX_BYTES:])
            except Exception as err:  # noqa: BLE001 - `explain_bad_record` knows what is a record's own
                bad[position] = explain_bad_record(err)
                continue
            if self.notes.kinds:
                losses[position], self.notes = self.notes, Notes()
            if objects[position] is not None:
                codes[position] = schemas.setdefault(schema, len(schemas))
        done = self._origin.converted(FramedPayload(raw, codes, tuple(schemas), objects), bad, offsets)
        return replace(done, losses=losses)
