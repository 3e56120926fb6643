"""Values of Protobuf as the converter reads them: with schemas from the archive, and no registry."""

import numpy as np
import pyarrow as pa

from kafka_s3_platform.config.settings import ConverterSettings, RegistrySettings
from kafka_s3_platform.converters import ConvertedPayload, new_converter
from kafka_s3_platform.model.schema import ArchivedSchema


def archived(text: str) -> ArchivedSchema:
    """The schema with id 1, as a .proto file or as a descriptor in base64."""
    return ArchivedSchema("http://gone", 1, "PROTOBUF", text, ())


def settings(*schemas: ArchivedSchema, **options: str) -> ConverterSettings:
    """ProtobufConverter. Options by their names, dots as underscores."""
    registry = RegistrySettings(url="http://gone", archived=schemas)
    given = {name.replace("_", "."): value for name, value in options.items()}
    return ConverterSettings(format="PROTOBUF", registry=registry, options=given)


def framed(message: bytes) -> bytes:
    """The value whose schema has id 1, with its message indexes before the message."""
    return b"\0\0\0\0\1" + message


def converted(text: str, *messages: bytes, is_key: bool = False, **options: str) -> ConvertedPayload:
    """What the messages of this schema become."""
    rows = [framed(message) for message in messages]
    converter = new_converter(settings(archived(text), **options), "t", is_key=is_key)
    return converter.convert(pa.array(rows, pa.binary()), np.arange(len(rows)))
