"""Interface of a restore's sources: our own archive, and objects of another sink."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from kafka_s3_platform.model.gaps import MissingRecords
from kafka_s3_platform.restore.outgoing.values import ValueSettings
from kafka_s3_platform.restore.preflight.goal import Checked, DryRunCount, Goal
from kafka_s3_platform.restore.request import RestoreRequest
from kafka_s3_platform.restore.source.base import RecordStream, TargetPlan, TargetStart
from kafka_s3_platform.spark.runner import TaskRunner
from kafka_s3_platform.store.objects import ObjectStore


class StoredPlan(Protocol):
    """The parts of every plan in the bucket. Only its source knows the rest."""

    @property
    def terms(self) -> Mapping[str, Any]:
        """The request as it was made."""
        ...

    @property
    def place(self) -> str:
        """Hash of the place: restores of one id at two places differ."""
        ...

    @property
    def gaps(self) -> tuple[MissingRecords, ...]:
        """Requested records missing at the source."""
        ...

    @property
    def skipped(self) -> tuple[str, ...]:
        """A sentence for each bad object left out."""
        ...

    @property
    def skipped_count(self) -> int:
        """Number of these. `skipped` may be shortened."""
        ...

    @property
    def digest(self) -> str:
        """SHA-256 of the plan. Equal plans have equal digests."""
        ...

    def to_json(self) -> bytes:
        """Return the document, its digest included."""
        ...


P = TypeVar("P", bound=StoredPlan)


@dataclass(frozen=True)
class NewPlan(Generic[P]):
    """A plan before it is stored.

    `claim` stores the documents needed in the bucket before the plan. A run after a killed one makes the plan again,
    and claims again.
    """

    plan: P
    claim: Callable[[], None]


class RestoreSource(Protocol[P]):
    """Source of a restore's records. Every `request` argument is the result of `complete`."""

    def complete(self) -> RestoreRequest:
        """Return the request with the settings of the connector's file. ConfigError if the source cannot do it."""
        ...

    def read_plan(self, request: RestoreRequest, content: bytes) -> P:
        """Read the stored plan. PreflightError or IntegrityError if it does not belong to the request."""
        ...

    def make_plan(self, request: RestoreRequest, documents: ObjectStore) -> NewPlan[P]:
        """Choose objects from the current source."""
        ...

    def plan_targets(self, request: RestoreRequest, plan: P) -> tuple[TargetPlan, ...]:
        """Return the part of each target topic."""
        ...

    def with_starts(self, plan: P, starts: Mapping[str, TargetStart]) -> P:
        """Return the plan with its targets (by topic) as they were before the first record."""
        ...

    def check(
        self, request: RestoreRequest, plan: P, goals: Sequence[Goal], runner: TaskRunner, *, is_begun: bool
    ) -> Checked:
        """Check the objects, and how their records are written. The targets are checked already."""
        ...

    def count(self, request: RestoreRequest, plan: P, goals: Sequence[Goal], runner: TaskRunner) -> DryRunCount:
        """Read everything to count the records."""
        ...

    def make_values(self, goal: Goal, topic: str) -> ValueSettings | None:
        """Return the settings to rewrite keys and values of a source topic. None: they stay as they are."""
        ...

    def make_streams(self, request: RestoreRequest, plan: P) -> list[RecordStream]:
        """Make a stream for each source kafka partition with records to restore."""
        ...
