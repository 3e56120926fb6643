"""Explains for the report of a restore how foreign objects were read, and what they do not hold.

A verified restore proves that the target holds the records read from objects. Nothing proves that this reading was
right, so the report explains it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence

from kafka_s3_platform.config.formats import find_format
from kafka_s3_platform.config.settings import ConnectorConfig, LayoutSettings, SourceSettings
from kafka_s3_platform.formats.parts import ObjectPart

_MAPS = {"aiven.avro", "aiven.parquet"}


def explain_reading(layout: LayoutSettings, records: int, positions: int, unnamed: int, timeless: int) -> Iterator[str]:
    """Explain how this number of records was read with a layout.

    `positions` counts records without a proven offset. For `unnamed` of these, no object name gives an offset either.
    `timeless` counts records without a timestamp.
    """
    if not records:
        return
    offsets = "offsets from the objects"
    if positions:
        named = (
            f"{positions - unnamed} by position from the one in the object's name, as if it had no holes"
            if positions > unnamed
            else ""
        )
        counted = f"{unnamed} by position over all objects" if unnamed else ""
        exact = f"{records - positions} from the objects" if records > positions else ""
        offsets = f"offsets: {', '.join(filter(None, (exact, named, counted)))}"
    times = "timestamps from the objects" if not timeless else f"{timeless} records without a timestamp"
    yield (
        f"how objects were read: {_explain_records(layout)}; {offsets}; {times}. Verified is that the target holds"
        " these records, not that this reading is right"
    )


def _explain_records(layout: LayoutSettings) -> str:
    if layout.format == "bytes":
        by_length = layout.bytes_separator == "length"
        if by_length:
            return "records by the length before each"
        return f"a record up to each {layout.bytes_separator!r}"
    return find_format(layout.format).counted or f"records as {layout.format} counts them"


_AIVEN = {"key", "value", "offset", "timestamp", "headers"}
_LENSES = {"key", "value", "headers", "metadata", "keyIsArray", "valueIsArray"}
_PLACE = {"topic", "partition", "offset", "timestamp", "headers", "key"}
_CONTENT = {"value", "payload", "content", "message", "data", "body"}
_MOST_BYTES = 1_048_576
"""The longest text to parse."""


def explain_doubt(config: ConnectorConfig, values: Sequence[object]) -> str:
    """Explain why an object's values look like more than values. Empty if they do not."""
    if find_format(config.layout.format).envelope is not None:
        return ""
    first = _look_into(next((value for value in values if value is not None), None))
    if isinstance(first, list) and len(values) == 1 and len(first) > 1:
        return (
            f"an object holds one record, which is a JSON array of {len(first):,} elements, and is sent as one. If "
            f"each element is a record, read it with a file of Aiven's class: format.output.type=json and "
            f"format.output.envelope=false"
        )
    names = set(first) if isinstance(first, Mapping) else set[str]()
    metadata = first.get("metadata") if isinstance(first, Mapping) else None
    if names <= _LENSES and isinstance(metadata, Mapping) and {"topic", "partition", "offset"} <= set(metadata):
        how = "Lenses' ('store.envelope'=true in the KCQL, or input.format=lenses.*)"
    elif names <= _AIVEN and "value" in names and len(names) > 1:
        how = "Aiven's (format.output.envelope=true and format.output.fields)"
    elif names & _CONTENT and len({str(name).removeprefix("kafka_") for name in names} & _PLACE) > 1:
        how = "another tool's: copy its objects as values alone, or as one of the envelopes that are read"
    else:
        return ""
    return (
        f"values have the fields {', '.join(sorted(names))}, as whole records in an envelope have, and by the "
        f"connector's file they are sent as values alone. If it is an envelope, it is {how}"
    )


def _look_into(value: object) -> object:
    """Parse a text of JSON, whatever its converter. Return all else as it is."""
    if not isinstance(value, str | bytes) or len(value) > _MOST_BYTES:
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def explain_missing(config: ConnectorConfig) -> Iterator[str]:
    """Explain which data of records objects with these settings do not hold."""
    source = config.source or SourceSettings()
    format_name = config.layout.format
    if not _has_part(config, "key"):
        yield "by the connector's file, objects hold no keys: records are sent with a null key"
    if not _has_part(config, "headers"):
        yield "by the connector's file, objects hold no headers: records are sent without"
    elif not config.layout.is_envelope and source.header_converter != "ByteArrayConverter":
        yield (
            f"values of headers that another sink wrote are what its {source.header_converter} made of them: bytes that"
            " are no UTF-8 became U+FFFD, and by SimpleHeaderConverter, Connect's default, 007 became 7"
            " (header.converter names another). Those that a sink here wrote come back as they were"
        )
    if _has_part(config, "headers") and format_name in _MAPS:
        yield "headers are a map here: of several with one name one is there, and their order is not"
    row = find_format(format_name)
    converter = config.records.value
    if (
        converter.format == "JSON"
        and converter.schemas_enable
        and not (row.needs_schema or row.envelope or row.is_plugin)
    ):
        yield 'objects hold no schemas: by the file\'s JsonConverter, values are sent with "schema": null'
    if "value" in source.base64 and row.has_base64:
        yield "values that are texts of JSON were read as base64, as sinks write what ByteArrayConverter read"


def _has_part(config: ConnectorConfig, part: ObjectPart) -> bool:
    layout = config.layout
    envelope = find_format(layout.format).envelope
    # Lenses' envelopes have a field for each part, whatever the connector file says.
    if envelope in {"ours", "lenses"}:
        return True
    if envelope == "aiven":
        return part in (config.source or SourceSettings()).fields
    return (layout.keys_format if part == "key" else layout.headers_format) is not None
