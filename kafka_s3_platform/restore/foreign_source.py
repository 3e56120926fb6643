"""The objects described by the file of an S3 source connector, as the source of a restore. No index has them.

There is one stream for each topic and source kafka partition. A plan has the objects in the bucket at its time. Later
objects need another restore id.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from kafka_s3_platform.config.settings import ConverterSettings
from kafka_s3_platform.errors import ConfigError, RecordError
from kafka_s3_platform.restore.filters.stage import check_filter, is_filtered
from kafka_s3_platform.restore.outgoing.stream import OutgoingStream, check_decoding
from kafka_s3_platform.restore.outgoing.values import ValueSettings, new_values
from kafka_s3_platform.restore.polls import check_same_records, claim_successor, read_sent, save_sent
from kafka_s3_platform.restore.preflight.foreign_times import check_times
from kafka_s3_platform.restore.preflight.goal import Checked, DryRunCount, Goal
from kafka_s3_platform.restore.preflight.target import (
    PreflightFinding,
    check_newest,
    make_doubt,
    make_refusal,
    make_remark,
)
from kafka_s3_platform.restore.preflight.thaw import describe_cold
from kafka_s3_platform.restore.preflight.trial import TrialTask, count_foreign, try_first_records
from kafka_s3_platform.restore.request import Outgoing, RestoreRequest
from kafka_s3_platform.restore.restore_source import NewPlan
from kafka_s3_platform.restore.source.base import RecordStream, TargetPlan, TargetStart
from kafka_s3_platform.restore.source.foreign_plan import (
    ForeignPlan,
    check_foreign_plan,
    collect_foreign_terms,
    make_foreign_plan,
    make_foreign_targets,
)
from kafka_s3_platform.restore.source.foreign_stream import ForeignStreamTask
from kafka_s3_platform.restore.source.selection import find_offset_bound
from kafka_s3_platform.restore.source.sent_before import SentObjects
from kafka_s3_platform.restore.source.terms import check_terms
from kafka_s3_platform.restore.target_topic import Rename
from kafka_s3_platform.sources.report import explain_missing
from kafka_s3_platform.spark.runner import TaskRunner
from kafka_s3_platform.store.objects import ObjectStore


@dataclass(frozen=True)
class ForeignSource:
    """Objects of a source connector.

    `request` has all options, but its `topic` and `to_topic` are not used. Instead `topics` are restored: by default
    the file's topics, else every topic found. `rename` makes the names of the targets. Without it, a RegexRouter of the
    file or of `request.outgoing` makes them, else a target has the name of its source. `after` is the id of a finished
    restore of the same connector: objects sent by it or an earlier one are left out.
    """

    request: RestoreRequest
    topics: tuple[str, ...] = ()
    rename: Rename | None = None
    after: str | None = None

    def complete(self) -> RestoreRequest:
        """Add the transforms, the converters and `behavior.on.error` of the connector's file."""
        check_filter(self.request.records)
        return _complete_request(self.request)

    def read_plan(self, request: RestoreRequest, content: bytes) -> ForeignPlan:
        """Read the stored plan, and check that it belongs to the request."""
        plan = ForeignPlan.from_json(content, request.documents.plan)
        terms = collect_foreign_terms(request, self.topics, self.rename, self.after)
        check_terms(request, terms, plan.terms, plan.created_at)
        check_foreign_plan(request, self.topics, self.rename, plan)
        return plan

    def make_plan(self, request: RestoreRequest, documents: ObjectStore) -> NewPlan[ForeignPlan]:
        """List the bucket as it is now. PreflightError if this restore cannot follow the restore `after`."""
        sent = read_sent(request, self.after, documents)
        check_same_records(request, self.after, documents)
        archive = ObjectStore(request.config.store)
        plan = make_foreign_plan(request, self.topics, self.rename, archive, self.after, sent)

        def claim() -> None:
            """Store the objects sent before, and this restore as the successor of `after`."""
            save_sent(request, sent, documents)
            claim_successor(request, self.after, documents)

        return NewPlan(plan, claim)

    def plan_targets(self, request: RestoreRequest, plan: ForeignPlan) -> tuple[TargetPlan, ...]:
        """Return a plan for each target topic. There is none if there is no object."""
        return make_foreign_targets(request.config, plan)

    def with_starts(self, plan: ForeignPlan, starts: Mapping[str, TargetStart]) -> ForeignPlan:
        """Return the plan with its targets as they were before the first record."""
        return replace(plan, starts=dict(sorted(starts.items())))

    def check(
        self,
        request: RestoreRequest,
        plan: ForeignPlan,
        goals: Sequence[Goal],
        runner: TaskRunner,  # noqa: ARG002 - little is read
        *,
        is_begun: bool,
    ) -> Checked:
        """Check the listing, and try to write the first records of each topic."""
        for goal in goals:
            self._check_outgoing(goal)
        trials = self._make_trials(request, plan, goals)
        store = ObjectStore(request.config.store)
        findings = [*_check_objects(request, plan), *try_first_records(trials, store, is_begun=is_begun)]
        sent = read_sent(request, self.after, ObjectStore(request.config.restore_store))
        findings += [] if sent is None else _find_other_targets(sent, goals)
        return Checked(tuple(findings), tuple(o.key for o in plan.objects if o.is_cold))

    def count(
        self, request: RestoreRequest, plan: ForeignPlan, goals: Sequence[Goal], runner: TaskRunner
    ) -> DryRunCount:
        """Read every object: count its records, try to write them, and find bad ones."""
        trials = self._make_trials(request, plan, goals)
        try:
            counts = list(runner.run_grouped(count_foreign, trials, request.config.tasks_max, lambda t: t.stream.size))
        except RecordError as err:
            return DryRunCount(findings=(make_refusal(err.text),))
        goal_of = {topic: goal for goal in goals for topic in goal.plan.topics}
        late = (
            check_newest(c.newest, goal_of[c.topic].target.configs)
            for c in counts
            if goal_of[c.topic].target.description
        )
        return DryRunCount(
            findings=tuple(dict.fromkeys(chain.from_iterable(late))),
            record_count=sum(c.record_count for c in counts),
            record_bytes=sum(c.record_bytes for c in counts),
            is_exact=not is_filtered(request.records),
            gaps=tuple(chain.from_iterable(c.gaps for c in counts)),
            skipped=tuple(chain.from_iterable(c.skipped for c in counts)),
            skipped_count=sum(c.skipped_count for c in counts),
            gap_count=sum(c.gap_count for c in counts),
            notes=tuple(dict.fromkeys(chain.from_iterable(c.notes for c in counts))),
        )

    def make_values(self, goal: Goal, topic: str) -> ValueSettings | None:
        """Return how keys and values are written. None: they are sent as they are read."""
        outgoing = goal.request.outgoing
        if not (outgoing.key or outgoing.value or outgoing.transforms):
            return None
        return ValueSettings(outgoing, goal.request.config.records, topic, goal.plan.to_topic)

    def make_streams(self, request: RestoreRequest, plan: ForeignPlan) -> list[RecordStream]:
        """Make a stream for each topic and kafka partition."""
        return [*self._list_streams(request, plan)]

    def _list_streams(self, request: RestoreRequest, plan: ForeignPlan) -> Iterator[ForeignStreamTask]:
        for group in plan.groups:
            yield ForeignStreamTask(
                request.config,
                group,
                plan.times,
                find_offset_bound(request.from_offset, group.kafka_partition),
                find_offset_bound(request.to_offset, group.kafka_partition),
                request.allow_unsendable_timestamps,
            )

    def _make_trials(self, request: RestoreRequest, plan: ForeignPlan, goals: Sequence[Goal]) -> list[TrialTask]:
        goal_of = {topic: goal for goal in goals for topic in goal.plan.topics}
        trials = []
        for stream in self._list_streams(request, plan):
            goal = goal_of[stream.topic]
            trials.append(TrialTask(stream, goal.sent(self.make_values(goal, stream.topic))))
        return trials

    def _check_outgoing(self, goal: Goal) -> None:
        """Raise ConfigError if the transforms, the converters or the partitioner cannot be used."""
        for topic in goal.plan.topics:
            settings = self.make_values(goal, topic)
            values = None if settings is None else new_values(settings)
            OutgoingStream(goal.request.outgoing, topic, 0, goal.size, goal.plan.to_topic, values=values)


def _find_other_targets(sent: SentObjects, goals: Sequence[Goal]) -> Iterator[PreflightFinding]:
    """Find targets without the records of earlier restores, which went to another topic."""
    for goal in goals:
        description = goal.target.description
        target = (goal.plan.to_topic, description.topic_id if description else "")
        for topic in goal.plan.topics:
            for (to_topic, topic_id), count in sorted(sent.count_elsewhere(topic, target).items()):
                now = "another topic" if description else "a new topic"
                yield make_doubt(
                    f"{target[0]} lacks what the restores before this one have sent of {topic}: {count:,} objects went "
                    f"to {to_topic} of id {topic_id}, and this is {now}. A restore that comes after none (without "
                    f"--after) sends all"
                )


def _check_objects(request: RestoreRequest, plan: ForeignPlan) -> Iterator[PreflightFinding]:
    if not plan.objects:
        yield make_remark("there are no objects to restore")
    yield from describe_cold(plan.objects)
    yield from map(make_remark, plan.notes)
    yield from map(make_doubt, plan.doubts)
    yield from check_times(request.config, plan.objects, plan.times)
    if plan.objects:
        yield from map(make_remark, explain_missing(request.config))


def _complete_request(request: RestoreRequest) -> RestoreRequest:
    """Return the request with the transforms, converters and `behavior.on.error` of the connector's file."""
    config = request.config
    outgoing = request.outgoing
    if config.source is None:
        raise ConfigError(f"connector {config.name} is a sink: its archive is restored by its index")
    if request.restore_acls or outgoing.map_schema_ids:
        what = "ACLs" if request.restore_acls else "schema ids"
        raise ConfigError(f"connector {config.name} is a source: its objects have no {what}, so none can be restored")
    source = config.source.model_copy(update={"behavior_on_error": request.on_error})
    completed = replace(outgoing, transforms=(*config.records.transforms, *outgoing.transforms))
    check_decoding(config.name, config.records, completed)
    if not config.layout.is_envelope:
        key = _choose_converter(outgoing, outgoing.key, config.records.key)
        value = _choose_converter(outgoing, outgoing.value, config.records.value)
        completed = replace(completed, key=key, value=value)
    return replace(request, config=config.model_copy(update={"source": source}), outgoing=completed)


def _choose_converter(
    outgoing: Outgoing, requested: ConverterSettings | None, file_converter: ConverterSettings
) -> ConverterSettings:
    """Return the requested converter, else the file's, with the target's registry if the restore names one."""
    if requested is not None or outgoing.target_registry is None or file_converter.registry is None:
        return requested or file_converter
    return file_converter.model_copy(update={"registry": outgoing.target_registry})
