"""Chooses the archived records of a restore by windows of time and of offsets. Pure: no input or output."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Protocol

import numpy as np
import pyarrow as pa

from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.model.times import EPOCH, ONE_MS
from kafka_s3_platform.core.restore.request import Offsets, RestoreRequest

FOREVER = 2**63 - 1
"""The end of an unbounded window of offsets or of milliseconds."""


class Extent(Protocol):
    """The bounds of an object's records, known without reading it.

    Offsets are half-open. Timestamps (epoch ms) include both ends.
    """

    @property
    def kafka_partition(self) -> int: ...
    @property
    def start_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def min_timestamp(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...


@dataclass(frozen=True, slots=True)
class OffsetWindow:
    """Offsets `[start_offset, end_offset)` of one kafka partition."""

    kafka_partition: int
    start_offset: int
    end_offset: int


@dataclass(frozen=True)
class Selection:
    """The records with a timestamp in `[from_ms, to_ms)` and an offset in their kafka partition's window.

    If `times` has windows (half-open, epoch ms, ascending, not touching), the timestamp must also be in one of them.
    """

    from_ms: int
    to_ms: int
    windows: tuple[OffsetWindow, ...]
    times: tuple[tuple[int, int], ...] = ()

    @property
    def is_timed(self) -> bool:
        """True if the timestamp of a record decides anything."""
        return (self.from_ms, self.to_ms) != (-FOREVER, FOREVER)

    def window(self, kafka_partition: int) -> OffsetWindow | None:
        """Return the selected offsets of a kafka partition, or None if nothing of it is selected."""
        return self._by_number.get(kafka_partition)

    @cached_property
    def _by_number(self) -> dict[int, OffsetWindow]:
        return {w.kafka_partition: w for w in reversed(self.windows)}

    def bounds(self, extent: Extent) -> tuple[int, int]:
        """Return an object's offsets `[start, end)` in its kafka partition's window. There are none if start >= end."""
        window = self.window(extent.kafka_partition) or OffsetWindow(extent.kafka_partition, 0, 0)
        return max(window.start_offset, extent.start_offset), min(window.end_offset, extent.end_offset)

    def overlaps(self, extent: Extent) -> bool:
        """Return True if the object may hold a record of the selection."""
        start, end = self.bounds(extent)
        in_times = extent.max_timestamp >= self.from_ms and extent.min_timestamp < self.to_ms
        return (
            start < end
            and in_times
            and (not self.times or any(extent.max_timestamp >= s and extent.min_timestamp < e for s, e in self.times))
        )

    def holds(self, extent: Extent) -> bool:
        """Return True if every record of the object belongs to the selection."""
        in_offsets = self.bounds(extent) == (extent.start_offset, extent.end_offset)
        in_times = self.from_ms <= extent.min_timestamp and extent.max_timestamp < self.to_ms
        return (
            in_offsets
            and in_times
            and (not self.times or any(s <= extent.min_timestamp and extent.max_timestamp < e for s, e in self.times))
        )

    def within_times(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the records of a batch with a timestamp in one of `times`, or all records if there are none."""
        if not self.times:
            return batch
        times = batch.column("timestamp").cast(pa.int64()).to_numpy()
        starts, ends = np.array(self.times).T
        # The last window that begins at or before each time, or -1 if all windows begin later.
        at = np.searchsorted(starts, times, side="right") - 1
        return batch.filter(pa.array((at >= 0) & (times < ends[at])))


def select_records(request: RestoreRequest, kafka_partitions: Iterable[int]) -> Selection:
    """Return the selection of `request` on a topic with these kafka partitions.

    Raises:
        ConfigError: a kafka partition is not in the archive, or a window of offsets is empty.
    """
    archived = sorted(kafka_partitions)
    selected = archived if request.kafka_partitions is None else sorted(set(request.kafka_partitions))
    _check_numbers(request, selected, archived)
    times = list_time_windows(request)
    return Selection(
        from_ms=times[0][0] if times else -FOREVER,
        to_ms=times[-1][1] if times else FOREVER,
        windows=tuple(_make_window(request, p) for p in selected),
        times=times if request.windows else (),
    )


def list_time_windows(request: RestoreRequest) -> tuple[tuple[int, int], ...]:
    """List the request's windows of time (half-open, epoch ms, ascending, not touching), none if all times count."""
    first = -FOREVER if request.from_time is None else round_up_to_ms(request.from_time)
    last = FOREVER if request.to_time is None else round_up_to_ms(request.to_time)
    if not request.windows:
        return () if (first, last) == (-FOREVER, FOREVER) else ((first, last),)
    windows: list[tuple[int, int]] = []
    for window_start, window_end in sorted(request.windows):
        start = max(first, round_up_to_ms(window_start))
        end = min(last, round_up_to_ms(window_end))
        if windows and start <= windows[-1][1]:
            windows[-1] = (windows[-1][0], max(end, windows[-1][1]))
        elif start < end:
            windows.append((start, end))
    # An empty window, not an empty tuple: the empty tuple means every time.
    return tuple(windows) or ((0, 0),)


def round_up_to_ms(moment: datetime) -> int:
    """Return the first whole epoch millisecond at or after `moment`."""
    # Negated, because // rounds down.
    return -((EPOCH - moment) // ONE_MS)


def _check_numbers(request: RestoreRequest, selected: list[int], archived: list[int]) -> None:
    """Raise ConfigError if a selected kafka partition is not archived, or one with a bound is not selected."""
    named: set[int] = set()
    for offsets in (request.from_offset, request.to_offset):
        if isinstance(offsets, Mapping):
            named.update(offsets)
    for numbers, available, what in ((set(selected), archived, "the archive"), (named, selected, "the selection")):
        if unknown := sorted(numbers - set(available)):
            raise ConfigError(
                f"restore of {request.topic}: kafka partition {', '.join(map(str, unknown))} is not in {what}, which "
                f"has {', '.join(map(str, available)) or 'none'}"
            )


def _make_window(request: RestoreRequest, kafka_partition: int) -> OffsetWindow:
    """Return the requested offsets of a kafka partition. Raises ConfigError if there are none."""
    start = find_offset_bound(request.from_offset, kafka_partition)
    end = find_offset_bound(request.to_offset, kafka_partition)
    start = 0 if start is None else start
    end = FOREVER if end is None else end
    if not 0 <= start < end:
        raise ConfigError(
            f"restore of {request.topic}-{kafka_partition}: the range [{start}, {end}) contains no offset"
        )
    return OffsetWindow(kafka_partition, start, end)


def find_offset_bound(offsets: Offsets, kafka_partition: int) -> int | None:
    """Return the bound of a kafka partition, or None if it has none."""
    if isinstance(offsets, Mapping):
        return offsets.get(kafka_partition)
    return offsets
