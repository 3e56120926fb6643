"""Values of Protobuf as the converter reads them: with a schema from the archive, and no registry."""

from kafka_s3_platform.connect.converters import ConvertedPayload
from kafka_s3_platform.core.config.settings import ConverterSettings
from kafka_s3_platform.core.model.schema import ArchivedSchema
from kafka_s3_platform_tests.converters import values


def archived(text: str) -> ArchivedSchema:
    """The schema with id 1, as a .proto file or as a descriptor in base64."""
    return values.archived("PROTOBUF", text)


def settings(*schemas: ArchivedSchema, **options: str) -> ConverterSettings:
    """ProtobufConverter. Options by their names, dots as underscores."""
    return values.of_archive("PROTOBUF", *schemas, **options)


def framed(message: bytes) -> bytes:
    """The value whose schema has id 1, with its message indexes before the message."""
    return values.framed(1, message)


def converted(text: str, *messages: bytes, is_key: bool = False, **options: str) -> ConvertedPayload:
    """What the messages of this schema become."""
    return values.convert_rows(settings(archived(text), **options), list(map(framed, messages)), is_key=is_key)
