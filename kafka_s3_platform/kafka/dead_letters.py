"""Records that cannot be archived as asked: refused, logged, or sent to the dead letter topic as they were.

Source of names and values: Apache Kafka Connect, DeadLetterQueueReporter and LogReporter.
"""

import logging
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.config.settings import ErrorSettings, KafkaSettings
from kafka_s3_platform.errors import ConfigError, IntegrityError, PermanentError, PlatformError, RecordError
from kafka_s3_platform.kafka.admin import ClusterAdmin
from kafka_s3_platform.kafka.batches import read_offset_column
from kafka_s3_platform.kafka.produce.producer import ReplayProducer
from kafka_s3_platform.model.connect import RecordFailure
from kafka_s3_platform.model.record import RECORD_SCHEMA

logger = logging.getLogger(__name__)

# Connect's prefix, so that tools for its dead letter queues read these too.
HEADER_PREFIX = "__connect.errors."
TASK_ID = "0"
"""`task.id` of every dead letter: there are no Connect tasks here."""

KAFKA_PARTITION = 0
"""The kafka partition of the dead letter topic that gets all letters; a topic that we create has no other."""

LOGGED_BYTES = 1_000
"""Bytes of a key or value that a log line shows."""

Header = dict[str, Any]


def check_tolerance(errors: ErrorSettings, failures: Sequence[RecordFailure], topic: str, kafka_partition: int) -> None:
    """Raise RecordError for the first of `failures`, unless `errors.tolerance` is `all`."""
    if errors.tolerance == "all" or not failures:
        return
    first = min(failures, key=lambda failure: failure.offset)
    raise RecordError(
        f"{_describe_failure(first, topic, kafka_partition)}. Nothing of this run's range is committed. Correct the "
        f"connector file if it asks for what the records do not hold; or set errors.tolerance=all, and name a dead "
        f"letter topic in errors.deadletterqueue.topic.name, to archive the others"
    )


@final
class DeadLetterQueue:
    """Sends the dead letters of one task to the connector's dead letter topic. Without such a topic, it only logs.

    Letters keep the record's key, value, headers and timestamp (a record without one, or with timestamp 0, gets the
    time of sending). When `flush` returns, every letter is delivered, at least once: a task that fails or is killed
    before its range is committed to the index sends its letters again when the range is repeated. A transaction for
    each task would not change that, since the index is committed later and elsewhere. Repeated letters have the same
    headers `topic`, `partition` and `offset`.
    """

    def __init__(self, kafka: KafkaSettings, errors: ErrorSettings, connector: str, topic: str) -> None:
        self._kafka = kafka
        self._errors = errors
        self._connector = connector
        self._topic = topic
        self._producer: ReplayProducer | None = None

    def __enter__(self) -> "DeadLetterQueue":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._producer is not None:
            self._producer.close()

    def send(self, records: pa.RecordBatch, failures: Sequence[RecordFailure]) -> None:
        """Queue a letter for each failed record, which is found by its offset in `records` (RECORD_SCHEMA, as read).

        A record gets one letter, also if several things made of it failed. The topic is created with the first letter.
        Raises ConfigError if the cluster has too few brokers for it, and the errors of delivering letters.
        """
        if not failures:
            return
        once = {failure.offset: failure for failure in reversed(failures)}
        picked = [once[offset] for offset in sorted(once)]
        failed = records.take(pa.array(self._positions(records, picked)))
        if self._errors.log_enable:
            self._log(failed, picked)
        if self._errors.dead_letter_topic is not None:
            self._deliver(failed, picked)

    def flush(self) -> None:
        """Wait until all in-sync replicas have acknowledged every letter. Raises the error of one that was not."""
        if self._producer is None:
            return
        try:
            self._producer.flush()
        except PlatformError as err:
            raise self._explained(err) from err

    def _positions(self, records: pa.RecordBatch, failures: Sequence[RecordFailure]) -> np.ndarray:
        known = read_offset_column(records)
        wanted = np.array([f.offset for f in failures], np.int64)
        found = np.searchsorted(known, wanted)
        if not len(known) or (known[np.minimum(found, len(known) - 1)] != wanted).any():
            raise IntegrityError(
                f"{self._topic}: failures at offsets {wanted[0]} to {wanted[-1]} are not among the records of their "
                f"batch. This is a defect of the platform; nothing was committed"
            )
        return found

    def _deliver(self, failed: pa.RecordBatch, failures: Sequence[RecordFailure]) -> None:
        try:
            if self._producer is None:
                self._producer = self._open()
            self._producer.send(self._letters(failed, failures), KAFKA_PARTITION)
        except PlatformError as err:
            raise self._explained(err) from err

    def _open(self) -> ReplayProducer:
        topic = self._dead_letter_topic
        with ClusterAdmin(self._kafka) as admin:
            if not admin.topic_exists(topic):
                self._create(admin)
            max_message_bytes = int(admin.topic_configs(topic)["max.message.bytes"])
        return ReplayProducer(self._kafka, topic, max_message_bytes=max_message_bytes, allow_now=True)

    def _create(self, admin: ClusterAdmin) -> None:
        factor = self._errors.dead_letter_replication_factor
        try:
            admin.create_topic(self._dead_letter_topic, 1, factor)
        except ConfigError as err:
            raise ConfigError(
                f"{err}: errors.deadletterqueue.topic.replication.factor is {factor}, set it to the number of brokers "
                f"or less"
            ) from err
        except PermanentError:
            # tasks of one run may create it at the same time
            if not admin.topic_exists(self._dead_letter_topic):
                raise

    @property
    def _dead_letter_topic(self) -> str:
        return str(self._errors.dead_letter_topic)

    def _letters(self, failed: pa.RecordBatch, failures: Sequence[RecordFailure]) -> pa.RecordBatch:
        """Return the records with headers that tell why they failed."""
        columns = {name: failed.column(name) for name in RECORD_SCHEMA.names}
        # librdkafka reads 0 as "now", and cannot send a record without a timestamp.
        stamps = pc.max_element_wise(columns["timestamp"].cast(pa.int64()), pa.scalar(0, pa.int64()))
        columns["timestamp"] = stamps.cast(RECORD_SCHEMA.field("timestamp").type)
        if self._errors.dead_letter_headers:
            kafka_partitions = columns["partition"].to_pylist()
            own = zip(columns["headers"].to_pylist(), kafka_partitions, failures, strict=True)
            headers = [_add_headers(known or [], self._context(failure, p)) for known, p, failure in own]
            columns["headers"] = pa.array(headers, RECORD_SCHEMA.field("headers").type)
        return pa.RecordBatch.from_arrays(list(columns.values()), schema=RECORD_SCHEMA)

    def _context(self, failure: RecordFailure, kafka_partition: int) -> Iterable[Header]:
        reason = f"{failure.exception}: {failure.message}"
        context = {
            "topic": self._topic,
            "partition": str(kafka_partition),
            "offset": str(failure.offset),
            "connector.name": self._connector,
            "task.id": TASK_ID,
            "stage": failure.stage,
            "class.name": failure.executing_class,
            "exception.class.name": failure.exception,
            "exception.message": failure.message,
            "exception.stacktrace": f"{reason}\n\tat {failure.executing_class}\n",
        }
        return ({"key": HEADER_PREFIX + name, "value": text.encode()} for name, text in context.items())

    def _log(self, failed: pa.RecordBatch, failures: Sequence[RecordFailure]) -> None:
        contents = failed.select(["partition", "key", "value"]).to_pylist()
        for failure, record in zip(failures, contents, strict=True):
            told = _describe_failure(failure, self._topic, record["partition"])
            content = f"; key {_show_content(record['key'])}, value {_show_content(record['value'])}"
            logger.error("%s%s", told, content if self._errors.log_include_messages else "")

    def _explained(self, err: PlatformError) -> PlatformError:
        return type(err)(f"dead letters of connector {self._connector}, topic {self._topic}: {err}")


def _add_headers(known: list[Header], context: Iterable[Header]) -> list[Header]:
    """Add headers. As in Connect, one that the record has already stays as it is."""
    names = {header["key"] for header in known}
    return [*known, *(header for header in context if header["key"] not in names)]


def _describe_failure(failure: RecordFailure, topic: str, kafka_partition: int) -> str:
    return (
        f"{topic}-{kafka_partition}@{failure.offset}: the record cannot be archived as asked, {failure.stage} by "
        f"{failure.executing_class} failed: {failure.exception}: {failure.message}"
    )


def _show_content(content: bytes | None) -> str:
    if content is None:
        return "null"
    return repr(content[:LOGGED_BYTES]) + ("..." if len(content) > LOGGED_BYTES else "")
