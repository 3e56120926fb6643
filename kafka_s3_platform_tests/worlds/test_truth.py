"""The simulated Kafka answers what a real broker answers, after the same steps."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import NewPartitions

from kafka_s3_platform.core.config.settings import KafkaSettings
from kafka_s3_platform.core.errors import PlatformError
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.kafka.answers import Answers, OffsetAtTime, RecordOffset
from kafka_s3_platform.core.kafka.new_reader import new_reader
from kafka_s3_platform.core.kafka.record_reader import RecordReader
from kafka_s3_platform.core.model.frontier import Frontier
from kafka_s3_platform.core.model.offsets import OffsetRange
from kafka_s3_platform_tests.conftest import CreateTopic, Lab
from kafka_s3_platform_tests.kafka.topics import ask_frontiers, ask_offsets, until
from kafka_s3_platform_tests.worlds import kafka as simulated_kafka
from kafka_s3_platform_tests.worlds.kafka import BEGIN, Log, to_ms
from kafka_s3_platform_tests.worlds.seams import STAGE, SimAdmin, SimReader
from kafka_s3_platform_tests.worlds.steps import (
    AddKafkaPartition,
    Delete,
    EndTransaction,
    Mode,
    Produce,
    Recreate,
    Step,
    Wait,
    draw_world,
)
from kafka_s3_platform_tests.worlds.world import World

POSSIBLE = Mode("as a real broker", {EndTransaction: 8, Delete: 5, AddKafkaPartition: 1, Recreate: 1})
"""What a test can do to a broker. The rest of a world is left out: elections, compaction, lies."""

TIMES = [to_ms(minute) for minute in range(0, 1_500, 30)]
CONFIGS = {"retention_ms": -1, "segment_ms": 2**62}
"""A marker is months later than the records before it: that would begin a new log segment."""

EACH = 10
LONG = 100


@dataclass
class RealTopic:
    """Does the steps at a broker. `count` is the number of its kafka partitions."""

    kafka: KafkaSettings
    admin: ClusterAdmin
    create: CreateTopic
    name: str
    count: int
    writers: dict[tuple[int, int], Producer] = field(default_factory=dict)
    plain: Producer | None = None

    def do(self, step: Step, log: Log) -> None:
        """Do the step. `log` is its kafka partition in the simulation, where it was done before."""
        match step:
            case Produce(kafka_partition=place, minutes=minutes, writer=writer):
                self._produce(self._find_writer(place, writer), place, minutes)
            case EndTransaction(kafka_partition=place, writer=writer, is_committed=is_committed):
                if client := self.writers.pop((place, writer), None):
                    (client.commit_transaction if is_committed else client.abort_transaction)(30)
                    # a broker says so before it writes the marker
                    until(lambda: self.admin.frontiers(self.name, [place])[place].high_watermark == log.end)
            case Delete(kafka_partition=place):
                to = TopicPartition(self.name, place, log.log_start)
                self._ask(lambda client: client.delete_records([to])[to])
            case AddKafkaPartition():
                self.count += 1
                self._ask(lambda client: client.create_partitions([NewPartitions(self.name, self.count)])[self.name])
                self.plain = None
                until(self._is_whole)
            case _:
                pass

    def recreate(self) -> None:
        """Delete the topic and create it again, with nothing left of its writers."""
        for client in self.writers.values():
            client.abort_transaction(30)
        self.writers.clear()
        self._ask(lambda client: client.delete_topics([self.name])[self.name])

        def is_created() -> bool:
            try:
                self.create(self.name, self.count, **CONFIGS)
            except PlatformError:
                return False
            return True

        until(is_created)
        self.plain = None

    def _is_whole(self) -> bool:
        try:
            return bool(self.admin.frontiers(self.name, range(self.count)))
        except PlatformError:
            return False

    def _ask(self, call: Any) -> None:
        self.admin.ask(lambda client, _: call(client), "a test")

    def _find_writer(self, place: int, writer: int | None) -> Producer:
        if writer is None:
            self.plain = self.plain or Producer(self.kafka.properties("producer") | {"linger.ms": 0})
            return self.plain
        if (place, writer) not in self.writers:
            own = {"transactional.id": f"{self.name}-{place}-{writer}", "linger.ms": 0}
            client = self.writers[place, writer] = Producer(self.kafka.properties("producer") | own)
            client.init_transactions(30)
            client.begin_transaction()
        return self.writers[place, writer]

    def _produce(self, client: Producer, place: int, minutes: tuple[int, ...]) -> None:
        for minute in minutes:
            client.produce(self.name, b"v", partition=place, timestamp=to_ms(minute))
        assert client.flush(30) == 0


@pytest.fixture(autouse=True)
def one_log_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real broker has one log segment for so few records."""
    monkeypatch.setattr(simulated_kafka, "ROLL", 10**9)


@pytest.mark.parametrize("seed", [*range(EACH), *(pytest.param(n, marks=pytest.mark.long) for n in range(EACH, LONG))])
def test_a_real_broker_answers_the_same(seed: int, lab: Lab) -> None:
    count, steps = draw_world(seed, POSSIBLE)
    world = World(count)
    # markers have the time of a broker's clock, which is later than every record here
    world.now = int((time.time() - BEGIN.timestamp()) / 60)
    STAGE.world = world
    with ClusterAdmin(lab.kafka) as admin:
        real = RealTopic(lab.kafka, admin, lab.create, lab.topic, count)
        lab.create(lab.topic, count, **CONFIGS)
        for n, step in enumerate(_list_possible(steps)):
            place = getattr(step, "kafka_partition", 0)
            if place < len(world.topic.logs):
                before = len(world.topic.logs)
                world.do(step)
                # no two markers have one time
                world.now += 1
                if isinstance(step, Recreate):
                    real.recreate()
                elif not isinstance(step, AddKafkaPartition) or len(world.topic.logs) > before:
                    real.do(step, world.topic.logs[place])
            if n % 5 == 4:
                _compare(world, admin, lab.kafka, lab.topic)
        _compare(world, admin, lab.kafka, lab.topic)
        for client in real.writers.values():
            client.abort_transaction(30)


def _list_possible(steps: Iterable[Step]) -> Iterator[Step]:
    for step in steps:
        if isinstance(step, Produce):
            yield replace(step, is_poison=False, claims=None)
        elif isinstance(step, Delete | EndTransaction | AddKafkaPartition | Recreate | Wait):
            yield step


def _compare(world: World, admin: ClusterAdmin, kafka: KafkaSettings, topic: str) -> None:
    model = SimAdmin()
    numbers = range(len(world.topic.logs))
    expected = _bounds(ask_frontiers(model, "t", numbers))
    # a kafka partition is there before it answers
    until(lambda: _bounds(ask_frontiers(admin, topic, numbers)) == expected)
    told = _tell_times(world, ask_offsets(admin, topic, numbers, TIMES))
    assert told == _tell_times(world, ask_offsets(model, "t", numbers, TIMES))
    with new_reader(kafka, topic, allow_gaps=True, skip_unreadable=True) as reader:
        for number, (start, stable, *_) in expected.items():
            if start < stable:
                wanted = OffsetRange(start, stable)
                records, end = SimReader(allow_gaps=True).read_records(number, wanted, None)
                assert _read(reader, number, wanted) == ([r.offset for r in records], end.leader_epoch, end.gaps)


def _bounds(looked: Answers[int, Frontier]) -> dict[int, tuple[int, int, int, int | None]]:
    return {
        p: (f.log_start_offset, f.last_stable_offset, f.high_watermark, f.leader_epoch)
        for p, f in looked.results.items()
    }


def _tell_times(world: World, told: Answers[int, Any]) -> dict[tuple[int, int], tuple[object, ...]]:
    return {
        (p, t): _tell_offset(world.topic.logs[p], each[t]) for p, each in told.all_or_raise().items() for t in TIMES
    }


def _tell_offset(log: Log, offset: OffsetAtTime) -> tuple[object, ...]:
    """Return the offset and its time, which of a marker only the broker knows."""
    record = log.find_record(offset) if isinstance(offset, RecordOffset) else None
    if record is None or record.is_marker or not isinstance(offset, RecordOffset):
        return (offset,)
    return offset, offset.timestamp_ms


def _read(reader: RecordReader, kafka_partition: int, wanted: OffsetRange) -> tuple[list[int], int | None, object]:
    read = reader.read(kafka_partition, wanted)
    offsets = [int(o) for batch in read for o in batch.column("offset").to_pylist()]
    return offsets, read.end.leader_epoch, read.end.gaps
