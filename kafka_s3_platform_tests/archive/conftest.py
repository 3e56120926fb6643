"""What tests of archiving share."""

from dataclasses import replace

import pytest

from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.kafka.answers import Answers, LogEnds
from kafka_s3_platform.core.model.frontier import Frontier


@pytest.fixture
def _led_at_epoch_nine(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the log had been led at epochs up to 9: of a later one than the leader's nothing is known."""
    look = ClusterAdmin.add_log_starts

    def later(admin: ClusterAdmin, ends: Answers[str, Answers[int, LogEnds]]) -> Answers[str, Answers[int, Frontier]]:
        looked = look(admin, ends)
        return looked.convert(lambda _, look: look.convert(lambda _, frontier: replace(frontier, leader_epoch=9)))

    monkeypatch.setattr(ClusterAdmin, "add_log_starts", later)
