"""The keys for the folders, the bounds and the bytes of objects. Together they make up the layout."""

import re
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any, get_args

from kafka_s3_platform.connect.config.dialects import Dialect
from kafka_s3_platform.connect.config.keys import values
from kafka_s3_platform.connect.config.keys.config_file import ConfigFile
from kafka_s3_platform.connect.config.keys.converters import OWN_SCHEMAS, TEXT_KEYS
from kafka_s3_platform.connect.config.keys.names import NAME_KEYS, read_names
from kafka_s3_platform.connect.config.keys.output import FORMAT_KEYS, read_output
from kafka_s3_platform.connect.config.keys.table import (
    Key,
    TypedKey,
    declare_aliases,
    declare_key,
    declare_not_yet,
    declare_refused,
    declare_setting,
    declare_without_meaning,
)
from kafka_s3_platform.connect.config.keys.values import PARTITIONER_CLASS, TIMESTAMP_EXTRACTOR
from kafka_s3_platform.core.config.formats import find_format
from kafka_s3_platform.core.config.settings import DAY_PATH, HOUR_PATH, Compatibility, LayoutSettings
from kafka_s3_platform.core.java.joda_format import compile_path_format
from kafka_s3_platform.core.model.times import DAY_MS, HOUR_MS, TIME_BASED

BLOCK_GZIP_PATH = "YYYY-MM-dd"
ZOOZ_PATH = "'date'=YYYY-MM-dd/'hour'=HH"

_TIME_INTERVALS: Mapping[str, str] = {"HOURLY": "Hourly", "DAILY": "Daily"}
_OF_LAYOUTS: Mapping[str, str] = {"block_gzip": "Daily", "zooz": "Hourly"}
"""The partitioner that makes the folders of each of these layouts."""

_TIMESTAMP_SOURCES: Mapping[str, str] = {"WALLCLOCK": "Wallclock", "EVENT": "Record"}


def _expect_rotation(lowest_ms: int) -> values.Parser[int | None]:
    """Return a parser of an interval in ms, at least `lowest_ms`. It returns None (never) for -1 and 0."""

    def parse(text: str) -> int | None:
        if text in {"-1", "0"}:
            return None
        return values.expect_integer(lowest_ms)(text)

    return parse


PARTITIONER = declare_setting(
    LayoutSettings,
    "partitioner",
    "partitioner.class",
    PARTITIONER_CLASS,
    "How to group records into folders: `DefaultPartitioner`, `FieldPartitioner`, `HourlyPartitioner`,"
    " `DailyPartitioner` or `TimeBasedPartitioner`, by full or short name; or the dotted name of an allowed"
    " Python class, which runs as code. Objects end with their hour in any case.",
    shown="HourlyPartitioner for the envelope, else DefaultPartitioner",
)
TIME_INTERVAL = declare_key(
    "time.interval",
    values.expect_one_of(_TIME_INTERVALS),
    "Confluent Cloud's key for the partitioner: `HOURLY` or `DAILY`.",
    default="",
)
PARTITION_FIELDS: TypedKey[tuple[str, ...]] = declare_setting(
    LayoutSettings,
    "partition_fields",
    "partition.field.name",
    values.parse_fields,
    "Fields of the value that `FieldPartitioner` groups by, separated by commas; `a.b` is a nested field."
    " Required for this partitioner.",
)
PATH_FORMAT = declare_setting(
    LayoutSettings,
    "path_format",
    "path.format",
    values.expect_path_format(),
    "Joda pattern of the time folders. It applies to every time-based partitioner, as in Confluent Cloud;"
    " Connect's own Hourly and Daily partitioners overwrite it. `YYYY` is the year of era, never the week year.",
    shown=f"`{HOUR_PATH}`; Daily: without the hour; TimeBased: required",
)
PARTITION_DURATION = declare_setting(
    LayoutSettings,
    "partition_duration_ms",
    "partition.duration.ms",
    values.expect_integer(1),
    "Time span of a folder of `TimeBasedPartitioner`, in ms. It has no meaning for the other partitioners, whose"
    " span is fixed.",
    shown="an hour; Daily: a day; TimeBased: required",
)
LOCALE = declare_setting(
    LayoutSettings,
    "locale",
    "locale",
    values.parse_locale,
    "Locale for the names of months and days in `path.format`, such as `en` or `fr-FR`.",
)
TIMEZONE = declare_setting(
    LayoutSettings,
    "timezone",
    "timezone",
    values.parse_timezone,
    "Timezone of hours, days and folders, such as `Europe/Paris`, or a Java ID such as `PST`.",
)
EXTRACTOR = declare_setting(
    LayoutSettings,
    "timestamp_extractor",
    "timestamp.extractor",
    TIMESTAMP_EXTRACTOR,
    "Which time decides the folder: `Record` (the record's timestamp), `Wallclock` (Connect's default) or"
    " `RecordField`, by full or short name; or the dotted name of an allowed Python class, which runs as code.",
)
TIMESTAMP_SOURCE = declare_key(
    "file.name.timestamp.source",
    values.expect_one_of(_TIMESTAMP_SOURCES),
    "Aiven's key for the time that decides the folder: `WALLCLOCK`, or `EVENT`, the record's timestamp.",
    default="",
    shown="WALLCLOCK",
)
TIMESTAMP_FIELD = declare_key(
    "timestamp.field",
    str,
    "Field of the value that `RecordField` reads; `a.b` is a nested field. It holds epoch seconds or ms, an ISO"
    " 8601 time or a date. `S3_SINK` needs no extractor with it.",
    default="timestamp",
)
OUT_OF_RANGE_FOLDER = declare_setting(
    LayoutSettings,
    "out_of_range_folder",
    "archive.out.of.range.folder",
    str,
    "Folder of records that are [out of range](layouts.md#out-of-range). Spark, Hive and pyarrow leave out the default"
    " when they read a topic's folder; they see a name such as `out-of-range`.",
)
FLUSH_SIZE = declare_setting(
    LayoutSettings,
    "flush_size",
    "flush.size",
    values.expect_integer(1, 2**31 - 1),
    "An object ends after this many records. None: any number of records.",
    shown="none; 1000 for `S3_SINK`",
    for_sinks=True,
)
ROTATION = declare_setting(
    LayoutSettings,
    "rotate_interval_ms",
    "rotate.interval.ms",
    _expect_rotation(1),
    "An object ends before a record whose time is this many ms away from the time of its first record. At least"
    " 600000 for `S3_SINK`. `-1`: off.",
    shown="none; `S3_SINK`: the span of `time.interval`",
    for_sinks=True,
)
SCHEDULE = declare_setting(
    LayoutSettings,
    "rotate_schedule_interval_ms",
    "rotate.schedule.interval.ms",
    _expect_rotation(1),
    "How often to archive the open hour, in ms. Objects end with each such slot of their hour. At least 600000"
    " for `S3_SINK`. `-1`: off.",
    shown="-1",
    for_sinks=True,
)
SEGMENT_BYTES = declare_setting(
    LayoutSettings,
    "segment_bytes",
    "archive.segment.bytes",
    values.expect_integer(1),
    "An object ends after this many bytes of records, uncompressed.",
    for_sinks=True,
)
COMPATIBILITY: TypedKey[Compatibility] = declare_setting(
    LayoutSettings,
    "schema_compatibility",
    "schema.compatibility",
    values.expect_one_of(get_args(Compatibility)),
    "When another schema begins a new object: `NONE`, `BACKWARD`, `FORWARD` or `FULL`. `NONE` differs from Connect's:"
    " each schema has objects of its own beside those of others, and none ends at a change.",
    for_sinks=True,
)

PATH_KEYS: tuple[Key, ...] = (
    *NAME_KEYS,
    PARTITIONER,
    TIME_INTERVAL,
    PARTITION_FIELDS,
    PATH_FORMAT,
    PARTITION_DURATION,
    LOCALE,
    TIMEZONE,
    *declare_aliases("Aiven's", "file.name.timestamp.timezone=timezone"),
    EXTRACTOR,
    TIMESTAMP_SOURCE,
    TIMESTAMP_FIELD,
    OUT_OF_RANGE_FOLDER,
)

ROTATION_KEYS: tuple[Key, ...] = (
    FLUSH_SIZE,
    *declare_aliases("Aiven's", "file.max.records=flush.size"),
    ROTATION,
    SCHEDULE,
    COMPATIBILITY,
)

LAYOUT_KEYS: tuple[Key, ...] = (
    *FORMAT_KEYS,
    *PATH_KEYS,
    *ROTATION_KEYS,
    *declare_without_meaning(OWN_SCHEMAS, "connect.meta.data enhanced.avro.schema.support"),
    *declare_without_meaning(TEXT_KEYS, "allow.optional.map.keys"),
    *declare_without_meaning("A run keeps its schemas.", "schema.cache.size schemas.cache.config"),
    *declare_without_meaning(
        "Open writers and buffers have limits without it.", "partitioner.max.open.files local.buffer.dir"
    ),
    *declare_without_meaning(
        "An object holds the records of one folder, and ends where they end.", "rotate.file.on.partition.change"
    ),
    *declare_without_meaning("Belongs to `hive.integration`.", "hive.*"),
    declare_not_yet("s3.schema.partition.affix.type", "folders do not name schemas", "NONE"),
    declare_refused(
        "storage.class",
        "objects go to S3, or to what speaks its protocol at `store.url`",
        "S3Storage",
        "io.confluent.connect.s3.storage.S3Storage",
    ),
    declare_refused(
        "schema.generator.class",
        "it makes Hive's schemas, and Java classes cannot run here",
        "DefaultSchemaGenerator",
        "TimeBasedSchemaGenerator",
        "io.confluent.connect.storage.hive.schema.DefaultSchemaGenerator",
        "io.confluent.connect.storage.hive.schema.TimeBasedSchemaGenerator",
    ),
    declare_refused("hive.integration", "no Hive metastore is written to", "false"),
)


def read_layout(file: ConfigFile, dialect: Dialect) -> LayoutSettings:
    """Read the layout of a connector file. A refused key gets its default."""
    output = read_output(file, dialect)
    naming = read_names(file, dialect, output)
    default = "Hourly" if find_format(output["format"]).is_envelope else "Default"
    partitioner = _read_partitioner(file, dialect.partitioner or _OF_LAYOUTS.get(naming["key_layout"], default))
    layout = file.fill(
        LayoutSettings,
        **output,
        **naming,
        partitioner=partitioner,
        partition_fields=_read_partition_fields(file, partitioner),
        path_format=_read_path_format(file, partitioner, naming),
        partition_duration_ms=_read_duration(file, partitioner),
        **_read_time(file, dialect, partitioner, naming),
        **_read_rotation(file, dialect, partitioner),
        schema_compatibility=_read_compatibility(file, output["format"]),
    )
    _check_out_of_range_folder(file, layout)
    # It has its default in layouts in which it has no meaning.
    return layout.model_copy(update={"out_of_range_folder": file.value(OUT_OF_RANGE_FOLDER)})


def _check_out_of_range_folder(file: ConfigFile, layout: LayoutSettings) -> None:
    """Refuse a folder for records out of range if it is no plain name, or if other records could get it."""
    encode = compile_path_format(layout.path_format, layout.locale, layout.directory_delim)
    folders = [encode(datetime(2024, month, 1, tzinfo=timezone.utc)) for month in range(1, 13)]
    taken = {layout.tombstone_partition, *(folder.split(layout.directory_delim)[0] for folder in folders)}
    name = layout.out_of_range_folder
    if not layout.has_out_of_range_folder:
        file.ignore_if_set((OUT_OF_RANGE_FOLDER.name,), "No folder of this layout tells that records are out of range.")
    elif name in taken or not re.fullmatch(f"[A-Za-z][A-Za-z._-]*|{OUT_OF_RANGE_FOLDER.unset}", name):
        why = "it is the folder of other records, or no name of letters, `-`, `_` and `.` that begins with a letter"
        file.refuse(OUT_OF_RANGE_FOLDER.name, f"{why}: write a name such as out-of-range")


def _read_compatibility(file: ConfigFile, format_name: str) -> Compatibility:
    """Read when a new schema begins a new object. The envelope has one schema, so the key has no meaning there."""
    compatibility = file.value(COMPATIBILITY)
    if find_format(format_name).is_envelope and COMPATIBILITY.name in file:
        file.ignore(COMPATIBILITY.name, "The envelope has one schema, whatever the values are.")
        return "NONE"
    return compatibility


def _read_partitioner(file: ConfigFile, default: str) -> str:
    """Read the partitioner, by its class or by Confluent Cloud's word. It groups records into folders."""
    by_class = file.value_or(PARTITIONER, None)
    interval = file.value(TIME_INTERVAL)
    if by_class and interval:
        file.refuse(TIME_INTERVAL.name, "partitioner.class says how records are grouped; keep one")
    return by_class or _TIME_INTERVALS.get(interval, default)


def _read_partition_fields(file: ConfigFile, partitioner: str) -> tuple[str, ...]:
    """Read the fields to group by. Only FieldPartitioner and users' own partitioners have any."""
    if partitioner == "Field":
        file.require(PARTITION_FIELDS.name, "FieldPartitioner groups by it")
    elif PARTITION_FIELDS.name in file and "." not in partitioner:
        file.ignore(PARTITION_FIELDS.name, f"{partitioner}Partitioner reads no field.")
        return ()
    return file.value(PARTITION_FIELDS)


def _read_path_format(file: ConfigFile, partitioner: str, naming: Mapping[str, Any]) -> str:
    """Read the pattern of time folders. A partitioner that makes none gets the default, but does not use it."""
    default = DAY_PATH if partitioner == "Daily" else HOUR_PATH
    default = {"block_gzip": BLOCK_GZIP_PATH, "zooz": ZOOZ_PATH}.get(naming["key_layout"], default)
    if partitioner == "TimeBased":
        file.require(PATH_FORMAT.name, "TimeBasedPartitioner has no path of its own")
    elif partitioner in {"Default", "Field"} and PATH_FORMAT.name in file:
        file.ignore(PATH_FORMAT.name, f"{partitioner}Partitioner makes no time folders.")
        return default
    parse = values.expect_path_format(file.value(LOCALE), naming["directory_delim"])
    return file.read(PATH_FORMAT.name, parse, default)


def _read_duration(file: ConfigFile, partitioner: str) -> int:
    """Read the time span of a folder, in ms. Only TimeBasedPartitioner and users' own partitioners can set it."""
    if partitioner == "TimeBased":
        file.require(PARTITION_DURATION.name, "TimeBasedPartitioner has no span of its own")
        return file.value(PARTITION_DURATION)
    if "." in partitioner:
        return file.value(PARTITION_DURATION)
    span = _find_span(partitioner)
    if PARTITION_DURATION.name in file:
        what = f"span is always {span} ms" if partitioner in TIME_BASED else "folders have no span"
        file.ignore(PARTITION_DURATION.name, f"{partitioner}Partitioner's {what}.")
    return span


def _find_span(partitioner: str) -> int:
    return DAY_MS if partitioner == "Daily" else HOUR_MS


def _read_time(file: ConfigFile, dialect: Dialect, partitioner: str, naming: Mapping[str, Any]) -> dict[str, Any]:
    """Read the kind of time that decides a record's folder, and the field that holds it, if any."""
    extractor = _read_extractor(file, dialect)
    if extractor == "RecordField" and partitioner in {"Default", "Field"} and naming["key_layout"] != "template":
        reason = f"{partitioner}Partitioner makes no time folders."
        file.ignore_if_set((EXTRACTOR.name, TIMESTAMP_FIELD.name), reason)
        extractor = "Record"
    return {"timestamp_extractor": extractor, "timestamp_field": _read_timestamp_field(file, extractor)}


def _read_extractor(file: ConfigFile, dialect: Dialect) -> str:
    """Read the kind of time that decides the folder, by its class or by Aiven's word."""
    by_source = file.value(TIMESTAMP_SOURCE)
    if by_source and EXTRACTOR.name in file:
        file.refuse(TIMESTAMP_SOURCE.name, "timestamp.extractor says which time counts; keep one")
    # Aiven's sink uses the wall clock by default. In a file of S3_SINK, a field needs no extractor beside it.
    default = "Wallclock" if dialect.name == "aiven" else "Record"
    if dialect.name == "cloud" and TIMESTAMP_FIELD.name in file:
        default = "RecordField"
    return file.value_or(EXTRACTOR, _TIMESTAMP_SOURCES.get(by_source, default))


def _read_timestamp_field(file: ConfigFile, extractor: str) -> str | None:
    """Read the field with a record's time. Return None if there is none."""
    if extractor in {"Record", "Wallclock"}:
        file.ignore_if_set((TIMESTAMP_FIELD.name,), f"The extractor {extractor} reads no field.")
        return None
    return file.value_or(TIMESTAMP_FIELD, TIMESTAMP_FIELD.unset if extractor == "RecordField" else None)


def _read_rotation(file: ConfigFile, dialect: Dialect, partitioner: str) -> dict[str, Any]:
    """Read the limits after which an object ends: its number of records, and its spans of time."""
    interval_ms = _read_rotation_key(file, dialect, ROTATION)
    # S3_SINK ends objects with its `time.interval` by default.
    if dialect.name == "cloud" and ROTATION.name not in file:
        interval_ms = _find_span(partitioner)
    if interval_ms and partitioner in {"Default", "Field"}:
        file.ignore(ROTATION.name, f"{partitioner}Partitioner has no times, as in Connect.")
        interval_ms = None
    # To Aiven's sink, 0 means any number of records.
    is_unbounded = dialect.name == "aiven" and file.text(FLUSH_SIZE.name) == "0"
    return {
        "flush_size": None if is_unbounded else file.value_or(FLUSH_SIZE, dialect.flush_size),
        "rotate_interval_ms": interval_ms,
        "rotate_schedule_interval_ms": _read_rotation_key(file, dialect, SCHEDULE),
    }


def _read_rotation_key(file: ConfigFile, dialect: Dialect, key: TypedKey[int | None]) -> int | None:
    """Read an interval in ms. Return None if it is off. `S3_SINK` does not allow short ones."""
    return file.read(key.name, _expect_rotation(dialect.lowest_rotation_ms), key.unset)
