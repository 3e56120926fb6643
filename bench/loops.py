"""`python -m bench.loops`: CPU time of the loops that every record passes, one after the other, in one process.

No server is asked, so it also tells something on a busy machine. What is sent goes to a broker that librdkafka plays in
another process. Run it with another checkout in PYTHONPATH for figures to compare, in turns.
"""

import gc
import multiprocessing
import time
from collections.abc import Callable, Iterable
from functools import partial
from multiprocessing.connection import Connection
from typing import TypeVar

import pyarrow as pa
from confluent_kafka import Producer

from bench.workload import START_MS, key, value
from kafka_s3_platform.connect.converters.json_text import flatten_texts
from kafka_s3_platform.connect.formats.json import end_raw_lines
from kafka_s3_platform.core.config.settings import KafkaSettings
from kafka_s3_platform.core.formats.columns import RecordDigest
from kafka_s3_platform.core.kafka.fetch.log_batches import LogBatch, build_record_batch, open_batch
from kafka_s3_platform.core.kafka.producer import ReplayProducer, build_rows
from kafka_s3_platform.core.model.offsets import TopicPartition
from kafka_s3_platform.core.restore.replay.target_log import SubsequenceMatch

TOPIC = TopicPartition("bench", 0)
RECORDS = 16_384
BATCHES = 8
LOG_RECORDS = 4_096
"""Records of a batch in the log: about a megabyte."""

T = TypeVar("T")

ROUNDS = 9
SENT_ROUNDS = 8


def main() -> None:
    """Measure each loop, and print the best of some rounds."""
    logs = [_log_batch(3_000_000 + n) for n in range(0, BATCHES * RECORDS, LOG_RECORDS)]
    step = RECORDS // LOG_RECORDS
    groups = [logs[at : at + step] for at in range(0, len(logs), step)]
    first, second = ([_read_group(group) for group in groups] for _ in range(2))
    values = [batch.column("value") for batch in first]
    slices = [batch.slice(at, 1024) for batch in first for at in range(0, RECORDS, 1024)]
    loops: dict[str, Callable[[], object]] = {
        "a batch of the log to Arrow": partial(_call_each, _read_group, groups),
        "JSON check": partial(_call_each, flatten_texts, values),
        "line join": partial(_call_each, end_raw_lines, values),
        "digest": lambda: _digest(first),
        "matching what was restored": lambda: sum(a.num_rows for a, _ in SubsequenceMatch(first, second)),
        "rows for the producer": partial(_call_each, build_rows, slices),
    }
    print("| loop | CPU µs a record |\n|---|---|")
    for name, loop in loops.items():
        print(f"| {name} | {min(map(_measure, [loop] * ROUNDS)) / BATCHES / RECORDS * 1e6:.3f} |", flush=True)
    _send(first)


def _call_each(function: Callable[[T], object], items: Iterable[T]) -> None:
    """Call the function for each item, and keep no result: what is kept costs more than what is made."""
    for item in items:
        function(item)


def _measure(loop: Callable[[], object]) -> float:
    started = time.process_time()
    loop()
    return time.process_time() - started


def _send(batches: list[pa.RecordBatch]) -> None:
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    broker = spawn.Process(target=_play_broker, args=(theirs,))
    broker.start()
    settings = KafkaSettings(bootstrap_servers=ours.recv())
    collected: list[float] = []

    def note(phase: str, _: object) -> None:
        collected.append(time.thread_time() * (1 if phase == "stop" else -1))

    gc.collect()
    gc.callbacks.append(note)
    with ReplayProducer(settings, TOPIC.topic) as producer:
        started = time.process_time()
        for _ in range(SENT_ROUNDS):
            for batch in batches:
                producer.send(batch, 0)
        producer.flush()
        seconds = time.process_time() - started
    gc.callbacks.remove(note)
    each = 1e6 / (SENT_ROUNDS * BATCHES * RECORDS)
    told = f"{sum(collected) * each:.3f} in the collector, which ran {len(collected) // 2} times"
    print(f"| sending, acknowledged | {seconds * each:.3f} ({told}) |")
    ours.send(None)
    broker.join()


def _play_broker(pipe: Connection) -> None:
    client = Producer({"test.mock.num.brokers": 1})
    client.produce(TOPIC.topic, b"", partition=0)
    client.flush(10)
    [broker] = client.list_topics(timeout=10).brokers.values()
    pipe.send(f"{broker.host}:{broker.port}")
    pipe.recv()


def _digest(batches: list[pa.RecordBatch]) -> str:
    digest = RecordDigest()
    for batch in batches:
        digest.update(batch)
    return digest.hexdigest()


def _read_group(logs: list[LogBatch]) -> pa.RecordBatch:
    return build_record_batch(TOPIC, [open_batch(log) for log in logs])[0]


def _log_batch(first: int) -> LogBatch:
    body = b"".join(_encode_record(n, key(first + n), value(first + n)) for n in range(LOG_RECORDS))
    last = first + LOG_RECORDS - 1
    return LogBatch(first, last, 0, 0, START_MS + first, START_MS + last, 0, LOG_RECORDS, memoryview(body))


def _encode_record(delta: int, record_key: bytes, record_value: bytes) -> bytes:
    parts = (_encode_number(len(part)) + part for part in (record_key, record_value))
    fields = b"\0" + 2 * _encode_number(delta) + b"".join(parts) + _encode_number(0)
    return _encode_number(len(fields)) + fields


def _encode_number(number: int) -> bytes:
    """Encode a number that is not negative as a zigzag varint."""
    left = number << 1
    found = bytearray()
    while left > 127:
        found.append(left & 127 | 128)
        left >>= 7
    return bytes(found + bytes([left]))


if __name__ == "__main__":
    main()
