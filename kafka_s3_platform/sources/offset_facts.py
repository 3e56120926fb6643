"""Reads facts about the offsets of an object before it is opened: from its metadata, or an object beside it."""

from dataclasses import dataclass

from kafka_s3_platform.config.formats import find_format
from kafka_s3_platform.config.settings import ConnectorConfig, SourceSettings
from kafka_s3_platform.errors import IntegrityError
from kafka_s3_platform.formats.kept_offsets import BESIDE, METADATA, REPEATED, KeptOffsets
from kafka_s3_platform.layouts.segment_key import make_offsets_key
from kafka_s3_platform.sources.objects import ForeignObject
from kafka_s3_platform.store.objects import ObjectInfo, ObjectStore
from kafka_s3_platform.store.upload import Provenance


@dataclass(frozen=True)
class OffsetFacts:
    """The number of records, the offset of the last one, and the offset of each. None: unknown.

    The last offset of a foreign object may come from its name.

    `is_ours`: this platform wrote the object. Then other objects may hold offsets between its own.
    """

    count: int | None = None
    last: int | None = None
    offsets: KeptOffsets | None = None
    is_ours: bool = False


RECORD_COUNT = "record-count"
"""The key of the number of records in the metadata of our own objects."""


def is_written_here(info: ObjectInfo) -> bool:
    """Return True if this platform wrote the object, by its metadata."""
    return RECORD_COUNT in info.metadata or Provenance.of(info) is not None


def has_record_offsets(config: ConnectorConfig) -> bool:
    """Return True if each record has its own offset, by the connector file."""
    source = config.source or SourceSettings()
    if config.layout.is_envelope or source.offset_field is not None:
        return True
    return find_format(config.layout.format).envelope is not None and "offset" in source.fields


def has_record_times(config: ConnectorConfig) -> bool:
    """Return True if objects hold the timestamps of their records, by the connector file."""
    source = config.source or SourceSettings()
    # Envelopes of other sinks hold timestamps only if their files list that field.
    has_times = find_format(config.layout.format).envelope is not None and "timestamp" in source.fields
    return config.layout.is_envelope or has_times or source.timestamp_field is not None


def names_bound_times(config: ConnectorConfig) -> bool:
    """Return True if the timestamps of records are within the time in the folder, or the name, of their object.

    Other folders come from a wall clock, or from a field.
    """
    layout = config.layout
    return layout.key_layout == "lenses" or (layout.is_envelope and layout.timestamp_extractor == "Record")


def read_offset_facts(config: ConnectorConfig, store: ObjectStore, item: ForeignObject) -> OffsetFacts:
    """Read the facts about the offsets of an object, with one request for its metadata.

    Raises:
        IntegrityError: the kept offsets contradict the object's name, or cannot be parsed.
    """
    info = store.head(item.key)
    if info is None:
        return OffsetFacts(last=item.last_offset)  # opening it will fail
    count, last = (_parse_number(info.metadata.get(name, "")) for name in (RECORD_COUNT, "last-offset"))
    entry = info.metadata.get(METADATA, "")
    text = _read_beside(config, store, item) if entry == BESIDE else "" if entry == REPEATED else entry
    if text:
        offsets = _parse_offsets(text, item, config.store.limits.block_bytes)
        return OffsetFacts(offsets.count, offsets.last, offsets, is_ours=True)
    last = item.last_offset if last is None else last
    return OffsetFacts(count, last, is_ours=bool(entry) or is_written_here(info))


def _read_beside(config: ConnectorConfig, store: ObjectStore, item: ForeignObject) -> str:
    """Read the offsets from the object beside this one. Return an empty text if that was lost."""
    key = make_offsets_key(item.key, config.layout.directory_delim)
    info = store.head(key)
    if info is None:
        return ""
    if info.size > config.store.limits.block_bytes:
        raise IntegrityError(f"object {key} has {info.size:,} bytes: it keeps no offsets of {item.key}")
    return store.get(key).decode(errors="replace")


def _parse_offsets(text: str, item: ForeignObject, most_bytes: int) -> KeptOffsets:
    try:
        offsets = KeptOffsets.parse(text, most_bytes)
    except ValueError as err:
        raise IntegrityError(f"object {item.key}: the list of its offsets cannot be read: {err}") from err
    if item.first_offset not in {None, offsets.first}:
        raise IntegrityError(
            f"object {item.key}: by its name it begins at offset {item.first_offset}, by the list of its offsets at "
            f"{offsets.first}: it is a copy of another object, or was renamed"
        )
    return offsets


def _parse_number(text: str) -> int | None:
    return int(text) if text.isdecimal() else None
