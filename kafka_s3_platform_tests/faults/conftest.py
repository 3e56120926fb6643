"""What tests of faults share."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka_s3_platform.operate.local.settings import StackSettings
from kafka_s3_platform_tests.archive.conftest import _led_at_epoch_nine
from kafka_s3_platform_tests.cli.conftest import kafka_s3_without_spark
from kafka_s3_platform_tests.conftest import own_stack
from kafka_s3_platform_tests.defs.conftest import _instance_on_demand, instance
from kafka_s3_platform_tests.faults.broker import start_broker
from kafka_s3_platform_tests.faults.children import Child

__all__ = ["_instance_on_demand", "_led_at_epoch_nine", "instance", "kafka_s3_without_spark"]

SOON_MISSED = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "200"}
"""A broker that was killed may come back when its controller has missed it, by default after 9 seconds."""


@pytest.fixture(scope="package")
def mortal_settings(stack_settings: StackSettings) -> Iterator[StackSettings]:
    with own_stack(stack_settings, kafka_properties={**stack_settings.kafka_properties, **SOON_MISSED}) as settings:
        yield settings


@pytest.fixture
def mortal(mortal_settings: StackSettings) -> StackSettings:
    """A second Kafka, which may be killed. Tests share it: each has topics of its own."""
    start_broker(mortal_settings)
    return mortal_settings


@pytest.fixture
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Child]]:
    """Starts processes, which are killed at the end if they have not ended."""
    folder: Path = tmp_path_factory.mktemp("children")
    children: list[Child] = []

    def begin(function: Callable[..., object], *arguments: Any) -> Child:
        children.append(Child(folder / f"{len(children)}.log", function, *arguments))
        return children[-1]

    yield begin
    for child in children:
        child.kill()
