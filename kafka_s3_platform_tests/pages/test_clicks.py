"""What people do with a mouse: Dagster's pages and the status page, in a real browser."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from kafka_s3_platform.core.config.settings import KafkaSettings, StoreSettings
from kafka_s3_platform_tests.cli.conftest import REPOSITORY
from kafka_s3_platform_tests.conftest import CreateTopic
from kafka_s3_platform_tests.dagster_ui import ENDED, DagsterUI, run_dagster_dev
from kafka_s3_platform_tests.defs.running import ago, connector_of_this_hour
from kafka_s3_platform_tests.faults.proxy import FaultyProxy, faulty_proxy
from kafka_s3_platform_tests.kafka.topics import records_of
from kafka_s3_platform_tests.serving import Server, serving
from kafka_s3_platform_tests.support import Sent, produce
from kafka_s3_platform_tests.tools import find_tool, leave_out

CONNECTOR, TOPIC = "orders-s3-sink", "orders"
HOURS = (4, 3, 2, 1)

SCREENSHOTS = os.environ.get("KAFKA_S3_TESTS_SCREENSHOTS")
"""A folder of the repository for pictures of the pages, such as `docs/images`. None are made if it is not given."""

RESTORES = """
query Restores($path: [String!]!) {
  assetOrError(assetKey: {path: $path}) {
    ... on Asset {
      assetMaterializations(limit: 3) { partition metadataEntries { label ... on TextMetadataEntry { text } } }
    }
  }
}"""

RUNS = "{ runsOrError { ... on Runs { results { runId status } } } }"


@dataclass
class Person:
    """Looks at one page, and counts what the hand does."""

    page: Any
    clicks: int = field(default=0, init=False)

    def begin(self, server: Server) -> Any:
        """Open the status page, from which clicks are counted."""
        self.page.goto(f"{server.url}/")
        self.clicks = 0
        return self.page

    def click(self, what: Any) -> None:
        what.click()
        self.clicks += 1

    def take_picture(self, name: str) -> None:
        if SCREENSHOTS:
            self.page.wait_for_timeout(1000)  # what moves into its place is there by then
            # Not what is empty below a short page.
            bottom = self.page.evaluate("Math.ceil(document.body.getBoundingClientRect().bottom)")
            window = self.page.viewport_size
            clip = {"x": 0, "y": 0, "width": window["width"], "height": min(window["height"], bottom)}
            self.page.screenshot(path=REPOSITORY / SCREENSHOTS / f"{name}.png", clip=clip)


@dataclass(frozen=True)
class Scene:
    """A connector whose store is behind a proxy, and `dagster dev`."""

    folder: Path
    ui: DagsterUI
    proxy: FaultyProxy
    first_key: str
    kafka: KafkaSettings

    def wait_for_runs(self, count: int) -> None:
        """Wait until so many runs have ended, all of them well."""
        deadline = time.monotonic() + 240
        while True:
            runs = self.ui.query(RUNS, {})["runsOrError"]["results"]
            if len(runs) >= count and all(run["status"] in ENDED for run in runs):
                break
            assert time.monotonic() < deadline, runs
            time.sleep(0.5)
        assert [run["status"] for run in runs] == ["SUCCESS"] * count


@pytest.fixture(scope="module")
def person() -> Iterator[Person]:
    chromium = find_tool("chromium")
    try:
        from playwright.sync_api import expect, sync_playwright
    except ImportError:
        leave_out("playwright")
    expect.set_options(timeout=60_000)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1300, "height": 800}, color_scheme="light")
        page.set_default_timeout(60_000)
        yield Person(page)
        browser.close()


@pytest.fixture(scope="module")
def scene(
    person: Person,
    tmp_path_factory: pytest.TempPathFactory,
    kafka_settings: KafkaSettings,
    module_store: StoreSettings,
    create_topic: CreateTopic,
) -> Iterator[Scene]:
    """The topic has 50 records in each of four hours. Nothing is archived."""
    folder = tmp_path_factory.mktemp("scene")
    config = connector_of_this_hour(kafka_settings, module_store, create_topic(TOPIC))
    records = [Sent(timestamp=ago(config, back) + timedelta(seconds=i)) for back in HOURS for i in range(50)]
    produce(kafka_settings, TOPIC, records)
    for file in ("dagster.yaml", "workspace.yaml"):
        shutil.copy(REPOSITORY / file, folder)
    with faulty_proxy(str(module_store.endpoint_url)) as proxy, in_folder(folder):
        store = module_store.model_copy(update={"endpoint_url": proxy.endpoint})
        write_files(folder / "connectors", kafka_settings, store, ago(config, HOURS[0]))
        with run_dagster_dev(folder / "log", "/dagster") as ui:
            yield Scene(folder, ui, proxy, f"{ago(config, HOURS[0]):%Y-%m-%d-%H:00}", kafka_settings)


@contextmanager
def in_folder(folder: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("DAGSTER_HOME", str(folder))
        patch.setenv("PYTHONPATH", str(REPOSITORY))
        patch.setenv("KAFKA_S3_WARM_SPARK", "0")
        yield


def write_files(folder: Path, kafka: KafkaSettings, store: StoreSettings, start: datetime) -> None:
    assert store.access_key_id is not None
    assert store.secret_access_key is not None
    keys = {
        "name": CONNECTOR,
        "topics": TOPIC,
        "s3.bucket.name": store.bucket,
        "s3.region": store.region,
        "store.url": store.endpoint_url,
        "s3.part.retries": "0",
        "aws.access.key.id": store.access_key_id.get_secret_value(),
        "aws.secret.access.key": store.secret_access_key.get_secret_value(),
        "archive.start.hour": f"{start:%Y-%m-%dT%H:%M}",
        "archive.allowed.lateness.ms": "0",
    }
    folder.mkdir()
    (folder / f"{CONNECTOR}.json").write_text(json.dumps(keys))
    (folder / "worker.properties").write_text(f"bootstrap.servers={kafka.bootstrap_servers}\n")


def test_a_person_fills_reads_and_restores_an_archive_and_sees_an_outage(person: Person, scene: Scene) -> None:
    """docs/operating.md tells these numbers of clicks."""
    with serving(scene.folder, os.environ | {"KAFKA_S3_DAGSTER_URL": scene.ui.url}) as server:
        backfill(person, scene, server)
        see_what_is_late_and_at_risk(person, server)
        restore_hour(person, scene, server)
        replay_picked_hours(person, scene)
        see_why_it_failed(person, scene, server)
        see_outage(person, scene, server)


def backfill(person: Person, scene: Scene, server: Server) -> None:
    page = person.begin(server)
    person.click(page.get_by_role("link", name="backfill"))
    person.click(page.get_by_role("button", name="Materialize").first)
    person.click(page.get_by_text("Missing", exact=True).last)
    person.take_picture("backfill")
    person.click(page.get_by_role("button", name="Launch backfill"))
    assert person.clicks == 4
    scene.wait_for_runs(1)


def see_what_is_late_and_at_risk(person: Person, server: Server) -> None:
    from playwright.sync_api import expect

    page = person.begin(server)
    expect(page.get_by_text("nothing is at risk")).to_be_visible()
    expect(page.locator("td[data-of='Oldest not complete']")).to_have_text("none")
    expect(page.locator(".tile", has_text="runs of the last 24 hours failed")).to_contain_text("0 of 1")
    person.take_picture("status")
    assert person.clicks == 0


def restore_hour(person: Person, scene: Scene, server: Server) -> None:
    """On the way lies whether the hour is complete."""
    from playwright.sync_api import expect

    page = person.begin(server)
    begun = time.monotonic()
    person.click(page.get_by_role("link", name="hours"))
    expect(page.locator("td.complete")).to_have_count(len(HOURS))
    days = {scene.first_key[:10], f"{datetime.now(timezone.utc):%Y-%m-%d}"}
    expect(page.locator("tbody tr")).to_have_count(len(days))
    person.take_picture("hours")
    hour = page.locator(f"a[aria-label^='{scene.first_key}: complete']")
    expect(hour).to_be_visible()
    assert person.clicks == 1, "is this hour complete?"
    person.click(hour)
    expect(page.get_by_text("complete", exact=True)).to_be_visible()
    person.take_picture("hour")
    with page.context.expect_page() as opened:
        person.click(page.locator("a[href*='playground/setup']").first)
    person.page = page = opened.value
    person.click(page.locator(".CodeMirror-line", has_text='topic: ""'))
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    page.keyboard.type("orders-again")
    expect(page.get_by_text("No missing config")).to_be_visible()
    person.take_picture("restore")
    person.click(page.get_by_role("button", name="Launch Run"))
    assert person.clicks == 5
    assert time.monotonic() - begun < 40
    scene.wait_for_runs(2)
    page.goto(f"{scene.ui.url}/assets/{CONNECTOR}/restored/{TOPIC}")
    expect(page.get_by_text("verified: every record sent was found once").first).to_be_visible()
    page.mouse.move(600, 500)
    page.mouse.wheel(0, 520)
    person.take_picture("restored")


def replay_picked_hours(person: Person, scene: Scene) -> None:
    """All are in one new topic, in their order, and the page of the restored asset shows no hour."""
    from playwright.sync_api import expect

    job = "replay_hours__orders_s3_sink"
    page = person.page
    page.goto(f"{scene.ui.url}/locations/__repository__@kafka_s3_platform/jobs/{job}/partitions")
    page.get_by_role("button", name="Launch backfill").click()
    first = datetime.strptime(f"{scene.first_key}+0000", "%Y-%m-%d-%H:%M%z")
    hours = [f"{first + timedelta(hours=n):%Y-%m-%d-%H:%M}" for n in (0, 1, 3)]
    picker = page.locator("input[placeholder^='ex: ']")
    picker.fill(", ".join(hours))
    picker.press("Enter")
    submit = page.get_by_role("button", name="Submit 3 runs")
    expect(submit).to_be_enabled()
    person.take_picture("replay")
    submit.click()
    scene.wait_for_runs(2 + len(hours))
    target = find_verified_target(scene)
    assert target.startswith(f"{TOPIC}.replay-")
    times = records_of(scene.kafka, target)["timestamp"].to_pylist()
    assert [f"{at:%Y-%m-%d-%H:00}" for at in times] == [hour for hour in hours for _ in range(50)]
    page.goto(f"{scene.ui.url}/assets/{CONNECTOR}/restored/{TOPIC}")
    expect(page.get_by_text(target).first).to_be_visible()
    expect(page.get_by_role("tab", name="Partitions")).to_have_count(0)


def find_verified_target(scene: Scene) -> str:
    """The topic of the last three restores. Each was verified, and is an event of no hour."""
    answer = scene.ui.query(RESTORES, {"path": [CONNECTOR, "restored", TOPIC]})
    events = answer["assetOrError"]["assetMaterializations"]
    texts = [{entry["label"]: entry.get("text") for entry in event["metadataEntries"]} for event in events]
    assert [event["partition"] for event in events] == [None] * 3
    assert {text["verdict"] for text in texts} == {"verified: every record sent was found once"}
    [target] = {text["to_topic"] for text in texts}
    return str(target)


def see_why_it_failed(person: Person, scene: Scene, server: Server) -> None:
    from playwright.sync_api import expect

    command = [
        sys.executable,
        "-m",
        "kafka_s3_platform.cli",
        "restore",
        CONNECTOR,
        "--topic",
        TOPIC,
        "--to-topic",
        "no",
    ]
    assert subprocess.run(command, cwd=scene.folder, capture_output=True, check=False).returncode == 1
    page = person.begin(server)
    expect(page.get_by_text("1 failed run", exact=True)).to_be_visible()
    expect(page.get_by_text("target topic no does not exist")).to_be_visible()
    expect(page.get_by_text("docs/runbook.md#ks-restore-refused")).to_be_visible()
    assert person.clicks == 0


def see_outage(person: Person, scene: Scene, server: Server) -> None:
    from playwright.sync_api import expect

    page = person.begin(server)
    scene.proxy.refuse("GET", "", 503, "SlowDown")
    expect(page.get_by_text("its object store does not answer")).to_be_visible()
    person.take_picture("status-outage")
    scene.proxy.clear()
    expect(page.get_by_text("1 failed run", exact=True)).to_be_visible()
