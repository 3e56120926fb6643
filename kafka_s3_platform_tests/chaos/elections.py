"""One restore to a topic on two of three brokers, whose leader dies, and what is in its target after it.

The follower dies first where its election is to lose something, and the leader dies as soon as it is in sync alone.
Then the follower is elected uncleanly. Another writer may fill its log up to where the first one ended. A restore may
refuse what it finds then, or send what is missing. It may never call verified what lacks a record.
"""

import faulthandler
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

from pydantic import SecretStr

from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.errors import PermanentError
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.restore.archive_source import ArchiveSource
from kafka_s3_platform.core.restore.preflight.begin import read_stored_report
from kafka_s3_platform.core.restore.request import Delivery, RestoreReport, RestoreRequest
from kafka_s3_platform.core.restore.run import restore
from kafka_s3_platform.core.store.objects import ObjectStore
from kafka_s3_platform_tests.chaos.checker import Verdict
from kafka_s3_platform_tests.chaos.kills import TRANSACTION_TIMEOUT_MS, await_soon, describe_end
from kafka_s3_platform_tests.chaos.world import Outcome, Servers
from kafka_s3_platform_tests.cluster.brokers import Cluster
from kafka_s3_platform_tests.conftest import fresh_bucket
from kafka_s3_platform_tests.faults.broker import end_as_the_error_says, kafka_jvm
from kafka_s3_platform_tests.faults.children import Child
from kafka_s3_platform_tests.kafka.topics import records_of, until
from kafka_s3_platform_tests.restore.own import ReadingBack
from kafka_s3_platform_tests.support import NOON, Sent, archived, connector, produce

KAFKA_PARTITIONS = 2
RECORDS = 200
RECORDS_PER_SECOND = 100.0
LEADER, FOLLOWER = 2, 3
"""The brokers that hold the target."""

DELIVERIES: tuple[Delivery, ...] = ("exactly_once", "at_least_once")
MOMENTS = ("while it sends", "between two runs", "after it was read back")
CHANGES = (
    "another in sync leads",
    "the first leads again",
    "unclean, left short",
    "unclean, filled by others",
    "unclean, filled with copies",
    "unclean, filled by others, the first leads again",
)
CASES = tuple(product(DELIVERIES, MOMENTS, CHANGES))
"""The seed's number chooses one: so many seeds in a row play them all."""

RUNS = 6
"""So many runs of the id follow the election at most."""

RUN_SECONDS = 240.0
"""A run waits for open transactions more than once, half a minute each time."""

REFUSED = 3
"""Exit status of a run that ended with an error for which somebody has to change something."""

_COMPARED = ["key", "value", "headers", "timestamp"]
Rows = Sequence[dict[str, Any]]


def run_restore(log: Path, gate: Path | None, asked: RestoreRequest) -> None:
    """What the process of a restore does. With a gate, it waits there after it has read back what it sent."""
    # One that hangs tells where it does.
    faulthandler.dump_traceback_later(RUN_SECONDS - 10)
    runner = ReadingBack() if gate is None else ReadingBack(after_replay=partial(_wait_at, gate))
    try:
        restore(ArchiveSource(asked), runner)
    except PermanentError:
        traceback.print_exc()
        sys.exit(REFUSED)


def _wait_at(gate: Path) -> None:
    gate.mkdir()
    until(lambda: not gate.exists())


@dataclass(frozen=True)
class ClusterArchive:
    """What all seeds restore, and the cluster that they restore it to."""

    cluster: Cluster
    config: ConnectorConfig
    expected: Sequence[Rows]


@contextmanager
def made_archive(servers: Servers, cluster: Cluster) -> Iterator[ClusterArchive]:
    """An archive in a bucket of its own. Every second record is as the one before it."""
    topic = f"elections-{uuid4().hex[:12]}"
    with ClusterAdmin(cluster.kafka) as admin:
        admin.create_topic(topic, KAFKA_PARTITIONS)
    sent = [
        Sent(b"%d" % (n // 2), b"k%d" % (n % 7), NOON, (("h", b"%d" % p),), p)
        for p in range(KAFKA_PARTITIONS)
        for n in range(RECORDS)
    ]
    produce(cluster.kafka, topic, sent, acks="all")
    timeout = SecretStr(str(TRANSACTION_TIMEOUT_MS))
    kafka = cluster.kafka.model_copy(update={"producer": {"transaction.timeout.ms": timeout}})
    with fresh_bucket(servers.s3_client) as bucket:
        config = connector(kafka, servers.store.model_copy(update={"bucket": bucket}), topic)
        archived(config)
        yield ClusterArchive(cluster, config, [_read(config, topic, p) for p in range(KAFKA_PARTITIONS)])


def run(archive: ClusterArchive, seed: str) -> Outcome:
    """Play the seed's case. The seed draws when the brokers die."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="elections-") as folder:
        play = _Play(archive, int(seed), Path(folder))
        try:
            play.run()
        except Exception as err:  # noqa: BLE001 - the other seeds are played all the same
            play.fail("defect", f"{err!r}\n{play.said[-3000:]}")
        finally:
            play.end()
    play.outcome.seconds = time.monotonic() - begun
    return play.outcome


@dataclass
class _Play:
    archive: ClusterArchive
    seed: int
    folder: Path
    outcome: Outcome = field(init=False)
    _children: list[Child] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.delivery, self.moment, self.change = CASES[self.seed % len(CASES)]
        self.random = Random(f"elections {self.seed}")
        self.outcome = Outcome(str(self.seed))
        self.cluster, name = self.archive.cluster, uuid4().hex[:12]
        self.target = f"{self.archive.config.topics[0]}-{name}"
        self.asked = RestoreRequest(
            self.archive.config,
            self.archive.config.topics[0],
            self.target,
            name,
            "run",
            delivery=self.delivery,
            records_per_second=RECORDS_PER_SECOND,
        )
        self.gate = self.folder / "gate"
        self.say(f"{self.delivery}, {self.change}, {self.moment}")

    def run(self) -> None:
        self.cluster.create_topic(self.target, KAFKA_PARTITIONS, LEADER, FOLLOWER)
        child = self._start()
        if self.change.startswith("unclean"):
            self._await_records(self.random.uniform(0, 0.5), child)
            self.say(f"the follower dies at {self._ends()}")
            self.cluster.lose(self.target, FOLLOWER)
        self._await_records(self.random.uniform(0.5, 0.9), child)
        if self.moment == "after it was read back":
            await_soon(lambda: self.gate.exists() or child.has_ended, "all to be sent")
        if self.moment == "between two runs":
            child.kill()
        self._change_leaders()
        if self.gate.exists():
            self.gate.rmdir()
        self._finish(child)

    def end(self) -> None:
        """End what this play has started, and have all brokers run."""
        for child in self._children:
            child.kill()
        self.cluster.start(LEADER)
        self.cluster.start(FOLLOWER)

    @property
    def said(self) -> str:
        """What the last run has written to its standard error."""
        return self._children[-1].said if self._children else ""

    def fail(self, kind: Any, message: str) -> None:
        self.outcome.verdicts.append(Verdict(kind, message))

    def say(self, line: str) -> None:
        self.outcome.log.append(line)

    def _start(self) -> Child:
        waits = self.moment == "after it was read back" and not self._children
        log = self.folder / f"{len(self._children)}.log"
        asked = replace(self.asked, run_id=f"run-{len(self._children)}")
        self._children.append(Child(log, run_restore, log, self.gate if waits else None, asked))
        return self._children[-1]

    def _ends(self) -> list[int]:
        with ClusterAdmin(self.cluster.kafka) as admin:
            logs = admin.frontiers(self.target, range(KAFKA_PARTITIONS))
        return [logs[number].high_watermark for number in range(KAFKA_PARTITIONS)]

    def _await_records(self, share: float, child: Child) -> None:
        count = share * RECORDS * KAFKA_PARTITIONS
        await_soon(lambda: child.has_ended or sum(self._ends()) >= count, "records")

    def _change_leaders(self) -> None:
        self.outcome.told[f"{self.moment}: {self.change}"] += 1
        before = self._ends()
        self.cluster.kill(LEADER)
        if not self.change.startswith("unclean"):
            self.cluster.await_leader(self.target, FOLLOWER)
        else:
            self.cluster.start(FOLLOWER)
            self.cluster.elect(self.target, FOLLOWER, is_unclean=True)
        after = self._ends()
        self.say(f"the leader dies at {before}, the other one begins at {after}")
        if "filled" in self.change:
            self._fill(before, after)
        if "first leads again" in self.change:
            self.cluster.start(LEADER)
            self.cluster.await_leader(self.target, FOLLOWER, LEADER)
            self.cluster.elect(self.target, LEADER, FOLLOWER)

    def _fill(self, before: Sequence[int], after: Sequence[int]) -> None:
        """Write as many records as were lost, while the restore may be sending.

        Copies are those of the records that had these offsets, but for the ends of transactions: of these, a few lack.
        """
        for number, rows in enumerate(self.archive.expected):
            lost = range(after[number], before[number])
            if "copies" in self.change:
                copied = rows[lost.start : lost.stop]
                sent = [Sent(r["value"], r["key"], r["timestamp"], _headers(r), number) for r in copied]
            else:
                sent = [Sent(b"foreign", None, NOON, (), number) for _ in lost]
            produce(self.cluster.kafka, self.target, sent)
            self.say(f"another writer adds {len(sent)} records to {number}")

    def _finish(self, child: Child) -> None:
        """Run the id again until it is finished, or is refused twice."""
        refused = 0
        for _ in range(RUNS):
            await_soon(lambda c=child: c.has_ended, "the end of a run", RUN_SECONDS)  # type: ignore[misc]
            refused += self._note_end(child) == REFUSED
            report = read_stored_report(self.asked, ObjectStore(self.asked.config.restore_store))
            if report is not None:
                self._judge(report)
                return
            if refused == 2:
                self.outcome.ends["refused twice"] += 1
                if not self.change.startswith("unclean"):
                    self.fail("wedged", "refused, though nothing was lost")
                return
            child = self._start()
        self.fail("wedged", f"not finished after {RUNS} more runs: {child.said[-600:]}")

    def _note_end(self, child: Child) -> int:
        end = describe_end(child)
        if child.wait() > 0 and "[KS-" not in end:
            self.fail("defect", child.said[-1500:])
        self.outcome.note_end(end)
        if "[KS-KAFKA-TRANSACTION]" in end:
            # The election has taken the end of a transaction out of the log. Nobody else ends it.
            with kafka_jvm(self.cluster.brokers[0].settings.cache) as jvm:
                end_as_the_error_says(jvm, self.cluster.kafka.bootstrap_servers, end)
        return child.wait()

    def _judge(self, report: RestoreReport) -> None:
        self.outcome.records = RECORDS * KAFKA_PARTITIONS
        counted = (report.record_count, report.foreign_count, report.doubled_count)
        self.say(f"verified={report.verified}, records, foreign, doubled: {counted}")
        extra = 0
        for number, wanted in enumerate(self.archive.expected):
            found = _read(self.archive.config, self.target, number)
            missing = count_missing(wanted, found)
            if missing:
                self.fail(
                    "lost", f"{number}: {missing} of {len(wanted)} records are missing, verified={report.verified}"
                )
            extra += len(found) - len(wanted)
        if extra != report.foreign_count + report.doubled_count:
            self.fail("defect", f"{extra} records more than were archived, the report has {counted}")
        if extra and self.delivery == "exactly_once" and "filled" not in self.change:
            self.fail("twice", f"{extra} records more than were archived")


def count_missing(wanted: Rows, found: Rows) -> int:
    """Count the records from the first one on that cannot be found in order."""
    rest = iter(found)
    return next((len(wanted) - n for n, row in enumerate(wanted) if row not in rest), 0)


def _read(config: ConnectorConfig, topic: str, kafka_partition: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = records_of(config.kafka, topic, kafka_partition).select(_COMPARED).to_pylist()
    return rows


def _headers(row: dict[str, Any]) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((header["key"], header["value"]) for header in row["headers"] or ())
