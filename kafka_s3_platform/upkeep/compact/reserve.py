"""Plan the days of a run and commit the plans, on the index version they were made from, in one commit."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timezone
from functools import partial
from typing import TypeAlias
from zoneinfo import ZoneInfo

from kafka_s3_platform.archive.topics import try_topics
from kafka_s3_platform.errors import PlatformError
from kafka_s3_platform.model.segment import Compaction, Segment
from kafka_s3_platform.spark.runner import TaskRunner
from kafka_s3_platform.store.index import ConnectorIndex, ConnectorSnapshot, IndexSnapshot
from kafka_s3_platform.store.index_commit import Change, retry_commit
from kafka_s3_platform.store.lease import Lease, take_leases
from kafka_s3_platform.upkeep.compact.days import find_day_start, load_day_segments, read_day_segments
from kafka_s3_platform.upkeep.compact.plan import Merge, plan_day
from kafka_s3_platform.upkeep.compact.request import CompactRequest

Plans: TypeAlias = Mapping[date, tuple[Merge, ...]]
"""The merges of each day of a topic that has any."""


@dataclass(frozen=True)
class ReservedDay:
    """One day of one topic, with a committed plan. The topic's days share the lease."""

    request: CompactRequest
    lease: Lease
    topic_id: str
    index_id: str
    merges: tuple[Merge, ...]

    @property
    def inputs(self) -> tuple[Segment, ...]:
        return tuple(s for m in self.merges for s in m.inputs)


@dataclass(frozen=True)
class ReservedDays:
    """The days with something to merge, and the errors of topics without a reservation."""

    days: tuple[ReservedDay, ...]
    failures: Mapping[str, PlatformError]

    @property
    def leases(self) -> Mapping[str, Lease]:
        return {day.request.topic: day.lease for day in self.days}


def reserve_days(requests: Sequence[CompactRequest], index: ConnectorIndex, runner: TaskRunner) -> ReservedDays:
    """Commit the plans of all days. Earlier compactions of one of the days end here, with all days of their topic.

    An error of one topic leaves the others. Plans again if another commit came first. Nothing is reserved if `runner`
    cannot run tasks.
    """
    by_topic: dict[str, list[CompactRequest]] = {}
    for request in requests:
        by_topic.setdefault(request.topic, []).append(request)
    return retry_commit(index, partial(_reserve, by_topic, runner))


def _reserve(
    by_topic: Mapping[str, Sequence[CompactRequest]], runner: TaskRunner, snapshot: ConnectorSnapshot
) -> ReservedDays:
    snapshot.load_states(by_topic)
    for day in sorted({request.day for requests in by_topic.values() for request in requests}):
        load_day_segments(snapshot, by_topic, day)
    planned, failures = try_topics(by_topic, lambda topic: _plan_topic(by_topic[topic], snapshot.topic(topic)))
    plans = {topic: topic_plans for topic, topic_plans in planned.items() if topic_plans}
    if plans:
        runner.start()
    leases = _commit_plans(by_topic, plans, snapshot) if plans else {}
    days = [
        day
        for topic in plans
        for day in _build_days(by_topic[topic], plans[topic], leases[topic], snapshot.topic(topic))
    ]
    return ReservedDays(tuple(days), failures)


def _plan_topic(requests: Sequence[CompactRequest], snapshot: IndexSnapshot) -> Plans:
    _ = snapshot.state  # a topic with damaged rows fails here, alone
    size = requests[0].config.archive.daily_segment_bytes
    plans = {r.day: tuple(plan_day(read_day_segments(snapshot, r.day), r.day, size)) for r in requests}
    return {day: merges for day, merges in plans.items() if merges}


def _commit_plans(
    by_topic: Mapping[str, Sequence[CompactRequest]], plans: Mapping[str, Plans], snapshot: ConnectorSnapshot
) -> Mapping[str, Lease]:
    now = datetime.now(timezone.utc)
    changes: dict[str, Change] = {}
    superseded: dict[str, list[Compaction]] = {}
    for topic, days in plans.items():
        request = by_topic[topic][0]
        zone = ZoneInfo(request.config.layout.timezone)
        starts = [find_day_start(day, zone) for day in days]
        rows = tuple(Compaction(start, request.run_id, snapshot.version + 1, now) for start in starts)
        changes[topic] = Change(added=rows, run_id=request.run_id)
        superseded[topic] = [c for c in snapshot.topic(topic).state.compactions if c.chunk_start in starts]
    return take_leases(snapshot, changes, superseded)


def _build_days(
    requests: Sequence[CompactRequest], plans: Plans, lease: Lease, snapshot: IndexSnapshot
) -> Iterator[ReservedDay]:
    state = snapshot.state
    topic_id = state.topic.topic_id if state.topic else ""
    for request in requests:
        if request.day in plans:
            yield ReservedDay(request, lease, topic_id, snapshot.index_id, plans[request.day])
