"""Commit merged days: retire the inputs and add the outputs of many days and topics in one commit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kafka_s3_platform.archive.topics import try_topics
from kafka_s3_platform.errors import PlatformError, SupersededError
from kafka_s3_platform.model.segment import Segment
from kafka_s3_platform.store.index import ConnectorIndex, ConnectorSnapshot, IndexSnapshot, collect_object_keys
from kafka_s3_platform.store.index_commit import Change, retry_commit
from kafka_s3_platform.upkeep.compact.days import load_day_segments, read_day_segments
from kafka_s3_platform.upkeep.compact.merge import MergeResult
from kafka_s3_platform.upkeep.compact.reserve import ReservedDay


@dataclass(frozen=True)
class MergedDay:
    """A day with all merges done, to be committed."""

    reserved: ReservedDay
    results: tuple[MergeResult, ...]

    @property
    def outputs(self) -> tuple[Segment, ...]:
        return tuple(s for r in self.results for s in r.segments)


@dataclass(frozen=True)
class TopicDays:
    """The merged days of one topic. With its `last` days its lease ends."""

    days: Sequence[MergedDay]
    last: bool


def commit_days(index: ConnectorIndex, parts: Mapping[str, TopicDays]) -> dict[str, PlatformError]:
    """Commit the days of all topics in one commit, if every input is still live and the topic's lease still held.

    Return the errors of skipped topics.
    """

    def step(snapshot: ConnectorSnapshot) -> dict[str, PlatformError]:
        snapshot.load_states(parts)
        for day in {merged.reserved.request.day for part in parts.values() for merged in part.days}:
            load_day_segments(snapshot, parts, day)
        changes, failures = try_topics(parts, lambda topic: _build_change(parts[topic], snapshot.topic(topic)))
        pending = {topic: change for topic, change in changes.items() if change is not None}
        if pending:
            snapshot.commit(pending)
        return failures

    return retry_commit(index, step)


def _build_change(part: TopicDays, snapshot: IndexSnapshot) -> Change | None:
    """Return the change of the days; None if an earlier try has committed it, and only the response was lost."""
    gone = [_find_gone(merged, snapshot) for merged in part.days]
    if any(gone) and all(_is_committed(merged, snapshot) for merged in part.days):
        return None
    lease = part.days[0].reserved.lease
    lease.refuse_superseded(snapshot.state)
    for merged, inputs in zip(part.days, gone, strict=True):
        _refuse_replaced_inputs(merged.reserved, inputs)
    return Change(
        added=tuple(s for merged in part.days for s in merged.outputs),
        retired=tuple(s for merged in part.days for s in merged.reserved.inputs),
        removed=lease.end if part.last else (),
        run_id=lease.run_id,
    )


def _find_gone(merged: MergedDay, snapshot: IndexSnapshot) -> frozenset[Segment]:
    """Return the inputs that are no longer live."""
    return frozenset(merged.reserved.inputs) - frozenset(read_day_segments(snapshot, merged.reserved.request.day))


def _is_committed(merged: MergedDay, snapshot: IndexSnapshot) -> bool:
    # no other run can have made these keys; a later compaction may have retired them
    live = read_day_segments(snapshot, merged.reserved.request.day)
    retired = read_day_segments(snapshot, merged.reserved.request.day, retired=True)
    return collect_object_keys(merged.outputs) <= collect_object_keys((*live, *retired))


def _refuse_replaced_inputs(reserved: ReservedDay, gone: frozenset[Segment]) -> None:
    if gone:
        lease = reserved.lease
        keys = ", ".join(f"'{s.key}'" for s in sorted(gone, key=lambda s: s.key)[:5])
        raise SupersededError(
            f"{lease.uri}, topic {lease.topic}: compaction {lease.run_id} (epoch {lease.epoch}): {len(gone)} of "
            f"its inputs were replaced meanwhile ({keys}); run it again"
        )
