"""Checks if a target topic would keep arriving records as they are, and chooses the configs of a new one. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from kafka_s3_platform.core.kafka.admin import ACL_OPERATIONS, ACL_PERMISSIONS
from kafka_s3_platform.core.kafka.producer import find_sent_codec
from kafka_s3_platform.core.model.segment import TopicAcl
from kafka_s3_platform.core.model.times import EPOCH, ONE_MS, to_epoch_ms
from kafka_s3_platform.core.restore.preflight.keeping import (
    RECORD_OVERHEAD,
    average_record_bytes,
    bound_largest_log,
    bound_restore_ms,
)
from kafka_s3_platform.core.restore.request import RestoreRequest
from kafka_s3_platform.core.restore.source.base import EARLIEST, LATEST, ObjectFacts, TargetPlan
from kafka_s3_platform.core.text import count_noun

FOREVER_MS = 2**63 - 1
MAX_MESSAGE_BYTES = 1_048_588
"""Kafka's default of max.message.bytes."""

AFTER_MAX_MS = "message.timestamp.after.max.ms"
BEFORE_MAX_MS = "message.timestamp.before.max.ms"
DIFFERENCE_MAX_MS = "message.timestamp.difference.max.ms"
"""Brokers before 3.6 have this config instead of the other two, and brokers before 4.0 have it beside them."""

EVERYONE = "User:*"

NOT_CARRIED_OVER = frozenset(
    {
        "min.insync.replicas",
        "leader.replication.throttled.replicas",
        "follower.replication.throttled.replicas",
    }
)
"""Archived configs that depend on the source's brokers, not on the topic's records."""


@dataclass(frozen=True, slots=True)
class PreflightFinding:
    """One result of preflight. If it `refuses`, the restore stops before its first record.

    If it `doubts`, the restore goes on, and its verdict is not green. `topic` is its topic, if the restore has several.
    """

    refuses: bool
    text: str
    doubts: bool = False
    topic: str = ""

    def __str__(self) -> str:
        return f"{self.topic}: {self.text}" if self.topic else self.text


def make_refusal(text: str) -> PreflightFinding:
    """Make a finding that stops the restore."""
    return PreflightFinding(refuses=True, text=text)


def make_remark(text: str) -> PreflightFinding:
    """Make a finding without consequences."""
    return PreflightFinding(refuses=False, text=text)


def make_doubt(text: str) -> PreflightFinding:
    """Make a finding that lowers the verdict, but does not stop the restore."""
    return PreflightFinding(refuses=False, text=text, doubts=True)


@dataclass(frozen=True)
class TargetConfigs:
    """The configs in force on a topic, parsed as Kafka parses them."""

    topic: str
    configs: Mapping[str, str]
    now: datetime

    @property
    def policies(self) -> frozenset[str]:
        """The values of cleanup.policy: `delete`, `compact` or both."""
        return frozenset(p.strip() for p in self.configs.get("cleanup.policy", "delete").split(",") if p.strip())

    def number(self, name: str, default: int) -> int:
        """Return a config as a whole number, or `default` if the topic does not show it."""
        return int(self.configs.get(name) or default)

    @property
    def retention_bytes(self) -> int:
        """The most bytes of a kafka partition, or -1 if there is no limit."""
        if "delete" in self.policies:
            return self.number("retention.bytes", -1)
        return -1

    @property
    def now_ms(self) -> int:
        return to_epoch_ms(self.now)


def check_configs(plan: TargetPlan, target: TargetConfigs, arrived: Mapping[int, int]) -> Iterator[PreflightFinding]:
    """Find records of the plan that the target would delete, reject or alter.

    `arrived` is as in `bound_largest_log`.
    """
    yield from _check_compaction(plan, target)
    times = plan.bound_times(target.now_ms)
    if times is None:
        return
    oldest, newest = times
    lasts = bound_restore_ms(plan)
    yield from _check_retention(oldest, target, lasts)
    yield from _check_retention_bytes(plan, target, arrived)
    if plan.has_timestamps and target.configs.get("message.timestamp.type") == "LogAppendTime":
        yield make_refusal(
            f"{target.topic} has message.timestamp.type=LogAppendTime: every record would get the time of the restore. "
            f"Set message.timestamp.type=CreateTime on it",
        )
    yield from _check_oldest(oldest, target, lasts)
    if newest == LATEST:
        yield from _remark_latest(target)
    else:
        yield from check_newest(newest, target)
    yield from _check_message_size(plan, target)


DECIDED = frozenset({"cleanup.policy", "retention.ms", "retention.bytes", "message.timestamp.type"})
"""The configs that every new topic gets, because its brokers' defaults might delete or alter records."""


def make_topic_configs(
    plan: TargetPlan, now: datetime, not_taken: Mapping[str, str]
) -> tuple[dict[str, str], list[PreflightFinding]]:
    """Return the configs of a new topic, and a sentence on each change to the archived ones.

    Archived configs that would not keep the restored records are changed. `not_taken` maps each config that the
    target's brokers reject to the reason. These configs are left out.
    """
    archived = {name: value for name, value in plan.configs if name not in NOT_CARRIED_OVER}
    changed = _override_configs(plan, TargetConfigs(plan.to_topic, archived, now))
    notes = [
        make_remark(f"{plan.to_topic} is created with {name}={value} instead of the archived {archived[name]}")
        for name, value in changed.items()
        if archived.get(name, value) != value and name not in not_taken
    ]
    notes += [
        make_remark(
            f"{plan.to_topic} is created without the archived {name}={archived[name]}, which the target's "
            f"brokers do not take: {why}"
        )
        for name, why in sorted(not_taken.items())
        if name in archived
    ]
    return {name: value for name, value in (archived | changed).items() if name not in not_taken}, notes


def _override_configs(plan: TargetPlan, archived: TargetConfigs) -> dict[str, str]:
    """Return the `DECIDED` configs, and limits of timestamps that reject no record, if the archived ones would."""
    times = plan.bound_times(archived.now_ms)
    if times is None:
        return {}
    oldest, newest = times
    overrides = {
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "retention.bytes": "-1",
        "message.timestamp.type": "CreateTime",
    }
    # The topic gets cleanup.policy=delete. If the archive has no such limit, Kafka's default since 4.0 is an hour.
    archived_configs = {"retention.ms": "-1", "retention.bytes": "-1", AFTER_MAX_MS: "3600000", **archived.configs}
    judged = TargetConfigs(archived.topic, archived_configs | {"cleanup.policy": "delete"}, archived.now)
    lasts = bound_restore_ms(plan)
    if not list(_check_retention(oldest, judged, lasts)):
        overrides["retention.ms"] = archived_configs["retention.ms"]
    if not list(_check_retention_bytes(plan, judged, {})):
        overrides["retention.bytes"] = archived_configs["retention.bytes"]
    if [*_check_oldest(oldest, judged, lasts), *check_newest(newest, judged)]:
        names = [BEFORE_MAX_MS, AFTER_MAX_MS, *({DIFFERENCE_MAX_MS} & archived_configs.keys())]
        overrides |= dict.fromkeys(names, str(FOREVER_MS))
    return overrides


def choose_topic_size(plan: TargetPlan) -> int:
    """Return the number of kafka partitions a new target gets."""
    # Records keep their number, so the highest one decides.
    return plan.request.target_kafka_partitions or max(plan.source_kafka_partitions, default=0) + 1


def check_kafka_partition_count(plan: TargetPlan, size: int, *, is_new: bool) -> Iterator[PreflightFinding]:
    """Check that the target has every kafka partition number that records keep."""
    needed = max(plan.kafka_partitions, default=-1) + 1
    if plan.request.outgoing.partitioning != "source":
        return
    if size < needed:
        more = "Ask for more: --target-kafka-partitions (to.kafka_partitions)" if is_new else "Add kafka partitions"
        yield make_refusal(
            f"{plan.to_topic} has {count_noun(size, 'kafka partition')}, but records of {plan.request.topic} go to "
            f"kafka partition {needed - 1}, as they keep their number. {more}, or choose a subset: "
            "--kafka-partitions (what.kafka_partitions), or let keys choose: --partitioning murmur2 "
            "(to.partitioning)",
        )
    elif size > max(plan.source_kafka_partitions, default=-1) + 1:
        first = max(plan.source_kafka_partitions, default=-1) + 1
        yield make_remark(
            f"{plan.to_topic} has {count_noun(size, 'kafka partition')}, {plan.request.topic} had {first}: records "
            f"keep their number, so kafka partitions from {first} on get none"
        )


def check_replication(request: RestoreRequest, broker_count: int | None) -> Iterator[PreflightFinding]:
    """Check that there are enough brokers for a new topic's replicas."""
    factor = request.replication_factor
    if factor is not None and broker_count is not None and factor > broker_count:
        yield make_refusal(
            f"{request.to_topic} would be created with replication factor {factor}, but its cluster has "
            f"{broker_count} brokers: set at most {broker_count}, --replication-factor (to.replication_factor)"
        )


def choose_restorable_acls(acls: Iterable[TopicAcl]) -> tuple[TopicAcl, ...]:
    """Return the archived ACLs without those that would lock everyone out, including the restore itself."""
    return tuple(acl for acl in acls if not _locks_out(acl))


def check_acls(plan: TargetPlan, there: tuple[TopicAcl, ...] | None) -> Iterator[PreflightFinding]:
    """Report the effect of restoring the ACLs. `there` are the target's ACLs, or None if its cluster shows none."""
    if not plan.request.restore_acls:
        return
    archived = plan.acls
    option = "--restore-acls (to.acls)"
    if archived is None:
        yield make_refusal(
            f"the ACLs of {plan.request.topic} are not archived: its cluster has none, or the archiving client may "
            f"not read them (DESCRIBE and DESCRIBE_CONFIGS on the cluster). Remove {option}"
        )
    elif there is None:
        yield make_refusal(
            f"the cluster of {plan.to_topic} has no ACLs, or does not show them (DESCRIBE and DESCRIBE_CONFIGS on "
            f"the cluster). Remove {option}, or grant these rights"
        )
    else:
        yield from _check_archived_acls(plan.request, archived, there)


def _check_archived_acls(
    request: RestoreRequest, archived: tuple[TopicAcl, ...], there: tuple[TopicAcl, ...]
) -> Iterator[PreflightFinding]:
    """Report the archived ACLs that the target gets, and their effects. `there` are the ACLs it has now."""
    if strange := [a for a in archived if a.operation not in ACL_OPERATIONS or a.permission not in ACL_PERMISSIONS]:
        yield make_refusal(
            f"{len(strange)} of the archived ACLs of {request.topic} are not valid in Kafka, such as {strange[0]}: "
            "somebody wrote to the index. Remove --restore-acls (to.acls)"
        )
    new = [acl for acl in choose_restorable_acls(archived) if acl not in there]
    if new:
        yield make_remark(f"{request.to_topic} gets {len(new)} ACLs: {'; '.join(map(str, new))}")
    if new and not there:
        yield make_remark(
            f"{request.to_topic} has no ACLs now: where its cluster allows everyone what has none "
            f"(allow.everyone.if.no.acl.found), from then on only those named may use it"
        )
    for acl in (acl for acl in new if acl.principal == EVERYONE):
        yield make_remark(f"with --restore-acls, everyone may use {request.to_topic} as the ACL says: {acl}")
    for acl in filter(_locks_out, archived):
        yield make_remark(
            f"{request.to_topic} does not get the ACL {acl}: it would lock out everyone. Add it afterwards"
        )


def _locks_out(acl: TopicAcl) -> bool:
    """Return True if an ACL denies something to everyone."""
    return acl.permission == "DENY" and acl.principal == EVERYONE


def check_rights(
    request: RestoreRequest, topic: frozenset[str] | None, cluster: frozenset[str] | None
) -> Iterator[PreflightFinding]:
    """Find missing rights by the operations the cluster authorizes. `topic` is None if there is no such topic.

    Rights on transactional ids are tried later, before anything is created, because Kafka has no request for them.
    """
    named = request.to_topic
    if missing := [] if topic is None else _list_missing_rights(topic, "WRITE", "READ", "DESCRIBE"):
        yield make_refusal(
            f"the target's credentials lack {' and '.join(missing)} on {named}: the restore writes records, and "
            "reads them back to verify them. Grant these rights, and also WRITE on transactional ids restore.* and "
            "READ on groups restore.*"
        )
    if cluster is None:
        return
    if topic is None and request.create_topic and _list_missing_rights(cluster, "CREATE"):
        yield make_remark(
            f"the target's credentials lack CREATE on the cluster: creating {named} fails, unless a right on topics of "
            f"its name allows it"
        )
    if request.restore_acls and _list_missing_rights(cluster, "ALTER"):
        yield make_refusal(
            f"the target's credentials lack ALTER on the cluster: the ACLs of {named} cannot be restored"
        )


def _list_missing_rights(granted: frozenset[str], *needed: str) -> list[str]:
    """List the needed operations not granted. `ALL` grants all of them."""
    return [name for name in needed if not {name, "ALL"} & granted]


def _check_compaction(plan: TargetPlan, target: TargetConfigs) -> Iterator[PreflightFinding]:
    """Refuse a compacted target, unless each key is restored once, so that compaction removes no restored value."""
    if "compact" not in target.policies:
        return
    policy = f"{target.topic} has cleanup.policy={target.configs['cleanup.policy']}"
    # Topics that are merged in the target may share a key, though each restores it once.
    is_alone = len(plan.topics) == 1
    if is_alone and plan.facts.is_snapshot and plan.facts.keeps_numbers and not plan.request.outgoing.changes_content:
        yield make_remark(
            f"{policy}: each key is restored once, so compaction removes no value, only tombstones after "
            f"delete.retention.ms; restored records replace older ones of their keys"
        )
        return
    yield make_refusal(
        f"{policy}: compaction would remove restored records that share a key. Set retention.ms=-1 and "
        "retention.bytes=-1 on it, then cleanup.policy=delete, for the restore, and reset all of them afterwards",
    )


def _check_retention(oldest: int, target: TargetConfigs, lasts: int) -> Iterator[PreflightFinding]:
    """Refuse a target whose retention may delete the oldest record (epoch ms) within `lasts` ms from now."""
    limit = target.number("retention.ms", -1) if "delete" in target.policies else -1
    # Retention goes by the timestamps of records, and they have to be there until the restore ends.
    if 0 <= limit < _find_age(oldest, target, lasts):
        yield make_refusal(
            f"{target.topic} has retention.ms={limit}: {_write_oldest(oldest)} would be deleted soon after they "
            f"arrive, or before the end of the restore, for which {timedelta(milliseconds=lasts)} is allowed. Set "
            f"retention.ms=-1, or a longer time, on it{_write_choice(oldest)}",
        )


def _find_age(oldest: int, target: TargetConfigs, lasts: int) -> int:
    """Return the age (ms) of the oldest record at the end of the restore. No record is older than FOREVER_MS."""
    return min(FOREVER_MS, target.now_ms + lasts - oldest)


def _write_oldest(oldest: int) -> str:
    """Describe the oldest records, as the subject of a refusal."""
    if oldest == EARLIEST:
        return "records may have any age, as no object name contains their timestamps, and old ones"
    return f"records as old as {_write_moment(oldest)}"


def _write_choice(oldest: int) -> str:
    """Return the advice to choose by time, if the times of the records are unknown."""
    return ", or choose records that are not too old: --from (what.from_time)" if oldest == EARLIEST else ""


def _check_retention_bytes(
    plan: TargetPlan, target: TargetConfigs, arrived: Mapping[int, int]
) -> Iterator[PreflightFinding]:
    """Refuse a target whose retention.bytes may delete the first restored records. `arrived`: see `check_configs`."""
    limit = target.retention_bytes
    if limit < 0:
        return
    most = bound_largest_log(plan, arrived)
    what = f"{target.topic} has retention.bytes={limit}"
    if most is None:
        yield make_refusal(
            f"{what}, but the bytes that restored records take in the log of a kafka partition are unknown: their "
            "objects have no sizes, or the records are re-encoded. The first of them may be deleted. Set "
            "retention.bytes=-1 on it for the restore"
        )
    elif most > limit:
        addition = " and what earlier runs have sent or left there" if any(arrived.values()) else ""
        yield make_refusal(
            f"{what}: restored records take up to {most:,} bytes in the log of a kafka partition, including what "
            f"Kafka adds to each record, batch and transaction{addition}, so the first of them may be deleted. Set "
            "retention.bytes=-1, or at least that many, on it for the restore"
        )


def _check_oldest(oldest: int, target: TargetConfigs, lasts: int) -> Iterator[PreflightFinding]:
    """Refuse a target that rejects the oldest record (epoch ms), now or at the end of the restore in `lasts` ms."""
    for name in (BEFORE_MAX_MS, DIFFERENCE_MAX_MS):
        limit = target.number(name, FOREVER_MS)
        if limit < _find_age(oldest, target, lasts):
            yield make_refusal(
                f"{target.topic} has {name}={limit}: {_write_oldest(oldest)} are rejected, now or before the end of "
                f"the restore, for which {timedelta(milliseconds=lasts)} is allowed. Raise it to "
                f"{FOREVER_MS}{_write_choice(oldest)}",
            )


def check_newest(newest: int, target: TargetConfigs) -> Iterator[PreflightFinding]:
    """Refuse a target that rejects the newest record (epoch ms), because it is too far in the future."""
    for name, limit in _list_limits_after(target):
        # The restore's duration does not count: as time passes, late records come nearer to now.
        if newest - target.now_ms > limit:
            yield make_refusal(
                f"{target.topic} has {name}={limit}: it rejects records as late as {_write_moment(newest)}. Raise it "
                f"to {FOREVER_MS}",
            )


def _remark_latest(target: TargetConfigs) -> Iterator[PreflightFinding]:
    """Remark on the target's limits if records' times are unknown. Brokers reject later records, so none is lost."""
    for name, limit in _list_limits_after(target):
        if limit < FOREVER_MS:
            yield make_remark(
                f"{target.topic} has {name}={limit}: records that lie so far in the future, if there are any, would "
                f"stop the restore at the first of them. A dry run that reads everything shows it: --exact (how.exact)"
            )


def _list_limits_after(target: TargetConfigs) -> list[tuple[str, int]]:
    """Return the names and values (ms) of the configs that limit timestamps in the future."""
    return [(name, target.number(name, FOREVER_MS)) for name in (AFTER_MAX_MS, DIFFERENCE_MAX_MS)]


def _check_message_size(plan: TargetPlan, target: TargetConfigs) -> Iterator[PreflightFinding]:
    """Find records above max.message.bytes, as far as the index shows them.

    The bytes of an object and the number of its records bound its largest record from both sides.
    """
    limit = target.number("max.message.bytes", MAX_MESSAGE_BYTES)
    what = f"{target.topic} has max.message.bytes={limit}"
    certain = _find_large(plan, limit)
    archived = _read_archived_limit(plan)
    if certain is not None:
        holds = f"{what}: object {certain.key} holds records of {average_record_bytes(certain):,} bytes and more"
        yield _judge_large(plan, holds, limit)
        return
    largest = max((o.largest_bytes for o in plan.objects), default=0)
    if limit < archived and largest + RECORD_OVERHEAD > limit:
        yield make_remark(
            f"{what}, the archived topic allowed {archived}: records above the limit, if there are any, would stop the "
            f"restore at the first of them. A dry run that reads everything shows it: --exact (how.exact)",
        )


def check_largest_record(plan: TargetPlan, target: TargetConfigs, largest: int) -> Iterator[PreflightFinding]:
    """Judge the largest record, if it is too large. `largest` are the bytes of its key, value and headers."""
    limit = target.number("max.message.bytes", MAX_MESSAGE_BYTES)
    if largest > limit:
        holds = f"{target.topic} has max.message.bytes={limit}: a record has {largest:,} bytes"
        yield _judge_large(plan, holds, limit)


def choose_codec(plan: TargetPlan, limit: int) -> str:
    """Return the codec to compress records with before they are sent. The target's worker file decides it.

    If the file has none, records are compressed if the target, like the archived topic, accepts them only compressed:
    brokers compare the compressed bytes with max.message.bytes.
    """
    codec = find_sent_codec(plan.request.target_kafka)
    if codec is not None:
        return codec
    is_needed = _find_large(plan, limit) is not None and limit >= _read_archived_limit(plan)
    return "zstd" if is_needed else "none"


def _find_large(plan: TargetPlan, limit: int) -> ObjectFacts | None:
    """Find an object in which some records certainly have more than `limit` bytes before compression."""
    if plan.facts.chooses or plan.request.outgoing.changes_content:
        return None
    return next((o for o in plan.objects if average_record_bytes(o) > limit), None)


def _read_archived_limit(plan: TargetPlan) -> int:
    """Return the max.message.bytes of the archived topic."""
    return int(dict(plan.configs).get("max.message.bytes", MAX_MESSAGE_BYTES))


def _judge_large(plan: TargetPlan, holds: str, limit: int) -> PreflightFinding:
    """Judge records above the limit before compression."""
    archived = _read_archived_limit(plan)
    if limit < archived:
        return make_refusal(f"{holds}. Raise the limit, or exclude these records by time or offset")
    if find_sent_codec(plan.request.target_kafka) == "none":
        return make_refusal(
            f"{holds}, but the target's worker file has producer.compression.type=none. The archived topic's limit "
            f"was {archived}, so these records were compressed there. Remove that line, set it to zstd, or raise the "
            "limit"
        )
    if choose_codec(plan, limit) == "none":
        return make_refusal(
            f"{holds}. The archived topic's limit was {archived}, so these records were compressed there, but would "
            "not be sent compressed. Set producer.compression.type=zstd in the target's worker file, or raise the "
            "limit"
        )
    return make_remark(
        f"{holds}. The archived topic's limit was {archived}, so these records were compressed there, and they are "
        "sent compressed. A record that is still too large stops the restore, with its source offset"
    )


def _write_moment(timestamp: int) -> str:
    """Write a timestamp as a date, or as a number if no calendar holds it."""
    try:
        moment = EPOCH + timestamp * ONE_MS
    except OverflowError:
        return f"{timestamp} ms"
    return moment.isoformat(timespec="milliseconds")
