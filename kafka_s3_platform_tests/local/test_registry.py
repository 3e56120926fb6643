import json
import re
import shutil
import socket
from pathlib import Path

import psutil
import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from kafka_s3_platform.core.config.settings import RegistrySettings
from kafka_s3_platform.core.errors import ConfigError, IntegrityError, RegistryUnavailableError
from kafka_s3_platform.operate.local.registry import SchemaRegistry, fetch_registry_app
from kafka_s3_platform.operate.local.settings import StackSettings
from kafka_s3_platform.operate.local.stack import StackStatus, read_stack_status, start_registry, stop_stack
from kafka_s3_platform_tests.conftest import present


def test_a_stack_has_no_registry_until_it_is_asked_for(tmp_path: Path) -> None:
    shown = read_stack_status(StackSettings(data_dir=tmp_path, cache=tmp_path))
    assert [server.name for server in shown.servers] == ["kafka", "s3"]
    assert shown.schema_registry_url is None


def test_a_registry_that_was_asked_for_is_shown(
    registry: RegistrySettings, stack: StackStatus, stack_settings: StackSettings
) -> None:
    shown = read_stack_status(stack_settings)
    assert shown.schema_registry_url == registry.url
    assert [(server.name, server.healthy) for server in shown.servers] == [
        ("kafka", True),
        ("s3", True),
        ("registry", True),
    ]


def test_it_has_the_interface_of_confluent_s(registry: RegistrySettings, topic_name: str) -> None:
    # Every test of this process shares the registry, and equal schemas share an id: this one is this test's alone.
    text = json.dumps({"type": "fixed", "name": topic_name.replace("-", "_"), "size": 4})
    with SchemaRegistryClient({"url": registry.url}) as client:
        schema_id = client.register_schema(f"{topic_name}-value", Schema(text, "AVRO"))
        assert json.loads(client.get_schema(schema_id).schema_str) == json.loads(text)
        versions = client.get_schema_versions(schema_id)
        assert [(version.subject, version.version) for version in versions] == [(f"{topic_name}-value", 1)]


def test_it_listens_on_the_loopback_address_alone_and_takes_little_memory(
    registry: RegistrySettings, stack_settings: StackSettings
) -> None:
    process = present(SchemaRegistry(stack_settings).daemon.process())
    listening = [c.laddr for c in process.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
    assert listening == [("127.0.0.1", stack_settings.registry_port)]
    assert process.memory_info().rss < 400_000_000


def test_one_that_died_is_told_and_started_again_and_it_stops_with_the_stack(
    registry: RegistrySettings, own_settings: StackSettings
) -> None:
    assert start_registry(own_settings).schema_registry_url == own_settings.registry_url
    process = present(SchemaRegistry(own_settings).daemon.process())
    process.kill()
    process.wait(60)
    assert [(s.name, s.detail) for s in read_stack_status(own_settings).servers][-1] == ("registry", "not running")
    assert start_registry(own_settings).servers[-1].healthy

    assert stop_stack(own_settings) == ("registry",)
    assert read_stack_status(own_settings).schema_registry_url is None
    with pytest.raises(RegistryUnavailableError, match="does not answer"):
        SchemaRegistry(own_settings).check()


def test_a_taken_port_is_refused(registry: RegistrySettings, own_settings: StackSettings) -> None:
    with (
        socket.create_server(("127.0.0.1", own_settings.registry_port)),
        pytest.raises(ConfigError, match=rf"port {own_settings.registry_port} .*KAFKA_S3_LOCAL_REGISTRY_PORT"),
    ):
        start_registry(own_settings)


def test_an_application_that_is_there_is_not_fetched_again_and_is_run_only_if_it_is_the_recorded_one(
    registry: RegistrySettings, stack_settings: StackSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/missing")
    app = tmp_path / "apicurio-registry-app-3.0.9"
    shutil.copytree(stack_settings.cache / app.name, app)
    assert fetch_registry_app(tmp_path) == app / "apicurio-registry-app-3.0.9-runner.jar"
    (app / "lib" / "one-more.jar").touch()
    with pytest.raises(IntegrityError, match=rf"differ from those recorded.*remove {re.escape(str(app))}"):
        fetch_registry_app(tmp_path)
