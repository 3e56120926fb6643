"""Reads the endings of objects' names, which show their content."""

import re
from collections.abc import Iterable, Mapping

from kafka_s3_platform.config.formats import find_format
from kafka_s3_platform.config.plugins import FORMAT, load_class
from kafka_s3_platform.config.settings import LayoutSettings
from kafka_s3_platform.formats.parts import ObjectPart
from kafka_s3_platform.layouts.segment_key import Refusal

# Confluent's sink puts these names before the extension of the format: `.keys.avro`, `.headers.avro`.
PART_NAMES: Mapping[str, ObjectPart] = {"keys": "key", "headers": "headers"}
# The indexes of Block-GZIP's sinks beside their objects.
_INDEXES = re.compile(r"(last_chunk_index\..*|.*\.index\.json)")

_MARKERS = re.compile(r"_SUCCESS|_(committed|started)_\d+|_(common_)?metadata|\..+\.crc|.+_\$folder\$")


def list_parts(layout: LayoutSettings) -> tuple[ObjectPart, ...]:
    """List the parts of records with an object of their own."""
    formats: Mapping[ObjectPart, str | None] = {
        "value": layout.format,
        "key": layout.keys_format,
        "headers": layout.headers_format,
    }
    return tuple(part for part, name in formats.items() if name)


def list_endings(layout: LayoutSettings, part: ObjectPart) -> tuple[str, ...]:
    """List the possible endings of names with any compression, the longest first. An empty ending fits all names."""
    format_name = {"value": layout.format, "key": layout.keys_format, "headers": layout.headers_format}[part] or ""
    if part == "value" and layout.extension is not None:
        endings = {f".{layout.extension.removeprefix('.')}"} if layout.extension else {""}
    else:
        endings = {f".{name}" for name in _list_extensions(format_name, layout)}
    prefix = next((f".{name}" for name, part_of_name in PART_NAMES.items() if part_of_name == part), "")
    return tuple(sorted((prefix + ending for ending in endings), key=lambda ending: (-len(ending), ending)))


def _list_extensions(format_name: str, layout: LayoutSettings) -> set[str]:
    if extensions := find_format(format_name).readable_extensions(layout.bytes_extension):
        return extensions
    extension: str = getattr(load_class(format_name, FORMAT), "extension", "")
    return {extension.removeprefix(".")}


def refuse_index(name: str) -> Refusal | None:
    """Refuse the indexes of Block-GZIP's sinks beside their objects.

    Call it only after a name is no object's: a topic may have such a name.
    """
    if _INDEXES.fullmatch(name):
        return Refusal("index", "it is an index of the blocks of others")
    return None


def is_marker(name: str) -> bool:
    """Return True for names of files of Spark, Hadoop or Parquet's tools beside objects, without records.

    Call it only after a name is no object's, or for empty objects.
    """
    return _MARKERS.fullmatch(name) is not None


def names_part(key: str) -> bool:
    """Return True for a key of an object of keys or headers, as Connect's sinks name them."""
    return bool(set(key.rsplit("/", 1)[-1].split(".")[1:]) & PART_NAMES.keys())


def refuse_ending(endings: Iterable[str]) -> Refusal:
    """Refuse a name without one of these endings."""
    allowed = tuple(endings)
    return Refusal("extension", f"its name does not end in {' or '.join(allowed)}", endings=allowed)
