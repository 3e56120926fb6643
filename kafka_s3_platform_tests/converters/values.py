"""Values as converters read them: with schemas from an archive, and no registry."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from kafka_s3_platform.connect.converters import ConvertedPayload, new_converter
from kafka_s3_platform.core.config.settings import ConverterSettings, RegistrySettings
from kafka_s3_platform.core.model.schema import ArchivedSchema, SubjectVersion

GONE = "http://gone"
ENVELOPE = ConverterSettings(format="JSON", schemas_enable=True)
"""JSON with its schema beside it."""


def framed(schema_id: int, message: bytes) -> bytes:
    """The wire format: a magic byte, the schema's id, the data."""
    return b"\0" + schema_id.to_bytes(4, "big") + message


def archived(kind: str, text: str, schema_id: int = 1, *places: SubjectVersion) -> ArchivedSchema:
    return ArchivedSchema(GONE, schema_id, kind, text, places)


def of_archive(kind: str, *schemas: ArchivedSchema, **options: str) -> ConverterSettings:
    """The settings of a converter whose registry is gone. Options by their names, dots as underscores."""
    given = {name.replace("_", "."): value for name, value in options.items()}
    registry = RegistrySettings(url=GONE, archived=schemas)
    return ConverterSettings.model_validate({"format": kind, "registry": registry, "options": given})


def convert_rows(
    settings: ConverterSettings, rows: Sequence[bytes | None], topic: str = "t", *, is_key: bool = False
) -> ConvertedPayload:
    return new_converter(settings, topic, is_key=is_key).convert(pa.array(rows, pa.binary()), np.arange(len(rows)))
