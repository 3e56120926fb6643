"""One run of the chaos: a topic, runs under lies, honesty, and what the checker says. All of it by a seed."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from functools import partial
from uuid import uuid4

import pyarrow.compute as pc
import pytest
from confluent_kafka import TopicPartition

from kafka_s3_platform.core.archive.takeover import TakeOverReport, name_group, record_takeover
from kafka_s3_platform.core.kafka.confluent_reader import ConfluentReader
from kafka_s3_platform.core.kafka.fetch import fetch_reader
from kafka_s3_platform.core.restore.archive_source import ArchiveSource
from kafka_s3_platform.core.restore.request import RestoreReport, RestoreRequest
from kafka_s3_platform.core.restore.run import restore
from kafka_s3_platform.core.upkeep.compact.days import CompactRequest
from kafka_s3_platform.core.upkeep.resolve import Skip, list_unresolved, resolve_offsets
from kafka_s3_platform.core.upkeep.vacuum import vacuum_topic
from kafka_s3_platform_tests.chaos.checker import Truth, judge, judge_healed
from kafka_s3_platform_tests.chaos.world import Outcome, Servers, World, said
from kafka_s3_platform_tests.chaos.writers import SPAN
from kafka_s3_platform_tests.kafka.topics import commit_offsets, records_of
from kafka_s3_platform_tests.support import HOUR, NOON, InProcessRunner, archived, compact_day, snapshot, stored

HOURS = tuple(NOON + n * HOUR for n in range(3))
HEALING_RUNS = 3
_COMPARED = ["timestamp", "key", "value", "headers"]


def run(servers: Servers, seed: str) -> Outcome:
    """Play the seed's scenario. The same seed draws the same records, runs and lies."""
    begun = time.monotonic()
    with ExitStack() as stack:
        world = World(servers, seed, stack)
        [play] = world.random.choices((_archive, _take_over, _restore), (16, 1, 2))
        world.say(play.__name__.strip("_"))
        play(world)
        world.outcome.told = world.broker.liar.told + world.store.liar.told
        world.outcome.records = len(world.truth.records)
    world.outcome.seconds = time.monotonic() - begun
    return world.outcome


@contextmanager
def hasty() -> Iterator[None]:
    """Readers that do not wait long for what does not come: a lie is an answer, not a silence."""
    waits = {"answer_seconds": 10.0, "end_seconds": 1.0}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            fetch_reader, "ConfluentReader", lambda *args, **options: ConfluentReader(*args, **options | waits)
        )
        yield


def _archive(world: World) -> None:
    """Archive runs, merges and vacuums under lies: what is committed has to be right at once, and whole in the end."""
    count = world.random.randint(50, 300)
    world.write(count // 2, SPAN / 2)
    for step in range(world.random.randint(2, 4)):
        if step == 1:
            if world.random.random() < 0.2:
                world.add_kafka_partition()
            world.write(count - count // 2)
        _step(world)
        if world.outcome.verdicts:
            return
    _heal(world)


def _step(world: World) -> None:
    """One run, or two at once."""
    world.lie(world.random.choice((0, 1, 1, 2, 3)), world.random.choice((0, 0, 1, 1, 2)))
    name, work = _drawn_work(world)
    world.before_a_run()
    world.done(name, *([work] * (2 if world.random.random() < 0.15 else 1)))
    world.be_honest()
    world.judge(judge(world.straight, world.truth, world.broker.liar.hidden))


def _drawn_work(world: World) -> tuple[str, Callable[[], object]]:
    first = world.random.randrange(len(HOURS))
    last = world.random.randint(first, len(HOURS) - 1)
    config, topic = world.config, world.topic
    works: dict[str, Callable[[], object]] = {
        "archive until now": lambda: archived(config),
        f"archive hours {first} to {last}": lambda: archived(config, HOURS[first : last + 1]),
        "compact": lambda: compact_day(CompactRequest(config, topic, NOON.date(), f"run-{uuid4()}"), InProcessRunner()),
        "vacuum": lambda: vacuum_topic(config, topic, f"run-{uuid4()}", timedelta(0), dry_run=False),
    }
    [name] = world.random.choices(list(works), (4, 4, 1, 1))
    return name, works[name]


def _heal(world: World) -> None:
    """Honest answers, a bounded number of runs: they end well. What a hostile writer wrote, somebody decides about."""
    left: list[BaseException] = []
    for _ in range(HEALING_RUNS):
        left = world.done("honestly until now", lambda: archived(world.config))
        left += world.done("honestly by hours", lambda: archived(world.config, HOURS))
        if not left:
            break
        world.judge(judge(world.straight, world.truth))
        _decide(world)
    else:
        for end in left:
            world.fail("wedged", f"honest answers do not heal it: {said(end)}")
    world.judge(judge_healed(world.straight, world.truth))


def _decide(world: World) -> None:
    """Do without what cannot be read, if that is what a hostile writer wrote."""
    for item in list_unresolved(world.config, world.topic):
        places = [(item.kafka_partition, o) for o in range(item.start_offset, item.end_offset)]
        if all(p not in world.truth.records or world.truth.records[p].is_hostile for p in places):
            skip = Skip(item.kafka_partition, item.offsets)
            world.done(
                "skip", partial(resolve_offsets, world.config, world.topic, skip, f"run-{uuid4()}", dry_run=False)
            )


def _take_over(world: World) -> None:
    """What is recorded as another sink's is what its group has committed, whatever was answered on the way."""
    world.write(world.random.randint(20, 60))
    logs = world.admin.frontiers(world.topic, range(world.kafka_partitions))
    committed = {p: world.random.randint(0, log.last_stable_offset) for p, log in logs.items()}
    _commit(world, committed)
    for _ in range(2):
        world.lie(world.random.choice((1, 2, 3)), world.random.choice((0, 1)))
        world.done("take over", lambda: _taken_over(world))
        world.be_honest()
        _judge_taken(world, committed, whole=False)
    if left := world.done("honestly take over", lambda: _taken_over(world)):
        world.fail("wedged", f"honest answers do not heal it: {said(left[0])}")
    _judge_taken(world, committed, whole=True)
    world.truth = Truth({place: r for place, r in world.truth.records.items() if place[1] >= committed[place[0]]})
    _heal(world)


def _taken_over(world: World) -> TakeOverReport:
    return record_takeover(world.config, world.topic, name_group(world.topic), f"run-{uuid4()}")


def _commit(world: World, offsets: dict[int, int]) -> None:
    wanted = [TopicPartition(world.topic, p, o) for p, o in offsets.items()]
    commit_offsets(world.straight.kafka, name_group(world.topic), wanted)


def _judge_taken(world: World, committed: dict[int, int], *, whole: bool) -> None:
    state = snapshot(world.straight).state
    for kafka_partition, offset in committed.items():
        taken = state.gap_offsets(kafka_partition, "taken over")
        if taken.end_offset not in {offset or None, *([] if whole else [None])}:
            world.fail("lost", f"{taken.ranges} of {kafka_partition} are taken over, the group is at {offset}")


def _restore(world: World) -> None:
    """A restore is called verified only if the target holds every record once; honest answers finish it."""
    world.write(world.random.randint(20, 100))
    world.done("honestly until now", lambda: archived(world.straight))
    reports: list[RestoreReport] = []
    for _ in range(2):
        world.lie(world.random.choice((1, 2, 3)), world.random.choice((0, 0, 1)))
        world.done("restore", lambda: reports.append(_restored(world)))
        world.be_honest()
        _judge_restored(world, reports)
    for _ in range(HEALING_RUNS):
        left = world.done("honestly restore", lambda: reports.append(_restored(world)))
        if not left:
            break
    else:
        world.fail("wedged", f"honest answers do not heal it: {said(left[0])}")
    _judge_restored(world, reports)
    if not reports or not reports[-1].verified:
        world.fail("wedged", "the restore is never called verified")


def _restored(world: World) -> RestoreReport:
    wanted = RestoreRequest(
        world.config, world.topic, f"{world.topic}-restored", "r1", f"run-{uuid4()}", create_topic=True
    )
    return restore(ArchiveSource(wanted), InProcessRunner())


def _judge_restored(world: World, reports: list[RestoreReport]) -> None:
    """What the archive holds is what the target has to hold, in order, once it was called verified."""
    if not any(report.verified for report in reports):
        return
    target = f"{world.topic}-restored"
    for kafka_partition in range(world.kafka_partitions):
        source = stored(world.straight).filter(pc.field("partition") == kafka_partition).select(_COMPARED)
        restored = records_of(world.straight.kafka, target, kafka_partition).select(_COMPARED)
        if restored.to_pylist() != source.to_pylist():
            kind = "lost" if restored.num_rows < source.num_rows else "twice"
            counts = f"{restored.num_rows} of {source.num_rows} records"
            world.fail(kind, f"a target is called verified, and kafka partition {kafka_partition} holds {counts}")
