"""Builds records from the batches of a format's reader, and summarizes their offsets."""

from dataclasses import replace

import numpy as np
import pyarrow as pa

from kafka_s3_platform.config.settings import ConnectorConfig
from kafka_s3_platform.formats.aiven import HEADERS
from kafka_s3_platform.formats.reading import ReadBatch, build_bytes_payload
from kafka_s3_platform.model.connect import ConnectBatch, Int64s
from kafka_s3_platform.model.record import NO_TIMESTAMP, RECORD_SCHEMA
from kafka_s3_platform.sources.contents import restore_kafka_bytes
from kafka_s3_platform.sources.objects import ObjectGroup

# Ids of Kafka's TimestampType.
_NO_TIMESTAMP_TYPE = -1
_CREATE_TIME = 0


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
    """Return the offset of each record, -1 for a record without one."""
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
    """Build the records of a batch with offsets. Parts missing in the object become null, or NO_TIMESTAMP."""
    records = config.records
    size = len(batch)
    value = restore_kafka_bytes(batch.value, records.value)
    key = (
        build_bytes_payload(pa.nulls(size, pa.binary()))
        if batch.key is None
        else restore_kafka_bytes(batch.key, records.key)
    )
    times = np.full(size, NO_TIMESTAMP, np.int64) if batch.timestamps is None else batch.timestamps
    kinds = pa.array(np.where(times == NO_TIMESTAMP, _NO_TIMESTAMP_TYPE, _CREATE_TIME), pa.int32())
    columns = [
        key.raw,
        value.raw,
        pa.nulls(size, HEADERS) if batch.headers is None else batch.headers,
        pa.repeat(group.topic, size),
        pa.array(np.full(size, group.kafka_partition), pa.int32()),
        pa.array(batch.offsets),
        pa.array(times).cast(RECORD_SCHEMA.field("timestamp").type),
        kinds if batch.timestamp_types is None else batch.timestamp_types,
    ]
    return ConnectBatch(pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA), key, value)
