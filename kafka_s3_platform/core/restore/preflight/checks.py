"""Checks the target before the first record is sent, and reports all findings at once."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone

from kafka_s3_platform.core.config.settings import ConnectorConfig, KafkaSettings, match_topics
from kafka_s3_platform.core.errors import MissingTopicError, PlatformError, PreflightError
from kafka_s3_platform.core.kafka.admin import ClusterAdmin, ClusterDescription, TopicDescription
from kafka_s3_platform.core.kafka.failures import LOWER_TIMEOUT
from kafka_s3_platform.core.kafka.transactional_producer import read_transaction_timeout_ms
from kafka_s3_platform.core.model.frontier import Frontier
from kafka_s3_platform.core.model.segment import TopicAcl
from kafka_s3_platform.core.restore.preflight.target import (
    PreflightFinding,
    TargetConfigs,
    check_acls,
    check_configs,
    check_kafka_partition_count,
    check_replication,
    check_rights,
    choose_topic_size,
    make_refusal,
    make_remark,
    make_topic_configs,
)
from kafka_s3_platform.core.restore.request import RestoreRequest
from kafka_s3_platform.core.restore.source.base import TargetPlan
from kafka_s3_platform.core.text import count_noun

OTHER_CLUSTER_SECONDS = 5.0
"""The longest wait for the id of another connector's cluster."""

SAY_SO = (
    "Restore to another topic, or allow the source topic as the target: --allow-source-topic (to.allow_source_topic)"
)
"""Advice that names the option of `kafka-s3 restore` and, in brackets, the field of a run's config."""


@dataclass(frozen=True)
class Target:
    """The target topic as it was found. If it does not exist yet, `description` is None and `near` is a similar topic.

    If the topic is to be created, `not_taken` maps each config that its brokers reject to the reason. `uncreatable` is
    the reason why they would not create the topic even without these configs.
    """

    description: TopicDescription | None
    configs: TargetConfigs
    frontiers: Mapping[int, Frontier]
    cluster: ClusterDescription | None = None
    acls: tuple[TopicAcl, ...] | None = None
    not_taken: Mapping[str, str] = field(default_factory=dict)
    uncreatable: str | None = None
    near: str | None = None
    most_transaction_ms: str | None = None
    """The brokers' longest timeout of transactions, or None if they do not show it."""


def observe_targets(
    plans: Sequence[TargetPlan], admin: ClusterAdmin, cluster: ClusterDescription | None, most: str | None
) -> list[Target]:
    """Return the target topic of each plan as the cluster has it now, or would create it.

    `most` is the cluster's longest timeout of transactions, if known.
    """
    now = datetime.now(timezone.utc)
    answers = admin.describe_topics(plan.to_topic for plan in plans)
    for err in answers.failures.values():
        if not isinstance(err, MissingTopicError):
            raise err
    described = answers.results
    logs = admin.frontiers_of({topic: d.kafka_partitions for topic, d in described.items()}).all_or_raise()
    new_topics = [p.to_topic for p in plans if p.to_topic not in described and p.request.restore_acls]
    acls = admin.read_topic_acls(new_topics) if new_topics else {}
    targets: list[Target] = []
    for plan in plans:
        topic = plan.to_topic
        if (description := described.get(topic)) is None:
            none = TargetConfigs(topic, {}, now)
            near = admin.find_near_topic(topic)
            targets.append(Target(None, none, {}, cluster, acls.get(topic), near=near, most_transaction_ms=most))
            continue
        configs = TargetConfigs(topic, description.configs_in_force, now)
        frontiers = logs[topic].all_or_raise()
        targets.append(Target(description, configs, frontiers, cluster, description.acls, most_transaction_ms=most))
    return targets


def inspect_target(plan: TargetPlan, target: Target, sources: Collection[str]) -> list[PreflightFinding]:
    """Check the target, whatever the source of the records is. `sources` are all source topics of the restore."""
    return [
        *_check_delivery(plan, target),
        *_check_schema_mapping(plan.request),
        *_check_existing_or_missing(plan, target),
        *check_rights(
            plan.request,
            target.description.operations if target.description else None,
            target.cluster.operations if target.cluster else None,
        ),
        *check_acls(plan, target.acls),
        *_check_source(plan, target, sources),
        *_find_loops(plan.request, target, sources),
    ]


def _check_delivery(plan: TargetPlan, target: Target) -> Iterator[PreflightFinding]:
    """Refuse transactions that the brokers would reject, and restores that `at_least_once` cannot resume.

    Without a marker, a resuming run compares a kafka partition of the target with the archive, record by record.
    """
    if plan.request.delivery != "at_least_once":
        timeout, most = read_transaction_timeout_ms(plan.request.target_kafka), target.most_transaction_ms
        if most is not None and timeout > int(most):
            what = f"the transaction timeout is {timeout} ms, but a broker has transaction.max.timeout.ms={most}"
            yield make_refusal(f"{what}. {LOWER_TIMEOUT}")
        return
    if len(plan.topics) > 1:
        yield make_refusal(
            f"{' and '.join(plan.topics)} are restored to {plan.to_topic} together, but with delivery=at_least_once "
            "a resumed run recognizes by their content the records that have arrived, and cannot tell equal records "
            "of two topics apart. Restore with exactly_once, or restore each topic to a target of its own"
        )
    if plan.request.outgoing.partitioning != "source":
        yield make_refusal(
            "delivery=at_least_once needs records that keep their kafka partition numbers. If keys decide the "
            "numbers, restore with exactly_once"
        )
    if plan.request.outgoing.has_mapper:
        yield make_refusal(
            "a mapper may make several records from one, so with delivery=at_least_once a resumed run cannot count "
            "the records that have arrived. Restore with exactly_once"
        )


def _check_schema_mapping(request: RestoreRequest) -> Iterator[PreflightFinding]:
    """Refuse to map schema ids without archived schemas or without a target registry.

    Schemas are archived if the connector's file names their registry.
    """
    records = request.config.records
    outgoing = request.outgoing
    if outgoing.map_schema_ids and records.key.registry is None and records.value.registry is None:
        yield make_refusal(
            f"schema ids cannot be mapped: the file of connector {request.config.name} names no registry, so no "
            "schema was archived. Name the converters that the records were written with (value.converter, "
            "value.converter.schema.registry.url), and archive again while that registry answers"
        )
    if outgoing.map_schema_ids and outgoing.target_registry is None:
        yield make_refusal(
            "schema ids can only be mapped to those of a known registry of the target: set schema.registry.url"
        )


def raise_refusals(request: RestoreRequest, findings: Sequence[PreflightFinding]) -> None:
    """Raise PreflightError with all findings that refuse the restore, if there are any."""
    refusals = [str(f) for f in findings if f.refuses]
    if refusals:
        numbered = "".join(f"\n{n}. {text}" for n, text in enumerate(refusals, 1))
        raise PreflightError(
            f"restore {request.restore_id} of {request.topic} to {request.to_topic} is refused before its first "
            f"record:{numbered}"
        )


def _check_existing_or_missing(plan: TargetPlan, target: Target) -> Iterator[PreflightFinding]:
    """Check the configs, the size and the content of a target or, if it is missing, its creation."""
    if target.description is None:
        yield from _check_missing_target(plan, target)
        return
    yield from check_target_configs(plan, target)
    yield from check_kafka_partition_count(plan, len(target.description.kafka_partitions), is_new=False)
    # Records since the start of the restore are its own, or lie between them and are counted when it is verified.
    starts = dict(plan.start.offsets) if plan.start else {}
    ends = {p: starts.get(p, f.high_watermark) for p, f in target.frontiers.items()}
    counts = {p: ends[p] - f.log_start_offset for p, f in target.frontiers.items() if ends[p] > f.log_start_offset}
    if counts:
        yield make_remark(
            f"{plan.to_topic} is not empty: up to {count_noun(sum(counts.values()), 'record')}, in "
            f"{count_noun(len(counts), 'kafka partition')}, before what is restored"
            + (", until retention.bytes deletes them to make room" if target.configs.retention_bytes >= 0 else ""),
        )


def check_target_configs(plan: TargetPlan, target: Target) -> Iterator[PreflightFinding]:
    """Find records of the plan that an existing target's configs would delete, reject or alter."""
    starts = dict(plan.start.offsets) if plan.start else {}
    # Number of offsets that each kafka partition got since this restore began.
    arrived = {p: max(0, f.high_watermark - starts.get(p, f.high_watermark)) for p, f in target.frontiers.items()}
    yield from check_configs(plan, target.configs, arrived)


def _check_missing_target(plan: TargetPlan, target: Target) -> Iterator[PreflightFinding]:
    """Refuse a missing target that is not to be created, or cannot be created as the records need it."""
    if not plan.request.create_topic:
        # nobody means the topic of the archived records
        meant = f" Did you mean {target.near}?" if target.near and target.near not in plan.topics else ""
        size = count_noun(choose_topic_size(plan), "kafka partition")
        yield make_refusal(
            f"target topic {plan.to_topic} does not exist.{meant} Create it with {size}, or let the restore create "
            f"it: --create-topic (to.create_topic)",
        )
        return
    _, changes = make_topic_configs(plan, target.configs.now, target.not_taken)
    yield from changes
    if target.uncreatable is not None:
        yield make_refusal(f"the brokers would not create {plan.to_topic}: {target.uncreatable}")
    yield from check_kafka_partition_count(plan, choose_topic_size(plan), is_new=True)
    yield from check_replication(plan.request, target.cluster.broker_count if target.cluster else None)


def describe_sizes(plans: Sequence[TargetPlan]) -> Iterator[PreflightFinding]:
    """Report the bytes that all targets get together, and the number of targets for which it is unknown."""
    filled = [plan for plan in plans if plan.objects]
    sizes = {plan.to_topic: plan.largest_bytes for plan in filled if plan.record_bytes is not None}
    others = f"; of {len(filled) - len(sizes):,} more it is not known" if len(sizes) < len(filled) else ""
    if sizes:
        names = f"{len(sizes):,} topics get" if len(sizes) > 1 else f"{next(iter(sizes))} gets"
        size = f"up to {sum(sizes.values()):,} bytes of keys, values and headers"
        yield make_remark(f"{names} {size} for each replica, before compression{others}")


def _check_source(plan: TargetPlan, target: Target, sources: Collection[str]) -> Iterator[PreflightFinding]:
    """Refuse a source topic as target, unless the request allows it. Remark on times set by its brokers."""
    # The id finds the same topic at another address. The name finds a topic that was deleted and created again.
    is_itself = plan.to_topic == plan.request.topic
    same_id = target.description is not None and target.description.topic_id == plan.topic_id
    # `_find_loops` finds other topics of our own archives, which may be of several clusters.
    same_name = is_itself or (plan.request.config.source is not None and plan.to_topic in sources)
    if same_id or (same_name and _is_source_cluster(plan.request, target)):
        what = (
            f"{plan.to_topic} is the source topic itself: restored records would be archived again, and readers of "
            "the topic would see them twice"
            if same_id or is_itself
            else f"{plan.to_topic} is a source topic of this restore, and would hold the records of {plan.name} too"
        )
        yield (
            make_remark(what)
            if plan.request.allow_source_topic
            else make_refusal(f"{what}. {SAY_SO}{_advise_on_cluster(plan.request)}")
        )
    if dict(plan.configs).get("message.timestamp.type") == "LogAppendTime":
        yield make_remark(
            f"{plan.request.topic} had message.timestamp.type=LogAppendTime: the times are restored, as CreateTime",
        )


def _is_source_cluster(request: RestoreRequest, target: Target) -> bool:
    """Return True if the target's cluster is the one the records came from.

    For objects of another sink, only the connector's file names that cluster. A cluster may have other addresses than
    the file names, so the brokers' addresses are compared as well.
    """
    named = request.config.source and request.config.source.cluster
    if not named:
        return _share_addresses(request.config.kafka, request.target_kafka)
    cluster = target.cluster
    # Without a port it is the id of a cluster.
    if ":" not in named:
        # A cluster that does not answer counts as the source, because a refusal is the safe side.
        return cluster is None or cluster.cluster_id == named
    brokers = {f"{host}:{port}" for host, port in cluster.addresses.values()} if cluster else set()
    return bool((brokers | _split_addresses(request.target_kafka.bootstrap_servers)) & _split_addresses(named))


def _advise_on_cluster(request: RestoreRequest) -> str:
    """Return the advice to name the objects' cluster in the source connector's file, if the file does not name it."""
    if request.config.source is None or request.config.source.cluster:
        return ""
    return ". If the objects are from another cluster, name it in the connector's file: archive.source.cluster"


def _find_loops(request: RestoreRequest, target: Target, sources: Collection[str]) -> Iterator[PreflightFinding]:
    """Find a feedback loop: a connector that archives the target. It is refused if the target is one of `sources`."""
    # The request's own file comes last, so that it wins over another one of its name. A source connector archives
    # nothing: if a sink is restored by its own file as a source, the sink counts.
    connectors = {config.name: config for config in (*request.connectors, request.config) if config.source is None}
    for config in connectors.values():
        # `_check_source` finds the source topic itself.
        if config is request.config and request.to_topic == request.topic:
            continue
        if request.to_topic in (*config.topics, *match_topics(config, [request.to_topic])):
            yield from _describe_loop(request, config, target, is_loop=request.to_topic in sources)


def _describe_loop(
    request: RestoreRequest, config: ConnectorConfig, target: Target, *, is_loop: bool
) -> Iterator[PreflightFinding]:
    """Report a connector that archives a topic of the target's name, if it may be the target. Refuse a loop."""
    same = _is_same_cluster(config.kafka, request.target_kafka, target)
    if same is None:
        yield make_remark(
            f"connector {config.name} archives a topic named {request.to_topic} of a cluster that does not answer: "
            "if that is the target's cluster, restored records are archived again"
        )
    elif same:
        what = (
            f"{request.to_topic} is also archived by connector {config.name}: restored records would be archived again"
        )
        yield make_refusal(f"{what}. {SAY_SO}") if is_loop and not request.allow_source_topic else make_remark(what)


def _is_same_cluster(kafka: KafkaSettings, other: KafkaSettings, target: Target) -> bool | None:
    """Return True if both addresses belong to one cluster, or None if nobody can find out."""
    if _share_addresses(kafka, other):
        return True
    try:
        with ClusterAdmin(kafka, OTHER_CLUSTER_SECONDS) as admin:
            cluster_id = admin.describe_cluster().cluster_id
    except PlatformError:
        return None
    if target.cluster is None:
        return None
    return cluster_id == target.cluster.cluster_id


def _share_addresses(kafka: KafkaSettings, other: KafkaSettings) -> bool:
    """Return True if a broker's address is in both `bootstrap.servers`."""
    return bool(_split_addresses(kafka.bootstrap_servers) & _split_addresses(other.bootstrap_servers))


def _split_addresses(bootstrap_servers: str) -> set[str]:
    """Return the addresses of a list in the form of `bootstrap.servers`."""
    return {address.strip() for address in bootstrap_servers.split(",")}
