"""One committed offset of one group, as a restore's progress marker is read."""

from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from kafka_s3_platform.config.settings import KafkaSettings
from kafka_s3_platform.errors import AuthorizationError, BrokerUnavailableError, TransientError
from kafka_s3_platform.kafka import groups
from kafka_s3_platform.kafka.admin import ClusterAdmin
from kafka_s3_platform.kafka.groups import Committed, GroupOffset, publish_offsets
from kafka_s3_platform_tests.conftest import CreateTopic


def test_an_offset_is_read_with_its_metadata_or_there_is_none(
    kafka_settings: KafkaSettings, create_topic: CreateTopic, topic_name: str
) -> None:
    create_topic(topic_name)
    with ClusterAdmin(kafka_settings) as admin, GroupOffset(kafka_settings, f"g-{topic_name}", topic_name, 0) as group:
        assert group.read() is None
        publish_offsets(admin, f"g-{topic_name}", topic_name, {0: 7}, {0: "said"})
        assert group.read() == Committed(7, "said")


class Answering:
    """A consumer whose coordinator answers `offset`, or the error of `code`."""

    def __init__(self, offset: int, code: int | None) -> None:
        self._offset, self._code = offset, code

    def committed(self, places: list[TopicPartition], timeout: float) -> list[Any]:
        assert timeout
        [place] = places

        class Place:
            offset, metadata = self._offset, ""
            error = None if self._code is None else KafkaError(self._code)
            topic, partition = place.topic, place.partition

        return [Place()]

    def close(self) -> None: ...


@pytest.mark.parametrize(
    ("offset", "code", "kind", "said"),
    [
        (-1, None, BrokerUnavailableError, "answered -1 as what the group consumes next"),
        (-1002, None, BrokerUnavailableError, "answered -1002"),
        (-1001, KafkaError.UNSTABLE_OFFSET_COMMIT, TransientError, "UNSTABLE_OFFSET_COMMIT"),
        (-1001, KafkaError.TOPIC_AUTHORIZATION_FAILED, AuthorizationError, "TOPIC_AUTHORIZATION_FAILED"),
    ],
)
def test_an_error_and_what_is_no_offset_are_not_taken_for_nothing_committed(
    monkeypatch: pytest.MonkeyPatch, offset: int, code: int | None, kind: type[Exception], said: str
) -> None:
    monkeypatch.setattr(groups, "ANSWER_SECONDS", 0.3)
    monkeypatch.setattr(groups, "open_consumer", lambda *_: Answering(offset, code))
    with (
        GroupOffset(KafkaSettings(bootstrap_servers="127.0.0.1:1"), "g", "t", 3) as group,
        pytest.raises(kind, match=f"group g has committed of t-3: .*{said}"),
    ):
        group.read()
