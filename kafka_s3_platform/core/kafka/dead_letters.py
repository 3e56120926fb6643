"""Records that cannot be archived: they are refused, logged, or sent to the dead letter topic unchanged.

A *letter* is such a record in the dead letter topic, with headers that give the reason for its failure. Names and
values are taken from Apache Kafka Connect's DeadLetterQueueReporter and LogReporter.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError, KafkaException, Producer

from kafka_s3_platform.core.config.settings import ErrorSettings, KafkaSettings
from kafka_s3_platform.core.errors import (
    ConfigError,
    IntegrityError,
    PermanentError,
    PlatformError,
    PreflightError,
    RecordError,
)
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.kafka.client import Reasons, open_client
from kafka_s3_platform.core.kafka.failures import ENTAILED
from kafka_s3_platform.core.kafka.producer import (
    LARGEST_MESSAGE,
    POLL_SECONDS,
    ProducedRow,
    build_rows,
    find_sent_codec,
    read_milliseconds,
)
from kafka_s3_platform.core.model.batches import RECORD_SCHEMA, read_offset_column
from kafka_s3_platform.core.model.connect import (
    LETTER_ADVICE,
    LETTER_HEADER,
    LETTER_REFUSED,
    LETTER_RETURNED,
    RecordFailure,
    Stage,
)
from kafka_s3_platform.core.model.gaps import FOR_EVER, parse_retention_ms

logger = logging.getLogger(__name__)

# Connect's prefix, so that tools for its dead letter queues read these too.
HEADER_PREFIX = "__connect.errors."
MAX_LETTERS = 5
"""The number of letters that a connector makes of one record. Whoever sends letters again may need a few tries."""

TASK_ID = "0"
"""`task.id` of every dead letter: there are no Connect tasks here."""

KAFKA_PARTITION = 0
"""The kafka partition of the dead letter topic that gets all letters; a topic that we create has no other."""

LOGGED_BYTES = 1_000
"""The number of bytes of a key or value that a log line shows."""

HEADERS_BYTES = 65_536
"""The number of bytes by which a letter may exceed its record, in a topic that we create."""

MAX_REFUSED_ALONE = 100
"""Once this many letters have been refused one by one, the letters of a refused batch are not tried again."""

_FIXED: Mapping[str, Any] = {
    # A letter that is refused fails alone. With idempotence, everything else that was sent would fail with it.
    "enable.idempotence": False,
    "acks": "all",
    # keeps the order also where a request is repeated
    "max.in.flight.requests.per.connection": 1,
    "delivery.timeout.ms": 120_000,
}

Header = dict[str, Any]


def check_tolerance(errors: ErrorSettings, failures: Sequence[RecordFailure], topic: str, kafka_partition: int) -> None:
    """Raise RecordError for the first of `failures`, unless `errors.tolerance` is `all`."""
    if errors.tolerance == "none" and failures:
        raise build_record_error(failures, topic, kafka_partition)


def build_record_error(failures: Sequence[RecordFailure], topic: str, kafka_partition: int) -> RecordError:
    """Build the error that ends a task with failed records. It describes the first of them, and gives advice."""
    first = min(failures, key=lambda failure: failure.offset)
    advice = LETTER_ADVICE.get(
        first.stage,
        "Correct the connector file if it asks for what the records do not hold; or set errors.tolerance=all, and "
        "name a dead letter topic in errors.deadletterqueue.topic.name, to archive the others",
    )
    description = _describe_failure(first, topic, kafka_partition)
    return RecordError(f"{description}. Nothing of this run's range is committed. {advice}")


@final
class DeadLetterQueue:
    """Sends the dead letters of one task to the connector's dead letter topic. Without such a topic, it only logs.

    Letters keep the record's key, value, headers and timestamp (a record with no timestamp, or timestamp 0, gets the
    time of sending). When `send` returns, each letter has been delivered at least once: a task that fails or is killed
    before its range is committed to the index sends its letters again when the range is repeated. A transaction for
    each task would not change this, since the index is committed later and elsewhere. Repeated letters have the same
    headers `topic`, `partition` and `offset`.
    """

    def __init__(self, kafka: KafkaSettings, errors: ErrorSettings, connector: str, topic: str) -> None:
        self._kafka = kafka
        self._errors = errors
        self._connector = connector
        self._topic = topic
        self._opened: _DeadLetterTopic | None = None

    def __enter__(self) -> "DeadLetterQueue":
        return self

    def __exit__(self, *_: object) -> None:
        if self._opened is not None:
            # otherwise, letters that an error left in the queue would be waited for
            self._opened.producer.purge()
            self._opened.producer.close()

    def send(self, records: pa.RecordBatch, failures: Sequence[RecordFailure]) -> Sequence[RecordFailure]:
        """Deliver a letter for each failed record, which is found by its offset in `records` (RECORD_SCHEMA, as read).

        A record gets one letter, even if several things made of it failed. The topic is created with the first letter.

        Returns:
            The failures of records without a lasting letter, ascending by offset, each with the reason: the topic
            refuses or does not keep the letter, or the record was a letter of this connector too often. Empty if all
            have one, and without a dead letter topic: then none is to have one.

        Raises:
            ConfigError: the cluster has too few brokers for the topic.
            PlatformError: a letter could not be delivered.
        """
        if not failures:
            return ()
        # A letter reports the first failure of its record.
        first_failures = {failure.offset: failure for failure in reversed(failures)}
        reported = [first_failures[offset] for offset in sorted(first_failures)]
        failed = records.take(pa.array(self._find_rows(records, reported)))
        if self._errors.log_enable:
            self._log(failed, reported)
        if self._errors.dead_letter_topic is None:
            return ()
        is_looping = self._find_looping(failed)
        reason = (
            f"the record was a dead letter of connector {self._connector} {MAX_LETTERS} times, so no other letter is "
            f"made of it"
        )
        without_letter = [
            _add_reason(failure, LETTER_RETURNED, reason)
            for failure, loops in zip(reported, is_looping, strict=True)
            if loops
        ]
        new_failures = [failure for failure, loops in zip(reported, is_looping, strict=True) if not loops]
        if new_failures:
            without_letter += self._send_letters(failed.filter(pa.array(~is_looping)), new_failures)
        return sorted(without_letter, key=lambda failure: failure.offset)

    def _send_letters(self, failed: pa.RecordBatch, failures: Sequence[RecordFailure]) -> list[RecordFailure]:
        """Send letters for new failures, one for each row of `failed`. Return the failures whose letter was refused."""
        try:
            if self._opened is None:
                self._opened = self._open()
            refused = self._opened.send(self._build_letters(failed, failures))
        except PlatformError as err:
            raise err.retell(f"dead letters of connector {self._connector}, topic {self._topic}: {err.text}") from err
        refusal = f"the dead letter topic {self._dead_letter_topic} does not take or keep its letter"
        return [
            _add_reason(failures[row], LETTER_REFUSED, f"{refusal}: {reason}")
            for row, reason in sorted(refused.items())
        ]

    def _find_looping(self, failed: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Return a mask of the records that have already been letters of this connector MAX_LETTERS times."""
        mark = {"key": LETTER_HEADER, "value": self._connector.encode()}
        headers_of_records = failed.column("headers").to_pylist()
        return np.array([(headers or []).count(mark) >= MAX_LETTERS for headers in headers_of_records], bool)

    def _find_rows(self, records: pa.RecordBatch, failures: Sequence[RecordFailure]) -> np.ndarray:
        """Return the row of each failure's record. It is a defect of ours if an offset is not in `records`."""
        batch_offsets = read_offset_column(records)
        failed = np.array([f.offset for f in failures], np.int64)
        positions = np.searchsorted(batch_offsets, failed)
        last = len(batch_offsets) - 1
        if last < 0 or (batch_offsets[np.minimum(positions, last)] != failed).any():
            raise IntegrityError(
                f"{self._topic}: failures at offsets {failed[0]} to {failed[-1]} are not among the records of their "
                f"batch. This is a defect of the platform; nothing was committed"
            )
        return positions

    def _open(self) -> "_DeadLetterTopic":
        """Open a producer to the dead letter topic, after creating the topic if it is missing."""
        topic = self._dead_letter_topic
        with ClusterAdmin(self._kafka) as admin:
            if not admin.topic_exists(topic):
                self._create(admin)
            return _DeadLetterTopic(self._kafka, topic, admin.read_topic_configs(topic))

    def _create(self, admin: ClusterAdmin) -> None:
        """Create the dead letter topic, without retention limits and with room for letters of the largest records."""
        factor = self._errors.dead_letter_replication_factor
        source = int(admin.read_topic_configs(self._topic)["max.message.bytes"])
        # Letters keep the time of their record, so brokers' default retention would delete those of old records at
        # once.
        configs = {
            "cleanup.policy": "delete",
            "retention.ms": "-1",
            "retention.bytes": "-1",
            "max.message.bytes": str(min(source + HEADERS_BYTES, 2**31 - 1)),
        }
        try:
            admin.create_topic(self._dead_letter_topic, 1, factor, configs)
        except ConfigError as err:
            raise ConfigError(
                f"{err.text}: errors.deadletterqueue.topic.replication.factor is {factor}, set it to the number of "
                f"brokers or less"
            ) from err
        except PermanentError:
            # tasks of one run may create it at the same time
            if not admin.topic_exists(self._dead_letter_topic):
                raise

    @property
    def _dead_letter_topic(self) -> str:
        return str(self._errors.dead_letter_topic)

    def _build_letters(self, failed: pa.RecordBatch, failures: Sequence[RecordFailure]) -> pa.RecordBatch:
        """Return the records with headers about their failures."""
        columns = {name: failed.column(name) for name in RECORD_SCHEMA.names}
        # librdkafka reads 0 as "now", and cannot send a record without a timestamp.
        stamps = pc.max_element_wise(columns["timestamp"].cast(pa.int64()), pa.scalar(0, pa.int64()))
        columns["timestamp"] = stamps.cast(RECORD_SCHEMA.field("timestamp").type)
        headers = [pairs or [] for pairs in columns["headers"].to_pylist()]
        if self._errors.dead_letter_headers:
            contexts = zip(headers, columns["partition"].to_pylist(), failures, strict=True)
            headers = [_add_headers(pairs, self._build_context(failure, p)) for pairs, p, failure in contexts]
        mark = {"key": LETTER_HEADER, "value": self._connector.encode()}
        columns["headers"] = pa.array([[*pairs, mark] for pairs in headers], RECORD_SCHEMA.field("headers").type)
        return pa.RecordBatch.from_arrays(list(columns.values()), schema=RECORD_SCHEMA)

    def _build_context(self, failure: RecordFailure, kafka_partition: int) -> Iterable[Header]:
        """Yield Connect's headers about a failure."""
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
        """Log each failure, with the beginning of its key and value if the connector asks for it."""
        contents = failed.select(["partition", "key", "value"]).to_pylist()
        for failure, record in zip(failures, contents, strict=True):
            description = _describe_failure(failure, self._topic, record["partition"])
            content = f"; key {_show_content(record['key'])}, value {_show_content(record['value'])}"
            logger.error("%s%s", description, content if self._errors.log_include_messages else "")


class _DeadLetterTopic:
    """A producer to the dead letter topic. It respects the topic's cleanup policy, retention and message size."""

    def __init__(self, kafka: KafkaSettings, topic: str, configs: Mapping[str, str]) -> None:
        self._topic = topic
        self._where = f"sending letters to topic {topic} at {kafka.bootstrap_servers}"
        self._is_compacted = "compact" in configs["cleanup.policy"]
        counts_from_record = configs["message.timestamp.type"] == "CreateTime"
        self._retention_ms = parse_retention_ms(configs) if counts_from_record else FOR_EVER
        self._refused_alone = 0
        self._reasons = Reasons()
        # Brokers count compressed bytes, and the record itself may have come compressed.
        is_plain = find_sent_codec(kafka) == "none"
        limit = max(1000, int(configs["max.message.bytes"])) if is_plain else LARGEST_MESSAGE
        defaults = {"compression.type": "zstd", "message.max.bytes": limit}
        self.producer = open_client(Producer, kafka, self._reasons, defaults, _FIXED)
        if self._retention_ms != FOR_EVER:
            logger.warning(
                "dead letter topic %s deletes each letter %s after the time of its record: set retention.ms=-1 on it to"
                " keep them",
                topic,
                timedelta(milliseconds=self._retention_ms),
            )

    def send(self, letters: pa.RecordBatch) -> Mapping[int, str]:
        """Deliver the letters. Return, by row, the reason why a letter is not taken or kept.

        Brokers refuse whole batches, so the letters of a refused batch are sent again one by one, until too many have
        been refused.
        """
        unkept = self._find_unkept(letters)
        rows = {at: row for at, row in enumerate(build_rows(letters)) if at not in unkept}
        refused = self._try(rows)
        for at in sorted(refused):
            if self._refused_alone < MAX_REFUSED_ALONE:
                del refused[at]
                refused |= self._try({at: rows[at]})
                if at in refused:
                    self._refused_alone += 1
        return {**unkept, **{at: f"{error.name()}: {error.str()}" for at, error in refused.items()}}

    def _find_unkept(self, letters: pa.RecordBatch) -> dict[int, str]:
        """Return, by row, the reason why the topic would not keep the letter."""
        if self._is_compacted:
            reason = "cleanup.policy=compact keeps only the newest letter of each key; set cleanup.policy=delete"
            return dict.fromkeys(range(len(letters)), reason)
        if self._retention_ms == FOR_EVER:
            return {}
        times = read_milliseconds(letters).to_numpy()
        oldest = round(time.time() * 1000) - self._retention_ms
        reason = f"retention.ms={self._retention_ms} deletes a letter of a record so old at once; set retention.ms=-1"
        # one with timestamp 0 gets the time of sending
        return dict.fromkeys(np.flatnonzero((times > 0) & (times <= oldest)).tolist(), reason)

    def _try(self, rows: Mapping[int, ProducedRow]) -> dict[int, KafkaError]:
        """Send rows, and wait for the answer to each. Return the errors of the refused ones."""
        failed: dict[int, KafkaError] = {}

        def note(at: int, error: KafkaError | None, _: object) -> None:
            if error is not None:
                failed[at] = error

        for at, row in rows.items():
            try:
                self._queue(row, partial(note, at))
            except KafkaException as err:
                failed[at] = err.args[0]
        while len(self.producer):
            # does not wait for more letters, which are sent one by one after a refusal
            self.producer.flush(POLL_SECONDS)
        for error in failed.values():
            cause = self._reasons.explain_failure(error, self._where)
            if not isinstance(cause, PreflightError) and error.code() not in ENTAILED:
                raise cause
        return failed

    def _queue(self, row: ProducedRow, report: Callable[[KafkaError | None, object], None]) -> None:
        """Give a letter to the producer, waiting while its queue is full. `report` is called with the outcome."""
        key, value, timestamp, headers = row
        while True:
            try:
                self.producer.produce(
                    self._topic, value, key, KAFKA_PARTITION, report, timestamp=timestamp, headers=headers
                )
            except BufferError:
                self.producer.poll(POLL_SECONDS)
            else:
                return


def _add_headers(headers: list[Header], context: Iterable[Header]) -> list[Header]:
    """Add headers. As in Connect, a header the record already has stays as it is."""
    names = {header["key"] for header in headers}
    return [*headers, *(header for header in context if header["key"] not in names)]


def _add_reason(failure: RecordFailure, stage: Stage, reason: str) -> RecordFailure:
    """Return the failure of a record that gets no letter, with this `stage`, and the reason before its message."""
    return replace(failure, stage=stage, message=f"{reason}. The record failed because {failure.message}")


def _describe_failure(failure: RecordFailure, topic: str, kafka_partition: int) -> str:
    """Describe a failed record and its failure in one line, for logs and errors."""
    return (
        f"{topic}-{kafka_partition}@{failure.offset}: the record cannot be archived as asked, {failure.stage} by "
        f"{failure.executing_class} failed: {failure.exception}: {failure.message}"
    )


def _show_content(content: bytes | None) -> str:
    if content is None:
        return "null"
    return repr(content[:LOGGED_BYTES]) + ("..." if len(content) > LOGGED_BYTES else "")
