"""What decides the keys, the bounds and the bytes of objects, out of a connector file."""

from collections.abc import Mapping
from typing import Any, Literal

from kafka_s3_platform.config import values
from kafka_s3_platform.config.classes import PARTITIONER_CLASS, TIMESTAMP_EXTRACTOR
from kafka_s3_platform.config.dialects import Dialect
from kafka_s3_platform.config.mapping_names import key_settings
from kafka_s3_platform.config.mapping_output import output
from kafka_s3_platform.config.settings import LayoutSettings
from kafka_s3_platform.config.sheet import Sheet

Compatibility = Literal["NONE", "BACKWARD", "FORWARD", "FULL"]

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
DAY_PATH = "'year'=YYYY/'month'=MM/'day'=dd"
HOUR_PATH = DAY_PATH + "/'hour'=HH"
TIME_BASED = ("Hourly", "Daily", "TimeBased")
BLOCK_GZIP_PATH, ZOOZ_PATH = "YYYY-MM-dd", "'date'=YYYY-MM-dd/'hour'=HH"

_TIME_INTERVALS: Mapping[str, str] = {"HOURLY": "Hourly", "DAILY": "Daily"}
_OF_LAYOUTS: Mapping[str, str] = {"block_gzip": "Daily", "zooz": "Hourly"}
"""The partitioners whose folders those layouts have."""

_TIMESTAMP_SOURCES: Mapping[str, str] = {"WALLCLOCK": "Wallclock", "EVENT": "Record"}
_COMPATIBILITIES: tuple[Compatibility, ...] = ("NONE", "BACKWARD", "FORWARD", "FULL")


def layout_settings(sheet: Sheet, dialect: Dialect) -> LayoutSettings:
    """The layout of a connector file. What is refused stands at its default."""
    found = output(sheet, dialect)
    naming = key_settings(sheet, dialect, found)
    default = "Hourly" if found["format"].startswith("envelope.") else "Default"
    partitioner = _partitioner(sheet, dialect.partitioner or _OF_LAYOUTS.get(naming["key_layout"], default))
    return LayoutSettings(
        **found,
        **naming,
        **_folders(sheet, partitioner, naming),
        **_time(sheet, dialect, partitioner),
        **_rotation(sheet, dialect, partitioner),
        schema_compatibility=_compatibility(sheet, found["format"]),
    )


def _compatibility(sheet: Sheet, format_name: str) -> Compatibility:
    found: Compatibility = sheet.read("schema.compatibility", values.choice(_COMPATIBILITIES), "NONE")
    if format_name.startswith("envelope.") and "schema.compatibility" in sheet:
        sheet.without_meaning("schema.compatibility", "The envelope has one schema, whatever the values are.")
        return "NONE"
    return found


def _partitioner(sheet: Sheet, default: str) -> str:
    by_class = sheet.read("partitioner.class", PARTITIONER_CLASS, None)
    interval = sheet.read("time.interval", values.choice(_TIME_INTERVALS), "")
    if by_class and interval:
        sheet.refuse("time.interval", "partitioner.class says how records are grouped; keep one")
    return by_class or _TIME_INTERVALS.get(interval, default)


def _folders(sheet: Sheet, partitioner: str, naming: Mapping[str, Any]) -> dict[str, Any]:
    locale = sheet.read("locale", values.locale_id, "en")
    return {
        "partitioner": partitioner,
        "partition_fields": _fields(sheet, partitioner),
        "path_format": _path_format(sheet, partitioner, naming, locale),
        "locale": locale,
        "partition_duration_ms": _duration_ms(sheet, partitioner),
    }


def _fields(sheet: Sheet, partitioner: str) -> tuple[str, ...]:
    if partitioner == "Field":
        sheet.require("partition.field.name", "FieldPartitioner groups by it")
    elif "partition.field.name" in sheet and "." not in partitioner:
        sheet.without_meaning("partition.field.name", f"{partitioner}Partitioner reads no field.")
        return ()
    return sheet.read("partition.field.name", values.field_list, ())


def _path_format(sheet: Sheet, partitioner: str, naming: Mapping[str, Any], locale: str) -> str:
    default = DAY_PATH if partitioner == "Daily" else HOUR_PATH
    default = {"block_gzip": BLOCK_GZIP_PATH, "zooz": ZOOZ_PATH}.get(naming["key_layout"], default)
    if partitioner == "TimeBased":
        sheet.require("path.format", "TimeBasedPartitioner has no path of its own")
    elif partitioner in {"Default", "Field"} and "path.format" in sheet:
        sheet.without_meaning("path.format", f"{partitioner}Partitioner makes no time folders.")
        return default
    return sheet.read("path.format", values.path_format(locale, naming["directory_delim"]), default)


def _duration_ms(sheet: Sheet, partitioner: str) -> int:
    if partitioner == "TimeBased":
        sheet.require("partition.duration.ms", "TimeBasedPartitioner has no span of its own")
        return sheet.read("partition.duration.ms", values.integer(1), HOUR_MS)
    if "." in partitioner:
        return sheet.read("partition.duration.ms", values.integer(1), HOUR_MS)
    span = _span_ms(partitioner)
    if "partition.duration.ms" in sheet:
        what = f"span is always {span} ms" if partitioner in TIME_BASED else "folders have no span"
        sheet.without_meaning("partition.duration.ms", f"{partitioner}Partitioner's {what}.")
    return span


def _span_ms(partitioner: str) -> int:
    return DAY_MS if partitioner == "Daily" else HOUR_MS


def _time(sheet: Sheet, dialect: Dialect, partitioner: str) -> dict[str, Any]:
    extractor = _extractor(sheet, dialect)
    return {
        "timezone": sheet.read("timezone", values.timezone_id, "UTC"),
        "timestamp_extractor": extractor,
        "timestamp_field": _timestamp_field(sheet, extractor, partitioner),
    }


def _extractor(sheet: Sheet, dialect: Dialect) -> str:
    by_source = sheet.read("file.name.timestamp.source", values.choice(_TIMESTAMP_SOURCES), "")
    if by_source and "timestamp.extractor" in sheet:
        sheet.refuse("file.name.timestamp.source", "timestamp.extractor says which time counts; keep one")
    default = "Wallclock" if dialect.name == "aiven" else "Record"
    if dialect.name == "cloud" and "timestamp.field" in sheet:
        default = "RecordField"
    return sheet.read("timestamp.extractor", TIMESTAMP_EXTRACTOR, _TIMESTAMP_SOURCES.get(by_source, default))


def _timestamp_field(sheet: Sheet, extractor: str, partitioner: str) -> str | None:
    if extractor in {"Record", "Wallclock"}:
        if "timestamp.field" in sheet:
            sheet.without_meaning("timestamp.field", f"The extractor {extractor} reads no field.")
        return None
    if partitioner in {"Default", "Field"} and extractor == "RecordField":
        sheet.without_meaning("timestamp.extractor", f"{partitioner}Partitioner makes no time folders.")
    return sheet.read("timestamp.field", str, "timestamp" if extractor == "RecordField" else None)


def _rotation(sheet: Sheet, dialect: Dialect, partitioner: str) -> dict[str, Any]:
    interval_ms = _interval(sheet, dialect, "rotate.interval.ms")
    if dialect.name == "cloud" and "rotate.interval.ms" not in sheet:
        interval_ms = _span_ms(partitioner)
    if interval_ms and partitioner in {"Default", "Field"}:
        sheet.without_meaning("rotate.interval.ms", f"{partitioner}Partitioner has no times, as in Connect.")
        interval_ms = None
    return {
        "flush_size": sheet.read("flush.size", values.integer(1, 2**31 - 1), dialect.flush_size),
        "rotate_interval_ms": interval_ms,
        "rotate_schedule_interval_ms": _interval(sheet, dialect, "rotate.schedule.interval.ms"),
        "segment_bytes": sheet.read("archive.segment.bytes", values.integer(1), 268_435_456),
    }


def _interval(sheet: Sheet, dialect: Dialect, name: str) -> int | None:
    def parse(text: str) -> int | None:
        return None if text in {"-1", "0"} else values.integer(dialect.lowest_rotation_ms)(text)

    return sheet.read(name, parse, None)
