"""The interface of a restore's sources: our own archive, and objects of another sink."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar

from kafka_s3_platform.core.restore.outgoing.sent import ValueSettings
from kafka_s3_platform.core.restore.preflight.goal import Checked, DryRunCount, Goal
from kafka_s3_platform.core.restore.preflight.target import PreflightFinding
from kafka_s3_platform.core.restore.request import RestoreRequest
from kafka_s3_platform.core.restore.source.base import RecordStream, RestorePlan, TargetPlan
from kafka_s3_platform.core.spark.runner import TaskRunner

P = TypeVar("P", bound=RestorePlan)


@dataclass(frozen=True)
class NewPlan(Generic[P]):
    """A plan before it is stored.

    `claim` stores the documents that have to be in the bucket before the plan. If a run is killed before it stores the
    plan, the next one makes a plan again, and claims again. `findings` are about the topics that could not be planned.
    """

    plan: P
    claim: Callable[[], None] = lambda: None
    findings: tuple[PreflightFinding, ...] = ()


class RestoreSource(Protocol[P]):
    """The source of a restore's records. Every other method is called on the result of `complete`."""

    @property
    def request(self) -> RestoreRequest:
        """The request."""
        ...

    def complete(self) -> Self:
        """Return the source with the settings of the connector's file in its request.

        Raises:
            ConfigError: the source cannot do what is asked for.
        """
        ...

    def read_plan(self, content: bytes) -> P:
        """Read the stored plan. Raises PreflightError or IntegrityError if it does not belong to the request."""
        ...

    def make_plan(self, runner: TaskRunner) -> NewPlan[P]:
        """Choose objects from the current source, and name the targets of their records."""
        ...

    def plan_targets(self, plan: P) -> tuple[TargetPlan, ...]:
        """Return the part of the plan for each target topic."""
        ...

    def check(self, plan: P, goals: Sequence[Goal], runner: TaskRunner) -> Checked:
        """Check the objects, and the way their records are written. The targets are already checked."""
        ...

    def count(self, plan: P, goals: Sequence[Goal], runner: TaskRunner) -> DryRunCount:
        """Read everything to count the records."""
        ...

    def make_value_settings(self, goal: Goal, topic: str) -> ValueSettings | None:
        """Return the settings for rewriting a source topic's keys and values, or None if they stay as they are."""
        ...

    def make_streams(self, plan: P) -> Sequence[RecordStream]:
        """Make a stream for each source kafka partition with records to restore."""
        ...
