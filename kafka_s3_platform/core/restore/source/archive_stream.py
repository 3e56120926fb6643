"""The archived records of one kafka partition to be sent, in offset order. Each object is checked."""

import logging
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial

import pyarrow as pa

from kafka_s3_platform.core.errors import HEAL_OBJECT, IntegrityError
from kafka_s3_platform.core.formats.columns import RecordDigest
from kafka_s3_platform.core.formats.envelope.parquet import EnvelopeReader, filter_windows
from kafka_s3_platform.core.formats.envelope.records import check_place, new_envelope_reader
from kafka_s3_platform.core.formats.format_io import RecordObject
from kafka_s3_platform.core.formats.merge import MergeSource, merge_by_offset
from kafka_s3_platform.core.model.offsets import MAX_OFFSET, OffsetRange
from kafka_s3_platform.core.model.segment import BadObject
from kafka_s3_platform.core.restore.documents import DECIDED, MENDED
from kafka_s3_platform.core.restore.request import OnError, ReadFacts, RestoreRequest
from kafka_s3_platform.core.restore.source.archive_plan import ArchivePlan, PlannedObject
from kafka_s3_platform.core.restore.source.base import RecordStream, StreamFacts
from kafka_s3_platform.core.restore.source.selection import Selection
from kafka_s3_platform.core.store.objects import ObjectInfo, ObjectStore
from kafka_s3_platform.core.store.upload import Provenance

logger = logging.getLogger(__name__)

COPIES_AT_ONCE = 8
"""The number of objects that are compared at once. A copy that has another ETag is read to compare it."""

LEAVE_OUT = (
    "If nothing of it was sent, leave it out under the same restore id with --behavior-on-error ignore or log "
    "(how.behavior_on_error). Otherwise restore the offsets around it to another topic, under other restore ids"
)


@dataclass(frozen=True)
class StreamTask(RecordStream):
    """The stream of one kafka partition. `behavior_on_error` is the treatment of a bad object."""

    store: ObjectStore = field(repr=False)
    topic: str
    kafka_partition: int
    selection: Selection
    objects: tuple[PlannedObject, ...]
    behavior_on_error: OnError = "fail"
    sends_any_timestamp: bool = False
    is_named: bool = False
    """True if the restore has several topics."""
    to_topic: str = ""

    @property
    def advice(self) -> str:
        """Advice for the reader of an error about a bad object."""
        if self.left_out is not None:
            return DECIDED
        return LEAVE_OUT if self.behavior_on_error == "fail" else MENDED

    @cached_property
    def facts(self) -> StreamFacts:
        """The facts of the objects. One topic goes to the target, and its records keep their order."""
        return StreamFacts(
            topic=self.topic,
            to_topic=self.to_topic,
            kafka_partition=self.kafka_partition,
            store=self.store,
            object_bytes=sum(o.size for o in self.objects),
            record_count=sum(o.record_count for o in self.objects),
            record_bytes=sum(o.record_bytes for o in self.objects),
            named_topic=self.topic if self.is_named else "",
            is_found_by_content=True,
            sends_any_timestamp=self.sends_any_timestamp,
        )

    def records(self, start_offset: int = 0) -> "ArchivedStream":
        """Read whole records, as they are in the objects."""
        return ArchivedStream(self, start_offset)

    def find_bad_objects(self) -> Iterator[BadObject]:
        """Find the bad objects of the task by reading the selected part of each object."""
        return ArchivedStream(self).find_bad_objects()


def make_archive_stream(request: RestoreRequest, plan: ArchivePlan, kafka_partition: int) -> StreamTask:
    """Make the task for a kafka partition of the plan."""
    return StreamTask(
        store=ObjectStore(request.config.store),
        topic=request.topic,
        kafka_partition=kafka_partition,
        selection=plan.selection,
        objects=plan.objects_of(kafka_partition),
        behavior_on_error=request.on_error,
        sends_any_timestamp=plan.allow_unsendable_timestamps,
        to_topic=request.to_topic,
    )


class ArchivedStream:
    """Record batches of the selection, ascending by offset, from source offset `start_offset` on.

    Every object must be the planned one (entity tag and size), and its pages must pass their checksums. An object that
    is read completely must have the digest and the number of records in the index.

    A bad object named by the task is left out entirely, and named in `facts`. If this is not decided yet, and
    `behavior.on.error` is `ignore` or `log`, each object is read twice: the first time to its end, before its first
    record is sent.

    Raises:
        IntegrityError: an object is missing, replaced or damaged, and is not left out.
    """

    def __init__(self, task: StreamTask, start_offset: int = 0) -> None:
        self._task = task
        self._start = start_offset
        self._out_of_range_count = 0
        self._skipped: tuple[str, ...] = ()

    @property
    def facts(self) -> ReadFacts:
        """The objects left out, and the records with out-of-range timestamps, in the last iteration.

        The plan has the gaps, because the index knows them.
        """
        skipped = self._skipped
        return ReadFacts(out_of_range_count=self._out_of_range_count, skipped=skipped, skipped_count=len(skipped))

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        self._out_of_range_count = 0
        self._skipped = ()
        remaining = [o for o in self._task.objects if o.end_offset > self._start]
        sources = [MergeSource(o.key, o.start_offset, o.end_offset, partial(self._read, o)) for o in remaining]
        return merge_by_offset(sources)

    def _read(self, item: PlannedObject) -> Generator[pa.RecordBatch, None, None]:
        """Yield the records of an object, unless the restore leaves it out, or will do so because it is bad."""
        reasons = self._task.left_out
        if reasons is None and self._task.behavior_on_error != "fail":
            reasons = {bad_object.key: bad_object.why for bad_object in self._find_bad(item)}
        if reasons is not None and item.key in reasons:
            self._skipped = (*self._skipped, reasons[item.key])
            return
        for batch in self._read_checked(item, self._start):
            self._out_of_range_count += batch.num_rows if item.out_of_range else 0
            yield batch

    def find_bad_objects(self) -> Iterator[BadObject]:
        """Find the bad objects of the task by reading the selected part of each object."""
        return (bad_object for item in self._task.objects for bad_object in self._find_bad(item))

    def _find_bad(self, item: PlannedObject) -> Iterator[BadObject]:
        """Yield the object if it is bad. Its selected part is read, even if an earlier run has sent its beginning."""
        try:
            for _ in self._read_checked(item, item.start_offset):
                pass
        except IntegrityError as err:
            if self._task.behavior_on_error == "log":
                logger.warning("object left out: %s", err)
            yield BadObject(item.key, self._task.selection.bounds(item)[0], err.text)

    def _read_checked(self, item: PlannedObject, start_offset: int) -> Iterator[pa.RecordBatch]:
        """Yield an object's selected records from `start_offset` on. Raises IntegrityError if it is not as planned."""
        selection = self._task.selection
        digest = RecordDigest()
        with self._name_damage(item, "cannot be opened"):
            source = self._task.store.open_stored(item.stored_object)
        with source:
            topic = self._find_topic(item, source.info)
            with self._name_damage(item, "cannot be opened"):
                reader = new_envelope_reader(item.format, source, item.key, self._task.store.settings.limits)
            reading = self._choose_reading(reader, item, start_offset)
            while True:
                with self._name_damage(item, "cannot be read"):
                    batch = next(reading.batches, None)
                if batch is None:
                    break
                self._check_batch(item, topic, batch)
                if reading.is_complete:
                    digest.update(batch)
                # It is cut to the windows only now, because the digest is of the whole object.
                yield selection.within_times(filter_windows(batch, reading.windows))
        if reading.is_complete and digest.hexdigest() != item.digest:
            what = f"cannot be read: its record digest is {digest.hexdigest()} instead of the planned {item.digest}"
            raise self._make_error(item, what)

    def _make_error(self, item: PlannedObject, what: str) -> IntegrityError:
        return _make_damage_error(self._task.topic, item, what, self._task.advice)

    @contextmanager
    def _name_damage(self, item: PlannedObject, what: str) -> Iterator[None]:
        """Name the object in an IntegrityError of this block. `what` is said about it, such as `cannot be read`."""
        try:
            yield
        except IntegrityError as err:
            raise self._make_error(item, f"{what}: {err}") from err

    def _find_topic(self, item: PlannedObject, info: ObjectInfo) -> str | None:
        """Return the topic to compare records with, or None if the object's metadata show that it belongs here.

        In the latter case, its records may have the name of another topic, because transforms can give them one.
        """
        writer = Provenance.of(info)
        if writer is None:
            return self._task.topic
        if writer.topic != self._task.topic:
            raise self._make_error(item, f"was written for topic {writer.topic}, and was put here by mistake")
        return None

    def _check_batch(self, item: PlannedObject, topic: str | None, batch: pa.RecordBatch) -> None:
        """Raise IntegrityError if a batch has a kafka partition, offset or topic its object may not have."""
        try:
            check_place(batch, item.kafka_partition, item.offsets, item.key)
        except IntegrityError as err:
            raise self._make_error(item, f"is not the object in the index: {err}") from err
        names = [] if topic is None else batch.column("topic").unique().to_pylist()
        # A transform may have routed records to another topic, which is then a folder of the key.
        if others := [name for name in names if name != topic and name not in item.key]:
            raise self._make_error(item, f"holds records of topic {others[0]}, and has no metadata that explain this")

    def _choose_reading(self, reader: RecordObject, item: PlannedObject, start_offset: int) -> "_Reading":
        """Open the batches of an object: all of them, or only the row groups with selected records.

        Only Parquet has row groups (an `EnvelopeReader`). Objects of other formats are read completely, and the caller
        drops the records outside of `windows`. The caller compares the digest of an object read completely. A resumed
        stream goes on at `start_offset`.

        Raises:
            IntegrityError: the object does not have the planned number of records.
        """
        selection = self._task.selection
        start, end = selection.bounds(item)
        start = max(start, start_offset)
        times = (selection.from_ms, selection.to_ms) if selection.is_timed else None
        if not isinstance(reader, EnvelopeReader):
            windows = {"offset": (start, end)} | ({} if times is None else {"timestamp": times})
            return _Reading(reader.batches(), is_complete=True, windows=windows)
        # Checked before the first record is sent. The digest would tell as well, but only after the last one.
        if reader.num_records != item.record_count:
            what = f"holds {reader.num_records} records instead of the planned {item.record_count}"
            raise self._make_error(item, what)
        if selection.holds(item) and item.start_offset >= start_offset:
            return _Reading(reader.batches(), is_complete=True)
        # If the selection reaches the object's end, no end is set, so that records beyond the planned range are found.
        offsets = OffsetRange(start if start > item.start_offset else 0, end if end < item.end_offset else MAX_OFFSET)
        return _Reading(reader.batches(offsets, times) if start < end else iter(()))


@dataclass(frozen=True)
class _Reading:
    """The batches of an object. If it is read completely, records may lie outside of `windows`."""

    batches: Iterator[pa.RecordBatch]
    is_complete: bool = False
    windows: Mapping[str, tuple[int, int]] = field(default_factory=dict)


def describe_differences(
    request: RestoreRequest, objects: Sequence[PlannedObject], infos: Sequence[ObjectInfo | None]
) -> list[str]:
    """Describe each object that is missing or differs from the plan. `infos` are the store's answers.

    A copy of an object may have another ETag. In this case its bytes are read and compared, several objects at once.
    """
    store = ObjectStore(request.config.store)
    with ThreadPoolExecutor(COPIES_AT_ONCE, thread_name_prefix="copies") as pool:
        differences = list(zip(objects, pool.map(partial(_describe_difference, store), objects, infos), strict=True))
    advice = LEAVE_OUT if request.on_error == "fail" else MENDED
    return [str(_make_damage_error(request.topic, o, what, advice)) for o, what in differences if what]


def _describe_difference(store: ObjectStore, item: PlannedObject, info: ObjectInfo | None) -> str:
    """Say how the stored object (`info`) differs from the planned one. The text is empty if it does not."""
    if info is None:
        return "does not exist: it was deleted"
    # A cold object cannot be read to compare it: only its ETag and size count.
    if not info.is_cold and store.is_stored(item.stored_object, info):
        return ""
    if (info.etag, info.size) != (item.etag, item.size):
        return (
            f"was replaced: it has etag {info.etag} and {info.size} bytes instead of the planned {item.etag} and "
            f"{item.size}"
        )
    return ""


def _make_damage_error(topic: str, item: PlannedObject, what: str, advice: str) -> IntegrityError:
    """Build the error for an archived object that differs from the plan. `what` follows the object's key."""
    where = f"{topic}-{item.kafka_partition} [{item.start_offset}, {item.end_offset})"
    heal = "" if HEAL_OBJECT in what else f"; {HEAL_OBJECT}"
    return IntegrityError(f"{where}: object {item.key} {what}{heal}. {advice}")
