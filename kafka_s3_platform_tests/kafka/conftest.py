import pytest

from kafka_s3_platform.kafka import answers


@pytest.fixture(autouse=True)
def _asked_again_briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    """What no broker can mean is not asked for as long as a broker takes to start."""
    monkeypatch.setattr(answers, "AGAIN_SECONDS", 0.3)
