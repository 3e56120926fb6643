"""Makes the writers of objects, by `format.class`, `keys.format.class` and `headers.format.class`."""

import numpy as np

from kafka_s3_platform.config.formats import WRITTEN_FORMATS, find_format
from kafka_s3_platform.config.plugins import FORMAT, load_class
from kafka_s3_platform.config.settings import LayoutSettings
from kafka_s3_platform.errors import ConfigError
from kafka_s3_platform.formats.format_io import RecordWriter, WriteRequest, load_format_io
from kafka_s3_platform.formats.parts import HEADERS_SCHEMA, ObjectPart
from kafka_s3_platform.formats.sink import Sink
from kafka_s3_platform.model.connect import ConnectBatch, Mask, Payload, Schema


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
        raise ConfigError(f"the format {format_name} is only read: there are {', '.join(WRITTEN_FORMATS)}")
    return create(WriteRequest(sink, layout, part, format_name, codec, level, part_schema))


def find_unsafe_values(batch: ConnectBatch, layout: LayoutSettings) -> Mask:
    """Return True for values that would be read back from the layout's format as something else.

    Call it before the values are written. A null is never among them: `behavior.on.null.values` decides about nulls.
    """
    return _find_unsafe(batch.value, layout.format, layout)


def find_unsafe_keys(batch: ConnectBatch, layout: LayoutSettings) -> Mask:
    """Return True for keys that cannot be written beside the values: nulls, as in Connect, and unsafe ones."""
    if layout.keys_format is None:
        return np.zeros(batch.num_rows, bool)
    mask: Mask = batch.key.is_null | _find_unsafe(batch.key, layout.keys_format, layout)
    return mask


def _find_unsafe(payload: Payload, format_name: str, layout: LayoutSettings) -> Mask:
    find_unsafe = load_format_io(find_format(format_name)).find_unsafe
    if find_unsafe is None:
        return np.zeros(len(payload), bool)
    return find_unsafe(payload, layout)


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
    """Return the name of the part's format.

    Raises:
        ConfigError: the format does not exist, or the part is not written.
    """
    format_name = {"value": layout.format, "key": layout.keys_format, "headers": layout.headers_format}[part]
    there = [row.name for row in WRITTEN_FORMATS.values() if part in row.parts]
    is_own_class = format_name is not None and "." in format_name and find_format(format_name).is_plugin
    if format_name is None or not (format_name in there or (part == "value" and is_own_class)):
        raise ConfigError(f"there is no format {format_name} for the {part}: there are {', '.join(there)}")
    return format_name


def find_part_codec(layout: LayoutSettings, part: ObjectPart) -> tuple[str, int | None]:
    """Return the codec and level of a part.

    Values have those of the layout. Keys and headers have their own codec if the layout names one, else the layout's if
    their format has the same codecs, else the default of their format. As in Connect, each kind of format has a key of
    its own: `avro.codec`, `s3.compression.type` or `parquet.codec`.
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
