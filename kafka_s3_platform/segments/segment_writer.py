"""Write one open segment: decide where it ends, and make its row of the index."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.config.settings import LayoutSettings
from kafka_s3_platform.formats.columns import count_record_bytes
from kafka_s3_platform.formats.digest import RecordDigest
from kafka_s3_platform.formats.kept_offsets import OffsetRuns
from kafka_s3_platform.model.connect import Int64s
from kafka_s3_platform.model.segment import Segment, StoredObject
from kafka_s3_platform.segments.object_writer import ObjectWriter
from kafka_s3_platform.segments.schema_ids import collect_wire_schema_ids
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
    """One open segment: its objects, and the values of its row."""

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
        self.record_count = self.record_bytes = self._late = 0

    @property
    def in_flight(self) -> int:
        return sum(o.in_flight for o in self._objects)

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
            self._schema_ids |= collect_wire_schema_ids(records.column(name))
        times = pc.min_max(records.column("timestamp").cast(pa.int64()))
        self._times.append((times["min"].as_py(), times["max"].as_py()))
        self._last = int(batch.offsets[-1])
        self._late += part.late_count
        self.record_count += batch.num_rows
        self.record_bytes += int(count_record_bytes(records).sum())

    def abort(self) -> None:
        for item in self._objects:
            item.abort()

    def close(self) -> Segment:
        digest = self._digest.hexdigest()
        offsets = None if self._offsets is None else self._offsets.text()
        facts = {
            "first-offset": str(self._first),
            "last-offset": str(self._last),
            "record-count": str(self.record_count),
            "record-digest": digest,
        }
        first, *others = self._objects
        try:
            # Several objects hold the same records. Only the first one, which names the segment, keeps the offsets.
            uploaded = [*first.close(facts, offsets)]
            for each in others:
                uploaded += each.close(facts, None)
        except BaseException:
            self.abort()
            raise
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
            digest=digest,
            min_timestamp=min(low for low, _ in self._times),
            max_timestamp=max(high for _, high in self._times),
            settings=self._target.layout.model_dump_json(),
            epoch=self._target.provenance.epoch,
            siblings=tuple(StoredObject(s.key, s.size, s.etag, s.sha256) for s in siblings),
            schema_ids=tuple(sorted(self._schema_ids)),
        )
