"""Every command, sensor, schedule and job, with all going well and with each thing going wrong: none writes a secret.

What is searched is what is shown (outputs, logs, tracebacks, arguments of processes) and what stays: Dagster's storage,
files, the bucket, dead letters.
"""

import json
import logging
import multiprocessing
import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
import traceback
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from io import StringIO
from pathlib import Path
from typing import Any

import dagster as dg
import psutil
import pytest
from click.testing import CliRunner
from dagster._serdes import serialize_value
from dagster._utils.error import serializable_error_info_from_exc_info
from pydantic import SecretStr

from kafka_s3_platform.cli import COMMANDS, main
from kafka_s3_platform.connect.config.files import load_connectors
from kafka_s3_platform.core.config.environment import EVIDENCE_KEY
from kafka_s3_platform.core.config.settings import KafkaSettings, Settings, StoreSettings
from kafka_s3_platform.core.defs.failures import RETRIES_TAG
from kafka_s3_platform.core.kafka import client
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.definitions import defs
from kafka_s3_platform.operate.local.settings import StackSettings
from kafka_s3_platform.operate.local.stack import StackStatus
from kafka_s3_platform_tests.conftest import REPOSITORY, Lab
from kafka_s3_platform_tests.converters.refusing import gate
from kafka_s3_platform_tests.kafka.topics import records_of
from kafka_s3_platform_tests.secrets.world import (
    ENVIRONMENT,
    NOBODY,
    OF_THE_DEFAULT_CHAIN,
    OUTGOING,
    World,
    all_found,
    found_in,
    mark,
    store_servers,
)
from kafka_s3_platform_tests.serving import serving
from kafka_s3_platform_tests.support import Sent, produce

SHOWN_IN_ITS_RUN = mark("outgoing of a run")
"""Everyone who sees a run sees its config, and so `outgoing` in it: there alone may that be."""

COPY = ["--to-topic", "{topic}-copy", "--create-topic"]
FILES = ["--outgoing", "restore/outgoing.properties", "--target-worker", "restore/target.properties"]
RESTORE = ["restore", "native", "--topic", "{topic}", *COPY]
WRONG_PLACE = ["--restore-id", "r", "--sql", "text(value) = 'x'"]

GOOD: Mapping[str, list[list[str]]] = {
    "archive": [["archive", name] for name in ("native", "text", "letters", "sealed")],
    "check": [["check", f"{name}.json", "--connect"] for name in ("native", "text", "source")],
    "list": [["list"], ["list", "--json"]],
    "describe": [["describe", "S3SinkConnector"]],
    "convert": [["convert"]],
    "show": [["show", "native"]],
    "health": [["health", "native"]],
    "test-alert": [["test-alert"]],
    "files": [["files", "native", "--json"]],
    "compact": [["compact", "native", "--day", "2026-01-01"]],
    "restore": [
        [*RESTORE, *FILES, "--dry-run", "--exact", "--json"],
        [*RESTORE, "--outgoing", "restore/outgoing.properties", "--restore-id", "r"],
        [*RESTORE, *WRONG_PLACE],
        [*RESTORE, "--target-worker", "worker.properties", "--outgoing", "worker.properties"],
        ["restore", "source", "--to-topic", "{topic}-foreign", "--create-topic", "--restore-id", "s"],
    ],
    "groups": [["groups", "r"], ["groups", "r", "--apply", "--dry-run"]],
    "registry": [["registry", "archive", "native"]],
    "verify": [["verify", "native", "--deep"], ["verify", "native", "--topic", "{topic}", "--against", "{topic}-copy"]],
    "rehearse": [["rehearse", "native"]],
    # its public key, or so somebody believes
    "evidence": [["evidence", "check", "native.json", "--signature", "native.json", "--public-key", "evidence.pem"]],
    "retain": [["retain", "native"], ["retain", "native", "--apply"]],
    "erase": [["erase", "native", "--topic", "{topic}", "--key", "nobody"]],
    "vacuum": [["vacuum", "native", "--dry-run"]],
    "upkeep": [["upkeep", "native", "--dry-run"], ["upkeep", "native"]],
    "resolve": [["resolve", "native"]],
    "take-over": [["take-over", "native"]],
    "status": [["status", "--json"]],
    "up": [["up"]],
    "init": [["init", "pageviews"]],
    "down": [["down"]],
}
"""What each command is called with where nothing is wrong."""

AT_THE_STORE = [[*RESTORE, "--dry-run"], *([name, "native"] for name in ("archive", "verify", "show", "health"))]
OF_FILES = [["list"], ["check", "native.json"], ["archive", "native"]]
WRONG: Mapping[str, list[list[str]]] = {
    "login refused": [
        ["archive", "native"],
        ["take-over", "native"],
        ["health"],
        ["check", "native.json", "--connect"],
    ],
    "store refuses": [*AT_THE_STORE, ["restore", "source"], ["vacuum", "native"], ["groups", "r"]],
    "store refuses the environment": AT_THE_STORE,
    "proxy down": AT_THE_STORE,
    "role refused": AT_THE_STORE,
    "provider fails": AT_THE_STORE,
    "registry refuses": [
        *([*command, name] for command in (["archive"], ["registry", "archive"]) for name in ("avro", "bearer")),
        ["check", "url.json", "--connect"],
    ],
    "customer key": [["check", "native.json"], ["show", "native"]],
    "unknown keys": OF_FILES,
}


@dataclass
class Written:
    """What was written, by where; and what was done, to know that it was."""

    world: World
    home: Path
    temporary: Path
    texts: list[tuple[str, str]] = field(default_factory=list)
    arguments: set[str] = field(default_factory=set)
    ran: dict[tuple[str, str], int] = field(default_factory=dict)
    evaluated: set[str] = field(default_factory=set)
    served: set[str] = field(default_factory=set)

    def run(self, folder: str, arguments: Iterable[str]) -> None:
        """One command in one folder of connector files."""
        given = [text.format(topic=self.world.topic) for text in arguments]
        where = self.world.folder(folder)
        env = OF_THE_DEFAULT_CHAIN if folder == "store refuses the environment" else {}
        with self.watched(f"{folder}: {' '.join(given)}") as name, at(where):
            told = CliRunner().invoke(main, given, env=env)
            error = "" if told.exception is None else "".join(traceback.format_exception(told.exception))
            self.texts.append((name, told.output + error))
        self.ran[folder, " ".join(given)] = told.exit_code

    @contextmanager
    def watched(self, name: str) -> Iterator[str]:
        """Keeps what the process and its children write meanwhile, and what is logged."""
        log = StringIO()
        handler = logging.StreamHandler(log)
        handler.setFormatter(logging.Formatter())
        logging.getLogger().addHandler(handler)
        try:
            with tempfile.TemporaryFile() as out, redirected(out.fileno()):
                yield name
                out.seek(0)
                self.texts.append((f"{name}, standard output and error", out.read().decode(errors="replace")))
        finally:
            logging.getLogger().removeHandler(handler)
            self.texts.append((f"{name}, log", log.getvalue()))


@contextmanager
def redirected(file: int) -> Iterator[None]:
    """What C libraries and child processes write goes there."""
    kept = [os.dup(1), os.dup(2)]
    try:
        os.dup2(file, 1)
        os.dup2(file, 2)
        yield
    finally:
        for number, old in enumerate(kept, 1):
            os.dup2(old, number)
            os.close(old)


@contextmanager
def at(folder: Path) -> Iterator[None]:
    """In a folder, which is that of the connector files."""
    before = Path.cwd()
    os.chdir(folder)
    os.environ["KAFKA_S3_CONNECTORS"] = str(folder)
    try:
        yield
    finally:
        os.chdir(before)


@contextmanager
def arguments_of_children(found: set[str]) -> Iterator[None]:
    """Looks ten times a second at what the processes that are started meanwhile are called with."""
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(0.1):
            for child in psutil.Process().children(recursive=True):
                with suppress(psutil.Error):
                    found.add(" ".join(child.cmdline()))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@pytest.fixture(scope="module")
def world(stack: StackStatus, s3_client: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    bucket, topic = f"bucket-{uuid.uuid4().hex[:12]}", f"topic-{uuid.uuid4().hex[:12]}"
    kafka = KafkaSettings(bootstrap_servers=stack.bootstrap_servers)
    known = SecretStr(stack.aws_access_key_id), SecretStr(stack.aws_secret_access_key)
    store = StoreSettings(
        bucket=bucket,
        region="us-east-1",
        endpoint_url=stack.s3_endpoint,
        access_key_id=known[0],
        secret_access_key=known[1],
    )
    s3_client.create_bucket(Bucket=bucket)
    with ClusterAdmin(kafka) as admin:
        admin.create_topic(topic, 1)
    produce(kafka, topic, [Sent(b'{"n": %d}' % n, b"k") for n in range(5)])
    with store_servers(store) as (gate_of_store, proxy), gate(NOBODY) as registry:
        found = World(tmp_path_factory.mktemp("world"), topic, kafka, store, gate_of_store.endpoint, proxy.endpoint)
        found.write_all(registry.url)
        yield found
    s3_client.delete_bucket(Bucket=bucket)


@pytest.fixture(scope="module")
def written(world: World, stack_settings: StackSettings, tmp_path_factory: pytest.TempPathFactory) -> Written:
    """All is done once, in a process of its own: Spark starts there, whatever was started here before."""
    home, temporary = tmp_path_factory.mktemp("homes") / "home", tmp_path_factory.mktemp("temporary")
    home.mkdir()
    (home / "dagster.yaml").write_text(
        "telemetry: {enabled: false}\n"
        "python_logs: {managed_python_loggers: [kafka_s3_platform], python_log_level: INFO}\n"
    )
    env = {
        **stack_settings.environment(),
        **ENVIRONMENT,
        # of Spark's workers, which import the plug-ins
        "PYTHONPATH": os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")]),
        "KAFKA_S3_LOCAL_DATA_DIR": str(tmp_path_factory.mktemp("another-stack")),
        "KAFKA_S3_CONNECTORS": str(world.folder("good")),
        "DAGSTER_HOME": str(home),
        "TMPDIR": str(temporary),
        EVIDENCE_KEY: str(world.folder("good") / "evidence.pem"),
    }
    with pytest.MonkeyPatch.context() as patch, ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        for name, value in env.items():
            patch.setenv(name, value)
        return process.submit(_do_all, Written(world, home, temporary)).result()


def _do_all(found: Written) -> Written:
    logging.getLogger("kafka_s3_platform").setLevel(logging.DEBUG)
    client.GRACE_SECONDS = 1.0
    with (
        arguments_of_children(found.arguments),
        apart(found, "broker down", *BROKER_DOWN),
        apart(found, "good", *DAGSTER, *DAGSTER_TAGS),
    ):
        _do_each(found)
    return found


def _do_each(found: Written) -> None:
    for command in GOOD.values():
        for arguments in command:
            found.run("good", arguments)
    for folder, commands in WRONG.items():
        for arguments in commands:
            found.run(folder, arguments)
    for folder in ("store refuses", "login refused"):
        _serve(found, folder)
    with dg.DagsterInstance.get() as instance:
        for folder in ("good", "store refuses", "login refused", "provider fails"):
            with at(found.world.folder(folder)):
                _evaluate(found, folder, instance)
        _run_jobs(found, instance)


def _serve(found: Written, folder: str) -> None:
    with at(found.world.folder(folder)), serving(Path.cwd(), os.environ) as server:
        server.wait(lambda samples: ("kafka_s3_look_duration_seconds", "") in samples)
        for path in ("/", "/health", "/metrics"):
            found.texts.append((f"{folder}: serve {path}", server.get(path)[2]))
    found.served.add(folder)


def _evaluate(found: Written, folder: str, instance: dg.DagsterInstance) -> None:
    """What a tick of each sensor and schedule leaves, as the daemon stores it."""
    definitions = defs()
    repository = definitions.get_repository_def()
    moment = datetime.now(timezone.utc)
    for sensor in repository.sensor_defs:
        with (
            found.watched(f"{folder}: sensor {sensor.name}") as name,
            dg.build_sensor_context(instance, definitions=definitions, sensor_name=sensor.name) as context,
        ):
            found.texts.append((name, _tick(sensor.evaluate_tick, context)))
        found.evaluated.add(sensor.name)
    for schedule in repository.schedule_defs:
        with (
            found.watched(f"{folder}: schedule {schedule.name}") as name,
            dg.build_schedule_context(instance, moment, repository_def=repository) as schedule_context,
        ):
            found.texts.append((name, _tick(schedule.evaluate_tick, schedule_context)))
        found.evaluated.add(schedule.name)


def _tick(evaluate: Callable[[Any], Any], context: object) -> str:
    try:
        told = evaluate(context)
        return serialize_value(told) + repr(told)
    except Exception:  # noqa: BLE001 - as the code server catches them
        return repr(serializable_error_info_from_exc_info(sys.exc_info()))


def _run_jobs(found: Written, instance: dg.DagsterInstance) -> None:
    """Runs as the UI launches them: all jobs where the store refuses, and a restore with secrets in its config."""
    topic = found.world.topic
    with at(found.world.folder("store refuses")):
        form = {"config": {"what": {"everything": True}, "to": {"topic": f"{topic}-from-ui"}}}
        for job in defs().resolve_all_job_defs():
            if job.name != "__ASSET_JOB":
                ops = {node.name: form for node in job.nodes if node.name.startswith(("restored__", "replay__"))}
                _execute(found, instance, job, {"ops": ops})
    to = {"topic": f"{topic}-from-ui", "create_topic": True}
    file = {"outgoing_file": "outgoing.properties"}
    given = {"outgoing": {**OUTGOING, "transforms.header.value.literal": SHOWN_IN_ITS_RUN}}
    wrong = {"outgoing": {**OUTGOING, "transforms.header.value.litteral": SHOWN_IN_ITS_RUN}}
    spark = {"spark": {"config": {"spark_config": {"spark.authenticate.secret": SHOWN_IN_ITS_RUN}}}}
    with at(found.world.folder("good")):
        definitions = defs()
        [restore] = [j for j in definitions.resolve_all_job_defs() if j.name.startswith("restore__native")]
        [op] = [node.name for node in restore.nodes]
        for values, worker in (
            (given, {}),
            (wrong, {}),
            (file, {"worker": "target.properties"}),
            (file, {"worker": "outgoing.properties"}),
        ):
            config = {"what": {"everything": True}, "to": {**to, **worker}, "values": values}
            _execute(found, instance, restore, {"ops": {op: {"config": config}}, "resources": spark})
        for job in definitions.resolve_all_job_defs():
            if job.name.startswith("verify__"):
                _execute(found, instance, job, {})


def _execute(found: Written, instance: dg.DagsterInstance, job: dg.JobDefinition, config: Mapping[str, Any]) -> None:
    with found.watched(f"run of {job.name}"):
        job.execute_in_process(
            instance=instance, run_config=dict(config), tags={RETRIES_TAG: "0"}, raise_on_error=False
        )


@contextmanager
def apart(found: Written, folder: str, *arguments: str) -> Iterator[None]:
    """Meanwhile a process of its own, with a home of its own, in one folder of connector files."""
    home = found.home.parent / folder
    home.mkdir()
    (home / "dagster.yaml").write_text((found.home / "dagster.yaml").read_text())
    env = {**os.environ, "KAFKA_S3_CONNECTORS": str(found.world.folder(folder)), "DAGSTER_HOME": str(home)}
    with tempfile.TemporaryFile() as out:
        running = subprocess.Popen([sys.executable, "-m", *arguments], env=env, stdout=out, stderr=out)
        try:
            yield
        finally:
            running.wait(300)
            out.seek(0)
            found.texts.append((f"{folder}: {' '.join(arguments)}", out.read().decode(errors="replace")))
            found.ran[folder, arguments[0]] = running.returncode


# each step in a process of its own, whose output Dagster keeps
DAGSTER = ("dagster", "job", "execute", "-m", "kafka_s3_platform.definitions", "-j", "archive__failing")
DAGSTER_TAGS = ("--tags", json.dumps({RETRIES_TAG: "0"}))
BROKER_DOWN = ("kafka_s3_platform.cli", "archive", "native")


FAIL = frozenset(
    {
        *("take-over native", "up", "init pageviews", "groups r", "groups r --apply --dry-run", "test-alert"),
        "registry archive native",
        " ".join(GOOD["evidence"][0]),
    }
)
"""Also where nothing is wrong: a private key is no public one; no groups, no registry, no receiver of alerts is there;
another stack has the ports."""


def test_every_command_sensor_and_schedule_was_tried_and_did_what_it_was_to_do(written: Written) -> None:
    assert set(GOOD) == set(COMMANDS) - {"prepare", "doctor", "serve", "dev", "demo"}, "dev and demo do what others do"
    assert written.served == {"store refuses", "login refused"}
    good = {name: code for (folder, name), code in written.ran.items() if folder == "good"}
    refused = {name for name in good if "--sql" in name or "--outgoing worker.properties" in name}
    assert {name for name, code in good.items() if code} == FAIL | refused | {"dagster", "status --json"}
    wrong = {f"{folder}: {name}": code for (folder, name), code in written.ran.items() if folder != "good"}
    assert {name for name, code in wrong.items() if not code} == {
        "customer key: check native.json",
    }
    kinds = {name.split("__")[0] for name in written.evaluated}
    assert kinds >= {"lag", "folders", "poll", "hourly", "daily", "verify", "upkeep", "alerts"}, kinds


NOT_IN_FILES = {
    "StoreSettings.session_token": "no key sets it: a provider of credentials gives one",
    "PredicateSettings.options": "all options of Connect's predicates are public, and there are no others",
}


def test_every_setting_that_is_known_as_secret_was_planted(written: Written) -> None:
    known = {
        f"{model.__name__}.{name}"
        for model in _models(Settings)
        for name, f in model.model_fields.items()
        if "SecretStr" in repr(f.annotation)
    }
    planted: set[str] = set()
    for folder in [*WRONG, "good", "broker down"]:
        for config in load_connectors(written.world.folder(folder), ENVIRONMENT).connectors:
            planted |= set(_planted(config))
    assert known - planted == set(NOT_IN_FILES)


def _models(base: type[Settings]) -> Iterator[type[Settings]]:
    for model in base.__subclasses__():
        yield model
        yield from _models(model)


def _planted(settings: Settings) -> Iterator[str]:
    """The fields that hold a mark, those of inner settings too."""
    for name in type(settings).model_fields:
        for value in _values(getattr(settings, name)):
            if isinstance(value, Settings):
                yield from _planted(value)
            elif isinstance(value, SecretStr) and found_in(name, value.get_secret_value()):
                yield f"{type(settings).__name__}.{name}"


def _values(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, tuple):
        for each in value:
            yield from _values(each)
    else:
        yield value


def test_nothing_that_was_shown_holds_a_secret(written: Written) -> None:
    hits = all_found(written.texts)
    assert not hits, "\n".join(hits)


def test_no_process_was_called_with_a_secret(written: Written) -> None:
    assert any("java" in arguments for arguments in written.arguments)
    hits = all_found(("arguments", text) for text in written.arguments)
    assert not hits, "\n".join(hits)


def test_dagster_stores_no_secret(written: Written) -> None:
    hits: list[str] = []
    assert any(
        "compute_logs" in str(path) or path.suffix in {".out", ".err"} for path in written.home.parent.rglob("*")
    )
    for path in sorted(written.home.parent.rglob("*")):
        if path.suffix == ".db":
            hits += all_found(rows_of(path))
        elif path.is_file():
            hits += found_in(str(path), path.read_bytes())
    assert not hits, "\n".join(hits)


def rows_of(path: Path) -> Iterator[tuple[str, str | bytes]]:
    """Each value of a database; of runs that show what is in their config, the rest."""
    with closing(sqlite3.connect(path)) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            for row in database.execute(f'SELECT * FROM "{table}"'):  # noqa: S608 - the database's own name
                for value in row:
                    if table == "runs" and isinstance(value, str) and SHOWN_IN_ITS_RUN in value:
                        yield f"{path.name} {table}", json.dumps({**json.loads(value), "run_config": None})
                    elif isinstance(value, str | bytes):
                        yield f"{path.name} {table}", value


def test_no_file_is_left_that_holds_a_secret(written: Written) -> None:
    left = [path for path in written.temporary.rglob("*") if path.is_file()]
    hits = all_found((str(path), path.read_bytes()) for path in left)
    assert not hits, "\n".join(hits)


def test_the_bucket_holds_no_secret(written: Written, lab: Lab) -> None:
    bucket = written.world.store.bucket
    pages = lab.s3.get_paginator("list_objects_v2").paginate(Bucket=bucket)
    keys = [found["Key"] for page in pages for found in page.get("Contents", ())]
    assert {key.split("/")[0] for key in keys} >= {"_index", "_restore", "topics", "text"}
    objects = ((key, lab.s3.get_object(Bucket=bucket, Key=key)["Body"].read()) for key in keys)
    hits = all_found(objects)
    assert not hits, "\n".join(hits)


def test_dead_letters_hold_no_secret(written: Written) -> None:
    letters = records_of(written.world.kafka, f"{written.world.topic}-dead")
    assert letters.num_rows == 10, "of a mapper and of a converter"
    told = repr(letters.to_pylist())
    assert "cannot log in with" in told
    assert "****" in told, "they have quoted their options"
    assert found_in("dead letters", told) == []
