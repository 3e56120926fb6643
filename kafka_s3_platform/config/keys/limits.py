"""The keys that limit a reader's memory and time for one object."""

from collections.abc import Mapping

from kafka_s3_platform.config.keys import values
from kafka_s3_platform.config.keys.sheet import Sheet
from kafka_s3_platform.config.keys.table import TypedKey, declare_key
from kafka_s3_platform.model import limits
from kafka_s3_platform.model.limits import NO_KEYS, ReadLimits

_MEGABYTE, _GIGABYTE = 2**20, 2**30

_LIMITS: Mapping[str, TypedKey[int]] = {
    "depth": declare_key(
        "archive.read.max.depth",
        values.expect_integer(1, 300),
        "How deep values may be nested in JSON and Avro that is read back. This limit and the following ones protect"
        " against objects that use up memory or time. An object that exceeds one is a bad object, see"
        " `behavior.on.error`.",
        default=NO_KEYS.depth,
    ),
    "record_bytes": declare_key(
        "archive.read.max.record.bytes",
        values.expect_integer(_MEGABYTE, _GIGABYTE),
        "Largest line, byte value or JSON text, in bytes.",
        default=NO_KEYS.record_bytes,
    ),
    "block_bytes": declare_key(
        "archive.read.max.block.bytes",
        values.expect_integer(_MEGABYTE, _GIGABYTE),
        "Largest part of an object that must be in memory as a whole, in uncompressed bytes: an Avro block; a JSON"
        " array; in Parquet, a page and the dictionary of a column, or those of all columns nested in it, and some"
        " records.",
        default=NO_KEYS.block_bytes,
    ),
    "row_group_bytes": declare_key(
        "archive.read.max.row.group.bytes",
        values.expect_integer(_MEGABYTE, 64 * _GIGABYTE),
        "Largest Parquet row group as it is stored, in bytes. Also the largest temporary file for a part of its"
        " columns, where these do not fit into memory together.",
        default=NO_KEYS.row_group_bytes,
    ),
    "footer_bytes": declare_key(
        "archive.read.max.footer.bytes",
        values.expect_integer(65_536, _GIGABYTE),
        "Largest description that an object holds of itself, in bytes: the header in Avro, the footer in Parquet, the"
        " index in Block-GZIP.",
        default=NO_KEYS.footer_bytes,
    ),
    "items": declare_key(
        "archive.read.max.items",
        values.expect_integer(1, 2**31),
        "How many items the arrays and maps of one Avro record may hold, if the items take no bytes or their block is"
        " large.",
        default=NO_KEYS.items,
    ),
    "empty_records": declare_key(
        "archive.read.max.empty.records",
        values.expect_integer(1, 2**40),
        "How many records of an object may take no bytes.",
        default=NO_KEYS.empty_records,
    ),
    "bad_records": declare_key(
        "archive.read.max.bad.records",
        values.expect_integer(1, 2**31),
        "How many single lines of an object may be left out.",
        default=NO_KEYS.bad_records,
    ),
}
"""The key of each field of `ReadLimits`."""

BATCH_BYTES = declare_key(
    "archive.read.max.batch.bytes",
    values.expect_integer(_MEGABYTE, 2**31 - 1),
    "Largest compressed record batch of Kafka's log, in bytes of memory once it is uncompressed. A larger one is"
    " not archived: its offsets are unresolved.",
    default=limits.BATCH_BYTES,
)

LIMIT_KEYS = (*_LIMITS.values(), BATCH_BYTES)


def read_limits(sheet: Sheet) -> ReadLimits:
    """Read the limits of a connector file."""
    return ReadLimits(**{field: sheet.value(key) for field, key in _LIMITS.items()})
