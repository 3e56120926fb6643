"""The reader and the writer of each format: the `FORMAT_IO` of the module named in its row of `config/formats.py`.

The keys `format.class`, `keys.format.class` and `headers.format.class` choose the writers of objects. An object holds
one *part* of its records: values, keys or headers. An *envelope* is one of our own formats, which hold whole records.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from kafka_s3_platform.core.codecs.compression import Sink
from kafka_s3_platform.core.config.formats import Format, find_format, list_formats
from kafka_s3_platform.core.config.plugins import FORMAT, load_class
from kafka_s3_platform.core.config.settings import LayoutSettings, SourceSettings
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.formats.parts import HEADERS_SCHEMA, ObjectPart, UnwritableSchemaError
from kafka_s3_platform.core.formats.reading import BatchReader
from kafka_s3_platform.core.model.connect import ConnectBatch, Mask, Payload, Schema
from kafka_s3_platform.core.model.limits import ReadLimits


class RecordWriter(Protocol):
    r"""Writes the records of one object to a sink, in the order they come.

    The same records give the same bytes, however they are cut into batches. A user's own format is a class like this.
    `format.class` is its dotted name. It is called with the sink, the settings of the layout and the schema of the
    object's values (None if they have none). Its class attribute `extension` ends the names of its objects::

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
        """The bytes that wait in memory."""
        ...

    @property
    def sidecars(self) -> Mapping[str, bytes]:
        """After `close`: small objects beside this one. The key replaces the extension in the object's name."""
        ...

    def write(self, batch: ConnectBatch) -> None:
        """Append records.

        Raises:
            UnwritableRecordsError: the format cannot hold some of them. Nothing of the batch was written.
            IntegrityError: a record is null, and the format has no null.
        """
        ...

    def close(self, facts: Mapping[str, str], /) -> None:
        """Write the buffered records, and `facts` if the format has a place for them. The sink stays open."""
        ...


class RecordObject(Protocol):
    """An object of whole records."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Return the records in batches of `RECORD_SCHEMA`. Raise IntegrityError if the object is damaged."""


@dataclass(frozen=True)
class WriteRequest:
    """An object to write."""

    sink: Sink
    layout: LayoutSettings
    part: ObjectPart
    format_name: str
    codec: str
    level: int | None
    schema: Schema | None

    @property
    def required_schema(self) -> Schema:
        """Return the schema of the values. Raises UnwritableSchemaError if the format needs one, and they have none."""
        if self.schema is None:
            raise UnwritableSchemaError(
                f"the {self.part} of these records has no schema, which {self.format_name} needs: use JsonFormat, or a "
                f"converter with schemas (AVRO, PROTOBUF, JSON_SR, JSON with schemas.enable=true)"
            )
        return self.schema


@dataclass(frozen=True)
class ReadRequest:
    """An object of values, keys or headers to read.

    Attributes:
        source: the object, opened.
        key: its key, for errors.
        layout: the layout of written objects.
        settings: the settings for reading, from the source connector's file.
        part: the part of the records in it.
        format_name: its format.
        codec: the codec in the connector file, or "" if the file names none.
        topic: the topic of its records, from its name.
        kafka_partition: the kafka partition of its records, from its name.
        is_own: True if this platform wrote it.
        may_end_open: True if no separator has to follow the last record.
        any_bytes: True if its separator can be trusted, so values may be any bytes.
        is_wrapped: True if a file with `value` as its only column holds the values themselves.
        limits: limits of what an object may demand.
        ends_open: called with True if no separator follows the last record, and none has to.
    """

    source: Any
    key: str
    layout: LayoutSettings
    settings: SourceSettings
    part: ObjectPart
    format_name: str
    codec: str
    topic: str
    kafka_partition: int
    is_own: bool
    may_end_open: bool
    any_bytes: bool
    is_wrapped: bool
    limits: ReadLimits
    ends_open: Callable[[bool], None]


@dataclass(frozen=True)
class FormatIO:
    """Writes and reads objects of one format.

    Attributes:
        new_writer: None for read-only formats.
        new_reader: reads values, keys or headers; None for our envelopes.
        new_record_reader: reads whole records, from an object with a key; None for all formats but our envelopes.
        find_unsafe: finds values that would be read back as something else; None if there are none.
    """

    new_writer: Callable[[WriteRequest], RecordWriter] | None = None
    new_reader: Callable[[ReadRequest], BatchReader] | None = None
    new_record_reader: Callable[[Any, str, ReadLimits], RecordObject] | None = None
    find_unsafe: Callable[[Payload, LayoutSettings], Mask] | None = None


def load_format_io(row: Format) -> FormatIO:
    """Return the `FORMAT_IO` of a format. Its module is imported at the first call.

    Only the table of formats names modules, so a name from a user's file never becomes an import.
    """
    return _load_module(row.module)


@cache
def _load_module(name: str) -> FormatIO:
    """Import the module of a format once, and return its `FORMAT_IO`."""
    format_io: FormatIO = import_module(name).FORMAT_IO
    return format_io


def new_writer(sink: Sink, layout: LayoutSettings, part: ObjectPart, schema: Schema | None) -> RecordWriter:
    """Return the writer of an object of values, or of the keys or headers beside them.

    `schema` is the schema of the values or keys. Headers have a schema of their own.

    Raises:
        ConfigError: the format does not exist, or does not have this codec or level.
        UnwritableSchemaError: the format cannot hold values of the schema, or it needs a schema and there is none.
    """
    format_name = find_part_format(layout, part)
    row = find_format(format_name)
    codec, level = find_part_codec(layout, part)
    row.check_codec(codec, level)
    part_schema = HEADERS_SCHEMA if part == "headers" else schema
    create = load_format_io(row).new_writer
    if create is None:
        formats = (row.name for row in list_formats().values() if row.is_written)
        raise ConfigError(f"the format {format_name} is only read: there are {', '.join(formats)}")
    return create(WriteRequest(sink, layout, part, format_name, codec, level, part_schema))


def find_unsafe_values(batch: ConnectBatch, layout: LayoutSettings) -> Mask:
    """Return a mask of the values that would be read back from the layout's format as something else.

    Call it before the values are written. A null is never among them: `behavior.on.null.values` decides about nulls.
    """
    return _find_unsafe(batch.value, layout.format, layout)


def find_unsafe_keys(batch: ConnectBatch, layout: LayoutSettings) -> Mask:
    """Return a mask of the keys that cannot be written beside the values: nulls, as in Connect, and unsafe ones."""
    if layout.keys_format is None:
        return np.zeros(batch.num_rows, bool)
    mask: Mask = batch.key.is_null | _find_unsafe(batch.key, layout.keys_format, layout)
    return mask


def _find_unsafe(payload: Payload, format_name: str, layout: LayoutSettings) -> Mask:
    """Return a mask of the values, or keys, that would be read back from the format as something else."""
    find_in_format = load_format_io(find_format(format_name)).find_unsafe
    if find_in_format is None:
        return np.zeros(len(payload), bool)
    return find_in_format(payload, layout)


def find_extension(layout: LayoutSettings, part: ObjectPart) -> str:
    """Return the extension of an object's name without its first dot. For values, the layout may set it."""
    if part == "value" and layout.extension is not None:
        return layout.extension.removeprefix(".")
    format_name = find_part_format(layout, part)
    row = find_format(format_name)
    if row.is_plugin:
        extension: str = getattr(load_class(format_name, FORMAT), "extension", "")
        return extension.removeprefix(".")
    extension = row.extension(find_part_codec(layout, part)[0], layout.bytes_extension)
    return extension if part == "value" else f"{_PART_NAMES[part]}.{extension}"


def find_part_format(layout: LayoutSettings, part: ObjectPart) -> str:
    """Return the name of the part's format. Raises ConfigError if it does not exist, or the part is not written."""
    format_name = {"value": layout.format, "key": layout.keys_format, "headers": layout.headers_format}[part]
    row = find_format(format_name or "")
    is_own_class = part == "value" and row.is_plugin and "." in row.name
    if format_name is None or not (is_own_class or (row.is_written and part in row.parts)):
        formats = (row.name for row in list_formats().values() if row.is_written and part in row.parts)
        raise ConfigError(f"there is no format {format_name} for the {part}: there are {', '.join(formats)}")
    return format_name


def find_part_codec(layout: LayoutSettings, part: ObjectPart) -> tuple[str, int | None]:
    """Return the codec and level of a part.

    Values have the layout's. Keys and headers have their own codec if the layout names one, else the layout's if their
    format has the same codecs, else the default of their format. As in Connect, each kind of format has a key of its
    own: `avro.codec`, `s3.compression.type` or `parquet.codec`.
    """
    codec = {"value": layout.codec, "key": layout.keys_codec, "headers": layout.headers_codec}[part]
    format_name = find_part_format(layout, part)
    if part == "value" or codec == layout.codec:
        return layout.codec, layout.codec_level
    row = find_format(format_name)
    if codec is None and row.codecs == find_format(layout.format).codecs:
        return layout.codec, layout.codec_level
    return codec or row.default_codec, None


_PART_NAMES = {"key": "keys", "headers": "headers"}
