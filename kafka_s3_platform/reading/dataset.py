"""Opens the records of a topic as an Arrow dataset. The index says which objects hold them, each record once.

Each fragment knows the kafka partition, the offsets and the timestamps of its records. So an engine that pushes its
conditions down opens no object that cannot meet them.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from kafka_s3_platform.config.files import find_connector, suggest_name
from kafka_s3_platform.config.formats import NATIVE_FORMAT
from kafka_s3_platform.config.settings import ConnectorConfig, StoreSettings
from kafka_s3_platform.errors import ConfigError, IntegrityError
from kafka_s3_platform.model.record import RECORD_SCHEMA
from kafka_s3_platform.model.segment import Segment, StoredObject
from kafka_s3_platform.model.times import EPOCH, ONE_MS
from kafka_s3_platform.store.index import ConnectorIndex, ConnectorSnapshot
from kafka_s3_platform.store.objects import ObjectStore, SizedFile
from kafka_s3_platform.store.row_filter import SegmentFilter

TIMES = RECORD_SCHEMA.field("timestamp").type

FIRST_NUMBER, LAST_NUMBER = -(2**63), 2**63 - 1


@dataclass(frozen=True)
class ArchivedObjects:
    """Objects of a topic. Together they hold each record of the selection once, and perhaps others."""

    store: StoreSettings
    wanted: SegmentFilter
    segments: tuple[Segment, ...]

    def open(self) -> ds.Dataset:
        """Return the records of the selection. Objects are opened when they are read.

        Then it raises IntegrityError for one that is not as it was written, and NotFoundError for one that is gone.
        """
        store = ObjectStore(self.store)
        # Arrow hands out records of pages whose checksum is wrong, unless it is asked to look.
        options = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
        file_format = ds.ParquetFileFormat(default_fragment_scan_options=options)
        fragments = [
            file_format.make_fragment(_ArchivedObject(store, segment), partition_expression=_describe(segment))
            for segment in self.segments
        ]
        found: ds.Dataset = ds.FileSystemDataset(fragments, RECORD_SCHEMA, file_format)
        for condition in _list_conditions(self.wanted):
            found = found.filter(condition)
        return found


def find_objects(
    connector: str, topic: str | None, wanted: SegmentFilter, env: Mapping[str, str] = os.environ
) -> ArchivedObjects:
    """Find the objects of a topic that hold its records now. `topic` may be None if the connector has one alone.

    Raises:
        ConfigError: there is no such connector or topic, or some of the objects hold no whole records.
        StoreUnavailableError: the store does not answer.
        IndexDamagedError: the index cannot be read.
    """
    config = find_connector(connector, env)
    if config.source is not None:
        raise ConfigError(f"connector {connector} is a source: only what a sink has archived can be read as a table")
    whole = ConnectorIndex.of(config).peek()
    named = _choose_topic(config, whole, topic)
    found = () if whole is None else whole.topic(named).select_segments(wanted)
    if others := Counter(segment.format for segment in found if segment.format != NATIVE_FORMAT):
        told = ", ".join(f"{count:,} of {name}" for name, count in sorted(others.items()))
        raise ConfigError(
            f"connector {connector}, topic {named}: {told} of {len(found):,} objects hold no whole records in Parquet. "
            f"Only EnvelopeParquetFormat is read as a table; `kafka-s3 files {connector}` prints the objects"
        )
    return ArchivedObjects(config.store, wanted, found)


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


def _choose_topic(config: ConnectorConfig, whole: ConnectorSnapshot | None, topic: str | None) -> str:
    if topic in config.topics:
        return topic
    known = sorted({*config.topics, *(whole.topics if whole else ())})
    if topic is None and len(known) == 1:
        return known[0]
    if topic is None:
        raise ConfigError(f"connector {config.name} has {len(known)} topics: name one of {', '.join(known) or 'none'}")
    if topic not in known:
        raise ConfigError(suggest_name(f"connector {config.name} does not archive topic {topic}", topic, known))
    return topic


def _describe(segment: Segment) -> pc.Expression:
    """Return what the index says of all records of the object."""
    return (
        (pc.field("partition") == pa.scalar(segment.kafka_partition, pa.int32()))
        & (pc.field("offset") >= segment.start_offset)
        & (pc.field("offset") < segment.end_offset)
        & (pc.field("timestamp") >= pa.scalar(segment.min_timestamp, TIMES))
        & (pc.field("timestamp") <= pa.scalar(segment.max_timestamp, TIMES))
    )


def _list_conditions(wanted: SegmentFilter) -> Iterator[pc.Expression]:
    if wanted.kafka_partitions is not None:
        yield pc.field("partition").isin(pa.array(sorted(wanted.kafka_partitions), pa.int32()))
    if wanted.offsets is not None:
        start, end = wanted.offsets
        yield (pc.field("offset") >= start) & (pc.field("offset") < end)
    if wanted.timestamps is not None:
        begin, finish = (pa.scalar(moment, TIMES) for moment in wanted.timestamps)
        yield (pc.field("timestamp") >= begin) & (pc.field("timestamp") < finish)


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
