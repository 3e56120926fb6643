"""What objects hold, and how they are compressed, out of a connector file."""

from collections.abc import Mapping
from typing import Any

from kafka_s3_platform.config import values
from kafka_s3_platform.config.classes import FORMAT_CLASS, PART_FORMAT_CLASS
from kafka_s3_platform.config.dialects import Dialect
from kafka_s3_platform.config.mapping_codecs import WORDS, codecs
from kafka_s3_platform.config.mapping_source import source_codecs, source_format
from kafka_s3_platform.config.matrix import HEADER_REFUSALS
from kafka_s3_platform.config.sheet import Sheet

_AIVEN_TYPES: Mapping[str, str] = {"csv": "bytes", "jsonl": "json", "avro": "avro", "parquet": "parquet"}
_AIVEN_KEYS = ("format.output.fields", "format.output.envelope", "format.output.fields.value.encoding")
_NULLS = ("ignore", "fail", "write")
_PART_KEYS = (
    "store.kafka.keys",
    "store.kafka.headers",
    "keys.format.class",
    "headers.format.class",
    "output.keys.format",
    "output.headers.format",
)
_OF_FORMATS: Mapping[str, set[str]] = {
    "format.bytearray.extension": {"bytes"},
    "format.bytearray.separator": {"bytes"},
    "json.decimal.format": {"json"},
    "compressed_block_size": {"block_gzip"},
}
"""The formats that a key means something to."""


def output(sheet: Sheet, dialect: Dialect) -> dict[str, Any]:
    """The format, its codec, and what is written beside the values."""
    format_name = _format(sheet, dialect)
    is_envelope = format_name.startswith("envelope.")
    parts = _parts(sheet, is_envelope=is_envelope)
    written = {format_name, *parts.values()}
    for key, needed in _OF_FORMATS.items():
        if "." not in format_name.removeprefix("envelope.") and not written & needed:
            sheet.leave((key,), "Belongs to a format that this file does not write.")
    return {
        "format": format_name,
        **(
            source_codecs(sheet, dialect, format_name)
            if dialect.is_source
            else codecs(sheet, dialect, format_name, parts)
        ),
        **parts,
        **_nulls(sheet, is_envelope=is_envelope),
        "bytes_extension": sheet.read("format.bytearray.extension", values.extension, "bin"),
        "bytes_separator": sheet.read("format.bytearray.separator", values.unescaped, "\n"),
        "decimal_format": sheet.read("json.decimal.format", values.choice(("BASE64", "NUMERIC")), "BASE64"),
        "block_size": sheet.read("compressed_block_size", values.integer(1), 67_108_864),
    }


def _format(sheet: Sheet, dialect: Dialect) -> str:
    given = [name for name in ("format.class", "output.data.format", "format.output.type") if name in sheet]
    for other in given[1:]:
        sheet.refuse(other, f"{given[0]} says the same; keep one")
    by_class = sheet.read("format.class", FORMAT_CLASS, None)
    by_word = WORDS.get(sheet.read("output.data.format", values.choice(WORDS), ""))
    if by_class or by_word:
        sheet.leave(_AIVEN_KEYS, "Belongs to `format.output.type`.")
        return by_class or by_word or ""
    if dialect.is_source and "input.format" in sheet:
        return source_format(sheet)
    if "format.output.type" in sheet or dialect.name == "aiven":
        return source_format(sheet) if dialect.is_source else _aiven_format(sheet)
    return dialect.format or "envelope.parquet"


def _aiven_format(sheet: Sheet) -> str:
    """Of what Aiven's sink writes: objects of values alone."""
    kind = sheet.read("format.output.type", values.choice(_AIVEN_TYPES), "csv")
    fields: tuple[str, ...] = sheet.read("format.output.fields", values.field_list, ("value",))
    if fields != ("value",):
        sheet.refuse(
            "format.output.fields",
            "only `value` is written in this format; say format.class=EnvelopeJsonFormat for whole records",
        )
    if kind == "csv":
        if sheet.read("format.output.fields.value.encoding", values.choice(("none", "base64")), "base64") != "none":
            sheet.refuse("format.output.fields.value.encoding", "lines of base64 are not written; say none, or jsonl")
    elif sheet.read("format.output.envelope", values.boolean, default=True):
        sheet.refuse("format.output.envelope", 'values are written without `{"value": ...}` around them; say false')
    return _AIVEN_TYPES[kind]


def _parts(sheet: Sheet, *, is_envelope: bool) -> dict[str, Any]:
    """What is written beside the values."""
    if is_envelope:
        sheet.leave(_PART_KEYS, "The envelope holds keys and headers.")
        return {"keys_format": None, "headers_format": None}
    keys = _part(sheet, "store.kafka.keys", "keys.format.class", "output.keys.format")
    headers = _part(sheet, "store.kafka.headers", "headers.format.class", "output.headers.format")
    if headers is not None and headers in HEADER_REFUSALS:
        sheet.refuse(_given(sheet, "headers.format.class", "output.headers.format"), HEADER_REFUSALS[headers])
    return {"keys_format": keys, "headers_format": headers}


def _part(sheet: Sheet, store: str, by_class: str, by_word: str) -> str | None:
    if not sheet.read(store, values.boolean, default=False):
        sheet.leave((by_class, by_word), f"Belongs to `{store}`.")
        return None
    if by_class in sheet and by_word in sheet:
        sheet.refuse(by_word, f"{by_class} says the same; keep one")
    word = sheet.read(by_word, values.choice(WORDS), "AVRO")
    return sheet.read(by_class, PART_FORMAT_CLASS, WORDS[word])


def _nulls(sheet: Sheet, *, is_envelope: bool) -> dict[str, Any]:
    found = sheet.read("behavior.on.null.values", values.choice(_NULLS), "write" if is_envelope else "fail")
    if is_envelope and found != "write":
        sheet.refuse("behavior.on.null.values", "an envelope archives records without a value, which is `write`")
    elif not is_envelope and found == "write" and not sheet.read("store.kafka.keys", values.boolean, default=False):
        sheet.refuse("store.kafka.keys", "required: behavior.on.null.values=write writes keys, for want of values")
    if is_envelope or found != "write":
        sheet.leave(("tombstone.encoded.partition",), "Only behavior.on.null.values=write has such a folder.")
    return {
        "null_values": found,
        "tombstone_partition": sheet.read("tombstone.encoded.partition", values.directory, "tombstone"),
    }


def _given(sheet: Sheet, *names: str) -> str:
    return next((name for name in names if name in sheet), names[0])
