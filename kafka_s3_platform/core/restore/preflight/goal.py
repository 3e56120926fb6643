"""A target topic with its part of the plan, and a source's findings before the first record is sent.

The target's brokers validate the creation of a topic before anything is created.
"""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.errors import ConfigError, PermanentError
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.model.batches import NO_TIMESTAMP, count_record_bytes
from kafka_s3_platform.core.restore.outgoing.sent import SentSettings, ValueSettings
from kafka_s3_platform.core.restore.preflight.begin import check_target
from kafka_s3_platform.core.restore.preflight.checks import Target, check_target_configs, observe_targets
from kafka_s3_platform.core.restore.preflight.target import (
    DECIDED,
    PreflightFinding,
    choose_topic_size,
    make_topic_configs,
)
from kafka_s3_platform.core.restore.request import ReadFacts
from kafka_s3_platform.core.restore.source.base import TargetPlan
from kafka_s3_platform.core.store.objects import ObjectStore

TARGETS_AT_ONCE = 8
"""The number of a restore's targets that are observed, or created, at once."""


def check_creation(plan: TargetPlan, target: Target, admin: ClusterAdmin) -> Target:
    """Find the configs of a new topic that the brokers reject, and the reason if they refuse it without these, too.

    Brokers of another version have other configs or allow other values. Nothing is created. If the restore creates no
    topic, the target is returned unchanged.
    """
    if target.description is not None or not plan.request.create_topic:
        return target
    configs, _ = make_topic_configs(plan, target.configs.now, target.not_taken)
    if _try_creation(plan, admin, configs) is None:
        return target
    needed = {name: value for name, value in configs.items() if name in DECIDED}
    # Each config is tried by itself: an error about all may name only one of those that the brokers reject.
    alone = ((name, _try_creation(plan, admin, {**needed, name: configs[name]})) for name in configs.keys() - DECIDED)
    checked = replace(target, not_taken={name: err.text for name, err in alone if isinstance(err, ConfigError)})
    accepted, _ = make_topic_configs(plan, checked.configs.now, checked.not_taken)
    refusal = _try_creation(plan, admin, accepted)
    if refusal is None:
        return checked
    return replace(checked, uncreatable=str(refusal))


def _try_creation(plan: TargetPlan, admin: ClusterAdmin, configs: dict[str, str]) -> PermanentError | None:
    """Let the brokers validate the creation of the target. Return their refusal, or None if they would create it."""
    size = choose_topic_size(plan)
    replicas = plan.request.replication_factor or -1
    try:
        admin.check_new_topic(plan.to_topic, size, replicas, configs)
    except PermanentError as err:
        return err
    return None


@dataclass(frozen=True)
class Goal:
    """One target topic as it was found, and its part of the plan."""

    plan: TargetPlan
    target: Target
    is_alone: bool = True
    """True if the restore has no other target."""
    failure: PermanentError | None = None
    """The reason why this target, of several, cannot go on: it has changed since the restore began."""

    def name_findings(self, findings: Iterable[PreflightFinding]) -> list[PreflightFinding]:
        """Return the findings, each with its topic if the restore has several."""
        return [finding if self.is_alone else replace(finding, topic=self.plan.name) for finding in findings]

    @property
    def size(self) -> int:
        """The target's number of kafka partitions: when the restore began or, before that, as it is or will be."""
        if self.plan.start is not None:
            return len(self.plan.start.offsets)
        if self.target.description is not None:
            return len(self.target.description.kafka_partitions)
        return choose_topic_size(self.plan)

    def sent(self, values: ValueSettings | None) -> SentSettings:
        """Return the settings for changing the records of a stream before they are sent to this target."""
        request = self.plan.request
        return SentSettings(self.plan.to_topic, self.size, request.records, request.outgoing, request.on_error, values)


def map_goals(goals: Sequence[Goal]) -> dict[tuple[str, str], Goal]:
    """Map each pair of source topic and target topic to its goal."""
    return {(topic, goal.plan.to_topic): goal for goal in goals for topic in goal.plan.topics}


def map_configs(goals: Sequence[Goal]) -> dict[str, ConnectorConfig]:
    """Map the name of each connector of the goals to its configuration."""
    return {goal.plan.request.config.name: goal.plan.request.config for goal in goals}


@dataclass(frozen=True)
class Checked:
    """The findings of a source about its objects. `cold_objects` are the objects in cold storage, by store and key."""

    findings: tuple[PreflightFinding, ...]
    cold_objects: tuple[tuple[ObjectStore, str], ...]


@dataclass(frozen=True)
class StreamCount:
    """The counts of a stream read by a dry run. Bytes are of keys, values and headers.

    `newest` is the latest timestamp (epoch ms), or NO_TIMESTAMP if no record has one. `elsewhere` maps each topic other
    than the target to the number of records sent there by transforms. Transforms drop `filtered_count` records.
    """

    topic: str
    kafka_partition: int
    record_count: int = 0
    record_bytes: int = 0
    largest_record_bytes: int = 0
    newest: int = NO_TIMESTAMP
    elsewhere: Mapping[str, int] = field(default_factory=dict)
    filtered_count: int = 0
    facts: ReadFacts = field(default_factory=ReadFacts)

    def add(self, batch: pa.RecordBatch) -> "StreamCount":
        """Return these counts plus the records of a batch, which is never empty."""
        sizes = count_record_bytes(batch)
        return replace(
            self,
            record_count=self.record_count + batch.num_rows,
            record_bytes=self.record_bytes + int(sizes.sum()),
            largest_record_bytes=max(self.largest_record_bytes, int(sizes.max())),
            newest=max(self.newest, pc.max(batch.column("timestamp").cast(pa.int64())).as_py()),
        )


@dataclass(frozen=True)
class DryRunCount:
    """The counts of a dry run that reads every object. `streams` is None if reading has failed."""

    streams: tuple[StreamCount, ...] | None = None
    is_exact: bool = False
    findings: tuple[PreflightFinding, ...] = ()


def observe_goals(plans: Sequence[TargetPlan], admin: ClusterAdmin, *, isolates: bool = False) -> list[Goal]:
    """Observe the target topics, and check them if the restore has begun.

    If it `isolates`, and there are several topics, one that has changed does not stop the others: its goal has the
    error as its `failure`.

    Raises:
        MissingTopicError, TopicRecreatedError, PreflightError: a topic has changed since the restore began.
    """
    if not plans:
        return []
    cluster = admin.describe_cluster()
    most = admin.read_broker_config(cluster.broker_id, "transaction.max.timeout.ms")
    observed = observe_targets(plans, admin, cluster, most)

    def observe(plan: TargetPlan, target: Target) -> Goal:
        """Check one target or, if it is missing, its creation."""
        is_alone = len(plans) == 1
        if plan.start is not None:
            try:
                check_target(plan.request, plan.start, target.description)
            except PermanentError as err:
                if is_alone or not isolates:
                    raise
                return Goal(plan, target, is_alone=False, failure=err)
        return Goal(plan, check_creation(plan, target, admin), is_alone=is_alone)

    with ThreadPoolExecutor(TARGETS_AT_ONCE, thread_name_prefix="restore-target") as pool:
        return list(pool.map(observe, plans, observed))


def find_new_refusals(begun: Goal, now: Goal) -> list[str]:
    """Return the refusals of the target's configs of `now`, as if the restore began with them."""
    configs = replace(begun.target.configs, configs=now.target.configs.configs)
    findings = check_target_configs(begun.plan, replace(begun.target, configs=configs))
    return [finding.text for finding in findings if finding.refuses]
