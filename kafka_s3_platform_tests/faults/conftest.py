"""What tests of faults share."""

import dataclasses
from collections.abc import Iterator

import pytest

from kafka_s3_platform.local import stack as embedded
from kafka_s3_platform.local.settings import StackSettings
from kafka_s3_platform_tests.conftest import free_port_settings, stopped_at_exit


@pytest.fixture
def own_stack(stack_settings: StackSettings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StackSettings]:
    """A second Kafka, which may be killed."""
    data = tmp_path_factory.mktemp("own")
    settings = dataclasses.replace(stack_settings, data_dir=data, **free_port_settings())
    with stopped_at_exit(settings):
        embedded.start_stack(settings)
        yield settings
