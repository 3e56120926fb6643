"""The table of formats. A row holds all facts about a format, except its code.

The code is in the module that the row names. Connector files, dead letters, names of objects, tags of assets and the
tables of the docs take their facts from the row. This module has the rows for whole records; other rows register
themselves.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Literal

from kafka_s3_platform.core.codecs.table import AVRO_CODECS, LINE_CODECS, PARQUET_CODECS, READ_CODECS, Codec
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.extensions import load_extensions

LINES_KEY = "s3.compression.type"

BYTES_EXTENSION = "{format.bytearray.extension}"
"""A placeholder in an extension for the value of the key that it names."""

PARQUET_MAGIC = b"PAR1"

Part = Literal["value", "key", "headers"]
Envelope = Literal["ours", "aiven", "lenses"]

_OWN_CLASS = "kafka_s3_platform.core.formats.own_class"
_OURS = "kafka_s3_platform.formats."


@dataclass(frozen=True)
class Format:
    """A format, by its name in stored settings.

    Attributes:
        name: its name in settings, rows of the index and messages.
        module: the dotted name of the module with its `FORMAT_IO`, which writes and reads it.
        holds: for the docs, the content of an object.
        class_name: the class in connector files, or empty if the format is only read.
        dead_letter_class: the class in dead letters, if it is not `class_name`.
        cloud_word: Confluent Cloud's word for it.
        aiven_word: its `format.output.type` in files of Aiven's connectors.
        input_word: its `input.format` in files of Aiven's and Lenses' sources.
        lenses_word: its word after STOREAS in Lenses' KCQL.
        lenses_endings: how Lenses' sink ends the names of such objects, if not with the format's name.
        envelope: the owner of this envelope of whole records, or None if objects hold values, or keys, or headers.
        parts: the parts of records in objects of the format.
        headers_refusal: the reason to refuse objects of headers.
        refused_inputs: the refused inputs, each with the reason.
        needs_schema: objects hold values by the types of a schema, and nothing without a schema.
        needs_converter: a file has to name the type of values before they are written.
        has_fields: a source's file may name fields of the records.
        has_base64: bytes are base64 in the texts of an object.
        has_separator: there is a separator between records. Values may hold its bytes too.
        holds_texts: values of fields are texts of JSON, indistinguishable from bytes.
        counted: the way to count an object's records, in the words of restores' reports.
        codecs: the codecs it is written with.
        default_codec: the codec if a file names none. It is Connect's default, except for our envelopes.
        codec_key: the key of its codec.
        extensions: the extension of each codec, without the first dot.
        other_extensions: more extensions of objects to read.
        index_suffix: replaces the extension in the name of the index of an object's blocks; empty if there is none.
        own_keys: keys of connector files used by this format only.
        kind: Dagster's tag of an asset. It is empty if objects are never written.
        is_compressed_whole: the codec is a tag too, because a reader needs it to open the object.
        container: the name of such a file, for messages about an object of a wrong format, and its first bytes.
        not_kept: for the docs, the facts about a record that objects do not keep.
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
        """The format's well-known class, which dead letters name."""
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
        """True if it is a user's own class, about which nothing else is known."""
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
        """Raise ConfigError for a codec or level that the format does not have. A user's own format decides itself."""
        if self.is_plugin:
            return
        row = self.codecs.get(codec)
        if row is None:
            raise ConfigError(f"the format {self.name} has no codec '{codec}'; it has {', '.join(self.codecs)}")
        if level is None or level in row.levels:
            return
        levels = f"its levels are {row.levels.start} to {row.levels.stop - 1}" if row.levels else "it has no levels"
        raise ConfigError(f"the codec {codec} of the format {self.name} cannot have the level {level}: {levels}")


def list_line_extensions(start: str) -> dict[str, str]:
    """Return the extension of objects of lines by codec, such as `json.gz`. `start` is the one without compression."""
    return {name: start + codec.suffix for name, codec in READ_CODECS.items()}


PARQUET_EXTENSIONS = {name: codec.parquet_ending or "" for name, codec in PARQUET_CODECS.items()}

_ENVELOPES = (
    Format(
        "envelope.parquet",
        "kafka_s3_platform.core.formats.envelope.parquet",
        "whole records, Parquet",
        _OURS + "EnvelopeParquetFormat",
        envelope="ours",
        codecs=PARQUET_CODECS,
        default_codec="zstd",
        codec_key="parquet.codec",
        container=("a Parquet file", re.compile(PARQUET_MAGIC)),
        extensions=dict.fromkeys(PARQUET_CODECS, "parquet"),
        other_extensions=tuple(PARQUET_EXTENSIONS.values()),
        kind="parquet",
    ),
    Format(
        "envelope.avro",
        "kafka_s3_platform.core.formats.envelope.avro",
        "whole records, Avro container",
        _OURS + "EnvelopeAvroFormat",
        envelope="ours",
        codecs=AVRO_CODECS,
        default_codec="zstd",
        codec_key="avro.codec",
        container=("an Avro file", re.compile(rb"Obj\x01")),
        extensions=dict.fromkeys(AVRO_CODECS, "avro"),
        kind="avro",
    ),
    Format(
        "envelope.json",
        "kafka_s3_platform.core.formats.envelope.json",
        "whole records, JSON lines",
        _OURS + "EnvelopeJsonFormat",
        envelope="ours",
        codecs=LINE_CODECS,
        default_codec="gzip",
        extensions=list_line_extensions("json"),
        kind="json",
        is_compressed_whole=True,
    ),
)

NATIVE_FORMAT = "envelope.parquet"
"""The default of an archive, and the only format whose days are compacted."""

ENVELOPES: Mapping[str, Format] = {row.name: row for row in _ENVELOPES}
"""The formats of whole records."""


@cache
def list_formats() -> Mapping[str, Format]:
    """Return the formats of this installation by their names: our envelopes, and those that register themselves."""
    formats = dict(ENVELOPES)
    for rows in load_extensions("formats"):
        formats |= rows
    return formats


def find_format(name: str) -> Format:
    """Return the row of a format. For the dotted name of a user's own class, it is a row without facts."""
    return ENVELOPES.get(name) or list_formats().get(name) or Format(name, _OWN_CLASS)
