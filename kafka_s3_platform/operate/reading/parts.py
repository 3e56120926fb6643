"""Reads what Arrow cannot read: whole records in JSON or Avro, values alone, and objects of other sinks.

Restores and verification use the same readers. A *part* is the smallest unit of a task, and can be read by itself on
any machine.
"""

import logging
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.connect.converters.encoding import new_encoder
from kafka_s3_platform.connect.sources.contents import Contents
from kafka_s3_platform.connect.sources.objects import ForeignObject, ObjectGroup, group_objects
from kafka_s3_platform.connect.sources.read import ForeignStream
from kafka_s3_platform.connect.sources.scan import is_own_document
from kafka_s3_platform.core.config.formats import find_format
from kafka_s3_platform.core.config.settings import (
    ConnectorConfig,
    ConverterSettings,
    LayoutSettings,
    SourceSettings,
    StoreSettings,
)
from kafka_s3_platform.core.errors import ConfigError, IntegrityError
from kafka_s3_platform.core.formats.columns import RecordDigest
from kafka_s3_platform.core.formats.envelope.records import check_place, new_envelope_reader
from kafka_s3_platform.core.layouts.new_layout import new_key_reader
from kafka_s3_platform.core.layouts.segment_key import KeyReader, Refusal
from kafka_s3_platform.core.model.batches import NO_TIMESTAMP, RECORD_SCHEMA
from kafka_s3_platform.core.model.connect import ConnectBatch, Payload, Side
from kafka_s3_platform.core.model.segment import Segment, StoredObject
from kafka_s3_platform.core.store.objects import ObjectStore

logger = logging.getLogger(__name__)

TIMES = RECORD_SCHEMA.field("timestamp").type

_TIMELESS = ("timestamp", "timestampType")
VALUES_SCHEMA = pa.schema(
    [column.with_nullable(column.nullable or column.name in _TIMELESS) for column in RECORD_SCHEMA]
)
"""`RECORD_SCHEMA` for objects that may lack the timestamps of their records, which are then null."""


class ReadPart(Protocol):
    """The smallest unit of a task: an object, or objects of one kafka partition that have to be read together."""

    @property
    def size(self) -> int:
        """The number of bytes of the objects."""
        ...

    @property
    def newest_ms(self) -> int:
        """The latest known time of a record (epoch ms)."""
        ...

    @property
    def last(self) -> "ReadPart":
        """A part with only the last object, enough to find the schema of the newest value."""
        ...

    def split(self, task_bytes: int, /) -> "Iterator[ReadPart]":
        """Split the part into smaller ones of about this number of bytes, if reading can begin inside it."""
        ...

    def describe(self) -> pc.Expression:
        """Return a condition that all its records meet."""
        ...

    def batches(self, columns: Collection[str], /) -> Iterator[ConnectBatch]:
        """Read the records. Columns not in `columns` may hold anything, but payloads of keys and values are complete.

        Raises:
            IntegrityError: an object is damaged.
            NotFoundError: an object is gone.
        """
        ...


@dataclass(frozen=True)
class EnvelopePart:
    """One object of whole records. It is always read to its end and compared with the index."""

    store: StoreSettings = field(repr=False)
    segment: Segment

    @property
    def size(self) -> int:
        return self.segment.size

    @property
    def newest_ms(self) -> int:
        return self.segment.max_timestamp

    @property
    def last(self) -> ReadPart:
        return self

    def split(self, _: int) -> Iterator[ReadPart]:
        yield self

    def describe(self) -> pc.Expression:
        return describe_segment(self.segment)

    def batches(self, _: Collection[str]) -> Iterator[ConnectBatch]:
        """Yield the object's records. At the end, raise IntegrityError if their digest differs from the index."""
        segment = self.segment
        digest = RecordDigest()
        with ObjectStore(self.store).open_stored(segment.objects[0]) as source:
            for batch in new_envelope_reader(segment.format, source, segment.key, self.store.limits).batches():
                check_place(batch, segment.kafka_partition, segment.offsets, segment.key)
                digest.update(batch)
                yield ConnectBatch.of(batch)
        if digest.hexdigest() != segment.digest:
            raise IntegrityError(
                f"object {segment.key} holds records of digest {digest.hexdigest()}, the index has {segment.digest}: "
                f"it is not the object that was written"
            )


@dataclass(frozen=True)
class ValuesPart:
    """Objects of one kafka partition with values, or with whole records from another sink.

    Only source offsets in [`start_offset`, `end_offset`) are read, to the end if it is None. `archived_objects` are
    those in the index, or none for a listing. `size` is about their bytes. `newest_ms` is a record's latest known time.
    """

    config: ConnectorConfig = field(repr=False)
    group: ObjectGroup
    size: int
    newest_ms: int
    archived_objects: tuple[StoredObject, ...] = ()
    start_offset: int = 0
    end_offset: int | None = None

    @property
    def last(self) -> ReadPart:
        return replace(self, group=replace(self.group, sets=self.group.sets[-1:]))

    def split(self, task_bytes: int) -> Iterator[ReadPart]:
        """Split at the blocks of Block-GZIP objects. Each record is in exactly one part."""
        starts = [0, *self._find_cuts(task_bytes)]
        for start, end in pairwise([*starts, None]):
            yield replace(self, size=self.size // len(starts), start_offset=start or 0, end_offset=end)

    def _find_cuts(self, task_bytes: int) -> list[int]:
        """Return the first offsets of the blocks to split the part at, into tasks of about `task_bytes`."""
        settings = self.config.source or SourceSettings()
        # All blocks are read anyway if keys lie beside values, or if bad objects are skipped.
        is_plain = settings.behavior_on_error == "fail" and all(
            len(object_set.objects) == 1 for object_set in self.group.sets
        )
        if self.size <= task_bytes or not is_plain or not find_format(self.config.layout.format).index_suffix:
            return []
        contents = Contents(self.config, ObjectStore(self.config.store))
        cuts = [0]
        part_bytes = 0
        for objects in self.group.sets:
            for block in contents.read_block_index(objects) or ():
                if part_bytes >= task_bytes and block.first_record_offset > cuts[-1]:
                    cuts.append(block.first_record_offset)
                    part_bytes = 0
                part_bytes += block.byte_length
        return cuts[1:]

    def describe(self) -> pc.Expression:
        condition = pc.field("partition") == pa.scalar(self.group.kafka_partition, pa.int32())
        if self.start_offset:
            condition &= pc.field("offset") >= self.start_offset
        return condition if self.end_offset is None else condition & (pc.field("offset") < self.end_offset)

    def batches(self, columns: Collection[str]) -> Iterator[ConnectBatch]:
        """Yield the records with bytes in the columns, and log skipped and missing ones."""
        store = ObjectStore(self.config.store)
        # A copy of an object has another ETag than the one in the index.
        etags = {item.key: store.open_stored(item).info.etag for item in self.archived_objects}
        sets = [
            replace(object_set, **{o.part: replace(o, etag=etags.get(o.key, o.etag)) for o in object_set.objects})
            for object_set in self.group.sets
        ]
        group = replace(self.group, sets=tuple(sets))
        stream = ForeignStream(self.config, group, store, self.start_offset, self.end_offset)
        for batch in stream.batches():
            yield replace(batch, records=self._complete_records(batch, columns))
        for line in (*stream.report.skipped_objects, *stream.report.skipped_records, *stream.report.gaps):
            logger.warning("%s-%d: %s", group.topic, group.kafka_partition, line)

    def _complete_records(self, batch: ConnectBatch, columns: Collection[str]) -> pa.RecordBatch:
        """Return the records with null for missing timestamps, and with the bytes of keys and values if needed."""
        records = batch.records
        has_time = pc.not_equal(records.column("timestamp").cast(pa.int64()), NO_TIMESTAMP)
        arrays = dict(zip(records.schema.names, records.columns, strict=True))
        arrays |= {name: pc.if_else(has_time, arrays[name], None) for name in _TIMELESS}
        if "key" in columns:
            arrays["key"] = self._to_bytes("key", batch.key, batch)
        if "value" in columns:
            arrays["value"] = self._to_bytes("value", batch.value, batch)
        return pa.RecordBatch.from_arrays([arrays[name] for name in VALUES_SCHEMA.names], schema=VALUES_SCHEMA)

    def _to_bytes(self, side: Side, payload: Payload, batch: ConnectBatch) -> pa.BinaryArray:
        """Return the bytes in the object. A key or value with a schema becomes JSON, as JsonFormat writes it."""
        if payload.raw is not None and payload.raw_is_value:
            return payload.raw
        encoding = new_encoder(_AS_JSON, self.group.topic, side == "key").encode(payload)
        for row, why in encoding.bad.items():
            raise IntegrityError(
                f"{self.group.topic}-{self.group.kafka_partition}, offset {batch.offsets[row]}: the {side} {why}"
            )
        return encoding.column


_AS_JSON = ConverterSettings(format="JSON")


def make_listed_part(config: ConnectorConfig, group: ObjectGroup) -> ValuesPart:
    """Make the part for the listed objects of a kafka partition."""
    windows = (object_set.name.window for object_set in group.sets)
    return ValuesPart(config, group, group.size, max((window[1] for window in windows if window), default=NO_TIMESTAMP))


def make_values_parts(config: ConnectorConfig, segments: Iterable[Segment]) -> Iterator[ValuesPart]:
    """Make a part from each of our objects of values. Raise ConfigError if the connector's file does not fit them."""
    for settings, same_settings in groupby(segments, key=lambda segment: segment.settings):
        group = list(same_settings)
        reader_config = _make_reader_config(config, group[0].key, settings)
        keys = new_key_reader(reader_config)
        yield from (_make_values_part(reader_config, keys, segment) for segment in group)


def _make_reader_config(config: ConnectorConfig, key: str, written_layout: str) -> ConnectorConfig:
    """Return the config for reading back an object of values. `written_layout` is its writer's layout, as JSON.

    Raises ConfigError if the connector's file does not tell how to read the format.
    """
    layout = LayoutSettings.model_validate_json(written_layout)
    reader = config.reader
    if reader is None or reader.layout.format != layout.format:
        reasons = f": {'; '.join(config.unreadable)}" if config.unreadable else ""
        raise ConfigError(
            f"connector {config.name}: object {key} holds values alone, of format {layout.format}, and the connector's "
            f"file does not say how they are read back{reasons}. Leave it out by start and end, or read it by the "
            f"file of a source connector that has the format, the converters and the folder of that time"
        )
    # Names of another sink's objects end as its reader's file says, whatever the writer of this object used.
    read_layout = layout.model_copy(update={"extension": reader.layout.extension})
    return reader.model_copy(update={"layout": read_layout})


def _make_values_part(config: ConnectorConfig, keys: KeyReader, segment: Segment) -> ValuesPart:
    """Make the part of a segment with only objects of values. Raise ConfigError if a key cannot be read."""
    objects: dict[StoredObject, ForeignObject] = {}
    for archived_object in segment.objects:
        parsed = keys.read(archived_object.key)
        if is_own_document(archived_object.key, config) or (isinstance(parsed, Refusal) and parsed.problem == "index"):
            continue
        if isinstance(parsed, Refusal):
            raise ConfigError(f"connector {config.name}: object {archived_object.key}: {parsed.reason}")
        objects[archived_object] = ForeignObject(
            topic=parsed.segment.topic,
            kafka_partition=segment.kafka_partition,
            first_offset=segment.start_offset,
            encoded_partition=segment.encoded_partition,
            part=parsed.part,
            key=archived_object.key,
            size=archived_object.size,
            etag=archived_object.etag,
            is_tombstone=parsed.is_tombstone,
        )
    [group] = group_objects(objects.values())
    return ValuesPart(config, group, group.size, segment.max_timestamp, tuple(objects))


def describe_segment(segment: Segment) -> pc.Expression:
    """Return a condition, taken from the index, that all records of an object of whole records meet."""
    # If this were an equality, Arrow would take the value from the index, and not from the object.
    kafka_partition = pa.scalar(segment.kafka_partition, pa.int32())
    return (
        (pc.field("partition") >= kafka_partition)
        & (pc.field("partition") <= kafka_partition)
        & (pc.field("offset") >= segment.start_offset)
        & (pc.field("offset") < segment.end_offset)
        & (pc.field("timestamp") >= pa.scalar(segment.min_timestamp, TIMES))
        & (pc.field("timestamp") <= pa.scalar(segment.max_timestamp, TIMES))
    )
