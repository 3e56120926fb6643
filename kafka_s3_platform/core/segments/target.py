"""Defines the buckets of records that share objects, and the keys of these objects."""

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Literal

from kafka_s3_platform.core.config.formats import find_format
from kafka_s3_platform.core.config.settings import LayoutSettings
from kafka_s3_platform.core.formats.format_io import find_extension
from kafka_s3_platform.core.formats.parts import ObjectPart
from kafka_s3_platform.core.layouts.new_layout import new_segment_layout
from kafka_s3_platform.core.layouts.segment_key import SegmentKey
from kafka_s3_platform.core.model.connect import ConnectBatch, Int64s, Positions, Schema
from kafka_s3_platform.core.model.segment import Chunk
from kafka_s3_platform.core.store.upload import Provenance


@dataclass(frozen=True, slots=True)
class Bucket:
    """The properties all records of an object share.

    `hour_ms` is the start of their hour or day (epoch ms, or None if it is out of range). `topic` is the topic in the
    object's path; None stands for the topic's own name. `schema` and `key_schema` are the schemas of the written
    records.
    """

    hour_ms: int | None
    encoded_partition: str
    topic: str | None = None
    schema: Schema | None = None
    key_schema: Schema | None = None

    @property
    def chunk_start(self) -> datetime | None:
        if self.hour_ms is None:
            return None
        return datetime.fromtimestamp(self.hour_ms / 1000, timezone.utc)


@dataclass(frozen=True, slots=True)
class RecordId:
    """An offset, and the number of the record among a mapper's records of this offset."""

    offset: int
    ordinal: int


@dataclass(frozen=True, slots=True)
class BucketPart:
    """Records of one bucket in offset order, their times (epoch ms, from the extractor), and the count of late ones."""

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
        """Return the rows `[start, end)`. The count of late records stays with the part that has the first row."""
        if (start, end) == (0, len(self)):
            return self
        rows = slice(start, end)
        late = self.late_count if start == 0 < end else 0
        return BucketPart(self.bucket, self.batch.take(rows), self.times[rows], late)

    def at(self, positions: Positions) -> "BucketPart":
        """Return the rows at ascending `positions`. The late count stays with the part's first row."""
        late = self.late_count if len(positions) and positions[0] == 0 else 0
        return BucketPart(self.bucket, self.batch.take(positions), self.times[positions], late)


@dataclass(frozen=True)
class SegmentTarget:
    """The common properties of the segments one task writes, for one kafka partition.

    `rewrite` marks segments that replace others. Their keys contain the epoch, so no key is ever used twice. The keys
    of segments that begin at a `condemned` offset contain it too, because a vacuum deletes the usual keys. `framed` are
    the columns whose values have a registry's schemas. `schema_ids` are the ids in the input of a merge. Records before
    `start_hour` are out of range.
    """

    layout: LayoutSettings
    topic: str
    kafka_partition: int
    provenance: Provenance
    chunk: Chunk = "hourly"
    rewrite: bool = False
    condemned: frozenset[int] = frozenset()
    framed: tuple[Literal["key", "value"], ...] = ()
    schema_ids: frozenset[int | str] = frozenset()
    start_hour: datetime | None = None

    def key(self, bucket: Bucket, first: RecordId, suffix: str) -> str:
        """Return the key of the object with the first record `first`; `suffix` is its extension."""
        segment = SegmentKey(
            topic=bucket.topic or self.topic,
            encoded_partition=bucket.encoded_partition,
            kafka_partition=self.kafka_partition,
            first_offset=first.offset,
            extension=suffix,
            epoch=self.provenance.epoch if self.rewrite or first.offset in self.condemned else None,
            ordinal=first.ordinal,
            hour_ms=bucket.hour_ms,
        )
        return new_segment_layout(self.layout).key(segment)

    def longest_key(self, part: BucketPart) -> str:
        """Return the longest key among the objects of a segment beginning with this part."""
        suffixes = [find_extension(self.layout, p).removeprefix(".") for p in self.parts(part.bucket)]
        index_suffix = find_format(self.layout.format).index_suffix
        if index_suffix:
            suffixes.append(index_suffix)
        return max((self.key(part.bucket, part.first, suffix) for suffix in suffixes), key=len)

    def parts(self, bucket: Bucket) -> tuple[ObjectPart, ...]:
        """Return the parts of records that get an object each, values first. Tombstones have no object of values."""
        layout = self.layout
        if layout.is_envelope:
            return ("value",)
        is_tombstone = layout.null_values == "write" and bucket.encoded_partition == layout.tombstone_partition
        parts = {"value": not is_tombstone, "key": layout.keys_format, "headers": layout.headers_format}
        return tuple(part for part, is_written in parts.items() if is_written)  # type: ignore[misc]
