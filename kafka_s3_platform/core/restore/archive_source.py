"""Our own archive as the source of a restore: planned from its index, and checked before the first record is sent."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Self

from kafka_s3_platform.core.errors import MissingTopicError, PermanentError, PlatformError
from kafka_s3_platform.core.extensions import load_extension, load_extensions
from kafka_s3_platform.core.kafka.producer import count_timestamp_zero
from kafka_s3_platform.core.restore.filters.stage import FilteredStream, check_filter
from kafka_s3_platform.core.restore.outgoing.sent import SchemaMapping, SentSettings, ValueSettings, new_outgoing_stream
from kafka_s3_platform.core.restore.preflight.goal import Checked, DryRunCount, Goal, StreamCount
from kafka_s3_platform.core.restore.preflight.target import (
    PreflightFinding,
    check_largest_record,
    make_doubt,
    make_refusal,
    make_remark,
)
from kafka_s3_platform.core.restore.preflight.thaw import describe_cold
from kafka_s3_platform.core.restore.request import RecordFilter, RestoreRequest
from kafka_s3_platform.core.restore.restore_source import NewPlan
from kafka_s3_platform.core.restore.source.archive_plan import ArchivePlan, make_archive_target, make_plan
from kafka_s3_platform.core.restore.source.archive_stream import StreamTask, describe_differences, make_archive_stream
from kafka_s3_platform.core.restore.source.base import UNSENDABLE_TIMESTAMP, PlanPointer, StreamFacts, TargetPlan
from kafka_s3_platform.core.restore.source.terms import hash_place
from kafka_s3_platform.core.restore.source.topics_plan import TopicsPlan, join_plans
from kafka_s3_platform.core.spark.runner import Attempt, TaskRunner
from kafka_s3_platform.core.store.errors import NotFoundError, PreconditionError
from kafka_s3_platform.core.store.index import ConnectorIndex, TopicIndex, collect_object_keys
from kafka_s3_platform.core.store.objects import ObjectInfo, ObjectStore
from kafka_s3_platform.core.text import count_noun

MAX_NAMED = 20
"""A preflight names at most this many objects, and counts the others."""


def check_archive(
    goal: Goal, plan: ArchivePlan, objects: Sequence[ObjectInfo | None], runner: TaskRunner
) -> list[PreflightFinding]:
    """Return the findings about the objects and records. `objects` are the store's answers about the plan's objects.

    Raises:
        ConfigError: the filter, the transforms or the partitioner cannot be used.
    """
    request = goal.plan.request
    check_filter(request.records)
    facts = StreamFacts(topic=request.topic, kafka_partition=0, store=ObjectStore(request.config.store), object_bytes=0)
    new_outgoing_stream(facts, SentSettings(request.to_topic, goal.size, outgoing=request.outgoing))
    return [
        *describe_cold(_list_cold(objects)),
        *_check_formats(request, plan),
        *_check_objects(goal.plan, plan, objects, runner),
        *(make_remark(f"the archive lacks some of what was asked for: {gap}") for gap in plan.gaps),
        *([] if plan.objects else [make_remark(f"the archive of {request.topic} holds no record in the window")]),
    ]


def _list_cold(objects: Iterable[ObjectInfo | None]) -> tuple[str, ...]:
    """Return the keys of the objects in cold storage, which cannot be read now."""
    return tuple(info.key for info in objects if info is not None and info.is_cold)


def _check_formats(request: RestoreRequest, plan: ArchivePlan) -> Iterator[PreflightFinding]:
    """Refuse archived objects that hold values alone, not whole records, unless bad objects are left out."""
    if request.on_error != "fail":
        yield from (make_doubt(f"{sentence}; they are left out") for sentence in plan.values_only)
        return
    yield from (
        make_refusal(
            f"{sentence}. Leave them out with ranges of offsets (--from-offset, --to-offset) or with "
            "--behavior-on-error ignore or log (how.behavior_on_error). The file of an S3SourceConnector restores "
            "what they hold"
        )
        for sentence in plan.values_only
    )


def _check_objects(
    target: TargetPlan, plan: ArchivePlan, objects: Sequence[ObjectInfo | None], runner: TaskRunner
) -> Iterator[PreflightFinding]:
    """Find missing or replaced objects, and records that cannot be sent. See `check_archive` for `objects`."""
    request = target.request
    removed_keys = _find_removed(target, plan, objects)
    if removed_keys:
        yield make_refusal(
            f"the index does not list {count_noun(len(removed_keys), 'object')} of the plan, such as "
            f"{min(removed_keys)}: retention or an erasure removed them after the restore was planned, or somebody "
            "changed the plan. Restore to another topic under another restore id, which makes a new plan"
        )
    compared = [(o, info) for o, info in zip(plan.objects, objects, strict=True) if o.key not in removed_keys]
    damaged = describe_differences(request, [item for item, _ in compared], [info for _, info in compared])
    shown = damaged[:MAX_NAMED]
    if len(damaged) > MAX_NAMED:
        shown.append(f"{len(damaged) - MAX_NAMED} more objects are missing or replaced")
    is_refused = request.on_error == "fail"
    yield from (make_refusal(text) if is_refused else make_remark(f"left out: {text}") for text in shown)
    # Records are read only if the restore can go on: reading takes long, and a refusal is certain already.
    if not damaged or request.on_error != "fail":
        readable = (o for o, info in zip(plan.objects, objects, strict=True) if info is not None and not info.is_cold)
        yield from _check_timestamps(request, replace(plan, objects=tuple(readable)), runner)


def _find_removed(target: TargetPlan, plan: ArchivePlan, objects: Sequence[ObjectInfo | None]) -> frozenset[str]:
    """Return the keys of planned objects that the index no longer names.

    The index is asked about missing objects. If the restore has begun, its plan is older, so the index is asked about
    all objects: objects of erased records are deleted after the index has lost them.
    """
    is_begun = target.start is not None
    keys = {o.key for o, info in zip(plan.objects, objects, strict=True) if is_begun or info is None}
    snapshot = TopicIndex.of(target.request.config, target.request.topic).peek() if keys else None
    return frozenset(keys) - collect_object_keys((*snapshot.segments, *snapshot.retired)) if snapshot else frozenset()


def _check_timestamps(request: RestoreRequest, plan: ArchivePlan, runner: TaskRunner) -> Iterator[PreflightFinding]:
    """Find records with a timestamp that the Kafka client cannot send. Refuse them, unless they are allowed."""
    tasks = _find_suspects(request, plan)
    results = runner.run_grouped(count_unsendable, tasks, request.config.tasks_max, lambda task: task.stream.facts.size)
    counts = {p: n for p, n in results if n}
    if counts:
        named = ", ".join(f"{n:,} in kafka partition {p}" for p, n in sorted(counts.items()))
        what = f"{sum(counts.values()):,} records have timestamp 0 ({named}), which the Kafka client cannot send"
        if plan.allow_unsendable_timestamps:
            yield make_remark(f"{what}: they get the time of the restore, which was allowed")
        else:
            yield make_refusal(
                f"{what}. Let them get the time of the restore, --allow-unsendable-timestamps "
                "(how.allow_unsendable_timestamps), or exclude them by time or offset"
            )


@dataclass(frozen=True)
class PassingCountTask:
    """A stream, and the filter that selects the records to count."""

    stream: StreamTask
    records: RecordFilter


def _find_suspects(request: RestoreRequest, plan: ArchivePlan) -> list[PassingCountTask]:
    """Make a task for each kafka partition to read the objects whose bounds include timestamp 0.

    These objects alone do not show the latest record of each key, so every passing record counts.
    """
    requested = plan.selection
    from_ms = max(requested.from_ms, UNSENDABLE_TIMESTAMP)
    selection = replace(requested, from_ms=from_ms, to_ms=min(requested.to_ms, UNSENDABLE_TIMESTAMP + 1))
    possible = selection.from_ms < selection.to_ms
    suspects = [o for o in plan.objects if possible and selection.overlaps(o)]
    reduced = replace(plan, selection=selection, objects=tuple(suspects))
    streams = (make_archive_stream(request, reduced, p) for p in reduced.kafka_partitions)
    return [PassingCountTask(stream, replace(request.records, latest_per_key=False)) for stream in streams]


def count_unsendable(task: PassingCountTask, _: Attempt) -> tuple[int, int]:
    """Return the kafka partition, and the number of the task's records with an unsendable timestamp."""
    passing = FilteredStream(task.stream.records(), task.records)
    return task.stream.kafka_partition, sum(map(count_timestamp_zero, passing))


def count_exactly(request: RestoreRequest, plan: ArchivePlan, runner: TaskRunner) -> list[StreamCount]:
    """Read everything in the plan to count the passing records before anything is sent."""
    tasks = [PassingCountTask(make_archive_stream(request, plan, p), request.records) for p in plan.kafka_partitions]
    counts = runner.run_grouped(count_selected, tasks, request.config.tasks_max, lambda task: task.stream.facts.size)
    return sorted(counts, key=lambda c: c.kafka_partition)


def count_selected(task: PassingCountTask, _: Attempt) -> StreamCount:
    """Count the records of one task that pass its filter."""
    stream = task.stream.records()
    count = StreamCount(task.stream.topic, task.stream.kafka_partition)
    for batch in FilteredStream(stream, task.records):
        count = count.add(batch)
    return replace(count, facts=stream.facts)


@dataclass(frozen=True)
class ArchiveSource:
    """Archived topics. Each goes to one topic, and the index knows the number of its records.

    `topics` are the requests of single topics, as they are chosen now. Without any, `request` is for one topic. With
    some, the `topic` and `to_topic` of `request` only say what was asked for. If the restore has begun, its plan keeps
    the topics it had then.
    """

    request: RestoreRequest
    topics: tuple[RestoreRequest, ...] = ()

    def complete(self) -> Self:
        """Check that the records can be decoded. Return the source as it is, since a connector's file adds nothing."""
        for request in (self.request, *self.topics):
            for check_decoding in load_extensions("check_decoding"):
                check_decoding(request.config.name, request.config.records, request.outgoing)
        return self

    def read_plan(self, content: bytes) -> TopicsPlan:
        """Read the stored plan, and check that it belongs to the request."""
        plan = TopicsPlan.from_json(content, self.request.documents.plan)
        plan.check_requests(self.request, [self._request_topic(topic) for topic in plan.topics])
        return plan

    def make_plan(self, _: TaskRunner) -> NewPlan[TopicsPlan]:
        """Choose objects from the indexes as they are now.

        A topic that cannot be planned is refused. If a pattern chose it and nothing of it is archived, it is skipped
        instead. If no topic can be planned, the first error is raised. Raises PreflightError if the restore id was
        begun with another of the connectors.
        """
        self._refuse_begun_elsewhere()
        plans: list[ArchivePlan] = []
        errors: list[PlatformError] = []
        # All topics of a connector are in one index, which takes longer to open than to read.
        indexes: dict[str, ConnectorIndex] = {}
        for request in self.topics or (self.request,):
            index = indexes.setdefault(request.config.name, ConnectorIndex.of(request.config))
            try:
                plans.append(make_plan(request, index))
            except PermanentError as err:
                errors.append(err)
        if not plans:
            raise errors[0]
        skipped = [err for err in errors if isinstance(err, MissingTopicError) and self.request.topics_regex]
        refusals = tuple(make_refusal(err.text) for err in errors if err not in skipped)
        plan = join_plans(self.request, plans, [err.text for err in skipped])
        return NewPlan(plan, claim=self._claim_other_places, findings=refusals)

    def _refuse_begun_elsewhere(self) -> None:
        """Refuse an id that was begun with another connector first: all would be sent again beside what it has sent."""
        for connector, (store, key) in self._list_other_places().items():
            try:
                content = store.get(key)
            except NotFoundError:
                continue
            # An earlier run of this restore may have been killed between its claim and its plan.
            if content != self._pointer.to_json():
                pointer = PlanPointer.from_json(content, key) or PlanPointer(connector, store.uri(key))
                raise pointer.make_refusal(self.request.restore_id)

    def _claim_other_places(self) -> None:
        """Reserve the restore id in the buckets of the other connectors, where none but this restore may use it."""
        for store, key in self._list_other_places().values():
            with suppress(PreconditionError):
                store.put_new(key, self._pointer.to_json())
        self._refuse_begun_elsewhere()

    @property
    def _pointer(self) -> PlanPointer:
        """The pointer to the plan of this restore."""
        config = self.request.config
        uri = ObjectStore(config.restore_store).uri(self.request.documents.plan)
        return PlanPointer(config.name, uri, hash_place(config))

    def _list_other_places(self) -> dict[str, tuple[ObjectStore, str]]:
        """Map each connector with other restore documents than the first one to the key that its plan would have."""
        place = hash_place(self.request.config)
        requests = {r.config.name: r for r in self.topics if hash_place(r.config) != place}
        return {name: (ObjectStore(r.config.restore_store), r.documents.plan) for name, r in requests.items()}

    def plan_targets(self, plan: TopicsPlan) -> tuple[TargetPlan, ...]:
        """Return the target of each topic."""
        return tuple(make_archive_target(self._request_topic(topic), topic) for topic in plan.begun_topics)

    def _request_topic(self, plan: ArchivePlan) -> RestoreRequest:
        """Return the request of one planned topic, made from its own or another request of its connector."""
        if not self.topics:
            return self.request
        topic = str(plan.terms["topic"])
        # A begun restore keeps its topics, even if its connector has others now. Each may have windows of its own.
        requests = (r for r in self.topics if r.config.name == plan.facts.connector)
        request = min(requests, key=lambda r: r.topic != topic, default=self.request)
        return replace(request, topic=topic, to_topic=plan.to_topic)

    def check(self, plan: TopicsPlan, goals: Sequence[Goal], runner: TaskRunner) -> Checked:
        """Compare the objects with the plan, and look for records that cannot be sent."""
        findings: list[PreflightFinding] = []
        cold_objects: list[tuple[ObjectStore, str]] = []
        for goal, topic in zip(goals, plan.topics, strict=True):
            store = ObjectStore(goal.plan.request.config.store)
            objects = store.heads([o.key for o in topic.objects])
            findings += goal.name_findings(check_archive(goal, topic, objects, runner))
            cold_objects += ((store, key) for key in _list_cold(objects))
        return Checked(tuple(findings), tuple(cold_objects))

    def count(self, plan: TopicsPlan, goals: Sequence[Goal], runner: TaskRunner) -> DryRunCount:
        """Count the records that pass the filter. If sent unchanged, compare the largest with the target's limit."""
        counts: list[StreamCount] = []
        findings: list[PreflightFinding] = []
        for goal, topic in zip(goals, plan.topics, strict=True):
            topic_counts = count_exactly(goal.plan.request, topic, runner)
            counts += topic_counts
            largest = max((c.largest_record_bytes for c in topic_counts), default=0)
            if not goal.plan.request.outgoing.changes_content:
                too_large = check_largest_record(goal.plan, goal.target.configs, largest)
                findings += goal.name_findings(too_large)
        return DryRunCount(tuple(counts), is_exact=True, findings=tuple(findings))

    def make_value_settings(self, goal: Goal, topic: str) -> ValueSettings | None:
        """Return the settings for rewriting keys and values, or None if they stay as they are.

        If the request maps schema ids, the archived schemas are registered in the target's registry. A second call
        finds them registered.
        """
        request = goal.plan.request
        config = request.config
        outgoing = request.outgoing
        if not (outgoing.key or outgoing.value or outgoing.map_schema_ids or outgoing.transforms):
            return None
        snapshot = TopicIndex.of(config, topic).peek()
        schemas = snapshot.state.schemas if snapshot else ()
        mapping: SchemaMapping | None = None
        if outgoing.map_schema_ids and outgoing.target_registry is not None:
            map_schemas = load_extension("map_schemas")
            mapping = map_schemas(outgoing.target_registry, schemas, config.records, topic, request.to_topic)
        return ValueSettings(outgoing, config.records, topic, request.to_topic, mapping, tuple(schemas))

    def make_streams(self, plan: TopicsPlan) -> list[StreamTask]:
        """Make a stream for each kafka partition of each topic, named after its topic if there are several."""
        streams: list[StreamTask] = []
        for topic in plan.topics:
            request = self._request_topic(topic)
            streams += (make_archive_stream(request, topic, p) for p in topic.kafka_partitions)
        return [replace(stream, is_named=len(plan.topics) > 1) for stream in streams]
