"""Messages of one kafka partition as librdkafka consumes them, and the record batches made from them.

ConfluentReader uses this module. A *run* is a list of consecutive messages without an error.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby
from operator import itemgetter

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from confluent_kafka import Message

from kafka_s3_platform.core.errors import IntegrityError
from kafka_s3_platform.core.model.batches import HEADER, NO_TIMESTAMP, RECORD_SCHEMA, read_offset_column
from kafka_s3_platform.core.model.gaps import Gap, Unreadable
from kafka_s3_platform.core.model.offsets import OffsetRange, TopicPartition

_HEADERS = RECORD_SCHEMA.field("headers").type

MessageHeaders = list[tuple[str, bytes | None]] | None


def convert_messages(tp: TopicPartition, messages: Sequence[Message]) -> tuple[pa.RecordBatch, dict[int, str]]:
    """Convert messages of one kafka partition, none of them an error, to one batch of RECORD_SCHEMA.

    Also return, by offset, how a record differs from the log: if a header name is not UTF-8, the client library returns
    none of the record's headers.
    """
    count = len(messages)
    headers, failures = _read_headers(messages)
    stamps = np.fromiter(chain.from_iterable(map(Message.timestamp, messages)), np.int64, 2 * count).reshape(-1, 2)
    columns = [
        pa.array(list(map(Message.key, messages)), pa.binary()),
        pa.array(list(map(Message.value, messages)), pa.binary()),
        _build_headers(headers),
        pa.repeat(pa.scalar(tp.topic, pa.string()), count),
        pa.repeat(pa.scalar(tp.kafka_partition, pa.int32()), count),
        pa.array(np.fromiter(map(Message.offset, messages), np.int64, count)),
        pa.array(stamps[:, 1]).view(RECORD_SCHEMA.field("timestamp").type),
        pa.array(_read_timestamp_types(stamps)),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA), failures


def make_unreadable_error(tp: TopicPartition, failures: Mapping[int, str]) -> IntegrityError:
    """Return the error for records that cannot be read unchanged. `failures` maps offsets to reasons."""
    offset, reason = next(iter(failures.items()))
    return IntegrityError(
        f"topic {tp.topic}, kafka partition {tp.kafka_partition}, offset {offset}: {reason}. A topic that is compared "
        "with an archive may not hold such a record: restore to another topic"
    )


def _read_timestamp_types(stamps: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """Return Spark's number for each timestamp type: -1 for no timestamp, 0 for create time, 1 for append time.

    `stamps` holds a row for each message: librdkafka's number of the type, and the timestamp in epoch ms.
    """
    # librdkafka numbers them from 0. Brokers call a missing timestamp "create".
    types: npt.NDArray[np.int32] = np.where(stamps[:, 1] == NO_TIMESTAMP, -1, stamps[:, 0] - 1).astype(np.int32)
    return types


def _read_headers(messages: Sequence[Message]) -> tuple[list[MessageHeaders], dict[int, str]]:
    """Return the headers of each message, and by offset the reason why a message's headers are missing."""
    header_lists: list[MessageHeaders] = []
    failures: dict[int, str] = {}
    rest = iter(messages)
    while len(header_lists) < len(messages):
        try:
            # Through map and not a comprehension: only a checked call notices that headers() failed half-way.
            header_lists.extend(map(Message.headers, rest))  # type: ignore[arg-type]
        except (SystemError, UnicodeDecodeError):
            failures[messages[len(header_lists)].offset() or 0] = (
                "a header name is not UTF-8, and the Kafka client then hands over none of the record's headers"
            )
            header_lists.append(None)
    return header_lists, failures


def _build_headers(headers: Sequence[MessageHeaders]) -> pa.Array:
    """Build the Arrow column of headers from the headers of each message. It is null for a message without any."""
    if not any(headers):
        return pa.nulls(len(headers), _HEADERS)
    present = list(chain.from_iterable(filter(None, headers)))
    names = list(map(itemgetter(0), present))
    values = list(map(itemgetter(1), present))
    ends = np.cumsum([len(names_and_values or ()) for names_and_values in headers], dtype=np.int32)
    flat = pa.StructArray.from_arrays(
        [pa.array(names, pa.string()), pa.array(values, pa.binary())], fields=list(HEADER)
    )
    bounds = pa.array(np.concatenate([np.zeros(1, np.int32), ends]))
    absent = pa.array([not names_and_values for names_and_values in headers])
    return pa.ListArray.from_arrays(bounds, flat, type=_HEADERS, mask=absent)


@dataclass(slots=True)
class MessageStream:
    """The consumer's position in a kafka partition, and the messages fetched ahead.

    Ranges up to `read_end` have been read. All records below `position` have been taken, and `last` is the last of
    these. `waiting` holds later messages, as runs of records or single error events. The next record to arrive must be
    at `expected` or later. `disorder` describes the first one that was not: nothing after it is used.
    """

    tp: TopicPartition
    read_end: int
    position: int
    leader_epoch: int | None
    expected: int
    last: Message | None = None
    disorder: str = ""
    at_end: bool = False
    usable: bool = True
    waiting: deque[list[Message]] = field(default_factory=deque)

    def __str__(self) -> str:
        return f"topic {self.tp.topic}, kafka partition {self.tp.kafka_partition}, offset {self.position}"

    @property
    def reach(self) -> int:
        """The offset of the first waiting record. A range starting there or before can be read without seeking."""
        if not self.waiting or self.waiting[0][0].error() is not None:
            return self.position
        return get_offset(self.waiting[0][0])

    def continues_with(self, tp: TopicPartition, start_offset: int) -> bool:
        """Return True if a range starting at `start_offset` can be read from this stream without seeking."""
        return self.tp == tp and self.read_end <= start_offset <= self.reach

    def add(self, run: list[Message]) -> None:
        """Add an event, or records as long as their offsets ascend."""
        if self.disorder:
            return
        if run[0].error() is None:
            offsets = np.fromiter(map(get_offset, run), np.int64, len(run))
            behind = np.flatnonzero(np.diff(offsets, prepend=self.expected - 1) <= 0)
            good = int(behind[0]) if len(behind) else len(run)
            run = run[:good]
            self.expected = int(offsets[good - 1]) + 1 if good else self.expected
            if len(behind):
                self.disorder = f"{offsets[good]} comes where {self.expected} or more is due"
        if run:
            self.waiting.append(run)

    def take(self, end: int) -> list[Message]:
        """Return the part of the next run below `end`. The rest of the run keeps waiting."""
        run = self.waiting.popleft()
        below = bisect_left(run, end, key=get_offset)
        if below < len(run):
            self.waiting.appendleft(run[below:])
        return run[:below]


@dataclass(slots=True)
class RangeTally:
    """The running totals of a range being read, for its RangeRead and ReadEnd.

    `unproven` is the first offset that may have been deleted unnoticed. `failures` says by offset how a record differs
    from the log. `bytes` counts keys, values and headers.
    """

    unproven: int
    failures: dict[int, str] = field(default_factory=dict)
    unreadable: tuple[Unreadable, ...] = ()
    first_offset: int | None = None
    next_offset: int | None = None
    records: int = 0
    bytes: int = 0
    gaps: list[Gap] = field(default_factory=list)

    def count(self, batch: pa.RecordBatch, size: int) -> None:
        """Add a batch whose records have `size` bytes in all."""
        if self.first_offset is None:
            self.first_offset = int(read_offset_column(batch)[0])
        self.next_offset = int(read_offset_column(batch)[-1]) + 1
        self.records += len(batch)
        self.bytes += size


def get_offset(message: Message) -> int:
    """Return the offset of a consumed message."""
    offset = message.offset()
    if offset is None:
        raise AssertionError("a consumed message has an offset")
    return offset


def split_runs(messages: list[Message]) -> Iterator[list[Message]]:
    """Yield runs of records, and each error event by itself."""
    if not any(map(Message.error, messages)):
        yield messages
        return
    for failed, group in groupby(messages, key=lambda m: m.error() is not None):
        run = list(group)
        yield from ([event] for event in run) if failed else [run]


def find_proof(stream: MessageStream, offsets: OffsetRange, tally: RangeTally) -> Message | None:
    """Return the record that must be read again to prove that nothing below the range's end is missing.

    Its offset does not follow from the earlier ones: it is the first after the range, or the last one in a range with
    holes. Returns None if no record is needed, for example because the count proves the range.
    """
    if stream.position < offsets.end_offset:
        return stream.waiting[0][0]
    if stream.last is None or get_offset(stream.last) != offsets.end_offset - 1 or tally.records == len(offsets):
        return None
    return stream.last


def make_disorder_error(tp: TopicPartition, contradiction: str) -> IntegrityError:
    """Return the error for offsets that contradict each other."""
    return IntegrityError(
        f"topic {tp.topic}, kafka partition {tp.kafka_partition}: records lie about their offsets ({contradiction}), "
        "so that others may be hidden behind them, and the Kafka client does not tell which batch they are in"
    )


def identify_record(record: Message) -> tuple[object, ...]:
    """Return the parts of a record by which it is recognised when it is read again."""
    return record.offset(), record.timestamp(), record.key(), record.value()


def find_end_epoch(stream: MessageStream, end: int, tally: RangeTally) -> int | None:
    """Return the leader epoch at the range's end: of the record just before it, else of the next one, else None."""
    if tally.next_offset == end:
        return stream.leader_epoch
    behind = stream.waiting[0][0] if stream.waiting else None
    if behind is not None and behind.error() is None:
        return behind.leader_epoch()
    return None
