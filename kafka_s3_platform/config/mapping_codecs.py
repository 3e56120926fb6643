"""How objects are compressed, out of a connector file: each kind of format has a key of its own, as in Connect."""

from collections.abc import Collection, Mapping
from typing import Any

from kafka_s3_platform.config import values
from kafka_s3_platform.config.codecs import CODECS, DEFAULT_CODECS, check_codec
from kafka_s3_platform.config.dialects import Dialect
from kafka_s3_platform.config.sheet import Sheet
from kafka_s3_platform.errors import ConfigError

WORDS: Mapping[str, str] = {"AVRO": "avro", "JSON": "json", "BYTES": "bytes", "PARQUET": "parquet"}
"""Cloud's words for the formats."""

_STREAM = "s3.compression.type"
_KEYS = (_STREAM, "avro.codec", "parquet.codec")
_SAME: Mapping[str, str] = {"uncompressed": "none", "zstandard": "zstd", "lz4raw": "lz4", "lz4_raw": "lz4"}


def codecs(sheet: Sheet, dialect: Dialect, format_name: str, parts: Mapping[str, str | None]) -> dict[str, Any]:
    """The codec of values, and those of the objects beside them where their format has another key."""
    key = _key(format_name)
    default = _default(format_name, dialect)
    codec = _codec(sheet, format_name, key, _cloud_codec(sheet, format_name, key) or default)
    others = {
        part.replace("format", "codec"): None if name is None or _key(name) == key else _codec(sheet, name, _key(name))
        for part, name in parts.items()
    }
    _leave_others(sheet, {key, *(_key(name) for name in parts.values() if name)}, key)
    return {"codec": codec, "codec_level": _level(sheet, format_name, key, codec), **others}


def _key(format_name: str) -> str:
    family = format_name.removeprefix("envelope.")
    return {"avro": "avro.codec", "parquet": "parquet.codec"}.get(family, _STREAM)


def _default(format_name: str, dialect: Dialect) -> str:
    if dialect.name == "aiven" and "gzip" in CODECS.get(format_name, {}):
        return "gzip"
    return DEFAULT_CODECS.get(format_name, "none")


def _codec(sheet: Sheet, format_name: str, key: str, default: str | None = None) -> str:
    fallback = DEFAULT_CODECS.get(format_name, "none")
    codec = (sheet.text(key) or default or fallback).casefold()
    codec = _SAME.get(codec, codec)
    codec = "null" if key == "avro.codec" and codec == "none" else codec
    try:
        check_codec(format_name, codec, None)
    except ConfigError as err:
        sheet.refuse(key if key in sheet else "compression.codec", str(err))
        return fallback
    return codec


def _cloud_codec(sheet: Sheet, format_name: str, key: str) -> str | None:
    """`JSON - gzip`: the word of the format, then the codec."""

    def parse(text: str) -> str:
        word, dash, codec = (part.strip() for part in text.partition("-"))
        if not dash:
            return text
        if WORDS.get(word.upper()) != format_name:
            raise ValueError(f"{text!r} is no codec of the format {format_name}")
        return codec

    if key in sheet and "compression.codec" in sheet:
        sheet.refuse("compression.codec", f"{sheet.written(key)} sets the same; keep one")
        return None
    return sheet.read("compression.codec", parse, None)


def _leave_others(sheet: Sheet, used: Collection[str], key: str) -> None:
    """Connect lets a file set the codecs of formats it does not write, but no stream codec beside a format's own."""
    if _STREAM not in used and sheet.text(_STREAM).casefold() not in {"", "none"}:
        sheet.refuse(_STREAM, f"the format compresses by itself; set {key} instead")
    else:
        sheet.leave([_STREAM] if _STREAM not in used else (), "The format compresses by itself.")
    sheet.leave([k for k in _KEYS[1:] if k not in used], "Belongs to a format that this file does not write.")


def _level(sheet: Sheet, format_name: str, key: str, codec: str) -> int | None:
    if key != _STREAM:
        sheet.leave(("s3.compression.level",), "Belongs to JSON and bytes; the format's own level is used.")
        return None
    level = sheet.read("s3.compression.level", values.integer(-1), -1)
    if level == -1:
        return None
    if format_name in CODECS and not CODECS[format_name][codec]:
        sheet.without_meaning("s3.compression.level", f"The codec {codec} has no levels.")
        return None
    try:
        check_codec(format_name, codec, level)
    except ConfigError as err:
        sheet.refuse("s3.compression.level", str(err))
        return None
    return level
