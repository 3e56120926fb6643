"""Opens the records of a topic as an Arrow dataset. The index says which objects hold them, each record once.

Each fragment knows the kafka partition, the offsets and the timestamps of its records. So an engine that pushes its
conditions down opens no object that cannot meet them.
"""

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import accumulate, groupby, islice, pairwise

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from kafka_s3_platform.config.files import find_connector, suggest_name
from kafka_s3_platform.config.formats import NATIVE_FORMAT, find_format
from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.errors import ConfigError, IntegrityError
from kafka_s3_platform.model.record import RECORD_SCHEMA
from kafka_s3_platform.model.schema import ArchivedSchema
from kafka_s3_platform.model.segment import Segment, StoredObject
from kafka_s3_platform.model.times import EPOCH, ONE_MS
from kafka_s3_platform.reading.parts import (
    TIMES,
    VALUES_SCHEMA,
    EnvelopePart,
    ReadPart,
    ValuesPart,
    describe_segment,
    make_listed_part,
    make_values_parts,
)
from kafka_s3_platform.reading.pulled import PulledDataset
from kafka_s3_platform.reading.values import ValueDecoder, find_decoder
from kafka_s3_platform.sources.objects import MAX_LINES, group_objects, select_objects
from kafka_s3_platform.sources.offset_facts import has_record_times, names_bound_times
from kafka_s3_platform.sources.scan import scan_objects
from kafka_s3_platform.store.index import ConnectorIndex
from kafka_s3_platform.store.objects import ObjectStore, SizedFile
from kafka_s3_platform.store.row_filter import SegmentFilter

logger = logging.getLogger(__name__)

FIRST_NUMBER, LAST_NUMBER = -(2**63), 2**63 - 1


@dataclass(frozen=True)
class ArchivedObjects:
    """Objects of a topic. Together they hold each record of the selection once, and perhaps others.

    `segments` are Parquet objects of whole records, which Arrow reads. `parts` are all others. `archived` are the
    schemas of the index.
    """

    config: ConnectorConfig = field(repr=False)
    topic: str
    wanted: SegmentFilter
    segments: tuple[Segment, ...] = ()
    parts: tuple[ReadPart, ...] = ()
    archived: tuple[ArchivedSchema, ...] = field(default=(), repr=False)
    decoder: ValueDecoder | None = None

    def decoded(self, schema_id: int | None) -> "ArchivedObjects":
        """Return the objects with their values decoded: to the newest schema, or to the one with this id.

        Raises:
            ConfigError: values have no schema, or one that has no columns; or the schema is not archived.
        """
        decoder = find_decoder(self.config, self.topic, self.archived, self.segments, self.parts, schema_id)
        return replace(self, decoder=decoder)

    def open(self) -> ds.Dataset:
        """Return the records of the selection. Objects are opened when they are read.

        Then it raises IntegrityError for one that is not as it was written, and NotFoundError for one that is gone.
        """
        whole = self._open_segments()
        schema = VALUES_SCHEMA if any(isinstance(part, ValuesPart) for part in self.parts) else RECORD_SCHEMA
        conditions = tuple(_list_conditions(self.wanted, may_be_timeless=schema is VALUES_SCHEMA))
        if self.parts or self.decoder is not None:
            return PulledDataset(schema, whole, self.parts, conditions, self.decoder)
        for condition in conditions:
            whole = whole.filter(condition)
        return whole

    def _open_segments(self) -> ds.Dataset:
        store = ObjectStore(self.config.store)
        # Arrow hands out records of pages whose checksum is wrong, unless it is asked to look.
        options = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
        file_format = ds.ParquetFileFormat(default_fragment_scan_options=options)
        fragments = [
            file_format.make_fragment(_ArchivedObject(store, segment), partition_expression=describe_segment(segment))
            for segment in self.segments
        ]
        return ds.FileSystemDataset(fragments, RECORD_SCHEMA, file_format)

    @property
    def size(self) -> int:
        """Bytes of the objects."""
        return sum(segment.size for segment in self.segments) + sum(part.size for part in self.parts)

    def split(self, task_bytes: int) -> Iterator["ArchivedObjects"]:
        """Split the objects, in their order, into tasks of about so many bytes. A large one is split by its offsets."""
        items: list[Segment | ReadPart] = []
        for segment in self.segments:
            if (count := segment.size // task_bytes) > 1:
                yield from self._split_offsets(segment, count)
            else:
                items.append(segment)
        for part in self.parts:
            items += part.split(task_bytes)
        # The task of an object is the one that its middle lies in.
        ends = accumulate(item.size for item in items)
        places = [(end - item.size // 2) // task_bytes for end, item in zip(ends, items, strict=True)]
        for _, task in groupby(zip(places, items, strict=True), key=lambda place: place[0]):
            found = [item for _, item in task]
            segments = tuple(item for item in found if isinstance(item, Segment))
            parts = tuple(item for item in found if not isinstance(item, Segment))
            yield replace(self, segments=segments, parts=parts, archived=())

    def _split_offsets(self, segment: Segment, count: int) -> Iterator["ArchivedObjects"]:
        """Split an object into so many ranges of offsets, of which Arrow reads the row groups."""
        low, high = self.wanted.offsets or (FIRST_NUMBER, LAST_NUMBER)
        span = segment.end_offset - segment.start_offset
        cuts = [segment.start_offset + span * at // count for at in range(count + 1)]
        for start, end in pairwise(cuts):
            offsets = max(low, start), min(high, end)
            if offsets[0] < offsets[1]:
                wanted = replace(self.wanted, offsets=offsets)
                yield replace(self, wanted=wanted, segments=(segment,), parts=(), archived=())


def find_objects(
    connector: str, topic: str | None, wanted: SegmentFilter, env: Mapping[str, str] = os.environ
) -> ArchivedObjects:
    """Find the objects of a topic that hold its records now. `topic` may be None if the connector has one alone.

    Raises:
        ConfigError: there is no such connector or topic, or its file does not say how some of the objects are read.
        IntegrityError: the name of an object that another tool wrote does not show what it is.
        StoreUnavailableError: the store does not answer.
        IndexDamagedError: the index cannot be read.
    """
    config = find_connector(connector, env)
    if config.source is not None:
        return _list_objects(config, topic, wanted)
    whole = ConnectorIndex.of(config).peek()
    topics = sorted({*config.topics, *(whole.topics if whole else ())})
    named = _choose_topic(config.name, topics, topic)
    found = () if whole is None else whole.topic(named).select_segments(wanted)
    return ArchivedObjects(
        config,
        named,
        wanted,
        tuple(segment for segment in found if segment.format == NATIVE_FORMAT),
        (
            *(EnvelopePart(config.store, segment) for segment in found if _is_other_envelope(segment)),
            *make_values_parts(config, (s for s in found if not find_format(s.format).is_envelope)),
        ),
        () if whole is None else whole.topic(named).state.schemas,
    )


def _is_other_envelope(segment: Segment) -> bool:
    return segment.format != NATIVE_FORMAT and find_format(segment.format).is_envelope


def _list_objects(config: ConnectorConfig, topic: str | None, wanted: SegmentFilter) -> ArchivedObjects:
    """Find the objects that the file of a source describes, as its bucket holds them now."""
    listing = scan_objects(config, () if topic is None else (topic,))
    listed = list(listing)
    if not listed:
        raise ConfigError(f"connector {config.name}: there is no object to read: {listing.searched()}")
    named = _choose_topic(config.name, sorted({o.topic for o in listed}), topic)
    of_topic = [o for o in listed if o.topic == named]
    # As in a restore: where records tell their own times, names choose among objects only if they tell these times.
    by_name = names_bound_times(config) or not has_record_times(config)
    chosen = select_objects(of_topic, (wanted.timestamps,)) if wanted.timestamps and by_name else of_topic
    timeless = sorted({o.encoded_partition for o in chosen if o.window is None}) if wanted.timestamps else []
    lines = (f"folder {name} tells no time: its objects are read" for name in timeless if not has_record_times(config))
    for line in (*listing.report.list_bad(), *islice(lines, MAX_LINES)):
        logger.warning("connector %s: %s", config.name, line)
    groups = group_objects(chosen)
    parts = (make_listed_part(config, group) for group in groups if _is_wanted(wanted, group.kafka_partition))
    return ArchivedObjects(config, named, wanted, parts=tuple(parts))


def _is_wanted(wanted: SegmentFilter, kafka_partition: int) -> bool:
    return wanted.kafka_partitions is None or kafka_partition in wanted.kafka_partitions


def make_filter(start: datetime | None, end: datetime | None, kafka_partitions: Iterable[int] | None) -> SegmentFilter:
    """Make the filter of a selection. None leaves nothing out. Raises ConfigError for a time without a timezone."""
    for name, moment in (("start", start), ("end", end)):
        if moment is not None and moment.tzinfo is None:
            raise ConfigError(f"{name} {moment.isoformat()} has no timezone: give it one, such as timezone.utc")
    times = FIRST_NUMBER if start is None else ceil_ms(start), LAST_NUMBER if end is None else ceil_ms(end)
    return SegmentFilter(
        timestamps=None if start is end is None else times,
        kafka_partitions=None if kafka_partitions is None else frozenset(kafka_partitions),
    )


def ceil_ms(moment: datetime) -> int:
    """Return the first epoch ms that is not before the moment."""
    return -((EPOCH - moment) // ONE_MS)


def _choose_topic(connector: str, known: Sequence[str], topic: str | None) -> str:
    if topic is None and len(known) == 1:
        return known[0]
    if topic is None:
        raise ConfigError(f"connector {connector} has {len(known)} topics: name one of {', '.join(known) or 'none'}")
    if topic in known:
        return topic
    raise ConfigError(suggest_name(f"connector {connector} does not archive topic {topic}", topic, known))


def _list_conditions(wanted: SegmentFilter, *, may_be_timeless: bool) -> Iterator[pc.Expression]:
    if wanted.kafka_partitions is not None:
        yield pc.field("partition").isin(pa.array(sorted(wanted.kafka_partitions), pa.int32()))
    if wanted.offsets is not None:
        start, end = wanted.offsets
        yield (pc.field("offset") >= start) & (pc.field("offset") < end)
    if wanted.timestamps is not None:
        begin, finish = (pa.scalar(moment, TIMES) for moment in wanted.timestamps)
        is_within = (pc.field("timestamp") >= begin) & (pc.field("timestamp") < finish)
        # Records whose time no object tells were chosen with their object.
        yield is_within | pc.field("timestamp").is_null() if may_be_timeless else is_within


class _ArchivedObject(SizedFile):
    """An object that is read when Arrow asks. It keeps nothing of what it has read: Arrow asks for each byte once."""

    def __init__(self, store: ObjectStore, segment: Segment) -> None:
        super().__init__(segment.key, segment.size)
        self._store = store
        self._stored = StoredObject(segment.key, segment.size, segment.etag, segment.sha256)
        self._etag = segment.etag

    def read(self, size: int | None = -1, /) -> bytes:
        wanted = self._count_wanted(size)
        found = self._fetch(self._at, self._at + wanted) if wanted else b""
        self._at += len(found)
        return found

    def _fetch(self, start: int, end: int) -> bytes:
        try:
            return self._store.read_range(self._stored.key, start, end, self._etag)
        except IntegrityError:
            # A copy of the object has another ETag. If it is one, its ETag is that to ask for.
            refused, self._etag = self._etag, self._store.open_stored(self._stored).info.etag
            if self._etag == refused:
                raise
        return self._store.read_range(self._stored.key, start, end, self._etag)
