"""How much one object, or one record, may ask of who reads it: the one table of such limits.

Compressed data may pretend to be a million times as much, and counts need no data at all. So nothing that an object
says of its size is believed beyond these, and what comes out of it is counted while it comes. Keys of connector files
raise them (`archive.read.max.*`); the defaults lie far above what sinks write.
"""

from dataclasses import dataclass

MAX_DECIMAL_DIGITS = 10_000
"""Of a decimal with its exponent written out: `1e999999` is eight bytes, and takes a minute to become a number."""

MAX_DECIMAL_BYTES = 4_153
"""Those digits as Avro's and Protobuf's bytes. A megabyte takes three minutes to become digits."""

MAX_SCHEMA_PLACES = 100_000
"""Places where types stand, once each type is written out wherever it is named: a schema of a kilobyte may double them
with each of forty types."""

MAX_RECORD_VALUES = 1_000_000
"""Values of one live record, whatever its schema adds to what it holds: a field that is absent takes no byte of it."""

NAME_BYTES = 64
"""Of a field's name, or of a default, as a value: it is written with each record."""


@dataclass(frozen=True)
class ReadLimits:
    """Limits of reading, each with the key that raises it.

    Attributes:
        depth: `archive.read.max.depth`: JSON's, Avro's and Parquet's values inside each other.
        record_bytes: `archive.read.max.record.bytes`: one line, one value between separators or behind its length.
        block_bytes: `archive.read.max.block.bytes`: what is in memory as a whole, uncompressed: an Avro block, an array
            of JSON, a page and the dictionary of a column of Parquet.
        row_group_bytes: `archive.read.max.row.group.bytes`: a row group of Parquet as it is stored, and each temporary
            file that some of its columns are put into.
        footer_bytes: `archive.read.max.footer.bytes`: what an object says of itself: an Avro header, a Parquet footer,
            an index of Block-GZIP.
        items: `archive.read.max.items`: items of the arrays and maps of one Avro record, where it is larger than a
            megabyte, or where an item takes no byte.
        empty_records: `archive.read.max.empty.records`: records of an object that take no byte.
        bad_records: `archive.read.max.bad.records`: lines of an object that may be left out alone.
    """

    depth: int = 250
    record_bytes: int = 134_217_728
    block_bytes: int = 134_217_728
    row_group_bytes: int = 2_147_483_648
    footer_bytes: int = 4_194_304
    items: int = 1_000_000
    empty_records: int = 10_000_000
    bad_records: int = 100_000


NO_KEYS = ReadLimits()
"""Where no connector file says others."""

BATCH_BYTES = 134_217_728
"""`archive.read.max.batch.bytes`, where no connector file says others: what is larger could not be read back either."""
