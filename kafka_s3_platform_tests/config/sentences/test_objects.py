"""What is said of objects and requests: how they are sent, named and read."""

import inspect
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler

import pytest
from pydantic import SecretStr

from kafka_s3_platform.connect.sources.sample import Sample, make_sample_keys
from kafka_s3_platform.connect.sources.scan import SourceListing
from kafka_s3_platform.core.config.settings import KafkaSettings
from kafka_s3_platform.core.kafka.producer import ReplayProducer
from kafka_s3_platform.core.kafka.transactional_producer import TransactionalReplayProducer
from kafka_s3_platform.core.model.connect import ConnectBatch, Schema
from kafka_s3_platform_tests.config.sentences.files import file_of, resolve
from kafka_s3_platform_tests.conftest import present
from kafka_s3_platform_tests.formats.connect import came, decoded
from kafka_s3_platform_tests.sources import memory as reading
from kafka_s3_platform_tests.sources.memory import MemoryStore, source
from kafka_s3_platform_tests.store import http_proxy
from kafka_s3_platform_tests.store.http_proxy import HttpAnswer, HttpRequest, HttpServer, running
from kafka_s3_platform_tests.store.servers import store_at

COUNT = 20_000
ROW = Schema('{"type":"record","name":"R","fields":[{"name":"n","type":"int"}]}')
ROWS = decoded([{"n": n} for n in range(COUNT)], ROW)
LINES = came([b"%d" % n for n in range(COUNT)], is_json=True)


@pytest.mark.parametrize(
    ("format_name", "batch"),
    [("avro", ROWS), ("parquet", ROWS), ("json", LINES), ("bytes", LINES)],
    ids=lambda case: case if isinstance(case, str) else "",
)
def test_a_large_object_is_read_batch_by_batch(format_name: str, batch: ConnectBatch) -> None:
    layout = {"format": format_name, "codec": "null" if format_name == "avro" else "none"}
    objects = reading.object_of(layout, batch, schema=ROW if batch is ROWS else None)
    sizes = [read.num_rows for read in reading.stream(source(layout), MemoryStore(objects)).batches()]
    assert sum(sizes) == COUNT
    assert max(sizes) <= 8_192


class Taking(HttpServer):
    """Takes every object."""

    def answer(self, request: HttpRequest) -> HttpAnswer:  # noqa: ARG002
        return HttpAnswer(200, (("ETag", '"e"'),))


def test_small_bodies_are_sent_at_once_and_larger_ones_wait_for_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[str] = []

    def answer_expectation(handler: BaseHTTPRequestHandler) -> bool:
        waited.append(handler.path)
        return BaseHTTPRequestHandler.handle_expect_100(handler)

    monkeypatch.setattr(http_proxy._Handler, "handle_expect_100", answer_expectation)  # noqa: SLF001
    with running(Taking()) as server:
        for size in (1, 1_000_000, 3_000_000):
            store_at(server.endpoint).put_new(f"of-{size}", bytes(size))
    assert waited == ["/own/of-3000000"]


@pytest.mark.parametrize("length", ["5", "12"])
def test_lenses_names_have_20_digits_whatever_padding_the_file_asks_for(length: str) -> None:
    config = present(resolve({**file_of("lenses"), "connect.s3.padding.length": length}).config)
    (key,) = make_sample_keys(config, Sample("events", datetime(2026, 1, 1, 12, tzinfo=timezone.utc)))
    assert "/00000000000000000000" in key


@pytest.mark.parametrize("name", ["42_0_9", "000000000042_0_9", "00000000000000000042_0_9"])
def test_lenses_names_are_read_with_any_padding(name: str) -> None:
    config = present(resolve({**file_of("lenses source"), "connect.s3.padding.strategy": "NoOp"}).config)
    (item,) = SourceListing(config, store=MemoryStore({f"p/events/3/{name}.json": b"x"}))
    assert (item.topic, item.kafka_partition, item.last_offset) == ("events", 3, 42)


@pytest.mark.parametrize("producer", [ReplayProducer, TransactionalReplayProducer])
def test_a_restore_waits_two_minutes_for_an_acknowledgement_and_for_no_record_less(producer: type) -> None:
    assert inspect.signature(producer).parameters["answer_seconds"].default == 120
    asked = present(resolve({**file_of("envelope"), "producer.override.delivery.timeout.ms": "1"}).config)
    kafka: KafkaSettings = asked.kafka
    assert SecretStr("1") not in kafka.properties("producer").values()
