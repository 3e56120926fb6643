"""Try to write records of another sink's objects before anything is created or sent, and count them in a dry run."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from kafka_s3_platform.errors import IntegrityError, RecordError
from kafka_s3_platform.model.batches import NO_TIMESTAMP, count_record_bytes
from kafka_s3_platform.model.connect import ConnectBatch
from kafka_s3_platform.restore.outgoing.sent import SentSettings, new_outgoing_stream
from kafka_s3_platform.restore.outgoing.stream import OutgoingStream
from kafka_s3_platform.restore.preflight.target import PreflightFinding, make_doubt, make_refusal
from kafka_s3_platform.restore.request import OnError
from kafka_s3_platform.restore.source.foreign_stream import ForeignStreamTask, WantedRecords, type_strings
from kafka_s3_platform.sources.report import explain_doubt
from kafka_s3_platform.spark.runner import Attempt
from kafka_s3_platform.store.objects import ObjectStore

MOST_BYTES = 67_108_864
"""The largest object to read completely only to try its first records."""


@dataclass(frozen=True)
class TrialTask:
    """A stream, and how its records would be changed before they are sent."""

    stream: ForeignStreamTask
    sent: SentSettings

    def outgoing(self, on_error: OnError | None = None) -> OutgoingStream:
        """Make the stream that encodes its records for sending. It registers no schema."""
        values = self.sent.values and replace(self.sent.values, registers=False)
        behavior = on_error or self.sent.behavior_on_error
        return new_outgoing_stream(self.stream, replace(self.sent, values=values, behavior_on_error=behavior))


@dataclass(frozen=True)
class ForeignCount:
    """Records of a stream in the windows, before filters and transforms. Bytes are as read.

    `newest` is the latest timestamp (epoch ms), NO_TIMESTAMP if no record has one.
    """

    topic: str
    newest: int
    record_count: int
    record_bytes: int
    skipped: tuple[str, ...]
    notes: tuple[str, ...]
    gaps: tuple[str, ...]
    skipped_count: int
    gap_count: int


def count_foreign(task: TrialTask, attempt: Attempt) -> ForeignCount:  # noqa: ARG001 - reading has no attempts
    """Read all objects of a task, and encode their records for sending.

    Raises:
        IntegrityError: an object is bad, and `behavior.on.error` is `fail`.
        RecordError: a record cannot be written, and `behavior.on.error` is `fail`.
    """
    records = WantedRecords(task.stream, ObjectStore(task.stream.store))
    outgoing = task.outgoing()
    count = size = 0
    newest = NO_TIMESTAMP
    for batch in records:
        newest = max(newest, int(batch.timestamps.max()))
        count = count + batch.num_rows
        size = size + int(count_record_bytes(batch.records).sum())
        if task.stream.is_decoded:
            outgoing.encoded(type_strings(batch, task.stream.config.records))
    notes = (*records.notes, *outgoing.notes)
    return ForeignCount(
        task.stream.topic,
        newest,
        count,
        size,
        records.skipped,
        notes,
        records.gaps,
        records.skipped_count,
        records.gap_count,
    )


def try_first_records(tasks: Iterable[TrialTask], store: ObjectStore, *, is_begun: bool) -> Iterator[PreflightFinding]:
    """Find topics with first records that cannot be written, or contradict the connector's file.

    For each topic, the first stream with a small first object is tried. A restore that `is_begun` has passed the trial
    of writing before.
    """
    looked_at = set[str]()
    for task in tasks:
        if task.stream.topic in looked_at or not _is_soon_read(task.stream):
            continue
        looked_at.add(task.stream.topic)
        # Bad objects are reported by the run that reads all of them.
        with suppress(IntegrityError):
            first = next(iter(WantedRecords(task.stream, store)), None)
            if first is not None and (doubt := explain_doubt(task.stream.config, first.value.objects)):
                yield make_doubt(f"{task.stream.topic}: {doubt}")
            if is_begun:
                continue
            if first is not None and (why := _try_writing(task, type_strings(first, task.stream.config.records))):
                yield make_refusal(why)


def _is_soon_read(stream: ForeignStreamTask) -> bool:
    first = stream.group.sets[0].objects
    return stream.is_decoded and sum(o.size for o in first) <= MOST_BYTES and not any(o.is_cold for o in first)


def _try_writing(task: TrialTask, batch: ConnectBatch) -> str:
    # First with failures ignored: if every record fails, the converter is the wrong one.
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
