"""What has to be said before the first record is sent, all at once."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone

from kafka_s3_platform.config.settings import ConnectorConfig, KafkaSettings
from kafka_s3_platform.config.topics import matching
from kafka_s3_platform.errors import MissingTopicError, PlatformError, PreflightError
from kafka_s3_platform.formats.columns import record_sizes
from kafka_s3_platform.kafka.admin import ClusterAdmin, ClusterDescription, TopicDescription
from kafka_s3_platform.kafka.disk_space import DiskSpace, disk_space
from kafka_s3_platform.kafka.producer import unsendable
from kafka_s3_platform.model.frontier import Frontier
from kafka_s3_platform.model.segment import TopicAcl
from kafka_s3_platform.restore.filters import check_filter, filtered
from kafka_s3_platform.restore.keeping import changes_sizes
from kafka_s3_platform.restore.outgoing import OutgoingStream
from kafka_s3_platform.restore.plan import RestorePlan
from kafka_s3_platform.restore.replay import UNSENDABLE_TIMESTAMPS
from kafka_s3_platform.restore.request import RecordFilter, RestoreRequest
from kafka_s3_platform.restore.space import Room, space_findings
from kafka_s3_platform.restore.stream import ArchivedStream, StreamTask, differences, stream_task
from kafka_s3_platform.restore.target import (
    Finding,
    TargetConfigs,
    acl_findings,
    findings,
    largest_record_findings,
    new_topic_configs,
    new_topic_size,
    refusal,
    remark,
    replication_findings,
    rights_findings,
    size_findings,
)
from kafka_s3_platform.restore.thaw import cold_findings
from kafka_s3_platform.spark.runner import Attempt, TaskRunner
from kafka_s3_platform.store.objects import ObjectInfo, ObjectStore

MAX_NAMED = 20
"""Objects that one preflight names; the others are counted."""

LOOK_SECONDS = 5.0
"""How long the cluster of another connector may take to say who it is."""

SAY_SO = "Restore to another topic, or say that the source topic is meant: --allow-source-topic (allow_source_topic)"
"""An allowance is named as the option of `kafka-s3 restore` and as the field of a run's config."""


@dataclass(frozen=True)
class Target:
    """The target topic as it was found; `description` is None where there is none yet.

    Of one that is to be created, `not_taken` is config name -> why its brokers do not take it, and `uncreatable` why
    they would not create it without those.
    """

    description: TopicDescription | None
    configs: TargetConfigs
    frontiers: Mapping[int, Frontier]
    cluster: ClusterDescription | None = None
    acls: tuple[TopicAcl, ...] | None = None
    not_taken: Mapping[str, str] = field(default_factory=dict)
    uncreatable: str | None = None

    def kafka_partition_count(self, request: RestoreRequest, plan: RestorePlan) -> int:
        """How many kafka partitions it has, or gets when it is created; once a restore has begun, as many as then."""
        if plan.target is not None:
            return len(plan.target.offsets)
        return len(self.description.kafka_partitions) if self.description else new_topic_size(request, plan)


def look_at_target(request: RestoreRequest, admin: ClusterAdmin) -> Target:
    """What the cluster says of the target topic."""
    now, topic = datetime.now(timezone.utc), request.to_topic
    cluster = admin.describe_cluster()
    description = describe_if_there(admin, topic)
    if description is None:
        acls = admin.topic_acls(topic) if request.restore_acls else None
        return Target(None, TargetConfigs(topic, {}, now), {}, cluster, acls)
    configs = TargetConfigs(topic, admin.topic_configs(topic), now)
    frontiers = admin.frontiers(topic, description.kafka_partitions)
    return Target(description, configs, frontiers, cluster, description.acls)


def describe_if_there(admin: ClusterAdmin, topic: str) -> TopicDescription | None:
    """The topic as its cluster describes it, None where there is none."""
    try:
        return admin.describe_topic(topic)
    except MissingTopicError:
        return None


def preflight(
    request: RestoreRequest,
    plan: RestorePlan,
    target: Target,
    objects: Sequence[ObjectInfo | None],
    runner: TaskRunner,
) -> list[Finding]:
    """Every finding, those that refuse among them. `objects`: what the store says of each that is planned.

    Raises:
        ConfigError: the filter, the transforms or the partitioner cannot be used.
    """
    check_filter(request.records)
    size = target.kafka_partition_count(request, plan)
    OutgoingStream(request.outgoing, request.topic, 0, size, request.to_topic)
    return [
        *_delivery_findings(request),
        *_schema_findings(request),
        *_target_findings(request, plan, target),
        *_rights_and_acls(request, plan, target),
        *room_findings(request, plan, target),
        *_source_findings(request, plan, target),
        *_archived_again(request, target),
        *cold_findings(objects),
        *_format_findings(request, plan),
        *_object_findings(request, plan, objects, runner),
        *(remark(f"the archive lacks some of what was asked for: {gap}") for gap in plan.gaps),
        *([] if plan.objects else [remark(f"the archive of {request.topic} holds no record in the window")]),
    ]


def _format_findings(request: RestoreRequest, plan: RestorePlan) -> Iterator[Finding]:
    """What is said of objects that hold values only: refused, unless bad objects are to be left out."""
    if request.on_error != "fail":
        yield from (remark(f"{told}; they are left out") for told in plan.values_only)
        return
    yield from (
        refusal(
            f"{told}. Leave them out with windows of offsets (--from-offset, --to-offset) or with "
            f"--behavior-on-error log (behavior_on_error); what they hold is restored by a file of an S3SourceConnector"
        )
        for told in plan.values_only
    )


def about_target(request: RestoreRequest, plan: RestorePlan, target: Target) -> list[Finding]:
    """What there is to say of the target alone, whatever the records are read from."""
    return [
        *_delivery_findings(request),
        *_target_findings(request, plan, target),
        *_rights_and_acls(request, plan, target),
        *_source_findings(request, plan, target),
        *_archived_again(request, target),
    ]


def _delivery_findings(request: RestoreRequest) -> Iterator[Finding]:
    """Without a marker a resume compares one kafka partition of the target with the archive, record by record."""
    if request.delivery != "at_least_once":
        return
    if request.outgoing.partitioning != "source":
        yield refusal(
            "delivery=at_least_once keeps kafka partition numbers: where keys decide them, restore with exactly_once"
        )
    if request.outgoing.has_mapper:
        yield refusal(
            "a mapper may make several records of one, and with delivery=at_least_once a run that goes on cannot tell "
            "how many of them have arrived: restore with exactly_once"
        )


def _schema_findings(request: RestoreRequest) -> Iterator[Finding]:
    """Ids are mapped of those schemas that were archived, and they are where the file says whose they are."""
    records, outgoing = request.config.records, request.outgoing
    if outgoing.map_schema_ids and records.key.registry is None and records.value.registry is None:
        yield refusal(
            f"schema ids cannot be mapped: the file of connector {request.config.name} names no registry, so no schema "
            f"was archived. Name the converters that the records were written with (value.converter, "
            f"value.converter.schema.registry.url) and archive once more while that registry answers"
        )
    if outgoing.map_schema_ids and outgoing.target_registry is None:
        yield refusal("schema ids are mapped to those of the target's registry: name it (schema.registry.url)")


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
    yield from findings(request, plan, target.configs, _arrived(plan, target))
    yield from size_findings(request, plan, len(target.description.kafka_partitions), is_new=False)
    # What came since the restore has begun is its own, or comes between its records and is counted then.
    before = dict(plan.target.offsets) if plan.target else {}
    ends = {p: before.get(p, f.high_watermark) for p, f in target.frontiers.items()}
    held = {p: ends[p] - f.log_start_offset for p, f in target.frontiers.items() if ends[p] > f.log_start_offset}
    if held:
        yield remark(
            f"{request.to_topic} is not empty: up to {sum(held.values()):,} records in {len(held)} kafka partitions "
            f"stay before what is restored"
            + (", until retention.bytes deletes them to make room" if target.configs.retention_bytes >= 0 else ""),
        )


def _arrived(plan: RestorePlan, target: Target) -> dict[int, int]:
    """Kafka partition of the target -> offsets that it got since this restore has begun."""
    starts = dict(plan.target.offsets) if plan.target else {}
    return {p: max(0, f.high_watermark - starts.get(p, f.high_watermark)) for p, f in target.frontiers.items()}


def _missing_target(request: RestoreRequest, plan: RestorePlan, target: Target) -> Iterator[Finding]:
    if not request.create_topic:
        yield refusal(
            f"target topic {request.to_topic} does not exist. Create it with {new_topic_size(request, plan)} kafka "
            f"partitions, or let the restore create it: --create-topic (create_topic)",
        )
        return
    _, changes = new_topic_configs(request, plan, target.configs.now, target.not_taken)
    yield from changes
    if target.uncreatable is not None:
        yield refusal(f"{request.to_topic} would not be created: {target.uncreatable}")
    yield from size_findings(request, plan, new_topic_size(request, plan), is_new=True)
    yield from replication_findings(request, target.cluster.broker_count if target.cluster else None)


def _rights_and_acls(request: RestoreRequest, plan: RestorePlan, target: Target) -> Iterator[Finding]:
    topic = target.description.operations if target.description else None
    yield from rights_findings(request, topic, target.cluster.operations if target.cluster else None)
    yield from acl_findings(request, plan, target.acls)


def room_findings(request: RestoreRequest, plan: RestorePlan, target: Target) -> Iterator[Finding]:
    """Whether the brokers have room, by asking each of them."""
    if not plan.objects:
        return
    spaces = room_of(request, target)
    if target.description is None:
        configs, _ = new_topic_configs(request, plan, target.configs.now, target.not_taken)
        room = Room(spaces, {}, request.replication_factor, configs)
    else:
        room = Room(spaces, target.description.replicas, None, target.configs.configs)
    yield from space_findings(request, plan, room)


def room_of(request: RestoreRequest, target: Target) -> dict[int, DiskSpace]:
    """Broker id of the target's cluster -> its room."""
    return disk_space(request.target_kafka, target.cluster.addresses if target.cluster else {})


def _source_findings(request: RestoreRequest, plan: RestorePlan, target: Target) -> Iterator[Finding]:
    # The id tells the topic itself under whatever address; the name, one that was deleted and created again.
    same_id = target.description is not None and target.description.topic_id == plan.source.topic_id
    same_name = request.to_topic == request.topic and _is_source_cluster(request, target)
    if same_id or same_name:
        what = (
            f"{request.to_topic} is the source topic itself: what is restored to it is archived again, and its readers "
            f"see those records twice"
        )
        yield remark(what) if request.allow_source_topic else refusal(f"{what}. {SAY_SO}{_name_the_cluster(request)}")
    if dict(plan.source.configs).get("message.timestamp.type") == "LogAppendTime":
        yield remark(
            f"{request.topic} had message.timestamp.type=LogAppendTime: the times are restored, as CreateTime",
        )


def _is_source_cluster(request: RestoreRequest, target: Target) -> bool:
    """Whether the target's cluster is the one that the records are of. Of objects of others only their file tells it.

    One that is named by addresses may be behind others: the brokers' own are looked at too.
    """
    named = request.config.source and request.config.source.cluster
    if not named:
        return _share_addresses(request.config.kafka, request.target_kafka)
    cluster = target.cluster
    if ":" not in named:
        return cluster is None or cluster.cluster_id == named
    brokers = {f"{host}:{port}" for host, port in cluster.addresses.values()} if cluster else set()
    return bool((brokers | _addresses(request.target_kafka.bootstrap_servers)) & _addresses(named))


def _name_the_cluster(request: RestoreRequest) -> str:
    if request.config.source is None or request.config.source.cluster:
        return ""
    return ". If the objects are of another cluster, name that in the connector's file: archive.source.cluster"


def _archived_again(request: RestoreRequest, target: Target) -> Iterator[Finding]:
    """The feedback loop: a connector of ours that archives the target."""
    known = {config.name: config for config in (*request.connectors, request.config)}
    for config in known.values():
        if config.source is not None:
            continue  # it reads objects, and archives nothing
        if config.name == request.config.name and request.to_topic == request.topic:
            continue
        if request.to_topic in (*config.topics, *matching(config, [request.to_topic])):
            yield from _loop_finding(request, config, target)


def _loop_finding(request: RestoreRequest, config: ConnectorConfig, target: Target) -> Iterator[Finding]:
    same = _same_cluster(config.kafka, request.target_kafka, target)
    if same is None:
        yield remark(
            f"connector {config.name} archives a topic named {request.to_topic} of a cluster that does not answer: if "
            f"that is the target's cluster, what is restored is archived again"
        )
    elif same:
        what = (
            f"{request.to_topic} is archived by connector {config.name} too: what is restored to it is archived again"
        )
        is_loop = request.config.source is not None and request.to_topic == request.topic
        yield refusal(f"{what}. {SAY_SO}") if is_loop and not request.allow_source_topic else remark(what)


def _same_cluster(kafka: KafkaSettings, other: KafkaSettings, target: Target) -> bool | None:
    """Whether two addresses are of one cluster, None where that cannot be told."""
    if _share_addresses(kafka, other):
        return True
    try:
        with ClusterAdmin(kafka, LOOK_SECONDS) as admin:
            found = admin.describe_cluster().cluster_id
    except PlatformError:
        return None
    return None if target.cluster is None else found == target.cluster.cluster_id


def _share_addresses(one: KafkaSettings, other: KafkaSettings) -> bool:
    return bool(_addresses(one.bootstrap_servers) & _addresses(other.bootstrap_servers))


def _addresses(bootstrap_servers: str) -> set[str]:
    return {address.strip() for address in bootstrap_servers.split(",")}


def left_out(text: str) -> Finding:
    """Of a bad object, where `behavior.on.error` lets it be."""
    return remark(f"left out: {text}")


def _object_findings(
    request: RestoreRequest, plan: RestorePlan, objects: Sequence[ObjectInfo | None], runner: TaskRunner
) -> Iterator[Finding]:
    damaged = differences(request.topic, plan.objects, objects, ObjectStore(request.config.store))
    say = refusal if request.on_error == "fail" else left_out
    yield from (say(text) for text in damaged[:MAX_NAMED])
    if len(damaged) > MAX_NAMED:
        yield say(f"{len(damaged) - MAX_NAMED} more objects are missing or replaced")
    if not damaged or request.on_error != "fail":
        readable = (o for o, info in zip(plan.objects, objects, strict=True) if info is not None and not info.is_cold)
        yield from _timestamp_findings(request, replace(plan, objects=tuple(readable)), runner)


def _timestamp_findings(request: RestoreRequest, plan: RestorePlan, runner: TaskRunner) -> Iterator[Finding]:
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


@dataclass(frozen=True)
class CountTask:
    """A stream, and which of its records count."""

    stream: StreamTask
    records: RecordFilter


def _suspects(request: RestoreRequest, plan: RestorePlan) -> list[CountTask]:
    """Those objects whose bounds allow for such a timestamp, restricted to it, as one task a kafka partition.

    Whether a record is the latest of its key takes more than these objects to know: every one that passes counts.
    """
    first, last = min(UNSENDABLE_TIMESTAMPS), max(UNSENDABLE_TIMESTAMPS)
    chosen = plan.selection
    selection = replace(chosen, from_ms=max(chosen.from_ms, first), to_ms=min(chosen.to_ms, last + 1))
    possible = selection.from_ms < selection.to_ms
    suspects = [o for o in plan.objects if possible and selection.overlaps(o)]
    reduced = replace(plan, selection=selection, objects=tuple(suspects))
    streams = (stream_task(request, reduced, p) for p in reduced.kafka_partitions)
    return [CountTask(stream, replace(request.records, latest_per_key=False)) for stream in streams]


def count_unsendable(task: CountTask, attempt: Attempt) -> tuple[int, int]:  # noqa: ARG001 - reading has no attempts
    """(kafka partition, records of the task whose timestamp cannot be sent)."""
    stream = filtered(ArchivedStream(task.stream, ObjectStore(task.stream.store)), task.records)
    return task.stream.kafka_partition, sum(map(unsendable, stream))


@dataclass(frozen=True)
class SelectedCount:
    """What of one source kafka partition passes the filter. Bytes are those of keys, values and headers.

    `skipped` names bad objects that are left out.
    """

    kafka_partition: int
    record_count: int
    record_bytes: int
    largest_record_bytes: int
    skipped: tuple[str, ...] = ()


def count_exactly(request: RestoreRequest, plan: RestorePlan, runner: TaskRunner) -> list[SelectedCount]:
    """Reads everything that the plan names, to say before anything is sent how much passes the filter."""
    tasks = [CountTask(stream_task(request, plan, p), request.records) for p in plan.kafka_partitions]
    return sorted(runner.run(count_selected, tasks, request.config.tasks_max), key=lambda c: c.kafka_partition)


def count_selected(task: CountTask, attempt: Attempt) -> SelectedCount:  # noqa: ARG001 - reading has no attempts
    """The count of one task."""
    count = size = largest = 0
    stream = ArchivedStream(task.stream, ObjectStore(task.stream.store))
    for batch in filtered(stream, task.records):
        sizes = record_sizes(batch)
        count, size, largest = count + batch.num_rows, size + int(sizes.sum()), max(largest, int(sizes.max()))
    return SelectedCount(task.stream.kafka_partition, count, size, largest, stream.skipped)


def counted_findings(request: RestoreRequest, target: Target, counts: Sequence[SelectedCount]) -> list[Finding]:
    """What is certain once everything was read."""
    if changes_sizes(request):
        return []
    largest = max((c.largest_record_bytes for c in counts), default=0)
    return list(largest_record_findings(target.configs, largest))
