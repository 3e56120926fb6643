"""Writes records to the open segments of a scan or a compaction, and uploads the closed ones in a few threads.

Each *bucket* (hour, topic, folder and schema) has one writer. The number of open writers and their memory are limited.
The task goes on reading while closed segments are uploaded. A segment knows its end, its objects, and its row of the
index.
"""

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from threading import Condition
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt

from kafka_s3_platform.core.config.settings import LayoutSettings
from kafka_s3_platform.core.formats.columns import RecordDigest
from kafka_s3_platform.core.formats.format_io import find_extension, new_writer
from kafka_s3_platform.core.formats.kept_offsets import BESIDE, METADATA, REPEATED, OffsetRuns
from kafka_s3_platform.core.formats.parts import ObjectPart, UnwritableRecordsError, UnwritableSchemaError
from kafka_s3_platform.core.layouts.segment_key import make_offsets_key
from kafka_s3_platform.core.model.connect import ConnectBatch, Int64s, RecordFailure
from kafka_s3_platform.core.model.object_key import MAX_KEY_BYTES
from kafka_s3_platform.core.model.segment import Segment, StoredObject
from kafka_s3_platform.core.segments.schemas import load_id_collector
from kafka_s3_platform.core.segments.target import Bucket, BucketPart, RecordId, SegmentTarget
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform.core.store.promises import WRITE_CHECK
from kafka_s3_platform.core.store.upload import SegmentUpload, abort_on_error


class ObjectWriter:
    """Writes one object of a segment (its values, keys or headers), and the small objects beside it."""

    def __init__(
        self, target: SegmentTarget, bucket: Bucket, first: RecordId, part: ObjectPart, store: ObjectStore
    ) -> None:
        self._target = target
        self._bucket = bucket
        self._first = first
        self._store = store
        # A multipart upload gets its metadata at its start. The offsets are not known by then: they will be beside it.
        keeps_offsets = not target.layout.is_envelope and part == target.parts(bucket)[0]
        initial_metadata = {METADATA: BESIDE} if keeps_offsets else None
        self._upload = self._new_upload(self._make_key(find_extension(target.layout, part)), initial_metadata)
        schema = {"value": bucket.schema, "key": bucket.key_schema, "headers": None}[part]
        self._new_writer = partial(new_writer, layout=target.layout, part=part, schema=schema)
        self._writer = self._new_writer(self._upload)

    @property
    def in_flight(self) -> int:
        return self._writer.buffered_bytes + self._upload.buffered_bytes

    def try_out(self, batch: ConnectBatch) -> None:
        """Write records nowhere. Raises UnwritableRecordsError for records the format cannot hold."""
        self._new_writer(io.BytesIO()).write(batch)

    def write(self, batch: ConnectBatch) -> None:
        self._writer.write(batch)

    def abort(self) -> None:
        self._upload.abort()

    def encode_rest(self, facts: Mapping[str, str]) -> None:
        """Encode the buffered records, and `facts` if the format has a place for them."""
        self._writer.close(facts)

    def upload(self, facts: Mapping[str, str], offsets: str | None) -> Iterator[StoredObject]:
        """Finish the object, then the small objects beside it. Everything is encoded by then.

        The `offsets` of its records go to its metadata, or to an object beside it if there is no room.
        """
        metadata = {**facts, **({} if offsets is None else {METADATA: offsets})}
        is_beside = offsets is not None and not self._upload.has_room(metadata)
        uploaded = self._upload.finish({**metadata, METADATA: BESIDE} if is_beside else metadata)
        yield uploaded
        if is_beside and offsets is not None:
            yield from self._upload_offsets(uploaded.key, offsets)
        for suffix, body in self._writer.sidecars.items():
            upload = self._new_upload(self._make_key(suffix))
            upload.write(body)
            yield upload.finish()

    def _upload_offsets(self, key: str, offsets: str) -> Iterator[StoredObject]:
        """Upload the offsets as an object beside the one at `key`, and yield it.

        Yield nothing if its key would be too long, or if several records have one offset (REPEATED), in which case
        readers count positions, as in an object of another tool.
        """
        offsets_key = make_offsets_key(key, self._target.layout.directory_delim)
        if len(offsets_key.encode()) <= MAX_KEY_BYTES and offsets != REPEATED:
            upload = self._new_upload(offsets_key)
            upload.write(offsets.encode())
            yield upload.finish()

    def _make_key(self, suffix: str) -> str:
        return self._target.key(self._bucket, self._first, suffix.removeprefix("."))

    def _new_upload(self, key: str, initial_metadata: Mapping[str, str] | None = None) -> SegmentUpload:
        return SegmentUpload(self._store, key, self._target.provenance, initial_metadata)


class Rotation:
    """Decides the end of an open segment, by the settings `flush.size` and `rotate.*`.

    `rotate.interval.ms` is counted from the segment's first record, by the extractor's time.
    `rotate.schedule.interval.ms` uses the wall clock in Connect. Here it uses the record's own timestamp within its
    hour, so a backfill rotates as a live run did. Late records end no segment, but stay in the open one.
    """

    def __init__(self, layout: LayoutSettings, part: BucketPart) -> None:
        self._layout = layout
        self._hour_ms = part.bucket.hour_ms
        self._first_time = int(part.times[0])
        self._slot = int(self._find_slots(part)[0])

    def find_end(self, part: BucketPart, record_count: int) -> int:
        """Return how many rows of `part` a segment of `record_count` records still takes before it ends."""
        layout = self._layout
        end = len(part)
        if layout.flush_size:
            end = min(end, layout.flush_size - record_count)
        if layout.rotate_interval_ms:
            end = min(end, _find_first(part.times >= self._first_time + layout.rotate_interval_ms))
        if layout.rotate_schedule_interval_ms:
            end = min(end, _find_first(self._find_slots(part) > self._slot))
        return end

    def _find_slots(self, part: BucketPart) -> Int64s:
        """Return for each record the number of its `rotate.schedule.interval.ms` within the hour."""
        interval = self._layout.rotate_schedule_interval_ms
        if interval is None or self._hour_ms is None:
            return np.zeros(len(part), np.int64)
        slots: Int64s = (part.batch.timestamps - self._hour_ms) // interval
        return slots


def _find_first(mask: npt.NDArray[np.bool_]) -> int:
    return int(mask.argmax()) if mask.any() else len(mask)


class SegmentWriter:
    """Writes one segment: its objects, and the values of its row in the index.

    While it is open, records are written to it. `close` encodes the rest. Then `upload` may be called in another
    thread, and no other call is made meanwhile.
    """

    def __init__(self, target: SegmentTarget, part: BucketPart, store: ObjectStore) -> None:
        self._target = target
        self._bucket = part.bucket
        self._first = self._last = part.first.offset
        self._rotation = Rotation(target.layout, part)
        self._objects = [ObjectWriter(target, self._bucket, part.first, p, store) for p in target.parts(part.bucket)]
        self._offsets = None if target.layout.is_envelope else OffsetRuns()
        self._digest = RecordDigest()
        self._times: list[tuple[int, int]] = []
        self._schema_ids = set(target.schema_ids)
        self._collect_schema_ids = load_id_collector() if target.framed else None
        self._facts: dict[str, str] = {}
        self.record_count = self._late = 0

    @property
    def in_flight(self) -> int:
        return sum(o.in_flight for o in self._objects)

    @property
    def record_bytes(self) -> int:
        return self._digest.record_bytes

    @property
    def is_full(self) -> bool:
        layout = self._target.layout
        return self.record_count == layout.flush_size or self.record_bytes >= layout.segment_bytes

    def find_end(self, part: BucketPart) -> int:
        """Return how many rows of `part` this segment still takes before it ends."""
        return self._rotation.find_end(part, self.record_count)

    def write(self, part: BucketPart) -> None:
        """Append records. If an object cannot hold some, raise UnwritableRecordsError and write none."""
        if not len(part):
            return
        batch = part.batch
        records = part.batch.records
        first, *beside = self._objects
        for item in beside:
            # before the first object has the records, all others must be known to accept them
            item.try_out(batch)
        for item in (first, *beside):
            item.write(batch)
        self._digest.update(records)
        if self._offsets is not None:
            self._offsets.add(batch.offsets, is_repeated=batch.ordinals is not None)
        if self._collect_schema_ids is not None:
            for name in self._target.framed:
                self._schema_ids |= self._collect_schema_ids(records, name)
        times = batch.timestamps
        self._times.append((int(times.min()), int(times.max())))
        self._last = int(batch.offsets[-1])
        self._late += part.late_count
        self.record_count += batch.num_rows

    def abort(self) -> None:
        for item in self._objects:
            item.abort()

    def close(self) -> None:
        """Encode the buffered records, so all bytes of the objects are in their uploads."""
        self._facts = {
            "first-offset": str(self._first),
            "last-offset": str(self._last),
            "record-count": str(self.record_count),
            "record-digest": self._digest.hexdigest(),
        }
        with abort_on_error(self.abort):
            for item in self._objects:
                item.encode_rest(self._facts)

    def upload(self) -> Segment:
        """Make the objects visible, one after the other. Return the segment's row."""
        first, *others = self._objects
        with abort_on_error(self.abort):
            offsets = None if self._offsets is None else self._offsets.text()
            # Several objects hold the same records. Only the first one, which names the segment, has the offsets.
            uploaded = [*first.upload(self._facts, offsets)]
            for item in others:
                uploaded += item.upload(self._facts, None)
        main_object, *siblings = uploaded
        return Segment(
            key=main_object.key,
            chunk=self._target.chunk,
            chunk_start=self._bucket.chunk_start,
            encoded_partition=self._bucket.encoded_partition,
            kafka_partition=self._target.kafka_partition,
            start_offset=self._first,
            end_offset=self._last + 1,
            record_count=self.record_count,
            late_count=self._late,
            record_bytes=self.record_bytes,
            size=main_object.size,
            etag=main_object.etag,
            sha256=main_object.sha256,
            digest=self._facts["record-digest"],
            min_timestamp=min(low for low, _ in self._times),
            max_timestamp=max(high for _, high in self._times),
            settings=self._target.layout.model_dump_json(),
            epoch=self._target.provenance.epoch,
            siblings=tuple(siblings),
            schema_ids=tuple(sorted(self._schema_ids, key=str)),
            start_hour=self._target.start_hour if self._bucket.hour_ms is None else None,
        )


UPLOAD_THREADS = 16
"""A PUT to S3 takes 20 to 50 ms: 16 at once are 300 to 800 a second, as many as one Python process can send."""

MAX_CLOSED = 2 * UPLOAD_THREADS
"""The most closed segments in memory. A thread that has finished thus finds the next one ready."""

MAX_CLOSED_BYTES = 33_554_432
"""The most bytes of closed segments in memory. A larger one is awaited, so large ones are never in memory together."""

MAX_IN_FLIGHT = 268_435_456
"""The cap on the bytes of open and closed segments in memory.

Another value would move the ends of segments, because the open ones are closed when they reach it.
"""

_PLAIN = re.compile(r"[A-Za-z0-9!_.*'()=/:,@+-]*")
"""The pattern of keys that every store accepts. Other keys are tried at the store before the first byte is written."""

_SHOWN = 200
_SINK = "io.confluent.connect.s3.S3SinkTask"
_EXCEPTION = "org.apache.kafka.connect.errors.ConnectException"

MAX_OPEN = 64
"""The cap on open segments. Another value would move the ends of segments."""


class SegmentUploads:
    """The uploads of one task, as a context manager: its exit gives up those not yet begun, and awaits the others."""

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
        """Return True if another closed segment may wait for its upload beside the `open_bytes` of open ones."""
        if not self._count:
            return True
        is_too_much = self._bytes > MAX_CLOSED_BYTES or open_bytes + self._bytes > MAX_IN_FLIGHT
        return self._count < MAX_CLOSED and not is_too_much

    def _note_end(self, segment: SegmentWriter, size: int, future: "Future[Segment]") -> None:
        """Take a finished upload out of the counts of segments in memory. A cancelled one is aborted."""
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
        """True if all uploads have ended, successfully or not, so `collect` would not wait."""
        return all(future.done() for future in self._futures)

    def add(self, segment: SegmentWriter, open_bytes: int) -> None:
        """Begin the upload of a segment, as `SegmentUploads.start` does. Raises the error of an earlier one."""
        self._futures.append(self._uploads.start(segment, open_bytes))
        self.raise_failure()

    def raise_failure(self) -> None:
        """Raise the error of the first failed upload, if it and the ones before it have ended."""
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
    """Takes the failures of records a format cannot hold, and the number of outputs not written.

    `is_one_of_many` is True if a mapper made several records of one, so others of them may be written already.
    `is_tolerable` is True if only the values do not fit. It is False if no object can have the records' schema: the
    cause may be a wrong setting, with which every record would fail.
    """

    def __call__(
        self, failures: Sequence[RecordFailure], output_count: int, *, is_one_of_many: bool, is_tolerable: bool
    ) -> None: ...


class SegmentWriters:
    """Writes the records of each bucket to the bucket's open segment, and closes segments when they have to end.

    Segments end at rotations, at the caps, and when all is written. Every decision, and every bound of a part, depends
    on offsets and content alone, so the same records give the same segments. Closed segments go to `closed` for upload.
    Use it as a context manager, which aborts the segments still open at its end.
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
        """Append records of one bucket. The late ones are counted in the segment that has the part's beginning.

        Records the format cannot hold are passed to `refuse`, which may raise. Without `refuse` they are an error.
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
        """Explain why no object can have the key of a segment beginning with this part. Return None if one can.

        A merge (without `refuse`) is not checked, because the store has accepted the place of its records before.
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
        """Return the open segment of the part's bucket, or open one beginning with the part."""
        if part.bucket not in self._open:
            writer = SegmentWriter(self._target, part, self._store)
            self._open[part.bucket] = writer
            self._open_bytes += writer.in_flight
        return self._open[part.bucket]

    def _write(self, writer: SegmentWriter, part: BucketPart) -> None:
        """Write the part, and count how many more bytes are in memory now, even if it fails."""
        bytes_before = writer.in_flight
        try:
            writer.write(part)
        finally:
            self._open_bytes += writer.in_flight - bytes_before

    def _pop(self, bucket: Bucket) -> SegmentWriter:
        """Take the bucket's writer out of the open ones."""
        writer = self._open.pop(bucket)
        self._open_bytes -= writer.in_flight
        return writer

    def _close(self, bucket: Bucket) -> None:
        """End the bucket's open segment, and hand it over to be uploaded."""
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
    """Build the failures of records no object can hold, in Connect's words."""
    return tuple(RecordFailure(offset, "TASK_PUT", _SINK, _EXCEPTION, reason) for offset in offsets.tolist())


def _build_failures(part: BucketPart, reason: str) -> UnwritableRecordsError:
    """Build the error that refuses all records of the part, because no object can have their key, or their schema."""
    return UnwritableRecordsError(build_put_failures(part.batch.offsets, reason))
