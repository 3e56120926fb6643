"""Defines the parts of an object's key, the same for every layout, and the key of its records' offsets.

A mapper can make several records from one. The key of an object that begins between them has `@<ordinal>` after the
offset. The key of an object in place of others has `+<epoch>`. So no key is ever used twice.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from kafka_s3_platform.config.name_templates import REWRITTEN
from kafka_s3_platform.formats.parts import ObjectPart
from kafka_s3_platform.partitioners.folders import Window

OFFSET = rf"(?P<start_offset>\d+){REWRITTEN}"
"""A first offset, with an ordinal and an epoch if there are, in every layout."""

EXTENSION = r"(?:\.(?P<extension>[a-zA-Z0-9_.-]+))?"

_OFFSETS = ".offsets"

Groups: TypeAlias = Mapping[str, str | None]
"""The text of each group of a match, None for missing groups."""

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


@dataclass(frozen=True, slots=True)
class SegmentKey:
    """The parts of a key. Writing joins them, parsing returns them.

    Attributes:
        topic: the topic in the path, perhaps renamed by a transform.
        encoded_partition: the folders, as the partitioner encoded them.
        kafka_partition: of the source topic.
        first_offset: of the source topic. None for some read-only layouts.
        extension: without a dot before it.
        epoch: of a segment in place of others.
        ordinal: the place of the first record among a mapper's records of its offset.
        hour_ms: the start of the records' hour (epoch ms), None if it is out of range. The template layout writes it.
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
        """The text after the first offset: ordinal and epoch. See REWRITTEN."""
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

    `part` is the part of the records in the object. `window` is the span of its records' times. `last_offset` is the
    offset of its last record. Both are None if the key does not hold them.
    """

    segment: SegmentKey
    part: ObjectPart = "value"
    window: Window | None = None
    is_tombstone: bool = False
    last_offset: int | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """The refusal of an object's key. `read` has the facts in the file name alone, None without any.

    `endings` are the possible endings, if the name has none of them.
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
    """Return the key of the object with its offsets at `key`. Return any other key as it is."""
    if not is_offsets_key(key, directory_delim):
        return key
    folder, delim, name = key.removesuffix(_OFFSETS).rpartition(directory_delim)
    return f"{folder}{delim}{name[1:]}"


def explain_hidden_names(keys: Iterable[str]) -> list[str]:
    """Explain the parts of these keys hidden from Spark, Hive and pyarrow in a folder: nothing, or a line."""
    hidden = list(dict.fromkeys(name for key in keys for name in key.split("/") if name.startswith(("_", "."))))
    shown = ", ".join(hidden[:3]) + ", ..." * (len(hidden) > 3)
    line = f"Spark, Hive and pyarrow leave out {shown} if they read a folder. See docs/reading.md for a remedy"
    return [line] * bool(hidden)
