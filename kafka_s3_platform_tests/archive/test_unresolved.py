"""What cannot be archived is left out and told; everything else is archived, hour after hour."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar, cast

import pytest

from kafka_s3_platform.core.archive import failures, run
from kafka_s3_platform.core.archive.request import ArchiveRequest
from kafka_s3_platform.core.archive.run import archive_topic
from kafka_s3_platform.core.archive.task import FailedScan, ScanGroup
from kafka_s3_platform.core.config.settings import ConnectorConfig
from kafka_s3_platform.core.errors import BrokerUnavailableError, OffsetGapError, UnresolvedOffsetsError
from kafka_s3_platform.core.kafka.admin import ClusterAdmin
from kafka_s3_platform.core.kafka.answers import Answers, LogEnds
from kafka_s3_platform.core.model.frontier import Frontier
from kafka_s3_platform.core.model.gaps import Gap
from kafka_s3_platform.core.model.offsets import OffsetRange
from kafka_s3_platform.core.model.times import to_epoch_ms
from kafka_s3_platform.core.spark.runner import Attempt
from kafka_s3_platform.core.upkeep.resolve import Skip, resolve_offsets
from kafka_s3_platform.core.upkeep.verify import verify_archive
from kafka_s3_platform_tests.archive.bad_values import BAD, BY_VALUE, JSON, numbered, unresolved
from kafka_s3_platform_tests.conftest import Lab
from kafka_s3_platform_tests.kafka.answering import NOTHING, answering
from kafka_s3_platform_tests.kafka.topics import delete_records
from kafka_s3_platform_tests.kafka.wire import WireRecord, produce_batch, record_batch
from kafka_s3_platform_tests.kafka.wire import produce as produce_raw
from kafka_s3_platform_tests.support import (
    HOUR,
    NOON,
    InProcessRunner,
    InterleavedRunner,
    Sent,
    archived,
    connector,
    scanned,
    snapshot,
    stored,
    tried,
)

T = TypeVar("T")
R = TypeVar("R")


def record_count(config: ConnectorConfig) -> int:
    return sum(s.record_count for s in snapshot(config).segments)


def with_errors(config: ConnectorConfig, **errors: Any) -> ConnectorConfig:
    """The connector with other errors.* settings."""
    records = config.records
    return config.model_copy(
        update={"records": records.model_copy(update={"errors": records.errors.model_copy(update=errors)})}
    )


@pytest.mark.parametrize("settings", [JSON, BY_VALUE], ids=["json", "envelope"])
@pytest.mark.parametrize(
    ("bad", "ranges"),
    [
        ([], []),
        ([4], [(4, 5)]),
        ([4, 5], [(4, 6)]),
        ([0, 4, 9], [(0, 1), (4, 5), (9, 10)]),
        (list(range(10)), [(0, 10)]),
    ],
    ids=["none", "one", "two side by side", "three", "all"],
)
def test_bad_records_are_left_out_and_all_others_are_archived(
    lab: Lab, settings: dict[str, Any], bad: list[int], ranges: list[tuple[int, int]]
) -> None:
    config = lab.fill(numbered(10, bad), **settings)
    report = tried(config, [NOON])
    assert (report.record_count, report.hours[0].verdict.open_counts["unresolved"]) == (10 - len(bad), len(bad))
    assert report.hours[0].complete is (not bad)
    assert unresolved(config) == [(0, *r) for r in ranges]
    assert record_count(config) == 10 - len(bad)
    assert isinstance(report.failure, UnresolvedOffsetsError) is bool(bad)
    assert snapshot(config).state.reservations == ()
    assert verify_archive(config, lab.topic, deep=True, runner=InProcessRunner()).ok


def test_the_error_names_the_offset_the_reason_the_time_left_and_what_to_do(lab: Lab) -> None:
    lab.create_topic(1, retention_ms=10**12)
    lab.produce(numbered(10, [4]))
    config = lab.connector(**JSON)
    with pytest.raises(UnresolvedOffsetsError) as raised:
        archived(config)
    said = str(raised.value)
    assert f"{lab.topic}-0 [4, 5): VALUE_CONVERTER: " in said
    assert " days, " in said


def test_a_bad_record_does_not_hold_up_the_hours_after_it(lab: Lab) -> None:
    config = lab.fill(numbered(10, [4], hours=4) + numbered(10, hours=4, kafka_partition=1), 2, **JSON)
    for hour in range(4):
        tried(config, [NOON + hour * HOUR])
    state = snapshot(config).state
    assert [state.judge.is_complete(NOON + h * HOUR, timedelta(0)) for h in range(4)] == [False, True, True, True]
    assert scanned(config) == (OffsetRange(0, 4), OffsetRange(5, 40))
    assert scanned(config, 1) == (OffsetRange(0, 40),)
    assert record_count(config) == 79


def test_once_the_cause_is_corrected_the_next_run_archives_what_was_left(lab: Lab) -> None:
    config = lab.fill(numbered(10, [4]), **BY_VALUE)
    tried(config, [NOON])
    report = archived(
        config.model_copy(update={"layout": config.layout.model_copy(update={"partitioner": "Hourly"})}), [NOON]
    )
    assert (report.record_count, report.hours[0].complete) == (1, True)
    assert snapshot(config).state.failures == ()
    assert stored(config).column("offset").to_pylist() == list(range(10))
    assert verify_archive(config, lab.topic, deep=True, runner=InProcessRunner()).ok


def test_a_run_that_meets_them_again_tells_them_once(lab: Lab) -> None:
    config = lab.fill(numbered(10, [2, 4, 5]), **JSON)
    for _ in range(3):
        assert isinstance(tried(config).failure, UnresolvedOffsetsError)
    assert len(snapshot(config).state.failures) == 2
    assert record_count(config) == 7


def test_with_tolerance_all_they_go_to_the_dead_letter_topic_afterwards(lab: Lab) -> None:
    config = lab.fill(numbered(10, [2, 4]), **JSON)
    tried(config)
    letters = f"{lab.topic}-dlq"
    report = archived(
        with_errors(config, tolerance="all", dead_letter_topic=letters, dead_letter_replication_factor=1), [NOON]
    )
    assert (report.record_count, report.dead_letter_count) == (0, 2)
    assert report.hours[0].complete
    assert archived(connector(lab.kafka, lab.store, letters).model_copy(update={"name": "l"})).record_count == 2


def test_a_task_gives_up_after_many_failures_and_tells_the_rest_as_one_range(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "MAX_RANGES", 10)
    config = lab.fill(numbered(40_000, range(0, 40, 2)), **JSON)
    tried(config)
    found = unresolved(config)
    # the batch in which they became too many is archived as far as it goes
    assert len(found) == 21
    assert found[:3] == [(0, 0, 1), (0, 2, 3), (0, 4, 5)]
    assert found[-1][2] == 40_000
    assert snapshot(config).state.unresolved[-1].reason == failures.TOO_MANY_FAILURES
    assert record_count(config) == found[-1][1] - 20
    monkeypatch.undo()
    tried(config)
    assert record_count(config) == 40_000 - 20
    assert verify_archive(config, lab.topic, deep=True, runner=InProcessRunner()).ok


def test_an_index_of_an_earlier_version_learns_to_tell_them(lab: Lab) -> None:
    config = lab.archive(numbered(10), **JSON)
    lab.produce([Sent(BAD), Sent(b"1")])
    tried(config)
    assert unresolved(config) == [(0, 10, 11)]
    assert scanned(config) == (OffsetRange(0, 10), OffsetRange(11, 12))


def test_a_header_name_that_is_not_utf_8_stops_nothing(lab: Lab) -> None:
    lab.create_topic()
    names = [b"ok", b"\xff", b"ok"]
    produce_raw(
        lab.kafka.bootstrap_servers,
        lab.topic,
        0,
        [WireRecord(to_epoch_ms(NOON), headers=[(n, b"1")]) for n in names],
    )
    config = lab.connector()
    assert tried(config, [NOON]).record_count == 2
    (row,) = snapshot(config).state.unresolved
    assert (row.start_offset, row.reason, row.min_timestamp) == (1, "HEADER_CONVERTER", to_epoch_ms(NOON))
    letters = f"{lab.topic}-dlq"
    allowing = with_errors(config, tolerance="all", dead_letter_topic=letters, dead_letter_replication_factor=1)
    assert archived(with_errors(allowing, dead_letter_headers=True), [NOON]).dead_letter_count == 1
    dead = connector(lab.kafka, lab.store, letters).model_copy(update={"name": "l"})
    archived(dead)
    (letter,) = stored(dead).to_pylist()
    headers = {h["key"]: h["value"] for h in letter["headers"]}
    assert headers["\\xff"] == b"1"
    assert b"not UTF-8" in headers["__connect.errors.exception.message"]


@pytest.mark.parametrize("tolerance", ["none", "all"])
def test_a_batch_that_cannot_be_read_is_unresolved_whatever_is_tolerated(lab: Lab, tolerance: str) -> None:
    lab.create_topic()
    lab.produce(numbered(10))
    crafted = record_batch([WireRecord(to_epoch_ms(NOON), value=b"crafted")] * 2, offset_deltas=[0, 5])
    produce_batch(lab.kafka.bootstrap_servers, lab.topic, 0, crafted)
    lab.produce(numbered(10))
    config = with_errors(lab.connector(), tolerance=tolerance)
    with pytest.raises(UnresolvedOffsetsError, match=r"-0 \[10, 12\): batch: ") as raised:
        archived(config)
    assert "errors.tolerance" not in str(raised.value)
    assert stored(config).column("offset").to_pylist() == [*range(10), *range(12, 22)]
    report = verify_archive(config, lab.topic, deep=True, runner=InProcessRunner())
    assert (report.ok, len(report.unresolved), len(report.holes)) == (True, 1, 0), "each range is told once"


def test_a_key_that_its_own_object_cannot_hold_is_a_bad_record(lab: Lab) -> None:
    """Nothing of the record may be in the object of the values, which is written first."""
    keys_of_values = (
        {"alias": "a", "type": "ValueToKey", "options": {"fields": "k"}},
        {"alias": "b", "type": "ExtractField$Key", "options": {"field": "k"}},
    )
    records = {**JSON["records"], "transforms": keys_of_values}
    layout = {**JSON["layout"], "keys_format": "bytes"}
    config = lab.fill(
        [Sent(b'{"k":1}' if n == 2 else b'{"k":"text"}') for n in range(5)], layout=layout, records=records
    )
    assert tried(config).record_count == 4
    assert unresolved(config) == [(0, 2, 3)]


def test_a_kafka_partition_without_a_leader_leaves_the_others_archived_and_the_hour_open(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = lab.fill(numbered(10) + numbered(10, kafka_partition=1), 2)
    look = ClusterAdmin.add_log_starts

    def without_a_leader(
        admin: ClusterAdmin, ends: Answers[str, Answers[int, LogEnds]]
    ) -> Answers[str, Answers[int, Frontier]]:
        failure = BrokerUnavailableError("kafka partition 1 has no leader")
        return look(admin, ends).convert(lambda _, seen: Answers({0: seen.results[0]}, {1: failure}))

    monkeypatch.setattr(ClusterAdmin, "add_log_starts", without_a_leader)
    report = tried(config, [NOON])
    assert isinstance(report.failure, BrokerUnavailableError)
    assert [(h.record_count, h.scanned, h.complete) for h in report.hours] == [(10, False, False)]
    monkeypatch.undo()
    assert [(h.record_count, h.scanned, h.complete) for h in archived(config, [NOON]).hours] == [(20, True, True)]


@pytest.mark.parametrize("extractor", ["Record", "Wallclock"])
def test_a_kafka_partition_that_answers_no_time_leaves_the_others_archived_and_the_hour_open(
    lab: Lab, extractor: str
) -> None:
    """As where its remote tier, or its time index, cannot be read."""
    config = lab.fill(numbered(10) + numbered(10, kafka_partition=1), 2, layout={"timestamp_extractor": extractor})

    def silent(_: str, kafka_partition: int, question: str | int, true: int) -> int:
        return NOTHING if kafka_partition == 1 and isinstance(question, int) else true

    with answering(silent):
        for hours in ([NOON], [NOON + HOUR]):
            report = tried(config, hours)
            assert isinstance(report.failure, BrokerUnavailableError)
            assert f"topic {lab.topic}, kafka partition 1" in str(report.failure)
            assert not any(hour.scanned or hour.complete for hour in report.hours)
        assert (scanned(config), scanned(config, 1)) == ((OffsetRange(0, 10),), ())
    assert [(h.record_count, h.scanned, h.complete) for h in archived(config, [NOON]).hours] == [(20, True, True)]


@pytest.mark.parametrize("by_hour", [True, False])
def test_an_unresolved_record_that_retention_took_holds_up_no_later_ones(lab: Lab, by_hour: bool) -> None:
    """The runs fail until somebody decides; meanwhile retention must not take what could be archived."""
    config = lab.fill(numbered(10, [3]), 2, **BY_VALUE)
    tried(config, [NOON])
    delete_records(lab.kafka, lab.topic, 8)
    for n in range(1, 4):
        later = [Sent(b'{"n": 1}', timestamp=NOON + n * HOUR) for _ in range(3)]
        lab.produce(later)
        report = tried(config, [NOON + n * HOUR] if by_hour else None)
        assert isinstance(report.failure, OffsetGapError)
        assert "[3, 4) were deleted" in str(report.failure)
        assert report.record_count == 3
        assert not any(h.complete or h.scanned for h in report.hours)
    state = snapshot(config).state
    assert (unresolved(config), state.gaps) == ([(0, 3, 4)], ())
    resolve_offsets(config, lab.topic, Skip(0, OffsetRange(3, 4)), "decision", dry_run=False)
    assert all(h.complete for h in archived(config, [NOON + n * HOUR for n in range(4)]).hours)
    assert stored(config).column("offset").to_pylist() == [*range(3), *range(4, 19)]


def test_more_bad_records_than_a_task_tells_of_hold_up_no_later_ones(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "MAX_RANGES", 3)
    config = lab.fill(numbered(10, [1, 3, 5]), **JSON)
    tried(config)
    lab.produce(numbered(5))
    assert tried(config).record_count == 5
    assert unresolved(config) == [(0, 1, 2), (0, 3, 4), (0, 5, 6)]


class PartlyFailing(InProcessRunner):
    """Every task of kafka partition 0 fails."""

    def run(self, function: Callable[[T, Attempt], R], tasks: Sequence[T], max_concurrent: int) -> Iterator[Any]:
        for group in cast("Sequence[ScanGroup]", tasks):
            outcomes: list[Any] = []
            for task in group.tasks:
                if task.kafka_partition == 0:
                    outcomes.append(FailedScan(0, task.ranges, BrokerUnavailableError("its disk is broken")))
                else:
                    alone = cast("T", replace(group, tasks=(task,)))
                    for found in super().run(function, [alone], max_concurrent):
                        outcomes += cast("tuple[int, list[Any]]", found)[1]
            yield group.number, outcomes


def test_a_kafka_partition_of_which_all_tasks_fail_leaves_the_others_archived(lab: Lab) -> None:
    config = lab.fill(numbered(2, hours=5) + numbered(2, hours=5, kafka_partition=1), 2, task_size=1)
    hours = tuple(NOON + n * HOUR for n in range(5))
    report = archive_topic(ArchiveRequest(config, lab.topic, "run", hours), PartlyFailing())
    assert isinstance(report.failure, BrokerUnavailableError)
    assert (scanned(config), scanned(config, 1)) == ((), (OffsetRange(0, 10),))
    assert snapshot(config).state.reservations == ()


class Killed(BaseException):
    """No error of the platform's: nothing of the run goes on after it."""


class KilledRunner(InProcessRunner):
    """Is killed when the second slice of tasks begins."""

    def __init__(self) -> None:
        self._slices = 0

    def run(self, function: Callable[[T, Attempt], R], tasks: Sequence[T], max_concurrent: int) -> Iterator[R]:
        self._slices += 1
        if self._slices == 2:
            raise Killed
        yield from super().run(function, tasks, max_concurrent)


def test_what_a_killed_run_has_told_is_told_once_and_the_rest_by_the_next(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "SLICE_TASKS", 1)
    config = lab.fill(numbered(10, [3]) + numbered(10, [5], kafka_partition=1), 2, **JSON)
    with pytest.raises(Killed):
        archive_topic(ArchiveRequest(config, lab.topic, "killed", None), KilledRunner())
    assert unresolved(config) == [(0, 3, 4)]
    assert record_count(config) == 9
    tried(config)
    assert unresolved(config) == [(0, 3, 4), (1, 5, 6)]
    assert record_count(config) == 18
    assert snapshot(config).state.reservations == ()


def test_offsets_lost_while_another_run_had_read_them_are_not_lost(lab: Lab) -> None:
    config = lab.fill(numbered(100), allow_gaps=True)

    def lose_and_archive() -> None:
        delete_records(lab.kafka, lab.topic, 100)
        lab.produce(numbered(10))
        assert [(g.start_offset, g.end_offset) for g in archived(config).gaps] == [(0, 100)]

    archive_topic(ArchiveRequest(config, lab.topic, "slow", None), InterleavedRunner(lose_and_archive)).raise_failure()
    assert snapshot(config).state.gaps == ()
    assert stored(config).column("offset").to_pylist() == list(range(110))
    assert verify_archive(config, lab.topic, deep=True, runner=InProcessRunner()).gaps == ()


def test_of_a_gap_only_what_nobody_had_read_stays(lab: Lab) -> None:
    config = lab.fill(numbered(50, hours=2), allow_gaps=True)

    def lose_and_archive() -> None:
        delete_records(lab.kafka, lab.topic, 100)
        assert [(g.start_offset, g.end_offset) for g in tried(config, [NOON]).gaps] == [(0, 100)]

    hour = ArchiveRequest(config, lab.topic, "slow", (NOON + HOUR,))
    archive_topic(hour, InterleavedRunner(lose_and_archive)).raise_failure()
    assert snapshot(config).state.gaps == (Gap(0, 0, 50, "retention"),)
    assert stored(config).column("offset").to_pylist() == list(range(50, 100))
