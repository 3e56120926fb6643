"""Reads one kafka partition of a target back: its committed records, up to its end at the first look."""

import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa

from kafka_s3_platform.config.settings import KafkaSettings
from kafka_s3_platform.errors import LogTruncatedError, OpenTransactionError
from kafka_s3_platform.kafka.admin import ClusterAdmin
from kafka_s3_platform.kafka.new_reader import new_reader
from kafka_s3_platform.model.frontier import Frontier
from kafka_s3_platform.model.offsets import make_span

STABLE_SECONDS = 30.0
"""Longest wait for open transactions. The cluster confirms the end of a transaction before it writes it."""

POLL_SECONDS = 0.1


@dataclass(frozen=True)
class TargetLog:
    """Offsets `[start_offset, end_offset)` of a target with readable committed records.

    At `open_offset` an open transaction begins that hides the rest. It is None if nothing is hidden. `leader_epoch` is
    the epoch at the first look, None if it is unknown.
    """

    kafka: KafkaSettings = field(repr=False)
    topic: str
    kafka_partition: int
    start_offset: int
    end_offset: int
    open_offset: int | None = None
    leader_epoch: int | None = None

    def read(self) -> Iterator[pa.RecordBatch]:
        """Read its committed records. Their offsets may have holes."""
        for offsets in make_span(self.start_offset, self.end_offset):
            with new_reader(self.kafka, self.topic) as reader:
                yield from reader.read(self.kafka_partition, offsets)


def find_target_log(kafka: KafkaSettings, topic: str, kafka_partition: int, start_offset: int) -> TargetLog:
    """Look how far the target can be read now, from `start_offset` on.

    Raises:
        LogTruncatedError: the target no longer holds `start_offset`.
    """
    with ClusterAdmin(kafka) as admin:
        log = admin.frontiers(topic, [kafka_partition])[kafka_partition]
    return _make_target_log(kafka, topic, log, start_offset)


def _make_target_log(kafka: KafkaSettings, topic: str, log: Frontier, start_offset: int) -> TargetLog:
    _check_held(topic, log, start_offset)
    is_open = start_offset < log.high_watermark and log.last_stable_offset < log.high_watermark
    readable = max(start_offset, log.last_stable_offset) if is_open else log.high_watermark
    open_offset = log.last_stable_offset if is_open else None
    return TargetLog(kafka, topic, log.kafka_partition, start_offset, readable, open_offset, log.leader_epoch)


def read_target(
    kafka: KafkaSettings, topic: str, kafka_partition: int, start_offset: int
) -> Generator[pa.RecordBatch, None, None]:
    """Read all current records of the target from `start_offset` on, and no later ones.

    Raises:
        LogTruncatedError: it no longer holds `start_offset`.
        OpenTransactionError: an open transaction hides part of it.
    """
    with ClusterAdmin(kafka) as admin:
        frontier = await_settled_logs(admin, topic, [kafka_partition])[kafka_partition]
    log = _make_target_log(kafka, topic, frontier, start_offset)
    if log.open_offset is not None:
        raise explain_open_transaction(log)
    yield from log.read()


def await_settled_logs(
    admin: ClusterAdmin, topic: str, kafka_partitions: Iterable[int], seconds: float | None = None
) -> Mapping[int, Frontier]:
    """Wait until no transaction hides current records, or for `seconds`, by default `STABLE_SECONDS`.

    Return them up to there.
    """
    ends = {number: log.high_watermark for number, log in admin.frontiers(topic, kafka_partitions).items()}
    logs = await_stable_logs(admin, topic, ends, seconds)
    # Do not wait for later records of others: they may never stop.
    return {p: replace(log, high_watermark=min(ends[p], log.high_watermark)) for p, log in logs.items()}


def await_stable_logs(
    admin: ClusterAdmin, topic: str, ends: Mapping[int, int], seconds: float | None = None
) -> Mapping[int, Frontier]:
    """Wait until no transaction hides anything below `ends`, or for `seconds`, by default `STABLE_SECONDS`.

    Return the logs.
    """
    deadline = time.monotonic() + (STABLE_SECONDS if seconds is None else seconds)
    while True:
        logs = admin.frontiers(topic, sorted(ends))
        is_stable = all(log.last_stable_offset >= min(ends[p], log.high_watermark) for p, log in logs.items())
        if is_stable or time.monotonic() > deadline:
            return logs
        time.sleep(POLL_SECONDS)


def explain_open_transaction(log: TargetLog) -> OpenTransactionError:
    """Build the error for a caller that needs the hidden records."""
    return OpenTransactionError(
        f"target {log.topic}-{log.kafka_partition}: a transaction is open at offset {log.open_offset}, what follows "
        f"cannot be read back. Run again under the same restore id when it has ended. If it does not end within its "
        f"producer's transaction.timeout.ms, the cluster has probably lost its end: end it with "
        f"`kafka-transactions.sh --bootstrap-server ... abort --topic {log.topic} --partition {log.kafka_partition} "
        f"--start-offset {log.open_offset}`, and run again"
    )


def _check_held(topic: str, log: Frontier, start_offset: int) -> None:
    if not log.log_start_offset <= start_offset <= log.high_watermark:
        raise LogTruncatedError(
            f"target {topic}-{log.kafka_partition} holds offsets [{log.log_start_offset}, {log.high_watermark}), "
            f"{start_offset} and what follows was restored to it: its retention deleted it, or its log was truncated. "
            f"Restore to another topic, under another restore id"
        )
