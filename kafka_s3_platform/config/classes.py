"""Parsers for the names of Java classes, full or short. Each returns the implementation here."""

from collections.abc import Mapping

from kafka_s3_platform.config import plugins
from kafka_s3_platform.config.formats import WRITTEN_FORMATS
from kafka_s3_platform.config.keys import values

_PARTITIONERS = "io.confluent.connect.storage.partitioner."
_EXTRACTORS = _PARTITIONERS + "TimeBasedPartitioner$"
_PRIMITIVES = ("Boolean", "Short", "Integer", "Long", "Float", "Double")

FORMATS: Mapping[str, str] = {row.class_name: row.name for row in WRITTEN_FORMATS.values()}
FORMAT_CLASS: values.Parser[str] = values.expect_class(FORMATS, plugin=plugins.FORMAT)

PART_FORMAT_CLASS: values.Parser[str] = values.expect_class(
    {row.class_name: row.name for row in WRITTEN_FORMATS.values() if "key" in row.parts}
)
"""Parses the format of objects that hold keys or headers."""

PARTITIONER_CLASS: values.Parser[str] = values.expect_class(
    {_PARTITIONERS + f"{name}Partitioner": name for name in ("Default", "Field", "Hourly", "Daily", "TimeBased")},
    plugin=plugins.FOLDERS,
)

TIMESTAMP_EXTRACTOR: values.Parser[str] = values.expect_class(
    {
        "Record": "Record",
        "Wallclock": "Wallclock",
        "RecordField": "RecordField",
        _EXTRACTORS + "RecordTimestampExtractor": "Record",
        _EXTRACTORS + "WallclockTimestampExtractor": "Wallclock",
        _EXTRACTORS + "RecordFieldTimestampExtractor": "RecordField",
    },
    plugin=plugins.TIMESTAMP_EXTRACTOR,
)

CONVERTER_NAMES: Mapping[str, str] = {
    "BYTES": "org.apache.kafka.connect.converters.ByteArrayConverter",
    "STRING": "org.apache.kafka.connect.storage.StringConverter",
    "JSON": "org.apache.kafka.connect.json.JsonConverter",
    "JSON_SR": "io.confluent.connect.json.JsonSchemaConverter",
    "AVRO": "io.confluent.connect.avro.AvroConverter",
    "PROTOBUF": "io.confluent.connect.protobuf.ProtobufConverter",
}

CONVERTER_CLASS: values.Parser[str] = values.expect_class(
    {name: format_name for format_name, name in CONVERTER_NAMES.items()},
    {
        **{
            f"org.apache.kafka.connect.converters.{name}Converter": "say ByteArrayConverter to keep the bytes"
            for name in _PRIMITIVES
        },
        "com.amazonaws.services.schemaregistry.*": "Glue's schema registry and its 18 bytes before each value are not"
        " read. Without format.class, whole records are archived, and every byte comes back",
    },
)
