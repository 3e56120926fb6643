"""Describes foreign objects, which another sink wrote or no index lists, and orders them for reading.

Facts about them come from their keys, their metadata, and the objects with offsets beside them, before any is opened.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from kafka_s3_platform.core.config.formats import find_format
from kafka_s3_platform.core.config.settings import ConnectorConfig, LayoutSettings, SourceSettings
from kafka_s3_platform.core.errors import IntegrityError
from kafka_s3_platform.core.formats.kept_offsets import BESIDE, METADATA, REPEATED, KeptOffsets
from kafka_s3_platform.core.formats.parts import ObjectPart
from kafka_s3_platform.core.layouts.segment_key import Problem, make_offsets_key
from kafka_s3_platform.core.partitioners.folders import Window
from kafka_s3_platform.core.store.objects import COLD, ObjectInfo, ObjectStore
from kafka_s3_platform.core.store.upload import Provenance

MAX_LINES = 1_000
"""The most lines of one kind in a report. Others are only counted: a bucket may hold millions of bad objects."""

_DIGITS = re.compile(r"([0-9]+)")

_PARTS: Mapping[ObjectPart, str] = {"value": "values", "key": "keys", "headers": "headers"}

_BAD: frozenset[Problem] = frozenset({"unparsable", "misplaced", "other_format", "duplicate", "incomplete"})

RECORD_COUNT = "record-count"
"""The key of the number of records in the metadata of our own objects."""


@dataclass(frozen=True, slots=True)
class ForeignObject:
    """One object, with the facts about its records from its key.

    `first_offset` and `last_offset` are None if they are not in the key. `window` (half-open, epoch ms) is None if the
    folder has no time.
    """

    topic: str
    kafka_partition: int
    first_offset: int | None
    encoded_partition: str
    part: ObjectPart
    key: str
    size: int
    etag: str
    storage_class: str = "STANDARD"
    window: Window | None = None
    is_tombstone: bool = False
    last_offset: int | None = None

    @property
    def place(self) -> int | None:
        """The first offset in its key, or else the last one."""
        if self.first_offset is None:
            return self.last_offset
        return self.first_offset

    @property
    def is_cold(self) -> bool:
        """True if it lies in cold storage, and has to be thawed before it can be read."""
        return self.storage_class in COLD

    @property
    def order(self) -> tuple[str, int, int]:
        """The sort key: topic, kafka partition and offset."""
        return (self.topic, self.kafka_partition, self.place or 0)


@dataclass(frozen=True, slots=True)
class ObjectSet:
    """The objects of the same records: their values (tombstones have none), their keys and their headers."""

    value: ForeignObject | None = None
    key: ForeignObject | None = None
    headers: ForeignObject | None = None

    @property
    def objects(self) -> tuple[ForeignObject, ...]:
        """The objects that exist. The first one names the records."""
        return tuple(o for o in (self.value, self.key, self.headers) if o is not None)

    @property
    def name(self) -> ForeignObject:
        """The object that names the records: the first existing one of values, keys and headers."""
        return self.objects[0]

    @property
    def size(self) -> int:
        """The bytes of its objects."""
        return sum(o.size for o in self.objects)

    def explain_missing_parts(self, layout: LayoutSettings) -> str:
        """Explain which objects of the records are missing. Without them, keys or values would become null.

        Connect writes all parts of each record, except that records in the folder of tombstones have no values.
        """
        expected: Mapping[ObjectPart, bool] = {
            "value": self.value is not None or not self.name.is_tombstone,
            "key": layout.keys_format is not None,
            "headers": layout.headers_format is not None,
        }
        existing_parts = {o.part for o in self.objects}
        missing = " and ".join(
            _PARTS[part] for part, is_due in expected.items() if is_due and part not in existing_parts
        )
        return missing and f"object {self.name.key}: its {missing} are not there beside it"


@dataclass(frozen=True)
class ObjectGroup:
    """The objects of one kafka partition of the source, in the order of reading."""

    topic: str
    kafka_partition: int
    sets: tuple[ObjectSet, ...]

    @property
    def size(self) -> int:
        """The bytes of all its objects."""
        return sum(s.size for s in self.sets)


@dataclass
class ScanReport:
    """The skipped and odd objects of a scan: the number of objects for each problem, and a line for each object.

    `bad` holds the lines of the objects left out by `behavior.on.error`.
    """

    counts: dict[Problem, int] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    bad: list[str] = field(default_factory=list)

    def add(self, kind: Problem, line: str = "") -> None:
        """Count an object and keep its line. Beyond MAX_LINES, objects are only counted."""
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if line and len(self.lines) < MAX_LINES:
            self.lines.append(line)
            if kind in _BAD:
                self.bad.append(line)

    @property
    def bad_count(self) -> int:
        """The number of objects in `list_bad`."""
        return self.unnamed_bad_count + len(self.bad) + self.counts.get("unread_part", 0)

    @property
    def unnamed_bad_count(self) -> int:
        """The number of bad objects that were left out and have no line."""
        return sum(self.counts.get(kind, 0) for kind in _BAD) - len(self.bad)

    def list_bad(self) -> tuple[str, ...]:
        """List the lines of objects left out, then the numbers of those without a line and of unread parts."""
        unnamed = self.unnamed_bad_count
        unnamed_lines = (f"{unnamed:,} more objects, which are not named, were left out as bad",)
        unread_count = self.counts.get("unread_part", 0)
        unread_lines = (
            f"{unread_count:,} objects of keys or headers were not read, since by the connector's file none were kept: "
            f"store.kafka.keys and store.kafka.headers"
        )
        return (*self.bad, *unnamed_lines * bool(unnamed), *(unread_lines,) * bool(unread_count))


def order_by_name(key: str, place: int | None) -> tuple[str | int, ...]:
    """Return the sort key for objects with the same offset. Without one, numbers in names count (2 before 10)."""
    if place is not None:
        return (key,)
    return tuple(int(text) if number % 2 else text for number, text in enumerate(_DIGITS.split(key)))


def group_objects(objects: Iterable[ForeignObject]) -> list[ObjectGroup]:
    """Group objects by topic and kafka partition, values with their keys and headers, in reading order.

    Objects that have no offset, or the same one, keep the order of `objects`.
    """
    ordered = sorted(objects, key=lambda o: o.order)
    return [
        ObjectGroup(topic, kafka_partition, _build_sets(list(members)))
        for (topic, kafka_partition), members in groupby(ordered, lambda o: (o.topic, o.kafka_partition))
    ]


def _build_sets(objects: Sequence[ForeignObject]) -> tuple[ObjectSet, ...]:
    """Put together the objects of the same records, which have the same folder and offset, or else the same key."""
    objects_of_records: dict[tuple[str, int | str], dict[str, ForeignObject]] = {}
    for item in objects:
        position = item.key if item.place is None else item.place
        objects_of_records.setdefault((item.encoded_partition, position), {})[item.part] = item
    return tuple(ObjectSet(**parts) for parts in objects_of_records.values())


def select_objects(objects: Iterable[ForeignObject], times: Sequence[Window]) -> list[ForeignObject]:
    """Select the objects without a window or with one that overlaps one of `times`. Without `times`, select all."""
    if not times:
        return list(objects)
    return [o for o in objects if o.window is None or any(_do_overlap(o.window, time) for time in times)]


def is_covered(window: Window, times: Iterable[Window]) -> bool:
    """Return True if the windows `times` together cover the whole of a window."""
    covered_end = window[0]
    for start, end in sorted(times):
        if start <= covered_end:
            covered_end = max(covered_end, end)
    return covered_end >= window[1]


def _do_overlap(first: Window, second: Window) -> bool:
    """Return True if two windows overlap."""
    return first[0] < second[1] and first[1] > second[0]


@dataclass(frozen=True)
class OffsetFacts:
    """The number of an object's records, the offset of the last one, and the offset of each, or None if unknown.

    The last offset of a foreign object may come from its name. If `is_ours`, this platform wrote the object, and other
    objects may hold offsets between its own.
    """

    count: int | None = None
    last: int | None = None
    offsets: KeptOffsets | None = None
    is_ours: bool = False


def is_written_here(info: ObjectInfo) -> bool:
    """Return True if this platform wrote the object, according to its metadata."""
    return RECORD_COUNT in info.metadata or Provenance.of(info) is not None


def has_record_offsets(config: ConnectorConfig) -> bool:
    """Return True if each record has its own offset, according to the connector file."""
    source = config.source or SourceSettings()
    if config.layout.is_envelope or source.offset_field is not None:
        return True
    return find_format(config.layout.format).envelope is not None and "offset" in source.fields


def has_record_times(config: ConnectorConfig) -> bool:
    """Return True if objects hold the timestamps of their records, according to the connector file."""
    source = config.source or SourceSettings()
    # Other sinks' envelopes hold timestamps only if their files list this field.
    has_times = find_format(config.layout.format).envelope is not None and "timestamp" in source.fields
    return config.layout.is_envelope or has_times or source.timestamp_field is not None


def names_bound_times(config: ConnectorConfig) -> bool:
    """Return True if the time in an object's folder or name bounds its records' timestamps."""
    layout = config.layout
    return layout.key_layout == "lenses" or (layout.is_envelope and layout.timestamp_extractor == "Record")


def read_offset_facts(config: ConnectorConfig, store: ObjectStore, item: ForeignObject) -> OffsetFacts:
    """Read the facts about the offsets of an object, with one request for its metadata.

    Raises IntegrityError if the kept offsets contradict the object's name, or cannot be parsed.
    """
    info = store.head(item.key)
    if info is None:
        return OffsetFacts(last=item.last_offset)  # opening it will fail
    count, last_offset = (_parse_number(info.metadata.get(name, "")) for name in (RECORD_COUNT, "last-offset"))
    entry = info.metadata.get(METADATA, "")
    text = _read_beside(config, store, item) if entry == BESIDE else "" if entry == REPEATED else entry
    if text:
        offsets = _parse_offsets(text, item, config.store.limits.block_bytes)
        return OffsetFacts(offsets.count, offsets.last, offsets, is_ours=True)
    last_offset = item.last_offset if last_offset is None else last_offset
    return OffsetFacts(count, last_offset, is_ours=bool(entry) or is_written_here(info))


def _read_beside(config: ConnectorConfig, store: ObjectStore, item: ForeignObject) -> str:
    """Read the offsets from the object beside this one. Return an empty text if it was lost."""
    key = make_offsets_key(item.key, config.layout.directory_delim)
    info = store.head(key)
    if info is None:
        return ""
    if info.size > config.store.limits.block_bytes:
        raise IntegrityError(f"object {key} has {info.size:,} bytes: it keeps no offsets of {item.key}")
    return store.get(key).decode(errors="replace")


def _parse_offsets(text: str, item: ForeignObject, most_bytes: int) -> KeptOffsets:
    """Parse the kept offsets of an object. Raise IntegrityError if they contradict the offset in its name."""
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
    """Return a number from metadata, or None if it is missing or not a number."""
    return int(text) if text.isdecimal() else None
