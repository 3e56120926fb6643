"""Check our own archive before its first record is sent: its objects, and in a dry run its records."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kafka_s3_platform.kafka.produce.rows import count_timestamp_zero
from kafka_s3_platform.model.batches import count_record_bytes
from kafka_s3_platform.restore.filters.stage import check_filter, filter_batches
from kafka_s3_platform.restore.outgoing.stream import OutgoingStream
from kafka_s3_platform.restore.preflight.keeping import changes_sizes
from kafka_s3_platform.restore.preflight.target import (
    PreflightFinding,
    TargetConfigs,
    check_largest_record,
    make_doubt,
    make_refusal,
    make_remark,
)
from kafka_s3_platform.restore.preflight.thaw import describe_cold
from kafka_s3_platform.restore.replay.spec import UNSENDABLE_TIMESTAMPS
from kafka_s3_platform.restore.request import RecordFilter, RestoreRequest
from kafka_s3_platform.restore.source.archive_plan import ArchivePlan
from kafka_s3_platform.restore.source.archive_stream import (
    ArchivedStream,
    StreamTask,
    describe_differences,
    make_archive_stream,
)
from kafka_s3_platform.restore.source.base import TargetPlan
from kafka_s3_platform.spark.runner import Attempt, TaskRunner
from kafka_s3_platform.store.objects import ObjectInfo, ObjectStore

MAX_NAMED = 20
"""A preflight names so many objects at most and counts the others."""


def check_archive(
    request: RestoreRequest,
    plan: ArchivePlan,
    size: int,
    objects: Sequence[ObjectInfo | None],
    runner: TaskRunner,
) -> list[PreflightFinding]:
    """Return the findings about the archive's objects and records.

    `size` is the number of kafka partitions of the target, now or when created. `objects` is the store's answer for
    each planned object.

    Raises:
        ConfigError: the filter, the transforms or the partitioner cannot be used.
    """
    check_filter(request.records)
    OutgoingStream(request.outgoing, request.topic, 0, size, request.to_topic)
    return [
        *describe_cold(objects),
        *_check_formats(request, plan),
        *_check_objects(request, plan, objects, runner),
        *(make_remark(f"the archive lacks some of what was asked for: {gap}") for gap in plan.gaps),
        *([] if plan.objects else [make_remark(f"the archive of {request.topic} holds no record in the window")]),
    ]


def _check_formats(request: RestoreRequest, plan: ArchivePlan) -> Iterator[PreflightFinding]:
    """Refuse objects of values only, unless bad objects are left out."""
    if request.on_error != "fail":
        yield from (make_doubt(f"{sentence}; they are left out") for sentence in plan.values_only)
        return
    yield from (
        make_refusal(
            f"{sentence}. Leave them out with windows of offsets (--from-offset, --to-offset) or with "
            f"--behavior-on-error ignore or log (how.behavior_on_error); what they hold is restored by a file of an "
            f"S3SourceConnector"
        )
        for sentence in plan.values_only
    )


def remark_left_out(text: str) -> PreflightFinding:
    """Make the finding for a bad object left out by `behavior.on.error`."""
    return make_remark(f"left out: {text}")


def _check_objects(
    request: RestoreRequest, plan: ArchivePlan, objects: Sequence[ObjectInfo | None], runner: TaskRunner
) -> Iterator[PreflightFinding]:
    damaged = describe_differences(
        request.topic, plan.objects, objects, ObjectStore(request.config.store), request.on_error
    )
    say = make_refusal if request.on_error == "fail" else remark_left_out
    yield from (say(text) for text in damaged[:MAX_NAMED])
    if len(damaged) > MAX_NAMED:
        yield say(f"{len(damaged) - MAX_NAMED} more objects are missing or replaced")
    # Records are read only if the restore can go on: reading takes long, and a refusal is certain already.
    if not damaged or request.on_error != "fail":
        readable = (o for o, info in zip(plan.objects, objects, strict=True) if info is not None and not info.is_cold)
        yield from _check_timestamps(request, replace(plan, objects=tuple(readable)), runner)


def _check_timestamps(request: RestoreRequest, plan: ArchivePlan, runner: TaskRunner) -> Iterator[PreflightFinding]:
    tasks = _find_suspects(request, plan)
    results = runner.run_grouped(count_unsendable, tasks, request.config.tasks_max, lambda task: task.stream.size)
    counts = {p: n for p, n in results if n}
    if counts:
        named = ", ".join(f"{n:,} in kafka partition {p}" for p, n in sorted(counts.items()))
        what = f"{sum(counts.values()):,} records have timestamp 0 ({named}), which the Kafka client cannot send"
        if plan.allow_unsendable_timestamps:
            yield make_remark(f"{what}: they get the time of the restore, which was allowed")
        else:
            yield make_refusal(
                f"{what}: allow that they get the time of the restore, --allow-unsendable-timestamps "
                f"(how.allow_unsendable_timestamps), or leave them out by time or offset"
            )


@dataclass(frozen=True)
class PassingCountTask:
    """A stream, and the filter of its counted records."""

    stream: StreamTask
    records: RecordFilter


def _find_suspects(request: RestoreRequest, plan: ArchivePlan) -> list[PassingCountTask]:
    """Make a task for each kafka partition that reads the objects with bounds around a timestamp of 0.

    These objects alone do not show the latest record of each key, so every passing record counts.
    """
    first = min(UNSENDABLE_TIMESTAMPS)
    last = max(UNSENDABLE_TIMESTAMPS)
    chosen = plan.selection
    selection = replace(chosen, from_ms=max(chosen.from_ms, first), to_ms=min(chosen.to_ms, last + 1))
    possible = selection.from_ms < selection.to_ms
    suspects = [o for o in plan.objects if possible and selection.overlaps(o)]
    reduced = replace(plan, selection=selection, objects=tuple(suspects))
    streams = (make_archive_stream(request, reduced, p) for p in reduced.kafka_partitions)
    return [PassingCountTask(stream, replace(request.records, latest_per_key=False)) for stream in streams]


def count_unsendable(task: PassingCountTask, attempt: Attempt) -> tuple[int, int]:  # noqa: ARG001 - reading has no attempts
    """Return the kafka partition, and the number of the task's records with an unsendable timestamp."""
    stream = filter_batches(ArchivedStream(task.stream, ObjectStore(task.stream.store)), task.records)
    return task.stream.kafka_partition, sum(map(count_timestamp_zero, stream))


@dataclass(frozen=True)
class SelectedCount:
    """Part of one source kafka partition that passes the filter. Bytes are of keys, values and headers.

    `skipped` names bad objects left out.
    """

    kafka_partition: int
    record_count: int
    record_bytes: int
    largest_record_bytes: int
    skipped: tuple[str, ...] = ()


def count_exactly(request: RestoreRequest, plan: ArchivePlan, runner: TaskRunner) -> list[SelectedCount]:
    """Read everything in the plan to count the passing records before anything is sent."""
    tasks = [PassingCountTask(make_archive_stream(request, plan, p), request.records) for p in plan.kafka_partitions]
    counts = runner.run_grouped(count_selected, tasks, request.config.tasks_max, lambda task: task.stream.size)
    return sorted(counts, key=lambda c: c.kafka_partition)


def count_selected(task: PassingCountTask, attempt: Attempt) -> SelectedCount:  # noqa: ARG001 - reading has no attempts
    """Count the records of one task."""
    count = size = largest = 0
    stream = ArchivedStream(task.stream, ObjectStore(task.stream.store))
    for batch in filter_batches(stream, task.records):
        sizes = count_record_bytes(batch)
        count = count + batch.num_rows
        size = size + int(sizes.sum())
        largest = max(largest, int(sizes.max()))
    return SelectedCount(task.stream.kafka_partition, count, size, largest, stream.skipped)


def check_counts(
    request: RestoreRequest, plan: TargetPlan, target: TargetConfigs, counts: Sequence[SelectedCount]
) -> list[PreflightFinding]:
    """Return the findings that are certain after everything was read."""
    if changes_sizes(request):
        return []
    largest = max((c.largest_record_bytes for c in counts), default=0)
    return list(check_largest_record(request, plan, target, largest))
