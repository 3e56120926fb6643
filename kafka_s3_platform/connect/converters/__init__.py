"""Converts the bytes of keys and values to Kafka Connect's view of them."""

from collections.abc import Callable

from kafka_s3_platform.connect.converters.base import BytesConverter, ConvertedPayload, Converter, StringConverter
from kafka_s3_platform.core.config.settings import ConverterSettings
from kafka_s3_platform.core.errors import ConfigError

__all__ = ["ConvertedPayload", "Converter", "new_converter"]


def new_converter(settings: ConverterSettings, topic: str, is_key: bool) -> Converter:
    """Return the converter of a topic's keys or values. It contacts no server before it converts the first value.

    Raises ConfigError if the format needs a Schema Registry and the settings name none, or if a user's class cannot be
    loaded.
    """
    plain: dict[str, Callable[[str, bool], Converter]] = {"BYTES": BytesConverter, "STRING": StringConverter}
    if settings.format in plain:
        return plain[settings.format](topic, is_key)
    # Each of these formats loads its own libraries, so each is imported only when it is needed.
    if settings.is_plugin:
        from kafka_s3_platform.connect.converters.own_class import OwnClassConverter

        return OwnClassConverter(settings, topic, is_key)
    if settings.format != "JSON":
        return _new_registry_converter(settings, topic, is_key)
    if settings.schemas_enable:
        from kafka_s3_platform.connect.converters.json_envelope import JsonEnvelopeConverter

        return JsonEnvelopeConverter(topic, is_key, settings.options)
    from kafka_s3_platform.connect.converters.json_text import JsonConverter

    return JsonConverter(topic, is_key)


def _new_registry_converter(settings: ConverterSettings, topic: str, is_key: bool) -> Converter:
    """Return the converter of a format with a Schema Registry. Raise ConfigError if the settings name none."""
    side = "key" if is_key else "value"
    if settings.registry is None:
        raise ConfigError(f"{side}s of {settings.format} need {side}.converter.schema.registry.url (topic {topic})")
    if settings.format == "AVRO":
        from kafka_s3_platform.connect.converters.avro import AvroConverter

        return AvroConverter(topic, is_key, settings.registry)
    if settings.format == "JSON_SR":
        from kafka_s3_platform.connect.converters.json_schema.decode import JsonSchemaConverter

        return JsonSchemaConverter(topic, is_key, settings.registry, settings.options)
    from kafka_s3_platform.connect.converters.protobuf.decode import ProtobufConverter

    return ProtobufConverter(topic, is_key, settings.registry, settings.options)
