"""The open segments of a scan or a compaction: one writer a bucket, bounded in number and in memory."""

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from types import TracebackType
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.archive.schemas import wire_schema_ids
from kafka_s3_platform.config.settings import LayoutSettings
from kafka_s3_platform.formats.block_gzip import INDEX_SUFFIX
from kafka_s3_platform.formats.columns import record_sizes
from kafka_s3_platform.formats.digest import RecordDigest
from kafka_s3_platform.formats.kept_offsets import BESIDE, METADATA, REPEATED, OffsetRuns
from kafka_s3_platform.formats.parts import ObjectPart, UnwritableRecordsError, UnwritableSchemaError
from kafka_s3_platform.formats.writers import extension, new_writer
from kafka_s3_platform.model.connect import ConnectBatch, Int64s, Positions, RecordFailure, Schema
from kafka_s3_platform.model.segment import Chunk, Segment, StoredObject
from kafka_s3_platform.partitioners.key_layouts import new_key_layout
from kafka_s3_platform.partitioners.keys import MAX_KEY_BYTES, offsets_key
from kafka_s3_platform.store.objects import ObjectStore
from kafka_s3_platform.store.promises import WRITE_CHECK
from kafka_s3_platform.store.upload import Provenance, SegmentUpload, UploadedObject


class Refuse(Protocol):
    """Takes the failures of records that a format cannot hold, and how many records are left out with them.

    `is_one_of_many`: a mapper made several of one record, others of which may be written. `is_tolerable`: it is the
    values that do not fit; else no object can be of their schema, which may be a wrong setting as well as a stranger's.
    """

    def __call__(
        self, failures: Sequence[RecordFailure], left_out: int, *, is_one_of_many: bool, is_tolerable: bool
    ) -> None: ...


_PLAIN = re.compile(r"[A-Za-z0-9!_.*'()=/:,@+-]*")
"""Keys that every store takes; it is asked about others before the first byte of them is written."""

_SHOWN = 200
_SINK = "io.confluent.connect.s3.S3SinkTask"
_EXCEPTION = "org.apache.kafka.connect.errors.ConnectException"
MAX_OPEN = 64
MAX_IN_FLIGHT = 268_435_456


@dataclass(frozen=True, slots=True)
class Bucket:
    """Which records may share an object.

    `hour_ms` is the start of their hour or day (epoch ms, None out of range); `topic` the one in the path, None for the
    topic's own name; `schema` and `key_schema` what they are written with.
    """

    hour_ms: int | None
    encoded_partition: str
    topic: str | None = None
    schema: Schema | None = None
    key_schema: Schema | None = None

    @property
    def chunk_start(self) -> datetime | None:
        return None if self.hour_ms is None else datetime.fromtimestamp(self.hour_ms / 1000, timezone.utc)


@dataclass(frozen=True, slots=True)
class RecordId:
    """An offset, and which of the records that a mapper made of its record."""

    offset: int
    ordinal: int


@dataclass(frozen=True, slots=True)
class BucketPart:
    """Records of one bucket, in offset order, their times (epoch ms, the extractor's), how many of them are late."""

    bucket: Bucket
    batch: ConnectBatch
    times: Int64s
    late_count: int

    def __len__(self) -> int:
        return self.batch.num_rows

    @property
    def first(self) -> RecordId:
        ordinals = self.batch.ordinals
        return RecordId(int(self.batch.offsets[0]), 0 if ordinals is None else int(ordinals[0]))

    def rows(self, start: int, end: int) -> "BucketPart":
        """Rows `[start, end)`; the late ones are counted where it begins."""
        return self if (start, end) == (0, len(self)) else self.at(np.arange(start, end))

    def at(self, positions: Positions) -> "BucketPart":
        """The rows at ascending `positions`."""
        late = self.late_count if len(positions) and positions[0] == 0 else 0
        return BucketPart(self.bucket, self.batch.take(positions), self.times[positions], late)


@dataclass(frozen=True)
class SegmentTarget:
    """What the segments of one kafka partition have in common.

    `rewrite` marks segments that replace others: their keys carry the epoch, so that no key is ever used twice. So do
    those of segments that begin at a `condemned` offset, whose usual keys a vacuum deletes.
    `framed` are the columns whose values name schemas of a registry; `schema_ids` those of records that were read from
    other segments.
    """

    layout: LayoutSettings
    topic: str
    kafka_partition: int
    provenance: Provenance
    chunk: Chunk = "hourly"
    rewrite: bool = False
    condemned: frozenset[int] = frozenset()
    framed: tuple[Literal["key", "value"], ...] = ()
    schema_ids: frozenset[int] = frozenset()

    def key(self, bucket: Bucket, first: RecordId, suffix: str) -> str:
        """The key of the object whose first record is `first`; `suffix` is its extension."""
        return new_key_layout(self.layout).key(
            bucket.topic or self.topic,
            bucket.encoded_partition,
            self.kafka_partition,
            first.offset,
            suffix,
            ordinal=first.ordinal,
            epoch=self.provenance.epoch if self.rewrite or first.offset in self.condemned else None,
            timestamp_ms=bucket.hour_ms,
        )

    def longest_key(self, part: BucketPart) -> str:
        """The longest key among those of the objects of a segment that begins with this part."""
        suffixes = [extension(self.layout, p).removeprefix(".") for p in self.parts(part.bucket)]
        beside = [INDEX_SUFFIX.removeprefix(".")] if self.layout.format == "block_gzip" else []
        return max((self.key(part.bucket, part.first, s) for s in (*suffixes, *beside)), key=len)

    def parts(self, bucket: Bucket) -> tuple[ObjectPart, ...]:
        """What the objects of a segment hold, the one that names the segment first. Tombstones have no value."""
        layout = self.layout
        if layout.is_envelope:
            return ("value",)
        is_tombstone = layout.null_values == "write" and bucket.encoded_partition == layout.tombstone_partition
        parts = {"value": not is_tombstone, "key": layout.keys_format, "headers": layout.headers_format}
        return tuple(part for part, wanted in parts.items() if wanted)  # type: ignore[misc]


class SegmentWriters:
    """Routes records to one open segment a bucket; closes them by rotation, by the caps, and at the end.

    Every decision depends on offsets and content alone: the bounds of parts do, too. So the same records give the same
    segments. Used as a context manager: what is open when an error passes through is aborted.
    """

    def __init__(self, target: SegmentTarget, store: ObjectStore, refuse: Refuse | None = None) -> None:
        self._target, self._store, self._refuse = target, store, refuse
        self._open: dict[Bucket, _SegmentWriter] = {}
        self._closed: list[Segment] = []
        self._refused: dict[tuple[str | None, str], str | None] = {}

    def __enter__(self) -> "SegmentWriters":  # noqa: PYI034 - typing.Self came with Python 3.11
        return self

    def __exit__(
        self, kind: type[BaseException] | None, err: BaseException | None, trace: TracebackType | None
    ) -> None:
        for writer in self._open.values():
            writer.abort()
        self._open.clear()

    def write(self, part: BucketPart) -> None:
        """Append records of one bucket. Lateness is counted on the segment the part begins in.

        Records that the format cannot hold are handed to `refuse`, which may raise; without it they are an error.
        """
        while len(part):
            if reason := self._refused_key(part):
                part = self._without(part, _all_failed(part, reason))
                continue
            try:
                writer = self._writer(part)
            except UnwritableSchemaError as err:
                if self._refuse is None:
                    raise
                part = self._without(part, _all_failed(part, str(err)), is_tolerable=False)
                continue
            end = writer.end_of_room(part)
            try:
                writer.write(part.rows(0, end))
            except UnwritableRecordsError as err:
                part = self._without(part, err)
                continue
            if writer.is_full or end < len(part):
                self._close(part.bucket)
            part = part.rows(end, len(part))
        self._relieve()

    def _without(self, part: BucketPart, err: UnwritableRecordsError, *, is_tolerable: bool = True) -> BucketPart:
        """The part without the refused records, of which nothing was written."""
        if self._refuse is None:
            raise err
        kept = np.flatnonzero(~np.isin(part.batch.offsets, [f.offset for f in err.failures]))
        self._refuse(
            err.failures,
            len(part) - len(kept),
            is_one_of_many=part.batch.ordinals is not None,
            is_tolerable=is_tolerable,
        )
        writer = self._open.get(part.bucket)
        if writer is not None and not writer.record_count:
            # its name is the offset of a record that it will not hold
            self._open.pop(part.bucket).abort()
        return part.at(kept)

    def _refused_key(self, part: BucketPart) -> str | None:
        """Why no object can have the key of a segment that would begin with this part, None where one can.

        What is merged has its place already.
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

    def close(self) -> list[Segment]:
        """Finish every open segment; all segments of this set in the order they were closed."""
        for bucket in list(self._open):
            self._close(bucket)
        return self._closed

    def _writer(self, part: BucketPart) -> "_SegmentWriter":
        if part.bucket not in self._open:
            self._open[part.bucket] = _SegmentWriter(self._target, part, self._store)
        return self._open[part.bucket]

    def _close(self, bucket: Bucket) -> None:
        self._closed.append(self._open.pop(bucket).close())

    def _relieve(self) -> None:
        """The oldest goes where too many are open, the largest where they hold too many bytes."""
        while len(self._open) > MAX_OPEN:
            self._close(next(iter(self._open)))
        while sum(w.in_flight for w in self._open.values()) > MAX_IN_FLIGHT:
            self._close(max(self._open, key=lambda bucket: self._open[bucket].in_flight))


def put_failures(offsets: Int64s, reason: str) -> tuple[RecordFailure, ...]:
    """The failures of records that the sink cannot put into any object, in Connect's words."""
    return tuple(RecordFailure(offset, "TASK_PUT", _SINK, _EXCEPTION, reason) for offset in offsets.tolist())


def _all_failed(part: BucketPart, reason: str) -> UnwritableRecordsError:
    """All records of the part fail, since no object can have their key, or be of their schema."""
    return UnwritableRecordsError(put_failures(part.batch.offsets, reason))


class _Rotation:
    """Where an open segment has to end, by the settings of `flush.size` and `rotate.*`.

    `rotate.interval.ms` spans from the segment's first record, by the extractor's time. `rotate.schedule.interval.ms`
    is Connect's wall clock; here the record's own timestamp tells the slot within its hour, so that a backfill rotates
    where a live run did. Neither ever looks back: late records stay in the open segment.
    """

    def __init__(self, layout: LayoutSettings, part: BucketPart) -> None:
        self._layout, self._hour_ms = layout, part.bucket.hour_ms
        self._first_time = int(part.times[0])
        self._slot = int(self._slots(part)[0])

    def end(self, part: BucketPart, record_count: int) -> int:
        """How many rows of `part` the segment, which has so many records, takes."""
        layout, end = self._layout, len(part)
        if layout.flush_size:
            end = min(end, layout.flush_size - record_count)
        if layout.rotate_interval_ms:
            end = min(end, _first(part.times >= self._first_time + layout.rotate_interval_ms))
        if layout.rotate_schedule_interval_ms:
            end = min(end, _first(self._slots(part) > self._slot))
        return end

    def _slots(self, part: BucketPart) -> Int64s:
        interval = self._layout.rotate_schedule_interval_ms
        if interval is None or self._hour_ms is None:
            return np.zeros(len(part), np.int64)
        slots: Int64s = (part.batch.timestamps - self._hour_ms) // interval
        return slots


def _first(found: npt.NDArray[np.bool_]) -> int:
    return int(found.argmax()) if found.any() else len(found)


class _SegmentWriter:
    """One open segment: its objects, and what its row will say."""

    def __init__(self, target: SegmentTarget, part: BucketPart, store: ObjectStore) -> None:
        self._target, self._bucket = target, part.bucket
        self._first = self._last = part.first.offset
        self._rotation = _Rotation(target.layout, part)
        self._objects = [_ObjectWriter(target, self._bucket, part.first, p, store) for p in target.parts(part.bucket)]
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
        batch, records = part.batch, part.batch.records
        first, *beside = self._objects
        for item in beside:
            # what the others would refuse has to be known before the first one has it
            item.try_out(batch)
        for item in (first, *beside):
            item.write(batch)
        self._digest.update(records)
        if self._offsets is not None:
            self._offsets.add(batch.offsets, is_repeated=batch.ordinals is not None)
        for name in self._target.framed:
            self._schema_ids |= wire_schema_ids(records.column(name))
        times = pc.min_max(records.column("timestamp").cast(pa.int64()))
        self._times.append((times["min"].as_py(), times["max"].as_py()))
        self._last = int(batch.offsets[-1])
        self._late += part.late_count
        self.record_count += batch.num_rows
        self.record_bytes += int(record_sizes(records).sum())

    def abort(self) -> None:
        for item in self._objects:
            item.abort()

    def close(self) -> Segment:
        digest, offsets = self._digest.hexdigest(), None if self._offsets is None else self._offsets.text()
        facts = {
            "first-offset": str(self._first),
            "last-offset": str(self._last),
            "record-count": str(self.record_count),
            "record-digest": digest,
        }
        try:
            # Of the objects of the same records, the one that names them keeps their offsets.
            done, *siblings = [
                u for o in self._objects for u in o.close(facts, offsets if o is self._objects[0] else None)
            ]
        except BaseException:
            self.abort()
            raise
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


class _ObjectWriter:
    """One object of an open segment, and the small ones that are added when it is closed."""

    def __init__(
        self, target: SegmentTarget, bucket: Bucket, first: RecordId, part: ObjectPart, store: ObjectStore
    ) -> None:
        self._target, self._bucket, self._first, self._store = target, bucket, first, store
        # What a multipart upload says is said at its start: whether it is the one with the offsets is known by then.
        keeps_offsets = not target.layout.is_envelope and part == target.parts(bucket)[0]
        begun = {METADATA: BESIDE} if keeps_offsets else None
        self._upload = self._new_upload(self._key(extension(target.layout, part)), begun)
        schema = {"value": bucket.schema, "key": bucket.key_schema, "headers": None}[part]
        self._new_writer = partial(new_writer, layout=target.layout, part=part, schema=schema)
        self._writer = self._new_writer(self._upload)

    @property
    def in_flight(self) -> int:
        return self._writer.buffered_bytes + self._upload.buffered_bytes

    def try_out(self, batch: ConnectBatch) -> None:
        """Write records nowhere. Raises UnwritableRecordsError for those that the format cannot hold."""
        self._new_writer(io.BytesIO()).write(batch)

    def write(self, batch: ConnectBatch) -> None:
        self._writer.write(batch)

    def abort(self) -> None:
        self._upload.abort()

    def close(self, facts: Mapping[str, str], offsets: str | None) -> Iterator[UploadedObject]:
        """Finish the object. The `offsets` of its records go to its metadata, or beside it where they are too long."""
        self._writer.close(facts)
        told = {**facts, **({} if offsets is None else {METADATA: offsets})}
        is_beside = offsets is not None and not self._upload.has_room(told)
        done = self._upload.finish({**told, METADATA: BESIDE} if is_beside else told)
        yield done
        if is_beside and offsets is not None:
            yield from self._beside(done.key, offsets)
        for suffix, body in self._writer.sidecars.items():
            upload = self._new_upload(self._key(suffix))
            upload.write(body)
            yield upload.finish()

    def _beside(self, key: str, offsets: str) -> Iterator[UploadedObject]:
        own = offsets_key(key, self._target.layout.directory_delim)
        # Where no key is left for them, readers know as much as of an object of others.
        if len(own.encode()) <= MAX_KEY_BYTES and offsets != REPEATED:
            upload = self._new_upload(own)
            upload.write(offsets.encode())
            yield upload.finish()

    def _key(self, suffix: str) -> str:
        return self._target.key(self._bucket, self._first, suffix.removeprefix("."))

    def _new_upload(self, key: str, begun: Mapping[str, str] | None = None) -> SegmentUpload:
        return SegmentUpload(self._store, key, self._target.provenance, begun)
