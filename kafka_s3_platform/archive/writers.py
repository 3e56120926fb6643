"""The open segments of a scan or a compaction: one writer a bucket, bounded in number and in memory."""

from dataclasses import dataclass
from datetime import datetime, timezone
from types import TracebackType

import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.config.settings import LayoutSettings
from kafka_s3_platform.formats.columns import record_sizes
from kafka_s3_platform.formats.digest import RecordDigest
from kafka_s3_platform.formats.envelope import EXTENSION, EnvelopeWriter
from kafka_s3_platform.model.segment import Chunk, Segment
from kafka_s3_platform.partitioners.keys import segment_key
from kafka_s3_platform.store.objects import ObjectStore
from kafka_s3_platform.store.upload import Provenance, SegmentUpload

MAX_OPEN = 64
MAX_IN_FLIGHT = 268_435_456


@dataclass(frozen=True, slots=True)
class Bucket:
    """Where a record belongs: the start of its hour or day (epoch ms, None out of range) and its encoded partition."""

    hour_ms: int | None
    encoded_partition: str

    @property
    def chunk_start(self) -> datetime | None:
        return None if self.hour_ms is None else datetime.fromtimestamp(self.hour_ms / 1000, timezone.utc)


@dataclass(frozen=True)
class SegmentTarget:
    """What the segments of one kafka partition have in common.

    `rewrite` marks segments that replace others: their keys carry the epoch, so that no key is ever used twice.
    """

    layout: LayoutSettings
    topic: str
    kafka_partition: int
    provenance: Provenance
    chunk: Chunk = "hourly"
    rewrite: bool = False

    def key(self, bucket: Bucket, first_offset: int) -> str:
        return segment_key(
            self.layout.topics_dir,
            self.topic,
            bucket.encoded_partition,
            self.kafka_partition,
            first_offset,
            self.layout.offset_pad_width,
            EXTENSION,
            self.provenance.epoch if self.rewrite else None,
        )


class SegmentWriters:
    """Routes record batches to one open segment a bucket; closes them by rotation, by the caps, and at the end.

    Every decision is taken between batches, whose bounds depend on offsets and content alone, so the same records give
    the same segments. Used as a context manager: what is open when an error passes through is aborted.
    """

    def __init__(self, target: SegmentTarget, store: ObjectStore) -> None:
        self._target, self._store = target, store
        self._open: dict[Bucket, _SegmentWriter] = {}
        self._closed: list[Segment] = []

    def __enter__(self) -> "SegmentWriters":  # noqa: PYI034 - typing.Self came with Python 3.11
        return self

    def __exit__(
        self, kind: type[BaseException] | None, err: BaseException | None, trace: TracebackType | None
    ) -> None:
        for writer in self._open.values():
            writer.abort()
        self._open.clear()

    def write(self, bucket: Bucket, batch: pa.RecordBatch, late_count: int) -> None:
        """Append records of one bucket, in offset order. Lateness is counted on the segment the batch begins in."""
        layout, start = self._target.layout, 0
        while start < batch.num_rows:
            writer = self._writer(bucket, batch, start)
            room = layout.flush_size - writer.record_count if layout.flush_size else batch.num_rows
            part = batch.slice(start, room)
            writer.write(part, late_count if start == 0 else 0)
            start += part.num_rows
            if writer.record_count == layout.flush_size or writer.record_bytes >= layout.segment_bytes:
                self._close(bucket)
        self._relieve()

    def close(self) -> list[Segment]:
        """Finish every open segment; all segments of this set in the order they were closed."""
        for bucket in list(self._open):
            self._close(bucket)
        return self._closed

    def _writer(self, bucket: Bucket, batch: pa.RecordBatch, row: int) -> "_SegmentWriter":
        if bucket not in self._open:
            first_offset = batch.column("offset")[row].as_py()
            self._open[bucket] = _SegmentWriter(self._target, bucket, first_offset, self._store)
        return self._open[bucket]

    def _close(self, bucket: Bucket) -> None:
        self._closed.append(self._open.pop(bucket).close())

    def _relieve(self) -> None:
        while len(self._open) > MAX_OPEN or sum(w.in_flight for w in self._open.values()) > MAX_IN_FLIGHT:
            self._close(max(self._open, key=lambda bucket: self._open[bucket].in_flight))


class _SegmentWriter:
    """One open segment."""

    def __init__(self, target: SegmentTarget, bucket: Bucket, first_offset: int, store: ObjectStore) -> None:
        self._target, self._bucket, self._first = target, bucket, first_offset
        self._upload = SegmentUpload(store, target.key(bucket, first_offset), target.provenance)
        self._envelope = EnvelopeWriter(self._upload)
        self._digest = RecordDigest()
        self._last = first_offset
        self._times: list[tuple[int, int]] = []
        self.record_count = self.record_bytes = self._late = 0

    @property
    def in_flight(self) -> int:
        return self._envelope.buffered_bytes + self._upload.buffered_bytes

    def write(self, batch: pa.RecordBatch, late_count: int) -> None:
        self._envelope.write(batch)
        self._digest.update(batch)
        times = pc.min_max(batch.column("timestamp").cast(pa.int64()))
        self._times.append((times["min"].as_py(), times["max"].as_py()))
        self._last = batch.column("offset")[-1].as_py()
        self._late += late_count
        self.record_count += batch.num_rows
        self.record_bytes += int(record_sizes(batch).sum())

    def abort(self) -> None:
        self._upload.abort()

    def close(self) -> Segment:
        digest = self._digest.hexdigest()
        facts = {
            "first-offset": str(self._first),
            "last-offset": str(self._last),
            "record-count": str(self.record_count),
            "record-digest": digest,
        }
        self._envelope.close(facts)
        done = self._upload.finish(facts)
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
        )
