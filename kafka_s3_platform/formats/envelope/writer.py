"""Writes one of our envelopes from the batches of all formats."""

from collections.abc import Mapping
from typing import Protocol

import pyarrow as pa

from kafka_s3_platform.model.connect import ConnectBatch


class EnvelopeOfRecords(Protocol):
    """Writes batches of `RECORD_SCHEMA`."""

    @property
    def buffered_bytes(self) -> int: ...

    def write(self, batch: pa.RecordBatch) -> None: ...

    def close(self, metadata: Mapping[str, str]) -> None: ...


class WholeRecordWriter:
    """Writes the records of each batch as they came, without reading their values."""

    def __init__(self, writer: EnvelopeOfRecords) -> None:
        self._writer = writer
        self.sidecars: Mapping[str, bytes] = {}

    @property
    def buffered_bytes(self) -> int:
        return self._writer.buffered_bytes

    def write(self, batch: ConnectBatch) -> None:
        """Append the records of a batch."""
        self._writer.write(batch.records)

    def close(self, facts: Mapping[str, str]) -> None:
        """Write the buffered records, and `facts` if the format has a place for them.

        The sink stays open.
        """
        self._writer.close(facts)
