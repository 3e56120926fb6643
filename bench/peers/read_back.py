"""Reads every object and every restored record back, and compares the values with those of the source topic."""

import gzip
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from numpy.typing import NDArray

Values = Iterable[pl.Series]
"""Values of records, some at a time, as text."""


@dataclass(frozen=True)
class Comparison:
    """What was read back beside what was to be read. Values alone are compared: most tools keep nothing else."""

    found: int
    missing: int
    twice: int
    """Copies beyond the first."""
    altered: int
    """Values that are not those of the source, or of no record of it."""


class Expected:
    """The values of the source topic, by the number that each record has in it."""

    def __init__(self, values: Values, records: int) -> None:
        self._hashes = np.zeros(records, np.uint64)
        for numbers, hashes in map(_digest, values):
            self._hashes[numbers] = hashes
        if not self._hashes.all():
            raise RuntimeError(f"the source topic lacks some of its {records} records")

    def compare(self, values: Values) -> Comparison:
        """Count."""
        counts, altered = np.zeros(len(self._hashes), np.int64), 0
        for numbers, hashes in map(_digest, values):
            known = numbers < len(counts)
            same = known.copy()
            same[known] = self._hashes[numbers[known]] == hashes[known]
            altered += int((~same).sum())
            counts += np.bincount(numbers[same], minlength=len(counts))
        missing = int((counts == 0).sum())
        return Comparison(int(counts.sum()) + altered, missing, int((counts - 1).clip(0).sum()), altered)


def _digest(values: pl.Series) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """Return each value's number (a huge one, if it has none) and hash."""
    numbers = values.str.extract(r'^\{"id":(\d+),').cast(pl.Int64, strict=False).fill_null(2**40)
    return numbers.to_numpy(), values.hash().to_numpy()


def read_topic(bootstrap_servers: str, topic: str) -> Iterator[pl.Series]:
    """Read the committed records of a topic, from its start to its end now."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "bench-read-back",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "fetch.queue.backoff.ms": 5,
            "queued.min.messages": 500_000,
        }
    )
    left = set(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, p, 0) for p in left])
    while left:
        values = []
        for message in consumer.consume(20_000, 1.0):
            if (error := message.error()) is None:
                values.append(message.value())
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its only name
                left.discard(message.partition())
            else:
                raise KafkaException(error)
        yield pl.Series(values, dtype=pl.Binary).cast(pl.String)
    consumer.close()


def read_lines(store: Any, bucket: str, keys: Iterable[str], local: Path) -> Iterator[pl.Series]:
    """Read objects of gzip lines, and the local file of a tool that wrote there."""
    for key in keys:
        yield _split(gzip.decompress(store.get_object(Bucket=bucket, Key=key)["Body"].read()))
    if local.exists():
        yield _split(local.read_bytes())


def _split(lines: bytes) -> pl.Series:
    # One column: no value holds the separator.
    frame = pl.read_csv(lines, has_header=False, separator="\x01", quote_char=None, schema={"value": pl.String})
    return frame["value"]


def read_envelopes(store: Any, bucket: str, keys: Iterable[str]) -> Iterator[pl.Series]:
    """Read the values of objects of whole records in Parquet."""
    for key in keys:
        body = BytesIO(store.get_object(Bucket=bucket, Key=key)["Body"].read())
        yield pl.read_parquet(body, columns=["value"])["value"].cast(pl.String)
