from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from kafka_s3_platform.core.defs.resources import SparkResource
from kafka_s3_platform_tests.cli.conftest import kafka_s3, kafka_s3_without_spark
from kafka_s3_platform_tests.conftest import copy_home
from kafka_s3_platform_tests.defs.running import OPEN_INSTANCE
from kafka_s3_platform_tests.support import InProcessRunner

__all__ = ["_instance_on_demand", "instance", "kafka_s3", "kafka_s3_without_spark", "without_spark"]


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    """An instance that forgets everything."""
    with dg.DagsterInstance.ephemeral(str(tmp_path / "dagster")) as found:
        yield found


@pytest.fixture
def instance_on_disk(tmp_path: Path, fresh_home: Path) -> Iterator[dg.DagsterInstance]:
    """An instance with a home: a schedule opens it once more, by itself."""
    with dg.DagsterInstance.from_config(str(copy_home(fresh_home, tmp_path / "dagster"))) as opened:
        yield opened


@pytest.fixture(autouse=True)
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks of runs in this process need no Spark. A module that is about runs on Spark overrides this fixture."""
    monkeypatch.setattr(SparkResource, "make_runner", lambda _: InProcessRunner())


@pytest.fixture(autouse=True)
def _instance_on_demand(request: pytest.FixtureRequest) -> None:
    OPEN_INSTANCE.set(lambda: request.getfixturevalue("instance"))
