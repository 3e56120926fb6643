"""What a target topic does to records that arrive, and with which configs a new one is created. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from kafka_s3_platform.restore.plan import RestorePlan

FOREVER_MS = 2**63 - 1
MAX_MESSAGE_BYTES = 1_048_588
"""Kafka's default of max.message.bytes."""

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
    def now_ms(self) -> int:
        return round(self.now.timestamp() * 1000)


def findings(plan: RestorePlan, target: TargetConfigs) -> Iterator[Finding]:
    """What the target would delete, reject or alter of the plan's records."""
    yield from _compacted(target)
    if plan.oldest is None or plan.newest is None:
        return
    yield from _retained(plan, plan.oldest, target)
    yield from _restamped(target)
    yield from _rejected(plan.oldest, plan.newest, target)
    yield from _too_large(plan, target)


def new_topic_configs(plan: RestorePlan, now: datetime) -> tuple[dict[str, str], list[Finding]]:
    """The archived configs, changed where they would not keep what is restored, and a sentence for each change."""
    archived = {name: value for name, value in plan.source.configs if name not in NOT_CARRIED_OVER}
    changed = _overrides(plan, TargetConfigs(plan.terms["to_topic"], archived, now))
    notes = [
        remark(f"{plan.terms['to_topic']} is created with {name}={value} instead of the archived {archived[name]}")
        for name, value in changed.items()
        if archived.get(name, value) != value
    ]
    return archived | changed, notes


def _overrides(plan: RestorePlan, archived: TargetConfigs) -> dict[str, str]:
    """Always set, because the target broker's defaults may not keep the records either."""
    oldest, newest = plan.oldest, plan.newest
    kept = {
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "retention.bytes": "-1",
        "message.timestamp.type": "CreateTime",
    }
    if oldest is None or newest is None:
        return {}
    own = archived.configs
    if "retention.ms" in own and not _outlived(oldest, archived, archived.number("retention.ms", -1)):
        kept["retention.ms"] = own["retention.ms"]
    if "retention.bytes" in own and not _overflown(plan, archived.number("retention.bytes", -1)):
        kept["retention.bytes"] = own["retention.bytes"]
    if list(_rejected(oldest, newest, archived)):
        kept |= {"message.timestamp.before.max.ms": str(FOREVER_MS), "message.timestamp.after.max.ms": str(FOREVER_MS)}
    return kept


def _compacted(target: TargetConfigs) -> Iterator[Finding]:
    if "compact" in target.policies:
        yield refusal(
            f"{target.topic} has cleanup.policy={target.configs['cleanup.policy']}: compaction would remove restored "
            f"records that share a key. Set cleanup.policy=delete for the restore, and back after it",
        )


def _retained(plan: RestorePlan, oldest: int, target: TargetConfigs) -> Iterator[Finding]:
    if "delete" not in target.policies:
        return
    limit, size = target.number("retention.ms", -1), target.number("retention.bytes", -1)
    if _outlived(oldest, target, limit):
        yield refusal(
            f"{target.topic} has retention.ms={limit}: records as old as {_moment(oldest)} would be deleted soon after "
            f"they arrive. Set retention.ms=-1, or longer, on it",
        )
    if _overflown(plan, size):
        yield refusal(
            f"{target.topic} has retention.bytes={size}: a kafka partition gets up to {_largest(plan):,} bytes of keys "
            f"and values, and the first of them would be deleted. Set retention.bytes=-1, or more, on it",
        )


def _outlived(oldest: int, target: TargetConfigs, limit: int) -> bool:
    return 0 <= limit < target.now_ms - oldest


def _overflown(plan: RestorePlan, limit: int) -> bool:
    return 0 <= limit < _largest(plan)


def _largest(plan: RestorePlan) -> int:
    sizes = (sum(o.record_bytes for o in plan.objects_of(p)) for p in plan.kafka_partitions)
    return max(sizes, default=0)


def _restamped(target: TargetConfigs) -> Iterator[Finding]:
    if target.configs.get("message.timestamp.type") == "LogAppendTime":
        yield refusal(
            f"{target.topic} has message.timestamp.type=LogAppendTime: every record would get the time of the restore. "
            f"Set message.timestamp.type=CreateTime on it",
        )


def _rejected(oldest: int, newest: int, target: TargetConfigs) -> Iterator[Finding]:
    before = target.number("message.timestamp.before.max.ms", FOREVER_MS)
    # an hour is Kafka's own default since 4.0
    after = target.number("message.timestamp.after.max.ms", 3_600_000)
    if target.now_ms - oldest > before:
        yield refusal(
            f"{target.topic} has message.timestamp.before.max.ms={before}: it rejects records as old as "
            f"{_moment(oldest)}. Raise it to {FOREVER_MS}",
        )
    if newest - target.now_ms > after:
        yield refusal(
            f"{target.topic} has message.timestamp.after.max.ms={after}: it rejects records as late as "
            f"{_moment(newest)}. Raise it to {FOREVER_MS}",
        )


def _too_large(plan: RestorePlan, target: TargetConfigs) -> Iterator[Finding]:
    limit = target.number("max.message.bytes", MAX_MESSAGE_BYTES)
    archived = int(dict(plan.source.configs).get("max.message.bytes", MAX_MESSAGE_BYTES))
    if limit < archived:
        yield remark(
            f"{target.topic} has max.message.bytes={limit}, the archived topic allowed {archived}: records above the "
            f"limit, if there are any, would stop the restore at the first of them",
        )


def _moment(timestamp: int) -> str:
    """A timestamp in words; those that no calendar holds as they are."""
    try:
        moment = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=timestamp)
    except OverflowError:
        return f"{timestamp} ms"
    return moment.isoformat(timespec="milliseconds")
