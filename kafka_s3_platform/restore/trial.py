"""What is known of a restore of others' objects before it creates or sends anything: what can be written, how much."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from kafka_s3_platform.errors import IntegrityError, RecordError
from kafka_s3_platform.formats.columns import record_sizes
from kafka_s3_platform.model.connect import ConnectBatch
from kafka_s3_platform.restore.foreign_stream import ForeignStreamTask, WantedRecords, typed
from kafka_s3_platform.restore.outgoing import OutgoingStream
from kafka_s3_platform.restore.request import OnError
from kafka_s3_platform.restore.sent import SentSettings, outgoing_of
from kafka_s3_platform.restore.target import Finding, refusal
from kafka_s3_platform.spark.runner import Attempt
from kafka_s3_platform.store.objects import ObjectStore

MOST_BYTES = 67_108_864
"""Of an object that is read whole only to look at its first records."""


@dataclass(frozen=True)
class TrialTask:
    """A stream, and what would become of its records."""

    stream: ForeignStreamTask
    sent: SentSettings

    def outgoing(self, on_error: OnError | None = None) -> OutgoingStream:
        """What makes its records as they would be sent. No schema is registered for it."""
        values = self.sent.values and replace(self.sent.values, registers=False)
        behavior = on_error or self.sent.behavior_on_error
        return outgoing_of(self.stream, replace(self.sent, values=values, behavior_on_error=behavior))


@dataclass(frozen=True)
class ForeignCount:
    """What a stream holds of the windows, before filters and transforms; bytes as they were read."""

    record_count: int
    record_bytes: int
    skipped: tuple[str, ...]
    notes: tuple[str, ...]
    gaps: tuple[str, ...]


def count_foreign(task: TrialTask, attempt: Attempt) -> ForeignCount:  # noqa: ARG001 - reading has no attempts
    """Read all objects of a task, and write what they hold as it would be sent.

    Raises:
        IntegrityError: an object is bad, and `behavior.on.error` is `fail`.
        RecordError: a record cannot be written, and it is `fail`.
    """
    wanted, outgoing = WantedRecords(task.stream, ObjectStore(task.stream.store)), task.outgoing()
    count = size = 0
    for batch in wanted:
        count, size = count + batch.num_rows, size + int(record_sizes(batch.records).sum())
        if task.stream.is_decoded:
            outgoing.encoded(typed(batch, task.stream.config.records))
    failed = (f"{outgoing.failed_count} records cannot be written and would be left out",)
    notes = (*wanted.notes, *failed * bool(outgoing.failed_count))
    return ForeignCount(count, size, wanted.skipped, notes, wanted.gaps)


def unwritable(tasks: Iterable[TrialTask], store: ObjectStore) -> Iterator[Finding]:
    """Why the first records of a topic cannot be written: of the first of its streams whose first object is small."""
    looked_at = set[str]()
    for task in tasks:
        if task.stream.topic in looked_at or not _is_soon_read(task.stream):
            continue
        looked_at.add(task.stream.topic)
        # What is wrong with the objects is said by the run that reads them all.
        with suppress(IntegrityError):
            first = next(iter(WantedRecords(task.stream, store)), None)
            if first is not None and (why := _refused(task, typed(first, task.stream.config.records))):
                yield refusal(why)


def _is_soon_read(stream: ForeignStreamTask) -> bool:
    first = stream.group.sets[0].objects
    return stream.is_decoded and sum(o.size for o in first) <= MOST_BYTES and not any(o.is_cold for o in first)


def _refused(task: TrialTask, batch: ConnectBatch) -> str:
    lenient = task.outgoing("ignore")
    lenient.encoded(batch)
    failure = lenient.first_failure
    if failure is None:
        return ""
    if lenient.failed_count == batch.num_rows:
        return (
            f"none of the first {batch.num_rows:,} records of {task.stream.topic} can be written: {failure.message}. "
            f"Leaving such records out would leave all of them out: name another converter"
        )
    try:
        task.outgoing().encoded(batch)
    except RecordError as err:
        return str(err)
    return ""
