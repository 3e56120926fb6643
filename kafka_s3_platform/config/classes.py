"""Java's classes, by full or short name, as what stands for them here."""

from collections.abc import Mapping

from kafka_s3_platform.config import plugins, values

_FORMATS = "io.confluent.connect.s3.format."
_OURS = "kafka_s3_platform.formats."
_PARTITIONERS = "io.confluent.connect.storage.partitioner."
_EXTRACTORS = _PARTITIONERS + "TimeBasedPartitioner$"
_PRIMITIVES = ("Boolean", "Short", "Integer", "Long", "Float", "Double")

FORMATS: Mapping[str, str] = {
    _FORMATS + "avro.AvroFormat": "avro",
    _FORMATS + "json.JsonFormat": "json",
    _FORMATS + "bytearray.ByteArrayFormat": "bytes",
    _FORMATS + "parquet.ParquetFormat": "parquet",
    _OURS + "EnvelopeParquetFormat": "envelope.parquet",
    _OURS + "EnvelopeAvroFormat": "envelope.avro",
    _OURS + "EnvelopeJsonFormat": "envelope.json",
    _OURS + "BlockGzipFormat": "block_gzip",
}
FORMAT_CLASS: values.Parser[str] = values.java_class(FORMATS, plugin=plugins.FORMAT)

PART_FORMAT_CLASS: values.Parser[str] = values.java_class(
    {name: format_name for name, format_name in FORMATS.items() if name.startswith(_FORMATS)}
)
"""The formats that keys and headers can have in objects of their own."""

PARTITIONER_CLASS: values.Parser[str] = values.java_class(
    {_PARTITIONERS + f"{name}Partitioner": name for name in ("Default", "Field", "Hourly", "Daily", "TimeBased")},
    plugin=plugins.FOLDERS,
)

TIMESTAMP_EXTRACTOR: values.Parser[str] = values.java_class(
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

CONVERTER_CLASS: values.Parser[str] = values.java_class(
    {
        "org.apache.kafka.connect.converters.ByteArrayConverter": "BYTES",
        "org.apache.kafka.connect.storage.StringConverter": "STRING",
        "org.apache.kafka.connect.json.JsonConverter": "JSON",
        "io.confluent.connect.json.JsonSchemaConverter": "JSON_SR",
        "io.confluent.connect.avro.AvroConverter": "AVRO",
        "io.confluent.connect.protobuf.ProtobufConverter": "PROTOBUF",
    },
    {
        f"org.apache.kafka.connect.converters.{name}Converter": "say ByteArrayConverter to keep the bytes"
        for name in _PRIMITIVES
    },
)
