"""The simulated seams, around each test of a world."""

import logging
from collections.abc import Iterator

import pytest

from kafka_s3_platform_tests.worlds.seams import simulated


@pytest.fixture
def simulation() -> Iterator[None]:
    """The platform's code asks the world that is played. It logs nothing: that would take a third of the time."""
    logging.disable(logging.CRITICAL)
    try:
        with simulated():
            yield
    finally:
        logging.disable(logging.NOTSET)
