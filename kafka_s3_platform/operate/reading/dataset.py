"""Opens the records of a topic as an Arrow dataset. The index names the objects, with each record once.

Each *fragment* (Arrow's word for an object of a dataset) has the kafka partition, the offsets and the timestamps of its
records, so an engine that pushes its conditions down opens only objects with possible matches. If Arrow cannot read an
object, or values are decoded, a `PulledDataset` answers with batches from our own readers, in the caller's thread.

Arrow decodes a row group as a whole, and by default as many at once as have two million records. So the pages of each
are checked while their bytes are read, as in a restore, and a dataset decodes one row group of an object at a time.
"""

import io
import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import reduce
from itertools import accumulate, chain, groupby, pairwise
from operator import and_
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from kafka_s3_platform.connect.config.files import find_connector, suggest_name
from kafka_s3_platform.connect.sources.objects import (
    MAX_LINES,
    group_objects,
    has_record_times,
    names_bound_times,
    select_objects,
)
from kafka_s3_platform.connect.sources.scan import SourceListing
from kafka_s3_platform.core.config.formats import NATIVE_FORMAT, find_format
from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.errors import ConfigError, IntegrityError
from kafka_s3_platform.core.formats.envelope.parquet import EnvelopeReader, name_damage
from kafka_s3_platform.core.formats.parquet.pages import TAIL_BYTES, RowGroup, RowGroupPages
from kafka_s3_platform.core.formats.parquet.write import ROW_GROUP_BYTES, ROW_GROUP_RECORDS
from kafka_s3_platform.core.formats.reading import build_limit_error
from kafka_s3_platform.core.model.batches import RECORD_SCHEMA
from kafka_s3_platform.core.model.limits import ReadLimits
from kafka_s3_platform.core.model.schema import ArchivedSchema
from kafka_s3_platform.core.model.segment import Segment, StoredObject
from kafka_s3_platform.core.model.times import EPOCH, ONE_MS
from kafka_s3_platform.core.store.index import ConnectorIndex
from kafka_s3_platform.core.store.objects import ObjectStore, SizedFile
from kafka_s3_platform.core.store.row_filter import SegmentFilter
from kafka_s3_platform.operate.reading.parts import (
    TIMES,
    VALUES_SCHEMA,
    EnvelopePart,
    ReadPart,
    ValuesPart,
    describe_segment,
    make_listed_part,
    make_values_parts,
)
from kafka_s3_platform.operate.reading.values import ValueDecoder, find_decoder

BATCH_RECORDS = 131_072
"""The most records of a batch, as in Arrow's own scans."""

ScanColumns = Sequence[str] | Mapping[str, pc.Expression] | None

logger = logging.getLogger(__name__)

FIRST_NUMBER = -(2**63)
LAST_NUMBER = 2**63 - 1


class CheckedDataset(ds.FileSystemDataset):  # type: ignore[misc]  # Arrow has no types
    """Arrow's dataset, except that it decodes one row group of an object at a time, whatever `batch_readahead` is."""

    def scanner(self, *columns: Any, **options: Any) -> ds.Scanner:
        return super().scanner(*columns, **{**options, "batch_readahead": 0})


class ArrowObject(SizedFile):
    """A Parquet object, read when Arrow asks. It keeps the footer until Arrow has read it, and nothing else.

    Reading raises IntegrityError if the object was replaced, is damaged, or exceeds `limits`.
    """

    def __init__(self, store: ObjectStore, archived_object: StoredObject, limits: ReadLimits) -> None:
        super().__init__(archived_object.key, archived_object.size)
        self._store = store
        self._stored = archived_object
        self._etag = archived_object.etag
        self._limits = limits
        # A row group we write ends with the record that exceeds ROW_GROUP_BYTES. The rest is for short columns.
        self._max_decoded = limits.block_bytes + 2 * ROW_GROUP_BYTES
        self._tail = b""
        self._is_opened = False
        self._row_groups: tuple[RowGroup, ...] = ()
        self._starts = self._ends = np.empty(0, np.int64)
        self._is_checked = np.empty(0, bool)
        self._decoded = np.empty(0)

    def read(self, size: int | None = -1, /) -> bytes:
        """Read from the position on, like a file. The footer is checked first, and pages while their bytes are read."""
        start = self._at
        if not self._is_opened:
            self._is_opened = True
            self._tail = self._fetch_range(max(self._size - TAIL_BYTES, 0), self._size)
            try:
                self._check_footer()
            except BaseException:
                self._is_opened = False
                raise
            self._at = start
        end = self._at = start + self._count_available(size)
        tail_start = self._size - len(self._tail)
        data = (
            self._tail[start - tail_start : end - tail_start] if start >= tail_start else self._fetch_range(start, end)
        )
        self._tail = max(self._tail, data, key=len) if end == self._size else b""
        if end < self._size:
            self._check_columns(start, data)
        return data

    def _fetch_range(self, start: int, end: int) -> bytes:
        """Read bytes of the object, or of a copy with the same content, but another ETag."""
        try:
            return self._store.read_range(self._stored.key, start, end, self._etag) if start < end else b""
        except IntegrityError:
            # If another ETag has the content of the index, it is a copy, and its ETag is requested from now on.
            refused = self._etag
            self._etag = self._store.open_stored(self._stored).info.etag
            if self._etag == refused:
                raise
        return self._store.read_range(self._stored.key, start, end, self._etag)

    def _check_footer(self) -> None:
        """Read the Parquet footer, and raise an error if its columns overlap, lie outside, or are too large."""
        with name_damage(self._stored.key):
            row_groups = EnvelopeReader(self, self._stored.key, self._limits).row_groups
            chunks = list(chain.from_iterable(group.chunks for group in row_groups))
            if any(not 0 <= chunk.start <= chunk.start + chunk.size < self._size for chunk in chunks):
                raise ValueError("a column lies outside of the file")
            starts = np.array([chunk.start for chunk in chunks], np.int64)
            ends = starts + np.array([chunk.size for chunk in chunks], np.int64)
            order = np.argsort(starts)
            if (ends[order][:-1] > starts[order][1:]).any():
                raise ValueError("its columns lie in each other")
            if any(group.rows > ROW_GROUP_RECORDS for group in row_groups):
                raise ValueError(f"it has a row group of more than {ROW_GROUP_RECORDS:,} records")
        self._starts = starts
        self._ends = ends
        self._is_checked = np.zeros(len(chunks), bool)
        self._decoded = np.zeros(len(row_groups))
        self._row_groups = row_groups

    def _check_columns(self, start: int, data: bytes) -> None:
        """Check the pages of all unchecked columns with bytes in `data`. `start` is the position of `data`."""
        end = start + len(data)
        unchecked = np.flatnonzero((self._starts < end) & (self._ends > start) & ~self._is_checked)
        for group_number, numbers in groupby(
            unchecked.tolist(), key=lambda place: place // len(self._row_groups[0].chunks)
        ):
            columns = list(numbers)
            low = min(start, int(self._starts[columns].min()))
            high = max(end, int(self._ends[columns].max()))
            # A column that is read in pieces is fetched once more.
            column_bytes = data if (low, high) == (start, end) else self._fetch_range(low, high)
            group = self._row_groups[group_number]
            chunks = [group.chunks[place % len(group.chunks)] for place in columns]
            group = replace(group, chunks=tuple(replace(chunk, start=chunk.start - low) for chunk in chunks))
            with name_damage(self._stored.key):
                pages = RowGroupPages(io.BytesIO(column_bytes), group, self._stored.key, self._limits)
                self._decoded[group_number] += pages.measure(ROW_GROUP_RECORDS).decoded_bytes
            if self._decoded[group_number] > self._max_decoded:
                claim = f"has a row group that may come to {self._decoded[group_number]:,.0f} bytes"
                raise build_limit_error(self._stored.key, claim, "block.bytes")
            self._is_checked[columns] = True


class PulledDataset(ds.FileSystemDataset):  # type: ignore[misc]  # Arrow has no types
    """The records of `arrow_dataset` and `parts` that meet `conditions`. `decoder` decodes values.

    As a `FileSystemDataset`, it prunes parts by a condition, but its other methods do not work on them.
    """

    def __init__(
        self,
        schema: pa.Schema,
        arrow_dataset: ds.Dataset,
        parts: Sequence[ReadPart],
        conditions: Sequence[pc.Expression],
        decoder: ValueDecoder | None,
    ) -> None:
        file_format = ds.ParquetFileFormat()
        nowhere = SubTreeFileSystem("/dev/null", LocalFileSystem())
        fragments = [
            file_format.make_fragment(str(at), filesystem=nowhere, partition_expression=part.describe())
            for at, part in enumerate(parts)
        ]
        if decoder is not None:
            schema = schema.set(schema.get_field_index("value"), pa.field("value", decoder.type))
        super().__init__(fragments, schema, file_format, nowhere)
        self._decoder = decoder
        self._arrow_dataset = arrow_dataset
        self._parts = tuple(parts)
        self._conditions = tuple(conditions)

    def filter(self, expression: pc.Expression) -> "PulledDataset":
        """Return the dataset with one more condition."""
        return PulledDataset(
            self.schema, self._arrow_dataset, self._parts, (*self._conditions, expression), self._decoder
        )

    def replace_schema(self, schema: pa.Schema) -> ds.Dataset:
        """Refuse, because the objects determine the schema."""
        raise NotImplementedError("the schema of an archive cannot be replaced: cast the table that is read")

    def scanner(
        self,
        columns: ScanColumns = None,
        filter: pc.Expression | None = None,  # noqa: A002 - Arrow's name
        batch_size: int = BATCH_RECORDS,
        **_: Any,
    ) -> "PulledScan":
        """Return a scan. Arrow's options for reading ahead have no meaning here."""
        conditions = [*self._conditions, *([] if filter is None else [filter])]
        return PulledScan(self, columns, conditions, batch_size)

    def read(self, names: Sequence[str], conditions: Sequence[pc.Expression]) -> Iterator[pa.RecordBatch]:
        """Read these columns of all records that meet the conditions, and possibly of others."""
        decoder = self._decoder if "value" in names else None
        schema = pa.schema([self.schema.field(name) for name in names])
        arrow_conditions = (
            conditions
            if decoder is None
            else [condition for condition in conditions if not _is_named("value", str(condition))]
        )
        # An error names the place of a value, and a header may name its schema.
        needed = list(names) if decoder is None else list(dict.fromkeys([*names, "partition", "offset", "headers"]))
        for batch in self._arrow_dataset.to_batches(columns=needed, filter=_join_conditions(arrow_conditions)):
            columns = {name: batch.column(name) for name in names}
            if decoder is not None:
                columns["value"] = decoder.decode_records(batch)
            yield pa.RecordBatch.from_arrays(list(columns.values()), schema=schema)
        for fragment in self.get_fragments(_join_conditions(conditions)):
            part = self._parts[int(fragment.path.rpartition("/")[2])]
            for connect_batch in part.batches(names if decoder is None else set(names) - {"value"}):
                columns = {name: connect_batch.records.column(name) for name in names}
                if decoder is not None:
                    columns["value"] = decoder.decode(connect_batch.value, connect_batch.records)
                yield pa.RecordBatch.from_arrays(list(columns.values()), schema=schema)


class PulledScan:
    """Takes the place of Arrow's `Scanner`. Each of its methods reads the records anew."""

    def __init__(
        self, dataset: PulledDataset, columns: ScanColumns, conditions: Sequence[pc.Expression], batch_size: int
    ) -> None:
        self._dataset = dataset
        self._conditions = conditions
        self._batch_size = batch_size
        self._scan_options: Mapping[str, Any] = {"columns": columns, "filter": _join_conditions(conditions)}
        self._names = _list_needed(dataset.schema, columns, conditions)

    @property
    def dataset_schema(self) -> pa.Schema:
        return self._dataset.schema

    @property
    def projected_schema(self) -> pa.Schema:
        """The schema of the result."""
        return self._make_scanner(self._dataset.schema.empty_table()).projected_schema

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        for batch in self._dataset.read(self._names, self._conditions):
            yield from self._make_scanner(batch).to_batches()

    def to_reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self.projected_schema, self.to_batches())

    def to_table(self) -> pa.Table:
        return self.to_reader().read_all()

    def count_rows(self) -> int:
        """Count the records. Only the columns of the condition are read."""
        row_scan = PulledScan(self._dataset, [], self._conditions, self._batch_size)
        return sum(batch.num_rows for batch in row_scan.to_batches())

    def head(self, num_rows: int) -> pa.Table:
        """Return the first records. Reading stops after them."""
        return pa.Table.from_batches(_take_rows(self.to_batches(), num_rows), self.projected_schema)

    def _make_scanner(self, records: pa.RecordBatch | pa.Table) -> ds.Scanner:
        return ds.dataset(records).scanner(**self._scan_options, batch_size=self._batch_size, use_threads=False)


def _join_conditions(conditions: Sequence[pc.Expression]) -> pc.Expression | None:
    """Return a condition that requires all of these, or None if there are none."""
    return reduce(and_, conditions) if conditions else None


def _list_needed(schema: pa.Schema, columns: ScanColumns, conditions: Sequence[pc.Expression]) -> list[str]:
    """List the columns the scan may need."""
    if columns is None:
        return list(schema.names)
    selected = columns.values() if isinstance(columns, Mapping) else columns
    text = " ".join(map(str, (*selected, *conditions)))
    # Without a column, a batch would not know its number of records.
    return [name for name in schema.names if _is_named(name, text)] or ["partition"]


def _is_named(column: str, text: str) -> bool:
    """Return True if the text of an expression may name the column. Expressions offer no other way to find out.

    An expression with a column's number may mean any column, and works only if all columns are present.
    """
    return "FieldPath(" in text or re.search(rf"\b{re.escape(column)}\b", text) is not None


def _take_rows(batches: Iterator[pa.RecordBatch], num_rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the batches up to this number of rows."""
    while num_rows > 0 and (batch := next(batches, None)) is not None:
        yield batch.slice(0, num_rows)
        num_rows -= batch.num_rows


@dataclass(frozen=True)
class ArchivedObjects:
    """Objects of a topic that together hold each record of the selection once, and possibly others.

    `segments` are Parquet objects of whole records, which Arrow reads. `parts` are all others. `archived` are the
    schemas in the index.
    """

    config: ConnectorConfig = field(repr=False)
    topic: str
    selection: SegmentFilter
    segments: tuple[Segment, ...] = ()
    parts: tuple[ReadPart, ...] = ()
    archived: tuple[ArchivedSchema, ...] = field(default=(), repr=False)
    decoder: ValueDecoder | None = None

    def decode_values(self, schema_id: int | None) -> "ArchivedObjects":
        """Return the objects with their values decoded to the newest schema, or to the schema with this id.

        Raises ConfigError if values have no schema, or one without columns, or if the schema is not archived.
        """
        decoder = find_decoder(self.config, self.topic, self.archived, self.segments, self.parts, schema_id)
        return replace(self, decoder=decoder)

    def open(self) -> ds.Dataset:
        """Return the records of the selection. Objects are opened only when they are read.

        Reading raises IntegrityError if an object is not the one written, and NotFoundError if it is missing.
        """
        arrow_dataset = self._open_segments()
        schema = VALUES_SCHEMA if any(isinstance(part, ValuesPart) for part in self.parts) else RECORD_SCHEMA
        conditions = tuple(_list_conditions(self.selection, may_be_timeless=schema is VALUES_SCHEMA))
        if self.parts or self.decoder is not None:
            return PulledDataset(schema, arrow_dataset, self.parts, conditions, self.decoder)
        for condition in conditions:
            arrow_dataset = arrow_dataset.filter(condition)
        return arrow_dataset

    def _open_segments(self) -> ds.Dataset:
        """Open the objects Arrow can read, each with a condition that all of its records meet."""
        store = ObjectStore(self.config.store)
        # Arrow returns records from pages with a wrong checksum unless it is asked to verify checksums.
        options = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
        file_format = ds.ParquetFileFormat(default_fragment_scan_options=options)
        limits = self.config.store.limits
        fragments = [
            file_format.make_fragment(
                ArrowObject(store, segment.objects[0], limits), partition_expression=describe_segment(segment)
            )
            for segment in self.segments
        ]
        return CheckedDataset(fragments, RECORD_SCHEMA, file_format)

    @property
    def size(self) -> int:
        """The number of bytes of the objects."""
        return sum(segment.size for segment in self.segments) + sum(part.size for part in self.parts)

    def split(self, task_bytes: int) -> Iterator["ArchivedObjects"]:
        """Split the objects, in order, into tasks of about `task_bytes`. A large object is split by its offsets."""
        items: list[Segment | ReadPart] = []
        for segment in self.segments:
            if (count := segment.size // task_bytes) > 1:
                yield from self._split_offsets(segment, count)
            else:
                items.append(segment)
        for part in self.parts:
            items += part.split(task_bytes)
        # An object belongs to the task in which its middle lies.
        ends = accumulate(item.size for item in items)
        places = [(end - item.size // 2) // task_bytes for end, item in zip(ends, items, strict=True)]
        for _, task in groupby(zip(places, items, strict=True), key=lambda place: place[0]):
            task_items = [item for _, item in task]
            segments = tuple(item for item in task_items if isinstance(item, Segment))
            parts = tuple(item for item in task_items if not isinstance(item, Segment))
            yield replace(self, segments=segments, parts=parts, archived=())

    def _split_offsets(self, segment: Segment, count: int) -> Iterator["ArchivedObjects"]:
        """Split an object into `count` ranges of offsets. Arrow reads the row groups of each range."""
        low, high = self.selection.offsets or (FIRST_NUMBER, LAST_NUMBER)
        span = segment.end_offset - segment.start_offset
        bounds = [segment.start_offset + span * number // count for number in range(count + 1)]
        for start, end in pairwise(bounds):
            offsets = max(low, start), min(high, end)
            if offsets[0] < offsets[1]:
                yield replace(
                    self, selection=replace(self.selection, offsets=offsets), segments=(segment,), parts=(), archived=()
                )


def find_objects(
    connector: str, topic: str | None, selection: SegmentFilter, env: Mapping[str, str] = os.environ
) -> ArchivedObjects:
    """Find the objects with the current records of a topic. `topic` may be None if the connector has only one.

    Raises:
        ConfigError: the connector or the topic does not exist, or its file does not tell how to read some objects.
        IntegrityError: the name of an object from another tool does not show its content.
        StoreUnavailableError: the store does not answer.
        IndexDamagedError: the index cannot be read.
    """
    config = find_connector(connector, env)
    if config.source is not None:
        return _list_objects(config, topic, selection)
    snapshot = ConnectorIndex.of(config).peek()
    topics = sorted({*config.topics, *(snapshot.topics if snapshot else ())})
    topic_name = _choose_topic(config.name, topics, topic)
    segments = () if snapshot is None else snapshot.topic(topic_name).select_segments(selection)
    others = [segment for segment in segments if segment.format != NATIVE_FORMAT]
    return ArchivedObjects(
        config,
        topic_name,
        selection,
        tuple(segment for segment in segments if segment.format == NATIVE_FORMAT),
        (
            *(EnvelopePart(config.store, segment) for segment in others if find_format(segment.format).is_envelope),
            *make_values_parts(config, (s for s in others if not find_format(s.format).is_envelope)),
        ),
        () if snapshot is None else snapshot.topic(topic_name).state.schemas,
    )


def _list_objects(config: ConnectorConfig, topic: str | None, selection: SegmentFilter) -> ArchivedObjects:
    """Find the objects in the bucket described by the file of a source."""
    listing = SourceListing(config, () if topic is None else (topic,))
    objects = list(listing)
    if not objects:
        raise ConfigError(f"connector {config.name}: there is no object to read: {listing.describe_search()}")
    topic_name = _choose_topic(config.name, sorted({o.topic for o in objects}), topic)
    topic_objects = [o for o in objects if o.topic == topic_name]
    # As in a restore, if records have times of their own, names choose among objects only if they bound these times.
    by_name = names_bound_times(config) or not has_record_times(config)
    selected = (
        select_objects(topic_objects, (selection.timestamps,)) if selection.timestamps and by_name else topic_objects
    )
    timeless_folders = (
        sorted({o.encoded_partition for o in selected if o.window is None}) if selection.timestamps else []
    )
    untimed_folders = [] if has_record_times(config) else timeless_folders
    warnings = [f"folder {name} has no time in its name: its objects are read" for name in untimed_folders[:MAX_LINES]]
    for line in (*listing.report.list_bad(), *warnings):
        logger.warning("connector %s: %s", config.name, line)
    groups = group_objects(selected)
    numbers = selection.kafka_partitions
    parts = [make_listed_part(config, group) for group in groups if numbers is None or group.kafka_partition in numbers]
    return ArchivedObjects(config, topic_name, selection, parts=tuple(parts))


def make_filter(start: datetime | None, end: datetime | None, kafka_partitions: Iterable[int] | None) -> SegmentFilter:
    """Make the filter of a selection. None excludes nothing. Raises ConfigError if a time has no timezone."""
    for name, moment in (("start", start), ("end", end)):
        if moment is not None and moment.tzinfo is None:
            raise ConfigError(f"{name} {moment.isoformat()} has no timezone: give it one, such as timezone.utc")
    times = FIRST_NUMBER if start is None else ceil_ms(start), LAST_NUMBER if end is None else ceil_ms(end)
    return SegmentFilter(
        timestamps=None if start is end is None else times,
        kafka_partitions=None if kafka_partitions is None else frozenset(kafka_partitions),
    )


def ceil_ms(moment: datetime) -> int:
    """Return the moment in epoch ms, rounded up."""
    return -((EPOCH - moment) // ONE_MS)


def _choose_topic(connector: str, topics: Sequence[str], topic: str | None) -> str:
    """Return the topic, or the only one if none is named. Raise ConfigError if the connector does not have it."""
    if topic is None and len(topics) == 1:
        return topics[0]
    if topic is None:
        raise ConfigError(f"connector {connector} has {len(topics)} topics: name one of {', '.join(topics) or 'none'}")
    if topic in topics:
        return topic
    raise ConfigError(suggest_name(f"connector {connector} does not archive topic {topic}", topic, topics))


def _list_conditions(selection: SegmentFilter, *, may_be_timeless: bool) -> Iterator[pc.Expression]:
    """Yield the conditions of a selection on records, because its objects may hold other records too."""
    if selection.kafka_partitions is not None:
        yield pc.field("partition").isin(pa.array(sorted(selection.kafka_partitions), pa.int32()))
    if selection.offsets is not None:
        start, end = selection.offsets
        yield (pc.field("offset") >= start) & (pc.field("offset") < end)
    if selection.timestamps is not None:
        begin, finish = (pa.scalar(moment, TIMES) for moment in selection.timestamps)
        is_within = (pc.field("timestamp") >= begin) & (pc.field("timestamp") < finish)
        # Records without a time were selected with their object.
        yield is_within | pc.field("timestamp").is_null() if may_be_timeless else is_within
