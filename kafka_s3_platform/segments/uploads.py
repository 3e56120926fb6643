"""Uploads closed segments in a few threads, while the task goes on reading."""

from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from threading import Condition
from typing import Self

from kafka_s3_platform.model.segment import Segment
from kafka_s3_platform.segments.segment_writer import SegmentWriter

UPLOAD_THREADS = 16
"""A PUT to S3 takes 20 to 50 ms: 16 at once are 300 to 800 a second, as many as one Python process can send."""

MAX_CLOSED = 2 * UPLOAD_THREADS
"""The most closed segments in memory: a finished thread then has the next one ready."""

MAX_CLOSED_BYTES = 33_554_432
"""The most bytes of them. A larger segment is awaited: large ones never lie in memory side by side."""

MAX_IN_FLIGHT = 268_435_456
"""Caps the bytes of open and closed segments in memory together. Other values would move the ends of segments, because
the open ones are closed by it."""


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
        future.add_done_callback(partial(self._end, segment, size))
        with self._changed:
            self._changed.wait_for(lambda: self._has_room(open_bytes))
        return future

    def _has_room(self, open_bytes: int) -> bool:
        if not self._count:
            return True
        is_too_much = self._bytes > MAX_CLOSED_BYTES or open_bytes + self._bytes > MAX_IN_FLIGHT
        return self._count < MAX_CLOSED and not is_too_much

    def _end(self, segment: SegmentWriter, size: int, future: "Future[Segment]") -> None:
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
