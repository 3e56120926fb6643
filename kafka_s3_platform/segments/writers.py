"""Writes records to the open segments of a scan or a compaction.

Each bucket has one writer. The number of open writers and their memory are limited.
"""

import re
from collections.abc import Sequence
from typing import Protocol, Self

import numpy as np

from kafka_s3_platform.formats.parts import UnwritableRecordsError, UnwritableSchemaError
from kafka_s3_platform.model.connect import Int64s, RecordFailure
from kafka_s3_platform.model.object_key import MAX_KEY_BYTES
from kafka_s3_platform.segments.segment_writer import SegmentWriter
from kafka_s3_platform.segments.target import Bucket, BucketPart, SegmentTarget
from kafka_s3_platform.segments.uploads import MAX_IN_FLIGHT, ClosedSegments
from kafka_s3_platform.store.objects import ObjectStore
from kafka_s3_platform.store.promises import WRITE_CHECK


class Refuse(Protocol):
    """Takes the failures of records that a format cannot hold, and the number of records left out with them.

    `is_one_of_many` is true if a mapper made several records of one: others of them may be written already.
    `is_tolerable` is true if only the values do not fit. It is false if no object can have the records' schema: the
    cause may be a wrong setting, and then every record fails.
    """

    def __call__(
        self, failures: Sequence[RecordFailure], left_out: int, *, is_one_of_many: bool, is_tolerable: bool
    ) -> None: ...


_PLAIN = re.compile(r"[A-Za-z0-9!_.*'()=/:,@+-]*")
"""Keys accepted by every store. Other keys are tried at the store before the first byte is written."""

_SHOWN = 200
_SINK = "io.confluent.connect.s3.S3SinkTask"
_EXCEPTION = "org.apache.kafka.connect.errors.ConnectException"
MAX_OPEN = 64
"""Caps the open segments. Another value would move the ends of segments."""


class SegmentWriters:
    """Routes records to one open segment for each bucket. Closes segments at rotations, at the caps, and at the end.

    Every decision depends on offsets and content alone; so do the bounds of the parts. So the same records give the
    same segments. Closed segments go to `closed` for upload. Use it as a context manager: segments still open at its
    end are aborted.
    """

    def __init__(
        self, target: SegmentTarget, store: ObjectStore, closed: ClosedSegments, refuse: Refuse | None = None
    ) -> None:
        self._target = target
        self._store = store
        self._closed = closed
        self._refuse = refuse
        self._open: dict[Bucket, SegmentWriter] = {}
        self._open_bytes = 0
        self._refused: dict[tuple[str | None, str], str | None] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for writer in self._open.values():
            writer.abort()
        self._open.clear()

    def write(self, part: BucketPart) -> None:
        """Append records of one bucket. The late ones are counted in the segment at the part's beginning.

        Records that the format cannot hold are passed to `refuse`, which may raise. Without `refuse` they are an error.
        Raises the error of an earlier segment's upload.
        """
        while len(part):
            if reason := self._refused_key(part):
                part = self._without(part, _fail_all(part, reason))
                continue
            try:
                writer = self._writer(part)
            except UnwritableSchemaError as err:
                if self._refuse is None:
                    raise
                part = self._without(part, _fail_all(part, err.text), is_tolerable=False)
                continue
            end = writer.end_of_room(part)
            try:
                self._write(writer, part.rows(0, end))
            except UnwritableRecordsError as err:
                part = self._without(part, err)
                continue
            if writer.is_full or end < len(part):
                self._close(part.bucket)
            part = part.rows(end, len(part))
        self._relieve()

    def _without(self, part: BucketPart, err: UnwritableRecordsError, *, is_tolerable: bool = True) -> BucketPart:
        """Return the part without the refused records. Nothing of the part was written yet."""
        if self._refuse is None:
            raise err
        accepted = np.flatnonzero(~np.isin(part.batch.offsets, [f.offset for f in err.failures]))
        self._refuse(
            err.failures,
            len(part) - len(accepted),
            is_one_of_many=part.batch.ordinals is not None,
            is_tolerable=is_tolerable,
        )
        writer = self._open.get(part.bucket)
        if writer is not None and not writer.record_count:
            # the open object is named by the offset of a refused record
            self._pop(part.bucket).abort()
        return part.at(accepted)

    def _refused_key(self, part: BucketPart) -> str | None:
        """Explain why no object can have the key of a segment from this part on. Return None if one can.

        A merge (without `refuse`) is not checked: the store has accepted the place of its records before.
        """
        if part.bucket in self._open or self._refuse is None:
            return None
        key = self._target.longest_key(part)
        if len(key.encode()) > MAX_KEY_BYTES:
            return f"the key of its object has more than {MAX_KEY_BYTES} bytes: {key[:_SHOWN]}..."
        place = part.bucket.topic, part.bucket.encoded_partition
        if place not in self._refused:
            control = f"{self._target.layout.topics_dir}/{WRITE_CHECK}".lstrip("/")
            self._refused[place] = None if _PLAIN.fullmatch(key) else self._store.refuses(key, control)
        return self._refused[place]

    def close(self) -> None:
        """Close every open segment."""
        for bucket in list(self._open):
            self._close(bucket)

    def _writer(self, part: BucketPart) -> "SegmentWriter":
        if part.bucket not in self._open:
            writer = SegmentWriter(self._target, part, self._store)
            self._open[part.bucket] = writer
            self._open_bytes += writer.in_flight
        return self._open[part.bucket]

    def _write(self, writer: SegmentWriter, part: BucketPart) -> None:
        before = writer.in_flight
        try:
            writer.write(part)
        finally:
            self._open_bytes += writer.in_flight - before

    def _pop(self, bucket: Bucket) -> SegmentWriter:
        writer = self._open.pop(bucket)
        self._open_bytes -= writer.in_flight
        return writer

    def _close(self, bucket: Bucket) -> None:
        writer = self._pop(bucket)
        writer.close()
        self._closed.add(writer, self._open_bytes)

    def _relieve(self) -> None:
        """Close the oldest segments while too many are open, and the largest while all hold too many bytes."""
        while len(self._open) > MAX_OPEN:
            self._close(next(iter(self._open)))
        while self._open_bytes > MAX_IN_FLIGHT:
            self._close(max(self._open, key=lambda bucket: self._open[bucket].in_flight))


def build_put_failures(offsets: Int64s, reason: str) -> tuple[RecordFailure, ...]:
    """Build the failures of records without any possible object, in Connect's words."""
    return tuple(RecordFailure(offset, "TASK_PUT", _SINK, _EXCEPTION, reason) for offset in offsets.tolist())


def _fail_all(part: BucketPart, reason: str) -> UnwritableRecordsError:
    """Build failures of all records of the part: no object can have their key, or their schema."""
    return UnwritableRecordsError(build_put_failures(part.batch.offsets, reason))
