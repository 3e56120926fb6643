"""What tests of the upkeep of an index share."""

import os
import signal
from collections.abc import Callable

import pytest

from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.support import connector

NewConfig = Callable[[int], ConnectorConfig]


@pytest.fixture
def new_config(lab: Lab) -> NewConfig:
    """Makes a connector of so many topics, of which nothing was archived yet."""

    def make(topics: int) -> ConnectorConfig:
        config = connector(lab.kafka, lab.store, "t-0")
        return config.model_copy(update={"topics": tuple(f"t-{n}" for n in range(topics))})

    return make


def kill_after(owner: type, method: str, nth: int) -> None:
    """Let this process be killed when `method` has returned for the nth time."""
    calls = [0]
    original = getattr(owner, method)

    def counted(*args: object, **kwargs: object) -> object:
        result = original(*args, **kwargs)
        calls[0] += 1
        if calls[0] == nth:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, method, counted)
