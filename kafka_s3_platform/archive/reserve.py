"""Plan a run and commit its plan. After that, only this run may archive the offsets that it needs."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial

from kafka_s3_platform.archive.groups import match_replaced_groups, observe_groups
from kafka_s3_platform.archive.look import complete_frontiers, look_until_unchanged
from kafka_s3_platform.archive.plan import PlanInput, ReservablePlan, plan_hours, plan_until_now
from kafka_s3_platform.archive.regrown import find_regrown_logs
from kafka_s3_platform.archive.request import ArchiveRequest
from kafka_s3_platform.kafka.admin import ClusterAdmin, TopicDescription
from kafka_s3_platform.kafka.answers import Answers
from kafka_s3_platform.model.segment import CommittedOffset, HourRange, Reservation
from kafka_s3_platform.model.state import IndexState
from kafka_s3_platform.store.clock import StoreClock
from kafka_s3_platform.store.index import Change, IndexSnapshot, TopicIndex, retry_commit
from kafka_s3_platform.store.index_rows import IndexRow
from kafka_s3_platform.store.lease import Lease, take_lease
from kafka_s3_platform.store.upload import Provenance

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReservedPlan:
    """A plan that is committed. `state` is the state of the index from which the plan was made."""

    lease: Lease
    description: TopicDescription
    plan: ReservablePlan
    state: IndexState
    index_id: str

    @property
    def index(self) -> TopicIndex:
        return self.lease.index

    @property
    def planned_at(self) -> datetime:
        return self.plan.observed_at

    def writer(self, connector: str) -> Provenance:
        """Return the provenance of this run's objects."""
        return Provenance(
            connector,
            self.description.topic,
            self.description.topic_id,
            self.index_id,
            self.lease.run_id,
            self.lease.epoch,
            index_dir=self.index.index_dir,
        )


def reserve_plan(
    request: ArchiveRequest, index: TopicIndex, admin: ClusterAdmin, description: TopicDescription, clock: StoreClock
) -> ReservedPlan:
    """Commit the plan on the index version from which it was made. Plan again if another commit came first."""

    def step(snapshot: IndexSnapshot) -> ReservedPlan:
        snapshot.state.refuse_during_maintenance(request.topic, datetime.now(timezone.utc))
        topic, (groups, plan) = look_until_unchanged(
            admin, description, lambda seen: _observe_and_plan(request, snapshot.state, admin, seen, clock)
        )
        lease = _commit_plan(request, snapshot, plan, topic, groups)
        _log_plan(request, plan, lease.epoch)
        return ReservedPlan(lease, topic, plan, snapshot.state, snapshot.index_id)

    return retry_commit(index, step)


def _observe_and_plan(
    request: ArchiveRequest, state: IndexState, admin: ClusterAdmin, description: TopicDescription, clock: StoreClock
) -> tuple[Sequence[CommittedOffset], ReservablePlan]:
    observed_at = clock.earlier_now()
    # The groups' offsets are read before the log's end, so that this run archives up to them at least.
    groups = observe_groups(admin, request.config, request.topic, description.kafka_partitions, observed_at)
    return groups, _make_plan(request, state, admin, description, observed_at)


def _make_plan(
    request: ArchiveRequest,
    state: IndexState,
    admin: ClusterAdmin,
    description: TopicDescription,
    observed_at: datetime,
) -> ReservablePlan:
    look = admin.look(request.topic, description.kafka_partitions)
    failures = {**look.failures, **find_regrown_logs(request.config, description, state, look.found)}
    sound = Answers({p: f for p, f in look.found.items() if p not in failures}, failures)
    given = PlanInput(
        request.config,
        description,
        complete_frontiers(description, observed_at, sound.some()),
        state,
        partial(admin.offsets_for_times, request.topic),
        failures,
    )
    if request.hours is None:
        return plan_until_now(given)
    return plan_hours(given, request.hours)


def _commit_plan(
    request: ArchiveRequest,
    snapshot: IndexSnapshot,
    plan: ReservablePlan,
    description: TopicDescription,
    groups: Sequence[CommittedOffset],
) -> Lease:
    epoch = snapshot.version + 1
    reservations: list[Reservation] = []
    for kafka_partition, ranges in plan.needed.items():
        for item in ranges:
            place = (kafka_partition, item.start_offset, item.end_offset)
            reservations.append(Reservation(*place, request.run_id, epoch, plan.observed_at))
    change = Change(
        added=(
            *reservations,
            *_new_hours(snapshot.state, plan.hours),
            *plan.frontiers,
            *_new_generation(snapshot.state, description),
            *plan.gaps,
            *groups,
        ),
        removed=match_replaced_groups(snapshot.state, groups),
        run_id=request.run_id,
    )
    gap_hours = dict.fromkeys(plan.gaps, request.hours[0]) if request.hours else {}
    return take_lease(snapshot, change, snapshot.state.conflicting(plan.needed), gap_hours)


def _new_hours(state: IndexState, hours: Iterable[HourRange]) -> list[HourRange]:
    known = set(state.hours)
    return [hour for hour in hours if hour not in known]


def _new_generation(state: IndexState, description: TopicDescription) -> list[IndexRow]:
    if state.topic == description.generation:
        return []
    return [description.generation]


def _log_plan(request: ArchiveRequest, plan: ReservablePlan, epoch: int) -> None:
    offsets = sum(len(r) for ranges in plan.needed.values() for r in ranges)
    logger.info(
        "%s: reserved %s offsets of %d kafka partitions as epoch %d",
        request.topic,
        f"{offsets:,}",
        len(plan.needed),
        epoch,
    )
    for kafka_partition, offset in plan.waiting.items():
        logger.warning(
            "%s-%d: waiting for the transaction open at offset %d; what follows it is read when it ends",
            request.topic,
            kafka_partition,
            offset,
        )
