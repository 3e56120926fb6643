"""Writes records to the open segments of a scan or a compaction, and uploads the closed ones in a few threads.

Each bucket has one writer. The number of open writers and their memory are limited. The task goes on reading while
closed segments are uploaded.
"""

import re
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from threading import Condition
from typing import Protocol, Self

import numpy as np

from kafka_s3_platform.formats.parts import UnwritableRecordsError, UnwritableSchemaError
from kafka_s3_platform.model.connect import Int64s, RecordFailure
from kafka_s3_platform.model.object_key import MAX_KEY_BYTES
from kafka_s3_platform.model.segment import Segment
from kafka_s3_platform.segments.segment_writer import SegmentWriter
from kafka_s3_platform.segments.target import Bucket, BucketPart, SegmentTarget
from kafka_s3_platform.store.objects import ObjectStore
from kafka_s3_platform.store.promises import WRITE_CHECK

UPLOAD_THREADS = 16
"""A PUT to S3 takes 20 to 50 ms: 16 at once are 300 to 800 a second, as many as one Python process can send."""

MAX_CLOSED = 2 * UPLOAD_THREADS
"""The most closed segments in memory: a finished thread then has the next one ready."""

MAX_CLOSED_BYTES = 33_554_432
"""The most bytes of them. A larger segment is awaited: large ones never lie in memory side by side."""

MAX_IN_FLIGHT = 268_435_456
"""Caps the bytes of open and closed segments in memory together. Other values would move the ends of segments, because
the open ones are closed by it."""

_PLAIN = re.compile(r"[A-Za-z0-9!_.*'()=/:,@+-]*")
"""Keys accepted by every store. Other keys are tried at the store before the first byte is written."""

_SHOWN = 200
_SINK = "io.confluent.connect.s3.S3SinkTask"
_EXCEPTION = "org.apache.kafka.connect.errors.ConnectException"

MAX_OPEN = 64
"""Caps the open segments. Another value would move the ends of segments."""


class SegmentUploads:
    """The uploads of one task. No thread outlives it.

    Use it as a context manager. At its end, uploads not yet begun are given up, and running ones are awaited.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(UPLOAD_THREADS, thread_name_prefix="segment")
        self._changed = Condition()
        self._count = 0
        self._bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def start(self, segment: SegmentWriter, open_bytes: int) -> "Future[Segment]":
        """Upload a segment of encoded records. Wait while too many are in memory.

        `open_bytes` are the bytes of the open segments. The ends of segments do not depend on this wait.
        """
        size = segment.in_flight
        with self._changed:
            self._count += 1
            self._bytes += size
        future = self._pool.submit(segment.upload)
        future.add_done_callback(partial(self._note_end, segment, size))
        with self._changed:
            self._changed.wait_for(lambda: self._has_room(open_bytes))
        return future

    def _has_room(self, open_bytes: int) -> bool:
        if not self._count:
            return True
        is_too_much = self._bytes > MAX_CLOSED_BYTES or open_bytes + self._bytes > MAX_IN_FLIGHT
        return self._count < MAX_CLOSED and not is_too_much

    def _note_end(self, segment: SegmentWriter, size: int, future: "Future[Segment]") -> None:
        if future.cancelled():
            segment.abort()
        with self._changed:
            self._count -= 1
            self._bytes -= size
            self._changed.notify_all()


class ClosedSegments:
    """The segments of one piece of work in the order of closing. `uploads` uploads them."""

    def __init__(self, uploads: SegmentUploads) -> None:
        self._uploads = uploads
        self._futures: list[Future[Segment]] = []
        self._succeeded = 0

    def __len__(self) -> int:
        return len(self._futures)

    @property
    def are_uploaded(self) -> bool:
        """True if all uploads have ended, successfully or not: `collect` would not wait."""
        return all(future.done() for future in self._futures)

    def add(self, segment: SegmentWriter, open_bytes: int) -> None:
        """Begin the upload of a segment, as `SegmentUploads.start` does. Raises the error of an earlier one."""
        self._futures.append(self._uploads.start(segment, open_bytes))
        self.raise_failure()

    def raise_failure(self) -> None:
        """Raise the error of the first failed upload, if it and those before it have ended."""
        while self._succeeded < len(self._futures) and self._futures[self._succeeded].done():
            self._futures[self._succeeded].result()
            self._succeeded += 1

    def collect(self) -> list[Segment]:
        """Wait for the uploads, and return the segments. Raises the first error."""
        try:
            return [future.result() for future in self._futures]
        except BaseException:
            self.give_up()
            raise

    def give_up(self) -> None:
        """Abort the uploads not yet begun, and wait for the running ones."""
        for future in self._futures:
            future.cancel()
        wait(self._futures)


class Refuse(Protocol):
    """Takes the failures of records that a format cannot hold, and the number of outputs that are not written.

    `is_one_of_many` is true if a mapper made several records of one: others of them may be written already.
    `is_tolerable` is true if only the values do not fit. It is false if no object can have the records' schema: the
    cause may be a wrong setting, and then every record fails.
    """

    def __call__(
        self, failures: Sequence[RecordFailure], output_count: int, *, is_one_of_many: bool, is_tolerable: bool
    ) -> None: ...


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
            if reason := self._explain_refused_key(part):
                part = self._drop_refused(part, _build_failures(part, reason))
                continue
            try:
                writer = self._get_writer(part)
            except UnwritableSchemaError as err:
                if self._refuse is None:
                    raise
                part = self._drop_refused(part, _build_failures(part, err.text), is_tolerable=False)
                continue
            end = writer.find_end(part)
            try:
                self._write(writer, part.rows(0, end))
            except UnwritableRecordsError as err:
                part = self._drop_refused(part, err)
                continue
            if writer.is_full or end < len(part):
                self._close(part.bucket)
            part = part.rows(end, len(part))
        self._close_excess()

    def _drop_refused(self, part: BucketPart, err: UnwritableRecordsError, *, is_tolerable: bool = True) -> BucketPart:
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

    def _explain_refused_key(self, part: BucketPart) -> str | None:
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

    def _get_writer(self, part: BucketPart) -> "SegmentWriter":
        if part.bucket not in self._open:
            writer = SegmentWriter(self._target, part, self._store)
            self._open[part.bucket] = writer
            self._open_bytes += writer.in_flight
        return self._open[part.bucket]

    def _write(self, writer: SegmentWriter, part: BucketPart) -> None:
        bytes_before = writer.in_flight
        try:
            writer.write(part)
        finally:
            self._open_bytes += writer.in_flight - bytes_before

    def _pop(self, bucket: Bucket) -> SegmentWriter:
        writer = self._open.pop(bucket)
        self._open_bytes -= writer.in_flight
        return writer

    def _close(self, bucket: Bucket) -> None:
        writer = self._pop(bucket)
        writer.close()
        self._closed.add(writer, self._open_bytes)

    def _close_excess(self) -> None:
        """Close the oldest segments while too many are open, and the largest while all hold too many bytes."""
        while len(self._open) > MAX_OPEN:
            self._close(next(iter(self._open)))
        while self._open_bytes > MAX_IN_FLIGHT:
            self._close(max(self._open, key=lambda bucket: self._open[bucket].in_flight))


def build_put_failures(offsets: Int64s, reason: str) -> tuple[RecordFailure, ...]:
    """Build the failures of records without any possible object, in Connect's words."""
    return tuple(RecordFailure(offset, "TASK_PUT", _SINK, _EXCEPTION, reason) for offset in offsets.tolist())


def _build_failures(part: BucketPart, reason: str) -> UnwritableRecordsError:
    """Build the error that refuses all records of the part: no object can have their key, or their schema."""
    return UnwritableRecordsError(build_put_failures(part.batch.offsets, reason))
