"""Plan a run and commit its plans (*reserve* their offsets). From then on, only this run may archive these offsets.

The plan also notes the offsets of consumer groups, so the groups can continue on a restored topic.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain

from kafka_s3_platform.core.archive.observation import (
    ArchivedLogs,
    compare_starts,
    complete_frontiers,
    observe_until_unchanged,
    open_divergence_finder,
    refuse_another_topic,
)
from kafka_s3_platform.core.archive.plan import PlanInput, ReservablePlan, list_bounds, plan_hours, plan_until_now
from kafka_s3_platform.core.archive.request import ArchiveRequest
from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.errors import BrokerUnavailableError, PlatformError
from kafka_s3_platform.core.java.regex import compile_java_regex
from kafka_s3_platform.core.kafka.admin import ClusterAdmin, TopicDescription
from kafka_s3_platform.core.kafka.answers import Answers
from kafka_s3_platform.core.kafka.groups import Committed, list_groups, read_committed_of
from kafka_s3_platform.core.kafka.known_offsets import KnownOffsets
from kafka_s3_platform.core.model.frontier import Frontier
from kafka_s3_platform.core.model.segment import CommittedOffset, HourRange, Reservation
from kafka_s3_platform.core.model.silence import try_topics
from kafka_s3_platform.core.model.state import IndexState
from kafka_s3_platform.core.model.times import to_epoch_ms
from kafka_s3_platform.core.spark.runner import TaskRunner
from kafka_s3_platform.core.store.clock import StoreClock
from kafka_s3_platform.core.store.index import ConnectorIndex, ConnectorSnapshot
from kafka_s3_platform.core.store.index_commit import Change, retry_commit
from kafka_s3_platform.core.store.index_rows import IndexRow
from kafka_s3_platform.core.store.lease import Lease, take_leases
from kafka_s3_platform.core.store.row_filter import RowPredicate, match_group
from kafka_s3_platform.core.store.upload import Provenance

logger = logging.getLogger(__name__)


def observe_groups(
    admin: ClusterAdmin,
    config: ConnectorConfig,
    kafka_partitions: Mapping[str, Sequence[int]],
    observed_at: datetime,
) -> dict[str, list[CommittedOffset]]:
    """Read the offsets committed by the groups of `archive.consumer.groups`, in idle kafka partitions too.

    A group that cannot be read is logged, and archiving goes on. A group without offsets of a topic gets no row, so its
    earlier rows stay.
    """
    rows: dict[str, list[CommittedOffset]] = {topic: [] for topic in kafka_partitions}
    if not config.archive.consumer_groups:
        return rows
    for group, state in _choose_groups(admin, config):
        for topic, committed in _read_group(admin, group, kafka_partitions).items():
            rows[topic] += [
                CommittedOffset(group, p, c.offset, c.metadata, c.leader_epoch, state, observed_at)
                for p, c in sorted(committed.items())
            ]
    return rows


def _read_group(
    admin: ClusterAdmin, group: str, kafka_partitions: Mapping[str, Sequence[int]]
) -> Mapping[str, Mapping[int, Committed]]:
    """Read the group's committed offsets of the topics. If this fails, read each topic alone."""
    try:
        return read_committed_of(admin, group, kafka_partitions)
    except PlatformError as err:
        if len(kafka_partitions) == 1 or isinstance(err, BrokerUnavailableError):
            _log_warning(err)
            return {}
    committed: dict[str, Mapping[int, Committed]] = {}
    for topic, numbers in kafka_partitions.items():
        committed |= _read_group(admin, group, {topic: numbers})
    return committed


def match_replaced_groups(state: IndexState, rows: Sequence[CommittedOffset]) -> tuple[RowPredicate, ...]:
    """Match the index rows to be replaced by `rows`: all rows of the same groups, and no others."""
    replaced = {r.group_id for r in state.groups} & {r.group_id for r in rows}
    return tuple(match_group(group_id) for group_id in sorted(replaced))


def _choose_groups(admin: ClusterAdmin, config: ConnectorConfig) -> list[tuple[str, str]]:
    """Return the groups matching a pattern of `archive.consumer.groups`, with their states."""
    patterns = [compile_java_regex(p) for p in config.archive.consumer_groups]
    try:
        listing = list_groups(admin)
    except PlatformError as err:
        _log_warning(err)
        return []
    for error in listing.errors:
        _log_warning(error)
    matching = [(g, s) for g, s in sorted(listing.states.items()) if any(p.fullmatch(g) for p in patterns)]
    if not matching:
        names = ", ".join(config.archive.consumer_groups)
        _log_warning(f"no consumer group is named {names}, or none that may be seen (DESCRIBE)")
    return matching


def _log_warning(reason: object) -> None:
    logger.warning("offsets of consumer groups were not archived, earlier ones stay: %s", reason)


@dataclass(frozen=True)
class ReservedPlan:
    """A topic's committed plan. `state` is the index state it was made from."""

    request: ArchiveRequest
    lease: Lease
    description: TopicDescription
    plan: ReservablePlan
    state: IndexState
    index_id: str

    @property
    def planned_at(self) -> datetime:
        return self.plan.observed_at

    @property
    def writer(self) -> Provenance:
        """The provenance of this run's objects."""
        return self.lease.build_provenance(self.request.config, self.description.topic_id, self.index_id)


@dataclass(frozen=True)
class Reservations:
    """The plans reserved in one commit, by topic, and the errors of the other topics."""

    plans: Mapping[str, ReservedPlan]
    failures: Mapping[str, PlatformError]


def reserve_plans(
    requests: Mapping[str, ArchiveRequest],
    descriptions: Mapping[str, TopicDescription],
    index: ConnectorIndex,
    admin: ClusterAdmin,
    clock: StoreClock,
    runner: TaskRunner,
) -> Reservations:
    """Plan the described topics on one version of the index, and commit all their plans on this version at once.

    An error of one topic does not stop the others. If another commit came first, the topics are planned again. If there
    is something to read but `runner` cannot run tasks, nothing is reserved.
    """

    def step(snapshot: ConnectorSnapshot) -> Reservations:
        """Plan the topics and commit their plans, on one version of the index."""
        snapshot.load_states(descriptions)
        # a topic with damaged rows fails here, alone
        readable, damages = try_topics(descriptions, lambda topic: snapshot.topic(topic).state)
        observed = observe_until_unchanged(
            admin,
            {topic: descriptions[topic] for topic in readable},
            lambda topics: _observe_and_plan(requests, snapshot, admin, topics, clock),
        )
        failures = {**damages, **observed.failures}
        topic_plans = {
            topic: _TopicPlan(description, *topic_plan) for topic, (description, topic_plan) in observed.results.items()
        }
        if any(topic_plan.plan.needed for topic_plan in topic_plans.values()):
            runner.start()
        leases = _commit_plans(requests, snapshot, topic_plans)
        plans: dict[str, ReservedPlan] = {}
        for topic, topic_plan in topic_plans.items():
            _log_plan(topic, topic_plan.plan, leases[topic].epoch)
            topic_snapshot = snapshot.topic(topic)
            plans[topic] = ReservedPlan(
                requests[topic],
                leases[topic],
                topic_plan.description,
                topic_plan.plan,
                topic_snapshot.state,
                topic_snapshot.index_id,
            )
        return Reservations(plans, failures)

    return retry_commit(index, step)


@dataclass(frozen=True)
class _TopicPlan:
    """The plan of a topic before it is committed, with the topic's description and the offsets of groups."""

    description: TopicDescription
    groups: Sequence[CommittedOffset]
    plan: ReservablePlan


def _observe_and_plan(
    requests: Mapping[str, ArchiveRequest],
    snapshot: ConnectorSnapshot,
    admin: ClusterAdmin,
    descriptions: Mapping[str, TopicDescription],
    clock: StoreClock,
) -> Answers[str, tuple[Sequence[CommittedOffset], ReservablePlan]]:
    """Observe the groups' offsets and the logs of the topics. Return each topic's group offsets and its plan."""
    config = next(iter(requests.values())).config
    observed_at = clock.earlier_now()
    kafka_partitions = {topic: description.kafka_partitions for topic, description in descriptions.items()}
    # The groups' offsets are read before the log's end, so that this run archives up to them at least.
    groups = observe_groups(admin, config, kafka_partitions, observed_at)
    ends = admin.log_ends_of(kafka_partitions)
    offsets = KnownOffsets(admin.offsets_for_times_of)
    hours = {topic: requests[topic].hours for topic in ends.results}
    offsets.ask_ahead({t: (ends.results[t].results, list_bounds(config, due)) for t, due in hours.items() if due})
    # The log starts come last, so that offsets which retention deletes before are known to be deleted.
    observed = admin.add_log_starts(ends)

    def prepare(topic: str) -> PlanInput:
        """Compare the topic's logs with the archived ones. Leave out kafka partitions that differ or fail."""
        answers = observed.results[topic]
        state = snapshot.topic(topic).state
        description = descriptions[topic]
        refuse_another_topic(description, state)
        config = requests[topic].config
        with open_divergence_finder(config.kafka, topic) as find_divergence:
            logs = ArchivedLogs(config, topic, state, find_divergence)
            changed = logs.find_changed(answers.results)
            unchanged = {p: f for p, f in answers.results.items() if p not in changed}
            cut_off = logs.find_cut_off(unchanged)
        undecided = _doubt_starts(requests[topic], state, unchanged, offsets)
        failures = {**answers.failures, **changed, **cut_off.failures, **undecided}
        healthy = Answers({p: f for p, f in answers.results.items() if p not in failures}, failures).any_or_raise()
        frontiers = complete_frontiers(description, observed_at, healthy)
        return PlanInput(config, description, frontiers, state, offsets.of_topic(topic), failures, cut_off.results)

    def plan(topic: str) -> tuple[Sequence[CommittedOffset], ReservablePlan]:
        """Return the topic's group offsets, and the plan of its requested hours or, without any, of all up to now."""
        topic_hours = requests[topic].hours
        if topic_hours is None:
            return groups[topic], plan_until_now(plan_inputs[topic])
        return groups[topic], plan_hours(plan_inputs[topic], topic_hours)

    plan_inputs, unprepared = try_topics(observed.results, prepare)
    plans, unplanned = try_topics(plan_inputs, plan)
    return Answers(plans, {**observed.failures, **unprepared, **unplanned})


def _doubt_starts(
    request: ArchiveRequest, state: IndexState, frontiers: Mapping[int, Frontier], offsets: KnownOffsets
) -> Mapping[int, PlatformError]:
    """Check the start of the first hour, as ListOffsets gives it, against the log.

    If the log does not confirm the start, mark it as unknown. Return the errors of the check.
    """
    if not request.hours:
        return {}
    hour = request.hours[0]
    start = to_epoch_ms(hour)
    answers = offsets.of_topic(request.topic)(frontiers, [start]).results
    starts = {kafka_partition: offset_at[start] for kafka_partition, offset_at in answers.items()}
    confirmations = compare_starts(request.config, request.topic, state, frontiers.values(), hour, starts)
    for kafka_partition, is_confirmed in confirmations.results.items():
        if not is_confirmed:
            offsets.doubt(request.topic, kafka_partition, start)
            logger.warning(
                "%s-%d: the broker answers that the hour %s begins at offset %s, and the reader does not see such a "
                "record there. The hour is read from the log's start on",
                request.topic,
                kafka_partition,
                f"{hour:%Y-%m-%dT%H:%M%z}",
                starts[kafka_partition],
            )
    return confirmations.failures


def _commit_plans(
    requests: Mapping[str, ArchiveRequest], snapshot: ConnectorSnapshot, plans: Mapping[str, _TopicPlan]
) -> Mapping[str, Lease]:
    """Commit all plans at once. Return the lease of each topic, which ends overlapping reservations."""
    if not plans:
        return {}
    changes: dict[str, Change] = {}
    superseded: dict[str, Sequence[Reservation]] = {}
    for topic, topic_plan in plans.items():
        state = snapshot.topic(topic).state
        changes[topic] = _build_change(requests[topic], state, topic_plan, snapshot.version + 1)
        superseded[topic] = state.conflicting(topic_plan.plan.needed)
    return take_leases(snapshot, changes, superseded)


def _build_change(request: ArchiveRequest, state: IndexState, topic_plan: _TopicPlan, epoch: int) -> Change:
    """Build the change a topic's plan makes to the index: the rows to add and to remove."""
    plan = topic_plan.plan
    reservations: list[Reservation] = []
    for kafka_partition, ranges in plan.needed.items():
        for item in ranges:
            place = (kafka_partition, item.start_offset, item.end_offset)
            reservations.append(Reservation(*place, request.run_id, epoch, plan.observed_at))
    return Change(
        added=(
            *reservations,
            *_list_new_hours(state, plan.hours),
            *plan.frontiers,
            *_list_new_generation(state, topic_plan.description),
            *plan.gaps,
            *topic_plan.groups,
        ),
        removed=match_replaced_groups(state, topic_plan.groups),
        run_id=request.run_id,
    )


def _list_new_hours(state: IndexState, hours: Iterable[HourRange]) -> list[HourRange]:
    """Return the hour ranges the index does not have yet.

    Its old rows count too, which are folded into files of months.
    """
    hour_ranges = [*hours]
    recorded = {
        *state.hours,
        *chain.from_iterable(month.hours for month in state.read_folded(h.hour for h in hour_ranges)),
    }
    return [hour for hour in hour_ranges if hour not in recorded]


def _list_new_generation(state: IndexState, description: TopicDescription) -> list[IndexRow]:
    """Return the topic's description as a row for the index, or no row if the index has it already."""
    return [] if state.topic == description.generation else [description.generation]


def _log_plan(topic: str, plan: ReservablePlan, epoch: int) -> None:
    """Log the number of reserved offsets, and the kafka partitions waiting for an open transaction."""
    offsets = sum(len(r) for ranges in plan.needed.values() for r in ranges)
    logger.info(
        "%s: reserved %s offsets of %d kafka partitions as epoch %d",
        topic,
        f"{offsets:,}",
        len(plan.needed),
        epoch,
    )
    for kafka_partition, offset in plan.waiting.items():
        logger.warning(
            "%s-%d: waiting for the transaction open at offset %d; what follows it is read when it ends",
            topic,
            kafka_partition,
            offset,
        )
