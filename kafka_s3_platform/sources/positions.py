"""Offsets of records that no object tells: positions, counted from the first offset in the name of their object.

And what names and counts prove of the objects: that records would come twice, that they lay between one another, that
offsets between two objects have none.
"""

import re
from dataclasses import dataclass, field

import numpy as np

from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.formats.reading import ReadBatch
from kafka_s3_platform.model.connect import Int64s
from kafka_s3_platform.sources.objects import ForeignObject, ObjectGroup
from kafka_s3_platform.sources.told import ToldOffsets

_VARIABLE = re.compile(r"\{\{\s*(\w+)")
_ONE = {"topic", "partition", "start_offset", "end_offset"}
_KNOWN = {*_ONE, "timestamp", "any"}

Folder = tuple[object, ...]


class Folders:
    """In which folders of a group each object ends before the next one begins, as sinks write them."""

    def __init__(self, config: ConnectorConfig, group: ObjectGroup) -> None:
        layout = config.layout
        has_template = layout.key_layout == "template"
        names = set(_VARIABLE.findall(layout.file_name_template or "")) if has_template else set[str]()
        is_default = layout.partitioner == "Default" and layout.key_layout == "connect"
        is_one = names <= _ONE if has_template else is_default
        # Lenses' names are those of one folder each, whatever it is partitioned by, and tell times of their own.
        self._has_own_times = layout.key_layout == "lenses"
        if self._has_own_times:
            is_one = len({s.name.encoded_partition for s in group.sets}) == 1
        self.is_one = is_one and not any(s.name.is_tombstone for s in group.sets)
        """All objects are in one folder: what is in none of them was in no object."""
        self._is_known = names <= _KNOWN

    def of(self, item: ForeignObject) -> Folder | None:
        """The folder of an object; None where others of it may hold records that lay between its own."""
        window = None if self._has_own_times else item.window
        return (item.encoded_partition, window) if self._is_known else None


@dataclass(frozen=True)
class Extent:
    """What is known of where an object's records lie: the first at `first` or before it, all before `end`.

    `first` is -1 where nothing tells it. `is_dense`: between the first and the last offset that are told is no hole.
    """

    first: int
    end: int
    is_dense: bool


def extent_of(item: ForeignObject, told: ToldOffsets, count: int) -> Extent:
    """Of an object with so many records, by its name and what is told of it."""
    first, last = item.first_offset, told.last
    if first is not None:
        end = first + count if last is None else last + 1
        return Extent(first, end, is_dense=last is not None and end - first == count)
    return Extent(-1, 0, is_dense=False) if last is None else Extent(last + 1 - count, last + 1, is_dense=False)


@dataclass
class Reach:
    """How far the records of a group reach.

    `next` is where the next position is, at the earliest. `reached` is behind all offsets that records are known to
    have, `blurred` behind those that objects do not tell, and where they were put. `ends` are the objects' in each
    folder. `is_whole` says that the object before was read, so that what follows it is known.
    """

    next: int = 0
    reached: int = 0
    blurred: int = 0
    is_whole: bool = False
    ends: dict[Folder, int] = field(default_factory=dict)

    def offsets(self, first: int, found: ReadBatch) -> Int64s:
        """Those of a batch of an object that begins at `first`, by its name.

        They are real where they are told and ascend; the others go on from the one before.
        """
        size = len(found)
        told = np.full(size, -1, np.int64) if found.offsets is None else found.offsets
        # Positions count from `base`: a record is at the greatest of what was told of it and what went before.
        base = np.where(told >= 0, told - np.arange(size), -(2**62))
        base[0] = max(base[0], self.next, first if told[0] < 0 else -1)
        offsets: Int64s = np.maximum.accumulate(base) + np.arange(size)
        self.put(int(offsets[-1]) + 1)
        return offsets

    def put(self, end: int) -> None:
        """The next position is there."""
        self.next, self.blurred = end, max(self.blurred, end)

    def told(self, last: int) -> None:
        """An object that tells its records' offsets has records up to this one."""
        self.next, self.reached = max(self.next, last + 1), max(self.reached, last + 1)
        self.is_whole = True

    def counted(self, end: int, folder: Folder | None) -> None:
        """An object that does not has records up to this offset at least."""
        self.reached, self.blurred = max(self.reached, end), max(self.blurred, end)
        self.is_whole = True
        if folder is not None:
            self.ends[folder] = max(self.ends.get(folder, 0), end)
