"""Which codecs each format has, and their levels: the names that connector files use.

Sources: Confluent S3 sink, `avro.codec`, `s3.compression.type`, `s3.compression.level`, `parquet.codec`; Avro and
Parquet specifications.
"""

from collections.abc import Mapping

from kafka_s3_platform.errors import ConfigError

Levels = range
_NONE = range(0)
_AVRO: Mapping[str, Levels] = {
    "null": _NONE,
    "deflate": range(1, 10),
    "snappy": _NONE,
    "bzip2": range(1, 10),
    "zstd": range(1, 23),
}
_LINES: Mapping[str, Levels] = {
    "none": _NONE,
    "gzip": range(1, 10),
    "bzip2": range(1, 10),
    "zstd": range(1, 23),
}
_PARQUET: Mapping[str, Levels] = {
    "none": _NONE,
    "snappy": _NONE,
    "gzip": range(1, 10),
    "zstd": range(1, 23),
    "lz4": _NONE,
}

READ_CODECS = (*_LINES, "lz4", "snappy", "xz")
"""Of objects of lines and bytes that others wrote."""

CODECS: Mapping[str, Mapping[str, Levels]] = {
    "envelope.parquet": _PARQUET,
    "envelope.avro": _AVRO,
    "envelope.json": _LINES,
    "avro": _AVRO,
    "json": _LINES,
    "bytes": _LINES,
    "parquet": _PARQUET,
    "block_gzip": {"gzip": range(1, 10)},
}
"""Codecs of each format of ours, each with the levels it can be given (none: it has no levels)."""

DEFAULT_CODECS: Mapping[str, str] = {
    "envelope.parquet": "zstd",
    "envelope.avro": "zstd",
    "envelope.json": "gzip",
    "avro": "null",
    "json": "none",
    "bytes": "none",
    "parquet": "snappy",
    "block_gzip": "gzip",
}
"""What is used where a file names no codec: Connect's own defaults; the envelopes' are ours."""


def check_codec(format_name: str, codec: str, level: int | None) -> None:
    """Refuse a codec or a level that the format does not have. A user's own format (a dotted name) decides for itself.

    Raises:
        ConfigError: names the format, the codec and what the format has.
    """
    codecs = CODECS.get(format_name)
    if codecs is None:
        return
    if codec not in codecs:
        raise ConfigError(f"the format {format_name} has no codec '{codec}'; it has {', '.join(codecs)}")
    if level is None or level in codecs[codec]:
        return
    levels = codecs[codec]
    known = f"its levels are {levels.start} to {levels.stop - 1}" if levels else "it has no levels"
    raise ConfigError(f"the codec {codec} of the format {format_name} cannot have the level {level}: {known}")
