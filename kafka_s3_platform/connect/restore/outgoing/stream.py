"""Transforms the records of one source kafka partition before they are sent, and writes their keys and values."""

import logging
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.connect.config.keys.transforms import keeps_content
from kafka_s3_platform.connect.restore.outgoing.values import Rewritten, Values
from kafka_s3_platform.connect.transforms import new_chain
from kafka_s3_platform.core.config.settings import RecordSettings, TransformSettings
from kafka_s3_platform.core.errors import ConfigError, RecordError
from kafka_s3_platform.core.model.batches import replace_column
from kafka_s3_platform.core.model.connect import ConnectBatch, Outcome, Payload, RecordFailure, Transform, strip_branch
from kafka_s3_platform.core.model.notes import Notes
from kafka_s3_platform.core.restore.outgoing.sent import OutgoingRecords, SentSettings
from kafka_s3_platform.core.restore.request import Outgoing
from kafka_s3_platform.core.restore.target_topic import apply_routers, routes_by_record, routes_by_topic

logger = logging.getLogger(__name__)


def check_decoding(name: str, source: RecordSettings, outgoing: Outgoing) -> None:
    """Check that the converters of connector `name` can decode everything the restore changes.

    Raises:
        ConfigError: a converter of the connector's file cannot be used here.
    """
    sees_all = any(map(_sees_values, outgoing.transforms))
    for side, converter, requested in (("key", source.key, outgoing.key), ("value", source.value, outgoing.value)):
        if converter.unread and (requested or sees_all):
            raise ConfigError(
                f"connector {name}: a restore cannot decode its {side}s, because the converter that its file (or "
                f"worker.properties) names cannot be used: {converter.unread}. `kafka-s3 check` shows why. Correct "
                "it, or name ByteArrayConverter there, which reads them as bytes. Or send the records as they are, "
                "without converters and transforms that decode them (--outgoing, values.outgoing_file)"
            )


class OutgoingStream(OutgoingRecords):
    """Makes the records to send from batches of one source kafka partition, by kafka partition of the target.

    The same batch always gives the same result, because a resumed restore and the verification repeat it. If the
    settings have `values`, keys and values are decoded before the transforms and encoded after them, as Connect's
    converters do. Otherwise they are bytes.

    If transforms route records, only those for `to_topic` or with an unchanged topic are sent. If there are
    `to_topics`, only records for `to_topic` are sent, and the stream of the first of them counts the records for none
    of them.

    A failure in a transform raises RecordError. If `behavior_on_error` is ignore or log, the failing record is left out
    instead, and the first failure is kept as `first_failure`.

    Raises:
        ConfigError: the settings cannot be used, or the transforms send the whole topic elsewhere than to `to_topic`.
    """

    def __init__(
        self, topic: str, kafka_partition: int, settings: SentSettings, to_topics: tuple[str, ...] = ()
    ) -> None:
        transforms = settings.outgoing.transforms
        super().__init__(settings.outgoing, settings.target_kafka_partitions)
        self._topic = topic
        self._kafka_partition = kafka_partition
        self._to_topic = settings.to_topic
        self._to_topics = to_topics
        self.counts_all = self._to_topics[:1] in {(), (self._to_topic,)}
        self._on_error = settings.behavior_on_error
        self._values = None if settings.values is None else Values(settings.values)
        self._chain = _build_chain(transforms, topic, self._to_topic)
        self._sees_values = any(map(_sees_values, transforms))
        self._loss_notes = Notes()
        self.first_failure: RecordFailure | None = None

    def apply(self, batch: pa.RecordBatch) -> list[tuple[int, pa.RecordBatch]]:
        """Decode, transform and encode records, and return the ones to send by kafka partition of the target."""
        changes = self._chain is not None or (self._values is not None and not self._values.changes_nothing)
        if batch.num_rows and changes:
            moved = self._values.decode(batch, self._sees_values) if self._values else Outcome(ConnectBatch.of(batch))
            self._note_failures(moved.failures if self.counts_all else ())
            batch = self.encode(moved.batch)
        return self.distribute(batch)

    def encode(self, batch: ConnectBatch) -> pa.RecordBatch:
        """Transform decoded records, and write their keys and values as they are to be sent."""
        if self._chain is not None:
            moved = self._keep_own(self._transform(self._chain, batch), batch.records.column("topic"))
            self._note_failures(moved.failures if self.counts_all else ())
            batch = moved.batch
        done = self._values.encode(batch) if self._values else Rewritten(_write_bytes(batch))
        self._note_failures(done.failures)
        self.incomplete_count += len({offset for offset, _ in done.losses})
        for _, notes in done.losses:
            self._loss_notes.join(notes)
        return done.batch

    def _transform(self, chain: Transform, batch: ConnectBatch) -> Outcome:
        """Run the transforms, and count the records they drop."""
        moved = chain.apply(batch)
        # By offset: a mapper may make several records from one.
        if self.counts_all:
            self.filtered_count += batch.num_rows - len(np.unique(moved.batch.offsets)) - len(moved.failures)
        return moved

    def _keep_own(self, moved: Outcome, source_topics: pa.StringArray) -> Outcome:
        """Keep the records that transforms have sent to the target, or left in their source topic.

        If transforms name the targets (`to_topics`), records left in their source topic belong to no target.
        """
        topics = moved.batch.records.column("topic")
        unchanged = [] if self._to_topics else source_topics.unique().to_pylist()
        mine = pc.is_in(topics, pa.array([self._to_topic, *unchanged], pa.string()))
        # The common case needs no copy.
        if pc.all(mine).as_py():
            return moved
        if self.counts_all:
            of_none = pc.invert(pc.or_(mine, pc.is_in(topics, pa.array(self._to_topics, pa.string()))))
            names, counts = pc.value_counts(topics.filter(of_none)).flatten()
            self.elsewhere.update(dict(zip(names.to_pylist(), counts.to_pylist(), strict=True)))
        return Outcome(moved.batch.take(np.flatnonzero(mine.to_numpy(zero_copy_only=False))), moved.failures)

    def _note_failures(self, failures: Sequence[RecordFailure]) -> None:
        """Count failed records, or raise RecordError, as `behavior.on.error` says."""
        if not failures:
            return
        self.first_failure = self.first_failure or failures[0]
        if self._on_error == "fail":
            raise RecordError(self._describe_failure(failures[0]))
        self.failed_count += len(failures)
        if self._on_error == "log":
            for failure in failures:
                logger.error("%s", self._describe_failure(failure))

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about headers with schema names, losses in re-encoded values, and failed records."""
        sentences = (*(self._values.notes if self._values else ()), *self._loss_notes.sentences)
        if self.first_failure is None:
            return sentences
        first = _describe_record(self.first_failure)
        return (*sentences, f"{self.failed_count:,} records cannot be written and are left out. First, {first}")

    def _describe_failure(self, failure: RecordFailure) -> str:
        """Return the error message of a restore that a failed record has ended, including the remedy."""
        to_topic = self._to_topic or "the topics that its records name"
        return (
            f"restore of {self._topic}-{self._kafka_partition} to {to_topic}: {_describe_record(failure)}. Run it "
            "again under the same restore id with --behavior-on-error ignore or log (how.behavior_on_error) to "
            "leave such records out"
        )


def _describe_record(failure: RecordFailure) -> str:
    """Describe, as part of a sentence, where and why a record failed."""
    return (
        f"the record of source offset {failure.offset} fails in {failure.executing_class} ({failure.stage}): "
        f"{failure.exception}: {failure.message}"
    )


def _write_bytes(batch: ConnectBatch) -> pa.RecordBatch:
    """Write keys and values without a converter. Bytes stay as they are, and text becomes UTF-8.

    Raises:
        ConfigError: a transform turned them into another type.
    """
    records = replace_column(batch.records, "key", _encode_bytes(batch.key, "key"))
    return replace_column(records, "value", _encode_bytes(batch.value, "value"))


def _build_chain(transforms: Sequence[TransformSettings], topic: str, to_topic: str) -> Transform | None:
    """Combine all transforms into one. Raise ConfigError if they cannot be used, or send all of the topic elsewhere."""
    if not transforms:
        return None
    try:
        chain = new_chain(transforms, topic)
    except ValueError as err:
        raise ConfigError(f"the transforms of the restore of {topic}: {err}") from err
    routed = apply_routers(transforms, topic) if routes_by_topic(transforms) else to_topic
    # Such a restore would leave out every record.
    if routed not in {topic, to_topic} and not routes_by_record(transforms):
        raise ConfigError(
            f"the transforms route topic {topic} to {routed}, but the target of the restore is {to_topic}: use only "
            "one of --to-topic (to.topic) and a RegexRouter"
        )
    return chain


def _sees_values(step: TransformSettings) -> bool:
    """Return True if a step reads decoded keys or values."""
    return not keeps_content(step) or step.type in {"ExtractTopic$Key", "ExtractTopic$Value"}


def _encode_bytes(payload: Payload, side: str) -> pa.BinaryArray:
    """Return keys or values (`side`) as bytes, text as UTF-8. Raise ConfigError if any are neither bytes nor text."""
    if payload.raw is not None:
        return payload.raw
    values = [value.encode() if isinstance(value, str) else value for value in map(strip_branch, payload.objects)]
    if kinds := {type(value).__name__ for value in values if not isinstance(value, bytes | None)}:
        raise ConfigError(
            f"a transform turned the {side} into {' and '.join(sorted(kinds))}, which no converter writes: set "
            f"{side}.converter for the restore"
        )
    return pa.array(values, pa.binary())
