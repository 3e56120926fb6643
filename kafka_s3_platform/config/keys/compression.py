"""The keys of the codec of objects. Each kind of format has a key of its own, as in Connect."""

from collections.abc import Collection, Mapping
from typing import Any

from kafka_s3_platform.config.codecs import AVRO_CODECS, LINE_CODECS, PARQUET_CODECS, READ_CODECS
from kafka_s3_platform.config.dialects import Dialect
from kafka_s3_platform.config.formats import CLOUD_WORDS, CODEC_KEYS, LINES_KEY, Format, find_format, list_codes
from kafka_s3_platform.config.keys import values
from kafka_s3_platform.config.keys.sheet import Sheet
from kafka_s3_platform.config.keys.table import Key, declare_alias, declare_honoured, declare_key
from kafka_s3_platform.errors import ConfigError

LEVEL = declare_key(
    "s3.compression.level",
    values.expect_integer(-1),
    "Level of the codec: 1 to 9 for gzip and bzip2, 1 to 22 for zstd. `-1` or unset: gzip uses a library that"
    " needs a tenth of the time, and its objects are 4 to 12 % larger than those of level 6.",
    default=-1,
    shown="the codec's own",
)

COMPRESSION_KEYS: tuple[Key, ...] = (
    declare_honoured(
        "compression.codec",
        None,
        "Confluent Cloud's key for the codec, together with its format: `JSON - gzip`, `BYTES - gzip`, `AVRO -"
        " snappy`, `PARQUET - gzip` and so on, or `none`.",
    ),
    declare_honoured(
        "s3.compression.type",
        "none",
        f"Codec for `JsonFormat`, `ByteArrayFormat` and `EnvelopeJsonFormat`: {list_codes(LINE_CODECS)}. Also for"
        f" separate objects of keys and headers in these formats. Source connectors read {list_codes(READ_CODECS)}.",
    ),
    LEVEL,
    declare_alias("file.compression.type", "s3.compression.type", "Aiven's"),
    declare_alias("format.avro.codec", "avro.codec", "Aiven's"),
    declare_honoured("avro.codec", "null", f"Codec of Avro objects: {list_codes(AVRO_CODECS)}."),
    declare_honoured(
        "parquet.codec",
        "snappy; zstd for the envelope",
        f"Codec of Parquet objects: {list_codes(PARQUET_CODECS)}.",
    ),
)


def read_codecs(sheet: Sheet, dialect: Dialect, format_name: str, parts: Mapping[str, str | None]) -> dict[str, Any]:
    """Read the codec of values, and the codecs of keys and headers if their format has another key for its codec."""
    row = find_format(format_name)
    default = _find_default(row, dialect)
    codec = _read_codec(sheet, row, _read_cloud_codec(sheet, row) or default)
    others: dict[str, str | None] = {}
    used = {row.codec_key}
    for part, name in parts.items():
        other = find_format(name) if name else row
        used.add(other.codec_key)
        shares_key = other.codec_key == row.codec_key
        others[part.replace("format", "codec")] = None if shares_key else _read_codec(sheet, other)
    _leave_others(sheet, used, row.codec_key)
    return {"codec": codec, "codec_level": _read_level(sheet, row, codec), **others}


def read_source_codecs(sheet: Sheet, dialect: Dialect, format_name: str) -> dict[str, Any]:
    """Read the codec of objects of lines, for names that do not show it. Other objects hold their codec."""
    sheet.leave(("avro.codec", "parquet.codec", LEVEL.name), "Each object shows how it is compressed.")
    row = find_format(format_name)
    if row.names_its_codec:
        sheet.leave(("s3.compression.type", "compression.codec"), "Each object shows how it is compressed.")
        return {"codec": "none"}
    default = "gzip" if dialect.name == "aiven" else row.default_codec
    codec = sheet.read("s3.compression.type", values.expect_one_of(READ_CODECS), "")
    word = sheet.text("compression.codec").rpartition("-")[2].strip().casefold()
    return {"codec": codec or (word if word in LINE_CODECS else default)}


def _find_default(row: Format, dialect: Dialect) -> str:
    # Aiven's sink compresses with gzip if its file names no codec.
    if dialect.name == "aiven" and "gzip" in row.codecs:
        return "gzip"
    return row.default_codec


def _read_codec(sheet: Sheet, row: Format, default: str | None = None) -> str:
    key = row.codec_key
    word = (sheet.text(key) or default or row.default_codec).casefold()
    codec = next((codec.name for codec in (row.codecs or READ_CODECS).values() if word in codec.words), word)
    try:
        row.check_codec(codec, None)
    except ConfigError as err:
        sheet.refuse(key if key in sheet else "compression.codec", err.text)
        return row.default_codec
    return codec


def _read_cloud_codec(sheet: Sheet, row: Format) -> str | None:
    """Read the codec of a value such as `JSON - gzip`: Confluent Cloud's word for the format, then the codec."""

    def parse(text: str) -> str:
        word, dash, codec = (part.strip() for part in text.partition("-"))
        if not dash:
            return text
        if CLOUD_WORDS.get(word.upper()) != row.name:
            raise ValueError(f"{text!r} is no codec of the format {row.name}")
        return codec

    if row.codec_key in sheet and "compression.codec" in sheet:
        sheet.refuse("compression.codec", f"{sheet.written(row.codec_key)} sets the same; keep one")
        return None
    return sheet.read("compression.codec", parse, None)


def _leave_others(sheet: Sheet, used: Collection[str], key: str) -> None:
    """Report the keys of unused codecs.

    As in Connect, a file may set the codecs of formats it does not write. It may not set `s3.compression.type` for a
    format with its own compression.
    """
    if LINES_KEY not in used and sheet.text(LINES_KEY).casefold() not in {"", "none"}:
        sheet.refuse(LINES_KEY, f"the format compresses by itself; set {key} instead")
    else:
        sheet.leave([LINES_KEY] if LINES_KEY not in used else (), "The format compresses its objects itself.")
    unused = [other for other in CODEC_KEYS if other not in used and other != LINES_KEY]
    sheet.leave(unused, "Belongs to a format that this file does not write.")


def _read_level(sheet: Sheet, row: Format, codec: str) -> int | None:
    if row.codec_key != LINES_KEY:
        sheet.leave((LEVEL.name,), "Belongs to JSON and bytes. This format uses its own level.")
        return None
    level = sheet.value(LEVEL)
    if level == -1:
        return None
    if not row.is_plugin and not row.codecs[codec].levels:
        sheet.without_meaning(LEVEL.name, f"The codec {codec} has no levels.")
        return None
    try:
        row.check_codec(codec, level)
    except ConfigError as err:
        sheet.refuse(LEVEL.name, err.text)
        return None
    return level
