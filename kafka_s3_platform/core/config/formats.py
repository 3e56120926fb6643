"""The table of formats. A row holds all facts about a format, but for its code.

The code is in the row's module. Connector files, dead letters, names of objects, tags of
assets and the tables of the docs take their facts from the row.

Sources: Confluent's kafka-connect-storage-cloud, the record writers of its formats; "Amazon S3 Sink Connector for
Confluent Cloud" (JSON to AVRO does not work); DeviantArt's kafka-connect-s3; the READMEs of Aiven's S3 sink and S3
source connectors; Lenses' stream-reactor.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from kafka_s3_platform.core.codecs.table import AVRO_CODECS, LINE_CODECS, PARQUET_CODECS, READ_CODECS, Codec
from kafka_s3_platform.core.errors import ConfigError

JSON_WITH_SCHEMA = "JSON with its schema"
INPUTS = ("BYTES", "STRING", "JSON", JSON_WITH_SCHEMA, "JSON_SR", "AVRO", "PROTOBUF")
"""What values and keys can be in Kafka: Confluent Cloud's words, and the default of Connect's JsonConverter."""

LINES_KEY = "s3.compression.type"
CODEC_KEYS = (LINES_KEY, "avro.codec", "parquet.codec")
"""The keys that name a codec. Each kind of format has a key of its own, as in Connect."""

BYTES_EXTENSION = "{format.bytearray.extension}"
"""A placeholder for the value of that key, in an extension."""

PARQUET_MAGIC = b"PAR1"

Part = Literal["value", "key", "headers"]
Envelope = Literal["ours", "aiven", "lenses"]

_OWN_CLASS = "connect.formats.own_class"
_CONNECT = "io.confluent.connect.s3.format."
_OURS = "kafka_s3_platform.formats."


@dataclass(frozen=True)
class Format:
    """A format, by its name in stored settings.

    Attributes:
        name: its name in settings, rows of the index and messages.
        module: the module of the package with its `FORMAT_IO`, which writes and reads it.
        holds: for the docs, the content of an object.
        class_name: the class in connector files. Empty: the format is only read.
        dead_letter_class: the class in dead letters, if it is not `class_name`.
        cloud_word: Confluent Cloud's word for it.
        aiven_word: its `format.output.type` in files of Aiven's connectors.
        input_word: its `input.format` in files of Aiven's and Lenses' sources.
        lenses_word: its word after STOREAS in Lenses' KCQL.
        lenses_endings: how Lenses' sink ends the names of such objects, if not with the format's name.
        envelope: the owner of this envelope of whole records. None: objects hold values, or keys, or headers.
        parts: the parts of records in objects of the format.
        headers_refusal: the reason to refuse objects of headers.
        refused_inputs: the refused inputs, each with the reason.
        needs_schema: objects hold values by the types of a schema, and nothing without one.
        needs_converter: a file has to name the type of values before they are written.
        has_fields: a source's file may name fields of the records.
        has_base64: bytes are base64 in the texts of an object.
        has_separator: a separator is between records. Values may hold its bytes too.
        holds_texts: values of fields are texts of JSON, indistinguishable from bytes.
        counted: the way to count an object's records, in the words of restores' reports.
        codecs: the codecs it is written with.
        default_codec: the codec if a file names none. It is Connect's default; those of our envelopes are our own.
        codec_key: the key of its codec.
        extensions: the extension of each codec, without the first dot.
        other_extensions: more extensions of objects to read.
        index_suffix: replaces the extension in the name of the index of an object's blocks. Empty: there is no index.
        own_keys: keys of connector files used by this format only.
        kind: Dagster's tag of an asset. None: objects are never written.
        is_compressed_whole: the codec is a tag too, because a reader needs it to open the object.
        container: the name of such a file, for messages about an object of a wrong format, and its first bytes.
        not_kept: for the docs, the facts about a record missing in objects.
    """

    name: str
    module: str
    holds: str = ""
    class_name: str = ""
    dead_letter_class: str = ""
    cloud_word: str = ""
    aiven_word: str = ""
    input_word: str = ""
    lenses_word: str = ""
    lenses_endings: tuple[str, ...] = ()
    envelope: Envelope | None = None
    parts: tuple[Part, ...] = ("value",)
    headers_refusal: str = ""
    refused_inputs: Mapping[str, str] = field(default_factory=dict)
    needs_schema: bool = False
    needs_converter: bool = False
    has_fields: bool = False
    has_base64: bool = False
    has_separator: bool = False
    holds_texts: bool = False
    counted: str = ""
    codecs: Mapping[str, Codec] = field(default_factory=dict)
    default_codec: str = "none"
    codec_key: str = LINES_KEY
    extensions: Mapping[str, str] = field(default_factory=dict)
    other_extensions: tuple[str, ...] = ()
    index_suffix: str = ""
    own_keys: tuple[str, ...] = ()
    kind: str = ""
    is_compressed_whole: bool = False
    container: tuple[str, re.Pattern[bytes]] | None = None
    not_kept: str = ""

    @property
    def short_class_name(self) -> str:
        """The class without its package, as connector files may name it."""
        return self.class_name.rpartition(".")[2]

    @property
    def known_class(self) -> str:
        """The format's well-known class, named in dead letters."""
        return self.dead_letter_class or self.class_name

    @property
    def is_envelope(self) -> bool:
        """True if objects hold whole records with their bytes unchanged, so they can be read back exactly."""
        return self.envelope == "ours"

    @property
    def is_written(self) -> bool:
        """True if objects are written in it. All others are only read."""
        return bool(self.class_name)

    @property
    def is_plugin(self) -> bool:
        """True if it is a user's own class, otherwise unknown."""
        return self.module == _OWN_CLASS

    @property
    def names_its_codec(self) -> bool:
        """True if objects themselves name their codec, so the connector file need not."""
        return self.is_envelope or self.needs_schema

    def extension(self, codec: str, bytes_extension: str) -> str:
        """Return the extension of an object with this codec, without its first dot."""
        # A source's file may not name the codec of objects that name it themselves.
        template = self.extensions.get(codec, self.extensions[self.default_codec])
        return template.replace(BYTES_EXTENSION, bytes_extension.removeprefix("."))

    def readable_extensions(self, bytes_extension: str) -> set[str]:
        """Return the extensions of objects with any codec, without their first dot."""
        extensions = {self.extension(codec, bytes_extension) for codec in self.extensions}
        return extensions.union(self.other_extensions)

    def kinds(self, codec: str) -> set[str]:
        """Return Dagster's tags of an asset with this codec."""
        is_compressed = self.is_compressed_whole and codec != "none"
        return {self.kind, codec if is_compressed else ""} - {""}

    def check_codec(self, codec: str, level: int | None) -> None:
        """Refuse a codec or a level unknown to the format. A user's own format decides itself.

        Raises:
            ConfigError: names the format, the codec and the format's codecs or levels.
        """
        if self.is_plugin:
            return
        row = self.codecs.get(codec)
        if row is None:
            raise ConfigError(f"the format {self.name} has no codec '{codec}'; it has {', '.join(self.codecs)}")
        if level is None or level in row.levels:
            return
        levels = f"its levels are {row.levels.start} to {row.levels.stop - 1}" if row.levels else "it has no levels"
        raise ConfigError(f"the codec {codec} of the format {self.name} cannot have the level {level}: {levels}")


def _line_extensions(start: str) -> dict[str, str]:
    return {name: start + codec.suffix for name, codec in READ_CODECS.items()}


_PARQUET_EXTENSIONS = {name: codec.parquet_ending or "" for name, codec in PARQUET_CODECS.items()}
_NO_SCHEMA = (
    "a value without a schema has no columns; use JsonFormat, JSON_SR, or schemas.enable=true where values carry theirs"
)
_NO_RECORD = "its columns are the fields of a record; use AvroFormat, JsonFormat or ByteArrayFormat"
_NOT_BYTES = "it writes bytes as they are; keep them with ByteArrayConverter, or say JsonFormat"
_A_LINE = "a record a line"

_ROWS = (
    Format(
        "envelope.parquet",
        "core.formats.envelope.parquet",
        "whole records, Parquet",
        _OURS + "EnvelopeParquetFormat",
        envelope="ours",
        codecs=PARQUET_CODECS,
        default_codec="zstd",
        codec_key="parquet.codec",
        extensions=dict.fromkeys(PARQUET_CODECS, "parquet"),
        other_extensions=tuple(_PARQUET_EXTENSIONS.values()),
        kind="parquet",
    ),
    Format(
        "envelope.avro",
        "core.formats.envelope.avro",
        "whole records, Avro container",
        _OURS + "EnvelopeAvroFormat",
        envelope="ours",
        codecs=AVRO_CODECS,
        default_codec="zstd",
        codec_key="avro.codec",
        extensions=dict.fromkeys(AVRO_CODECS, "avro"),
        kind="avro",
    ),
    Format(
        "envelope.json",
        "core.formats.envelope.json",
        "whole records, JSON lines",
        _OURS + "EnvelopeJsonFormat",
        envelope="ours",
        codecs=LINE_CODECS,
        default_codec="gzip",
        extensions=_line_extensions("json"),
        kind="json",
        is_compressed_whole=True,
    ),
    Format(
        "bytes",
        "connect.formats.byte_array",
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
        extensions=_line_extensions(BYTES_EXTENSION),
        own_keys=("format.bytearray.extension", "format.bytearray.separator"),
        kind="bytes",
        is_compressed_whole=True,
        not_kept="all but the bytes",
    ),
    Format(
        "json",
        "connect.formats.json",
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
        extensions=_line_extensions("json"),
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
        "connect.formats.avro",
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
        container=("an Avro file", re.compile(rb"Obj\x01")),
        not_kept="the schema's id and subject",
    ),
    Format(
        "parquet",
        "connect.formats.parquet.format",
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
        extensions=_PARQUET_EXTENSIONS,
        kind="parquet",
        container=("a Parquet file", re.compile(PARQUET_MAGIC)),
        not_kept="the schema's id and subject",
    ),
    Format(
        "block_gzip",
        "connect.formats.block_gzip",
        "values as lines, in gzip blocks with an index",
        _OURS + "BlockGzipFormat",
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
        "connect.formats.aiven",
        "fields of a record, csv",
        aiven_word="csv",
        envelope="aiven",
        counted=_A_LINE,
    ),
    Format(
        "aiven.jsonl",
        "connect.formats.aiven",
        "fields of a record, JSON lines",
        aiven_word="jsonl",
        envelope="aiven",
        has_fields=True,
        has_base64=True,
        counted=_A_LINE,
    ),
    Format(
        "aiven.json",
        "connect.formats.aiven",
        "fields of a record or values, a JSON array",
        aiven_word="json",
        envelope="aiven",
        has_fields=True,
        has_base64=True,
        counted="a record for each element of an array",
    ),
    Format(
        "aiven.avro",
        "connect.formats.aiven",
        "fields of a record, Avro container",
        aiven_word="avro",
        envelope="aiven",
        needs_schema=True,
        has_fields=True,
    ),
    Format(
        "aiven.parquet",
        "connect.formats.aiven",
        "fields of a record as columns",
        aiven_word="parquet",
        envelope="aiven",
        needs_schema=True,
        has_fields=True,
    ),
    Format(
        "lenses.json",
        "connect.formats.lenses",
        "key, value, headers and metadata, JSON lines",
        input_word="lenses.json",
        envelope="lenses",
        counted=_A_LINE,
    ),
    Format(
        "lenses.avro",
        "connect.formats.lenses",
        "key, value, headers and metadata, Avro container",
        input_word="lenses.avro",
        envelope="lenses",
        needs_schema=True,
    ),
    Format(
        "lenses.parquet",
        "connect.formats.lenses",
        "key, value, headers and metadata as columns",
        input_word="lenses.parquet",
        envelope="lenses",
        needs_schema=True,
    ),
)

NATIVE_FORMAT = "envelope.parquet"
"""The default of an archive, and the only format whose days are compacted."""

FORMATS: Mapping[str, Format] = {row.name: row for row in _ROWS}
WRITTEN_FORMATS: Mapping[str, Format] = {row.name: row for row in _ROWS if row.is_written}

REFUSALS: Mapping[tuple[str, str], str] = {
    (name, row.name): reason for row in WRITTEN_FORMATS.values() for name, reason in row.refused_inputs.items()
}
"""The pairs of input and output that are refused, each with its reason. Every other pair is written."""

CLOUD_WORDS: Mapping[str, str] = {row.cloud_word: row.name for row in _ROWS if row.cloud_word}
LENSES_WORDS: Mapping[str, Format] = {row.lenses_word: row for row in _ROWS if row.lenses_word}
INPUT_WORDS: Mapping[str, str] = {row.input_word: row.name for row in _ROWS if row.input_word}
AIVEN_WRITTEN: Mapping[str, str] = {row.aiven_word: row.name for row in _ROWS if row.aiven_word and row.is_written}
"""Aiven's words for formats that hold values alone."""

AIVEN_ENVELOPES: Mapping[str, str] = {row.aiven_word: row.name for row in _ROWS if row.envelope == "aiven"}
"""Aiven's words for formats that hold the fields of records that a file names."""


def find_format(name: str) -> Format:
    """Return the row of a format. For the dotted name of a user's own class, it is a row without facts."""
    return FORMATS.get(name) or Format(name, _OWN_CLASS)


def find_lenses_endings(name: str) -> tuple[str, ...]:
    """Return how Lenses' sink ends the names of objects of this format, with or without its envelope."""
    kind = name.rpartition(".")[2]
    return find_format(kind).lenses_endings or (f".{kind}",)


def list_codes(names: Iterable[str]) -> str:
    """Return names as code for the docs, with `or` before the last one."""
    *first, last = (f"`{name}`" for name in names)
    return f"{', '.join(first)} or {last}" if first else last
