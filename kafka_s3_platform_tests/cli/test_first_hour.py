"""The first hour of a newcomer: `kafka-s3 init` makes a connector of the embedded stack, `kafka-s3 dev` runs it.

What Dagster keeps of runs is for this user alone: the config of a run may hold secrets.
"""

import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner, Result

from kafka_s3_platform.cli import main
from kafka_s3_platform.cli.machine import demo
from kafka_s3_platform.cli.machine.dev import LogFilter
from kafka_s3_platform.connect.config.files import load_connectors
from kafka_s3_platform.core.config import environment
from kafka_s3_platform.core.kafka.offset_admin import OffsetAdmin
from kafka_s3_platform.operate.local.settings import StackSettings
from kafka_s3_platform_tests.cli.conftest import REPOSITORY
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.kafka.topics import records_of
from kafka_s3_platform_tests.support import archived, is_gone

NEXT = """\
  kafka-s3 archive pageviews --until-now
  kafka-s3 show pageviews
  kafka-s3 restore pageviews --topic {topic} --to-topic {topic}-copy --create-topic
"""


@pytest.fixture
def folder(stack_settings: StackSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a newcomer, beside the session's stack."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("KAFKA_S3_", "DAGSTER_"))]:
        monkeypatch.delenv(name)
    for name, value in stack_settings.environment().items():
        monkeypatch.setenv(name, value)
    return tmp_path


def init(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["init", *arguments])


@pytest.mark.usefixtures("stack")
def test_init_makes_a_connector_and_a_topic_with_a_sample_that_is_archived(folder: Path, lab: Lab) -> None:
    made = init("pageviews", "--topic", lab.topic, "--kafka-partitions", "2", "--sample", "40")
    file = "connectors/pageviews.json"
    assert made.output == f"wrote {file}\ngo on with:\n{NEXT.format(topic=lab.topic)}", made.stderr
    (loaded,) = load_connectors(folder / "connectors", os.environ).connectors
    archived(loaded)
    assert json.loads(CliRunner().invoke(main, ["check", file, "--json"]).stdout)["warnings"] == []
    sent = [records_of(lab.kafka, lab.topic, kafka_partition) for kafka_partition in range(2)]
    assert sum(table.num_rows for table in sent) == 40
    assert all(table.num_rows for table in sent)
    times = [moment for table in sent for moment in table.column("timestamp").to_pylist()]
    assert timedelta(minutes=117) <= max(times) - min(times) < timedelta(hours=2)


@pytest.mark.usefixtures("stack")
def test_init_says_where_records_go_and_keeps_a_topic_and_a_worker_file_that_are_there(folder: Path, lab: Lab) -> None:
    worker = folder / "connectors" / "worker.properties"
    worker.parent.mkdir()
    worker.write_text(f"bootstrap.servers={lab.kafka.bootstrap_servers}\n# mine\n")
    empty = init("pageviews", "--topic", lab.topic)
    assert f"send records to topic {lab.topic} at {lab.kafka.bootstrap_servers}, then go on with:\n" in empty.output
    again = init("second", "--topic", lab.topic, "--json")
    assert json.loads(again.output)["created_topic"] is False
    assert worker.read_text().endswith("# mine\n")


@pytest.mark.usefixtures("folder", "stack")
@pytest.mark.parametrize(
    ("name", "worker", "said"),
    [
        ("there", None, "connectors/there.json is there already: choose another NAME"),
        (
            "other",
            "bootstrap.servers=broker.example:9092\n",
            "names the cluster broker.example:9092, not that of the stack",
        ),
        ("no/name", None, "connectors/no/name.json cannot be written: No such file or directory"),
        ("bad\x07name", None, "name: "),
    ],
)
def test_init_refuses_what_would_not_work_and_leaves_no_file(name: str, worker: str | None, said: str) -> None:
    connectors = Path("connectors")
    connectors.mkdir()
    (connectors / "there.json").write_text("{}")
    if worker:
        (connectors / "worker.properties").write_text(worker)
    refused = init(name)
    assert refused.exit_code == 1
    assert said in refused.output
    assert [path.name for path in connectors.glob("*.json")] == ["there.json"]


def test_init_needs_the_stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KAFKA_S3_LOCAL_DATA_DIR", str(tmp_path))
    refused = init("pageviews")
    assert (refused.exit_code, list(tmp_path.glob("connectors/*"))) == (1, [])
    assert "the embedded stack is not up: run `kafka-s3 up`" in refused.output


@pytest.fixture
def demo_topic(folder: Path, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> str:
    """The demo in the folder plays one day of this topic."""
    assert folder == Path.cwd()
    monkeypatch.setattr(demo, "TOPIC", lab.topic)
    monkeypatch.setattr(demo, "DAYS", 1)
    monkeypatch.setenv(environment.WARM_SPARK, "0")
    return lab.topic


@pytest.mark.usefixtures("stack", "spark")
def test_the_demo_restores_a_day_that_it_archived_and_says_what_goes_on_also_the_second_time(demo_topic: str) -> None:
    shown = [CliRunner().invoke(main, ["demo", "--yes", *more]) for more in ([], ["--quiet"])]
    for result in shown:
        assert result.exit_code == 0, result.output
        assert "24 of 24 hours are complete; 864 records in " in result.stdout
        assert f"864 records in topic {demo_topic}-" in result.stdout
        assert "Kafka and S3 go on: `kafka-s3 down` stops them" in result.stdout
    assert [result.stdout.count("there from an earlier run") for result in shown] == [0, 1]


@pytest.mark.usefixtures("stack", "spark")
def test_the_demo_refuses_a_topic_that_holds_other_records(demo_topic: str) -> None:
    assert init(demo_topic, "--sample", "3").exit_code == 0
    refused = CliRunner().invoke(main, ["demo", "--yes"])
    assert refused.exit_code == 1
    assert f"topic {demo_topic} holds 3 records instead of 864: an earlier demo was interrupted" in refused.output


def test_the_demo_asks_before_it_starts_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    refused = CliRunner().invoke(main, ["demo"], input="n\n")
    assert refused.exit_code == 1
    assert "sends 26,784 records to the topic page-views" in " ".join(refused.output.split())
    assert list(tmp_path.iterdir()) == []


WARNING = "2026-11-29 01:02:03 +0000 - dagster.daemon - WARNING - tick 17 of {}: no login"
RUN = "{} - 1b4e28ba-2fa1-11d2-883f-0016d3cca427 - 17 -"
OP = f"{RUN.format('archive__c').removesuffix(' 17 -')} hourly__c"
LINES = f"""\
2026-11-29 01:02:00 +0000 - dagster.daemon.SensorDaemon - INFO - Checking for new runs for sensor: topics
{WARNING.format("orders")}
Traceback (most recent call last):
  File "x.py", line 1
{WARNING.replace("17", "18").format("orders")}
{WARNING.format("orders-2")}
{WARNING.format("orders-3")}
\x1b[34m2026-11-29 01:02:04 +0000 - dagster - DEBUG - {RUN.format("hourly__c")} STEP_START - begun\x1b[0m
2026-11-29 01:02:05 +0000 - dagster - INFO - {OP} - archive t: 5 records
2026-11-29 01:02:06 +0000 - dagster - ERROR - {RUN.format("restore__c")} RUN_FAILURE - Run failed
"""


def test_dev_shows_what_runs_do_and_each_warning_once_and_keeps_all(capsys: pytest.CaptureFixture[str]) -> None:
    log = io.StringIO()
    LogFilter(log).copy_lines(line.encode() for line in LINES.splitlines(keepends=True))
    assert log.getvalue() == re.sub("\x1b\\[[0-9]*m", "", LINES)
    assert capsys.readouterr().out.splitlines() == [
        "01:02:03 tick 17 of orders: no login",
        "01:02:03 tick 17 of orders-2: no login",
        "01:02:03 tick 17 of orders-3: no login",
        "01:02:05 archive t: 5 records",
        "01:02:06 Run failed",
    ]


def test_dev_refuses_a_port_that_is_taken_before_it_starts_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        refused = CliRunner().invoke(main, ["dev", "--status-port", port, "--port", "1"])
    assert f"port {port} of this machine is in use: end what uses it, or give another --status-port" in refused.output
    assert list(tmp_path.iterdir()) == []


@contextmanager
def development(folder: Path, *arguments: str) -> Iterator[tuple["subprocess.Popen[str]", Path]]:
    """`kafka-s3 dev` in the folder, and the file of its output."""
    output = folder / "output.txt"
    command = [sys.executable, "-m", "kafka_s3_platform.cli", "dev", *arguments]
    with output.open("w") as out:
        env = {**os.environ, "PYTHONPATH": str(REPOSITORY), "KAFKA_S3_WARM_SPARK": "0"}
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, text=True, env=env, umask=0o022)
        try:
            yield process, output
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


@pytest.mark.long
@pytest.mark.usefixtures("stack")
def test_dev_archives_a_topic_by_itself_for_this_user_alone_and_ends_all_it_started(folder: Path, lab: Lab) -> None:
    assert init("pageviews", "--topic", lab.topic, "--sample", "40").exit_code == 0
    ports = []
    for _ in range(2):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            ports.append(str(probe.getsockname()[1]))
    with development(folder, "--port", ports[0], "--status-port", ports[1]) as (process, output):
        deadline = time.monotonic() + 240
        while "40 records" not in output.read_text() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(1)
        children = psutil.Process(process.pid).children(recursive=True)
    shown = output.read_text()
    assert f"Dagster's UI: http://127.0.0.1:{ports[0]}\nstatus page:  http://127.0.0.1:{ports[1]}\n" in shown
    assert "40 records" in shown
    assert process.returncode == 0
    assert [child for child in children if not is_gone(child.pid, 0)] == []
    written = [path for path in (folder / ".dagster").rglob("*") if path.is_file()]
    assert written
    assert [path for path in written if path.stat().st_mode & 0o077] == []
    assert (folder / "dagster.yaml").read_text() == (REPOSITORY / "dagster.yaml").read_text()


CONNECTOR = {
    "name": "orders",
    "config": {
        "connector.class": "io.confluent.connect.s3.S3SinkConnector",
        "topics": "orders",
        "s3.bucket.name": "archive",
        "store.url": "http://127.0.0.1:9",
        "aws.access.key.id": "any",
        "aws.secret.access.key": "any",
    },
}


@pytest.fixture
def _open_to_others() -> Iterator[None]:
    """As most users have it: others read what is written. The command changes that for its process."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.usefixtures("_open_to_others")
def test_nobody_else_reads_the_runs_of_a_command_not_even_those_of_a_folder_that_was_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(REPOSITORY / "dagster.yaml", tmp_path)
    (tmp_path / "connectors").mkdir()
    (tmp_path / "connectors" / "orders.json").write_text(json.dumps(CONNECTOR))
    (tmp_path / "connectors" / "worker.properties").write_text("bootstrap.servers=127.0.0.1:9\n")
    (tmp_path / ".dagster").mkdir(mode=0o755)
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("KAFKA_S3_", "DAGSTER_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(OffsetAdmin.__init__, "__defaults__", (1.0,))
    ran = CliRunner().invoke(main, ["archive", "orders"])
    assert "127.0.0.1:9" in ran.output
    assert list(tmp_path.rglob("runs.db")), ran.output
    assert (tmp_path / ".dagster").stat().st_mode & 0o777 == 0o700
    assert [path for path in (tmp_path / ".dagster").rglob("*") if path.stat().st_mode & 0o077] == []
