"""What a target topic does to records that arrive, and how a new one is created. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from kafka_s3_platform.kafka.admin import ACL_OPERATIONS, ACL_PERMISSIONS
from kafka_s3_platform.model.segment import TopicAcl
from kafka_s3_platform.restore.keeping import RECORD_OVERHEAD, changes_sizes, largest_log, largest_mean, restore_ms
from kafka_s3_platform.restore.plan import RestorePlan
from kafka_s3_platform.restore.request import RestoreRequest

FOREVER_MS = 2**63 - 1
MAX_MESSAGE_BYTES = 1_048_588
"""Kafka's default of max.message.bytes."""

AFTER_MAX_MS = "message.timestamp.after.max.ms"
BEFORE_MAX_MS = "message.timestamp.before.max.ms"
DIFFERENCE_MAX_MS = "message.timestamp.difference.max.ms"
"""What brokers before 3.6 have instead of the other two, and those before 4.0 besides."""

EVERYONE = "User:*"

NOT_CARRIED_OVER = frozenset(
    {
        "min.insync.replicas",
        "leader.replication.throttled.replicas",
        "follower.replication.throttled.replicas",
    }
)
"""Archived configs that speak of the source's brokers, not of the topic's records."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing preflight has to say. Those that `refuses` stop the restore before its first record."""

    refuses: bool
    text: str

    def __str__(self) -> str:
        return self.text


def refusal(text: str) -> Finding:
    """A finding that stops the restore."""
    return Finding(refuses=True, text=text)


def remark(text: str) -> Finding:
    """A finding that is only told."""
    return Finding(refuses=False, text=text)


@dataclass(frozen=True)
class TargetConfigs:
    """The configs in force on a topic, read as Kafka reads them."""

    topic: str
    configs: Mapping[str, str]
    now: datetime

    @property
    def policies(self) -> frozenset[str]:
        return frozenset(p.strip() for p in self.configs.get("cleanup.policy", "delete").split(",") if p.strip())

    def number(self, name: str, default: int) -> int:
        return int(self.configs.get(name) or default)

    @property
    def retention_bytes(self) -> int:
        """Of a kafka partition; -1 where its log may take any."""
        return self.number("retention.bytes", -1) if "delete" in self.policies else -1

    @property
    def now_ms(self) -> int:
        return round(self.now.timestamp() * 1000)


def findings(
    request: RestoreRequest, plan: RestorePlan, target: TargetConfigs, arrived: Mapping[int, int]
) -> Iterator[Finding]:
    """What the target would delete, reject or alter of the plan's records; `arrived` is as in `largest_log`."""
    yield from _compacted(request, plan, target)
    if plan.oldest is None or plan.newest is None:
        return
    lasts = restore_ms(request, plan)
    yield from _retained(plan.oldest, target, lasts)
    yield from _overflown(request, plan, target, arrived)
    yield from _restamped(target)
    yield from _rejected(plan.oldest, plan.newest, target, lasts)
    yield from _too_large(request, plan, target)


DECIDED = frozenset({"cleanup.policy", "retention.ms", "retention.bytes", "message.timestamp.type"})
"""Configs that a new topic always gets, because its brokers' defaults may not keep the records either."""


def new_topic_configs(
    request: RestoreRequest, plan: RestorePlan, now: datetime, not_taken: Mapping[str, str]
) -> tuple[dict[str, str], list[Finding]]:
    """The archived configs, changed where they would not keep what is restored, and a sentence for each change.

    `not_taken` is name -> why the target's brokers do not take a config.
    """
    archived = {name: value for name, value in plan.source.configs if name not in NOT_CARRIED_OVER}
    changed = _overrides(request, plan, TargetConfigs(plan.terms["to_topic"], archived, now))
    notes = [
        remark(f"{plan.terms['to_topic']} is created with {name}={value} instead of the archived {archived[name]}")
        for name, value in changed.items()
        if archived.get(name, value) != value and name not in not_taken
    ]
    notes += [
        remark(
            f"{plan.terms['to_topic']} is created without the archived {name}={archived[name]}, which the target's "
            f"brokers do not take: {why}"
        )
        for name, why in sorted(not_taken.items())
        if name in archived
    ]
    return {name: value for name, value in (archived | changed).items() if name not in not_taken}, notes


def _overrides(request: RestoreRequest, plan: RestorePlan, archived: TargetConfigs) -> dict[str, str]:
    """`DECIDED`, and the limits of timestamps where they are in the way."""
    oldest, newest = plan.oldest, plan.newest
    kept = {
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "retention.bytes": "-1",
        "message.timestamp.type": "CreateTime",
    }
    if oldest is None or newest is None:
        return {}
    # It is made with cleanup.policy=delete; where the archive says nothing, an hour is Kafka's default since 4.0.
    own = {"retention.ms": "-1", "retention.bytes": "-1", AFTER_MAX_MS: "3600000", **archived.configs}
    made = TargetConfigs(archived.topic, own | {"cleanup.policy": "delete"}, archived.now)
    lasts = restore_ms(request, plan)
    if not list(_retained(oldest, made, lasts)):
        kept["retention.ms"] = own["retention.ms"]
    if not list(_overflown(request, plan, made, {})):
        kept["retention.bytes"] = own["retention.bytes"]
    if list(_rejected(oldest, newest, made, lasts)):
        names = [BEFORE_MAX_MS, AFTER_MAX_MS, *({DIFFERENCE_MAX_MS} & own.keys())]
        kept |= dict.fromkeys(names, str(FOREVER_MS))
    return kept


def new_topic_size(request: RestoreRequest, plan: RestorePlan) -> int:
    """How many kafka partitions a target that is created gets."""
    return request.target_kafka_partitions or max(plan.source.kafka_partitions, default=0) + 1


def size_findings(request: RestoreRequest, plan: RestorePlan, size: int, *, is_new: bool) -> Iterator[Finding]:
    """Whether a target of that many kafka partitions has room for every number that records keep."""
    needed = max(plan.kafka_partitions, default=-1) + 1
    if request.outgoing.partitioning != "source":
        return
    if size < needed:
        more = "Ask for more: --target-kafka-partitions (target_kafka_partitions)" if is_new else "Add kafka partitions"
        yield refusal(
            f"{request.to_topic} has {size} kafka partitions, records of {request.topic} go to kafka partition "
            f"{needed - 1}: records keep their number. {more}, or choose a subset: --kafka-partitions "
            f"(kafka_partitions), or let keys choose: --partitioning murmur2 (partitioning)",
        )
    elif size > max(plan.source.kafka_partitions, default=-1) + 1:
        first = max(plan.source.kafka_partitions, default=-1) + 1
        yield remark(
            f"{request.to_topic} has {size} kafka partitions, {request.topic} had {first}: records keep their number, "
            f"so kafka partitions {first} to {size - 1} get none"
        )


def replication_findings(request: RestoreRequest, broker_count: int | None) -> Iterator[Finding]:
    """Whether the brokers can hold a new topic's replicas."""
    wanted = request.replication_factor
    if wanted is not None and broker_count is not None and wanted > broker_count:
        yield refusal(
            f"{request.to_topic} would be created with replication factor {wanted}, and its cluster has {broker_count} "
            f"brokers: ask for {broker_count} at most, --replication-factor (replication_factor)"
        )


def restorable_acls(acls: Iterable[TopicAcl]) -> tuple[TopicAcl, ...]:
    """The archived ACLs without those that would lock everyone out, the restore itself among them."""
    return tuple(acl for acl in acls if not _locks_out(acl))


def acl_findings(request: RestoreRequest, plan: RestorePlan, there: tuple[TopicAcl, ...] | None) -> Iterator[Finding]:
    """What restoring the ACLs would do; `there` are the target's, None where its cluster shows none."""
    if not request.restore_acls:
        return
    archived, asked = plan.source.acls, "--restore-acls (restore_acls)"
    if archived is None:
        yield refusal(
            f"the ACLs of {request.topic} are not archived: its cluster keeps none, or its archiver may not read them "
            f"(DESCRIBE and DESCRIBE_CONFIGS on the cluster). Leave {asked} away"
        )
    elif there is None:
        yield refusal(
            f"the cluster of {request.to_topic} keeps no ACLs, or does not show them (DESCRIBE and DESCRIBE_CONFIGS on "
            f"the cluster): leave {asked} away, or give the rights"
        )
    else:
        yield from _acl_remarks(request, archived, there)


def _acl_remarks(
    request: RestoreRequest, archived: tuple[TopicAcl, ...], there: tuple[TopicAcl, ...]
) -> Iterator[Finding]:
    if strange := [a for a in archived if a.operation not in ACL_OPERATIONS or a.permission not in ACL_PERMISSIONS]:
        yield refusal(
            f"{len(strange)} of the archived ACLs of {request.topic} are none of Kafka's, such as {strange[0]}: "
            f"somebody wrote to the index. Leave --restore-acls (restore_acls) away"
        )
    new = [acl for acl in restorable_acls(archived) if acl not in there]
    if new:
        yield remark(f"{request.to_topic} gets {len(new)} ACLs: {'; '.join(map(str, new))}")
    if new and not there:
        yield remark(
            f"{request.to_topic} has no ACLs now: where its cluster allows everyone what has none "
            f"(allow.everyone.if.no.acl.found), from then on only those named may use it"
        )
    for acl in (acl for acl in new if acl.principal == EVERYONE):
        yield remark(f"with --restore-acls, everyone may use {request.to_topic} as the ACL says: {acl}")
    for acl in filter(_locks_out, archived):
        yield remark(f"{request.to_topic} does not get the ACL {acl}: it would lock out everyone. Add it afterwards")


def _locks_out(acl: TopicAcl) -> bool:
    return acl.permission == "DENY" and acl.principal == EVERYONE


def rights_findings(
    request: RestoreRequest, topic: frozenset[str] | None, cluster: frozenset[str] | None
) -> Iterator[Finding]:
    """Rights that are missing, by the operations that the brokers say are authorized; `topic` None: it is not there.

    Transactional ids are not asked for: no broker answers that.
    """
    named = request.to_topic
    if missing := [] if topic is None else _missing_rights(topic, "WRITE", "READ", "DESCRIBE"):
        yield refusal(
            f"the target's credentials lack {' and '.join(missing)} on {named}: records are written, and read back to "
            f"verify them. Grant them, also WRITE on transactional ids restore.* and READ on groups restore.*"
        )
    if cluster is None:
        return
    if topic is None and request.create_topic and _missing_rights(cluster, "CREATE"):
        yield remark(
            f"the target's credentials lack CREATE on the cluster: creating {named} fails, unless a right on topics of "
            f"its name allows it"
        )
    if request.restore_acls and _missing_rights(cluster, "ALTER"):
        yield refusal(f"the target's credentials lack ALTER on the cluster: the ACLs of {named} cannot be restored")


def _missing_rights(granted: frozenset[str], *needed: str) -> list[str]:
    return [] if "ALL" in granted else [name for name in needed if name not in granted]


def _compacted(request: RestoreRequest, plan: RestorePlan, target: TargetConfigs) -> Iterator[Finding]:
    if "compact" not in target.policies:
        return
    policy = f"{target.topic} has cleanup.policy={target.configs['cleanup.policy']}"
    if plan.is_snapshot and plan.keeps_numbers and not changes_sizes(request):
        yield remark(
            f"{policy}: each key is restored once, so compaction removes no value, only tombstones after "
            f"delete.retention.ms; restored records replace older ones of their keys"
        )
        return
    yield refusal(
        f"{policy}: compaction would remove restored records that share a key. Set retention.ms=-1 and "
        f"retention.bytes=-1 on it, then cleanup.policy=delete, for the restore, and all of them back after it",
    )


def _retained(oldest: int, target: TargetConfigs, lasts: int) -> Iterator[Finding]:
    limit = target.number("retention.ms", -1) if "delete" in target.policies else -1
    if 0 <= limit < target.now_ms + lasts - oldest:
        yield refusal(
            f"{target.topic} has retention.ms={limit}: records as old as {_moment(oldest)} would be deleted soon after "
            f"they arrive, or before the restore has ended, which is given {timedelta(milliseconds=lasts)}. Set "
            f"retention.ms=-1, or longer, on it",
        )


def _overflown(
    request: RestoreRequest, plan: RestorePlan, target: TargetConfigs, arrived: Mapping[int, int]
) -> Iterator[Finding]:
    limit = target.retention_bytes
    if limit < 0:
        return
    most, what = largest_log(request, plan, arrived), f"{target.topic} has retention.bytes={limit}"
    if most is None:
        yield refusal(
            f"{what}, and how many bytes of a kafka partition's log restored records take is not known: their objects "
            f"do not tell, or they are written anew on their way. The first of them may be deleted. Set "
            f"retention.bytes=-1 on it for the restore"
        )
    elif most > limit:
        earlier = ", with what earlier runs have sent or left there" if any(arrived.values()) else ""
        yield refusal(
            f"{what}: restored records take up to {most:,} bytes of a kafka partition's log, with what Kafka adds to "
            f"each record, batch and transaction{earlier}, and the first of them may be deleted. Set "
            f"retention.bytes=-1, or that many, on it for the restore"
        )


def _restamped(target: TargetConfigs) -> Iterator[Finding]:
    if target.configs.get("message.timestamp.type") == "LogAppendTime":
        yield refusal(
            f"{target.topic} has message.timestamp.type=LogAppendTime: every record would get the time of the restore. "
            f"Set message.timestamp.type=CreateTime on it",
        )


def _rejected(oldest: int, newest: int, target: TargetConfigs, lasts: int) -> Iterator[Finding]:
    for name in (BEFORE_MAX_MS, DIFFERENCE_MAX_MS):
        limit = target.number(name, FOREVER_MS)
        if target.now_ms + lasts - oldest > limit:
            yield refusal(
                f"{target.topic} has {name}={limit}: it rejects records as old as {_moment(oldest)}, or may before the "
                f"restore has ended, which is given {timedelta(milliseconds=lasts)}. Raise it to {FOREVER_MS}",
            )
    for name in (AFTER_MAX_MS, DIFFERENCE_MAX_MS):
        limit = target.number(name, FOREVER_MS)
        if newest - target.now_ms > limit:
            yield refusal(
                f"{target.topic} has {name}={limit}: it rejects records as late as {_moment(newest)}. Raise it to "
                f"{FOREVER_MS}",
            )


def _too_large(request: RestoreRequest, plan: RestorePlan, target: TargetConfigs) -> Iterator[Finding]:
    """By what the index knows: an object's bytes and its number of records bound its largest one from both sides."""
    limit = target.number("max.message.bytes", MAX_MESSAGE_BYTES)
    what = f"{target.topic} has max.message.bytes={limit}"
    as_archived = not plan.chooses and not changes_sizes(request)
    if as_archived and (certain := next((o for o in plan.objects if largest_mean(o) > limit), None)) is not None:
        yield refusal(
            f"{what}: object {certain.key} holds records of {largest_mean(certain):,} bytes and more. Raise it, or "
            f"leave them out by time or offset"
        )
        return
    largest = max((o.record_bytes for o in plan.objects), default=0)
    archived = int(dict(plan.source.configs).get("max.message.bytes", MAX_MESSAGE_BYTES))
    if limit < archived and largest + RECORD_OVERHEAD > limit:
        yield remark(
            f"{what}, the archived topic allowed {archived}: records above the limit, if there are any, would stop the "
            f"restore at the first of them. A dry run that reads everything tells: --exact (exact)",
        )


def largest_record_findings(target: TargetConfigs, largest: int) -> Iterator[Finding]:
    """What is certain once every record was read; `largest` is the bytes of key, value and headers."""
    limit = target.number("max.message.bytes", MAX_MESSAGE_BYTES)
    if largest > limit:
        yield refusal(f"{target.topic} has max.message.bytes={limit}: a record has {largest:,} bytes. Raise it")


def _moment(timestamp: int) -> str:
    """A timestamp in words; those that no calendar holds as they are."""
    try:
        moment = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=timestamp)
    except OverflowError:
        return f"{timestamp} ms"
    return moment.isoformat(timespec="milliseconds")
