"""Reads the records of an object, with their keys and headers: all of them, or the blocks for a window of offsets."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from kafka_s3_platform.connect.avro.values import is_text
from kafka_s3_platform.connect.config.formats_of_connect import AIVEN_ENVELOPES
from kafka_s3_platform.connect.formats.avro_records import DatumPayload
from kafka_s3_platform.connect.formats.block_gzip import Block, BlockGzipReader, read_index
from kafka_s3_platform.connect.formats.field_reader import read_offset_fields
from kafka_s3_platform.connect.formats.json import JsonLinePayload
from kafka_s3_platform.connect.formats.sink_lines import (
    HEADERS,
    decode_base64_header,
    decode_base64_lines,
    decode_headers,
    encode_foreign_header,
    parse_json_values,
    read_null_lines,
)
from kafka_s3_platform.connect.sources.objects import ForeignObject, ObjectGroup, ObjectSet, is_written_here
from kafka_s3_platform.core.config.formats import Format, find_format
from kafka_s3_platform.core.config.settings import ConnectorConfig, ConverterSettings, SourceSettings
from kafka_s3_platform.core.errors import ConfigError, IntegrityError
from kafka_s3_platform.core.formats.envelope.records import check_place, new_envelope_reader
from kafka_s3_platform.core.formats.format_io import ReadRequest, load_format_io
from kafka_s3_platform.core.formats.kept_offsets import KeptOffsets
from kafka_s3_platform.core.formats.parts import decode_header_text, encode_bytes
from kafka_s3_platform.core.formats.reading import BatchReader, ReadBatch, build_bytes_payload, build_limit_error
from kafka_s3_platform.core.model.batches import NO_TIMESTAMP, RECORD_SCHEMA, read_offset_column
from kafka_s3_platform.core.model.connect import ConnectBatch, Int64s, Payload
from kafka_s3_platform.core.model.offsets import MAX_OFFSET, OffsetRange
from kafka_s3_platform.core.store.objects import ObjectStore

Complaint = Callable[[int, dict[int, str]], str]
"""Takes the number of an object's records, and the bad ones (row -> why). Returns a complaint, or an empty text."""

HOLD_BYTES = 134_217_728
"""128 MiB. A larger object is not held in memory but read twice: first to check it, then to send it."""

# Ids of Kafka's TimestampType.
_NO_TIMESTAMP_TYPE = -1
_CREATE_TIME = 0


@dataclass(frozen=True)
class BlockSelection:
    """The blocks of an object to read: the slice `span` of its `blocks`. The index gives their numbers of records.

    The first selected block begins at `next_offset` or later, the next object at `end_offset` or later.
    """

    blocks: tuple[Block, ...]
    span: slice
    next_offset: int
    end_offset: int

    @property
    def record_count(self) -> int:
        """The number of records in all blocks."""
        return sum(b.num_records for b in self.blocks)

    @property
    def rows(self) -> tuple[int, int]:
        """The positions of the selected records among all records of the object, half-open."""
        first = sum(b.num_records for b in self.blocks[: self.span.start])
        return first, first + self.record_count - self.left_out_count

    @property
    def left_out_count(self) -> int:
        """The number of records in other blocks."""
        return self.record_count - sum(b.num_records for b in self.blocks[self.span])


def select_blocks_by_offsets(blocks: Sequence[Block], offsets: KeptOffsets, start: int, end: int) -> BlockSelection:
    """Select the blocks with source offsets [start, end). The offset of each record is known."""
    bounds = np.cumsum([0, *(b.num_records for b in blocks)])
    bounds = np.append(offsets.of(0, offsets.count), offsets.last + 1)[bounds]
    first = bisect_right(bounds[1:].tolist(), start)
    last = bisect_left(bounds[:-1].tolist(), end)
    return BlockSelection(tuple(blocks), slice(first, last), offsets.first, offsets.last + 1)


def select_blocks_by_counts(blocks: Sequence[Block], next_offset: int, start: int, end: int) -> BlockSelection:
    """Select the blocks with source offsets [start, end), by counting records.

    Reading every block would count the same offsets: a block begins at its offset in the index, or after the block
    before it if this is higher. The first block begins at `next_offset` or later.
    """
    starts: list[int] = []
    ends: list[int] = []
    position = next_offset
    for block in blocks:
        starts.append(max(position, block.first_record_offset))
        position = starts[-1] + block.num_records
        ends.append(position)
    first = bisect_right(ends, start)
    last = bisect_left(starts, end)
    return BlockSelection(tuple(blocks), slice(first, last), ends[first - 1] if first else next_offset, position)


class Contents:
    """Opens the objects of a source, and reads their records according to the sink's file and their own metadata."""

    def __init__(self, config: ConnectorConfig, store: ObjectStore) -> None:
        self._config = config
        self._store = store
        self.ends_open: dict[str, bool] = {}
        """By the key of each object read: True if its last record has no separator after it, and needs none."""

    def read_block_index(self, objects: ObjectSet) -> tuple[Block, ...] | None:
        """Read the index of an object's blocks. Return None if it has no blocks, or no index."""
        limits = self._config.store.limits
        suffix = find_format(self._config.layout.format).index_suffix
        if not suffix or objects.value is None:
            return None
        # The index lies beside the object and replaces its ending `.gz`.
        index_key = f"{objects.name.key.removesuffix('.gz')}.{suffix}"
        index = self._store.head(index_key)
        if index is None:
            return None
        if index.size > limits.footer_bytes:
            raise build_limit_error(index_key, f"has {index.size:,} bytes", "footer.bytes")
        return read_index(self._store.get(index_key), index_key, objects.name.size)

    def read_records(self, objects: ObjectSet, blocks: BlockSelection | None = None) -> Iterator[ReadBatch]:
        """Read the records of an object set with their keys and headers. `blocks` limits the values to these blocks."""
        if self._config.layout.is_envelope:
            yield from self._read_envelope(objects.name)
            return
        parts = {o.part: self._read_part(o) for o in objects.objects if blocks is None or o.part != "value"}
        if blocks is not None:
            parts["value"] = self._parse_values(self._read_blocks(objects.name, blocks))
        yield from align_parts(parts, objects.name.key)

    def _read_envelope(self, item: ForeignObject) -> Iterator[ReadBatch]:
        """Read whole records. Refuse records whose kafka partition or offset does not fit the object's key."""
        offsets = OffsetRange(item.first_offset or 0, MAX_OFFSET)
        limits = self._config.store.limits
        reader = new_envelope_reader(self._config.layout.format, self._open_object(item), item.key, limits)
        for batch in reader.batches():
            check_place(batch, item.kafka_partition, offsets, item.key)
            if batch.num_rows and batch.column("topic").unique().to_pylist() != [item.topic]:
                raise IntegrityError(f"object {item.key} holds records of another topic than {item.topic}")
            yield ReadBatch(
                build_bytes_payload(batch.column("value")),
                key=build_bytes_payload(batch.column("key")),
                headers=batch.column("headers"),
                offsets=read_offset_column(batch),
                timestamps=batch.column("timestamp").cast(pa.int64()).to_numpy(),
                timestamp_types=batch.column("timestampType"),
            )

    def _read_part(self, item: ForeignObject) -> Iterator[ReadBatch]:
        """Open an object of values, keys or headers, and decode them according to the sink that wrote the object."""
        layout = self._config.layout
        source = self._config.source or SourceSettings()
        format_name = {"value": layout.format, "key": layout.keys_format, "headers": layout.headers_format}[item.part]
        format_row = find_format(format_name or "")
        object_file = self._open_object(item)
        is_own = is_written_here(object_file.info)
        # Aiven's sink writes objects of values alone in its own ways. Ours does not, even with Aiven's connector file.
        aiven_format = source.bare if item.part == "value" and not is_own else None
        if format_row.envelope is None and aiven_format not in {None, "jsonl"}:
            format_row = find_format(AIVEN_ENVELOPES[aiven_format])
        batches = self._make_format_reader(item, format_row, object_file, is_own=is_own).batches()
        if format_row.envelope is not None:
            return batches
        if item.part == "value":
            batches = self._parse_values(batches)
        if item.part == "value" and (source.offset_field or source.timestamp_field):
            batches = read_offset_fields(batches, source, layout.timezone)
        if item.part == "headers":
            # Our own sink, whose objects have metadata, writes headers in its own way, whatever converter is named.
            decode_foreign = decode_base64_header if "headers" in source.base64 else encode_foreign_header
            return decode_headers(batches, decode_header_text if is_own else decode_foreign)
        if item.part not in source.base64:
            return read_null_lines(batches) if aiven_format else batches
        return decode_base64_lines(batches) if format_row.has_base64 else batches

    def _parse_values(self, batches: Iterator[ReadBatch]) -> Iterator[ReadBatch]:
        """Parse values as JSON if the sink wrote JsonConverter's results as text. Otherwise return them unchanged."""
        if self._config.records.value.format == "JSON" and find_format(self._config.layout.format).holds_texts:
            return parse_json_values(batches, self._config.store.limits.depth)
        return batches

    def _make_format_reader(
        self, item: ForeignObject, format_row: Format, object_file: Any, *, is_own: bool
    ) -> BatchReader:
        """Make the reader of an object in this format."""
        new_reader = load_format_io(format_row).new_reader
        if new_reader is None:
            raise ConfigError(
                f"object {item.key}: the format {format_row.name} holds whole records, not {item.part}s alone"
            )
        converter = self._config.records.key if item.part == "key" else self._config.records.value
        return new_reader(
            ReadRequest(
                source=object_file,
                key=item.key,
                layout=self._config.layout,
                settings=self._config.source or SourceSettings(),
                part=item.part,
                format_name=format_row.name,
                codec=self._codec,
                topic=item.topic,
                kafka_partition=item.kafka_partition,
                is_own=is_own,
                may_end_open=self._may_end_open,
                any_bytes=is_own or self._has_any_bytes(item),
                is_wrapped=converter.format in {"STRING", "BYTES"},
                limits=self._config.store.limits,
                ends_open=partial(self.ends_open.__setitem__, item.key),
            )
        )

    @property
    def _codec(self) -> str:
        """The codec from the connector file, for objects without one in their names, or empty if it names none."""
        layout = self._config.layout
        is_named = (self._config.source or SourceSettings()).codec_is_named
        # Connect's own names end with their codec, so a name without such an ending belongs to an uncompressed object.
        codec = "none" if layout.key_layout == "connect" and layout.extension is None else layout.codec
        return codec if is_named or codec != "none" else ""

    @property
    def _may_end_open(self) -> bool:
        """True if the last value of bytes may lack its separator. Sinks with Connect's names always write one."""
        layout = self._config.layout
        source = self._config.source or SourceSettings()
        return layout.key_layout in {"template", "zooz"} or source.separator_is_named

    def _has_any_bytes(self, item: ForeignObject) -> bool:
        """Return True if values may hold any bytes, because their separator can be trusted.

        It can if the file names it, or if objects of another format count the same records.
        """
        layout = self._config.layout
        formats = {"value": layout.format, "key": layout.keys_format, "headers": layout.headers_format}
        if item.is_tombstone:
            del formats["value"]
        other_formats = [find_format(name) for part, name in formats.items() if name and part != item.part]
        is_counted = any(not row.has_separator for row in other_formats)
        return is_counted or (self._config.source or SourceSettings()).separator_is_named

    def _read_blocks(self, item: ForeignObject, blocks: BlockSelection) -> Iterator[ReadBatch]:
        """Read the selected blocks of a Block-GZIP object, and none of its other bytes."""
        object_file = self._open_object(item)

        def read_range(start: int, length: int) -> bytes:
            return self._store.read_range(item.key, start, start + length, object_file.info.etag)

        limits = self._config.store.limits
        return BlockGzipReader(read_range, blocks.blocks, item.key, blocks.span, limits).batches()

    def _open_object(self, item: ForeignObject) -> Any:
        """Open the object as it was listed. Raise IntegrityError if it was replaced since."""
        object_file = self._store.open(item.key, item.etag)
        if object_file.info.size != item.size:
            raise IntegrityError(
                f"object {item.key} has {object_file.info.size} bytes, but was listed with {item.size}"
            )
        return object_file


def restore_kafka_bytes(payload: Payload, converter: ConverterSettings) -> Payload:
    """Return text and bytes as bytes if their converter keeps them as they are. Return anything else as it was read."""
    if converter.format not in {"STRING", "BYTES"}:
        return payload
    if isinstance(payload, DatumPayload) and all(map(is_text, payload.schemas)):
        return build_bytes_payload(
            pa.array([None if o is None else encode_bytes(o) for o in payload.objects], pa.binary())
        )
    if isinstance(payload, JsonLinePayload) and converter.format == "STRING":
        texts = zip(payload.objects, pa.array(payload.raw).to_pylist(), strict=True)
        return build_bytes_payload(
            pa.array([o.encode() if isinstance(o, str) else raw for o, raw in texts], pa.binary())
        )
    return payload


def align_parts(parts: dict[Any, Iterator[ReadBatch]], key: str) -> Iterator[ReadBatch]:
    """Join values, keys and headers of the same records by position. Raise IntegrityError if one part has fewer."""
    waiting: dict[Any, ReadBatch] = {}
    while True:
        for part, batches in parts.items():
            if part not in waiting and (batch := next((b for b in batches if len(b)), None)) is not None:
                waiting[part] = batch
        if not waiting:
            return
        if missing := [part for part in parts if part not in waiting]:
            others = ", ".join(waiting)
            raise IntegrityError(f"object {key} has fewer records of {' and '.join(missing)} than of {others}")
        size = min(map(len, waiting.values()))
        yield _join_parts({part: batch.take(np.arange(size)) for part, batch in waiting.items()}, size)
        # The batches of the parts end at different records. The rest of each waits for the next batches of the others.
        remaining = {
            part: batch.take(np.arange(size, len(batch))) for part, batch in waiting.items() if len(batch) > size
        }
        waiting = remaining


def _join_parts(parts: dict[Any, ReadBatch], size: int) -> ReadBatch:
    """Put values, keys and headers of the same records into one batch. A record is bad if any part of it is bad."""
    reasons = {row: why for batch in parts.values() for row, why in batch.bad.items()}
    value = parts.get("value")
    key = parts.get("key")
    headers = parts.get("headers")
    # Tombstones have no object of values.
    if value is None:
        value = ReadBatch(build_bytes_payload(pa.nulls(size, pa.binary())))
    return ReadBatch(
        value.value,
        reasons,
        value.key if key is None else key.value,
        value.headers if headers is None else _convert_headers(headers.value),
        value.offsets,
        value.timestamps,
    )


def _convert_headers(payload: Payload) -> pa.Array:
    """Convert the headers of each record. Having no headers becomes null."""
    return pa.array([headers or None for headers in payload.objects], HEADERS)


@dataclass(frozen=True)
class CheckedObject:
    """The batches of an object read to its end without fault. Those in memory take `memory_bytes`."""

    batches: Iterator[ReadBatch]
    count: int
    is_in_memory: bool
    memory_bytes: int


def check_object(
    open_batches: Callable[[], Iterator[ReadBatch]], find_complaint: Complaint, key: str, most_bad: int, hold_bytes: int
) -> CheckedObject:
    """Check every batch of an object, then return all batches. Small objects stay in memory, others are read again."""
    batches: list[ReadBatch] | None = []
    bad: dict[int, str] = {}
    size = count = 0
    for batch in open_batches():
        bad |= {count + row: why for row, why in batch.bad.items()}
        if len(bad) > most_bad:
            raise build_limit_error(key, f"has more than {most_bad:,} lines that cannot be read", "bad.records")
        count += len(batch)
        size += batch.nbytes
        if batches is not None and size > hold_bytes:
            batches = None
        if batches is not None:
            batches.append(batch)
    if fault := find_complaint(count, bad):
        raise IntegrityError(fault)
    if batches is None:
        return CheckedObject(open_batches(), count, is_in_memory=False, memory_bytes=0)
    return CheckedObject(iter(batches), count, is_in_memory=True, memory_bytes=size)


class OffsetSummary:
    """Summarizes the offsets of an object's good records, batch by batch."""

    def __init__(self) -> None:
        self.least: int | None = None
        self.greatest = -1
        self.is_ascending = True

    def add(self, batch: ReadBatch) -> None:
        """Add the offsets of the next batch."""
        offsets = np.delete(get_offsets(batch), list(batch.bad))
        if not len(offsets):
            return
        least = int(offsets.min())
        self.is_ascending = self.is_ascending and least > self.greatest and bool((np.diff(offsets) > 0).all())
        self.least = least if self.least is None else min(self.least, least)
        self.greatest = max(self.greatest, int(offsets.max()))


def get_offsets(batch: ReadBatch) -> Int64s:
    """Return the offset of each record, or -1 for a record without one."""
    if batch.offsets is None:
        return np.full(len(batch), -1, np.int64)
    return batch.offsets


def mark_records_without_offset(batch: ReadBatch) -> ReadBatch:
    """Mark every record without an offset as bad."""
    offsets = get_offsets(batch)
    rows = np.flatnonzero(offsets < 0).tolist()
    if not rows:
        return batch
    bad = {row: f"its record {row + 1} of those read at once has no offset" for row in rows}
    return replace(batch, offsets=offsets, bad={**bad, **batch.bad})


def build_connect_batch(config: ConnectorConfig, group: ObjectGroup, batch: ReadBatch) -> ConnectBatch:
    """Build the records of a batch that has offsets. A part missing in the object becomes null, or NO_TIMESTAMP."""
    records = config.records
    size = len(batch)
    value = restore_kafka_bytes(batch.value, records.value)
    key = (
        build_bytes_payload(pa.nulls(size, pa.binary()))
        if batch.key is None
        else restore_kafka_bytes(batch.key, records.key)
    )
    times = np.full(size, NO_TIMESTAMP, np.int64) if batch.timestamps is None else batch.timestamps
    timestamp_types = pa.array(np.where(times == NO_TIMESTAMP, _NO_TIMESTAMP_TYPE, _CREATE_TIME), pa.int32())
    columns = [
        key.raw,
        value.raw,
        pa.nulls(size, HEADERS) if batch.headers is None else batch.headers,
        pa.repeat(group.topic, size),
        pa.array(np.full(size, group.kafka_partition), pa.int32()),
        pa.array(batch.offsets),
        pa.array(times).cast(RECORD_SCHEMA.field("timestamp").type),
        timestamp_types if batch.timestamp_types is None else batch.timestamp_types,
    ]
    return ConnectBatch(pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA), key, value)
