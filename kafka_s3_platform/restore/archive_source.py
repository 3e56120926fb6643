"""Our own archive as the source of a restore: the content of its index."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from kafka_s3_platform.restore.outgoing.schemas import SchemaMapping, map_schemas
from kafka_s3_platform.restore.outgoing.stream import check_decoding
from kafka_s3_platform.restore.outgoing.values import ValueSettings
from kafka_s3_platform.restore.preflight.archive_checks import check_archive, check_counts, count_exactly
from kafka_s3_platform.restore.preflight.goal import Checked, DryRunCount, Goal
from kafka_s3_platform.restore.request import RestoreRequest
from kafka_s3_platform.restore.restore_source import NewPlan
from kafka_s3_platform.restore.source.archive_plan import ArchivePlan, check_same, make_archive_target, make_plan
from kafka_s3_platform.restore.source.archive_stream import make_archive_stream
from kafka_s3_platform.restore.source.base import RecordStream, TargetPlan, TargetStart
from kafka_s3_platform.spark.runner import TaskRunner
from kafka_s3_platform.store.index import TopicIndex
from kafka_s3_platform.store.objects import ObjectStore


@dataclass(frozen=True)
class ArchiveSource:
    """The archive of `request.topic`. It goes to one topic, and its index knows the number of records."""

    request: RestoreRequest

    def complete(self) -> RestoreRequest:
        """Return the request as it is: a connector's file adds nothing."""
        check_decoding(self.request.config.name, self.request.config.records, self.request.outgoing)
        return self.request

    def read_plan(self, request: RestoreRequest, content: bytes) -> ArchivePlan:
        """Read the stored plan, and check that it belongs to the request."""
        plan = ArchivePlan.from_json(content, request.documents.plan)
        check_same(request, plan)
        return plan

    def make_plan(
        self,
        request: RestoreRequest,
        documents: ObjectStore,  # noqa: ARG002 - the index is elsewhere
    ) -> NewPlan[ArchivePlan]:
        """Choose objects from the index as it is now."""
        return NewPlan(make_plan(request), claim=_claim_nothing)

    def plan_targets(self, request: RestoreRequest, plan: ArchivePlan) -> tuple[TargetPlan, ...]:
        """Return the one target topic."""
        return (make_archive_target(request, plan),)

    def with_starts(self, plan: ArchivePlan, starts: Mapping[str, TargetStart]) -> ArchivePlan:
        """Return the plan with its target as it was before the first record."""
        [start] = starts.values()
        return replace(plan, target=start)

    def check(
        self,
        request: RestoreRequest,
        plan: ArchivePlan,
        goals: Sequence[Goal],
        runner: TaskRunner,
        *,
        is_begun: bool,  # noqa: ARG002 - the same is looked at each time
    ) -> Checked:
        """Compare the objects with the plan, and look for records that cannot be sent."""
        [goal] = goals
        objects = ObjectStore(request.config.store).heads([o.key for o in plan.objects])
        findings = check_archive(request, plan, goal.size, objects, runner)
        return Checked(tuple(findings), tuple(o.key for o in objects if o is not None and o.is_cold))

    def count(
        self, request: RestoreRequest, plan: ArchivePlan, goals: Sequence[Goal], runner: TaskRunner
    ) -> DryRunCount:
        """Count the records that pass the filter."""
        [goal] = goals
        counts = count_exactly(request, plan, runner)
        return DryRunCount(
            record_count=sum(c.record_count for c in counts),
            record_bytes=sum(c.record_bytes for c in counts),
            is_exact=True,
            findings=tuple(check_counts(request, goal.plan, goal.target.configs, counts)),
            skipped=tuple(chain.from_iterable(c.skipped for c in counts)),
            skipped_count=sum(len(c.skipped) for c in counts),
        )

    def make_values(self, goal: Goal, topic: str) -> ValueSettings | None:
        """Register the archived schemas in the target's registry if the request maps schema ids.

        A second call finds them registered.
        """
        request = goal.request
        config = request.config
        outgoing = request.outgoing
        if not (outgoing.key or outgoing.value or outgoing.map_schema_ids or outgoing.transforms):
            return None
        snapshot = TopicIndex.of(config, topic).peek()
        schemas = snapshot.state.schemas if snapshot else ()
        mapping: SchemaMapping | None = None
        if outgoing.map_schema_ids and outgoing.target_registry is not None:
            mapping = map_schemas(outgoing.target_registry, schemas, config.records, topic, request.to_topic)
        return ValueSettings(outgoing, config.records, topic, request.to_topic, mapping, tuple(schemas))

    def make_streams(self, request: RestoreRequest, plan: ArchivePlan) -> list[RecordStream]:
        """Make a stream for each kafka partition of the plan."""
        return [make_archive_stream(request, plan, kafka_partition) for kafka_partition in plan.kafka_partitions]


def _claim_nothing() -> None:
    """Do nothing: the plan alone describes a restore from an archive."""
