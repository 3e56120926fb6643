"""A run's lease in the index of a real S3: superseded by another run's commit, or given back when the run fails."""

from dataclasses import replace

import pytest

from kafka_s3_platform.core.errors import SupersededError
from kafka_s3_platform.core.model.segment import Compaction, Reservation
from kafka_s3_platform.core.store.index import IndexSnapshot, TopicIndex
from kafka_s3_platform.core.store.index_commit import Change
from kafka_s3_platform.core.store.lease import Lease, end_runs, released_on_failure, take_leases
from kafka_s3_platform_tests.support import NOON


def take(snapshot: IndexSnapshot, run_id: str, superseded: tuple[Reservation, ...] = ()) -> Lease:
    row = Reservation(0, 0, 9, run_id, snapshot.version + 1, NOON)
    topic = snapshot.index.topic
    change = Change(added=(row,), run_id=run_id)
    return take_leases(snapshot.connector_snapshot, {topic: change}, {topic: superseded})[topic]


def test_a_lease_is_held_until_a_later_run_supersedes_it(index: TopicIndex) -> None:
    first = take(index.open(), "first")
    snapshot = index.open()
    first.refuse_superseded(snapshot.state)
    second = take(snapshot, "second", snapshot.state.reservations)
    state = index.open().state
    assert [r.run_id for r in state.reservations] == ["second"]
    second.refuse_superseded(state)
    with pytest.raises(SupersededError, match=r"run first \(epoch 1\) was superseded .* \(open now: second\)"):
        first.refuse_superseded(state)


def test_a_lease_is_not_that_of_another_run_with_its_epoch(index: TopicIndex) -> None:
    """An index that was put back from a copy gives the epochs after it again."""
    lease = take(index.open(), "first")
    assert lease.is_held(index.open().state)
    assert not replace(lease, run_id="second").is_held(index.open().state)


def test_a_lease_ends_no_run_of_another_kind(index: TopicIndex) -> None:
    compaction = Compaction(NOON, "merges", 1, NOON)
    index.open().commit(Change(added=(compaction,), run_id="merges"))
    lease = take(index.open(), "first")
    snapshot = index.open()
    assert snapshot.state.compactions == (compaction,)
    snapshot.commit(Change(removed=end_runs([compaction, *lease.rows])))
    with pytest.raises(SupersededError, match="open now: none"):
        lease.refuse_superseded(index.open().state)


def test_a_run_that_fails_gives_its_lease_back(index: TopicIndex) -> None:
    lease = take(index.open(), "first")
    with pytest.raises(ZeroDivisionError), released_on_failure(index.within_connector, [lease]):
        raise ZeroDivisionError
    snapshot = index.open()
    assert snapshot.state.reservations == ()
    with pytest.raises(ZeroDivisionError), released_on_failure(index.within_connector, [lease]):
        raise ZeroDivisionError
    assert index.open().version == snapshot.version


def test_a_run_that_is_refused_while_it_holds_its_lease_gives_it_back(index: TopicIndex) -> None:
    """As when the inputs of a compaction are not live any more: no other run has ended its lease."""
    lease = take(index.open(), "first")
    with pytest.raises(SupersededError), released_on_failure(index.within_connector, [lease]):
        raise SupersededError("an input was replaced")
    assert index.open().state.reservations == ()


def test_a_run_that_reserved_nothing_gives_nothing_back(index: TopicIndex) -> None:
    lease = take_leases(index.open().connector_snapshot, {index.topic: Change(run_id="first")}, {})[index.topic]
    with pytest.raises(ZeroDivisionError), released_on_failure(index.within_connector, [lease]):
        raise ZeroDivisionError
    assert index.open().version == lease.epoch
