"""What a browser sends to Dagster for a page of another origin is refused; Dagster's own pages work."""

import base64
import http.client
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from urllib.parse import quote

import pytest

from kafka_s3_platform.core.config.environment import DAGSTER_URL
from kafka_s3_platform_tests.cli.conftest import REPOSITORY
from kafka_s3_platform_tests.dagster_ui import DagsterUI, run_dagster_dev
from kafka_s3_platform_tests.deploy.servers import Servers, wait_for

ASK = "{ version }"
CHANGE = "mutation { setNuxSeen }"
PUBLIC = "https://dagster.example.com/dagster"
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module", params=["make dev", "a server"])
def ui(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DagsterUI]:
    """As `make dev` starts it, or as a server does, but for the storage; with a workspace of no code."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "workspace.yaml").write_text("load_from: []\n")
    if request.param == "a server":
        env = {**os.environ, "DAGSTER_HOME": str(folder), "PYTHONPATH": str(REPOSITORY), DAGSTER_URL: PUBLIC}
        with ExitStack() as opened:
            found = Servers(folder, env, opened).start_webserver()
            wait_for(lambda: found.query(ASK, {}), "the webserver answers")
            yield found
        return
    shutil.copy(REPOSITORY / "dagster.yaml", folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("DAGSTER_HOME", str(folder))
        with run_dagster_dev(folder / "log") as found:
            yield found


def answered(
    ui: DagsterUI, method: str, path: str, headers: dict[str, str], body: str | None = None
) -> tuple[int, str]:
    connection = http.client.HTTPConnection(ui.url.removeprefix("http://"), timeout=60)
    connection.request(method, path, body, headers)
    response = connection.getresponse()
    said = response.read().decode()
    connection.close()
    return response.status, said


def test_dagsters_own_pages_and_programs_work(ui: DagsterUI) -> None:
    assert ui.query(ASK, {}) == {"version": ui.query(ASK, {})["version"]}
    own = {**JSON, "Origin": ui.url}
    assert answered(ui, "POST", "/graphql", own, json.dumps({"query": CHANGE}))[0] == 200
    assert answered(ui, "GET", "/runs", {"Accept": "text/html"})[0] == 200
    assert answered(ui, "GET", "/server_info", {"Host": "localhost:3000"})[0] == 200


@pytest.mark.parametrize(
    ("method", "headers"),
    [("GET", {}), ("POST", {"Origin": "https://evil.example"}), ("POST", {"Origin": "null"})],
    ids=["by a link", "by a form", "by a frame"],
)
def test_a_page_of_another_origin_changes_nothing(ui: DagsterUI, method: str, headers: dict[str, str]) -> None:
    status, said = answered(ui, method, f"/graphql?query={quote(CHANGE)}", headers)
    assert (status, said.startswith("refused: ")) == (403, True), said


def test_a_name_that_was_made_to_lead_here_reads_nothing(ui: DagsterUI) -> None:
    rebound = {**JSON, "Host": "evil.example:3000", "Origin": "http://evil.example:3000"}
    status, said = answered(ui, "POST", "/graphql", rebound, json.dumps({"query": ASK}))
    assert (status, "localhost" in said) == (403, True)


@pytest.mark.parametrize("ui", ["a server"], indirect=True)
def test_the_name_that_a_proxy_has_for_people_is_dagsters_own(ui: DagsterUI) -> None:
    body = json.dumps({"query": ASK})
    for host in ("dagster.example.com", ui.url.removeprefix("http://")):
        own = {**JSON, "Host": host, "Origin": "https://dagster.example.com"}
        assert answered(ui, "POST", "/graphql", own, body)[0] == 200
    other = {**JSON, "Host": "dagster.example.com", "Origin": "https://dagster.example.com.evil.example"}
    assert answered(ui, "POST", "/graphql", other, body)[0] == 403


def test_a_page_of_another_origin_gets_no_socket(ui: DagsterUI) -> None:
    upgrade = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": base64.b64encode(bytes(16)).decode(),
        "Sec-WebSocket-Protocol": "graphql-ws",
    }
    assert answered(ui, "GET", "/graphql", {**upgrade, "Origin": "https://evil.example"})[0] == 403
