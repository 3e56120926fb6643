"""The keys for the content of objects: formats, keys and headers beside values, nulls, and codecs.

Each kind of format has a key of its own for its codec, as in Connect.
"""

from collections.abc import Collection, Mapping
from typing import Any, get_args

from kafka_s3_platform.connect.config.dialects import Dialect
from kafka_s3_platform.connect.config.formats_of_connect import (
    AIVEN_ENVELOPES,
    AIVEN_WRITTEN,
    CLOUD_WORDS,
    CODEC_KEYS,
    INPUT_WORDS,
    WRITTEN_FORMATS,
    list_codes,
)
from kafka_s3_platform.connect.config.keys import values
from kafka_s3_platform.connect.config.keys.config_file import ConfigFile
from kafka_s3_platform.connect.config.keys.table import (
    Key,
    TypedKey,
    declare_aliases,
    declare_honoured,
    declare_key,
    declare_setting,
)
from kafka_s3_platform.connect.config.keys.values import FORMAT_CLASS, PART_FORMAT_CLASS
from kafka_s3_platform.core.codecs.table import AVRO_CODECS, LINE_CODECS, PARQUET_CODECS, READ_CODECS
from kafka_s3_platform.core.config.formats import LINES_KEY, NATIVE_FORMAT, Format, find_format
from kafka_s3_platform.core.config.settings import AivenType, Decimals, Encoding, LayoutSettings, Nulls, SourceSettings
from kafka_s3_platform.core.errors import ConfigError

LEVEL = declare_key(
    "s3.compression.level",
    values.expect_integer(-1),
    "Level of the codec: 1 to 9 for gzip and bzip2, 1 to 22 for zstd. `-1` or unset: gzip uses a library that"
    " needs a tenth of the time, and its objects are 4 to 12 % larger than those of level 6. `S3_SINK` has level 6.",
    default=-1,
    shown="the codec's own",
)

COMPRESSION_KEYS: tuple[Key, ...] = (
    declare_honoured(
        "compression.codec",
        "Confluent Cloud's key for the codec, together with its format: `JSON - gzip`, `BYTES - gzip`, `AVRO -"
        " snappy`, `PARQUET - gzip` and so on, or `none`.",
    ),
    declare_honoured(
        "s3.compression.type",
        f"Codec for `JsonFormat`, `ByteArrayFormat` and `EnvelopeJsonFormat`: {list_codes(LINE_CODECS)}. Also for"
        f" separate objects of keys and headers in these formats. Source connectors read {list_codes(READ_CODECS)}.",
        "none",
    ),
    LEVEL,
    *declare_aliases("Aiven's", "file.compression.type=s3.compression.type format.avro.codec=avro.codec"),
    declare_honoured("avro.codec", f"Codec of Avro objects: {list_codes(AVRO_CODECS)}.", "null"),
    declare_honoured(
        "parquet.codec", f"Codec of Parquet objects: {list_codes(PARQUET_CODECS)}.", "snappy; zstd for the envelope"
    ),
)


def read_codecs(
    file: ConfigFile, dialect: Dialect, format_name: str, parts: Mapping[str, str | None]
) -> dict[str, Any]:
    """Read the codecs of values, and of keys and headers if their format has another key for its codec."""
    row = find_format(format_name)
    # Aiven's sink compresses with gzip if its file names no codec.
    default = "gzip" if dialect.name == "aiven" and "gzip" in row.codecs else row.default_codec
    codec = _read_codec(file, row, _read_cloud_codec(file, row) or default)
    others: dict[str, str | None] = {}
    used = {row.codec_key}
    for part, name in parts.items():
        other = find_format(name) if name else row
        used.add(other.codec_key)
        shares_key = other.codec_key == row.codec_key
        others[part.replace("format", "codec")] = None if shares_key else _read_codec(file, other)
    _ignore_other_codecs(file, used, row.codec_key)
    level = _read_level(file, row, codec)
    if level is None and dialect.name == "cloud" and codec == "gzip" and row.codec_key == LINES_KEY:
        level = 6  # Confluent Cloud's own
    return {"codec": codec, "codec_level": level, **others}


def read_source_codecs(file: ConfigFile, dialect: Dialect, format_name: str) -> dict[str, Any]:
    """Read the codec of objects of lines, for names that do not show it. Other objects hold their codec."""
    file.ignore_if_set(("avro.codec", "parquet.codec", LEVEL.name), "Each object shows how it is compressed.")
    row = find_format(format_name)
    if row.names_its_codec:
        file.ignore_if_set(("s3.compression.type", "compression.codec"), "Each object shows how it is compressed.")
        return {"codec": "none"}
    default = "gzip" if dialect.name == "aiven" else row.default_codec
    codec = file.read("s3.compression.type", values.expect_one_of(READ_CODECS), "")
    word = file.text("compression.codec").rpartition("-")[2].strip().casefold()
    return {"codec": codec or (word if word in LINE_CODECS else default)}


def _read_codec(file: ConfigFile, row: Format, default: str | None = None) -> str:
    """Read the codec from the format's own key. `default` counts if the file does not set this key."""
    key = row.codec_key
    word = (file.text(key) or default or row.default_codec).casefold()
    codec = next((codec.name for codec in (row.codecs or READ_CODECS).values() if word in codec.words), word)
    try:
        row.check_codec(codec, None)
    except ConfigError as err:
        file.refuse(key if key in file else "compression.codec", err.text)
        return row.default_codec
    return codec


def _read_cloud_codec(file: ConfigFile, row: Format) -> str | None:
    """Read the codec in a value such as `JSON - gzip`: Confluent Cloud's word for the format, followed by the codec."""

    def parse(text: str) -> str:
        word, dash, codec = (part.strip() for part in text.partition("-"))
        if not dash:
            return text
        if CLOUD_WORDS.get(word.upper()) != row.name:
            raise ValueError(f"{text!r} is no codec of the format {row.name}")
        return codec

    if row.codec_key in file and "compression.codec" in file:
        file.refuse("compression.codec", f"{file.name_in_file(row.codec_key)} sets the same; keep one")
        return None
    return file.read("compression.codec", parse, None)


def _ignore_other_codecs(file: ConfigFile, used: Collection[str], key: str) -> None:
    """Report the keys of unused codecs.

    As in Connect, a file may set the codecs of formats it does not write. It may not set `s3.compression.type` if the
    format has its own compression.
    """
    if LINES_KEY not in used and file.text(LINES_KEY).casefold() not in {"", "none"}:
        file.refuse(LINES_KEY, f"the format compresses by itself; set {key} instead")
    else:
        file.ignore_if_set([LINES_KEY] if LINES_KEY not in used else (), "The format compresses its objects itself.")
    unused = [other for other in CODEC_KEYS if other not in used and other != LINES_KEY]
    file.ignore_if_set(unused, "Belongs to a format that this file does not write.")


def _read_level(file: ConfigFile, row: Format, codec: str) -> int | None:
    """Read the level of compression. Return None for the codec's own level."""
    if row.codec_key != LINES_KEY:
        file.ignore_if_set((LEVEL.name,), "Belongs to JSON and bytes. This format uses its own level.")
        return None
    level = file.value(LEVEL)
    if level == -1:
        return None
    if not row.is_plugin and not row.codecs[codec].levels:
        file.ignore(LEVEL.name, f"The codec {codec} has no levels.")
        return None
    try:
        row.check_codec(codec, level)
    except ConfigError as err:
        file.refuse(LEVEL.name, err.text)
        return None
    return level


_AIVEN_RECORD = ("key", "value", "offset", "timestamp", "headers")

FORMAT = declare_setting(
    LayoutSettings,
    "format",
    "format.class",
    FORMAT_CLASS,
    "Format of the objects. Connect's `AvroFormat`, `JsonFormat`, `ByteArrayFormat` and `ParquetFormat`, by full"
    " or short name. This platform's `EnvelopeParquetFormat`, `EnvelopeAvroFormat` and `EnvelopeJsonFormat`,"
    " which hold whole records with unchanged bytes, in the columns of Spark's Kafka source; and"
    " `BlockGzipFormat`. Or the dotted name of an allowed Python class, which runs as code.",
    shown="EnvelopeParquetFormat",
)
CLOUD_FORMAT = declare_key(
    "output.data.format",
    values.expect_one_of(CLOUD_WORDS),
    f"Confluent Cloud's key for the format: {list_codes(CLOUD_WORDS)}.",
    default="",
)
AIVEN_TYPE: TypedKey[AivenType | None] = declare_key(
    "format.output.type",
    values.expect_one_of(get_args(AivenType)),
    f"Aiven's key for the format: {list_codes(AIVEN_WRITTEN)}.",
    default=None,
)
AIVEN_FIELDS: TypedKey[tuple[str, ...]] = declare_key(
    "format.output.fields",
    values.parse_fields,
    "Aiven's key: only `value` is written. The envelope formats hold whole records.",
    default=("value",),
)
AIVEN_ENVELOPE = declare_key(
    "format.output.envelope",
    values.parse_boolean,
    "Aiven's key: `jsonl`, `avro` and `parquet` need `false` here.",
    default=True,
)
AIVEN_ENCODING: TypedKey[Encoding] = declare_setting(
    SourceSettings,
    "value_encoding",
    "format.output.fields.value.encoding",
    values.expect_one_of(get_args(Encoding)),
    "Aiven's key: `csv` needs `none` here.",
)


def _parse_bytes_extension(text: str) -> str:
    """Parse the extension of objects of bytes. Raise ValueError if it is empty."""
    if extension := values.parse_extension(text):
        return extension
    raise ValueError("is empty: for names without an extension, say archive.key.extension=. instead")


BYTES_EXTENSION = declare_setting(
    LayoutSettings,
    "bytes_extension",
    "format.bytearray.extension",
    _parse_bytes_extension,
    "Extension of `ByteArrayFormat`'s objects. For none, set `archive.key.extension=.`.",
    shown=".bin",
    blank=".",
)


def _parse_separator(text: str) -> str:
    """Parse a separator, or the word `length`, around which blanks do not count."""
    return "length" if text.strip() == "length" else values.unescape_java(text)


BYTES_SEPARATOR = declare_setting(
    LayoutSettings,
    "bytes_separator",
    "format.bytearray.separator",
    _parse_separator,
    "Separator after each record of `ByteArrayFormat`. Blanks and line breaks around it count, as in Connect. It may"
    " contain `\\n`, `\\r`, `\\t`, `\\\\` and `\\uXXXX`."
    " A record that contains the separator fails, because it would read back as two. `length`: four bytes before"
    " each record hold its length, instead of a separator. In a source's file, the key also allows raw bytes to"
    " be split at the separator.",
    shown="`\\n`",
    keeps_blanks=True,
)
JSON_DECIMAL_FORMAT: TypedKey[Decimals] = declare_setting(
    LayoutSettings,
    "decimal_format",
    "json.decimal.format",
    values.expect_one_of(get_args(Decimals)),
    "How JSON objects hold decimals: `BASE64` or `NUMERIC`.",
)
BLOCK_SIZE = declare_setting(
    LayoutSettings,
    "block_size",
    "compressed_block_size",
    values.expect_integer(1),
    "Size of one gzip member of `BlockGzipFormat`, in uncompressed bytes.",
    for_sinks=True,
)
STORE_KEYS = declare_key(
    "store.kafka.keys",
    values.parse_boolean,
    "`true`: write keys to separate objects, beside those of the values.",
    default=False,
)
STORE_HEADERS = declare_key(
    "store.kafka.headers",
    values.parse_boolean,
    "`true`: write headers to separate objects, beside those of the values.",
    default=False,
)
KEYS_FORMAT = declare_key(
    "keys.format.class",
    PART_FORMAT_CLASS,
    "Format of the separate objects of keys. Needs `store.kafka.keys`.",
    default="avro",
    shown="AvroFormat",
)
HEADERS_FORMAT = declare_key(
    "headers.format.class",
    PART_FORMAT_CLASS,
    "Format of the separate objects of headers. Needs `store.kafka.headers`.",
    default="avro",
    shown="AvroFormat",
)
CLOUD_KEYS_FORMAT = declare_key(
    "output.keys.format",
    values.expect_one_of(CLOUD_WORDS),
    f"Confluent Cloud's key for `keys.format.class`: {list_codes(CLOUD_WORDS)}.",
    default="",
)
CLOUD_HEADERS_FORMAT = declare_key(
    "output.headers.format",
    values.expect_one_of(CLOUD_WORDS),
    "Confluent Cloud's key for `headers.format.class`: `AVRO`, `JSON` or `PARQUET`.",
    default="",
)
NULL_VALUES: TypedKey[Nulls] = declare_setting(
    LayoutSettings,
    "null_values",
    "behavior.on.null.values",
    values.expect_one_of(get_args(Nulls)),
    "What to do with a record without a value: `ignore` leaves it out, `fail` fails, `write` writes its key to a"
    " folder of its own and needs `store.kafka.keys`. The envelope always writes such a record, to the folder of"
    " its timestamp.",
    shown="fail; write for the envelope",
)
TOMBSTONE_FOLDER = declare_setting(
    LayoutSettings,
    "tombstone_partition",
    "tombstone.encoded.partition",
    values.parse_folder,
    "Folder for records without a value.",
)
INPUT_FORMAT = declare_key(
    "input.format",
    values.expect_one_of(INPUT_WORDS),
    f"Aiven's key for the format of the objects: {list_codes(INPUT_WORDS)}. `bytes` are lines;"
    " `lenses.*` are Lenses' envelopes.",
    default="bytes",
)

FORMAT_KEYS: tuple[Key, ...] = (
    FORMAT,
    CLOUD_FORMAT,
    AIVEN_TYPE,
    AIVEN_FIELDS,
    AIVEN_ENVELOPE,
    AIVEN_ENCODING,
    *COMPRESSION_KEYS,
    BYTES_EXTENSION,
    BYTES_SEPARATOR,
    JSON_DECIMAL_FORMAT,
    BLOCK_SIZE,
    STORE_KEYS,
    STORE_HEADERS,
    KEYS_FORMAT,
    HEADERS_FORMAT,
    CLOUD_KEYS_FORMAT,
    CLOUD_HEADERS_FORMAT,
    NULL_VALUES,
    TOMBSTONE_FOLDER,
)

_PART_KEYS = (
    STORE_KEYS.name,
    STORE_HEADERS.name,
    KEYS_FORMAT.name,
    HEADERS_FORMAT.name,
    CLOUD_KEYS_FORMAT.name,
    CLOUD_HEADERS_FORMAT.name,
)


def read_output(file: ConfigFile, dialect: Dialect) -> dict[str, Any]:
    """Read the format of objects, its codec, and the objects beside the values."""
    format_name = _read_format(file, dialect)
    row = find_format(format_name)
    parts = _read_parts(file, is_envelope=row.is_envelope)
    if row.is_written:
        unwritten = (other for name, other in WRITTEN_FORMATS.items() if name not in {format_name, *parts.values()})
        for other in unwritten:
            file.ignore_if_set(other.own_keys, "Belongs to a format that this file does not write.")
    if dialect.is_source:
        codecs = read_source_codecs(file, dialect, format_name)
    else:
        codecs = read_codecs(file, dialect, format_name, parts)
    return {"format": format_name, **codecs, **parts, "null_values": _read_nulls(file, is_envelope=row.is_envelope)}


def _read_format(file: ConfigFile, dialect: Dialect) -> str:
    """Read the name of the format of objects, and refuse a second key that sets it.

    It is set by `format.class`, by Confluent Cloud's word, or by Aiven's keys. If none of them is set, it is the
    dialect's own.
    """
    written = [key.name for key in (FORMAT, CLOUD_FORMAT, AIVEN_TYPE) if key.name in file]
    for other in written[1:]:
        file.refuse(other, f"{written[0]} says the same; keep one")
    by_class = file.value_or(FORMAT, None)
    by_word = CLOUD_WORDS.get(file.value(CLOUD_FORMAT))
    if by_class or by_word:
        file.ignore_if_set(
            (AIVEN_FIELDS.name, AIVEN_ENVELOPE.name, AIVEN_ENCODING.name), "Belongs to `format.output.type`."
        )
        return by_class or by_word or ""
    if dialect.is_source and INPUT_FORMAT.name in file:
        return _read_source_format(file)
    if AIVEN_TYPE.name in file or dialect.name == "aiven":
        if dialect.is_source:
            return _read_source_format(file)
        return _read_aiven_format(file)
    return dialect.format or NATIVE_FORMAT


def _read_aiven_format(file: ConfigFile) -> str:
    """Read the format in a file of Aiven's sink. Only formats that hold nothing but values are written here."""
    kind = file.read(AIVEN_TYPE.name, values.expect_one_of(AIVEN_WRITTEN), "csv")
    if file.value(AIVEN_FIELDS) != AIVEN_FIELDS.unset:
        file.refuse(
            AIVEN_FIELDS.name,
            "only `value` is written in this format; say format.class=EnvelopeJsonFormat for whole records",
        )
    if kind == "csv":
        if file.value(AIVEN_ENCODING) != "none":
            file.refuse(AIVEN_ENCODING.name, "lines of base64 are not written; say none, or jsonl")
    elif file.value(AIVEN_ENVELOPE):
        file.refuse(AIVEN_ENVELOPE.name, 'values are written without `{"value": ...}` around them; say false')
    return AIVEN_WRITTEN[kind]


def _read_source_format(file: ConfigFile) -> str:
    """Read the format of objects in Aiven's words.

    Objects of nothing but values have the name of a format. Others have `aiven.` and the type, as in `aiven.jsonl`.
    """
    if INPUT_FORMAT.name in file:
        file.ignore_if_set((AIVEN_TYPE.name,), "`input.format` names the format of the objects.")
        return INPUT_WORDS[file.value(INPUT_FORMAT)]
    kind = file.value(AIVEN_TYPE) or "csv"
    if read_aiven_fields(file) != AIVEN_FIELDS.unset:
        return AIVEN_ENVELOPES[kind]
    if kind == "csv":
        if file.value(AIVEN_ENCODING) == "none":
            return AIVEN_WRITTEN[kind]
        return AIVEN_ENVELOPES[kind]
    # An array of values is read like an array of records.
    is_enveloped = file.value(AIVEN_ENVELOPE) or kind not in AIVEN_WRITTEN
    if is_enveloped:
        return AIVEN_ENVELOPES[kind]
    return AIVEN_WRITTEN[kind]


def read_aiven_fields(file: ConfigFile) -> tuple[str, ...]:
    """Read the fields that Aiven's sink wrote for each record, in their order."""
    return file.read(AIVEN_FIELDS.name, _parse_aiven_fields, AIVEN_FIELDS.unset)


def _parse_aiven_fields(text: str) -> tuple[str, ...]:
    """Parse the names of fields in records of Aiven's sink. Raise ValueError if a name is not one of them."""
    fields = values.parse_fields(text)
    if unknown := [name for name in fields if name not in _AIVEN_RECORD]:
        raise ValueError(f"{', '.join(unknown)}: the fields are {', '.join(_AIVEN_RECORD)}")
    return fields


def _read_parts(file: ConfigFile, *, is_envelope: bool) -> dict[str, Any]:
    """Read the formats of the objects of keys and of headers. A format is None if there are no such objects."""
    if is_envelope:
        file.ignore_if_set(_PART_KEYS, "The envelope holds keys and headers.")
        return {"keys_format": None, "headers_format": None}
    keys = _read_part(file, STORE_KEYS, KEYS_FORMAT, CLOUD_KEYS_FORMAT)
    headers = _read_part(file, STORE_HEADERS, HEADERS_FORMAT, CLOUD_HEADERS_FORMAT)
    reason = find_format(headers).headers_refusal if headers else ""
    if reason:
        file.refuse(file.find_first_set(HEADERS_FORMAT.name, CLOUD_HEADERS_FORMAT.name), reason)
    return {"keys_format": keys, "headers_format": headers}


def _read_part(file: ConfigFile, store: TypedKey[bool], by_class: TypedKey[str], by_word: TypedKey[str]) -> str | None:
    """Read the format of the separate objects of keys, or of headers. Return None if the file asks for none."""
    if not file.value(store):
        file.ignore_if_set((by_class.name, by_word.name), f"Belongs to `{store.name}`.")
        return None
    if by_class.name in file and by_word.name in file:
        file.refuse(by_word.name, f"{by_class.name} says the same; keep one")
    word = file.value(by_word)
    return file.value_or(by_class, CLOUD_WORDS[word] if word else by_class.unset)


def _read_nulls(file: ConfigFile, *, is_envelope: bool) -> Nulls:
    """Read how records without a value are handled. Refuse a way that is impossible in the format."""
    nulls = file.value_or(NULL_VALUES, NULL_VALUES.unset if is_envelope else "fail")
    if is_envelope and nulls != "write":
        file.refuse(NULL_VALUES.name, "an envelope archives records without a value, which is `write`")
    elif not is_envelope and nulls == "write" and not file.value(STORE_KEYS):
        file.refuse(STORE_KEYS.name, "required: behavior.on.null.values=write writes keys, for want of values")
    if is_envelope or nulls != "write":
        file.ignore_if_set((TOMBSTONE_FOLDER.name,), "Only behavior.on.null.values=write has such a folder.")
    return nulls
