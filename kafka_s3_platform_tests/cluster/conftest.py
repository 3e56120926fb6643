from collections.abc import Iterator

import pytest

from kafka_s3_platform.operate.local.settings import StackSettings
from kafka_s3_platform_tests.cluster.brokers import Cluster, started_cluster


@pytest.fixture(scope="package")
def cluster(stack_settings: StackSettings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three brokers."""
    with started_cluster(stack_settings, tmp_path_factory.mktemp("cluster")) as started:
        yield started
