"""Compares the archive with a topic as a restore does at its end, but without a restore."""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from kafka_s3_platform.core.errors import IntegrityError, OffsetGapError
from kafka_s3_platform.core.formats.columns import RecordDigest
from kafka_s3_platform.core.kafka.admin import ClusterAdmin, TopicDescription
from kafka_s3_platform.core.model.frontier import Frontier
from kafka_s3_platform.core.restore.replay.target_log import SubsequenceMatch, TargetLog
from kafka_s3_platform.core.restore.request import RestoreRequest
from kafka_s3_platform.core.restore.source.archive_plan import ArchivePlan, make_plan
from kafka_s3_platform.core.restore.source.archive_stream import ArchivedStream, StreamTask, make_archive_stream
from kafka_s3_platform.core.restore.verify.target_count import ExpectedRecords, TargetCount, count_records
from kafka_s3_platform.core.spark.progress import Progress
from kafka_s3_platform.core.spark.runner import Attempt, TaskRunner

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class CompareTask:
    """One kafka partition: its archived stream, and the topic's log to compare it with."""

    stream: StreamTask
    log: TargetLog


@dataclass(frozen=True, slots=True)
class KafkaPartitionComparison:
    """The comparison of one kafka partition.

    `found_count` archived records, from the first on, are in the topic in their order. `first_missing` is the source
    offset of the first missing one, or None if none is missing. Of the topic's other records, `doubled_count` equal an
    archived one and `foreign_count` equal none (they lie outside the window, or other writers wrote them). If a record
    is missing, these are not distinguished, and all count as foreign. `archived_digest` is of all archived records,
    `found_digest` of the found ones as read from the topic. `fault` is the error that ended the comparison early.
    """

    kafka_partition: int
    archived_count: int
    found_count: int
    first_missing: int | None
    foreign_count: int
    archived_digest: str
    found_digest: str
    first_target_offset: int | None
    last_target_offset: int | None
    fault: str = ""
    doubled_count: int = 0

    @property
    def ok(self) -> bool:
        """True if every archived record is there, in order."""
        return not self.fault and self.first_missing is None and self.found_count == self.archived_count


@dataclass(frozen=True)
class Comparison:
    """The comparison of the archive of `topic` with `to_topic`.

    `gaps` are sentences about records that the archive lacks, `notes` about parts of both that were not compared.
    """

    topic: str
    to_topic: str
    kafka_partitions: tuple[KafkaPartitionComparison, ...]
    gaps: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """True if every compared archived record is in the topic, in its order."""
        return all(p.ok for p in self.kafka_partitions)

    @property
    def exact(self) -> bool:
        """True if the topic holds these records, each once, and nothing else, and all of it was compared.

        It is False if there is no record.
        """
        others = sum(p.doubled_count + p.foreign_count for p in self.kafka_partitions)
        return self.ok and not others and not self.notes and bool(self.archived_count)

    @property
    def archived_count(self) -> int:
        """The number of archived records that were compared."""
        return sum(p.archived_count for p in self.kafka_partitions)


def compare_with_topic(request: RestoreRequest, runner: TaskRunner) -> Comparison:
    """Compare the archived records of the request's window with `to_topic` on the request's target.

    If the topic is the source itself, only the offsets still in it are compared. Differences are no errors: they are in
    the result.

    Raises:
        MissingTopicError: the topic does not exist, or nothing of the source is archived.
    """
    with ClusterAdmin(request.target_kafka) as admin:
        topic = admin.describe_topic(request.to_topic)
        plan = make_plan(request)
        logs = admin.frontiers(request.to_topic, topic.kafka_partitions)
    # Objects of values only cannot be compared, and so are not planned.
    notes = (*plan.values_only, *_describe_uncompared(request, plan, topic, logs))
    if topic.topic_id == plan.source.topic_id:
        plan = _limit_to_log(plan, logs)
    tasks = [_make_task(request, plan, topic, p, logs.get(p)) for p in plan.kafka_partitions]
    progress = Progress(
        logger,
        f"verify {request.topic} against {request.to_topic}",
        len(tasks),
        sum(t.stream.facts.record_count or 0 for t in tasks),
    )
    results = []
    for result in runner.run_grouped(
        compare_stream, tasks, request.config.tasks_max, lambda task: task.stream.facts.size
    ):
        progress.advance(result.archived_count, result.archived_count, 0)
        results.append(result)
    in_order = tuple(sorted(results, key=lambda r: r.kafka_partition))
    return Comparison(request.topic, request.to_topic, in_order, tuple(gap.text for gap in plan.gaps), notes)


def compare_stream(task: CompareTask, _: Attempt) -> KafkaPartitionComparison:
    """Read both sides to their ends, and match them."""
    archived = _Digested(ArchivedStream(task.stream))
    match = SubsequenceMatch(archived, task.log.read(), task.stream.facts.any_timestamp)
    digest = RecordDigest()
    places: list[int] = []
    fault = ""
    count = 0
    try:
        for _, target in match:
            digest.update(target)
            count += target.num_rows
            offsets = target.column("offset")
            places = [*places[:1], offsets[0].as_py(), offsets[-1].as_py()]
        first_missing = match.find_missing()
        archived.drain()
    except (IntegrityError, OffsetGapError) as err:
        first_missing = None
        fault = str(err)
    if not fault and first_missing is None and match.extra_count > 0:
        # Counting reads both sides again. It is needed only to distinguish repeated records from foreign ones.
        extra = _count_topic(task)
    else:
        extra = TargetCount(foreign_count=match.extra_count)
    return KafkaPartitionComparison(
        kafka_partition=task.stream.kafka_partition,
        archived_count=archived.count,
        found_count=count,
        first_missing=first_missing,
        foreign_count=extra.foreign_count,
        archived_digest=archived.digest.hexdigest(),
        found_digest=digest.hexdigest(),
        first_target_offset=places[0] if places else None,
        last_target_offset=places[-1] if places else None,
        fault=fault,
        doubled_count=extra.doubled_count,
    )


def _count_topic(task: CompareTask) -> TargetCount:
    """Count the topic's other records, if all archived records are there."""
    archived = ExpectedRecords(ArchivedStream(task.stream), task.stream.facts.any_timestamp)
    what = f"comparing {task.stream.topic}-{task.stream.kafka_partition} with {task.log.topic}: counting equal records"
    return count_records([archived], task.log.read(), what)


class _Digested:
    """Passes batches on, and keeps their digest and count."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = iter(batches)
        self.digest = RecordDigest()
        self.count = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            self.digest.update(batch)
            self.count += batch.num_rows
            yield batch

    def drain(self) -> None:
        """Read the rest for the digest and the count."""
        for _ in self:
            pass


def _make_task(
    request: RestoreRequest, plan: ArchivePlan, topic: TopicDescription, kafka_partition: int, log: Frontier | None
) -> CompareTask:
    """Make the task for one kafka partition. `log` is its log in the topic, or None if the topic does not have it."""
    start, end = (log.log_start_offset, log.last_stable_offset) if log else (0, 0)
    if topic.topic_id == plan.source.topic_id:
        # The topic is the source, so its offsets are the archive's: the part before the window need not be read.
        start = max(start, min(plan.selection.bounds(o)[0] for o in plan.objects_of(kafka_partition)))
    return CompareTask(
        stream=make_archive_stream(request, plan, kafka_partition),
        log=TargetLog(request.target_kafka, request.to_topic, kafka_partition, start, end),
    )


def _limit_to_log(plan: ArchivePlan, logs: dict[int, Frontier]) -> ArchivePlan:
    """Return the plan without the offsets that retention has removed from the source topic."""
    windows = tuple(
        replace(w, start_offset=max(w.start_offset, logs[w.kafka_partition].log_start_offset))
        if w.kafka_partition in logs
        else w
        for w in plan.selection.windows
    )
    selection = replace(plan.selection, windows=windows)
    return replace(plan, selection=selection, objects=tuple(o for o in plan.objects if selection.overlaps(o)))


def _describe_uncompared(
    request: RestoreRequest, plan: ArchivePlan, topic: TopicDescription, logs: dict[int, Frontier]
) -> Iterator[str]:
    """Describe the topic's records that are not compared, with the reasons."""
    for p, log in sorted(logs.items()):
        if request.kafka_partitions is not None and p not in request.kafka_partitions:
            continue
        where = f"{request.to_topic}-{p}"
        if topic.topic_id == plan.source.topic_id and log.log_start_offset:
            yield f"{where} begins at offset {log.log_start_offset}: what was before is not compared"
        if log.last_stable_offset < log.high_watermark:
            yield f"{where}: a transaction is open at offset {log.last_stable_offset}: what follows is not compared"
        if p not in plan.kafka_partitions and log.log_start_offset < log.high_watermark:
            yield f"{where} holds records, and nothing is archived of it in the window: it is not compared"
