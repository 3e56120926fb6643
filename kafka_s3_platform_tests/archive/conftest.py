"""What tests of archiving share."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest

from kafka_s3_platform.kafka.admin import ClusterAdmin
from kafka_s3_platform.kafka.answers import Answers
from kafka_s3_platform.model.frontier import Frontier


@pytest.fixture
def _led_at_epoch_nine(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the log had been led at epochs up to 9: of a later one than the leader's nothing is known."""
    look_at = ClusterAdmin.look_at

    def later(
        admin: ClusterAdmin, kafka_partitions: Mapping[str, Iterable[int]]
    ) -> Answers[str, Answers[int, Frontier]]:
        looked = look_at(admin, kafka_partitions)
        return looked.checked(lambda _, look: look.checked(lambda _, frontier: replace(frontier, leader_epoch=9)))

    monkeypatch.setattr(ClusterAdmin, "look_at", later)
