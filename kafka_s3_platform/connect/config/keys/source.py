"""The keys of source connectors' files, for reading other tools' objects.

Sources: Confluent's "Amazon S3 Source Connector Configuration Properties", the README of Aiven's S3 source connector.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, get_args

from kafka_s3_platform.connect.config.dialects import Dialect
from kafka_s3_platform.connect.config.formats_of_connect import AIVEN_WRITTEN
from kafka_s3_platform.connect.config.keys import values
from kafka_s3_platform.connect.config.keys.config_file import ConfigFile
from kafka_s3_platform.connect.config.keys.converters import WITH_REGISTRY
from kafka_s3_platform.connect.config.keys.general import SOURCE_TOPIC
from kafka_s3_platform.connect.config.keys.layout import (
    PARTITION_DURATION,
    PARTITION_FIELDS,
    PARTITIONER,
    PATH_FORMAT,
    TIME_INTERVAL,
)
from kafka_s3_platform.connect.config.keys.names import SOURCE_TEMPLATE, TEMPLATE, compile_read_template
from kafka_s3_platform.connect.config.keys.output import (
    AIVEN_ENVELOPE,
    AIVEN_FIELDS,
    AIVEN_TYPE,
    BYTES_SEPARATOR,
    CLOUD_FORMAT,
    FORMAT,
    INPUT_FORMAT,
    STORE_HEADERS,
    STORE_KEYS,
    read_aiven_fields,
)
from kafka_s3_platform.connect.config.keys.table import (
    Key,
    Support,
    TypedKey,
    declare_aliases,
    declare_not_yet,
    declare_refused,
    declare_setting,
    declare_without_meaning,
)
from kafka_s3_platform.connect.config.keys.transforms import keeps_content
from kafka_s3_platform.connect.config.worker import Worker
from kafka_s3_platform.core.config.formats import LINES_KEY, find_format
from kafka_s3_platform.core.config.settings import (
    THAW_TIERS,
    AivenType,
    Behavior,
    ConverterSettings,
    CsvEmpty,
    LayoutSettings,
    SourceSettings,
    ThawTier,
    TransformSettings,
)

_CLUSTER_ID = re.compile(r"[\w-]{1,255}", re.ASCII)
CLOUD_FORMATS: Mapping[str, str] = {"key": "input.key.format", "value": "input.data.format"}
"""Confluent Cloud's keys for the converters of keys and values."""
_HEADER_WORDS: Mapping[str, str] = {"BYTES": "ByteArrayConverter", "STRING": "StringConverter"}
OF_HEADERS = ("header.converter", "input.header.format")
"""The keys that tell a source how headers were written. A sink writes headers as they are."""


def _parse_path(text: str) -> str:
    """Parse the path of a field: names separated by dots."""
    if not all(text.split(".")):
        raise ValueError(f"{text!r} is no names with dots between")
    return text


def _parse_cluster(text: str) -> str:
    """Parse the id of a Kafka cluster, or its bootstrap servers."""
    if ":" in text or "," in text:
        return values.parse_bootstrap_servers(text)
    if not _CLUSTER_ID.fullmatch(text):
        raise ValueError(
            f"{text!r} is neither a cluster's id, such as MkU3OEVBNTcwNTJENDM2Qg, nor host:port of a broker"
        )
    return text


BEHAVIOR: TypedKey[Behavior] = declare_setting(
    SourceSettings,
    "behavior_on_error",
    "behavior.on.error",
    values.expect_one_of(get_args(Behavior)),
    "What to do with objects and records that cannot be read, names that do not parse, and objects in the wrong"
    " folder: `fail`, `ignore` or `log`. An Avro or Parquet object is sent as a whole or not at all.",
)
POLL_INTERVAL = declare_setting(
    SourceSettings,
    "poll_interval_ms",
    "s3.poll.interval.ms",
    values.expect_integer(1),
    "How often the connector's sensor looks for new objects, in ms, once it is turned on; see"
    " [restore](restore-foreign.md#going-on-with-what-appears).",
)
LOOK_BACK = declare_setting(
    SourceSettings,
    "look_back_ms",
    "archive.source.look.back.ms",
    values.expect_integer(0),
    "How long after its time an object may come to a time folder, in ms, and be found by the folder sensor at once."
    " The daily count finds later ones; see [restore](restore-foreign.md#objects-of-others).",
)
THAW_DAYS = declare_setting(
    SourceSettings,
    "thaw_days",
    "archive.source.thaw.days",
    values.expect_integer(1, 365),
    "Ask S3 to copy objects out of the storage classes `GLACIER` and `DEEP_ARCHIVE`, and to keep the copies for"
    " this many days. None: report these objects, and ask for none.",
    shown="none",
)
CSV_EMPTY: TypedKey[CsvEmpty | None] = declare_setting(
    SourceSettings,
    "csv_empty",
    "archive.source.csv.empty",
    values.expect_one_of(get_args(CsvEmpty)),
    "How to read an empty key or value in Aiven's csv, where null and empty look the same: `null`, `empty`, or a"
    " bad record (`refuse`). Unset: an empty key is null, and an empty value is a bad record, because a null"
    " value deletes its key.",
    shown="refuse",
)
SOURCE_OFFSET_FIELD = declare_setting(
    SourceSettings,
    "offset_field",
    "archive.source.offset.field",
    _parse_path,
    "Field that holds the source offset, in records of JSON, Avro or Parquet. Dots separate nested names:"
    " `metadata.offset` in Lenses' envelope.",
)
SOURCE_TIMESTAMP_FIELD = declare_setting(
    SourceSettings,
    "timestamp_field",
    "archive.source.timestamp.field",
    _parse_path,
    "Field that holds the timestamp, as epoch ms or ISO 8601: `metadata.timestamp` in Lenses' envelope. Avro and"
    " Parquet tell other units, dates and local times. These, and texts without an offset, are of `timezone`.",
)
THAW_TIER: TypedKey[ThawTier] = declare_setting(
    SourceSettings,
    "thaw_tier",
    "archive.source.thaw.tier",
    values.expect_one_of(THAW_TIERS),
    "Retrieval tier of S3 for these copies, which decides how soon they are there: `Standard`, `Bulk` or `Expedited`.",
)
CLUSTER = declare_setting(
    SourceSettings,
    "cluster",
    "archive.source.cluster",
    _parse_cluster,
    "Cluster that the records come from: its ID (safer) or its bootstrap servers. Then the records may go to"
    " topics of the same name on another cluster, unless a connector here archives those topics.",
)

SOURCE_KEYS: tuple[Key, ...] = (
    BEHAVIOR,
    POLL_INTERVAL,
    LOOK_BACK,
    INPUT_FORMAT,
    SOURCE_TOPIC,
    SOURCE_TEMPLATE,
    THAW_DAYS,
    CSV_EMPTY,
    SOURCE_OFFSET_FIELD,
    SOURCE_TIMESTAMP_FIELD,
    THAW_TIER,
    CLUSTER,
    *declare_aliases("Another", "aws.s3.poll.interval.ms=s3.poll.interval.ms"),
    *declare_without_meaning(
        "Objects are read batch by batch, whatever their size.",
        """record.batch.max.size task.batch.size aws.s3.fetch.buffer.size transformer.max.buffer.size
        ring.buffer.size distribution.type""",
    ),
    declare_not_yet("file.discovery.starting.timestamp", "choose hours or offsets with the restore's own windows", "0"),
    declare_refused(
        "mode", "objects of any name need `archive.source.template` to say what their keys tell", "RESTORE_BACKUP"
    ),
    declare_refused("topic.regex.list", "belongs to `mode=GENERIC`; describe the keys with `archive.source.template`"),
    declare_refused("native.start.key", "choose hours or offsets with the restore's own windows"),
    declare_refused("folders", "Connect sets it for its own tasks"),
)

_OF_FOLDERS = (PARTITIONER.name, TIME_INTERVAL.name, PARTITION_FIELDS.name, PATH_FORMAT.name, PARTITION_DURATION.name)


def ignore_unused_keys(file: ConfigFile, dialect: Dialect) -> None:
    """Accept the keys that have no meaning for a sink, or for a source, before any key is read."""
    if not dialect.is_source:
        file.ignore_if_set(OF_HEADERS, "No converter reads header values: each comes back with its bytes.")
        source_keys = (key.name for key in SOURCE_KEYS if key.support is Support.HONOURED)
        file.ignore_if_set(source_keys, "Belongs to source connectors, which read objects back.")
        return
    file.ignore_sink_keys()
    if SOURCE_TEMPLATE.name in file:
        file.ignore_if_set(_OF_FOLDERS, f"{SOURCE_TEMPLATE.name} says what folders and names tell.")


def read_source(file: ConfigFile, dialect: Dialect, layout: LayoutSettings, worker: Worker) -> SourceSettings | None:
    """Read how objects are read back. Return None if the file is a sink's."""
    if not dialect.is_source:
        return None
    _judge_template(file, layout)
    _judge_parts(file, layout)
    if not find_format(layout.format).has_fields:
        reason = f"records of {layout.format} have no such fields: objects of JSON, Avro or Parquet have"
        file.refuse_if_set((SOURCE_OFFSET_FIELD.name, SOURCE_TIMESTAMP_FIELD.name), reason)
    return file.fill(
        SourceSettings,
        fields=_read_fields(file, layout.format),
        bare=_read_bare(file, layout),
        base64=tuple(_find_bytes(file, worker, layout)),
        header_converter=_read_header_converter(file, worker),
        separator_is_named=BYTES_SEPARATOR.name in file,
        codec_is_named=LINES_KEY in file or "compression.codec" in file,
    )


def _judge_parts(file: ConfigFile, layout: LayoutSettings) -> None:
    """Refuse objects of keys and headers in layouts that name objects of values only."""
    if layout.key_layout not in {"block_gzip", "zooz"}:
        return
    for store, format_name in ((STORE_KEYS, layout.keys_format), (STORE_HEADERS, layout.headers_format)):
        if format_name is not None:
            file.refuse(store.name, f"in the layout {layout.key_layout}, names of such objects are not read")


def needs_topic_key(file: ConfigFile, layout: LayoutSettings) -> bool:
    """Return True if the keys of objects do not name their topic, so the file has to."""
    if layout.key_layout == "template" and not file.is_refused(_find_template_key(file)):
        return "topic" not in compile_read_template(layout.file_name_template or "").names
    return layout.key_layout == "zooz"


def _read_bare(file: ConfigFile, layout: LayoutSettings) -> AivenType | None:
    """Read the output type of Aiven's sink if it wrote values only. Return None if it did not, or for other sinks."""
    is_aivens = AIVEN_TYPE.name in file or AIVEN_ENVELOPE.name in file or layout.key_layout == "template"
    if not is_aivens or any(key.name in file for key in (FORMAT, CLOUD_FORMAT, INPUT_FORMAT)):
        return None
    kind = file.value(AIVEN_TYPE) or "csv"
    if kind == "csv":
        return "csv" if layout.format == AIVEN_WRITTEN[kind] else None
    is_enveloped = file.value(AIVEN_ENVELOPE)
    if is_enveloped or read_aiven_fields(file) != ("value",):
        return None
    return kind


def _read_header_converter(file: ConfigFile, worker: Worker) -> str:
    """Read the class of header converter the sink used, by its short name: the connector's, else the worker's."""
    word = file.text("input.header.format").strip().upper()
    class_name = file.text("header.converter") or _HEADER_WORDS.get(word, word)
    return (class_name or _find_worker_class(worker, "header.converter") or "SimpleHeaderConverter").rpartition(".")[2]


def _find_bytes(
    file: ConfigFile, worker: Worker, layout: LayoutSettings
) -> Iterator[Literal["key", "value", "headers"]]:
    """Yield the parts of objects written by ByteArrayConverter, according to the file or worker.properties."""
    sides: tuple[Literal["key", "value"], ...] = ("key", "value") if _find_keys_format(file, layout) else ("value",)
    for side in sides:
        name = f"{side}.converter"
        class_name = file.text(name) or _HEADER_WORDS.get(file.text(CLOUD_FORMATS[side]).strip().upper(), "")
        if (class_name or _find_worker_class(worker, name)).rpartition(".")[2] == "ByteArrayConverter":
            yield side
    if _read_header_converter(file, worker) == "ByteArrayConverter":
        yield "headers"


def _find_keys_format(file: ConfigFile, layout: LayoutSettings) -> str | None:
    """Return the format of objects' keys, or None if the objects hold no keys."""
    envelope = find_format(layout.format).envelope
    if envelope == "lenses" or (envelope == "aiven" and "key" in read_aiven_fields(file)):
        return layout.format
    return layout.keys_format


def _find_worker_class(worker: Worker, name: str) -> str:
    """Return the class named for a converter in worker.properties, or "" if it names none."""
    if name in worker.converters:
        return worker.converters[name].get_secret_value()
    return ""


def judge_converters(
    file: ConfigFile,
    layout: LayoutSettings,
    key: ConverterSettings | None,
    value: ConverterSettings | None,
    transforms: Sequence[TransformSettings],
) -> None:
    """Refuse to send values as bytes if objects hold them as fields, or if a transform makes fields of them."""
    changing = next((step for step in transforms if not keeps_content(step)), None)
    is_bytes = value is None or value.format == "BYTES"
    subject = f"{layout.format.rpartition('.')[2]} objects hold"
    row = find_format(layout.format)
    if row.envelope is None and row.needs_schema and is_bytes:
        _require_converter(file, "value", f"{subject} fields, not bytes", value)
    elif row.needs_converter and changing is not None and is_bytes:
        _require_converter(file, "value", f"transforms.{changing.alias} makes fields of the values, not bytes", value)
    _judge_schemas(file, layout, {"key": key, "value": value})
    if layout.keys_format and find_format(layout.keys_format).needs_schema and key is None:
        _require_converter(file, "key", f"{layout.keys_format} objects hold keys by their type", None)
    if row.envelope in {"aiven", "lenses"} and row.needs_schema:
        for side, converter in (("key", key), ("value", value)):
            is_there = row.envelope == "lenses" or side in read_aiven_fields(file)
            if is_there and converter is None:
                _require_converter(file, side, f"{subject} each {side} by its type", None)


def _judge_schemas(
    file: ConfigFile, layout: LayoutSettings, converters: Mapping[str, ConverterSettings | None]
) -> None:
    """Refuse converters that need a schema if objects hold none, because no record could be written to Kafka."""
    formats = {"key": _find_keys_format(file, layout), "value": layout.format}
    for side, converter in converters.items():
        format_name = formats[side]
        if not format_name or converter is None or converter.format not in WITH_REGISTRY:
            continue
        row = find_format(format_name)
        if row.is_plugin or row.is_envelope or row.needs_schema:
            continue
        written = f"{side}.converter"
        unchanged = f"{written}=ByteArrayConverter sends the bytes that are there"
        if "json" in format_name:
            unchanged = f"{written}=JsonConverter and {written}.schemas.enable=false send the JSON that is there"
        name = file.find_first_set(written, CLOUD_FORMATS[side])
        if not file.is_refused(name):
            file.refuse(
                name,
                f"objects of {format_name.rpartition('.')[2]} hold no schema, and {converter.format} needs one: no "
                f"{side} could be written. {unchanged}",
            )


def _require_converter(file: ConfigFile, side: str, why: str, named: ConverterSettings | None) -> None:
    """Refuse a file without a converter for the objects' records, or with one (`named`) that cannot write them."""
    required = "" if named else "required, here or in worker.properties: "
    name = file.find_first_set(f"{side}.converter", CLOUD_FORMATS[side])
    if not file.is_refused(name):
        file.refuse(name, f"{required}{why}; name the converter that writes them to Kafka")


def _read_fields(file: ConfigFile, format_name: str) -> tuple[str, ...]:
    """Read the fields of Aiven's or Lenses' envelope; () for a format without one.

    Lenses' files do not list them, so Aiven's key may name those that every object has. By default these are offset and
    timestamp.
    """
    envelope = find_format(format_name).envelope
    if envelope == "lenses":
        if AIVEN_FIELDS.name in file:
            return read_aiven_fields(file)
        return ("offset", "timestamp")
    return read_aiven_fields(file) if envelope == "aiven" else ()


def _find_template_key(file: ConfigFile) -> str:
    """Return the name of the key for the template of object keys."""
    return SOURCE_TEMPLATE.name if SOURCE_TEMPLATE.name in file else TEMPLATE.name


def _judge_template(file: ConfigFile, layout: LayoutSettings) -> None:
    """Refuse a template that cannot be read, and other keys of the file that contradict it."""
    if layout.key_layout != "template":
        return
    key = _find_template_key(file)
    try:
        names = compile_read_template(layout.file_name_template or "").names
    except ValueError as err:
        file.refuse(key, str(err))
        return
    for store in (STORE_KEYS, STORE_HEADERS):
        # The text and not the value, since formats that have no such objects accept any text without meaning.
        if file.text(store.name).casefold() == "true" and not names & {"start_offset", "end_offset"}:
            file.refuse(store.name, f"{key} tells no offset, by which they are told to belong to values")
    if SOURCE_TOPIC.name in file and "topic" in names:
        file.refuse(SOURCE_TOPIC.name, f"{key} tells the topic of each object; name the target in the restore")
