"""`make outage MINUTES=15`: S3 stops under live load, and what should happen by itself is watched.

Dagster's daemon archives three topics by two connectors, to which a producer writes. The checks should be red within
three minutes, with one message to the webhook and one mail; when S3 is back, all should heal, with one message more,
and each record should be archived once. All runs on a stack of its own, which is removed at the end.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime, timezone
from pathlib import Path
from threading import Event, Thread

import dagster as dg
from confluent_kafka import Producer

from bench.workload import create_topic
from kafka_s3_platform import read
from kafka_s3_platform.operate.local.broker import Broker
from kafka_s3_platform.operate.local.seaweedfs import SeaweedFS
from kafka_s3_platform.operate.local.settings import StackSettings
from kafka_s3_platform.operate.local.stack import start_servers
from kafka_s3_platform_tests.conftest import free_port_settings, stopped_at_exit
from kafka_s3_platform_tests.defs.alerts.servers import Mailbox, Webhook, mailbox
from kafka_s3_platform_tests.store.http_proxy import running

CONNECTORS = ("a", "b")
TOPICS = ("live-0", "live-1", "live-2")
RED_SECONDS = 180.0
PATIENCE_SECONDS = 300.0
"""For what should happen without an outage."""


def main() -> None:
    """Run the outage. Print what happens when, and end with 1 if something of it should not be."""
    parser = argparse.ArgumentParser(prog="python -m bench.outage", description=__doc__)
    parser.add_argument("--minutes", type=float, default=15.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-outage-") as folder, ExitStack() as opened:
        base = Path(folder)
        stack = StackSettings(
            data_dir=base / "stack", cache=StackSettings.from_environment().cache, **free_port_settings()
        )
        opened.enter_context(stopped_at_exit(stack))
        store = SeaweedFS(stack)
        start_servers((Broker(stack), store))
        store.create_bucket()
        for topic in TOPICS:
            create_topic(stack.bootstrap_servers, topic, 2)
        hook = opened.enter_context(running(Webhook()))
        mailed, mail_port = opened.enter_context(mailbox())
        os.environ |= _write_home(base, stack, hook.url, mail_port)
        opened.enter_context(_running_daemon(base))
        sent = opened.enter_context(_producing(stack.bootstrap_servers))
        watch = Watch(hook, mailed)
        problems = watch.outage(store, given.minutes * 60, sent)
        for problem in problems:
            print(f"NOT AS EXPECTED: {problem}")
    sys.exit(1 if problems else 0)


class Watch:
    """Tells what happens as it does, with seconds since the start."""

    def __init__(self, hook: Webhook, mailed: Mailbox) -> None:
        self._hook, self._mailed = hook, mailed
        self._instance = dg.DagsterInstance.get()
        self._started = time.monotonic()
        self._told: set[object] = set()
        self._succeeded = 0

    def outage(self, store: SeaweedFS, seconds: float, sent: "Load") -> list[str]:
        """Stop the store for so long. Return what was not as it should be."""
        problems: list[str] = []
        self._await(lambda: self._succeeded >= len(CONNECTORS), PATIENCE_SECONDS, "both connectors have archived")
        store.daemon.terminate()
        store.daemon.await_end()
        down = time.monotonic()
        self._say(f"S3 IS DOWN; sent so far: {sent.count:,} records")
        red = self._await(self._are_all_red, min(seconds, PATIENCE_SECONDS), "all checks are red") - down
        if red > RED_SECONDS:
            problems.append(f"red after {red:.0f} s")
        self._await(lambda: time.monotonic() - down >= seconds, seconds + 1, "the outage is long enough")
        start_servers((store,))
        up = time.monotonic()
        self._say(f"S3 IS UP after {up - down:.0f} s; sent so far: {sent.count:,} records")
        self._await(lambda: "over" in self._messages, PATIENCE_SECONDS, "it was told to be over")
        sent.end()
        self._await(lambda: self._archived() == sent.each, PATIENCE_SECONDS, f"all {sent.count:,} records are archived")
        problems += self._compare(sent.each)
        if self._messages != ["began", "over"] or len(self._mailed.mails) != len(self._messages):
            problems.append(f"messages: {self._messages}, mails: {len(self._mailed.mails)}")
        return problems

    @property
    def _messages(self) -> list[str]:
        return [message["event"] for message in self._hook.taken]

    def _say(self, what: str) -> None:
        print(f"{time.monotonic() - self._started:7.1f} s  {what}", flush=True)

    def _await(self, is_so: Callable[[], bool], seconds: float, what: str) -> float:
        """Watch until it is so. Return when that was."""
        until = time.monotonic() + seconds
        while not is_so():
            self._look()
            if time.monotonic() > until:
                raise TimeoutError(f"after {seconds:.0f} s, it is not so that {what}")
            time.sleep(1)
        self._look()
        self._say(what)
        return time.monotonic()

    def _look(self) -> None:
        ended = [r.dagster_run for r in self._instance.get_run_records(limit=50) if r.dagster_run.is_finished]
        for run in filter(lambda run: self._is_new(run.run_id), ended):
            self._say(f"run {run.run_id[:8]} of {run.job_name}: {run.status.value}")
            self._succeeded += run.is_success
        for number, message in enumerate(self._hook.taken):
            if self._is_new(("webhook", number)):
                self._say(f"WEBHOOK {message['event']}: {message['title']} ({', '.join(message['names'])})")
        for number, mail in enumerate(self._mailed.mails):
            if self._is_new(("mail", number)):
                self._say(f"MAIL {mail['Subject']}")
        for key, passed in self._checks().items():
            if self._is_new((key, self._checked_at[key], passed)):
                self._say(f"check of {key}: {'passed' if passed else 'FAILED'}")

    def _is_new(self, what: object) -> bool:
        is_new = what not in self._told
        self._told.add(what)
        return is_new

    def _checks(self) -> Mapping[str, bool]:
        """Return whether the newest check `at_risk` of each topic has passed."""
        wanted = [
            dg.AssetCheckKey(dg.AssetKey([name, "kafka", topic]), "at_risk") for name in CONNECTORS for topic in TOPICS
        ]
        found = self._instance.event_log_storage.get_latest_asset_check_execution_by_key(wanted)
        names = {key.asset_key.to_user_string(): record for key, record in found.items()}
        self._checked_at = {name: record.create_timestamp for name, record in names.items()}
        return {name: record.status.value == "SUCCEEDED" for name, record in names.items()}

    def _are_all_red(self) -> bool:
        checks = self._checks()
        return len(checks) == len(CONNECTORS) * len(TOPICS) and not any(checks.values())

    def _archived(self) -> Mapping[str, int]:
        """Return how many records of each topic both connectors have archived: the smaller number."""
        return {t: min(read(c, t).count_rows() for c in CONNECTORS) for t in TOPICS}

    def _compare(self, sent: Mapping[str, int]) -> Sequence[str]:
        wrong = []
        for name in CONNECTORS:
            for topic, count in sent.items():
                values = read(name, topic).to_table(columns=["value"])["value"].to_pylist()
                if sorted(map(int, values)) != list(range(count)):
                    wrong.append(f"{name}, {topic}: {len(values):,} values of {count:,}, or not each once")
        return wrong


class Load:
    """Writes numbers to the topics until it is ended."""

    def __init__(self, servers: str) -> None:
        self.each = dict.fromkeys(TOPICS, 0)
        self._producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
        self._ended = Event()
        self._thread = Thread(target=self._write, daemon=True)
        self._thread.start()

    @property
    def count(self) -> int:
        return sum(self.each.values())

    def end(self) -> None:
        """Stop, and wait until the broker has all."""
        self._ended.set()
        self._thread.join()
        if left := self._producer.flush(30):
            raise RuntimeError(f"{left} records were not sent")

    def _write(self) -> None:
        while not self._ended.wait(0.1):
            for topic in TOPICS:
                for _ in range(3):
                    self._producer.produce(topic, value=str(self.each[topic]).encode())
                    self.each[topic] += 1
            self._producer.poll(0)


@contextmanager
def _producing(servers: str) -> Iterator[Load]:
    load = Load(servers)
    try:
        yield load
    finally:
        load.end()


def _write_home(base: Path, stack: StackSettings, hook_url: str, mail_port: int) -> Mapping[str, str]:
    """Write Dagster's home and the connectors' files. Return the environment of the daemon."""
    home, folder = base / "home", base / "connectors"
    home.mkdir()
    folder.mkdir()
    (folder / "worker.properties").write_text(f"bootstrap.servers={stack.bootstrap_servers}\n")
    keys = {
        "topics": ",".join(TOPICS),
        "s3.bucket.name": stack.bucket,
        "s3.region": "us-east-1",
        "store.url": stack.s3_endpoint,
        "aws.access.key.id": stack.aws_access_key_id,
        "aws.secret.access.key": stack.aws_secret_access_key,
        "rotate.schedule.interval.ms": "60000",
        "archive.start.hour": f"{datetime.now(timezone.utc):%Y-%m-%dT%H:00}",
    }
    for name in CONNECTORS:
        (folder / f"{name}.json").write_text(json.dumps({"name": name, "topics.dir": name, **keys}))
    (home / "dagster.yaml").write_text(Path("dagster.yaml").read_text().replace(".dagster", str(home / ".dagster")))
    (base / "spark.properties").write_text("spark.master=local[1]\nspark.driver.memory=512m\n")
    return {
        "DAGSTER_HOME": str(home),
        "KAFKA_S3_CONNECTORS": str(folder),
        "KAFKA_S3_AUTOSTART": "1",
        "KAFKA_S3_WARM_SPARK": "1",
        "KAFKA_S3_SPARK_CONF": str(base / "spark.properties"),
        "XDG_RUNTIME_DIR": str(base),
        "KAFKA_S3_ALERT_WEBHOOK_URL": hook_url,
        "KAFKA_S3_ALERT_EMAIL_TO": "one@example.com",
        "KAFKA_S3_ALERT_EMAIL_FROM": "archive@example.com",
        "KAFKA_S3_ALERT_SMTP_HOST": "127.0.0.1",
        "KAFKA_S3_ALERT_SMTP_PORT": str(mail_port),
        "KAFKA_S3_ALERT_SMTP_SECURITY": "none",
    }


@contextmanager
def _running_daemon(base: Path) -> Iterator[None]:
    command = [
        sys.executable,
        "-m",
        "dagster._daemon",
        "run",
        "-m",
        "kafka_s3_platform.definitions",
        "-d",
        str(Path.cwd()),
    ]
    with (base / "daemon.log").open("wb") as log:
        daemon = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *command], cwd=base / "home", stdout=log, stderr=log
        )
        try:
            yield
        finally:
            daemon.terminate()
            daemon.wait(60)


if __name__ == "__main__":
    main()
