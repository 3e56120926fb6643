"""Objects that others wrote, or that no index holds: what their keys tell, and in which order they are read."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Literal

from kafka_s3_platform.config.settings import LayoutSettings
from kafka_s3_platform.formats.parts import ObjectPart
from kafka_s3_platform.partitioners.folders import Window
from kafka_s3_platform.store.objects import COLD

Problem = Literal[
    "outside",
    "extension",
    "index",
    "other_topic",
    "unparsable",
    "misplaced",
    "topic",
    "duplicate",
    "incomplete",
    "cold",
]
"""Why an object is skipped, or worth a line."""


@dataclass(frozen=True, slots=True)
class ForeignObject:
    """One object and what its key tells of its records.

    `first_offset` and `last_offset` are None where the key does not tell them, `window` (half-open, epoch ms) where
    the folder tells no time.
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
        """The offset that its key tells: the first, else the last."""
        return self.last_offset if self.first_offset is None else self.first_offset

    @property
    def is_cold(self) -> bool:
        return self.storage_class in COLD

    @property
    def order(self) -> tuple[str, int, int]:
        """By topic, kafka partition and offset."""
        return (self.topic, self.kafka_partition, self.place or 0)


@dataclass(frozen=True, slots=True)
class ObjectSet:
    """The objects of the same records: their values, or of tombstones none, their keys and headers."""

    value: ForeignObject | None = None
    key: ForeignObject | None = None
    headers: ForeignObject | None = None

    @property
    def objects(self) -> tuple[ForeignObject, ...]:
        """Those that are there, the one that names the records first."""
        return tuple(o for o in (self.value, self.key, self.headers) if o is not None)

    @property
    def name(self) -> ForeignObject:
        return self.objects[0]

    def lacks(self, layout: LayoutSettings) -> str:
        """What of the layout's objects is not there, nothing if all are: without them a key or a value would be null.

        Connect writes all of them for each record, but no values of those in the folder of tombstones.
        """
        wanted: Mapping[ObjectPart, bool] = {
            "value": self.value is not None or not self.name.is_tombstone,
            "key": layout.keys_format is not None,
            "headers": layout.headers_format is not None,
        }
        there = {o.part for o in self.objects}
        missing = " and ".join(_PARTS[part] for part, is_due in wanted.items() if is_due and part not in there)
        return missing and f"object {self.name.key}: its {missing} are not there beside it"


@dataclass(frozen=True)
class ObjectGroup:
    """The objects of one source kafka partition in the order in which they are read."""

    topic: str
    kafka_partition: int
    sets: tuple[ObjectSet, ...]

    @property
    def size(self) -> int:
        return sum(o.size for s in self.sets for o in s.objects)


@dataclass(frozen=True, slots=True)
class BadObject:
    """One that `behavior.on.error` leaves out. None of its records comes before `start_offset`."""

    key: str
    start_offset: int
    why: str


@dataclass
class ScanReport:
    """What a scan skipped, or wondered at: how many objects of each kind, and a line for each, for people.

    `bad` are the lines of those objects that were left out because `behavior.on.error` allowed it.
    """

    counts: dict[Problem, int] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    bad: list[str] = field(default_factory=list)

    def add(self, kind: Problem, line: str = "") -> None:
        """Count an object; past a thousand lines they are only counted."""
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if line and len(self.lines) < MAX_LINES:
            self.lines.append(line)
            if kind in _BAD:
                self.bad.append(line)


MAX_LINES = 1_000

_DIGITS = re.compile(r"([0-9]+)")

_PARTS: Mapping[ObjectPart, str] = {"value": "values", "key": "keys", "headers": "headers"}

_BAD: frozenset[Problem] = frozenset({"unparsable", "misplaced", "duplicate", "incomplete"})


@dataclass(frozen=True)
class Selected:
    """The objects whose folders may hold records of a window, and what there is to say about the choice."""

    objects: tuple[ForeignObject, ...]
    notes: tuple[str, ...]


def by_name(key: str, place: int | None) -> tuple[str | int, ...]:
    """Orders keys of one offset; those that tell none as people do: `part-2` before `part-10`."""
    if place is not None:
        return (key,)
    return tuple(int(text) if at % 2 else text for at, text in enumerate(_DIGITS.split(key)))


def groups(objects: Iterable[ForeignObject]) -> list[ObjectGroup]:
    """The objects of each topic and kafka partition, values with their keys and headers, in reading order.

    Those without an offset, or with the same one, stay in the order in which they are given.
    """
    ordered = sorted(objects, key=lambda o: o.order)
    return [
        ObjectGroup(topic, kafka_partition, _sets(list(found)))
        for (topic, kafka_partition), found in groupby(ordered, lambda o: (o.topic, o.kafka_partition))
    ]


def _sets(objects: Sequence[ForeignObject]) -> tuple[ObjectSet, ...]:
    of_records: dict[tuple[str, int | str], dict[str, ForeignObject]] = {}
    for item in objects:
        own = item.key if item.place is None else item.place
        of_records.setdefault((item.encoded_partition, own), {})[item.part] = item
    return tuple(ObjectSet(**parts) for parts in of_records.values())


def within(objects: Iterable[ForeignObject], from_ms: int | None, to_ms: int | None) -> Selected:
    """The objects whose folders may hold records of the half-open window (epoch ms, None: open).

    Records without a timestamp cannot be chosen one by one: a folder is taken whole, also where the window cuts it, and
    where no folder tells a time every object is taken. Both are noted.
    """
    found = tuple(objects)
    if from_ms is None and to_ms is None:
        return Selected(found, ())
    start, end = -(2**63) if from_ms is None else from_ms, 2**63 if to_ms is None else to_ms
    kept = tuple(o for o in found if o.window is None or (o.window[0] < end and o.window[1] > start))
    cut = {o.encoded_partition for o in kept if o.window and (o.window[0] < start or o.window[1] > end)}
    timeless = {o.encoded_partition for o in kept if o.window is None}
    notes = [
        f"folder {folder} is only partly in the window: objects of values alone are taken whole"
        for folder in sorted(cut)
    ]
    notes += [
        f"folder {folder} tells no time: its objects are taken, whatever the window" for folder in sorted(timeless)
    ]
    return Selected(kept, tuple(notes[:MAX_LINES]))
