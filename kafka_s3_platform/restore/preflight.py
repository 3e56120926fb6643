"""What has to be said before the first record is sent, all at once."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from kafka_s3_platform.config.topics import matching
from kafka_s3_platform.errors import MissingTopicError, PreflightError
from kafka_s3_platform.kafka.admin import ClusterAdmin, TopicDescription
from kafka_s3_platform.kafka.producer import unsendable
from kafka_s3_platform.model.frontier import Frontier
from kafka_s3_platform.restore.plan import RestorePlan
from kafka_s3_platform.restore.replay import UNSENDABLE_TIMESTAMPS
from kafka_s3_platform.restore.request import RestoreRequest
from kafka_s3_platform.restore.stream import ArchivedStream, StreamTask, check_objects
from kafka_s3_platform.restore.target import Finding, TargetConfigs, findings, new_topic_configs, refusal, remark
from kafka_s3_platform.spark.runner import Attempt, TaskRunner
from kafka_s3_platform.store.objects import ObjectStore

MAX_NAMED = 20
"""Objects that one preflight names; the others are counted."""

SAY_SO = "Restore to another topic, or say that the source topic is meant: --allow-source-topic (allow_source_topic)"
"""An allowance is named as the option of `kafka-s3 restore` and as the field of a run's config."""


@dataclass(frozen=True)
class Target:
    """The target topic as it was found; `description` is None where there is none yet."""

    description: TopicDescription | None
    configs: TargetConfigs
    frontiers: Mapping[int, Frontier]


def look_at_target(request: RestoreRequest, admin: ClusterAdmin) -> Target:
    """What the cluster says of the target topic."""
    now = datetime.now(timezone.utc)
    try:
        description = admin.describe_topic(request.to_topic)
    except MissingTopicError:
        return Target(None, TargetConfigs(request.to_topic, {}, now), {})
    configs = TargetConfigs(request.to_topic, admin.topic_configs(request.to_topic), now)
    return Target(description, configs, admin.frontiers(request.to_topic, description.kafka_partitions))


def preflight(
    request: RestoreRequest,
    plan: RestorePlan,
    target: Target,
    store: ObjectStore,
    runner: TaskRunner,
) -> list[Finding]:
    """Every finding, those that refuse among them."""
    return [
        *_target_findings(request, plan, target),
        *_source_findings(request, plan, target),
        *_object_findings(request, plan, store, runner),
        *(remark(f"the archive lacks some of what was asked for: {gap}") for gap in plan.gaps),
        *([] if plan.objects else [remark(f"the archive of {request.topic} holds no record in the window")]),
    ]


def refuse(request: RestoreRequest, found: Sequence[Finding]) -> None:
    """PreflightError with every finding that refuses, if there is one."""
    refusals = [f.text for f in found if f.refuses]
    if refusals:
        listed = "".join(f"\n{n}. {text}" for n, text in enumerate(refusals, 1))
        raise PreflightError(
            f"restore {request.restore_id} of {request.topic} to {request.to_topic} is refused before its first "
            f"record:{listed}"
        )


def _target_findings(request: RestoreRequest, plan: RestorePlan, target: Target) -> Iterator[Finding]:
    if target.description is None:
        yield from _missing_target(request, plan, target)
        return
    yield from findings(plan, target.configs)
    needed, there = max(plan.kafka_partitions, default=-1) + 1, len(target.description.kafka_partitions)
    if there < needed:
        yield refusal(
            f"{request.to_topic} has {there} kafka partitions, records of {request.topic} go to kafka partition "
            f"{needed - 1}: records keep their number. Add kafka partitions, or choose a subset: --kafka-partitions "
            f"(kafka_partitions)",
        )
    held = {
        p: f.high_watermark - f.log_start_offset
        for p, f in target.frontiers.items()
        if f.high_watermark > f.log_start_offset
    }
    if held:
        yield remark(
            f"{request.to_topic} is not empty: up to {sum(held.values()):,} records in {len(held)} kafka partitions "
            f"stay before what is restored",
        )


def _missing_target(request: RestoreRequest, plan: RestorePlan, target: Target) -> Iterator[Finding]:
    if not request.create_topic:
        yield refusal(
            f"target topic {request.to_topic} does not exist. Create it with {len(plan.source.kafka_partitions)} kafka "
            f"partitions, or let the restore create it: --create-topic (create_topic)",
        )
        return
    _, changes = new_topic_configs(plan, target.configs.now)
    yield from changes


def _source_findings(request: RestoreRequest, plan: RestorePlan, target: Target) -> Iterator[Finding]:
    same_cluster = request.target_kafka.bootstrap_servers == request.config.kafka.bootstrap_servers
    # The id tells the topic itself under whatever address; the name, one that was deleted and created again.
    same_id = target.description is not None and target.description.topic_id == plan.source.topic_id
    if same_id or (same_cluster and request.to_topic == request.topic):
        what = (
            f"{request.to_topic} is the source topic itself: what is restored to it is archived again, and its readers "
            f"see those records twice"
        )
        yield remark(what) if request.allow_source_topic else refusal(f"{what}. {SAY_SO}")
    elif same_cluster and request.to_topic in (*request.config.topics, *matching(request.config, [request.to_topic])):
        yield remark(
            f"{request.to_topic} is archived by connector {request.config.name} too: what is restored to it is "
            f"archived again",
        )
    if dict(plan.source.configs).get("message.timestamp.type") == "LogAppendTime":
        yield remark(
            f"{request.topic} had message.timestamp.type=LogAppendTime: the times are restored, as CreateTime",
        )


def _object_findings(
    request: RestoreRequest, plan: RestorePlan, store: ObjectStore, runner: TaskRunner
) -> Iterator[Finding]:
    damaged = check_objects(store, request.topic, plan.objects)
    yield from (refusal(text) for text in damaged[:MAX_NAMED])
    if len(damaged) > MAX_NAMED:
        yield refusal(f"{len(damaged) - MAX_NAMED} more objects are missing or replaced")
    if damaged:
        return
    counts = {p: n for p, n in runner.run(count_unsendable, _suspects(request, plan), request.config.tasks_max) if n}
    if counts:
        named = ", ".join(f"{n:,} in kafka partition {p}" for p, n in sorted(counts.items()))
        what = f"{sum(counts.values()):,} records have timestamp 0 ({named}), which the Kafka client cannot send"
        if plan.allow_unsendable_timestamps:
            yield remark(f"{what}: they get the time of the restore, which was allowed")
        else:
            yield refusal(
                f"{what}: allow that they get the time of the restore, --allow-unsendable-timestamps "
                f"(allow_unsendable_timestamps), or leave them out by time or offset"
            )


def _suspects(request: RestoreRequest, plan: RestorePlan) -> list[StreamTask]:
    """Those objects whose bounds allow for such a timestamp, restricted to it, as one task a kafka partition."""
    first, last = min(UNSENDABLE_TIMESTAMPS), max(UNSENDABLE_TIMESTAMPS)
    chosen = plan.selection
    selection = replace(chosen, from_ms=max(chosen.from_ms, first), to_ms=min(chosen.to_ms, last + 1))
    possible = selection.from_ms < selection.to_ms
    suspects = [o for o in plan.objects if possible and selection.overlaps(o)]
    return [
        StreamTask(
            request.config.store, request.topic, p, selection, tuple(o for o in suspects if o.kafka_partition == p)
        )
        for p in sorted({o.kafka_partition for o in suspects})
    ]


def count_unsendable(task: StreamTask, attempt: Attempt) -> tuple[int, int]:  # noqa: ARG001 - reading has no attempts
    """(kafka partition, records of the task whose timestamp cannot be sent)."""
    return task.kafka_partition, sum(map(unsendable, ArchivedStream(task, ObjectStore(task.store))))
