"""What the mutations of Dagster's GraphQL can order, asked of a webserver and a code location as servers have them."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from dagster_graphql.schema import create_schema

from kafka_s3_platform_tests.conftest import REPOSITORY
from kafka_s3_platform_tests.dagster_ui import DagsterUI
from kafka_s3_platform_tests.deploy.servers import Servers, start_code_location, wait_for

PLACE = {"repositoryName": "__repository__", "repositoryLocationName": "kafka_s3_platform"}
ERROR = "... on PythonError { message }"
SENSORS = "{ sensorsOrError(repositorySelector: %s) { ... on Sensors { results { name } } } }"
DRY_RUN = """mutation($sensor: SensorSelector!) { sensorDryRun(selectorData: $sensor, cursor: "") {
  __typename ... on DryRunInstigationTick { evaluationResult { error { message causes { message } } } } } }"""


def test_the_page_on_security_names_each_order_that_dagster_takes() -> None:
    page = (REPOSITORY / "docs/security.md").read_text()
    section = page.partition("## Orders that Dagster's UI takes")[2].partition("\n## ")[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    mutations = create_schema().graphql_schema.mutation_type
    assert mutations is not None
    assert {name for cell in cells for name in re.findall(r"`([a-zA-Z]+)`", cell)} == set(mutations.fields)


@pytest.fixture(scope="module")
def ui(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DagsterUI]:
    """The instance of servers without Postgres and the bucket of logs. No Kafka and no store answer."""
    home = tmp_path_factory.mktemp("home")
    config = (REPOSITORY / "deploy/dagster.yaml").read_text()
    begin, end = config.index("storage:\n"), config.index("# There is no `run_launcher`")
    (home / "dagster.yaml").write_text(config[:begin] + config[end:])
    workspace = (REPOSITORY / "deploy/workspace.yaml").read_text()
    (home / "workspace.yaml").write_text(workspace.replace("/run/kafka-s3", str(home)))
    (home / "connectors").mkdir()
    (home / "connectors/worker.properties").write_text("bootstrap.servers=127.0.0.1:9\n")
    keys = {"name": "c", "topics": "t", "s3.bucket.name": "bucket", "store.url": "http://127.0.0.1:9"}
    (home / "connectors/c.json").write_text(json.dumps({**keys, "archive.start.hour": "2026-01-01T00:00"}))
    env = {**os.environ, "DAGSTER_HOME": str(home), "KAFKA_S3_CONNECTORS": str(home / "connectors")}
    env |= {"PYTHONPATH": str(REPOSITORY), "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    # Two processes that make one database of SQLite at once disturb each other.
    subprocess.run([sys.executable, "-m", "dagster", "instance", "info"], cwd=home, env=env, check=True)
    with ExitStack() as opened:
        servers = Servers(home, env, opened)
        start_code_location(servers)
        found = servers.start_webserver()
        wait_for(lambda: find_sensors(found), "the code location is loaded")
        yield found


def find_sensors(ui: DagsterUI) -> list[str]:
    place = "{" + ", ".join(f'{key}: "{value}"' for key, value in PLACE.items()) + "}"
    return [sensor["name"] for sensor in ui.query(SENSORS % place, {})["sensorsOrError"].get("results", ())]


def order(ui: DagsterUI, mutation: str, arguments: str, **variables: Any) -> str:
    """Give an order, and return the type of its answer."""
    kinds = ", ".join(f"${name}: {kind}" for name, kind in variables.pop("kinds", {}).items())
    head = f"mutation({kinds})" if kinds else "mutation"
    answer = ui.query(f"{head} {{ {mutation}({arguments}) {{ __typename {ERROR} }} }}", variables)
    return str(answer[mutation]["__typename"])


@pytest.mark.parametrize("location", ["kafka_s3_platform", "nowhere"])
def test_no_component_is_written_and_none_is_run(ui: DagsterUI, location: str) -> None:
    component = f'locationName: "{location}", componentId: "../../x"'
    attributes = 'componentType: "dagster.PythonScriptComponent", attributes: "execution: {path: /x.py}"'
    assert order(ui, "setAppManagedComponent", f"{component}, {attributes}") == "UnauthorizedError"
    assert order(ui, "deleteAppManagedComponent", component) == "UnauthorizedError"


def test_no_state_is_refreshed_and_no_dynamic_partition_is_added(ui: DagsterUI) -> None:
    state = 'locationName: "kafka_s3_platform", defsStateKey: "x"'
    assert order(ui, "refreshComponentState", state) == "RefreshComponentStateError"
    added = 'partitionKey: "x", partitionsDefName: "y", repositorySelector: $place'
    kinds = {"place": "RepositorySelector!"}
    assert order(ui, "addDynamicPartition", added, place=PLACE, kinds=kinds) == "UnauthorizedError"


def test_no_run_is_launched_with_config_that_no_job_has(ui: DagsterUI) -> None:
    configs: tuple[Any, ...] = (
        {"ops": {"upkeep__index__c": {"inputs": {"x": {"pickle": "/x"}}}}},
        {"loggers": {"evil": {"config": {}}}},
        {"loggers": {"console": {"config": {"log_level": {"env": "HOME"}}}}},
    )
    for config in configs:
        run = {"selector": {**PLACE, "jobName": "upkeep__c"}, "runConfigData": config}
        kinds = {"run": "ExecutionParams!"}
        assert order(ui, "launchRun", "executionParams: $run", run=run, kinds=kinds) == "RunConfigValidationInvalid"


def test_no_event_that_is_reported_makes_a_sensor_fail(ui: DagsterUI) -> None:
    for group in ("hourly", "daily", "kafka", "restored"):
        event = {"eventType": "ASSET_MATERIALIZATION", "assetKey": {"path": ["c", group, "t"]}}
        event |= {"partitionKeys": ["x", "2026-01-02 00:00", "9999-12-31-23:00"]}
        kinds = {"event": "ReportRunlessAssetEventsParams!"}
        order(ui, "reportRunlessAssetEvents", "eventParams: $event", event=event, kinds=kinds)
    names = find_sensors(ui)
    assert "lag__c" in names
    for name in names:
        answer = ui.query(DRY_RUN, {"sensor": {**PLACE, "sensorName": name}})["sensorDryRun"]
        assert answer["evaluationResult"]["error"] is None, (name, answer)
