"""What the scenarios put on a topic, each record known with its offset; hostile batches among them."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from random import Random
from typing import Any
from uuid import uuid4

from confluent_kafka import KafkaError, Message, Producer

from kafka_s3_platform.core.config.settings import KafkaSettings
from kafka_s3_platform_tests.chaos.checker import Known
from kafka_s3_platform_tests.kafka import wire
from kafka_s3_platform_tests.kafka.wire import WireRecord
from kafka_s3_platform_tests.support import HOUR

SPAN = 3 * HOUR


def draw_records(random: Random, count: int, kafka_partitions: int, since: datetime, span: timedelta) -> list[Known]:
    """Records to produce; their offsets are not known yet."""
    times = sorted(random.random() for _ in range(count))
    if random.random() < 0.3:
        random.shuffle(times)
    return [_drawn(random, random.randrange(kafka_partitions), since + t * span) for t in times]


def _drawn(random: Random, kafka_partition: int, moment: datetime) -> Known:
    key = random.choice((None, b"", b"key", random.randbytes(3)))
    value = random.choice((None, b"", random.randbytes(random.choice((5, 50, 500)))))
    headers = tuple((random.choice(("h", "ü")), random.choice((None, b"1"))) for _ in range(random.choice((0, 0, 2))))
    return Known(kafka_partition, -1, round(moment.timestamp() * 1000), key, value, headers)


class Writer:
    """Produces straight to the broker."""

    def __init__(self, kafka: KafkaSettings, topic: str, random: Random) -> None:
        self._kafka, self._topic, self._random = kafka, topic, random

    def write(self, records: Sequence[Known]) -> list[Known]:
        """Produce, in batches of a few records; the records with their offsets."""
        return self._sent(Producer(self._properties()), records)

    def write_in_transaction(self, records: Sequence[Known], *, commit: bool) -> list[Known]:
        """The records that are committed: none where the transaction is aborted."""
        client = Producer(self._properties() | {"transactional.id": f"chaos-{uuid4()}"})
        client.init_transactions(30)
        client.begin_transaction()
        sent = self._sent(client, records)
        if commit:
            client.commit_transaction(30)
            return sent
        client.abort_transaction(30)
        return []

    def write_hostile(self, kafka_partition: int, moment: datetime) -> list[Known]:
        """One batch that no client library writes and that the broker takes."""
        kind = self._random.choice(tuple(HOSTILE))
        records = [WireRecord(round(moment.timestamp() * 1000) + n, b"hostile", b"%d" % n) for n in range(3)]
        batch = HOSTILE[kind](records)
        base = wire.produce_batch(self._kafka.bootstrap_servers, self._topic, kafka_partition, batch)
        known = [(kafka_partition, base + n, r.timestamp_ms, r.key, r.value) for n, r in enumerate(records)]
        return [Known(*k, (), is_hostile=True) for k in known]

    def _properties(self) -> dict[str, Any]:
        sizes = {"linger.ms": 1, "batch.num.messages": self._random.choice((3, 20, 1000)), "enable.idempotence": True}
        return self._kafka.properties("producer") | sizes

    def _sent(self, client: Producer, records: Sequence[Known]) -> list[Known]:
        sent: list[Known] = []
        for record in records:
            client.produce(
                self._topic,
                record.value,
                record.key,
                record.kafka_partition,
                timestamp=record.timestamp_ms,
                headers=list(record.headers),
                on_delivery=_acknowledged(record, sent),
            )
            client.poll(0)
        assert client.flush(30) == 0
        assert len(sent) == len(records)
        return sent


def _acknowledged(record: Known, sent: list[Known]) -> Any:
    def acknowledged(error: KafkaError | None, message: Message) -> None:
        if error is None:
            place = (record.kafka_partition, message.offset() or 0)
            sent.append(Known(*place, record.timestamp_ms, record.key, record.value, record.headers))

    return acknowledged


def _names_that_are_not_utf8(records: Sequence[WireRecord]) -> bytes:
    bad = [WireRecord(r.timestamp_ms, r.key, r.value, ((b"\xff\xfe", b"1"),)) for r in records]
    return wire.record_batch(bad)


def _at_offsets(*deltas: int) -> Callable[[Sequence[WireRecord]], bytes]:
    return lambda records: wire.record_batch(records, offset_deltas=deltas)


def _in_two_streams(codec: int) -> Callable[[Sequence[WireRecord]], bytes]:
    def batch(records: Sequence[WireRecord]) -> bytes:
        body, compress = wire.records_body(records, range(len(records))), wire.COMPRESS[codec]
        return wire.framed(compress(body[:9]) + compress(body[9:]), records, 0, codec, wire.NO_PRODUCER)

    return batch


HOSTILE = {
    "gzip in two members": _in_two_streams(wire.GZIP),
    "snappy in two streams": _in_two_streams(wire.SNAPPY),
    "header names that are not UTF-8": _names_that_are_not_utf8,
    "offsets out of order": _at_offsets(0, 2, 1),
    "offsets twice": _at_offsets(0, 1, 1),
    "offsets beyond the batch": _at_offsets(0, 1, 1_000_000),
    # the broker answers them when it is asked where an hour begins
    "offsets far behind the batch": _at_offsets(40, 41, 42),
}
