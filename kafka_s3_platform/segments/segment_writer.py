"""Write one segment: decide where it ends, upload its objects, and make its row of the index."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from kafka_s3_platform.config.settings import LayoutSettings
from kafka_s3_platform.formats.digest import RecordDigest
from kafka_s3_platform.formats.kept_offsets import OffsetRuns
from kafka_s3_platform.model.connect import Int64s
from kafka_s3_platform.model.segment import Segment, StoredObject
from kafka_s3_platform.segments.object_writer import ObjectWriter
from kafka_s3_platform.segments.schema_ids import collect_schema_ids
from kafka_s3_platform.segments.target import BucketPart, SegmentTarget
from kafka_s3_platform.store.objects import ObjectStore


class Rotation:
    """Decides where an open segment ends, by the settings `flush.size` and `rotate.*`.

    `rotate.interval.ms` is counted from the segment's first record, by the extractor's time.
    `rotate.schedule.interval.ms` uses the wall clock in Connect. Here it uses the record's own timestamp within its
    hour, so that a backfill rotates where a live run did. Late records end no segment: they stay in the open one.
    """

    def __init__(self, layout: LayoutSettings, part: BucketPart) -> None:
        self._layout = layout
        self._hour_ms = part.bucket.hour_ms
        self._first_time = int(part.times[0])
        self._slot = int(self._slots(part)[0])

    def end(self, part: BucketPart, record_count: int) -> int:
        """Return how many rows of `part` a segment that has `record_count` records still takes."""
        layout = self._layout
        end = len(part)
        if layout.flush_size:
            end = min(end, layout.flush_size - record_count)
        if layout.rotate_interval_ms:
            end = min(end, _find_first(part.times >= self._first_time + layout.rotate_interval_ms))
        if layout.rotate_schedule_interval_ms:
            end = min(end, _find_first(self._slots(part) > self._slot))
        return end

    def _slots(self, part: BucketPart) -> Int64s:
        interval = self._layout.rotate_schedule_interval_ms
        if interval is None or self._hour_ms is None:
            return np.zeros(len(part), np.int64)
        slots: Int64s = (part.batch.timestamps - self._hour_ms) // interval
        return slots


def _find_first(found: npt.NDArray[np.bool_]) -> int:
    return int(found.argmax()) if found.any() else len(found)


class SegmentWriter:
    """One segment: its objects, and the values of its row.

    While it is open, records are written to it. `close` encodes what is left. Then `upload` may be called in another
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

    def end_of_room(self, part: BucketPart) -> int:
        return self._rotation.end(part, self.record_count)

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
        """Encode the records that are still buffered. All bytes of the objects are in their uploads then."""
        self._facts = {
            "first-offset": str(self._first),
            "last-offset": str(self._last),
            "record-count": str(self.record_count),
            "record-digest": self._digest.hexdigest(),
        }
        with self._aborted_on_error():
            for item in self._objects:
                item.encode_rest(self._facts)

    def upload(self) -> Segment:
        """Make the objects visible, one after the other. Return the segment's row."""
        first, *others = self._objects
        with self._aborted_on_error():
            offsets = None if self._offsets is None else self._offsets.text()
            # Several objects hold the same records. Only the first one, which names the segment, keeps the offsets.
            uploaded = [*first.upload(self._facts, offsets)]
            for each in others:
                uploaded += each.upload(self._facts, None)
        done, *siblings = uploaded
        return Segment(
            key=done.key,
            chunk=self._target.chunk,
            chunk_start=self._bucket.chunk_start,
            encoded_partition=self._bucket.encoded_partition,
            kafka_partition=self._target.kafka_partition,
            start_offset=self._first,
            end_offset=self._last + 1,
            record_count=self.record_count,
            late_count=self._late,
            record_bytes=self.record_bytes,
            size=done.size,
            etag=done.etag,
            sha256=done.sha256,
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
    def _aborted_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.abort()
            raise
