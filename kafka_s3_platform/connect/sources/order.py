"""Puts records of foreign objects in order: counts positions for records without offsets, and joins the others.

A *group* is the objects of one kafka partition. Names and counts also show records read twice, overlapping objects, and
offsets missing between two objects.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from kafka_s3_platform.connect.sources.objects import ForeignObject, ObjectGroup, OffsetFacts
from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.formats.merge import BatchSteps
from kafka_s3_platform.core.formats.reading import ReadBatch
from kafka_s3_platform.core.model.connect import NO_SCHEMA, ConnectBatch, Int64s, Payload, Positions, Schema

_VARIABLE = re.compile(r"\{\{\s*(\w+)")
_UNIQUE_VARIABLES = {"topic", "partition", "start_offset", "end_offset"}
_KNOWN_VARIABLES = {*_UNIQUE_VARIABLES, "timestamp", "any"}

FolderKey = tuple[object, ...]


class GroupFolders:
    """Finds the folders of a group's objects. Within a folder, sinks end each object before the next one begins.

    If `is_one_folder`, all objects are in one folder, so an offset between two of them is in no object. `next_offsets`
    maps the key of an object to the first offset of the next object in its folder. All its own offsets are lower.
    """

    def __init__(self, config: ConnectorConfig, group: ObjectGroup) -> None:
        layout = config.layout
        has_template = layout.key_layout == "template"
        variables = set(_VARIABLE.findall(layout.file_name_template or "")) if has_template else set[str]()
        is_default = layout.partitioner == "Default" and layout.key_layout == "connect"
        is_one_folder = variables <= _UNIQUE_VARIABLES if has_template else is_default
        # Lenses has no `partitioner`, but its names show the folders. The window in a name belongs only to that object.
        self._has_own_times = layout.key_layout == "lenses"
        if self._has_own_times:
            is_one_folder = len({s.name.encoded_partition for s in group.sets}) == 1
        self.is_one_folder = is_one_folder and not any(s.name.is_tombstone for s in group.sets)
        self._are_folders_known = variables <= _KNOWN_VARIABLES
        self.next_offsets: dict[str, int] = {}
        last_keys: dict[FolderKey, str] = {}
        for item in (s.name for s in group.sets if s.name.first_offset is not None):
            folder = self.find_folder(item)
            if folder in last_keys and item.first_offset is not None:
                self.next_offsets[last_keys[folder]] = item.first_offset
            if folder is not None:
                last_keys[folder] = item.key

    def find_folder(self, item: ForeignObject) -> FolderKey | None:
        """Return the folder of an object, or None if objects of the same folder may overlap."""
        window = None if self._has_own_times else item.window
        return (item.encoded_partition, window) if self._are_folders_known else None


@dataclass(frozen=True)
class PositionBounds:
    """Bounds of the offsets of an object: its first record is at `first` or before it, and all are before `end`.

    `first` is None if it is unknown, and below 0 if a name has fewer offsets than its object has records. If
    `is_dense`, there is no hole between a known first and last offset. If `has_known_last`, a record is at `end - 1`.
    """

    first: int | None
    end: int
    is_dense: bool
    has_known_last: bool = False


def find_bounds(item: ForeignObject, facts: OffsetFacts, count: int, end_in_folder: int | None) -> PositionBounds:
    """Find the bounds of an object with `count` records, from its name, its metadata and the next object's name."""
    first = item.first_offset
    last = facts.last
    if first is not None:
        end = first + count if last is None else last + 1
        # This platform's objects may hold offsets between one another.
        is_full = first + count == end_in_folder and not facts.is_ours
        return PositionBounds(first, end, is_full or (last is not None and end - first == count), last is not None)
    if last is None:
        return PositionBounds(None, 0, is_dense=False)
    return PositionBounds(last + 1 - count, last + 1, is_dense=False)


@dataclass
class OffsetProgress:
    """The progress in reading a group's records, to go on counting positions and to find gaps and overlaps.

    A position is an offset that was counted, because the record's own is unknown.

    Attributes:
        next: the lowest possible offset of the next position.
        known_end: the offset after all known offsets.
        uncertain_end: the offset after all records whose offsets are unknown, and after their positions.
        can_show_gap: True if the object before was read, so a gap after it can be recognized.
        ends: the end of the objects in each folder.
        dense_end: the end of all objects that have no hole.
        last_offsets: the known last offsets of objects.
    """

    next: int = 0
    known_end: int = 0
    uncertain_end: int = 0
    can_show_gap: bool = False
    ends: dict[FolderKey, int] = field(default_factory=dict)
    dense_end: int = 0
    last_offsets: list[int] = field(default_factory=list)

    def assign_offsets(self, first: int | None, batch: ReadBatch) -> Int64s:
        """Return the offsets of a batch. `first` is the first offset in its object's name, or None.

        Records keep their own offsets if these ascend. The others are counted on from the record before.
        """
        size = len(batch)
        own_offsets = np.full(size, -1, np.int64) if batch.offsets is None else batch.offsets
        # `base` is the offset minus the row. Its running maximum keeps known offsets, and counts on after them.
        base = np.where(own_offsets >= 0, own_offsets - np.arange(size), -(2**62))
        base[0] = max(base[0], self.next, first if first is not None and own_offsets[0] < 0 else -1)
        offsets: Int64s = np.maximum.accumulate(base) + np.arange(size)
        self.set_next(int(offsets[-1]) + 1)
        return offsets

    def set_next(self, end: int) -> None:
        """Set the next position to `end`."""
        self.next = end
        self.uncertain_end = max(self.uncertain_end, end)

    def note_offsets(self, last: int) -> None:
        """Add an object with known offsets up to `last`."""
        self.next = max(self.next, last + 1)
        self.known_end = max(self.known_end, last + 1)
        self.can_show_gap = True

    def find_shared(self, bounds: PositionBounds, item: ForeignObject) -> int | None:
        """Find an offset that is certainly in this object and in one before it. Objects come by first offset."""
        if item.first_offset is None:
            return None
        if item.first_offset < self.dense_end:
            return item.first_offset
        inner_offsets = (
            last for last in self.last_offsets if bounds.is_dense and item.first_offset <= last < bounds.end
        )
        return next(inner_offsets, None)

    def note_bounds(self, bounds: PositionBounds, folder: FolderKey | None) -> None:
        """Add an object without known offsets, whose records reach at least the end of `bounds`."""
        end = bounds.end
        if bounds.is_dense:
            self.dense_end = max(self.dense_end, end)
        elif bounds.has_known_last and bounds.first is not None:
            # No later object begins before this one.
            self.last_offsets = [*(last for last in self.last_offsets if last >= bounds.first), end - 1]
        self.known_end = max(self.known_end, end)
        self.uncertain_end = max(self.uncertain_end, end)
        self.can_show_gap = True
        if folder is not None:
            self.ends[folder] = max(self.ends.get(folder, 0), end)


def _join_rows(batches: Sequence[ConnectBatch], order: Positions) -> Iterator[ConnectBatch]:
    """Take the rows of all batches at the positions `order`."""
    key, value = (_join_payloads([getattr(batch, name) for batch in batches]) for name in ("key", "value"))
    if key is not None and value is not None:
        records = pa.concat_batches([batch.records for batch in batches])
        yield ConnectBatch(records, key, value).take(order)
        return
    # Payloads of several kinds cannot be joined, so yield each run of rows from the same batch.
    ends = np.cumsum([batch.num_rows for batch in batches])
    of_batches = np.searchsorted(ends, order, side="right")
    for run in np.split(np.arange(len(order)), np.flatnonzero(np.diff(of_batches)) + 1):
        at = int(of_batches[run[0]])
        yield batches[at].take(order[run] - (int(ends[at - 1]) if at else 0))


def _join_payloads(payloads: Sequence[Payload]) -> Payload | None:
    """Join the payloads into one. Return None if they are of several kinds."""
    raws = [payload.raw for payload in payloads]
    kinds = {(type(payload), None if payload.raw is None else payload.raw.type) for payload in payloads}
    if len(kinds) > 1 or any(raw is None for raw in raws):
        return None
    numbers: dict[Schema, int] = {}
    codes = []
    for payload in payloads:
        new_codes = [numbers.setdefault(schema, len(numbers)) for schema in payload.schemas]
        codes.append(np.array([*new_codes, NO_SCHEMA], np.int32)[payload.codes])
    return type(payloads[0])(pa.concat_arrays(raws), np.concatenate(codes), list(numbers))


CONNECT_STEPS: BatchSteps[ConnectBatch] = BatchSteps(
    lambda batch: batch.offsets, lambda batch, start, end: batch.take(slice(start, end)), _join_rows
)
