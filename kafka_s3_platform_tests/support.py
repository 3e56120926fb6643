"""What tests of the use cases share: a runner without Spark, a connector, records in and out."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from itertools import count
from typing import Any, TypeVar
from uuid import uuid4

import psutil
import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, Producer
from deltalake import write_deltalake

from kafka_s3_platform.core.archive.request import ArchiveReport, ArchiveRequest
from kafka_s3_platform.core.archive.run import archive_topic
from kafka_s3_platform.core.config.settings import (
    ArchiveSettings,
    ConnectorConfig,
    KafkaSettings,
    LayoutSettings,
    RecordSettings,
    StoreSettings,
)
from kafka_s3_platform.core.errors import SparkUnavailableError, StoreUnavailableError
from kafka_s3_platform.core.formats.envelope.parquet import EnvelopeReader
from kafka_s3_platform.core.model.offsets import OffsetRange
from kafka_s3_platform.core.spark.runner import Attempt, TaskRunner
from kafka_s3_platform.core.spark.session import DAEMON_MODULE
from kafka_s3_platform.core.store import objects
from kafka_s3_platform.core.store.client import new_s3_client
from kafka_s3_platform.core.store.index import IndexSnapshot, TopicIndex
from kafka_s3_platform.core.store.index_rows import TABLE_SCHEMA
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform.core.upkeep.compact.days import CompactReport, CompactRequest
from kafka_s3_platform.core.upkeep.compact.run import compact_days

T = TypeVar("T")
R = TypeVar("R")

HOUR = timedelta(hours=1)
SETTINGS = LayoutSettings().model_dump_json()
"""What the row of a segment says of the layout that wrote it."""

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
"""An hour long past: its records are event time."""

_attempts = count(1)


class InProcessRunner(TaskRunner):
    """Runs the real task functions one after the other in this process."""

    def run(
        self,
        function: Callable[[T, Attempt], R],
        tasks: Sequence[T],
        max_concurrent: int,  # noqa: ARG002
    ) -> Iterator[R]:
        for task in tasks:
            yield function(task, Attempt(next(_attempts), 0))

    def start(self) -> None:
        """There is nothing to start."""

    def at_once(self, max_concurrent: int) -> int:
        """As on a cluster, for limits that are shared out."""
        return max_concurrent


class NoSpark(InProcessRunner):
    """Spark does not start."""

    def start(self) -> None:
        raise SparkUnavailableError("Spark does not start: no java")


class InterleavedRunner(InProcessRunner):
    """Does something else between the last task of a run and its commit."""

    def __init__(self, then: Callable[[], object]) -> None:
        self._then = then

    def run(self, function: Callable[[T, Attempt], R], tasks: Sequence[T], max_concurrent: int) -> Iterator[R]:
        yield from list(super().run(function, tasks, max_concurrent))
        self._then()


class FailingRunner(InterleavedRunner):
    """Does every task and something else, then ends the run before it can commit."""

    def __init__(self, then: Callable[[], object] = lambda: None) -> None:
        super().__init__(then)

    def run(self, function: Callable[[T, Attempt], R], tasks: Sequence[T], max_concurrent: int) -> Iterator[R]:
        yield from super().run(function, tasks, max_concurrent)
        raise StoreUnavailableError("the store went away")


@dataclass(frozen=True)
class Sent:
    """One record to produce."""

    value: bytes | None = b"v"
    key: bytes | None = None
    timestamp: datetime = NOON
    headers: tuple[tuple[str, bytes | None], ...] = ()
    kafka_partition: int = 0


def produce(kafka: KafkaSettings, topic: str, records: Iterable[Sent], **producer: Any) -> None:
    """Produce and wait for every acknowledgement."""
    refused: list[KafkaError] = []
    own = {"linger.ms": 5, "message.max.bytes": 4_000_000, "enable.idempotence": True}
    client = Producer(kafka.properties("producer") | own | producer)
    for record in records:
        send(client, topic, record, lambda err, _: refused.append(err) if err else None)
    assert client.flush(30) == 0
    assert refused == []


def send(client: Producer, topic: str, record: Sent, on_delivery: Callable[[Any, Any], None] | None = None) -> None:
    """Hand one record to a producer."""
    client.produce(
        topic,
        record.value,
        record.key,
        record.kafka_partition,
        timestamp=round(record.timestamp.timestamp() * 1000),
        headers=list(record.headers),
        on_delivery=on_delivery,
    )


def connector(
    kafka: KafkaSettings,
    store: StoreSettings,
    topic: str,
    *,
    layout: dict[str, Any] | None = None,
    records: dict[str, Any] | None = None,
    **archive: Any,
) -> ConnectorConfig:
    """A connector named `c` whose archive begins a month before `NOON`, without allowed lateness."""
    settings: dict[str, Any] = {"start_hour": NOON - timedelta(days=30), "allowed_lateness_ms": 0} | archive
    return ConnectorConfig(
        name="c",
        topics=(topic,),
        tasks_max=2,
        kafka=kafka,
        store=store,
        layout=LayoutSettings(**(layout or {})),
        records=RecordSettings(**(records or {})),
        archive=ArchiveSettings(**settings),
    )


def archived(config: ConnectorConfig, hours: Sequence[datetime] | None = None, run_id: str = "") -> ArchiveReport:
    """Archive `hours`, or all up to now, of the connector's one topic. Raises what the run failed with."""
    report = tried(config, hours, run_id)
    report.raise_failure()
    return report


def tried(config: ConnectorConfig, hours: Sequence[datetime] | None = None, run_id: str = "") -> ArchiveReport:
    """`archived`, but what the run failed with after its commits stays in the report."""
    wanted = None if hours is None else tuple(hours)
    request = ArchiveRequest(config, config.topics[0], run_id or f"run-{uuid4()}", wanted)
    return archive_topic(request, InProcessRunner())


def compact_day(request: CompactRequest, runner: TaskRunner) -> CompactReport:
    """Merge the day's live hourly segments into daily ones. Raises the errors of the stages."""
    [outcome] = compact_days([request], runner).values()
    if isinstance(outcome, CompactReport):
        return outcome
    raise outcome


def snapshot(config: ConnectorConfig) -> IndexSnapshot:
    """The index of the connector's one topic."""
    return TopicIndex.of(config, config.topics[0]).open()


def stored(config: ConnectorConfig) -> pa.Table:
    """Every record of the live segments, by kafka partition and offset, with the key of its object."""
    store = ObjectStore(config.store)
    tables = []
    for segment in snapshot(config).segments:
        batches = list(EnvelopeReader(store.open(segment.key), segment.key).batches())
        table = pa.Table.from_batches(batches)
        tables.append(table.append_column("object", pa.array([segment.key] * table.num_rows)))
    if not tables:
        return pa.table({"partition": [], "offset": []})
    return pa.concat_tables(tables).sort_by([("partition", "ascending"), ("offset", "ascending")])


def offsets_by_kafka_partition(table: pa.Table) -> dict[int, list[int]]:
    """Kafka partition -> offsets, in order, repeated ones repeated."""
    found: dict[int, list[int]] = {}
    for kafka_partition, offset in zip(
        table.column("partition").to_pylist(), table.column("offset").to_pylist(), strict=True
    ):
        found.setdefault(kafka_partition, []).append(offset)
    return found


def scanned(config: ConnectorConfig, kafka_partition: int = 0) -> tuple[OffsetRange, ...]:
    """Coverage of one kafka partition."""
    return snapshot(config).state.coverage(kafka_partition).ranges


def damage_topic(config: ConnectorConfig, topic: str) -> None:
    """Write rows of one topic into the connector's index that nothing of ours writes: of its state, and of segments."""
    index = TopicIndex.of(config, topic)
    state = {"kind": "topic", "period": "state", "kafka_partitions": "{", "configs": "[]"}
    segment = {"kind": "segment", "period": "none", "siblings": "{"}
    common = {"commit_id": "c", "committed_at": NOON, "version": 1, "topic": topic}
    table = pa.Table.from_pylist([{**common, **state}, {**common, **segment}], schema=TABLE_SCHEMA)
    write_deltalake(index.uri, table, mode="append", storage_options=index.within_connector.table.options)


def is_spark_worker(process: psutil.Process) -> bool:
    """Whether it is a Python worker of Spark of this machine, and not the process from which workers are forked."""
    try:
        return all(DAEMON_MODULE in p.cmdline() for p in (process, process.parent()) if p is not None)
    except psutil.Error:
        return False


def is_gone(pid: int, seconds: float = 20.0) -> bool:
    """Return whether a process ends in this time. One that nobody has waited for has ended too."""
    deadline = time.monotonic() + seconds
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        while process.status() != psutil.STATUS_ZOMBIE:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
    return True


def find_children(pid: int, name: str) -> list[psutil.Process]:
    """Return the child processes of this name. Another child may end meanwhile."""
    children: list[psutil.Process] = []
    for child in psutil.Process(pid).children():
        with suppress(psutil.NoSuchProcess):
            if child.name() == name:
                children.append(child)
    return children


def watch_s3(monkeypatch: pytest.MonkeyPatch, note: Callable[[str, dict[str, Any]], object]) -> None:
    """Have `note` get the operation and the parameters, which it may change, of what is asked of S3 from now on.

    By any client of objects: delta-rs, which reads the index, has its own.
    """

    def watched(settings: StoreSettings) -> Any:
        client = new_s3_client(settings)
        client.meta.events.register("provide-client-params.s3", lambda params, model, **_: note(model.name, params))
        return client

    monkeypatch.setattr(objects, "get_s3_client", watched)
