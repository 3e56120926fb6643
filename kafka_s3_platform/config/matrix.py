"""Which input goes to which output: what Connect's formats take, decided when a file is loaded.

Sources: Confluent's kafka-connect-storage-cloud, the record writers of its formats, and "Amazon S3 Sink Connector for
Confluent Cloud" (JSON to AVRO does not work).
"""

from collections.abc import Mapping

from kafka_s3_platform.config.settings import ConverterSettings

WITH_SCHEMA = "JSON with its schema"
INPUTS = ("BYTES", "STRING", "JSON", WITH_SCHEMA, "JSON_SR", "AVRO", "PROTOBUF")
OUTPUTS = ("avro", "json", "bytes", "parquet", "block_gzip", "envelope.parquet", "envelope.avro", "envelope.json")

_NOT_BYTES = "it writes bytes as they are; keep them with ByteArrayConverter, or say JsonFormat"
_NO_SCHEMA = (
    "a value without a schema has no columns; use JsonFormat, JSON_SR, or schemas.enable=true where values carry theirs"
)
_NO_RECORD = "its columns are the fields of a record; use AvroFormat, JsonFormat or ByteArrayFormat"

REFUSALS: Mapping[tuple[str, str], str] = {
    **{(source, "bytes"): _NOT_BYTES for source in INPUTS if source != "BYTES"},
    **{("JSON", output): _NO_SCHEMA for output in ("avro", "parquet")},
    **{(source, "parquet"): _NO_RECORD for source in ("BYTES", "STRING")},
}
"""The pairs that are refused, each with its reason. Every other one is written."""

HEADER_REFUSALS: Mapping[str, str] = {"bytes": "headers are a list of names and values, not bytes; use JsonFormat"}
"""Formats that headers cannot have in objects of their own."""

FIELDLESS = ("BYTES", "STRING")
"""Inputs that no field can be read from."""


def source(converter: ConverterSettings) -> str:
    """The row of the matrix that a converter is."""
    return WITH_SCHEMA if converter.format == "JSON" and converter.schemas_enable else converter.format


def refusal(converter: ConverterSettings, output: str) -> str | None:
    """Why the format `output` cannot hold what a converter understands, None where it can."""
    row = source(converter)
    reason = REFUSALS.get((row, output))
    return reason and f"{row} cannot be written as {output}: {reason}"
