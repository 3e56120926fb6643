"""What deploy/compose.yaml promises."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from kafka_s3_platform.connect.config.files import load_connectors
from kafka_s3_platform.operate.local.settings import KAFKA_VERSION
from kafka_s3_platform_tests.deploy.dockerfile import read_stages
from kafka_s3_platform_tests.deploy.image_steps import DOCKERFILE, REPOSITORY
from kafka_s3_platform_tests.tools import find_tool

FILE = REPOSITORY / "deploy" / "compose.yaml"
SETTINGS = REPOSITORY / "deploy" / "env.example"
COMPOSE: dict[str, Any] = yaml.safe_load(FILE.read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
LASTING = {name: service for name, service in SERVICES.items() if service.get("restart") != "on-failure"}
SECRET = re.compile(r"PASSWORD|SECRET|ACCESS_KEY", re.IGNORECASE)


def read_settings() -> dict[str, str]:
    lines = [line for line in SETTINGS.read_text().splitlines() if "=" in line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def test_it_is_what_the_specification_of_compose_allows() -> None:
    subprocess.run([find_tool("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", FILE], check=True)


@pytest.mark.parametrize("name", LASTING)
def test_a_service_that_stays_says_whether_it_is_well(name: str) -> None:
    assert LASTING[name]["healthcheck"]["test"][0] == "CMD"


@pytest.mark.parametrize("name", SERVICES)
def test_nothing_but_loopback_is_published(name: str) -> None:
    assert SERVICES[name].get("network_mode", "none") == "none"
    assert all(port.startswith("127.0.0.1:") for port in SERVICES[name].get("ports", []))


def list_those_who_reach(name: str) -> set[str]:
    """Return the services in a network of the service, as the specification of compose has it; nothing ran here."""
    networks = {
        name: set() if service.get("network_mode") == "none" else set(service.get("networks", ["default"]))
        for name, service in SERVICES.items()
    }
    return {other for other in SERVICES if other != name and networks[other] & networks[name]}


def test_only_those_who_ask_the_code_location_have_its_socket_and_it_has_no_port() -> None:
    """Whoever reaches it runs code there."""
    sharing = {
        name for name, service in SERVICES.items() for v in service.get("volumes", ()) if v.startswith("code-loc")
    }
    assert sharing == {"code-location", "watch", "daemon", "webserver"}
    assert "command" not in SERVICES["code-location"]
    assert "ports" not in SERVICES["code-location"]
    [started] = re.findall(r"^CMD \[(.*)\]$", DOCKERFILE.read_text(), re.MULTILINE)
    assert '"--socket", "/run/kafka-s3/code-location.sock"' in started
    assert "--port" not in started


def test_kafka_and_workers_of_spark_reach_neither_dagsters_pages_nor_its_storage() -> None:
    assert list_those_who_reach("webserver") == {"code-location", "daemon", "postgres", "s3", "status"}
    assert list_those_who_reach("postgres") == {"code-location", "daemon", "webserver", "s3", "status"}
    assert not list_those_who_reach("watch")
    assert {"kafka", "s3", "spark-worker"} <= list_those_who_reach("code-location"), "what reads and writes still can"


def test_pages_of_spark_which_have_no_login_only_show() -> None:
    conf = COMPOSE["configs"]["spark"]["content"].splitlines()
    off = {
        "spark.master.rest.enabled=false",
        "spark.ui.killEnabled=false",
        "spark.master.ui.decommission.allow.mode=DENY",
    }
    assert off <= set(conf)


@pytest.mark.parametrize("name", SERVICES)
def test_images_are_pinned(name: str) -> None:
    assert re.fullmatch(r"[a-z0-9/\-]+:\d+(\.\d+)+", SERVICES[name]["image"])


@pytest.mark.parametrize("name", SERVICES)
def test_no_service_has_rights_of_root(name: str) -> None:
    assert SERVICES[name]["cap_drop"] == ["ALL"]
    assert SERVICES[name]["security_opt"] == ["no-new-privileges:true"]
    assert "cap_add" not in SERVICES[name]


def test_versions_are_those_that_the_tests_use() -> None:
    project = (REPOSITORY / "pyproject.toml").read_text()
    (version,) = re.findall(r'^version = "(.*)"', project, re.MULTILINE)
    assert SERVICES["kafka"]["image"] == f"apache/kafka:{KAFKA_VERSION}"
    assert SERVICES["code-location"]["image"] == f"kafka-s3-platform:{version}"
    assert SERVICES["s3"]["image"] == f"kafka-s3-store:{version}"
    assert SERVICES["s3"]["build"]["target"] in {stage.name for stage in read_stages(DOCKERFILE)}


def test_no_secret_is_written_down() -> None:
    for service in SERVICES.values():
        for name, value in service.get("environment", {}).items():
            assert not SECRET.search(name) or value.startswith("${"), name
    for name, value in read_settings().items():
        assert not SECRET.search(name) or not value, name
    assert "deploy/.env" in (REPOSITORY / ".gitignore").read_text().splitlines()


def test_what_must_be_set_is_in_the_example_of_the_settings() -> None:
    assert set(re.findall(r"\$\{(\w+):\?", FILE.read_text())) <= read_settings().keys()


def test_the_example_shows_the_other_variables_with_their_defaults() -> None:
    shown = set(re.findall(r"^# ([A-Z_]+)=(.*)", SETTINGS.read_text(), re.MULTILINE))
    assert shown == set(re.findall(r"\$\{(\w+):-([^}]*)\}", FILE.read_text()))


def test_without_the_profile_only_kafka_and_s3_are_missing() -> None:
    assert {name for name, service in SERVICES.items() if "profiles" in service} == {"kafka", "s3", "buckets"}
    for service in SERVICES.values():
        for name, condition in service.get("depends_on", {}).items():
            if "profiles" in SERVICES[name] and "profiles" not in service:
                assert condition["required"] is False, name


def test_it_sets_what_the_instance_asks_for() -> None:
    instance = (REPOSITORY / "deploy" / "dagster.yaml").read_text()
    wanted = set(re.findall(r"env: (\w+)", instance))
    for name in ("code-location", "daemon", "webserver", "status"):
        assert wanted <= SERVICES[name]["environment"].keys()


def test_the_example_loads_with_the_settings() -> None:
    settings = {name: value or "secret" for name, value in read_settings().items()}
    (example,) = load_connectors(REPOSITORY / "deploy" / "connectors", settings).connectors
    assert example.kafka.properties("consumer") == {"bootstrap.servers": settings["KAFKA_BOOTSTRAP_SERVERS"]}
    assert example.store.bucket in SERVICES["buckets"]["environment"]["BUCKETS"]


def test_volumes_of_the_example_are_files_of_the_repository() -> None:
    volume = SERVICES["watch"]["volumes"][0]
    assert volume == "${CONNECTORS:-./connectors}:/opt/kafka-s3/connectors:ro"
    assert Path(FILE.parent, "connectors", "worker.properties").exists()
