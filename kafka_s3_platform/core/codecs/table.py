"""The table of codecs. A row holds all facts about a codec. The code for it is in the modules beside this one.

Sources: Apache Kafka documentation, "Record Batch"; Confluent S3 sink, `avro.codec`, `s3.compression.type`,
`s3.compression.level`, `parquet.codec`; the Avro and Parquet specifications; RFC 1952 (gzip), RFC 8878 (zstd); the
frame formats of LZ4 and snappy; snappy-java's SnappyOutputStream; the formats of bzip2 and xz.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

NO_LEVELS = range(0)
Usage = Literal["written", "read"]
"""`written`: objects are written and read with the codec. `read`: only objects of other tools are read with it."""

XERIAL = b"\x82SNAPPY\x00"
"""The first bytes of a stream of snappy-java."""

SNAPPY_FRAMES = b"\xff\x06\x00\x00sNaPpY"
"""The first bytes of a stream of snappy's own frames."""

SKIPPED_FRAME = b"\x2a\x4d\x18"
"""The second to fourth byte of a frame that readers of zstd and LZ4 skip."""


@dataclass(frozen=True)
class Codec:
    r"""A codec, by its name in stored settings.

    Attributes:
        name: its name here and in Connect's files.
        levels: the levels a connector file may set, empty if the codec has none.
        unset_level: for the docs, the level if the file sets none.
        words: its other names in connector files.
        aiven_word: its name in the files of Aiven's sink, empty if that sink does not have it.
        lines: its use for objects of lines and bytes, or None if they never have it.
        suffix: the end that it adds to the name of such an object.
        magic: a pattern for the first bytes of such an object. It has to be long enough that no text matches it: lines
            that begin with `BZh` stay lines.
        kafka_number: its number in the attributes of record batches, or None if Kafka does not have it.
        avro: its use for Avro containers, as in `lines`.
        avro_name: its name in an Avro container.
        parquet_ending: the end of the name of a Parquet object, as in Confluent's sink (parquet-java's
            CompressionCodecName), or None if Parquet is not written with it.
        parquet_level: its level in Parquet if the file sets none. pyarrow's own defaults are 1 for zstd and 9 for gzip.
    """

    name: str
    levels: range = NO_LEVELS
    unset_level: str = ""
    words: tuple[str, ...] = ()
    aiven_word: str = ""
    lines: Usage | None = None
    suffix: str = ""
    magic: re.Pattern[bytes] | None = None
    kafka_number: int | None = None
    avro: Usage | None = None
    avro_name: str = ""
    parquet_ending: str | None = None
    parquet_level: int | None = None


_ROWS = (
    Codec("null", words=("none", "uncompressed"), avro="written", avro_name="null"),
    Codec("none", words=("uncompressed",), aiven_word="none", lines="written", parquet_ending="parquet"),
    Codec("deflate", range(1, 10), "isal's level 1", avro="written", avro_name="deflate"),
    Codec(
        "snappy",
        aiven_word="snappy",
        lines="read",
        suffix=".snappy",
        magic=re.compile(re.escape(SNAPPY_FRAMES) + b"|" + re.escape(XERIAL)),
        kafka_number=2,
        avro="written",
        avro_name="snappy",
        parquet_ending="snappy.parquet",
    ),
    Codec(
        "gzip",
        range(1, 10),
        "isal's level 1; in Parquet 6",
        aiven_word="gzip",
        lines="written",
        suffix=".gz",
        magic=re.compile(rb"\x1f\x8b\x08[\x00-\x1f]"),
        kafka_number=1,
        parquet_ending="gz.parquet",
        # The default of parquet-java.
        parquet_level=6,
    ),
    Codec(
        "bzip2",
        range(1, 10),
        "9",
        lines="written",
        suffix=".bz2",
        # After the level follow the digits of pi, or those of its square root if the stream is empty. The object may
        # also be cut off there.
        magic=re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90|1?A?Y?&?S?\Z)"),
        avro="written",
        avro_name="bzip2",
    ),
    Codec(
        "zstd",
        range(1, 23),
        "1",
        words=("zstandard",),
        aiven_word="zstd",
        lines="written",
        suffix=".zst",
        # pzstd begins with a frame that readers skip.
        magic=re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]" + re.escape(SKIPPED_FRAME)),
        kafka_number=4,
        avro="written",
        avro_name="zstandard",
        parquet_ending="zstd.parquet",
        parquet_level=1,
    ),
    Codec(
        "lz4",
        words=("lz4raw", "lz4_raw"),
        lines="read",
        suffix=".lz4",
        magic=re.compile(rb"\x04\x22\x4d\x18"),
        kafka_number=3,
        # Parquet is written with LZ4_RAW, not with Hadoop's framing of LZ4.
        parquet_ending="lz4raw.parquet",
    ),
    Codec("xz", lines="read", suffix=".xz", magic=re.compile(rb"\xfd7zXZ\x00"), avro="read", avro_name="xz"),
)

CODECS: Mapping[str, Codec] = {row.name: row for row in _ROWS}

LINE_CODECS: Mapping[str, Codec] = {row.name: row for row in _ROWS if row.lines == "written"}
"""The codecs that objects of lines and bytes are written with."""

READ_CODECS: Mapping[str, Codec] = {**LINE_CODECS, **{row.name: row for row in _ROWS if row.lines == "read"}}
"""The codecs that objects of lines and bytes are read with. Other tools may have written them."""

KAFKA_CODECS: Mapping[int, str] = {row.kafka_number: row.name for row in _ROWS if row.kafka_number}
AVRO_CODECS: Mapping[str, Codec] = {row.name: row for row in _ROWS if row.avro == "written"}
PARQUET_CODECS: Mapping[str, Codec] = {row.name: row for row in _ROWS if row.parquet_ending is not None}
