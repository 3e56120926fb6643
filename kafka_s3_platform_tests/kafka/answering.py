"""Brokers that answer what was seen and cannot be brought about at will: an admin client whose answers are changed."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo, OffsetSpec

from kafka_s3_platform.core.kafka import answers

NOTHING = -1001
"""What librdkafka gives, without an error, of a kafka partition that a broker going down answered nothing of."""


class Lies:
    """Changes what brokers answer to ListOffsets.

    `change` gets topic, kafka partition, "earliest", "latest", "stable", "newest" or a timestamp, and the true offset.
    """

    def __init__(self, change: Callable[[str, int, str | int, int], int]) -> None:
        self.change = change
        self.asked: list[tuple[str, int, str | int]] = []
        """Topic, kafka partition and question of each answer, in the order of asking."""

    def told(self, wanted: Mapping[TopicPartition, OffsetSpec], given: Any, isolation_level: Any) -> dict[Any, Any]:
        return {tp: self._told(tp, wanted[tp], future, isolation_level) for tp, future in given.items()}

    def _told(self, tp: TopicPartition, spec: OffsetSpec, future: Any, isolation_level: Any) -> "Future[Any]":
        question = _question(spec, isolation_level)
        self.asked.append((tp.topic, tp.partition, question))
        told: Future[Any] = Future()
        try:
            true = future.result(30)
        except Exception as err:  # noqa: BLE001 - handed on
            told.set_exception(err)
        else:
            offset = self.change(tp.topic, tp.partition, question, true.offset)
            epoch = -1 if true.leader_epoch is None else true.leader_epoch
            told.set_result(ListOffsetsResultInfo(offset, true.timestamp, epoch))
        return told


def _question(spec: OffsetSpec, isolation_level: Any) -> str | int:
    if spec is OffsetSpec.earliest():
        return "earliest"
    if spec is OffsetSpec.max_timestamp():
        return "newest"
    if spec is OffsetSpec.latest():
        return "latest" if isolation_level is IsolationLevel.READ_UNCOMMITTED else "stable"
    return int(vars(spec)["timestamp"])


@contextmanager
def answering(change: Callable[[str, int, str | int, int], int], again_seconds: float = 0.3) -> Iterator[Lies]:
    """While this is open, every admin client is answered what `change` makes of the truth.

    What no log can answer is asked again for `again_seconds`.
    """
    lies, ask = Lies(change), AdminClient.list_offsets

    def list_offsets(client: AdminClient, wanted: dict[TopicPartition, OffsetSpec], **more: Any) -> Any:
        return lies.told(wanted, ask(client, wanted, **more), more.get("isolation_level"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AdminClient, "list_offsets", list_offsets)
        patch.setattr(answers, "AGAIN_SECONDS", again_seconds)
        yield lies


def nothing(topic: str, kafka_partition: int, question: str | int, true: int) -> int:
    """Every answer is that of a broker going down."""
    return NOTHING
