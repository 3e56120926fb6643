"""Values of the wire format that are read one by one: JSON Schema and Protobuf."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from kafka_s3_platform.config.settings import RegistrySettings
from kafka_s3_platform.converters.base import BadRecordError, Converted, Origin, refusal
from kafka_s3_platform.converters.registry import Registry, registry_of
from kafka_s3_platform.converters.wire import NO_ID, PREFIX_BYTES, schema_ids, unframed
from kafka_s3_platform.model.connect import NO_SCHEMA, Int64s, Payload, Schema


class FramedPayload(Payload):
    """Values each behind the wire format's frame, decoded beside it."""

    raw_is_value = False


class FramedConverter(ABC):
    """Decodes each value at once, so that what does not fit is known here."""

    executing_class: ClassVar[str]

    def __init__(self, topic: str, is_key: bool, registry: RegistrySettings) -> None:
        self._origin = Origin(topic, is_key, self.executing_class)
        self._settings = registry

    @abstractmethod
    def read(self, registry: Registry, schema_id: int, body: bytes) -> tuple[Schema, Any]:
        """The schema and the decoded value of what follows the schema's id. Raises BadRecordError."""

    def convert(self, raw: pa.BinaryArray, offsets: Int64s) -> Converted:
        objects: list[Any] = [None] * len(raw)
        codes = np.full(len(raw), NO_SCHEMA, np.int32)
        known: dict[Schema, int] = {}
        bad: dict[int, str] = {}
        rows, registry = raw.to_numpy(zero_copy_only=False), registry_of(self._settings)
        for position, schema_id in enumerate(schema_ids(raw).tolist()):
            row = rows[position]
            if row is None:
                continue
            try:
                if schema_id == NO_ID:
                    raise BadRecordError(unframed(row))
                schema, objects[position] = self.read(registry, schema_id, row[PREFIX_BYTES:])
            except Exception as err:  # noqa: BLE001 - `refusal` tells what is a record's own
                bad[position] = refusal(err)
                continue
            if objects[position] is not None:
                codes[position] = known.setdefault(schema, len(known))
        return self._origin.converted(FramedPayload(raw, codes, tuple(known), objects), bad, offsets)
