"""What every play of the chaos has: a topic and a bucket of its own, liars before the broker and the store."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Any
from uuid import uuid4

from confluent_kafka.admin import NewPartitions

from kafka_s3_platform.core.config.settings import ConnectorConfig, KafkaSettings, StoreSettings
from kafka_s3_platform.core.errors import PlatformError
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.store.index import TopicIndex
from kafka_s3_platform_tests.chaos.checker import Judgement, Truth, Verdict
from kafka_s3_platform_tests.chaos.kafka_liar import KafkaLiar, KafkaLies, lying_broker
from kafka_s3_platform_tests.chaos.kafka_lies import KAFKA_LIES
from kafka_s3_platform_tests.chaos.lies import FOREVER, Lie
from kafka_s3_platform_tests.chaos.store_liar import STORE_LIES, StoreLiar, StoreLies, kept_settings, lying_store
from kafka_s3_platform_tests.chaos.writers import SPAN, Writer, draw_records
from kafka_s3_platform_tests.conftest import fresh_bucket
from kafka_s3_platform_tests.support import NOON, connector

RUN_SECONDS = 120.0
"""After which a run counts as hung: every answer comes at once, so nothing waits for longer than our own limits."""

PERSISTENT = frozenset(
    {"store: conditions ignored", "store: a clock of its own", "ListOffsets: deleted between two looks"}
)
"""Lies about what a server is, not about one answer: told for as long as the run takes."""


@dataclass(frozen=True)
class Servers:
    """The honest ones. Each play makes a bucket of its own."""

    kafka: KafkaSettings
    store: StoreSettings
    s3_client: Any


@dataclass
class Outcome:
    """What one seed came to. `ends` counts how its runs ended, by the error's type."""

    seed: str
    verdicts: list[Verdict] = field(default_factory=list)
    told: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    believed: int = 0
    records: int = 0
    log: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def note_end(self, end: str) -> None:
        """Note how a run ended: by an error with its code, or as a sentence says."""
        self.log.append(f"end: {end[:400]}")
        error, code, _ = end.partition("]")
        self.ends[error.rsplit(".", 1)[-1] + code] += 1


class World:
    """Servers with their liars, and what is on the topic. `config` goes through the liars, `straight` does not."""

    def __init__(self, servers: Servers, seed: str, stack: ExitStack) -> None:
        self.random = Random(seed)
        self.outcome = Outcome(seed)
        self.truth = Truth()
        self.topic = f"chaos-{uuid4().hex[:12]}"
        self.kafka_partitions = self.random.randint(1, 3)
        self.admin = stack.enter_context(ClusterAdmin(servers.kafka))
        self.admin.create_topic(self.topic, self.kafka_partitions)
        self.writer = Writer(servers.kafka, self.topic, self.random)
        store = servers.store.model_copy(update={"bucket": stack.enter_context(fresh_bucket(servers.s3_client))})
        broker = lying_broker(servers.kafka.bootstrap_servers, KafkaLies(f"{seed} broker"))
        self.broker: KafkaLiar = stack.enter_context(broker)
        self.store: StoreLiar = stack.enter_context(lying_store(store, StoreLies(f"{seed} store")))
        flush = self.random.choice((7, 40, None))
        through = store.model_copy(update=kept_settings(self.store))
        lying = KafkaSettings(bootstrap_servers=self.broker.bootstrap_servers)
        self.straight = self._connector(servers.kafka, store, flush)
        self.config = self._connector(lying, through, flush)

    def _connector(self, kafka: KafkaSettings, store: StoreSettings, flush: int | None) -> ConnectorConfig:
        return connector(kafka, store, self.topic, layout={"flush_size": flush}).model_copy(update={"name": self.topic})

    def write(self, count: int, span: timedelta = SPAN) -> None:
        """Records of plain writers, of a transaction at times, and of a hostile writer at times."""
        records = draw_records(self.random, count, self.kafka_partitions, NOON, span)
        some = len(records) // 3
        self.truth.add(self.writer.write(records[:some]))
        if self.random.random() < 0.2:
            commit = self.random.random() < 0.5
            self.truth.add(self.writer.write_in_transaction(records[some : 2 * some], commit=commit))
        else:
            self.truth.add(self.writer.write(records[some : 2 * some]))
        if self.random.random() < 0.15:
            place = self.random.randrange(self.kafka_partitions)
            self.truth.add(self.writer.write_hostile(place, NOON + self.random.random() * span))
        self.truth.add(self.writer.write(records[2 * some :]))

    def before_a_run(self) -> None:
        """Remember what the log holds, if nobody has looked at it yet."""
        config = self.straight
        index = TopicIndex.of(config, self.topic)
        self.truth.before_the_first_look(index.peek())

    def add_kafka_partition(self) -> None:
        self.kafka_partitions += 1
        self.admin.ask(self._grow, "adding a kafka partition")
        self.say(f"a kafka partition is added: {self.kafka_partitions}")

    def _grow(self, client: Any, timeout: float) -> Any:
        wanted = [NewPartitions(self.topic, self.kafka_partitions)]
        return client.create_partitions(wanted, operation_timeout=timeout)[self.topic]

    def lie(self, of_broker: int, of_store: int) -> None:
        """So many lies of each from now on."""
        self.broker.liar.lie(*self._drawn(KAFKA_LIES, of_broker))
        self.store.liar.lie(*self._drawn(STORE_LIES, of_store))

    def be_honest(self) -> None:
        self.broker.liar.be_honest()
        self.store.liar.be_honest()
        self.store.settle()

    def _drawn(self, lies: dict[str, Any], count: int) -> Iterator[Lie[Any, Any]]:
        for kind in self.random.sample(sorted(lies), count):
            times = FOREVER if kind in PERSISTENT else self.random.choice((1, 1, 2, 3))
            nth = 1 if kind in PERSISTENT else self.random.choice((1, 1, 2, 3, 5))
            self.say(f"lie: {kind}, from the {nth}. on, {'always' if times == FOREVER else f'{times} times'}")
            yield Lie(kind, lies[kind], nth, times)

    def done(self, name: str, *works: Callable[[], object]) -> list[BaseException]:
        """Do all at once; the errors they ended with. What is not an error of ours is a defect."""
        ends = _at_once(works)
        for end in ends:
            self.say(f"{name}: {'done' if end is None else said(end)}")
            self.outcome.ends["done" if end is None else type(end).__name__] += 1
            if isinstance(end, TimeoutError):
                self.fail("hung", f"{name}: no end within {RUN_SECONDS:.0f} s")
            elif end is not None and not isinstance(end, PlatformError):
                self.fail("defect", f"{name}: {said(end)}")
        return [end for end in ends if end is not None]

    def judge(self, judgement: Judgement) -> None:
        self.outcome.verdicts += judgement.verdicts
        self.outcome.believed = max(self.outcome.believed, judgement.believed)

    def fail(self, kind: Any, message: str) -> None:
        self.outcome.verdicts.append(Verdict(kind, message))

    def say(self, line: str) -> None:
        self.outcome.log.append(line)


def said(end: BaseException) -> str:
    """The error's type and the first line of what it says."""
    return f"{type(end).__name__}: {str(end).splitlines()[0] if str(end) else ''}"


def _at_once(works: Sequence[Callable[[], object]]) -> list[BaseException | None]:
    """How each work ended, all begun at the same time."""
    ends: list[BaseException | None] = [TimeoutError()] * len(works)

    def do(at: int) -> None:
        try:
            works[at]()
            ends[at] = None
        except BaseException as err:  # noqa: BLE001 - every end is to be judged
            ends[at] = err

    threads = [threading.Thread(target=do, args=(at,), daemon=True) for at in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(RUN_SECONDS)
    return ends
