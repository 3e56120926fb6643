"""From the bytes of keys and values to records as Kafka Connect sees them."""

from collections.abc import Callable

from kafka_s3_platform.config.settings import ConverterSettings
from kafka_s3_platform.converters.base import Converted, Converter
from kafka_s3_platform.converters.json_envelope import JsonEnvelopeConverter
from kafka_s3_platform.converters.json_text import JsonConverter
from kafka_s3_platform.converters.plain import BytesConverter, StringConverter
from kafka_s3_platform.errors import ConfigError

__all__ = ["Converted", "Converter", "new_converter"]


def new_converter(settings: ConverterSettings, topic: str, is_key: bool) -> Converter:
    """The converter of a topic's keys or values. Reaches no server before it converts.

    Raises:
        ConfigError: the format needs a Schema Registry, and none is named.
    """
    without_registry: dict[str, Callable[[str, bool], Converter]] = {
        "BYTES": BytesConverter,
        "STRING": StringConverter,
        "JSON": JsonEnvelopeConverter if settings.schemas_enable else JsonConverter,
    }
    if settings.format in without_registry:
        return without_registry[settings.format](topic, is_key)
    return _with_registry(settings, topic, is_key)


def _with_registry(settings: ConverterSettings, topic: str, is_key: bool) -> Converter:
    side = "key" if is_key else "value"
    if settings.registry is None:
        raise ConfigError(f"{side}s of {settings.format} need {side}.converter.schema.registry.url (topic {topic})")
    # Each brings libraries of its own.
    if settings.format == "AVRO":
        from kafka_s3_platform.converters.avro import AvroConverter

        return AvroConverter(topic, is_key, settings.registry)
    if settings.format == "JSON_SR":
        from kafka_s3_platform.converters.json_schema import JsonSchemaConverter

        return JsonSchemaConverter(topic, is_key, settings.registry)
    from kafka_s3_platform.converters.protobuf import ProtobufConverter

    return ProtobufConverter(topic, is_key, settings.registry, settings.options)
