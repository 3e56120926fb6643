"""What `deploy/dagster.yaml` and `deploy/workspace.yaml` say to Dagster, and which packages a server has for it."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.errors import DagsterInvalidConfigError
from dagster._core.launcher import DefaultRunLauncher
from dagster._core.remote_origin import GrpcServerCodeLocationOrigin
from dagster._core.run_coordinator import QueuedRunCoordinator
from dagster._core.workspace.load import location_origins_from_yaml_paths
from dagster_aws.s3.compute_log_manager import S3ComputeLogManager
from dagster_postgres.event_log.event_log import PostgresEventLogStorage
from dagster_postgres.run_storage.run_storage import PostgresRunStorage
from dagster_postgres.schedule_storage.schedule_storage import PostgresScheduleStorage
from dagster_shared.yaml_utils import load_yaml_from_path

from kafka_s3_platform_tests.conftest import REPOSITORY

DEPLOY = REPOSITORY / "deploy"
DIFFERENT = {
    *("storage", "run_storage", "event_log_storage", "schedule_storage", "local_artifact_storage", "compute_logs"),
    *("sensors", "schedules", "run_coordinator"),
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "dagster.yaml").write_text((DEPLOY / "dagster.yaml").read_text())
    return tmp_path


def test_an_instance_keeps_everything_in_postgres_and_what_runs_print_in_s3(home: Path, database: str) -> None:
    with dg.DagsterInstance.from_config(str(home)) as instance:
        assert isinstance(instance.run_storage, PostgresRunStorage)
        assert isinstance(instance.event_log_storage, PostgresEventLogStorage)
        assert isinstance(instance.schedule_storage, PostgresScheduleStorage)
        assert isinstance(instance.compute_log_manager, S3ComputeLogManager)
        assert isinstance(instance.run_coordinator, QueuedRunCoordinator)
        assert isinstance(instance.run_launcher, DefaultRunLauncher)
        assert instance.event_log_storage.alembic_version()[0] == instance.event_log_storage.alembic_version()[1]


@pytest.mark.parametrize("variable", sorted(set(re.findall(r"env: (\w+)", (DEPLOY / "dagster.yaml").read_text()))))
def test_a_variable_that_is_not_set_is_named(
    variable: str, home: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(variable)
    with pytest.raises(DagsterInvalidConfigError, match=variable):
        open_compute_logs(home)


def open_compute_logs(home: Path) -> object:
    with dg.DagsterInstance.from_config(str(home)) as instance:
        return instance.compute_log_manager


def read(path: Path) -> Mapping[str, Any]:
    found = load_yaml_from_path(str(path))
    assert isinstance(found, dict)
    return found


def test_what_development_and_servers_have_in_common_is_the_same() -> None:
    development, servers = read(REPOSITORY / "dagster.yaml"), read(DEPLOY / "dagster.yaml")
    assert {k: v for k, v in servers.items() if k not in DIFFERENT} == {
        k: v for k, v in development.items() if k not in DIFFERENT
    }


def test_the_workspace_is_one_code_location_named_as_in_development() -> None:
    [origin] = location_origins_from_yaml_paths([str(DEPLOY / "workspace.yaml")])
    assert isinstance(origin, GrpcServerCodeLocationOrigin)
    assert (origin.socket, origin.port) == ("/run/kafka-s3/code-location.sock", None)
    [development] = read(REPOSITORY / "workspace.yaml")["load_from"]
    assert origin.location_name == development["python_module"]["location_name"]


def list_pins(lock: str) -> set[str]:
    return set(re.findall(r"^[\w.\[\],-]+==[^\\\n]+", (REPOSITORY / lock).read_text(), re.MULTILINE))


def test_servers_have_the_versions_that_the_tests_have() -> None:
    servers = list_pins("requirements-deploy.lock")
    assert servers <= list_pins("requirements.lock")
    assert any(pin.startswith("dagster-postgres==") for pin in servers)
    assert not any(pin.startswith("pytest==") for pin in servers)
