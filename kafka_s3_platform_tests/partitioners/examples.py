"""Classes of a user's: the examples of the documentation."""

import numpy as np

from kafka_s3_platform.connect.partitioners.fields import FieldPartitioner
from kafka_s3_platform.core.config.settings import LayoutSettings
from kafka_s3_platform.core.model.connect import ConnectBatch, Int64s
from kafka_s3_platform.core.partitioners.partitioners import EncodedPartitions, TimeBasedPartitioner, joined


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
