"""A Kafka that may be killed, and what its log loses then.

Ends transactions of which a log has lost the end, as our errors say it is done.
"""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from py4j.java_gateway import JavaGateway

from kafka_s3_platform.core.java.runtime import find_java
from kafka_s3_platform.core.kafka.fetch.log_batches import parse_batches
from kafka_s3_platform.operate.local import stack as embedded
from kafka_s3_platform.operate.local.broker import Broker, fetch_kafka_jars
from kafka_s3_platform.operate.local.settings import StackSettings
from kafka_s3_platform_tests.conftest import QUICK_JAVA

HEADER_BYTES = 61


def start_broker(settings: StackSettings) -> None:
    """Start it if it does not run, and wait until it answers. The stack's other servers are not needed."""
    embedded.start_servers((Broker(settings),))


def kill_broker(settings: StackSettings) -> None:
    """SIGKILL, as a crash of its machine."""
    [broker] = [p for p in psutil.process_iter(["cmdline"]) if is_broker(p, settings)]
    broker.kill()
    broker.wait(30)


def is_broker(process: psutil.Process, settings: StackSettings) -> bool:
    line = process.info["cmdline"] or []
    return "java" in "".join(line[:1]) and any(str(settings.data_dir) in part for part in line)


def cut_log(settings: StackSettings, topic: str, offset: int) -> None:
    """Take the batches from `offset` on out of the log of kafka partition 0 of a killed broker.

    It then begins anew there, in another leader epoch: as a replica does that lagged behind and is elected uncleanly.
    """
    folder = settings.data_dir / "kafka" / "data" / f"{topic}-0"
    for log in folder.glob("*.log"):
        kept = [b for b in parse_batches(memoryview(log.read_bytes())) if b.last_offset < offset]
        os.truncate(log, sum(len(b.body) + HEADER_BYTES for b in kept))
        if not kept and int(log.stem):
            log.unlink()
    _forget_indexes(folder)


def lose_end(settings: StackSettings, group: str) -> None:
    """Take the end of the last transaction that committed an offset of `group` out of the log of a killed broker.

    Only where the group's offsets are kept; other kafka partitions of the transaction keep theirs.
    """
    name = group.encode()
    logs = (settings.data_dir / "kafka" / "data").glob("__consumer_offsets-*/*.log")
    [log] = [path for path in logs if name in path.read_bytes()]
    raw = log.read_bytes()
    batches = list(parse_batches(memoryview(raw)))
    [*_, writer] = [b.producer_id for b in batches if b.is_transactional and name in bytes(b.body)]
    [*_, end] = [n for n, b in enumerate(batches) if b.is_control and b.producer_id == writer]
    place = sum(len(b.body) + HEADER_BYTES for b in batches[:end])
    log.write_bytes(raw[:place] + raw[place + len(batches[end].body) + HEADER_BYTES :])
    _forget_indexes(log.parent)


def _forget_indexes(folder: Path) -> None:
    """The broker makes them anew when it starts."""
    for other in folder.iterdir():
        if other.suffix in {".index", ".timeindex", ".txnindex", ".snapshot"}:
            other.unlink()


_ADVICE = re.compile(
    r"`kafka-transactions\.sh --bootstrap-server \.\.\. abort --topic (\S+) --partition (\d+) --start-offset (\d+)`"
)


@contextmanager
def kafka_jvm(cache: Path) -> Iterator[Any]:
    """Kafka's own client of an admin."""
    gateway = JavaGateway.launch_gateway(
        classpath=f"{fetch_kafka_jars(cache)}/*",
        java_path=str(find_java()),
        javaopts=[*QUICK_JAVA],
        die_on_exit=True,
        redirect_stderr=sys.stderr,
    )
    try:
        yield gateway.jvm
    finally:
        gateway.shutdown()


def end_as_the_error_says(jvm: Any, servers: str, message: str) -> None:
    """Do what `kafka-transactions.sh abort` does. The tool is not among the jars that the embedded Kafka needs."""
    advice = _ADVICE.search(message)
    assert advice is not None, message
    end_transaction(jvm, servers, advice[1], int(advice[2]), int(advice[3]))


def end_transaction(jvm: Any, servers: str, topic: str, kafka_partition: int, start_offset: int) -> None:
    kafka, place = jvm.org.apache.kafka, jvm.org.apache.kafka.common.TopicPartition(topic, kafka_partition)
    settings = jvm.java.util.Properties()
    settings.put("bootstrap.servers", servers)
    admin = kafka.clients.admin.Admin.create(settings)
    states = admin.describeProducers(jvm.java.util.List.of(place)).partitionResult(place).get().activeProducers()
    [state] = [s for s in states if s.currentTransactionStartOffset().orElse(-1) == start_offset]
    spec = kafka.clients.admin.AbortTransactionSpec(
        place, state.producerId(), state.producerEpoch(), state.coordinatorEpoch().orElse(0)
    )
    admin.abortTransaction(spec).all().get()
    admin.close()
