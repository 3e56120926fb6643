"""The writer of each object: what `format.class`, `keys.format.class` and `headers.format.class` stand for."""

from collections.abc import Mapping
from typing import Any, Protocol

from kafka_s3_platform.config.codecs import CODECS, DEFAULT_CODECS, check_codec
from kafka_s3_platform.config.plugins import FORMAT, FORMAT_WRITER, load_class
from kafka_s3_platform.config.settings import LayoutSettings
from kafka_s3_platform.errors import ConfigError
from kafka_s3_platform.formats import byte_array, json_lines, parquet
from kafka_s3_platform.formats.avro import AvroWriter, UnfitError
from kafka_s3_platform.formats.block_gzip import BlockGzipWriter
from kafka_s3_platform.formats.compression import SUFFIXES
from kafka_s3_platform.formats.envelope import EnvelopeWriter, Sink
from kafka_s3_platform.formats.envelope_avro import EnvelopeAvroWriter
from kafka_s3_platform.formats.envelope_json import EnvelopeJsonWriter
from kafka_s3_platform.formats.lines import LinesWriter
from kafka_s3_platform.formats.parts import (
    HEADERS_SCHEMA,
    ObjectPart,
    UnwritableRecordsError,
    UnwritableSchemaError,
    failures_of,
    payload_of,
    without_null,
)
from kafka_s3_platform.model.connect import ConnectBatch, Schema

WITH_SCHEMA = frozenset({"avro", "parquet"})
"""Formats that hold no value without a schema."""


class RecordWriter(Protocol):
    r"""Writes the records of one object to a sink, in the order they come.

    The same records give the same bytes, however they are cut into batches. A user's own format is a class like this,
    named by its dotted name as `format.class`, that is called with the sink, the layout's settings and the schema of
    the object's values (None where they have none), and whose class attribute `extension` ends its objects' names::

        class CsvFormat:
            extension = "csv"

            def __init__(self, sink: Sink, layout: LayoutSettings, schema: Schema | None) -> None:
                self._sink = sink
                self.buffered_bytes = 0
                self.sidecars: Mapping[str, bytes] = {}

            def write(self, batch: ConnectBatch) -> None:
                for offset, value in zip(batch.offsets, batch.value.objects):
                    self._sink.write(f"{offset},{value['name']}\n".encode())

            def close(self, facts: Mapping[str, str]) -> None:
                pass
    """

    @property
    def buffered_bytes(self) -> int:
        """Bytes held in memory."""
        ...

    @property
    def sidecars(self) -> Mapping[str, bytes]:
        """After `close`: further small objects, by what replaces the extension."""
        ...

    def write(self, batch: ConnectBatch) -> None:
        """Append records.

        Raises:
            UnwritableRecordsError: the format cannot hold some of them; nothing of the batch was written.
            IntegrityError: a record is null where the format has no null.
        """
        ...

    def close(self, facts: Mapping[str, str]) -> None:
        """Write what is held, and `facts` where the format has a place for them. The sink stays open."""
        ...


def new_writer(sink: Sink, layout: LayoutSettings, part: ObjectPart, schema: Schema | None) -> RecordWriter:
    """The writer of an object of values, or of the keys or the headers beside them.

    `schema` is the one of its values or keys; headers have their own.

    Raises:
        ConfigError: the format does not exist, or has no such codec or level.
        UnwritableSchemaError: the format cannot hold values of the schema, or needs one where there is none.
    """
    format_name = format_of(layout, part)
    if _is_own_class(format_name):
        writer: RecordWriter = load_class(format_name, FORMAT_WRITER)(sink, layout, schema)
        return writer
    codec, level = codec_of(layout, part)
    check_codec(format_name, codec, level)
    if format_name.startswith("envelope."):
        return _Envelope(_new_envelope(sink, format_name, codec, level))
    return _new_decoded(sink, layout, part, format_name, HEADERS_SCHEMA if part == "headers" else schema)


def extension(layout: LayoutSettings, part: ObjectPart) -> str:
    """What an object's name ends with, without its first dot: as Connect has it, or as the layout says for values."""
    if part == "value" and layout.extension is not None:
        return layout.extension.removeprefix(".")
    format_name = format_of(layout, part)
    if _is_own_class(format_name):
        own: str = getattr(load_class(format_name, FORMAT), "extension", "")
        return own.removeprefix(".")
    found = _extension(format_name, layout, codec_of(layout, part)[0])
    return found if part == "value" else f"{_PART_NAMES[part]}.{found}"


def format_of(layout: LayoutSettings, part: ObjectPart) -> str:
    """The name of the part's format.

    Raises:
        ConfigError: it does not exist, or the part is not written.
    """
    found = {"value": layout.format, "key": layout.keys_format, "headers": layout.headers_format}[part]
    if found is None or not (found in _FORMATS[part] or (part == "value" and _is_own_class(found))):
        raise ConfigError(f"there is no format {found} for the {part}: there are {', '.join(_FORMATS[part])}")
    return found


def codec_of(layout: LayoutSettings, part: ObjectPart) -> tuple[str, int | None]:
    """Codec and level of a part: the layout's for values and for what has the codecs of its format, else the default.

    Connect names codecs by kind of format: `avro.codec`, `s3.compression.type`, `parquet.codec`.
    """
    own = {"value": layout.codec, "key": layout.keys_codec, "headers": layout.headers_codec}[part]
    format_name = format_of(layout, part)
    if part == "value" or own == layout.codec:
        return layout.codec, layout.codec_level
    if own is None and CODECS.get(format_name) == CODECS.get(layout.format):
        return layout.codec, layout.codec_level
    return own or DEFAULT_CODECS[format_name], None


_FORMATS: Mapping[ObjectPart, tuple[str, ...]] = {
    "value": tuple(CODECS),
    "key": ("avro", "json", "bytes", "parquet"),
    "headers": ("avro", "json", "parquet"),
}
_PART_NAMES = {"key": "keys", "headers": "headers"}


def _is_own_class(format_name: str) -> bool:
    return "." in format_name and format_name not in CODECS


def _extension(format_name: str, layout: LayoutSettings, codec: str) -> str:
    match format_name:
        case "avro" | "envelope.avro":
            return "avro"
        case "json" | "envelope.json":
            return f"json{SUFFIXES[codec]}"
        case "bytes":
            return f"{layout.bytes_extension.removeprefix('.')}{SUFFIXES[codec]}"
        case "parquet":
            return parquet.EXTENSIONS[codec]
        case "block_gzip":
            return "gz"
    return "parquet"


def _new_envelope(sink: Sink, format_name: str, codec: str, level: int | None) -> Any:
    match format_name:
        case "envelope.avro":
            return EnvelopeAvroWriter(sink, codec, level)
        case "envelope.json":
            return EnvelopeJsonWriter(sink, codec, level)
    return EnvelopeWriter(sink, level, codec)


def _new_decoded(
    sink: Sink, layout: LayoutSettings, part: ObjectPart, format_name: str, schema: Schema | None
) -> RecordWriter:
    codec, level = codec_of(layout, part)
    match format_name:
        case "json":
            return LinesWriter(sink, json_lines.framing(part, schema, layout.decimal_format), codec, level)
        case "bytes":
            return LinesWriter(sink, byte_array.framing(part, layout.bytes_separator), codec, level)
        case "block_gzip":
            texts = json_lines.texts(schema, layout.decimal_format)
            return BlockGzipWriter(sink, texts, layout.block_size, level)
    if schema is None:
        raise UnwritableSchemaError(
            f"the {part} of these records has no schema, which {format_name} needs: use JsonFormat, or a converter "
            f"with schemas (AVRO, PROTOBUF, JSON_SR, JSON with schemas.enable=true)"
        )
    if format_name == "parquet":
        return parquet.ParquetWriter(sink, part, schema, codec, level)
    return _Avro(AvroWriter(sink, schema, codec, level), part)


class _Envelope:
    """Whole records, as the native formats write them."""

    def __init__(self, writer: EnvelopeWriter | EnvelopeAvroWriter | EnvelopeJsonWriter) -> None:
        self._writer = writer
        self.sidecars: Mapping[str, bytes] = {}

    @property
    def buffered_bytes(self) -> int:
        return self._writer.buffered_bytes

    def write(self, batch: ConnectBatch) -> None:
        self._writer.write(batch.records)

    def close(self, facts: Mapping[str, str]) -> None:
        self._writer.close(facts)


class _Avro:
    """Values, keys or headers in an Avro container."""

    def __init__(self, writer: AvroWriter, part: ObjectPart) -> None:
        self._writer, self._part = writer, part
        self.sidecars: Mapping[str, bytes] = {}

    @property
    def buffered_bytes(self) -> int:
        return self._writer.buffered_bytes

    def write(self, batch: ConnectBatch) -> None:
        try:
            self._writer.write(without_null(batch, payload_of(batch, self._part)))
        except UnfitError as err:
            raise UnwritableRecordsError(failures_of(batch, "avro", err.reasons)) from err

    def close(self, facts: Mapping[str, str]) -> None:
        self._writer.close(facts)
