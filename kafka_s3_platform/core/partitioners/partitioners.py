"""Finds a record's *encoded partition* (its folders below the topic's folder), as Kafka Connect's partitioners do.

Records of a batch mostly share folders, so a batch gets its distinct folders (`names`) and for each record an index
into them (`codes`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from zoneinfo import ZoneInfo

import numpy as np

from kafka_s3_platform.core.config.plugins import PARTITIONER, load_class, name_fault
from kafka_s3_platform.core.config.settings import LayoutSettings
from kafka_s3_platform.core.errors import ConfigError
from kafka_s3_platform.core.extensions import find_addition
from kafka_s3_platform.core.java.joda import MAX_MS, MIN_MS, convert_local_times, factorize_values, find_utc_offsets
from kafka_s3_platform.core.java.joda_format import compile_path_format
from kafka_s3_platform.core.model.connect import ConnectBatch, Int32s, Int64s, RecordFailure, describe_batch
from kafka_s3_platform.core.model.object_key import MAX_KEY_BYTES, explain_bad_folders
from kafka_s3_platform.core.model.times import EPOCH, HOUR_MS, ONE_MS

NO_HOUR = -(2**63)
"""The hour of a time outside the years 1 to 9999, the range of Python's calendar."""


def find_hour_starts(times_ms: Int64s, timezone: str) -> Int64s:
    """Return the start (epoch ms) of each time's local hour, or NO_HOUR. The hour repeated in autumn counts as two."""
    in_calendar, times = _replace_unknown(times_ms)
    starts: Int64s = times - (times + find_utc_offsets(times, ZoneInfo(timezone))) % HOUR_MS
    return starts if in_calendar is None else np.where(in_calendar, starts, NO_HOUR)


def _replace_unknown(times_ms: Int64s) -> tuple[np.ndarray | None, Int64s]:
    """Return a mask of the times in the calendar (None if all are), and the times with 0 in place of the others."""
    in_calendar = (times_ms >= MIN_MS) & (times_ms < MAX_MS)
    if in_calendar.all():
        return (None, times_ms)
    return (in_calendar, np.where(in_calendar, times_ms, 0))


# Kafka's limit of a topic's name.
_LONGEST_TOPIC = 249
_REST_OF_KEY = 80
"""The bytes of a key that are reserved for delimiters, kafka partition, epoch, ordinal and extension."""

# The exception of Connect's FieldPartitioner. Headers of dead letters name it.
_EXCEPTION = "io.confluent.connect.storage.errors.PartitionException"


@dataclass(frozen=True)
class EncodedPartitions:
    """The distinct encoded partitions, and each record's index in them. A failed record's index means nothing."""

    names: Sequence[str]
    codes: Int32s
    failures: tuple[RecordFailure, ...] = ()


class Partitioner(Protocol):
    """Finds encoded partitions. One is made for each offset range, with the connector's `LayoutSettings`."""

    def encode(self, batch: ConnectBatch, times_ms: Int64s) -> EncodedPartitions:
        """Return the folders of each record by its time (epoch ms). Raise nothing for the fault of a single record."""
        ...


def new_partitioner(layout: LayoutSettings) -> Partitioner:
    """Make the partitioner in `partitioner.class`: one of Connect's, or a user's class.

    Raises ConfigError if the class cannot be loaded, or FieldPartitioner has no field.
    """
    create: Callable[[LayoutSettings], Partitioner] | None = _CLASSES.get(layout.partitioner)
    create = create or find_addition("partitioners", layout.partitioner)
    if create is not None:
        return create(layout)
    partitioner_class = load_class(layout.partitioner, PARTITIONER)
    with name_fault(partitioner_class, "made for partitioner.class"):
        return _CheckedPartitioner(partitioner_class(layout), layout)


class DefaultPartitioner:
    """Makes `partition=<kafka partition>`."""

    def __init__(self, layout: LayoutSettings) -> None:
        self.layout = layout

    def encode(self, batch: ConnectBatch, _: Int64s) -> EncodedPartitions:
        """Return the folder of each record's kafka partition."""
        column = batch.records.column("partition").dictionary_encode()
        return EncodedPartitions([f"partition={p}" for p in column.dictionary.to_pylist()], column.indices.to_numpy())


class TimeBasedPartitioner:
    """Makes time folders from `path.format`, one for each `partition.duration.ms`. Hourly and Daily use it too."""

    def __init__(self, layout: LayoutSettings) -> None:
        self.layout = layout
        self._format = compile_path_format(layout.path_format, layout.locale, layout.directory_delim)
        self._duration_ms = layout.partition_duration_ms
        self._zone = ZoneInfo(layout.timezone)
        self._out_of_range = layout.out_of_range_folder
        self._names: dict[int, str] = {}

    def encode(self, _: ConnectBatch, times_ms: Int64s) -> EncodedPartitions:
        """Return the folder of each time (epoch ms, in any order), as Connect's `TimeBasedPartitioner` names it.

        Times outside the years 1 to 9999 get the folder for records that are out of range.
        """
        in_calendar, times = _replace_unknown(times_ms)
        local = times + find_utc_offsets(times, self._zone)
        # fmod keeps the sign of its dividend, as `%` of Java's longs does: before 1970 Connect rounds up.
        starts, codes = factorize_values(local - np.fmod(local, self._duration_ms))
        names = [self._name_folder(start) for start in starts]
        if in_calendar is None:
            return EncodedPartitions(names, codes)
        names.append(self._out_of_range)
        return EncodedPartitions(names, np.where(in_calendar, codes, np.int32(len(names) - 1)))

    def _name_folder(self, local_ms: int) -> str:
        """Name the encoded partition that begins at a local time, or after that time if the clocks skip it."""
        if local_ms not in self._names:
            # Times of many centuries must not fill the memory.
            if len(self._names) > 100_000:
                self._names.clear()
            start_ms = int(convert_local_times(np.array([local_ms], np.int64), self._zone)[0])
            self._names[local_ms] = self._format((EPOCH + start_ms * ONE_MS).astimezone(self._zone))
        return self._names[local_ms]


_CLASSES: Mapping[str, Callable[[LayoutSettings], Partitioner]] = {
    "Default": DefaultPartitioner,
    "Hourly": TimeBasedPartitioner,
    "Daily": TimeBasedPartitioner,
    "TimeBased": TimeBasedPartitioner,
}


class _CheckedPartitioner:
    """Wraps a user's partitioner, and refuses folders outside the topic's folder."""

    def __init__(self, inner: Any, layout: LayoutSettings) -> None:
        self._inner = inner
        self.layout = layout

    def encode(self, batch: ConnectBatch, times_ms: Int64s) -> EncodedPartitions:
        """Ask the user's class. Refuse an answer without a code for each record. Records with bad folders fail."""
        with name_fault(type(self._inner), f"as partitioner.class of {describe_batch(batch)}"):
            encoded = self._inner.encode(batch, times_ms)
        name = type(self._inner).__name__
        if not isinstance(encoded, EncodedPartitions) or len(encoded.codes) != batch.num_rows:
            raise ConfigError(
                f"{name}.encode has to return EncodedPartitions with one code for each record of the batch"
            )
        return check_partitions(encoded, batch, self._inner, self.layout)


def joined(parts: Sequence[EncodedPartitions], delim: str) -> EncodedPartitions:
    """Join the encoded partitions of several partitioners. The folders of each lie below the previous one's."""
    names = parts[0].names
    codes = parts[0].codes
    for part in parts[1:]:
        # Each pair of folders gets one number.
        width = len(part.names)
        pairs, codes = factorize_values(codes.astype(np.int64) * width + part.codes)
        names = [f"{names[pair // width]}{delim}{part.names[pair % width]}" for pair in pairs]
    return EncodedPartitions(names, codes, _keep_first_of_each(f for part in parts for f in part.failures))


def check_partitions(
    encoded: EncodedPartitions, batch: ConnectBatch, partitioner: Partitioner, layout: LayoutSettings
) -> EncodedPartitions:
    """Return each name once, and fail each record whose folders are not allowed in a key."""
    refusals = {i: why for i, name in enumerate(encoded.names) if (why := _explain_refusal(name, layout))}
    index: dict[str, int] = {}
    places = np.array([index.setdefault(name, len(index)) for name in encoded.names], np.int32)
    reasons = [
        (row, refusals[encoded.codes[row]]) for row in np.flatnonzero(np.isin(encoded.codes, list(refusals))).tolist()
    ]
    failures = _keep_first_of_each([*encoded.failures, *build_folder_failures(batch, reasons, partitioner)])
    return EncodedPartitions([*index], places[encoded.codes], failures)


def _explain_refusal(encoded: str, layout: LayoutSettings) -> str | None:
    """Explain why an encoded partition cannot be in a key, or return None if it can."""
    if why := explain_bad_folders(encoded):
        return f"its encoded partition {why}"
    # The topic is in the folder and in the name. An offset of 64 bits has 19 digits.
    name = 2 * _LONGEST_TOPIC + max(layout.offset_pad_width, 19) + _REST_OF_KEY
    room = MAX_KEY_BYTES - name - len(layout.topics_dir.encode())
    if len(encoded.encode()) > room:
        return f"its encoded partition has more than the {room} bytes of room in an object key"
    return None


def build_folder_failures(
    batch: ConnectBatch, reasons: Sequence[tuple[int, str]], partitioner: Partitioner
) -> tuple[RecordFailure, ...]:
    """Build the failures of the records at these rows, each with its reason, in Connect's words."""
    offsets = batch.offsets
    name = type(partitioner).__name__
    return tuple(RecordFailure(int(offsets[row]), "TASK_PUT", name, _EXCEPTION, reason) for row, reason in reasons)


def _keep_first_of_each(failures: Iterable[RecordFailure]) -> tuple[RecordFailure, ...]:
    """Return the first failure of each offset."""
    by_offset: dict[int, RecordFailure] = {}
    for failure in failures:
        by_offset.setdefault(failure.offset, failure)
    return tuple(by_offset.values())
