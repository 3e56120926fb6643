import shutil
from collections.abc import Iterator

import pytest

from kafka_s3_platform.operate.local.settings import StackSettings
from kafka_s3_platform.operate.local.stack import StackStatus, stop_stack
from kafka_s3_platform_tests.conftest import own_stack


@pytest.fixture(scope="session")
def _second_settings(stack: StackStatus, stack_settings: StackSettings) -> Iterator[StackSettings]:
    with own_stack(stack_settings) as settings:
        yield settings


@pytest.fixture
def own_settings(_second_settings: StackSettings) -> Iterator[StackSettings]:
    """Settings of a second stack, which may be stopped and broken."""
    yield _second_settings
    stop_stack(_second_settings)
    shutil.rmtree(_second_settings.data_dir, ignore_errors=True)
