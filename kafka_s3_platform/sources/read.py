"""The records of objects that hold values alone, or what other sinks keep around them, of one source kafka partition.

Offsets are real where the object tells them (an envelope, a dense Block-GZIP block, our own objects without holes),
else positions, counted from the first offset in the object's name, or on from the record before where there is none.
Timestamps that are not told are NO_TIMESTAMP: nothing is made up from folders.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from kafka_s3_platform.config.plugins import FORMAT_READER, load_class
from kafka_s3_platform.config.settings import ConnectorConfig, ConverterSettings, LayoutSettings, SourceSettings
from kafka_s3_platform.errors import IntegrityError
from kafka_s3_platform.formats.aiven_reader import HEADERS, AivenReader
from kafka_s3_platform.formats.avro_reader import AvroReader
from kafka_s3_platform.formats.avro_schema import is_text
from kafka_s3_platform.formats.block_gzip import INDEX_SUFFIX, read_index
from kafka_s3_platform.formats.block_gzip_reader import BlockGzipReader
from kafka_s3_platform.formats.bytes_reader import BytesReader
from kafka_s3_platform.formats.damage import beyond
from kafka_s3_platform.formats.envelopes import check_place, envelope_reader, is_envelope
from kafka_s3_platform.formats.json_reader import JsonLinePayload, JsonReader
from kafka_s3_platform.formats.lenses_reader import LensesReader, Place
from kafka_s3_platform.formats.merge import MergeSource, merge_by_offset
from kafka_s3_platform.formats.parquet_reader import ParquetReader
from kafka_s3_platform.formats.reading import BatchReader, DatumPayload, ReadBatch, batched, bytes_payload
from kafka_s3_platform.formats.sink_lines import Base64Headers, Base64Lines, NullLines
from kafka_s3_platform.model.connect import ConnectBatch, Int64s, Payload, Positions
from kafka_s3_platform.model.offsets import MAX_OFFSET, OffsetRange
from kafka_s3_platform.model.record import NO_TIMESTAMP, RECORD_SCHEMA
from kafka_s3_platform.sources.blocks import WantedBlocks, wanted_blocks
from kafka_s3_platform.sources.objects import MAX_LINES, BadObject, ForeignObject, ObjectGroup, ObjectSet
from kafka_s3_platform.store.objects import ObjectFile, ObjectStore

logger = logging.getLogger(__name__)

B = TypeVar("B", ReadBatch, pa.RecordBatch)
Complaint = Callable[[int, dict[int, str]], str]
"""Given how many records an object has and which are bad: what is wrong with it, or nothing."""

RECORD_COUNT = "record-count"
"""What the metadata of our own objects say besides their offsets."""

HOLD_BYTES = 134_217_728
"""An object that comes to more is read twice instead of held: once to be sure of it, once to send it."""

_NO_TIMESTAMP_TYPE = -1
_CREATE_TIME = 0


@dataclass
class ReadReport:
    """What a stream gave, and what there is to say of it. `position_count` records have no proven offset."""

    record_count: int = 0
    position_count: int = 0
    timeless_count: int = 0
    tombstone_count: int = 0
    skipped_objects: list[str] = field(default_factory=list)
    skipped_records: list[str] = field(default_factory=list)
    skipped_record_count: int = 0
    bad_objects: dict[str, BadObject] = field(default_factory=dict)

    def notes(self, config: ConnectorConfig) -> list[str]:
        """Sentences for the restore's report."""
        return [*self._counts(), *_of_layout(config.layout, self.tombstone_count)]

    def _counts(self) -> Iterator[str]:
        if self.position_count:
            yield (
                f"{self.position_count} records: source offsets are positions, counted from the first offset in the"
                " object's name: holes inside of an object are not known"
            )
        if self.timeless_count:
            yield (
                f"{self.timeless_count} records: no object tells their timestamp; the target's is the time of the"
                " restore (CreateTime)"
            )
        if self.skipped_objects:
            yield f"{len(self.skipped_objects)} objects were skipped: {'; '.join(self.skipped_objects[:10])}"
        if self.skipped_records:
            yield f"{self.skipped_record_count} records were skipped: {'; '.join(self.skipped_records[:10])}"


def _of_layout(layout: LayoutSettings, tombstones: int) -> Iterator[str]:
    if layout.format == "bytes" and layout.bytes_separator != "length":
        yield (
            "records were told apart by their separator: that none held it itself, and that the last one of an object "
            "without one at its end is whole, cannot be proven"
        )
    if layout.partitioner == "Field":
        yield "order is by file: FieldPartitioner's objects hold records that lay between those of others"
    if layout.partitioner in {"Hourly", "Daily", "TimeBased"} and layout.timestamp_extractor == "Wallclock":
        yield "folders tell when records were archived, not their own timestamps"
    if tombstones:
        yield (
            f"{tombstones} records without a value came from a folder of their own: where they lay between the values"
            " of one object is not known, so a key that was deleted and written again may end otherwise"
        )


class ForeignStream:
    """The records of one group of objects, ascending by offset, of source offsets [`start_offset`, `end_offset`).

    Objects and blocks that hold none of them are not read, where that can be told without it.
    An object goes out only when all of it was read: every record decoded, as many keys and headers as values, as many
    records as its metadata say. Then `behavior.on.error` decides about one that is not so: it fails, or is skipped and
    reported; single lines of JSON are skipped alone. Iterated, it gives batches of RECORD_SCHEMA; `batches` gives them
    with decoded values and their schemas. Where values are Avro data of a schema, their column holds the bare data.

    `left_out` is what was decided before (object key -> why): these objects are skipped unseen, and no others.

    Raises (when iterated):
        IntegrityError: an object is missing, replaced, damaged or not thawed, and `behavior.on.error` is `fail`, or it
            is not among those that were to be left out.
    """

    def __init__(
        self,
        config: ConnectorConfig,
        group: ObjectGroup,
        store: ObjectStore | None = None,
        start_offset: int = 0,
        end_offset: int | None = None,
        left_out: Mapping[str, str] | None = None,
    ) -> None:
        self._left_out = left_out
        self._config, self._group, self._start = config, group, start_offset
        self._end = MAX_OFFSET if end_offset is None else end_offset
        self._store = store or ObjectStore(config.store)
        self._limits = config.store.limits
        behavior = (config.source or SourceSettings()).behavior_on_error
        # An earlier run has left out what is bad: its records of a good object too.
        self._behavior = "ignore" if left_out is not None and behavior == "fail" else behavior
        self._next = 0
        self._is_proven = False
        self.report = ReadReport()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return (batch.records for batch in self.batches())

    def batches(self) -> Iterator[ConnectBatch]:
        """The records with their keys and values as payloads."""
        self.report, self._next = ReadReport(), 0
        if is_envelope(self._config.layout.format):
            yield from self._merged()
            return
        sets = self._group.sets
        for at, objects in enumerate(sets):
            if max(self._next, objects.name.first_offset or 0) >= self._end:
                return
            if not self._is_past(objects, sets[at + 1 : at + 3]):
                yield from self._records(objects)

    def _records(self, objects: ObjectSet) -> Iterator[ConnectBatch]:
        if self._is_left_out(objects.name):
            return
        try:
            blocks = self._wanted_blocks(objects)
        except IntegrityError as err:
            self._is_bad(objects.name, err)
            return
        if blocks is None:
            for found in self._sure(objects.name, partial(self._read, objects), self._complaint(objects)):
                yield from self._sent(objects, found)
        else:
            yield from self._records_of_blocks(objects, blocks)

    def _records_of_blocks(self, objects: ObjectSet, blocks: WantedBlocks) -> Iterator[ConnectBatch]:
        if blocks.left_out_count < blocks.record_count:
            opened = partial(self._read, objects, blocks)
            batches = self._sure(objects.name, opened, self._complaint(objects, blocks.left_out_count))
            self._next = blocks.next_offset
            for found in batches:
                yield from self._sent(objects, found)
        # Also behind the window: where records begin must not depend on what of it was read.
        self._next = blocks.end_offset

    def _wanted_blocks(self, objects: ObjectSet) -> WantedBlocks | None:
        """Of an object with an index of its blocks; None of any other, and without an index."""
        if self._config.layout.format != "block_gzip" or objects.value is None:
            return None
        index_key = f"{objects.name.key.removesuffix('.gz')}.{INDEX_SUFFIX}"
        index = self._store.head(index_key)
        if index is None:
            return None
        if index.size > self._limits.footer_bytes:
            raise beyond(index_key, f"has {index.size:,} bytes", "footer.bytes")
        blocks = read_index(self._store.get(index_key), index_key, objects.name.size)
        # What is skipped if any of it is bad has to be looked at as a whole, and so has what lies beside other objects.
        is_whole = self._behavior != "fail" or len(objects.objects) > 1
        return wanted_blocks(blocks, self._next, *((0, MAX_OFFSET) if is_whole else (self._start, self._end)))

    def _merged(self) -> Iterator[ConnectBatch]:
        """Whole records, by their own offsets: those of several folders lay between one another."""
        within = [s.name for s in self._group.sets if (s.name.first_offset or 0) < self._end]
        before = [item for item in within if not self._is_left_out(item)]
        sources = [self._merge_source(item) for item in before]
        for records in merge_by_offset([s for s in sources if s.end_offset > max(self._start, s.start_offset)]):
            offsets = records.column("offset").to_numpy()
            kept = records.slice(*_within(offsets, self._start, self._end))
            if kept.num_rows:
                self.report.record_count += kept.num_rows
                yield ConnectBatch.of(kept)

    def _merge_source(self, item: ForeignObject) -> MergeSource:
        count, last = self._told(item)

        def records() -> Iterator[pa.RecordBatch]:
            return self._sure(item, lambda: self._envelope(item), lambda found, _: _cut_off(item, found, count))

        if item.first_offset is not None and last is not None:
            return MergeSource(item.first_offset, last + 1, records)
        ends = [batch.column("offset") for batch in records() if batch.num_rows]
        first, last = (int(ends[0][0].as_py()), int(ends[-1][-1].as_py())) if ends else (0, -1)
        return MergeSource(first, last + 1, records)

    def _envelope(self, item: ForeignObject) -> Iterator[pa.RecordBatch]:
        offsets = OffsetRange(item.first_offset or 0, MAX_OFFSET)
        for batch in self._envelope_batches(item):
            check_place(batch, item.kafka_partition, offsets, item.key)
            if batch.num_rows and batch.column("topic").unique().to_pylist() != [item.topic]:
                raise IntegrityError(f"object {item.key} holds records of another topic than {item.topic}")
            yield batch

    def _envelope_batches(self, item: ForeignObject) -> Iterator[pa.RecordBatch]:
        return envelope_reader(self._config.layout.format, self._opened(item), item.key, self._limits).batches()

    def _is_past(self, objects: ObjectSet, following: Sequence[ObjectSet]) -> bool:
        """Whether all of an object lies before the start, which is told without reading it."""
        first = objects.name.first_offset
        ends = [s.name.first_offset for s in following]
        are_before = [end is not None and end <= self._start for end in ends]
        if first is None or not any(are_before[:1]) or not self._is_exclusive:
            return False
        count, last = self._told(objects.name)
        if count is None or last is None:
            # The one before the first that is read is read too: it may reach into that.
            return are_before == [True, True]
        # Our own sink ends objects with their hour: they lie between one another, unless they have no holes.
        if last - first + 1 != count or first < self._next or last >= self._start:
            return False
        self._next = last + 1
        return True

    def _sure(
        self, item: ForeignObject, opened: Callable[[], Iterator[B]], complaint: Complaint = lambda *_: ""
    ) -> Iterator[B]:
        """The batches of an object, once all of them were read without fault; nothing of one that is skipped."""
        try:
            return _checked(opened, complaint, item.key, self._limits.bad_records)
        except IntegrityError as err:
            self._is_bad(item, err)
            return iter(())

    def _is_bad(self, item: ForeignObject, err: IntegrityError) -> None:
        """Fail, or skip the object and say so."""
        if self._behavior == "fail" or self._left_out is not None:
            raise IntegrityError(f"{item.topic}-{item.kafka_partition}: {err}") from err
        start = max(self._next, item.first_offset or 0)
        self.report.bad_objects.setdefault(item.key, BadObject(item.key, start, str(err)))
        if str(err) not in self.report.skipped_objects:
            self._skipped(self.report.skipped_objects, str(err))

    def _is_left_out(self, item: ForeignObject) -> bool:
        why = (self._left_out or {}).get(item.key)
        if why is not None:
            self._skipped(self.report.skipped_objects, why)
        return why is not None

    def _complaint(self, objects: ObjectSet, left_out: int = 0) -> Complaint:
        """What is wrong with an object of so many records, of which some are bad; empty where nothing is.

        `left_out` records of it are not read.
        """
        first = objects.name.first_offset
        count, last = self._told(objects.name)
        is_dense = count is not None and last is not None and first is not None and last - first + 1 == count
        self._is_proven = is_dense and first is not None and first >= self._next

        def complain(found: int, bad: dict[int, str]) -> str:
            if bad and self._behavior == "fail":
                return f"object {objects.name.key} holds what cannot be read: {'; '.join(list(bad.values())[:3])}"
            if what := _cut_off(objects.name, found + left_out, count):
                return what
            if self._is_exclusive and last is None and first is not None and found and first < self._next:
                return (
                    f"object {objects.name.key} begins at offset {first}, but the objects before it hold records up to"
                    f" {self._next - 1}: records would come twice"
                )
            return ""

        return complain

    @property
    def _is_exclusive(self) -> bool:
        """Whether each object that Connect wrote ends before the next one begins: all of them are in one folder."""
        layout = self._config.layout
        has_tombstones = any(s.name.is_tombstone for s in self._group.sets)
        return layout.partitioner == "Default" and layout.key_layout == "connect" and not has_tombstones

    def _told(self, item: ForeignObject) -> tuple[int | None, int | None]:
        """How many records, and the last one's offset, by the metadata that our own objects have."""
        info = self._store.head(item.key)
        told = {} if info is None else info.metadata
        count, last = (told.get(name, "") for name in (RECORD_COUNT, "last-offset"))
        return int(count) if count.isdecimal() else None, int(last) if last.isdecimal() else None

    def _read(self, objects: ObjectSet, blocks: WantedBlocks | None = None) -> Iterator[ReadBatch]:
        """The records of an object, its keys and headers beside them."""
        readers = {o.part: self._reader(o) for o in objects.objects if blocks is None or o.part != "value"}
        if blocks is not None:
            readers["value"] = self._block_gzip(objects.name, blocks)
        parts = {part: reader.batches() for part, reader in readers.items()}
        return aligned(parts, objects.name.key)

    def _reader(self, item: ForeignObject) -> BatchReader:
        layout, source = self._config.layout, self._config.source or SourceSettings()
        format_name = {"value": layout.format, "key": layout.keys_format, "headers": layout.headers_format}[item.part]
        if format_name is not None and format_name.startswith("lenses."):
            kind, place = format_name.removeprefix("lenses."), Place(item.topic, item.kafka_partition)
            return LensesReader(self._opened(item), item.key, kind, place, source, self._codec, self._limits)
        bare = source.bare if item.part == "value" else None
        is_enveloped = format_name is not None and format_name.startswith("aiven.")
        if is_enveloped or bare not in {None, "jsonl"}:
            kind = (format_name or "").removeprefix("aiven.") if is_enveloped else bare or ""
            return AivenReader(self._opened(item), item.key, kind, source, layout.codec, self._limits)
        reader = self._plain_reader(item, format_name or "")
        if item.part not in source.base64:
            return NullLines(reader) if bare else reader
        if item.part == "headers":
            # Our own sink, whose objects have metadata, writes headers as text where it can.
            return Base64Headers(reader) if self._told(item)[0] is None else reader
        return Base64Lines(reader) if format_name == "json" else reader

    def _plain_reader(self, item: ForeignObject, format_name: str) -> BatchReader:
        layout, key, limits = self._config.layout, item.key, self._limits
        opened = self._opened(item)
        # Ours always end with a separator, which no value holds; a count alone does not find half a record at the end.
        is_own = RECORD_COUNT in opened.info.metadata
        match format_name:
            case "avro":
                return AvroReader(opened, key, limits)
            case "json":
                return JsonReader(opened, key, self._codec, open_end=not is_own, limits=limits)
            case "bytes":
                return BytesReader(
                    opened,
                    key,
                    layout.bytes_separator,
                    (self._codec or "none") if is_own else self._codec,
                    open_end=not is_own and self._may_end_open,
                    any_bytes=is_own or self._has_any_bytes(item),
                    limits=limits,
                )
            case "parquet":
                wrapped = self._converter(item).format in {"STRING", "BYTES"}
                return ParquetReader(opened, key, item.part, wrapped=wrapped, limits=limits)
            case "block_gzip":
                any_bytes = is_own or self._has_any_bytes(item)
                return BytesReader(opened, key, "\n", "gzip", any_bytes=any_bytes, limits=limits)
        return _Plugin(load_class(format_name, FORMAT_READER), layout, opened, key)

    @property
    def _codec(self) -> str:
        """What the file says that objects are compressed with whose names do not; empty where it does not either."""
        layout = self._config.layout
        is_named = (self._config.source or SourceSettings()).codec_is_named
        # Of Connect's own names, none is said by what they do not end with.
        codec = "none" if layout.key_layout == "connect" and layout.extension is None else layout.codec
        return codec if is_named or codec != "none" else ""

    @property
    def _may_end_open(self) -> bool:
        """Whether values of bytes may end without a separator. A sink that gives Connect's names writes one."""
        layout, source = self._config.layout, self._config.source or SourceSettings()
        return layout.key_layout in {"template", "zooz"} or source.separator_is_named

    def _has_any_bytes(self, item: ForeignObject) -> bool:
        """Whether the separator may be believed: the file names it, or objects of another format count records too."""
        layout = self._config.layout
        beside = {"value": layout.format, "key": layout.keys_format, "headers": layout.headers_format}
        if item.is_tombstone:
            del beside["value"]
        counted = any(name not in {None, "bytes"} for part, name in beside.items() if part != item.part)
        return counted or (self._config.source or SourceSettings()).separator_is_named

    def _block_gzip(self, item: ForeignObject, blocks: WantedBlocks) -> BatchReader:
        opened = self._opened(item)

        def read_range(start: int, length: int) -> bytes:
            return self._store.read_range(item.key, start, start + length, opened.info.etag)

        return BlockGzipReader(read_range, blocks.blocks, item.key, blocks.wanted, self._limits)

    def _opened(self, item: ForeignObject) -> Any:
        opened = self._store.open(item.key, item.etag)
        if opened.info.size != item.size:
            raise IntegrityError(f"object {item.key} has {opened.info.size} bytes, listed were {item.size}")
        return opened

    def _converter(self, item: ForeignObject) -> ConverterSettings:
        return self._config.records.key if item.part == "key" else self._config.records.value

    def _sent(self, objects: ObjectSet, found: ReadBatch) -> Iterator[ConnectBatch]:
        offsets = self._offsets(objects.name, found)
        self._next = int(offsets[-1]) + 1
        first, count = _within(offsets, self._start, self._end)
        kept = np.arange(first, first + count)
        for row, why in found.bad.items():
            self.report.skipped_record_count += 1
            self._skipped(self.report.skipped_records, f"object {objects.name.key}: {why}")
            kept = kept[kept != row]
        if len(kept):
            batch = self._batch(found, offsets).take(kept)
            self._count(objects, batch, found, kept)
            yield batch

    def _offsets(self, item: ForeignObject, found: ReadBatch) -> Int64s:
        """Real ones where they are told and ascend; the others go on from the one before."""
        size = len(found)
        told = np.full(size, -1, np.int64) if found.offsets is None else found.offsets
        first = -1 if item.first_offset is None else item.first_offset
        # Positions count from `base`: a record is at the greatest of what was told of it and what went before.
        base = np.where(told >= 0, told - np.arange(size), -(2**62))
        base[0] = max(base[0], self._next, first if told[0] < 0 else -1)
        offsets: Int64s = np.maximum.accumulate(base) + np.arange(size)
        return offsets

    def _batch(self, found: ReadBatch, offsets: Int64s) -> ConnectBatch:
        records, size = self._config.records, len(found)
        value = as_kafka(found.value, records.value)
        key = bytes_payload(pa.nulls(size, pa.binary())) if found.key is None else as_kafka(found.key, records.key)
        times = np.full(size, NO_TIMESTAMP, np.int64) if found.timestamps is None else found.timestamps
        kinds = np.where(times == NO_TIMESTAMP, _NO_TIMESTAMP_TYPE, _CREATE_TIME)
        columns = [
            key.raw,
            value.raw,
            pa.nulls(size, HEADERS) if found.headers is None else found.headers,
            pa.array([self._group.topic] * size, pa.string()),
            pa.array(np.full(size, self._group.kafka_partition), pa.int32()),
            pa.array(offsets),
            pa.array(times).cast(RECORD_SCHEMA.field("timestamp").type),
            pa.array(kinds, pa.int32()),
        ]
        return ConnectBatch(pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA), key, value)

    def _count(self, objects: ObjectSet, batch: ConnectBatch, found: ReadBatch, kept: Positions) -> None:
        report = self.report
        report.record_count += batch.num_rows
        report.timeless_count += int((batch.timestamps == NO_TIMESTAMP).sum())
        report.tombstone_count += batch.num_rows if objects.name.is_tombstone else 0
        if found.offsets is not None:
            report.position_count += int((found.offsets[kept] != batch.offsets).sum())
        elif not self._is_proven:
            report.position_count += batch.num_rows

    def _skipped(self, lines: list[str], line: str) -> None:
        if len(lines) < MAX_LINES:
            lines.append(line)
        if self._behavior == "log":
            logger.warning("skipped: %s", line)


def read(
    config: ConnectorConfig, group: ObjectGroup, store: ObjectStore | None = None, start_offset: int = 0
) -> ForeignStream:
    """The records of a group of objects, as batches of RECORD_SCHEMA, ascending by offset."""
    return ForeignStream(config, group, store, start_offset)


def _within(offsets: Int64s, start: int, end: int) -> tuple[int, int]:
    """Place of the first of ascending offsets in [start, end), and how many are."""
    first, last = np.searchsorted(offsets, (start, end)).tolist()
    return first, last - first


def _cut_off(item: ForeignObject, found: int, count: int | None) -> str:
    if count is None or found == count:
        return ""
    return f"object {item.key} holds {found} records, its metadata say {count}: it was cut off"


def as_kafka(payload: Payload, converter: ConverterSettings) -> Payload:
    """Of text and bytes, which their converter takes as they are, the bytes; all else as it was read."""
    if converter.format not in {"STRING", "BYTES"}:
        return payload
    if isinstance(payload, DatumPayload) and all(map(is_text, payload.schemas)):
        return bytes_payload(pa.array([o.encode() if isinstance(o, str) else o for o in payload.objects], pa.binary()))
    if isinstance(payload, JsonLinePayload) and converter.format == "STRING":
        texts = zip(payload.objects, pa.array(payload.raw).to_pylist(), strict=True)
        return bytes_payload(pa.array([o.encode() if isinstance(o, str) else raw for o, raw in texts], pa.binary()))
    return payload


def aligned(parts: dict[Any, Iterator[ReadBatch]], key: str) -> Iterator[ReadBatch]:
    """Values, keys and headers of the same records joined by position.

    Raises:
        IntegrityError: there are not as many of one as of another.
    """
    held: dict[Any, ReadBatch] = {}
    while True:
        for part, batches in parts.items():
            if part not in held and (found := next((b for b in batches if len(b)), None)) is not None:
                held[part] = found
        if not held:
            return
        if missing := [part for part in parts if part not in held]:
            raise IntegrityError(f"object {key} has fewer records of {' and '.join(missing)} than of {', '.join(held)}")
        size = min(map(len, held.values()))
        yield _joined({part: batch.take(np.arange(size)) for part, batch in held.items()}, size)
        rest = {part: batch.take(np.arange(size, len(batch))) for part, batch in held.items() if len(batch) > size}
        held = rest


def _joined(parts: dict[Any, ReadBatch], size: int) -> ReadBatch:
    bad = {row: why for batch in parts.values() for row, why in batch.bad.items()}
    value, key = parts.get("value"), parts.get("key")
    headers = parts.get("headers")
    if value is None:
        value = ReadBatch(bytes_payload(pa.nulls(size, pa.binary())))
    return ReadBatch(
        value.value,
        bad,
        value.key if key is None else key.value,
        value.headers if headers is None else _headers(headers.value),
        value.offsets,
        value.timestamps,
    )


def _headers(payload: Payload) -> pa.Array:
    """Headers of each record, as the sink wrote them: text is its UTF-8; none are null."""
    found = [o["headers"] if isinstance(o, dict) else o for o in payload.objects]
    rows = [
        [{"key": h["key"], "value": h["value"].encode() if isinstance(h["value"], str) else h["value"]} for h in one]
        if one
        else None
        for one in found
    ]
    return pa.array(rows, HEADERS)


def _checked(opened: Callable[[], Iterator[B]], complaint: Complaint, key: str, most_bad: int) -> Iterator[B]:
    """All batches, after a look at every one of them: held where they are small, else read again."""
    held: list[B] | None = []
    bad: dict[int, str] = {}
    size = count = 0
    for batch in opened():
        if isinstance(batch, ReadBatch):
            bad |= {count + row: why for row, why in batch.bad.items()}
            if len(bad) > most_bad:
                raise beyond(key, f"has more than {most_bad:,} lines that cannot be read", "bad.records")
        count += len(batch)
        size += batch.nbytes
        if held is not None and size > HOLD_BYTES:
            held = None
        if held is not None:
            held.append(batch)
    if what := complaint(count, bad):
        raise IntegrityError(what)
    return opened() if held is None else iter(held)


class _Plugin:
    """A user's own format: its class method `read(source, key, layout)` gives the bytes of each value."""

    def __init__(self, kind: Any, layout: LayoutSettings, source: ObjectFile, key: str) -> None:
        self._values: Sequence[bytes | None] = kind.read(source, key, layout)

    def batches(self) -> Iterator[ReadBatch]:
        for values in batched(self._values):
            yield ReadBatch(bytes_payload(pa.array(values, pa.binary())))
