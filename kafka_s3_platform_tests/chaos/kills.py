"""One restore that is killed and stopped, at moments and in processes by a seed, and what is in its target after it.

The processes are real ones: a restore's own, and those of a Spark of its own or of a warm one. One that is stopped is
woken up when another run of the restore id has finished. The target is compared with that of a restore that nobody
disturbed: each kafka partition's records of each source, in order, with keys, values, headers and times.
"""

import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import psutil
from pydantic import SecretStr

from kafka_s3_platform.core.config import environment
from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.defs.resources import start_session
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.restore.archive_source import ArchiveSource
from kafka_s3_platform.core.restore.preflight.begin import read_stored_report
from kafka_s3_platform.core.restore.request import Outgoing, RecordFilter, RestoreRequest
from kafka_s3_platform.core.restore.run import restore
from kafka_s3_platform.core.spark.runner import SparkRunner
from kafka_s3_platform.core.spark.session import DAEMON_MODULE
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform.operate.defs.warm_spark import choose_runner
from kafka_s3_platform_tests.chaos.checker import Kind, Verdict
from kafka_s3_platform_tests.chaos.world import Outcome, Servers
from kafka_s3_platform_tests.conftest import fresh_bucket
from kafka_s3_platform_tests.faults.children import Child
from kafka_s3_platform_tests.kafka.topics import records_of
from kafka_s3_platform_tests.support import NOON, InProcessRunner, Sent, archived, connector, is_spark_worker, produce

KAFKA_PARTITIONS = 3
RECORDS = 400
"""Of each kafka partition. Every second one is as the one before it, so that only its place tells a repeated one."""

RECORDS_PER_SECOND = 300.0
TRANSACTION_TIMEOUT_MS = 6000
"""A transaction ends after a third of its timeout at the latest: there are several in each stream."""

WAIT_SECONDS = 120.0
LAST_RUNS = 5
_COMPARED = ["key", "value", "headers", "timestamp"]
_MARK = "KILLS_OF"

KINDS: dict[str, dict[str, Any]] = {
    "exactly once": {},
    "at least once": {"delivery": "at_least_once"},
    "latest per key": {"records": RecordFilter(latest_per_key=True)},
    "sql": {"records": RecordFilter(sql="octet_length(value) > 2")},
    "by key": {"outgoing": Outgoing(partitioning="murmur2")},
}
VICTIMS = {
    "no Spark": ("client",),
    "local Spark": ("client", "java", "daemon", "worker"),
    "warm Spark": ("client", "server", "java", "daemon", "worker"),
}
TAKES_RUN_ALONG = frozenset({"client", "server", "java"})
"""Without these a run ends. A worker, and the daemon that forks them, are made good by Spark."""

ORPHANS = 0.4
"""How often a worker is stopped before the process is killed that it works for."""

ORPHAN_SECONDS = 8.0
"""How long an awakened worker may go on before the target is compared: for longer than it may send unasked."""

Target = dict[tuple[int, bytes], list[dict[str, Any]]]


def run_restore(log: Path, environ: Mapping[str, str], spark: str, asked: RestoreRequest) -> None:
    """What the process of a restore does."""
    os.environ.update(environ)
    tempfile.tempdir = None
    os.chdir(log)
    if spark == "no Spark":
        restore(ArchiveSource(asked), InProcessRunner())
        return
    own = SparkRunner(start_session)
    restore(ArchiveSource(asked), choose_runner(own, "local[2,4]") if spark == "warm Spark" else own)


@dataclass
class Archive:
    """What all seeds restore."""

    config: ConnectorConfig
    expected: dict[str, Target] = field(default_factory=dict)

    def read(self, to_topic: str) -> Target:
        found: Target = {}
        for number in range(KAFKA_PARTITIONS):
            for row in records_of(self.config.kafka, to_topic, number).select(_COMPARED).to_pylist():
                found.setdefault((number, row["headers"][0]["value"]), []).append(row)
        return found

    def ask(self, kind: str, name: str) -> RestoreRequest:
        topic = self.config.topics[0]
        target = f"{topic}-{name}"
        return RestoreRequest(self.config, topic, target, name, f"run-{uuid4()}", create_topic=True, **KINDS[kind])


@contextmanager
def made_archive(servers: Servers) -> Iterator[Archive]:
    """An archive in a bucket of its own."""
    with fresh_bucket(servers.s3_client) as bucket:
        yield _make_archive(servers, bucket)


def _make_archive(servers: Servers, bucket: str) -> Archive:
    """Archive records of a few keys, and restore them in each way without disturbance."""
    topic = f"kills-{uuid4().hex[:12]}"
    with ClusterAdmin(servers.kafka) as admin:
        admin.create_topic(topic, KAFKA_PARTITIONS)
    sent = [
        Sent(b"%d" % (n // 2), b"k%d" % (n % 90), NOON, (("source", b"%d" % p), ("empty", None)), p)
        for p in range(KAFKA_PARTITIONS)
        for n in range(RECORDS)
    ]
    produce(servers.kafka, topic, sent)
    kafka = servers.kafka.model_copy(
        update={"producer": {"transaction.timeout.ms": SecretStr(str(TRANSACTION_TIMEOUT_MS))}}
    )
    archive = Archive(connector(kafka, servers.store.model_copy(update={"bucket": bucket}), topic))
    archived(archive.config)
    for kind in KINDS:
        asked = archive.ask(kind, f"undisturbed-{kind.replace(' ', '-')}")
        assert restore(ArchiveSource(asked), InProcessRunner()).verified
        archive.expected[kind] = archive.read(asked.to_topic)
    return archive


def run(archive: Archive, seed: str, sparks: tuple[str, ...] = tuple(VICTIMS)) -> Outcome:
    """Play the seed's restore. The same seed draws the same restore, processes and moments."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kills-", ignore_cleanup_errors=True) as folder:
        play = _Play(archive, Random(f"kills {seed}"), Outcome(seed), Path(folder), sparks)
        try:
            play.run()
        except TimeoutError as err:
            play.fail("hung", str(err))
        except Exception as err:  # noqa: BLE001 - the other seeds are played all the same
            play.fail("defect", repr(err))
        finally:
            play.end()
    play.outcome.seconds = time.monotonic() - begun
    return play.outcome


class _Play:
    def __init__(
        self, archive: Archive, random: Random, outcome: Outcome, folder: Path, sparks: tuple[str, ...]
    ) -> None:
        self.archive, self.random, self.outcome, self._folder = archive, random, outcome, folder
        self.spark = random.choice(sparks)
        self.kind = random.choice(tuple(KINDS))
        self.asked = replace(archive.ask(self.kind, uuid4().hex[:12]), records_per_second=RECORDS_PER_SECOND)
        self._children: list[Child] = []
        self._stopped: list[tuple[int, Child]] = []
        self._orphans: list[psutil.Process] = []
        self.say(f"{self.kind}, {self.spark}")

    def run(self) -> None:
        expected = sum(map(len, self.archive.expected[self.kind].values()))
        moments = sorted(self.random.uniform(0, 0.9) for _ in range(self.random.choice((1, 2, 2, 3))))
        with ClusterAdmin(self.asked.config.kafka) as admin:
            admin.create_topic(self.asked.to_topic, KAFKA_PARTITIONS)
            child = self._start()
            for moment in moments:
                name, is_stop = self.random.choice(VICTIMS[self.spark]), self.random.random() < 0.4
                if name not in {"client", "worker"}:
                    is_stop = False
                child = self._begin_again(child)
                await_soon(lambda c=child, m=moment: c.has_ended or self._count(admin) > m * expected, "records")  # type: ignore[misc]
                child = self._hit(child, name, is_stop, self._count(admin), expected)
        self._finish(child)
        self._wake()
        self._judge(expected)

    def end(self) -> None:
        """End what this play has started."""
        for child in self._children:
            child.kill()
        for process in self._processes():
            with suppress(psutil.Error):
                process.kill()

    def fail(self, kind: Kind, message: str) -> None:
        self.outcome.verdicts.append(Verdict(kind, f"{self.kind}, {self.spark}: {message}"))

    def say(self, line: str) -> None:
        self.outcome.log.append(line)

    def _count(self, admin: ClusterAdmin) -> int:
        logs = admin.frontiers(self.asked.to_topic, range(KAFKA_PARTITIONS))
        return sum(log.high_watermark for log in logs.values())

    def _start(self) -> Child:
        marked = {
            _MARK: str(self._folder),
            "XDG_RUNTIME_DIR": str(self._folder),
            environment.WARM_SPARK: "5" if self.spark == "warm Spark" else "0",
        }
        asked = replace(self.asked, run_id=f"run-{uuid4()}")
        log = self._folder / f"{len(self._children)}.log"
        self._children.append(Child(log, run_restore, self._folder, marked, self.spark, asked))
        return self._children[-1]

    def _begin_again(self, child: Child) -> Child:
        """Start another run if this one has ended by itself, for a reason that passes."""
        if not child.has_ended or self._report is not None:
            return child
        self._note_end(child)
        return self._start()

    def _hit(self, child: Child, name: str, is_stop: bool, count: int, expected: int) -> Child:
        """Kill or stop a process. Return the restore that goes on."""
        what = f"{'SIGSTOP' if is_stop else 'SIGKILL'} of the {name}"
        found = None if child.has_ended else self._find(child, name)
        if found is None:
            self.say(f"no {name} is there any more")
            self.outcome.ends[f"{self.spark}: no {name} was there any more"] += 1
            return child
        if name != "worker" and not is_stop and self.random.random() < ORPHANS:
            what += self._stop_worker(child)
        with suppress(psutil.NoSuchProcess):
            (found.suspend if is_stop else found.kill)()
        self.say(f"{what} at {count} offsets of {expected} records")
        self.outcome.told[f"{self.spark}: {what}"] += 1
        self.outcome.ends["hit before all was sent" if count < expected else "hit after all was sent"] += 1
        if is_stop:
            self._stopped.append((found.pid, child))
            return self._start()
        if name in TAKES_RUN_ALONG:
            self._await_end(child)
            return self._start()
        return child

    def _stop_worker(self, child: Child) -> str:
        """Stop a worker, which outlives the process that is killed next. Say so if there is one."""
        worker = self._find(child, "worker")
        if worker is None:
            return ""
        worker.suspend()
        self._orphans.append(worker)
        return ", a worker stopped before"

    def _find(self, child: Child, name: str) -> psutil.Process | None:
        if name == "client":
            return psutil.Process(child.pid)
        found = [process for process in self._processes() if _is(process, name)]
        return self.random.choice(found) if found else None

    def _processes(self) -> Iterator[psutil.Process]:
        """Those that a restore of this play has started."""
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get(_MARK) == str(self._folder):
                    yield process

    def _finish(self, child: Child) -> None:
        for _ in range(LAST_RUNS):
            self._await_end(child)
            if self._report is not None:
                return
            child = self._start()
        self.fail("wedged", f"not finished after {LAST_RUNS} more runs: {child.said[-600:]}")

    def _wake(self) -> None:
        """Wake those that were stopped. They have nothing to do any more, and have to notice it."""
        for pid, child in self._stopped:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
            self._await_end(child)
        for worker in self._orphans:
            end = "ended"
            try:
                worker.resume()
                worker.wait(ORPHAN_SECONDS)
            except psutil.NoSuchProcess:
                end = "was gone"
            except psutil.TimeoutExpired:
                end = "went on"
            self.outcome.ends[f"{self.spark}: a worker without its run {end}"] += 1

    def _await_end(self, child: Child) -> None:
        await_soon(lambda: child.has_ended, "the end of a run")
        self._note_end(child)

    def _note_end(self, child: Child) -> None:
        end = describe_end(child)
        if child.wait() > 0 and "[KS-" not in end:
            self.fail("defect", child.said[-1500:])
        self.outcome.note_end(end)

    @property
    def _report(self) -> Any:
        return read_stored_report(self.asked, ObjectStore(self.asked.config.restore_store))

    def _judge(self, expected: int) -> None:
        report = self._report
        if report is None:
            return
        self.outcome.records = expected
        wanted, found = self.archive.expected[self.kind], self.archive.read(self.asked.to_topic)
        if not report.verified or report.record_count != expected:
            self.fail("defect", f"the report says verified={report.verified}, {report.record_count} of {expected}")
        for verdict in compare(wanted, found):
            self.fail(verdict.kind, verdict.message)


def compare(wanted: Target, found: Target) -> Iterator[Verdict]:
    """Yield how a target differs from that of a restore that nobody disturbed."""
    for place in sorted(wanted.keys() | found.keys()):
        was, now = wanted.get(place, []), found.get(place, [])
        if was != now:
            kind: Kind = "lost" if len(now) < len(was) else "twice" if len(now) > len(was) else "altered"
            yield Verdict(kind, f"{place[0]}: {len(now)} of {len(was)} records of source {place[1].decode()}")


def describe_end(child: Child) -> str:
    """Return the error that ended a run, or a sentence."""
    errors = [line for line in child.said.splitlines() if "[KS-" in line and "Error: " in line]
    if errors:
        return errors[-1]
    return "a run was killed" if child.wait() else "a run ended well"


def _is(process: psutil.Process, name: str) -> bool:
    with suppress(psutil.Error):
        if name == "java":
            return process.name() == "java"
        if name == "worker":
            return is_spark_worker(process)
        if name == "daemon":
            parent = process.parent()
            return DAEMON_MODULE in process.cmdline() and parent is not None and parent.name() == "java"
        return any(child.name() == "java" for child in process.children())
    return False


def await_soon(done: Callable[[], bool], what: str, seconds: float = WAIT_SECONDS) -> None:
    """Wait until `done()`. Raises TimeoutError."""
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:.0f} s for {what}")
        time.sleep(0.02)
