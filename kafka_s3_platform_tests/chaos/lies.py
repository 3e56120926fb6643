"""What a liar has been told to say, and what it has said: shared by the broker's and the store's.

Kafka's messages as kafka-python has them: schemas that are Kafka's own, decoded and encoded in every version.
"""

import threading
import warnings
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from random import Random
from typing import Any, Generic, TypeVar

FOREVER = 1_000_000

Q = TypeVar("Q")
A = TypeVar("A")


@dataclass(frozen=True)
class Hidden:
    """Offsets that a lie hid: one that an honest broker of another moment could have told, so nobody can see it.

    Where such a lie was believed, an hour may lack these records until the next honest look, not any longer.
    """

    kafka_partition: int
    start_offset: int
    end_offset: int | None = None

    def holds(self, kafka_partition: int, offset: int) -> bool:
        end = self.end_offset
        return self.kafka_partition == kafka_partition and self.start_offset <= offset and (end is None or offset < end)


@dataclass
class Lie(Generic[Q, A]):
    """`tell` changes answers, from the `nth` that it could change on, `times` of them.

    It returns the changed answer, or None where this question gives no occasion.
    """

    kind: str
    tell: Callable[["Liar[Q, A]", Q, A], A | None]
    nth: int = 1
    times: int = 1
    seen: int = 0


class Liar(Generic[Q, A]):
    """Tells the lies that it was given; honest otherwise. Every choice is of `random`."""

    def __init__(self, seed: object) -> None:
        self.random = Random(str(seed))
        self.told: Counter[str] = Counter()
        self.hidden: list[Hidden] = []
        self.memory: dict[Any, Any] = {}
        self._lies: list[Lie[Q, A]] = []
        self._lock = threading.RLock()

    def lie(self, *lies: Lie[Q, A]) -> None:
        """Tell these from now on, instead of those of before."""
        with self._lock:
            self._lies = list(lies)

    def be_honest(self) -> None:
        """Tell the truth from now on, and forget what could be told instead."""
        self.lie()
        self.memory.clear()

    @property
    def lies(self) -> bool:
        """Whether any answer is to be changed at all."""
        return bool(self._lies)

    def said(self, question: Q, answer: A) -> A:
        """What is said instead of `answer`."""
        with self._lock:
            for each in self._lies:
                answer = self._told(each, question, answer)
        return answer

    def _told(self, lie: Lie[Q, A], question: Q, answer: A) -> A:
        if lie.seen >= lie.nth + lie.times - 1:
            return answer
        hidden = len(self.hidden)
        changed = lie.tell(self, question, deepcopy(answer))
        if changed is None:
            return answer
        lie.seen += 1
        if lie.seen < lie.nth:
            del self.hidden[hidden:]
            return answer
        self.told[lie.kind] += 1
        return changed


with warnings.catch_warnings():
    # it reads its schemas by a function that Python 3.11 calls old
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.protocol import admin, consumer, metadata, producer

PRODUCE, FETCH, LIST_OFFSETS, METADATA, OFFSET_FETCH, FIND_COORDINATOR = 0, 1, 2, 3, 9, 10
API_VERSIONS, OFFSET_FOR_LEADER_EPOCH, DESCRIBE_CLUSTER = 18, 23, 60

MESSAGES: dict[int, tuple[Any, Any]] = {
    PRODUCE: (producer.ProduceRequest, producer.ProduceResponse),
    FETCH: (consumer.FetchRequest, consumer.FetchResponse),
    LIST_OFFSETS: (consumer.ListOffsetsRequest, consumer.ListOffsetsResponse),
    METADATA: (metadata.MetadataRequest, metadata.MetadataResponse),
    OFFSET_FETCH: (consumer.OffsetFetchRequest, consumer.OffsetFetchResponse),
    FIND_COORDINATOR: (metadata.FindCoordinatorRequest, metadata.FindCoordinatorResponse),
    API_VERSIONS: (metadata.ApiVersionsRequest, metadata.ApiVersionsResponse),
    OFFSET_FOR_LEADER_EPOCH: (consumer.OffsetForLeaderEpochRequest, consumer.OffsetForLeaderEpochResponse),
    DESCRIBE_CLUSTER: (admin.DescribeClusterRequest, admin.DescribeClusterResponse),
}
"""Request and response by api key."""
