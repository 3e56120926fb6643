"""Mappers as a user writes them: those of Zooz's documents, and what goes wrong."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from kafka_s3_platform.connect.transforms import MappedRecord, RecordMapper
from kafka_s3_platform.core.errors import TransientError
from kafka_s3_platform.core.model.connect import ConnectBatch, Outcome


class UpperCaseMapper(RecordMapper):
    """Zooz's example: a text becomes upper case."""

    def map(self, record: MappedRecord) -> Iterable[Any]:
        return [record.value.decode().upper()]


class LinesMapper(RecordMapper):
    """One to many: each line becomes a record."""

    def map(self, record: MappedRecord) -> Iterable[Any]:
        yield from record.value.splitlines()


class LevelFilter(RecordMapper):
    """A filter: lines of one level are left out. `transforms.<alias>.level` says which."""

    public_options = frozenset({"level"})

    def map(self, record: MappedRecord) -> Iterable[Any]:
        return [] if self.options["level"].encode() in record.value else [record]


class Rewriter(RecordMapper):
    """Everything that a record may get: a key, a value, headers, a topic."""

    def map(self, record: MappedRecord) -> Iterable[Any]:
        headers = (*record.headers, ("seen", None))
        yield replace(record, key=b"k", value={**record.value, "new": 1}, headers=headers, topic=f"{record.topic}.x")


class LaterMapper(RecordMapper):
    def map(self, record: MappedRecord) -> Iterable[Any]:
        return [replace(record, timestamp=record.timestamp + 1)]


class ServiceMapper(RecordMapper):
    def map(self, record: MappedRecord) -> Iterable[Any]:
        raise TransientError(f"the lookup service did not answer for offset {record.offset}")


class EveryOther:
    """A mapper on Arrow batches: keeps records of even offsets."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = options

    def apply(self, batch: ConnectBatch) -> Outcome:
        return Outcome(batch.take(np.flatnonzero(batch.offsets % 2 == 0)))


class Backwards(EveryOther):
    def apply(self, batch: ConnectBatch) -> Outcome:
        return Outcome(batch.take(np.arange(batch.num_rows)[::-1].copy()))


class Broken(EveryOther):
    def apply(self, batch: ConnectBatch) -> Outcome:
        raise KeyError(f"colour of {batch.num_rows}")


class OddMapper(LinesMapper):
    """Says what is public as no class should: one name is not a set of names."""

    public_options = "abc"  # type: ignore[assignment]


class DropsAndDoubles(RecordMapper):
    """Value 5 is left out, and 7 comes twice: as many records as there were."""

    def map(self, record: MappedRecord) -> Iterable[Any]:
        return [record] * {b"5": 0, b"7": 2}.get(record.value, 1)
