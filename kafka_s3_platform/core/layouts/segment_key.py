"""Defines the parts of an object's key, and the interfaces of layouts, which read keys and mostly write them too.

A mapper (a user's transform) can make several records from one. The key of an object that begins between them has
`@<ordinal>` after the offset. The key of an object that replaces others has `+<epoch>`, the index version of its run,
so no key is ever used twice.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, TypeAlias

from kafka_s3_platform.core.config.formats import find_format
from kafka_s3_platform.core.config.plugins import FORMAT, load_class
from kafka_s3_platform.core.config.settings import LayoutSettings
from kafka_s3_platform.core.formats.parts import ObjectPart
from kafka_s3_platform.core.model.object_key import REWRITTEN
from kafka_s3_platform.core.partitioners.folders import Folders, TimeSpans, Window, new_folders

OFFSET = rf"(?P<start_offset>\d+){REWRITTEN}"
"""The pattern of a first offset, with an ordinal and an epoch if there are any, in every layout."""

EXTENSION = r"(?:\.(?P<extension>[a-zA-Z0-9_.-]+))?"

_OFFSETS = ".offsets"

Groups: TypeAlias = Mapping[str, str | None]
"""The text of each group of a match, or None for a missing group."""

Problem = Literal[
    "outside",
    "extension",
    "other_format",
    "unread_part",
    "index",
    "marker",
    "other_topic",
    "unparsable",
    "misplaced",
    "topic",
    "duplicate",
    "incomplete",
    "cold",
]
"""The reason for skipping an object, or for its line in the report."""

# Confluent's sink puts these names before the extension of the format: `.keys.avro`, `.headers.avro`.
PART_NAMES: Mapping[str, ObjectPart] = {"keys": "key", "headers": "headers"}

# The indexes of Block-GZIP's sinks beside their objects.
_INDEXES = re.compile(r"(last_chunk_index\..*|.*\.index\.json)")

_MARKERS = re.compile(r"_SUCCESS|_(committed|started)_\d+|_(common_)?metadata|\..+\.crc|.+_\$folder\$")


@dataclass(frozen=True, slots=True)
class SegmentKey:
    """The parts of a key. Writing joins them, parsing returns them.

    Attributes:
        topic: the topic in the path, perhaps renamed by a transform.
        encoded_partition: the folders, as the partitioner encoded them.
        kafka_partition: the kafka partition of the source topic.
        first_offset: the first record's offset in the source topic, or None for some read-only layouts.
        extension: the file extension, without its leading dot.
        epoch: the index version of the run, if the key contains it, else None.
        ordinal: the first record's place among the records a mapper made from its offset.
        hour_ms: the start of the records' hour (epoch ms), or None if out of range. The template layout writes it.
            No layout reads it back.
    """

    topic: str
    encoded_partition: str
    kafka_partition: int
    first_offset: int | None
    extension: str = ""
    epoch: int | None = None
    ordinal: int = 0
    hour_ms: int | None = None

    @property
    def after_offset(self) -> str:
        """The text after the first offset: `@` and the ordinal, `+` and the epoch, if there are any (see REWRITTEN)."""
        return (f"@{self.ordinal}" if self.ordinal else "") + ("" if self.epoch is None else f"+{self.epoch}")

    def offset_text(self, width: int) -> str:
        """Return the first offset, padded with zeros to `width`, and the text after it."""
        return f"{self.first_offset:0{width}d}{self.after_offset}"

    def with_extension(self, name: str) -> str:
        """Add the extension to the name of a file, if there is one."""
        return f"{name}.{self.extension}" if self.extension else name


@dataclass(frozen=True, slots=True)
class ReadKey:
    """The facts in a key.

    `part` is the part of the records in the object. `window` is the span of its records' times, and `last_offset` is
    the offset of its last record. Both are None if the key does not tell them.
    """

    segment: SegmentKey
    part: ObjectPart = "value"
    window: Window | None = None
    is_tombstone: bool = False
    last_offset: int | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """The refusal of an object's key. `read` has the facts told by the file name alone, or is None.

    `endings` are the possible endings, if the name does not have any of them.
    """

    problem: Problem
    reason: str
    read: ReadKey | None = None
    endings: tuple[str, ...] = ()


def build_segment_key(groups: Groups, topic: str, encoded_partition: str, extension: str) -> SegmentKey:
    """Build the key's parts from the groups of a match. `topic` is used if the pattern has no group for it."""
    offset = groups.get("start_offset")
    epoch = groups.get("epoch")
    return SegmentKey(
        topic=groups.get("topic") or topic,
        encoded_partition=encoded_partition,
        kafka_partition=int(groups.get("partition") or 0),
        first_offset=None if offset is None else int(offset),
        extension=extension,
        epoch=None if epoch is None else int(epoch),
        ordinal=int(groups.get("ordinal") or 0),
    )


def make_offsets_key(key: str, directory_delim: str) -> str:
    """Return the key for the offsets of the records in the object `key`."""
    # Query engines ignore files whose names begin with an underscore.
    folder, delim, name = key.rpartition(directory_delim)
    return f"{folder}{delim}_{name}{_OFFSETS}"


def is_offsets_key(key: str, directory_delim: str) -> bool:
    """Return True for keys from `make_offsets_key`."""
    return key.endswith(_OFFSETS) and key.rpartition(directory_delim)[2].startswith("_")


def strip_offsets_key(key: str, directory_delim: str) -> str:
    """Return the key of the object whose offsets are at `key`. Return any other key as it is."""
    if not is_offsets_key(key, directory_delim):
        return key
    folder, delim, name = key.removesuffix(_OFFSETS).rpartition(directory_delim)
    return f"{folder}{delim}{name[1:]}"


def explain_hidden_names(keys: Iterable[str]) -> list[str]:
    """Return a line about names in these keys that Spark, Hive and pyarrow leave out, or no line if there are none."""
    hidden = list(dict.fromkeys(name for key in keys for name in key.split("/") if name.startswith(("_", "."))))
    if not hidden:
        return []
    names = ", ".join(hidden[:3]) + (", ..." if len(hidden) > 3 else "")
    return [f"Spark, Hive and pyarrow leave out {names} if they read a folder. See docs/reading.md for a remedy"]


class KeyReader(ABC):
    """Reads the keys below `root`. `topic` is the topic of all objects if their keys do not tell it.

    Members needed only for reading are built at the first key, so a process that does not read loads no user's class.
    """

    def __init__(self, layout: LayoutSettings, topic: str = "") -> None:
        self._layout = layout
        self._topic = topic
        self.root = f"{layout.topics_dir}/" if layout.topics_dir else ""
        self.delimiter = "/"

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about facts the keys do not tell."""
        return ()

    def check_reading(self) -> None:  # noqa: B027  most layouts ask nothing
        """Raise ConfigError if keys cannot be read with these settings."""

    @abstractmethod
    def read(self, key: str) -> ReadKey | Refusal:
        """Read a key below `root`. Refuse extensions of other formats, and folders of other partitioners."""

    def find_span(self, _: str) -> Window | None:
        """Return the span of the times of all objects below a folder, or None if its name does not tell it.

        The folder lies below `root`, and ends without a delimiter.
        """
        return None

    @cached_property
    def _folders(self) -> Folders:
        return new_folders(self._layout)

    @cached_property
    def _spans(self) -> TimeSpans:
        return TimeSpans(self._layout)


class SegmentLayout(KeyReader):
    """A layout that also writes keys. A key is a pure function of a segment's first record and its folder.

    `read` is for layouts without objects of keys or headers. Others have their own.
    """

    def check_writing(self) -> None:
        """Raise ValueError if two objects could get the same key with these delimiters or this template."""

    @abstractmethod
    def key(self, segment: SegmentKey) -> str:
        """Write the key of the object."""

    @abstractmethod
    def parse(self, key: str) -> SegmentKey | None:
        """Parse a key with any folder and extension. Return None for a key of another layout."""

    def read(self, key: str) -> ReadKey | Refusal:
        """Read a key by the endings of the format's values, and by the partitioner's folders."""
        name = key.rpartition(self.delimiter)[2]
        ending = next((ending for ending in self._value_endings if name.endswith(ending)), None)
        if ending is None:
            return refuse_index(name) or refuse_ending(self._value_endings)
        segment = self.parse(key.removesuffix(ending))
        if segment is None or segment.extension:
            return refuse_index(name) or Refusal("unparsable", "its name has no kafka partition and first offset")
        folder = self._folders.folder(segment.encoded_partition)
        if folder is None:
            reason = f"its folder {segment.encoded_partition!r} is none of {self._layout.partitioner}'s"
            return Refusal("misplaced", reason)
        return ReadKey(replace(segment, extension=ending.removeprefix(".")), window=folder.window)

    @cached_property
    def _value_endings(self) -> tuple[str, ...]:
        return list_endings(self._layout, "value")


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
    """Return the extensions of the format with any compression, without the dot, or the extension of a user's class."""
    if extensions := find_format(format_name).readable_extensions(layout.bytes_extension):
        return extensions
    extension: str = getattr(load_class(format_name, FORMAT), "extension", "")
    return {extension.removeprefix(".")}


def refuse_index(name: str) -> Refusal | None:
    """Refuse an index of Block-GZIP's sinks.

    Call it only for a name that is no object's, since a topic may have such a name.
    """
    if _INDEXES.fullmatch(name):
        return Refusal("index", "it is an index of the blocks of others")
    return None


def is_marker(name: str) -> bool:
    """Return True for the name of a file that Spark, Hadoop or Parquet's tools put beside objects, without records.

    Call it only for a name that is no object's, or for empty objects.
    """
    return _MARKERS.fullmatch(name) is not None


def names_part(key: str) -> bool:
    """Return True if the key names an object of keys or headers, by the naming of Connect's sinks."""
    return bool(set(key.rsplit("/", 1)[-1].split(".")[1:]) & PART_NAMES.keys())


def refuse_ending(endings: Iterable[str]) -> Refusal:
    """Refuse a name with none of these endings."""
    allowed = tuple(endings)
    return Refusal("extension", f"its name does not end in {' or '.join(allowed)}", endings=allowed)
