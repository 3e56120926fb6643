"""How objects of others were read, and what they do not hold: sentences for the report of a restore.

A verified restore has the records that were read. That the reading was right is said by nobody, so the report says how.
"""

from collections.abc import Iterator, Mapping

from kafka_s3_platform.config.settings import ConnectorConfig, LayoutSettings, SourceSettings
from kafka_s3_platform.formats.parts import ObjectPart

_EXACT_HEADERS = {"ByteArrayConverter", "StringConverter"}
_RECORDS: Mapping[str, str] = {
    "json": "a record a line",
    "lenses.json": "a record a line",
    "aiven.jsonl": "a record a line",
    "aiven.csv": "a record a line",
    "block_gzip": "a record a line",
    "aiven.json": "a record for each element of an array",
}
_MAPS = {"aiven.avro", "aiven.parquet"}


def how_read(layout: LayoutSettings, records: int, positions: int, unnamed: int, timeless: int) -> Iterator[str]:
    """What there is to say of so many records that were read by a layout.

    `positions` have no proven offset, of `unnamed` of them no name tells one; `timeless` have no timestamp.
    """
    if not records:
        return
    offsets = "offsets as the objects tell them"
    if positions:
        named = f"{positions - unnamed} by position from the one in the object's name" if positions > unnamed else ""
        counted = f"{unnamed} by position over all objects" if unnamed else ""
        told = f"{records - positions} as the objects tell them" if records > positions else ""
        offsets = f"offsets: {', '.join(filter(None, (told, named, counted)))}"
    times = "timestamps as the objects tell them" if not timeless else f"{timeless} records without a timestamp"
    yield (
        f"how objects were read: {_records(layout)}; {offsets}; {times}. Verified is that the target holds these"
        " records, not that this reading is right"
    )


def _records(layout: LayoutSettings) -> str:
    if layout.format == "bytes":
        by_length = layout.bytes_separator == "length"
        return "records by the length before each" if by_length else f"a record up to each {layout.bytes_separator!r}"
    return _RECORDS.get(layout.format, f"records as {layout.format} counts them")


def not_held(config: ConnectorConfig) -> Iterator[str]:
    """What objects that are read by these settings do not tell of their records."""
    source = config.source or SourceSettings()
    format_name = config.layout.format
    if not _holds(config, "key"):
        yield "this archive holds no keys: records were sent with a null key"
    if not _holds(config, "headers"):
        yield "this archive holds no headers: records were sent without"
    elif not config.layout.is_envelope and source.header_converter not in _EXACT_HEADERS:
        yield (
            f"values of headers are what the sink's {source.header_converter} made of them: by SimpleHeaderConverter,"
            " Connect's default, 007 became 7. header.converter names another"
        )
    if _holds(config, "headers") and format_name in _MAPS:
        yield "headers are a map here: of several with one name one is there, and their order is not"
    if format_name == "aiven.csv":
        key, value = (source.csv_empty or default for default in ("null", "refuse"))
        words = {"refuse": "bad"}
        yield (
            f"csv does not tell null from empty: an empty key was taken as {words.get(key, key)}, an empty value as"
            f" {words.get(value, value)} (archive.source.csv.empty)"
        )
    if "value" in source.base64 and format_name in {"json", "aiven.json", "aiven.jsonl"}:
        yield "values that are texts of JSON were read as base64, as sinks write what ByteArrayConverter read"


def _holds(config: ConnectorConfig, part: ObjectPart) -> bool:
    layout = config.layout
    # Lenses' envelopes have a place for each part, whatever their file promises.
    if layout.is_envelope or layout.format.startswith("lenses."):
        return True
    if layout.format.startswith("aiven."):
        return part in (config.source or SourceSettings()).fields
    return (layout.keys_format if part == "key" else layout.headers_format) is not None
