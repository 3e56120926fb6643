"""Reads one committed offset of a consumer group, and prepares its commit in a transaction."""

import time
from typing import final

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as Assignment

from kafka_s3_platform.config.settings import KafkaSettings
from kafka_s3_platform.errors import TransientError
from kafka_s3_platform.kafka.answers import check_next_offset
from kafka_s3_platform.kafka.client import Reasons, open_consumer
from kafka_s3_platform.kafka.groups import Committed

# A coordinator may move meanwhile, and a transaction may be about to commit.
ANSWER_SECONDS = 60.0
CALL_SECONDS = 5.0
"""How long one question waits. If the client may not use the group, it learns this only after the timeout."""

POLL_SECONDS = 0.2


@final
class GroupOffset:
    """The committed offset of `group` for one kafka partition. The group needs no members."""

    def __init__(self, settings: KafkaSettings, group: str, topic: str, kafka_partition: int) -> None:
        self.group = group
        self._place = (topic, kafka_partition)
        self._where = f"reading what group {group} has committed of {topic}-{kafka_partition}"
        self._reasons = Reasons()
        # With read_committed the coordinator is asked for stable offsets: a commit under way is waited for.
        fixed = {"group.id": group, "isolation.level": "read_committed", "enable.auto.commit": False}
        self._consumer: Consumer = open_consumer(settings, self._reasons, {}, fixed)

    def __enter__(self) -> "GroupOffset":
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    @property
    def metadata(self) -> object:
        """The group as a transactional producer names it."""
        return self._consumer.consumer_group_metadata()

    def place(self, progress: Committed) -> Assignment:
        """`progress` as librdkafka takes it."""
        topic, kafka_partition = self._place
        return Assignment(topic, kafka_partition, progress.offset, progress.metadata)

    def read(self) -> Committed | None:
        """Read the offset, None if the group has none. Waits for a transaction about to commit one."""
        deadline = time.monotonic() + ANSWER_SECONDS
        while True:
            try:
                return self._read()
            except TransientError:
                # The coordinator moves, or is just being made. The client does not ask again by itself.
                if time.monotonic() > deadline:
                    raise
                time.sleep(POLL_SECONDS)

    def _read(self) -> Committed | None:
        try:
            [committed] = self._consumer.committed([Assignment(*self._place)], timeout=CALL_SECONDS)
        except KafkaException as err:
            event = self._consumer.poll(0)
            error = event.error() if event is not None else None
            raise self._reasons.failure(error or err, self._where) from err
        if isinstance(committed.error, KafkaError):
            raise self._reasons.failure(committed.error, self._where)
        offset = check_next_offset(committed.offset, self._where)
        if offset is None:
            return None
        return Committed(offset, committed.metadata or "")
