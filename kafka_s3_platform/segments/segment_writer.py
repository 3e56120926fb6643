"""Writes one segment: decides its end, uploads its objects, and makes its row of the index."""

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import numpy as np
import numpy.typing as npt

from kafka_s3_platform.config.settings import LayoutSettings
from kafka_s3_platform.formats.columns import RecordDigest
from kafka_s3_platform.formats.format_io import find_extension, new_writer
from kafka_s3_platform.formats.kept_offsets import BESIDE, METADATA, REPEATED, OffsetRuns
from kafka_s3_platform.formats.parts import ObjectPart
from kafka_s3_platform.layouts.segment_key import make_offsets_key
from kafka_s3_platform.model.connect import ConnectBatch, Int64s
from kafka_s3_platform.model.object_key import MAX_KEY_BYTES
from kafka_s3_platform.model.segment import Segment, StoredObject
from kafka_s3_platform.segments.schema_ids import collect_schema_ids
from kafka_s3_platform.segments.target import Bucket, BucketPart, RecordId, SegmentTarget
from kafka_s3_platform.store.objects import ObjectStore
from kafka_s3_platform.store.upload import SegmentUpload, UploadedObject


class ObjectWriter:
    """Writes one object of a segment, and the small objects beside it."""

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
        """Write records nowhere. Raises UnwritableRecordsError for those the format cannot hold."""
        self._new_writer(io.BytesIO()).write(batch)

    def write(self, batch: ConnectBatch) -> None:
        self._writer.write(batch)

    def abort(self) -> None:
        self._upload.abort()

    def encode_rest(self, facts: Mapping[str, str]) -> None:
        """Encode the buffered records, and `facts` if the format has a place for them."""
        self._writer.close(facts)

    def upload(self, facts: Mapping[str, str], offsets: str | None) -> Iterator[UploadedObject]:
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

    def _upload_offsets(self, key: str, offsets: str) -> Iterator[UploadedObject]:
        """Upload the offsets as an object beside the one at `key`."""
        offsets_key = make_offsets_key(key, self._target.layout.directory_delim)
        # If the key for them would be too long, no object is written: readers then count positions, as in an object of
        # another tool.
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
    hour: a backfill rotates as a live run did. Late records end no segment: they stay in the open one.
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
        interval = self._layout.rotate_schedule_interval_ms
        if interval is None or self._hour_ms is None:
            return np.zeros(len(part), np.int64)
        slots: Int64s = (part.batch.timestamps - self._hour_ms) // interval
        return slots


def _find_first(mask: npt.NDArray[np.bool_]) -> int:
    return int(mask.argmax()) if mask.any() else len(mask)


class SegmentWriter:
    """Writes one segment: its objects, and the values of its row.

    While it is open, records are written to it. `close` encodes the rest. Then `upload` may be called in another
    thread: no other call is made meanwhile.
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
        """Append records.

        Raises:
            UnwritableRecordsError: one of the objects cannot hold some of them; nothing of the part was written.
        """
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
        for name in self._target.framed:
            self._schema_ids |= collect_schema_ids(records, name)
        times = batch.timestamps
        self._times.append((int(times.min()), int(times.max())))
        self._last = int(batch.offsets[-1])
        self._late += part.late_count
        self.record_count += batch.num_rows

    def abort(self) -> None:
        for item in self._objects:
            item.abort()

    def close(self) -> None:
        """Encode the buffered records. All bytes of the objects are in their uploads then."""
        self._facts = {
            "first-offset": str(self._first),
            "last-offset": str(self._last),
            "record-count": str(self.record_count),
            "record-digest": self._digest.hexdigest(),
        }
        with self._abort_on_error():
            for item in self._objects:
                item.encode_rest(self._facts)

    def upload(self) -> Segment:
        """Make the objects visible, one after the other. Return the segment's row."""
        first, *others = self._objects
        with self._abort_on_error():
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
            siblings=tuple(StoredObject(s.key, s.size, s.etag, s.sha256) for s in siblings),
            schema_ids=tuple(sorted(self._schema_ids, key=str)),
            start_hour=self._target.start_hour if self._bucket.hour_ms is None else None,
        )

    @contextmanager
    def _abort_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.abort()
            raise
