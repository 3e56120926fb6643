"""Ends transactions of which a log has lost the end, as our errors say it is done."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from py4j.java_gateway import JavaGateway

from kafka_s3_platform.java.runtime import find_java
from kafka_s3_platform.local.broker import fetch_kafka_jars
from kafka_s3_platform_tests.conftest import QUICK_JAVA

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
