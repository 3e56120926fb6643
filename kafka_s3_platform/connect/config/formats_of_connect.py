"""The formats of Connect's sinks, DeviantArt's, Aiven's and Lenses', and the words for them in their files.

Sources: the record writers in Confluent's kafka-connect-storage-cloud; "Amazon S3 Sink Connector for Confluent Cloud"
(JSON to AVRO does not work); DeviantArt's kafka-connect-s3; the READMEs of Aiven's S3 sink and S3 source connectors;
Lenses' stream-reactor.
"""

from collections.abc import Iterable, Mapping

from kafka_s3_platform.core.codecs.table import AVRO_CODECS, LINE_CODECS, PARQUET_CODECS
from kafka_s3_platform.core.config.formats import (
    BYTES_EXTENSION,
    ENVELOPES,
    LINES_KEY,
    PARQUET_EXTENSIONS,
    Format,
    find_format,
    list_line_extensions,
)

JSON_WITH_SCHEMA = "JSON with its schema"

INPUTS = ("BYTES", "STRING", "JSON", JSON_WITH_SCHEMA, "JSON_SR", "AVRO", "PROTOBUF")
"""The forms that values and keys have in Kafka: Confluent Cloud's words, and the default of Connect's JsonConverter."""

CODEC_KEYS = (LINES_KEY, "avro.codec", "parquet.codec")
"""The keys that name a codec. Each kind of format has a key of its own, as in Connect."""

_CONNECT = "io.confluent.connect.s3.format."

_NO_SCHEMA = (
    "a value without a schema has no columns; use JsonFormat, JSON_SR, or schemas.enable=true where values carry theirs"
)

_NO_RECORD = "its columns are the fields of a record; use AvroFormat, JsonFormat or ByteArrayFormat"

_NOT_BYTES = "it writes bytes as they are; keep them with ByteArrayConverter, or say JsonFormat"

_A_LINE = "a record a line"

_ROWS = (
    Format(
        "bytes",
        "kafka_s3_platform.connect.formats.byte_array",
        "values, unchanged",
        _CONNECT + "bytearray.ByteArrayFormat",
        cloud_word="BYTES",
        aiven_word="csv",
        input_word="bytes",
        lenses_word="TEXT",
        lenses_endings=(".text",),
        parts=("value", "key"),
        headers_refusal="headers are a list of names and values, not bytes; use JsonFormat",
        refused_inputs={name: _NOT_BYTES for name in INPUTS if name != "BYTES"},
        has_separator=True,
        codecs=LINE_CODECS,
        extensions=list_line_extensions(BYTES_EXTENSION),
        own_keys=("format.bytearray.extension", "format.bytearray.separator"),
        kind="bytes",
        is_compressed_whole=True,
        not_kept="all but the bytes",
    ),
    Format(
        "json",
        "kafka_s3_platform.connect.formats.json",
        "values, JSON lines",
        _CONNECT + "json.JsonFormat",
        cloud_word="JSON",
        aiven_word="jsonl",
        input_word="jsonl",
        lenses_word="JSON",
        lenses_endings=(".json", ".gz"),
        parts=("value", "key", "headers"),
        needs_converter=True,
        has_fields=True,
        has_base64=True,
        counted=_A_LINE,
        codecs=LINE_CODECS,
        extensions=list_line_extensions("json"),
        own_keys=("json.decimal.format",),
        kind="json",
        is_compressed_whole=True,
        not_kept=(
            "types: bytes, decimals and dates are text and numbers. Whether 64-bit numbers survive depends on the"
            " reader"
        ),
    ),
    Format(
        "avro",
        "kafka_s3_platform.connect.formats.avro",
        "values of one schema, Avro container",
        _CONNECT + "avro.AvroFormat",
        cloud_word="AVRO",
        aiven_word="avro",
        input_word="avro",
        lenses_word="AVRO",
        parts=("value", "key", "headers"),
        refused_inputs={"JSON": _NO_SCHEMA},
        needs_schema=True,
        needs_converter=True,
        has_fields=True,
        codecs=AVRO_CODECS,
        default_codec="null",
        codec_key="avro.codec",
        extensions=dict.fromkeys(AVRO_CODECS, "avro"),
        kind="avro",
        not_kept="the schema's id and subject",
    ),
    Format(
        "parquet",
        "kafka_s3_platform.connect.formats.parquet.format",
        "values of one schema as columns",
        _CONNECT + "parquet.ParquetFormat",
        cloud_word="PARQUET",
        aiven_word="parquet",
        input_word="parquet",
        lenses_word="PARQUET",
        parts=("value", "key", "headers"),
        refused_inputs={"JSON": _NO_SCHEMA, "BYTES": _NO_RECORD, "STRING": _NO_RECORD},
        needs_schema=True,
        needs_converter=True,
        has_fields=True,
        codecs=PARQUET_CODECS,
        default_codec="snappy",
        codec_key="parquet.codec",
        extensions=PARQUET_EXTENSIONS,
        kind="parquet",
        not_kept="the schema's id and subject",
    ),
    Format(
        "block_gzip",
        "kafka_s3_platform.connect.formats.block_gzip",
        "values as lines, in gzip blocks with an index",
        "kafka_s3_platform.formats.BlockGzipFormat",
        "com.deviantart.kafka_connect_s3.BlockGZIPFileWriter",
        holds_texts=True,
        counted=_A_LINE,
        codecs={"gzip": LINE_CODECS["gzip"]},
        default_codec="gzip",
        extensions={"gzip": "gz"},
        index_suffix="index.json",
        own_keys=("compressed_block_size",),
        kind="block_gzip",
        not_kept="whether a value ended with a line break",
    ),
    Format(
        "aiven.csv",
        "kafka_s3_platform.connect.formats.aiven",
        "fields of a record, csv",
        aiven_word="csv",
        envelope="aiven",
        counted=_A_LINE,
    ),
    Format(
        "aiven.jsonl",
        "kafka_s3_platform.connect.formats.aiven",
        "fields of a record, JSON lines",
        aiven_word="jsonl",
        envelope="aiven",
        has_fields=True,
        has_base64=True,
        counted=_A_LINE,
    ),
    Format(
        "aiven.json",
        "kafka_s3_platform.connect.formats.aiven",
        "fields of a record or values, a JSON array",
        aiven_word="json",
        envelope="aiven",
        has_fields=True,
        has_base64=True,
        counted="a record for each element of an array",
    ),
    Format(
        "aiven.avro",
        "kafka_s3_platform.connect.formats.aiven",
        "fields of a record, Avro container",
        aiven_word="avro",
        envelope="aiven",
        needs_schema=True,
        has_fields=True,
    ),
    Format(
        "aiven.parquet",
        "kafka_s3_platform.connect.formats.aiven",
        "fields of a record as columns",
        aiven_word="parquet",
        envelope="aiven",
        needs_schema=True,
        has_fields=True,
    ),
    Format(
        "lenses.json",
        "kafka_s3_platform.connect.formats.lenses",
        "key, value, headers and metadata, JSON lines",
        input_word="lenses.json",
        envelope="lenses",
        counted=_A_LINE,
    ),
    Format(
        "lenses.avro",
        "kafka_s3_platform.connect.formats.lenses",
        "key, value, headers and metadata, Avro container",
        input_word="lenses.avro",
        envelope="lenses",
        needs_schema=True,
    ),
    Format(
        "lenses.parquet",
        "kafka_s3_platform.connect.formats.lenses",
        "key, value, headers and metadata as columns",
        input_word="lenses.parquet",
        envelope="lenses",
        needs_schema=True,
    ),
)

FORMATS_OF_CONNECT: Mapping[str, Format] = {row.name: row for row in _ROWS}
FORMATS: Mapping[str, Format] = {**ENVELOPES, **FORMATS_OF_CONNECT}
WRITTEN_FORMATS: Mapping[str, Format] = {name: row for name, row in FORMATS.items() if row.is_written}

REFUSALS: Mapping[tuple[str, str], str] = {
    (name, row.name): reason for row in WRITTEN_FORMATS.values() for name, reason in row.refused_inputs.items()
}
"""The pairs of input and output that are refused, each with its reason. Every other pair can be written."""

CLOUD_WORDS: Mapping[str, str] = {row.cloud_word: row.name for row in _ROWS if row.cloud_word}

LENSES_WORDS: Mapping[str, Format] = {row.lenses_word: row for row in _ROWS if row.lenses_word}

INPUT_WORDS: Mapping[str, str] = {row.input_word: row.name for row in _ROWS if row.input_word}

AIVEN_WRITTEN: Mapping[str, str] = {row.aiven_word: row.name for row in _ROWS if row.aiven_word and row.is_written}
"""Aiven's words for the formats that hold values only."""

AIVEN_ENVELOPES: Mapping[str, str] = {row.aiven_word: row.name for row in _ROWS if row.envelope == "aiven"}
"""Aiven's words for the formats that hold several fields of a record, namely the fields that a connector file lists."""


def find_lenses_endings(name: str) -> tuple[str, ...]:
    """Return the endings that Lenses' sink gives the names of objects of this format, with or without its envelope."""
    kind = name.rpartition(".")[2]
    return find_format(kind).lenses_endings or (f".{kind}",)


def list_codes(names: Iterable[str]) -> str:
    """Return names as code for the docs, with `or` before the last one."""
    *first, last = (f"`{name}`" for name in names)
    return f"{', '.join(first)} or {last}" if first else last
