"""The limits on the cost of reading one object or one record. All such limits are in this one table.

Compressed data may expand to a million times its size, and a file may state a count without any data for it. So readers
trust an object's own sizes only up to these limits, and count the real ones. Keys of connector files raise the limits
(`archive.read.max.*`). The defaults lie far above what sinks write.
"""

from dataclasses import dataclass

MAX_DECIMAL_DIGITS = 10_000
"""Most digits of a decimal with its exponent written out: `1e999999` is eight bytes, and takes a minute to convert."""

MAX_DECIMAL_BYTES = 4_153
"""The size of that many digits as bytes of Avro or Protobuf. A megabyte takes three minutes to convert to digits."""

MAX_SCHEMA_PLACES = 100_000
"""The most uses of types in a schema, after each name of a type is replaced by its definition. In a schema of a
kilobyte, each of forty types may double this number."""

MAX_RECORD_VALUES = 1_000_000
"""Most values of one live record, including those that its schema adds: an absent field takes no byte in the record."""

FEW_VALUES = 4
"""An item of an array or map with at most this many values counts as one item."""

NAME_BYTES = 64
"""The most bytes of a field's name, or of a default value, since it is written with each record."""


@dataclass(frozen=True)
class ReadLimits:
    """Limits of reading, each with the key that raises it.

    Attributes:
        depth: `archive.read.max.depth`: how deeply values of JSON, Avro and Parquet may be nested.
        record_bytes: `archive.read.max.record.bytes`: one line, or one value between separators or after its length.
        block_bytes: `archive.read.max.block.bytes`: the uncompressed size of one piece in memory: an Avro
            block, a JSON array, or a page and the dictionary of a Parquet column.
        row_group_bytes: `archive.read.max.row.group.bytes`: the stored size of a Parquet row group, and the size of
            each temporary file for some of its columns.
        footer_bytes: `archive.read.max.footer.bytes`: the size of a description: an Avro header, a Parquet footer, or
            an index of Block-GZIP.
        items: `archive.read.max.items`: items in the arrays and maps of one Avro record, if the record is larger than a
            megabyte or an item takes no byte.
        empty_records: `archive.read.max.empty.records`: records of an object that take no byte.
        bad_records: `archive.read.max.bad.records`: bad lines of an object, if they can be skipped alone.
    """

    depth: int = 250
    record_bytes: int = 134_217_728
    block_bytes: int = 134_217_728
    row_group_bytes: int = 2_147_483_648
    footer_bytes: int = 4_194_304
    items: int = 1_000_000
    empty_records: int = 10_000_000
    bad_records: int = 100_000


DEFAULT_LIMITS = ReadLimits()
"""The limits if no connector file sets others."""

BATCH_BYTES = 134_217_728
"""The default of `archive.read.max.batch.bytes`. If a larger batch were archived, it could not be read back."""
