"""A target topic with what goes there, and what a source finds in its objects before the first record is sent."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from kafka_s3_platform.kafka.admin import ClusterAdmin
from kafka_s3_platform.restore.outgoing.sent import SentSettings
from kafka_s3_platform.restore.outgoing.values import ValueSettings
from kafka_s3_platform.restore.preflight.begin import check_target
from kafka_s3_platform.restore.preflight.checks import Target, check_target_configs, look_at_target
from kafka_s3_platform.restore.preflight.creation import check_creation
from kafka_s3_platform.restore.preflight.target import PreflightFinding
from kafka_s3_platform.restore.request import RestoreRequest
from kafka_s3_platform.restore.source.base import TargetPlan


@dataclass(frozen=True)
class Goal:
    """One target topic as it was found, and what goes there. `request` names this target, and its source topics."""

    request: RestoreRequest
    plan: TargetPlan
    target: Target

    @property
    def size(self) -> int:
        """How many kafka partitions the target has, or gets."""
        return self.target.kafka_partition_count(self.request, self.plan)

    def sent(self, values: ValueSettings | None) -> SentSettings:
        """Return how the records of a stream are changed before they are sent there."""
        request = self.request
        return SentSettings(self.plan.to_topic, self.size, request.records, request.outgoing, request.on_error, values)


@dataclass(frozen=True)
class Checked:
    """The findings of a source about its objects. `cold_keys` are the keys of those in cold storage."""

    findings: tuple[PreflightFinding, ...]
    cold_keys: tuple[str, ...]


@dataclass(frozen=True)
class DryRunCount:
    """What a dry run counts when it reads every object. `record_count` is None where reading has failed.

    Bytes are those of keys, values and headers. `gaps`, `skipped` and `notes` are as in the report.
    """

    record_count: int | None = None
    record_bytes: int = 0
    is_exact: bool = False
    findings: tuple[PreflightFinding, ...] = ()
    gaps: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    skipped_count: int = 0
    gap_count: int = 0


def look_at_goals(request: RestoreRequest, plans: Iterable[TargetPlan], admin: ClusterAdmin) -> list[Goal]:
    """Look at the target topics, and check those of a restore that has begun.

    Raises:
        MissingTopicError, TopicRecreatedError, PreflightError: one is not as it was when the restore began.
    """
    return [_look_at_goal(request, plan, admin) for plan in plans]


def _look_at_goal(request: RestoreRequest, plan: TargetPlan, admin: ClusterAdmin) -> Goal:
    topic = plan.to_topic if plan.to_topic in plan.topics else ", ".join(plan.topics)
    own = replace(request, topic=topic, to_topic=plan.to_topic)
    target = look_at_target(own, admin)
    if plan.start is not None:
        check_target(own, plan.start, target.description)
    return Goal(own, plan, check_creation(own, plan, target, admin))


def find_new_refusals(begun: Goal, now: Goal) -> list[str]:
    """Judge the configs that the target has `now` as if the restore began with them. Return what is refused."""
    configs = replace(begun.target.configs, configs=now.target.configs.configs)
    found = check_target_configs(begun.request, begun.plan, replace(begun.target, configs=configs))
    return [finding.text for finding in found if finding.refuses]
