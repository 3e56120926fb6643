"""The keys that say how much one object may ask of who reads it."""

from kafka_s3_platform.config import values
from kafka_s3_platform.config.sheet import Sheet
from kafka_s3_platform.config.table import honoured
from kafka_s3_platform.model.limits import BATCH_BYTES, NO_KEYS, ReadLimits

LIMIT_KEYS = (
    honoured(
        "archive.read.max.depth",
        "250",
        "Values inside each other in JSON and Avro that is read back. This and the following are limits against objects"
        " that use up memory or time: one that is beyond them is a bad object, see `behavior.on.error`.",
    ),
    honoured("archive.read.max.record.bytes", "134217728", "One line, one value of bytes, or one JSON text."),
    honoured(
        "archive.read.max.block.bytes",
        "134217728",
        "What has to be in memory as a whole, uncompressed: an Avro block, an array of JSON; of Parquet a page and the"
        " dictionary of a column, or of all columns inside of one, and some records.",
    ),
    honoured(
        "archive.read.max.row.group.bytes",
        "2147483648",
        "A row group of Parquet as it is stored, and what is put into temporary files of each part of its columns where"
        " they do not fit into memory together.",
    ),
    honoured(
        "archive.read.max.footer.bytes",
        "4194304",
        "What an object says of itself: the header of Avro, the footer of Parquet, the index of Block-GZIP.",
    ),
    honoured(
        "archive.read.max.items",
        "1000000",
        "Items of the arrays and maps of one Avro record, where they take no bytes or their block is large.",
    ),
    honoured("archive.read.max.empty.records", "10000000", "Records of an object that take no byte."),
    honoured("archive.read.max.bad.records", "100000", "Lines of an object that are left out alone."),
    honoured(
        "archive.read.max.batch.bytes",
        "134217728",
        "What a compressed record batch of Kafka's log may come to in memory. One that comes to more is not archived:"
        " its offsets are unresolved.",
    ),
)

_MEGABYTE, _GIGABYTE = 2**20, 2**30


def read_limits(sheet: Sheet) -> ReadLimits:
    """The limits as a connector file has them."""

    def most(name: str, default: int, least: int, highest: int) -> int:
        return sheet.read(f"archive.read.max.{name}", values.integer(least, highest), default)

    return ReadLimits(
        depth=most("depth", NO_KEYS.depth, 1, 300),
        record_bytes=most("record.bytes", NO_KEYS.record_bytes, _MEGABYTE, _GIGABYTE),
        block_bytes=most("block.bytes", NO_KEYS.block_bytes, _MEGABYTE, _GIGABYTE),
        row_group_bytes=most("row.group.bytes", NO_KEYS.row_group_bytes, _MEGABYTE, 64 * _GIGABYTE),
        footer_bytes=most("footer.bytes", NO_KEYS.footer_bytes, 65_536, _GIGABYTE),
        items=most("items", NO_KEYS.items, 1, 2**31),
        empty_records=most("empty.records", NO_KEYS.empty_records, 1, 2**40),
        bad_records=most("bad.records", NO_KEYS.bad_records, 1, 2**31),
    )


def read_batch_bytes(sheet: Sheet) -> int:
    """What a compressed record batch may come to."""
    return sheet.read("archive.read.max.batch.bytes", values.integer(_MEGABYTE, 2**31 - 1), BATCH_BYTES)
