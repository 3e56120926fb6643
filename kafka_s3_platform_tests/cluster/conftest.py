import dataclasses
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from kafka_s3_platform.local.settings import StackSettings
from kafka_s3_platform_tests.cluster.brokers import Cluster, first_broker, further_broker
from kafka_s3_platform_tests.conftest import free_port_settings, stopped_at_exit


@pytest.fixture(scope="package")
def cluster(stack_settings: StackSettings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three brokers."""
    with ExitStack() as stopped:
        own = []
        for node_id in (1, 2, 3):
            data = tmp_path_factory.mktemp(f"broker-{node_id}")
            own.append(dataclasses.replace(stack_settings, data_dir=data, **free_port_settings()))
            stopped.enter_context(stopped_at_exit(own[-1]))
        first = first_broker(own[0])
        Cluster([first]).start(1)
        found = Cluster([first, *(further_broker(first, own[n - 1], n) for n in (2, 3))])
        found.start(2, 3)
        yield found
