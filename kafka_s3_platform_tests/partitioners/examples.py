"""Classes of a user's: the examples of the documentation."""

from datetime import datetime, timedelta, timezone

import numpy as np

from kafka_s3_platform.config.settings import LayoutSettings
from kafka_s3_platform.model.connect import ConnectBatch, Int64s
from kafka_s3_platform.partitioners.extractors import Record, RecordExtractor
from kafka_s3_platform.partitioners.partitioners import (
    EncodedPartitions,
    FieldPartitioner,
    TimeBasedPartitioner,
    joined,
)

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class LogLineTimestamp(RecordExtractor):
    """The time that a line of a log begins with: `2019-03-12 12:00:01.003 - INFO - service started`."""

    def timestamp(self, record: Record) -> int | None:
        moment = datetime.strptime(record.value[:23], "%Y-%m-%d %H:%M:%S.%f").replace(tzinfo=self.zone)
        return (moment - EPOCH) // timedelta(milliseconds=1)


class FieldAndTimePartitioner(TimeBasedPartitioner):
    """The fields' folders, and the times' folders in them."""

    def __init__(self, layout: LayoutSettings) -> None:
        super().__init__(layout)
        self._fields = FieldPartitioner(layout)

    def encode(self, batch: ConnectBatch, times_ms: Int64s) -> EncodedPartitions:
        parts = [self._fields.encode(batch, times_ms), super().encode(batch, times_ms)]
        return joined(parts, self.layout.directory_delim)


class FolderOfText:
    """Takes each value as it is for a folder: what nobody should write."""

    def __init__(self, layout: LayoutSettings) -> None:
        self.layout = layout

    def encode(self, batch: ConnectBatch, times_ms: Int64s) -> EncodedPartitions:  # noqa: ARG002  the protocol's
        return EncodedPartitions(list(batch.value.objects), np.arange(batch.num_rows, dtype=np.int32))


class TooFewCodes:
    """Leaves a record out."""

    def __init__(self, layout: LayoutSettings) -> None:
        self.layout = layout

    def encode(self, batch: ConnectBatch, times_ms: Int64s) -> EncodedPartitions:  # noqa: ARG002  the protocol's
        return EncodedPartitions(["a"], np.zeros(batch.num_rows - 1, np.int32))
