"""What tests of archiving share."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from kafka_s3_platform.kafka.admin import ClusterAdmin
from kafka_s3_platform.kafka.answers import Answers
from kafka_s3_platform.model.frontier import Frontier


@pytest.fixture
def _led_at_epoch_nine(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the log had been led at epochs up to 9: of a later one than the leader's nothing is known."""
    look = ClusterAdmin.look

    def later(admin: ClusterAdmin, topic: str, kafka_partitions: Iterable[int]) -> Answers[int, Frontier]:
        found = look(admin, topic, kafka_partitions)
        return Answers({p: replace(f, leader_epoch=9) for p, f in found.found.items()}, found.failures)

    monkeypatch.setattr(ClusterAdmin, "look", later)
