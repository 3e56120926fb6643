"""Finds the place to continue for a group in the target, and its precision."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby

import numpy as np

from kafka_s3_platform.model.frontier import Frontier
from kafka_s3_platform.model.segment import CommittedOffset
from kafka_s3_platform.restore.groups.restored import Restored


class Precision(StrEnum):
    """Precision of a translated offset.

    `EXACT`: from there on the group reads each archived record that it had not read, once and in order, and no other
    writer's record among them. `APPROXIMATE`: some are missing or doubled, other writers' records lie among them, or it
    is unknown. `NONE`: there is no such place.
    """

    EXACT = "exact"
    APPROXIMATE = "approximate"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class TranslatedOffset:
    """The next offset of a group in one kafka partition, at the source and at the target (None if `NONE`)."""

    group_id: str
    kafka_partition: int
    source_offset: int
    target_offset: int | None
    precision: Precision
    reason: str
    metadata: str = ""


@dataclass(frozen=True)
class Translation:
    """The archived offsets of groups, translated to the target topic of a finished restore."""

    restore_id: str
    topic: str
    to_topic: str
    to_topic_id: str
    offsets: tuple[TranslatedOffset, ...]

    @property
    def groups(self) -> dict[str, tuple[TranslatedOffset, ...]]:
        """The translated offsets of each group, by its name."""
        in_order = sorted(self.offsets, key=lambda o: (o.group_id, o.kafka_partition))
        return {group: tuple(offsets) for group, offsets in groupby(in_order, lambda o: o.group_id)}


TranslatedPlace = tuple[int | None, Precision, str]


def translate_offsets(
    rows: Iterable[CommittedOffset], restored: Mapping[int, Restored], logs: Mapping[int, Frontier], moved: str = ""
) -> Iterator[TranslatedOffset]:
    """Translate each row's offset to the target, whose kafka partitions are `logs`. `moved` says why none can be."""
    for row in rows:
        log = logs.get(row.kafka_partition)
        here = restored.get(row.kafka_partition)
        if moved or log is None or here is None:
            place = _refuse_place(moved or "the target has no kafka partition of this number")
        else:
            place = _check_place(_find_place(row.committed_offset, here, log), log)
        offset, precision, reason = place
        yield TranslatedOffset(
            row.group_id, row.kafka_partition, row.committed_offset, offset, precision, reason, row.metadata
        )


def _refuse_place(reason: str) -> TranslatedPlace:
    return None, Precision.NONE, reason


def _find_place(committed: int, restored: Restored, log: Frontier) -> TranslatedPlace:
    sources, targets, counts = restored.runs
    if not sources.size:
        return _find_idle_place(committed, restored, log)
    # The first run ending after the committed offset: the group goes on inside it, or at its begin.
    at = int(np.searchsorted(sources + counts, committed, side="right"))
    place = restored.target_end if at == sources.size else int(targets[at] + max(0, committed - sources[at]))
    if doubt := _find_doubt(committed, place, restored):
        return place, Precision.APPROXIMATE, doubt
    return place, Precision.EXACT, _describe_all(committed, restored)


def _find_doubt(committed: int, place: int, restored: Restored) -> str:
    """Explain why the place is not exact, empty if it is."""
    if committed > restored.archived_end:
        return f"the committed offset is after what is archived, which ends at offset {restored.archived_end}"
    if committed < restored.missing[0]:
        return restored.missing[1]
    return restored.mixed[1] if place < restored.mixed[0] else ""


def _describe_all(committed: int, restored: Restored) -> str:
    if committed == restored.archived_end:
        return f"the group had read all that is archived, which ends at offset {committed}"
    return (
        f"all that is archived in offsets [{committed}, {restored.archived_end}) is in the target, once and by itself"
    )


def _find_idle_place(committed: int, restored: Restored, log: Frontier) -> TranslatedPlace:
    """Find the place in a kafka partition without restored records."""
    if doubt := _find_doubt(committed, log.high_watermark, restored):
        return _refuse_place(f"nothing was restored of this kafka partition: {doubt}")
    if log.log_start_offset < log.high_watermark:
        return _refuse_place("nothing is archived that the group had not read, and the target holds records of others")
    reason = "nothing is archived that the group had not read, and the target is empty"
    return log.high_watermark, Precision.EXACT, reason


def _check_place(place: TranslatedPlace, log: Frontier) -> TranslatedPlace:
    offset = place[0]
    if offset is not None and not log.log_start_offset <= offset <= log.high_watermark:
        extent = f"[{log.log_start_offset}, {log.high_watermark})"
        return _refuse_place(f"it would be target offset {offset}, and the target holds {extent} only")
    return place
